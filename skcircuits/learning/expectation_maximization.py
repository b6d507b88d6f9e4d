"""Expectation maximisation of the parameters of any circuit, by flows.

The flow of an edge is the probability that a row uses it, given the row's observed cells.
Summed over rows, the flows of the edges of a sum are the expected counts of its weights. In
a deterministic circuit complete rows use exactly one edge of each sum they reach, whatever
the weights: one step gives the closed-form maximum. Mixtures of fixed densities, which need not be
circuits, have weights alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np

from skcircuits.circuits import Circuit, is_decomposable, is_smooth
from skcircuits.circuits.engine._layers import SumLayer, SumWeights
from skcircuits.circuits.engine._passes import backward, log_values
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import InputLayer, InputUnit
from skcircuits.circuits.structure.units import Unit, rebuild
from skcircuits.exceptions import (
    CircuitPropertyError,
    must,
    require,
    require_count,
    require_non_negative,
)
from skcircuits.learning.input_statistics import (
    ColumnMoments,
    InputStatistics,
    statistics_of_layer,
)
from skcircuits.numerics._arrays import float_array
from skcircuits.protocols import FloatArray


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
        flows = backward(plan, values, root_flow=weight)
        for layer in plan.sum_layers:
            self.counts[layer.edges] += layer.edge_counts(flows, values, plan.weights)
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
            raise ValueError(must("rows to learn from", condition, way_out, n_possible_rows=0))
        # The expected log likelihood of explanations is a sum over sums and input units: each of
        # them is maximised on its own
        leaves = [statistics.estimate(pseudo_count) for _, _, statistics in self.leaves]
        inputs = tuple(
            (units, type(layer).stack(family))
            for (units, layer, _), family in zip(self.leaves, leaves)
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
        raise ValueError(must("X", condition, shape=rows.shape))
    return rows


def _checked_weight(sample_weight: Any, n_rows: int) -> FloatArray:
    """Row weights as floats, ones without."""
    if sample_weight is None:
        return np.ones(n_rows)
    # A copy: the generator goes on using it
    weight = float_array(sample_weight, "sample_weight").copy()
    if weight.shape != (n_rows,) or not (np.isfinite(weight).all() and (weight >= 0).all()):
        condition = f"hold {n_rows} finite non-negative numbers, one per row"
        raise ValueError(must("sample_weight", condition, shape=weight.shape))
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
