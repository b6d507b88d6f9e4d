"""A small density that tests of the shared parts can fit in no time."""

from typing import ClassVar

import numpy as np
import pytest

from skcircuits.circuits import Categorical, Circuit, Gaussian, Product
from skcircuits.estimators.shared._density import CircuitDensity


class IndependentDensity(CircuitDensity):
    """All columns independent: normal numbers, labels with one pseudo-count each."""

    _parameter_constraints: ClassVar[dict] = {"random_state": ["random_state"]}

    def __init__(self, *, random_state=None):
        self.random_state = random_state

    def _fit_rows(self, rows, generator):
        units = [
            _fit_column(j, rows.X[:, j], rows.weight, k)
            for j, k in enumerate(self._schema.cardinalities)
        ]
        self.circuit_ = Circuit(Product(units) if len(units) > 1 else units[0])


def _fit_column(j, column, weight, n_states):
    seen = ~np.isnan(column)
    column, weight = column[seen], weight[seen]
    if n_states:
        counts = 1 + np.bincount(column.astype(int), weight, minlength=n_states)
        return Categorical(j, counts / counts.sum())
    if not weight.sum():
        return Gaussian(j, 0.0, 1.0)
    mean = np.average(column, weights=weight)
    variance = np.average((column - mean) ** 2, weights=weight)
    return Gaussian(j, mean, np.sqrt(variance + 1e-6))


@pytest.fixture
def independent_density():
    """Unfitted density of independent columns."""
    return IndependentDensity()
