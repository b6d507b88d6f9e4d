"""Circuits made from one circuit: conditioned, marginalised, normalised."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skcircuits.circuits.engine._passes import log_values
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.queries._marginals import require_possible
from skcircuits.circuits.structure.units import (
    MAX_LOG_WEIGHT,
    Product,
    Sum,
    Unit,
    log_weighted_sum,
    scale_unit,
)
from skcircuits.exceptions import ZeroProbabilityError, must
from skcircuits.protocols import FloatArray

# Terms of a conditional distribution that weigh less, on the log scale, are left out.
MIN_LOG_POSTERIOR = -1e4
# Weights below it have fewer digits.
MIN_WEIGHT = float(np.finfo(np.float64).tiny)


def condition(plan: Plan, x: FloatArray) -> Unit | None:
    """Build the circuit of the unknown variables given the known ones.

    The probability of the observed cells is pushed into the sum weights (θ_c p_c(x_o) /
    p_n(x_o)), so the result is normalised and nothing is divided at the end.
    """
    values = log_values(plan, x[None])
    require_possible(plan, values[plan.root])
    weights: dict[int, _Weights] = {}
    for layer in plan.sum_layers:
        log_weights = layer.log_posteriors(values, plan.weights)[:, 0]
        log_weights[log_weights < MIN_LOG_POSTERIOR] = -np.inf
        both = np.exp(log_weights), log_weights
        own = map(_Weights, *(np.split(each, layer.starts[1:]) for each in both))
        weights.update(zip(range(layer.units.start, layer.units.stop), own))
    return prune(plan, lambda leaf: leaf.condition(x), weights.__getitem__)


def marginalize(plan: Plan, variables: frozenset[int]) -> Unit | None:
    """Build the circuit without some variables."""

    def weights_of(position: int) -> _Weights:
        unit = plan.units[position]
        assert isinstance(unit, Sum)
        with np.errstate(divide="ignore"):
            return _Weights(unit.weights, np.log(unit.weights))

    return prune(plan, lambda leaf: leaf.marginalize(variables), weights_of)


class _Weights(NamedTuple):
    """Weights of a sum and their logarithms, which reach further down."""

    linear: FloatArray
    log: FloatArray


def prune(
    plan: Plan,
    leaf_of: Callable[[InputUnit], InputUnit | None],
    weights_of: Callable[[int], _Weights],
) -> Unit | None:
    """Rebuild a circuit with other leaves and weights; what becomes constant disappears."""
    # Children come before parents in a plan, so that one sweep rebuilds everything.
    built: list[_Remainder] = []
    position_of = plan.position
    for position, unit in enumerate(plan.units):
        children = [built[position_of[id(child)]] for child in unit.children]
        if isinstance(unit, Sum):
            built.append(_remaining_sum(children, weights_of(position)))
        elif isinstance(unit, Product):
            built.append(_remaining_product(children))
        else:
            assert isinstance(unit, InputUnit)
            built.append(_Remainder(leaf_of(unit)))
    root = built[-1]
    if np.isneginf(root.log_factor):
        raise ZeroProbabilityError(
            must("the circuit", "be positive somewhere", "It is zero whatever the variables are.")
        )
    return None if root.unit is None else scale_unit(root.unit, root.log_factor)


class _Remainder(NamedTuple):
    """What is left of a unit: a unit (None: nothing but the constant) times a constant.

    Products of constants leave the range of floats long before the circuit does.
    """

    unit: Unit | None
    log_factor: float = 0.0


_ZERO = _Remainder(None, -np.inf)


def _remaining_sum(children: list[_Remainder], weights: _Weights) -> _Remainder:
    """Sum of the remaining children; all children of a smooth sum vanish together."""
    log_factors = np.array([child.log_factor for child in children])
    log_weights = weights.log + log_factors
    if all(child.unit is None for child in children):
        return _Remainder(None, float(np.logaddexp.reduce(log_weights)))
    kept = (log_weights > -np.inf).nonzero()[0]
    units = [unit for i in kept if (unit := children[i].unit) is not None]
    if not units:
        return _ZERO
    log_scale = 0.0
    if log_factors[kept].any() or weights.linear[kept].min() < MIN_WEIGHT:
        peak = float(log_weights[kept].max())
        log_scale = peak if abs(peak) > MAX_LOG_WEIGHT else 0.0
        mixture = log_weighted_sum(units, log_weights[kept] - log_scale)
    else:
        # Weights without a constant to take in stay as they are, digit by digit.
        mixture = Sum(units, weights=weights.linear[kept])
    # A sum that only passes its child on is no unit of its own.
    is_identity = len(units) == 1 and mixture.weights[0] == 1.0
    return _Remainder(mixture.children[0] if is_identity else mixture, log_scale)


def _remaining_product(children: list[_Remainder]) -> _Remainder:
    """Product of the remaining factors, constants multiplied."""
    log_factor = sum(child.log_factor for child in children)
    factors = [child.unit for child in children if child.unit is not None]
    if log_factor == -np.inf:
        return _ZERO
    if not factors:
        return _Remainder(None, log_factor)
    return _Remainder(factors[0] if len(factors) == 1 else Product(factors), log_factor)
