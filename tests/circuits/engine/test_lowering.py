"""Lowered plans against the pass in log space."""

import tracemalloc

import numpy as np
import pytest
from sklearn import config_context

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    Product,
    Sum,
)
from skcircuits.circuits.engine._layers import BlockLayer
from skcircuits.circuits.engine._passes import backward, input_flows, linear_values, log_values
from skcircuits.circuits.engine._transformations import Densities, Lookup, lower
from tests.reference.case import for_seeds
from tests.reference.latent_trees import latent_tree
from tests.reference.random_circuits import random_circuit, random_rows


def assert_fast_equals_plain(circuit, X, tabulate):
    fast = lower(circuit.plan, tabulate=tabulate)
    expected = log_values(circuit.plan, X)[circuit.plan.root]
    found, exact = fast.log_values(X)
    np.testing.assert_allclose(found[exact], expected[exact], rtol=1e-11, atol=1e-11)
    # Only impossible rows and such far below every float are given back.
    assert (expected[~exact] < -600.0).all()
    return fast


@pytest.mark.parametrize("tabulate", [False, True])
@for_seeds(60)
def test_random_circuits(seed, tabulate):
    circuit = random_circuit(seed, joint=seed % 4 == 0)
    if lower(circuit.plan, tabulate=tabulate) is None:
        # Joint units over a pair that other units split: no common factor to take out.
        assert seed % 4 == 0
        return
    rng = np.random.default_rng(seed)
    X = random_rows(rng, circuit, 30)
    X = np.vstack([X, np.where(rng.random(X.shape) < 0.2, 1.0, X), np.full_like(X[:1], np.nan)])
    assert_fast_equals_plain(circuit, X, tabulate)


@pytest.mark.parametrize("tabulate", [False, True])
@pytest.mark.parametrize("n_categories", [2, 4])
def test_dense_trees(tabulate, n_categories):
    rng = np.random.default_rng(0)
    circuit = latent_tree(rng, 20, 6, n_categories=n_categories, zeros=0.1)
    X = circuit.sample(200, random_state=0)
    X[rng.random(X.shape) < 0.3] = np.nan
    fast = assert_fast_equals_plain(circuit, X, tabulate)
    kinds = [type(step) for step in fast.steps]
    assert BlockLayer in kinds and Lookup in kinds
    assert fast.n_rows < circuit.n_units / 2


def test_tables_replace_subtrees():
    circuit = latent_tree(np.random.default_rng(0), 16, 4)
    plain = lower(circuit.plan, tabulate=False)
    tabulated = lower(circuit.plan, tabulate=True)
    assert sum(isinstance(step, Lookup) for step in plain.steps) == 16
    assert sum(isinstance(step, Lookup) for step in tabulated.steps) == 2
    sizes = [step.table.shape for step in tabulated.steps if isinstance(step, Lookup)]
    assert sizes == [(4, 3**8 + 1)] * 2


def test_a_whole_circuit_may_be_one_table():
    circuit = (
        random_circuit(1, discrete=True)
        .marginalize([])
        .condition(np.full(len(random_circuit(1, discrete=True).variables), np.nan))
    )
    small = circuit.marginalize(circuit.variables[2:]) if len(circuit.variables) > 2 else circuit
    fast = assert_fast_equals_plain(small, small.sample(20, random_state=0), True)
    assert [type(step) for step in fast.steps] == [Lookup]


def test_codes_that_are_no_state_and_shared_variables_of_many_tables():
    circuit = latent_tree(np.random.default_rng(1), 12, 3, n_categories=3)
    X = circuit.sample(6, random_state=0)
    X[0, 3], X[1, 5], X[2, 7], X[3, 1] = 3.0, -1.0, 0.5, 1e300
    for tabulate in (False, True):
        fast = lower(circuit.plan, tabulate=tabulate)
        found, exact = fast.log_values(X)
        np.testing.assert_array_equal(exact, [False, False, False, False, True, True])
        np.testing.assert_allclose(found[4:], log_values(circuit.plan, X)[-1, 4:], rtol=1e-12)


def test_rows_that_underflow_are_evaluated_in_log_space():
    """Masses of e^-40 over 100 variables: far below any float, and right to nine digits."""
    rng = np.random.default_rng(0)
    tiny = np.exp(-40.0)
    parts = [Product([Bernoulli(v, tiny * rng.uniform(0.5, 1)) for v in range(100)]) for _ in "ab"]
    circuit = Circuit(Sum(parts, weights=[0.3, 0.7]))
    X = (rng.random((300, 100)) < 0.9).astype(float)
    X[:20] = 0.0
    X[20:40, 50:] = np.nan
    expected = np.concatenate([log_values(circuit.plan, x[None])[-1] for x in X])
    assert expected.min() < -3000.0
    np.testing.assert_allclose(circuit.log_prob(X), expected, rtol=1e-12, atol=1e-14)


def test_continuous_rows_far_from_every_mean():
    circuit = Circuit(
        0.5 * Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1e-3)
        + 0.5 * Gaussian(0, 1.0, 2.0) * Gaussian(1, 5.0, 1e3)
    )
    X = np.random.default_rng(0).normal(scale=1e3, size=(400, 2))
    expected = np.concatenate([log_values(circuit.plan, x[None])[-1] for x in X])
    np.testing.assert_allclose(circuit.log_prob(X), expected, rtol=1e-12, atol=1e-14)


def test_many_variables_and_missing_everything():
    circuit = latent_tree(np.random.default_rng(0), 300, 4, n_categories=3)
    X = circuit.sample(300, random_state=0)
    X[:150][np.random.default_rng(1).random((150, 300)) < 0.5] = np.nan
    X[0] = np.nan
    expected = log_values(circuit.plan, X)[circuit.plan.root]
    np.testing.assert_allclose(circuit.log_prob(X), expected, rtol=1e-11, atol=1e-11)


def test_circuits_the_fast_evaluator_refuses():
    pair = MultivariateGaussian([0, 1], [0.0, 0.0], np.eye(2))
    split = Gaussian(0, 0.0, 1.0) * Gaussian(1, 0.0, 1.0)
    rough = 0.5 * Bernoulli(0, 0.5) + 0.5 * Bernoulli(1, 0.5)
    for root in (0.5 * pair + 0.5 * split, rough, 2.0 * Bernoulli(0, 0.5)):
        assert lower(Circuit(root).plan, tabulate=True) is None


@pytest.mark.parametrize("seed", range(4))
def test_the_public_query_takes_the_fast_path_without_changing_results(seed):
    circuit = random_circuit(seed)
    X = np.tile(random_rows(np.random.default_rng(seed), circuit, 20), (300, 1))
    expected = np.tile(circuit.log_prob(X[:20]), 300)
    np.testing.assert_allclose(circuit.log_prob(X), expected, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(circuit.log_prob(X[:600]), expected[:600], rtol=1e-11, atol=1e-12)
    with config_context(working_memory=1e-3):
        few = circuit.log_prob(X[:300])
    np.testing.assert_allclose(few, expected[:300], rtol=1e-11, atol=1e-12)


def test_densities_of_one_layer_are_scaled_by_scope():
    circuit = Circuit(
        Sum(
            [Product([Gaussian(v, m, 1.0) for v in (2, 0, 1)]) for m in (0.0, 300.0)],
            weights=[0.5, 0.5],
        )
    )
    X = np.array([[0.0, 0.0, 0.0], [300.0, 300.0, 300.0], [150.0, 150.0, np.nan]])
    fast = assert_fast_equals_plain(circuit, X, False)
    assert sum(isinstance(step, Densities) for step in fast.steps) == 1


def test_blocks_with_three_factors_and_scattered_rows():
    rng = np.random.default_rng(0)
    leaves = [[Categorical(v, rng.dirichlet(np.ones(3))) for _ in range(4)] for v in range(3)]
    children = [Product([leaves[v][rng.integers(4)] for v in range(3)]) for _ in range(5)]
    sums = [Sum(children, weights=rng.dirichlet(np.ones(5))) for _ in range(4)]
    other = [Bernoulli(3, p) for p in rng.random(4)]
    circuit = Circuit(
        Sum([Product(pair) for pair in zip(sums, other)], weights=rng.dirichlet(np.ones(4)))
    )
    fast = assert_fast_equals_plain(circuit, circuit.sample(50, random_state=0), False)
    (block,) = [step for step in fast.steps if isinstance(step, BlockLayer)]
    assert len(block.factors) == 3


def test_memory_does_not_grow_with_the_rows():
    circuit = latent_tree(np.random.default_rng(0), 32, 8)
    X = circuit.sample(20_000, random_state=0)
    circuit.log_prob(X)
    peaks = []
    for n_rows in (5_000, 20_000):
        part = X[:n_rows]
        tracemalloc.start()
        circuit.log_prob(part)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # One byte per cell for the check of the table, and the result: nothing else grows.
    assert peaks[1] < peaks[0] + 15_000 * (32 + 9) + 2**17


@for_seeds(40)
def test_linear_flows_are_the_flows_of_the_pass_in_log_space(seed):
    circuit = random_circuit(seed)
    plan = circuit.plan
    X = random_rows(np.random.default_rng(seed), circuit, 30)
    X = X[log_values(plan, X)[plan.root] > -600.0]
    values = linear_values(plan, X)
    assert values is not None and len(X) > 0
    expected = backward(plan, log_values(plan, X))[: plan.inputs[-1][0].stop]
    np.testing.assert_allclose(input_flows(plan, values), expected, rtol=1e-10, atol=1e-15)


def test_linear_flows_of_shared_units_and_many_factors():
    rng = np.random.default_rng(0)
    leaves = [[Categorical(v, rng.dirichlet(np.ones(3))) for _ in range(3)] for v in range(4)]
    # Every leaf is used by several products, one product twice.
    products = [Product([leaves[v][rng.integers(3)] for v in range(4)]) for _ in range(6)]
    blocks = [Sum(products, weights=rng.dirichlet(np.ones(6))) for _ in range(3)]
    circuit = Circuit(Sum([*blocks, products[0]], weights=rng.dirichlet(np.ones(4))))
    X = circuit.sample(20, random_state=0)
    X[rng.random(X.shape) < 0.5] = np.nan
    X[0, 0] = 7.0
    assert linear_values(circuit.plan, X) is None
    values = linear_values(circuit.plan, X[1:])
    expected = backward(circuit.plan, log_values(circuit.plan, X[1:]))[: len(values)]
    found = input_flows(circuit.plan, values)
    np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(found.sum(axis=0), 4.0, rtol=1e-12)


def test_moments_of_hardly_possible_rows_beside_likely_ones():
    """One row of e^-4000 sends its batch through log space: nothing else changes."""
    circuit = Circuit(
        0.5 * Gaussian(0, 0.0, 1.0) * Bernoulli(1, 0.2)
        + 0.5 * Gaussian(0, 1.0, 1.0) * Bernoulli(1, 0.7)
    )
    tiny = [Product([Bernoulli(v, np.exp(-20.0 * v)) for v in range(2, 20)]) for _ in range(2)]
    circuit = Circuit(circuit.root * (0.5 * tiny[0] + 0.5 * tiny[1]))
    X = np.zeros((3, 20))
    X[:, 0], X[:, 1] = [0.3, 0.3, -2.0], np.nan
    X[1, 2:] = 1.0
    assert linear_values(circuit.plan, X[:1]) is not None
    assert linear_values(circuit.plan, X) is None
    found = circuit.expectation(X)
    np.testing.assert_allclose(found[1, 1], found[0, 1], rtol=1e-12)
    np.testing.assert_allclose(found[::2], circuit.expectation(X[::2]), rtol=1e-12)


def test_a_product_that_a_table_puts_out_is_not_fused_into_the_sums_above_it():
    """One unit above the table reads the product, which the sums of the table read too."""
    rng = np.random.default_rng(0)
    pairs = [Product([Categorical(v, rng.dirichlet(np.ones(3))) for v in (0, 1)]) for _ in range(8)]
    sums = [Sum(pairs, weights=rng.dirichlet(np.ones(8))) for _ in range(4)]
    # Too many variables for one table of everything
    others = [Product([Bernoulli(v, p) for v in range(2, 16)]) for p in rng.random(5)]
    terms = [Product(parts) for parts in zip([*sums, pairs[0]], others)]
    circuit = Circuit(Sum(terms, weights=rng.dirichlet(np.ones(5))))
    fast = assert_fast_equals_plain(circuit, circuit.sample(40, random_state=0), True)
    assert 5 in [len(step.table) for step in fast.steps if isinstance(step, Lookup)]
