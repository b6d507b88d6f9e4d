"""Which missing value to measure next: by how much each would reduce the uncertainty."""

import numpy as np

from skcircuits.estimators._base import check_is_fitted
from skcircuits.exceptions import must
from skcircuits.numerics._arrays import float_array


class MeasuringMixin:
    """Values of missing cells of tables, from those of encoded rows.

    A subclass defines ``_values_of_cells(encoded)``: the values (n, d) of the cells of incomplete
    rows.
    """

    def value_of_measuring(self, X, costs=None):
        """Compute by how much measuring each missing value would reduce the uncertainty.

        The value with the largest result is the best one to measure next (active feature
        acquisition).

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; values may be missing.
        costs : array-like of shape (n_features,), default=None
            Cost of measuring each column. The result is divided by it.

        Returns
        -------
        ndarray of shape (n_samples, n_features)
            Expected reduction of the variance of the prediction (regressors, in squared standard
            deviations of the target, summed over the targets), or of the entropy of the class in
            nats (classifiers); 0 for observed values. It is exact for predictions in closed form
            under Gaussian mixtures, and estimated from 1024 draws otherwise.
        """
        check_is_fitted(self)
        encoded = self._read_table(X)
        values, missing = np.zeros(encoded.shape), np.isnan(encoded)
        incomplete = np.flatnonzero(missing.any(axis=1))
        if len(incomplete):
            found = self._values_of_cells(encoded[incomplete])
            # Cells that the density does not know are missing for it alone
            values[incomplete] = np.where(missing[incomplete], found, 0.0)
        values = values[:, : self.n_features_in_]
        return values if costs is None else values / self._check_costs(costs)

    def _check_costs(self, costs):
        costs = float_array(costs, "costs")
        if costs.shape != (self.n_features_in_,) or not (costs > 0).all():
            raise ValueError(
                must("costs", f"be {self.n_features_in_} positive numbers", costs=costs.tolist())
            )
        return costs
