"""Compiled circuits: the same distribution, with the promised properties."""

import pickle
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import logsumexp

from skcircuits.circuits import (
    Circuit,
    is_decomposable,
    is_deterministic,
    is_smooth,
    is_structured_decomposable,
)
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.graphical import BayesianNetwork, Factor, FactorGraph, IsingModel


def random_ising(seed=0):
    rng = np.random.default_rng(seed)
    return IsingModel.grid(3, 3, couplings=rng.normal(size=12), fields=rng.normal(size=9))


def random_potts(seed=0):
    rng = np.random.default_rng(seed)
    scopes = [(0, 1), (1, 2), (2, 3), (3, 0), (1, 3, 4)]
    states = np.array([2, 3, 2, 4, 3, 2])
    return FactorGraph([(s, rng.uniform(size=states[list(s)])) for s in scopes], states)


@pytest.mark.parametrize("model", [random_ising(), random_potts()], ids=["ising", "potts"])
def test_circuit_has_the_promised_properties(model):
    circuit = model.compile()
    assert is_smooth(circuit)
    assert is_decomposable(circuit)
    assert is_deterministic(circuit)
    assert is_structured_decomposable(circuit)
    assert_allclose(circuit.log_partition, 0.0, atol=1e-12)


@pytest.mark.parametrize("model", [random_ising(), random_potts()], ids=["ising", "potts"])
def test_circuit_is_the_distribution(model):
    rows = np.random.default_rng(1).integers(model.cardinalities, size=(50, len(model.neighbors)))
    rows = rows.astype(float)
    rows[::3, 1:3] = np.nan
    expected = model.log_prob_unnormalized(rows) - model.log_partition()
    assert_allclose(model.compile().log_prob(rows), expected, rtol=1e-10)


def test_evidence_leaves_the_conditional_distribution():
    model = random_potts()
    circuit = model.compile({1: 2, 3: 0})
    assert tuple(circuit.variables) == (0, 2, 4, 5)
    marginals = circuit.marginals(np.full((1, 6), np.nan))
    expected = model.marginals({1: 2, 3: 0})
    for variable, table in marginals.items():
        assert_allclose(table[0], expected[variable], rtol=1e-10)


def tiny_conditionals():
    """Denormal probabilities of root, inner variables and leaves."""
    steps = [[0.5, 0.5], [1.0, 1e-320]], [[1e-310, 1.0], [0.3, 0.7]], [[1e-200, 1.0], [1.0, 5e-324]]
    return BayesianNetwork([[], [0], [1], [1]], [[1.0, 1e-320], *steps])


def repeated_evidence(variable):
    """Factors of 1e-200 and exp(-800) for one state of a variable."""
    links = [((i, i + 1), [[1.0, 2.0], [3.0, 4.0]]) for i in range(3)]
    small = [((variable,), [1.0, 1e-200])] * 3 + [Factor((variable,), np.array([0.0, -800.0]))]
    return FactorGraph([*links, *small], [2] * 4)


def wide_loop(seed):
    """Energies of some thousands around a loop, some of them infinite."""
    rng = np.random.default_rng(seed)
    energies = rng.normal(0.0, 1500.0, size=(5, 3, 3))
    energies[rng.random(energies.shape) < 0.1] = -np.inf
    return FactorGraph([Factor((i, (i + 1) % 5), energies[i]) for i in range(5)], [3] * 5)


@pytest.mark.parametrize(
    "model",
    [tiny_conditionals(), *map(repeated_evidence, (0, 2, 3)), *map(wide_loop, range(3))],
    ids=["denormal", "root", "inner", "leaf", "loop 0", "loop 1", "loop 2"],
)
def test_states_that_floats_cannot_hold_keep_their_probabilities(model):
    shape = model.cardinalities
    rows = np.indices(shape).reshape(len(shape), -1).T.astype(float)
    expected = model.log_prob_unnormalized(rows)
    expected -= logsumexp(expected)
    circuit = model.compile()
    assert is_deterministic(circuit)
    assert_allclose(circuit.log_prob(rows), expected, rtol=1e-12, atol=1e-12)
    possible = np.flatnonzero(np.isfinite(expected))
    # Given a state of probability zero in plain numbers, the others have ordinary ones
    for row in possible[expected[possible].argsort()][:20:4]:
        variable = row % len(shape)
        given = np.where(np.arange(len(shape)) == variable, rows[row], np.nan)
        those = rows[:, variable] == rows[row, variable]
        total = logsumexp(expected[those])
        assert_allclose(circuit.log_prob(given[None]), total, rtol=1e-12, atol=1e-12)
        assert_allclose(expected[(rows == circuit.mpe(given[None])).all(1)], expected[those].max())
        for other, table in circuit.marginals(given[None]).items():
            masses = np.exp(np.where(those, expected - total, -np.inf))
            assert_allclose(table[0], np.bincount(rows[:, other].astype(int), masses), atol=1e-12)


def test_determinism_makes_small_circuits():
    # x0 xor ... xor x8 = 0, x9 is free: two contexts per level are enough.
    parity = np.zeros((2, 2, 2))
    parity[[0, 0, 1, 1], [0, 1, 0, 1], [0, 1, 1, 0]] = 1.0
    chain = [((10 + i, i, 11 + i), parity) for i in range(9)]
    graph = FactorGraph([*chain, ((10,), [1.0, 0.0]), ((19,), [1.0, 0.0])], np.full(20, 2))
    circuit = graph.compile()
    assert circuit.n_units < 200
    assert_allclose(graph.log_partition(), np.log(2.0**9))


def test_equal_contexts_share_a_unit():
    # The child ignores its second parent: its tables are equal and appear once.
    network = BayesianNetwork(
        [[], [], [0, 1]],
        [[0.5, 0.5], [0.5, 0.5], np.array([[[0.9, 0.1]] * 2, [[0.2, 0.8]] * 2])],
    )
    free = BayesianNetwork(
        [[], [], [0, 1]],
        [[0.5, 0.5], [0.5, 0.5], np.array([[[0.9, 0.1], [0.7, 0.3]], [[0.2, 0.8], [0.4, 0.6]]])],
    )
    order = [2, 1, 0]
    assert network.compile(order=order).n_units < free.compile(order=order).n_units


def test_impossible_or_complete_evidence():
    graph = FactorGraph([((0, 1), [[1.0, 0.0], [0.0, 1.0]])], [2, 2])
    with pytest.raises(ZeroProbabilityError):
        graph.compile({0: 0, 1: 1})
    with pytest.raises(ValueError, match="leave at least one variable unobserved"):
        graph.compile({0: 0, 1: 0})


def test_circuit_marginals_agree_on_zeros():
    graph = FactorGraph(
        [((0, 1), [[1.0, 0.0], [0.0, 3.0]]), ((1, 2), [[1.0, 1.0], [0.0, 1.0]])], [2] * 3
    )
    circuit = graph.compile()
    marginals = circuit.marginals(np.full((1, 3), np.nan))
    for variable, expected in enumerate(graph.marginals()):
        assert_allclose(marginals[variable][0], expected, rtol=1e-12)


def test_the_size_is_told_before_the_work_starts(capsys):
    model = random_potts()
    with pytest.raises(MemoryError, match=r"at most max_edges=20 edges; got n_edges='\d+'"):
        model.compile(max_edges=20)
    circuit = model.compile(verbose=1)
    told = capsys.readouterr().out.splitlines()
    expected = int(told[0].split()[-2].replace(",", ""))
    assert circuit.n_edges <= expected
    assert len(told) > 2
    assert " 6/6 variables" in told[-1]


def test_impossible_contexts_are_not_built():
    # Only the diagonal of two variables with 300 states is possible.
    graph = FactorGraph([((0, 1), np.eye(300)), ((1, 2), np.ones((300, 2)))], [300, 300, 2])
    circuit = graph.compile(order=[2, 0, 1], max_edges=2000)
    assert_allclose(circuit.log_prob([[7, 7, 0], [7, 8, 0]]), [-np.log(600), -np.inf])


def test_units_are_made_when_the_root_is_asked_for():
    circuit = random_potts().compile()
    row = np.array([0.0, np.nan, 1.0, np.nan, 2.0, np.nan])
    value, copy = circuit.log_prob([row]), pickle.loads(pickle.dumps(circuit))
    assert "root" not in vars(circuit)
    assert circuit.plan.units[-1] is circuit.root
    for other in (copy, Circuit(circuit.root)):
        assert (other.n_units, other.n_edges) == (circuit.n_units, circuit.n_edges)
        assert_allclose(other.log_prob([row]), value, rtol=1e-14)


def test_threads_that_make_units_at_once_share_them():
    units = random_potts().compile().plan.source
    make = type(units).linked.func
    assert make(units) is make(units)


def test_circuits_that_are_refused_take_little_memory():
    # Entries of tables are listed for circuits that are made
    rng = np.random.default_rng(0)
    chain = [((i, i + 1, i + 2), rng.random((60, 60, 60))) for i in range(3)]
    graph = FactorGraph(chain, [60] * 5)
    graph.log_partition()
    tracemalloc.start()
    with pytest.raises(MemoryError, match="max_edges=1,000 edges; got"):
        graph.compile(max_edges=1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * 8 * 60**3
