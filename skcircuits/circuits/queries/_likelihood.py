"""Densities and marginals of rows: one feedforward pass."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits.engine._lowering import LoweredPlan, lower
from skcircuits.circuits.engine._passes import log_values
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._policy import MANY_ROWS, MIN_TABLE_EDGES
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray

__all__ = ["log_partition", "log_probability"]


def log_probability(plan: Plan, X: FloatArray) -> FloatArray:
    """Log density of each row, shape (n,), NaN cells marginalised; -inf where impossible."""
    if len(X) >= MANY_ROWS:
        tabulate = len(X) * plan.n_edges >= MIN_TABLE_EDGES * plan.n_units
        lowered = plan.remember(("lowered", tabulate), lambda: lower(plan, tabulate=tabulate))
        if lowered is not None:
            return _lowered_log_probability(plan, lowered, X)
    return _log_probability(plan, X)


def log_partition(plan: Plan) -> float:
    """Log of the integral (sum) over all rows: 0 for a normalised circuit."""
    return float(_log_probability(plan, np.full((1, plan.n_columns), np.nan))[0])


def _lowered_log_probability(plan: Plan, lowered: LoweredPlan, X: FloatArray) -> FloatArray:
    """Evaluate on the linear scale; rows that may have underflown once more in log space."""
    result, exact = np.empty(len(X)), np.empty(len(X), dtype=bool)
    for rows in memory_bound_chunks(len(X), lowered.bytes_per_row, at_most=lowered.batch_rows):
        result[rows], exact[rows] = lowered.log_values(X[rows])
    if not exact.all():
        result[~exact] = _log_probability(plan, X[~exact])
    return result


def _log_probability(plan: Plan, X: FloatArray) -> FloatArray:
    """Evaluate in log space, batch by batch."""
    result = np.empty(len(X))
    for rows in plan.batches(len(X)):
        result[rows] = log_values(plan, X[rows])[plan.root]
    return result
