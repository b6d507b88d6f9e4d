"""Rows of a buffer of units: read without a copy where they follow each other, added to."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from skcircuits.protocols import FloatArray, IntArray

__all__ = ["Rows", "Scatter", "as_run"]

#: Some rows of an array; those of a slice are read without a copy.
Rows = slice | IntArray


def as_run(rows: IntArray) -> Rows:
    """Turn rows that follow each other into a slice, which is read without a copy."""
    first = int(rows[0])
    is_run = np.array_equal(rows, np.arange(first, first + len(rows)))
    return slice(first, first + len(rows)) if is_run else rows


class Scatter:
    """Adds rows of contributions to the rows of a buffer they belong to."""

    def __init__(self, targets: IntArray) -> None:
        distinct, inverse = np.unique(targets, return_inverse=True)
        n_terms = len(targets)
        self._repeats = len(distinct) < n_terms
        # In a tree no row receives twice: nothing has to be added up before
        self._rows = as_run(distinct if self._repeats else targets)
        shape = (len(distinct), n_terms)
        self._matrix = sparse.csr_matrix((np.ones(n_terms), (inverse, np.arange(n_terms))), shape)

    def add(self, buffer: FloatArray, contributions: FloatArray) -> None:
        """Add ``contributions[i]`` to ``buffer[targets[i]]``."""
        buffer[self._rows] += self._matrix @ contributions if self._repeats else contributions
