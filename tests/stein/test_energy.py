"""Stein's identity for the energy, against enumeration."""

from itertools import product

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import FactorGraph, IsingModel
from skcircuits.stein.simplex import DenseForm, energy_residuals, scaled_features


def states_and_probabilities(graph, columns):
    """All states of some columns, NaN elsewhere, and their probabilities."""
    states = np.full((np.prod(graph.cardinalities[columns]), len(graph.cardinalities)), np.nan)
    states[:, columns] = list(product(*(range(k) for k in graph.cardinalities[columns])))
    return states, np.exp(graph.log_prob_unnormalized(states) - graph.log_partition())


def random_graph(zeros=0.0):
    rng = np.random.default_rng(0)
    cardinalities = [3, 2, 4, 1, 2]
    factors = []
    for scope in ((0, 1), (1, 2, 3), (2, 4), (0, 4)):
        table = rng.exponential(size=[cardinalities[v] for v in scope])
        table[rng.random(table.shape) < zeros] = 0.0
        factors.append((scope, table))
    return FactorGraph(factors, cardinalities)


@pytest.mark.parametrize("zeros", [0.0, 0.2])
@pytest.mark.parametrize("columns", [[0, 1, 2, 3, 4], [0, 2, 3], [4]])
def test_mean_under_the_target_is_zero(columns, zeros):
    graph = random_graph(zeros)
    states, p = states_and_probabilities(graph, columns)
    states, p = states[p > 0], p[p > 0]
    residuals = energy_residuals(graph, states)
    assert np.isfinite(residuals).all()
    assert np.abs(residuals).max() > 0.1
    assert_allclose(p @ residuals, 0.0, atol=1e-13)


def test_it_is_the_barker_operator_of_the_log_probability():
    graph = random_graph()
    rng = np.random.default_rng(1)
    for row in rng.integers(graph.cardinalities, size=(5, 5)).astype(float):
        here = graph.log_prob_unnormalized([row])[0]
        expected = 0.0
        for variable, n_states in enumerate(graph.cardinalities):
            for state in range(n_states):
                moved = row.copy()
                moved[variable] = state
                gain = graph.log_prob_unnormalized([moved])[0] - here
                expected += gain / (1.0 + np.exp(-gain))
        assert_allclose(energy_residuals(graph, row[None]), [expected], rtol=1e-12)


def test_rows_may_collapse_variables_of_their_own():
    graph = random_graph()
    rows = np.array([[0, 1, 2, 0, 1], [np.nan, 1, 2, 0, 1], [0, np.nan, 2, 0, np.nan]])
    together = energy_residuals(graph, rows)
    alone = [energy_residuals(graph, row[None])[0] for row in rows]
    assert_allclose(together, alone, rtol=1e-12)


def test_modes_have_negative_residuals():
    model = IsingModel.grid(3, 3, couplings=1.0)
    rows = np.array([np.zeros(9), np.arange(9) % 2])
    mode, rough = energy_residuals(model, rows)
    assert mode < 0 < rough


def test_steep_targets_do_not_overflow():
    model = IsingModel.grid(2, 2, couplings=500.0)
    rows = np.array([[0.0, 0, 0, 0], [0, 1, 1, 0]])
    assert_allclose(energy_residuals(model, rows), [0.0, 8000.0])


def test_form_gains_one_dimension_on_the_scale_of_its_diagonal():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(6, 4))
    K, residuals, counts = factor @ factor.T, rng.normal(size=6), np.array([1, 2, 1, 3, 1, 1])
    features = scaled_features(K.diagonal(), residuals, counts)
    added = DenseForm(K).with_features(features).K - K
    assert np.linalg.matrix_rank(added) == 1
    assert_allclose(counts @ added.diagonal(), 0.01 * (counts @ K.diagonal()))
    assert_allclose(added / np.outer(residuals, residuals), added[0, 0] / residuals[0] ** 2)
    # A flat target has no energy to speak of.
    assert scaled_features(K.diagonal(), np.zeros(6), counts) is None
