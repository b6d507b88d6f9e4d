"""Rooted trees as arrays of parents."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray, IntArray


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
