"""What a latent state says about its observed variable: categorical and Gaussian emissions.

A group holds the emissions of all variables of one family, arrays with one row per hidden
state. Messages of the tree are (n_states, n_rows); the group turns cells into likelihoods of
that shape and posteriors of that shape into statistics.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from skcircuits.circuits import Categorical, Gaussian
from skcircuits.circuits.structure.units import Sum, Unit
from skcircuits.learning.parameters._leaf_statistics import ColumnMoments
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["CategoricalEmissions", "EmissionGroup", "GaussianEmissions"]

# Least likelihood of a latent state relative to the best one: keeps every posterior defined.
_MIN_RATIO = 1e-30
_MIN_VARIANCE = 1e-4  # relative to the variance of the column


class EmissionGroup(ABC):
    """Emissions of several variables of one family.

    `variables` (m,): columns of the table.
    """

    variables: IntArray

    @abstractmethod
    def evidence(self, X: FloatArray) -> Any:
        """Prepare the group's cells of some rows for the two methods below."""

    @abstractmethod
    def likelihood(self, index: int, evidence: Any, out: FloatArray) -> FloatArray | None:
        """Write the likelihood of each latent state, up to a factor per row.

        `out` (n_states, n) -> (n,) or None.
        """

    @abstractmethod
    def empty_totals(self) -> FloatArray:
        """Statistics of no row."""

    @abstractmethod
    def add(self, totals: FloatArray, index: int, posterior: FloatArray, evidence: Any) -> None:
        """Add rows, weighted by the posterior (n_states, n) of the latent states."""

    @abstractmethod
    def maximize(self, totals: FloatArray, pseudo_count: float) -> EmissionGroup:
        """Give the emissions that fit the statistics; the prior is the plain column."""

    @abstractmethod
    def units(self, index: int) -> list[Unit]:
        """Give one input unit per latent state."""

    @abstractmethod
    def mixed_units(self, index: int, weights: FloatArray) -> list[Unit]:
        """Give the mixtures of the units with the rows of weights (n, n_states)."""


class CategoricalEmissions(EmissionGroup):
    """Emissions of categorical variables.

    Every variable has one state more than it has categories: the last one stands for a missing
    cell and has likelihood 1, so that one matrix product serves incomplete rows.

    `variables` (m,): columns of the table; `cardinalities` (m,): number of categories of each;
    `table` (n_states, n_flat): probabilities, variables side by side; `marginal` (n_flat,):
    probabilities without latent states: the prior; `dtype`: of the messages.
    """

    def __init__(
        self,
        variables: IntArray,
        cardinalities: IntArray,
        table: FloatArray,
        marginal: FloatArray,
        dtype: Any,
    ) -> None:
        self.variables = variables
        self.cardinalities = cardinalities
        self.table = table
        self.marginal = marginal
        self._rounded = table.astype(dtype)
        ends = np.cumsum(cardinalities + 1)
        self._slices = [slice(end - size - 1, end) for size, end in zip(cardinalities, ends)]
        self._missing = ends - 1
        self._owner = np.repeat(np.arange(len(variables)), cardinalities + 1)
        self._state = np.arange(ends[-1]) - np.repeat(ends - cardinalities - 1, cardinalities + 1)
        self._state[self._missing] = -1

    @classmethod
    def marginals(
        cls,
        variables: IntArray,
        cardinalities: IntArray,
        X: FloatArray,
        weight: FloatArray,
        n_states: int,
        dtype: Any,
    ) -> CategoricalEmissions:
        """Start from emissions that do not depend on the latent state.

        `variables`, `cardinalities` (m,), `X` (n, n_columns), `weight` (n,).
        """
        n_flat = int((cardinalities + 1).sum())
        blank = cls(variables, cardinalities, np.zeros((1, n_flat)), np.zeros(n_flat), dtype)
        counts = blank.evidence(X) @ weight + np.repeat(1.0 / cardinalities, cardinalities + 1)
        marginal = blank._normalized(counts[None])[0]
        table = np.tile(marginal, (n_states, 1))
        return cls(variables, cardinalities, table, marginal, dtype)

    def evidence(self, X: FloatArray) -> FloatArray:
        """Indicators of the states, shape (n_flat, n)."""
        codes = np.nan_to_num(X.T[self.variables], nan=-1.0)
        return (codes[self._owner] == self._state[:, None]).astype(self._rounded.dtype)

    def likelihood(self, index: int, evidence: FloatArray, out: FloatArray) -> None:
        """Look the probabilities up by a matrix product."""
        own = self._slices[index]
        np.matmul(self._rounded[:, own], evidence[own], out=out)

    def empty_totals(self) -> FloatArray:
        """Counts of no row, shape (n_states, n_flat)."""
        return np.zeros_like(self.table)

    def add(
        self, totals: FloatArray, index: int, posterior: FloatArray, evidence: FloatArray
    ) -> None:
        """Count states; missing cells are counted apart."""
        own = self._slices[index]
        totals[:, own] += posterior @ evidence[own].T

    def maximize(self, totals: FloatArray, pseudo_count: float) -> CategoricalEmissions:
        """Normalise counts; a missing cell counts by the present probabilities."""
        missing = totals[:, self._missing[self._owner]]
        counts = totals + missing * self.table + pseudo_count * self.marginal
        table = self._normalized(counts)
        return CategoricalEmissions(
            self.variables, self.cardinalities, table, self.marginal, self._rounded.dtype
        )

    def _normalized(self, counts: FloatArray) -> FloatArray:
        """Divide by the sum over each variable's categories."""
        counts = counts.astype(np.float64)
        counts[:, self._missing] = 0.0
        starts = self._missing - self.cardinalities
        counts /= np.add.reduceat(counts, starts, axis=1)[:, self._owner]
        counts[:, self._missing] = 1.0
        return counts

    def units(self, index: int) -> list[Unit]:
        """Give one categorical unit per latent state."""
        masses = self.table[:, self._slices[index]][:, :-1]
        return [Categorical(int(self.variables[index]), row) for row in masses]

    def mixed_units(self, index: int, weights: FloatArray) -> list[Unit]:
        """Give mixtures: a mixture of categorical units is a categorical unit."""
        masses = weights @ self.table[:, self._slices[index]][:, :-1]
        masses /= masses.sum(axis=1, keepdims=True)
        return [Categorical(int(self.variables[index]), row) for row in masses]


class GaussianEmissions(EmissionGroup):
    """Emissions of continuous variables, in standard units of their columns.

    `variables` (m,): columns of the table; `moments`: mean and variance of all columns; `means`,
    `variances` (n_states, m): of the standardised columns.
    """

    def __init__(
        self,
        variables: IntArray,
        moments: ColumnMoments,
        means: FloatArray,
        variances: FloatArray,
    ) -> None:
        self.variables = variables
        self.moments = moments
        self.means = means
        self.variances = variances
        self._center = moments.mean[variables]
        self._scale = np.sqrt(moments.variance[variables])

    @classmethod
    def marginals(
        cls, variables: IntArray, X: FloatArray, weight: FloatArray, n_states: int
    ) -> GaussianEmissions:
        """Start from emissions that do not depend on the latent state.

        `variables` (m,), `X` (n, n_columns), `weight` (n,).
        """
        shape = n_states, len(variables)
        return cls(variables, ColumnMoments.of(X, weight), np.zeros(shape), np.ones(shape))

    def evidence(self, X: FloatArray) -> FloatArray:
        """Standardised cells, shape (m, n)."""
        return (X.T[self.variables] - self._center[:, None]) / self._scale[:, None]

    def likelihood(self, index: int, evidence: FloatArray, out: FloatArray) -> FloatArray:
        """Evaluate densities relative to the best latent state of each row."""
        cells = evidence[index]
        variance = self.variances[:, index, None]
        log_density = np.square(cells - self.means[:, index, None]) / variance
        log_density = -0.5 * (log_density + np.log(2 * np.pi * variance))
        log_density[:, np.isnan(cells)] = 0.0
        best = log_density.max(axis=0)
        np.maximum(np.exp(log_density - best), _MIN_RATIO, out=out)
        # In the units of the column, where the cell is observed.
        return best - np.where(np.isnan(cells), 0.0, np.log(self._scale[index]))

    def empty_totals(self) -> FloatArray:
        """Weight, missing weight, first and second moments, shape (4, n_states, m)."""
        return np.zeros((4, *self.means.shape))

    def add(
        self, totals: FloatArray, index: int, posterior: FloatArray, evidence: FloatArray
    ) -> None:
        """Add weights and moments of the observed cells; count missing ones apart."""
        cells = evidence[index]
        missing = np.isnan(cells)
        filled = np.where(missing, 0.0, cells)
        columns = np.stack([~missing, missing, filled, np.square(filled)]).astype(float)
        totals[:, :, index] += columns @ posterior.T

    def maximize(self, totals: FloatArray, pseudo_count: float) -> GaussianEmissions:
        """Match moments; a missing cell has the present ones."""
        seen, missing, first, second = totals
        total = seen + missing + pseudo_count
        safe = np.where(total > 0, total, 1.0)
        means = (first + missing * self.means) / safe
        squares = second + missing * (self.variances + np.square(self.means)) + pseudo_count
        variances = np.maximum(squares / safe - np.square(means), _MIN_VARIANCE)
        return GaussianEmissions(self.variables, self.moments, means, variances)

    def units(self, index: int) -> list[Unit]:
        """Give one Gaussian unit per latent state, in original units."""
        means = self._center[index] + self._scale[index] * self.means[:, index]
        stds = self._scale[index] * np.sqrt(self.variances[:, index])
        variable = int(self.variables[index])
        return [Gaussian(variable, float(m), float(s)) for m, s in zip(means, stds)]

    def mixed_units(self, index: int, weights: FloatArray) -> list[Unit]:
        """Give mixtures of the Gaussian units."""
        units = self.units(index)
        return [Sum(units, weights=row) for row in weights]
