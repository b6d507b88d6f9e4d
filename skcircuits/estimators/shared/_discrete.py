"""Densities whose circuits are learned over states of columns and then speak original units."""

import dataclasses

import numpy as np

from skcircuits.circuits import Categorical, Circuit, Indicator, PiecewisePolynomial
from skcircuits.circuits.inputs.discrete import DiscreteUnit
from skcircuits.estimators.shared._density import CircuitDensity
from skcircuits.learning import expectation_maximization
from skcircuits.learning.parameters.expectation_maximization import rebuild
from skcircuits.learning.univariate._columns import describe_column
from skcircuits.tabular import Discretizer
from skcircuits.trees import StateLayout

# Integers up to this are the states of a categorical unit themselves
_MAX_STATES = 1024


class ColumnStates:
    """The states of the columns of a table, and the way back to original units.

    Parameters: `discretizer`, which cuts numerical columns into states.
    """

    def __init__(self, discretizer):
        self.discretizer = discretizer
        self.layout = StateLayout(discretizer.cardinalities)

    @classmethod
    def learn(cls, X, cardinalities, sample_weight, max_categories=32):
        """Learn states from encoded rows (n, d); `cardinalities` is 0 for numerical columns."""
        shared = [
            describe_column(j, X[:, j], sample_weight, int(cardinality), grid=False).atoms
            for j, cardinality in enumerate(cardinalities)
        ]
        discretizer = Discretizer.fit(
            X,
            cardinalities,
            max_categories=max_categories,
            sample_weight=sample_weight,
            shared=shared,
        )
        return cls(discretizer)

    def encode_rows(self, rows):
        """Add the states of the cells to training rows."""
        return dataclasses.replace(rows, states=self.discretizer.encode(rows.X))

    def known(self, X):
        """Integers that are no state count as missing, as unseen categories do."""
        return self.discretizer.known(X)

    def original_unit(self, column, probabilities):
        """Input unit of a column in original units, from the probabilities of its states."""
        edges, values = self.discretizer.bin_edges[column], self.discretizer.values[column]
        if edges is not None:
            points = self.discretizer.points[column]
            is_bin = np.isnan(points)
            weights = np.where(is_bin, probabilities, 0.0)
            masses = probabilities[~is_bin]
            return PiecewisePolynomial(column, edges, weights, points[~is_bin], masses)
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

    def in_original_units(self, circuit):
        """Replace units over states by units over the numbers behind them."""
        made = {}

        def original(leaf):
            if not isinstance(leaf, DiscreteUnit):
                return leaf
            key = leaf.variable, leaf.probabilities.tobytes()
            if key not in made:
                made[key] = self.original_unit(leaf.variable, leaf.probabilities)
            return made[key]

        return Circuit(rebuild(circuit.root, original))


class DiscreteDensity(CircuitDensity):
    """Base class of densities that learn circuits over states; sets ``bin_edges_``."""

    _max_categories = 32  # most distinct integers that are states themselves

    def _prepare_rows(self, rows):
        self._states = ColumnStates.learn(
            rows.X, self._schema.cardinalities, rows.weight, self._max_categories
        )
        self.bin_edges_ = self._states.discretizer.bin_edges

    def _view_rows(self, rows):
        return self._states.encode_rows(rows.in_canonical_order())

    def _known(self, X):
        return self._states.known(X)

    def _log_density(self, X):
        return super()._log_density(self._known(X))

    def _draw(self, n_samples, X, generator):
        if X is None:
            return super()._draw(n_samples, None, generator)
        return np.where(np.isnan(X), super()._draw(n_samples, self._known(X), generator), X)

    def _refine_states(self, circuit, rows, context):
        """Learn the parameters over states again where cells are missing."""
        if not rows.has_missing:
            return circuit
        steps = expectation_maximization(
            circuit, rows.states, rows.weight, pseudo_count=self.pseudo_count
        )
        return self._refine(steps, rows.X, context, self._states.in_original_units)
