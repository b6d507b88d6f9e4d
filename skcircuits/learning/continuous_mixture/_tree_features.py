"""Tree distributions with one structure as log-linear models: one product scores rows under all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse import csr_array

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees import StateLayout


class TreeFeatures:
    """Conditional tables of a tree, and the features of rows in which they are linear.

    A row's log probability is the sum of one cell per table. Written in indicators of all states
    but the first of each variable and their products along edges, it takes half as many numbers per
    row as there are cells for binary variables.

    `layout`: numbering of the states; `parents` (n_variables,): -1 at the root; `n_cells`: of all
    tables, variable by variable and state by state of its parent.
    """

    def __init__(self, layout: StateLayout, parents: IntArray) -> None:
        self.layout = layout
        self.parents = parents
        sizes = layout.cardinalities
        above = np.where(parents >= 0, sizes[parents], 1)
        self.offsets: IntArray = np.concatenate([[0], np.cumsum(sizes * above)])
        self.n_cells = int(self.offsets[-1])
        # Neighbouring variables with equally many states have tables that are one array.
        ends = np.append(np.flatnonzero(np.diff(sizes)) + 1, len(sizes))
        self._blocks = [
            (int(self.offsets[first]), int(self.offsets[last]), int(sizes[first]))
            for first, last in pairwise([0, *ends.tolist()])
        ]
        # Constant, then states but the first, then pairs of such states along the edges.
        self._singles = [
            1 + layout.offsets[j] - j + np.arange(sizes[j] - 1) for j in range(len(sizes))
        ]
        states = np.flatnonzero(layout.own_state > 0)
        self._states = layout.owner[states], layout.own_state[states]
        n_features = 1 + len(states)
        self._pairs: dict[int, IntArray] = {}
        factors = [np.empty((2, 0), dtype=np.int64)]
        for child in np.flatnonzero(parents >= 0).tolist():
            pairs = np.array(np.meshgrid(*(self._singles[j] for j in (parents[child], child))))
            shape = sizes[parents[child]] - 1, sizes[child] - 1
            self._pairs[child] = n_features + np.arange(pairs[0].size).reshape(shape)
            factors.append(pairs.transpose(0, 2, 1).reshape(2, -1))
            n_features += pairs[0].size
        self._factors = np.concatenate(factors, axis=1)
        self.n_features = int(n_features)
        rows, columns, values = (
            np.concatenate(part) for part in zip(*self._entries(), strict=True)
        )
        shape = self.n_features, self.n_cells
        #: (n_features, n_cells): turns cells into coefficients of the features.
        self.coefficients = csr_array((values.astype(np.float32), (rows, columns)), shape)

    def tables(self, cells: FloatArray) -> list[FloatArray]:
        """Views of cells (n_cells, n_points) as distributions (n_tables, n_states, n_points)."""
        return [
            cells[start:stop].reshape(-1, n_states, cells.shape[1])
            for start, stop, n_states in self._blocks
        ]

    def split(self, cells: FloatArray) -> list[FloatArray]:
        """Per variable its table (n_states_of_parent, n_states) from cells (n_cells,)."""
        sizes = self.layout.cardinalities.tolist()
        ends = pairwise(self.offsets.tolist())
        return [cells[i:j].reshape(-1, size) for size, (i, j) in zip(sizes, ends, strict=True)]

    def of_rows(self, codes: IntArray, dtype: DTypeLike = np.float32) -> FloatArray:
        """Features of complete rows: `codes` (n_rows, n_variables) -> (n_rows, n_features)."""
        features: FloatArray = np.zeros((len(codes), self.n_features), dtype=dtype)
        features[:, 0] = 1.0
        variables, states = self._states
        n_before = 1 + len(states)
        features[:, 1:n_before] = codes[:, variables] == states
        above, below = self._factors
        np.multiply(features[:, above], features[:, below], out=features[:, n_before:])
        return features

    def _entries(self) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Rows, columns and values of the coefficients, table by table.

        The indicator of a first state is one minus the sum of the others.
        """
        for variable, start in enumerate(self.offsets[:-1]):
            below = _indicators(self._singles[variable])
            parent = int(self.parents[variable])
            above = _indicators(self._singles[parent]) if parent >= 0 else [[(0, 1)]]
            found = [
                (self._product(variable, a, b), int(start) + s * len(below) + t, sign * other)
                for s, first in enumerate(above)
                for t, second in enumerate(below)
                for a, sign in first
                for b, other in second
            ]
            features, cells, signs = zip(*found, strict=True)
            yield np.array(features), np.array(cells), np.array(signs)

    def _product(self, variable: int, above: int, below: int) -> int:
        """Feature that is the product of two, of which one may be the constant."""
        if not above or not below:
            return above or below
        first = above - self._singles[int(self.parents[variable])][0]
        return int(self._pairs[variable][first, below - self._singles[variable][0]])


def _indicators(singles: IntArray) -> list[list[tuple[int, int]]]:
    """Per state its indicator as features with signs."""
    others = singles.tolist()
    return [[(0, 1), *((feature, -1) for feature in others)], *([(f, 1)] for f in others)]
