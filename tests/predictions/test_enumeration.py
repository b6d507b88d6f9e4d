"""Expectations by enumeration against the brute force of the reference."""

import numpy as np
import pytest

from skcircuits.predictions._closed_forms import IncompleteRows, Response
from skcircuits.predictions._expected_response import (
    MAX_COMPLETIONS,
    DrawBudget,
    ExpectedResponse,
)
from tests.reference.enumeration import Completions
from tests.reference.random_circuits import random_circuit, random_rows


class Model:
    @staticmethod
    def predict(X):
        return np.column_stack([np.sin(X @ np.arange(1, X.shape[1] + 1)), X.max(axis=1)])


@pytest.mark.parametrize("seed", range(8))
def test_all_completions(seed):
    circuit = random_circuit(seed, discrete=True)
    X = random_rows(np.random.default_rng(seed), circuit, 12)
    rows = IncompleteRows(X, X, np.zeros(X.shape[1], dtype=bool))
    response = Response([Model()], "predict", lambda encoded: encoded)
    expected_response = ExpectedResponse(response, circuit, DrawBudget(0, 0.0, 1.0, 0))
    few = expected_response.has_few_completions(rows)
    sizes = [
        np.prod([circuit.cardinalities[j] for j in np.flatnonzero(np.isnan(row))]) for row in X
    ]
    np.testing.assert_array_equal(few, np.array(sizes) <= MAX_COMPLETIONS)
    found = expected_response.by_enumeration(rows.take(few))
    for row, mean, variance in zip(X[few], found.mean, found.variance):
        completions = Completions(circuit, row)
        expected = completions.expectation(Model.predict)
        np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-12)
        spread = completions.expectation(lambda nodes, m=expected: (Model.predict(nodes) - m) ** 2)
        np.testing.assert_allclose(variance, spread, rtol=1e-9, atol=1e-12)
