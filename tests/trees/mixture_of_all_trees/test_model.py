import numpy as np
import pytest

from skcircuits.trees._trees import StateLayout, distinct_rows
from skcircuits.trees.mixture_of_all_trees._model import MixtureOfAllTrees
from tests.trees.conftest import all_states, prior_of_trees, random_model, tree_prob


@pytest.mark.parametrize("cardinalities", [[2], [3, 2], [2, 2, 2, 2], [2, 3, 2, 4], [1, 2, 3]])
def test_equals_the_sum_over_all_trees(cardinalities):
    model = random_model(cardinalities, seed=1)
    states = all_states(cardinalities)
    trees, prior = prior_of_trees(model)
    expected = sum(p * tree_prob(model, t, states) for p, t in zip(prior, trees, strict=True))
    np.testing.assert_allclose(np.exp(model.log_prob(states)), expected, rtol=1e-10)


@pytest.mark.parametrize("cardinalities", [[2] * 10, [3] * 6, [2, 5, 3, 4, 2]])
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
def test_sums_to_one(cardinalities, scale):
    model = random_model(cardinalities, seed=2, scale=scale)
    assert abs(np.exp(model.log_prob(all_states(cardinalities))).sum() - 1) < 1e-12


def test_margins_are_the_tables(mixed_model):
    # All trees share their pair tables, and an edge's table is the pair marginal of its tree.
    states = all_states(mixed_model.layout.cardinalities)
    prob = np.exp(mixed_model.log_prob(states))
    np.testing.assert_allclose(
        prob @ mixed_model.layout.one_hot(states), mixed_model.nodes, rtol=1e-10
    )


def test_column_order_does_not_matter():
    model = random_model([2] * 8, seed=4, scale=2.0)
    states = np.random.default_rng(0).integers(2, size=(200, 8))
    order = np.random.default_rng(1).permutation(8)
    flat_order = (2 * order[:, None] + np.arange(2)).ravel()
    permuted = MixtureOfAllTrees(
        model.layout,
        model.weights[order[:, None], order],
        model.nodes[flat_order],
        model.pairs[flat_order[:, None], flat_order],
    )
    difference = permuted.log_prob(states[:, order]) - model.log_prob(states)
    assert np.abs(difference).max() < 1e-10


def test_edge_probabilities_of_the_prior(mixed_model):
    trees, prior = prior_of_trees(mixed_model)
    expected = np.zeros((4, 4))
    for p, tree in zip(prior, trees, strict=True):
        for u, v in tree:
            expected[[u, v], [v, u]] += p
    np.testing.assert_allclose(mixed_model.tree_distribution[1], expected, atol=1e-12)


def test_threads_do_not_change_a_bit():
    model = random_model([2] * 40, seed=5)
    states = np.random.default_rng(0).integers(2, size=(1000, 40))
    np.testing.assert_array_equal(model.log_prob(states), model.log_prob(states, n_jobs=2))


@pytest.mark.parametrize("largest", [1, 300])
def test_distinct_rows(largest):
    codes = np.random.default_rng(0).integers(largest + 1, size=(50, 3)) // (largest // 2 + 1)
    rows, inverse = distinct_rows(codes)
    np.testing.assert_array_equal(rows[inverse], codes)
    assert len(rows) == len(np.unique(codes, axis=0))


def test_no_rows():
    model = random_model([2, 3])
    assert model.log_prob(np.empty((0, 2), dtype=np.int64)).shape == (0,)


def test_extreme_tables_stay_finite():
    layout = StateLayout([2, 2, 2])
    nodes = np.tile([1 - 1e-9, 1e-9], 3)
    pairs = np.full((6, 6), 1e-18)
    for u in range(3):
        for v in range(3):
            pairs[2 * u, 2 * v] = 1 - 1e-9 - 1e-10
            pairs[2 * u, 2 * v + 1] = pairs[2 * u + 1, 2 * v] = 1e-10
            pairs[2 * u + 1, 2 * v + 1] = 9e-10
    model = MixtureOfAllTrees(layout, 1 - np.eye(3), nodes, pairs)
    log_prob = model.log_prob(all_states([2, 2, 2]))
    assert np.isfinite(log_prob).all()
    assert np.exp(log_prob).sum() == pytest.approx(1, abs=1e-9)


def test_a_weakly_connected_variable_costs_no_digits():
    tables = random_model([2] * 6, seed=1)
    weights = np.exp(9.0) * (1 - np.eye(6))
    weights[0, 1:] = weights[1:, 0] = np.exp(-9.0)
    model = MixtureOfAllTrees(tables.layout, weights, tables.nodes, tables.pairs)
    assert abs(np.exp(model.log_prob(all_states([2] * 6))).sum() - 1) < 1e-12
