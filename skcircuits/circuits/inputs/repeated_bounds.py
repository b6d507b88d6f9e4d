"""Masses of many intervals whose bounds repeat: differences of tabulated cumulative masses."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits.inputs.polynomial_pieces import SMALLEST_MASS
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["RepeatedBounds"]


class RepeatedBounds:
    """Cumulative masses of k functions at the distinct bounds of n intervals.

    Parameters
    ----------
    cumulative : ndarray of shape (k, n_bounds)
        Mass of each function left of each distinct bound.
    lower, upper : ndarray of shape (n,)
        Which bounds each interval has.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits.inputs.repeated_bounds import RepeatedBounds
    >>> cumulative = np.array([[0.0, 0.25, 1.0]])
    >>> bounds = RepeatedBounds(cumulative, lower=np.array([0, 1]), upper=np.array([2, 2]))
    >>> out = np.empty((1, 2))
    >>> bounds(np.arange(2), out)
    >>> out
    array([[1.  , 0.75]])
    """

    def __init__(self, cumulative: FloatArray, lower: IntArray, upper: IntArray) -> None:
        # Units first: the masses of one unit stay in cache
        self._cumulative = np.ascontiguousarray(cumulative)
        self._lower, self._upper = lower, upper
        self._scratch = np.empty((len(cumulative), 0))

    def __call__(self, rows: IntArray, out: FloatArray) -> None:
        """Write the masses of some intervals.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Which intervals.
        out : ndarray of shape (k, m)
            Receives their masses.
        """
        # New arrays of this size would cost more than what is computed in them
        if self._scratch.shape != out.shape:
            self._scratch = np.empty(out.shape)
        np.take(self._cumulative, self._upper[rows], axis=1, out=out, mode="clip")
        np.take(self._cumulative, self._lower[rows], axis=1, out=self._scratch, mode="clip")
        out -= self._scratch
        np.maximum(out, SMALLEST_MASS, out=out)
