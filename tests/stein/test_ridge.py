"""The ridge of Stein weights: leave-one-out errors, and what zeros and noise make of them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.stein._ridge import (
    RIDGES,
    _leave_one_out,
    choose_ridge,
    coordinate_functions,
    state_functions,
)


@pytest.fixture
def gram():
    factor = np.random.default_rng(0).normal(size=(12, 4))
    K = factor @ factor.T
    return K / K.diagonal().mean()


def test_errors_are_those_of_rows_left_out(gram):
    rng = np.random.default_rng(1)
    counts, functions = rng.integers(1, 4, size=12), rng.normal(size=(12, 2))
    squares, _ = _leave_one_out(gram, counts, functions)
    for index, ridge in [(8, RIDGES[8]), (14, RIDGES[14])]:
        covariance = gram + np.diag(ridge / counts)
        errors = np.empty((12, 2))
        for row in range(12):
            others = np.delete(np.arange(12), row)
            inverse = np.linalg.inv(covariance[np.ix_(others, others)])
            # Generalised least squares for the constant, then the conditional mean.
            constant = inverse.sum(axis=0) @ functions[others] / inverse.sum()
            known = functions[others] - constant
            errors[row] = functions[row] - constant - gram[row, others] @ inverse @ known
        assert_allclose(squares[index], (errors**2).mean(axis=0), rtol=1e-8)


def test_noise_wants_a_large_ridge_and_what_the_kernel_explains_a_small_one():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(100, 3))
    K, counts = factor @ factor.T, np.ones(100, dtype=np.int64)
    noise, explained = rng.normal(size=(100, 5)), 1.0 + factor @ rng.normal(size=(3, 5))
    assert choose_ridge(K, counts, [noise], prior=0.3) >= 10.0
    assert choose_ridge(K, counts, [explained], prior=0.3) <= 0.01
    assert choose_ridge(1e6 * K, counts, [explained], prior=0.3) <= 0.01


def test_a_broken_target_may_not_lose_a_family():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(60, 3)) ** 3
    K, counts = factor @ factor.T, np.ones(60, dtype=np.int64)
    families = [factor + 0.3 * rng.normal(size=(60, 3)), rng.normal(size=(60, 3))]
    whole = choose_ridge(K, counts, families, prior=0.3)
    broken = choose_ridge(K, counts, families, prior=0.3, is_broken=True)
    assert broken > whole

    def variance_of_noise(ridge):
        weights = np.linalg.solve(K / K.diagonal().mean() + ridge * np.eye(60), np.ones(60))
        weights = np.maximum(weights, 0.0) / np.maximum(weights, 0.0).sum()
        return 60 * (weights**2).sum()

    assert variance_of_noise(broken) < 1.1 < variance_of_noise(whole)


def test_too_little_to_see_leaves_the_prior(gram):
    constant = np.ones((12, 1))
    assert choose_ridge(gram, np.ones(12), [constant], prior=0.17) == 0.17
    assert choose_ridge(gram[:2, :2], np.ones(2), [np.eye(2)], prior=0.17) == 0.17
    assert choose_ridge(np.zeros((4, 4)), np.ones(4), [np.eye(4)], prior=0.17) == 0.17


def test_functions_are_marginals_and_products():
    tables = [np.array([[0.2, 0.8], [1.0, 0.0]]), np.array([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0]])]
    singles, products = state_functions(tables)
    assert_allclose(singles, [[0.2, 0.5, 0.3], [1.0, 0.0, 1.0]])
    assert products.shape == (2, 6)
    assert_allclose(np.sort(products[1]), [0, 0, 0, 1, 1, 1])
    singles, products = coordinate_functions(np.array([[1.0, 2.0], [3.0, 8.0], [2.0, 5.0]]))
    assert_allclose(singles, [[-1, -1], [1, 1], [0, 0]])
    assert_allclose(products, [[1, 1, 1], [1, 1, 1], [0, 0, 0]])
