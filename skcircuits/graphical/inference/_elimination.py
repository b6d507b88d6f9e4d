"""Elimination of variables: orders, bucket trees (Dechter 1999), and two passes over a tree.

The passes serve a batch of evidences at once. The forward pass sends sums of products from the
leaves to the root. For each bucket it stores either the distribution ``p(variable | separator)``
(for draws and circuits) or only the incoming product; the backward pass computes marginals from
both. Row ``r`` of every table belongs to the r-th evidence; the structure is shared. Tables are
non-negative: scaled values, or logarithms where these span a wide range.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, reduce
from heapq import heapify, heappop, heappush
from math import log, prod
from operator import attrgetter
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import divisors, finite_peaks, integers, safe_log
from skcircuits.numerics._random import draw_states
from skcircuits.protocols import FloatArray, IntArray

Graph = dict[int, set[int]]

# The property of a clique by which each criterion chooses the next variable.
_CRITERIA = {"min_fill": "fill", "min_weight": "cells", "weighted_min_fill": "joined"}

# No better order is searched for if the cliques have at most this many cells in total.
_CHEAP_CELLS = 2**16

# Larger tables are not formed if only sums of them are needed.
_MAX_DIRECT_CELLS = 2**14
# The backward pass contracts every pair of the tables of such a bucket.
_MAX_CONTRACTED = 8
# Smaller floats have fewer digits, and the smallest are zero.
_MIN_LOG = log(np.finfo(np.float64).tiny)


def elimination_order(
    scopes: Iterable[Collection[int]],
    cardinalities: Sequence[int] | IntArray,
    order: str | Sequence[int] = "auto",
    last: Sequence[int] = (),
) -> list[int]:
    """Order the variables of the scopes, some of them at the end, by fewest added edges
    ("min_fill"), smallest clique in states ("min_weight"), fewest pairs of states of added edges
    ("weighted_min_fill") or the cheapest ("auto"); a sequence is checked and restricted.
    """
    graph = interaction_graph(scopes)
    if not isinstance(order, str):
        return _restrict_order(order, graph)
    if order != "auto" and order not in _CRITERIA:
        choices = ", ".join(map(repr, ["auto", *_CRITERIA]))
        raise invalid("order", f"be {choices} or a sequence of variables", order=order)
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
        raise invalid("order", "name every variable once", "Try order='auto'.", order=list(order))
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
    """A graph whose nodes are eliminated; neighbours as sets to walk, as bits to count."""

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


@dataclass(frozen=True)
class Messages:
    """Results of the forward pass, per bucket of the tree."""

    tree: EliminationTree
    incoming: list[list[Table]]
    messages: dict[int, Table]  # of buckets that were not joined with their parents
    conditionals: list[FloatArray | None]  # (rows or 1, states, *separator), uniform if impossible
    log_conditionals: dict[int, FloatArray]  # of those that plain numbers cannot hold
    log_partition: FloatArray  # (rows or 1,)


def forward_pass(
    tree: EliminationTree,
    factors: Sequence[Table],
    *,
    all_conditionals: bool,
    first_needed: int = 0,
    log_scale: float = 0.0,
) -> Messages:
    """Sum variables out, leaves first; no conditionals of buckets before ``first_needed``."""
    incoming: list[list[Table]] = []
    messages: dict[int, Table] = {}
    conditionals: list[FloatArray | None] = []
    log_conditionals: dict[int, FloatArray] = {}
    log_partition = np.full(1, log_scale)
    joined = _joined_buckets(tree, first_needed)
    for step, bucket in enumerate(tree.buckets):
        arriving = [factors[index] for index in bucket.factors]
        for child in bucket.children:
            arriving += incoming[child] if child in joined else [messages[child]]
        incoming.append(arriving)
        conditionals.append(None)
        # Their tables are passed on unmultiplied: the parent sums out both variables at once
        if step in joined:
            continue
        needed = step >= first_needed
        axes = bucket.axes if needed else _all_axes(bucket, arriving)
        if all_conditionals or _written_out(tree, axes, arriving, needed):
            conditional, message, log_peak = _solve_bucket(
                tree, axes, bucket.separator, arriving, needed
            )
            conditionals[step] = conditional.values
            if conditional.logs is not None:
                log_conditionals[step] = conditional.logs
        else:
            operands = [(table.values, table.axes) for table in arriving]
            message, log_peak = scaled_table(contract(operands, bucket.separator), bucket.separator)
        log_partition = log_partition + log_peak
        messages[step] = message
    return Messages(tree, incoming, messages, conditionals, log_conditionals, log_partition)


def _joined_buckets(tree: EliminationTree, first_needed: int) -> frozenset[int]:
    """Buckets summed out together with their parents, which have no variables of their own."""
    return frozenset(
        child
        for bucket in tree.buckets[:first_needed]
        for child in bucket.children
        if len(tree.buckets[child].separator) == len(bucket.axes)
    )


def _all_axes(bucket: Bucket, arriving: Sequence[Table]) -> Axes:
    """Axes of the product of some tables, the separator last."""
    seen = {bucket.variable}.union(*(table.axes for table in arriving))
    return (*sorted(seen.difference(bucket.separator)), *bucket.separator)


def backward_pass(solved: Messages, wanted: Set[int]) -> dict[int, FloatArray]:
    """Compute distributions (rows or 1, states), root first, until the last wanted one."""
    tree = solved.tree
    # p(separator) of each bucket; the root has an empty separator.
    contexts: dict[int, FloatArray] = {len(tree.buckets) - 1: np.ones(1)}
    marginals: dict[int, FloatArray] = {}
    for step in range(len(tree.buckets) - 1, -1, -1):
        if marginals.keys() >= wanted:
            break
        bucket, conditional = tree.buckets[step], solved.conditionals[step]
        # Tables that were not formed are contracted again, once for each child
        if conditional is None:
            marginals[bucket.variable] = _contracted_step(solved, step, contexts)
        else:
            joint = contexts.pop(step)[:, None] * conditional
            marginals[bucket.variable] = joint.sum(axis=tuple(range(2, joint.ndim)))
            for child in bucket.children:
                contexts[child] = _sum_to(joint, bucket.axes, tree.buckets[child].separator)
    return marginals


def draw_rows(
    tree: EliminationTree,
    conditionals: Sequence[FloatArray],
    rows: IntArray,
    codes: IntArray,
    rng: np.random.Generator,
) -> None:
    """Draw the tree's columns of ``codes`` (n, d), root first; draw i follows row ``rows[i]``."""
    for bucket, conditional in zip(reversed(tree.buckets), reversed(conditionals)):
        # Parents were drawn before: their columns of the codes are valid.
        row = rows if conditional.shape[0] > 1 else np.zeros_like(rows)
        weights = np.moveaxis(conditional, 1, -1)[(row, *(codes[:, v] for v in bucket.separator))]
        codes[:, bucket.variable] = draw_states(weights, rng.random(len(codes)))


def joint_table(tree: EliminationTree, conditionals: Sequence[FloatArray]) -> FloatArray:
    """Multiply the conditionals out: (rows, *states), axes as in ``tree.variables``."""
    total = np.ones((1,) * (1 + len(tree.buckets)))
    for bucket, conditional in zip(tree.buckets, conditionals):
        total = total * align(conditional, bucket.axes, tree.variables)
    return total


def entropy(tree: EliminationTree, conditionals: Sequence[FloatArray]) -> FloatArray:
    """Entropy in nats of the joint distribution, shape (rows or 1,)."""
    contexts: dict[int, FloatArray] = {len(tree.buckets) - 1: np.ones(1)}
    total = np.zeros(1)
    for step in range(len(tree.buckets) - 1, -1, -1):
        bucket, conditional = tree.buckets[step], conditionals[step]
        joint = contexts.pop(step)[:, None] * conditional
        # By the chain rule; states of probability zero add nothing.
        logs = np.log(np.where(conditional > 0, conditional, 1.0))
        total = total - (joint * logs).reshape(len(joint), -1).sum(axis=1)
        for child in bucket.children:
            contexts[child] = _sum_to(joint, bucket.axes, tree.buckets[child].separator)
    return total


def joint_of_last(solved: Messages, variables: Axes) -> FloatArray:
    """Joint distribution (rows or 1, *states) of the variables eliminated last."""
    n_first = len(solved.tree.buckets) - len(variables)
    total = np.zeros((1, *solved.tree.shape(variables)))
    for bucket, arriving in zip(solved.tree.buckets[n_first:], solved.incoming[n_first:]):
        n_factors = len(bucket.factors)
        # Messages of the variables themselves are sums of these products.
        outer = [t for t, child in zip(arriving[n_factors:], bucket.children) if child < n_first]
        for table in [*arriving[:n_factors], *outer]:
            total = total + align(table.log_values(), table.axes, variables)
    peak = total.max(axis=tuple(range(1, total.ndim)), keepdims=True)
    return _normalized(np.exp(total - np.where(np.isneginf(peak), 0.0, peak)))


def most_probable(
    tree: EliminationTree, factors: Sequence[Table], rows: IntArray, codes: IntArray
) -> None:
    """Write the most probable states, the first of ties, into ``codes`` (n, d) by ``rows``."""
    messages: list[Table] = []
    choices: list[IntArray] = []
    for bucket in tree.buckets:
        total = np.zeros((1, *tree.shape(bucket.axes)))
        for table in [
            *(factors[index] for index in bucket.factors),
            *(messages[child] for child in bucket.children),
        ]:
            total = total + align(table.log_values(), table.axes, bucket.axes)
        choices.append(total.argmax(axis=1))
        # Maxima of logarithms cannot underflow, so that no scaling is necessary.
        messages.append(Table(total.max(axis=1), bucket.separator, np.inf))
    for bucket, choice in zip(reversed(tree.buckets), reversed(choices)):
        row = rows if len(choice) > 1 else np.zeros_like(rows)
        codes[:, bucket.variable] = choice[(row, *(codes[:, v] for v in bucket.separator))]


def _written_out(
    tree: EliminationTree, axes: Axes, arriving: Sequence[Table], needed: bool
) -> bool:
    """Whether to form a table: it is small, has many factors, or needs logarithms."""
    n_rows = max((len(table.values) for table in arriving), default=1)
    small = n_rows * prod(tree.shape(axes)) <= _MAX_DIRECT_CELLS
    return small or (needed and len(arriving) > _MAX_CONTRACTED) or not _fits(arriving)


def _fits(arriving: Sequence[Table]) -> bool:
    """Whether the product of some tables can be formed in plain numbers."""
    return sum(table.log_range for table in arriving) <= MAX_LOG_RANGE


class _Conditional(NamedTuple):
    """``p(variable | separator)``, and its logarithms where plain numbers cannot hold them."""

    values: FloatArray | None = None
    logs: FloatArray | None = None


def _solve_bucket(
    tree: EliminationTree, axes: Axes, separator: Axes, arriving: Sequence[Table], needed: bool
) -> tuple[_Conditional, Table, FloatArray]:
    """Give ``p(variable | separator)``, the message and the logarithm of its scale per row."""
    shape, summed = tree.shape(axes), tuple(range(1, 1 + len(axes) - len(separator)))
    if _fits(arriving):
        # Smallest tables first, so that intermediate products stay small.
        tables = sorted(arriving, key=lambda table: table.values.size)
        aligned = [align(table.values, table.axes, axes) for table in tables]
        total = reduce(np.multiply, aligned) if aligned else np.ones((1,) * (1 + len(axes)))
        total = spread(total, (len(total), *shape))
        sums = total.sum(axis=summed)
        message, log_scale = scaled_table(sums, separator)
        return _Conditional(_divide(total, sums) if needed else None), message, log_scale
    total = np.zeros((1,) * (1 + len(axes)))
    for table in arriving:
        total = total + align(table.log_values(), table.axes, axes)
    total = spread(total, (len(total), *shape))
    peak = total.max(axis=summed, keepdims=True)
    # Impossible contexts have no finite peak to subtract.
    total = total - finite_peaks(peak.copy())
    weights = np.exp(total)
    sums = weights.sum(axis=summed)
    message, log_scale = table_of_logs(peak.reshape(sums.shape) + safe_log(sums), separator)
    if not needed:
        return _Conditional(), message, log_scale
    logs = total - np.log(divisors(sums))[:, None]
    is_lossy = logs.min(where=np.isfinite(logs), initial=0.0) < _MIN_LOG
    conditional = _Conditional(_divide(weights, sums), logs if is_lossy else None)
    return conditional, message, log_scale


def _divide(weights: FloatArray, sums: FloatArray) -> FloatArray:
    """Turn weights (rows, states, *separator) into distributions; uniform where all are zero."""
    impossible = sums == 0
    if impossible.any():
        weights = np.where(impossible[:, None], 1.0, weights)
        sums = np.where(impossible, weights.shape[1], sums)
    return weights / sums[:, None]


def _contracted_step(solved: Messages, step: int, contexts: dict[int, FloatArray]) -> FloatArray:
    """Distribution (rows or 1, states) in a bucket whose ``p(separator)`` was not written out."""
    bucket, arriving = solved.tree.buckets[step], solved.incoming[step]
    outside = (_ratio(contexts.pop(step), solved.messages[step]), bucket.separator)
    tables = [(table.values, table.axes) for table in arriving]
    if not bucket.children:
        return _normalized(contract([outside, *tables], (bucket.variable,)))
    for index, child in enumerate(bucket.children, start=len(bucket.factors)):
        values, axes = tables[index]
        others = [*tables[:index], *tables[index + 1 :]]
        contexts[child] = _normalized(contract([outside, *others], axes) * values)
    # Every separator contains the variable; summing the smallest table is fastest.
    child = min(bucket.children, key=lambda child: contexts[child].size)
    return _sum_to(contexts[child], solved.tree.buckets[child].separator, (bucket.variable,))


def _ratio(context: FloatArray, message: Table) -> FloatArray:
    """Divide ``p(separator)`` by the message, with zero where that is zero."""
    values = np.exp(message.values) if message.is_log else message.values
    return np.divide(context, values, out=np.zeros_like(values + context), where=values > 0)


def _normalized(table: FloatArray) -> FloatArray:
    sums = table.sum(axis=tuple(range(1, table.ndim)), keepdims=True)
    # Rows with impossible evidence are zero; callers refuse them.
    return table / np.where(sums > 0, sums, 1.0)


def _sum_to(table: FloatArray, axes: Axes, kept: Axes) -> FloatArray:
    """Sum over the axes outside ``kept``, which has the order of ``axes``."""
    return table.sum(axis=tuple(index for index, v in enumerate(axes, start=1) if v not in kept))


Axes = tuple[int, ...]
Number = TypeVar("Number", np.float64, np.int64)

# Products whose factors span together at most exp(600) = 1e260 are formed as plain numbers:
# no positive cell underflows once the largest is one. Beyond, sums of logarithms.
MAX_LOG_RANGE = 600.0

_ROW = -1  # the axis of the rows
_Named = tuple[FloatArray, Axes]


@dataclass(frozen=True)
class Table:
    """Values over variables: logarithms where a range is beyond ``MAX_LOG_RANGE``."""

    values: FloatArray  # (rows or 1, *states)
    axes: Axes
    log_range: float  # bounds log ratios of the largest to the smallest positive value of a row

    @property
    def is_log(self) -> bool:
        """Whether the values are logarithms."""
        return self.log_range > MAX_LOG_RANGE

    def log_values(self) -> FloatArray:
        if self.is_log:
            return self.values
        return safe_log(self.values)


def align(values: NDArray[Number], axes: Axes, target: Axes) -> NDArray[Number]:
    """Order the axes of a batch like ``target``, with length one where it has none."""
    if axes == target:
        return values
    sizes: dict[int, int] = dict(zip(axes, values.shape[1:]))
    ordered: Axes = tuple([variable for variable in target if variable in sizes])
    if ordered != axes:
        # A transposed view costs no copy, but its later uses do: only where the order differs
        values = values.transpose([0, *(1 + axes.index(axis) for axis in ordered)])
    shape = (len(values), *(sizes.get(variable, 1) for variable in target))
    return values.reshape(shape)


def spread(values: NDArray[Number], shape: Sequence[int]) -> NDArray[Number]:
    """Broadcast to a shape, which most tables have: `broadcast_to` is slow for small ones."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def scaled_table(values: FloatArray, axes: Axes) -> tuple[Table, FloatArray]:
    """Divide each row of values by its largest; give the table and the logarithms of these."""
    # Contractions may have another memory order: one copy here saves one in each use
    values = np.ascontiguousarray(values)
    peak = values.reshape(len(values), -1).max(axis=1)
    values = values / _per_row(np.where(peak > 0, peak, 1.0), values)
    # Zeros are rare, and a mask costs more than most tables.
    smallest = values.min()
    has_zeros = bool(smallest <= 0)
    if has_zeros:
        smallest = values.min(where=values > 0, initial=1.0)
    log_range = -log(smallest)
    # Sums of a product that spans the whole range may span a little more.
    kept = safe_log(values) if log_range > MAX_LOG_RANGE else values
    return Table(kept, axes, log_range), safe_log(peak) if has_zeros else np.log(peak)


def table_of_logs(logs: FloatArray, axes: Axes) -> tuple[Table, FloatArray]:
    """The same for logarithms, which are kept if plain numbers would underflow."""
    peak = logs.reshape(len(logs), -1).max(axis=1)
    logs = logs - _per_row(np.where(peak > -np.inf, peak, 0.0), logs)
    smallest = logs.min()
    if smallest == -np.inf:
        smallest = logs.min(where=logs > -np.inf, initial=0.0)
    log_range = -float(smallest)
    return Table(logs if log_range > MAX_LOG_RANGE else np.exp(logs), axes, log_range), peak


def _per_row(numbers: FloatArray, table: FloatArray) -> FloatArray:
    return numbers.reshape(-1, *(1,) * (table.ndim - 1))


def contract(operands: Sequence[tuple[FloatArray, Axes]], target: Axes) -> FloatArray:
    """Multiply batches (rows or 1, *states) as matrices, the smallest first, and sum over all
    outside ``target``, without a table over all variables; a missing axis is of length one.
    """
    left = [_named(values, axes) for values, axes in operands]
    while len(left) > 1:
        left.sort(key=lambda named: named[0].size, reverse=True)
        first, second = left.pop(), left.pop()
        kept = {_ROW, *target}.union(*(axes for _, axes in left))
        left.append(_product(first, second, kept))
    values, axes = _sum_out(left[0], {_ROW, *target})
    if _ROW not in axes:
        values, axes = values[None], (_ROW, *axes)
    return align(
        np.moveaxis(values, axes.index(_ROW), 0), tuple(a for a in axes if a != _ROW), target
    )


def _named(values: FloatArray, axes: Axes) -> _Named:
    """Give the axis of the rows a name, unless one table serves all rows."""
    return (values, (_ROW, *axes)) if len(values) > 1 else (values[0], tuple(axes))


def _sum_out(named: _Named, kept: Collection[int]) -> _Named:
    values, axes = named
    gone = tuple(index for index, axis in enumerate(axes) if axis not in kept)
    if not gone:
        return named
    return values.sum(axis=gone), tuple(axis for axis in axes if axis in kept)


def _product(first: _Named, second: _Named, kept: Collection[int]) -> _Named:
    """Multiply two tables and sum over the variables that are not kept."""
    a, a_axes = _sum_out(first, {*kept, *second[1]})
    b, b_axes = _sum_out(second, {*kept, *first[1]})
    states = {**dict(zip(a_axes, a.shape)), **dict(zip(b_axes, b.shape))}
    shared = [v for v in a_axes if v in b_axes]
    batch = [v for v in shared if v in kept]
    summed = [v for v in shared if v not in kept]
    rows = [v for v in a_axes if v not in shared]
    columns = [v for v in b_axes if v not in shared]
    n_batch, n_summed, n_rows, n_columns = (
        prod(states[v] for v in group) for group in (batch, summed, rows, columns)
    )
    # As one batched matrix product, which runs in BLAS: einsum loops over such axes itself
    left = _transposed(a, a_axes, [*batch, *rows, *summed]).reshape(n_batch, n_rows, n_summed)
    right = _transposed(b, b_axes, [*batch, *summed, *columns]).reshape(
        n_batch, n_summed, n_columns
    )
    axes = (*batch, *rows, *columns)
    return (left @ right).reshape([states[v] for v in axes]), axes


def _transposed(values: FloatArray, axes: Axes, order: Sequence[int]) -> FloatArray:
    return values.transpose([axes.index(v) for v in order])
