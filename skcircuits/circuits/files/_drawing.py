"""What a picture of a circuit shows: nodes with a place and words, and edges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure._layered_graph import layered_positions
from skcircuits.circuits.structure.units import Product, Sum, Unit

__all__ = ["SMALL", "Drawing", "Node", "draw_regions", "draw_units", "name_variables"]

# Circuits up to this many units are drawn unit by unit.
SMALL = 60


class Node(NamedTuple):
    """A unit, or a region: all units with one scope.

    Attributes
    ----------
    label : str
        Lines of words.
    kind : {"sum", "product", "input", "region"}
        What it is.
    x, y : float
        Place; x in (0, 1), y = minus the level.
    size : int
        Number of units.
    """

    label: str
    kind: str
    x: float
    y: float
    size: int = 1


class Drawing(NamedTuple):
    """Nodes, and edges (upper node, lower node, weight or None)."""

    nodes: list[Node]
    edges: list[tuple[int, int, float | None]]


def draw_units(plan: Plan, names: Sequence[str] | None = None) -> Drawing:
    """Every unit as a node, weights on the edges below sums."""
    units = list(reversed(plan.units))
    number = {id(unit): i for i, unit in enumerate(units)}
    places = layered_positions(
        {i: [number[id(c)] for c in u.children] for i, u in enumerate(units)}
    )
    nodes = [Node(_label(u, names), _kind(u), *places[i]) for i, u in enumerate(units)]
    edges: list[tuple[int, int, float | None]] = []
    for i, unit in enumerate(units):
        weights = unit.weights if isinstance(unit, Sum) else [None] * len(unit.children)
        edges += [(i, number[id(c)], w) for c, w in zip(unit.children, weights)]
    return Drawing(nodes, edges)


def draw_regions(plan: Plan, names: Sequence[str] | None = None) -> Drawing:
    """Every scope as a node, joined to the scopes that products split it into."""
    sizes = Counter(unit.scope for unit in plan.units)
    below: dict[Hashable, dict[Hashable, None]] = {
        scope: {} for scope in sorted(sizes, key=len, reverse=True)
    }
    for unit in plan.units:
        for child in unit.children:
            if child.scope != unit.scope:
                below[unit.scope][child.scope] = None
    places = layered_positions({scope: list(parts) for scope, parts in below.items()})
    number: dict[Hashable, int] = {scope: i for i, scope in enumerate(sizes)}
    nodes = []
    for scope, size in sizes.items():
        label = f"{name_variables(scope, names)}\n{size} unit" + "s" * (size != 1)
        nodes.append(Node(label, "region", *places[scope], size))
    pairs = [(number[scope], number[part]) for scope, parts in below.items() for part in parts]
    return Drawing(nodes, [(*pair, None) for pair in pairs])


def name_variables(scope: Sequence[int], names: Sequence[str] | None) -> str:
    """Name the variables of a scope; only the ends of a long one."""
    named = [f"x{variable}" if names is None else str(names[variable]) for variable in scope]
    if len(named) <= 4:
        return ", ".join(named)
    return f"{named[0]}, ..., {named[-1]} ({len(named)})"


def _kind(unit: Unit) -> str:
    return "sum" if isinstance(unit, Sum) else "product" if isinstance(unit, Product) else "input"


def _label(unit: Unit, names: Sequence[str] | None) -> str:
    """+, ×, or the family and the variables."""
    if unit.children:
        return "+" if isinstance(unit, Sum) else "×"
    return f"{type(unit).__name__}\n{name_variables(unit.scope, names)}"
