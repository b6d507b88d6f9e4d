"""The model of a density under conditions, which all queries use: conditions read and weighed."""

from abc import abstractmethod

import numpy as np

from skcircuits.circuits import PiecewisePolynomial
from skcircuits.circuits.queries._restricted import feature_means
from skcircuits.estimators._base import check_is_fitted
from skcircuits.estimators.shared.queries._features import (
    Features,
    at_integers,
    column_index,
    in_frame,
    only_numbers,
    require_possible,
    weigh,
)
from skcircuits.estimators.shared.queries._quantiles import ColumnUnderConditions
from skcircuits.exceptions import must
from skcircuits.tabular import Boxes, compile_queries
from skcircuits.tabular._frames import with_index_of
from skcircuits.tabular.queries._conditions import read_conditions


class ModelUnderConditions:
    """Conditions with their probabilities, and the queries of a model under them.

    A density defines the hooks ``_log_evidence(boxes, observed)``, of shape (n_boxes,), and
    ``_restricted(boxes, observed)``, a `RestrictedCircuit`; ``_schema`` describes its columns.
    """

    def _draw_given(self, weighed, n_samples, generator):
        """Draws (n_samples, n_conditions, d) of encoded rows."""
        weights, counts = weighed.weights, np.zeros(len(weighed.log_mass), dtype=np.int64)
        boxes = np.argsort(weighed.condition_of, kind="stable")
        ends = np.cumsum(np.bincount(weighed.condition_of, minlength=len(weighed)))
        for own in np.split(boxes, ends)[:-1]:
            # Boxes of a condition are disjoint: a draw lies in each by its probability
            counts[own] = generator.multinomial(n_samples, weights[own] / weights[own].sum())
        drawn = self._model_of(weighed).sample(counts, generator)
        of_condition = np.argsort(np.repeat(weighed.condition_of, counts), kind="stable")
        result = np.empty((n_samples, len(weighed), drawn.shape[1]))
        for condition, own in enumerate(of_condition.reshape(len(weighed), n_samples)):
            # Boxes one after the other: shuffled, draws are independent
            result[:, condition] = drawn[own[generator.permutation(n_samples)]]
        return self._own_columns(result)

    def _require_fitted(self):
        # check_is_fitted looks up the tags of an estimator first, at a tenth of a question's time
        if not self.__sklearn_is_fitted__():
            check_is_fitted(self)

    def _compile(self, queries):
        return compile_queries(queries, self._schema)

    def _conditions(self, given):
        return read_conditions(given, self._schema)

    def _ask(self, given):
        """Read and weigh conditions; impossible ones raise."""
        self._require_fitted()
        weighed = self._weigh(self._conditions(given))
        require_possible(weighed, given)
        return weighed

    def _weigh(self, conditions, exact=True):
        schema = self._model_schema
        is_exact = ~schema.is_categorical & ~schema.is_integral if exact else None
        return weigh(conditions, self._log_evidence, schema, is_exact)

    @property
    def _model_schema(self):
        """Schema of the columns of the model."""
        return self._schema

    def _is_certain(self, conditions):
        return bool(
            len(conditions.boxes) == 1
            and conditions.is_single
            and np.isnan(conditions.observed).all()
            and not has_bounds(conditions.boxes)
        )

    def _is_gaussian(self):
        """Whether the model is a single Gaussian."""
        return False

    def _model_of(self, weighed):
        boxes = weighed.conditions.boxes
        return self._restricted(boxes, weighed.conditions.observed)

    def _at_integers(self, weighed, features):
        """Weighed boxes in which features that are bounded integers have one number each."""
        columns = np.unique([feature.variable for feature in features])
        model, schema = self._model_of(weighed), self._model_schema
        return at_integers(weighed, columns, model, self._log_evidence, schema)

    def _means(self, weighed, features):
        """Means of features in each box, (n_boxes, F)."""
        only = only_numbers(weighed, features, self._model_schema)
        means = feature_means(self._model_of(weighed), features)
        return np.where(np.isnan(only), means, only)

    def _features(self, columns):
        return Features.of_columns(columns, self._schema)

    def _to_model(self, features):
        """Features of own columns as those of the columns of the model."""
        return features

    def _own_columns(self, rows):
        """Own columns of rows of the model."""
        return rows

    def _ordered_column(self, column):
        j = column_index(column, self._schema)
        known = self._schema.columns[j]
        if known.categories is not None and not (known.has_numbers or known.is_ordered):
            condition = "be numerical or have ordered categories"
            way_out = "The expectation of a categorical column gives its probabilities."
            raise ValueError(must("The column of a quantile", condition, way_out, column=column))
        return j

    def _column_under(self, weighed, column):
        """A named column under conditions, whose values must have an order."""
        j = self._ordered_column(column)
        at = int(self._own_columns(np.arange(self._width))[j])
        known, model = self._schema.columns[j], self._model_of(weighed)
        evidence, points = self._log_evidence, self._point_masses
        return ColumnUnderConditions(known, at, weighed, model, evidence, points)

    def _most_probable(self, weighed):
        """Most probable row under each condition, in the form for users."""
        return self._best_rows(weighed, *self._model_of(weighed).mpe())

    def _best_rows(self, weighed, rows, heights):
        """Of the best rows of each box, with the logs of their densities, those of conditions."""
        rows = self._rounded(rows, weighed)
        best = np.lexsort((-heights, weighed.condition_of))
        _, first = np.unique(weighed.condition_of[best], return_index=True)
        return self._decode_rows(rows[best[first]], weighed.conditions)

    def _rounded(self, rows, weighed):
        """Round integer columns of own rows, within the boxes they were found in."""
        boxes, schema = weighed.conditions.boxes, self._model_schema
        # Boxes reach half a unit around their integers
        low, high = np.ceil(boxes.lower), np.floor(boxes.upper)
        inside = np.fmin(np.fmax(np.round(rows), low), high)
        is_free = np.isnan(weighed.conditions.observed)
        rounded = schema.rounded(np.where(schema.is_integral, inside, rows))
        return self._own_columns(np.where(is_free, rounded, rows))

    def _decode_rows(self, rows, conditions):
        if self._schema.prototype is None:
            rows = self._schema.decode_array(rows)
            return rows[0] if conditions.is_single else rows
        return with_index_of(self._schema.decode(rows), conditions.like)

    def _labelled(self, values, names, conditions):
        """Values (n_conditions, F), with names if the density has names."""
        if self._schema.prototype is None and conditions.like is None:
            return values[0] if conditions.is_single else values
        return in_frame(dict(zip(names, values.T)), self._schema, conditions.like)

    @property
    def _width(self):
        """Number of columns of the model."""
        return len(self._model_schema.columns)

    @abstractmethod
    def _log_evidence(self, boxes: Boxes, observed):
        """Log probability of each box and of the cells observed with it, (n_boxes,)."""

    @abstractmethod
    def _restricted(self, boxes: Boxes, observed):
        """The model restricted to each box, a `RestrictedCircuit`."""

    def _point_masses(self, column):
        """Points, increasing, where units of a column of the model hold mass."""
        units = (u for u in self.circuit_.plan.units if isinstance(u, PiecewisePolynomial))
        points = [unit.atoms for unit in units if unit.variable == column]
        return np.unique(np.concatenate(points)) if points else np.empty(0)

    @abstractmethod
    def _make_conditional(self, weighed, columns):
        """Density of some columns under one weighed condition."""


def has_bounds(boxes):
    """Whether boxes contain more information than the observed cells."""
    is_open = np.isnan(boxes.lower).all() and np.isnan(boxes.upper).all()
    return not is_open or bool(boxes.states) or bool(boxes.totals)
