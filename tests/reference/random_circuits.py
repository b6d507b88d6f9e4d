"""Random circuits: mixed variables, shared units, zero weights, several structures."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    Product,
    Sum,
)


class RandomCircuit:
    """Grows a random smooth and decomposable circuit.

    Parameters
    ----------
    seed : int
    cardinalities : list of int, states of each variable; 0 for a continuous one
    structured : bool, split every scope in one way only
    zeros : float, share of zero probabilities and weights
    joint : bool, allow multivariate Gaussian units
    """

    def __init__(self, seed, cardinalities, *, structured=True, zeros=0.15, joint=True):
        self.rng = np.random.default_rng(seed)
        self.cardinalities = list(cardinalities)
        self.structured = structured
        self.zeros = zeros
        self.joint = joint
        self._splits = {}
        self._pool = {}

    def circuit(self) -> Circuit:
        return Circuit(self._region(tuple(range(len(self.cardinalities)))))

    def _region(self, scope):
        """A sum over the scope; earlier units of the scope are shared half of the time."""
        pool = self._pool.setdefault(scope, [])
        if len(pool) >= 2 and self.rng.random() < 0.5:
            return pool[self.rng.integers(len(pool))]
        unit = self._leaf_mixture(scope) if self._is_leaf(scope) else self._sum(scope)
        pool.append(unit)
        return unit

    def _is_leaf(self, scope):
        continuous = not any(self.cardinalities[v] for v in scope)
        joint = self.joint and continuous and len(scope) <= 2 and self.rng.random() < 0.6
        return len(scope) == 1 or joint

    def _sum(self, scope):
        n_terms = self.rng.integers(2, 4)
        terms = [self._product(scope) for _ in range(n_terms)]
        return Sum(terms, weights=self._simplex(n_terms))

    def _product(self, scope):
        if scope in self._splits and self.structured:
            left, right = self._splits[scope]
        else:
            order = self.rng.permutation(scope)
            cut = self.rng.integers(1, len(scope))
            left, right = tuple(sorted(order[:cut])), tuple(sorted(order[cut:]))
            self._splits[scope] = left, right
        return Product([self._region(tuple(map(int, s))) for s in (left, right)])

    def _leaf_mixture(self, scope):
        if self.rng.random() < 0.5:
            return self._leaf(scope)
        weights = self._simplex(2)
        return Sum([self._leaf(scope), self._leaf(scope)], weights=weights)

    def _leaf(self, scope):
        if len(scope) > 1:
            factor = self.rng.normal(size=(len(scope), len(scope)))
            covariance = factor @ factor.T + 0.5 * np.eye(len(scope))
            return MultivariateGaussian(scope, self.rng.normal(size=len(scope)), covariance)
        variable, n_states = scope[0], self.cardinalities[scope[0]]
        if n_states == 0:
            return Gaussian(variable, self.rng.normal(), self.rng.uniform(0.5, 1.5))
        if self.rng.random() < self.zeros:
            return Indicator(variable, int(self.rng.integers(n_states)), n_states)
        if n_states == 2 and self.rng.random() < 0.5:
            return Bernoulli(variable, float(self.rng.random()))
        return Categorical(variable, self._simplex(n_states))

    def _simplex(self, size):
        weights = self.rng.dirichlet(np.ones(size))
        weights[self.rng.random(size) < self.zeros] = 0.0
        return weights / weights.sum() if weights.sum() > 0 else np.full(size, 1.0 / size)


def random_rows(rng, circuit: Circuit, n_rows: int, missing: float = 0.4) -> np.ndarray:
    """Rows with holes; observed values come from the circuit so that evidence is possible."""
    X = circuit.sample(n_rows, random_state=rng)
    X[rng.random(X.shape) < missing] = np.nan
    return X
