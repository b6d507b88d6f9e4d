from itertools import islice

import numpy as np
import pytest

from skcircuits.circuits import Circuit, FactorGaussian, Gaussian, Sum
from skcircuits.learning import expectation_maximization, fit_parameters


def factor_rows(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    loadings = np.array([[2.0], [1.0], [-1.0], [0.5]])
    X = 3.0 + rng.normal(size=(n_rows, 1)) @ loadings.T + 0.5 * rng.normal(size=(n_rows, 4))
    complete = X.copy()
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, complete, loadings @ loadings.T + 0.25 * np.eye(4)


def unit(seed, mean):
    loadings = np.random.default_rng(seed).normal(size=(4, 1))
    return FactorGaussian(range(4), np.full(4, mean), loadings, np.ones(4))


def test_loadings_are_learned_from_incomplete_rows():
    X, _, covariance = factor_rows(2000)
    learned = fit_parameters(Circuit(unit(0, 0.0)), X, pseudo_count=0.0, max_iter=100).root
    np.testing.assert_allclose(learned.covariance, covariance, atol=0.2)
    np.testing.assert_allclose(learned.mean, 3.0, atol=0.15)


def test_components_of_a_mixture_find_their_rows():
    X, _, _ = factor_rows(600)
    X[300:] += 12.0
    start = Circuit(Sum([unit(1, 0.0), unit(2, 10.0)], weights=[0.5, 0.5]))
    steps = list(islice(expectation_maximization(start, X, np.ones(600), pseudo_count=0.5), 30))
    scores = [step.log_density for step in steps]
    assert scores[-1] > scores[0] + 1.0
    means = sorted(child.mean.mean() for child in steps[-1].circuit.root.children)
    np.testing.assert_allclose(means, [3.0, 15.0], atol=0.3)


def test_rows_without_any_cell_change_nothing():
    X, _, _ = factor_rows(100)
    start = Circuit(unit(0, 0.0))
    more = np.vstack([X, np.full((5, 4), np.nan)])
    a, b = (fit_parameters(start, rows, pseudo_count=0.0, max_iter=5).root for rows in (X, more))
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=1e-6)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_without_a_prior_a_unit_of_one_column_learns_its_moments(scale):
    X = np.random.default_rng(3).normal(2.0 * scale, 0.3 * scale, size=(30, 1))
    expected = fit_parameters(Circuit(Gaussian(0, scale, scale)), X, pseudo_count=0.0)
    start = FactorGaussian([0], [scale], [[0.6 * scale]], [0.64 * scale**2])
    learned = fit_parameters(Circuit(start), X, pseudo_count=0.0, tol=1e-12)
    np.testing.assert_allclose(learned.log_prob(X), expected.log_prob(X), atol=1e-5)


def test_without_a_prior_no_step_makes_rows_less_likely():
    X, _, _ = factor_rows(25)
    start = Circuit(Sum([unit(1, 0.0), unit(2, 4.0)], weights=[0.5, 0.5]))
    steps = islice(expectation_maximization(start, X, pseudo_count=0.0), 60)
    scores = [step.log_density for step in steps]
    assert np.diff(scores).min() > -1e-9


def test_without_a_prior_constant_and_unseen_columns_keep_a_density():
    X = np.column_stack([np.full(9, 5.0), np.full(9, np.nan), np.arange(9.0)])
    start = FactorGaussian(range(3), np.zeros(3), np.ones((3, 1)), np.ones(3))
    learned = fit_parameters(Circuit(start), X, pseudo_count=0.0, max_iter=50)
    assert np.isfinite(learned.log_prob(X)).all()
    assert learned.root.covariance[1, 1] > 0.0
