"""B-spline densities against scipy's splines and quadrature."""

import numpy as np
import pytest
from scipy.interpolate import BSpline

from skcircuits.circuits.inputs.polynomial._pieces import (
    basis_cdf,
    density_pieces,
    knot_windows,
    rising_basis_cdfs,
    uniform_weights,
)


def random_breakpoints(rng, n_splines, n_pieces, scale=1.0):
    gaps = rng.gamma(1.0, size=(n_splines, n_pieces)) + 1e-3
    return scale * np.cumsum(np.column_stack([rng.normal(size=n_splines), gaps]), axis=1)


def reference_element(breakpoints, degree, k):
    """Basis function k of one spline with integral one, by scipy."""
    ends = np.repeat(breakpoints[0], degree), np.repeat(breakpoints[-1], degree)
    knots = np.concatenate([ends[0], breakpoints, ends[1]])
    window = knots[k : k + degree + 2]
    element = BSpline.basis_element(window, extrapolate=False)
    return element, (degree + 1) / (window[-1] - window[0])


@pytest.mark.parametrize("degree", range(7))
@pytest.mark.parametrize("n_pieces", [1, 2, 5])
def test_pieces_agree_with_scipy(degree, n_pieces):
    rng = np.random.default_rng(degree)
    breakpoints = random_breakpoints(rng, 3, n_pieces, scale=1e3)
    weights = rng.dirichlet(np.ones(n_pieces + degree), size=3)
    pieces = density_pieces(breakpoints, weights)
    u = np.linspace(0.05, 0.95, 7)
    for spline in range(3):
        for piece in range(n_pieces):
            width = breakpoints[spline, piece + 1] - breakpoints[spline, piece]
            x = breakpoints[spline, piece] + u * width
            expected = np.zeros_like(x)
            for k in range(n_pieces + degree):
                element, height = reference_element(breakpoints[spline], degree, k)
                expected += weights[spline, k] * height * np.nan_to_num(element(x))
            found = np.polynomial.polynomial.polyval(u, pieces[spline, piece]) / width
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("degree", range(7))
def test_cdf_is_the_integral_of_the_pieces(degree):
    rng = np.random.default_rng(degree)
    breakpoints = random_breakpoints(rng, 2, 4)
    weights = rng.dirichlet(np.ones(4 + degree), size=2)
    pieces = density_pieces(breakpoints, weights)
    masses = (pieces / np.arange(1, degree + 2)).sum(axis=2)
    cdf = np.einsum("lmk,lk->lm", basis_cdf(breakpoints, breakpoints, degree), weights)
    np.testing.assert_allclose(np.diff(cdf), masses, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(masses.sum(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("n_pieces", [1, 4])
def test_cdfs_of_rising_degree_are_those_of_each_degree(n_pieces):
    rng = np.random.default_rng(n_pieces)
    breakpoints = random_breakpoints(rng, 3, n_pieces)
    x = rng.uniform(breakpoints[:, :1] - 0.1, breakpoints[:, -1:] + 0.1, size=(3, 9))
    found = list(rising_basis_cdfs(x, breakpoints, 6))
    assert len(found) == 7
    for degree, values in enumerate(found):
        np.testing.assert_array_equal(values, basis_cdf(x, breakpoints, degree))


def test_cdf_is_zero_before_and_one_after_the_range():
    breakpoints = np.array([[0.0, 1.0, 3.0]])
    cdf = basis_cdf(np.array([[-5.0, 0.0, 3.0, 9.0]]), breakpoints, 2)
    np.testing.assert_array_equal(cdf[0, :2], 0.0)
    np.testing.assert_allclose(cdf[0, 2:], 1.0, rtol=1e-14)


@pytest.mark.parametrize("degree", [0, 1, 3, 6])
def test_uniform_weights_give_a_constant(degree):
    breakpoints = random_breakpoints(np.random.default_rng(1), 2, 5)
    weights = uniform_weights(breakpoints, degree)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    spans = breakpoints[:, -1:] - breakpoints[:, :1]
    pieces = density_pieces(breakpoints, weights)
    np.testing.assert_allclose(pieces[..., 0], np.diff(breakpoints) / spans, rtol=1e-11)
    np.testing.assert_allclose(pieces[..., 1:], 0.0, atol=1e-10)


def test_mean_is_the_mean_of_the_knots():
    degree, breakpoints = 3, np.array([[0.0, 0.5, 2.0]])
    windows = knot_windows(breakpoints, degree)[0]
    for k, window in enumerate(windows):
        weights = np.eye(len(windows))[[k]]
        pieces = density_pieces(breakpoints, weights)[0]
        mean = 0.0
        for start, width, piece in zip(breakpoints[0], np.diff(breakpoints[0]), pieces):
            powers = np.arange(degree + 1)
            mean += (piece * (start / (powers + 1) + width / (powers + 2))).sum()
        assert mean == pytest.approx(window.mean(), rel=1e-12)
