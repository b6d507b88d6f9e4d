"""Rough positions of the nodes of a graph whose edges have lengths."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from skcircuits.protocols import FloatArray, IntArray

__all__ = ["embed_by_graph_distances"]


def embed_by_graph_distances(
    pairs: IntArray, lengths: FloatArray, anchors: FloatArray, n_free: int
) -> FloatArray:
    """Embed free nodes in the plane so that straight lines resemble shortest paths.

    Every connected component is embedded by classical scaling, then turned, mirrored and
    scaled onto its anchors; fewer than three leave its orientation to chance.

    Parameters
    ----------
    pairs : ndarray of int of shape (n_edges, 2)
        Edges; free nodes come first, anchors after them.
    lengths : ndarray of shape (n_edges,)
        Their lengths.
    anchors : ndarray of shape (n_anchors, 2)
        Known positions.
    n_free : int
        Number of free nodes.

    Returns
    -------
    ndarray of shape (n_free, 2)
        Positions; components without an anchor lie around the centre of all anchors.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.graphical.continuous._graph_distances import embed_by_graph_distances
    >>> anchors = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> pairs = np.array([[0, 1], [0, 2]])
    >>> embed_by_graph_distances(pairs, np.array([0.2, 0.8]), anchors, 1).round(6).tolist()
    [[0.2, 0.0]]
    """
    n_nodes = n_free + len(anchors)
    graph = sparse.csr_array((lengths, tuple(pairs.T)), (n_nodes, n_nodes))
    paths = csgraph.shortest_path(graph, directed=False)
    _, component = csgraph.connected_components(graph, directed=False)
    positions = np.empty((n_nodes, 2))
    for label in range(component.max() + 1):
        members = np.flatnonzero(component == label)
        held = members >= n_free
        points = _classical_scaling(paths[np.ix_(members, members)])
        if np.any(held):
            points = _align(points, points[held], anchors[members[held] - n_free])
        else:
            points += anchors.mean(axis=0)
        positions[members] = points
    return positions[:n_free]


def _classical_scaling(distances: FloatArray) -> FloatArray:
    """Positions in the plane whose inner products fit the centred squared distances best."""
    points = np.zeros((len(distances), 2))
    squares = distances**2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    values, vectors = np.linalg.eigh(-0.5 * centred)
    n_axes = min(2, len(distances))
    points[:, :n_axes] = vectors[:, -n_axes:] * np.sqrt(np.maximum(values[-n_axes:], 0.0))
    return points


def _align(points: FloatArray, source: FloatArray, target: FloatArray) -> FloatArray:
    """Turn, mirror, scale and shift points so that source lies best on target (Procrustes)."""
    centre, goal = source.mean(axis=0), target.mean(axis=0)
    left, singular_values, right = np.linalg.svd((source - centre).T @ (target - goal))
    spread = np.sum((source - centre) ** 2)
    scale = singular_values.sum() / spread if spread > 0 else 1.0
    return scale * (points - centre) @ (left @ right) + goal
