"""Tree distributions with one structure as log-linear models: one product scores rows under all."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees import StateLayout

__all__ = ["TreeFeatures"]


class TreeFeatures:
    """Conditional tables of a tree, and the features of rows in which they are linear.

    A row's log probability is the sum of one cell per table. Written in indicators of all states
    but the first of each variable and their products along edges, it takes half as many numbers per
    row as there are cells for binary variables.

    `layout`: numbering of the states; `parents` (n_variables,): -1 at the root; `starts`
    (n_groups,): where the distribution of a variable given each state of its parent begins among
    the `n_cells` cells.
    """

    def __init__(self, layout: StateLayout, parents: IntArray) -> None:
        self.layout = layout
        self.parents = parents
        sizes = layout.cardinalities
        above = np.where(parents >= 0, sizes[parents], 1)
        self.offsets: IntArray = np.concatenate([[0], np.cumsum(sizes * above)])
        self.n_cells = int(self.offsets[-1])
        self.starts: IntArray = np.concatenate(
            [self.offsets[j] + sizes[j] * np.arange(above[j]) for j in range(len(sizes))]
        )
        self.lengths: IntArray = np.repeat(sizes, above)
        # Constant, then states but the first, then pairs of such states along the edges.
        self._singles = [
            1 + layout.offsets[j] - j + np.arange(sizes[j] - 1) for j in range(len(sizes))
        ]
        self._edges = np.flatnonzero(parents >= 0)
        n_features = 1 + layout.n_states - layout.n_variables
        self._pairs: dict[int, IntArray] = {}
        for child in self._edges.tolist():
            shape = sizes[parents[child]] - 1, sizes[child] - 1
            self._pairs[child] = n_features + np.arange(shape[0] * shape[1]).reshape(shape)
            n_features += shape[0] * shape[1]
        self.n_features = int(n_features)
        rows, columns, values = (
            np.concatenate(part) for part in zip(*self._entries(), strict=True)
        )
        #: (n_features, n_cells): turns cells into coefficients of the features.
        self.coefficients = csr_array(
            (values.astype(np.float32), (rows, columns)), (self.n_features, self.n_cells)
        )

    def of_rows(self, codes: IntArray) -> FloatArray:
        """Features of complete rows: `codes` (n_rows, n_variables) -> (n_rows, n_features)."""
        features: FloatArray = np.zeros((len(codes), self.n_features), dtype=np.float32)
        features[:, 0] = 1.0
        for variable, columns in enumerate(self._singles):
            features[:, columns] = codes[:, [variable]] == np.arange(1, len(columns) + 1)
        for child, columns in self._pairs.items():
            above = features[:, self._singles[self.parents[child]]]
            below = features[:, self._singles[child]]
            features[:, columns.ravel()] = (above[:, :, None] * below[:, None, :]).reshape(
                len(codes), -1
            )
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
