"""Numerical columns with point masses in Gaussian mixtures.

No Gaussian can give a single number a probability. In each component, such a column has a
probability of each of its frequent values and of a few groups of other numbers, as a categorical
column has of its categories. Within a group, numbers are distributed as in the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcircuits.circuits import PiecewisePolynomial
from skcircuits.learning.univariate._cells import ColumnCells
from skcircuits.learning.univariate._columns import describe_column
from skcircuits.protocols import FloatArray, IntArray

# Most groups of numbers without point masses, and rows of each: every component has as many
# parameters
_MAX_GROUPS, _GROUP_ROWS = 8, 10.0


@dataclass(frozen=True)
class GroupedColumn:
    """A numerical column with point masses, as groups of its cells.

    `groups` (n_cells,): group of each cell; each point mass is one of its own. `fractions`
    (n_cells,): probability of each cell given its group.
    """

    cells: ColumnCells
    groups: IntArray
    fractions: FloatArray

    @classmethod
    def fit(cls, variable: int, values: FloatArray, weights: FloatArray) -> GroupedColumn | None:
        """Group the cells of a column with values (n,); None if it has no frequent values."""
        column = describe_column(variable, values, weights, 0, "frequent")
        n_atoms = len(column.atoms)
        if not n_atoms:
            return None
        seen = ~np.isnan(values) & (weights > 0)
        values, weights = values[seen], weights[seen]
        cells = ColumnCells.fit(column, values, weights)
        codes = cells.encode(values).astype(np.intp)
        counts = np.bincount(codes, weights, minlength=cells.n_cells).astype(np.float64)
        # Frequencies of neighbouring cells are smoothed as in a tree with a single state
        masses = cells.choose_smoother(counts[None], 1.0)[1]
        others = masses[n_atoms:-2]
        n_groups = int(np.clip(counts[n_atoms:].sum() // _GROUP_ROWS, 1, _MAX_GROUPS))
        ranks = (np.cumsum(others) - others / 2) / others.sum()
        inner = np.unique(np.floor(ranks * n_groups), return_inverse=True)[1]
        # The tails belong to the outermost groups
        groups = np.concatenate([np.arange(n_atoms), n_atoms + inner, n_atoms + inner[[0, -1]]])
        return cls(cells, groups, masses / np.bincount(groups, masses)[groups])

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.groups.max()) + 1

    def encode(self, values: FloatArray) -> FloatArray:
        """Number the groups of values (n,); NaN where missing."""
        cells = self.cells.encode(values)
        return np.where(np.isnan(cells), np.nan, self.groups[np.nan_to_num(cells).astype(np.intp)])

    def unit(self, probabilities: FloatArray) -> PiecewisePolynomial:
        """The distribution with probabilities (n_groups,) of the groups."""
        return self.cells.unit(self.cells.normalized(probabilities[self.groups] * self.fractions))
