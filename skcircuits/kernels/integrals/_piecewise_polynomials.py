"""Expected kernels of piecewise polynomial units, piece by piece, accurate to 1e-9.

On a piece the integrand is a polynomial times a kernel that decays with the distance from the
point. Each side of the point is integrated by Gauss-Legendre quadrature over the window where the
kernel is not negligible against its largest value on the piece; there the rule is exact up to
rounding. Exponential tails have closed forms.
"""

from __future__ import annotations

from math import comb, factorial

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import erfc, erfcx

from skcircuits.circuits._policy import PIECE_VALUES
from skcircuits.circuits.inputs import PiecewisePolynomial, PiecewisePolynomialLayer
from skcircuits.circuits.inputs.polynomial._pieces import PieceLocator, PolynomialPieces
from skcircuits.kernels.families._structure import Monomial
from skcircuits.kernels.families.product import RBF, Laplacian
from skcircuits.kernels.integrals.registry import register_expectation
from skcircuits.numerics._arrays import divisors
from skcircuits.protocols import FloatArray, IntArray

# Values below exp(-DECAY) times the largest are neglected.
DECAY = 40.0
N_NODES = 30
# Pairs: nodes per interval, and the longest interval in units of the kernel's length.
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
    # The expectation over the left unit bends at these, as a function of the right one
    kinks = [left_atoms, *(left.pieces.breakpoints[i] for i in left_units)]
    nodes, weights = _quadrature(right.pieces, right_units, np.concatenate(kinks), kernel)
    expected = _points(left, left_units, kernel, np.concatenate([nodes, right_atoms]))
    return expected @ np.hstack([weights, masses]).T


def _monomial_points(
    layer: PiecewisePolynomialLayer, units: IntArray, monomial: Monomial, points: FloatArray
) -> FloatArray:
    return _raw_moments(layer, units, monomial.degree)[:, None] * points**monomial.degree


def _monomial_pairs(
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
    step = max(1, PIECE_VALUES // (N_NODES * max(1, len(s))))
    for start in range(0, len(own), step):
        block = slice(start, start + step)
        np.add.at(expected, place[block], _over_polynomials(pieces, own[block], kernel, s))
    return expected


def _over_polynomials(
    pieces: PolynomialPieces, own: IntArray, kernel: RBF | Laplacian, s: FloatArray
) -> FloatArray:
    """Integrate the kernel over polynomial pieces, shape (n_pieces, m)."""
    low = pieces.starts[own, None]
    high = low + pieces.widths[own, None]
    total = np.zeros((len(own), len(s)))
    nodes, weights = leggauss(N_NODES)
    for is_right in (True, False):
        # The side's point nearest to s, and how much of the side matters
        nearest = np.clip(s, low, high)
        length = (high - nearest) if is_right else (nearest - low)
        length = np.minimum(length, _window(kernel, np.abs(nearest - s)))
        end = nearest + length if is_right else nearest - length
        middle, half = (nearest + end) / 2, length / 2
        x = middle[..., None] + half[..., None] * nodes
        u = (x - low[..., None]) / pieces.widths[own, None, None]
        density = pieces.coefficients[-1, own][:, None, None] * np.ones_like(u)
        for row in pieces.coefficients[-2::-1]:
            density = density * u + row[own][:, None, None]
        values = (density * kernel.univariate(x, s[:, None])) @ weights
        total += values * half / pieces.widths[own, None]
    return total


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
    right: PolynomialPieces, right_units: IntArray, kinks: FloatArray, kernel: RBF | Laplacian
) -> tuple[FloatArray, FloatArray]:
    """Nodes (q,) and weights (n_right, q) that integrate E[f(X, y)] over the right units.

    Between kinks of the left side and breakpoints of the right one, cut finer than the
    kernel's length, the integrand is smooth.
    """
    breaks = np.unique(np.concatenate([kinks, *(right.breakpoints[i] for i in right_units)]))
    tails = np.concatenate([right.first[right_units], right.last[right_units]])
    reach = DECAY / right.rates[tails][right.masses[tails] > 0].min(initial=np.inf)
    breaks = np.concatenate([[breaks[0] - reach], breaks, [breaks[-1] + reach]])
    length = 1.0 / (kernel.gamma if isinstance(kernel, Laplacian) else np.sqrt(kernel.gamma))
    # Where kernel or tail bends within an interval, few nodes would miss it.
    finest = min(length, 1.0 / right.rates[tails].max())
    n_parts = np.ceil(np.diff(breaks) / (PAIR_STEP * finest)).astype(int).clip(1)
    grid = np.concatenate(
        [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(breaks, breaks[1:], n_parts)]
        + [breaks[-1:]]
    )
    nodes, weights = leggauss(PAIR_NODES)
    middle, half = (grid[1:] + grid[:-1]) / 2, np.diff(grid) / 2
    y = (middle[:, None] + half[:, None] * nodes).ravel()
    located = PieceLocator(right, right_units)(y)
    return y, np.exp(right.log_density(located, y)) * (half[:, None] * weights).ravel()


for _family in (RBF, Laplacian):
    register_expectation(PiecewisePolynomial, _family, points=_points, pairs=_pairs)
register_expectation(PiecewisePolynomial, Monomial, points=_monomial_points, pairs=_monomial_pairs)
