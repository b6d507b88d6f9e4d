"""Conditional means, variances and marginals against brute force."""

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Categorical, Circuit, Gaussian, Indicator
from skcircuits.exceptions import ZeroProbabilityError
from tests.reference.case import QueryCase
from tests.reference.random_circuits import random_circuit


class TestExpectation(QueryCase):
    def query(self, circuit, X):
        return circuit.expectation(X)

    def expected(self, completions):
        return completions.expectation(lambda nodes: nodes)


class TestVariance(QueryCase):
    atol = 1e-10

    def query(self, circuit, X):
        return circuit.variance(X)

    def expected(self, completions):
        mean = completions.expectation(lambda nodes: nodes)
        return completions.expectation(lambda nodes: (nodes - mean) ** 2)


class TestMarginals(QueryCase):
    def query(self, circuit, X):
        return np.hstack(list(circuit.marginals(X).values()))

    def circuit(self, seed):
        return random_circuit(seed, discrete=True)

    def expected(self, completions):
        cardinalities = completions.circuit.cardinalities
        return np.hstack(
            [
                completions.expectation(lambda nodes, v=v, n=n: nodes[:, [v]] == np.arange(n))
                for v, n in cardinalities.items()
            ]
        )


def test_observed_cells_and_foreign_columns_are_returned_as_they_are():
    circuit = Circuit(Gaussian(0, 1.0, 2.0) * Gaussian(2, 0.0, 1.0))
    X = [[np.nan, 7.0, 5.0], [3.0, np.nan, np.nan]]
    np.testing.assert_array_equal(circuit.expectation(X), [[1.0, 7.0, 5.0], [3.0, np.nan, 0.0]])
    np.testing.assert_array_equal(circuit.variance(X), [[4.0, 0.0, 0.0], [0.0, np.nan, 1.0]])


def test_variance_of_far_away_columns_does_not_cancel():
    """Mean 1e9, standard deviation 1: E[x²] - E[x]² would have lost every digit."""
    circuit = Circuit(0.5 * Gaussian(0, 1e9, 1.0) + 0.5 * Gaussian(0, 1e9 + 2, 1.0))
    np.testing.assert_allclose(circuit.variance([[np.nan]]), [[2.0]], rtol=1e-12)


def test_marginals_name_the_discrete_variables_only():
    circuit = Circuit(Categorical(3, [0.1, 0.2, 0.7]) * Gaussian(1, 0.0, 1.0))
    marginals = circuit.marginals([[np.nan] * 4, [0.0, 0.0, 0.0, 2.0]])
    assert list(marginals) == [3]
    np.testing.assert_allclose(marginals[3], [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize("n_rows", [5, 3000])
def test_means_and_marginals_from_one_pass(n_rows):
    circuit = Circuit(
        0.3 * Categorical(1, [0.1, 0.2, 0.7]) * Gaussian(0, 0.0, 1.0)
        + 0.7 * Categorical(1, [0.6, 0.3, 0.1]) * Gaussian(0, 2.0, 0.5)
    )
    X = circuit.sample(n_rows, random_state=0)
    X[np.random.default_rng(1).random(X.shape) < 0.4] = np.nan
    means, marginals = circuit._mean_and_marginals(X)
    np.testing.assert_allclose(means, circuit.expectation(X), rtol=1e-12)
    np.testing.assert_allclose(marginals[1], circuit.marginals(X)[1], rtol=1e-12)


@pytest.mark.parametrize("query", ["expectation", "variance", "marginals", "mpe"])
def test_impossible_evidence_names_the_rows(query):
    circuit = Circuit(Indicator(0, 0, 2) * Bernoulli(1, 0.5))
    X = np.array([[0.0, np.nan], [1.0, np.nan]] * 600)
    with pytest.raises(ZeroProbabilityError, match="rows 1, 3, 5") as caught:
        getattr(circuit, query)(X)
    # Rows are named batch by batch: the first batch that holds an impossible row raises.
    assert caught.value.rows[:3] == [1, 3, 5]
    X = np.zeros((1200, 2))
    X[1100, 0] = 1.0
    X[:, 1] = np.nan
    with pytest.raises(ZeroProbabilityError, match="rows 1100"):
        getattr(circuit, query)(X)
    with pytest.raises(ZeroProbabilityError, match="rows 1100"):
        circuit.sample(1, X)


def test_flows_of_hardly_possible_rows():
    """Evidence of e^-5000 is evidence: the posterior over components is exact."""
    circuit = Circuit(
        0.5 * Gaussian(0, 0.0, 1.0) * Gaussian(1, -1.0, 1.0)
        + 0.5 * Gaussian(0, 1.0, 1.0) * Gaussian(1, 1.0, 1.0)
    )
    x = -100.0  # odds of the second component: exp(-100.5)
    found = circuit.expectation([[x, np.nan]])[0, 1]
    assert found == pytest.approx(-1.0, rel=1e-14)
    assert circuit.expectation([[0.5, np.nan]])[0, 1] == pytest.approx(0.0, abs=1e-14)
