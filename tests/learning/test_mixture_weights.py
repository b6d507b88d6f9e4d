"""Weights of mixtures of fixed densities, against a grid and the conditions of optimality."""

import numpy as np
import pytest

from skcircuits.learning.expectation_maximization import likeliest_weights


def mean_log_likelihood(log_prob, sample_weight, weights):
    return np.average(np.log(np.exp(log_prob) @ weights), weights=sample_weight)


@pytest.mark.parametrize("seed", range(3))
def test_no_weights_of_a_grid_are_better(seed):
    rng = np.random.default_rng(seed)
    log_prob, sample_weight = rng.normal(size=(40, 3)), rng.random(40)
    found = likeliest_weights(log_prob, sample_weight)
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    steps = np.linspace(0.0, 1.0, 101)
    grid = [(a, b, 1 - a - b) for a in steps for b in steps if a + b <= 1]
    best = max(mean_log_likelihood(log_prob, sample_weight, np.array(w)) for w in grid)
    assert mean_log_likelihood(log_prob, sample_weight, found) >= best - 1e-7


def test_impossible_rows():
    log_prob = np.array([[0.0, -np.inf], [-np.inf, 0.0], [0.0, -np.inf], [-np.inf, -np.inf]])
    np.testing.assert_allclose(likeliest_weights(log_prob, np.ones(4)), [2 / 3, 1 / 3], rtol=1e-6)
    np.testing.assert_array_equal(likeliest_weights(log_prob[3:], np.ones(1)), [0.5, 0.5])


def test_log_densities_beyond_the_range_of_floats():
    log_prob = np.array([[-5000.0, -5001.0], [3000.0, 3001.0]])
    np.testing.assert_allclose(likeliest_weights(log_prob, np.ones(2)), [0.5, 0.5], rtol=1e-6)


@pytest.mark.parametrize("prior", [0.5, 20.0])
def test_rows_of_the_prior_come_from_all_densities_equally(prior):
    rng = np.random.default_rng(0)
    log_prob, sample_weight = rng.normal(size=(15, 3)), 2.0 * rng.random(15)
    found = likeliest_weights(log_prob, sample_weight, prior)

    def posterior(weights):
        rows = mean_log_likelihood(log_prob, sample_weight, weights) * sample_weight.sum()
        return rows + prior * np.log(weights).mean()

    steps = np.linspace(0.0, 1.0, 101)[1:]
    grid = [(a, b, 1 - a - b) for a in steps for b in steps if a + b < 0.999]
    assert posterior(found) >= max(posterior(np.array(w)) for w in grid) - 1e-6
    single = likeliest_weights(np.array([[0.0, -np.inf]]), np.ones(1), 1.0)
    np.testing.assert_allclose(single, [0.75, 0.25], rtol=1e-6)
