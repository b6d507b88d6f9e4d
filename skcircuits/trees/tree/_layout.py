"""States of discrete variables in flat arrays, and rooted trees as arrays of parents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.exceptions import must
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

# Tables worked on at once: what is computed of them stays small beside the model.
_MAX_PAIRS = 2**16


def vertex_depths(parents: IntArray) -> IntArray:
    """Count the edges between every vertex and the root of its tree.

    `parents` (n_trees, n_vertices) -> (n_trees, n_vertices).
    """
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
    """Order the vertices of rooted trees so that every parent precedes its children.

    `parents` (n_trees, n_vertices) -> (n_trees, n_vertices).
    """
    return np.argsort(vertex_depths(parents), axis=1, kind="stable")


def children_of(parents: IntArray) -> list[list[int]]:
    """Children of each vertex of one tree.

    `parents` (n_vertices,).
    """
    children: list[list[int]] = [[] for _ in parents]
    for child in np.flatnonzero(parents >= 0).tolist():
        children[parents[child]].append(child)
    return children


def edges_of(parents: IntArray) -> IntArray:
    """Edges (parent, child) of rooted trees, parents first.

    `parents` (n_trees, n_vertices) -> (n_trees, n_vertices - 1, 2).
    """
    children = top_down_order(parents)[:, 1:]
    return np.stack([np.take_along_axis(parents, children, axis=1), children], axis=2)


def maximum_spanning_tree(weights: FloatArray) -> IntArray:
    """Find the spanning tree of largest total weight (Prim's algorithm).

    `weights` (n_vertices, n_vertices) -> (n_vertices,).
    """
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
    """Move the root of a tree to its centre.

    `parents` (n_vertices,) -> (n_vertices,).
    """
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
    """Pairs of variables whose tables have one shape.

    `layout`: numbering of the states; `first`, `second` (n_pairs,): the two variables of each
    pair; ``first`` has at least as many states.
    """

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
    """Flat numbering of the states of all variables.

    State ``a`` of variable ``j`` has the flat number ``offsets[j] + a``, so one vector of length
    ``n_states`` holds a function of one variable and one symmetric matrix a function of every
    pair.

    `cardinalities`: number of states of each variable.
    """

    def __init__(self, cardinalities: Sequence[int] | IntArray) -> None:
        self.cardinalities: IntArray = np.asarray(cardinalities, dtype=np.int64)
        if self.cardinalities.ndim != 1 or not len(self.cardinalities):
            raise ValueError(
                must("cardinalities", "name at least one variable", cardinalities=cardinalities)
            )
        if self.cardinalities.min() < 1:
            raise ValueError(
                must("cardinalities", "be positive", cardinalities=self.cardinalities.tolist())
            )
        self.n_variables = len(self.cardinalities)
        self.offsets: IntArray = np.concatenate([[0], np.cumsum(self.cardinalities)[:-1]])
        self.n_states = int(self.cardinalities.sum())
        self.owner: IntArray = np.repeat(np.arange(self.n_variables), self.cardinalities)
        self.own_state: IntArray = np.arange(self.n_states) - self.offsets[self.owner]

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
        """Turn codes (n_rows, n_variables) into indicators (n_rows, n_states).

        A negative code stands for a missing cell and gives zeros.
        """
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
        """Turn codes (n_rows, n_variables) into factors (n_rows, n_states) on the states.

        An observed cell leaves its state, a missing one (a negative code) all states.
        """
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
