"""Expected sufficient statistics of input units, and the parameters that maximise likelihood.

There is one class per family. It accumulates the statistics of an input layer over batches, with
each row weighted by the flow that reaches the unit, and turns the totals into new units.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skcircuits.circuits.inputs import (
    Bernoulli,
    Categorical,
    DiscreteLayer,
    Gaussian,
    GaussianLayer,
    InputLayer,
    InputUnit,
    MultivariateGaussian,
    MultivariateGaussianLayer,
    PiecewisePolynomialLayer,
    Poisson,
    PoissonLayer,
)
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._gaussian_stack import conditional_blocks
from skcircuits.protocols import FloatArray

_BLOCK_ROWS = 1 << 16  # rows whose moments are taken at once

# Smallest variance of a unit relative to that of its column: none collapses to one value.
MIN_VARIANCE = 1e-6


@dataclass(frozen=True)
class ColumnMoments:
    """Mean and variance of every column, as the prior of input units over numerical variables.

    Attributes
    ----------
    mean, variance : ndarray of shape (n_columns,)
        Moments of the observed cells; the variance is positive.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.learning import ColumnMoments
    >>> ColumnMoments.of(np.array([[1.0], [3.0], [np.nan]]), np.ones(3))
    ColumnMoments(mean=array([2.]), variance=array([1.]))
    """

    mean: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, X: FloatArray, weight: FloatArray) -> ColumnMoments:
        """Compute the moments of the columns of a table.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows, NaN for missing values.
        weight : ndarray of shape (n,)
            Weights of the rows.

        Returns
        -------
        ColumnMoments
            Moments of the columns.
        """

        def total_of(function: Callable[[FloatArray], FloatArray]) -> FloatArray:
            """Weighted sum of a function of the cells, over the observed ones."""
            total = np.zeros(X.shape[1])
            # copies of a large table would be its peak of memory
            for start in range(0, len(X), _BLOCK_ROWS):
                cells = X[start : start + _BLOCK_ROWS]
                values = np.where(np.isnan(cells), 0.0, function(cells))
                total += weight[start : start + _BLOCK_ROWS] @ values
            return total

        total = total_of(np.ones_like)
        fraction = np.where(total > 0, total, 1.0)
        mean = total_of(lambda cells: cells) / fraction
        # Once more: the rounding of a long sum would pass for variance where numbers are large
        mean += total_of(lambda cells: cells - mean) / fraction
        variance = total_of(lambda cells: np.square(cells - mean)) / fraction
        # A constant column: narrow against its own size, but a density.
        constant = variance <= np.square(8.0 * np.finfo(np.float64).eps * mean)
        variance[constant] = np.square(1e-3 * np.maximum(np.abs(mean[constant]), 1.0))
        variance[total == 0] = 1.0
        return cls(mean, variance)


class InputStatistics(ABC):
    """Base class of the sufficient statistics of one input layer for expectation maximisation.

    Parameters
    ----------
    layer : InputLayer
        The stacked units with their current parameters.
    units : sequence of InputUnit
        The units themselves, in the order of the layer.
    moments : ColumnMoments
        Moments of the training columns.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Circuit, Poisson
    >>> from skcircuits.learning import fit_parameters
    >>> X = np.array([[0.0], [1.0], [1.0], [np.nan], [9.0], [11.0]])
    >>> start = Circuit(0.5 * Poisson(0, 1.0) + 0.5 * Poisson(0, 5.0))
    >>> sorted(unit.rate for unit in fit_parameters(start, X, pseudo_count=0.0).root.children)
    [0.66..., 9.9...]
    """

    def __init__(self, layer: Any, units: Sequence[InputUnit], moments: ColumnMoments) -> None:
        self.layer = layer
        self.units = units
        self.moments = moments

    @abstractmethod
    def add(self, X: FloatArray, flows: FloatArray) -> None:
        """Add the statistics of rows of a table.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            Rows, NaN for missing values, whose statistics are expected values.
        flows : ndarray of shape (n_units, n)
            Flow of each unit for each row, times the weight of the row.
        """

    @abstractmethod
    def estimate(self, pseudo_count: float) -> list[InputUnit]:
        """Estimate the units with new parameters.

        Parameters
        ----------
        pseudo_count : float
            Weight of the prior, in rows.

        Returns
        -------
        list of InputUnit
            One unit for each of the layer.
        """


class _FixedStatistics(InputStatistics):
    """Units that keep their parameters."""

    def add(self, X: FloatArray, flows: FloatArray) -> None:
        """Ignore the rows."""

    def estimate(self, pseudo_count: float) -> list[InputUnit]:
        """Give the units as they are."""
        return list(self.units)


class _DiscreteStatistics(InputStatistics):
    """Expected counts of the states."""

    def __init__(self, layer: Any, units: Sequence[InputUnit], moments: ColumnMoments) -> None:
        super().__init__(layer, units, moments)
        self._counts = np.zeros_like(layer.masses)

    def add(self, X: FloatArray, flows: FloatArray) -> None:
        """Count states; a missing cell counts by the unit's own masses."""
        variables = self.layer.scopes[:, 0]
        n_states = self._counts.shape[1]
        for variable in np.unique(variables):
            own = variables == variable
            cells = X[:, variable]
            indicators = (cells[:, None] == np.arange(n_states)).astype(np.float64)
            self._counts[own] += flows[own] @ indicators
            # A missing cell counts as the distribution that the unit has now
            missing = flows[own] @ np.isnan(cells)
            self._counts[own] += missing[:, None] * self.layer.masses[own]

    def estimate(self, pseudo_count: float) -> list[InputUnit]:
        """Normalise the counts; states that were impossible stay so."""
        possible = self.layer.masses > 0
        prior = pseudo_count * possible / possible.sum(axis=1, keepdims=True)
        counts = self._counts * possible + prior
        total = counts.sum(axis=1, keepdims=True)
        masses = np.where(total > 0, counts / np.where(total > 0, total, 1.0), self.layer.masses)
        return [
            _with_masses(unit, row[:size])
            for unit, row, size in zip(self.units, masses, self.layer.cardinalities)
        ]


def _with_masses(unit: InputUnit, masses: FloatArray) -> InputUnit:
    """Rebuild a discrete unit; indicators have no parameters."""
    if isinstance(unit, Bernoulli):
        return Bernoulli(unit.variable, float(masses[1]))
    if isinstance(unit, Categorical):
        return Categorical(unit.variable, masses)
    return unit


class _GaussianStatistics(InputStatistics):
    """Weights, first and second moments, in units of the column's standard deviation."""

    def __init__(self, layer: Any, units: Sequence[InputUnit], moments: ColumnMoments) -> None:
        super().__init__(layer, units, moments)
        variables = layer.scopes[:, 0]
        self._center = moments.mean[variables]
        self._scale = np.sqrt(moments.variance[variables])
        self._totals = np.zeros((3, len(layer)))

    def add(self, X: FloatArray, flows: FloatArray) -> None:
        """Add expected moments; a missing cell has those of the unit itself."""
        mean, variance = self.layer.conditional_moments(X)
        # In units of the column: sums of squares of large numbers lose the variance
        standardized = (mean[..., 0] - self._center[:, None]) / self._scale[:, None]
        square = np.square(standardized) + variance[..., 0] / np.square(self._scale)[:, None]
        self._totals[0] += flows.sum(axis=1)
        self._totals[1] += np.einsum("un,un->u", flows, standardized)
        self._totals[2] += np.einsum("un,un->u", flows, square)

    def estimate(self, pseudo_count: float) -> list[InputUnit]:
        """Match moments; the prior is the column itself: mean 0, square 1."""
        weight, first, second = self._totals
        total = weight + pseudo_count
        safe = np.where(total > 0, total, 1.0)
        mean = first / safe
        variance = (second + pseudo_count) / safe - np.square(mean)
        means = self._center + self._scale * mean
        stds = self._scale * np.sqrt(np.maximum(variance, MIN_VARIANCE))
        return [
            Gaussian(unit.scope[0], float(m), float(s)) if known else unit
            for unit, m, s, known in zip(self.units, means, stds, total > 0)
        ]


class _MultivariateGaussianStatistics(InputStatistics):
    """Weights, means and scatter matrices around the mean of the columns."""

    def __init__(self, layer: Any, units: Sequence[InputUnit], moments: ColumnMoments) -> None:
        super().__init__(layer, units, moments)
        self._center = moments.mean[list(layer.variables)]
        n_units, n_variables = layer.scopes.shape
        self._weight = np.zeros(n_units)
        self._first = np.zeros((n_units, n_variables))
        self._second = np.zeros((n_units, n_variables, n_variables))

    def add(self, X: FloatArray, flows: FloatArray) -> None:
        """Add expected moments given the observed cells of each row."""
        cells = self.layer.cells(X)
        mean, _ = self.layer.conditional_moments(X)
        mean -= self._center
        self._weight += flows.sum(axis=1)
        self._first += np.einsum("un,unv->uv", flows, mean)
        self._second += np.matmul((mean * flows[..., None]).transpose(0, 2, 1), mean)
        for block in conditional_blocks(self.layer.gaussians, cells):
            self._add_covariances(block, flows)

    def _add_covariances(self, block: Any, flows: FloatArray) -> None:
        """Add the conditional covariances of the missing cells, once per pattern."""
        group = block.group
        n_patterns = len(group.missing)
        # Conditional covariances depend on the pattern alone: rows add up their flows first
        for unit, flow in enumerate(flows[:, group.rows]):
            weight = np.bincount(group.pattern, weights=flow, minlength=n_patterns)
            own = block.covariances[:, :, unit * n_patterns : (unit + 1) * n_patterns]
            at = group.missing[:, :, None], group.missing[:, None, :]
            np.add.at(self._second[unit], at, (own * weight).transpose(2, 0, 1))

    def estimate(self, pseudo_count: float) -> list[InputUnit]:
        """Match moments; the prior has the columns' variances and no correlation."""
        variance = self.moments.variance[list(self.layer.variables)]
        total = self._weight + pseudo_count
        safe = np.where(total > 0, total, 1.0)
        mean = self._first / safe[:, None]
        covariance = self._second + pseudo_count * np.diag(variance)
        covariance = covariance / safe[:, None, None] - mean[:, :, None] * mean[:, None, :]
        covariance += MIN_VARIANCE * np.diag(variance)
        return [
            MultivariateGaussian(self.layer.variables, self._center + m, (c + c.T) / 2)
            if known
            else unit
            for unit, m, c, known in zip(self.units, mean, covariance, total > 0)
        ]


class _PoissonStatistics(InputStatistics):
    """Weights and means of counts."""

    def __init__(self, layer: Any, units: Sequence[InputUnit], moments: ColumnMoments) -> None:
        super().__init__(layer, units, moments)
        self._totals = np.zeros((2, len(layer)))

    def add(self, X: FloatArray, flows: FloatArray) -> None:
        """Add expected counts; a missing cell has the rate of the unit itself."""
        mean, _ = self.layer.conditional_moments(X)
        self._totals[0] += flows.sum(axis=1)
        self._totals[1] += np.einsum("un,un->u", flows, mean[..., 0])

    def estimate(self, pseudo_count: float) -> list[InputUnit]:
        """Match means; the prior is the mean of the column."""
        # Pseudo-rows hold the mean of the column
        prior = np.maximum(self.moments.mean[self.layer.scopes[:, 0]], 0.0)
        total = self._totals[0] + pseudo_count
        rates = (self._totals[1] + pseudo_count * prior) / np.where(total > 0, total, 1.0)
        return [
            Poisson(unit.scope[0], float(rate)) if known else unit
            for unit, rate, known in zip(self.units, rates, total > 0)
        ]


_FAMILIES: dict[type[InputLayer], type[InputStatistics]] = {}


def register_statistics(layer: type[InputLayer], statistics: type[InputStatistics]) -> None:
    """Register the statistics of a family of input units for expectation maximisation.

    Parameters
    ----------
    layer : type
        Class of the layers of the family.
    statistics : type
        The subclass of `InputStatistics` for such a layer.

    Examples
    --------
    >>> from skcircuits.circuits import Poisson
    >>> from skcircuits.learning import InputStatistics, register_statistics
    >>> class Fixed(InputStatistics):
    ...     def add(self, X, flows):
    ...         pass
    ...
    ...     def estimate(self, pseudo_count):
    ...         return list(self.units)
    >>> class OwnLayer(Poisson.layer_type):
    ...     pass
    >>> register_statistics(OwnLayer, Fixed)
    """
    _FAMILIES[layer] = statistics


register_statistics(DiscreteLayer, _DiscreteStatistics)
register_statistics(GaussianLayer, _GaussianStatistics)
register_statistics(MultivariateGaussianLayer, _MultivariateGaussianStatistics)
register_statistics(PoissonLayer, _PoissonStatistics)
# Their knots and weights are learned with the structure
register_statistics(PiecewisePolynomialLayer, _FixedStatistics)


def statistics_of_layer(
    layer: InputLayer, units: Sequence[InputUnit], moments: ColumnMoments
) -> InputStatistics:
    """Make the gatherer of a layer's family."""
    if type(layer) not in _FAMILIES:
        what = "input units whose parameters are learned"
        condition = "be of families that expectation maximisation knows"
        way_out = "Register their statistics by skcircuits.learning.register_statistics."
        raise CircuitPropertyError(
            must(what, condition, way_out, families=sorted({type(unit).__name__ for unit in units}))
        )
    return _FAMILIES[type(layer)](layer, units, moments)
