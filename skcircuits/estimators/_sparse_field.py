"""A sparse Gaussian field learned from a table: the target where none is given."""

import warnings

import numpy as np
from sklearn.covariance import GraphicalLassoCV
from sklearn.exceptions import ConvergenceWarning

from skcircuits.exceptions import must
from skcircuits.graphical import GaussianMRF

__all__ = ["learn_sparse_field"]

# Penalties to choose from, on the scale of correlations.
PENALTIES = np.geomspace(0.01, 0.8, 8)


def learn_sparse_field(X):
    """Learn mean and sparse precision by the graphical lasso, penalty by cross-validation.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Numeric rows without holes, at least two.

    Returns
    -------
    GaussianMRF
        The field, in the units of X.

    Raises
    ------
    ValueError
        If there is a single row or a constant column.
    """
    if len(X) < 2:
        raise ValueError(must("X", "have at least 2 rows to learn a field", n_samples=len(X)))
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    # The deviation of a constant column is rounding noise of its mean at best.
    constant = np.flatnonzero(deviation <= 1e-12 * np.abs(mean))
    if constant.size:
        raise ValueError(
            must("columns of X", "vary", "Drop constant columns.", constant=constant.tolist())
        )
    precision = _lasso_precision((X - mean) / deviation) / np.outer(deviation, deviation)
    return GaussianMRF(precision, precision @ mean)


def _lasso_precision(standardized):
    """Give the sparse precision of standardised columns."""
    n_samples, n_features = standardized.shape
    if n_features == 1:
        return np.ones((1, 1))
    lasso = GraphicalLassoCV(alphas=PENALTIES, cv=min(5, n_samples), assume_centered=True)
    with warnings.catch_warnings():
        # Small penalties may not converge on near-collinear columns; they then lose the
        # cross-validation, which is all that is asked of them.
        warnings.simplefilter("ignore", ConvergenceWarning)
        precision = lasso.fit(standardized).precision_
    return (precision + precision.T) / 2
