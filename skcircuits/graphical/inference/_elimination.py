"""Elimination orders of the variables of a graph, and their bucket trees (Dechter 1999)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from math import prod
from operator import attrgetter
from typing import NamedTuple

from skcircuits.exceptions import must
from skcircuits.numerics._arrays import integers
from skcircuits.protocols import IntArray

Graph = dict[int, set[int]]

# The property of a clique by which each criterion chooses the next variable.
_CRITERIA = {"min_fill": "fill", "min_weight": "cells", "weighted_min_fill": "joined"}

# No better order is searched for if the cliques have at most this many cells in total.
_CHEAP_CELLS = 2**16


def elimination_order(
    scopes: Iterable[Collection[int]],
    cardinalities: Sequence[int] | IntArray,
    order: str | Sequence[int] = "auto",
    last: Sequence[int] = (),
) -> list[int]:
    """Order the variables of the scopes by a greedy criterion, some of them at the end.

    A criterion is fewest edges added ("min_fill"), smallest clique in states ("min_weight"),
    fewest pairs of states joined by added edges ("weighted_min_fill") or the cheapest of
    these ("auto"); a sequence is checked and restricted to the variables of the scopes.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.graphical.inference._elimination import elimination_order
    >>> elimination_order([(0, 1), (1, 2), (1, 3)], np.array([2, 2, 2, 2]))
    [0, 2, 1, 3]
    """
    graph = interaction_graph(scopes)
    if not isinstance(order, str):
        return _restrict_order(order, graph)
    if order != "auto" and order not in _CRITERIA:
        choices = ", ".join(map(repr, ["auto", *_CRITERIA]))
        raise ValueError(must("order", f"be {choices} or a sequence of variables", order=order))
    names = list(_CRITERIA) if order == "auto" else [order]
    runs = []
    for name in names:
        runs.append(_greedy_order(graph, cardinalities, name, last))
        if runs[-1][1] <= _CHEAP_CELLS:
            break
    # Ties go to the first order, so that the choice is the same on every machine.
    return min(runs, key=lambda run: run[1])[0]


def quick_order(
    scopes: Iterable[Collection[int]],
    cardinalities: Sequence[int] | IntArray,
    last: Sequence[int] = (),
) -> tuple[list[int], int]:
    """Order the variables by fewest edges added; with the cells of all cliques."""
    return _greedy_order(interaction_graph(scopes), cardinalities, "min_fill", last)


def interaction_graph(scopes: Iterable[Collection[int]]) -> Graph:
    """Connect the variables that share a scope: the neighbours of each variable."""
    graph: Graph = {}
    for scope in scopes:
        for variable in scope:
            # Includes the variable itself until the loop below.
            graph.setdefault(variable, set()).update(scope)
    for variable, neighbors in graph.items():
        neighbors.discard(variable)
    return graph


def connected_components(graph: Graph) -> list[list[int]]:
    """Sorted variables of each connected component, components by their first variable."""
    components, seen = [], set()
    for start in sorted(graph):
        if start in seen:
            continue
        component, frontier = {start}, [start]
        while frontier:
            fresh = graph[frontier.pop()] - component
            component |= fresh
            frontier.extend(fresh)
        seen |= component
        components.append(sorted(component))
    return components


def _restrict_order(order: Sequence[int], graph: Graph) -> list[int]:
    # One order of all variables serves every component and every evidence.
    restricted = [v for v in integers(order, "order") if v in graph]
    if sorted(restricted) != sorted(graph):
        raise ValueError(
            must("order", "name every variable once", "Try order='auto'.", order=list(order))
        )
    return restricted


def _greedy_order(
    graph: Graph, cardinalities: Sequence[int] | IntArray, name: str, last: Sequence[int]
) -> tuple[list[int], int]:
    """Eliminate the cheapest variable repeatedly; the order and the cells of its cliques."""
    names, criterion = sorted(graph), attrgetter(_CRITERIA[name])
    states = [int(cardinalities[variable]) for variable in names]
    work = _Elimination(graph, names, states, joins=name == "weighted_min_fill")
    cost = [(criterion(work.cliques[v]), work.cliques[v].cells, v) for v in range(len(names))]
    # Outdated entries stay in the heap until they are popped. Ties go to the smaller clique,
    # then to the smaller number, so that the order is reproducible.
    kept = set(last)
    heap = [entry for entry in cost if names[entry[2]] not in kept]
    heapify(heap)
    order: list[int] = []
    total = prod(int(cardinalities[variable]) for variable in last)
    while len(order) < len(names) - len(kept):
        entry = heappop(heap)
        chosen = entry[2]
        if work.gone[chosen] or entry != cost[chosen]:
            continue
        order.append(names[chosen])
        total += entry[1]
        for variable in work.eliminate(chosen):
            clique = work.cliques[variable]
            fresh = (criterion(clique), clique.cells, variable)
            if fresh != cost[variable] and names[variable] not in kept:
                cost[variable] = fresh
                heappush(heap, fresh)
    return [*order, *last], total


class _Clique(NamedTuple):
    """Cost of summing a variable out: added edges, pairs of states that these join, and cells."""

    fill: int
    joined: int
    cells: int


class _Elimination:
    """A graph whose nodes 0, 1, ... are eliminated one by one.

    Neighbours are stored twice: as sets for iteration, and as bits of integers for counting.
    """

    def __init__(self, graph: Graph, names: list[int], states: list[int], *, joins: bool) -> None:
        index = {name: position for position, name in enumerate(names)}
        self.states = states
        self.joins = joins  # whether pairs of states are counted
        self.near = [{index[other] for other in graph[name]} for name in names]
        self.masks = [sum(1 << other for other in near) for near in self.near]
        self.gone = [False] * len(names)
        self.cliques = [self._clique(variable) for variable in range(len(names))]

    def eliminate(self, variable: int) -> set[int]:
        """Remove a variable and connect its neighbours; variables whose clique changed."""
        near, mask = self.near[variable], self.masks[variable]
        bit = 1 << variable
        self.gone[variable] = True
        if not self.cliques[variable].fill:
            # No edge is added, and each neighbour loses one neighbour.
            for other in near:
                self.cliques[other] = self._without(other, variable)
                self.near[other].discard(variable)
                self.masks[other] &= ~bit
            return near
        changed = set(near)
        for other in near:
            self.near[other] |= near
            self.near[other] -= {other, variable}
            self.masks[other] = (self.masks[other] | mask) & ~(bit | 1 << other)
        for other in near:
            changed |= self.near[other]
        # A new edge also changes the cost of the variables that are adjacent to both of its ends.
        changed = {v for v in changed if v in near or (self.masks[v] & mask).bit_count() > 1}
        for other in changed:
            self.cliques[other] = self._clique(other)
        return changed

    def _clique(self, variable: int) -> _Clique:
        mask, states = self.masks[variable], self.states
        fill, joined, cells = 0, 0, states[variable]
        for other in self.near[variable]:
            cells *= states[other]
            absent = (mask & ~self.masks[other]).bit_count() - 1
            if absent:
                fill += absent
            if absent and self.joins:
                # One step of the sum over absent edges, each seen from both of its ends.
                joined += states[other] * sum(
                    states[far] for far in self.near[variable] - self.near[other] if far != other
                )
        return _Clique(fill // 2, joined // 2, cells)

    def _without(self, variable: int, neighbor: int) -> _Clique:
        """Give the clique of a variable after a neighbour of a complete neighbourhood has gone."""
        fill, joined, cells = self.cliques[variable]
        if fill:
            far = self.near[variable] - self.near[neighbor] - {neighbor}
            fill -= len(far)
            if self.joins:
                joined -= self.states[neighbor] * sum(self.states[other] for other in far)
        return _Clique(fill, joined, cells // self.states[neighbor])


@dataclass(frozen=True)
class Bucket:
    """One variable, with the tables for summing it out."""

    variable: int
    separator: tuple[int, ...]  # variables of its message, those eliminated first in front
    factors: tuple[int, ...]  # indices of those multiplied here
    children: tuple[int, ...]  # indices of the buckets whose messages arrive here

    @cached_property
    def axes(self) -> tuple[int, ...]:
        """Variables of the axes of the tables of this bucket."""
        return (self.variable, *self.separator)


@dataclass(frozen=True)
class EliminationTree:
    """The buckets of one connected graph, children before parents, the root last."""

    buckets: tuple[Bucket, ...]
    cardinalities: tuple[int, ...]

    @cached_property
    def width(self) -> int:
        """Size of the largest separator, the induced width of the order."""
        return max(len(bucket.separator) for bucket in self.buckets)

    @cached_property
    def n_cells(self) -> int:
        """Cells of all tables together, for one evidence."""
        return sum(prod(self.shape(bucket.axes)) for bucket in self.buckets)

    @cached_property
    def n_message_cells(self) -> int:
        """Cells of all messages of both passes, and of the largest tables they are made of."""
        separators = sum(prod(self.shape(bucket.separator)) for bucket in self.buckets)
        widest = max(prod(self.shape(bucket.axes)) for bucket in self.buckets)
        return 2 * (separators + widest)

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables in elimination order: the axes of the joint table."""
        return tuple(bucket.variable for bucket in self.buckets)

    def shape(self, variables: Sequence[int]) -> tuple[int, ...]:
        """Give the number of states of some variables."""
        return tuple(map(self.cardinalities.__getitem__, variables))


def build_tree(
    scopes: Sequence[Sequence[int]], order: Sequence[int], cardinalities: tuple[int, ...]
) -> EliminationTree:
    """Lay out one bucket per variable of a connected component, in elimination order."""
    position = {variable: step for step, variable in enumerate(order)}
    factors: list[list[int]] = [[] for _ in order]
    cliques: list[set[int]] = [{variable} for variable in order]
    children: list[list[int]] = [[] for _ in order]
    for index, scope in enumerate(scopes):
        # A factor belongs to the bucket of its first variable.
        first = min(position[v] for v in scope)
        factors[first].append(index)
        cliques[first].update(scope)
    buckets = []
    for step, variable in enumerate(order):
        # In elimination order, so that the axes of messages and tables align by reshaping.
        separator = sorted(cliques[step] - {variable}, key=position.__getitem__)
        if separator:
            # The message is sent to the bucket of its earliest variable.
            parent = position[separator[0]]
            children[parent].append(step)
            cliques[parent].update(separator)
        buckets.append(
            Bucket(variable, tuple(separator), tuple(factors[step]), tuple(children[step]))
        )
    return EliminationTree(tuple(buckets), cardinalities)
