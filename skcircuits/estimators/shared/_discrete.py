"""Densities whose circuits are learned over states and then speak original units."""

import numpy as np

from skcircuits.estimators.shared._column_states import ColumnStates
from skcircuits.estimators.shared._density import CircuitDensity
from skcircuits.learning import expectation_maximization

__all__ = ["DiscreteDensity"]


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
