"""Columns of a Gaussian mixture that are not Gaussian: one table of categories per component.

No Gaussian can give a single number a probability, and few have a shape that is uniform or has
peaks at its ends. In each component, a grouped numerical column has a probability of each of its
frequent values and of a few groups of other numbers, as a categorical column has of its categories.
Within a group, numbers are distributed as in the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from skcircuits.circuits import PiecewisePolynomial
from skcircuits.learning._columns import ColumnCells, MixedColumn
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.protocols import FloatArray, IntArray

CovarianceType = Literal["full", "shrunk", "tied", "factor", "diag"]
Sums = tuple[FloatArray, ...]


@dataclass(frozen=True, eq=False)
class Categories:
    """Distributions of the categorical columns within each component."""

    log_probabilities: tuple[FloatArray, ...]  # (K, n_categories_j) each
    marginals: tuple[FloatArray, ...]  # (n_categories_j,) each: smoothed frequencies
    pseudo_count: float  # weight of the prior

    @classmethod
    def marginal(cls, table: MixtureTable, pseudo_count: float) -> Categories:
        """One component with the frequencies of the columns."""
        marginals = []
        for codes, size in zip(table.codes.T, table.category_counts, strict=True):
            counts = np.bincount(codes + 1, table.weights, minlength=size + 1)[1:] + 1.0 / size
            marginals.append(counts / counts.sum())
        tables = tuple(np.log(marginal)[None] for marginal in marginals)
        return cls(tables, tuple(marginals), pseudo_count)

    def repeat(self, n_components: int) -> Categories:
        """Copies of the first component."""
        tables = tuple(
            np.repeat(table[:1], n_components, axis=0) for table in self.log_probabilities
        )
        return replace(self, log_probabilities=tables)

    def n_parameters(self) -> int:
        """Count the free parameters of all components."""
        return sum(table.shape[0] * (table.shape[1] - 1) for table in self.log_probabilities)

    def expect(self, codes: IntArray, n_components: int) -> CategoryExpectation:
        """Log probabilities of the observed categories."""
        log_density = np.zeros((n_components, len(codes)))
        for column, table in zip(codes.T, self.log_probabilities, strict=True):
            # code -1 picks the last column: a missing category is certain
            log_density += np.pad(table, ((0, 0), (0, 1)))[:, column]
        sizes = tuple(table.shape[1] for table in self.log_probabilities)
        return CategoryExpectation(log_density, codes, sizes)

    def maximize(self, sums: Sums) -> Categories:
        """Frequencies shrunk towards those of the columns."""
        tables = []
        for counts, marginal in zip(sums, self.marginals, strict=True):
            smoothed = counts + self.pseudo_count * marginal
            tables.append(np.log(smoothed / smoothed.sum(axis=1, keepdims=True)))
        return replace(self, log_probabilities=tuple(tables))

    def weights(self, counts: FloatArray, pseudo_count: float) -> FloatArray:
        """Probabilities of the components (K,), whose prior keeps all of them positive."""
        smoothed = counts + pseudo_count
        return smoothed / smoothed.sum()

    def log_prior(self, weights: FloatArray, pseudo_count: float) -> float:
        """Log prior up to a constant, as that of `pseudo_count` pseudo-rows of each component."""
        terms = zip(self.log_probabilities, self.marginals, strict=True)
        tables = float(sum((table @ marginal).sum() for table, marginal in terms))
        return self.pseudo_count * tables + pseudo_count * float(np.log(weights).sum())


@dataclass(frozen=True, eq=False)
class CategoryExpectation:
    """Codes (n, q), -1 where missing, with `sizes` of columns, and their `log_density` (K, n)."""

    log_density: FloatArray
    codes: IntArray
    sizes: tuple[int, ...]

    def sums(self, responsibilities: FloatArray) -> Sums:
        """Expected counts of the categories, (K, n_categories_j) for each column."""
        counts = []
        for column, size in zip(self.codes.T, self.sizes, strict=True):
            one_hot = column[:, None] == np.arange(size)
            counts.append(responsibilities @ one_hot)
        return tuple(counts)


# Most groups of numbers without point masses, and rows of each: every component has as many
# parameters
_MAX_GROUPS, _GROUP_ROWS = 8, 10.0


@dataclass(frozen=True, eq=False)
class GroupedColumn:
    """A numerical column as groups of its cells."""

    cells: ColumnCells
    groups: IntArray  # (n_cells,), each point mass one of its own
    fractions: FloatArray  # (n_cells,), probabilities given the group
    log_density: float  # mean over left-out rows without point masses

    @classmethod
    def fit_all(
        cls, columns: Sequence[MixedColumn], X: FloatArray, weights: FloatArray
    ) -> list[GroupedColumn]:
        """Group the cells of some columns of a table (n, d)."""
        seen = [~np.isnan(X[:, c.variable]) & (weights > 0) for c in columns]
        values = [X[own, c.variable] for c, own in zip(columns, seen, strict=True)]
        parts = [weights[own] for own in seen]
        cells = ColumnCells.fit_all(columns, values, parts)
        return [cls._group(*own) for own in zip(cells, values, parts, strict=True)]

    @classmethod
    def _group(cls, cells: ColumnCells, values: FloatArray, weights: FloatArray) -> GroupedColumn:
        """Group the cells of one column by their frequencies."""
        n_atoms = len(cells.column.atoms)
        codes = cells.encode(values).astype(np.intp)
        counts = np.bincount(codes, weights, minlength=cells.n_cells).astype(np.float64)
        # Frequencies of neighbouring cells are smoothed as in a tree with a single state
        smoother, masses = cells.choose_smoother(counts[None], 1.0)
        others = masses[n_atoms:-2]
        n_groups = int(np.clip(counts[n_atoms:].sum() // _GROUP_ROWS, 1, _MAX_GROUPS))
        ranks = (np.cumsum(others) - others / 2) / others.sum()
        inner = np.unique(np.floor(ranks * n_groups), return_inverse=True)[1]
        # The tails belong to the outermost groups
        groups = np.concatenate([np.arange(n_atoms), n_atoms + inner, n_atoms + inner[[0, -1]]])
        fractions = masses / np.bincount(groups, masses)[groups]
        return cls(cells, groups, fractions, _left_out(cells, counts, masses, smoother))

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


def _left_out(
    cells: ColumnCells, counts: FloatArray, masses: FloatArray, smoother: FloatArray
) -> float:
    """Mean log density of a row under the smoothed histogram of the others.

    `counts`, `masses` (n_cells,): of all rows; one pseudo-row is distributed like `masses`.
    """
    inner = slice(len(cells.column.atoms), -2)
    own = np.minimum(counts, 1.0) * np.diagonal(smoother)
    likely = (counts @ smoother - own + masses)[inner] / max(counts.sum(), 1.0)
    logs = np.log(likely) - np.log(np.diff(cells.edges))
    return float(counts[inner] @ logs / max(counts[inner].sum(), 1e-300))
