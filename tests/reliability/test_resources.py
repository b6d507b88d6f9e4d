"""Too little memory: an answer in smaller batches, or a MemoryError; never a crash."""

import warnings

import numpy as np
import pytest

# Modules are loaded before memory is limited: libraries cannot be mapped later
from skcircuits import ChowLiuDensity, CircuitImputer, GaussianMixtureDensity
from skcircuits.graphical import IsingModel
from tests.reference.random_circuits import random_circuit
from tests.reliability.child import run_limited
from tests.reliability.estimators import answer, build

FITTED = [ChowLiuDensity, GaussianMixtureDensity, CircuitImputer]


def score_many_rows():
    circuit = random_circuit(4)
    X = np.tile(circuit.sample(1000, random_state=0), (300, 1))
    assert np.isfinite(circuit.log_prob(X)).all()
    print("done")


def fit_under_pressure(name):
    warnings.simplefilter("ignore")
    model, data = build(name)
    try:
        answer(model.fit(*data), data[0])
    except MemoryError:
        print("MemoryError")
    print("done")


def infer_under_pressure():
    model = IsingModel.grid(22, 22, couplings=0.1)
    try:
        model.log_partition()
    except MemoryError as error:
        print(str(error)[:60])
    print("done")


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [400, 1500])
@pytest.mark.parametrize("function", ["score_many_rows", "infer_under_pressure"])
def test_large_questions_in_little_memory(function, mebibytes):
    code, output = run_limited(__name__, function, mebibytes=mebibytes, seconds=100)
    assert code == 0, output[-1500:]
    assert "done" in output


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [30, 60, 120])
@pytest.mark.parametrize("name", [one.__name__ for one in FITTED])
def test_fits_in_little_memory(name, mebibytes):
    code, output = run_limited(
        __name__, "fit_under_pressure", name, mebibytes=mebibytes, seconds=200
    )
    assert code == 0, output[-1500:]
    assert "done" in output
