"""Rooting a tree at its centre, so that it is as shallow as it can be."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import IntArray

__all__ = ["root_at_center"]


def root_at_center(parents: IntArray) -> IntArray:
    """Move the root of a tree to its centre.

    Parameters
    ----------
    parents : ndarray of shape (n_vertices,)
        Parent of each vertex, -1 at the root.

    Returns
    -------
    ndarray of shape (n_vertices,)
        Parents of the same tree, whose depth is now as small as possible.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees.tree._centers import root_at_center
    >>> root_at_center(np.array([-1, 0, 1, 2, 3]))
    array([ 1,  2, -1,  2,  3])
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
