"""Too little memory: an answer in smaller batches, or a MemoryError; never a crash."""

import contextlib
import resource
import time
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest

# Modules are loaded before memory is limited: libraries cannot be mapped later
from skcircuits import ChowLiuDensity, CircuitImputer, GaussianMixtureDensity
from skcircuits.estimators._base import MEMORY_ADVICE
from skcircuits.graphical import IsingModel
from tests.reference.random_circuits import random_circuit
from tests.reliability.child import run_limited
from tests.reliability.estimators import SMALL, answer, build

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
        model.fit(*data)
    except MemoryError as error:
        assert MEMORY_ADVICE in error.__notes__
    else:
        with contextlib.suppress(MemoryError):
            answer(model, data[0])
    print("done")


def answer_a_million_rows(name):
    """What a fit of few rows answers about 10^6, in chunks of the working memory."""
    warnings.simplefilter("ignore")
    model, data = build(name)
    X = data[0]
    model.fit(*data)
    ask = model.score_samples if name == "BBISWeighter" else partial(answer, model)
    few = ask(X)
    n_copies = -(-(10**6) // len(X))
    rows = np.tile(X, (n_copies, 1)) if isinstance(X, np.ndarray) else pd.concat([X] * n_copies)
    # Equal rows would be answered once
    noise = 0.1 * np.random.default_rng(0).normal(size=len(rows))
    noise[-len(X) :] = 0.0
    if isinstance(X, np.ndarray) and name != "BBISWeighter":
        rows[:, 0] += noise
    elif not isinstance(X, np.ndarray):
        rows = rows.assign(a=rows["a"] + noise)
    start = time.process_time()
    many = ask(rows)
    assert len(many) >= 10**6
    np.testing.assert_allclose(many[-len(X) :], few, rtol=1e-9, atol=1e-9)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name}: {time.process_time() - start:.1f} s, peak {peak} MiB")
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


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SMALL))
def test_a_million_rows_in_bounded_memory(name):
    """Whatever the rows, temporary arrays stay within scikit-learn's working memory."""
    code, output = run_limited(__name__, "answer_a_million_rows", name, mebibytes=3000, seconds=120)
    assert code == 0, output[-1500:]
    assert "done" in output
