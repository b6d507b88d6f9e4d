"""Densities whose circuits are learned over states and then speak original units."""

from abc import abstractmethod
from numbers import Real
from typing import ClassVar, NamedTuple

import numpy as np

from skcircuits.circuits import Categorical, Circuit, Indicator, PiecewisePolynomial
from skcircuits.circuits.inputs.discrete import DiscreteUnit
from skcircuits.estimators._base import Interval, check_weights, fit_context
from skcircuits.estimators.shared._density import CircuitDensity, check_observed
from skcircuits.learning import expectation_maximization
from skcircuits.learning.parameters._rebuild import rebuild
from skcircuits.tabular import Discretizer
from skcircuits.trees import StateLayout

__all__ = ["DiscreteDensity", "Rows", "StatesMixin", "ValidatedDensity", "ValidationMixin"]

# Integers up to this are the states of a categorical unit themselves
_MAX_STATES = 1024


class Rows(NamedTuple):
    """Rows as a learner sees them.

    Attributes
    ----------
    X : ndarray of shape (n, d)
        Encoded rows.
    states : ndarray of shape (n, d)
        Their states, NaN where missing.
    weight : ndarray of shape (n,)
        Positive weights.
    """

    X: np.ndarray
    states: np.ndarray
    weight: np.ndarray

    @property
    def codes(self):
        """States as integers, -1 where missing, shape (n, d)."""
        return np.nan_to_num(self.states, nan=-1.0).astype(np.int64)

    @property
    def has_missing(self):
        """Whether any cell is missing."""
        return bool(np.isnan(self.states).any())

    def take(self, positions):
        """Select rows."""
        return Rows(self.X[positions], self.states[positions], self.weight[positions])


class StatesMixin:
    """See columns as states: categories, few integers, or bins. Sets ``bin_edges_``."""

    def _learn_states(self, X, sample_weight):
        self._discretizer = Discretizer.fit(
            X, self._schema.cardinalities, sample_weight=sample_weight
        )
        self.bin_edges_ = self._discretizer.bin_edges
        self._layout = StateLayout(self._discretizer.cardinalities)

    def _make_rows(self, X, sample_weight):
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        kept = weight > 0
        X = X if kept.all() else X[kept]  # a copy of a large table would stay during the fit
        return Rows(X, self._discretizer.encode(X), weight[kept])

    def _known(self, X):
        """Integers that are no state count as missing, as unseen categories do."""
        return np.where(np.isnan(self._discretizer.encode(X)), np.nan, X)

    def _original_unit(self, column, probabilities):
        """Input unit of a column in original units, from the probabilities of its states."""
        edges, values = self._discretizer.bin_edges[column], self._discretizer.values[column]
        if edges is not None:
            return PiecewisePolynomial(column, edges, probabilities)
        is_code = (values == np.floor(values)) & (values >= 0) & (values < _MAX_STATES)
        if not is_code.all():
            # Any other numbers are points with a mass of their own; no piece has any.
            ends = [values[0], values[0] + max(1.0, abs(values[0]))]
            return PiecewisePolynomial(column, ends, [0.0], values, probabilities)
        masses = np.zeros(int(values[-1]) + 1)
        masses[values.astype(np.int64)] = probabilities
        if masses.max() == 1.0:
            return Indicator(column, int(masses.argmax()), len(masses))
        return Categorical(column, masses)


class DiscreteDensity(StatesMixin, CircuitDensity):
    """Base class of densities that learn circuits over states.

    A subclass defines ``_fit_rows(rows, generator)``, which sets ``circuit_``.
    """

    def _fit_table(self, X, sample_weight, generator):
        self._learn_states(X, sample_weight)
        self._fit_rows(self._make_rows(X, sample_weight), generator)

    @abstractmethod
    def _fit_rows(self, rows, generator):
        """Learn from rows of positive weight."""

    def _log_density(self, X):
        return super()._log_density(self._known(X))

    def _draw(self, n_samples, X, generator):
        if X is None:
            return super()._draw(n_samples, None, generator)
        return np.where(np.isnan(X), super()._draw(n_samples, self._known(X), generator), X)

    def _in_original_units(self, circuit):
        """Replace units over states by units over the numbers behind them."""
        made = {}

        def original(leaf):
            if not isinstance(leaf, DiscreteUnit):
                return leaf
            key = leaf.variable, leaf.probabilities.tobytes()
            if key not in made:
                made[key] = self._original_unit(leaf.variable, leaf.probabilities)
            return made[key]

        return Circuit(rebuild(circuit.root, original))

    def _refine_states(self, circuit, rows, context):
        """Learn the parameters over states again where cells are missing."""
        if not rows.has_missing:
            return circuit
        steps = expectation_maximization(
            circuit, rows.states, rows.weight, pseudo_count=self.pseudo_count
        )
        return self._refine(steps, rows.X, context, self._in_original_units)


class ValidationMixin:
    """Hold out rows, whose score chooses among the states of a learner.

    Uses the parameter ``validation_fraction``. A density that sees states defines
    ``_fit_rows(rows, generator, validation)``.
    """

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
        X = self._learn_table(X)
        sample_weight = check_weights(sample_weight, X)
        check_observed(X, sample_weight)
        validation = None if X_val is None else self._encode_table(X_val)
        self._fit_table(X, sample_weight, self._make_generator(), validation)
        return self

    def _fit_table(self, X, sample_weight, generator, validation=None):
        self._learn_states(X, sample_weight)
        rows = self._make_rows(X, sample_weight)
        if validation is None:
            training, held_out = self._split(len(rows.X), generator)
            self._fit_rows(rows.take(training), generator, rows.take(held_out))
        else:
            self._fit_rows(rows, generator, self._make_rows(validation, None))

    def _split(self, n_rows, generator):
        """Positions of the training and validation rows; all of them twice if there are few."""
        n_held_out = int((self.validation_fraction or 0) * n_rows)
        if not n_held_out:
            return slice(None), slice(None)
        order = generator.permutation(n_rows)
        return np.sort(order[n_held_out:]), np.sort(order[:n_held_out])


class ValidatedDensity(ValidationMixin, DiscreteDensity):
    """Base class of densities that learn circuits and choose by validation rows."""
