"""What the latent states say about their observed variables.

Every column is read in cells: the categories of a categorical column, the intervals and point
masses of a numerical one (`ColumnBasis`). Messages of the tree see the probabilities of cells
alone; the weights of basis densities behind the cells of numerical columns are learned from the
same counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skcircuits.circuits import Categorical
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning.univariate._cells import ColumnCells
from skcircuits.protocols import FloatArray, IntArray


class Cells:
    """Numbering of the cells of all columns side by side.

    Every column has one cell more than `sizes` (d,) says: the last one stands for a missing
    value and has probability 1 under every state, so that one matrix product serves incomplete
    rows.
    """

    def __init__(self, sizes: IntArray) -> None:
        ends = np.cumsum(sizes + 1)
        self.starts = ends - sizes - 1
        self.slices = [slice(start, end) for start, end in zip(self.starts, ends)]
        self.missing = ends - 1
        self.column = np.repeat(np.arange(len(sizes)), sizes + 1)
        self.number = np.arange(ends[-1]) - self.starts[self.column]
        self.number[self.missing] = -1

    def indicators(self, codes: FloatArray, dtype: Any) -> FloatArray:
        """Indicators (n_flat, n) of the cells of rows of codes (n, d), NaN where missing."""
        filled = np.nan_to_num(codes.T, nan=-1.0)
        return (filled[self.column] == self.number[:, None]).astype(dtype)

    def normalized(self, counts: FloatArray) -> FloatArray:
        """Divide counts (n_states, n_flat) by the sum over each column's cells."""
        counts = counts.astype(np.float64)
        counts[:, self.missing] = 0.0
        counts /= np.add.reduceat(counts, self.starts, axis=1)[:, self.column]
        counts[:, self.missing] = 1.0
        return counts


@dataclass(frozen=True)
class Emissions:
    """Distributions of all columns given the latent state above each.

    `cells`: numbering of the cells; `numerical`: cells of each numerical column; `table`
    (n_states, n_flat): probabilities of the cells; `marginal` (n_flat,): those of the columns
    alone, the prior; `smoothers`: per numerical column the operator on its counts; `dtype`: of
    the messages.
    """

    cells: Cells
    numerical: Mapping[int, ColumnCells]
    table: FloatArray
    marginal: FloatArray
    smoothers: Mapping[int, FloatArray]
    dtype: Any = np.float32

    @classmethod
    def marginals(
        cls,
        cardinalities: IntArray,
        numerical: Mapping[int, ColumnCells],
        codes: FloatArray,
        sample_weight: FloatArray,
        n_states: int,
    ) -> Emissions:
        """Start from emissions that do not depend on the latent state.

        `cardinalities` (d,): number of categories (anything for numerical columns); `codes`
        (n, d): cells of the rows, NaN where missing; `sample_weight` (n,). One uniform row is
        added to the counts of categories.
        """
        sizes = np.array(cardinalities, dtype=np.int64)
        for column, in_cells in numerical.items():
            sizes[column] = in_cells.n_cells
        cells = Cells(sizes)
        counts = np.zeros((1, len(cells.column)))
        for own, cell, size in zip(cells.slices, codes.T, sizes):
            seen = ~np.isnan(cell)
            counts[0, own][:-1] = np.bincount(
                cell[seen].astype(np.intp), sample_weight[seen], minlength=int(size)
            )
        uniform = np.repeat(1.0 / sizes, sizes + 1)
        marginal = cells.normalized(counts + uniform)[0]
        table = np.tile(marginal, (n_states, 1))
        return cls(cells, numerical, table, marginal, {}).with_smoothers(counts, 1.0)

    @cached_property
    def rounded(self) -> FloatArray:
        """The table in the precision of the messages."""
        return self.table.astype(self.dtype)

    def encode(self, X: FloatArray) -> FloatArray:
        """Cells of rows (n, d) of codes of categories and numbers; NaN where missing."""
        if not self.numerical:
            return X
        codes = X.copy()
        for column, cells in self.numerical.items():
            codes[:, column] = cells.encode(X[:, column])
        return codes

    def evidence(self, codes: FloatArray) -> FloatArray:
        """Indicators of the cells (n_flat, n), for the two methods below."""
        return self.cells.indicators(codes, self.dtype)

    def likelihood(self, column: int, evidence: FloatArray, out: FloatArray) -> None:
        """Write the probability of a column's cells under each state, (n_states, n)."""
        own = self.cells.slices[column]
        np.matmul(self.rounded[:, own], evidence[own], out=out)

    def add(
        self, counts: FloatArray, column: int, posterior: FloatArray, evidence: FloatArray
    ) -> None:
        """Count a column's cells, weighted by the posterior (n_states, n) of the states."""
        own = self.cells.slices[column]
        counts[:, own] += posterior @ evidence[own].T

    def with_smoothers(self, counts: FloatArray, pseudo_count: float) -> Emissions:
        """Choose how counts (n_states, n_flat) of numerical columns are smoothed."""
        smoothers, marginal = {}, self.marginal.copy()
        for column, cells in self.numerical.items():
            own = self.cells.slices[column]
            smoothers[column], prior = cells.choose_smoother(counts[:, own][:, :-1], pseudo_count)
            marginal[own][:-1] = prior
        return replace(self, smoothers=smoothers, marginal=marginal)

    def maximize(self, counts: FloatArray, pseudo_count: float) -> Emissions:
        """The emissions that fit counts (n_states, n_flat) of cells; missing ones do not count."""
        prior = pseudo_count * self.marginal
        table = self.cells.normalized(counts + prior)
        for column, cells in self.numerical.items():
            own = self.cells.slices[column]
            smoothed = counts[:, own][:, :-1] @ self.smoothers[column] + prior[own][:-1]
            table[:, own][:, :-1] = cells.normalized(smoothed)
        return replace(self, table=table)

    def units(self, column: int) -> list[Unit]:
        """One input unit per latent state."""
        return self.mixed_units(column, np.eye(len(self.table)))

    def mixed_units(self, column: int, mixtures: FloatArray) -> list[Unit]:
        """Mixtures of a column's units with the rows of weights (n, n_states): single units."""
        masses = mixtures @ self.table[:, self.cells.slices[column]][:, :-1]
        masses /= masses.sum(axis=1, keepdims=True)
        if column in self.numerical:
            return [self.numerical[column].unit(row) for row in masses]
        return [Categorical(column, row) for row in masses]
