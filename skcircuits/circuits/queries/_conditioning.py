"""Circuits made from one circuit: conditioned, marginalised, normalised."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skcircuits.circuits.engine._evaluation import log_values
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import LeafUnit
from skcircuits.circuits.queries._moments import require_possible
from skcircuits.circuits.structure.units import LARGEST_LOG_WEIGHT, Product, Sum, Unit, scale_unit
from skcircuits.exceptions import ZeroProbabilityError, must
from skcircuits.protocols import FloatArray

__all__ = ["condition", "marginalize", "prune"]

# Smaller floats have fewer digits.
SMALLEST_LOG_WEIGHT = float(np.log(np.finfo(np.float64).tiny))


def condition(plan: Plan, x: FloatArray) -> Unit | None:
    """Build the circuit of the unknown variables given the known ones.

    The probability of the observed cells is pushed into the sum weights (θ_c p_c(x_o) /
    p_n(x_o)), so the result is normalised and nothing is divided at the end.

    Parameters
    ----------
    plan : Plan
        A smooth and decomposable circuit.
    x : ndarray of shape (n_columns,)
        One row, NaN for unknown. All NaN normalises the circuit.

    Returns
    -------
    Unit or None
        The new root; None when nothing is unknown.

    Raises
    ------
    ZeroProbabilityError
        If the observed cells are impossible.
    """
    values = log_values(plan, x[None])
    require_possible(values[plan.root])
    weights: dict[int, FloatArray] = {}
    for layer in plan.sum_layers:
        posteriors = layer.posteriors(values, plan.weights)[:, 0]
        pieces = np.split(posteriors, layer.starts[1:])
        weights.update(zip(range(layer.units.start, layer.units.stop), pieces))
    return prune(plan, lambda leaf: leaf.condition(x), lambda position: weights[position])


def marginalize(plan: Plan, variables: frozenset[int]) -> Unit | None:
    """Build the circuit without some variables.

    Parameters
    ----------
    plan : Plan
        A smooth and decomposable circuit of normalised input units.
    variables : frozenset of int
        Variables to sum or integrate out.

    Returns
    -------
    Unit or None
        The new root; None when no variable remains.

    Raises
    ------
    ZeroProbabilityError
        If the circuit is zero everywhere.
    """
    return prune(
        plan,
        lambda leaf: leaf.marginalize(variables),
        lambda position: plan.units[position].weights,  # type: ignore[attr-defined]
    )


def prune(
    plan: Plan,
    leaf_of: Callable[[LeafUnit], LeafUnit | None],
    weights_of: Callable[[int], FloatArray],
) -> Unit | None:
    """Rebuild a circuit with other leaves and weights; what becomes constant disappears.

    Parameters
    ----------
    plan : Plan
        The circuit.
    leaf_of : callable
        New leaf of an old one, None for a constant.
    weights_of : callable
        New weights of the sum unit at a position; edges of weight zero are dropped.

    Returns
    -------
    Unit or None
        The new root; None for a constant.

    Raises
    ------
    ZeroProbabilityError
        If what is left is zero everywhere.
    """
    # Children come before parents in a plan, so that one sweep rebuilds everything.
    built: list[_Remainder] = []
    for position, unit in enumerate(plan.units):
        children = [built[plan.position[id(child)]] for child in unit.children]
        if isinstance(unit, Sum):
            built.append(_remaining_sum(children, weights_of(position)))
        elif isinstance(unit, Product):
            built.append(_remaining_product(children))
        else:
            assert isinstance(unit, LeafUnit)
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


def _remaining_sum(children: list[_Remainder], weights: FloatArray) -> _Remainder:
    """Sum of the remaining children; all children of a smooth sum vanish together."""
    log_factors = np.array([child.log_factor for child in children])
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights) + log_factors
    if all(child.unit is None for child in children):
        return _Remainder(None, float(np.logaddexp.reduce(log_weights)))
    kept = np.flatnonzero(~np.isneginf(log_weights))
    units = [unit for i in kept if (unit := children[i].unit) is not None]
    if not units:
        return _ZERO
    log_scale = 0.0
    # Weights without a constant to take in stay as they are, digit by digit.
    weights = weights[kept]
    if log_factors[kept].any():
        log_scale, units, weights = _weighted(units, log_weights[kept])
    # A sum that only passes its child on is no unit of its own.
    if len(units) == 1 and weights[0] == 1.0:
        return _Remainder(units[0], log_scale)
    return _Remainder(Sum(units, weights=weights), log_scale)


def _weighted(units: list[Unit], log_weights: FloatArray) -> tuple[float, list[Unit], FloatArray]:
    """Write weights as floats: a common scale and those too small for a float stay apart."""
    peak = float(log_weights.max())
    log_scale = peak if abs(peak) > LARGEST_LOG_WEIGHT else 0.0
    relative = log_weights - log_scale
    # Not even these are dropped: the children they weigh may be as large as they are small.
    apart = np.where(relative < SMALLEST_LOG_WEIGHT, relative, 0.0)
    scaled = [scale_unit(unit, log_factor) for unit, log_factor in zip(units, apart.tolist())]
    return log_scale, scaled, np.exp(relative - apart)


def _remaining_product(children: list[_Remainder]) -> _Remainder:
    """Product of the remaining factors, constants multiplied."""
    log_factor = sum(child.log_factor for child in children)
    factors = [child.unit for child in children if child.unit is not None]
    if np.isneginf(log_factor):
        return _ZERO
    if not factors:
        return _Remainder(None, log_factor)
    return _Remainder(factors[0] if len(factors) == 1 else Product(factors), log_factor)
