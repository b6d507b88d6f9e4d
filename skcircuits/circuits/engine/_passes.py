"""Passes over the layers of a plan: feedforward, backward, and traces.

A query chooses input values, and runs one feedforward pass and perhaps one backward pass or a
trace. A trace follows one induced tree per row from the root down: one child of each sum and all
children of each product. Its elements are pairs (unit, row); in a decomposable circuit a unit
occurs at most once per row.

The linear scale needs no logarithms. It is exact if all values are at most one: underflow anywhere
changes the value of the root by less than a denormal number per edge, so that a row whose root
value is well above that is correct. The other rows are evaluated on the log scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from skcircuits.circuits.engine._layers import ProductLayer, SumLayer, SumWeights
from skcircuits.circuits.engine._plan import Plan, remembered
from skcircuits.circuits.inputs import InputLayer, NumericalLayer
from skcircuits.circuits.inputs.base import Conditionals
from skcircuits.circuits.structure.units import Scope
from skcircuits.protocols import FloatArray, IntArray

Move = Literal["log", "max", "linear"]

# Underflow below a root value of this size is beyond the sixteenth digit by far.
MIN_ROOT = 1e-280


def run_steps(
    steps: Iterable[Any],
    values: FloatArray,
    move: Move,
    weights: SumWeights,
    write: Callable[[Any, FloatArray], None] | None = None,
) -> None:
    """Carry out steps in order: inner layers make their move, ``write`` fills in input steps."""
    name = f"forward_{move}"
    for step in steps:
        # Input steps have no moves: their values are chosen by the query.
        forward = getattr(step, name, None)
        if forward is not None:
            forward(values, weights)
        else:
            assert write is not None
            write(step, values[step.units])


def input_buffer(
    plan: Plan, values_of: Callable[[InputLayer], FloatArray], batch: tuple[int, ...]
) -> FloatArray:
    """Buffer of all units (n_units, *batch), with input values that ``values_of(layer)`` gives."""
    values = np.empty((plan.n_units, *batch))
    for units, layer in plan.inputs:
        values[units] = values_of(layer)
    return values


def feedforward(
    plan: Plan, values: FloatArray, move: Move = "log", weights: SumWeights | None = None
) -> FloatArray:
    """Evaluate all inner units in place, children before parents, by sums in log space, maxima in
    log space or plain signed numbers; ``weights`` may replace the plan's own or be a batch.
    """
    run_steps(plan.layers, values, move, plan.weights if weights is None else weights)
    return values


Evidence = Mapping[InputLayer, Conditionals]


class LogDensities(Protocol):
    """Log densities of the units of a layer at some rows."""

    def log_prob(self) -> FloatArray:
        """Shape (n_units, n)."""


def given(plan: Plan, X: FloatArray) -> Evidence:
    """Values of the numerical layers at rows, for a forward pass and conditional means after it."""
    layers = (layer for _, layer in plan.inputs)
    return {layer: layer.given(X) for layer in layers if isinstance(layer, NumericalLayer)}


def log_values(
    plan: Plan, X: FloatArray, evidence: Mapping[InputLayer, LogDensities] | None = None
) -> FloatArray:
    """Log values (n_units, n) of all units, NaN cells marginalised; ``evidence`` gives the
    densities of some layers, such as the result of `given` for these rows.
    """
    known = evidence or {}

    def values_of(layer: InputLayer) -> FloatArray:
        return known[layer].log_prob() if layer in known else layer.log_prob(X)

    return feedforward(plan, input_buffer(plan, values_of, (len(X),)))


def linear_values(plan: Plan, X: FloatArray, evidence: Evidence | None = None) -> FloatArray | None:
    """Values (n_units, n) up to a factor per row and scope; None if not for the linear scale."""
    if not can_be_linear(plan):
        return None
    known = evidence or {}

    def values_of(layer: InputLayer) -> FloatArray:
        # Factors taken out of a row are the same in every induced tree, and cancel in ratios
        scaled = layer.scaled(known[layer].log_prob()) if layer in known else layer.scaled_prob(X)
        return scaled[0]

    values = input_buffer(plan, values_of, (len(X),))
    feedforward(plan, values, "linear")
    return values if (values[plan.root] >= MIN_ROOT).all() else None


@remembered
def can_be_linear(plan: Plan) -> bool:
    """Tell whether values of scaled inputs stay in [0, 1]: in smooth, decomposable, normalised
    circuits whose continuous units meet no units of other layers in their scopes.
    """
    # Without evidence every input is one, and scaled inputs are never more.
    nothing = np.full((1, plan.n_columns), np.nan)
    # Weights add up to one up to rounding.
    is_bounded = log_values(plan, nothing).max() < 1e-6
    is_tractable = plan.is_smooth and plan.is_decomposable
    return bool(is_bounded) and is_tractable and _densities_stand_alone(plan)


def _densities_stand_alone(plan: Plan) -> bool:
    """Tell whether all units that touch a continuous unit's scope are in its layer, so that every
    explanation of a row uses exactly one of them and their common factor can be taken out.
    """
    met: dict[int, set[tuple[int, Scope]]] = {v: set() for v in plan.variables}
    for number, (_, layer) in enumerate(plan.inputs):
        for scope in set(map(tuple, layer.scopes.tolist())):
            for variable in scope:
                met[variable].add((number, scope))
    return all(
        # A second layer or scope would leave rows whose factor is not the common one
        len(met[variable]) == 1
        for _, layer in plan.inputs
        if not layer.is_discrete
        for variable in np.unique(layer.scopes).tolist()
    )


def backward(
    plan: Plan,
    values: FloatArray,
    move: Literal["log", "linear"] = "log",
    root_flow: FloatArray | None = None,
    counts: FloatArray | None = None,
) -> FloatArray:
    """Distribute the root over all units, (n_units, n), after a feedforward pass of one move.

    On the log scale the result are flows. Choose one child of every sum with probability
    proportional to its weighted value and follow all factors of every product, from the root
    down: the flow of a unit is the probability that it is reached, 0 in rows of probability
    zero. On the linear scale they are derivatives of the logarithm of the root; times the
    values they are the flows. ``root_flow``, (n,), holds weights of rows; flows of edges are added
    to ``counts`` (n_edges,) on the log scale.
    """
    result = np.zeros_like(values)
    # Impossible rows have no explanation: their flow is zero, not 0 / 0.
    root = values[plan.root]
    if move == "log":
        result[plan.root] = np.where(np.isneginf(root), 0.0, 1.0)
    else:
        # d log(root) / d root, so that derivatives times values are flows of one row
        result[plan.root] = 1.0 / root
    if root_flow is not None:
        result[plan.root] *= root_flow
    for layer in reversed(plan.layers):
        if counts is not None and isinstance(layer, SumLayer):
            layer.backward_log(result, values, plan.weights, counts)
        else:
            getattr(layer, f"backward_{move}")(result, values, plan.weights)
    return result


def input_flows(plan: Plan, values: FloatArray) -> FloatArray:
    """Flows (n_input_units, n) after ``linear_values``: derivatives of the root, a polynomial of
    degree one in each value, so that underflow is far below the sixteenth digit.
    """
    n_inputs = plan.inputs[-1][0].stop
    flows = backward(plan, values, "linear")[:n_inputs]
    flows *= values[:n_inputs]
    return flows


class EdgeChoice(Protocol):
    """Picks one edge for each pair of a sum and a row."""

    def __call__(self, layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
        """Give the edges (counted within the layer) for sums ``own`` of a layer at ``rows``."""


class InputPairs(NamedTuple):
    """Input units that take part in the explanations of some rows."""

    layer: InputLayer
    units: IntArray
    rows: IntArray


def trace(
    plan: Plan, n_rows: int, choose: EdgeChoice, starts: IntArray | None = None
) -> Iterator[InputPairs]:
    """Follow the chosen edges down to the inputs."""
    # Pairs instead of a mask over all units and rows: most units explain few rows.
    pending = PendingPairs(plan)
    starts = np.full(n_rows, plan.root) if starts is None else starts
    pending.add(starts, np.arange(n_rows))
    # Parents come after children in a plan: backwards, all pairs of a layer are known at its turn
    for layer in reversed(plan.layers):
        units, rows = pending.take(layer.units)
        if len(units) == 0:
            continue
        own = units - layer.units.start
        if isinstance(layer, ProductLayer):
            factors = layer.children.T[:, own]
            pending.add(factors.ravel(), np.tile(rows, len(factors)))
        else:
            pending.add(layer.children[choose(layer, own, rows)], rows)
    for positions, inputs in plan.inputs:
        units, rows = pending.take(positions)
        if len(units):
            yield InputPairs(inputs, units - positions.start, rows)


class PendingPairs:
    """Pairs of units and rows that wait for the layer of the unit."""

    def __init__(self, plan: Plan) -> None:
        spans = [units for units, _ in plan.inputs] + [layer.units for layer in plan.layers]
        self._waiting: list[list[tuple[IntArray, IntArray]]] = [[] for _ in spans]
        sizes = [span.stop - span.start for span in spans]
        self._layer_of_unit = np.repeat(np.arange(len(spans)), sizes)

    def add(self, units: IntArray, rows: IntArray) -> None:
        """Hand pairs to the layers of their units."""
        layers = self._layer_of_unit[units]
        first = layers[0]
        # Layered circuits hand all pairs to one layer.
        if (layers == first).all():
            self._waiting[first].append((units, rows))
            return
        for layer in np.flatnonzero(np.bincount(layers)):
            # Irregular circuits hand pairs to several layers, a few at most
            chosen = layers == layer
            self._waiting[layer].append((units[chosen], rows[chosen]))

    def take(self, span: slice) -> tuple[IntArray, IntArray]:
        """Collect the pairs of a layer."""
        layer = self._layer_of_unit[span.start]
        pairs, self._waiting[layer] = self._waiting[layer], []
        if not pairs:
            return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        units, rows = zip(*pairs)
        return np.concatenate(units), np.concatenate(rows)


def pairs_by_block(layer: SumLayer, own: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
    """Group the sums of a folded layer by their block."""
    assert layer.block_shape is not None
    blocks, sums = np.divmod(own, layer.block_shape[1])
    order = np.argsort(blocks, kind="stable")
    counts = np.bincount(blocks, minlength=layer.block_shape[0])
    ends = np.cumsum(counts)
    for block in np.flatnonzero(counts).tolist():
        pairs = order[ends[block] - counts[block] : ends[block]]
        yield block, pairs, sums[pairs]


def best_edges(plan: Plan, values: FloatArray) -> EdgeChoice:
    """Choose the edge with the largest term, the first of those that tie."""

    def choose(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
        log_weights = plan.weights.log[layer.edges]
        if layer.block_shape is None:
            return _best_in_segments(layer, log_weights, values, own, rows)
        edges = np.empty(len(own), dtype=np.intp)
        matrices = log_weights.reshape(layer.block_shape)
        # Block by block, a term per child and pair: edges of other sums are never touched
        for block, pairs, sums in pairs_by_block(layer, own):
            terms = values[layer.block_children[block]][:, rows[pairs]]
            terms += matrices[block].T[:, sums]
            edges[pairs] = terms.argmax(axis=0)
        return edges + layer.starts[own]

    return choose


def _best_in_segments(
    layer: SumLayer, log_weights: FloatArray, values: FloatArray, own: IntArray, rows: IntArray
) -> IntArray:
    """Choose among the edges of sums of different lengths."""
    edges, first = layer.edges_of(own)
    lengths = layer.lengths[own]
    terms = values[layer.children[edges], np.repeat(rows, lengths)] + log_weights[edges]
    return edges[largest_in_runs(terms, first, lengths)]


def largest_in_runs(terms: FloatArray, first: IntArray, lengths: IntArray) -> IntArray:
    """Index of the largest term, the first of those that tie, of each of some consecutive runs."""
    hits = np.flatnonzero(terms == np.repeat(np.maximum.reduceat(terms, first), lengths))
    return hits[np.searchsorted(hits, first)]


def draw_in_runs(
    terms: FloatArray, first: IntArray, lengths: IntArray, uniform: FloatArray
) -> IntArray:
    """Draw a place in each run in proportion to its terms, by one uniform number per run."""
    # Terms of rare events are small: each run is scaled before all are added up
    steps = np.cumsum(terms / np.repeat(np.add.reduceat(terms, first), lengths))
    total = steps[first + lengths - 1]
    before = np.append(0.0, total[:-1])
    # Strictly below the end of the run: its last possible place, never one of the next run
    drawn = np.minimum(before + uniform * (total - before), np.nextafter(total, 0.0))
    return np.searchsorted(steps, drawn, side="right")
