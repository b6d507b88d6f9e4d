"""Posterior of the hidden variables of a factor graph: one structure for many evidences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from skcircuits.exceptions import must
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.inference._elimination import (
    EliminationTree,
    Messages,
    Table,
    align,
    backward_pass,
    build_tree,
    connected_components,
    draw_rows,
    elimination_order,
    entropy,
    forward_pass,
    interaction_graph,
    joint_of_last,
    most_probable,
    table_of_logs,
)
from skcircuits.numerics._patterns import unique_rows
from skcircuits.parallel import memory_bound_chunks, working_memory_bytes
from skcircuits.protocols import FloatArray, IntArray


@dataclass(frozen=True)
class ScaledFactor:
    """A factor, its values (1, *states) divided by the largest, and the logarithm of that."""

    factor: Factor
    table: Table
    log_scale: float

    @property
    def scope(self) -> tuple[int, ...]:
        """The variables it depends on."""
        return self.factor.scope


@dataclass(frozen=True)
class Component:
    """Hidden variables that are connected, once the observed ones are fixed."""

    tree: EliminationTree
    factors: tuple[ScaledFactor, ...]
    boundary: IntArray  # observed variables in the scopes of the factors


@dataclass(frozen=True)
class Solution:
    """A component solved for a batch of n evidences; the u different ones are solved once."""

    component: Component
    conditionals: list[FloatArray]  # p(variable | separator), (u or 1, states, *separator)
    log_conditionals: dict[int, FloatArray]  # of those that plain numbers cannot hold
    log_partition: FloatArray  # (u,), log sums over the hidden states
    rows: IntArray  # (n,), index of each evidence among the u


def scaled_factors(factors: Sequence[Factor]) -> tuple[ScaledFactor, ...]:
    """Prepare factors for products of plain numbers."""
    scaled = []
    for factor in factors:
        table, peak = table_of_logs(factor.log_table[None], factor.scope)
        scaled.append(ScaledFactor(factor, table, float(peak[0])))
    return tuple(scaled)


class Posterior:
    """Distributions of the ``hidden`` variables given all others, by ``cardinalities`` and
    ``order`` (:func:`elimination_order`); MemoryError in advance.
    """

    def __init__(
        self,
        factors: Sequence[ScaledFactor],
        cardinalities: IntArray,
        hidden: Collection[int],
        order: str | Sequence[int] = "auto",
    ) -> None:
        self.cardinalities = cardinalities
        self.hidden = frozenset(int(v) for v in hidden)
        # These are constants of each row; all other factors belong to one component.
        self.observed_factors = [f.factor for f in factors if self.hidden.isdisjoint(f.scope)]
        # A hidden variable without factors is uniform; a scope of its own keeps it in the graph.
        scopes = [self.hidden.intersection(f.scope) for f in factors] + [{v} for v in self.hidden]
        groups = connected_components(interaction_graph(scopes))
        # One pass over the factors, whose hidden variables all belong to one component
        group_of = {v: index for index, variables in enumerate(groups) for v in variables}
        touching: list[list[ScaledFactor]] = [[] for _ in groups]
        for factor in factors:
            found = next((group_of[v] for v in factor.scope if v in group_of), None)
            if found is not None:
                touching[found].append(factor)
        n_states = tuple(cardinalities.tolist())
        self.components = [
            _component(mine, n_states, variables, order)
            for mine, variables in zip(touching, groups)
        ]

    @property
    def width(self) -> int:
        """Induced width of the elimination order."""
        return max((component.tree.width for component in self.components), default=0)

    @property
    def n_cells(self) -> int:
        """Cells of all tables together, for one evidence."""
        return sum(component.tree.n_cells for component in self.components)

    def solve(self, codes: IntArray) -> Iterator[Solution]:
        """Forward pass of every component for states (n, d), those of hidden variables ignored."""
        for component in self.components:
            yield self.solve_component(component, codes)

    def solve_component(self, component: Component, codes: IntArray) -> Solution:
        """Run the forward pass of one component; only the columns of its boundary matter."""
        tree = component.tree
        _check_size(tree.n_cells, tree.width)
        # The component depends on the boundary only: each of its states is solved once.
        distinct, rows = _distinct_evidence(component, codes)
        solved = self._forward(component, distinct, all_conditionals=True)
        conditionals = [table for table in solved.conditionals if table is not None]
        log_partition = np.broadcast_to(solved.log_partition, len(distinct))
        return Solution(component, conditionals, solved.log_conditionals, log_partition, rows)

    def is_possible(self, codes: IntArray, solutions: Sequence[Solution]) -> bool:
        """Whether the evidences (n, d) behind some solutions all have positive probability."""
        logs = [f.log_table[tuple(codes[:, v] for v in f.scope)] for f in self.observed_factors]
        return all(np.isfinite(log).all() for log in [*logs, *(s.log_partition for s in solutions)])

    def log_partition(self, codes: IntArray) -> FloatArray:
        """Log of the unnormalised probability of the observed states, (n,)."""
        total = np.zeros(len(codes))
        for factor in self.observed_factors:
            # Fully observed: one number per row.
            total += factor.log_table[tuple(codes[:, v] for v in factor.scope)]
        for component in self.components:
            total += self._log_partition(component, codes)
        return total

    def log_partition_along(self, codes: IntArray, variable: int) -> FloatArray:
        """Give the same at every state of a variable, (n, k), up to a constant per row."""
        n_states = int(self.cardinalities[variable])
        moved = np.repeat(codes, n_states, axis=0)
        moved[:, variable] = np.tile(np.arange(n_states), len(codes))
        total = np.zeros(len(moved))
        # All else is the constant
        for factor in self.observed_factors:
            if variable in factor.scope:
                total += factor.log_table[tuple(moved[:, v] for v in factor.scope)]
        for component in self.components:
            if variable in component.boundary:
                total += self._log_partition(component, moved)
        return total.reshape(len(codes), n_states)

    def _log_partition(self, component: Component, codes: IntArray) -> FloatArray:
        distinct, rows = _distinct_evidence(component, codes)
        values = np.empty(len(distinct))
        for part in _chunks(component.tree, len(distinct)):
            solved = self._forward(
                component, distinct[part], first_needed=len(component.tree.buckets)
            )
            values[part] = solved.log_partition
        return values[rows]

    def marginals(
        self, codes: IntArray, variables: Collection[int] | None = None
    ) -> dict[int, FloatArray]:
        """Distribution (n, states) of hidden variables; components without any are left out."""
        wanted = self.hidden if variables is None else frozenset(variables)
        marginals = {}
        for component in self.components:
            if wanted.isdisjoint(component.tree.variables):
                continue
            distinct, rows = _distinct_evidence(component, codes)
            order = component.tree.variables
            tables = {
                v: np.empty((len(distinct), int(self.cardinalities[v])))
                for v in wanted.intersection(order)
            }
            # The backward pass ends at the first wanted variable
            first = min(map(order.index, tables))
            for part in _chunks(component.tree, len(distinct)):
                solved = self._forward(component, distinct[part], first_needed=first)
                found = backward_pass(solved, tables.keys())
                for variable, table in tables.items():
                    table[part] = found[variable]
            marginals.update({variable: table[rows] for variable, table in tables.items()})
        return marginals

    def draw(self, codes: IntArray, rng: np.random.Generator) -> IntArray:
        """Fill the hidden columns of the rows (n, d) with draws."""
        completed = codes.copy()
        for solution in self.solve(codes):
            tree, conditionals = solution.component.tree, solution.conditionals
            draw_rows(tree, conditionals, solution.rows, completed, rng)
        return completed

    def joint(self, codes: IntArray, variables: Sequence[int]) -> FloatArray:
        """Joint distribution (n, *states) of hidden variables that the order has last."""
        shape = [int(self.cardinalities[v]) for v in variables]
        _check_size(len(codes) * prod(shape), len(shape))
        # Components are independent: the joint distribution is a product that grows its axes
        total = np.ones((len(codes), *(1 for _ in variables)))
        for component in self.components:
            # In the order of the tree, which is the order of the axes of its tables.
            mine = tuple(v for v in component.tree.variables if v in set(variables))
            if mine:
                distinct, rows = _distinct_evidence(component, codes)
                _check_size(len(distinct) * component.tree.n_message_cells, component.tree.width)
                first = len(component.tree.buckets) - len(mine)
                solved = self._forward(component, distinct, first_needed=first)
                table = np.broadcast_to(
                    joint_of_last(solved, mine), (len(distinct), *component.tree.shape(mine))
                )
                total = total * align(table[rows], mine, tuple(variables))
        return total

    def entropy(self, codes: IntArray) -> FloatArray:
        """Entropy (n,) of all hidden variables."""
        total = np.zeros(len(codes))
        for solution in self.solve(codes):
            values = entropy(solution.component.tree, solution.conditionals)
            total += np.broadcast_to(values, len(solution.log_partition))[solution.rows]
        return total

    def most_probable(self, codes: IntArray) -> IntArray:
        """Fill the hidden columns of the rows (n, d) with their most probable states."""
        completed = codes.copy()
        for component in self.components:
            tree = component.tree
            distinct, rows = _distinct_evidence(component, codes)
            _check_size(tree.n_cells, tree.width)
            for part in memory_bound_chunks(len(distinct), 8 * tree.n_cells):
                mine = np.flatnonzero((part.start <= rows) & (rows < part.stop))
                tables = [_lookup(f.table, distinct[part], self.hidden) for f in component.factors]
                found = completed[mine]
                most_probable(tree, tables, rows[mine] - part.start, found)
                completed[mine] = found
        return completed

    def marginal_factors(self) -> list[Factor]:
        """Factors without hidden variables, and one per component over its boundary."""
        factors = list(self.observed_factors)
        for component in self.components:
            shape = tuple(self.cardinalities[component.boundary].tolist())
            # Summing out a component gives one factor over its whole boundary.
            _check_size(prod(shape), len(shape))
            states = np.zeros((prod(shape), len(self.cardinalities)), dtype=np.int64)
            states[:, component.boundary] = np.indices(shape).reshape(len(shape), prod(shape)).T
            table = self._log_partition(component, states).reshape(shape)
            factors.append(Factor(tuple(component.boundary.tolist()), table))
        return factors

    def _forward(
        self,
        component: Component,
        codes: IntArray,
        *,
        all_conditionals: bool = False,
        first_needed: int = 0,
    ) -> Messages:
        tables = [_lookup(factor.table, codes, self.hidden) for factor in component.factors]
        log_scale = sum(factor.log_scale for factor in component.factors)
        return forward_pass(
            component.tree,
            tables,
            all_conditionals=all_conditionals,
            first_needed=first_needed,
            log_scale=log_scale,
        )


def _component(
    touching: Sequence[ScaledFactor],
    cardinalities: tuple[int, ...],
    variables: list[int],
    order: str | Sequence[int],
) -> Component:
    members = frozenset(variables)
    scopes = [[v for v in factor.scope if v in members] for factor in touching]
    # Scopes of single variables keep variables without factors in the order.
    chosen = elimination_order([*scopes, *([v] for v in variables)], cardinalities, order)
    tree = build_tree(scopes, chosen, cardinalities)
    # The separator of the component: all variables that its tables depend on.
    boundary = sorted({v for factor in touching for v in factor.scope} - members)
    return Component(tree, tuple(touching), np.array(boundary, dtype=np.int64))


def _distinct_evidence(component: Component, codes: IntArray) -> tuple[IntArray, IntArray]:
    """Reduce rows to the u different states of the boundary: (u, d), and the index of each row."""
    if len(codes) == 1:
        return codes, np.zeros(1, dtype=np.int64)
    own = codes[:, component.boundary]
    first, rows = unique_rows(own)
    evidence = np.zeros((len(first), codes.shape[1]), dtype=np.int64)
    evidence[:, component.boundary] = own[first]
    return evidence, rows


def _lookup(table: Table, codes: IntArray, hidden: frozenset[int]) -> Table:
    """Reduce a table (1, *states) by the observed states of each row."""
    observed = [index for index, v in enumerate(table.axes, start=1) if v not in hidden]
    if not observed:
        return table
    free = [index for index, v in enumerate(table.axes, start=1) if v in hidden]
    # Observed axes first, so that one fancy index selects a table of the free axes per row.
    values = table.values.transpose([0, *observed, *free])[0]
    rows = values[tuple(codes[:, table.axes[index - 1]] for index in observed)]
    return Table(rows, tuple(table.axes[index - 1] for index in free), table.log_range)


def _chunks(tree: EliminationTree, n_rows: int) -> Iterator[slice]:
    """Cut a batch of evidences so that the messages of both passes fit."""
    n_cells = tree.n_message_cells
    _check_size(n_cells, tree.width)
    return memory_bound_chunks(n_rows, 8 * n_cells)


def _check_size(n_cells: int, width: int) -> None:
    """Raise MemoryError in advance if tables would not fit."""
    n_bytes = 8 * n_cells
    if n_bytes > working_memory_bytes():
        condition = "fit into the working memory"
        way_out = (
            f"They need {n_bytes / 2**20:.3g} MiB per evidence at this width: observe more "
            "variables, try another order, or raise sklearn.set_config(working_memory=...)."
        )
        raise MemoryError(must("tables of variable elimination", condition, way_out, width=width))
