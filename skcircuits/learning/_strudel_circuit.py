"""The circuit that Strudel grows: a Chow-Liu tree whose parts are copied and conditioned.

Every node belongs to one variable of the tree, and its scope is that variable and all below
it, so that copies decompose alike and the circuit remains structured-decomposable. A sum chooses
among products, a product fixes the state of its variable and has one sum per child in the
tree. A row takes exactly one edge of each sum it reaches: each edge keeps the rows it carries,
and those of a sum's edges are together the rows of all edges that lead to the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass

import numpy as np

from skcircuits.circuits import Categorical, Indicator, Product, Sum
from skcircuits.circuits.structure.units import Unit, depth_first
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._trees import children_of, top_down_order


class Shape:
    """The tree that all nodes follow.

    `parents` (n_variables,): parent of each variable, -1 at the root; `cardinalities`
    (n_variables,): number of states; `order`: variables, parents first; `children`: children of
    each variable; `scopes`: each variable and all below it, sorted.
    """

    def __init__(self, parents: IntArray, cardinalities: IntArray) -> None:
        self.parents = parents
        self.cardinalities = cardinalities
        self.order = [int(v) for v in top_down_order(parents[None])[0]]
        self.children = children_of(parents)
        self._inside = np.eye(len(parents), dtype=bool)
        for variable in reversed(self.order[1:]):
            self._inside[parents[variable]] |= self._inside[variable]
        self.scopes = [np.flatnonzero(row) for row in self._inside]

    def contains(self, variable: int, other: int) -> bool:
        """Tell whether the scope of a variable contains another one."""
        return bool(self._inside[variable, other])


@dataclass(frozen=True, eq=False)
class ProductNode:
    """Fixes the state of one variable, and of those it was split on; a sum per child."""

    variable: int  # top variable of the scope
    literals: tuple[tuple[int, int], ...]  # states of possible rows, the product's own first
    factors: tuple[SumNode, ...]  # in the order of the tree's children

    @property
    def state(self) -> int:
        """State of the product's own variable."""
        return self.literals[0][1]


@dataclass(eq=False)
class Edge:
    """An edge from sum `owner` to product `child`, with the ascending `rows` that it carries."""

    owner: SumNode
    child: ProductNode
    rows: IntArray


class SumNode:
    """A choice among products.

    `variable`: top variable of the scope; `edges`: the present edges; `versions`: number of splits
    done, products and row counts after each change, so that any earlier circuit can be built
    again.
    """

    def __init__(self, variable: int) -> None:
        self.variable = variable
        self.edges: list[Edge] = []
        self.versions: list[tuple[int, tuple[ProductNode, ...], FloatArray]] = []

    def record(self, version: int, counts: FloatArray) -> None:
        """Note the present edges and their weights under a number of splits."""
        # A split changes some sums only: the others keep their last version
        entry = (version, tuple(edge.child for edge in self.edges), counts)
        if self.versions and self.versions[-1][0] == version:
            self.versions[-1] = entry
        else:
            self.versions.append(entry)

    def at(self, version: int) -> tuple[tuple[ProductNode, ...], FloatArray]:
        """Products and counts after a number of splits."""
        for number, products, counts in reversed(self.versions):
            if number <= version:
                return products, counts
        raise AssertionError("a node is only reached in versions that know it")


def compile_tree(shape: Shape, codes: IntArray) -> list[SumNode]:
    """Compile the tree for codes (n, n_variables): a sum per state of the parent."""
    sums: list[SumNode] = []
    below: dict[int, list[SumNode]] = {}
    # Leaves first: sums of children stand before the products that name them
    for variable in reversed(shape.order):
        factors = [below.pop(child) for child in shape.children[variable]]
        products = [
            ProductNode(variable, ((variable, state),), tuple(states[state] for states in factors))
            for state in range(shape.cardinalities[variable])
        ]
        parent = shape.parents[variable]
        n_above = 1 if parent < 0 else shape.cardinalities[parent]
        above = np.zeros(len(codes), dtype=np.int64) if parent < 0 else codes[:, parent]
        below[variable] = [SumNode(variable) for _ in range(n_above)]
        for state, node in enumerate(below[variable]):
            reached = np.flatnonzero(above == state)
            own = codes[reached, variable]
            node.edges = [Edge(node, p, reached[own == p.state]) for p in products]
        sums += below[variable]
    return sums


Node = SumNode | ProductNode


class Conditioning:
    """Copies what lies below one edge, restricted to one state of a variable.

    Copied are all nodes whose scope has the variable and, where rows move, the sums directly below
    the product; the rest is shared. Sums and products are copied once each, however many paths
    lead to them.

    `shape`: the tree; `variable`, `state`: what is fixed; `moving` (n_rows,): rows of the edge
    with that state: they move to the copies; `touched`: sums whose rows have changed: originals
    and copies; `new_edges`: edges of the copies.
    """

    def __init__(self, shape: Shape, variable: int, state: int, moving: BoolArray) -> None:
        self.shape = shape
        self.variable = variable
        self.state = state
        self.moving = moving
        self.touched: list[SumNode] = []
        self.new_edges: list[Edge] = []
        self._sums: dict[SumNode, SumNode | None] = {}
        self._products: dict[ProductNode, ProductNode | None] = {}

    def product(self, node: ProductNode, *, is_top: bool = True) -> ProductNode | None:
        """Copy a product; None where the state is impossible below it."""
        # Units without the variable are the same in every state of it
        if not self.shape.contains(node.variable, self.variable):
            return node
        if node.variable == self.variable:
            return node if node.state == self.state else None
        if node not in self._products:
            copy_all = is_top and bool(self.moving.any())
            factors = [self._sum(factor, copy_all=copy_all) for factor in node.factors]
            kept = tuple(factor for factor in factors if factor is not None)
            complete = len(kept) == len(factors)
            literals = (*node.literals, (self.variable, self.state))
            copy = ProductNode(node.variable, literals, kept) if complete else None
            self._products[node] = copy
        return self._products[node]

    def _sum(self, node: SumNode, *, copy_all: bool) -> SumNode | None:
        """Copy a sum and move its rows; keep it if nothing changes."""
        if not copy_all and not self.shape.contains(node.variable, self.variable):
            return node
        if node not in self._sums:
            children = [self.product(edge.child, is_top=False) for edge in node.edges]
            self._sums[node] = self._copy(node, children) if any(children) else None
        return self._sums[node]

    def _copy(self, node: SumNode, children: list[ProductNode | None]) -> SumNode:
        copy = SumNode(node.variable)
        for edge, child in zip(node.edges, children):
            if child is None:
                continue
            moves = self.moving[edge.rows]
            copy.edges.append(Edge(copy, child, edge.rows[moves]))
            edge.rows = edge.rows[~moves]
        self.touched += [node, copy]
        self.new_edges += copy.edges
        return copy


class UnitBuilder:
    """Writes the nodes below a root, as they were after `version` splits, as units of a circuit."""

    def __init__(self, shape: Shape, root: SumNode, version: int) -> None:
        self._shape = shape
        self._version = version
        self._nodes = bottom_up(root, version)
        self._indicators = [
            [Indicator(v, state, int(size)) for state in range(size)]
            for v, size in enumerate(shape.cardinalities)
        ]

    def build(
        self, weights_of: Callable[[SumNode], FloatArray], shared: dict[Node, Unit] | None = None
    ) -> dict[Node, Unit]:
        """Write all nodes."""
        built = {} if shared is None else dict(shared)
        for node in self._nodes:
            if node in built:
                continue
            if isinstance(node, ProductNode):
                literal = self._indicators[node.variable][node.state]
                factors = [built[factor] for factor in node.factors]
                built[node] = Product([literal, *factors]) if factors else literal
            else:
                built[node] = self._sum(node, weights_of, built)
        return built

    def _sum(
        self, node: SumNode, weights_of: Callable[[SumNode], FloatArray], built: dict[Node, Unit]
    ) -> Unit:
        products, _ = node.at(self._version)
        # A sum with one child has weight one, and is replaced by the product
        if len(products) == 1:
            return built[products[0]]
        weights = weights_of(node)
        # Without children a sum over states is a categorical unit
        if self._shape.children[node.variable]:
            return Sum([built[product] for product in products], weights=weights)
        masses = np.zeros(self._shape.cardinalities[node.variable])
        masses[[product.state for product in products]] = weights
        return Categorical(node.variable, masses)


def route(root: SumNode, version: int, codes: IntArray) -> Iterator[tuple[SumNode, list[IntArray]]]:
    """Send complete rows (n, n_variables) through a version of the circuit."""
    arriving: dict[SumNode, list[IntArray]] = {root: [np.arange(len(codes))]}
    for node in reversed(bottom_up(root, version)):
        if isinstance(node, ProductNode):
            continue
        # A row reaches a sum at most once, so the parts are disjoint.
        rows = np.sort(np.concatenate(arriving.pop(node)))
        products, _ = node.at(version)
        taken = []
        for product in products:
            fits = np.ones(len(rows), dtype=bool)
            for variable, state in product.literals:
                fits &= codes[rows, variable] == state
            taken.append(rows[fits])
            for factor in product.factors:
                arriving.setdefault(factor, []).append(taken[-1])
        yield node, taken


def bottom_up(root: SumNode, version: int) -> list[Node]:
    """List the nodes of a version, those below a node before it."""
    # The last child first: draws are keyed by the order of units
    return depth_first(root, lambda node: _below(node, version)[::-1])


def _below(node: Node, version: int) -> tuple[Node, ...]:
    """Children of a node in a version."""
    return node.at(version)[0] if isinstance(node, SumNode) else node.factors


def nodes_above(root: SumNode, version: int, sums: Container[Node]) -> set[Node]:
    """Find the nodes from which some of the given sums can be reached."""
    above: set[Node] = set()
    for node in bottom_up(root, version):
        if node in sums or not above.isdisjoint(_below(node, version)):
            above.add(node)
    return above
