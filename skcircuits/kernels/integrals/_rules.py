"""Closed-form expected kernels under discrete and Gaussian input units given observed cells."""

from __future__ import annotations

from collections.abc import Callable
from math import comb, factorial

import numpy as np
from scipy.special import erfc, erfcx

from skcircuits.circuits.inputs import (
    Bernoulli,
    DiscreteLayer,
    Gaussian,
    GaussianLayer,
    MultivariateGaussian,
    MultivariateGaussianLayer,
)
from skcircuits.kernels.families._structure import Monomial, UnivariateFunction
from skcircuits.kernels.families.product import RBF, Laplacian
from skcircuits.kernels.integrals._gaussian_kernel_pairs import log_expected_rbf_pairs
from skcircuits.kernels.integrals._gaussian_kernels import LogExpectedRBF, log_expected_rbf
from skcircuits.kernels.integrals.registry import of_one_variable, register_expectation
from skcircuits.numerics._gaussian_stack import GaussianStack, complete_rows
from skcircuits.protocols import FloatArray, IntArray

Functions = list[RBF | None]


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
        (right.means[right_units], right.stds[right_units]),
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
    # Central moments of odd order vanish, those of even order are (2k-1)!! σ^2k
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


@of_one_variable.register
def _gaussian_of_one_variable(layer: MultivariateGaussianLayer) -> GaussianLayer:
    stds = np.sqrt(layer.gaussians.covariances[:, 0, 0])
    return GaussianLayer(layer.scopes[:, 0], layer.gaussians.means[:, 0], stds)


register_expectation(Bernoulli, UnivariateFunction, points=_discrete_points, pairs=_discrete_pairs)
register_expectation(Gaussian, Monomial, points=_monomial_points, pairs=_monomial_pairs)
for _family in (RBF, Laplacian):
    register_expectation(Gaussian, _family, points=_difference_points, pairs=_difference_pairs)


def _scales(functions: Functions) -> FloatArray:
    """γ of each variable; 0 where the kernel does not look at it."""
    return np.array([0.0 if function is None else function.gamma for function in functions])


def _rbf_points(
    layer: MultivariateGaussianLayer, functions: Functions, X: FloatArray, points: FloatArray
) -> FloatArray:
    return np.exp(log_expected_rbf(layer.gaussians, X, points, _scales(functions)))


def _rbf_log_blocks(
    layer: MultivariateGaussianLayer, functions: Functions, X: FloatArray, points: FloatArray
) -> LogExpectedRBF:
    return LogExpectedRBF(layer.gaussians, X, points, _scales(functions))


def _rbf_pairs(
    left: MultivariateGaussianLayer,
    right: MultivariateGaussianLayer,
    functions: Functions,
    X: FloatArray,
    Y: FloatArray,
) -> FloatArray:
    stack, across = _common_stack(left, right)
    return np.exp(log_expected_rbf_pairs(stack, X, Y, _scales(functions)))[across]


def _inner_product_points(
    layer: MultivariateGaussianLayer,
    columns: tuple[int, ...],
    power: int,
    X: FloatArray,
    points: FloatArray,
) -> FloatArray:
    """A complete point is the same under every component."""
    moments = inner_product_moments(layer.gaussians, X, points, np.array(columns), power)
    return moments[:, :, 0]


def _inner_product_pairs(
    left: MultivariateGaussianLayer,
    right: MultivariateGaussianLayer,
    columns: tuple[int, ...],
    power: int,
    X: FloatArray,
    Y: FloatArray,
) -> FloatArray:
    stack, across = _common_stack(left, right)
    moments = inner_product_moments(stack, X, Y, np.array(columns), power)
    return np.stack([moment[across] for moment in moments])


def _common_stack(
    left: MultivariateGaussianLayer, right: MultivariateGaussianLayer
) -> tuple[GaussianStack, tuple[slice, slice]]:
    """One stack of both sides, and the pairs across them."""
    if left is right:
        return left.gaussians, (slice(None), slice(None))
    # Closed forms pair the components of one stack: two are stacked, and the cross pairs kept.
    own, other = left.gaussians, right.gaussians
    stack = GaussianStack(
        np.concatenate([own.means, other.means]),
        np.concatenate([own.covariances, other.covariances]),
    )
    return stack, (slice(len(left)), slice(len(left), None))


def inner_product_moments(
    stack: GaussianStack, X: FloatArray, Y: FloatArray, columns: IntArray, degree: int
) -> FloatArray:
    r"""Compute E[(Σ_j x_j y_j)^i] over some columns j for all powers i up to a degree.

    Entry (i, k, l, a, b) of the result (degree + 1, K, K, n, m): row a of X (n, d) completed by
    component k, row b of Y (m, d) by component l, independent of each other. With the conditional
    means m and covariances V of both rows, the logarithm of :math:`E[\exp(s\, x^T y)]`, a Gaussian
    integral, has the power series

    .. math::

        \sum_{k \ge 0} s^{2k+1}\, m_y^T (V_x V_y)^k m_x
        + \sum_{k \ge 1} \tfrac12 s^{2k} \left[ \tfrac1k \operatorname{tr} (V_x V_y)^k
        + m_x^T V_y (V_x V_y)^{k-1} m_x + m_y^T (V_x V_y)^{k-1} V_x m_y \right],

    from which the moments follow one by one.
    """
    left, right = _Cases(stack, X, columns), _Cases(stack, Y, columns)
    series = _log_series(left, right, degree)
    shape = stack.n_components, len(X), stack.n_components, len(Y)
    # Moments are the coefficients of exp times factorials
    factorials = np.array([float(factorial(i)) for i in range(degree + 1)])
    moments = _exponential(series) * factorials[:, None, None]
    return moments.reshape(degree + 1, *shape).transpose(0, 1, 3, 2, 4)


class _Cases:
    """Means (N, d) and covariances (N, d, d) of all pairs of a component and a row.

    Covariances of equal patterns are stored once as ``distinct`` (K * P, d, d); case i has
    number ``number[i]``.
    """

    def __init__(self, stack: GaussianStack, X: FloatArray, columns: IntArray) -> None:
        rows = complete_rows(stack, X)
        size, n_patterns = len(columns), rows.covariances.shape[3]
        self.means = np.ascontiguousarray(rows.means[columns].reshape(size, -1).T)
        distinct = rows.covariances[np.ix_(columns, columns)].reshape(size, size, -1)
        self.distinct = np.ascontiguousarray(distinct.transpose(2, 0, 1))
        self.number = (np.arange(stack.n_components)[:, None] * n_patterns + rows.pattern).ravel()

    @property
    def covariances(self) -> FloatArray:
        return self.distinct[self.number]


def _log_series(left: _Cases, right: _Cases, degree: int) -> FloatArray:
    """Coefficients of s, s², ... in log E[exp(s x·y)], shape (degree, N, M)."""
    shape = len(left.means), len(right.means)
    series = np.empty((degree, *shape))
    if degree:
        series[0] = left.means @ right.means.T
    if degree < 2:
        return series
    series[1::2] = _trace_terms(left, right, degree // 2)
    # forth = ... V_x V_y m_x and back = ... V_y V_x m_y, one more factor each time
    covariances = left.covariances, right.covariances
    forth = np.broadcast_to(left.means[:, None], (*shape, left.means.shape[1]))
    back = np.broadcast_to(right.means, forth.shape)
    for power in range(1, degree):
        # Odd powers of s come from means of both sides, even ones from means of one side
        if power % 2:
            forth, back = _times_right(forth, covariances[1]), back @ covariances[0]
            series[power] += 0.5 * np.einsum("nmd,nd->nm", forth, left.means)
            series[power] += 0.5 * np.einsum("nmd,md->nm", back, right.means)
        else:
            forth, back = forth @ covariances[0], _times_right(back, covariances[1])
            series[power] = np.einsum("nmd,md->nm", forth, right.means)
    return series


def _times_right(vectors: FloatArray, covariances: FloatArray) -> FloatArray:
    """Multiply vectors (N, M, d) by the covariances (M, d, d) of the right cases."""
    return (vectors.transpose(1, 0, 2) @ covariances).transpose(1, 0, 2)


def _trace_terms(left: _Cases, right: _Cases, n_powers: int) -> FloatArray:
    """tr((V_x V_y)^k) / 2k for k = 1, 2, ..., once per pair of distinct covariances."""
    traces = np.empty((n_powers, len(left.distinct), len(right.distinct)))
    # tr(A B) of symmetric matrices is the sum of products of their entries
    flat = left.distinct.reshape(len(left.distinct), -1)
    traces[0] = flat @ right.distinct.reshape(len(right.distinct), -1).T / 2.0
    if n_powers > 1:
        for number, covariance in enumerate(left.distinct):
            product = power = covariance @ right.distinct
            for k in range(1, n_powers):
                power = power @ product
                traces[k, number] = np.einsum("pdd->p", power) / (2 * (k + 1))
    return traces[:, left.number[:, None], right.number]


def _exponential(series: FloatArray) -> FloatArray:
    """Coefficients 1, s, s², ... of exp(Σ_i c_i s^i): n e_n = Σ_i i c_i e_{n-i}."""
    result = np.ones((len(series) + 1, *series.shape[1:]))
    for n in range(1, len(result)):
        terms = [i * series[i - 1] * result[n - i] for i in range(1, n + 1)]
        result[n] = np.sum(terms, axis=0) / n
    return result


register_expectation(
    MultivariateGaussian, RBF, points=_rbf_points, pairs=_rbf_pairs, log_blocks=_rbf_log_blocks
)
register_expectation(
    MultivariateGaussian, Monomial, points=_inner_product_points, pairs=_inner_product_pairs
)
