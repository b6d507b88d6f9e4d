"""Circuits with parameters at the ends of what floats hold, beyond the reach of enumeration.

What must hold of any distribution is checked instead: the chain rule, masses that add up, cells
that stay, answers that do not depend on the batch.
"""

import tempfile
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.circuits import (
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    PiecewisePolynomial,
    Poisson,
    Product,
    Sum,
)


class ExtremeCircuit:
    """Grows a random circuit; variables keep one kind and one scale everywhere."""

    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.variables = np.sort(rng.choice(30, rng.integers(1, 6), replace=False)).tolist()
        self.kinds = {v: rng.choice(["numbers", "states", "counts", "pieces"]) for v in range(30)}
        self.scales = {v: 10.0 ** rng.uniform(-60, 60) for v in range(30)}
        self.n_states = {v: int(rng.choice([1, 2, 3, 300])) for v in range(30)}
        self.rates = {v: 10.0 ** rng.uniform(-8, 6) for v in range(30)}
        self.spread = rng.choice([1.0, 30.0, 280.0])  # decades of weights

    def circuit(self):
        return Circuit(self._sum(self.variables, depth=0))

    def _sum(self, scope, depth):
        n_terms = int(self.rng.integers(1, 4))
        terms = [self._term(scope, depth) for _ in range(n_terms)]
        return Sum(terms, weights=self._simplex(n_terms))

    def _term(self, scope, depth):
        numbers = [v for v in scope if self.kinds[v] == "numbers"]
        if len(scope) > 1 and len(numbers) == len(scope) and self.rng.random() < 0.5:
            return self._joint(scope)
        if len(scope) == 1:
            return self._leaf(scope[0])
        order = self.rng.permutation(scope).tolist()
        cut = int(self.rng.integers(1, len(order)))
        parts = [sorted(order[:cut]), sorted(order[cut:])]
        return Product([self._sum(part, depth + 1) for part in parts])

    def _joint(self, scope):
        scales = np.array([self.scales[v] for v in scope])
        factor = self.rng.normal(size=(len(scope), 2))
        noise = 10.0 ** self.rng.uniform(-6, 0)
        covariance = factor @ factor.T + noise * np.eye(len(scope))
        mean = scales * self.rng.normal(size=len(scope))
        return MultivariateGaussian(scope, mean, covariance * np.outer(scales, scales))

    def _leaf(self, v):
        rng, scale = self.rng, self.scales[v]
        if self.kinds[v] == "numbers":
            return Gaussian(v, scale * rng.normal(), scale * 10.0 ** rng.uniform(-5, 1))
        if self.kinds[v] == "counts":
            return Poisson(v, self.rates[v] * rng.uniform(0.5, 2.0))
        if self.kinds[v] == "pieces":
            knots = scale * np.sort(rng.normal(size=4))
            atoms = {"atoms": [knots[1]], "atom_masses": [0.3]} if rng.random() < 0.5 else {}
            return PiecewisePolynomial(v, knots, self._simplex(3) * (0.7 if atoms else 1), **atoms)
        if rng.random() < 0.2:
            return Indicator(v, int(rng.integers(self.n_states[v])), self.n_states[v])
        return Categorical(v, self._simplex(self.n_states[v]))

    def _simplex(self, size):
        weights = 10.0 ** -self.rng.uniform(0, self.spread, size)
        return weights / weights.sum()


def case(seed):
    """A circuit, rows drawn from it, and the same rows with missing values."""
    circuit = ExtremeCircuit(seed).circuit()
    rng = np.random.default_rng(seed)
    rows = circuit.sample(6, random_state=seed)
    return circuit, rows, np.where(rng.random(rows.shape) < 0.5, np.nan, rows)


def check_scores(seed):
    circuit, rows, incomplete = case(seed)
    both = np.concatenate([rows, incomplete])
    found = circuit.log_prob(both)
    assert np.isfinite(found).all()
    assert_allclose([circuit.log_prob(row[None])[0] for row in both], found, rtol=1e-9, atol=1e-9)
    assert_allclose(circuit.log_partition, 0.0, atol=1e-9)
    # Discrete cells that are hidden cannot make a row less probable
    discrete = [v for v in circuit.variables if v in circuit.cardinalities]
    fewer = rows.copy()
    fewer[:, discrete] = np.nan
    assert (circuit.log_prob(fewer) >= found[:6] - 1e-9 * np.abs(found[:6]) - 1e-9).all()


def check_conditions(seed):
    circuit, rows, incomplete = case(seed)
    for row, evidence in zip(rows, incomplete):
        missing = np.isnan(evidence[list(circuit.variables)])
        if not missing.any():
            continue
        expected = circuit.log_prob(row[None]) - circuit.log_prob(evidence[None])
        given = circuit.condition(evidence)
        assert_allclose(given.log_prob(row[None]), expected, rtol=1e-7, atol=1e-7)
        kept = [v for v in circuit.variables if not np.isnan(evidence[v])]
        if kept:
            hidden = [v for v in circuit.variables if v not in kept]
            rest = circuit.marginalize(hidden)
            assert_allclose(
                rest.log_prob(row[None]), circuit.log_prob(evidence[None]), rtol=1e-9, atol=1e-12
            )


def check_marginals(seed):
    circuit, _, incomplete = case(seed)
    total = circuit.log_prob(incomplete)
    for variable, table in circuit.marginals(incomplete).items():
        assert_allclose(table.sum(axis=1), 1.0, rtol=1e-9)
        for state in {0, table.shape[1] - 1}:
            rows = incomplete.copy()
            rows[:, variable] = np.where(np.isnan(rows[:, variable]), state, rows[:, variable])
            joint = np.exp(circuit.log_prob(rows) - total)
            hidden = np.isnan(incomplete[:, variable])
            assert_allclose(table[hidden, state], joint[hidden], rtol=1e-8, atol=1e-12)


def check_boxes(seed):
    circuit, rows, _ = case(seed)
    everything = np.full(rows.shape, np.inf)
    for variable in circuit.variables:
        cut = rows[:, variable]
        below, above, point = -everything, -everything.copy(), everything.copy()
        ends = everything.copy()
        ends[:, variable] = np.nextafter(cut, -np.inf)
        above[:, variable] = cut
        masses = np.exp([circuit.log_prob_box(below, ends), circuit.log_prob_box(above, point)])
        assert_allclose(masses.sum(axis=0), 1.0, rtol=1e-6, atol=1e-9)
    assert_allclose(circuit.log_prob_box(-everything, everything), 0.0, atol=1e-9)


def check_moments(seed):
    circuit, _, incomplete = case(seed)
    own = list(circuit.variables)
    mean, variance = circuit.expectation(incomplete)[:, own], circuit.variance(incomplete)[:, own]
    assert np.isfinite(mean).all()
    assert (variance >= 0).all() and np.isfinite(variance).all()
    seen = ~np.isnan(incomplete[:, own])
    assert_array_equal(mean[seen], incomplete[:, own][seen])
    assert_array_equal(variance[seen], 0.0)


def check_completions(seed):
    circuit, _, incomplete = case(seed)
    best = circuit.mpe(incomplete, method="max_product")
    drawn = circuit.sample(3, incomplete, random_state=seed)
    for filled in (best, *drawn.reshape(3, *incomplete.shape)):
        seen = ~np.isnan(incomplete)
        assert_array_equal(filled[seen], incomplete[seen])
        assert np.isfinite(circuit.log_prob(filled)).all()


def check_files(seed):
    circuit, _, incomplete = case(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "circuit.npz"
        circuit.save(path)
        again = Circuit.load(path)
    assert_array_equal(again.log_prob(incomplete), circuit.log_prob(incomplete))
    assert_array_equal(again.sample(3, random_state=1), circuit.sample(3, random_state=1))


CHECKS = [
    check_scores,
    check_conditions,
    check_marginals,
    check_boxes,
    check_moments,
    check_completions,
    check_files,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_few(check, tally):
    for seed in tally.seeds(10, check.__name__):
        tally.check(f"{check.__name__}({seed})", check, seed)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_many(check, tally):
    for seed in tally.seeds(300, f"many {check.__name__}"):
        tally.check(f"{check.__name__}({seed})", check, seed)
