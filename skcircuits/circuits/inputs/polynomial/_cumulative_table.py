"""Cumulative masses of many piecewise polynomials over one variable, for many points.

The breakpoints of all functions together cut the line into intervals on which every
function is one polynomial, or one tail. With a table of their coefficients per interval, a
point costs one binary search and Horner's scheme on contiguous rows of the table.
"""

from __future__ import annotations

from math import comb

import numpy as np

from skcircuits.circuits.inputs.polynomial._pieces import FAR_AWAY, PieceLocator, PolynomialPieces
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["CumulativeTable"]


class CumulativeTable:
    """Cumulative masses of some functions as polynomials on common intervals.

    Parameters
    ----------
    pieces : PolynomialPieces
        The functions.
    functions : ndarray of shape (k,)
        Which of them.
    locate : PieceLocator
        Their locator.

    Notes
    -----
    On interval i, with v running from 0 to 1 over it, function f has collected
    Σ_m coefficients[m, i, f] v^m + amplitudes[i, f] exp(slopes[i, f] (x - edges[i, f])).
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
        while len(self._coefficients) > 1 and not self._coefficients[-1].any():
            self._coefficients.pop()
        self._edges = pieces.starts[own]
        self._slopes = np.where(pieces.is_left[own], 1.0, -1.0) * pieces.rates[own]
        self._amplitudes = pieces.amplitudes[own]

    @staticmethod
    def n_bytes(pieces: PolynomialPieces, locate: PieceLocator) -> int:
        """Memory that a table would take.

        Parameters
        ----------
        pieces : PolynomialPieces
            The functions.
        locate : PieceLocator
            Their locator.

        Returns
        -------
        int
            Bytes.
        """
        return 8 * locate.table.size * (len(pieces.coefficients) + 4)

    def __call__(self, x: FloatArray) -> FloatArray:
        """Masses left of points.

        Parameters
        ----------
        x : ndarray of shape (n,)
            Points, infinite ones included.

        Returns
        -------
        ndarray of shape (n, k)
            Mass of each function left of each point.
        """
        interval = np.searchsorted(self._merged, x, side="right")
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
