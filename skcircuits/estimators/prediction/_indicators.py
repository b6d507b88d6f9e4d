"""Indicators of missing values as columns of the table."""

import numpy as np

from skcircuits.tabular import TableSchema
from skcircuits.tabular._frames import append_columns


class IndicatorMixin:
    """Append a column per column with missing values in fit: 1 where the value is missing.

    Uses the parameter ``add_indicator``. Stands in front of `InnerDensityMixin`: density and model
    see the same columns, and attributes of the estimator speak of the columns of the user.
    """

    def _check_table(self, X, *, reset):
        X = super()._check_table(X, reset=reset)
        if not self.add_indicator:
            return X
        if reset:
            self._own_schema = TableSchema.learn(X, super()._choose_categorical())
        missing = np.isnan(self._own_schema.encode(X, self.handle_unknown))
        if reset:
            self._indicated = np.flatnonzero(missing.any(axis=0))
        names = [f"missingindicator_{self._own_schema.names[j]}" for j in self._indicated]
        return append_columns(X, names, missing[:, self._indicated].astype(np.float64))

    def _choose_categorical(self):
        if not self.add_indicator:
            return super()._choose_categorical()
        # Indicators are categories, whatever their dtype
        return np.append(self._own_schema.is_categorical, np.ones(len(self._indicated), bool))

    def _set_schema(self, schema):
        super()._set_schema(schema)
        self.is_categorical_ = self.is_categorical_[: self.n_features_in_]
        self.categories_ = self.categories_[: self.n_features_in_]
