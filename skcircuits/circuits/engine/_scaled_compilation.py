"""From a plan to the steps of the fast evaluator.

The units that must be evaluated become nodes, a node one step: a table, a layer of densities,
a block of sums with its products fused in, or what is left of a layer of the plan. Nodes are
put in depth-first order and get rows of the buffer that are free at that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from skcircuits.circuits.engine._code_book import CodeBook, code_strides
from skcircuits.circuits.engine._plan import BATCH_ROWS, Plan
from skcircuits.circuits.engine._scaled import ScaledPlan
from skcircuits.circuits.engine._scaled_graph import Node, ScaledGraph
from skcircuits.circuits.engine._scaled_inputs import can_be_scaled
from skcircuits.circuits.engine._scaled_steps import Lookup, Step
from skcircuits.circuits.structure.units import Scope
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["compile_scaled"]

# A table has at most this many codes, all tables of a circuit this many entries.
MOST_CODES = (8192, 2048, 512, 128)
MOST_ENTRIES = 2**22


def compile_scaled(plan: Plan, *, tabulate: bool) -> ScaledPlan | None:
    """Compile a plan for the fast evaluator.

    Parameters
    ----------
    plan : Plan
        A circuit.
    tabulate : bool
        Whether to replace subtrees over few discrete variables by tables. Worth the time
        from some thousand rows on.

    Returns
    -------
    ScaledPlan or None
        None where the fast evaluator could not promise exact results (``can_be_scaled``).
    """
    if not can_be_scaled(plan):
        return None
    return _compile([plan.root], _graph_with_tables(plan) if tabulate else ScaledGraph(plan))


def _graph_with_tables(plan: Plan) -> ScaledGraph:
    """Choose the number of codes so that all tables together stay small."""
    for most_codes in MOST_CODES:
        graph = ScaledGraph(plan, most_codes)
        n_entries = sum(graph.n_codes(scope) * len(units) for scope, units in graph.tables.items())
        if n_entries <= MOST_ENTRIES:
            return graph
    return ScaledGraph(plan)


def _compile(outputs: Sequence[int], graph: ScaledGraph) -> ScaledPlan:
    """Order the nodes of a graph, place them in the buffer and build their steps."""
    nodes = _depth_first(graph.producer[unit] for unit in outputs)
    start_of, n_rows = _allocate(nodes, {id(graph.producer[unit]) for unit in outputs})
    row_of = {unit: start_of[id(node)] + i for node in nodes for i, unit in enumerate(node.units)}

    def rows_of(units: Sequence[int]) -> IntArray:
        return np.array([row_of[unit] for unit in units], dtype=np.intp)

    steps: list[Step] = []
    scopes: list[Scope] = []
    for node in nodes:
        out = slice(start_of[id(node)], start_of[id(node)] + len(node.units))
        if node.table_scope is None:
            assert node.make is not None
            steps.append(node.make(out, rows_of, n_rows))
        else:
            steps.append(Lookup(out, _table(graph, node.table_scope, node.units), len(scopes)))
            scopes.append(node.table_scope)
    codebook = CodeBook.of(scopes, graph.plan.cardinalities)
    return ScaledPlan(codebook, steps, n_rows, rows_of(outputs))


def _depth_first(outputs: Iterable[Node]) -> list[Node]:
    """Nodes in the order in which a value is used soon after it was made."""
    order: list[Node] = []
    seen: set[int] = set()
    stack = [(node, False) for node in outputs]
    while stack:
        node, needs_done = stack.pop()
        if needs_done:
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack.extend((below, False) for below in reversed(node.needs))
    return order


def _allocate(nodes: list[Node], kept: set[int]) -> tuple[dict[int, int], int]:
    """First row of each node in a buffer whose rows are used again, and its size."""
    last_use = {id(below): i for i, node in enumerate(nodes) for below in node.needs}
    start_of: dict[int, int] = {}
    taken: list[tuple[int, int, int]] = []  # first row, end, identity of the node
    n_rows = 0
    for i, node in enumerate(nodes):
        start = _first_fit(taken, len(node.units))
        start_of[id(node)] = start
        n_rows = max(n_rows, start + len(node.units))
        # Rows are given back after the step: a step never writes over what it reads.
        taken = sorted([*taken, (start, start + len(node.units), id(node))])
        taken = [rows for rows in taken if rows[2] in kept or last_use.get(rows[2], -1) > i]
    return start_of, n_rows


def _first_fit(taken: list[tuple[int, int, int]], size: int) -> int:
    """First row of the lowest gap that is large enough."""
    start = 0
    for first, end, _ in taken:
        if first - start >= size:
            break
        start = end
    return start


def _table(graph: ScaledGraph, scope: Scope, units: Sequence[int]) -> FloatArray:
    """Values of units at every joint state, unknown included; the last column is zero."""
    # One row per code: the digits of the code are the states of the variables.
    n_codes = graph.n_codes(scope)
    states = np.full((n_codes, graph.plan.n_columns), np.nan)
    codes = np.arange(n_codes)
    shape = [graph.plan.cardinalities[variable] for variable in scope]
    for variable, n_states, stride in zip(scope, shape, code_strides(shape)):
        state = codes // stride % (n_states + 1)
        states[:, variable] = np.where(state < n_states, state, np.nan)
    table = np.zeros((len(units), n_codes + 1))
    # The masses of input units are their table; unknown has mass one.
    if all(unit in graph.masses for unit in units):
        for row, unit in enumerate(units):
            masses = graph.masses[unit]
            table[row, : len(masses)] = masses
            table[row, n_codes - 1] = 1.0
        return table
    # Larger scopes are tabulated by the fast evaluator itself, from tables of single variables.
    below = _compile(units, ScaledGraph(graph.plan, outputs=units))
    for rows in row_slices(n_codes, BATCH_ROWS):
        table[:, rows] = below.run(states[rows]).values[below.outputs]
    return table
