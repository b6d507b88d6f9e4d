"""Coordinates in which samples have unit covariance, and Stein's identity for their moments."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from skcircuits.estimators.targets._column_units import ColumnUnits

__all__ = ["Whitening"]


@dataclass(frozen=True)
class Whitening:
    """Coordinates ``z = L^-1 (x - mean) / standard_deviation``, L L' the correlation of samples."""

    units: ColumnUnits
    root: np.ndarray  # (d, d), lower triangular

    @classmethod
    def of(cls, X):
        """Take the correlation from rows, shrunk towards none where they are few."""
        n, d = X.shape
        units = ColumnUnits.of(X)
        standardized = units.transform(X)
        correlation = standardized.T @ standardized / n
        correlation *= n / (n + d)
        # Constant columns have no correlation either.
        correlation[np.diag_indices(d)] = 1.0
        return cls(units, np.linalg.cholesky(correlation))

    @property
    def axes(self):
        """Steps of x along each of these coordinates, (d, d) in columns."""
        return np.reshape(self.units.standard_deviation, (-1, 1)) * self.root

    def transform(self, X):
        """Give points in these coordinates."""
        return solve_triangular(self.root, self.units.transform(X).T, lower=True).T

    def transform_scores(self, scores):
        """Give gradients in these coordinates."""
        return (self.units.standard_deviation * scores) @ self.root

    def moment_residuals(self, X, scores):
        """Apply Stein's identity to the first two moments of each column, (n, 2 d).

        With Σ the covariance of the samples, ``Σ s`` and ``1 + x_i (Σ s)_i / Σ_ii`` have mean zero
        under the target; where it is Gaussian with this covariance they are the distances of x
        from the mean and of its square from the second moment.
        """
        along = self.transform_scores(scores)
        return np.hstack([along, 1.0 + self.units.transform(X) * (along @ self.root.T)])
