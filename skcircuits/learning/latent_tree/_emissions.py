"""Emission distributions: columns given their latent states.

Every column is discretised into cells: the categories of a categorical column, the intervals and
point masses of a numerical one (`ColumnCells`). Messages of the tree depend only on the
probabilities of cells. Groups of collinear columns have joint normal distributions instead; the
first column of a group represents it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits import Categorical, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning.gaussian_mixture._categories import Sums
from skcircuits.learning.gaussian_mixture._full_gaussians import FullExpectation
from skcircuits.learning.latent_tree._joint_normals import JointNormals
from skcircuits.learning.univariate._cells import ColumnCells
from skcircuits.protocols import FloatArray, IntArray


class Cells:
    """Numbering of the cells of all columns side by side.

    Every column has one cell more than `sizes` (d,): the last one represents a missing value
    and has probability 1 under every state, so that one matrix product serves incomplete
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
        # Missing cells have the number -1, as their indicator column
        filled = np.nan_to_num(codes.T, nan=-1.0)
        return (filled[self.column] == self.number[:, None]).astype(dtype)

    def normalized(self, counts: FloatArray) -> FloatArray:
        """Divide counts (n_states, n_flat) by the sum over each column's cells."""
        counts = counts.astype(np.float64)
        # so that columns without cells of their own are not divided by nothing
        counts[:, self.missing] = self.starts == self.missing
        counts /= np.add.reduceat(counts, self.starts, axis=1)[:, self.column]
        counts[:, self.missing] = 1.0
        return counts


class Evidence(NamedTuple):
    """Rows as emissions read them.

    `indicators` (n_flat, n): of the cells; `joint`: rows under each group of joint columns.
    """

    indicators: FloatArray
    joint: dict[int, FullExpectation]


class EmissionTotals(NamedTuple):
    """Expected statistics: counts (n_states, n_flat) of cells, sums of joint columns."""

    counts: FloatArray
    joint: dict[int, Sums]


@dataclass(frozen=True)
class Emissions:
    """Distributions of all columns given the latent state above each.

    `cells`: numbering of the cells; `numerical`: cells of each numerical column; `table`
    (n_states, n_flat): probabilities of the cells; `marginal` (n_flat,): those of the columns
    alone, the prior; `smoothers`: per numerical column the operator on its counts; `joint`: joint
    columns by the first of each group; they have no cells; `dtype`: of the messages.
    """

    cells: Cells
    numerical: Mapping[int, ColumnCells]
    table: FloatArray
    marginal: FloatArray
    smoothers: Mapping[int, FloatArray]
    joint: Mapping[int, JointNormals] = field(default_factory=dict)
    dtype: Any = np.float32

    @classmethod
    def marginals(
        cls,
        cardinalities: IntArray,
        numerical: Mapping[int, ColumnCells],
        codes: FloatArray,
        sample_weight: FloatArray,
        n_states: int,
        joint: Mapping[int, JointNormals] | None = None,
    ) -> Emissions:
        """Start from emissions that do not depend on the latent state.

        `cardinalities` (d,): number of categories (anything for numerical columns); `codes`
        (n, d): cells of the rows, NaN where missing; `sample_weight` (n,); `joint`: groups of
        columns without cells. One uniform row is added to the counts of categories.
        """
        joint = joint or {}
        sizes = np.array(cardinalities, dtype=np.int64)
        for column, in_cells in numerical.items():
            sizes[column] = in_cells.n_cells
        for group in joint.values():
            # Joint columns keep a place in the numbering, of no cell but the missing one
            sizes[list(group.columns)] = 0
        cells = Cells(sizes)
        counts = np.zeros((1, len(cells.column)))
        for own, cell, size in zip(cells.slices, codes.T, sizes):
            seen = ~np.isnan(cell) & (size > 0)
            counts[0, own][:-1] = np.bincount(
                cell[seen].astype(np.intp), sample_weight[seen], minlength=int(size)
            )
        uniform = np.repeat(1.0 / np.maximum(sizes, 1), sizes + 1)
        marginal = cells.normalized(counts + uniform)[0]
        table = np.tile(marginal, (n_states, 1))
        emissions = cls(cells, numerical, table, marginal, {}, joint)
        return emissions.with_smoothers(EmissionTotals(counts, {}), 1.0)

    @cached_property
    def followers(self) -> frozenset[int]:
        """Joint columns that are represented by another column."""
        return frozenset(
            column
            for first, group in self.joint.items()
            for column in group.columns
            if column != first
        )

    @cached_property
    def rounded(self) -> FloatArray:
        """The table in the precision of the messages."""
        return self.table.astype(self.dtype)

    def encode(self, X: FloatArray) -> FloatArray:
        """Cells of categories and numbers (n, d), standard units of joint columns."""
        if not self.numerical and not self.joint:
            return X
        codes = X.copy()
        for column, cells in self.numerical.items():
            codes[:, column] = cells.encode(X[:, column])
        for group in self.joint.values():
            codes[:, group.columns] = group.standardize(X)
        return codes

    def evidence(self, codes: FloatArray) -> Evidence:
        """Quantities of rows (n, d) that the two methods below use."""
        joint = {first: group.expect(codes) for first, group in self.joint.items()}
        return Evidence(self.cells.indicators(codes, self.dtype), joint)

    def likelihood(self, column: int, evidence: Evidence, out: FloatArray) -> FloatArray | float:
        """Write the probability of a column's cells under each state, (n_states, n).

        Densities of joint columns are scaled to a maximum of one; returns its logs.
        """
        if column in self.joint:
            log_density = evidence.joint[column].log_density
            largest = np.asarray(log_density.max(axis=0))
            # Densities may leave the range of single precision: the largest becomes one
            np.exp(log_density - largest, out=out, casting="same_kind")
            return largest
        own = self.cells.slices[column]
        np.matmul(self.rounded[:, own], evidence.indicators[own], out=out)
        return 0.0

    def no_totals(self) -> EmissionTotals:
        """Statistics of no row."""
        joint = {first: group.no_sums() for first, group in self.joint.items()}
        return EmissionTotals(np.zeros_like(self.table), joint)

    def add(
        self, totals: EmissionTotals, column: int, posterior: FloatArray, evidence: Evidence
    ) -> None:
        """Count a column's cells, weighted by the posterior (n_states, n) of the states."""
        if column in self.joint:
            # Covariances are differences of sums of squares, which single precision would drown
            sums = evidence.joint[column].sums(posterior.astype(np.float64))
            for total, added in zip(totals.joint[column], sums, strict=True):
                total += added
            return
        own = self.cells.slices[column]
        totals.counts[:, own] += posterior @ evidence.indicators[own].T

    def with_smoothers(self, totals: EmissionTotals, pseudo_count: float) -> Emissions:
        """Choose how statistics of numerical columns are smoothed."""
        smoothers, marginal = {}, self.marginal.copy()
        for column, cells in self.numerical.items():
            own = self.cells.slices[column]
            smoothers[column], prior = cells.choose_smoother(
                totals.counts[:, own][:, :-1], pseudo_count
            )
            marginal[own][:-1] = prior
        joint = {**self.joint, **{v: self.joint[v].adapt(own) for v, own in totals.joint.items()}}
        return replace(self, smoothers=smoothers, marginal=marginal, joint=joint)

    def maximize(self, totals: EmissionTotals, pseudo_count: float) -> Emissions:
        """The emissions that fit the statistics; missing cells do not count."""
        counts, prior = totals.counts, pseudo_count * self.marginal
        table = self.cells.normalized(counts + prior)
        for column, cells in self.numerical.items():
            own = self.cells.slices[column]
            # Cells of a numerical column learn from the cells next to them
            smoothed = counts[:, own][:, :-1] @ self.smoothers[column] + prior[own][:-1]
            table[:, own][:, :-1] = cells.normalized(smoothed)
        joint = {v: self.joint[v].maximize(sums) for v, sums in totals.joint.items()}
        return replace(self, table=table, joint=joint)

    def units(self, column: int) -> Sequence[Unit]:
        """One input unit per latent state."""
        if column in self.joint:
            return self.joint[column].units()
        return self.mixed_units(column, np.eye(len(self.table)))

    def mixed_units(self, column: int, mixtures: FloatArray) -> list[Unit]:
        """Mixtures of a column's units with the rows of weights (n, n_states).

        Mixtures of cells are single units.
        """
        if column in self.joint:
            units = self.joint[column].units()
            return [Sum(units, weights=row) for row in mixtures]
        masses = mixtures @ self.table[:, self.cells.slices[column]][:, :-1]
        masses /= masses.sum(axis=1, keepdims=True)
        if column in self.numerical:
            return [self.numerical[column].unit(row) for row in masses]
        return [Categorical(column, row) for row in masses]
