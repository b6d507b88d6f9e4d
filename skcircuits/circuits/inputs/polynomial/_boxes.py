"""Probabilities of intervals under piecewise polynomial units, for many rows or for few."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from skcircuits.circuits.inputs.base import MIN_ERROR, BoxMasses
from skcircuits.circuits.inputs.polynomial._groups import (
    MAX_TABLE,
    PolynomialGroup,
)
from skcircuits.numerics._arrays import Rows
from skcircuits.protocols import FloatArray, IntArray

# Bound of the relative error of a cumulative mass.
ROUNDING = 1e-15
# Slots of the hash table (as a power of two), and the arrays that are worth one.
_SLOT_BITS = 16
_MANY_NUMBERS = 4096
# 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class ManyIntervals(BoxMasses):
    """Masses of many intervals, group by group; bounds that repeat are evaluated once.

    The units of a variable are neighbours in the layer; bounds (n_groups, 2, n) may be infinite.
    """

    def __init__(self, groups: list[PolynomialGroup], bounds: FloatArray, closed: str) -> None:
        self._parts = [
            (
                slice(group.units[0], group.units[-1] + 1),
                _GroupIntervals(group, own[0], own[1], closed),
            )
            for group, own in zip(groups, bounds)
        ]

    def write(self, rows: Rows, masses: FloatArray) -> None:
        for units, intervals in self._parts:
            intervals.write(rows, masses[units])

    def write_bounds(self, rows: Rows, masses: FloatArray, errors: FloatArray) -> None:
        for units, intervals in self._parts:
            intervals.write_bounds(rows, masses[units], errors[units])


class FewIntervals(BoxMasses):
    """Masses of few intervals, all groups at once: few rows pay for the number of calls.

    The units of a variable are neighbours in the layer; bounds (n_groups, 2, n) may be infinite.
    """

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
        """Pieces that hold the bounds, and the bounds, both of shape (n_units, 2, m)."""
        bounds = self._bounds[:, :, rows]
        places = [group.locate(own) for group, own in zip(self._groups, bounds)]
        return np.concatenate(places), bounds.repeat([len(place) for place in places], axis=0)

    def _add_atoms(self, rows: Rows, masses: FloatArray) -> None:
        for group, (lower, upper) in zip(self._groups, self._bounds):
            if len(group.atoms):
                units = slice(group.units[0], group.units[-1] + 1)
                masses[units] += group.atom_mass(lower[rows], upper[rows], self._closed)


class _GroupIntervals:
    """Masses of intervals under the units of one variable; bounds (n,) may be infinite."""

    def __init__(
        self, group: PolynomialGroup, lower: FloatArray, upper: FloatArray, closed: str
    ) -> None:
        self._group, self._closed = group, closed
        self._lower, self._upper = lower, upper
        self._is_wide = lower < upper
        self._points, places = distinct_numbers(np.concatenate([lower, upper]))
        self._lower_place, self._upper_place = np.split(places, 2)
        # Bounds that repeat are worth a table, unless it leaves the memory.
        n_bytes = 8 * len(self._points) * len(group.units)
        self._do_repeat = len(self._points) <= len(lower) and n_bytes <= MAX_TABLE
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
            high = np.maximum(self._group.cumulative(self._upper[rows]), low)
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
            sides = [self._group.two_sided(x[rows]) for x in (self._lower, self._upper)]
            low, high = (side.swapaxes(1, 2) for side in sides)
        between, error = _between(low, high)
        masses[...], errors[...] = between.T, error.T
        is_wide = self._is_wide[rows]
        if not is_wide.all():
            masses *= is_wide
            errors *= is_wide
        self._add_atoms(rows, masses)

    def _rows_of(self, table: FloatArray, rows: Rows) -> FloatArray:
        """Entries of a table at the lower and at the upper bounds, shape (2, ..., m, k)."""
        low, high = self._lower_place[rows], self._upper_place[rows]
        shape = (2, *table.shape[:-2], len(low), table.shape[-1])
        # A new array would cost more than what is copied into it
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
    """Find the increasing distinct numbers of x, infinite ones included, and the inverse.

    The same as ``numpy.unique``, without sorting all.
    """
    if len(x) < _MANY_NUMBERS:
        return np.unique(x, return_inverse=True)
    x = x + 0.0  # -0.0 equals 0.0
    slots = (x.view(np.uint64) * _MULTIPLIER) >> np.uint64(64 - _SLOT_BITS)
    slots = slots.view(np.int64)
    # One of the numbers of each slot; the others, if any, are sorted
    owner = np.full(1 << _SLOT_BITS, np.nan)
    owner[slots] = x
    strangers = np.flatnonzero(owner[slots] != x)
    if len(strangers) > len(x) // 8:
        return np.unique(x, return_inverse=True)
    taken = np.flatnonzero(owner == owner)
    numbers = np.unique(np.concatenate([owner[taken], x[strangers]]))
    rank = np.empty(len(owner), dtype=np.int64)
    rank[taken] = np.searchsorted(numbers, owner[taken])
    inverse = rank[slots]
    inverse[strangers] = np.searchsorted(numbers, x[strangers])
    return numbers, inverse
