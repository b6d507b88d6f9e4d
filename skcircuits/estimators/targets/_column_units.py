"""Zero and unit of the columns of a table: what standardised coordinates are made of."""

from dataclasses import dataclass

import numpy as np

__all__ = ["ColumnUnits"]

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
