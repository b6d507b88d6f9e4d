"""Rows as the learner of Gaussian mixtures wants them: standardised, merged and sorted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcircuits.learning.parameters._leaf_statistics import ColumnMoments
from skcircuits.numerics._patterns import (
    PatternGroup,
    distinct_patterns,
    group_patterns,
    unique_rows,
)
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["MixtureTable"]

_BLOCK_CELLS = 1 << 18  # cells per block of rows, for each component


@dataclass(frozen=True, eq=False)
class MixtureTable:
    """Different rows with their weights, numbers in standard units.

    Parameters
    ----------
    numbers : ndarray of shape (n, c)
        Numeric columns less `location`, divided by `scale`; NaN where missing.
    codes : ndarray of shape (n, q)
        Categorical columns, -1 where missing.
    weights : ndarray of shape (n,)
        Positive weights of the rows.
    location, scale : ndarray of shape (c,)
        Mean and standard deviation of each numeric column.
    cardinalities : ndarray of shape (n_columns,)
        Number of categories per column of the original table, 0 for numbers.
    blocks : list of tuple (slice, list of PatternGroup)
        Consecutive rows and their missing patterns.
    """

    numbers: FloatArray
    codes: IntArray
    weights: FloatArray
    location: FloatArray
    scale: FloatArray
    cardinalities: IntArray
    blocks: list[tuple[slice, list[PatternGroup]]]

    @classmethod
    def prepare(
        cls, X: FloatArray, cardinalities: IntArray, sample_weight: FloatArray | None = None
    ) -> MixtureTable:
        """Prepare a table of numbers and codes.

        Rows without weight or without any observed cell are left out. A column without
        observed cells has location 0 and scale 1.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_columns)
            Numbers and codes, NaN where missing.
        cardinalities : ndarray of shape (n_columns,)
            Number of categories per column, 0 for numbers.
        sample_weight : ndarray of shape (n_rows,), optional
            Non-negative weights, one each by default.

        Returns
        -------
        MixtureTable
            Different rows, in an order that depends on their contents only.
        """
        weights = np.ones(len(X)) if sample_weight is None else sample_weight
        kept = (weights > 0.0) & ~np.isnan(X).all(axis=1)
        X, weights = _merge_rows(X[kept], weights[kept])
        is_number = cardinalities == 0
        moments = ColumnMoments.of(X[:, is_number], weights)
        scale = np.sqrt(moments.variance)
        numbers = (X[:, is_number] - moments.mean) / scale
        codes = np.nan_to_num(X[:, ~is_number], nan=-1.0).astype(np.int64)
        n_rows = max(1, _BLOCK_CELLS // max(1, numbers.shape[1]))
        blocks = [
            (
                slice(start, start + n_rows),
                group_patterns(np.isnan(numbers[start : start + n_rows])),
            )
            for start in range(0, max(1, len(numbers)), n_rows)  # one block without any row, too
        ]
        return cls(numbers, codes, weights, moments.mean, scale, cardinalities, blocks)

    @property
    def category_counts(self) -> IntArray:
        """Number of categories of each categorical column, shape (q,)."""
        return self.cardinalities[self.cardinalities > 0]

    @property
    def log_scale(self) -> float:
        """What the change of units takes from the log-likelihood of all rows."""
        observed = self.weights @ ~np.isnan(self.numbers)
        return float(observed @ np.log(self.scale))


def _merge_rows(X: FloatArray, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Merge equal rows; sort by missing pattern, then by content."""
    first, inverse = unique_rows(X)
    X = X[first]
    weights = np.asarray(np.bincount(inverse, weights, minlength=len(first)), dtype=np.float64)
    _, pattern = distinct_patterns(np.isnan(X))
    order = np.lexsort((*X.T[::-1], pattern))
    return X[order], weights[order]
