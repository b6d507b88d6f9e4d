"""Closed-form expected kernels under input units given observed cells.

Under piecewise polynomial units, expectations are computed piece by piece to an absolute 1e-9. On a
piece the integrand is a polynomial times a kernel that decays with the distance from the point.
Each side of the point is integrated by Gauss-Legendre quadrature over the window where the kernel
is not negligible against its largest value on the piece; there the rule is exact up to rounding.
Exponential tails have closed forms.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import comb, factorial

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy import sparse
from scipy.special import erfc, erfcx

from skcircuits.circuits._policy import PIECE_VALUES
from skcircuits.circuits.inputs import (
    Bernoulli,
    DiscreteLayer,
    Gaussian,
    GaussianLayer,
    MultivariateGaussian,
    MultivariateGaussianLayer,
    PiecewisePolynomial,
    PiecewisePolynomialLayer,
)
from skcircuits.circuits.inputs.polynomial._pieces import PieceLocator, PolynomialPieces
from skcircuits.kernels.families.base import Monomial, UnivariateFunction
from skcircuits.kernels.families.product import RBF, Laplacian
from skcircuits.kernels.integrals._gaussian_kernels import (
    LogExpectedRBF,
    log_expected_rbf,
    log_expected_rbf_pairs,
)
from skcircuits.kernels.integrals.registry import of_one_variable, register_expectation
from skcircuits.numerics._arrays import divisors
from skcircuits.numerics._gaussian_stack import GaussianStack, complete_rows
from skcircuits.numerics._patterns import unique_rows
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

Functions = list[RBF | None]
# Cells of the part of a kernel table that is held at once: 16 MB, which caches hold in part.
_MAX_TABLE_CELLS = 2**21


def _discrete_points(
    layer: DiscreteLayer, units: IntArray, function: UnivariateFunction, points: FloatArray
) -> FloatArray:
    """Any function of states is a table."""
    return _expected_at(layer.masses[units], function, points)


def _discrete_pairs(
    left: DiscreteLayer,
    left_units: IntArray,
    right: DiscreteLayer,
    right_units: IntArray,
    function: UnivariateFunction,
) -> FloatArray:
    columns = np.arange(right.masses.shape[1], dtype=np.float64)
    at_columns = _expected_at(left.masses[left_units], function, columns)
    return at_columns @ right.masses[right_units].T


def _expected_at(
    masses: FloatArray, function: UnivariateFunction, points: FloatArray
) -> FloatArray:
    """Expectations (n_units, n_points) of a function of states, whose table is held in parts."""
    states = np.arange(masses.shape[1], dtype=np.float64)
    total = np.zeros((len(masses), len(points)))
    # The table of 20,000 states takes 3.2 GB, and the temporary arrays of a function as much again
    for own in row_slices(len(states), max(1, _MAX_TABLE_CELLS // max(1, len(points)))):
        total += masses[:, own] @ function.univariate(states[own, None], points)
    return total


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
    """E[exp(-γ |D|)] for D ~ N(mean, std²): ½ Σ± exp(-μ²/2σ²) erfcx(z±), z± = (γσ² ± μ) / (√2 σ),
    or exp(γ²σ²/2 ± γμ) erfc(z±) where z± is negative.
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
    """Means (N, d) and covariances of all pairs of a component and a row; that of case i is
    ``distinct[number[i]]``, of (K * P, d, d), one per pattern.
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


# Values below exp(-DECAY) times the largest are neglected.
DECAY = 40.0
N_NODES = 30
# Pairs: nodes per interval, and the longest interval in units of what decays in it.
PAIR_NODES = 12
PAIR_STEP = 1.5


def _points(
    layer: PiecewisePolynomialLayer, units: IntArray, kernel: RBF | Laplacian, points: FloatArray
) -> FloatArray:
    expected = _sum_over_pieces(layer.pieces, units, kernel, points)
    atoms, masses = _atoms(layer, units)
    return expected + masses @ kernel.univariate(atoms[:, None], points)


def _pairs(
    left: PiecewisePolynomialLayer,
    left_units: IntArray,
    right: PiecewisePolynomialLayer,
    right_units: IntArray,
    kernel: RBF | Laplacian,
) -> FloatArray:
    left_atoms, _ = _atoms(left, left_units)
    right_atoms, masses = _atoms(right, right_units)
    nodes, weights = _quadrature(
        (left.pieces, left_units), (right.pieces, right_units), left_atoms, kernel
    )
    expected = _points(left, left_units, kernel, np.concatenate([nodes, right_atoms]))
    return expected @ np.hstack([weights, masses]).T


def _piecewise_monomial_points(
    layer: PiecewisePolynomialLayer, units: IntArray, monomial: Monomial, points: FloatArray
) -> FloatArray:
    return _raw_moments(layer, units, monomial.degree)[:, None] * points**monomial.degree


def _piecewise_monomial_pairs(
    left: PiecewisePolynomialLayer,
    left_units: IntArray,
    right: PiecewisePolynomialLayer,
    right_units: IntArray,
    monomial: Monomial,
) -> FloatArray:
    sides = (left, left_units), (right, right_units)
    return np.outer(*(_raw_moments(*side, monomial.degree) for side in sides))


def _atoms(layer: PiecewisePolynomialLayer, units: IntArray) -> tuple[FloatArray, FloatArray]:
    """Point masses of the units' variable, shapes (a,) and (n_units, a)."""
    group = next(g for g in layer.groups if g.variable == layer.scopes[units[0], 0])
    return group.atoms, group.atom_masses[np.searchsorted(group.units, units)]


def _pieces_of(pieces: PolynomialPieces, units: IntArray) -> tuple[IntArray, IntArray]:
    """Polynomial pieces of some units, and the place of each one's unit."""
    counts = pieces.last[units] - pieces.first[units] - 1
    place = np.repeat(np.arange(len(units)), counts)
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    return pieces.first[units][place] + 1 + within, place


def _sum_over_pieces(
    pieces: PolynomialPieces, units: IntArray, kernel: RBF | Laplacian, s: FloatArray
) -> FloatArray:
    """E[f(X, s)] without point masses, shape (n_units, m)."""
    first, last = pieces.first[units], pieces.last[units]
    expected = pieces.masses[last, None] * _tail(
        kernel, pieces.rates[last], s - pieces.starts[last, None]
    )
    expected += pieces.masses[first, None] * _tail(
        kernel, pieces.rates[first], pieces.starts[first, None] - s
    )
    own, place = _pieces_of(pieces, units)
    # Units on the same knots have the integrals of powers over each interval in common
    intervals = np.stack([pieces.starts[own], pieces.widths[own]], axis=1)
    distinct, interval = unique_rows(intervals)
    intervals, n_powers = intervals[distinct], len(pieces.coefficients)
    columns = interval * n_powers + np.arange(n_powers)[:, None]
    coefficients = sparse.csc_array(
        (pieces.coefficients[:, own].ravel(), (np.tile(place, n_powers), columns.ravel())),
        shape=(len(units), len(intervals) * n_powers),
    )
    step = max(1, PIECE_VALUES // (N_NODES * max(1, len(s))))
    for start in range(0, len(intervals), step):
        integrals = _powers_over(intervals[start : start + step], n_powers, kernel, s)
        block = slice(start * n_powers, start * n_powers + len(integrals))
        expected += coefficients[:, block] @ integrals
    return expected


def _powers_over(
    intervals: FloatArray, n_powers: int, kernel: RBF | Laplacian, s: FloatArray
) -> FloatArray:
    """Integrate u^k f(x, s) over intervals (start, width), u in [0, 1]; (n_intervals * K, m)."""
    low, widths = intervals[:, :1], intervals[:, 1:]
    high = low + widths
    total = np.zeros((len(intervals), n_powers, len(s)))
    nodes, weights = leggauss(N_NODES)
    for is_right in (True, False):
        # The side's point nearest to s, and how much of the side matters
        nearest = np.clip(s, low, high)
        length = (high - nearest) if is_right else (nearest - low)
        length = np.minimum(length, _window(kernel, np.abs(nearest - s)))
        end = nearest + length if is_right else nearest - length
        middle, half = (nearest + end) / 2, length / 2
        x = middle[..., None] + half[..., None] * nodes
        u = (x - low[..., None]) / widths[..., None]
        values = kernel.univariate(x, s[:, None])
        for power in range(n_powers):
            total[:, power] += (values @ weights) * (half / widths)
            values *= u
    return total.reshape(len(intervals) * n_powers, len(s))


def _window(kernel: RBF | Laplacian, distance: FloatArray) -> FloatArray:
    """Length over which the kernel decays by exp(-DECAY) from a distance on."""
    reach = DECAY / kernel.gamma
    if isinstance(kernel, Laplacian):
        return np.full(distance.shape, reach)
    # sqrt(d² + w) - d without cancellation
    return reach / (np.sqrt(distance**2 + reach) + distance)


def _tail(kernel: RBF | Laplacian, rates: FloatArray, distance: FloatArray) -> FloatArray:
    """E[f] of a point ``distance`` beyond the edge (inside: negative) of an exponential tail."""
    r, d, gamma = rates[:, None], distance, kernel.gamma
    outside = np.maximum(d, 0.0)
    if isinstance(kernel, Laplacian):
        inside = r / (r + gamma) * np.exp(-gamma * np.maximum(-d, 0.0) - r * outside)
        gap = np.abs(r - gamma) * outside
        # (1 - e^-x) / x tends to 1 where both rates agree
        safe = divisors(gap)
        mean_decay = np.where(gap > 0, -np.expm1(-safe) / safe, 1.0)
        return inside + r * outside * np.exp(-np.minimum(r, gamma) * outside) * mean_decay
    # The square is completed: erfc, scaled where its argument is large
    z = (r - 2 * gamma * d) / (2 * np.sqrt(gamma))
    with np.errstate(over="ignore", under="ignore"):
        near = np.exp(-gamma * d**2) * erfcx(np.maximum(z, 0.0))
        beyond = erfc(np.minimum(z, 0.0)) * np.exp(np.minimum(r * (r / (4 * gamma) - d), 0.0))
    return r * np.sqrt(np.pi / gamma) / 2 * np.where(z > 0, near, beyond)


def _raw_moments(layer: PiecewisePolynomialLayer, units: IntArray, order: int) -> FloatArray:
    """E[X^order] of units, shape (n_units,); Gauss-Legendre is exact on polynomials."""
    pieces = layer.pieces
    own, place = _pieces_of(pieces, units)
    moments = np.zeros(len(units))
    for node, weight in zip(*leggauss((len(pieces.coefficients) + order) // 2 + 1)):
        u = (1.0 + node) / 2
        density = np.polynomial.polynomial.polyval(u, pieces.coefficients[:, own])
        x = pieces.starts[own] + pieces.widths[own] * u
        np.add.at(moments, place, weight / 2 * density * x**order)
    # E[(e ± Y)^m] of an exponential Y: moments are k! scale^k
    for tails, sign in ((pieces.first[units], -1.0), (pieces.last[units], 1.0)):
        edge, scale = pieces.starts[tails], sign / pieces.rates[tails]
        powers = [
            comb(order, k) * edge ** (order - k) * factorial(k) * scale**k for k in range(order + 1)
        ]
        moments += pieces.masses[tails] * np.sum(powers, axis=0)
    atoms, masses = _atoms(layer, units)
    return moments + masses @ atoms**order


def _quadrature(
    left: tuple[PolynomialPieces, IntArray],
    right: tuple[PolynomialPieces, IntArray],
    left_atoms: FloatArray,
    kernel: RBF | Laplacian,
) -> tuple[FloatArray, FloatArray]:
    """Nodes (q,) and weights (n_right, q) of E[f(X, y)], X of the left units, over the right ones.

    Between atoms and breakpoints the integrand is a polynomial, apart from terms that decay with
    the distance from these as the kernel does, or as a tail: there are more nodes near the ends.
    """
    sides = (left, right)
    breaks = np.unique(
        np.concatenate([left_atoms, *(p.breakpoints[i] for p, own in sides for i in own)])
    )
    ends = [(pieces, np.append(pieces.first[own], pieces.last[own])) for pieces, own in sides]
    of_left, of_right = (1.0 / p.rates[tails[p.masses[tails] > 0]] for p, tails in ends)
    reach = DECAY * of_right.max(initial=0.0)
    breaks = np.concatenate([[breaks[0] - reach], breaks, [breaks[-1] + reach]])
    length = 1.0 / (kernel.gamma if isinstance(kernel, Laplacian) else np.sqrt(kernel.gamma))
    scales = np.unique(np.concatenate([of_left, of_right, [length]]))
    cuts = [start + _graded(end - start, scales) for start, end in pairwise(breaks)]
    grid = np.concatenate([*cuts, breaks[-1:]])
    nodes, weights = leggauss(PAIR_NODES)
    middle, half = (grid[1:] + grid[:-1]) / 2, np.diff(grid) / 2
    y = (middle[:, None] + half[:, None] * nodes).ravel()
    pieces, own = right
    located = PieceLocator(pieces, own)(y)
    return y, np.exp(pieces.log_density(located, y)) * (half[:, None] * weights).ravel()


def _graded(width: float, scales: FloatArray) -> FloatArray:
    """Cuts of the interval from 0 to the width, the last left out: each scale, in increasing order,
    sets the steps up to the distance from the ends at which what decays with it has vanished.
    """
    if width <= PAIR_STEP * scales[0]:
        return np.zeros(1)
    middle = width / 2
    ends = np.minimum(DECAY * scales, middle)
    starts = np.append(0.0, ends[:-1])
    counts = np.ceil((ends - starts) / (PAIR_STEP * scales)).astype(int)
    parts = [np.linspace(*own, endpoint=False) for own in zip(starts, ends, counts)]
    # Beyond all scales one part is enough, to the middle as well as from it
    cuts = np.concatenate([*parts, ends[-1:][ends[-1:] < middle]])
    return np.concatenate([cuts, [middle], width - cuts[:0:-1]])


for _family in (RBF, Laplacian):
    register_expectation(PiecewisePolynomial, _family, points=_points, pairs=_pairs)
register_expectation(
    PiecewisePolynomial,
    Monomial,
    points=_piecewise_monomial_points,
    pairs=_piecewise_monomial_pairs,
)
