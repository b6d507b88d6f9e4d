"""Plans with tables against the plans they stand for, query by query."""

import numpy as np
import pytest
from scipy import stats

from skcircuits.circuits import Bernoulli, Circuit, Gaussian, Product, Sum
from skcircuits.circuits._policy import TRACE_TABLES
from skcircuits.circuits.engine._passes import (
    feedforward,
    input_buffer,
    linear_values,
    log_values,
)
from skcircuits.circuits.engine._plan import compile_plan
from skcircuits.circuits.engine._transformations import JointTableLayer, tabulated
from skcircuits.circuits.queries import _completion, _marginals
from skcircuits.circuits.queries._completion import sample_completions
from skcircuits.numerics._random import RowStreams
from tests.reference.enumeration import Completions
from tests.reference.latent_trees import latent_tree
from tests.reference.random_circuits import random_circuit, random_rows


def put_tables_everywhere(monkeypatch):
    budget = TRACE_TABLES._replace(min_units=0, max_remaining=1.0)
    monkeypatch.setattr(tabulated, "__defaults__", ("log", budget))
    monkeypatch.setattr(_completion, "MANY_ROWS", 0)
    monkeypatch.setattr(_marginals, "MANY_ROWS", 0)


@pytest.fixture
def tables_everywhere(monkeypatch):
    put_tables_everywhere(monkeypatch)


def has_tables(plan):
    return any(isinstance(layer, JointTableLayer) for _, layer in plan.inputs)


CIRCUITS = [random_circuit(seed) for seed in range(40)] + [
    latent_tree(np.random.default_rng(0), 11, 5, n_categories=n, zeros=0.2) for n in (2, 3, 5)
]


def fresh(circuit):
    """The same circuit without what its plan remembers."""
    return Circuit(circuit.root)


@pytest.mark.parametrize("circuit", CIRCUITS, ids=range(len(CIRCUITS)))
def test_all_queries_are_those_of_the_plain_plan(circuit, monkeypatch):
    X = random_rows(np.random.default_rng(0), circuit, 25)
    plain = fresh(circuit)
    expected = [plain.log_prob(X), plain.expectation(X), plain.variance(X)]
    completed, fractions = plain.mpe(X, method="max_product"), plain.marginals(X)
    put_tables_everywhere(monkeypatch)
    own = fresh(circuit)
    plan = tabulated(own.plan)
    assert plan.n_units < own.n_units or not has_tables(plan)
    found = [log_values(plan, X)[plan.root], own.expectation(X), own.variance(X)]
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    for variable, table in own.marginals(X).items():
        np.testing.assert_allclose(table, fractions[variable], rtol=1e-12, atol=1e-15)
    # Maxima and sums of two numbers are monotone: not even rounding differs.
    np.testing.assert_array_equal(own.mpe(X, method="max_product"), completed)


@pytest.mark.parametrize("circuit", CIRCUITS, ids=range(len(CIRCUITS)))
def test_max_product_values_are_bitwise_equal(circuit, tables_everywhere):
    X = random_rows(np.random.default_rng(1), circuit, 25)
    roots = []
    plan = fresh(circuit).plan
    for each in (plan, tabulated(plan, "max")):
        inputs = input_buffer(each, lambda layer: layer.log_max(X), (len(X),))
        roots.append(feedforward(each, inputs, "max")[each.root])
    np.testing.assert_array_equal(*roots)


def test_ties_are_broken_as_without_tables(tables_everywhere):
    """Sums prefer their first child, not the completion with the smallest number."""
    sides = [Product([Bernoulli(v, p) for v in range(3)]) for p in (1.0, 0.0)]
    circuit = Circuit(Sum(sides, weights=[0.5, 0.5]) * Gaussian(3, 0.0, 1.0))
    assert has_tables(tabulated(circuit.plan, "max"))
    np.testing.assert_array_equal(circuit.mpe(np.full((2, 4), np.nan)), [[1, 1, 1, 0]] * 2)


@pytest.mark.parametrize("n_categories", [2, 3])
@pytest.mark.parametrize("seed", range(3))
def test_completions_follow_the_conditional_distribution(seed, n_categories, tables_everywhere):
    """Chi-square of all joint completions given the observed cells, against enumeration."""
    rng = np.random.default_rng(seed)
    circuit = latent_tree(rng, 7, 4, n_categories=n_categories, zeros=0.2)
    assert has_tables(tabulated(circuit.plan)) and tabulated(circuit.plan).layers
    X = random_rows(rng, circuit, 4, missing=0.7)
    n_draws = 20_000
    draws = sample_completions(circuit.plan, X, n_draws, np.random.default_rng(seed))
    for x, completed in zip(X, draws.transpose(1, 0, 2)):
        completions = Completions(circuit, x)
        numbers = {tuple(node): i for i, node in enumerate(completions.nodes)}
        counts = np.zeros(len(numbers))
        distinct, times = np.unique(completed, axis=0, return_counts=True)
        counts[[numbers[tuple(row)] for row in distinct]] = times
        expected = n_draws * completions.mass / completions.total
        assert (counts[expected == 0] == 0).all()
        # Rare states are pooled: the test needs a few expected counts per cell.
        rare = expected < 5
        counts = np.append(counts[~rare], counts[rare].sum())
        expected = np.append(expected[~rare], expected[rare].sum())
        filled = expected > 0
        if filled.sum() > 1:
            assert stats.chisquare(counts[filled], expected[filled]).pvalue > 1e-4


def test_rows_beyond_the_linear_scale_and_impossible_rows():
    """Tables hold logarithms: masses of e^-800 in a table are masses."""
    rng = np.random.default_rng(0)
    tiny = np.exp(-200.0)

    def side(variables):
        leaves = [[Bernoulli(v, tiny * rng.uniform(0.5, 1.0)) for _ in range(8)] for v in variables]
        products = [Product(factors) for factors in zip(*leaves)]
        return [Sum(products, weights=rng.dirichlet(np.ones(8))) for _ in range(8)]

    pairs = [Product(sides) for sides in zip(*(side(range(i, i + 4)) for i in range(0, 80, 4)))]
    circuit = Circuit(Sum(pairs, weights=rng.dirichlet(np.ones(8))))
    plan = tabulated(circuit.plan)
    assert has_tables(plan)
    X = (rng.random((20, 80)) < 0.9).astype(float)
    X[:, ::7] = np.nan
    found, expected = log_values(plan, X)[plan.root], log_values(circuit.plan, X)[-1]
    assert expected.max() < -5000.0
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(
        np.tile(circuit.expectation(X), (30, 1)),
        circuit.expectation(np.tile(X, (30, 1))),
        rtol=1e-9,
        atol=1e-12,
    )
    X[3, 1], X[4, 1], X[5, 1] = 2.0, -1.0, 0.5
    assert linear_values(plan, X) is None
    np.testing.assert_array_equal(np.flatnonzero(np.isneginf(log_values(plan, X)[-1])), [3, 4, 5])


def test_large_circuits_are_drawn_alike_whatever_the_number_of_rows():
    """What is drawn for a row by its own stream does not depend on its company."""
    circuit = latent_tree(np.random.default_rng(0), 30, 12)
    assert has_tables(tabulated(circuit.plan))
    X = random_rows(np.random.default_rng(0), circuit, 600, missing=0.4)
    draws = sample_completions(circuit.plan, X, 2, RowStreams(X, seed=1))
    few = sample_completions(circuit.plan, X[[3, 500]], 2, RowStreams(X[[3, 500]], seed=1))
    np.testing.assert_array_equal(few, draws[:, [3, 500]])


def test_circuits_that_tables_do_not_make_smaller_are_left_alone():
    rng = np.random.default_rng(0)
    factors = [Product([Bernoulli(v, rng.random()) for v in range(20)]) for _ in range(40)]
    flat = compile_plan(Sum(factors, weights=rng.dirichlet(np.ones(40))))
    assert flat.n_units > TRACE_TABLES.min_units
    assert tabulated(flat) is flat
    small = latent_tree(rng, 6, 3).plan
    assert tabulated(small, "max") is small
    many_states = latent_tree(rng, 16, 8, n_categories=40).plan
    assert tabulated(many_states) is many_states
