"""Pictures of circuits in notebooks, as SVG: no plotting library is needed."""

from __future__ import annotations

from html import escape
from itertools import pairwise

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.files._drawing import SMALL, Drawing, Node, draw_regions, draw_units

__all__ = ["circuit_svg"]

# Beyond these a drawing is neither readable nor fast; the text says what there is.
MAX_NODES, MAX_UNITS = 200, 20_000
COLORS = {"sum": "#fff3d6", "product": "#dbe9f6", "input": "#e6f2e1", "region": "#dbe9f6"}
FONT, LEVEL, GAP = 11, 70, 12


def circuit_svg(plan: Plan, text: str) -> str:
    """Draw units of small circuits, regions of larger ones, below a line of text."""
    heading = f"<pre>{escape(text)}</pre>"
    if len(plan.units) > MAX_UNITS:
        return heading
    drawing = draw_units(plan) if len(plan.units) <= SMALL else draw_regions(plan)
    if len(drawing.nodes) > MAX_NODES:
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
