"""Rows restricted to some of their columns: many become equal and are computed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skcircuits.numerics._patterns import unique_rows
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["Restriction"]


@dataclass(frozen=True)
class Restriction:
    """Which rows are equal on a scope: the number of each row's restriction, a row of each."""

    inverse: IntArray
    first: IntArray

    @property
    def size(self) -> int:
        """Number of distinct restrictions."""
        return len(self.first)

    @classmethod
    def of(cls, labels: IntArray) -> Restriction:
        """Compare rows by labels (n,); restrictions are numbered in the order of the labels."""
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        return cls(inverse.ravel(), first)

    @classmethod
    def of_rows(cls, X: FloatArray) -> Restriction:
        """Compare rows (n, n_columns) cell by cell, where NaN equals NaN."""
        first, inverse = unique_rows(X)
        return cls(inverse, first)

    @classmethod
    def combined(cls, parts: Sequence[Restriction]) -> Restriction:
        """Find the rows that are equal on several scopes, at least one."""
        result = parts[0]
        for part in parts[1:]:
            result = cls.of(result.inverse * part.size + part.inverse)
        return result
