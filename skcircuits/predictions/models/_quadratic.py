"""Linear models of polynomial features of degree two: exact means by sigma points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcircuits.predictions._closed_forms import (
    NoClosedFormError,
    Problem,
    is_plainly_missing,
)
from skcircuits.predictions._components import GaussianComponents
from skcircuits.predictions._rows import Expectation, IncompleteRows, Response
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["QuadraticForm", "quadratic_form"]

# Relative to the size of the values whose third differences must vanish
CUBIC = 1e-9


@dataclass(frozen=True, eq=False)
class QuadraticForm:
    """Mean of a function of degree two in the numbers: the model at a few points per row.

    For a Gaussian with covariance V = WᵀW over m cells, the average over the 2 m points mean
    ± sqrt(m) w_i, w_i the rows of W, has the same moments up to the third. Rows that miss
    categories have no closed form here.
    """

    response: Response
    components: GaussianComponents
    name: str = "polynomial of degree two"

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes."""
        n_numbers = len(self.components.columns)
        return 2 * (n_numbers + 1) * self.components.bytes_per_row

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss numbers only."""
        if with_variance:
            return np.zeros(len(rows), dtype=bool)
        has_categories = ~np.isnan(rows.cells[:, list(self.components.tables)]).any(axis=1)
        return is_plainly_missing(rows) & has_categories

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the means."""
        conditioned = self.components.conditioned(rows.evidence)
        n_components = len(self.components)
        means: FloatArray | None = None
        for block in conditioned.blocks:
            group = block.group
            size = group.missing.shape[1]
            roots = block.roots.reshape(size, size, n_components, -1)[..., group.pattern]
            steps = np.sqrt(size) * roots.transpose(0, 2, 3, 1)  # (points, K, n, size)
            columns = self.components.columns[group.missing[group.pattern]]
            answers = self._at_points(rows.cells, conditioned.means, group.rows, columns, steps)
            found = (conditioned.weights[:, group.rows, None] * answers).sum(axis=0)
            if means is None:
                means = np.zeros((len(rows), found.shape[1]))
            means[group.rows] = found
        assert means is not None
        return Expectation.exact(means)

    def _at_points(
        self,
        cells: FloatArray,
        means: FloatArray,
        rows: IntArray,
        columns: IntArray,
        steps: FloatArray,
    ) -> FloatArray:
        """Average answer at the points of each component and row, shape (K, n, k)."""
        completed = np.repeat(cells[rows][None], len(means), axis=0)
        completed[:, :, self.components.columns] = means[:, rows]
        local = np.arange(len(rows))[:, None]
        points = np.repeat(completed[None], 2 * len(steps), axis=0)
        points[: len(steps), :, local, columns] += steps
        points[len(steps) :, :, local, columns] -= steps
        answers = self.response(points.reshape(-1, cells.shape[1]))
        return answers.reshape(*points.shape[:3], -1).mean(axis=0)


def quadratic_form(problem: Problem) -> QuadraticForm:
    """Build the form of models whose third differences in the numbers vanish."""
    components = GaussianComponents.of(problem.circuit)
    start = problem.trial_rows()
    step = np.zeros_like(start)
    numbers = components.columns
    rng = np.random.default_rng(0)
    step[:, numbers] = problem.scale[numbers] * rng.normal(size=(len(start), len(numbers)))
    try:
        stacked = np.vstack([start + i * step for i in range(4)])
        first, second, third, fourth = np.split(problem.response(stacked), 4)
    except Exception as error:
        raise NoClosedFormError(f"the model refuses a row: {error}") from error
    difference = fourth - 3.0 * third + 3.0 * second - first
    size = np.abs([first, second, third, fourth]).max(axis=0).max(axis=0)
    if not (np.abs(difference) <= CUBIC * size).all():
        raise NoClosedFormError("the model is no polynomial of degree two in the numbers")
    return QuadraticForm(problem.response, components)
