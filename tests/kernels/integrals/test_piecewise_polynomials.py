"""Expected kernels of piecewise polynomial units against adaptive quadrature."""

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.integrate import quad
from scipy.special import erfc, erfcx

from skcircuits.circuits import Circuit, PiecewisePolynomial
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import RBF, Hamming, Laplacian, Polynomial, expected_kernel, mmd2
from skcircuits.kernels.families.base import Monomial
from skcircuits.kernels.integrals.registry import expected_at_points


def unit(seed=0, degree=3, n_atoms=1):
    rng = np.random.default_rng(seed)
    knots = np.cumsum(rng.gamma(1.0, size=5) + 0.1)
    parts = rng.dirichlet(np.ones(4 + degree + n_atoms + 2))
    smooth, rest = np.split(parts, [4 + degree])
    atoms = np.sort(rng.uniform(0, 5, n_atoms))
    return PiecewisePolynomial(
        0, knots, smooth, atoms, rest[:n_atoms], rest[n_atoms:], rng.gamma(2.0, size=2)
    )


def against(layer, function, points):
    return expected_at_points(layer, np.array([0]), [(1.0, function)], points)


def integral(one, f, split):
    """E[f(X)] by a fine rule between all kinks."""
    ends = one.knots[[0, -1]] + np.array([-40.0, 40.0]) * one.tail_scales
    cuts = np.unique([*np.linspace(*ends, 400), *one.knots, *one.atoms, *np.clip(split, *ends)])
    nodes, weights = leggauss(20)
    half = np.diff(cuts)[:, None] / 2
    x = (cuts[:-1, None] + half + half * nodes).ravel()
    density = np.exp(Circuit(one).log_prob(x[:, None]))
    return (half * weights).ravel() @ (density * f(x)) + one.atom_masses @ f(one.atoms)


@pytest.mark.parametrize("kernel", [RBF, Laplacian])
@pytest.mark.parametrize("gamma", [1e-4, 0.5, 30.0])
def test_points_agree_with_quadrature(kernel, gamma):
    one = unit()
    layer = Circuit(one).plan.inputs[0][1]
    points = np.array([-4.0, one.knots[1], 2.2, 7.5])
    found = against(layer, kernel(gamma), points)[0]
    length = 1 / gamma if kernel is Laplacian else 1 / np.sqrt(gamma)
    for s, value in zip(points, found):
        split = s + length * np.arange(-12, 13)
        expected = integral(one, lambda x, s=s: kernel(gamma).univariate(x, s), split)
        assert value == pytest.approx(expected, rel=1e-8, abs=1e-13)


def test_sharp_kernels_find_the_density():
    one = unit(n_atoms=0)
    layer = Circuit(one).plan.inputs[0][1]
    s = np.array([one.knots[:2].mean(), one.knots[2] + 0.01])
    gamma = 1e10
    found = against(layer, RBF(gamma), s)[0]
    expected = np.exp(Circuit(one).log_prob(s[:, None])) * np.sqrt(np.pi / gamma)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_far_points_keep_their_digits():
    # A uniform unit: E = integral of exp(-(s - x)^2) over [0, 1]
    layer = Circuit(PiecewisePolynomial(0, [0.0, 1.0], [1.0])).plan.inputs[0][1]
    found = against(layer, RBF(1.0), np.array([20.0]))[0, 0]
    expected = quad(lambda x: np.exp(-((20.0 - x) ** 2) + 361.0), 0, 1, epsabs=0)[0]
    assert np.log(found) == pytest.approx(np.log(expected) - 361.0, abs=1e-9)


@pytest.mark.parametrize("distance", [0.5, 5.0, 12.0])
def test_points_outside_see_as_much_as_the_kernel_reaches(distance):
    # A uniform unit longer than the kernel: its error function, and exponentials
    layer = Circuit(PiecewisePolynomial(0, [0.0, 10.0], [1.0])).plan.inputs[0][1]
    points = np.array([-distance, 10.0 + distance])
    expected = np.sqrt(np.pi) / 20.0 * (erfc(distance) - erfc(10.0 + distance))
    np.testing.assert_allclose(against(layer, RBF(1.0), points)[0], expected, rtol=1e-10)
    expected = (np.exp(-distance) - np.exp(-10.0 - distance)) / 10.0
    np.testing.assert_allclose(against(layer, Laplacian(1.0), points)[0], expected, rtol=1e-10)


def test_moments():
    one = unit(degree=5, n_atoms=2)
    layer = Circuit(one).plan.inputs[0][1]
    first = against(layer, Monomial(1), np.array([2.0]))[0, 0]
    second = against(layer, Monomial(2), np.array([1.0]))[0, 0]
    mean, variance = one.moments()
    assert first == pytest.approx(2 * mean, rel=1e-12)
    assert second == pytest.approx(variance + mean**2, rel=1e-12)


@pytest.mark.parametrize("kernel", [RBF(gamma=0.7), Laplacian(gamma=1.3), RBF(gamma=20.0)])
def test_pairs_agree_with_quadrature_over_points(kernel):
    p, q = unit(1, degree=2), unit(2, degree=0)
    layer = Circuit(p).plan.inputs[0][1]

    def inner(y):
        return against(layer, kernel, y)[0]

    expected = integral(q, inner, [*p.knots, *p.atoms, *np.linspace(-5, 12, 60)])
    assert expected_kernel(Circuit(p), Circuit(q), kernel) == pytest.approx(expected, rel=1e-8)
    assert expected_kernel(Circuit(q), Circuit(p), kernel) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("kernel", "scales"),
    [
        (RBF(gamma=0.7), [0.02, 0.03]),
        (Laplacian(gamma=0.5), [0.02, 0.03]),
        (RBF(gamma=1e-3), [6.0, 9.0]),
        (RBF(gamma=2000.0), [1.0, 2.0]),
        (Laplacian(gamma=100.0), [1.0, 2.0]),
    ],
)
def test_pairs_with_steep_and_long_tails_and_narrow_kernels(kernel, scales):
    p, q = (
        PiecewisePolynomial(0, knots, [0.3, 0.2], tail_masses=[0.2, 0.3], tail_scales=scales)
        for knots in ([0.0, 1.0, 2.5], [0.4, 2.0, 3.0])
    )
    layer = Circuit(p).plan.inputs[0][1]

    def inner(y):
        return against(layer, kernel, y)[0]

    # Cut where tails are steep, at every kink, and finely where the kernel is narrow
    steep = np.concatenate([knot + np.linspace(-2.0, 2.0, 201) for knot in q.knots])
    expected = integral(q, inner, [*p.knots, *steep])
    assert expected_kernel(Circuit(p), Circuit(q), kernel) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("gamma", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("scales", [(1.0, 1.0), (1e-3, 1.0), (1e6, 2.0), (1e9, 1e8)])
def test_pairs_of_exponentials_over_all_scales(scales, gamma):
    """Distances of exponential numbers are exponential, so that expectations are closed forms."""
    p, q = (
        Circuit(PiecewisePolynomial(0, [-1.0, 0.0], [0.0], tail_masses=[0, 1], tail_scales=[1, s]))
        for s in scales
    )
    rates = 1.0 / np.array(scales)
    larger = rates[::-1] / rates.sum()  # which of the two numbers is the larger one
    for kernel, expected in (
        (Laplacian(gamma), larger @ (rates / (rates + gamma))),
        (RBF(gamma), larger @ (rates * np.sqrt(np.pi / gamma) / 2 * erfcx(rates / 2 / gamma**0.5))),
    ):
        for left, right in ((p, q), (q, p)):
            value = expected_kernel(left, right, kernel)
            assert value == pytest.approx(expected, rel=1e-8, abs=1e-12)


def test_pairs_of_wide_ranges_and_narrow_kernels():
    p = Circuit(PiecewisePolynomial(0, [0.0, 3e8, 1e9], [0.5, 0.5]))
    square = 0.25 / 3e8 + 0.25 / 7e8  # of the density, integrated
    assert expected_kernel(p, p, Laplacian(1.0)) == pytest.approx(2 * square, rel=1e-8)
    assert expected_kernel(p, p, RBF(1.0)) == pytest.approx(np.sqrt(np.pi) * square, rel=1e-8)


def test_discrepancies():
    p, q = Circuit(unit(1)), Circuit(unit(2))
    assert mmd2(p, q, RBF(gamma=1.0)) > 1e-4
    assert mmd2(p, p, RBF(gamma=1.0)) == pytest.approx(0.0, abs=1e-12)
    assert np.isfinite(expected_kernel(p, q, Polynomial(degree=2)))
    with pytest.raises(CircuitPropertyError, match="closed-form expectation"):
        expected_kernel(p, q, Hamming(scale=1.0))
