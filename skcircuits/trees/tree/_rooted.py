"""Rooted trees as arrays of parents."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray, IntArray

__all__ = ["children_of", "edges_of", "maximum_spanning_tree", "top_down_order", "vertex_depths"]


def vertex_depths(parents: IntArray) -> IntArray:
    """Count the edges between every vertex and the root of its tree.

    Parameters
    ----------
    parents : ndarray of shape (n_trees, n_vertices)
        Parent of each vertex, -1 at the root.

    Returns
    -------
    ndarray of shape (n_trees, n_vertices)
        Depths, 0 at the root.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import vertex_depths
    >>> vertex_depths(np.array([[1, 2, -1]]))
    array([[2, 1, 0]])
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

    Parameters
    ----------
    parents : ndarray of shape (n_trees, n_vertices)
        Parent of each vertex, -1 at the root.

    Returns
    -------
    ndarray of shape (n_trees, n_vertices)
        Vertices by increasing depth; the root comes first.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import top_down_order
    >>> top_down_order(np.array([[1, 2, -1]]))
    array([[2, 1, 0]])
    """
    return np.argsort(vertex_depths(parents), axis=1, kind="stable")


def children_of(parents: IntArray) -> list[list[int]]:
    """Children of each vertex of one tree.

    Parameters
    ----------
    parents : ndarray of shape (n_vertices,)
        Parent of each vertex, -1 at the root.

    Returns
    -------
    list of list of int
        Per vertex its children, increasing.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import children_of
    >>> children_of(np.array([-1, 0, 0]))
    [[1, 2], [], []]
    """
    children: list[list[int]] = [[] for _ in parents]
    for child in np.flatnonzero(parents >= 0).tolist():
        children[parents[child]].append(child)
    return children


def edges_of(parents: IntArray) -> IntArray:
    """Edges (parent, child) of rooted trees, parents first.

    Parameters
    ----------
    parents : ndarray of shape (n_trees, n_vertices)
        Parent of each vertex, -1 at the root.

    Returns
    -------
    ndarray of shape (n_trees, n_vertices - 1, 2)
        Edges in top-down order.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import edges_of
    >>> edges_of(np.array([[1, 2, -1]]))[0].tolist()
    [[2, 1], [1, 0]]
    """
    children = top_down_order(parents)[:, 1:]
    return np.stack([np.take_along_axis(parents, children, axis=1), children], axis=2)


def maximum_spanning_tree(weights: FloatArray) -> IntArray:
    """Find the spanning tree of largest total weight (Prim's algorithm).

    Parameters
    ----------
    weights : ndarray of shape (n_vertices, n_vertices)
        Symmetric weights of the complete graph.

    Returns
    -------
    ndarray of shape (n_vertices,)
        Parent of each vertex, -1 at the root, which is the vertex of largest total weight.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import maximum_spanning_tree
    >>> maximum_spanning_tree(np.array([[0.0, 3, 1], [3, 0, 2], [1, 2, 0]]))
    array([ 1, -1,  1])
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
