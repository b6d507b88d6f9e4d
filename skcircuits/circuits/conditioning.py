"""Circuits made from one circuit: conditioned, marginalised, normalised."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skcircuits.circuits.evaluation import log_values
from skcircuits.circuits.inputs import LeafUnit
from skcircuits.circuits.moments import require_possible
from skcircuits.circuits.plan import Plan
from skcircuits.circuits.units import Product, Sum, Unit
from skcircuits.protocols import FloatArray

__all__ = ["condition", "marginalize", "prune"]


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
    if root.unit is None or root.factor == 1.0:
        return root.unit
    return Sum([root.unit], weights=[root.factor])


class _Remainder(NamedTuple):
    """What is left of a unit: a unit (None: nothing but the constant) times a constant."""

    unit: Unit | None
    factor: float = 1.0


def _remaining_sum(children: list[_Remainder], weights: FloatArray) -> _Remainder:
    """Sum of the remaining children; all children of a smooth sum vanish together."""
    terms = [(child.unit, float(w) * child.factor) for child, w in zip(children, weights)]
    if all(unit is None for unit, _ in terms):
        return _Remainder(None, sum(weight for _, weight in terms))
    kept = [(unit, weight) for unit, weight in terms if unit is not None and weight > 0]
    if not kept:
        return _Remainder(None, 0.0)
    # A sum that only passes its child on is no unit of its own.
    if len(kept) == 1 and kept[0][1] == 1.0:
        return _Remainder(kept[0][0])
    return _Remainder(Sum([unit for unit, _ in kept], weights=[w for _, w in kept]))


def _remaining_product(children: list[_Remainder]) -> _Remainder:
    """Product of the remaining factors, constants multiplied."""
    factor = float(np.prod([child.factor for child in children]))
    factors = [child.unit for child in children if child.unit is not None]
    if not factors or factor == 0.0:
        return _Remainder(None, factor)
    return _Remainder(factors[0] if len(factors) == 1 else Product(factors), factor)
