"""The columns that models and densities see: without those that say nothing, with indicators."""

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.estimators.automatic._inner_density import warn_of_empty_columns
from skcircuits.tabular import TableSchema
from skcircuits.tabular._columns import empty_columns
from skcircuits.tabular._frames import append_columns, with_constant_columns


class EmptyColumnsMixin:
    """Make constants of the columns without any observed value in fit, also of later tables.

    Models would learn from what a density guesses there. It precedes `InnerDensityMixin`, so that
    density and model see the same columns.
    """

    def _check_table(self, X, *, reset):
        X = super()._check_table(X, reset=reset)
        if reset:
            # A given circuit knows the distribution of all columns
            self._empty = {} if isinstance(self.density, Circuit) else empty_columns(X)
        return X if self._reads_empty_columns() else with_constant_columns(X, list(self._empty))

    def _warn_of_empty_columns(self):
        """Warn of columns without any observed value; a fit may read its table several times."""
        if self._empty:
            are_read = self._reads_empty_columns()
            guess, nothing = "their density is a guess", "predictions do not depend on them"
            warn_of_empty_columns(list(self._empty.values()), guess if are_read else nothing)

    def _reads_empty_columns(self):
        """Tell whether the model may depend on columns that are empty in fit."""
        return False


class IndicatorMixin:
    """Append an indicator for each column with missing values in fit: 1 if the value is missing.

    Uses the parameter ``add_indicator``. It precedes `InnerDensityMixin`, so that density and model
    see the same columns; attributes of the estimator refer to the columns that the user passed.
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
