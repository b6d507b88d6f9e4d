"""Independence tests against scipy, under the null and under dependence."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency, kstest, spearmanr

from skcircuits.learning._columns import rank_fractions
from skcircuits.learning._sum_product import (
    g_test,
    random_features_test,
    rank_correlation_test,
    rank_levels,
)


def test_g_test_agrees_with_scipy():
    rng = np.random.default_rng(0)
    levels = rng.integers(0, [3, 4, 2], size=(200, 3)).astype(float)
    levels[rng.random(levels.shape) < 0.1] = np.nan
    p_values = g_test(levels, np.ones(200))
    for i, j in [(0, 1), (0, 2), (1, 2)]:
        both = levels[~np.isnan(levels[:, [i, j]]).any(axis=1)][:, [i, j]].astype(int)
        table = np.zeros((both[:, 0].max() + 1, both[:, 1].max() + 1))
        np.add.at(table, tuple(both.T), 1)
        expected = chi2_contingency(table, correction=False, lambda_="log-likelihood").pvalue
        assert p_values[i, j] == pytest.approx(expected, rel=1e-9)
    np.testing.assert_allclose(p_values, p_values.T, rtol=1e-9)


def test_freedom_counts_observed_levels_only():
    # Level 2 of the first column occurs only where the second is missing
    levels = np.array([[0, 0], [0, 1], [1, 0], [1, 1], [2, np.nan]] * 8, dtype=float)
    without = levels[~np.isnan(levels).any(axis=1)]
    assert g_test(levels, np.ones(40))[0, 1] == pytest.approx(g_test(without, np.ones(32))[0, 1])


def test_constant_and_empty_columns_are_independent():
    levels = np.column_stack([np.zeros(9), np.arange(9) % 3, np.full(9, np.nan)]).astype(float)
    np.testing.assert_array_equal(g_test(levels, np.ones(9)), 1.0)
    fractions = levels.copy()
    p_values = random_features_test(
        fractions, np.array([True, True, True]), np.ones(9), np.random.default_rng(0)
    )
    np.testing.assert_array_equal(p_values, 1.0)


def test_weights_are_numbers_of_rows():
    rng = np.random.default_rng(1)
    levels = rng.integers(0, 3, size=(50, 2)).astype(float)
    weights = rng.integers(0, 4, size=50)
    repeated = np.repeat(levels, weights, axis=0)
    np.testing.assert_allclose(
        g_test(levels, weights.astype(float)), g_test(repeated, np.ones(len(repeated)))
    )


@pytest.mark.parametrize("test", ["g", "rdc"])
def test_p_values_are_uniform_under_independence(test):
    rng = np.random.default_rng(2)
    p_values = []
    for _ in range(150):
        columns = rng.normal(size=(2, 300))
        fractions = np.column_stack([rank_fractions(column, np.ones(300)) for column in columns])
        if test == "g":
            levels = np.column_stack([rank_levels(column) for column in fractions.T])
            p_values.append(g_test(levels, np.ones(300))[0, 1])
        else:
            categories = np.zeros(2, dtype=bool)
            p_values.append(random_features_test(fractions, categories, np.ones(300), rng)[0, 1])
    assert kstest(p_values, "uniform").pvalue > 1e-3


def test_rank_test_finds_dependence_without_correlation():
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, size=400)
    category = (np.abs(x) > 0.5).astype(float)
    y = x**2 + 0.1 * rng.normal(size=400)
    y[::7] = np.nan
    fractions = np.column_stack(
        [rank_fractions(x, np.ones(400)), rank_fractions(y, np.ones(400)), category]
    )
    p_values = random_features_test(fractions, np.array([False, False, True]), np.ones(400), rng)
    assert p_values[0, 1] < 1e-10 and p_values[0, 2] < 1e-10


def test_ranks_share_ties_and_keep_few_values_apart():
    fractions = rank_fractions(np.array([3.0, 1.0, 3.0, np.nan]), np.array([1.0, 2.0, 1.0, 5.0]))
    np.testing.assert_allclose(fractions, [0.75, 0.25, 0.75, np.nan])
    np.testing.assert_array_equal(rank_levels(fractions), [1, 0, 1, np.nan])
    levels = rank_levels(rank_fractions(np.arange(30.0), np.ones(30)))
    np.testing.assert_array_equal(np.bincount(levels.astype(int)), [10, 10, 10])


def test_rank_correlation_agrees_with_scipy():
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    numbers = np.column_stack([x, np.exp(0.15 * x + rng.normal(size=200)), np.round(-x)])
    ones = np.ones(200)
    fractions = np.column_stack([rank_fractions(column, ones) for column in numbers.T])
    p_values = rank_correlation_test(fractions, ones)
    expected = spearmanr(numbers).pvalue
    assert p_values[0, 1] == pytest.approx(expected[0, 1], rel=0.1)
    assert p_values[0, 2] < 1e-50
    np.testing.assert_array_equal(p_values, p_values.T)
    np.testing.assert_array_equal(np.diag(p_values), 1.0)


def test_rank_correlation_leaves_out_missing_cells_and_constant_columns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=60)
    weights = np.ones(60)
    pair = np.column_stack([rank_fractions(x, weights), rank_fractions(x**3, weights)])
    incomplete = pair.copy()
    incomplete[30:, 0] = np.nan
    complete = rank_correlation_test(pair[:30], np.ones(30))
    np.testing.assert_allclose(rank_correlation_test(incomplete, weights), complete, rtol=1e-6)
    constant = np.column_stack([pair[:, 0], np.full(60, 0.5), np.full(60, np.nan)])
    np.testing.assert_array_equal(rank_correlation_test(constant, weights), 1.0)
