"""Circuits as text: a readable description and the DOT language."""

from __future__ import annotations

from collections import Counter

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.units import Product, Sum, Unit

__all__ = ["describe", "to_dot"]

# Circuits up to this many units are shown unit by unit.
SMALL = 40


def describe(plan: Plan) -> str:
    """Describe a circuit."""
    kinds = Counter(type(unit).__name__ for unit in plan.units)
    sizes = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
    head = f"Circuit over {len(plan.units[-1].scope)} variables: {sizes}"
    if plan.n_units > SMALL:
        return f"{head}\n{len(plan.layers)} inner layers"
    return "\n".join([head, *_tree(plan)])


def _tree(plan: Plan) -> list[str]:
    """Indented lines, root first; a shared unit is spelled out once and then referred to."""
    lines: list[str] = []
    numbered: dict[int, int] = {}
    stack: list[tuple[Unit, int, str]] = [(plan.units[-1], 0, "")]
    while stack:
        unit, depth, weight = stack.pop()
        indent = "  " * depth + weight
        if id(unit) in numbered:
            lines.append(f"{indent}#{numbered[id(unit)]}")
            continue
        numbered[id(unit)] = len(numbered)
        lines.append(f"{indent}{_label(unit)}  #{numbered[id(unit)]}")
        weights = unit.weights if isinstance(unit, Sum) else [None] * len(unit.children)
        for child, w in reversed(list(zip(unit.children, weights))):
            stack.append((child, depth + 1, "" if w is None else f"{w:.4g} * "))
    return lines


def _label(unit: Unit) -> str:
    """Name an inner unit, show an input unit."""
    return {Sum: "Sum", Product: "Product"}.get(type(unit)) or repr(unit)


def to_dot(plan: Plan) -> str:
    """Write a circuit in the DOT language."""
    lines = ["digraph circuit {", "  node [shape=circle];"]
    for position, unit in enumerate(plan.units):
        lines.append(f"  {position} [{_dot_style(unit)}];")
        weights = unit.weights if isinstance(unit, Sum) else [None] * len(unit.children)
        for child, weight in zip(unit.children, weights):
            style = "" if weight is None else f' [label="{weight:.4g}"]'
            lines.append(f"  {position} -> {plan.position[id(child)]}{style};")
    return "\n".join([*lines, "}"])


def _dot_style(unit: Unit) -> str:
    """Label and shape of a node."""
    if isinstance(unit, Sum):
        return 'label="+"'
    if isinstance(unit, Product):
        return 'label="×"'
    escaped = repr(unit).replace("\\", "\\\\").replace('"', '\\"')
    return f'label="{escaped}", shape=box'
