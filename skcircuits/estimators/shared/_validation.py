"""Densities that choose among models by validation rows."""

from numbers import Real
from typing import ClassVar

from skcircuits.estimators._base import Interval, fit_context

__all__ = ["ValidationMixin"]


class ValidationMixin:
    """Hold out a ``validation_fraction`` of the rows, or take validation rows in ``fit``."""

    _validation_constraints: ClassVar[dict] = {
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
    }

    @fit_context
    def fit(self, X, y=None, sample_weight=None, *, X_val=None):
        """Fit the density.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Training rows; cells may be missing.
        y : Ignored
            Present by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows; None gives all the same.
        X_val : dataframe or array-like of shape (n_validation, n_features), default=None
            Validation rows; None holds out a `validation_fraction` of X.

        Returns
        -------
        object
            The fitted estimator.
        """
        return self._fit(X, sample_weight, X_val)

    def _add_validation(self, rows, validation, generator):
        if validation is not None:
            return super()._add_validation(rows, validation, generator)
        return rows.hold_out(self.validation_fraction, generator)
