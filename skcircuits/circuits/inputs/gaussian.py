"""The normal distribution of one continuous variable."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from skcircuits.circuits.inputs._buffer_rows import Scatter
from skcircuits.circuits.inputs.base import (
    LOG_SQRT_2PI,
    Box,
    DifferentiableLayer,
    InputUnit,
    check_variable,
)
from skcircuits.exceptions import must
from skcircuits.numerics._logspace import log_ndtr_difference
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["Gaussian", "GaussianLayer"]


class GaussianLayer(DifferentiableLayer):
    """Many univariate Gaussian units.

    Parameters
    ----------
    variables : ndarray of shape (n_units,)
        Column of each unit.
    means, stds : ndarray of shape (n_units,)
        Parameters in the units of the column.
    """

    def __init__(self, variables: IntArray, means: FloatArray, stds: FloatArray) -> None:
        self.scopes = variables[:, None]
        self.means = means
        self.stds = stds
        self._log_peak = -np.log(stds) - LOG_SQRT_2PI

    @classmethod
    def stack(cls, units: Sequence[Gaussian]) -> GaussianLayer:
        """Stack units.

        Parameters
        ----------
        units : sequence of Gaussian
            Units over any variables.

        Returns
        -------
        GaussianLayer
            Their layer.
        """
        return cls(
            np.array([unit.variable for unit in units]),
            np.array([unit.mean for unit in units]),
            np.array([unit.std for unit in units]),
        )

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of all units."""
        return 2 * len(self)

    def log_prob(self, X: FloatArray) -> FloatArray:
        """Log density of each unit at each row.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows, NaN for unknown.

        Returns
        -------
        ndarray of shape (n_units, n)
            Log densities, 0 where NaN.
        """
        cells = X.T[self.scopes[:, 0]]
        missing = np.isnan(cells)
        cells -= self.means[:, None]
        cells /= self.stds[:, None]
        np.square(cells, out=cells)
        cells *= -0.5
        cells += self._log_peak[:, None]
        cells[missing] = 0.0
        return cells

    def log_box(self, box: Box) -> FloatArray:
        """Log probability of each row's interval.

        Parameters
        ----------
        box : Box
            One box per row.

        Returns
        -------
        ndarray of shape (n_units, n)
            Log probabilities.
        """
        column = self.scopes[:, 0]
        # Bounds that overflow are as good as infinite
        with np.errstate(over="ignore"):
            lower = (box.lower.T[column] - self.means[:, None]) / self.stds[:, None]
            upper = (box.upper.T[column] - self.means[:, None]) / self.stds[:, None]
        return log_ndtr_difference(
            np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
        )

    def log_max(self, X: FloatArray) -> FloatArray:
        """Log density, at the mean where the cell is unknown.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows, NaN for unknown.

        Returns
        -------
        ndarray of shape (n_units, n)
            Log densities.
        """
        missing = np.isnan(X.T[self.scopes[:, 0]])
        return np.where(missing, self._log_peak[:, None], self.log_prob(X))

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        """Fill NaN cells with the mean.

        Parameters
        ----------
        units : ndarray of shape (m,)
            Which unit completes which cell.
        cells : ndarray of shape (m, 1)
            Values or NaN.

        Returns
        -------
        ndarray of shape (m, 1)
            Completed cells.
        """
        return np.where(np.isnan(cells), self.means[units][:, None], cells)

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        """Fill NaN cells with random values.

        Parameters
        ----------
        units : ndarray of shape (m,)
            Which unit completes which cell.
        cells : ndarray of shape (m, 1)
            Values or NaN.
        rng : RandomNumbers
            Source of randomness.

        Returns
        -------
        ndarray of shape (m, 1)
            Completed cells.
        """
        drawn = self.means[units] + self.stds[units] * rng.standard_normal(len(units))
        return np.where(np.isnan(cells), drawn[:, None], cells)

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each cell.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows, NaN for unknown.

        Returns
        -------
        mean, variance : ndarray of shape (n_units, n, 1)
            The value itself and 0 where observed.
        """
        cells = X.T[self.scopes[:, 0]]
        missing = np.isnan(cells)
        mean = np.where(missing, self.means[:, None], cells)
        variance = np.where(missing, np.square(self.stds)[:, None], 0.0)
        return mean[..., None], variance[..., None]

    def add_score(self, score: FloatArray, flows: FloatArray, X: FloatArray) -> None:
        """Add flow times (mean - x) / variance of each unit.

        Parameters
        ----------
        score : ndarray of shape (n_columns, n)
            Changed in place.
        flows : ndarray of shape (n_units, n)
            Flows.
        X : ndarray of shape (n, n_columns)
            Rows; NaN cells add nothing.
        """
        pulls = self.means[:, None] - X.T[self.scopes[:, 0]]
        pulls[np.isnan(pulls)] = 0.0
        pulls /= self.stds[:, None]
        # Flows come first: a narrow unit far away has none, but perhaps an infinite gradient.
        pulls *= flows
        pulls /= self.stds[:, None]
        self._scatter.add(score, pulls)

    @cached_property
    def _scatter(self) -> Scatter:
        return Scatter(self.scopes[:, 0])


class Gaussian(InputUnit):
    """A normal distribution.

    Parameters
    ----------
    variable : int
        Column number.
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
        if not np.isfinite(mean):
            raise ValueError(must("mean of a Gaussian unit", "be finite", mean=mean))
        if not (np.isfinite(std) and std > 0):
            raise ValueError(
                must("standard deviation of a Gaussian unit", "be finite and positive", std=std)
            )
        self.mean = float(mean)
        self.std = float(std)

    def parameters(self) -> dict[str, Any]:
        """Constructor arguments that rebuild the unit.

        Returns
        -------
        dict
            Keyword arguments.
        """
        return {"variable": self.variable, "mean": self.mean, "std": self.std}

    def marginalize(self, variables: frozenset[int]) -> Gaussian | None:
        """Integrate out the variable.

        Parameters
        ----------
        variables : frozenset of int
            Variables to remove.

        Returns
        -------
        Gaussian or None
            None when the variable is among them.
        """
        return None if self.variable in variables else self
