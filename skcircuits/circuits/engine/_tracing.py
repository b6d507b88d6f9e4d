"""One explanation per row, traced top-down: what completions and samples have in common.

A trace follows, for every row, one child of each sum and all children of each product. What
it carries are pairs (unit, row); in a decomposable circuit a unit is met at most once per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np

from skcircuits.circuits.engine._layers import ProductLayer, SumLayer
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import InputLayer
from skcircuits.protocols import FloatArray, IntArray


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
    # Pairs lie one after the other, each a run of edges: maxima of runs, then the first hit.
    terms = values[layer.children[edges], np.repeat(rows, lengths)] + log_weights[edges]
    best = np.repeat(np.maximum.reduceat(terms, first), lengths)
    hits = np.flatnonzero(terms == best)
    return edges[hits[np.searchsorted(hits, first)]]
