"""Piecewise polynomial units of one variable: densities, interval masses, modes, quantiles.

The breakpoints of all units divide the line into intervals on which every unit is a single
polynomial or a tail. With a table of the coefficients per interval, a cumulative probability costs
one binary search and Horner's scheme on contiguous rows of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import comb

import numpy as np

from skcircuits.circuits._policy import MANY_NUMBERS, MANY_POINTS, MAX_COLLISIONS, MAX_MASS_TABLE
from skcircuits.circuits.inputs.base import MIN_ERROR, BoxMasses
from skcircuits.circuits.inputs.polynomial._pieces import FAR_AWAY, PieceLocator, PolynomialPieces
from skcircuits.numerics._arrays import Rows, divisors, safe_log
from skcircuits.protocols import FloatArray, IntArray

# Bound of the relative error of a cumulative mass.
ROUNDING = 1e-15
# Slots of the hash table, as a power of two.
_SLOT_BITS = 16
# 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class CumulativeTable:
    """Cumulative masses of some functions as polynomials on common intervals.

    ``pieces``: of all functions; ``locate``: the locator of those that the table is of.

    On interval i, with v running from 0 to 1 over it, function f has collected Σ_m coefficients[m,
    i, f] v^m + amplitudes[i, f] exp(slopes[i, f] (x - edges[i, f])).
    """

    def __init__(self, pieces: PolynomialPieces, locate: PieceLocator) -> None:
        self._merged = locate.merged
        # The outermost intervals are tails of all functions: there v does not matter
        self._starts = np.concatenate([self._merged[:1], self._merged])
        self._scales = 1.0 / np.concatenate([[1.0], np.diff(self._merged), [1.0]])
        own = locate.table.T
        shift = (self._starts[:, None] - pieces.starts[own]) / pieces.widths[own]
        stretch = 1.0 / (self._scales[:, None] * pieces.widths[own])
        powers = np.vstack([pieces.offsets[None], pieces.antiderivatives])[:, own]
        powers[1:, pieces.is_tail[own]] = 0.0
        # Σ_k a_k (shift + stretch v)^k, collected by powers of v
        self._coefficients = [
            sum(comb(k, m) * shift ** (k - m) * powers[k] for k in range(m, len(powers)))
            * stretch**m
            for m in range(len(powers))
        ]
        # Degrees that no function has would cost a pass over all points.
        while len(self._coefficients) > 1 and not self._coefficients[-1].any():
            self._coefficients.pop()
        self._edges = pieces.starts[own]
        self._slopes = np.where(pieces.is_left[own], 1.0, -1.0) * pieces.rates[own]
        self._amplitudes = pieces.amplitudes[own]

    @staticmethod
    def n_bytes(pieces: PolynomialPieces, locate: PieceLocator) -> int:
        """Memory that a table would take, in bytes."""
        return 8 * locate.table.size * (len(pieces.coefficients) + 4)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Masses (n, k) of each function left of points x (n,), infinite ones included."""
        # One search serves all functions: the intervals are common to them
        interval = np.searchsorted(self._merged, x, side="right")
        # Infinite points times slopes of zero would be NaN.
        x = np.clip(x, -FAR_AWAY, FAR_AWAY)
        v = np.clip((x - self._starts[interval]) * self._scales[interval], 0.0, 1.0)[:, None]
        value = np.take(self._coefficients[-1], interval, axis=0, mode="clip")
        rows = np.empty_like(value)  # one buffer for all tables: it stays in cache
        for coefficients in self._coefficients[-2::-1]:
            value *= v
            value += np.take(coefficients, interval, axis=0, out=rows, mode="clip")
        beyond = x[:, None] - np.take(self._edges, interval, axis=0, out=rows, mode="clip")
        with np.errstate(over="ignore"):
            beyond *= np.take(self._slopes, interval, axis=0, out=rows, mode="clip")
        np.exp(beyond, out=beyond)
        beyond *= np.take(self._amplitudes, interval, axis=0, out=rows, mode="clip")
        value += beyond
        return value


class PolynomialGroup:
    """The units of one variable, with the union of their point masses.

    ``variable``: column number; ``units`` (k,): positions of the units in the layer, increasing;
    ``atoms``: points where each unit has mass, and the masses; ``pieces``: polynomials and tails of
    all units of the layer. ``atoms`` (a,): points where any of the units has mass, increasing;
    ``atom_masses`` (k, a): mass of each unit at each of them.
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
        self._known_table: CumulativeTable | None = None
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

    def log_mass(self, bounds: FloatArray, closed: str) -> FloatArray:
        """Log mass of intervals, bounds (3, n) as in `ManyIntervals`, shape (k, n)."""
        lower, upper, stop = bounds
        values = self.pieces.log_mass(self.locate(lower), lower, self.locate(stop), stop)
        if len(self.atoms):
            on_atoms = safe_log(self.atom_mass(lower, upper, closed))
            np.logaddexp(values, on_atoms, out=values)
        # The whole line has probability one, regardless of rounding
        return np.minimum(values, 0.0, out=values)

    def cumulative(self, x: FloatArray) -> FloatArray:
        """Mass left of points, atoms left out, shape (n, k)."""
        table = self._table() if len(x) >= MANY_POINTS else None
        return self.pieces.cumulative(self.locate(x), x).T if table is None else table(x)

    def two_sided(self, x: FloatArray) -> FloatArray:
        """Cumulative masses as `PolynomialPieces.two_sided`, shape (3, k, n)."""
        return self.pieces.two_sided(self.locate(x), x)

    def _table(self) -> CumulativeTable | None:
        """Table of cumulative masses, made at first use; None where it would be too large."""
        if self._known_table is None and (
            CumulativeTable.n_bytes(self.pieces, self.locate) <= MAX_MASS_TABLE
        ):
            self._known_table = CumulativeTable(self.pieces, self.locate)
        return self._known_table

    def atom_mass(self, lower: FloatArray, upper: FloatArray, closed: str) -> FloatArray:
        """Mass of the atoms inside intervals, shape (k, n)."""
        atoms = self.atoms[:, None]
        above = atoms >= lower if closed in ("both", "left") else atoms > lower
        below = atoms <= upper if closed in ("both", "right") else atoms < upper
        return self.atom_masses @ (above & below).astype(float)

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
        """Turn uniform numbers (m,) into draws from parts of pieces and from atoms.

        ``places``, ``start``, ``stop`` (t, P): parts as in `PolynomialPieces.quantile`; ``masses``
        (t, P + a): of these and of the atoms; ``rows`` (m,): the table that each draw is from.
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


class ManyIntervals(BoxMasses):
    """Masses of many intervals, group by group; bounds that repeat are evaluated once.

    The units of a variable are neighbours in the layer; bounds (n_groups, 3, n), the first and the
    last number and where densities end, may be infinite.
    """

    def __init__(self, groups: list[PolynomialGroup], bounds: FloatArray, closed: str) -> None:
        self._parts = [
            (slice(group.units[0], group.units[-1] + 1), _GroupIntervals(group, own, closed))
            for group, own in zip(groups, bounds)
        ]

    def write(self, rows: Rows, masses: FloatArray) -> None:
        for units, intervals in self._parts:
            intervals.write(rows, masses[units])

    def write_bounds(self, rows: Rows, masses: FloatArray, errors: FloatArray) -> None:
        for units, intervals in self._parts:
            intervals.write_bounds(rows, masses[units], errors[units])


class FewIntervals(BoxMasses):
    """Masses of few intervals, all groups at once: few rows pay for the number of calls."""

    def __init__(self, groups: list[PolynomialGroup], bounds: FloatArray, closed: str) -> None:
        self._groups, self._bounds, self._closed = groups, bounds, closed

    def write(self, rows: Rows, masses: FloatArray) -> None:
        pieces, x = self._places(rows)
        ends = self._groups[0].pieces.cumulative(pieces, x)
        np.subtract(ends[:, 1], ends[:, 0], out=masses)
        np.maximum(masses, 0.0, out=masses)
        masses *= x[:, 0] < x[:, 1]
        self._add_atoms(rows, masses)

    def write_bounds(self, rows: Rows, masses: FloatArray, errors: FloatArray) -> None:
        pieces, x = self._places(rows)
        ends = self._groups[0].pieces.two_sided(pieces, x)
        is_wide = x[:, 0] < x[:, 1]
        between, error = _between(ends[:, :, 0], ends[:, :, 1])
        np.multiply(between, is_wide, out=masses)
        np.multiply(error, is_wide, out=errors)
        self._add_atoms(rows, masses)

    def _places(self, rows: Rows) -> tuple[IntArray, FloatArray]:
        """Pieces that hold ends for densities, and the ends, both of shape (n_units, 2, m)."""
        bounds = self._bounds[:, ::2, rows]
        places = [group.locate(own) for group, own in zip(self._groups, bounds)]
        return np.concatenate(places), bounds.repeat([len(place) for place in places], axis=0)

    def _add_atoms(self, rows: Rows, masses: FloatArray) -> None:
        for group, (lower, upper, _) in zip(self._groups, self._bounds):
            if len(group.atoms):
                units = slice(group.units[0], group.units[-1] + 1)
                masses[units] += group.atom_mass(lower[rows], upper[rows], self._closed)


class _GroupIntervals:
    """Masses of intervals under the units of one variable; bounds (3, n) may be infinite."""

    def __init__(self, group: PolynomialGroup, bounds: FloatArray, closed: str) -> None:
        self._group, self._closed = group, closed
        self._lower, self._upper, self._stop = bounds
        self._is_wide = self._lower < self._stop
        self._points, places = distinct_numbers(bounds[::2].ravel())
        self._lower_place, self._stop_place = np.split(places, 2)
        # Bounds that repeat are worth a table, unless it leaves the memory.
        n_bytes = 8 * len(self._points) * len(group.units)
        self._do_repeat = len(self._points) <= bounds.shape[1] and n_bytes <= MAX_MASS_TABLE
        self._scratch = np.empty((2, 0, 0))

    # Points first: the masses of all units at one point are copied as a whole

    @cached_property
    def _cumulative(self) -> FloatArray:
        table = self._group.cumulative(self._points)
        # So that rounding makes no difference negative
        return np.maximum.accumulate(table, axis=0, out=table)

    @cached_property
    def _two_sided(self) -> FloatArray:
        return np.ascontiguousarray(self._group.two_sided(self._points).swapaxes(1, 2))

    def write(self, rows: Rows, masses: FloatArray) -> None:
        """Give masses to absolute accuracy, shape (k, m)."""
        if self._do_repeat:
            low, high = self._rows_of(self._cumulative, rows)
        else:
            low = self._group.cumulative(self._lower[rows])
            high = np.maximum(self._group.cumulative(self._stop[rows]), low)
        high -= low  # before transposing: contiguous arrays are several times faster
        masses[...] = high.T
        is_wide = self._is_wide[rows]
        if not is_wide.all():
            masses *= is_wide
        self._add_atoms(rows, masses)

    def write_bounds(self, rows: Rows, masses: FloatArray, errors: FloatArray) -> None:
        """Give masses and bounds of their errors, shape (k, m)."""
        if self._do_repeat:
            low, high = self._rows_of(self._two_sided, rows)
        else:
            sides = [self._group.two_sided(x[rows]) for x in (self._lower, self._stop)]
            low, high = (side.swapaxes(1, 2) for side in sides)
        between, error = _between(low, high)
        masses[...], errors[...] = between.T, error.T
        is_wide = self._is_wide[rows]
        if not is_wide.all():
            masses *= is_wide
            errors *= is_wide
        self._add_atoms(rows, masses)

    def _rows_of(self, table: FloatArray, rows: Rows) -> FloatArray:
        """Entries of a table where intervals begin and end, shape (2, ..., m, k)."""
        low, high = self._lower_place[rows], self._stop_place[rows]
        shape = (2, *table.shape[:-2], len(low), table.shape[-1])
        # A new array would cost more than the copy
        if self._scratch.shape != shape:
            self._scratch = np.empty(shape)
        table.take(low, axis=-2, out=self._scratch[0], mode="clip")
        table.take(high, axis=-2, out=self._scratch[1], mode="clip")
        return self._scratch

    def _add_atoms(self, rows: Rows, masses: FloatArray) -> None:
        if len(self._group.atoms):
            masses += self._group.atom_mass(self._lower[rows], self._upper[rows], self._closed)


def _between(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Masses between two-sided cumulative masses, and bounds of their errors, in place."""
    high[:2] -= low[:2]
    masses, other_end, errors = high
    masses += other_end
    np.maximum(masses, 0.0, out=masses)
    errors += low[2]
    errors *= ROUNDING
    errors += MIN_ERROR
    return masses, errors


def distinct_numbers(x: FloatArray) -> tuple[FloatArray, IntArray]:
    """Increasing distinct numbers of x, and the inverse: ``numpy.unique`` without sorting all."""
    if len(x) < MANY_NUMBERS:
        return np.unique(x, return_inverse=True)
    x = x + 0.0  # -0.0 equals 0.0
    slots = (x.view(np.uint64) * _MULTIPLIER) >> np.uint64(64 - _SLOT_BITS)
    slots = slots.view(np.int64)
    # One of the numbers of each slot; the others, if any, are sorted
    owner = np.full(1 << _SLOT_BITS, np.nan)
    owner[slots] = x
    strangers = np.flatnonzero(owner[slots] != x)
    if len(strangers) > MAX_COLLISIONS * len(x):
        return np.unique(x, return_inverse=True)
    taken = np.flatnonzero(owner == owner)
    numbers = np.unique(np.concatenate([owner[taken], x[strangers]]))
    rank = np.empty(len(owner), dtype=np.int64)
    rank[taken] = np.searchsorted(numbers, owner[taken])
    inverse = rank[slots]
    inverse[strangers] = np.searchsorted(numbers, x[strangers])
    return numbers, inverse
