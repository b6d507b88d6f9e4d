"""Expectation maximisation of the parameters of any circuit, by flows and expected statistics.

The flow of an edge is the probability that a row uses it, given the row's observed cells.
Summed over rows, the flows of the edges of a sum are the expected counts of its weights. In
a deterministic circuit complete rows use exactly one edge of each sum they reach, whatever
the weights: one step gives the closed-form maximum. Mixtures of fixed densities, which need not be
circuits, have weights alone.

Each family of input units has a class of sufficient statistics. It accumulates those of an input
layer over batches, with each row weighted by the flow that reaches the unit, and turns the totals
into new units, whose parameters maximise the likelihood.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from operator import is_
from typing import Any

import numpy as np

from skcircuits.circuits import Circuit, is_decomposable, is_smooth
from skcircuits.circuits.engine._layers import SumLayer, SumWeights
from skcircuits.circuits.engine._passes import backward, log_values
from skcircuits.circuits.engine._plan import Plan
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
from skcircuits.circuits.structure.units import Unit, rebuild
from skcircuits.exceptions import (
    CircuitPropertyError,
    invalid,
    must,
    require,
    require_count,
    require_non_negative,
)
from skcircuits.numerics._arrays import as_run, float_array
from skcircuits.numerics._gaussian_stack import conditional_blocks, conditional_mean
from skcircuits.protocols import FloatArray

_BLOCK_ROWS = 1 << 16  # rows whose moments are taken at once

# Smallest variance of a unit relative to that of its column: none collapses to one value.
MIN_VARIANCE = 1e-6


def fit_parameters(
    circuit: Circuit,
    X: Any,
    sample_weight: Any = None,
    *,
    pseudo_count: float = 1.0,
    max_iter: int = 100,
    tol: float = 1e-6,
) -> Circuit:
    """Learn the weights and input distributions of a circuit from rows.

    Parameters
    ----------
    circuit : Circuit
        A smooth and decomposable circuit. Its structure does not change, zero weights remain zero,
        and shared units remain shared. Its parameters are the initial values; equal components of a
        sum would remain equal.
    X : array-like of shape (n, n_columns)
        Rows; NaN cells are marginalised (their statistics are expected values).
    sample_weight : array-like of shape (n,), default=None
        Weight of each row; 1 by default.
    pseudo_count : float, default=1.0
        Total weight of the prior at each sum unit (distributed evenly over its edges) and at each
        input unit (uniform states; mean and variance of the column).
    max_iter : int, default=100
        Maximum number of iterations.
    tol : float, default=1e-6
        Iterations stop when the mean log density improves by less than this value.

    Returns
    -------
    Circuit
        A normalised circuit with the same structure and new parameters.

    Raises
    ------
    CircuitPropertyError
        If the circuit is not smooth and decomposable.
    ValueError
        If every row has probability zero under the circuit, or if X or `sample_weight` have a wrong
        shape.

    Examples
    --------
    >>> from skcircuits.circuits import Categorical, Circuit, Indicator
    >>> from skcircuits.learning import fit_parameters
    >>> p = Circuit(0.5 * Indicator(0, 0, 2) * Categorical(1, [0.5, 0.5])
    ...             + 0.5 * Indicator(0, 1, 2) * Categorical(1, [0.5, 0.5]))
    >>> q = fit_parameters(p, [[0, 0], [1, 0], [1, 1], [1, 1]], pseudo_count=0)
    >>> q.root.weights
    array([0.25, 0.75])
    """
    require("plan", "a circuit", circuit=circuit)
    if not isinstance(tol, Real):
        raise TypeError(must("tol", "be a number", tol=tol))
    require_count(1, max_iter=max_iter)
    previous = -np.inf
    steps = expectation_maximization(circuit, X, sample_weight, pseudo_count=pseudo_count)
    for n_steps, step in enumerate(steps, start=1):
        # The density is that before the step, so that the last step is taken in any case
        if n_steps >= max_iter or step.log_density - previous < tol:
            break
        previous = step.log_density
    return step.circuit


def expectation_maximization(
    circuit: Circuit, X: Any, sample_weight: Any = None, *, pseudo_count: float = 1.0
) -> Iterator[EMStep]:
    """Iterate expectation maximisation without end.

    Parameters
    ----------
    circuit : Circuit
        The initial circuit.
    X : array-like of shape (n, n_columns)
        Rows, NaN for missing cells.
    sample_weight : array-like of shape (n,), default=None
        Weight of each row; 1 by default.
    pseudo_count : float, default=1.0
        Total weight of the prior at each sum and input unit.

    Yields
    ------
    EMStep
        New parameters and the mean log density under the previous parameters.

    Examples
    --------
    The rows become more likely with each step:

    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.learning import expectation_maximization
    >>> start = Circuit(0.5 * (Bernoulli(0, 0.4) * Bernoulli(1, 0.4))
    ...                 + 0.5 * (Bernoulli(0, 0.6) * Bernoulli(1, 0.6)))
    >>> rows = [[0, 0], [0, 0], [1, 1], [1, float("nan")]]
    >>> steps = expectation_maximization(start, rows, pseudo_count=0.1)
    >>> [round(step.log_density, 2) for step, _ in zip(steps, range(4))]
    [-1.18, -1.1, -1.02, -0.92]
    """
    require_non_negative(pseudo_count=pseudo_count)
    plan = circuit.plan
    rows = _checked_rows(X, plan.n_columns)
    weight = _checked_weight(sample_weight, len(rows))
    _check_structure(circuit)
    leaves = [
        [unit for unit in plan.units[units] if isinstance(unit, InputUnit)]
        for units, _ in plan.inputs
    ]
    # Priors of input units are those of the columns, the same in every iteration
    moments = ColumnMoments.of(rows, weight)
    while True:
        totals = _Totals(plan, leaves, moments)
        for batch in plan.batches(len(rows), n_buffers=3):
            totals.add(rows[batch], weight[batch])
        plan, leaves = totals.maximize(float(pseudo_count))
        yield EMStep(plan, leaves, totals.mean_log_density())


@dataclass(frozen=True)
class EMStep:
    """Parameters after a step.

    Parameters
    ----------
    plan : Plan
        The structure with new weights and input layers; its symbolic units are those of the initial
        circuit.
    leaves : list of list of InputUnit
        The input units of each input layer, with new parameters.
    log_density : float
        Weighted mean log density of the rows under the parameters *before* the step, over
        the rows that are possible.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.learning import expectation_maximization
    >>> start = Circuit(Bernoulli(0, 0.5))
    >>> step = next(expectation_maximization(start, [[0], [0], [0], [1]], pseudo_count=0))
    >>> np.exp(step.circuit.log_prob([[0], [1]])).round(2)  # after the step
    array([0.75, 0.25])
    >>> round(step.log_density, 2)  # before
    -0.69
    """

    plan: Plan
    leaves: list[list[InputUnit]]
    log_density: float

    @cached_property
    def circuit(self) -> Circuit:
        """The circuit with the new parameters."""
        units = self.plan.units
        leaves: dict[int, Unit] = {}
        for (own, _), family in zip(self.plan.inputs, self.leaves):
            leaves.update(zip(map(id, units[own]), family))
        weights: dict[int, FloatArray] = {}
        for layer in self.plan.sum_layers:
            pieces = np.split(self.plan.weights.linear[layer.edges], layer.starts[1:])
            weights.update(zip(map(id, units[layer.units]), pieces))
        root = rebuild(units[-1], lambda leaf: leaves[id(leaf)], lambda unit: weights[id(unit)])
        return Circuit(root)


class _Totals:
    """Expected counts of all edges and statistics of all input units."""

    def __init__(self, plan: Plan, leaves: list[list[InputUnit]], moments: ColumnMoments) -> None:
        self.plan = plan
        self.counts = np.zeros_like(plan.weights.log)
        self.leaves: list[tuple[slice, InputLayer, InputStatistics]] = [
            (units, layer, statistics_of_layer(layer, family, moments))
            for (units, layer), family in zip(plan.inputs, leaves)
        ]
        self._log_density = 0.0
        self._weight = 0.0

    def add(self, X: FloatArray, weight: FloatArray) -> None:
        """Add the flows of a batch of rows."""
        plan = self.plan
        values = log_values(plan, X)
        flows = backward(plan, values, root_flow=weight, counts=self.counts)
        for units, _, statistics in self.leaves:
            statistics.add(X, flows[units])
        # Impossible rows have no explanation to learn from, and an infinite loss
        possible = ~np.isneginf(values[plan.root])
        self._log_density += float(weight[possible] @ values[plan.root][possible])
        self._weight += float(weight[possible].sum())

    def mean_log_density(self) -> float:
        """Mean log density of the rows that are possible."""
        return self._log_density / self._weight

    def maximize(self, pseudo_count: float) -> tuple[Plan, list[list[InputUnit]]]:
        """Turn the totals into a plan with new parameters."""
        if self._weight == 0:
            condition = "be possible under the circuit"
            way_out = "Start from positive weights and masses, or use rows of positive weight."
            raise invalid("rows to learn from", condition, way_out, n_possible_rows=0)
        # The expected log likelihood of explanations is a sum over sums and input units: each of
        # them is maximised on its own
        leaves = [statistics.estimate(pseudo_count) for _, _, statistics in self.leaves]
        inputs = tuple(
            # Input units that keep their parameters keep their layer
            (units, layer if all(map(is_, family, own.units)) else type(layer).stack(family))
            for (units, layer, own), family in zip(self.leaves, leaves)
        )
        log_weights = self.plan.weights.log.copy()
        for layer in self.plan.sum_layers:
            log_weights[layer.edges] = self._log_fractions(layer, pseudo_count)
        return replace(self.plan, inputs=inputs, weights=SumWeights(log_weights)), leaves

    def _log_fractions(self, layer: SumLayer, pseudo_count: float) -> FloatArray:
        """Log weights of a layer; a sum without flow keeps its weights, normalised."""
        old = self.plan.weights.linear[layer.edges]
        # Edges of weight zero are structure, which no prior brings to life
        positive = old > 0
        n_positive = np.add.reduceat(positive, layer.starts, dtype=np.int64)
        prior = positive * np.repeat(pseudo_count / np.maximum(n_positive, 1), layer.lengths)
        counts = self.counts[layer.edges] + prior
        # Without a prior these would be 0 / 0
        unreached = np.repeat(np.add.reduceat(counts, layer.starts) == 0, layer.lengths)
        counts[unreached] = old[unreached]
        total = np.repeat(np.add.reduceat(counts, layer.starts), layer.lengths)
        with np.errstate(divide="ignore", invalid="ignore"):
            # A sum whose weights are all zero stays as it is.
            return np.where(total > 0, np.log(counts) - np.log(total), -np.inf)


def _check_structure(circuit: Circuit) -> None:
    """Flows are probabilities in smooth and decomposable circuits only."""
    if not (is_smooth(circuit) and is_decomposable(circuit)):
        condition = "be smooth and decomposable for learning its parameters"
        way_out = (
            "Give all children of a sum the same scope and all factors of a product disjoint ones."
        )
        raise CircuitPropertyError(must("a circuit", condition, way_out))


def _checked_rows(X: Any, n_columns: int) -> FloatArray:
    """Rows as floats, with a column for each variable."""
    # A copy: iterations read it long after the call
    rows = np.atleast_2d(float_array(X, "X").copy())
    if rows.ndim != 2 or rows.shape[1] < n_columns:
        condition = f"be a table with at least {n_columns} columns, as variables are column numbers"
        raise invalid("X", condition, shape=rows.shape)
    return rows


def _checked_weight(sample_weight: Any, n_rows: int) -> FloatArray:
    """Row weights as floats, ones without."""
    if sample_weight is None:
        return np.ones(n_rows)
    # A copy: the generator goes on using it
    weight = float_array(sample_weight, "sample_weight").copy()
    if weight.shape != (n_rows,) or not (np.isfinite(weight).all() and (weight >= 0).all()):
        condition = f"hold {n_rows} finite non-negative numbers, one per row"
        raise invalid("sample_weight", condition, shape=weight.shape)
    return weight


_GAP = 1e-8  # from the largest mean log likelihood, in nats
_MAX_STEPS = 10_000


def likeliest_weights(
    log_prob: np.ndarray, sample_weight: np.ndarray, prior: float = 0.0
) -> np.ndarray:
    """Weights (K,) of the mixture of K densities under which some rows are likeliest.

    Expectation maximisation of a concave function. At any weights, the logarithm of the largest
    mean ratio of a density to the mixture bounds what is left to gain (Cover, 1984, "An Algorithm
    for Maximizing Expected Log Investment Return"). Rows that are impossible under all densities
    do not depend on the weights, and are left out.

    `log_prob` (n, K): log densities of the rows; `sample_weight` (n,): weights of the rows;
    `prior`: rows of a Dirichlet prior, each of which comes from all densities equally.
    """
    weights = np.full(log_prob.shape[1], 1.0 / log_prob.shape[1])
    largest = log_prob.max(axis=1)
    possible = np.isfinite(largest)
    if not possible.any():
        return weights
    relative = np.exp(log_prob[possible] - largest[possible, None])
    total = sample_weight[possible].sum() + prior
    fractions, pseudo = sample_weight[possible] / total, prior / total / len(weights)
    for _ in range(_MAX_STEPS):
        ratios = (fractions / (relative @ weights)) @ relative
        if pseudo:
            ratios += pseudo / weights
        if np.log(ratios.max()) <= _GAP:
            break
        weights = weights * ratios
    return weights / weights.sum()


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
        for variable, units, n_states in self.layer.units_by_column:
            cells, own = X[:, variable], as_run(units)
            # The last indicator is that of missing cells
            codes = np.where(np.isnan(cells), n_states, cells)
            indicators = (codes[:, None] == np.arange(n_states + 1)).astype(np.float64)
            found = flows[own] @ indicators
            # A missing cell counts as the distribution that the unit has now
            found[:, :-1] += found[:, -1:] * self.layer.masses[own, :n_states]
            self._counts[own, :n_states] += found[:, :-1]

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
        mean = conditional_mean(self.layer.gaussians, cells) - self._center
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
