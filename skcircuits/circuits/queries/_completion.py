"""Most probable completions: a max-product pass and its trace."""

from __future__ import annotations

from operator import methodcaller

from skcircuits.circuits.engine._passes import feedforward, input_buffer
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._policy import MANY_ROWS
from skcircuits.circuits.engine._tabulation import tabulated
from skcircuits.circuits.engine._tracing import best_edges, trace
from skcircuits.circuits.queries._moments import require_possible
from skcircuits.protocols import FloatArray

__all__ = ["max_product_completion"]


def max_product_completion(plan: Plan, X: FloatArray) -> FloatArray:
    """Complete NaN cells by a max-product pass and its trace."""
    if len(X) >= MANY_ROWS:
        plan = tabulated(plan, "max")
    result = X.copy()
    for rows in plan.batches(len(X), n_buffers=2):
        block = X[rows]
        inputs = input_buffer(plan, methodcaller("log_max", block), (len(block),))
        values = feedforward(plan, inputs, "max")
        require_possible(plan, values[plan.root], rows.start)
        for layer, units, at in trace(plan, len(block), best_edges(plan, values)):
            scopes = layer.scopes[units]
            result[rows.start + at[:, None], scopes] = layer.mode(units, block[at[:, None], scopes])
    return result
