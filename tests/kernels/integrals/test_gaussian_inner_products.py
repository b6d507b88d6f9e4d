"""Moments of inner products of Gaussian vectors against quadrature, which is exact for them."""

import numpy as np
import pytest

from skcircuits.kernels.integrals._rules import inner_product_moments
from skcircuits.numerics._gaussian_stack import GaussianStack

DEGREE = 6


def stack_of(n_components, size, seed=0):
    rng = np.random.default_rng(seed)
    factors = rng.normal(size=(n_components, size, size))
    covariances = factors @ factors.transpose(0, 2, 1) / size + 0.3 * np.eye(size)
    return GaussianStack(rng.normal(size=(n_components, size)), covariances)


def nodes(stack, component, row):
    """Completions of a row and their weights: polynomials up to degree 15 are exact."""
    mean, covariance = stack.means[component], stack.covariances[component]
    missing = np.isnan(row)
    if not missing.any():
        return row[None], np.ones(1)
    seen = ~missing
    gain = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, missing)])
    centre = mean[missing] + (row[seen] - mean[seen]) @ gain
    spread = covariance[np.ix_(missing, missing)] - covariance[np.ix_(missing, seen)] @ gain
    points, weights = np.polynomial.hermite_e.hermegauss(8)
    grid = np.stack(np.meshgrid(*[points] * missing.sum(), indexing="ij"), axis=-1)
    mass = np.stack(np.meshgrid(*[weights] * missing.sum(), indexing="ij"), axis=-1)
    grid = grid.reshape(-1, missing.sum())
    result = np.tile(row, (len(grid), 1))
    result[:, missing] = centre + grid @ np.linalg.cholesky(spread).T
    mass = mass.reshape(len(grid), -1).prod(axis=1)
    return result, mass / mass.sum()


@pytest.mark.parametrize("columns", [[0, 1, 2], [1], [2, 0]])
def test_equal_quadrature(columns):
    stack = stack_of(2, 3)
    X = np.random.default_rng(1).normal(size=(4, 3))
    X[0, 1] = X[1, [0, 2]] = X[2] = np.nan
    Y = X[[3, 1, 2]]
    moments = inner_product_moments(stack, X, Y, np.array(columns), DEGREE)
    assert moments.shape == (DEGREE + 1, 2, 2, 4, 3)
    for k, other, i, j in np.ndindex(moments.shape[1:]):
        left, left_mass = nodes(stack, k, X[i])
        right, right_mass = nodes(stack, other, Y[j])
        products = left[:, columns] @ right[:, columns].T
        expected = [left_mass @ products**power @ right_mass for power in range(DEGREE + 1)]
        np.testing.assert_allclose(moments[:, k, other, i, j], expected, rtol=1e-10)


def test_complete_rows_give_powers():
    X = np.random.default_rng(0).normal(size=(3, 2))
    moments = inner_product_moments(stack_of(1, 2), X, X, np.arange(2), 4)
    for power, values in enumerate(moments[:, 0, 0]):
        np.testing.assert_allclose(values, (X @ X.T) ** power, rtol=1e-12)


def test_lower_degrees_are_the_first_of_more():
    stack = stack_of(2, 3)
    X = np.random.default_rng(1).normal(size=(3, 3))
    X[0, 1] = X[1, [0, 2]] = X[2] = np.nan
    columns = np.arange(3)
    moments = inner_product_moments(stack, X, X, columns, DEGREE)
    for degree in range(DEGREE):
        fewer = inner_product_moments(stack, X, X[:2], columns, degree)
        np.testing.assert_allclose(fewer, moments[: degree + 1, ..., :2], rtol=1e-12)


@pytest.mark.parametrize("degree", [0, 1])
def test_small_degrees(degree):
    stack = stack_of(1, 2)
    X = np.full((1, 2), np.nan)
    moments = inner_product_moments(stack, X, X, np.arange(2), degree)
    expected = [1.0, stack.means[0] @ stack.means[0]][: degree + 1]
    np.testing.assert_allclose(moments.ravel(), expected, rtol=1e-14)


def test_extreme_scales():
    stack = GaussianStack(np.array([[1e60, 0.0]]), np.diag([1e-60, 1e60])[None])
    X = np.full((1, 2), np.nan)
    moments = inner_product_moments(stack, X, X, np.arange(2), 2)
    np.testing.assert_allclose(moments.ravel(), [1.0, 1e120, 1e240], rtol=1e-12)
