"""Trees over discrete variables: array representation, exact inference, conversion to circuits.

States are numbered in one flat array and rooted trees are arrays of parents, so that one pass
serves many trees and rows at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.circuits import Sum
from skcircuits.circuits.structure.units import Unit, linked_product
from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

# Tables that are processed at once, so that intermediate results are small.
_MAX_PAIRS = 2**16
#: Makes an input unit from a variable and the probabilities of its states.
InputMaker = Callable[[int, FloatArray], Unit]


def vertex_depths(parents: IntArray) -> IntArray:
    """Numbers of edges from each vertex to its root, (n_trees, n_vertices) as `parents`."""
    vertices = np.arange(parents.shape[1])
    ancestors = np.where(parents < 0, vertices, parents)
    # A root points to itself and adds nothing.
    depths = (parents >= 0).astype(np.int64)
    # Pointer doubling: after k rounds the pointers reach 2^k generations up.
    for _ in range(int(np.ceil(np.log2(max(2, len(vertices)))))):
        depths = depths + np.take_along_axis(depths, ancestors, axis=1)
        ancestors = np.take_along_axis(ancestors, ancestors, axis=1)
    return depths


def top_down_order(parents: IntArray) -> IntArray:
    """Vertices of rooted trees (n_trees, n_vertices) in an order with parents before children."""
    return np.argsort(vertex_depths(parents), axis=1, kind="stable")


def children_of(parents: IntArray) -> list[list[int]]:
    """Children of each vertex of one tree, from `parents` (n_vertices,)."""
    children: list[list[int]] = [[] for _ in parents]
    for child in np.flatnonzero(parents >= 0).tolist():
        children[parents[child]].append(child)
    return children


def edges_of(parents: IntArray) -> IntArray:
    """Edges (n_trees, n_vertices - 1, 2) from parents to children of rooted trees, in order."""
    children = top_down_order(parents)[:, 1:]
    return np.stack([np.take_along_axis(parents, children, axis=1), children], axis=2)


def maximum_spanning_tree(weights: FloatArray) -> IntArray:
    """Parents (n_vertices,) of the spanning tree of largest total weight (Prim's algorithm)."""
    n_vertices = len(weights)
    root = int(weights.sum(axis=1).argmax())
    parents = np.full(n_vertices, root)
    parents[root] = -1
    strongest = weights[root].astype(float)
    strongest[root] = -np.inf
    reached = np.zeros(n_vertices, dtype=bool)
    reached[root] = True
    for _ in range(n_vertices - 1):
        vertex = int(strongest.argmax())
        reached[vertex] = True
        strongest[vertex] = -np.inf
        # Vertices outside the tree remember their strongest link to it.
        closer = ~reached & (weights[vertex] > strongest)
        strongest[closer] = weights[vertex, closer]
        parents[closer] = vertex
    return parents


def root_at_center(parents: IntArray) -> IntArray:
    """Parents (n_vertices,) of the same tree with its root at the centre."""
    center = _center(parents)
    rooted = parents.copy()
    child, vertex = -1, center
    # Turn the edges between the centre and the old root around.
    while vertex >= 0:
        above = int(parents[vertex])
        rooted[vertex] = child
        child, vertex = vertex, above
    return rooted


def _center(parents: IntArray) -> int:
    """Strip leaves, all at once, until one or two vertices remain."""
    children = np.flatnonzero(parents >= 0)
    ends = np.column_stack([children, parents[children]])
    alive = np.ones(len(parents), dtype=bool)
    while alive.sum() > 2:
        inside = alive[ends].all(axis=1)
        degree = np.bincount(ends[inside].ravel(), minlength=len(parents))
        alive &= degree > 1
    return int(np.flatnonzero(alive)[0])


@dataclass(frozen=True, eq=False)
class PairGroup:
    """Pairs (n_pairs,) of variables whose tables have one shape, with `first` the longer side."""

    layout: StateLayout
    first: IntArray
    second: IntArray

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (n_pairs, n_first_states, n_second_states) of the tables."""
        cardinalities = self.layout.cardinalities
        sizes = int(cardinalities[self.first[0]]), int(cardinalities[self.second[0]])
        return len(self.first), *sizes

    @property
    def rows(self) -> IntArray:
        """Flat states of the first variables, shape (n_pairs, n_first_states, 1)."""
        return self.layout.offsets[self.first][:, None, None] + np.arange(self.shape[1])[:, None]

    @property
    def columns(self) -> IntArray:
        """Flat states of the second variables, shape (n_pairs, 1, n_second_states)."""
        return self.layout.offsets[self.second][:, None, None] + np.arange(self.shape[2])


class StateLayout:
    """State ``a`` of variable ``j`` has the flat number ``offsets[j] + a``: one vector (n_states,)
    holds a function of one variable, one symmetric matrix a function of every pair.
    """

    def __init__(self, cardinalities: Sequence[int] | IntArray) -> None:
        self.cardinalities: IntArray = np.asarray(cardinalities, dtype=np.int64)
        if self.cardinalities.ndim != 1 or not len(self.cardinalities):
            raise invalid(
                "cardinalities", "name at least one variable", cardinalities=cardinalities
            )
        if self.cardinalities.min() < 1:
            raise invalid("cardinalities", "be positive", cardinalities=self.cardinalities.tolist())
        self.n_variables = len(self.cardinalities)
        self.offsets: IntArray = np.concatenate([[0], np.cumsum(self.cardinalities)[:-1]])
        self.n_states = int(self.cardinalities.sum())
        self.owner: IntArray = np.repeat(np.arange(self.n_variables), self.cardinalities)
        self.own_state: IntArray = np.arange(self.n_states) - self.offsets[self.owner]

    def states_of(self, variable: int) -> slice:
        """Flat numbers of the states of a variable."""
        first = self.offsets[variable]
        return slice(first, first + self.cardinalities[variable])

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The two variables of every pair, pairs with tables of one shape together."""
        # Each pair once; the variable with more states leads, so that shapes (2, 3) and
        # (3, 2) are one group.
        first, second = np.triu_indices(self.n_variables, 1)
        swap = self.cardinalities[first] < self.cardinalities[second]
        first, second = np.where(swap, second, first), np.where(swap, first, second)
        order = np.lexsort([self.cardinalities[second], self.cardinalities[first]])
        return first[order], second[order]

    @cached_property
    def pair_groups(self) -> tuple[PairGroup, ...]:
        """The same pairs in groups whose tables have one shape."""
        first, second = self.pairs
        shapes = np.stack([self.cardinalities[first], self.cardinalities[second]])
        changes = np.flatnonzero((shapes[:, 1:] != shapes[:, :-1]).any(axis=0)) + 1
        return tuple(
            PairGroup(self, own_first[part], own_second[part])
            for own_first, own_second in zip(np.split(first, changes), np.split(second, changes))
            for part in row_slices(len(own_first), _MAX_PAIRS)
        )

    def flat(self, codes: IntArray) -> IntArray:
        """Turn codes (n_rows, n_variables) into flat state numbers."""
        return codes + self.offsets

    def one_hot(self, codes: IntArray) -> FloatArray:
        """Indicators (n_rows, n_states) of codes (n_rows, n_variables), zeros where negative."""
        indicators = np.zeros((len(codes), self.n_states))
        positions = self.flat(codes) + self.n_states * np.arange(len(codes))[:, None]
        indicators.ravel()[positions[codes >= 0]] = 1.0
        return indicators

    def state_counts(self, codes: IntArray, sample_weight: FloatArray) -> FloatArray:
        """Sum the weights of the rows (complete codes) that have each flat state."""
        weights = np.repeat(sample_weight, self.n_variables)
        # Weights are floats, so the sums are.
        return np.bincount(self.flat(codes).ravel(), weights, self.n_states).astype(np.float64)

    def evidence(self, codes: IntArray) -> FloatArray:
        """Factors (n_rows, n_states): an observed cell leaves its state, a negative code all."""
        return self.one_hot(codes) + (codes < 0)[:, self.owner]

    def sum_states(self, values: FloatArray) -> FloatArray:
        """Sum the last axis (flat states) within each variable."""
        return np.add.reduceat(values, self.offsets, axis=-1)

    def pair_matrix(self, values: FloatArray) -> FloatArray:
        """Spread one value per pair over a symmetric (n_variables, n_variables) matrix."""
        matrix = np.zeros((self.n_variables, self.n_variables))
        first, second = self.pairs
        matrix[first, second] = matrix[second, first] = values
        return matrix

    def pair_values(self, matrix: FloatArray) -> FloatArray:
        """Read one value per pair from a symmetric (n_variables, n_variables) matrix."""
        return matrix[self.pairs]

    def state_matrix(self, tables: Iterable[FloatArray]) -> FloatArray:
        """Spread the tables of all groups over a symmetric (n_states, n_states) matrix."""
        matrix = np.zeros((self.n_states, self.n_states))
        for group, table in zip(self.pair_groups, tables, strict=True):
            rows, columns = group.rows, group.columns
            matrix[rows, columns] = matrix[columns, rows] = table
        return matrix


def distinct_rows(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Distinct rows of a table of codes, -1 where missing, and the `inverse` (n_rows,)."""
    # Rows as opaque bytes sort much faster than columns one after the other.
    shifted = codes + 1
    narrow = np.ascontiguousarray(shifted.astype(np.min_scalar_type(shifted.max(initial=0))))
    opaque = narrow.view(np.dtype((np.void, narrow.itemsize * narrow.shape[1]))).ravel()
    _, index, inverse = np.unique(opaque, return_index=True, return_inverse=True)
    return codes[index], inverse


def tree_unit(tables: list[FloatArray], parents: IntArray, make_input: InputMaker) -> Unit:
    """The tree of `parents` (n_variables,) and conditional `tables` (n_states_of_parent, n_states):
    one input unit per state of a leaf's parent, sums over states of others; subtrees are shared.
    """
    children = children_of(parents)
    below: dict[int, list[Unit]] = {}  # per variable its subtree given each parent state
    for variable in top_down_order(parents[None])[0, ::-1].tolist():
        # Bottom-up without recursion: a path of a thousand variables is no problem.
        subtrees = [below.pop(child) for child in children[variable]]
        below[variable] = _conditional_units(variable, tables[variable], subtrees, make_input)
    return below[int(np.flatnonzero(parents < 0)[0])][0]


def conditional_tables(
    layout: StateLayout, nodes: FloatArray, pairs: FloatArray, parents: IntArray
) -> list[FloatArray]:
    """Probabilities of the states of each variable, a row per state of the variable above, from
    those of states (n_states,) and pairs (n_states, n_states).
    """
    tables = []
    for variable, above in enumerate(parents.tolist()):
        states = layout.states_of(variable)
        is_root = above < 0
        joint = nodes[None, states] if is_root else pairs[layout.states_of(above), states]
        totals = joint.sum(axis=1, keepdims=True)
        # Below a state without probability any table will do
        uniform = np.full_like(joint, 1.0 / joint.shape[1])
        tables.append(np.divide(joint, totals, out=uniform, where=totals > 0.0))
    return tables


def _conditional_units(
    variable: int, conditionals: FloatArray, subtrees: list[list[Unit]], make_input: InputMaker
) -> list[Unit]:
    """A variable and all below it, given each state of its parent."""
    # A leaf needs no sum over its states: the input unit does that itself.
    if not subtrees:
        return [make_input(variable, probabilities) for probabilities in conditionals]
    indicators = np.eye(conditionals.shape[1])
    branches = [
        linked_product((make_input(variable, indicator), *(subtree[state] for subtree in subtrees)))
        for state, indicator in enumerate(indicators)
    ]
    # A constant column needs no sum.
    if len(branches) == 1:
        return [branches[0]] * len(conditionals)
    return [Sum(branches, weights=probabilities) for probabilities in conditionals]


class TreeInference:
    """Belief propagation in distributions ``Π_u P_u(x_u) Π_{uv} r_uv(x_u, x_v)`` of trees `parents`
    (n_trees, n_variables), -1 at the root, by `nodes` (n_states,), `ratios` r (n_states, n_states)
    and factors `evidence` (n_trees or 1, n_rows, n_states) on states; one pass to the root gives
    `log_evidence` (n_trees, n_rows), one pass back answers queries.
    """

    def __init__(
        self,
        parents: IntArray,
        layout: StateLayout,
        nodes: FloatArray,
        ratios: FloatArray,
        evidence: FloatArray,
    ) -> None:
        self.parents = parents
        self.depths = vertex_depths(parents)
        self._ratios = ratios
        self._layout = layout
        self._states = np.arange(layout.cardinalities.max())
        self._trees = np.arange(len(parents))
        self._collect(nodes * evidence)

    def marginals(self) -> FloatArray:
        """Distributions (n_trees, n_rows, n_states) of all variables given the observed cells."""
        return self._by_flat_state(self._beliefs())

    def _beliefs(self) -> FloatArray:
        """Distribution of every variable, (n_trees, n_variables, n_rows, n_states)."""
        beliefs = np.empty_like(self._below)
        trees, roots = np.nonzero(self.depths == 0)
        beliefs[trees, roots] = _normalized(self._below[trees, roots])
        for trees, children in self._levels():
            parents, ratios, below = self._edge(trees, children)
            # Belief of the parent without this child's own message.
            above = _quotient(beliefs[trees, parents], below @ ratios.transpose(0, 2, 1))
            beliefs[trees, children] = below * (above @ ratios)
        return beliefs

    def edge_counts(self, weight: FloatArray) -> FloatArray:
        """Weighted counts (n_states, n_states) of rows by states of the edges of a single tree,
        zero for pairs that are no edge; the diagonal counts states.
        """
        beliefs = self._beliefs()
        counts = np.diag(weight @ self._by_flat_state(beliefs)[0])
        for trees, children in self._levels():
            parents, ratios, below = self._edge(trees, children)
            messages = below @ ratios.transpose(0, 2, 1)
            above = _quotient(beliefs[trees, parents], messages) * weight[:, None]
            tables = ratios * (above.transpose(0, 2, 1) @ below)
            sizes = self._layout.cardinalities
            for parent, child, table in zip(parents, children, tables, strict=True):
                own = table[: sizes[parent], : sizes[child]]
                rows = self._layout.offsets[parent] + np.arange(sizes[parent])
                columns = self._layout.offsets[child] + np.arange(sizes[child])
                counts[np.ix_(rows, columns)], counts[np.ix_(columns, rows)] = own, own.T
        return counts

    def given_parent(self, variable: int, rows: IntArray, states: IntArray) -> FloatArray:
        """Distributions (n, n_states) of a variable of a single tree in `rows` (n,), given `states`
        (n,) of its parent and what is known below it.
        """
        parent = int(self.parents[0, variable])
        weights = self._below[0, variable, rows, : self._layout.cardinalities[variable]]
        if parent >= 0:
            flat = self._layout.offsets[variable] + np.arange(weights.shape[1])
            weights = weights * self._ratios[self._layout.offsets[parent] + states][:, flat]
        return _normalized(weights)

    def sample(self, rng: np.random.Generator) -> IntArray:
        """Draw all variables given the observed cells, (n_trees, n_rows, n_variables)."""
        n_trees, n_variables, n_rows, _ = self._below.shape
        codes = np.empty((n_trees, n_rows, n_variables), dtype=np.int64)
        trees, roots = np.nonzero(self.depths == 0)
        codes[trees, :, roots] = _draw(self._below[trees, roots], rng)
        for trees, children in self._levels():
            codes[trees, :, children] = _draw(self._given_parents(trees, children, codes), rng)
        return codes

    def conditionals(self, codes: IntArray) -> FloatArray:
        """Distributions (n_trees, n_rows, n_states) given the states of parents in `codes` that
        `sample` draws from: over drawn rows, their means are marginals with less noise.
        """
        weights = np.empty_like(self._below)
        trees, roots = np.nonzero(self.depths == 0)
        weights[trees, roots] = self._below[trees, roots]
        for trees, children in self._levels():
            weights[trees, children] = self._given_parents(trees, children, codes)
        return self._by_flat_state(_normalized(weights))

    def _levels(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Trees and variables of equal depth, from the children of the roots down."""
        for depth in range(1, self.depths.max(initial=0) + 1):
            trees, variables = np.nonzero(self.depths == depth)
            yield trees, variables

    def _given_parents(self, trees: IntArray, children: IntArray, codes: IntArray) -> FloatArray:
        """Weights of the states of some variables (n_variables, n_rows, n_states)."""
        parents, ratios, below = self._edge(trees, children)
        parent_states = codes[trees, :, parents][:, :, None]
        return below * np.take_along_axis(ratios, parent_states, axis=1)

    def _by_flat_state(self, values: FloatArray) -> FloatArray:
        """Turn (n_trees, n_variables, n_rows, states) into (n_trees, n_rows, flat states)."""
        return values[:, self._layout.owner, :, self._layout.own_state].transpose(1, 2, 0)

    def _collect(self, weights: FloatArray) -> None:
        """Pass from the leaves to the root; sets what lies at and below each variable."""
        cardinalities = self._layout.cardinalities
        flat = self._flat(np.arange(len(cardinalities)))
        # Padding states get no mass, so whatever their tables hold does not matter.
        below = np.where(self._states < cardinalities[:, None], weights[..., flat], 0.0)
        below = below.transpose(0, 2, 1, 3)
        shape = (len(self.parents), *below.shape[1:])
        # A copy per tree, because each gathers messages along its own edges.
        self._below = np.broadcast_to(below, shape).copy()
        self.log_evidence = np.zeros((shape[0], shape[2]))
        order = np.argsort(self.depths, axis=1, kind="stable")
        # The i-th vertices from the end, of all trees at once: their children are done.
        for children in order.T[:0:-1]:
            parents, ratios, below = self._edge(self._trees, children)
            joint = self._below[self._trees, parents] * (below @ ratios.transpose(0, 2, 1))
            # Rescaled at once: a hub multiplies as many messages as it has neighbours.
            largest = joint.max(axis=2)
            self._below[self._trees, parents] = _quotient(joint, largest[:, :, None])
            self.log_evidence += safe_log(largest)
        self.log_evidence += safe_log(self._below[self._trees, order[:, 0]].sum(axis=2))

    def _edge(self, trees: IntArray, children: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Parents, tables (parent state, child state) and what lies below the children."""
        parents = self.parents[trees, children]
        rows, columns = self._flat(parents), self._flat(children)
        ratios = self._ratios[rows[:, :, None], columns[:, None, :]]
        return parents, ratios, self._below[trees, children]

    def _flat(self, variables: IntArray) -> IntArray:
        """Flat states (n_variables, n_states); valid indices also where a state is missing."""
        flat = self._layout.offsets[variables][:, None] + self._states
        return np.minimum(flat, self._layout.n_states - 1)


def _normalized(weights: FloatArray) -> FloatArray:
    return _quotient(weights, weights.sum(axis=-1, keepdims=True))


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide, with 0 / 0 = 0 where evidence rules a state out."""
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    return np.divide(numerator, denominator, out=np.zeros(shape), where=denominator > 0)


def _draw(weights: FloatArray, rng: np.random.Generator) -> IntArray:
    return draw_states(weights, rng.random(weights.shape[:-1]))
