"""Piecewise polynomial units of one variable: densities, interval masses, modes, quantiles.

The breakpoints of all units together cut the line into intervals on which every unit is one
polynomial, or one tail. With a table of their coefficients per interval, a cumulative mass costs
one binary search and Horner's scheme on contiguous rows of the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np

from skcircuits.circuits.inputs.polynomial._pieces import FAR_AWAY, PieceLocator, PolynomialPieces
from skcircuits.protocols import FloatArray, IntArray


class CumulativeTable:
    """Cumulative masses of some functions as polynomials on common intervals.

    ``pieces``: the functions; ``functions`` (k,): which of them; ``locate``: their locator.

    On interval i, with v running from 0 to 1 over it, function f has collected Σ_m coefficients[m,
    i, f] v^m + amplitudes[i, f] exp(slopes[i, f] (x - edges[i, f])).
    """

    def __init__(self, pieces: PolynomialPieces, functions: IntArray, locate: PieceLocator) -> None:
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
        """Masses left of points.

        ``x`` (n,): points, infinite ones included. Returns (n, k): mass of each function left of
        each point.
        """
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


# A table of cumulative masses pays for this many points, up to this many bytes.
MANY_POINTS = 512
MAX_TABLE = 2**26


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
            with np.errstate(divide="ignore"):
                values[:, hits] = np.log(self.atom_masses[:, place[hits]])
        return values

    def log_mass(self, lower: FloatArray, upper: FloatArray, closed: str) -> FloatArray:
        """Log mass of intervals, shape (k, n)."""
        values = self.pieces.log_mass(self.locate(lower), lower, self.locate(upper), upper)
        if len(self.atoms):
            with np.errstate(divide="ignore"):
                on_atoms = np.log(self.atom_mass(lower, upper, closed))
            np.logaddexp(values, on_atoms, out=values)
        # The whole line has probability one, whatever rounding says
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
            CumulativeTable.n_bytes(self.pieces, self.locate) <= MAX_TABLE
        ):
            self._known_table = CumulativeTable(self.pieces, self.units, self.locate)
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
            best = self.atom_masses.argmax(axis=1)
            with np.errstate(divide="ignore"):
                log_mass = np.log(self.atom_masses.max(axis=1))
            points = np.where(log_mass > heights, self.atoms[best], points)
            heights = np.maximum(log_mass, heights)
        return points, heights

    def quantile(self, rows: IntArray, uniform: FloatArray) -> FloatArray:
        """Turn uniform numbers into draws of the group's units ``rows``."""
        places, is_own = self.pieces.places(self.units)
        stop = np.where(self.pieces.is_tail[places], np.inf, 1.0)
        masses = np.where(is_own, self.pieces.masses[places], 0.0)
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
        rest = np.clip((target - ends[rows, region] + mass) / np.where(mass > 0, mass, 1), 0, 1)
        drawn = np.empty(len(rows))
        on_atom = region >= places.shape[1]
        drawn[on_atom] = self.atoms[region[on_atom] - places.shape[1]]
        smooth = np.flatnonzero(~on_atom)
        at = rows[smooth], region[smooth]
        drawn[smooth] = self.pieces.quantile(places[at], start[at], stop[at], rest[smooth])
        return drawn
