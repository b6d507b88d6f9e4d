"""Weights from a form of low rank: those of the whole matrix where nothing is left out."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import IsingModel
from skcircuits.kernels import Hamming
from skcircuits.stein import InverseMultiquadric, simplex_weights, stein_gram
from skcircuits.stein.simplex import LowRankForm, SteinColumns, estimate_discrepancy, low_rank_form
from skcircuits.targets import from_function

NORMAL = from_function(lambda X: -0.5 * (X**2).sum(axis=1), lambda X: -X)


def numbers():
    X = np.random.default_rng(0).normal(size=(250, 4)) + 0.5
    return X, NORMAL, InverseMultiquadric(scale=2.0)


def states():
    X = np.unique(np.random.default_rng(0).integers(2, size=(300, 9)), axis=0).astype(float)
    return X, IsingModel.grid(3, 3, couplings=0.4), Hamming(9.0)


@pytest.mark.parametrize("make", [numbers, states])
def test_full_rank_is_exact(make):
    X, target, kernel = make()
    K = stein_gram(X, target, kernel)
    form = low_rank_form(SteinColumns.of(X, target, kernel), len(X), np.random.default_rng(0))
    assert_allclose(form.features @ form.features.T, K, atol=1e-7 * K.diagonal().mean())
    counts = np.random.default_rng(1).integers(1, 4, size=len(X))
    weights = form.minimise(counts, 0.1)
    expected = simplex_weights(K, counts=counts, regularization=0.1)
    assert_allclose(weights, expected, atol=1e-6)
    assert_allclose(form.value(weights), weights @ K @ weights, rtol=1e-6)


def test_bounds_hold_and_tighten_with_the_rank():
    X, target, kernel = numbers()
    K = stein_gram(X, target, kernel)
    gram = SteinColumns.of(X, target, kernel)
    weights = np.random.default_rng(1).dirichlet(np.ones(len(X)))
    widths = []
    for rank in (20, 80, 200):
        form = low_rank_form(gram, rank, np.random.default_rng(0))
        low = np.sum((weights @ form.features) ** 2)
        high = low + (weights @ np.sqrt(form.residual)) ** 2
        assert low <= weights @ K @ weights <= high
        assert_allclose(form.diagonal(), K.diagonal(), rtol=1e-8)
        widths.append(high - low)
    assert widths[0] > widths[1] > widths[2]


def test_a_few_components_do_most_of_the_work():
    X, target, kernel = numbers()
    K = stein_gram(X, target, kernel)
    gram = SteinColumns.of(X, target, kernel)
    form = low_rank_form(gram, 60, np.random.default_rng(0))
    weights = form.minimise(np.ones(len(X)), 0.1)
    best = simplex_weights(K, regularization=0.1)
    uniform = np.full(len(X), 1 / len(X))
    gained = uniform @ K @ uniform - weights @ K @ weights
    assert gained > 0.9 * (uniform @ K @ uniform - best @ K @ best)


def test_estimates_of_discrepancies():
    X, target, kernel = numbers()
    K = stein_gram(X, target, kernel)
    weights = simplex_weights(K, regularization=0.1)
    gram = SteinColumns.of(X, target, kernel)
    draws = [estimate_discrepancy(gram, weights, np.random.default_rng(seed)) for seed in range(20)]
    assert_allclose(np.mean(draws), weights @ K @ weights, rtol=0.1)


def test_degenerate_forms():
    nothing = LowRankForm(np.zeros((3, 1)), np.zeros(3))
    assert_allclose(nothing.minimise(np.array([1, 2, 1]), 0.0), [0.25, 0.5, 0.25])
    # One sample alone is all there is.
    alone = LowRankForm(np.ones((1, 1)), np.zeros(1))
    assert_allclose(alone.minimise(np.ones(1), 0.3), [1.0])
