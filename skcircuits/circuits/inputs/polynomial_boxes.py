"""Probabilities of intervals under piecewise polynomial units, for many rows or for few."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from skcircuits.circuits.inputs.base import SMALLEST_ERROR, BoxMasses
from skcircuits.circuits.inputs.polynomial_groups import (
    LARGEST_TABLE,
    PolynomialGroup,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["FewIntervals", "ManyIntervals"]

# Bound of the relative error of a cumulative mass.
ROUNDING = 1e-15


class ManyIntervals(BoxMasses):
    """Masses of many intervals, group by group; bounds that repeat are evaluated once.

    Parameters
    ----------
    groups : list of PolynomialGroup
        The units of each variable, neighbours in the layer.
    bounds : ndarray of shape (n_groups, 2, n)
        Lower and upper bounds, infinite ones included.
    closed : {"both", "left", "right", "neither"}
        Which ends belong to the intervals.
    """

    def __init__(self, groups: list[PolynomialGroup], bounds: FloatArray, closed: str) -> None:
        self._parts = [
            (
                slice(group.units[0], group.units[-1] + 1),
                _GroupIntervals(group, own[0], own[1], closed),
            )
            for group, own in zip(groups, bounds)
        ]

    def write(self, rows: IntArray, masses: FloatArray) -> None:
        """Give probabilities to absolute accuracy.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Which rows.
        masses : ndarray of shape (n_units, m)
            Receives the probabilities.
        """
        for units, intervals in self._parts:
            intervals.write(rows, masses[units])

    def write_bounds(self, rows: IntArray, masses: FloatArray, errors: FloatArray) -> None:
        """Give probabilities and bounds of their errors.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Which rows.
        masses, errors : ndarray of shape (n_units, m)
            Receive the probabilities and the bounds.
        """
        for units, intervals in self._parts:
            intervals.write_bounds(rows, masses[units], errors[units])


class FewIntervals(BoxMasses):
    """Masses of few intervals, all groups at once: few rows pay for the number of calls.

    Parameters
    ----------
    groups : list of PolynomialGroup
        The units of each variable, neighbours in the layer.
    bounds : ndarray of shape (n_groups, 2, n)
        Lower and upper bounds, infinite ones included.
    closed : {"both", "left", "right", "neither"}
        Which ends belong to the intervals.
    """

    def __init__(self, groups: list[PolynomialGroup], bounds: FloatArray, closed: str) -> None:
        self._groups, self._bounds, self._closed = groups, bounds, closed

    def write(self, rows: IntArray, masses: FloatArray) -> None:
        """Give probabilities.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Which rows.
        masses : ndarray of shape (n_units, m)
            Receives the probabilities.
        """
        pieces, x = self._places(rows)
        ends = self._groups[0].pieces.cumulative(pieces, x)
        np.subtract(ends[:, 1], ends[:, 0], out=masses)
        np.maximum(masses, 0.0, out=masses)
        masses *= x[:, 0] < x[:, 1]
        self._add_atoms(rows, masses)

    def write_bounds(self, rows: IntArray, masses: FloatArray, errors: FloatArray) -> None:
        """Give probabilities and bounds of their errors.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Which rows.
        masses, errors : ndarray of shape (n_units, m)
            Receive the probabilities and the bounds.
        """
        pieces, x = self._places(rows)
        ends = self._groups[0].pieces.two_sided(pieces, x)
        _between(ends[:, :, 0], ends[:, :, 1], x[:, 0] < x[:, 1], masses, errors)
        self._add_atoms(rows, masses)

    def _places(self, rows: IntArray) -> tuple[IntArray, FloatArray]:
        """Pieces that hold the bounds, and the bounds, both of shape (n_units, 2, m)."""
        bounds = self._bounds.take(rows, axis=2)
        places = [group.locate(own) for group, own in zip(self._groups, bounds)]
        return np.concatenate(places), bounds.repeat([len(place) for place in places], axis=0)

    def _add_atoms(self, rows: IntArray, masses: FloatArray) -> None:
        for group, (lower, upper) in zip(self._groups, self._bounds):
            if len(group.atoms):
                units = slice(group.units[0], group.units[-1] + 1)
                masses[units] += group.atom_mass(lower[rows], upper[rows], self._closed)


class _GroupIntervals:
    """Masses of intervals under the units of one variable.

    Parameters
    ----------
    group : PolynomialGroup
        k units.
    lower, upper : ndarray of shape (n,)
        Bounds, infinite ones included.
    closed : {"both", "left", "right", "neither"}
        Which ends belong to the intervals.
    """

    def __init__(
        self, group: PolynomialGroup, lower: FloatArray, upper: FloatArray, closed: str
    ) -> None:
        self._group, self._closed = group, closed
        self._lower, self._upper = lower, upper
        self._points, places = np.unique(np.concatenate([lower, upper]), return_inverse=True)
        self._lower_place, self._upper_place = np.split(places, 2)
        n_bytes = 8 * len(self._points) * len(group.units)
        self._do_repeat = len(self._points) <= len(lower) and n_bytes <= LARGEST_TABLE
        self._scratch = np.empty((0, 0))

    @cached_property
    def _cumulative(self) -> FloatArray:
        # Units first: the masses of one unit stay in cache
        return np.ascontiguousarray(self._group.cumulative(self._points).T)

    @cached_property
    def _two_sided(self) -> FloatArray:
        return self._group.two_sided(self._points)

    def write(self, rows: IntArray, masses: FloatArray) -> None:
        """Give masses to absolute accuracy, shape (k, m)."""
        lower, upper = self._lower[rows], self._upper[rows]
        if self._do_repeat:
            # A new array would cost more than what is computed in it
            if self._scratch.shape != masses.shape:
                self._scratch = np.empty(masses.shape)
            below = self._scratch
            self._cumulative.take(self._upper_place[rows], axis=1, out=masses, mode="clip")
            self._cumulative.take(self._lower_place[rows], axis=1, out=below, mode="clip")
            masses -= below
        else:
            masses[...] = (self._group.cumulative(upper) - self._group.cumulative(lower)).T
        np.maximum(masses, 0.0, out=masses)
        masses[:, ~(lower < upper)] = 0.0
        self._add_atoms(lower, upper, masses)

    def write_bounds(self, rows: IntArray, masses: FloatArray, errors: FloatArray) -> None:
        """Give masses and bounds of their errors, shape (k, m)."""
        lower, upper = self._lower[rows], self._upper[rows]
        if self._do_repeat:
            low = self._two_sided.take(self._lower_place[rows], axis=2)
            high = self._two_sided.take(self._upper_place[rows], axis=2)
        else:
            low, high = self._group.two_sided(lower), self._group.two_sided(upper)
        _between(low, high, lower < upper, masses, errors)
        self._add_atoms(lower, upper, masses)

    def _add_atoms(self, lower: FloatArray, upper: FloatArray, masses: FloatArray) -> None:
        if len(self._group.atoms):
            masses += self._group.atom_mass(lower, upper, self._closed)


def _between(
    low: FloatArray, high: FloatArray, is_wide: BoolArray, masses: FloatArray, errors: FloatArray
) -> None:
    """Write masses between two-sided cumulative masses, and bounds of their errors."""
    np.subtract(high[1], low[1], out=errors)
    np.subtract(high[0], low[0], out=masses)
    masses += errors
    np.maximum(masses, 0.0, out=masses)
    masses *= is_wide
    np.add(low[2], high[2], out=errors)
    errors *= ROUNDING
    errors += SMALLEST_ERROR
    errors *= is_wide
