"""The quadratic form that weights minimise: a whole matrix; `_low_rank` has the other kind."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein.simplex import simplex_weights

__all__ = ["DenseForm"]


@dataclass(frozen=True)
class DenseForm:
    """A positive semi-definite matrix K as form ``wᵀ K w``."""

    K: FloatArray  # (n, n)

    def diagonal(self) -> FloatArray:
        """Diagonal, (n,)."""
        return self.K.diagonal()

    def value(self, weights: FloatArray) -> float:
        """Give ``wᵀ K w``; rounding may leave a tiny negative number of zero."""
        return max(0.0, float(weights @ self.K @ weights))

    def matrix(self, rows: IntArray) -> FloatArray:
        """Entries of some rows and columns."""
        return self.K[np.ix_(rows, rows)]

    def with_features(self, features: FloatArray) -> DenseForm:
        """Add the squares of linear functions of the weights, (n,) or (n, k)."""
        columns = features.reshape(len(features), -1)
        return DenseForm(self.K + columns @ columns.T)

    def minimise(self, counts: FloatArray, regularization: float) -> FloatArray:
        """Weights on the simplex that minimise the form plus ``regularization / counts``."""
        return simplex_weights(self.K, counts=counts, regularization=regularization)
