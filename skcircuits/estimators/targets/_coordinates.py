"""Coordinates in which columns are compared: standardised, or with unit covariance."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

# A constant column tells nothing about its spread: it is given this fraction of its value.
SPREAD_OF_CONSTANTS = 1e-6


@dataclass(frozen=True)
class ColumnUnits:
    """Standardised coordinates ``z = (x - mean) / standard_deviation``; by default x itself."""

    mean: np.ndarray | float = 0.0  # (n_features,) or float
    standard_deviation: np.ndarray | float = 1.0  # (n_features,) or float

    @classmethod
    def of(cls, X):
        """Take the units from rows."""
        mean, standard_deviation = X.mean(axis=0), X.std(axis=0)
        # What rounding of the mean leaves of a constant column is no spread.
        constant = standard_deviation <= 1e-12 * np.abs(mean)
        spread = SPREAD_OF_CONSTANTS * np.where(mean == 0, 1.0, np.abs(mean))
        return cls(mean, np.where(constant, spread, standard_deviation))

    def transform(self, X):
        """Give points in these coordinates."""
        return (X - self.mean) / self.standard_deviation

    def inverse_transform(self, Z):
        """Give points as they came."""
        return self.mean + self.standard_deviation * Z

    def transform_scores(self, scores):
        """Give gradients in these coordinates."""
        return self.standard_deviation * scores

    @property
    def axes(self):
        """Steps of x along each of these coordinates, (d, d) in columns."""
        return np.diag(self.standard_deviation)


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

    def inverse_transform(self, Z):
        """Give points as they came."""
        return self.units.inverse_transform(Z @ self.root.T)

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
