"""Which steps the fast evaluator takes, and what each of them needs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod

import numpy as np
from scipy import sparse

from skcircuits.circuits.engine._layers import ProductLayer, SumLayer
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._scaled_steps import Block, Densities, Products, Step, Sums
from skcircuits.circuits.inputs import DiscreteLayer, InputLayer
from skcircuits.circuits.inputs._buffer_rows import as_run
from skcircuits.circuits.structure.units import Product, Scope
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["Node", "ScaledGraph"]

#: Gives the rows of the buffer in which units lie.
RowsOf = Callable[[Sequence[int]], IntArray]
#: Builds a step from its own rows, the rows of other units and the size of the buffer.
Make = Callable[[slice, RowsOf, int], Step]


@dataclass(eq=False)
class Node:
    """A step to be.

    Parameters
    ----------
    units : list of int
        Plan positions of the units it makes, in the order of its rows.
    reads : list of int
        Plan positions of the units it reads.
    make : callable, default=None
        Builds the step; None for tables.
    table_scope : tuple of int, default=None
        Variables of a table.
    needs : list of Node, default=[]
        Steps that must come before.
    """

    units: list[int]
    reads: list[int]
    make: Make | None = None
    table_scope: Scope | None = None
    needs: list[Node] = field(default_factory=list)


class ScaledGraph:
    """The nodes that some units of a plan need.

    Parameters
    ----------
    plan : Plan
        A circuit.
    most_codes : int, default=0
        Units over discrete variables with at most so many joint codes are tabulated; input
        units always are.
    outputs : sequence of int, default=None
        Plan positions of the units to evaluate; the root by default.

    Attributes
    ----------
    producer : dict of int to Node
        The node after which a unit can be read.
    tables : dict of tuple to list of int
        Units of each table by the variables of the table.
    masses : dict of int to ndarray
        Masses of the discrete input units.
    """

    def __init__(
        self, plan: Plan, most_codes: int = 0, outputs: Sequence[int] | None = None
    ) -> None:
        self.plan = plan
        self.masses: dict[int, FloatArray] = {}
        self.producer: dict[int, Node] = {}
        self.tables: dict[Scope, list[int]] = defaultdict(list)
        self.n_codes = cache(self._count_codes)
        self._most_codes = most_codes
        self._note_masses()
        self._outputs = [plan.root] if outputs is None else outputs
        self._needed = self._find_needed(self._outputs)
        self._add_nodes()
        self._connect()

    def _count_codes(self, scope: Scope) -> int:
        """Joint states of a scope, unknown counted as a state."""
        return prod(self.plan.cardinalities[variable] + 1 for variable in scope)

    def _note_masses(self) -> None:
        """Note the masses of the discrete input units, each with its own number of states."""
        for units, layer in self.plan.inputs:
            if isinstance(layer, DiscreteLayer):
                for i, n_states in enumerate(layer.cardinalities.tolist()):
                    self.masses[units.start + i] = layer.masses[i, :n_states]

    def _is_tabulated(self, unit: int) -> bool:
        """Tell whether a unit is looked up: small enough, over discrete variables only."""
        # Input units are tables anyway; mixtures of them pay only beside larger tables.
        if unit in self.masses:
            return True
        scope = self.plan.units[unit].scope
        discrete = self._most_codes > 0 and self.plan.cardinalities.keys() >= set(scope)
        return discrete and self.n_codes(scope) <= self._most_codes

    def _children(self, unit: int) -> list[int]:
        return [self.plan.position[id(child)] for child in self.plan.units[unit].children]

    def _find_needed(self, outputs: Sequence[int]) -> set[int]:
        """Find the units above the tables, the tabulated ones at the border included."""
        # What lies below a table is never evaluated.
        needed = set(outputs)
        stack = list(outputs)
        while stack:
            unit = stack.pop()
            if not self._is_tabulated(unit):
                below = [child for child in self._children(unit) if child not in needed]
                needed.update(below)
                stack.extend(below)
        return needed

    def _add_nodes(self) -> None:
        """Make one node per table, layer of densities, block and rest of a layer."""
        for unit in sorted(self._needed):
            if self._is_tabulated(unit):
                self.tables[self.plan.units[unit].scope].append(unit)
        for scope, units in self.tables.items():
            self._add(Node(units, [], table_scope=scope))
        for span, layer in self.plan.inputs:
            if not isinstance(layer, DiscreteLayer) and not self._needed.isdisjoint(_range(span)):
                self._add(Node(list(_range(span)), [], _densities_of(layer)))
        fused = self._fused_products()
        for inner in self.plan.layers:
            rest = [
                unit
                for unit in _range(inner.units)
                if unit in self._needed and unit not in fused and not self._is_tabulated(unit)
            ]
            if isinstance(inner, ProductLayer):
                self._add_products(inner, rest)
            elif inner.block_shape is None:
                self._add_sums(inner, rest)
            else:
                self._add_blocks(inner, set(rest), fused)

    def _add(self, node: Node) -> None:
        self.producer.update(dict.fromkeys(node.units, node))

    def _fused_products(self) -> set[int]:
        """Find products that are used by one block of sums only, with equally many factors."""
        # What is put out is read at the end.
        n_uses = Counter(self._outputs)
        for unit in self._needed:
            if not self._is_tabulated(unit):
                for child in self._children(unit):
                    n_uses[child] += 1
        fused: set[int] = set()
        for layer in self.plan.sum_layers:
            if layer.block_shape is None:
                continue
            for sums, children in _blocks(layer):
                # A product that is used elsewhere has to be kept, so it is not fused.
                own_uses = sum(unit in self._needed for unit in sums)
                kinds = {
                    (type(self.plan.units[i]), len(self.plan.units[i].children), n_uses[i])
                    for i in children
                }
                arity = len(self.plan.units[children[0]].children)
                if kinds == {(Product, arity, own_uses)} and len(set(children)) == len(children):
                    fused.update(children)
        return fused

    def _add_products(self, layer: ProductLayer, units: list[int]) -> None:
        """Add the products of a layer that are not fused."""
        if not units:
            return
        children = layer.children[np.array(units) - layer.units.start]

        def make(out: slice, rows_of: RowsOf, n_rows: int) -> Step:
            return Products(out, tuple(as_run(rows_of(factor)) for factor in children.T.tolist()))

        self._add(Node(units, children.ravel().tolist(), make))

    def _add_sums(self, layer: SumLayer, units: list[int]) -> None:
        """Add the sums of a layer without blocks."""
        if not units:
            return
        chosen = np.array(units) - layer.units.start
        # The layer's other sums are not needed.
        edges, first = layer.edges_of(chosen)
        children = layer.children[edges].tolist()
        weights = self.plan.weights.linear[layer.edges][edges]
        indptr = np.append(first, len(edges))

        def make(out: slice, rows_of: RowsOf, n_rows: int) -> Step:
            matrix = (weights, rows_of(children), indptr)
            return Sums(out, sparse.csr_matrix(matrix, (len(units), n_rows)))

        self._add(Node(units, children, make))

    def _add_blocks(self, layer: SumLayer, units: set[int], fused: set[int]) -> None:
        """Add one node per block of sums that share their children."""
        n_blocks, n_sums, n_children = layer.block_shape or (0, 0, 0)
        matrices = self.plan.weights.linear[layer.edges].reshape(n_blocks, n_sums, n_children)
        for (sums, children), matrix in zip(_blocks(layer), matrices):
            kept = [i for i, unit in enumerate(sums) if unit in units]
            if kept:
                factors = [children]
                if children[0] in fused:
                    factors = np.transpose([self._children(i) for i in children]).tolist()
                own = [sums[i] for i in kept]
                self._add(_block_node(own, np.ascontiguousarray(matrix[kept]), factors))

    def _connect(self) -> None:
        """Let every node know the nodes it reads from."""
        for node in list(self.producer.values()):
            if not node.needs:
                below = {id(self.producer[i]): self.producer[i] for i in node.reads}
                node.needs = list(below.values())


def _densities_of(layer: InputLayer) -> Make:
    """Build the step of a continuous layer."""
    return lambda out, rows_of, n_rows: Densities(out, layer)


def _block_node(units: list[int], weights: FloatArray, factors: list[list[int]]) -> Node:
    """One block of sums with shared children, given by the factors of the children."""

    def make(out: slice, rows_of: RowsOf, n_rows: int) -> Step:
        return Block(out, weights, tuple(as_run(rows_of(factor)) for factor in factors))

    return Node(units, [unit for factor in factors for unit in factor], make)


def _blocks(layer: SumLayer) -> list[tuple[list[int], list[int]]]:
    """Sums and children of each block of a layer."""
    n_blocks = len(layer.block_children)
    sums = np.arange(layer.units.start, layer.units.stop).reshape(n_blocks, -1).tolist()
    return list(zip(sums, layer.block_children.tolist()))


def _range(units: slice) -> range:
    return range(units.start, units.stop)
