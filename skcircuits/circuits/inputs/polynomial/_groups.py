"""Piecewise polynomial units of one variable: densities, interval masses, modes, quantiles.

The breakpoints of all units divide the line into intervals on which every unit is a single
polynomial or a tail, so that one binary search finds the pieces of all units that hold a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from skcircuits.circuits._policy import MAX_INTEGERS, MAX_MASS_TABLE
from skcircuits.circuits.inputs.polynomial._pieces import PieceLocator, PolynomialPieces
from skcircuits.numerics._arrays import Rows, divisors, safe_log
from skcircuits.protocols import FloatArray, IntArray


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


def log_interval_masses(
    groups: Sequence[PolynomialGroup], bounds: FloatArray, closed: str
) -> FloatArray:
    """Log masses (k, n) of intervals under the units of some groups, one group after the other.

    Bounds (n_groups, 3, n), the first and the last number and where densities end, may be infinite.
    """
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
    """Masses of intervals to absolute accuracy under the units of some groups, all at once.

    Bounds as in `log_interval_masses`; the units of a group are neighbours.
    """

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
        points, places = np.unique(bounds[::2].ravel(), return_inverse=True)
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
