"""Moments and draws of truncated normals against scipy and quadrature."""

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy import stats

from skcircuits.circuits.inputs.restriction._normal import (
    TruncatedNormals,
    draw_truncated,
    truncated_moments,
)

BOUNDS = [(-3, 2), (1, 1.5), (-np.inf, 0.3), (2.5, np.inf), (-1, np.inf), (-8, -6), (0.2, 0.21)]


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_moments_of_one_dimension(low, high):
    mean, variance = truncated_moments(np.array([float(low)]), np.array([float(high)]))
    distribution = stats.truncnorm(low, high)
    expected = [distribution.mean(), distribution.var() + distribution.mean() ** 2]
    np.testing.assert_allclose(mean[0], expected[0], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(variance[0], expected[1] - expected[0] ** 2, rtol=1e-4, atol=1e-10)


def test_moments_far_out_and_narrow():
    mean, variance = truncated_moments(
        np.array([1e4, 5.0, -np.inf]), np.array([np.inf, 5.0001, -300.0])
    )
    # Exponential tails and uniform slices
    np.testing.assert_allclose(variance[:2], [1e-8, 1e-8 / 12], rtol=1e-6)
    np.testing.assert_allclose(mean, [1e4 + 1e-4, 5.00005, -300.0 - 1 / 300], rtol=1e-7)


@pytest.mark.parametrize(
    ("low", "high"),
    [
        *BOUNDS,
        (-np.inf, np.inf),
        (-0.1, 0.4),
        (-0.1, 0.400001),
        (-3.5, -2.9),
        (2.9, 40.0),
        (3.0, 3.6),
        (-3.1, -3.0),
        (-np.inf, -12.0),
        (30.0, 30.001),
        (1e3, np.inf),
        (-4.0, 1e-3),
    ],
)
def test_moments_of_one_dimension_to_twelve_digits(low, high):
    """Against a rule of many panels on the part that carries mass, from the peak on."""
    peak = float(np.clip(0.0, low, high))
    reach = 80.0 / (abs(peak) + 8.0)
    ends = np.linspace(max(low - peak, -reach), min(high - peak, reach), 61)
    nodes, weights = leggauss(12)
    step = (ends[:-1, None] + np.diff(ends)[:, None] * (nodes + 1.0) / 2.0).ravel()
    mass = np.tile(weights, 60) * np.exp(-0.5 * step * (step + 2.0 * peak))
    mass /= mass.sum()
    first = mass @ step
    mean, variance = truncated_moments(np.array([float(low)]), np.array([float(high)]))
    np.testing.assert_allclose(mean - peak, first, rtol=1e-11, atol=1e-12 * (1.0 + abs(peak)))
    np.testing.assert_allclose(variance, mass @ (step - first) ** 2, rtol=1e-11)


@pytest.mark.parametrize(("low", "high"), BOUNDS)
def test_draws_of_one_dimension(low, high):
    uniform = (np.arange(2000) + 0.5) / 2000
    drawn = draw_truncated(np.full(2000, float(low)), np.full(2000, float(high)), uniform)
    assert (drawn >= low).all() and (drawn <= high).all()
    expected = stats.truncnorm.cdf(drawn, low, high)
    np.testing.assert_allclose(np.sort(expected), uniform, atol=1e-9)


@pytest.mark.parametrize("n_dimensions", [1, 2, 3])
def test_empty_boxes_have_no_mass(n_dimensions):
    low, high = np.full((n_dimensions, 3), -1.0), np.full((n_dimensions, 3), 0.5)
    low[-1, 1], high[0, 2] = 2.0, -1.5
    correlations = np.repeat(np.eye(n_dimensions)[:, :, None], 3, axis=2)
    mass = TruncatedNormals(low, high, correlations).log_mass
    expected = n_dimensions * np.log(stats.norm.cdf(0.5) - stats.norm.cdf(-1.0))
    np.testing.assert_allclose(mass, [expected, -np.inf, -np.inf], rtol=1e-12)


def _grid(low, high, correlations, n_nodes=60):
    """Points of a box and their probabilities by a product rule."""
    nodes, weights = leggauss(n_nodes)
    axes = [a + (b - a) * (nodes + 1) / 2 for a, b in zip(low, high)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(low))
    grids = np.meshgrid(*[weights] * len(low), indexing="ij")
    mass = np.prod(np.stack(grids, -1).reshape(-1, len(low)), axis=1)
    mass = mass * stats.multivariate_normal(np.zeros(len(low)), correlations).pdf(points)
    return points, mass / mass.sum()


CORRELATIONS = np.array([[1.0, 0.8, -0.3], [0.8, 1.0, 0.2], [-0.3, 0.2, 1.0]])


@pytest.mark.parametrize("n_dimensions", [2, 3])
def test_moments_of_several_dimensions(n_dimensions):
    low = np.array([-0.5, 0.7, -2.0])[:n_dimensions]
    high = np.array([1.5, 2.0, 1.0])[:n_dimensions]
    correlations = CORRELATIONS[:n_dimensions, :n_dimensions]
    points, mass = _grid(low, high, correlations)
    mean, covariance = TruncatedNormals(
        low[:, None], high[:, None], correlations[:, :, None]
    ).moments()
    expected = mass @ points
    np.testing.assert_allclose(mean[:, 0], expected, atol=1e-10)
    centred = points - expected
    np.testing.assert_allclose(
        covariance[:, :, 0], (centred * mass[:, None]).T @ centred, atol=1e-10
    )


@pytest.mark.parametrize("n_dimensions", [2, 3])
@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_draws_of_several_dimensions(n_dimensions, shift):
    low = np.array([-0.5, 0.7, -2.0])[:n_dimensions] + shift
    high = np.array([1.5, 2.0, 1.0])[:n_dimensions] + shift
    correlations = CORRELATIONS[:n_dimensions, :n_dimensions]
    normals = TruncatedNormals(low[:, None], high[:, None], correlations[:, :, None])
    drawn = normals.draw(np.zeros(4000, dtype=int), np.random.default_rng(0))
    assert ((drawn >= low[:, None]) & (drawn <= high[:, None])).all()
    points, mass = _grid(low, high, correlations)
    for i in range(n_dimensions):
        order = np.argsort(points[:, i], kind="stable")
        reached = np.cumsum(mass[order])
        expected = np.interp(drawn[i], points[order, i], reached)
        # The rule has sixty steps along each axis
        assert stats.kstest(expected, "uniform").statistic < 0.06
        standard_error = np.sqrt(mass @ points[:, i] ** 2 / 4000)
        assert abs(drawn[i].mean() - mass @ points[:, i]) < 4 * standard_error


class Given:
    """Uniform numbers that are given, in turns."""

    def __init__(self, *turns):
        self.turns = list(turns)

    def random(self, n):
        return self.turns.pop(0)[:n]


def below(normals, cases, z):
    """Probabilities that the first coordinate is at most z, one each."""
    own = normals._take(cases)
    cut = TruncatedNormals(own.low, np.concatenate([z[None], own.high[1:]]), own.correlations)
    return np.exp(cut.log_mass - own.log_mass)


BOXES = {  # low and high of two coordinates
    "middle": ([-0.5, 0.7], [1.5, 2.0]),
    "tail": ([3.5, -1.0], [9.0, 0.5]),
    "corner": ([4.0, 4.0], [np.inf, np.inf]),
    "half": ([-np.inf, 0.2], [np.inf, np.inf]),
    "narrow": ([0.3, -2.0], [0.301, -1.9]),
}


@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.95])
@pytest.mark.parametrize("box", BOXES)
def test_draws_of_two_dimensions_invert_the_cumulative_distribution(box, correlation):
    low, high = (np.array(ends)[:, None] for ends in BOXES[box])
    each = np.array([[1.0, correlation], [correlation, 1.0]])[:, :, None]
    normals, n = TruncatedNormals(low, high, each), 99
    cases, uniform = np.zeros(n, dtype=int), (np.arange(n) + 0.5) / n
    first, second = normals.draw(cases, Given(uniform, uniform[::-1]))
    np.testing.assert_allclose(below(normals, cases, first), uniform, atol=1e-7)
    ends = [(end[1] - correlation * first) / np.sqrt(1 - correlation**2) for end in (low, high)]
    z = (second - correlation * first) / np.sqrt(1 - correlation**2)
    # The upper tail has the digits of positive intervals, which are drawn from their upper end
    is_upper = ends[0] > 0.0
    at_low, at_high, at_z = (stats.norm.cdf(np.where(is_upper, -x, x)) for x in (*ends, z))
    expected = np.where(is_upper, uniform, uniform[::-1])
    np.testing.assert_allclose((at_z - at_low) / (at_high - at_low), expected, atol=1e-7)


@pytest.mark.parametrize("box", BOXES)
def test_draws_of_many_boxes_follow_their_distributions(box):
    """Each case is drawn once, by trials; the corner and the tail refuse most."""
    n, correlation = 1000, 0.6
    low, high = (np.repeat(np.array(ends)[:, None], n, axis=1) for ends in BOXES[box])
    each = np.repeat(np.array([[1.0, correlation], [correlation, 1.0]])[:, :, None], n, axis=2)
    normals, cases = TruncatedNormals(low, high, each), np.arange(n)
    drawn = normals.draw(cases, np.random.default_rng(0))
    turned = TruncatedNormals(low[::-1], high[::-1], each)
    for own, z in ((normals, drawn[0]), (turned, drawn[1])):
        assert stats.kstest(below(own, cases, z), "uniform").pvalue > 1e-3
    mean, covariance = normals._take(cases[:1]).moments()
    product = ((drawn - mean) / np.sqrt(np.diagonal(covariance[..., 0]))[:, None]).prod(axis=0)
    expected = covariance[0, 1, 0] / np.sqrt(covariance[0, 0, 0] * covariance[1, 1, 0])
    assert abs(product.mean() - expected) < 4.0 * product.std() / np.sqrt(n)


@pytest.mark.parametrize("correlation", [0.5, -0.9, 0.999, 0.99999])
def test_moments_of_quadrants(correlation):
    """Rosenbaum (1961): closed forms, however thin the ellipse."""
    correlations = np.array([[1.0, correlation], [correlation, 1.0]])[:, :, None]
    ends = np.zeros((2, 1))
    mean, covariance = TruncatedNormals(ends, ends + np.inf, correlations).moments()
    mass = 0.25 + np.arcsin(correlation) / (2.0 * np.pi)
    expected = (1.0 + correlation) / (2.0 * np.sqrt(2.0 * np.pi) * mass)
    thin = np.sqrt(1.0 - correlation**2) / (2.0 * np.pi * mass)
    np.testing.assert_allclose(mean[:, 0], expected, rtol=1e-9)
    np.testing.assert_allclose(covariance[0, 1], correlation + thin - expected**2, atol=1e-9)
    variance = 1.0 + correlation * thin - expected**2
    np.testing.assert_allclose(covariance[[0, 1], [0, 1], 0], variance, atol=1e-9)


def test_closed_forms_agree_with_quadrature_in_the_tails():
    """Rectangles whose moments have a closed form down to a mass of 1e-12."""
    rng = np.random.default_rng(0)
    low = rng.normal(size=(2, 300)) * 3.0
    high = low + 0.3 + rng.exponential(size=low.shape) * 2.0
    low[rng.random(low.shape) < 0.4], high[rng.random(low.shape) < 0.4] = -np.inf, np.inf
    correlation = rng.uniform(-0.99, 0.99, 300)
    each = np.array([[np.ones(300), correlation], [correlation, np.ones(300)]])
    normals = TruncatedNormals(low, high, each)
    mean, covariance = normals.moments()
    expected_mean, expected_covariance = normals._moments_by_panels()
    assert (normals.log_mass < np.log(1e-4)).sum() > 50
    # Quadrature is what answers the few for which the closed forms lose digits
    closed_mean, closed_covariance = normals._rectangle_moments()
    error = np.abs(closed_covariance - expected_covariance).max(axis=(0, 1))
    assert (error < 1e-8).mean() > 0.8 and (normals.log_mass > np.log(1e-12)).mean() > 0.8
    np.testing.assert_allclose(closed_mean[:, error < 1e-8], mean[:, error < 1e-8], atol=1e-8)
    np.testing.assert_allclose(mean, expected_mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(covariance, expected_covariance, rtol=1e-7, atol=1e-10)
