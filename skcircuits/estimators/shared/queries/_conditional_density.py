"""The density of some columns given a condition, with all queries of a fitted density."""

from dataclasses import replace

import numpy as np

from skcircuits.estimators.shared.queries._features import (
    MAX_STATES,
    joint_states,
    log_totals,
    n_joint_states,
)
from skcircuits.estimators.shared.queries._mixin import QueriesMixin
from skcircuits.estimators.shared.queries._model_under_conditions import has_bounds
from skcircuits.tabular.queries._conditions import read_conditions


class ConditionalDensity(QueriesMixin):
    """Density of some columns under a condition, as returned by `marginal`.

    Parameters
    ----------
    parent : density
        A fitted density.
    weighed : Weighed
        A single condition.
    columns : ndarray of int
        Columns of the table of the parent that are kept.

    Attributes
    ----------
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns.
    n_features_in_ : int
        Number of columns.
    """

    _is_conditional = True

    def __init__(self, parent, weighed, columns):
        self._parent, self._base, self._columns = parent, weighed.conditions, columns
        self._log_base = float(weighed.log_total[0])
        self._schema = parent._schema.select(columns)
        self.n_features_in_ = len(columns)
        self.feature_names_in_ = np.array(self._schema.names, dtype=object)

    def score_samples(self, X):
        """Compute the log density of each row of these columns.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Rows; missing cells are marginalised.

        Returns
        -------
        ndarray of shape (n_samples,)
            Log density; ``-inf`` if the condition excludes the row.
        """
        conditions = self._to_parent(self._encoded_conditions(X))
        boxes = conditions.boxes
        log_mass = self._log_evidence(boxes, conditions.observed) if len(boxes) else np.empty(0)
        return log_totals(boxes, log_mass) - self._log_base

    def __repr__(self):
        """Name the columns."""
        return f"ConditionalDensity(columns={self._schema.names})"

    def _require_fitted(self):
        """It is made from a fitted density."""

    def _encoded_conditions(self, X):
        rows = X if hasattr(X, "columns") else np.atleast_2d(np.asarray(X))
        # Rows are conditions of equality; scores are an array also of one row
        return replace(read_conditions(rows, self._schema), is_single=False)

    def _conditions(self, given):
        return self._to_parent(read_conditions(given, self._schema))

    def _to_parent(self, conditions):
        """Conditions on the parent's columns, together with the base."""
        width = len(self._parent._schema.columns)
        boxes = conditions.boxes.on_columns(self._columns, width)
        observed = np.full((len(boxes), width), np.nan)
        observed[:, self._columns] = conditions.observed
        moved = replace(conditions, boxes=boxes, observed=observed)
        # A condition on a conditional density is a condition with both
        return moved.intersect(self._base.boxes, self._base.observed)

    def _compile(self, queries):
        boxes = super()._compile(queries)
        return boxes.on_columns(self._columns, len(self._parent._schema.columns))

    def _is_certain(self, conditions):
        # The base is a condition itself
        return False

    @property
    def _model_schema(self):
        return self._parent._model_schema

    def _to_model(self, features):
        return features.on(self._parent._own_columns(np.arange(self._width))[self._columns])

    def _own_columns(self, rows):
        return self._parent._own_columns(rows)[..., self._columns]

    def _most_probable(self, weighed):
        columns = self._own_columns(np.arange(self._width))
        left_out = np.setdiff1d(np.arange(self._width), columns)
        if not len(left_out):
            return super()._most_probable(weighed)
        model = self._model_of(weighed)
        # Other columns have to be summed out first: listed where joint states are few, left to the
        # model where not
        if n_joint_states(columns, model.cardinalities) * len(weighed.log_mass) > MAX_STATES:
            return self._best_rows(weighed, *model.mpe(left_out))
        states, masses = joint_states(weighed, columns, model.cardinalities, self._log_evidence)
        best = states[masses.argmax(axis=1)].astype(float)
        return self._decode_rows(best, weighed.conditions)

    def _read_table(self, X):
        return self._encoded_conditions(X).observed

    def _draw(self, n_samples, X, generator):
        if X is None:
            return self._draw_given(self._ask(None), n_samples, generator)[:, 0]
        drawn = self._draw_given(self._ask(X), n_samples, generator)
        return np.where(np.isnan(X), drawn, X)

    def _is_gaussian(self):
        return self._parent._is_gaussian() and not has_bounds(self._base.boxes)

    def _log_evidence(self, boxes, observed):
        return self._parent._log_evidence(boxes, observed)

    def _restricted(self, boxes, observed):
        return self._parent._restricted(boxes, observed)

    def _point_masses(self, column):
        return self._parent._point_masses(column)

    def _make_conditional(self, weighed, columns):
        return ConditionalDensity(self._parent, weighed, self._columns[columns])
