"""Numerical columns of a Gaussian mixture that are grouped instead, and which are.

No Gaussian can give a single number a probability, and few have a shape that is uniform or has
peaks at its ends. In each component, a grouped numerical column has a probability of each of its
frequent values and of a few groups of other numbers, as a categorical column has of its categories.
Within a group, numbers are distributed as in the whole table.

A column that is uniform or has several peaks needs many Gaussians, and none are left for it where
columns nearly determine one another. With groups of its numbers, it has the right shape, but
depends on the other columns by components alone. Which of the two is better is seen in a mixture of
few components over transformed columns.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from skcircuits.circuits import PiecewisePolynomial
from skcircuits.learning._columns import ColumnCells, MixedColumn, PointMasses, describe_column
from skcircuits.learning.gaussian_mixture._full_gaussians import FullGaussians
from skcircuits.learning.gaussian_mixture._learner import (
    EMSettings,
    learn_gaussian_mixture,
)
from skcircuits.learning.gaussian_mixture._table import MixtureTable, fit_sinh_map
from skcircuits.numerics._arrays import logsumexp
from skcircuits.protocols import FloatArray, IntArray

# Components of the mixture, rows of each, at least, and iterations. It sees no more rows
_N_COMPONENTS, _COMPONENT_ROWS, _N_ITERATIONS, _MAX_ROWS = 8, 20, 20, 2000
_MIN_GAIN = 0.02  # nats per row by which a column must gain to be grouped
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
        return int(self.groups.max()) + 1

    def encode(self, values: FloatArray) -> FloatArray:
        """Number the groups of values (n,); NaN where missing."""
        cells = self.cells.encode(values)
        return np.where(np.isnan(cells), np.nan, self.groups[np.nan_to_num(cells).astype(np.intp)])

    def unit(self, probabilities: FloatArray) -> PiecewisePolynomial:
        """The distribution with probabilities (n_groups,) of the groups."""
        return self.cells.unit(self.cell_probabilities(probabilities))

    def cell_probabilities(self, probabilities: FloatArray) -> FloatArray:
        """Probabilities (..., n_cells) of the cells from those of the groups (..., n_groups)."""
        return self.cells.normalized(probabilities[..., self.groups] * self.fractions)


def _left_out(
    cells: ColumnCells, counts: FloatArray, masses: FloatArray, smoother: FloatArray
) -> float:
    """Mean log density of a row under the smoothed histogram of the others, (n_cells,) cells."""
    inner = slice(len(cells.column.atoms), -2)
    own = np.minimum(counts, 1.0) * np.diagonal(smoother)
    likely = (counts @ smoother - own + masses)[inner] / max(counts.sum(), 1.0)
    logs = np.log(likely) - np.log(np.diff(cells.edges))
    return float(counts[inner] @ logs / max(counts[inner].sum(), 1e-300))


def grouped_columns(
    X: FloatArray,
    weights: FloatArray,
    cardinalities: IntArray,
    point_masses: PointMasses,
    histograms: bool | Collection[int],
) -> dict[int, GroupedColumn]:
    """The numerical columns of a table (n, d) that are grouped, by their index."""
    # Columns with frequent values are grouped, if there may be point masses, and with `histograms`
    # also those of the others whose shape is worth more than their dependence on other columns; or
    # given ones of them
    variables = np.flatnonzero(cardinalities == 0).tolist()
    described = [describe_column(j, X[:, j], weights, 0, point_masses) for j in variables]
    free = variables if histograms is True else histograms or ()
    wanted = [column for column in described if column.variable in free or len(column.atoms)]
    found = {own.cells.column.variable: own for own in GroupedColumn.fit_all(wanted, X, weights)}
    if histograms is not True:
        return found
    smooth = [j for j, own in found.items() if own.cells.column.is_smooth]
    if smooth:
        others = np.concatenate([smooth, np.flatnonzero(cardinalities)])
        own_shape = np.array([found[j].log_density for j in smooth])
        for i in _better_normal(X[:, others], weights, cardinalities[others], own_shape):
            del found[smooth[i]]
    return found


def _better_normal(
    X: FloatArray, weights: FloatArray, cardinalities: IntArray, log_densities: FloatArray
) -> list[int]:
    """The numbers whose shape is worth less than their dependence on one another.

    `X` (n, d): numbers first; `log_densities` (c,): means under histograms of the numbers. Under
    the mixture, a component loses -log(1 - R^2) / 2 where a column no longer depends on the others.
    Columns leave one by one, that with the largest difference first: it takes the worth of the
    others' dependence on it along.
    """
    parts, n_rows, covariances, normal = _few_components(
        X, weights, cardinalities, len(log_densities)
    )
    gains = log_densities - normal
    left = np.arange(len(gains))
    while len(left):
        inner = covariances[:, left[:, None], left]
        # 1 - R^2 is the inverse of the diagonals of covariance and precision
        ratios = np.diagonal(inner, axis1=1, axis2=2) * np.diagonal(
            np.linalg.inv(inner), axis1=1, axis2=2
        )
        # Of independent columns, -log(1 - R^2) of n rows is one n-th for each other column
        chance = (len(left) - 1) * parts @ (1.0 / n_rows)
        difference = gains[left] - 0.5 * np.maximum(parts @ np.log(ratios) - chance, 0.0)
        if difference.max() < _MIN_GAIN:
            break
        left = np.delete(left, difference.argmax())
    return [int(i) for i in left]


def _few_components(
    X: FloatArray, weights: FloatArray, cardinalities: IntArray, n_numbers: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Few components over transformed columns: weights, counts, covariances, log densities (c,)."""
    some = np.flatnonzero(weights > 0)
    some = some[:: 1 + len(some) // _MAX_ROWS]
    X, weights = X[some].copy(), weights[some]
    numbers = X[:, :n_numbers].copy()
    sinh_map = fit_sinh_map(numbers, weights)
    X[:, :n_numbers] = sinh_map.normal(numbers)
    table = MixtureTable.prepare(X, cardinalities, weights)
    n_components = int(np.clip(len(some) // _COMPONENT_ROWS, 1, _N_COMPONENTS))
    settings = EMSettings("shrunk", n_init=1, max_iter=_N_ITERATIONS)
    *_, state = learn_gaussian_mixture(table, n_components, settings, np.random.default_rng(0))
    assert isinstance(state.gaussians, FullGaussians)
    means, covariances = state.gaussians.in_units(table.location, table.scale)
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    offsets = np.nan_to_num(X[:, :n_numbers])[:, None] - means
    logs = -0.5 * (np.square(offsets) / variances + np.log(2.0 * np.pi * variances))
    logs = logsumexp((logs + np.log(state.weights)[:, None]).transpose(1, 0, 2))
    logs -= np.log(np.hypot(1.0, sinh_map.curvatures * (numbers - sinh_map.centers)))
    seen = ~np.isnan(numbers) * weights[:, None]
    log_densities = (seen * np.nan_to_num(logs)).sum(axis=0)
    n_rows = state.weights * table.total_weight + state.gaussians.strength
    return state.weights, n_rows, covariances, log_densities / np.maximum(seen.sum(axis=0), 1e-300)
