"""Most probable completions: a max-product pass and its trace."""

from __future__ import annotations

from operator import methodcaller

import numpy as np

from skcircuits.circuits.layers import SumLayer
from skcircuits.circuits.moments import require_possible
from skcircuits.circuits.passes import feedforward, input_buffer
from skcircuits.circuits.plan import Plan
from skcircuits.circuits.tracing import EdgeChoice, pairs_by_block, trace
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["max_product_completion"]


def max_product_completion(plan: Plan, X: FloatArray) -> FloatArray:
    """Complete NaN cells by a max-product pass and its trace.

    Parameters
    ----------
    plan : Plan
        The circuit.
    X : ndarray of shape (n, n_columns)
        Rows with NaN.

    Returns
    -------
    ndarray of shape (n, n_columns)
        Completed rows: the most probable completions when the circuit is deterministic.

    Raises
    ------
    ZeroProbabilityError
        If the observed cells of a row are impossible.
    """
    result = X.copy()
    for rows in plan.batches(len(X), n_buffers=2):
        block = X[rows]
        inputs = input_buffer(plan, methodcaller("log_max", block), (len(block),))
        values = feedforward(plan, inputs, "max")
        require_possible(values[plan.root], rows.start)
        for layer, units, at in trace(plan, len(block), _best_edges(plan, values)):
            scopes = layer.scopes[units]
            result[rows.start + at[:, None], scopes] = layer.mode(units, block[at[:, None], scopes])
    return result


def _best_edges(plan: Plan, values: FloatArray) -> EdgeChoice:
    """Choose the edge with the largest term, the first of those that tie."""

    def choose(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
        log_weights = plan.weights.log[layer.edges]
        if layer.block_shape is None:
            return _best_in_segments(layer, log_weights, values, own, rows)
        edges = np.empty(len(own), dtype=np.intp)
        matrices = log_weights.reshape(layer.block_shape)
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
    best = np.repeat(np.maximum.reduceat(terms, first), lengths)
    hits = np.flatnonzero(terms == best)
    return edges[hits[np.searchsorted(hits, first)]]
