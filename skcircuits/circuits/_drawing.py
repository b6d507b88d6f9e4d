"""Drawings of circuits as SVG (nodes with positions, and edges), as text and as DOT."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from html import escape
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.units import Product, Sum, Unit

# Far less than the distance between two parents.
SIBLING_GAP = 1e-6
# Circuits up to this many units and edges are described unit by unit.
MAX_DESCRIBED, MAX_LINES = 40, 400


def layered_positions(
    children: Mapping[Hashable, Sequence[Hashable]],
) -> dict[Hashable, tuple[float, float]]:
    """Place nodes below their parents, in the order of the parents.

    ``children``: all nodes of an acyclic graph, parents before children. Returns x in (0, 1), the
    nodes of a level evenly spaced; y = minus the length of the longest path from a root.
    """
    levels = _levels(children)
    members: dict[int, list[Hashable]] = defaultdict(list)
    for node, level in levels.items():
        members[level].append(node)
    # Mean position of the parents of a node; siblings keep their order.
    wishes: dict[Hashable, list[float]] = {node: [] for node in children}
    places: dict[Hashable, tuple[float, float]] = {}
    for level in sorted(members):
        means = {n: sum(wishes[n]) / max(1, len(wishes[n])) for n in members[level]}
        ordered = sorted(members[level], key=means.__getitem__)
        for rank, node in enumerate(ordered):
            x = (rank + 0.5) / len(ordered)
            places[node] = (x, 0.0 - level)
            for i, child in enumerate(children[node]):
                wishes[child].append(x + SIBLING_GAP * i)
    return places


def _levels(children: Mapping[Hashable, Sequence[Hashable]]) -> dict[Hashable, int]:
    """Length of the longest path from a root to each node."""
    levels = dict.fromkeys(children, 0)
    for node, below in children.items():
        for child in below:
            # Parents come first, so that their levels are final
            levels[child] = max(levels[child], levels[node] + 1)
    return levels


# Circuits up to this many units are drawn unit by unit.
SMALL = 60


class Node(NamedTuple):
    """A unit, or a region: all units with one scope."""

    label: str  # lines of words
    kind: str  # its type
    x: float  # in (0, 1)
    y: float  # minus the level
    size: int = 1  # number of units


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
        edges += [(i, number[id(c)], w) for c, w in _weighted_children(unit)]
    return Drawing(nodes, edges)


def draw_regions(plan: Plan, names: Sequence[str] | None = None) -> Drawing:
    """Every scope as a node, joined to the scopes that products split it into."""
    # One object per scope: of long chains, hashes of tuples would take most of the time
    scopes, position = plan.scopes, plan.position
    sizes = Counter(scopes)
    below: dict[Hashable, dict[Hashable, None]] = {
        # Longer scopes first: they are above their parts
        scope: {}
        for scope in sorted(sizes, key=attrgetter("size"), reverse=True)
    }
    for unit, scope in zip(plan.units, scopes):
        parts = [scopes[position[id(child)]] for child in unit.children]
        below[scope].update({part: None for part in parts if part is not scope})
    places = layered_positions({scope: list(parts) for scope, parts in below.items()})
    number: dict[Hashable, int] = {scope: i for i, scope in enumerate(sizes)}
    nodes = []
    for scope, size in sizes.items():
        label = f"{name_variables(scope.variables, names)}\n{size} unit" + "s" * (size != 1)
        nodes.append(Node(label, "region", *places[scope], size))
    pairs = [(number[scope], number[part]) for scope, parts in below.items() for part in parts]
    return Drawing(nodes, [(*pair, None) for pair in pairs])


def name_variables(scope: Sequence[int], names: Sequence[str] | None) -> str:
    """Name the variables of a scope; only the ends of a long one."""
    named = [f"x{variable}" if names is None else str(names[variable]) for variable in scope]
    if len(named) <= 4:
        return ", ".join(named)
    return f"{named[0]}, ..., {named[-1]} ({len(named)})"


def _weighted_children(unit: Unit) -> list[tuple[Unit, float | None]]:
    """Children with the weights of a sum, with None below products."""
    weights = unit.weights.tolist() if isinstance(unit, Sum) else [None] * len(unit.children)
    return list(zip(unit.children, weights, strict=True))


def _kind(unit: Unit) -> str:
    return "sum" if isinstance(unit, Sum) else "product" if isinstance(unit, Product) else "input"


def _label(unit: Unit, names: Sequence[str] | None) -> str:
    """+, ×, or the family and the variables."""
    if unit.children:
        return "+" if isinstance(unit, Sum) else "×"
    return f"{type(unit).__name__}\n{name_variables(unit.scope, names)}"


# Larger drawings are neither readable nor fast; the text summarises the circuit.
MAX_NODES, MAX_UNITS = 200, 20_000
COLORS = {"sum": "#fff3d6", "product": "#dbe9f6", "input": "#e6f2e1", "region": "#dbe9f6"}
FONT, LEVEL, GAP = 11, 70, 12


def circuit_svg(plan: Plan, text: str) -> str:
    """Draw units of small circuits, regions of larger ones, below a line of text."""
    heading = f"<pre>{escape(text)}</pre>"
    # A notebook shows a cell at once: a layout of many units would take seconds
    if len(plan.units) > MAX_UNITS:
        return heading
    if len(plan.units) <= SMALL and plan.n_edges <= MAX_LINES:
        drawing = draw_units(plan)
    elif len(set(plan.scopes)) <= MAX_NODES:
        drawing = draw_regions(plan)
    else:
        return heading
    width = max(_level_widths(drawing))
    places = [(node.x * width, LEVEL * (0.5 - node.y)) for node in drawing.nodes]
    height = max(y for _, y in places) + LEVEL / 2
    shapes = [_edge(places[i], places[j], weight) for i, j, weight in drawing.edges]
    shapes += _weights(places, drawing)
    shapes += [_box(node, *place) for node, place in zip(drawing.nodes, places)]
    return (
        f'{heading}<div style="overflow-x:auto"><svg xmlns="http://www.w3.org/2000/svg" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" '
        f'font-size="{FONT}" text-anchor="middle">{"".join(shapes)}</svg></div>'
    )


def _box_width(node: Node) -> float:
    return 14 + 0.62 * FONT * max(map(len, node.label.split("\n")))


def _level_widths(drawing: Drawing) -> list[float]:
    """Width that each level needs: nodes of a level are evenly spaced."""
    levels: dict[float, list[Node]] = {}
    for node in drawing.nodes:
        levels.setdefault(node.y, []).append(node)
    widths = []
    for nodes in levels.values():
        boxes = [_box_width(node) for node in sorted(nodes, key=lambda node: node.x)]
        neighbours = max((a + b for a, b in pairwise(boxes)), default=0.0)
        # Evenly spaced: the widest pair of neighbours sets the distance of all
        widths.append(len(nodes) * (max(neighbours / 2, boxes[0], boxes[-1]) + GAP))
    return widths


def _edge(upper: tuple[float, float], lower: tuple[float, float], weight: float | None) -> str:
    """Draw a line; the pointer shows its weight."""
    ends = f'x1="{upper[0]:.1f}" y1="{upper[1]:.1f}" x2="{lower[0]:.1f}" y2="{lower[1]:.1f}"'
    title = "" if weight is None else f"<title>{weight:.4g}</title>"
    return f'<line {ends} stroke="#999">{title}</line>'


def _weights(places: list[tuple[float, float]], drawing: Drawing) -> list[str]:
    """Write weights nearer to the lower nodes, where edges are further apart.

    One that would cover another is left to the pointer.
    """
    written: list[tuple[float, float]] = []
    shapes = []
    for i, j, weight in drawing.edges:
        x, y = (0.4 * a + 0.6 * b for a, b in zip(places[i], places[j]))
        near = any(abs(x - a) < 3.5 * FONT and abs(y - b) < 1.2 * FONT for a, b in written)
        if weight is not None and not near:
            written.append((x, y))
            shapes.append(
                f'<text x="{x:.1f}" y="{y:.1f}" stroke="white" stroke-width="3" '
                f'paint-order="stroke" fill="#333">{weight:.2g}</text>'
            )
    return shapes


def _box(node: Node, x: float, y: float) -> str:
    lines = node.label.split("\n")
    width, height = _box_width(node), 8 + 1.25 * FONT * len(lines)
    top = y - height / 2
    words = "".join(
        f'<text x="{x:.1f}" y="{top + 1.25 * FONT * (i + 1):.1f}" fill="#111">{escape(line)}</text>'
        for i, line in enumerate(lines)
    )
    return (
        f'<rect x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="5" fill="{COLORS[node.kind]}" stroke="#555"/>{words}'
    )


def describe(plan: Plan) -> str:
    """Describe a circuit in words."""
    kinds = Counter(type(unit).__name__ for unit in plan.units)
    sizes = ", ".join(f"{count} {name}" for name, count in sorted(kinds.items()))
    head = f"Circuit over {len(plan.variables)} variables: {sizes}"
    if plan.n_units > MAX_DESCRIBED or plan.n_edges > MAX_LINES:
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
        # A shared unit is written once: written out everywhere, a graph may be exponentially long
        numbered[id(unit)] = len(numbered)
        name = {Sum: "Sum", Product: "Product"}.get(type(unit)) or repr(unit)
        lines.append(f"{indent}{name}  #{numbered[id(unit)]}")
        for child, w in reversed(_weighted_children(unit)):
            stack.append((child, depth + 1, "" if w is None else f"{w:.4g} * "))
    return lines


def to_dot(plan: Plan) -> str:
    """Write a circuit in the DOT language."""
    lines = ["digraph circuit {", "  node [shape=circle];"]
    for position, unit in enumerate(plan.units):
        lines.append(f"  {position} [{_dot_style(unit)}];")
        for child, weight in _weighted_children(unit):
            style = "" if weight is None else f' [label="{weight:.4g}"]'
            lines.append(f"  {position} -> {plan.position[id(child)]}{style};")
    return "\n".join([*lines, "}"])


def _dot_style(unit: Unit) -> str:
    """Label and shape of a node."""
    if unit.children:
        return f'label="{_label(unit, None)}"'
    escaped = repr(unit).replace("\\", "\\\\").replace('"', '\\"')
    return f'label="{escaped}", shape=box'
