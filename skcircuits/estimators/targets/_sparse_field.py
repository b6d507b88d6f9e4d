"""A sparse Gaussian field learned from a table: the target where none is given."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning

from skcircuits.estimators.targets._column_units import ColumnUnits
from skcircuits.exceptions import must
from skcircuits.graphical import GaussianMRF

__all__ = ["SparseField", "learn_sparse_field", "learn_standardized_field"]

# Penalties to choose from, on the scale of correlations.
PENALTIES = np.geomspace(0.01, 0.8, 8)
# Fewer rows leave none to hold out.
MIN_ROWS_FOR_LINKS = 4


@dataclass(frozen=True)
class SparseField:
    """A Gaussian field over standardised columns, and the way back."""

    units: ColumnUnits
    standardized: GaussianMRF

    def in_original_units(self):
        """Give the field of the columns as they came."""
        scale = self.units.standard_deviation
        precision = self.standardized.precision / np.outer(scale, scale)
        return GaussianMRF(precision, precision @ self.units.mean)


def learn_sparse_field(X):
    """Learn a sparse Gaussian field in the units of the table."""
    return learn_standardized_field(X).in_original_units()


def learn_standardized_field(X):
    """Learn mean and sparse precision by the graphical lasso, penalty by cross-validation."""
    if len(X) < 2:
        raise ValueError(must("X", "have at least 2 rows to learn a field", n_samples=len(X)))
    units = ColumnUnits.of(X)
    standardized = units.transform(X)
    precision = np.eye(X.shape[1])
    # Constant columns have no spread in any unit
    varying = np.flatnonzero(standardized.std(axis=0) > 0.5)
    if varying.size > 1 and len(X) >= MIN_ROWS_FOR_LINKS:
        precision[np.ix_(varying, varying)] = _lasso_precision(standardized[:, varying])
    return SparseField(units, GaussianMRF(precision, np.zeros(X.shape[1])))


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
