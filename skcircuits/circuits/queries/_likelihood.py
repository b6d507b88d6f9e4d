"""Densities and marginals of rows, and the score: the gradient of the log density.

A density takes one feedforward pass. By the chain rule the score is a sum over input units: the
derivative of the log density by the log value of a unit is its flow. Flows are ratios of values of
about the same size: they keep their digits however small the density is.
"""

from __future__ import annotations

import numpy as np

from skcircuits.circuits.engine._lowering import LoweredPlan, lower
from skcircuits.circuits.engine._passes import backward, log_values
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._policy import MANY_ROWS, MIN_TABLE_EDGES
from skcircuits.circuits.inputs.base import DifferentiableLayer
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray


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


def require_gradients(plan: Plan) -> None:
    """Refuse circuits whose log density is not differentiable, naming the families."""
    others = [units for units, layer in plan.inputs if not isinstance(layer, DifferentiableLayer)]
    if others:
        families = {type(unit).__name__ for units in others for unit in plan.units[units]}
        raise CircuitPropertyError(
            must(
                "input units of a circuit",
                "be Gaussian or MultivariateGaussian for a gradient of the log density",
                "condition() or marginalize() removes the variables of other units; "
                "GaussianMixtureDensity learns tables of numbers without them.",
                input_units=sorted(families),
            )
        )


def log_density_gradient(plan: Plan, X: FloatArray) -> FloatArray:
    """Gradient of the log density at each row.

    ``plan``: a circuit whose input units are differentiable; smooth and decomposable where cells
    are NaN; ``X`` (n, n_columns): rows, NaN marginalised. Returns (n, n_columns): gradient; NaN
    where X is, and in rows of density zero.
    """
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
    # Flows of zero would pass for a stationary point.
    score[:, np.isneginf(values[plan.root])] = np.nan
    return score
