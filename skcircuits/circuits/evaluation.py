"""Queries that one feedforward pass answers: densities, marginals, boxes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import methodcaller

import numpy as np

from skcircuits.circuits.inputs import Box
from skcircuits.circuits.passes import feedforward, input_buffer
from skcircuits.circuits.plan import Plan
from skcircuits.protocols import FloatArray

__all__ = ["log_box_probability", "log_partition", "log_probability", "log_values"]


def log_values(plan: Plan, X: FloatArray) -> FloatArray:
    """Log value of every unit at every row.

    Parameters
    ----------
    plan : Plan
        The circuit.
    X : ndarray of shape (n, n_columns)
        Rows, NaN marginalised; all rows are held in memory at once.

    Returns
    -------
    ndarray of shape (n_units, n)
        Log values.
    """
    values = input_buffer(plan, methodcaller("log_prob", X), (len(X),))
    return feedforward(plan, values)


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
    return _root_values(plan, len(X), lambda layer, rows: layer.log_prob(X[rows]))


def log_box_probability(plan: Plan, box: Box) -> FloatArray:
    """Log probability of each box.

    Parameters
    ----------
    plan : Plan
        The circuit.
    box : Box
        One box per row.

    Returns
    -------
    ndarray of shape (n,)
        Log probabilities.
    """
    return _root_values(plan, len(box.lower), lambda layer, rows: layer.log_box(box.rows(rows)))


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
