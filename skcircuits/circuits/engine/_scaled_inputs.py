"""When values may be kept on the linear scale, and the plain linear pass over all units.

All values are at most one, so whatever underflows anywhere changes the value of the root by
less than a denormal number per edge. A row whose root value is well above that is exact.
"""

from __future__ import annotations

import numpy as np

from skcircuits.circuits.engine._passes import (
    backward_linear,
    feedforward,
    input_buffer,
    log_values,
)
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.properties import units_are_tractable
from skcircuits.circuits.structure.units import Scope
from skcircuits.protocols import FloatArray

__all__ = ["SMALLEST_ROOT", "can_be_scaled", "linear_flows", "linear_values"]

# Underflow below a root value of this size is beyond the sixteenth digit by far.
SMALLEST_ROOT = 1e-280


def can_be_scaled(plan: Plan) -> bool:
    """Tell whether linear values of all units stay in [0, 1] once inputs are scaled.

    Parameters
    ----------
    plan : Plan
        A circuit.

    Returns
    -------
    bool
        True for smooth, decomposable and normalised circuits whose continuous units of one
        layer meet no other units in their scopes.
    """
    return plan.remember("can_be_scaled", lambda: _can_be_scaled(plan))


def _can_be_scaled(plan: Plan) -> bool:
    nothing = np.full((1, plan.n_columns), np.nan)
    is_bounded = log_values(plan, nothing).max() < 1e-6
    return bool(is_bounded) and units_are_tractable(plan.units) and _densities_stand_alone(plan)


def _densities_stand_alone(plan: Plan) -> bool:
    """Tell whether all units that touch a continuous unit's scope are in its layer.

    Only then does every explanation of a row use exactly one of them, and their common
    factor can be taken out.
    """
    met: dict[int, set[tuple[int, Scope]]] = {v: set() for v in plan.units[-1].scope}
    for number, (units, _) in enumerate(plan.inputs):
        for unit in plan.units[units]:
            for variable in unit.scope:
                met[variable].add((number, unit.scope))
    return all(
        len(met[variable]) == 1
        for _, layer in plan.inputs
        if not layer.is_discrete
        for variable in np.unique(layer.scopes).tolist()
    )


def linear_values(plan: Plan, X: FloatArray) -> FloatArray | None:
    """Value of every unit at every row, up to a factor per row and scope.

    Parameters
    ----------
    plan : Plan
        The circuit.
    X : ndarray of shape (n, n_columns)
        Rows, NaN marginalised; all rows are held in memory at once.

    Returns
    -------
    ndarray of shape (n_units, n) or None
        Linear values, right up to rounding; None if the circuit cannot be scaled or a row
        is too improbable for the linear scale.
    """
    if not can_be_scaled(plan):
        return None
    values = input_buffer(plan, lambda layer: layer.scaled_prob(X)[0], (len(X),))
    feedforward(plan, values, "linear")
    return values if (values[plan.root] >= SMALLEST_ROOT).all() else None


def linear_flows(plan: Plan, values: FloatArray) -> FloatArray:
    """Flow of every input unit: the probability that it is part of the explanation.

    Parameters
    ----------
    plan : Plan
        The circuit.
    values : ndarray of shape (n_units, n)
        What ``linear_values`` gave.

    Returns
    -------
    ndarray of shape (n_input_units, n)
        Flows in [0, 1].

    Notes
    -----
    The flow of a unit is its value times the derivative of the logarithm of the root. The
    root is a polynomial of degree one in each value and at most one, hence so are its
    derivatives: as with values, what underflows is far below the sixteenth digit.
    """
    n_inputs = plan.inputs[-1][0].stop
    flows = backward_linear(plan, values)[:n_inputs]
    flows *= values[:n_inputs]
    return flows
