"""Tables written out or contracted, plain or logarithms, whole or in parts: one answer."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import BayesianNetwork, Factor, FactorGraph
from skcircuits.graphical.inference import _elimination, _exact_inference
from skcircuits.graphical.inference._elimination import (
    backward_pass,
    build_tree,
    contract,
    elimination_order,
    forward_pass,
    table_of_logs,
)


def random_network(seed, n_variables=9):
    rng = np.random.default_rng(seed)
    states = rng.integers(1, 4, n_variables)
    parents = [
        sorted(rng.permutation(v)[: rng.integers(0, 4)].tolist()) for v in range(n_variables)
    ]
    tables = []
    for v, given in enumerate(parents):
        table = rng.dirichlet(np.full(states[v], 0.4), states[given])
        table[rng.random(table.shape) < 0.2] = 0.0
        table[table.sum(axis=-1) == 0] = np.eye(states[v])[0]
        tables.append(table / table.sum(axis=-1, keepdims=True))
    return BayesianNetwork(parents, tables)


def check_against_enumeration(model, row):
    states = np.array(list(product(*map(range, model.cardinalities))), dtype=float)
    log_prob = np.sum(
        [f.log_table[tuple(states[:, f.scope].astype(int).T)] for f in model.factors], axis=0
    )
    agrees = ((states == row) | np.isnan(row)).all(axis=1)
    peak = log_prob[agrees].max()
    if np.isneginf(peak):
        assert np.isneginf(model.log_partition(row))
        return
    weights = np.exp(log_prob - peak) * agrees
    assert_allclose(model.log_partition(row), peak + np.log(weights.sum()), rtol=1e-12, atol=1e-12)
    for v, marginal in enumerate(model.marginals(row)):
        counts = np.bincount(states[:, v].astype(int), weights, minlength=len(marginal))
        assert_allclose(marginal, counts / weights.sum(), rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("direct_cells", [0, 10**9], ids=["contracted", "written_out"])
@pytest.mark.parametrize("single_cells", [0, 10**9], ids=["parts", "whole"])
def test_ways_through_a_network_agree(seed, direct_cells, single_cells, monkeypatch):
    monkeypatch.setattr(_elimination, "_MAX_DIRECT_CELLS", direct_cells)
    monkeypatch.setattr(_exact_inference, "_MAX_SINGLE_CELLS", single_cells)
    if not single_cells:
        # Every variable that no open one depends on gets a tree of its own.
        monkeypatch.setattr(_exact_inference, "_MIN_SPLIT_CELLS", 0)
        monkeypatch.setattr(_exact_inference, "_MIN_OWN_CELLS", 0)
        monkeypatch.setattr(_exact_inference, "_TWO_PASSES", 1e9)
    network = random_network(seed)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        row = rng.integers(network.cardinalities).astype(float)
        row[rng.random(len(row)) < 0.7] = np.nan
        check_against_enumeration(network, row)


@pytest.mark.parametrize("energy", [1.0, 100.0, 350.0, 2000.0])
@pytest.mark.parametrize("direct_cells", [0, 10**9])
def test_products_of_any_range(energy, direct_cells, monkeypatch):
    # From 600 on logarithms take over; each of the factors below spans twice the energy.
    monkeypatch.setattr(_elimination, "_MAX_DIRECT_CELLS", direct_cells)
    rng = np.random.default_rng(0)
    scopes = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (1, 3, 4)]
    log_tables = [energy * rng.uniform(-1, 1, (2,) * len(scope)) for scope in scopes]
    log_tables[2][0, 1] = -np.inf
    graph = FactorGraph(list(map(Factor, scopes, log_tables)), [2] * 5)
    for row in ([np.nan] * 5, [0, np.nan, np.nan, np.nan, 1], [np.nan, 1, 0, 0, np.nan]):
        check_against_enumeration(graph, np.array(row, dtype=float))


def test_marginals_of_a_batch_are_those_of_its_rows(monkeypatch):
    monkeypatch.setattr(_elimination, "_MAX_DIRECT_CELLS", 0)
    network = random_network(3)
    rows = np.full((20, 9), np.nan)
    rows[:, [7, 8]] = network.sample(20, random_state=0)[:, [7, 8]]
    together = network.conditional_marginals(rows)
    for index, row in enumerate(rows):
        for whole, alone in zip(together, network.marginals(row)):
            assert_allclose(whole[index], alone, rtol=1e-12, atol=1e-15)


def test_contraction_is_einsum():
    rng = np.random.default_rng(0)
    a, b, c = rng.random((4, 2, 3)), rng.random((1, 3, 5, 2)), rng.random((4, 5, 6))
    found = contract([(a, (7, 8)), (b, (8, 9, 7)), (c, (9, 3))], (3, 8))
    assert_allclose(found, np.einsum("nab,bca,ncd->ndb", a, b[0], c))
    # Variables that no table has are axes of length one.
    assert contract([(a, (7, 8))], (8, 1)).shape == (4, 3, 1)


@pytest.mark.parametrize("seed", range(4))
def test_way_to_the_root_alone(seed):
    network = random_network(seed)
    scopes = [factor.scope for factor in network.factors]
    factors = [table_of_logs(f.log_table[None], f.scope)[0] for f in network.factors]
    whole, n_messages = network.marginals(), []
    for root in range(len(whole)):
        order = elimination_order(scopes, network.cardinalities, last=[root])
        assert order[-1] == root
        assert sorted(order) == list(range(len(whole)))
        tree = build_tree(scopes, order, tuple(network.cardinalities.tolist()))
        # Buckets that nobody asks for are joined where their cliques lie in one another.
        solved = forward_pass(tree, factors, all_conditionals=False, first_needed=len(order) - 1)
        n_messages.append(len(solved.messages))
        assert_allclose(backward_pass(solved, {root})[root][0], whole[root], rtol=1e-12)
    assert min(n_messages) < len(whole)


def test_barren_variables_cost_nothing():
    # Forty leaves with forty parents each would be a clique of all.
    parents = [[] for _ in range(40)] + [list(range(i, i + 4)) for i in range(36)]
    rng = np.random.default_rng(0)
    tables = [rng.dirichlet([1, 1, 1], [3] * len(given)) for given in parents]
    network = BayesianNetwork(parents, tables)
    assert network.log_partition() == 0.0
    marginals = network.marginals()
    joint = np.einsum("a,b,c,d,abcde->e", *tables[:4], tables[40])
    assert_allclose(marginals[40], joint, rtol=1e-12)
