"""The same structure with other input units and weights."""

from __future__ import annotations

from collections.abc import Callable

from skcircuits.circuits import Product, Sum
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.structure.units import Unit, topological_order
from skcircuits.protocols import FloatArray


def rebuild(
    root: Unit,
    leaf_of: Callable[[InputUnit], Unit],
    weights_of: Callable[[Sum], FloatArray] = lambda unit: unit.weights,
) -> Unit:
    """Rebuild a circuit unit by unit; what was shared stays shared."""
    built: dict[int, Unit] = {}
    for unit in topological_order(root):
        children = [built[id(child)] for child in unit.children]
        if isinstance(unit, Sum):
            built[id(unit)] = Sum(children, weights=weights_of(unit))
        elif isinstance(unit, Product):
            built[id(unit)] = Product(children)
        else:
            assert isinstance(unit, InputUnit)
            built[id(unit)] = leaf_of(unit)
    return built[id(root)]
