"""Spanning trees drawn parent by parent, at a price that does not depend on the weights.

A random walk among vertices that are tied much more strongly to each other than to the rest
takes very long to leave them. The probability that a vertex has a certain parent, given the
parents of the vertices before it, is a ratio of two determinants: of the Laplacian in whose row
of the vertex only the arrow to the parent is left, and of the Laplacian as it is (matrix-tree
theorem for arborescences, Tutte 1948). Both follow from one inverse by rank-one updates.
"""

from __future__ import annotations

import numpy as np

from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["sample_arborescences"]


def sample_arborescences(
    weights: FloatArray, roots: IntArray, graphs: IntArray, uniforms: FloatArray
) -> IntArray:
    """Draw spanning trees with probability proportional to the product of their weights.

    Parameters
    ----------
    weights : ndarray of shape (n_graphs, n_vertices, n_vertices)
        Symmetric edge weights with a zero diagonal.
    roots : ndarray of shape (n_graphs,)
        Root of the trees of each graph, best a vertex with strong edges.
    graphs : ndarray of shape (n_trees,)
        The graph each tree is drawn from.
    uniforms : ndarray of shape (n_vertices, n_trees)
        Uniform numbers in [0, 1).

    Returns
    -------
    ndarray of shape (n_trees, n_vertices)
        Parent of each vertex, -1 at the root.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees.spanning._arborescences import sample_arborescences
    >>> path = np.array([[[0.0, 1, 0], [1, 0, 1], [0, 1, 0]]])
    >>> sample_arborescences(path, np.array([1]), np.array([0]), np.zeros((3, 1)))
    array([[ 1, -1,  1]])
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
