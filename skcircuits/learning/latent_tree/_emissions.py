"""The rows that latent trees are learned from, and columns given their latent states.

Every column is discretised into cells: the categories of a categorical column, the intervals and
point masses of a numerical one (`ColumnCells`). Messages of the tree depend only on the
probabilities of cells.

Columns that nearly determine one another share a latent variable and have joint normal emissions.
If two numbers lie close to a line, independent emissions need as many latent states as the line is
long in units of its thickness; smooth relations are locally linear, so that few joint normal
distributions suffice. The first column of such a group represents it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits import Categorical, MultivariateGaussian, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning._columns import (
    ColumnCells,
    MixedColumn,
    describe_column,
    sharp_breaks,
    standardized,
)
from skcircuits.learning.gaussian_mixture._full_gaussians import (
    FullExpectation,
    FullGaussians,
    Sums,
    TiedExpectation,
    joined_sums,
)
from skcircuits.numerics._arrays import finite_peaks
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._patterns import group_patterns
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._chow_liu import observed_information
from skcircuits.trees._trees import StateLayout


@dataclass(frozen=True)
class LatentRows:
    """Training rows of a latent tree."""

    X: FloatArray  # (n, n_variables), codes of categories, and numbers, NaN where missing
    weight: FloatArray  # (n,)
    states: IntArray  # (n, n_variables), with binned numbers, -1 where missing: for tree and start
    layout: StateLayout  # of these states
    is_categorical: BoolArray  # (n_variables,); other columns have piecewise polynomials
    # How numbers were recorded, if that was learned from more rows; None: from these rows
    facts: Mapping[int, MixedColumn] | None = None
    # Groups of numerical columns with a latent variable in common and joint normal distributions
    joint_columns: tuple[tuple[int, ...], ...] = ()

    def fact(self, column: int) -> MixedColumn:
        """How a numerical column was recorded, in particular its point masses."""
        if self.facts is None:
            return describe_column(column, self.X[:, column], self.weight, 0)
        return self.facts[column]

    @cached_property
    def information(self) -> FloatArray:
        """Mutual information (n_variables, n_variables) of each pair of columns."""
        return observed_information(self.states, self.layout, sample_weight=self.weight)

    @cached_property
    def numerical(self) -> dict[int, ColumnCells]:
        """Cells of each numerical column."""
        columns = np.flatnonzero(~self.is_categorical).tolist()
        seen = [~np.isnan(self.X[:, v]) & (self.weight > 0) for v in columns]
        cells = ColumnCells.fit_all(
            [self.fact(v) for v in columns],
            [self.X[own, v] for v, own in zip(columns, seen, strict=True)],
            [self.weight[own] for own in seen],
        )
        return {v: own.broken(self._breaks(v)) for v, own in zip(columns, cells, strict=True)}

    def _breaks(self, column: int) -> FloatArray:
        """Numbers of a column at which the frequencies of any categories jump."""
        categories = self.X.T[self.is_categorical]
        found = [sharp_breaks(self.X[:, column], codes, self.weight) for codes in categories]
        return np.unique(np.concatenate([np.empty(0), *found]))

    def with_joint_columns(self, joint_columns: tuple[tuple[int, ...], ...]) -> LatentRows:
        """The same rows with other groups of columns."""
        rows = replace(self, joint_columns=joint_columns)
        # Of wide tables with few rows they take longer than many iterations
        vars(rows).update(information=self.information, numerical=self.numerical)
        return rows

    def take(self, indices: IntArray) -> LatentRows:
        """Select rows by indices (m,)."""
        return replace(
            self, X=self.X[indices], weight=self.weight[indices], states=self.states[indices]
        )


class Cells:
    """Numbering of the cells of all columns side by side, the last of each for missing values."""

    # A missing value has probability 1 under every state: one matrix product serves incomplete rows

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
    """Rows as emissions read them: indicators of cells (n_flat, n), rows under joint columns."""

    indicators: FloatArray
    joint: dict[int, FullExpectation | TiedExpectation]


class EmissionTotals(NamedTuple):
    """Expected statistics: counts (n_states, n_flat) of cells, sums of joint columns."""

    counts: FloatArray
    joint: dict[int, Sums]


@dataclass(frozen=True)
class Emissions:
    """Distributions of all columns given the latent state above each."""

    cells: Cells
    numerical: Mapping[int, ColumnCells]  # cells of each numerical column
    table: FloatArray  # (n_states, n_flat), probabilities of the cells
    marginal: FloatArray  # (n_flat,), those of the columns alone, the prior
    smoothers: Mapping[int, FloatArray]  # operators on the counts of numerical columns
    joint: Mapping[int, JointNormals] = field(default_factory=dict)  # by first column
    dtype: Any = np.float32  # of the messages

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
        """Start from emissions that do not depend on the latent state; codes (n, d)."""
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
        return encode_cells(X, self.numerical, self.joint)

    def log_densities(self, X: FloatArray) -> FloatArray:
        """Log densities (n,) of rows (n, d) relative to those of their cells and standard units.

        Of columns on a grid per step.
        """
        total = np.zeros(len(X))
        for column, cells in self.numerical.items():
            total += np.nan_to_num(cells.log_densities(X[:, column]))
        for group in self.joint.values():
            total += ~np.isnan(X[:, group.columns]) @ np.log(group.steps / group.scale)
        return total

    def evidence(self, codes: FloatArray) -> Evidence:
        """Quantities of rows (n, d) that the two methods below use."""
        joint = {first: group.expect(codes) for first, group in self.joint.items()}
        return Evidence(self.cells.indicators(codes, self.dtype), joint)

    def likelihood(self, column: int, evidence: Evidence, out: FloatArray) -> FloatArray | float:
        """Write a column's probabilities (n_states, n), joint ones scaled by what is returned."""
        if column in self.joint:
            log_density = evidence.joint[column].log_density
            largest = finite_peaks(log_density.max(axis=0))
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
            # Sums of squares would lose half of their digits in single precision
            sums = evidence.joint[column].sums(posterior.astype(np.float64))
            totals.joint[column] = joined_sums([totals.joint[column], sums], [1.0, 1.0])
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
        """Mixtures of a column's units with the rows of weights (n, n_states)."""
        if column in self.joint:
            units = self.joint[column].units()
            return [Sum(units, weights=row) for row in mixtures]
        masses = mixtures @ self.table[:, self.cells.slices[column]][:, :-1]
        masses /= masses.sum(axis=1, keepdims=True)
        if column in self.numerical:
            return [self.numerical[column].unit(row) for row in masses]
        return [Categorical(column, row) for row in masses]


# Part of a column's variance that the others of its group explain, all rows together.
_MIN_EXPLAINED = 0.5
_MEAN_ROWS = 0.5  # that the prior of each mean weighs
_MAX_CORRELATION = 1.0 - 1e-9


@dataclass(frozen=True, eq=False)
class JointNormals:
    """Normal distributions of some columns given the latent state above them."""

    columns: tuple[int, ...]
    location: FloatArray  # (k,)
    scale: FloatArray  # (k,)
    steps: FloatArray  # (k,), of grids that columns were recorded on, else 1
    is_grid: BoolArray  # (k,)
    gaussians: FullGaussians  # one per latent state, in standard units

    @classmethod
    def start(
        cls,
        columns: tuple[int, ...],
        described: Sequence[MixedColumn],
        X: FloatArray,
        n_states: int,
    ) -> JointNormals:
        """Begin with equal states, in the standard units of rows (n, d)."""
        location = np.nanmean(X[:, columns], axis=0)
        scale = np.array([column.scale for column in described])
        widths = np.array([column.resolution for column in described]) / scale
        is_grid = np.array([column.is_grid for column in described])
        steps = np.where(is_grid, widths * scale, 1.0)
        # A number represents an interval as wide as the resolution, uniform inside
        single = FullGaussians.guess(np.eye(len(columns)), widths**2 / 12.0)
        gaussians = single.repeat(n_states, "shrunk", _MEAN_ROWS)
        return cls(columns, location, scale, steps, is_grid, gaussians)

    def within_steps(self) -> JointNormals:
        """Wider by the steps of the grids: densities times steps are probabilities of points."""
        # A normal distribution's probability of a step is nearly the density, times the step, of
        # its sum with a uniform variable, whose variance is a twelfth of the square of the step
        stack = self.gaussians.stack
        steps = np.where(self.is_grid, self.steps / self.scale, 0.0)
        wider = GaussianStack(stack.means, stack.covariances + np.diag(steps**2 / 12.0))
        return replace(self, gaussians=replace(self.gaussians, stack=wider))

    def expect(self, codes: FloatArray) -> FullExpectation | TiedExpectation:
        """Log densities of rows (n, d) in standard units, with intermediate results for sums."""
        numbers = codes[:, self.columns]
        missing = np.isnan(numbers)
        return self.gaussians.expect(numbers, group_patterns(missing) if missing.any() else [])

    def no_sums(self) -> Sums:
        """Statistics of no row."""
        n_states, size = self.gaussians.stack.means.shape
        shapes = (n_states,), (n_states, size), (n_states, size, size)
        return tuple(np.zeros(shape) for shape in shapes)

    def adapt(self, sums: Sums) -> JointNormals:
        """Choose with how many rows each covariance is shrunk towards that within all states."""
        return replace(self, gaussians=self.gaussians.adapt(sums, 1.0))

    def maximize(self, sums: Sums) -> JointNormals:
        """The normal distributions that fit the statistics."""
        return replace(self, gaussians=self.gaussians.maximize(sums))

    def units(self) -> list[MultivariateGaussian]:
        """One input unit per latent state, in the units of the table."""
        means, covariances = self.gaussians.in_units(self.location, self.scale)
        return [
            MultivariateGaussian(self.columns, mean, covariance)
            for mean, covariance in zip(means, covariances, strict=True)
        ]


def encode_cells(
    X: FloatArray, numerical: Mapping[int, ColumnCells], joint: Mapping[int, JointNormals]
) -> FloatArray:
    """Cells of categories and numbers of rows (n, d), standard units of joint columns."""
    if not numerical and not joint:
        return X
    codes = X.copy()
    for column, cells in numerical.items():
        codes[:, column] = cells.encode(X[:, column])
    for group in joint.values():
        codes[:, group.columns] = (X[:, group.columns] - group.location) / group.scale
    return codes


def collinear_columns(rows: LatentRows, max_columns: int) -> tuple[tuple[int, ...], ...]:
    """Disjoint groups of at most `max_columns` numerical columns that explain each other."""
    # The pair with the largest correlation first, then the column whose variance the group explains
    # best, as long as half of it is explained. Columns with point masses stay apart, but for fine
    # grids: a density times the step is nearly a probability.
    left = np.flatnonzero([not c and _is_dense(rows, v) for v, c in enumerate(rows.is_categorical)])
    correlations, errors = _correlations(rows.X[:, left], rows.weight)
    groups: list[tuple[int, ...]] = []
    free = np.ones(len(left), dtype=bool)
    while free.sum() > 1 and max_columns > 1:
        squares = np.where(free[:, None] & free, correlations**2, 0.0)
        np.fill_diagonal(squares, 0.0)
        first, second = np.unravel_index(squares.argmax(), squares.shape)
        if squares[first, second] < _MIN_EXPLAINED:
            break
        group = [int(first), int(second)]
        free[group] = False
        while len(group) < max_columns and free.any():
            # r' R^-1 r is the fraction of a variance that the group explains
            own, others = correlations[np.ix_(group, group)], correlations[group]
            inverse = np.linalg.pinv(own, rcond=errors[group].max(), hermitian=True)
            explained = np.where(free, (others * (inverse @ others)).sum(axis=0), 0.0)
            best = int(explained.argmax())
            if explained[best] < _MIN_EXPLAINED:
                break
            group.append(best)
            free[best] = False
        groups.append(tuple(sorted(left[group].tolist())))
    return tuple(groups)


def _is_dense(rows: LatentRows, column: int) -> bool:
    """Whether a numerical column has a density, or a fine grid in place of one."""
    facts = rows.fact(column)
    return facts.is_smooth or facts.is_grid


def _correlations(X: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Correlations (d, d) of rows with both cells, and by how much they contradict others (d,)."""
    seen = ~np.isnan(X)
    centred = standardized(X, weight)
    together = np.maximum(seen.T.astype(float) @ (seen * weight[:, None]), 1e-300)
    correlations = centred.T @ (centred * weight[:, None]) / together
    # Exactly collinear columns, two or more, would make the groups' correlations singular
    correlations = _MAX_CORRELATION * np.clip(correlations, -1.0, 1.0)
    np.fill_diagonal(correlations, 1.0)
    n_seen = np.maximum(1.0, seen.T @ weight)
    errors = np.where(seen.all(axis=0), 0.0, 1.0 / np.sqrt(n_seen))
    return np.asarray(correlations), errors
