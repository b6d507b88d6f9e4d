"""The score function of a circuit: the gradient of its log density.

By the chain rule it is a sum over input units. The derivative of the log density by the log
value of a unit is the unit's flow, and flows are ratios of values of about the same size:
they keep their digits however small the density is.
"""

from __future__ import annotations

import numpy as np

from skcircuits.circuits.engine._passes import backward, log_values
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs.base import DifferentiableLayer
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray

__all__ = ["log_density_gradient", "require_gradients"]


def require_gradients(plan: Plan) -> None:
    """Refuse circuits whose log density is not differentiable.

    Parameters
    ----------
    plan : Plan
        The circuit.

    Raises
    ------
    CircuitPropertyError
        Naming the families of input units without a gradient.
    """
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

    Parameters
    ----------
    plan : Plan
        A circuit whose input units are differentiable; smooth and decomposable where cells
        are NaN.
    X : ndarray of shape (n, n_columns)
        Rows, NaN marginalised.

    Returns
    -------
    ndarray of shape (n, n_columns)
        Gradient; NaN where X is, and in rows of density zero.
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
