"""Posteriors: one structure for many evidences, components, forward and backward passes."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skcircuits.graphical import FactorGraph, IsingModel
from skcircuits.graphical.inference._elimination import (
    Table,
    backward_pass,
    build_tree,
    draw_rows,
    forward_pass,
    joint_table,
)
from skcircuits.graphical.inference._posterior import ScaledFactor


@st.composite
def graphs(draw):
    """Small factor graphs with up to five variables, zeros included."""
    cardinalities = draw(st.lists(st.integers(1, 3), min_size=1, max_size=5))
    n_factors = draw(st.integers(0, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    factors = []
    for _ in range(n_factors):
        size = rng.integers(1, min(3, len(cardinalities)) + 1)
        scope = rng.permutation(len(cardinalities))[:size]
        table = rng.uniform(0.05, 3.0, np.array(cardinalities)[scope])
        table[rng.random(table.shape) < 0.1] = 0.0
        factors.append((scope, table))
    return FactorGraph(factors, cardinalities)


def weights_of(graph):
    states = np.array(list(product(*map(range, graph.cardinalities))))
    weights = np.ones(len(states))
    for factor in graph.factors:
        weights *= np.exp(factor.log_table)[tuple(states[:, list(factor.scope)].T)]
    return states, weights


@given(graphs(), st.integers(0, 2**31))
@settings(max_examples=60)
def test_any_evidence_on_any_graph(graph, seed):
    states, weights = weights_of(graph)
    rng = np.random.default_rng(seed)
    row = states[rng.integers(len(states))].astype(float)
    row[rng.random(len(row)) < 0.5] = np.nan
    agree = weights * ((states == row) | np.isnan(row)).all(axis=1)
    with np.errstate(divide="ignore"):
        assert_allclose(graph.log_partition(row), np.log(agree.sum()), rtol=1e-10, atol=1e-10)
    if agree.sum() > 0:
        for variable, marginal in enumerate(graph.marginals(row)):
            counts = np.bincount(states[:, variable], agree, minlength=len(marginal))
            assert_allclose(marginal, counts / agree.sum(), rtol=1e-9, atol=1e-12)


@given(graphs())
@settings(max_examples=30)
def test_marginalising_twice_is_marginalising_once(graph):
    d = len(graph.cardinalities)
    once = graph.marginalize(range(d))
    twice = graph.marginalize(range(d // 2)).marginalize(range(d // 2, d))
    assert_allclose(once.log_partition(), graph.log_partition(), rtol=1e-10, atol=1e-10)
    assert_allclose(twice.log_partition(), graph.log_partition(), rtol=1e-10, atol=1e-10)


@pytest.fixture
def grid():
    rng = np.random.default_rng(0)
    return IsingModel.grid(4, 4, couplings=rng.normal(size=24), fields=rng.normal(size=16))


def test_observed_variables_cut_components(grid):
    # Row 1 observed: the first row and the last two rows are independent.
    posterior = grid.posterior([0, 1, 2, 3, *range(8, 16)])
    first, second = posterior.components
    assert sorted(first.tree.variables) == [0, 1, 2, 3]
    assert_array_equal(first.boundary, [4, 5, 6, 7])
    assert_array_equal(second.boundary, [4, 5, 6, 7])
    assert first.tree.width == 1
    assert len(first.factors) == 3 + 4 + 4


def test_equal_evidence_is_solved_once(grid):
    posterior = grid.posterior([0])
    codes = np.random.default_rng(0).integers(2, size=(500, 16))
    (solution,) = posterior.solve(codes)
    # The corner has two neighbours: four different evidences.
    assert solution.log_partition.shape == (4,)
    assert solution.conditionals[0].shape == (4, 2)
    assert solution.rows.shape == (500,)


def test_batches_equal_single_rows(grid):
    rows = np.random.default_rng(0).integers(2, size=(30, 16)).astype(float)
    rows[:, [1, 5, 6, 10]] = np.nan
    rows[::2, 12] = np.nan
    batch = grid.conditional_marginals(rows)
    log_prob = grid.log_prob_unnormalized(rows)
    for index, row in enumerate(rows):
        assert_allclose(grid.log_prob_unnormalized(row[None])[0], log_prob[index], rtol=1e-12)
        for whole, single in zip(batch, grid.conditional_marginals(row[None])):
            assert_allclose(whole[index], single[0], rtol=1e-12, atol=1e-15)


def test_posteriors_are_kept(grid):
    assert grid.posterior([2, 1]) is grid.posterior([1, 2])


def test_components_share_one_pass_over_the_factors(monkeypatch):
    """A chain of 6,000 variables with every second one observed took 30 s, and now 2 s."""
    n_reads = 0

    def scope(self):
        nonlocal n_reads
        n_reads += 1
        return self.factor.scope

    monkeypatch.setattr(ScaledFactor, "scope", property(scope))
    n_pairs = 200
    graph = FactorGraph(
        [((v, v + 1), np.eye(2) + 1) for v in range(2 * n_pairs)], [2] * (2 * n_pairs + 1)
    )
    row = np.full(2 * n_pairs + 1, np.nan)
    row[::2] = 0
    # Between two zeros: 2 * 2 + 1 * 1
    assert_allclose(graph.log_partition(row), n_pairs * np.log(5))
    assert n_reads < 10 * len(graph.factors)


def chain_tables(n_rows):
    """Three variables in a chain, the first table with one row per evidence."""
    rng = np.random.default_rng(0)
    scopes = [(0, 1), (1, 2), (2,)]
    states = (2, 3, 2)
    tables = []
    for index, scope in enumerate(scopes):
        shape = (n_rows if index == 0 else 1, *(states[v] for v in scope))
        tables.append(Table(rng.uniform(0.1, 1, shape), scope, np.log(10)))
    return build_tree(scopes, [0, 1, 2], states), tables


def test_passes_over_a_chain():
    tree, tables = chain_tables(n_rows=4)
    solved = forward_pass(tree, tables, all_conditionals=True)
    assert tree.width == 1
    assert tree.variables == (0, 1, 2)
    assert [table.shape for table in solved.conditionals] == [(4, 2, 3), (4, 3, 2), (4, 2)]
    for table in solved.conditionals:
        assert_allclose(table.sum(axis=1), 1.0)
    joint = joint_table(tree, solved.conditionals)
    full = np.einsum("nab,bc,c->nabc", tables[0].values, tables[1].values[0], tables[2].values[0])
    assert_allclose(np.exp(solved.log_partition), full.sum(axis=(1, 2, 3)))
    assert_allclose(joint, full / full.sum(axis=(1, 2, 3), keepdims=True))
    marginals = backward_pass(solved, {0, 1, 2})
    assert_allclose(marginals[0], joint.sum(axis=(2, 3)))
    assert_allclose(marginals[1], joint.sum(axis=(1, 3)))
    assert_allclose(marginals[2], joint.sum(axis=(1, 2)))
    at_the_root = backward_pass(solved, {2})
    assert list(at_the_root) == [2]
    assert_allclose(at_the_root[2], marginals[2])


def test_draws_follow_each_evidence():
    tree, tables = chain_tables(n_rows=2)
    conditionals = forward_pass(tree, tables, all_conditionals=True).conditionals
    rows = np.repeat([0, 1], 20_000)
    codes = np.zeros((len(rows), 3), dtype=np.int64)
    draw_rows(tree, conditionals, rows, codes, np.random.default_rng(0))
    joint = joint_table(tree, conditionals)
    for row in (0, 1):
        fractions = np.zeros((2, 3, 2))
        np.add.at(fractions, tuple(codes[rows == row].T), 1 / 20_000)
        assert_allclose(fractions, joint[row], atol=0.015)


def test_impossible_contexts_do_not_spread():
    graph = FactorGraph(
        [((0, 1), [[1.0, 1.0], [0.0, 0.0]]), ((1, 2), [[1.0, 2.0], [2.0, 1.0]])], [2] * 3
    )
    for order in ([0, 1, 2], [2, 1, 0], [1, 0, 2]):
        circuit = graph.compile(order=order)
        marginals = circuit.marginals(np.full((1, 3), np.nan))
        assert_allclose(marginals[0][0], [1.0, 0.0])
        assert_allclose(marginals[1][0], [0.5, 0.5])
