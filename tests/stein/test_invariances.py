"""What must not change a Stein discrepancy, and how it behaves with the samples."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import FactorGraph, GaussianMRF, IsingModel
from skcircuits.kernels import RBF, Hamming
from skcircuits.stein import (
    InverseMultiquadric,
    simplex_weights,
    stein_discrepancy,
    stein_gram,
)


@pytest.fixture
def graph():
    rng = np.random.default_rng(0)
    return FactorGraph(
        [((0, 1), rng.uniform(0.1, 1, (3, 4))), ((1, 2), rng.uniform(0.1, 1, (4, 2)))], [3, 4, 2]
    )


@pytest.fixture
def rows(graph):
    return graph.sample(40, random_state=0)


def relabel(graph, variable, order):
    """The same distribution with the states of one variable renumbered."""
    factors = []
    for factor in graph.factors:
        table = np.exp(factor.log_table)
        if variable in factor.scope:
            table = np.take(table, order, axis=factor.scope.index(variable))
        factors.append((factor.scope, table))
    return FactorGraph(factors, graph.cardinalities)


def test_barker_does_not_know_the_order_of_states(graph, rows):
    order = np.array([2, 0, 3, 1])
    renamed = relabel(graph, 1, order)
    moved = rows.copy()
    moved[:, 1] = np.argsort(order)[rows[:, 1].astype(int)]
    assert_allclose(renamed.log_prob_unnormalized(moved), graph.log_prob_unnormalized(rows))
    K = stein_gram(rows, graph, Hamming(3.0))
    assert_allclose(stein_gram(moved, renamed, Hamming(3.0)), K, rtol=1e-10)
    # The published operator does: it moves to the next state only.
    published = stein_gram(rows, graph, Hamming(3.0), operator="difference")
    other = stein_gram(moved, renamed, Hamming(3.0), operator="difference")
    assert np.abs(published - other).max() > 0.1


@pytest.mark.parametrize("operator", ["barker", "difference"])
def test_order_of_variables_does_not_matter(graph, rows, operator):
    order = [2, 0, 1]
    factors = [(tuple(order.index(v) for v in f.scope), np.exp(f.log_table)) for f in graph.factors]
    moved = FactorGraph(factors, graph.cardinalities[order])
    K = stein_gram(rows, graph, Hamming(3.0), operator=operator)
    assert_allclose(
        stein_gram(rows[:, order], moved, Hamming(3.0), operator=operator), K, rtol=1e-9, atol=1e-12
    )


@pytest.mark.parametrize("operator", ["barker", "difference"])
def test_the_normaliser_is_not_needed(graph, rows, operator):
    scaled = FactorGraph([*graph.factors, ((0,), np.full(3, 1e-200))], graph.cardinalities)
    K = stein_gram(rows, graph, Hamming(3.0), operator=operator)
    assert_allclose(stein_gram(rows, scaled, Hamming(3.0), operator=operator), K, rtol=1e-9)


@pytest.mark.parametrize("operator", ["barker", "difference"])
def test_kernels_add_up(graph, rows, operator):
    both = stein_gram(rows, graph, 2.0 * Hamming(3.0) + 0.5 * RBF(0.1), operator=operator)
    first = stein_gram(rows, graph, Hamming(3.0), operator=operator)
    second = stein_gram(rows, graph, RBF(0.1), operator=operator)
    assert_allclose(both, 2.0 * first + 0.5 * second, rtol=1e-9, atol=1e-12)


def test_discrepancy_falls_with_the_sample_size():
    model = IsingModel.grid(3, 3, couplings=0.3)
    kernel = Hamming(9.0)
    means = [
        np.mean(
            [stein_discrepancy(model.sample(n, random_state=s), model, kernel) for s in range(10)]
        )
        for n in (20, 80, 320)
    ]
    # A V-statistic of independent samples is of order 1 / n.
    assert_allclose(means[0] / means[1], 4.0, rtol=0.4)
    assert_allclose(means[1] / means[2], 4.0, rtol=0.4)


def test_weights_recover_the_target_on_all_states():
    rng = np.random.default_rng(0)
    model = IsingModel.grid(2, 3, couplings=rng.normal(size=7), fields=rng.normal(size=6))
    states = np.indices((2,) * 6).reshape(6, -1).T.astype(float)
    p = np.exp(model.log_prob_unnormalized(states) - model.log_partition())
    weights = simplex_weights(stein_gram(states, model, Hamming(2.0)))
    assert_allclose(weights, p, atol=1e-4)


@pytest.mark.parametrize("kernel", [RBF(0.5), InverseMultiquadric()], ids=["rbf", "imq"])
def test_rotations_do_not_matter_for_radial_kernels(kernel):
    field = GaussianMRF.from_moments([1.0, 0.0], [[1.0, 0.3], [0.3, 2.0]])
    X = field.sample(30, random_state=0)
    angle = 0.7
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    turned = GaussianMRF.from_moments(
        rotation @ field.mean_, rotation @ field.covariance_ @ rotation.T
    )
    K = stein_gram(X, field, kernel)
    assert_allclose(stein_gram(X @ rotation.T, turned, kernel), K, rtol=1e-8, atol=1e-10)


def test_collapsing_more_lowers_the_discrepancy_of_samples():
    rng = np.random.default_rng(0)
    model = IsingModel.grid(3, 4, couplings=rng.normal(size=17))
    rows = rng.integers(2, size=(50, 12)).astype(float)
    kernel = Hamming(scale=12.0)
    values = [stein_discrepancy(rows, model, kernel, collapse=np.arange(n)) for n in (1, 6, 11, 12)]
    assert values[0] > values[1] > values[2] > values[3]
    assert values[3] == 0.0
