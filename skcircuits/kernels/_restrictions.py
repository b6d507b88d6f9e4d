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
    """Which rows are equal on a scope.

    Parameters
    ----------
    inverse : ndarray of shape (n,)
        Number of the distinct restriction of each row.
    first : ndarray of shape (n_distinct,)
        A row of each.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.kernels._restrictions import Restriction
    >>> Restriction.of_rows(np.array([[0.0, 1.0], [np.nan, 1.0], [0.0, 1.0]])).inverse
    array([0, 1, 0])
    """

    inverse: IntArray
    first: IntArray

    @property
    def size(self) -> int:
        """Number of distinct restrictions."""
        return len(self.first)

    @classmethod
    def of(cls, labels: IntArray) -> Restriction:
        """Number rows by labels.

        Parameters
        ----------
        labels : ndarray of shape (n,)
            Rows with one label are equal.

        Returns
        -------
        Restriction
            Numbers in the order of the labels.
        """
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        return cls(inverse.ravel(), first)

    @classmethod
    def of_rows(cls, X: FloatArray) -> Restriction:
        """Compare rows cell by cell, where NaN equals NaN.

        Parameters
        ----------
        X : ndarray of shape (n, n_columns)
            The columns of the scope.

        Returns
        -------
        Restriction
            Numbers in the order of first appearance.
        """
        first, inverse = unique_rows(X)
        return cls(inverse, first)

    @classmethod
    def combined(cls, parts: Sequence[Restriction]) -> Restriction:
        """Find the rows that are equal on several scopes.

        Parameters
        ----------
        parts : sequence of Restriction
            One per scope, at least one.

        Returns
        -------
        Restriction
            The restriction to all of them.
        """
        result = parts[0]
        for part in parts[1:]:
            result = cls.of(result.inverse * part.size + part.inverse)
        return result
