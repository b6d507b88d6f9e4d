"""Random spanning trees: Wilson's algorithm for many trees at once."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Moves of a walk beyond the square of the number of vertices: then the other way is cheaper.
_MOVES = 1000


class UniformSource(Protocol):
    """Uniform random numbers in [0, 1), as a `numpy.random.Generator` gives them."""

    def random(self, size: int) -> FloatArray:
        """Draw an array of numbers."""


def sample_spanning_trees(weights: FloatArray, graphs: IntArray, rng: UniformSource) -> IntArray:
    """Draw spanning trees with probability proportional to the product of their weights.

    From every vertex that is not yet in the tree a random walk runs until it meets the tree; its
    path without the loops joins the tree (Wilson, 1996). The walks of all trees advance together,
    one number per tree and move. Trees whose walks take too long, because they do not find out of
    strongly tied vertices, are drawn by `sample_arborescences` instead. That changes no
    probability: how many moves a tree takes is independent of the tree (Propp and Wilson, 1998).

    `weights` (n_graphs, n_vertices, n_vertices), `graphs` (n_trees,) -> (n_trees, n_vertices).
    """
    n_trees, n_vertices = len(graphs), weights.shape[1]
    moves = _Moves(weights)
    parents = np.full((n_trees, n_vertices), -1)
    in_tree = np.zeros((n_trees, n_vertices), dtype=bool)
    roots = weights.sum(axis=2).argmax(axis=1)
    in_tree[np.arange(n_trees), roots[graphs]] = True
    # Finished trees leave these arrays, so the last long walks cost little.
    active = np.flatnonzero(~in_tree.all(axis=1))
    start = in_tree[active].argmin(axis=1)
    position = start.copy()
    for _ in range(n_vertices**2 + _MOVES):
        if not len(active):
            return parents
        # One move per walk: its last exit from a vertex is what remains, loops vanish.
        target = moves.draw(graphs[active], position, rng.random(n_trees)[active])
        parents[active, position] = target
        position = target
        arrived = in_tree[active, position]
        if arrived.any():
            _add_paths(parents, in_tree, active[arrived], start[arrived])
            start[arrived] = in_tree[active[arrived]].argmin(axis=1)
            position[arrived] = start[arrived]
            # The next walk starts at the first vertex outside; without one the tree is done.
            unfinished = ~in_tree[active, start]
            active, start, position = active[unfinished], start[unfinished], position[unfinished]
    uniforms = np.stack([rng.random(n_trees)[active] for _ in range(n_vertices)])
    parents[active] = sample_arborescences(weights, roots, graphs[active], uniforms)
    return parents


class _Moves:
    """Random moves along edges, by one binary search in all cumulative rows."""

    def __init__(self, weights: FloatArray) -> None:
        n_graphs, self.n_vertices, _ = weights.shape
        cumulative = np.cumsum(weights, axis=2)
        # A single vertex has no edge, and nothing is ever drawn from it.
        cumulative /= np.maximum(cumulative[:, :, -1:], np.finfo(float).tiny)
        rows = np.arange(n_graphs * self.n_vertices).reshape(n_graphs, self.n_vertices, 1)
        self.table = (cumulative + rows).ravel()

    def draw(self, graphs: IntArray, positions: IntArray, uniforms: FloatArray) -> IntArray:
        """Move to random neighbours in the graphs."""
        rows = graphs * self.n_vertices + positions
        found = np.searchsorted(self.table, rows + uniforms, side="right")
        # Rounding of row + uniform may reach the next row.
        return np.minimum(found - rows * self.n_vertices, self.n_vertices - 1)


def _add_paths(parents: IntArray, in_tree: BoolArray, trees: IntArray, vertices: IntArray) -> None:
    """Follow the last exits from the given vertices until they meet the trees."""
    while len(trees):
        in_tree[trees, vertices] = True
        vertices = parents[trees, vertices]
        outside = ~in_tree[trees, vertices]
        trees, vertices = trees[outside], vertices[outside]


def sample_arborescences(
    weights: FloatArray, roots: IntArray, graphs: IntArray, uniforms: FloatArray
) -> IntArray:
    """Draw spanning trees with probability proportional to the product of their weights.

    `weights` (n_graphs, n_vertices, n_vertices), `roots` (n_graphs,), `graphs` (n_trees,),
    `uniforms` (n_vertices, n_trees) -> (n_trees, n_vertices).
    """
    n_trees, n_vertices = len(graphs), weights.shape[1]
    used, graphs = np.unique(graphs, return_inverse=True)
    weights, roots = weights[used], roots[used]
    inverses = _padded_inverses(weights, roots)
    parents = np.full((n_trees, n_vertices), -1)
    for trees in memory_bound_chunks(n_trees, 24 * n_vertices**2):
        own = graphs[trees]
        parents[trees] = _draw_parents(weights[own], inverses[own], roots[own], uniforms[:, trees])
    return parents


def _padded_inverses(weights: FloatArray, roots: IntArray) -> FloatArray:
    """Inverses of the Laplacians without their roots, padded by zeros there."""
    n_graphs, n_vertices, _ = weights.shape
    laplacians = -weights
    diagonal, every = np.arange(n_vertices), np.arange(n_graphs)
    laplacians[:, diagonal, diagonal] = weights.sum(axis=2)
    laplacians[every, roots, :] = laplacians[every, :, roots] = 0.0
    laplacians[every, roots, roots] = 1.0
    inverses = np.linalg.inv(laplacians).astype(np.float64, copy=False)
    inverses[every, roots, roots] = 0.0
    return inverses


def _draw_parents(
    weights: FloatArray, inverses: FloatArray, roots: IntArray, uniforms: FloatArray
) -> IntArray:
    """Draw the parents of vertex after vertex, of all trees at once; uses the inverses up."""
    n_trees, n_vertices, _ = weights.shape
    parents = np.full((n_trees, n_vertices), -1)
    for vertex in range(n_vertices):
        trees = np.flatnonzero(roots != vertex)
        own = inverses[trees]
        column = own[:, :, vertex]
        # One arrow v → p makes the determinant G_vv - G_pv times as large.
        factors = column[:, [vertex]] - column
        probabilities = np.maximum(weights[trees, vertex] * factors, 0.0)  # but for rounding
        chosen = draw_states(probabilities, uniforms[vertex, trees])
        parents[trees, vertex] = chosen
        # The row e_v - e_p replaces that of the vertex (Sherman and Morrison, 1950).
        every = np.arange(len(trees))
        change = own[:, vertex] - own[every, chosen]
        change[:, vertex] -= 1.0
        change /= factors[every, chosen][:, None]
        inverses[trees] = own - column[:, :, None] * change[:, None, :]
    return parents
