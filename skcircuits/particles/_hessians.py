"""Hessians of a log density from differences of its score, as few as the graph allows.

Source: Curtis, Powell and Reid (1974). Coordinates of one colour have no common row of the Hessian,
so one difference of scores gives all their columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.protocols import FloatArray, IntArray

# Central differences: the cube root of the rounding error, in units of each coordinate.
STEP = 1e-5


def colour_columns(pattern: sparse.csr_array) -> IntArray:
    """Colour the columns of a symmetric pattern so that none of a colour meet in a row."""
    meets = sparse.csr_array(pattern @ pattern)
    colours = np.full(pattern.shape[0], -1, dtype=np.int64)
    # Largest first: greedy colouring then needs few colours.
    for column in np.argsort(-np.diff(meets.indptr), kind="stable"):
        taken = set(colours[meets.indices[meets.indptr[column] : meets.indptr[column + 1]]])
        colour = 0
        while colour in taken:
            colour += 1
        colours[column] = colour
    return colours


class HessianProbe:
    """Negative Hessians of a log density, from its score and the graph."""

    def __init__(
        self, grad_log_prob: Callable[[FloatArray], FloatArray], graph: Neighborhoods
    ) -> None:
        self._grad_log_prob = grad_log_prob
        # A score depends on its blanket only: the rows of the Hessian are no longer than that.
        scopes = graph.scope_matrix()[graph.kernel_of_node[graph.node_of_coordinate]]
        self._is_dense = graph.n_kernels == 1
        self.colours = np.arange(graph.n_coordinates) if self._is_dense else colour_columns(scopes)
        rows, columns = scopes.nonzero()
        self._rows, self._columns = rows, columns

    def mean(self, points: FloatArray, scales: FloatArray) -> FloatArray:
        """Average the negative Hessians at some points, (d, d) of (m, d); NaN where undefined.

        ``scales`` (d,) are the units of the coordinates, of which the steps are a part.
        """
        d = points.shape[1]
        hessian = np.zeros((d, d))
        hessian[self._rows, self._columns] = self._entries(points, scales)
        return (hessian + hessian.T) / 2.0

    def sparse_mean(self, points: FloatArray, scales: FloatArray) -> sparse.csr_array | None:
        """Give the same as a sparse matrix; None where undefined."""
        entries = self._entries(points, scales)
        if not np.isfinite(entries).all():
            return None
        shape = (points.shape[1],) * 2
        hessian = sparse.csr_array((entries, (self._rows, self._columns)), shape=shape)
        return sparse.csr_array((hessian + hessian.T) / 2.0)

    def _entries(self, points: FloatArray, scales: FloatArray) -> FloatArray:
        """Average over points the entries that may differ from zero."""
        n_points, d = points.shape
        n_colours = int(self.colours.max()) + 1
        # (colours, d): every coordinate moves once, by a part of its scale.
        steps = np.zeros((n_colours, d))
        steps[self.colours, np.arange(d)] = STEP * scales
        total = np.zeros((n_colours, d))
        for point in points:
            ahead = self._grad_log_prob(point + steps)
            total += np.asarray(ahead) - np.asarray(self._grad_log_prob(point - steps))
        total /= -2.0 * STEP * n_points
        rows, columns = self._rows, self._columns
        return np.asarray(total[self.colours[columns], rows] / scales[columns])
