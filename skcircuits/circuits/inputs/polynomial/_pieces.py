"""Piecewise polynomial densities with exponential tails, many evaluated at once.

Each of the U functions is an unnormalised density on the line: polynomials between increasing
breakpoints, and an exponential tail on either side. As they have different numbers of pieces, the
pieces of all functions are stored in flat arrays, ordered per function as left tail, polynomials,
right tail. The breakpoints of all units of one variable divide the line into intervals on which
every unit is a single polynomial or a tail, so that one binary search finds the pieces of all units
that hold a point.

Polynomials are given as B-splines, basis functions of integral one. Their functions are batched
over splines (leading axis L) of one degree with equal numbers of intervals. The basis is clamped:
with P intervals and degree p it has P + p functions, and their span contains every polynomial of
degree p on the whole range.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.polynomial.legendre import leggauss

from skcircuits.circuits._policy import MAX_INTEGERS, MAX_MASS_TABLE
from skcircuits.numerics._arrays import Rows, divisors, log1mexp, safe_log
from skcircuits.numerics._patterns import distinct_numbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# A difference of cumulative masses below this fraction of both has lost digits and is integrated.
MIN_DIFFERENCE = 1e-6
# Stands for infinite bounds.
FAR_AWAY = 1e300


class PolynomialPieces:
    """U densities on the line, of B-splines with ``weights`` (P_i + p_i,) on ``breakpoints`` (P_i +
    1,) and exponential tails (U, 2): per piece of all functions ``starts``, ``widths``, ``masses``,
    ``rates`` of tails and ``coefficients`` (max_degree + 1, n_pieces) of u in [0, 1]; ``first``,
    ``last`` (U,) are the tails. The mass left of a point is offset + antiderivative + amplitude
    exp(-rate distance from the edge).
    """

    def __init__(
        self,
        breakpoints: Sequence[FloatArray],
        weights: Sequence[FloatArray],
        tail_masses: FloatArray,
        tail_scales: FloatArray,
    ) -> None:
        counts = np.array([len(ends) + 1 for ends in breakpoints])
        self.breakpoints = tuple(breakpoints)
        self.first = np.cumsum(counts) - counts
        self.last = self.first + counts - 1
        # Polynomials are evaluated within it only: beyond, powers would overflow
        self.range = float(min(map(min, breakpoints))), float(max(map(max, breakpoints)))
        n_pieces = int(counts.sum())
        n_powers = max(len(w) - len(ends) + 2 for w, ends in zip(weights, breakpoints))
        # Tails are one wide: there u is the distance from the edge.
        self.starts, self.widths = np.empty(n_pieces), np.ones(n_pieces)
        self.coefficients = np.zeros((n_powers, n_pieces))
        self._place_polynomials(weights)
        self.starts[self.first] = [ends[0] for ends in breakpoints]
        self.starts[self.last] = [ends[-1] for ends in breakpoints]
        self.is_left, self.is_right = np.zeros((2, n_pieces), dtype=bool)
        self.is_left[self.first] = self.is_right[self.last] = True
        self.is_tail = self.is_left | self.is_right
        self.rates = np.zeros(n_pieces)
        self.rates[self.first], self.rates[self.last] = 1.0 / tail_scales.T
        self.antiderivatives = self.coefficients / np.arange(1, n_powers + 1)[:, None]
        self.masses = self.antiderivatives.sum(axis=0)
        self.masses[self.first], self.masses[self.last] = tail_masses.T
        #: Mass of the own function before each piece.
        self.before = np.concatenate(
            [np.cumsum(own) - own for own in np.split(self.masses, self.first[1:])]
        )
        self.amplitudes = self.masses * np.where(self.is_left, 1.0, -1.0 * self.is_right)
        self.offsets = self.before + np.where(self.is_right, self.masses, 0.0)
        self._split_at_middles()
        self._log_heights = safe_log(self.masses * np.where(self.is_tail, self.rates, 1.0))

    def _split_at_middles(self) -> None:
        """Choose per piece the end of the line from which cumulative masses are counted."""
        after = np.concatenate(
            [np.cumsum(own[::-1])[::-1] - own for own in np.split(self.masses, self.first[1:])]
        )
        # The smaller of the two masses has more digits
        is_far = ((self.before >= after) | self.is_right) & ~self.is_left
        self._far = np.where(is_far, self.before + self.masses + after, 0.0)
        near = np.where(is_far, -(after + self.masses * ~self.is_tail), self.before)
        self._levels = np.where(self.is_tail, 0.0, np.abs(near) + self.masses)
        # One table, so that points look up all they need at once
        self._near_parts = np.stack(
            [self.starts, self.widths, near, -self.rates, self.amplitudes, *self.antiderivatives]
        )

    def _place_polynomials(self, weights: Sequence[FloatArray]) -> None:
        """Fill in the polynomials, batched over functions of one shape."""
        same_shape = defaultdict(list)
        for i, own in enumerate(weights):
            same_shape[len(self.breakpoints[i]), len(own)].append(i)
        for (n_ends, _), members in same_shape.items():
            ends = np.stack([self.breakpoints[i] for i in members])
            pieces = density_pieces(ends, np.stack([weights[i] for i in members]))
            inner = self.first[members][:, None] + np.arange(1, n_ends)
            self.starts[inner], self.widths[inner] = ends[:, :-1], np.diff(ends)
            self.coefficients[: pieces.shape[2], inner] = np.moveaxis(pieces, 2, 0)

    def log_density(self, pieces: IntArray, x: FloatArray) -> FloatArray:
        """Log densities (k, n) at points x (n,) in `pieces` (k, n); ``-inf`` where they vanish."""
        widths = self.widths[pieces]
        values = self._horner(self.coefficients, pieces, (x - self.starts[pieces]) / widths)
        values /= widths
        # Rounding may take a vanishing polynomial below zero
        np.maximum(values, 0.0, out=values)
        safe_log(values, out=values)
        outside = np.nonzero(self.is_tail[pieces])
        if len(outside[0]):
            tails = pieces[outside]
            distance = np.abs(x[outside[1]] - self.starts[tails])
            values[outside] = self._log_heights[tails] - self.rates[tails] * distance
        return values

    def log_mass(
        self, low: IntArray, lower: FloatArray, high: IntArray, upper: FloatArray
    ) -> FloatArray:
        """Log masses (m,) of intervals with ends (m,) in pieces (m,); ``-inf`` where empty."""
        # Each from the nearer end of the line, where all digits of it are known
        before, mass = self._near_mass(low, lower), self._near_mass(high, upper)
        levels = np.abs(before) + np.abs(mass) + self._levels.take(low) + self._levels.take(high)
        mass -= before
        mass += self._far.take(high) - self._far.take(low)
        mass[~(upper > lower)] = 0.0
        # Differences this small have lost digits: their parts are integrated one by one.
        lost = np.flatnonzero((mass <= MIN_DIFFERENCE * levels) & (upper > lower))
        mass[lost] = 1.0
        safe_log(mass, out=mass)
        if len(lost):
            mass[lost] = self._log_small_mass(low[lost], lower[lost], high[lost], upper[lost])
        return mass

    def places(self, functions: IntArray) -> tuple[IntArray, BoolArray]:
        """Pieces (k, P) of some functions side by side, and which of them are their own."""
        first, last = self.first[functions, None], self.last[functions, None]
        places = first + np.arange(int((last - first).max()) + 1)
        return np.minimum(places, last), places <= last

    def quantile(
        self, pieces: IntArray, start: FloatArray, stop: FloatArray, fractions: FloatArray
    ) -> FloatArray:
        """Points (m,) left of which fractions of the mass of parts [start, stop] of pieces lie, in
        u; in tails u is the distance from the edge, which may be infinite.
        """
        u = np.empty(len(pieces))
        is_tail, is_left = self.is_tail[pieces], self.is_left[pieces]
        # Mass of an exponential tail beyond a point, with all digits of small fractions
        outer = np.where(is_left, fractions, 1.0 - fractions)[is_tail]
        rates = self.rates[pieces[is_tail]]
        beyond = np.exp(-rates * (stop - start)[is_tail])
        outer = np.maximum(outer + (1.0 - outer) * beyond, np.finfo(float).tiny)
        u[is_tail] = start[is_tail] - np.log(outer) / rates
        own = ~is_tail
        u[own] = self._invert(pieces[own], start[own], stop[own], fractions[own])
        return self.starts[pieces] + np.where(is_left, -u, u) * self.widths[pieces]

    @cached_property
    def peaks(self) -> tuple[FloatArray, FloatArray]:
        """Point of the highest density of each function and its log density, both (U,)."""
        pieces = np.arange(len(self.widths))
        # Tails fall from their edge: u = 0 is their highest point
        ends = (~self.is_tail).astype(np.float64)
        u, values = self.highest_points(pieces, np.zeros(len(pieces)), ends)
        log_height = safe_log(np.maximum(values, 0.0) / self.widths)
        log_height = np.where(self.is_tail, self._log_heights, log_height)
        highest = np.maximum.reduceat(log_height, self.first)
        hits = np.flatnonzero(log_height == np.repeat(highest, self.last - self.first + 1))
        chosen = hits[np.searchsorted(hits, self.first)]
        points = self.starts[chosen] + self.widths[chosen] * u[chosen]
        # Tails begin beyond their edges
        beyond = np.nextafter(points, np.where(self.is_left[chosen], -np.inf, np.inf))
        return np.where(self.is_tail[chosen], beyond, points), highest

    def highest_points(
        self, pieces: IntArray, start: FloatArray, stop: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Where in parts [u0, u1] of pieces the polynomials are highest, and how high."""
        u, heights = start + (stop - start) / 2, self.coefficients[0].take(pieces)
        # A uniform piece is represented by its middle
        bent = self.coefficients[1:].any(axis=0).take(pieces)
        if bent.any():
            u[bent], heights[bent] = self._search(pieces[bent], start[bent], stop[bent])
        return u, heights

    def _search(
        self, pieces: IntArray, start: FloatArray, stop: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        def height(fraction: FloatArray) -> FloatArray:
            return self._horner(self.coefficients, pieces, start + fraction * (stop - start))

        # Between neighbours on this grid a polynomial of the degree has at most one peak
        # worth a search; the best grid point stays a candidate for monotone pieces.
        grid = np.linspace(0.0, 1.0, 16 * len(self.coefficients) + 1)
        # From the middle outwards: of equal points that nearest to the middle is taken
        order = np.argsort(np.abs(grid - 0.5), kind="stable")
        highest = height(grid[order[0]])
        best = np.full(highest.shape, order[0])
        for point in order[1:].tolist():
            own = height(grid[point])
            best[own > highest] = point
            np.maximum(highest, own, out=highest)
        low, high = grid[np.maximum(best - 1, 0)], grid[np.minimum(best + 1, len(grid) - 1)]
        for _ in range(60):
            left, right = low + (high - low) / 3, high - (high - low) / 3
            is_rising = height(left) < height(right)
            low, high = np.where(is_rising, left, low), np.where(is_rising, high, right)
        at_grid, refined = grid[best], (low + high) / 2
        values = np.stack([height(at_grid), height(refined)])
        fraction = np.where(values[1] > values[0], refined, at_grid)
        return start + fraction * (stop - start), values.max(axis=0)

    @staticmethod
    def _horner(table: FloatArray, pieces: IntArray, u: FloatArray) -> FloatArray:
        """Evaluate the polynomials of a coefficient table, one per entry of ``pieces``."""
        value = table[-1].take(pieces)
        for row in table[-2::-1]:
            value *= u
            value += row.take(pieces)
        return value

    def cumulative(self, pieces: IntArray, x: FloatArray) -> FloatArray:
        """Masses (k, n) left of points x (n,) or (k, n), infinite or not, in `pieces` (k, n)."""
        mass = self._near_mass(pieces, x)
        mass += self._far.take(pieces)
        return mass

    def _near_mass(self, pieces: IntArray, x: FloatArray) -> FloatArray:
        """Mass left of points, or minus the mass right of them, whichever is meant to be small."""
        starts, widths, offsets, decays, amplitudes, *powers = self._near_parts.take(pieces, axis=1)
        # Bounds may be infinite: the polynomials need a finite point
        x = np.minimum(np.maximum(x, -FAR_AWAY), FAR_AWAY)
        u = np.minimum(np.maximum(x, self.range[0]), self.range[1]) - starts
        u /= widths
        value = powers[-1] * u
        for power in powers[-2::-1]:
            value += power
            value *= u
        value += offsets
        # Dense for all pieces: those that are not tails have amplitude 0
        beyond = np.abs(np.subtract(x, starts, out=u), out=u)
        with np.errstate(over="ignore"):
            beyond *= decays
        np.exp(beyond, out=beyond)
        beyond *= amplitudes
        value += beyond
        return value

    def _log_small_mass(
        self, low: IntArray, lower: FloatArray, high: IntArray, upper: FloatArray
    ) -> FloatArray:
        """Log mass of small intervals, all of shape (k,), as a sum of positive parts."""
        mass = np.zeros(len(low))
        for offset in range(int((high - low).max()) + 1):
            reached = np.flatnonzero(low + offset <= high)
            pieces = low[reached] + offset
            mass[reached] += self._part(pieces, lower[reached], upper[reached])
        log_mass = safe_log(mass)
        within_tail = (low == high) & self.is_tail[low]
        tails = low[within_tail]
        nearest = np.where(self.is_left[tails], upper[within_tail], lower[within_tail])
        distance = np.abs(nearest - self.starts[tails])
        length = upper[within_tail] - lower[within_tail]
        with np.errstate(divide="ignore", over="ignore"):  # no mass is left so far out
            log_mass[within_tail] = (
                np.log(self.masses[tails])
                - self.rates[tails] * distance
                + log1mexp(-self.rates[tails] * length)
            )
        return log_mass

    def _part(self, pieces: IntArray, lower: FloatArray, upper: FloatArray) -> FloatArray:
        """Mass of intervals within pieces they reach; Gauss-Legendre is exact there."""
        starts, widths = self.starts[pieces], self.widths[pieces]
        # Differences of bounds are exact where these are near, those of their quotients are not
        low, high = (np.clip(bound, starts, starts + widths) for bound in (lower, upper))
        middle, half = (low - starts + (high - low) / 2) / widths, (high - low) / 2 / widths
        part = np.zeros(len(pieces))
        for node, weight in zip(*leggauss(len(self.coefficients) // 2 + 1)):
            part += weight * self._horner(self.coefficients, pieces, middle + half * node)
        # An interval that ends in a tail covers it from the edge on
        reach = np.where(self.is_left[pieces], starts - lower, upper - starts)
        covered = -np.expm1(-self.rates[pieces] * np.where(self.is_tail[pieces], reach, 0.0))
        return np.where(self.is_tail[pieces], self.masses[pieces] * covered, part * half)

    def _invert(
        self, pieces: IntArray, low: FloatArray, high: FloatArray, fractions: FloatArray
    ) -> FloatArray:
        """Solve for u where a polynomial has collected a fraction of its mass from low to high."""
        before, after = (u * self._horner(self.antiderivatives, pieces, u) for u in (low, high))
        target = before + fractions * (after - before)
        u = low + fractions * (high - low)
        for _ in range(80):  # Newton, with bisection if a step leaves the bracket
            surplus = u * self._horner(self.antiderivatives, pieces, u) - target
            low, high = np.where(surplus < 0, u, low), np.where(surplus < 0, high, u)
            with np.errstate(divide="ignore", invalid="ignore"):
                step = u - surplus / self._horner(self.coefficients, pieces, u)
            new = np.where((step > low) & (step < high), step, (low + high) / 2)
            moved = np.abs(new - u).max(initial=0.0)
            u = new
            if moved < 1e-15:
                break
        return u


class PieceLocator:
    """Finds the pieces of ``functions`` (k,) that hold points by one search among the ``merged``
    breakpoints (b,) of all; ``table`` (k, b + 1) has the piece of each function on each interval.
    """

    def __init__(self, pieces: PolynomialPieces, functions: IntArray) -> None:
        ends = []
        for i in functions:
            own = pieces.breakpoints[i].copy()
            # The last polynomial owns its right end
            own[-1] = np.nextafter(own[-1], np.inf)
            ends.append(own)
        self.merged = np.unique(np.concatenate(ends))
        places = np.concatenate([[-np.inf], self.merged])
        self.table = np.stack(
            [
                pieces.first[i] + np.searchsorted(own, places, side="right")
                for i, own in zip(functions, ends)
            ]
        )

    def __call__(self, x: FloatArray) -> IntArray:
        """Positions (k, n) of the pieces of the functions at points x (n,), infinite or not."""
        return self.table.take(self.merged.searchsorted(x, side="right"), axis=1)


def knot_windows(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Knots (L, P + p, p + 2) of each basis function, whose moments are those of a random convex
    combination of them, uniform on the simplex (Curry and Schoenberg, 1966).
    """
    knots = _clamped_knots(breakpoints, degree)
    return np.lib.stride_tricks.sliding_window_view(knots, degree + 2, axis=1)


def _supports(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Lengths (L, P + p) of the intervals where basis functions are positive."""
    knots = _clamped_knots(breakpoints, degree)
    return np.asarray(knots[:, degree + 1 :] - knots[:, : -degree - 1])


def uniform_weights(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Weights (L, P + p) of basis functions of breakpoints (L, P + 1) for the uniform density."""
    spans = breakpoints[:, -1:] - breakpoints[:, :1]
    return _supports(breakpoints, degree) / ((degree + 1) * spans)


def basis_cdf(x: FloatArray, breakpoints: FloatArray, degree: int) -> FloatArray:
    """Distribution functions (L, m, P + p) at x (L, m): that of function k is the sum of the
    unnormalised B-splines k+1, k+2, ... of degree p + 1 (de Boor, 1978, X.33), all positive.
    """
    return _cdf_of(_basis_pieces(breakpoints, degree + 1), *_located(x, breakpoints, degree))


def rising_basis_cdfs(
    x: FloatArray, breakpoints: FloatArray, max_degree: int
) -> Iterator[FloatArray]:
    """Distribution functions as `basis_cdf`, of degrees 0 to `max_degree`, by one recursion."""
    piece, powers = _located(x, breakpoints, max_degree)
    for pieces in islice(_rising_pieces(breakpoints, max_degree + 1), 1, None):
        yield _cdf_of(pieces, piece, powers[..., : pieces.shape[-1]])


def _located(x: FloatArray, breakpoints: FloatArray, degree: int) -> tuple[IntArray, FloatArray]:
    """Piece (L, m) that holds each x (L, m), and powers 0, ..., p + 1 of u there, (L, m, p + 2)."""
    x = np.clip(x, breakpoints[:, :1], breakpoints[:, -1:])
    # One comparison per inner breakpoint: splines have few, and all points go at once
    piece = (x[:, :, None] >= breakpoints[:, None, 1:-1]).sum(axis=2)
    spline = np.arange(len(breakpoints))[:, None]
    u = (x - breakpoints[spline, piece]) / np.diff(breakpoints)[spline, piece]
    return piece, u[..., None] ** np.arange(degree + 2)


def _cdf_of(pieces: FloatArray, piece: IntArray, powers: FloatArray) -> FloatArray:
    """Cumulative distribution functions (L, m, P + p) from B-splines of degree p + 1."""
    n_splines, n_pieces, n_functions = pieces.shape[:3]
    local = np.matmul(pieces[np.arange(n_splines)[:, None], piece], powers[..., None])[..., 0]
    values = np.zeros((*piece.shape, n_pieces + n_functions - 1))
    np.put_along_axis(values, piece[:, :, None] + np.arange(n_functions), local, axis=2)
    return np.cumsum(values[:, :, :0:-1], axis=2)[:, :, ::-1]


def density_pieces(breakpoints: FloatArray, weights: FloatArray) -> FloatArray:
    """Coefficients (L, P, p + 1) of powers of u in [0, 1] on each interval, *per unit of u*."""
    n_pieces = breakpoints.shape[1] - 1
    degree = weights.shape[1] - n_pieces
    heights = weights * (degree + 1) / _supports(breakpoints, degree)
    # Interval i sees the basis functions i, ..., i + p
    seen = np.lib.stride_tricks.sliding_window_view(heights, degree + 1, axis=1)
    pieces = np.einsum("lir,lird->lid", seen, _basis_pieces(breakpoints, degree))
    return pieces * np.diff(breakpoints)[..., None]


def _clamped_knots(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Repeat the end points so that the basis reaches them, shape (L, P + 1 + 2 p)."""
    left = np.repeat(breakpoints[:, :1], degree, axis=1)
    right = np.repeat(breakpoints[:, -1:], degree, axis=1)
    return np.concatenate([left, breakpoints, right], axis=1)


def _basis_pieces(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Coefficients (L, P, p + 1, p + 1) of powers of u of B-spline i + r on interval i."""
    *_, pieces = _rising_pieces(breakpoints, degree)
    return pieces


def _rising_pieces(breakpoints: FloatArray, max_degree: int) -> Iterator[FloatArray]:
    """Coefficients as `_basis_pieces`, of degree 0, 1, ..., `max_degree`, in one array."""
    knots = _clamped_knots(breakpoints, max_degree)
    # The knots up to the start of each interval, and those from its end on
    around = np.lib.stride_tricks.sliding_window_view(knots, 2 * max_degree, axis=1)[:, 1:-1]
    before, after = around[..., :max_degree], around[..., max_degree:]
    starts, widths = breakpoints[:, :-1, None], np.diff(breakpoints)[..., None]
    local = np.zeros((*before.shape[:2], max_degree + 1, max_degree + 1))
    local[..., 0, 0] = 1.0
    yield local[..., :1, :1]
    for order in range(1, max_degree + 1):
        left, right = before[..., max_degree - order :], after[..., :order]
        # Cox and de Boor's recursion, on coefficients within each interval in place of values
        fractions = local[..., :order, : order + 1] / (right - left)[..., None]
        local[..., :order, : order + 1] = _times_line(fractions, right - starts, -widths)
        local[..., 1 : order + 1, : order + 1] += _times_line(fractions, starts - left, widths)
        yield local[..., : order + 1, : order + 1]


def _times_line(polynomial: FloatArray, constant: FloatArray, slope: FloatArray) -> FloatArray:
    """Multiply polynomials in u by constant + slope u."""
    product = polynomial * constant[..., None]
    product[..., 1:] += polynomial[..., :-1] * slope[..., None]
    return product


class PolynomialGroup:
    """The ``units`` (k,) of one variable by their positions in the layer, with the union ``atoms``
    (a,) of their point masses, increasing, and the mass ``atom_masses`` (k, a) of each there.
    """

    def __init__(
        self,
        variable: int,
        units: IntArray,
        atoms: Sequence[tuple[FloatArray, FloatArray]],
        pieces: PolynomialPieces,
    ) -> None:
        self.variable, self.units, self.pieces = variable, units, pieces
        self.locate = PieceLocator(pieces, units)
        # A mass of one unit takes the density of all others at that point
        self.atoms = np.unique(np.concatenate([points for points, _ in atoms]))
        self.atom_masses = np.zeros((len(units), len(self.atoms)))
        for own, (points, masses) in zip(self.atom_masses, atoms):
            own[np.searchsorted(self.atoms, points)] = masses

    def log_density(self, x: FloatArray) -> FloatArray:
        """Log density at points, log mass at atoms, shape (k, n)."""
        values = self.pieces.log_density(self.locate(x), x)
        if len(self.atoms):
            place = np.minimum(np.searchsorted(self.atoms, x), len(self.atoms) - 1)
            hits = np.flatnonzero(self.atoms[place] == x)
            values[:, hits] = safe_log(self.atom_masses[:, place[hits]])
        return values

    @cached_property
    def integers(self) -> tuple[FloatArray, FloatArray] | None:
        """Integers between the tails and one beyond, with log densities (k, n); None if many."""
        points = np.concatenate([self.locate.merged[[0, -1]], self.atoms])
        first, last = np.floor(points.min()) - 1.0, np.ceil(points.max()) + 1.0
        if last - first >= MAX_INTEGERS:
            return None
        integers = np.arange(first, last + 1.0)
        return integers, self.log_density(integers)

    def atom_mass(self, lower: FloatArray, upper: FloatArray, closed: str) -> FloatArray:
        """Mass of the atoms inside intervals, shape (k, n)."""
        atoms = self.atoms[:, None]
        above = atoms >= lower if closed in ("both", "left") else atoms > lower
        below = atoms <= upper if closed in ("both", "right") else atoms < upper
        return self.atom_masses @ (above & below).astype(float)

    @cached_property
    def modes(self) -> tuple[FloatArray, FloatArray]:
        """Highest point of each unit and its log density (or log mass), both (k,)."""
        points, heights = (values[self.units] for values in self.pieces.peaks)
        if len(self.atoms):
            # There is no density where a unit has a point mass: it is the same next to the point
            taken = np.flatnonzero(np.isin(points, self.atoms))
            every = np.arange(len(taken))
            sides = np.nextafter(points[taken], [[-np.inf], [np.inf]])
            heights_beside = [self.log_density(side)[taken, every] for side in sides]
            points[taken] = sides[np.argmax(heights_beside, axis=0), every]
            # A mass and a density are compared as they stand: both are values of the unit there
            best = self.atom_masses.argmax(axis=1)
            log_mass = safe_log(self.atom_masses.max(axis=1))
            points = np.where(log_mass > heights, self.atoms[best], points)
            heights = np.maximum(log_mass, heights)
        return points, heights

    def quantile(self, rows: IntArray, uniform: FloatArray) -> FloatArray:
        """Turn uniform numbers into draws of the group's units ``rows``."""
        places, is_own = self.pieces.places(self.units)
        stop = np.where(self.pieces.is_tail[places], np.inf, 1.0)
        masses = np.where(is_own, self.pieces.masses[places], 0.0)
        # Atoms are drawn as further pieces, after the last
        masses = np.hstack([masses, self.atom_masses])
        return self.draw_parts(places, np.zeros(stop.shape), stop, masses, rows, uniform)

    def draw_parts(
        self,
        places: IntArray,
        start: FloatArray,
        stop: FloatArray,
        masses: FloatArray,
        rows: IntArray,
        uniform: FloatArray,
    ) -> FloatArray:
        """Turn uniform numbers (m,) into draws from parts of pieces (``places``, ``start``,
        ``stop``, (t, P)) and atoms with ``masses`` (t, P + a); ``rows`` (m,) choose the table.
        """
        ends = np.cumsum(masses, axis=1)
        # Scaling the uniform numbers saves normalising the masses.
        target = uniform * ends[rows, -1]
        region = np.minimum((ends[rows] <= target[:, None]).sum(axis=1), ends.shape[1] - 1)
        mass = masses[rows, region]
        rest = np.clip((target - ends[rows, region] + mass) / divisors(mass), 0, 1)
        drawn = np.empty(len(rows))
        on_atom = region >= places.shape[1]
        drawn[on_atom] = self.atoms[region[on_atom] - places.shape[1]]
        smooth = np.flatnonzero(~on_atom)
        at = rows[smooth], region[smooth]
        drawn[smooth] = self.pieces.quantile(places[at], start[at], stop[at], rest[smooth])
        return drawn


def log_interval_masses(
    groups: Sequence[PolynomialGroup], bounds: FloatArray, closed: str
) -> FloatArray:
    """Log masses (k, n) of intervals of all groups; bounds (n_groups, 3, n) may be infinite."""
    ends = np.cumsum([len(group.units) for group in groups])
    values = np.zeros((ends[-1], bounds.shape[2]))
    bounded = [np.flatnonzero(~np.isinf(own).all(axis=0)) for own in bounds]
    if not any(map(len, bounded)):
        return values
    parts = []
    for group, own, rows in zip(groups, bounds, bounded):
        for x in own[::2, rows]:
            places = group.locate(x)
            parts += [places.ravel(), np.broadcast_to(x, places.shape).ravel()]
    # All groups at once: few rows pay for the number of calls
    pairs = (np.concatenate(parts[i::4]) for i in range(4))
    found = groups[0].pieces.log_mass(*pairs)
    sizes = [len(group.units) * len(rows) for group, rows in zip(groups, bounded)]
    own_values = np.split(found, np.cumsum(sizes)[:-1])
    for group, (lower, upper, _), rows, end, own in zip(groups, bounds, bounded, ends, own_values):
        own = own.reshape(len(group.units), len(rows))
        if len(group.atoms):
            on_atoms = safe_log(group.atom_mass(lower[rows], upper[rows], closed))
            np.logaddexp(own, on_atoms, out=own)
        # The whole line has probability one, regardless of rounding
        values[end - len(own) : end, rows] = np.minimum(own, 0.0)
    return values


class IntervalMasses:
    """Masses to absolute accuracy under all groups; a group's units are neighbours."""

    def __init__(self, groups: Sequence[PolynomialGroup], bounds: FloatArray, closed: str) -> None:
        self._groups, self._bounds, self._closed = groups, bounds, closed
        self._sizes = [len(group.units) for group in groups]

    def write(self, rows: Rows, masses: FloatArray) -> None:
        """Write masses (k, m)."""
        x = self._bounds[:, ::2, rows]
        places = [group.locate(own) for group, own in zip(self._groups, x)]
        x = x.repeat(self._sizes, axis=0)
        ends = self._groups[0].pieces.cumulative(np.concatenate(places), x)
        np.subtract(ends[:, 1], ends[:, 0], out=masses)
        np.maximum(masses, 0.0, out=masses)
        masses *= x[:, 0] < x[:, 1]
        self._add_atoms(rows, masses)

    def _add_atoms(self, rows: Rows, masses: FloatArray) -> None:
        end = 0
        for group, (lower, upper, _), size in zip(self._groups, self._bounds, self._sizes):
            end += size
            if len(group.atoms):
                own = group.atom_mass(lower[rows], upper[rows], self._closed)
                masses[end - size : end] += own


class RepeatedIntervals(IntervalMasses):
    """The same for one group, from a table of the masses at bounds that repeat."""

    def __init__(self, group: PolynomialGroup, bounds: FloatArray, closed: str) -> None:
        super().__init__([group], bounds[None], closed)
        points, places = distinct_numbers(bounds[::2].ravel())
        # Bounds that repeat are worth a table, unless it leaves the memory.
        n_bytes = 8 * len(points) * len(group.units)
        self._do_repeat = len(points) <= bounds.shape[1] and n_bytes <= MAX_MASS_TABLE
        if self._do_repeat:
            self._lower_place, self._stop_place = np.split(places, 2)
            # Points first: the masses of all units at one point are copied as a whole
            table = np.ascontiguousarray(group.pieces.cumulative(group.locate(points), points).T)
            # So that rounding makes no difference negative
            self._cumulative = np.maximum.accumulate(table, axis=0, out=table)
            self._scratch = np.empty((2, 0, 0))

    def write(self, rows: Rows, masses: FloatArray) -> None:
        if not self._do_repeat:
            super().write(rows, masses)
            return
        low, high = self._lower_place[rows], self._stop_place[rows]
        shape = (2, len(low), self._cumulative.shape[1])
        # A new array would cost more than the copy
        if self._scratch.shape != shape:
            self._scratch = np.empty(shape)
        self._cumulative.take(low, axis=0, out=self._scratch[0], mode="clip")
        self._cumulative.take(high, axis=0, out=self._scratch[1], mode="clip")
        # Before transposing: contiguous arrays are several times faster
        self._scratch[1] -= self._scratch[0]
        np.maximum(self._scratch[1], 0.0, out=self._scratch[1])
        masses[...] = self._scratch[1].T
        self._add_atoms(rows, masses)
