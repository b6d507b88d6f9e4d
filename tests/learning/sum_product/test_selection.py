"""Held-out likelihood of candidate settings."""

import numpy as np

from skcircuits.learning.sum_product._learner import SplitSettings
from skcircuits.learning.sum_product._leaves import LeafSettings, MixedTable
from skcircuits.learning.sum_product._selection import held_out_scores
from skcircuits.learning.univariate._columns import describe_column


def make_table(X, weights):
    columns = tuple(describe_column(j, X[:, j], weights, 0) for j in range(X.shape[1]))
    return MixedTable(X, weights, columns)


def test_dependence_wins_where_there_is_some():
    rng = np.random.default_rng(0)
    x = rng.normal(size=300)
    dependent = np.column_stack([x, x + 0.1 * rng.normal(size=300)])
    independent = rng.normal(size=(300, 2))
    candidates = [(SplitSettings(alpha), LeafSettings()) for alpha in (0.0, 1.0)]
    gains = []
    for X in (dependent, independent):
        scores = held_out_scores(make_table(X, np.ones(300)), candidates, 3, rng)
        gains.append(scores[1] - scores[0])
    assert gains[0] > 0.5
    assert gains[1] < 0.0


def test_rows_of_weight_zero_count_nowhere():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(40, 2))
    weights = np.r_[np.ones(30), np.zeros(10)]
    other = np.where(weights[:, None] > 0, X, 1e6)
    candidates = [(SplitSettings(), LeafSettings())]
    one, two = (
        held_out_scores(make_table(table, weights), candidates, 3, np.random.default_rng(0))
        for table in (X, other)
    )
    np.testing.assert_array_equal(one, two)
