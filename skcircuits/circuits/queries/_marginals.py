"""Densities, scores, means, variances and marginals of incomplete rows by one pass up and down.

A density takes one feedforward pass. In a smooth and decomposable circuit, every induced tree
contains exactly one input unit per variable, so that every conditional expectation is a sum over
input units of the flow times the conditional expectation of the unit. By the chain rule the score
is such a sum, too: the derivative of the log density by the log value of a unit is its flow. Flows
are ratios of values of similar size and are accurate however small the density is. A conditioned or
marginalised circuit is rebuilt from the same values, with the posterior weights of its sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from skcircuits.circuits._policy import MANY_ROWS, MIN_TABLE_EDGES
from skcircuits.circuits.engine._passes import (
    Evidence,
    backward,
    given,
    input_flows,
    linear_values,
    log_values,
)
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._transformations import lower, tabulated
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.inputs.base import (
    DifferentiableLayer,
    DiscreteInputLayer,
    NumericalLayer,
    StateFlows,
    per_column,
)
from skcircuits.circuits.structure.units import (
    MAX_LOG_WEIGHT,
    ZERO,
    Product,
    Scaled,
    Sum,
    Unit,
    log_weighted_sum,
    scale_unit,
    scaled_product,
)
from skcircuits.exceptions import CircuitPropertyError, ZeroProbabilityError, must
from skcircuits.numerics._arrays import safe_log
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray

# Terms of a conditional distribution that weigh less, on the log scale, are left out.
MIN_LOG_POSTERIOR = -1e4
# Smaller (subnormal) weights have fewer digits.
MIN_WEIGHT = float(np.finfo(np.float64).tiny)
_ZERO_CIRCUIT = must("the circuit", "be positive somewhere", "It is zero for all values.")


def log_probability(plan: Plan, X: FloatArray) -> FloatArray:
    """Log density of each row, shape (n,), NaN cells marginalised; -inf where impossible."""
    if len(X) >= MANY_ROWS:
        # Whether tables pay off depends on the edges that they replace, not only on the rows
        tabulate = len(X) * plan.n_edges >= MIN_TABLE_EDGES * plan.n_units
        lowered = plan.remember(("lowered", tabulate), lambda: lower(plan, tabulate=tabulate))
        if lowered is not None:
            # On the linear scale; rows that may have underflown once more in log space
            result, exact = np.empty(len(X)), np.empty(len(X), dtype=bool)
            for rows in memory_bound_chunks(
                len(X), lowered.bytes_per_row, at_most=lowered.batch_rows
            ):
                result[rows], exact[rows] = lowered.log_values(X[rows])
            if not exact.all():
                result[~exact] = _log_probability(plan, X[~exact])
            return result
    return _log_probability(plan, X)


def log_partition(plan: Plan) -> float:
    """Log of the integral (sum) over all rows: 0 for a normalised circuit."""
    return float(_log_probability(plan, np.full((1, plan.n_columns), np.nan))[0])


def _log_probability(plan: Plan, X: FloatArray) -> FloatArray:
    """Evaluate in log space, batch by batch."""
    result = np.empty(len(X))
    for rows in plan.batches(len(X)):
        result[rows] = log_values(plan, X[rows])[plan.root]
    return result


def require_gradients(plan: Plan) -> None:
    """Refuse circuits whose log density is not differentiable, naming the families."""
    others = [units for units, layer in plan.inputs if not isinstance(layer, DifferentiableLayer)]
    if others:
        families = {type(unit).__name__ for units in others for unit in plan.units[units]}
        raise CircuitPropertyError(
            must(
                "input units of a circuit",
                "be normally distributed for a gradient of the log density",
                "Remove the variables of other units by condition() or marginalize(); "
                "GaussianMixtureDensity learns numerical tables with such units.",
                input_units=sorted(families),
            )
        )


def log_density_gradient(plan: Plan, X: FloatArray) -> FloatArray:
    """Gradient (n, n_columns) of the log density, NaN where cells are missing or it is ``-inf``."""
    result = np.empty(X.shape)
    for rows in plan.batches(len(X), n_buffers=2):
        result[rows] = _gradient(plan, X[rows]).T
    result[np.isnan(X)] = np.nan
    return result


def _gradient(plan: Plan, X: FloatArray) -> FloatArray:
    """Gradient of some rows, shape (n_columns, n); 0 where X is NaN."""
    values = log_values(plan, X)
    flows = backward(plan, values)
    score = np.zeros(X.shape).T
    for units, layer in plan.inputs:
        assert isinstance(layer, DifferentiableLayer)
        layer.add_score(score, flows[units], X)
    # A zero gradient would look like a stationary point.
    score[:, np.isneginf(values[plan.root])] = np.nan
    return score


def conditional_mean(plan: Plan, X: FloatArray) -> FloatArray:
    """Fill NaN cells of rows (n, n_columns) with E[x_j | observed cells]; other columns stay."""
    result = X.copy()
    for batch in _batches(plan, X):
        result[batch.rows] = batch.means()
    return result


def conditional_variance(plan: Plan, X: FloatArray) -> FloatArray:
    """Var[x_j | observed cells] of all cells (n, n_columns), 0 where observed; NaN: no variable."""
    result = np.where(np.isnan(X), np.nan, 0.0)
    for batch in _batches(plan, X):
        mean = batch.means().T
        total = np.zeros(mean.shape)
        # Law of total variance around the known mean, without cancellation.
        for variable, unknown, fractions in batch.states:
            distance = np.arange(len(fractions))[:, None] - mean[variable, unknown]
            total[variable, unknown] += (fractions * distance**2).sum(axis=0)
        for units, layer in batch.numerical():
            own_mean, own_variance = layer.conditional_moments(batch.X)
            spread = own_variance + (own_mean - mean[layer.scopes].transpose(0, 2, 1)) ** 2
            total += per_column(layer.scopes, batch.flows[units][..., None] * spread, len(total))
        unknown = np.isnan(batch.X)
        unknown[:, plan.other_columns(X.shape[1])] = False
        result[batch.rows] = np.where(unknown, total.T, result[batch.rows])
    return result


def conditional_marginals(plan: Plan, X: FloatArray) -> dict[int, FloatArray]:
    """Distributions (n, n_states) of all discrete variables given the observed cells of rows."""
    tables = _no_marginals(plan, len(X))
    for batch in _batches(plan, X, has_means=False):
        batch.add_marginals(tables)
    return _with_observed(tables, X)


def conditional_mean_and_marginals(
    plan: Plan, X: FloatArray
) -> tuple[FloatArray, dict[int, FloatArray]]:
    """`conditional_mean` and `conditional_marginals` of rows (n, n_columns), from one pass."""
    means, tables = X.copy(), _no_marginals(plan, len(X))
    for batch in _batches(plan, X):
        means[batch.rows] = batch.means()
        batch.add_marginals(tables)
    return means, _with_observed(tables, X)


def _no_marginals(plan: Plan, n_rows: int) -> dict[int, FloatArray]:
    """Tables of zeros (n, n_states), one per discrete variable."""
    return {variable: np.zeros((n_rows, n)) for variable, n in plan.cardinalities.items()}


def _with_observed(tables: dict[int, FloatArray], X: FloatArray) -> dict[int, FloatArray]:
    """Put all mass on the observed states."""
    for variable, table in tables.items():
        cells = X[:, variable]
        observed = np.flatnonzero(~np.isnan(cells))
        table[observed] = 0.0
        table[observed, cells[observed].astype(np.intp)] = 1.0
    return tables


def require_possible(plan: Plan, log_probabilities: FloatArray, first_row: int = 0) -> None:
    """Raise ``ZeroProbabilityError`` for rows, from ``first_row`` on, of log probability -inf."""
    impossible = np.flatnonzero(np.isneginf(log_probabilities)) + first_row
    if len(impossible) == 0:
        return
    if np.isneginf(log_partition(plan)):
        raise ZeroProbabilityError(_ZERO_CIRCUIT)
    shown = ", ".join(map(str, impossible[:10])) + (", ..." if len(impossible) > 10 else "")
    raise ZeroProbabilityError(
        f"The observed cells of {len(impossible)} row(s) have probability zero under the "
        f"circuit: rows {shown}. Set their impossible cells to NaN or use a circuit with "
        "positive probabilities (smoothing).",
        impossible.tolist(),
    )


class _Batch(NamedTuple):
    """Some rows with the flows of all input units, for the distributions of missing states."""

    plan: Plan
    rows: slice
    X: FloatArray
    flows: FloatArray
    states: list[StateFlows]
    evidence: Evidence

    def numerical(self) -> list[tuple[slice, NumericalLayer]]:
        """Give the layers of units over numbers."""
        inputs = self.plan.inputs
        return [(units, layer) for units, layer in inputs if isinstance(layer, NumericalLayer)]

    def means(self) -> FloatArray:
        """Conditional mean of each cell; cells of other columns are returned as they are."""
        total = np.zeros(self.X.shape).T
        for variable, unknown, fractions in self.states:
            total[variable, unknown] += np.arange(len(fractions)) @ fractions
        for units, layer in self.numerical():
            self.evidence[layer].add_means(total, self.flows[units])
        result = np.where(np.isnan(self.X), total.T, self.X)
        outside = self.plan.other_columns(self.X.shape[1])
        result[:, outside] = self.X[:, outside]
        return result

    def add_marginals(self, tables: dict[int, FloatArray]) -> None:
        """Add the conditional probabilities of missing states to the tables of all rows."""
        for variable, unknown, fractions in self.states:
            tables[variable][self.rows.start + unknown, : len(fractions)] += fractions.T


def _batches(plan: Plan, X: FloatArray, *, has_means: bool = True) -> Iterator[_Batch]:
    """Flows and, for means, evidence of each batch; impossible rows raise an error."""
    plan = tabulated(plan) if len(X) >= MANY_ROWS else plan
    for rows in plan.batches(len(X), n_buffers=3):
        block = X[rows]
        evidence = given(plan, block) if has_means else {}
        linear = linear_values(plan, block, evidence)
        if linear is not None:
            flows = input_flows(plan, linear)
        else:
            values = log_values(plan, block, evidence)
            require_possible(plan, values[plan.root], rows.start)
            flows = backward(plan, values)
        states = [
            part
            for units, layer in plan.inputs
            if isinstance(layer, DiscreteInputLayer)
            for part in layer.state_flows(flows[units], block)
        ]
        yield _Batch(plan, rows, block, flows, states, evidence)


def condition(plan: Plan, x: FloatArray) -> Unit | None:
    """Build the circuit of the missing variables; the probability of the observed cells goes into
    the sum weights, θ_c p_c(x_o) / p_n(x_o), so that the result is normalised.
    """
    values = log_values(plan, x[None])
    require_possible(plan, values[plan.root])
    weights: dict[int, _Weights] = {}
    for layer in plan.sum_layers:
        log_weights = layer.log_posteriors(values, plan.weights)[:, 0]
        log_weights[log_weights < MIN_LOG_POSTERIOR] = -np.inf
        both = np.exp(log_weights), log_weights
        own = map(_Weights, *(np.split(each, layer.starts[1:]) for each in both))
        weights.update(zip(range(layer.units.start, layer.units.stop), own))
    return prune(plan, lambda leaf: leaf.condition(x), weights.__getitem__)


def marginalize(plan: Plan, variables: frozenset[int]) -> Unit | None:
    """Build the circuit without some variables."""

    def weights_of(position: int) -> _Weights:
        unit = plan.units[position]
        assert isinstance(unit, Sum)
        return _Weights(unit.weights, safe_log(unit.weights))

    return prune(plan, lambda leaf: leaf.marginalize(variables), weights_of)


class _Weights(NamedTuple):
    """Weights of a sum and their logarithms, which have a larger range."""

    linear: FloatArray
    log: FloatArray


def prune(
    plan: Plan,
    leaf_of: Callable[[InputUnit], InputUnit | None],
    weights_of: Callable[[int], _Weights],
) -> Unit | None:
    """Rebuild a circuit with other leaves and weights; constants are removed."""
    # Children come before parents in a plan, so that one sweep rebuilds everything.
    built: list[Scaled] = []
    position_of = plan.position
    for position, unit in enumerate(plan.units):
        children = [built[position_of[id(child)]] for child in unit.children]
        if isinstance(unit, Sum):
            built.append(_remaining_sum(children, weights_of(position)))
        elif isinstance(unit, Product):
            built.append(scaled_product(children))
        else:
            assert isinstance(unit, InputUnit)
            built.append(Scaled(leaf_of(unit)))
    root = built[-1]
    if np.isneginf(root.log_factor):
        raise ZeroProbabilityError(_ZERO_CIRCUIT)
    return None if root.unit is None else scale_unit(root.unit, root.log_factor)


def _remaining_sum(children: list[Scaled], weights: _Weights) -> Scaled:
    """Sum of the remaining children; all children of a smooth sum vanish together."""
    log_factors = np.array([child.log_factor for child in children])
    log_weights = weights.log + log_factors
    if all(child.unit is None for child in children):
        return Scaled(None, float(np.logaddexp.reduce(log_weights)))
    kept = (log_weights > -np.inf).nonzero()[0]
    units = [unit for i in kept if (unit := children[i].unit) is not None]
    if not units:
        return ZERO
    log_scale = 0.0
    if log_factors[kept].any() or weights.linear[kept].min() < MIN_WEIGHT:
        peak = float(log_weights[kept].max())
        log_scale = peak if abs(peak) > MAX_LOG_WEIGHT else 0.0
        mixture = log_weighted_sum(units, log_weights[kept] - log_scale)
    else:
        # Weights that absorb no constant are kept without rounding.
        mixture = Sum(units, weights=weights.linear[kept])
    # A sum with one child of weight one is replaced by the child.
    is_identity = len(units) == 1 and mixture.weights[0] == 1.0
    return Scaled(mixture.children[0] if is_identity else mixture, log_scale)
