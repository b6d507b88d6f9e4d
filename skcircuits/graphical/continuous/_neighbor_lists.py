"""Neighbours of each node of a graph that is given by a sparse matrix."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from skcircuits.protocols import IntArray

__all__ = ["neighbor_lists"]


def neighbor_lists(adjacency: sparse.csr_array) -> list[IntArray]:
    """List the nodes that each node is joined to.

    Parameters
    ----------
    adjacency : sparse matrix of shape (n_nodes, n_nodes)
        Each stored entry is an edge, those on the diagonal are none. Entries that repeat are
        merged in place.

    Returns
    -------
    list of ndarray of int
        Sorted neighbours of each node.

    Examples
    --------
    >>> from scipy import sparse
    >>> from skcircuits.graphical.continuous._neighbor_lists import neighbor_lists
    >>> chain = sparse.csr_array([[2, 1, 0], [1, 2, 1], [0, 1, 2]])
    >>> [nodes.tolist() for nodes in neighbor_lists(chain)]
    [[1], [0, 2], [1]]
    """
    adjacency.sum_duplicates()
    columns = adjacency.indices.astype(np.int64)
    rows = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
    joins_others = columns != rows
    ends = np.cumsum(np.bincount(rows[joins_others], minlength=adjacency.shape[0]))
    return np.split(columns[joins_others], ends[:-1])
