"""Circuits in files, as text, and as drawings in SVG and DOT.

An ``.npz`` archive with a JSON header, never a pickle, holds the graph (kinds, children, weights)
and, per family of input units, its parameters as plain arrays. Reading checks everything it uses
and rebuilds the units through their constructors, which check their own parameters; no code in a
file is ever run.

Lines of a PSDD, children before parents, the root last (ids from 0, variables from 1)::

    L id vtree literal
    T id vtree variable log-probability
    D id vtree count {prime sub log-weight}*count

Comment lines start with ``c``; the counts in the ``psdd`` header are not relied upon, since
writers disagree about them.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from inspect import signature
from itertools import pairwise
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import Bernoulli, Categorical, Indicator
from skcircuits.circuits.inputs.base import (
    FAMILIES,
    InputUnit,
    require_registered,
)
from skcircuits.circuits.structure.units import (
    INPUT,
    MAX_LOG_WEIGHT,
    SUM,
    Product,
    Scope,
    Sum,
    Unit,
    UnitList,
    log_weighted_sum,
    topological_order,
)
from skcircuits.exceptions import CircuitFileError

FORMAT = "skcircuits circuit"
VERSION = 1
GRAPH_ARRAYS = ("kinds", "n_children", "children", "weights")

# Far less than the distance between two parents.
SIBLING_GAP = 1e-6
# Circuits up to this many units and edges are described unit by unit.
MAX_DESCRIBED, MAX_LINES = 40, 400


def save(root: Unit, path: str | PathLike[str]) -> None:
    """Write the circuit of a root to a file, whose name is used exactly as given."""
    units = UnitList.of(topological_order(root))
    require_registered({type(unit) for unit in units.inputs})
    inputs = [unit for unit in units.inputs if isinstance(unit, InputUnit)]
    names = [type(unit).__name__ for unit in inputs]
    families = sorted(set(names))
    # A kind also identifies the family of an input unit.
    kinds = units.kinds.copy()
    kinds[kinds == INPUT] = [INPUT + families.index(name) for name in names]
    header = {"format": FORMAT, "version": VERSION, "families": families}
    arrays: dict[str, Any] = {
        "header": np.frombuffer(json.dumps(header).encode(), dtype=np.uint8),
        "kinds": kinds,
        "n_children": units.n_children,
        "children": units.children,
        "weights": units.weights,
    }
    for name in families:
        leaves = [unit for unit in inputs if type(unit).__name__ == name]
        arrays.update(_pack(name, [leaf.parameters() for leaf in leaves]))
    # NumPy would add an extension to a name, not to a file
    with open(path, "wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _pack(family: str, parameters: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Concatenate the parameters of one family: flat values and the shape of each."""
    packed = {}
    for name in parameters[0]:
        values = [np.asarray(entry[name]) for entry in parameters]
        packed[f"{family}.{name}.values"] = np.concatenate([value.ravel() for value in values])
        packed[f"{family}.{name}.shapes"] = np.array(
            [value.shape for value in values], dtype=np.int64
        ).reshape(len(values), -1)
    return packed


def load(path: str | PathLike[str]) -> Unit:
    """Read a circuit."""
    # Files that cannot be opened are no damaged files
    with open(path, "rb") as file:
        try:
            return _rebuild(*_read_arrays(file))
        except CircuitFileError as error:
            raise CircuitFileError(f"{path!s} cannot be read. {error}") from error
        # What constructors raise for values that they refuse
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise CircuitFileError(
                f"{path!s} must be a circuit written by Circuit.save; it is damaged or something "
                f"else ({type(error).__name__}: {error})."
            ) from error


def _read_arrays(file: BinaryIO) -> tuple[dict[str, np.ndarray], list[str]]:
    """Read the arrays of the graph and of its families; names of the families."""
    with _reading():
        loaded = np.load(file, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        raise CircuitFileError("A circuit file must be an .npz archive; got a single array.")
    with loaded as archive:
        families = _check_header(_member(archive, "header"))
        expected = {*GRAPH_ARRAYS, *(name for family in families for name in _names(family))}
        # Arrays that the header does not list are not even unpacked
        names = [name for name in archive.files if name in expected]
        return {name: _member(archive, name) for name in names}, families


@contextmanager
def _reading() -> Iterator[None]:
    """Turn what readers raise for damaged bytes, which can be anything, into one error."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _member(archive: Mapping[str, Any], name: str) -> np.ndarray:
    """Read a member, which NumPy gives as bytes where it is no array."""
    with _reading():
        array = archive[name]
    if not isinstance(array, np.ndarray):
        raise CircuitFileError(f"The member {name!r} of a circuit file must be an array.")
    return array


def _names(family: str) -> list[str]:
    """Names of the arrays that hold the parameters of a family."""
    parameters = signature(FAMILIES[family]).parameters
    return [f"{family}.{name}.{part}" for name in parameters for part in ("values", "shapes")]


def _check_header(array: np.ndarray) -> list[str]:
    """Check format and version; gives the names of the families."""
    with _reading():
        header = json.loads(array.astype(np.uint8).tobytes().decode())
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise CircuitFileError("A circuit file must have the header that Circuit.save writes.")
    version = header.get("version")
    if type(version) is not int or not 1 <= version <= VERSION:
        raise CircuitFileError(
            f"The version of a circuit file must be one of 1, ..., {VERSION}; got "
            f"version={version!r}. Install a newer skcircuits to read it."
        )
    known = sorted(FAMILIES)
    unknown = set(header["families"]) - set(known)
    if unknown:
        raise CircuitFileError(
            f"Input units of a circuit file must be among {known}; got "
            f"families={sorted(unknown)!r}."
        )
    return list(header["families"])


def _rebuild(arrays: Mapping[str, np.ndarray], families: list[str]) -> Unit:
    """Build the units, children first."""
    _check_graph(arrays, families)
    kinds = arrays["kinds"]
    leaves = {name: iter(_unpack(name, arrays)) for name in families}
    names = [families[kind - INPUT] for kind in kinds.tolist() if kind >= INPUT]
    inputs: list[Unit] = [FAMILIES[name](**next(leaves[name])) for name in names]
    units = UnitList(
        np.minimum(kinds, INPUT),
        arrays["n_children"].astype(np.int64),
        arrays["children"].astype(np.int64),
        arrays["weights"].astype(np.float64),
        inputs,
    )
    return units.linked[-1]


def _check_graph(arrays: Mapping[str, np.ndarray], families: list[str]) -> None:
    """Check that kinds, children and weights describe a graph, children first."""
    kinds, n_children, children = arrays["kinds"], arrays["n_children"], arrays["children"]
    lists = all(
        array.ndim == 1 and array.dtype.kind in "iu" for array in (kinds, n_children, children)
    )
    if not lists or len(kinds) == 0 or len(kinds) != len(n_children):
        raise CircuitFileError("A circuit file must list the children of at least one unit.")
    # Bounds first: sums of hostile numbers could wrap around.
    bounded = n_children.min() >= 0 and n_children.max() <= len(children)
    if not bounded or n_children.sum() != len(children):
        raise CircuitFileError("A circuit file must list as many children as it announces.")
    # Children before parents also rules out cycles.
    parents = np.repeat(np.arange(len(kinds)), n_children)
    if not ((children >= 0) & (children < parents)).all():
        raise CircuitFileError("Units of a circuit file must follow their children.")
    if kinds.min() < 0 or kinds.max() >= INPUT + len(families):
        raise CircuitFileError("Units of a circuit file must be of the kinds its header names.")
    if ((n_children > 0) != (kinds < INPUT)).any():
        raise CircuitFileError("Sums and products of a circuit file, and no others, have children.")
    weights = arrays["weights"]
    if weights.dtype.kind not in "iuf" or weights.shape != (n_children[kinds == SUM].sum(),):
        raise CircuitFileError("A circuit file must hold one weight per child of a sum.")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise CircuitFileError("Weights of a circuit file must be finite and non-negative.")
    for number, name in enumerate(families, start=INPUT):
        lengths = {len(arrays[key]) for key in _shape_names(name, arrays)}
        if lengths != {(kinds == number).sum()}:
            raise CircuitFileError(f"A circuit file must hold the parameters of every {name}.")


def _shape_names(family: str, arrays: Mapping[str, np.ndarray]) -> list[str]:
    """Names of the arrays that hold the shapes of a family's parameters."""
    return [key for key in arrays if key.startswith(f"{family}.") and key.endswith(".shapes")]


def _unpack(family: str, arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """Constructor arguments of all units of a family."""
    columns: dict[str, list[Any]] = {}
    for key in _shape_names(family, arrays):
        name = key.removeprefix(f"{family}.").removesuffix(".shapes")
        values, shapes = arrays[f"{family}.{name}.values"], arrays[key]
        if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
            raise CircuitFileError(f"Parameter {name} of {family} must be finite real numbers.")
        sizes = np.prod(shapes, axis=1, dtype=np.int64)
        # Negative sizes may add up to the right number.
        if sizes.sum() != len(values) or (shapes < 0).any():
            raise CircuitFileError(f"Parameter {name} of {family} must match its shapes.")
        pieces = np.split(values, np.cumsum(sizes)[:-1])
        columns[name] = [
            piece.reshape(shape) if len(shape) else piece.item()
            for piece, shape in zip(pieces, shapes.tolist())
        ]
    return [dict(zip(columns, row)) for row in zip(*columns.values())]


def read_psdd(
    psdd_path: str | PathLike[str], vtree_path: str | PathLike[str] | None = None
) -> Unit:
    """Root of a PSDD over binary variables, variable i of the file as column i - 1; with a vtree,
    whose nodes may be numbered in any way, every scope must be that of one of its nodes.
    """
    scopes = None if vtree_path is None else set(_vtree_scopes(vtree_path).values())
    nodes: dict[int, Unit] = {}
    last = None
    for number, words in _records(psdd_path, "psdd"):
        try:
            if int(words[1]) in nodes:
                raise ValueError("another node has its id")
            last = _node(words, nodes)
            if scopes is not None and last.scope not in scopes:
                raise ValueError("its scope is not the scope of any vtree node")
            # Nodes come before those that use them, as the format demands
            nodes[int(words[1])] = last
        except (ValueError, IndexError, OverflowError) as error:
            raise CircuitFileError(
                f"Line {number} of {psdd_path!s} must be a PSDD node (L, T or D with known "
                f"children); got line={' '.join(words[:8])!r} ({error})."
            ) from error
    if last is None:
        raise CircuitFileError(f"{psdd_path!s} must hold at least one node; it holds none.")
    return last


def _node(words: list[str], nodes: dict[int, Unit]) -> Unit:
    """Make the unit of one line."""
    kind = words[0]
    if kind == "L":
        literal = int(words[3])
        return Indicator(abs(literal) - 1, int(literal > 0), 2)
    if kind == "T":
        return _true_node(int(words[3]), float(words[4]))
    if kind == "D":
        count = int(words[3])
        if len(words) != 4 + 3 * count:
            raise ValueError(f"{count} elements were announced")
        primes, subs, log_weights = words[4::3], words[5::3], words[6::3]
        unknown = [child for child in primes + subs if int(child) not in nodes]
        if unknown:
            raise ValueError(f"no line above has the id {unknown[0]}")
        elements = [Product([nodes[int(p)], nodes[int(s)]]) for p, s in zip(primes, subs)]
        weights = np.array([float(weight) for weight in log_weights])
        if not (weights <= MAX_LOG_WEIGHT).all():
            raise ValueError("its log weights must be numbers that a float can hold")
        return log_weighted_sum(elements, weights)
    raise ValueError(f"unknown kind of node {kind!r}")


def _true_node(literal: int, log_probability: float) -> Unit:
    """Make the unit of a node that leaves its variable free."""
    variable = abs(literal) - 1
    # Writers round: a log probability may lie a little above zero.
    if 0.0 < log_probability < 1e-6:
        log_probability = 0.0
    masses = math.exp(log_probability), -math.expm1(log_probability)
    if masses[0] < np.finfo(np.float64).tiny and log_probability > -np.inf:
        # No input unit holds such a probability, but several weights do
        states = [Indicator(variable, int(literal > 0) ^ other, 2) for other in (0, 1)]
        return log_weighted_sum(states, np.array([log_probability, 0.0]))
    false, true = masses[::-1] if literal > 0 else masses
    # A Bernoulli unit knows the probability of one state, and subtracts it from one
    is_rounded = abs(1.0 - true - false) > 1e-9 * false
    return Categorical(variable, [false, true]) if is_rounded else Bernoulli(variable, true)


def _vtree_scopes(path: str | PathLike[str]) -> dict[int, Scope]:
    """Sorted variables below each node of a vtree."""
    scopes: dict[int, Scope] = {}
    for number, words in _records(path, "vtree"):
        try:
            if words[0] == "L":
                scopes[int(words[1])] = (int(words[2]) - 1,)
            elif words[0] == "I":
                left, right = scopes[int(words[2])], scopes[int(words[3])]
                if not set(left).isdisjoint(right):
                    raise ValueError("its children share a variable")
                scopes[int(words[1])] = tuple(sorted(left + right))
            else:
                raise ValueError(f"unknown kind of node {words[0]!r}")
        except (ValueError, IndexError, KeyError) as error:
            raise CircuitFileError(
                f"Line {number} of {path!s} must be a vtree node (L or I); got "
                f"line={' '.join(words[:8])!r} ({error})."
            ) from error
    return scopes


def _records(path: str | PathLike[str], header: str) -> Iterator[tuple[int, list[str]]]:
    """Numbered lines split into words, without comments and the header."""
    raw = Path(path).read_bytes()
    try:
        # Compressed or not is told by the first bytes, not by the name
        plain = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        # Comments hold names of people and places, and some editors mark a file as Unicode
        text = plain.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise CircuitFileError(f"{path!s} must be a text file ({error}).") from error
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if words and words[0] not in ("c", header):
            yield number, words


def layered_positions(
    children: Mapping[Hashable, Sequence[Hashable]],
) -> dict[Hashable, tuple[float, float]]:
    """Positions in (0, 1) of the nodes of an acyclic graph (``children``, parents before children),
    evenly spaced per level, and minus the length of the longest path to each.
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
    """Write weights near the lower nodes, where edges are further apart, unless they overlap."""
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
