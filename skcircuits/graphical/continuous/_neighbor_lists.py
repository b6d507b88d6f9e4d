"""Neighbours of each node of a graph that is given by a sparse matrix."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from skcircuits.protocols import IntArray


def neighbor_lists(adjacency: sparse.csr_array) -> list[IntArray]:
    """List the nodes that each node is joined to."""
    adjacency.sum_duplicates()
    columns = adjacency.indices.astype(np.int64)
    rows = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
    joins_others = columns != rows
    ends = np.cumsum(np.bincount(rows[joins_others], minlength=adjacency.shape[0]))
    return np.split(columns[joins_others], ends[:-1])
