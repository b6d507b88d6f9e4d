"""Fitted estimators, circuits and models in a fresh process: the same answers."""

import copy
import pickle
import warnings

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from skcircuits.graphical import BayesianNetwork
from tests.reference.random_circuits import random_circuit
from tests.reliability.child import run_limited
from tests.reliability.estimators import SMALL, answer, build


def compare_in_this_process(path):
    """Load what `store` wrote and ask it again."""
    for name, model, X, expected in joblib.load(path):
        assert_array_equal(answer(model, X), expected, err_msg=name)
    with open(f"{path}.circuit", "rb") as file:
        circuit, network, X, expected = pickle.load(file)
    assert_array_equal(circuit.log_prob(X), expected)
    assert network.log_partition() == 0.0
    print("equal")


# Besides the small settings: what users get, and columns that say which cells are missing
VARIANTS = [
    *((name, {}) for name in sorted(SMALL)),
    ("ExpectedPredictionSVR", {"density": "auto"}),
    ("ExpectedPredictionRegressor", {"density": "auto"}),
    ("ExpectedPredictionRegressor", {"stacking": False, "add_indicator": True}),
    ("ExpectedPredictionClassifier", {"density": "auto", "add_indicator": True}),
    ("CircuitImputer", {"density": "auto", "add_indicator": True}),
]


@pytest.fixture(scope="module")
def models():
    found = []
    for name, options in VARIANTS:
        model, data = build(name, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(*data)
        found.append((name, model, data[0], answer(model, data[0])))
    return found


@pytest.mark.slow
def test_a_fresh_process_gives_the_same_answers(models, tmp_path):
    joblib.dump(models, tmp_path / "models")
    circuit = random_circuit(5)
    X = circuit.sample(20, random_state=0)
    network = BayesianNetwork([[], [0]], [[0.8, 0.2], [[0.9, 0.1], [0.4, 0.6]]])
    network.marginals()
    with open(tmp_path / "models.circuit", "wb") as file:
        pickle.dump((circuit, network, X, circuit.log_prob(X)), file)
    code, output = run_limited(
        __name__, "compare_in_this_process", tmp_path / "models", seconds=300
    )
    assert code == 0, output[-2000:]
    assert "equal" in output


@pytest.mark.slow
def test_copies_answer_and_clones_are_unfitted(models):
    for name, model, X, expected in models:
        assert_array_equal(answer(copy.deepcopy(model), X), expected, err_msg=name)
        fresh = clone(model)
        assert not [key for key in vars(fresh) if key.endswith("_") and not key.startswith("_")], (
            name
        )
        assert np.array_equal(sorted(fresh.get_params()), sorted(model.get_params()))
