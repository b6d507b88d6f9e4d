"""Exact inference on models too large to enumerate: different ways must agree."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.graphical import BayesianNetwork, FactorGraph, IsingModel


def random_network(n_variables, seed):
    """At most three parents each, some deterministic tables."""
    rng = np.random.default_rng(seed)
    states = rng.integers(2, 5, size=n_variables)
    parents, tables = [], []
    for variable in range(n_variables):
        chosen = rng.permutation(variable)[: rng.integers(0, 4)].tolist()
        shape = [*states[chosen], states[variable]]
        table = rng.dirichlet(np.full(states[variable], 0.5), size=shape[:-1])
        if variable % 5 == 4:
            table = np.eye(states[variable])[table.argmax(axis=-1)]
        parents.append(chosen)
        tables.append(table)
    return BayesianNetwork(parents, tables)


@pytest.fixture(params=range(3))
def network(request):
    return random_network(18, request.param)


def test_a_network_is_normalised(network):
    assert_allclose(network.log_partition(), 0.0, atol=1e-10)


def test_circuit_elimination_and_sampling_agree(network):
    marginals = network.marginals()
    compiled = network.compile().marginals(np.full((1, 18), np.nan))
    drawn = network.sample(4000, random_state=0)
    for variable, expected in enumerate(marginals):
        assert_allclose(compiled[variable][0], expected, rtol=1e-9, atol=1e-12)
        fractions = np.bincount(drawn[:, variable].astype(int), minlength=len(expected)) / 4000
        assert_allclose(fractions, expected, atol=0.05)


def test_evidence_agrees_with_the_conditioned_circuit(network):
    row = network.sample(1, random_state=1)[0]
    row[::2] = np.nan
    circuit = network.compile(row)
    conditioned = circuit.marginals(np.full((1, 18), np.nan))
    for variable, table in conditioned.items():
        assert_allclose(table[0], network.marginals(row)[variable], rtol=1e-8, atol=1e-12)
    joint = network.compile().log_prob(row[None])[0]
    assert_allclose(network.log_partition(row), joint, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", [BayesianNetwork, FactorGraph])
def test_many_patterns_are_answered_as_one_by_one(network, kind):
    if kind is FactorGraph:
        network = FactorGraph(network.factors, network.cardinalities)
    rows = network.sample(60, random_state=2)
    rows[np.random.default_rng(0).random(rows.shape) < 0.6] = np.nan
    # Some are impossible, and one variable is observed in none
    rows[:10] = 0.0
    rows[:, 7] = np.nan
    log_prob = network.log_prob_unnormalized(rows)
    alone = np.array([network.log_partition(row) for row in rows])
    assert np.isneginf(alone).any()
    assert_allclose(log_prob, alone, rtol=1e-12, atol=1e-12)
    rows = rows[np.isfinite(alone)]
    together, completed = network.conditional_marginals(rows), network.mpe(rows)
    for index, row in enumerate(rows):
        for table, expected in zip(together, network.marginals(row), strict=True):
            assert_allclose(table[index], expected, rtol=1e-10, atol=1e-14)
    observed = ~np.isnan(rows)
    assert_array_equal(completed[observed], rows[observed])
    best = np.concatenate([network.mpe(row[None]) for row in rows])
    scores = [network.log_prob_unnormalized(found) for found in (completed, best)]
    assert_allclose(*scores, rtol=1e-12)


def test_many_patterns_share_a_structure_where_its_tables_are_small():
    def n_structures(model, n_rows):
        missing = np.random.default_rng(0).random((n_rows, len(model.cardinalities))) < 0.5
        return len(model._posteriors.groups(np.zeros(missing.shape, dtype=int), missing))

    assert n_structures(IsingModel.grid(1, 50, couplings=0.5), 100) == 1
    assert n_structures(IsingModel.grid(1, 50, couplings=0.5), 3) == 3
    # Observed variables cut a wide grid into small parts
    assert n_structures(IsingModel.grid(16, 16, couplings=0.5), 20) == 20


def test_marginalising_leaves_the_marginals(network):
    gone = [0, 3, 7, 11]
    rest = network.marginalize(gone)
    for variable, expected in enumerate(network.marginals()):
        if variable not in gone:
            assert_allclose(rest.marginals()[variable], expected, rtol=1e-9, atol=1e-12)


def test_completions_follow_the_posterior():
    network = random_network(12, 5)
    row = network.sample(1, random_state=2)[0]
    row[[1, 4, 6, 9]] = np.nan
    drawn = network.sample(5000, X=row[None], random_state=0)[:, 0]
    for variable in (1, 4, 6, 9):
        expected = network.marginals(row)[variable]
        fractions = np.bincount(drawn[:, variable].astype(int), minlength=len(expected)) / 5000
        assert_allclose(fractions, expected, atol=0.04)


def test_transfer_matrix_of_a_long_chain():
    # 2000 spins: far beyond enumeration, closed form by the eigenvalues of one matrix.
    n = 2000
    model = IsingModel.grid(1, n, couplings=0.7)
    assert_allclose(model.log_partition(), np.log(2) + (n - 1) * np.log(2 * np.cosh(0.7)))
    assert model.width() == 1
    ends = model.marginals({0: 1})[50][1]
    assert_allclose(ends, 0.5 * (1 + np.tanh(0.7) ** 50), rtol=1e-9)


def test_wide_grid_in_closed_limits():
    # Without couplings every variable is alone, whatever the graph looks like.
    free = IsingModel.grid(8, 8, couplings=0.0, fields=np.linspace(-1, 1, 64))
    expected = np.log(2 * np.cosh(np.linspace(-1, 1, 64))).sum()
    assert_allclose(free.log_partition(), expected)
    # Strong couplings leave two states.
    strong = IsingModel.grid(6, 6, couplings=40.0)
    assert_allclose(strong.log_partition(), 40.0 * 60 + np.log(2), rtol=1e-12)


def test_a_model_without_possible_states_says_so():
    graph = FactorGraph([((0,), [1.0, 0.0]), ((0, 1), [[0.0, 0.0], [1.0, 1.0]])], [2, 2])
    assert graph.log_partition() == -np.inf
    for query in (graph.marginals, graph.compile, lambda: graph.sample(1)):
        with pytest.raises(ZeroProbabilityError, match="partition function of the model must be"):
            query()
