"""Queries that one feedforward pass answers: densities, marginals, boxes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from skcircuits.circuits.engine._passes import feedforward, input_buffer, log_values
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._scaled import ScaledPlan
from skcircuits.circuits.engine._scaled_compilation import compile_scaled
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray

__all__ = ["log_partition", "log_probability", "log_values"]

# The fast evaluator pays from the first, its tables from the second number of rows on.
FEW_ROWS = 256
MANY_ROWS = 4096


def log_probability(plan: Plan, X: FloatArray) -> FloatArray:
    """Log density of each row, NaN cells marginalised.

    Parameters
    ----------
    plan : Plan
        The circuit.
    X : ndarray of shape (n, n_columns)
        Rows.

    Returns
    -------
    ndarray of shape (n,)
        Log densities; ``-inf`` where impossible.
    """
    fast = _fast_plan(plan, len(X))
    if fast is not None:
        return _fast_log_probability(plan, fast, X)
    return _log_probability(plan, X)


def _log_probability(plan: Plan, X: FloatArray) -> FloatArray:
    """Evaluate in log space."""
    return _root_values(plan, len(X), lambda layer, rows: layer.log_prob(X[rows]))


def _fast_plan(plan: Plan, n_rows: int) -> ScaledPlan | None:
    """Choose the fast evaluator where its compilation pays and the circuit allows it."""
    if n_rows < FEW_ROWS:
        return None
    tabulate = n_rows >= MANY_ROWS
    return plan.remember(("scaled", tabulate), lambda: compile_scaled(plan, tabulate=tabulate))


def _fast_log_probability(plan: Plan, fast: ScaledPlan, X: FloatArray) -> FloatArray:
    """Evaluate on the linear scale; rows that may have underflown once more in log space."""
    result, exact = np.empty(len(X)), np.empty(len(X), dtype=bool)
    for rows in memory_bound_chunks(len(X), fast.bytes_per_row, at_most=fast.batch_rows):
        result[rows], exact[rows] = fast.log_values(X[rows])
    if not exact.all():
        result[~exact] = _log_probability(plan, X[~exact])
    return result


def log_partition(plan: Plan) -> float:
    """Log of the integral (sum) over all rows: 0 for a normalised circuit.

    Parameters
    ----------
    plan : Plan
        The circuit.

    Returns
    -------
    float
        Log partition function.
    """
    nothing_observed = np.full((1, plan.n_columns), np.nan)
    return float(log_probability(plan, nothing_observed)[0])


def _root_values(
    plan: Plan,
    n_rows: int,
    values_of: Callable[..., FloatArray],
) -> FloatArray:
    """Root values of a feedforward pass, batch by batch, shape (n_rows,)."""
    result = np.empty(n_rows)
    for rows in plan.batches(n_rows):
        batch = (rows.stop - rows.start,)
        values = input_buffer(plan, partial(values_of, rows=rows), batch)
        result[rows] = feedforward(plan, values)[plan.root]
    return result
