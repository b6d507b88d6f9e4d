from itertools import product

import numpy as np
import pytest
from scipy.special import log_ndtr

from skcircuits.circuits.inputs._gaussian_integrals import (
    log_box_probability,
    log_standard_box,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.numerics._arrays import log_ndtr_difference
from skcircuits.numerics._gaussian_stack import GaussianStack
from tests.numerics.conftest import random_stack


def correlated(*correlations):
    """One standardised Gaussian with these correlations above the diagonal."""
    size = 2 if len(correlations) == 1 else 3
    upper = np.zeros((size, size))
    upper[np.triu_indices(size, 1)] = correlations
    return GaussianStack(np.zeros((1, size)), (np.eye(size) + upper + upper.T)[None])


def box_by_gauss_legendre(stack, k, lower, upper):
    """Tensor rule over a small box."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    half = 0.5 * (upper - lower)
    axes = [lower[j] + half[j] * (1.0 + nodes) for j in range(len(lower))]
    delta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1) - stack.means[k]
    density = np.exp(-0.5 * np.einsum("...i,ij,...j->...", delta, stack.precisions[k], delta))
    for j in range(len(lower)):
        density = np.tensordot(half[j] * weights, density, axes=(0, 0))
    return np.log(density) - 0.5 * (stack.log_determinants[k] + len(lower) * np.log(2 * np.pi))


@pytest.mark.parametrize("rho", [-0.999999, -0.9, -0.3, 0.0, 0.5, 0.999, 1.0 - 1e-9])
def test_quadrant_probabilities(rho):
    value = log_box_probability(correlated(rho), np.zeros((1, 2)), np.full((1, 2), np.nan))
    np.testing.assert_allclose(np.exp(value), 0.25 + np.arcsin(rho) / (2 * np.pi), rtol=1e-9)


@pytest.mark.parametrize("rhos", [(0.5, 0.5, 0.5), (0.9, 0.8, 0.7), (-0.4, -0.4, -0.4)])
def test_octant_probabilities(rhos):
    value = log_box_probability(correlated(*rhos), np.zeros((1, 3)), np.full((1, 3), np.inf))
    expected = 0.125 + np.arcsin(rhos).sum() / (4 * np.pi)
    np.testing.assert_allclose(np.exp(value), expected, rtol=1e-9)


@pytest.mark.parametrize("n_columns, n_rows", [(1, 20), (2, 20), (3, 2)])
def test_small_boxes_by_quadrature(n_columns, n_rows):
    stack, rng = random_stack(2, n_columns), np.random.default_rng(5)
    lower = 2.0 * rng.normal(size=(n_rows, n_columns))
    upper = lower + rng.random((n_rows, n_columns))
    values = log_box_probability(stack, lower, upper)
    for k, i in np.ndindex(values.shape):
        expected = box_by_gauss_legendre(stack, k, lower[i], upper[i])
        np.testing.assert_allclose(values[k, i], expected, rtol=1e-9)


def test_unbounded_columns_are_integrated_out():
    stack = random_stack(2, 5)
    lower, upper = np.full((3, 5), np.nan), np.full((3, 5), np.inf)
    lower[0, 3], upper[1, 3] = -1.0, 2.0
    lower[2, [1, 4]] = 0.0
    values = log_box_probability(stack, lower, upper)
    std = np.sqrt(stack.covariances[:, 3, 3])
    np.testing.assert_allclose(values[:, 0], log_ndtr((stack.means[:, 3] + 1.0) / std))
    np.testing.assert_allclose(values[:, 1], log_ndtr((2.0 - stack.means[:, 3]) / std))
    pair = GaussianStack(stack.means[:, [1, 4]], stack.covariances[:, [1, 4]][:, :, [1, 4]])
    expected = log_box_probability(pair, np.zeros((1, 2)), np.full((1, 2), np.nan))
    np.testing.assert_allclose(values[:, 2:], expected, rtol=1e-12)
    nothing = np.full((2, 5), np.nan)
    assert (log_box_probability(stack, nothing, nothing) == 0.0).all()


def test_far_tails_and_thin_boxes():
    independent = correlated(0.0)
    lower, upper = np.array([[40.0, -70.0]]), np.array([[np.inf, -69.0]])
    expected = log_ndtr(-40.0) + log_ndtr_difference(-70.0, -69.0)
    np.testing.assert_allclose(log_box_probability(independent, lower, upper), expected, rtol=1e-11)
    thin = log_box_probability(correlated(0.6), np.zeros((1, 2)), np.full((1, 2), 1e-6))
    density = -np.log(2 * np.pi * 0.8)
    np.testing.assert_allclose(thin, density + 2 * np.log(1e-6), rtol=1e-7)


def test_boxes_add_up():
    stack = correlated(0.7)
    cuts = np.array([-np.inf, -1.0, 0.3, 2.0, np.inf])
    cells = np.stack(np.meshgrid(np.arange(4), np.arange(4)), axis=-1).reshape(-1, 2)
    values = log_box_probability(stack, cuts[cells], cuts[cells + 1])
    np.testing.assert_allclose(np.exp(values).sum(), 1.0, rtol=1e-10)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("n_columns", "far"),
    [
        *product([1, 2], [1e145, 1e160, 1e250, 1e308]),
        (3, 1e160),
        # Integrals over three columns take seconds
        *[pytest.param(3, far, marks=pytest.mark.slow) for far in (1e145, 1e250, 1e308)],
    ],
)
def test_bounds_that_no_density_reaches(n_columns, far):
    covariances = np.array([0.5 + np.eye(n_columns), 1e-10 * (0.5 + np.eye(n_columns))])
    stack = GaussianStack(np.zeros((2, n_columns)), covariances)
    bounds = np.full((1, n_columns), far)
    for lower, upper in ((bounds, np.inf), (-np.inf, -bounds), (bounds, 1.5 * bounds)):
        found = log_box_probability(stack, *np.broadcast_arrays(lower, np.minimum(upper, 1.7e308)))
        assert (found < -1e280).all()
    half = np.append(0.0, np.full(n_columns - 1, -far))[None]
    for lower, upper in ((half, bounds), (-bounds, -half)):
        found = log_box_probability(stack, lower, upper)
        np.testing.assert_allclose(found, np.log(0.5), rtol=1e-9)


@pytest.mark.filterwarnings("error")
def test_empty_boxes():
    stack = random_stack(2, 3)
    lower, upper = np.full((2, 3), np.nan), np.full((2, 3), np.nan)
    lower[0, 0] = upper[0, 0] = 1.0
    lower[1, :2], upper[1, :2] = [0.0, 5.0], [1.0, 4.0]
    assert (log_box_probability(stack, lower, upper) == -np.inf).all()


def test_four_bounded_columns_are_too_many():
    with pytest.raises(CircuitPropertyError, match=r"at most 3 columns.*bounded_columns=\[0, 1"):
        log_box_probability(random_stack(1, 5), np.zeros((1, 5)), np.ones((1, 5)))


@pytest.mark.parametrize("correlation", [0.5, -0.999, 0.9999, -0.99999, 0.999999])
def test_quadrants_of_thin_ellipses(correlation):
    """Sheppard (1899): a quarter and the angle, however thin the ellipse."""
    covariance = np.array([[1.0, correlation], [correlation, 1.0]])
    stack = GaussianStack(np.zeros((1, 2)), covariance[None])
    zeros = np.zeros((1, 2))
    found = log_box_probability(stack, zeros, np.full((1, 2), np.inf))
    mass = 0.25 + np.arcsin(correlation) / (2.0 * np.pi)
    np.testing.assert_allclose(np.exp(found), mass, rtol=1e-9)


@pytest.mark.filterwarnings("error")
def test_rectangles_with_an_end_next_to_the_mean():
    stack = GaussianStack(np.zeros((1, 2)), np.array([[[1.0, 0.5], [0.5, 1.0]]]))
    upper = np.array([[np.inf, np.inf], [40.0, 0.3]])
    at_mean, next_to_it = (
        log_box_probability(stack, np.array([[end, -20.0], [end, -20.0]]), upper)
        for end in (0.0, 1e-320)
    )
    np.testing.assert_allclose(next_to_it, at_mean, rtol=1e-12)


def test_three_sides_are_found_without_a_search_for_peaks(monkeypatch):
    rng = np.random.default_rng(0)
    n_boxes = 16
    roots = rng.normal(size=(n_boxes, 3, 3))
    noise = rng.choice([1e-6, 1e-3, 0.1, 1.0], size=n_boxes)
    # Nearly determined, and nearly the same
    roots[::4, :, 1:] *= 0.01
    covariances = roots @ roots.transpose(0, 2, 1) + noise[:, None, None] * np.eye(3)
    stds = np.sqrt(np.einsum("nii->ni", covariances))
    correlations = (covariances / stds[:, :, None] / stds[:, None]).transpose(1, 2, 0)
    low = rng.normal(size=(3, n_boxes))
    high = low + rng.choice([0.01, 0.3, 3.0], size=n_boxes)
    low[0, :4], high[1, 2:6] = -np.inf, np.inf
    # No mass is above one: all are integrated on the log scale
    expected = np.exp(log_standard_box(low, high, correlations, least_mass=1.0))
    found = np.exp(log_standard_box(low, high, correlations, least_mass=0.0))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-13)

    def refuse(*_):
        raise AssertionError("three columns were integrated on the log scale")

    monkeypatch.setattr("skcircuits.circuits.inputs._gaussian_integrals._log_integral", refuse)
    smooth = np.abs(correlations - np.eye(3)[:, :, None]).max(axis=(0, 1)) < 0.95
    assert smooth.sum() > 4
    log_standard_box(low[:, smooth], high[:, smooth], correlations[:, :, smooth], least_mass=0.0)


@pytest.mark.parametrize("correlation", [-0.49, -0.4999, -0.4999999])
def test_peaks_between_the_nodes_of_three_sides_are_seen(correlation):
    # The three nearly add up to zero: two narrow sides leave a narrow part of the wide one
    correlations = np.full((3, 3, 2), correlation)
    correlations[np.arange(3), np.arange(3)] = 1.0
    low = np.array([[-5.0, 0.0], [0.5, 0.0], [-0.2, 0.0]])
    high = np.array([[5.0, np.inf], [0.53, np.inf], [-0.17, np.inf]])
    quadrant = 1 / 8 + 3 / (4 * np.pi) * np.arcsin(correlation)
    pair = log_standard_box(low[1:, :1], high[1:, :1], correlations[1:, 1:, :1], least_mass=0.0)
    found = np.exp(log_standard_box(low, high, correlations, least_mass=0.0))
    np.testing.assert_allclose(found, [np.exp(pair[0]), quadrant], atol=1e-13, rtol=1e-6)
