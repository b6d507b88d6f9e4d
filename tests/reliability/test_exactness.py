"""Random circuits and graphs of all families against enumeration and quadrature."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.circuits import Circuit, Product, Sum, multiply
from skcircuits.graphical import Factor, FactorGraph
from tests.reference.enumeration import Completions, unit_values
from tests.reference.random_circuits import (
    RandomCircuit,
    deterministic_circuit,
    random_cardinalities,
    random_rows,
)


def circuit_of(seed, **options):
    """A random circuit; every third one is unnormalised, by weights from 1e-30 to 1e30."""
    cardinalities = random_cardinalities(seed, **options)
    spread = 30 if seed % 3 == 0 else 0
    return RandomCircuit(seed, cardinalities, structured=seed % 2 == 0, spread=spread).circuit()


def check_queries(seed):
    circuit = circuit_of(seed)
    rng = np.random.default_rng(seed)
    # Draws come from the distribution, whatever it sums to.
    X = random_rows(rng, circuit.normalize(), 3)
    completions = [Completions(circuit, x) for x in X]
    totals = np.array([c.total for c in completions])
    assert_allclose(np.exp(circuit.log_prob(X)), totals, rtol=1e-8)
    expected = [c.expectation(lambda rows: rows) for c in completions]
    assert_allclose(circuit.expectation(X), expected, rtol=1e-7, atol=1e-9)
    squares = [c.expectation(lambda rows: rows**2) for c in completions]
    variance = np.array(squares) - np.square(expected)
    assert_allclose(circuit.variance(X), variance, rtol=1e-5, atol=1e-7)
    for variable, table in circuit.marginals(X).items():
        for state in range(table.shape[1]):
            is_state = [c.expectation(lambda rows: rows[:, variable] == state) for c in completions]  # noqa: B023
            assert_allclose(table[:, state], is_state, rtol=1e-8, atol=1e-12)


def check_derived_circuits(seed):
    circuit = circuit_of(seed)
    rng = np.random.default_rng(seed)
    complete = circuit.normalize().sample(4, random_state=rng)
    row = complete[0].copy()
    hidden = rng.choice(
        circuit.variables, size=rng.integers(1, len(circuit.variables) + 1), replace=False
    )
    row[hidden] = np.nan
    given = circuit.condition(row)
    rest = [v for v in circuit.variables if v not in hidden]
    rows = np.where(np.isnan(row), complete, row)
    expected = circuit.log_prob(rows) - circuit.log_prob(row[None])
    assert_allclose(given.log_prob(rows), expected, rtol=1e-8, atol=1e-8)
    if rest:
        summed = complete.copy()
        summed[:, hidden] = np.nan
        assert_allclose(
            circuit.marginalize(hidden.tolist()).log_prob(complete), circuit.log_prob(summed),
            rtol=1e-8, atol=1e-8,
        )  # fmt: skip
    assert_allclose(
        circuit.log_prob(complete), np.log(unit_values(circuit, complete)), rtol=1e-9, atol=1e-9
    )


def check_products(seed):
    cardinalities = random_cardinalities(seed)[-4:]
    first = RandomCircuit(seed, cardinalities)
    p = first.circuit()
    q = RandomCircuit(seed + 1, cardinalities, splits=first.splits).circuit()
    X = np.vstack([p.sample(3, random_state=seed), q.sample(3, random_state=seed)])
    expected = unit_values(p, X) * unit_values(q, X)
    assert_allclose(np.exp(multiply(p, q).log_prob(X)), expected, rtol=1e-8)


def check_most_probable_states(seed):
    circuit = deterministic_circuit(seed % 10**6, zeros=0.1)
    X = random_rows(np.random.default_rng(seed), circuit, 2)
    best = [Completions(circuit, x).best() for x in X]
    assert_allclose(np.exp(circuit.log_prob(circuit.mpe(X))), best, rtol=1e-9)


def check_graphs(seed):
    rng = np.random.default_rng(seed)
    states = rng.integers(1, 4, rng.integers(1, 7))
    scopes = [
        tuple(rng.permutation(len(states))[: rng.integers(1, min(3, len(states)) + 1)].tolist())
        for _ in range(rng.integers(1, 8))
    ]
    scale = 10.0 ** rng.uniform(-1, 2.5)
    log_tables = [scale * rng.normal(size=states[list(scope)]) for scope in scopes]
    for table in log_tables:
        table[rng.random(table.shape) < 0.1] = -np.inf
    graph = FactorGraph(list(map(Factor, scopes, log_tables)), states)
    rows = np.indices(states).reshape(len(states), -1).T.astype(float)
    log_values = sum(
        table[tuple(rows[:, scope].astype(int).T)] for scope, table in zip(scopes, log_tables)
    )
    peak = log_values.max()
    if np.isneginf(peak):
        assert np.isneginf(graph.log_partition())
        return
    weights = np.exp(log_values - peak)
    assert_allclose(graph.log_partition(), peak + np.log(weights.sum()), rtol=1e-10, atol=1e-10)
    circuit = graph.compile()
    for variable, marginal in enumerate(graph.marginals()):
        counts = np.bincount(rows[:, variable].astype(int), weights, states[variable])
        assert_allclose(marginal, counts / weights.sum(), rtol=1e-9, atol=1e-12)
        compiled = circuit.marginals(np.full((1, len(states)), np.nan))[variable][0]
        assert_allclose(compiled, marginal, rtol=1e-9, atol=1e-12)
    best = graph.mpe(np.full((1, len(states)), np.nan))
    assert_allclose(graph.log_prob_unnormalized(best), peak, rtol=1e-10, atol=1e-10)


CHECKS = [
    check_queries,
    check_derived_circuits,
    check_products,
    check_most_probable_states,
    check_graphs,
]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_few(check, tally):
    for seed in tally.seeds(5, check.__name__):
        tally.check(f"{check.__name__}({seed})", check, seed)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_many(check, tally):
    for seed in tally.seeds(400, f"many {check.__name__}"):
        tally.check(f"{check.__name__}({seed})", check, seed)


def test_deep_products_of_shared_units_stay_finite():
    # 2000 levels that double a weight each: the value is beyond floats, its logarithm is not.
    unit = circuit_of(1).root
    for _ in range(2000):
        unit = Sum([unit], weights=[2.0])
    circuit = Circuit(Product([unit]))
    assert_allclose(circuit.log_partition, 2000 * np.log(2), rtol=1e-12)
