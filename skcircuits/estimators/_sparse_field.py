"""A sparse Gaussian field learned from a table: the target where none is given."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning

from skcircuits.exceptions import must
from skcircuits.graphical import GaussianMRF

__all__ = ["SparseField", "column_units", "learn_sparse_field", "learn_standardized_field"]

# Penalties to choose from, on the scale of correlations.
PENALTIES = np.geomspace(0.01, 0.8, 8)
# Fewer rows leave none to hold out.
MIN_ROWS_FOR_LINKS = 4
# A constant column tells nothing about its spread: it is given this share of its value.
SPREAD_OF_CONSTANTS = 1e-6


@dataclass(frozen=True)
class SparseField:
    """A Gaussian field over standardised columns, and the way back.

    Attributes
    ----------
    mean, deviation : ndarray of shape (n_features,)
        Of the columns.
    standardized : GaussianMRF
        Field of ``(x - mean) / deviation``.
    """

    mean: np.ndarray
    deviation: np.ndarray
    standardized: GaussianMRF

    def in_original_units(self):
        """Give the field of the columns as they came.

        Returns
        -------
        GaussianMRF
            Field of x.
        """
        precision = self.standardized.precision / np.outer(self.deviation, self.deviation)
        return GaussianMRF(precision, precision @ self.mean)


def learn_sparse_field(X):
    """Learn a sparse Gaussian field in the units of the table.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Numeric rows without holes, at least two.

    Returns
    -------
    GaussianMRF
        The field.
    """
    return learn_standardized_field(X).in_original_units()


def learn_standardized_field(X):
    """Learn mean and sparse precision by the graphical lasso, penalty by cross-validation.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Numeric rows without holes, at least two.

    Returns
    -------
    SparseField
        The field. A constant column is independent of the others, and so are all columns of
        fewer than four rows.

    Raises
    ------
    ValueError
        If there is a single row.
    """
    if len(X) < 2:
        raise ValueError(must("X", "have at least 2 rows to learn a field", n_samples=len(X)))
    mean, deviation, constant = column_units(X)
    precision = np.eye(len(mean))
    varying = np.flatnonzero(~constant)
    if varying.size > 1 and len(X) >= MIN_ROWS_FOR_LINKS:
        standardized = (X[:, varying] - mean[varying]) / deviation[varying]
        precision[np.ix_(varying, varying)] = _lasso_precision(standardized)
    return SparseField(mean, deviation, GaussianMRF(precision, np.zeros(len(mean))))


def column_units(X):
    """Give zero and unit of each column in standardised coordinates.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Numeric rows without holes.

    Returns
    -------
    mean, deviation : ndarray of shape (n_features,)
        Zero and unit; the deviation is never 0.
    constant : ndarray of bool of shape (n_features,)
        Columns whose deviation is a small share of their value.
    """
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    # What rounding of the mean leaves of a constant column is no spread.
    constant = deviation <= 1e-12 * np.abs(mean)
    deviation[constant] = SPREAD_OF_CONSTANTS * np.where(mean == 0, 1.0, np.abs(mean))[constant]
    return mean, deviation, constant


def _lasso_precision(standardized):
    """Give the sparse precision of standardised columns."""
    n_folds = min(5, len(standardized) // 2)
    lasso = GraphicalLassoCV(alphas=PENALTIES, cv=n_folds, assume_centered=True)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        # Small penalties may not converge on near-collinear columns, or diverge where a fold
        # has an outlier; they then lose the cross-validation, which is all that is asked.
        warnings.simplefilter("ignore", ConvergenceWarning)
        precision = lasso.fit(standardized).precision_
    return (precision + precision.T) / 2
