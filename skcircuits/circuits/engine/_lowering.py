"""Lowering of a plan to a sequence of steps on linear values in a small buffer.

This is the last optimisation pass, for queries that only need the value of the root. Products that
are read by a single block of sums are fused into it, discrete input units become lookups whose
codes are computed once, and steps are ordered depth first, so that the rows of a buffer are reused
and stay in cache.

The result is exact for the following reason. All values are at most one, so that underflow anywhere
changes the value of the root by less than a denormal number per edge. A row whose root value is
well above that is exact; the other rows are evaluated again in log space. Continuous units are
divided by the largest unit of their scope, row by row, beforehand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

import numpy as np

from skcircuits.circuits._policy import LOOKUP_TABLES, MAX_BATCH_VALUES, MIN_ROWS_PER_STEP
from skcircuits.circuits.engine._layers import BlockLayer, ProductLayer, SumLayer, SumWeights
from skcircuits.circuits.engine._passes import MIN_ROOT, can_be_linear, run_steps
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._tables import CodeBook, tabulated
from skcircuits.circuits.inputs import InputLayer
from skcircuits.circuits.inputs.base import DiscreteInputLayer
from skcircuits.circuits.structure.units import Product, Scope, depth_first
from skcircuits.protocols import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Lookup:
    """Units over a few discrete variables: one row of the codes chooses columns of a table."""

    units: slice
    table: FloatArray  # (n_units, n_codes + 1)
    number: int  # of the row of the codes


@dataclass(frozen=True)
class Densities:
    """A layer of continuous input units, divided by the largest of their scope."""

    units: slice
    layer: InputLayer


InputStep = Lookup | Densities
InnerStep = ProductLayer | SumLayer | BlockLayer
# Gives the rows of the buffer that hold some units.
RowsOf = Callable[[Sequence[int] | IntArray], IntArray]


@dataclass(frozen=True)
class LoweredPlan:
    """Steps in order of execution; ``root`` is the row of the buffer that holds the result."""

    codebook: CodeBook
    steps: Sequence[InputStep | InnerStep]
    weights: SumWeights
    n_rows: int
    root: int

    @property
    def batch_rows(self) -> int:
        """Rows per batch that keep the buffer in cache and still amortise Python."""
        return max(MAX_BATCH_VALUES // self.n_rows, MIN_ROWS_PER_STEP * len(self.steps))

    @property
    def bytes_per_row(self) -> int:
        """Memory one row of a table takes while it is evaluated."""
        densities = [step.layer for step in self.steps if isinstance(step, Densities)]
        n_cells = len(self.codebook.variables) + sum(layer.scopes.size for layer in densities)
        return 8 * (2 * self.n_rows + 4 * n_cells)

    def log_values(self, X: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Log value of the root, shape (n,), and where underflow is excluded."""
        codes, log_scale = self.codebook.codes(X), np.zeros(len(X))

        def write(step: InputStep, out: FloatArray) -> None:
            nonlocal log_scale
            if isinstance(step, Lookup):
                # mode="clip" lets NumPy write straight into the buffer
                np.take(step.table, codes[step.number], axis=1, out=out, mode="clip")
            else:
                out[...], own_scale = step.layer.scaled_prob(X)
                log_scale += own_scale

        # Every step writes all its rows before another reads them
        values = np.empty((self.n_rows, len(X)))
        run_steps(self.steps, values, "linear", self.weights, write)
        # The others may have lost mass to underflow: the caller evaluates them in log space.
        exact = values[self.root] >= MIN_ROOT
        return np.log(np.where(exact, values[self.root], 1.0)) + log_scale, exact


def lower(plan: Plan, *, tabulate: bool) -> LoweredPlan | None:
    """Lower a plan, with tables for small discrete scopes or without; None if values exceed one."""
    if not can_be_linear(plan):
        return None
    return _lower(tabulated(plan, budget=LOOKUP_TABLES) if tabulate else plan)


@dataclass(eq=False)
class _Node:
    """A step to be: units it makes (in the order of its rows), units it reads, how it is built.

    ``make`` gets the step's own rows and a function from units to rows.
    """

    units: Sequence[int]
    reads: Sequence[int]
    make: Callable[[slice, RowsOf], InputStep | InnerStep]
    needs: list[_Node] = field(default_factory=list)


def _lower(plan: Plan) -> LoweredPlan:
    scopes: list[Scope] = []
    nodes = [*_input_nodes(plan, scopes), *_inner_nodes(plan)]
    # Fused products have no node: their block computes them and nothing else reads them
    producer = {unit: node for node in nodes for unit in node.units}
    for node in nodes:
        # Each once, in the order of reading: a set would make the order of steps a matter of chance
        node.needs = list({id(producer[unit]): producer[unit] for unit in node.reads}.values())
    # Depth first, so that a value is used soon after it was made
    order = depth_first(producer[plan.root], attrgetter("needs"))
    start_of, n_rows = _allocate(order)
    row_of = np.empty(plan.n_units, dtype=np.intp)
    for node in order:
        row_of[list(node.units)] = start_of[id(node)] + np.arange(len(node.units))

    def rows_of(units: Sequence[int] | IntArray) -> IntArray:
        return row_of[np.asarray(units)]

    steps = [
        node.make(slice(start_of[id(node)], start_of[id(node)] + len(node.units)), rows_of)
        for node in order
    ]
    codebook = CodeBook.of(scopes, plan.cardinalities)
    root = int(row_of[plan.root])
    return LoweredPlan(codebook, steps, plan.weights.with_own_matrices(), n_rows, root)


def _input_nodes(plan: Plan, scopes: list[Scope]) -> Iterable[_Node]:
    """One node per layer of densities and per scope of discrete units, which are noted."""
    for span, layer in plan.inputs:
        units = range(span.start, span.stop)
        # Densities have no codes to look up: they are computed row by row
        if not isinstance(layer, DiscreteInputLayer):
            yield _Node(units, [], partial(_densities, layer))
            continue
        for own, scope, table in layer.tables(plan.cardinalities):
            number = len(scopes)
            scopes.append(scope)
            yield _Node(units[own], [], partial(_lookup, table, number))


def _densities(layer: InputLayer, out: slice, rows_of: RowsOf) -> Densities:
    return Densities(out, layer)


def _lookup(table: FloatArray, number: int, out: slice, rows_of: RowsOf) -> Lookup:
    return Lookup(out, table, number)


def _inner_nodes(plan: Plan) -> Iterable[_Node]:
    """One node per block of sums, layer of other sums, and layer of products not fused."""
    fused = _fused_products(plan)
    for layer in plan.layers:
        if isinstance(layer, ProductLayer):
            yield from _product_nodes(layer, fused)
        elif layer.block_shape is None:
            yield _sum_node(layer)
        else:
            yield from _block_nodes(plan, layer, fused)


def _fused_products(plan: Plan) -> set[int]:
    """Find products that are used by one block of sums only, with equally many factors."""
    n_uses = Counter(plan.position[id(child)] for unit in plan.units for child in unit.children)
    fused: set[int] = set()
    for layer in plan.sum_layers:
        if layer.block_shape is None:
            continue
        for children in layer.block_children.tolist():
            # One matrix of factors per place needs products of one arity.
            kinds = {
                (type(plan.units[i]), len(plan.units[i].children), n_uses[i]) for i in children
            }
            arity = len(plan.units[children[0]].children)
            # A product that is used elsewhere has to be kept, so it is not fused.
            is_own = kinds == {(Product, arity, layer.block_shape[1])}
            if is_own and len(set(children)) == len(children):
                fused.update(children)
    return fused


def _product_nodes(layer: ProductLayer, fused: set[int]) -> Iterable[_Node]:
    """The products of a layer that are not fused."""
    # Of one layer some products may be fused and others not
    units = [i for i in range(layer.units.start, layer.units.stop) if i not in fused]
    if not units:
        return
    children = layer.children[np.array(units) - layer.units.start]
    yield _Node(
        units,
        children.ravel().tolist(),
        lambda out, rows_of: ProductLayer(out, rows_of(children.ravel()).reshape(children.shape)),
    )


def _sum_node(layer: SumLayer) -> _Node:
    """A layer of sums without blocks."""
    return _Node(
        range(layer.units.start, layer.units.stop),
        layer.children.tolist(),
        lambda out, rows_of: SumLayer(out, layer.edges, rows_of(layer.children), layer.lengths),
    )


def _block_nodes(plan: Plan, layer: SumLayer, fused: set[int]) -> Iterable[_Node]:
    """The blocks of a layer, with the factors of the products that are fused into them."""
    assert layer.block_shape is not None
    n_sums, n_edges = layer.block_shape[1], layer.block_shape[1] * layer.block_shape[2]
    for number, children in enumerate(layer.block_children.tolist()):
        factors = [children]
        if children[0] in fused:
            # Factor by factor, so that each is one gather for all children of the block
            below = [[plan.position[id(c)] for c in plan.units[i].children] for i in children]
            factors = np.transpose(below).tolist()
        start = layer.units.start + number * n_sums
        first = layer.edges.start + number * n_edges
        yield _Node(
            range(start, start + n_sums),
            [unit for factor in factors for unit in factor],
            partial(_block, factors, slice(first, first + n_edges)),
        )


def _block(factors: list[list[int]], edges: slice, out: slice, rows_of: RowsOf) -> BlockLayer:
    return BlockLayer(out, edges, tuple(rows_of(factor) for factor in factors))


def _allocate(nodes: list[_Node]) -> tuple[dict[int, int], int]:
    """First row of each node in a buffer whose rows are used again, and its size."""
    last_use: dict[int, int] = defaultdict(lambda: -1)
    last_use.update((id(below), i) for i, node in enumerate(nodes) for below in node.needs)
    # First fit: optimal packing is NP-hard, and depth-first order leaves little to gain
    start_of: dict[int, int] = {}
    taken: list[tuple[int, int, int]] = []  # first row, end, identity of the node
    n_rows = 0
    for i, node in enumerate(nodes):
        start = _first_fit(taken, len(node.units))
        start_of[id(node)] = start
        n_rows = max(n_rows, start + len(node.units))
        # Rows are released after the step: a step never overwrites its inputs.
        taken = sorted([*taken, (start, start + len(node.units), id(node))])
        taken = [rows for rows in taken if last_use[rows[2]] > i]
    return start_of, n_rows


def _first_fit(taken: list[tuple[int, int, int]], size: int) -> int:
    """First row of the lowest gap that is large enough."""
    start = 0
    for first, end, _ in taken:
        if first - start >= size:
            break
        start = end
    return start
