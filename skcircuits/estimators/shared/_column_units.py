"""Zero and unit of the columns of a table: what standardised coordinates are made of."""

from dataclasses import dataclass

import numpy as np

__all__ = ["ColumnUnits"]

# A constant column tells nothing about its spread: it is given this share of its value.
SPREAD_OF_CONSTANTS = 1e-6


@dataclass(frozen=True)
class ColumnUnits:
    """Standardised coordinates ``z = (x - mean) / deviation``; by default x itself.

    Attributes
    ----------
    mean, deviation : ndarray of shape (n_features,) or float
        Zero and unit; the deviation is never 0.
    """

    mean: np.ndarray | float = 0.0
    deviation: np.ndarray | float = 1.0

    @classmethod
    def of(cls, X):
        """Take the units from rows.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Numeric rows without holes.

        Returns
        -------
        ColumnUnits
            Means and standard deviations of the columns.
        """
        mean, deviation = X.mean(axis=0), X.std(axis=0)
        # What rounding of the mean leaves of a constant column is no spread.
        constant = deviation <= 1e-12 * np.abs(mean)
        spread = SPREAD_OF_CONSTANTS * np.where(mean == 0, 1.0, np.abs(mean))
        return cls(mean, np.where(constant, spread, deviation))

    def inward(self, X):
        """Give points in these coordinates.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)
            Rows x.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows z.
        """
        return (X - self.mean) / self.deviation

    def outward(self, Z):
        """Give points as they came.

        Parameters
        ----------
        Z : ndarray of shape (n_samples, n_features)
            Rows z.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Rows x.
        """
        return self.mean + self.deviation * Z
