"""Stacked piecewise polynomials with exponential tails: evaluate many of them at once.

Each of U functions is a density on the line (of any mass): polynomials between increasing
breakpoints, an exponential tail on either side. They differ in their numbers of pieces, so
the pieces of all functions lie in flat arrays; per function the pieces are ordered
left tail, polynomials, right tail.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from skcircuits.numerics.bsplines import density_pieces
from skcircuits.numerics.logspace import log1mexp
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["PolynomialPieces"]

# Differences of cumulative masses below this have lost digits and are integrated anew.
SMALLEST_DIFFERENCE = 1e-6
NEWTON_STEPS = 60


class PolynomialPieces:
    """Piecewise polynomial densities with exponential tails.

    Parameters
    ----------
    breakpoints : sequence of ndarray of shape (P_i + 1,)
        Increasing ends of the polynomial pieces of each function.
    weights : sequence of ndarray of shape (P_i + p_i,)
        Non-negative weights of the normalised B-splines of degree p_i.
    tail_masses, tail_scales : ndarray of shape (U, 2)
        Mass and mean excess of the left and the right exponential tail.

    Attributes
    ----------
    first : ndarray of shape (U,)
        Position of each function's left tail in the flat arrays.
    counts : ndarray of shape (U,)
        Number of its pieces, tails included.
    starts, widths : ndarray of shape (n_pieces,)
        Left end and width of each polynomial; for tails the edge and 1.
    coefficients : ndarray of shape (max_degree + 1, n_pieces)
        Density per unit of u in [0, 1] as powers of u; zero for tails.
    masses : ndarray of shape (n_pieces,)
        Integral of each piece.
    """

    def __init__(
        self,
        breakpoints: Sequence[FloatArray],
        weights: Sequence[FloatArray],
        tail_masses: FloatArray,
        tail_scales: FloatArray,
    ) -> None:
        self.tail_scales = tail_scales
        self.counts = np.array([len(ends) + 1 for ends in breakpoints])
        self.first = np.cumsum(self.counts) - self.counts
        self.last = self.first + self.counts - 1
        self.lower = np.array([ends[0] for ends in breakpoints])
        self.upper = np.array([ends[-1] for ends in breakpoints])
        n_pieces = int(self.counts.sum())
        self.starts, self.widths = np.empty(n_pieces), np.ones(n_pieces)
        degrees = [len(w) - len(ends) + 1 for w, ends in zip(weights, breakpoints)]
        self.coefficients = np.zeros((max(degrees) + 1, n_pieces))
        for first, ends, own in zip(self.first, breakpoints, weights):
            inner = slice(first + 1, first + len(ends))
            self.starts[inner], self.widths[inner] = ends[:-1], np.diff(ends)
            pieces = density_pieces(ends[None], own[None])[0]
            self.coefficients[: pieces.shape[1], inner] = pieces.T
        self.starts[self.first], self.starts[self.last] = self.lower, self.upper
        self._antiderivative = self.coefficients / np.arange(1, max(degrees) + 2)[:, None]
        self.masses = self._antiderivative.sum(axis=0)
        self.masses[self.first], self.masses[self.last] = tail_masses.T
        cumulative = np.cumsum(self.masses)
        #: Mass of the own function before each piece.
        self.before = cumulative - self.masses
        self.before -= np.repeat(self.before[self.first], self.counts)
        self.totals = np.add.reduceat(self.masses, self.first)
        self.is_tail = np.zeros(n_pieces, dtype=bool)
        self.is_tail[self.first] = self.is_tail[self.last] = True
        self.rates = np.zeros(n_pieces)
        self.rates[self.first], self.rates[self.last] = 1.0 / tail_scales.T
        with np.errstate(divide="ignore"):
            self._log_heights = np.log(self.masses) + np.log(
                np.where(self.rates > 0, self.rates, 1)
            )

    @property
    def function_of_piece(self) -> IntArray:
        """Number of the function each piece belongs to, shape (n_pieces,)."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def locate(self, functions: IntArray) -> PieceLocator:
        """Prepare to find the pieces of some functions at many points.

        Parameters
        ----------
        functions : ndarray of shape (k,)
            Which functions; those of one variable.

        Returns
        -------
        PieceLocator
            Finds, per point, one piece of each function.
        """
        return PieceLocator(self, functions)

    def log_density(self, pieces: IntArray, x: FloatArray) -> FloatArray:
        """Log density at points.

        Parameters
        ----------
        pieces : ndarray
            Piece that holds each point.
        x : ndarray, broadcasting with ``pieces``
            Points.

        Returns
        -------
        ndarray of the shape of ``pieces``
            Log densities; ``-inf`` where the polynomial vanishes.
        """
        values = self._polynomial(self.coefficients, pieces, x)
        values /= self.widths[pieces]
        with np.errstate(divide="ignore"):
            np.log(np.maximum(values, 0.0, out=values), out=values)
        outside = self.is_tail[pieces]
        if outside.any():
            own = pieces[outside]
            distance = np.abs(np.broadcast_to(x, pieces.shape)[outside] - self.starts[own])
            values[outside] = self._log_heights[own] - self.rates[own] * distance
        return values

    def mass(
        self, low: IntArray, lower: FloatArray, high: IntArray, upper: FloatArray
    ) -> FloatArray:
        """Log mass of intervals.

        Parameters
        ----------
        low, high : ndarray of shape (k, n)
            Pieces, of one function each, that hold the bounds.
        lower, upper : ndarray of shape (n,)
            Bounds; infinite ones included.

        Returns
        -------
        ndarray of shape (k, n)
            Log masses.
        """
        mass = self._cumulative(high, upper) - self._cumulative(low, lower)
        lower, upper = np.broadcast_to(lower, mass.shape), np.broadcast_to(upper, mass.shape)
        crossed = ~(upper > lower)
        lost = np.nonzero((mass < SMALLEST_DIFFERENCE) & ~crossed)
        mass[lost] = 1.0
        with np.errstate(divide="ignore"):
            log_mass = np.log(mass, out=mass)
        log_mass[crossed] = -np.inf
        if len(lost[0]):
            log_mass[lost] = self._small_mass(low[lost], lower[lost], high[lost], upper[lost])
        return log_mass

    def quantile(self, pieces: IntArray, fractions: FloatArray) -> FloatArray:
        """Invert the cumulative mass within pieces.

        Parameters
        ----------
        pieces : ndarray of shape (m,)
            Pieces of positive mass.
        fractions : ndarray of shape (m,)
            Share of the piece's mass left of the result, in [0, 1).

        Returns
        -------
        ndarray of shape (m,)
            Points.
        """
        x = np.empty(len(pieces))
        is_left = self.rates[pieces] > 0
        is_right = np.isin(pieces, self.last)
        is_left &= ~is_right
        inner = ~(is_left | is_right)
        with np.errstate(divide="ignore"):
            log_left = np.log(np.maximum(fractions[is_left], np.finfo(float).tiny))
        x[is_left] = self.starts[pieces[is_left]] + log_left / self.rates[pieces[is_left]]
        log_right = np.log1p(-fractions[is_right])
        x[is_right] = self.starts[pieces[is_right]] - log_right / self.rates[pieces[is_right]]
        own = pieces[inner]
        x[inner] = self.starts[own] + self.widths[own] * self._invert(own, fractions[inner])
        return x

    @cached_property
    def peaks(self) -> tuple[FloatArray, FloatArray]:
        """Point of the highest density of each function and its log density, both (U,)."""
        degree = len(self.coefficients) - 1
        u = np.linspace(0.0, 1.0, 8 * degree + 2)
        heights = np.polynomial.polynomial.polyval(u, self.coefficients) / self.widths[:, None]
        best = heights.argmax(axis=1)
        low, high = u[np.maximum(best - 1, 0)], u[np.minimum(best + 1, len(u) - 1)]
        pieces = np.arange(len(self.widths))
        for _ in range(50):  # ternary search: the density has one peak between two grid points
            left, right = low + (high - low) / 3, high - (high - low) / 3
            rising = self._at(self.coefficients, pieces, left) < self._at(
                self.coefficients, pieces, right
            )
            low, high = np.where(rising, left, low), np.where(rising, high, right)
        middle = (low + high) / 2
        height = self._at(self.coefficients, pieces, middle) / self.widths
        # The ends of a piece are no inner maxima of the search
        grid = heights[pieces, best]
        u_best = np.where(grid >= height, u[best], middle)
        with np.errstate(divide="ignore"):
            log_height = np.log(np.maximum(grid, height))
        log_height[self.is_tail] = self._log_heights[self.is_tail]
        u_best[self.is_tail] = 0.0
        highest = np.maximum.reduceat(log_height, self.first)
        hits = np.flatnonzero(log_height == np.repeat(highest, self.counts))
        chosen = hits[np.searchsorted(hits, self.first)]
        return self.starts[chosen] + self.widths[chosen] * u_best[chosen], highest

    def _polynomial(self, table: FloatArray, pieces: IntArray, x: FloatArray) -> FloatArray:
        """Evaluate one polynomial of a coefficient table per point."""
        u = (x - self.starts[pieces]) / self.widths[pieces]
        return self._at(table, pieces, u)

    @staticmethod
    def _at(table: FloatArray, pieces: IntArray, u: FloatArray) -> FloatArray:
        """Horner's scheme."""
        value = table[-1][pieces]
        for row in table[-2::-1]:
            value *= u
            value += row[pieces]
        return value

    def _cumulative(self, pieces: IntArray, x: FloatArray) -> FloatArray:
        """Mass left of x, shape of ``pieces``."""
        # Tails have no polynomial; their bounds may be infinite
        inside = np.clip(x, self.lower.min(), self.upper.max())
        u = (inside - self.starts[pieces]) / self.widths[pieces]
        value = self._at(self._antiderivative, pieces, u)
        value *= u
        value += self.before[pieces]
        outside = self.is_tail[pieces]
        if outside.any():
            own = pieces[outside]
            distance = np.abs(np.broadcast_to(x, pieces.shape)[outside] - self.starts[own])
            beyond = self.masses[own] * np.exp(-self.rates[own] * distance)
            is_left = own == self.first[self.function_of_piece[own]]
            value[outside] = np.where(is_left, beyond, self.before[own] + self.masses[own] - beyond)
        return value
