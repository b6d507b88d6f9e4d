"""The passes over the layers of a plan: feedforward, and backward on either scale.

A query chooses input values, runs one feedforward pass and perhaps one backward pass. No passes
are traces, which follow one explanation per row (``tracing.py``), the steps of the fast
evaluator for many rows (``scaled.py``), and the entropy, which is no polynomial in the values of
the inputs (``information.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller
from typing import Literal

import numpy as np

from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import InputLayer
from skcircuits.protocols import FloatArray

__all__ = [
    "Move",
    "backward",
    "backward_linear",
    "feedforward",
    "input_buffer",
    "log_values",
]

Move = Literal["log", "max", "linear"]


def input_buffer(
    plan: Plan, values_of: Callable[[InputLayer], FloatArray], batch: tuple[int, ...]
) -> FloatArray:
    """Allocate the buffer of all units and fill in the input values.

    Parameters
    ----------
    plan : Plan
        The circuit.
    values_of : callable
        Gives the values of an input layer, shape (n_units_of_layer, *batch).
    batch : tuple of int
        Shape of the batch, usually ``(n_rows,)``.

    Returns
    -------
    ndarray of shape (n_units, *batch)
        Inner units are not yet set.
    """
    values = np.empty((plan.n_units, *batch))
    for units, layer in plan.inputs:
        values[units] = values_of(layer)
    return values


def feedforward(
    plan: Plan, values: FloatArray, move: Move = "log", weights: SumWeights | None = None
) -> FloatArray:
    """Evaluate all inner units, children before parents.

    Parameters
    ----------
    plan : Plan
        The circuit.
    values : ndarray of shape (n_units, *batch)
        Buffer with the input values set (see ``input_buffer``); inner units are written.
    move : {"log", "max", "linear"}, default="log"
        Sum-product in log space, max-product in log space, or sum-product of plain and
        possibly signed numbers.
    weights : SumWeights, default=None
        Other weights than the plan's own, or a batch of weights.

    Returns
    -------
    ndarray of shape (n_units, *batch)
        The same buffer; the root is the last row.
    """
    weights = plan.weights if weights is None else weights
    for layer in plan.layers:
        getattr(layer, f"forward_{move}")(values, weights)
    return values


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


def backward(
    plan: Plan,
    log_values: FloatArray,
    weights: SumWeights | None = None,
    root_flow: FloatArray | None = None,
) -> FloatArray:
    """Compute the flow of every unit: the probability that it is part of the explanation.

    Choose one child of every sum with probability proportional to its weighted value and
    follow all factors of every product, from the root down; the flow of a unit is the
    probability that it is reached.

    Parameters
    ----------
    plan : Plan
        The circuit.
    log_values : ndarray of shape (n_units, n)
        Result of a feedforward pass with ``move="log"``.
    weights : SumWeights, default=None
        The weights of that pass.
    root_flow : ndarray of shape (n,), default=None
        Flow of the root; ones by default. Row weights go in here.

    Returns
    -------
    ndarray of shape (n_units, n)
        Flows in [0, 1]; 0 in rows of probability zero.
    """
    weights = plan.weights if weights is None else weights
    flows = np.zeros_like(log_values)
    flows[plan.root] = np.where(np.isneginf(log_values[plan.root]), 0.0, 1.0)
    if root_flow is not None:
        flows[plan.root] *= root_flow
    for layer in reversed(plan.layers):
        layer.backward(flows, log_values, weights)
    return flows


def backward_linear(plan: Plan, values: FloatArray) -> FloatArray:
    """Compute the derivative of the logarithm of the root with respect to every unit.

    Parameters
    ----------
    plan : Plan
        The circuit.
    values : ndarray of shape (n_units, n)
        Result of a feedforward pass with ``move="linear"``; the root is not zero.

    Returns
    -------
    ndarray of shape (n_units, n)
        Derivatives; times the values they are the flows.
    """
    derivatives = np.zeros_like(values)
    derivatives[plan.root] = 1.0 / values[plan.root]
    for layer in reversed(plan.layers):
        layer.backward_linear(derivatives, values, plan.weights)
    return derivatives
