"""The normal distribution of one continuous variable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from skcircuits.circuits.inputs.base import (
    LOG_SQRT_2PI,
    Box,
    DifferentiableLayer,
    InputUnit,
    check_variable,
    moments_of_columns,
)
from skcircuits.circuits.inputs.registry import register_input_unit
from skcircuits.exceptions import must
from skcircuits.numerics._arrays import Scatter, is_finite, log_ndtr_difference
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import FloatArray, IntArray


class GaussianLayer(DifferentiableLayer):
    """Many univariate Gaussian units.

    ``variables`` (n_units,): column of each unit; ``means``, ``stds`` (n_units,): parameters in the
    units of the column.
    """

    def __init__(self, variables: IntArray, means: FloatArray, stds: FloatArray) -> None:
        self.scopes = variables[:, None]
        self.means = means
        self.stds = stds
        self._log_peak = -np.log(stds) - LOG_SQRT_2PI

    @classmethod
    def stack(cls, units: Sequence[Gaussian]) -> GaussianLayer:
        return cls(
            np.array([unit.variable for unit in units]),
            np.array([unit.mean for unit in units]),
            np.array([unit.std for unit in units]),
        )

    @property
    def n_parameters(self) -> int:
        return 2 * len(self)

    def log_prob(self, X: FloatArray) -> FloatArray:
        cells = X.T[self.scopes[:, 0]]
        missing = np.isnan(cells)
        # Squares beyond floats are densities of zero
        with np.errstate(over="ignore"):
            cells -= self.means[:, None]
            cells /= self.stds[:, None]
            np.square(cells, out=cells)
        cells *= -0.5
        cells += self._log_peak[:, None]
        cells[missing] = 0.0
        return cells

    def log_box(self, box: Box) -> FloatArray:
        column = self.scopes[:, 0]
        # Bounds that overflow are as good as infinite
        with np.errstate(over="ignore"):
            lower = (box.lower.T[column] - self.means[:, None]) / self.stds[:, None]
            upper = (box.ends.T[column] - self.means[:, None]) / self.stds[:, None]
        return log_ndtr_difference(
            np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
        )

    def log_max(self, X: FloatArray) -> FloatArray:
        missing = np.isnan(X.T[self.scopes[:, 0]])
        # The best completion is the mean, where the density is highest
        return np.where(missing, self._log_peak[:, None], self.log_prob(X))

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        return np.where(np.isnan(cells), self.means[units][:, None], cells)

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        drawn = self.means[units] + self.stds[units] * rng.standard_normal(len(units))
        return np.where(np.isnan(cells), drawn[:, None], cells)

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return moments_of_columns(self, X, self.means, np.square(self.stds))

    def add_score(self, score: FloatArray, flows: FloatArray, X: FloatArray) -> None:
        pulls = self.means[:, None] - X.T[self.scopes[:, 0]]
        # A missing cell is integrated out: the density does not depend on it.
        pulls[np.isnan(pulls)] = 0.0
        pulls /= self.stds[:, None]
        # Flows come first: a narrow unit far away has none, but perhaps an infinite gradient.
        pulls *= flows
        pulls /= self.stds[:, None]
        self._scatter.add(score, pulls)

    @cached_property
    def _scatter(self) -> Scatter:
        return Scatter(self.scopes[:, 0])


@register_input_unit
class Gaussian(InputUnit):
    """A normal distribution.

    Parameters
    ----------
    variable : int
        Index of the column.
    mean : float
        Mean, in the unit of the column.
    std : float
        Standard deviation, positive, in the unit of the column.

    Examples
    --------
    >>> from skcircuits.circuits import Gaussian
    >>> Gaussian(1, mean=0.0, std=2.0)
    Gaussian(variable=1, mean=0, std=2)
    """

    layer_type = GaussianLayer

    def __init__(self, variable: int, mean: float, std: float) -> None:
        self.variable = check_variable(variable)
        self.scope = (self.variable,)
        if not is_finite(mean):
            raise ValueError(must("mean of a Gaussian unit", "be finite", mean=mean))
        if not (is_finite(std) and std > 0):
            raise ValueError(
                must("standard deviation of a Gaussian unit", "be finite and positive", std=std)
            )
        self.mean = float(mean)
        self.std = float(std)

    def parameters(self) -> dict[str, Any]:
        return {"variable": self.variable, "mean": self.mean, "std": self.std}
