"""Random circuits: mixed variables, shared units, zero weights, several structures."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

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
from tests.reference.enumeration import axis

MAX_VARIABLES = 8
MAX_STATES = 5
# Rows with more completions than this get another cell observed.
MAX_COMPLETIONS = 20_000


class RandomCircuit:
    """Grows a random smooth and decomposable circuit.

    Parameters
    ----------
    seed : int
    cardinalities : list of int, states of each variable; 0 for a continuous one
    structured : bool, split every scope in one way only
    zeros : float, fraction of zero probabilities and weights
    joint : bool, allow multivariate Gaussian units
    splits : dict, default=None, ways to split scopes; shared by compatible circuits
    spread : float, weights of sums are multiplied by 10 to the power of up to ± this
    """

    def __init__(
        self, seed, cardinalities, *, structured=True, zeros=0.15, joint=True, splits=None, spread=0
    ):
        self.rng = np.random.default_rng(seed)
        self.cardinalities = [int(n_states) for n_states in cardinalities]
        self.structured = structured
        self.zeros = zeros
        self.joint = joint
        self.splits = {} if splits is None else splits
        self.spread = spread
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
        if len(scope) == 1 or any(self.cardinalities[v] for v in scope) or len(scope) > 2:
            return len(scope) == 1
        joint = self.joint and self.rng.random() < 0.6
        # A structured circuit treats a pair of variables in one way everywhere.
        return self.splits.setdefault(scope, None if joint else self._split(scope)) is None

    def _sum(self, scope):
        n_terms = self.rng.integers(2, 4)
        terms = [self._product(scope) for _ in range(n_terms)]
        return Sum(terms, weights=self._weights(n_terms))

    def _product(self, scope):
        fixed = self.structured or len(scope) == 2
        split = self.splits.setdefault(scope, self._split(scope)) if fixed else self._split(scope)
        return Product([self._region(side) for side in split])

    def _split(self, scope):
        order = self.rng.permutation(scope)
        cut = self.rng.integers(1, len(scope))
        return tuple(tuple(sorted(map(int, side))) for side in (order[:cut], order[cut:]))

    def _leaf_mixture(self, scope):
        if self.rng.random() < 0.5:
            return self._leaf(scope)
        return Sum([self._leaf(scope), self._leaf(scope)], weights=self._weights(2))

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

    def _weights(self, size):
        weights = self._simplex(size)
        if self.spread:
            weights *= 10.0 ** self.rng.uniform(-self.spread, self.spread, size)
        return weights

    def _simplex(self, size):
        weights = self.rng.dirichlet(np.ones(size))
        weights[self.rng.random(size) < self.zeros] = 0.0
        return weights / weights.sum() if weights.sum() > 0 else np.full(size, 1.0 / size)


def random_cardinalities(seed, *, discrete=False):
    """Up to eight variables of up to five states; 0 stands for a continuous one."""
    rng = np.random.default_rng(seed)
    fewest = 2 if discrete else rng.choice([0, 2])
    n_states = rng.choice([fewest, *range(2, MAX_STATES + 1)], size=rng.integers(1, MAX_VARIABLES))
    # One of each kind at least, so that tiny circuits are mixed too.
    return [*n_states.tolist(), 2]


@lru_cache(maxsize=1000)
def random_circuit(seed, *, discrete=False, joint=True) -> Circuit:
    """One of the circuits every query is checked on."""
    cardinalities = random_cardinalities(seed, discrete=discrete)
    return RandomCircuit(seed, cardinalities, structured=seed % 2 == 0, joint=joint).circuit()


@lru_cache(maxsize=1000)
def compatible_circuits(seed, *, discrete=False, zeros=0.15) -> tuple[Circuit, Circuit]:
    """Two circuits that split their scopes alike."""
    cardinalities = random_cardinalities(seed, discrete=discrete)[-5:]
    first = RandomCircuit(seed, cardinalities, zeros=zeros)
    p = first.circuit()
    # The structure is shared, the units and parameters are not.
    return p, RandomCircuit(
        seed + 10_000, cardinalities, zeros=zeros, splits=first.splits
    ).circuit()


@lru_cache(maxsize=1000)
def deterministic_circuit(seed, cardinalities=None, *, zeros=0.0) -> Circuit:
    """A decision diagram: every sum branches on the states of one variable, in order."""
    rng = np.random.default_rng(seed)
    cardinalities = cardinalities or tuple(random_cardinalities(seed, discrete=True))
    grower = RandomCircuit(seed, cardinalities, zeros=zeros)
    last = len(cardinalities) - 1
    below = [Categorical(last, grower._simplex(cardinalities[last])) for _ in range(2)]
    for variable, _ in pairwise(reversed(range(last + 1))):
        variable -= 1
        n_states = cardinalities[variable]
        below = [
            Sum(
                [
                    Product([Indicator(variable, state, n_states), below[rng.integers(2)]])
                    for state in range(n_states)
                ],
                weights=grower._simplex(n_states),
            )
            for _ in range(2)
        ]
    return Circuit(below[0])


def random_rows(rng, circuit: Circuit, n_rows: int, missing: float = 0.4) -> np.ndarray:
    """Incomplete rows; observed values come from the circuit so that evidence is possible.

    Missing values are few enough for every row's completions to be listed.
    """
    X = circuit.sample(n_rows, random_state=rng)
    sizes = {variable: len(axis(circuit, variable)[0]) for variable in circuit.variables}
    for row in X:
        n_completions = 1
        for variable in rng.permutation(circuit.variables):
            fits = n_completions * sizes[variable] <= MAX_COMPLETIONS
            if fits and rng.random() < missing:
                row[variable] = np.nan
                n_completions *= sizes[variable]
    return X


def binary_chain(n_variables, seed=0):
    """Make a chain of binary variables, with two latent states between neighbours."""
    rng = np.random.default_rng(seed)
    nodes = [Bernoulli(0, p) for p in rng.random(2)]
    for variable in range(1, n_variables):
        leaves = [Bernoulli(variable, p) for p in rng.random(2)]
        products = [Product(pair) for pair in zip(nodes, leaves, strict=True)]
        nodes = [Sum(products, weights=rng.dirichlet(np.ones(2))) for _ in range(2)]
    return Circuit(nodes[0])
