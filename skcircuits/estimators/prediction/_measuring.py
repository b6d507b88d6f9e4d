"""Which missing value to measure next: by how much each would reduce the uncertainty."""

from collections import Counter

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
        costs : array-like of shape (n_features,), dict or Series, default=None
            Cost of measuring each column, by position, or by name (``{"age": 1, "blood": 5}``; by
            index for arrays). The result is divided by it.

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
        """Give the costs of the columns that the user passed, shape (n,)."""
        names = self._schema.names[: self.n_features_in_]
        if hasattr(costs, "keys"):  # a mapping or a Series, whose names may repeat
            given = Counter(costs.keys())
            kinds = {
                "unknown": given.keys() - set(names),
                "missing": set(names) - given.keys(),
                "repeated": [name for name, times in given.items() if times > 1],
            }
            wrong = {kind: sorted(own, key=str) for kind, own in kinds.items() if own}
            if wrong:
                raise ValueError(must("Names in costs", f"be the columns {names}", **wrong))
            costs = [costs[name] for name in names]
        costs = float_array(costs, "costs")
        if costs.shape != (len(names),) or not (np.isfinite(costs) & (costs > 0)).all():
            condition = f"be {len(names)} positive numbers"
            raise ValueError(must("costs", condition, costs=costs.tolist()))
        return costs
