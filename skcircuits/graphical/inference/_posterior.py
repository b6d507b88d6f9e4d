"""The hidden variables of a factor graph given the others: one structure, many evidences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from skcircuits.exceptions import must
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.inference._elimination import (
    connected_components,
    elimination_order,
    interaction_graph,
)
from skcircuits.graphical.inference._elimination_tree import (
    EliminationTree,
    backward_pass,
    build_tree,
    draw_rows,
    forward_pass,
)
from skcircuits.parallel import working_memory_bytes
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["Component", "Posterior", "Solution"]


@dataclass(frozen=True)
class Component:
    """Hidden variables that are connected, once the observed ones are fixed."""

    tree: EliminationTree
    factors: tuple[Factor, ...]
    boundary: IntArray


@dataclass(frozen=True)
class Solution:
    """A component solved for a batch of evidences; equal evidences are solved once."""

    component: Component
    log_conditionals: list[FloatArray]
    log_partition: FloatArray
    rows: IntArray


class Posterior:
    """Conditional distributions of some variables given all the others."""

    def __init__(
        self,
        factors: Sequence[Factor],
        cardinalities: IntArray,
        hidden: Collection[int],
        order: str | Sequence[int] = "min_fill",
    ) -> None:
        self.cardinalities = cardinalities
        self.hidden = frozenset(int(v) for v in hidden)
        # These are mere numbers per row; everything else belongs to one component.
        self.observed_factors = [f for f in factors if self.hidden.isdisjoint(f.scope)]
        # A hidden variable without any factor is uniform: a scope of its own keeps it.
        scopes = [self.hidden.intersection(f.scope) for f in factors] + [{v} for v in self.hidden]
        graph = interaction_graph(scopes)
        self.components = [
            _component(factors, cardinalities, variables, order)
            for variables in connected_components(graph)
        ]

    @property
    def width(self) -> int:
        """Induced width of the elimination order."""
        return max((component.tree.width for component in self.components), default=0)

    def solve(self, codes: IntArray) -> Iterator[Solution]:
        """Run the forward pass of every component."""
        for component in self.components:
            yield self.solve_component(component, codes)

    def solve_component(self, component: Component, codes: IntArray) -> Solution:
        """Run the forward pass of one component."""
        # Nothing but the boundary reaches the component: solve each of its states once.
        distinct, rows = np.unique(codes[:, component.boundary], axis=0, return_inverse=True)
        evidence = np.zeros((len(distinct), codes.shape[1]), dtype=np.int64)
        evidence[:, component.boundary] = distinct
        tables = [_lookup(factor, evidence, self.hidden) for factor in component.factors]
        conditionals, log_partition = forward_pass(component.tree, tables)
        log_partition = np.broadcast_to(log_partition, len(distinct))
        return Solution(component, conditionals, log_partition, rows.ravel())

    def log_partition(self, codes: IntArray) -> FloatArray:
        """Log of the unnormalised probability of the observed states."""
        total = np.zeros(len(codes))
        for factor in self.observed_factors:
            # Fully observed: one number per row.
            total += _lookup(factor, codes, self.hidden)[0]
        for solution in self.solve(codes):
            total += solution.log_partition[solution.rows]
        return total

    def marginals(self, codes: IntArray) -> dict[int, FloatArray]:
        """Distribution of every hidden variable given the observed states."""
        marginals = {}
        for solution in self.solve(codes):
            tables = backward_pass(solution.component.tree, solution.log_conditionals)
            for variable, table in tables.items():
                # One table serves all rows where the evidence does not reach.
                rows = solution.rows if len(table) > 1 else np.zeros_like(solution.rows)
                marginals[variable] = table[rows]
        return marginals

    def draw(self, codes: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw the hidden variables of each row."""
        completed = codes.copy()
        for solution in self.solve(codes):
            tree, conditionals = solution.component.tree, solution.log_conditionals
            draw_rows(tree, conditionals, solution.rows, completed, rng)
        return completed

    def marginal_factors(self) -> list[Factor]:
        """Give the factors of the observed variables once the hidden ones are summed out."""
        factors = list(self.observed_factors)
        for component in self.components:
            shape = tuple(self.cardinalities[component.boundary].tolist())
            # Summing out a component joins its whole boundary in one factor.
            _check_size(prod(shape), len(shape))
            states = np.zeros((prod(shape), len(self.cardinalities)), dtype=np.int64)
            states[:, component.boundary] = np.indices(shape).reshape(len(shape), prod(shape)).T
            solution = self.solve_component(component, states)
            table = solution.log_partition[solution.rows].reshape(shape)
            factors.append(Factor(tuple(component.boundary.tolist()), table))
        return factors


def _component(
    factors: Sequence[Factor],
    cardinalities: IntArray,
    variables: list[int],
    order: str | Sequence[int],
) -> Component:
    members = frozenset(variables)
    touching = tuple(factor for factor in factors if members.intersection(factor.scope))
    scopes = [[v for v in factor.scope if v in members] for factor in touching]
    # Single variables keep those in the order that no factor mentions.
    chosen = elimination_order([*scopes, *([v] for v in variables)], cardinalities, order)
    tree = build_tree(scopes, chosen, cardinalities.tolist())
    # The structure is cheap; the tables it announces may not be.
    _check_size(tree.n_cells, tree.width)
    # What separates the component from the rest: all that its tables depend on.
    boundary = sorted({v for factor in touching for v in factor.scope} - members)
    return Component(tree, touching, np.array(boundary, dtype=np.int64))


def _check_size(n_cells: int, width: int) -> None:
    """Refuse before the work starts what would not fit."""
    n_bytes = 8 * n_cells
    if n_bytes > working_memory_bytes():
        raise MemoryError(
            must(
                "tables of variable elimination",
                "fit into the working memory",
                f"They need {n_bytes / 2**20:.3g} MiB per evidence at this width: observe more "
                "variables, try another order, or raise sklearn.set_config(working_memory=...).",
                width=width,
            )
        )


def _lookup(factor: Factor, codes: IntArray, free: frozenset[int]) -> tuple[FloatArray, list[int]]:
    """Reduce a factor by the observed variables of each row."""
    observed_axes = [axis for axis, v in enumerate(factor.scope) if v not in free]
    free_axes = [axis for axis, v in enumerate(factor.scope) if v in free]
    # Observed axes first: one fancy index then picks a free table per row.
    table = factor.log_table.transpose(observed_axes + free_axes)
    variables = [factor.scope[axis] for axis in free_axes]
    if not observed_axes:
        return table[None], variables
    return table[tuple(codes[:, factor.scope[axis]] for axis in observed_axes)], variables
