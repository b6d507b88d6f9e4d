"""Closed forms under input units over one variable: discrete ones and Gaussians."""

from __future__ import annotations

from collections.abc import Callable
from math import comb, factorial

import numpy as np
from scipy.special import erfc, erfcx

from skcircuits.circuits.inputs import Bernoulli, DiscreteLayer, Gaussian, GaussianLayer
from skcircuits.kernels.families._structure import Monomial, UnivariateFunction
from skcircuits.kernels.families.product import RBF, Laplacian
from skcircuits.kernels.integrals.registry import register_expectation
from skcircuits.protocols import FloatArray, IntArray


def _discrete_points(
    layer: DiscreteLayer, units: IntArray, function: UnivariateFunction, points: FloatArray
) -> FloatArray:
    """Any function of states is a table."""
    states = np.arange(layer.masses.shape[1], dtype=np.float64)
    return layer.masses[units] @ function.univariate(states[:, None], points)


def _discrete_pairs(
    left: DiscreteLayer,
    left_units: IntArray,
    right: DiscreteLayer,
    right_units: IntArray,
    function: UnivariateFunction,
) -> FloatArray:
    rows = np.arange(left.masses.shape[1], dtype=np.float64)
    columns = np.arange(right.masses.shape[1], dtype=np.float64)
    table = function.univariate(rows[:, None], columns)
    return left.masses[left_units] @ table @ right.masses[right_units].T


def _monomial_points(
    layer: GaussianLayer, units: IntArray, function: Monomial, points: FloatArray
) -> FloatArray:
    means, stds = layer.means[units][:, None], layer.stds[units][:, None]
    return _gaussian_moment(means, stds, function.degree) * points**function.degree


def _monomial_pairs(
    left: GaussianLayer,
    left_units: IntArray,
    right: GaussianLayer,
    right_units: IntArray,
    function: Monomial,
) -> FloatArray:
    sides = (
        (left.means[left_units], left.stds[left_units]),
        (
            right.means[right_units],
            right.stds[right_units],
        ),
    )
    return np.outer(*(_gaussian_moment(*side, function.degree) for side in sides))


def _difference_points(
    layer: GaussianLayer, units: IntArray, function: RBF | Laplacian, points: FloatArray
) -> FloatArray:
    means, stds = layer.means[units][:, None], layer.stds[units][:, None]
    return _closed_form(function)(means - points, stds, function.gamma)


def _difference_pairs(
    left: GaussianLayer,
    left_units: IntArray,
    right: GaussianLayer,
    right_units: IntArray,
    function: RBF | Laplacian,
) -> FloatArray:
    """The difference of two independent Gaussians is Gaussian."""
    means = left.means[left_units][:, None] - right.means[right_units]
    # Squares of standard deviations may overflow.
    stds = np.hypot(left.stds[left_units][:, None], right.stds[right_units])
    return _closed_form(function)(means, stds, function.gamma)


def _closed_form(function: RBF | Laplacian) -> Callable[..., FloatArray]:
    return expected_rbf if isinstance(function, RBF) else expected_laplacian


def expected_rbf(mean: FloatArray, std: FloatArray, gamma: float) -> FloatArray:
    """E[exp(-γ D²)] for D ~ N(mean, std²): (1 + 2γσ²)^(-1/2) exp(-γμ² / (1 + 2γσ²))."""
    spread = 1.0 + 2.0 * gamma * np.square(std)
    return np.exp(-gamma * np.square(mean) / spread) / np.sqrt(spread)


def expected_laplacian(mean: FloatArray, std: FloatArray, gamma: float) -> FloatArray:
    """E[exp(-γ |D|)] for D ~ N(mean, std²), stable in both tails.

    With z± = (γσ² ± μ) / (√2 σ) the value is ½ Σ± exp(γ²σ²/2 ± γμ) erfc(z±), and each term
    equals exp(-μ²/2σ²) erfcx(z±), which cannot overflow where z± is not negative.
    """
    mean, std = np.broadcast_arrays(mean, std)
    return 0.5 * (_one_side(mean, std, gamma) + _one_side(-mean, std, gamma))


def _one_side(mean: FloatArray, std: FloatArray, gamma: float) -> FloatArray:
    """exp(γ²σ²/2 + γμ) erfc((γσ² + μ) / (√2 σ))."""
    z = (gamma * std + mean / std) / np.sqrt(2.0)
    right = z >= 0
    # Each branch is only evaluated where it is safe.
    scaled = np.exp(-0.5 * np.square(mean / std)) * erfcx(np.where(right, z, 0.0))
    exponent = np.where(right, 0.0, 0.5 * np.square(gamma * std) + gamma * mean)
    return np.where(right, scaled, np.exp(exponent) * erfc(np.where(right, 0.0, z)))


def _gaussian_moment(mean: FloatArray, std: FloatArray, order: int) -> FloatArray:
    """E[X^m] = Σ_k C(m, 2k) (2k-1)!! σ^2k μ^(m-2k)."""
    return np.sum(
        [
            comb(order, 2 * k)
            * (factorial(2 * k) // (2**k * factorial(k)))
            * std ** (2 * k)
            * mean ** (order - 2 * k)
            for k in range(order // 2 + 1)
        ],
        axis=0,
    )


register_expectation(Bernoulli, UnivariateFunction, points=_discrete_points, pairs=_discrete_pairs)
register_expectation(Gaussian, Monomial, points=_monomial_points, pairs=_monomial_pairs)
for _family in (RBF, Laplacian):
    register_expectation(Gaussian, _family, points=_difference_points, pairs=_difference_pairs)
