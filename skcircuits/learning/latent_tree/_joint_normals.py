"""Joint normal emissions: columns that nearly determine one another share a latent variable.

If two numbers lie close to a line, independent emissions need as many latent states as the line is
long in units of its thickness. With a joint normal distribution in every state, few states suffice,
because smooth relations are locally linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from skcircuits.circuits import MultivariateGaussian
from skcircuits.learning.gaussian_mixture._categories import Sums
from skcircuits.learning.gaussian_mixture._full_gaussians import FullExpectation, FullGaussians
from skcircuits.learning.latent_tree.rows import LatentRows
from skcircuits.learning.univariate._columns import MixedColumn, describe_column
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._patterns import group_patterns
from skcircuits.protocols import BoolArray, FloatArray

# Part of a column's variance that the others of its group explain, all rows together.
_LEAST_EXPLAINED = 0.5
_MEAN_ROWS = 0.5  # that the prior of each mean weighs
_MOST_CORRELATION = 1.0 - 1e-9


@dataclass(frozen=True, eq=False)
class JointNormals:
    """Normal distributions of some columns given the latent state above them.

    `columns`: their numbers; `location`, `scale` (k,): standard units; `steps` (k,): of the grids
    that columns were recorded on, 1 where there is none (`is_grid`); `gaussians`: one component
    per latent state in these units.
    """

    columns: tuple[int, ...]
    location: FloatArray
    scale: FloatArray
    steps: FloatArray
    is_grid: BoolArray
    gaussians: FullGaussians

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

    def standardize(self, X: FloatArray) -> FloatArray:
        """The columns of rows (n, d) in standard units, shape (n, k)."""
        return (X[:, self.columns] - self.location) / self.scale

    def within_steps(self) -> JointNormals:
        """Wider by the steps of the grids: densities times steps are probabilities of points.

        A normal distribution's probability of a step is nearly the density, times the step, of its
        sum with a uniform variable, whose variance is a twelfth of the square of the step.
        """
        stack = self.gaussians.stack
        steps = np.where(self.is_grid, self.steps / self.scale, 0.0)
        wider = GaussianStack(stack.means, stack.covariances + np.diag(steps**2 / 12.0))
        return replace(self, gaussians=replace(self.gaussians, stack=wider))

    def expect(self, codes: FloatArray) -> FullExpectation:
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


def collinear_columns(rows: LatentRows, max_columns: int) -> tuple[tuple[int, ...], ...]:
    """Disjoint groups of at most `max_columns` numerical columns that explain each other.

    The pair with the largest correlation first, then the column whose variance the group explains
    best, as long as half of it is explained. Columns with point masses stay apart, but for fine
    grids: a density times the step is nearly a probability.
    """
    left = np.flatnonzero([not c and _is_dense(rows, v) for v, c in enumerate(rows.is_categorical)])
    correlations = _correlations(rows.X[:, left], rows.weight)
    groups: list[tuple[int, ...]] = []
    free = np.ones(len(left), dtype=bool)
    while free.sum() > 1 and max_columns > 1:
        squares = np.where(free[:, None] & free, correlations**2, 0.0)
        np.fill_diagonal(squares, 0.0)
        first, second = np.unravel_index(squares.argmax(), squares.shape)
        if squares[first, second] < _LEAST_EXPLAINED:
            break
        group = [int(first), int(second)]
        free[group] = False
        while len(group) < max_columns and free.any():
            # r' R^-1 r is the fraction of a variance that the group explains
            own, others = correlations[np.ix_(group, group)], correlations[group]
            explained = np.where(free, (others * np.linalg.solve(own, others)).sum(axis=0), 0.0)
            best = int(explained.argmax())
            if explained[best] < _LEAST_EXPLAINED:
                break
            group.append(best)
            free[best] = False
        groups.append(tuple(sorted(left[group].tolist())))
    return tuple(groups)


def _is_dense(rows: LatentRows, column: int) -> bool:
    """Whether a numerical column has a density, or a fine grid in place of one."""
    facts = describe_column(column, rows.X[:, column], rows.weight, 0, rows.point_masses)
    return facts.is_smooth or facts.is_grid


def _correlations(X: FloatArray, weight: FloatArray) -> FloatArray:
    """Correlations (d, d) of the rows that have both cells, a little less than one."""
    seen = ~np.isnan(X)
    total = np.maximum(weight @ seen, 1e-300)
    centred = np.where(seen, X - weight @ np.where(seen, X, 0.0) / total, 0.0)
    centred /= np.sqrt(np.maximum(weight @ centred**2 / total, 1e-300))
    together = np.maximum(seen.T.astype(float) @ (seen * weight[:, None]), 1e-300)
    correlations = centred.T @ (centred * weight[:, None]) / together
    # Exactly collinear columns would make the groups' correlations singular
    correlations = np.clip(correlations, -_MOST_CORRELATION, _MOST_CORRELATION)
    np.fill_diagonal(correlations, 1.0)
    return np.asarray(correlations)
