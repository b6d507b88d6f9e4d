"""Discrete units restricted to sets of states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skcircuits.circuits.inputs.base import StateFlows
from skcircuits.circuits.inputs.discrete import DiscreteLayer
from skcircuits.circuits.inputs.restriction._evidence import (
    Evidence,
    Feature,
    RestrictedLayer,
    restrict,
)
from skcircuits.numerics._random import RandomNumbers, draw_states
from skcircuits.protocols import FloatArray, IntArray


class RestrictedDiscrete(RestrictedLayer):
    """Masses of the states that are allowed in each row."""

    def __init__(self, layer: DiscreteLayer, evidence: Evidence) -> None:
        self.layer, self._n = layer, len(evidence)
        variables = layer.scopes[:, 0]
        self._units = {v: np.flatnonzero(variables == v) for v in np.unique(variables).tolist()}
        n_states = layer.masses.shape[1]
        #: Per variable, 1 where a state is allowed, shape (n, n_states).
        self._allowed = {}
        for variable in self._units:
            own = int(layer.cardinalities[self._units[variable]].max())
            allowed = np.zeros((self._n, n_states))
            allowed[:, :own] = evidence.box.state_mask(variable, own)
            cells = evidence.X[:, variable]
            seen = np.flatnonzero(~np.isnan(cells))
            # An observed state outside the set leaves nothing.
            allowed[seen] *= np.arange(n_states) == cells[seen, None]
            self._allowed[variable] = allowed

    def mass(self) -> FloatArray:
        """Mass of the allowed states, shape (n_units, n)."""
        values = np.empty((len(self.layer), self._n))
        for variable, units in self._units.items():
            # A row that allows every state must give exactly one
            values[units] = np.minimum(self.layer.masses[units] @ self._allowed[variable].T, 1.0)
        return values

    def log_mass(self) -> FloatArray:
        """Log mass of the allowed states, shape (n_units, n)."""
        with np.errstate(divide="ignore"):
            return np.log(self.mass())

    def state_flows(self, flows: FloatArray) -> Iterator[StateFlows]:
        """Divide flows (n_units, n) among the allowed states of each variable."""
        mass = self.mass()
        # Impossible units have no flow to divide.
        ratios = np.divide(flows, mass, out=np.zeros_like(flows), where=mass > 0.0)
        every_row = np.arange(self._n)
        for variable, units in self._units.items():
            own = int(self.layer.cardinalities[units].max())
            divided = self.layer.masses[units, :own].T @ ratios[units]
            divided *= self._allowed[variable][:, :own].T
            yield StateFlows(variable, every_row, divided)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        mean, square = np.zeros((2, len(self.layer), self._n))
        codes = np.arange(self.layer.masses.shape[1])
        mass = self.mass()
        for variable, units in self._units.items():
            weights = self.layer.masses[units]
            mean[units] = (weights * codes) @ self._allowed[variable].T
            square[units] = (weights * codes**2) @ self._allowed[variable].T
        positive = np.where(mass > 0.0, mass, 1.0)
        mean, square = mean / positive, square / positive
        return mean[..., None], np.maximum(square - mean**2, 0.0)[..., None]

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        n_states, n_units = self.layer.masses.shape[1], len(self.layer)
        means = np.zeros((n_units, len(features)))
        covariances = np.zeros((n_units, len(features), len(features)))
        for variable, units in self._units.items():
            asked = [f for f, feature in enumerate(features) if feature.variable == variable]
            if not asked:
                continue
            own = np.array(asked)
            table = np.zeros((n_states, len(own)))
            for place, f in enumerate(asked):
                values = features[f].values
                known = np.arange(float(n_states)) if values is None else values
                table[: len(known), place] = known[:n_states]
            masses = self.layer.masses[units] * self._allowed[variable][row]
            total = masses.sum(axis=1, keepdims=True)
            masses /= np.where(total > 0.0, total, 1.0)
            mean = masses @ table
            means[np.ix_(units, own)] = mean
            centred = table - mean[:, None]
            products = np.einsum("us,usf,usg->ufg", masses, centred, centred)
            covariances[np.ix_(units, own, own)] = products
        return means, covariances

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw allowed states, shape (m, 1)."""
        weights = self._weights(units, rows)
        return draw_states(weights, rng.random(len(units)))[:, None].astype(float)

    def log_max(self) -> FloatArray:
        """Log mass of the most probable allowed state, shape (n_units, n)."""
        values = np.empty((len(self.layer), self._n))
        for variable, units in self._units.items():
            allowed = self._allowed[variable]
            for unit in units.tolist():
                values[unit] = (self.layer.masses[unit] * allowed).max(axis=1)
        with np.errstate(divide="ignore"):
            return np.log(values)

    def mode(self, units: IntArray, rows: IntArray) -> FloatArray:
        """The most probable allowed state, shape (m, 1)."""
        return self._weights(units, rows).argmax(axis=1)[:, None].astype(float)

    def _weights(self, units: IntArray, rows: IntArray) -> FloatArray:
        """Masses of the allowed states of pairs, shape (m, n_states)."""
        weights = self.layer.masses[units]
        variables = self.layer.scopes[units, 0]
        for variable in np.unique(variables).tolist():
            own = np.flatnonzero(variables == variable)
            weights[own] *= self._allowed[variable][rows[own]]
        return weights


@restrict.register
def _restrict_discrete(layer: DiscreteLayer, evidence: Evidence) -> RestrictedDiscrete:
    return RestrictedDiscrete(layer, evidence)
