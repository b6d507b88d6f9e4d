"""The hidden variables of a factor graph given the others: one structure, many evidences.

A variable that is neither asked for nor observed, nor above one that is, sums to one with its
table: it is barren, and queries leave it out. Every variable asked for alone leaves others barren,
so that the marginals of a dense network may be cheaper from several small trees than from one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from math import prod

import numpy as np

from skcircuits.exceptions import must
from skcircuits.graphical.factor import Factor
from skcircuits.graphical.inference._elimination import (
    EliminationTree,
    build_tree,
    connected_components,
    elimination_order,
    interaction_graph,
    order_ending_with,
    quick_order,
)
from skcircuits.graphical.inference._propagation import (
    Messages,
    Table,
    align,
    backward_pass,
    draw_rows,
    entropy,
    forward_pass,
    joint_of_last,
    most_probable,
    table_of_logs,
)
from skcircuits.parallel import memory_bound_chunks, working_memory_bytes
from skcircuits.protocols import FloatArray, IntArray

# Below, one tree of all variables is quicker solved than smaller ones are found.
_MAX_SINGLE_CELLS = 2**20
# Below, both passes take less time than the search for several trees, or a tree of its own.
_MIN_SPLIT_CELLS = 2**18
_MIN_OWN_CELLS = 2**14
# Time of both passes, where the way to the root takes one.
_TWO_PASSES = 2.5
# Rows with missing values have few patterns and come again.
_MAX_KEPT = 1024


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
    """Hidden variables that are connected, once the observed ones are fixed.

    ``boundary`` are the observed variables that the factors touching them look at.
    """

    tree: EliminationTree
    factors: tuple[ScaledFactor, ...]
    boundary: IntArray


@dataclass(frozen=True)
class Solution:
    """A component solved for a batch of n evidences; the u different ones are solved once.

    ``conditionals`` hold per bucket ``p(variable | separator)``, shape (u or 1, states,
    *separator); ``log_partition`` (u,) is the log sum over the hidden states, ``rows`` (n,)
    the index of each evidence among the u.
    """

    component: Component
    conditionals: list[FloatArray]
    log_partition: FloatArray
    rows: IntArray


def scaled_factors(factors: Sequence[Factor]) -> tuple[ScaledFactor, ...]:
    """Prepare factors for products of plain numbers."""
    scaled = []
    for factor in factors:
        table, peak = table_of_logs(factor.log_table[None], factor.scope)
        scaled.append(ScaledFactor(factor, table, float(peak[0])))
    return tuple(scaled)


class Posterior:
    """Conditional distributions of the ``hidden`` variables given all the others.

    ``cardinalities`` are the numbers of states of all variables of the model; ``order`` is
    that of :func:`elimination_order`. Methods raise MemoryError before they start what would
    not fit into the working memory.
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
        # These are mere numbers per row; everything else belongs to one component.
        self.observed_factors = [f.factor for f in factors if self.hidden.isdisjoint(f.scope)]
        # A hidden variable without any factor is uniform: a scope of its own keeps it.
        scopes = [self.hidden.intersection(f.scope) for f in factors] + [{v} for v in self.hidden]
        self.components = [
            _component(factors, cardinalities, variables, order)
            for variables in connected_components(interaction_graph(scopes))
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
        """Run the forward pass of every component for the observed states (n, d).

        Here and below, the columns of hidden variables are ignored.
        """
        for component in self.components:
            yield self.solve_component(component, codes)

    def solve_component(self, component: Component, codes: IntArray) -> Solution:
        """Run the forward pass of one component; only the columns of its boundary matter."""
        tree = component.tree
        _check_size(tree.n_cells, tree.width)
        # Nothing but the boundary reaches the component: solve each of its states once.
        distinct, rows = _distinct_evidence(component, codes)
        solved = self._forward(component, distinct, all_conditionals=True)
        conditionals = [table for table in solved.conditionals if table is not None]
        log_partition = np.broadcast_to(solved.log_partition, len(distinct))
        return Solution(component, conditionals, log_partition, rows)

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

    def _log_partition(self, component: Component, codes: IntArray) -> FloatArray:
        distinct, rows = _distinct_evidence(component, codes)
        values = np.empty(len(distinct))
        for part in _chunks(component.tree, len(distinct)):
            solved = self._forward(component, distinct[part], all_conditionals=False)
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
            tables = {
                v: np.empty((len(distinct), int(self.cardinalities[v])))
                for v in wanted.intersection(component.tree.variables)
            }
            for part in _chunks(component.tree, len(distinct)):
                solved = self._forward(component, distinct[part], all_conditionals=False)
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
        total = np.ones((len(codes), *(1 for _ in variables)))
        for component in self.components:
            # The order that the tree has them in, which is the one of its tables.
            mine = tuple(v for v in component.tree.variables if v in set(variables))
            if mine:
                distinct, rows = _distinct_evidence(component, codes)
                _check_size(len(distinct) * _n_message_cells(component.tree), component.tree.width)
                solved = self._forward(component, distinct, all_conditionals=False)
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
                mine = ((rows >= part.start) & (rows < part.start + len(distinct[part]))).nonzero()[
                    0
                ]
                tables = [_lookup(f.table, distinct[part], self.hidden) for f in component.factors]
                found = completed[mine]
                most_probable(tree, tables, rows[mine] - part.start, found)
                completed[mine] = found
        return completed

    def marginal_factors(self) -> list[Factor]:
        """Give the factors of the observed variables once the hidden ones are summed out.

        These are the ones that saw no hidden variable, and one per component over its boundary.
        """
        factors = list(self.observed_factors)
        for component in self.components:
            shape = tuple(self.cardinalities[component.boundary].tolist())
            # Summing out a component joins its whole boundary in one factor.
            _check_size(prod(shape), len(shape))
            states = np.zeros((prod(shape), len(self.cardinalities)), dtype=np.int64)
            states[:, component.boundary] = np.indices(shape).reshape(len(shape), prod(shape)).T
            table = self._log_partition(component, states).reshape(shape)
            factors.append(Factor(tuple(component.boundary.tolist()), table))
        return factors

    def _forward(
        self, component: Component, codes: IntArray, *, all_conditionals: bool
    ) -> Messages:
        tables = [_lookup(factor.table, codes, self.hidden) for factor in component.factors]
        log_scale = sum(factor.log_scale for factor in component.factors)
        return forward_pass(
            component.tree, tables, all_conditionals=all_conditionals, log_scale=log_scale
        )


def _component(
    factors: Sequence[ScaledFactor],
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
    # What separates the component from the rest: all that its tables depend on.
    boundary = sorted({v for factor in touching for v in factor.scope} - members)
    return Component(tree, touching, np.array(boundary, dtype=np.int64))


def _distinct_evidence(component: Component, codes: IntArray) -> tuple[IntArray, IntArray]:
    """Reduce rows to the u different states of the boundary: (u, d), and the index of each row."""
    distinct, rows = np.unique(codes[:, component.boundary], axis=0, return_inverse=True)
    evidence = np.zeros((len(distinct), codes.shape[1]), dtype=np.int64)
    evidence[:, component.boundary] = distinct
    return evidence, rows.ravel()


def _lookup(table: Table, codes: IntArray, hidden: frozenset[int]) -> Table:
    """Reduce a table (1, *states) by the observed states of each row."""
    observed = [index for index, v in enumerate(table.axes, start=1) if v not in hidden]
    if not observed:
        return table
    free = [index for index, v in enumerate(table.axes, start=1) if v in hidden]
    # Observed axes first: one fancy index then picks a free table per row.
    values = table.values.transpose([0, *observed, *free])[0]
    rows = values[tuple(codes[:, table.axes[index - 1]] for index in observed)]
    return Table(rows, tuple(table.axes[index - 1] for index in free), table.log_range)


def _chunks(tree: EliminationTree, n_rows: int) -> Iterator[slice]:
    """Cut a batch of evidences so that the messages of both passes fit."""
    n_cells = _n_message_cells(tree)
    _check_size(n_cells, tree.width)
    return memory_bound_chunks(n_rows, 8 * n_cells)


def _n_message_cells(tree: EliminationTree) -> int:
    """Cells of all messages of both passes, and of the largest tables they are made of."""
    separators = sum(prod(tree.shape(bucket.separator)) for bucket in tree.buckets)
    widest = max(prod(tree.shape(bucket.axes)) for bucket in tree.buckets)
    return 2 * (separators + widest)


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


class Posteriors:
    """Structures of exact inference for sets of hidden variables, kept once found.

    ``children[i]`` is the variable that factor i is a conditional distribution of; None where
    the factors are mere potentials, of which none may be left out.
    """

    def __init__(
        self,
        factors: Sequence[Factor],
        cardinalities: IntArray,
        children: Sequence[int] | None = None,
    ) -> None:
        self.factors = factors
        self.cardinalities = cardinalities
        self.families = None
        if children is not None:
            self.families = {child: index for index, child in enumerate(children)}
        self.all_hidden = lru_cache(maxsize=_MAX_KEPT)(self._all_hidden)
        self.for_evidence = lru_cache(maxsize=_MAX_KEPT)(self._for_evidence)
        self.for_marginals = lru_cache(maxsize=_MAX_KEPT)(self._for_marginals)

    @cached_property
    def scaled(self) -> tuple[ScaledFactor, ...]:
        """The factors, ready for products."""
        return scaled_factors(self.factors)

    def relevant(self, variables: Collection[int]) -> frozenset[int]:
        """Variables that some of them may depend on: they and all above them."""
        if self.families is None:
            return frozenset(range(len(self.cardinalities)))
        found, frontier = set(variables), list(variables)
        while frontier:
            fresh = set(self.factors[self.families[frontier.pop()]].scope) - found
            found |= fresh
            frontier += fresh
        return frozenset(found)

    def restricted(
        self,
        hidden: frozenset[int],
        variables: frozenset[int],
        order: Sequence[int] | str = "auto",
    ) -> Posterior:
        """Give the structure of the relevant variables alone."""
        if self.families is None:
            return Posterior(self.scaled, self.cardinalities, hidden, order)
        factors = [self.scaled[self.families[v]] for v in sorted(variables)]
        return Posterior(factors, self.cardinalities, hidden & variables, order)

    def for_joint(self, hidden: frozenset[int], variables: Sequence[int]) -> Posterior:
        """Give a structure that sums out all but some of the hidden variables first."""
        observed = set(range(len(self.cardinalities))) - hidden
        relevant = self.relevant([*observed, *variables])
        scopes = [hidden.intersection(factor.scope) & relevant for factor in self.factors]
        # Joined with each other, as they will be in the end.
        order = elimination_order(
            [*scopes, *({v} for v in hidden), set(variables)], self.cardinalities
        )
        first = [v for v in order if v not in set(variables)]
        return self.restricted(hidden, relevant, [*first, *variables])

    def _all_hidden(self, hidden: frozenset[int]) -> Posterior:
        return Posterior(self.scaled, self.cardinalities, hidden)

    def _for_evidence(self, hidden: frozenset[int]) -> Posterior:
        observed = set(range(len(self.cardinalities))) - hidden
        return self.restricted(hidden, self.relevant(observed))

    def _for_marginals(self, hidden: frozenset[int]) -> list[tuple[Posterior, frozenset[int]]]:
        """Structures, and which of their hidden variables each answers for."""
        if self.families is None:
            return [(self.all_hidden(hidden), hidden)]
        # One order tells whether a single tree is out of the question: others save a factor of
        # two at times, and take as long as the marginals of a dense network of thirty variables.
        n_cells = self._quick_order(hidden, frozenset(self.families))[1]
        if n_cells <= 4 * _MAX_SINGLE_CELLS:
            whole = self.all_hidden(hidden)
            if whole.n_cells <= _MAX_SINGLE_CELLS:
                return [(whole, hidden)]
        return self._peeled(hidden, n_cells)

    def _peeled(
        self, hidden: frozenset[int], n_cells: int
    ) -> list[tuple[Posterior, frozenset[int]]]:
        """Answer layer by layer for variables that no other one depends on, if that is cheaper.

        Each is the root of a tree of its own, which takes a single pass; all others do without it.
        """
        observed = set(range(len(self.cardinalities))) - hidden
        sets = {v: self.relevant([*observed, v]) for v in hidden}
        jobs: list[tuple[Posterior, frozenset[int]]] = []
        open_variables = hidden
        while n_cells > _MIN_SPLIT_CELLS:
            n_dependent = Counter(chain.from_iterable(sets[v] for v in open_variables))
            last = [v for v in sorted(open_variables) if n_dependent[v] == 1]
            layer = {v: self._quick_order(hidden, sets[v]) for v in last}
            layer = {v: found for v, found in layer.items() if found[1] > _MIN_OWN_CELLS}
            others = open_variables.difference(layer)
            relevant = frozenset().union(*(sets[v] for v in others))
            below = self._quick_order(hidden, relevant)
            total = sum(cells for _, cells in layer.values()) + _TWO_PASSES * below[1]
            if not layer or total >= _TWO_PASSES * n_cells:
                break
            for v, found in layer.items():
                top = self._improved(hidden, sets[v], found)
                order = [u for part in top.components for u in order_ending_with(part.tree, v)]
                jobs.append((self.restricted(hidden, sets[v], order), frozenset({v})))
            rest, n_cells, open_variables = (relevant, below), below[1], others
        # Where nothing was peeled, other queries may know the tree of all variables.
        whole = self._improved(hidden, *rest) if jobs else self.all_hidden(hidden)
        return [*jobs, (whole, open_variables)]

    def _quick_order(
        self, hidden: frozenset[int], variables: frozenset[int]
    ) -> tuple[list[int], int]:
        """An order of the relevant variables alone, and its cells."""
        assert self.families is not None
        scopes = [self.factors[self.families[v]].scope for v in sorted(variables)]
        return quick_order([hidden.intersection(scope) for scope in scopes], self.cardinalities)

    def _improved(
        self, hidden: frozenset[int], variables: frozenset[int], quick: tuple[list[int], int]
    ) -> Posterior:
        """Try the other criteria too: on small structures they take longer than they save."""
        order, n_cells = quick
        return self.restricted(hidden, variables, "auto" if n_cells > _MAX_SINGLE_CELLS else order)
