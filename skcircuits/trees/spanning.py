"""Random spanning trees: Wilson's algorithm for many trees at once."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["sample_spanning_trees"]


def sample_spanning_trees(weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw spanning trees with probability proportional to the product of their weights.

    From every vertex that is not yet in the tree a random walk runs until it meets the tree;
    its path without the loops joins the tree (Wilson, 1996). The walks of all trees advance
    together.

    Parameters
    ----------
    weights : ndarray of shape (n_trees, n_vertices, n_vertices)
        Symmetric edge weights with a zero diagonal, per tree to draw. Use
        `numpy.broadcast_to` to draw many trees from one graph without copies.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_trees, n_vertices)
        Parent of each vertex, -1 at the root. The edges are what is random; the root is the
        best-connected vertex of each graph.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import sample_spanning_trees
    >>> path = np.array([[0.0, 1, 0], [1, 0, 1], [0, 1, 0]])
    >>> sample_spanning_trees(np.broadcast_to(path, (2, 3, 3)), np.random.default_rng(0))
    array([[ 1, -1,  1],
           [ 1, -1,  1]])
    """
    n_trees, n_vertices, _ = weights.shape
    steps = _Transitions(weights)
    parents = np.full((n_trees, n_vertices), -1)
    in_tree = np.zeros((n_trees, n_vertices), dtype=bool)
    in_tree[np.arange(n_trees), weights.sum(axis=2).argmax(axis=1)] = True
    active = np.flatnonzero(~in_tree.all(axis=1))
    start = in_tree[active].argmin(axis=1)
    position = start.copy()
    while len(active):
        # One move per walk: its last exit from a vertex is what remains, loops vanish.
        target = steps.draw(active, position, rng)
        parents[active, position] = target
        position = target
        arrived = in_tree[active, position]
        if arrived.any():
            _add_paths(parents, in_tree, active[arrived], start[arrived])
            start[arrived] = in_tree[active[arrived]].argmin(axis=1)
            position[arrived] = start[arrived]
            unfinished = ~in_tree[active, start]
            active, start, position = active[unfinished], start[unfinished], position[unfinished]
    return parents


class _Transitions:
    """Random moves along edges, by one binary search in all cumulative rows."""

    def __init__(self, weights: FloatArray) -> None:
        n_trees, self.n_vertices, _ = weights.shape
        # One graph for all trees: strides of zero along the first axis.
        self.shared = weights.strides[0] == 0 or n_trees == 1
        graphs = weights[:1] if self.shared else weights
        cumulative = np.cumsum(graphs, axis=2)
        # A single vertex has no edge, and nothing is ever drawn from it.
        cumulative /= np.maximum(cumulative[:, :, -1:], np.finfo(float).tiny)
        rows = np.arange(len(graphs) * self.n_vertices).reshape(len(graphs), self.n_vertices)
        self.table = (cumulative + rows[:, :, None]).ravel()

    def draw(self, trees: IntArray, positions: IntArray, rng: np.random.Generator) -> IntArray:
        """Move from the positions of some trees to random neighbours."""
        rows = positions if self.shared else trees * self.n_vertices + positions
        found = np.searchsorted(self.table, rows + rng.random(len(rows)), side="right")
        # Rounding of row + uniform may reach the next row.
        return np.minimum(found - rows * self.n_vertices, self.n_vertices - 1)


def _add_paths(parents: IntArray, in_tree: BoolArray, trees: IntArray, vertices: IntArray) -> None:
    """Follow the last exits from the given vertices until they meet the trees."""
    while len(trees):
        in_tree[trees, vertices] = True
        vertices = parents[trees, vertices]
        outside = ~in_tree[trees, vertices]
        trees, vertices = trees[outside], vertices[outside]
