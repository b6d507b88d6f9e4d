import numpy as np
import pytest

from skcircuits import CircuitImputer
from skcircuits.learning.gaussian_mixture._candidates import (
    Candidate,
    CandidateSpace,
    Comparison,
    choose_pool,
    is_wide,
    try_candidate,
)
from skcircuits.learning.gaussian_mixture._learner import EMSettings, go_on
from skcircuits.learning.gaussian_mixture._table import MixtureTable


def table_of(n_rows, n_columns, fraction_missing=0.0):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_columns))
    X[rng.random(X.shape) < fraction_missing] = np.nan
    return MixtureTable.prepare(X, np.zeros(n_columns, dtype=int))


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "fraction_missing", "expected"),
    [
        (3000, 40, 0.3, False),
        (300, 60, 0.3, False),
        (1000, 100, 0.0, False),
        (5000, 100, 0.3, True),
        (100, 300, 0.3, True),
    ],
)
def test_dense_covariances_are_tried_where_they_take_little_work(
    n_rows, n_columns, fraction_missing, expected
):
    assert is_wide(table_of(n_rows, n_columns, fraction_missing)) is expected


def test_clusters_of_many_columns_are_imputed_by_covariances_of_their_own():
    rng = np.random.default_rng(0)
    centers, loadings = rng.normal(size=(4, 45)), rng.normal(size=(4, 45, 5))
    cluster = rng.integers(4, size=700)
    factors = rng.normal(size=(700, 5))
    X = centers[cluster] + np.einsum("nde,ne->nd", loadings[cluster], factors)
    X += 0.3 * rng.normal(size=X.shape)
    test = X[400:]
    is_hidden = rng.random(test.shape) < 0.3
    imputed = (
        CircuitImputer(random_state=0).fit(X[:400]).transform(np.where(is_hidden, np.nan, test))
    )
    # .56 of the standard deviation with eight factors, which are the same in all clusters
    error = np.sqrt(np.mean(np.square(imputed - test)[is_hidden]))
    assert error < 0.3 * X.std()


def test_many_factors_of_wide_tables_must_be_better_than_a_dense_covariance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2500, 100))
    for j in range(1, 100):
        X[:, j] = 0.8 * X[:, j - 1] + 0.6 * X[:, j]
    X[rng.random(X.shape) < 0.3] = np.nan
    table = MixtureTable.prepare(X, np.zeros(100, dtype=int))
    assert is_wide(table)
    comparison = Comparison(table, "cells", EMSettings(), 0)
    assert choose_pool(table, CandidateSpace(), comparison) == {Candidate("tied", 0, 1): 1}
    assert max(candidate.n_factors for candidate in comparison.candidates) == 32


def test_full_covariances_that_go_on_from_some_rows_are_drawn_towards_that_of_all_rows():
    table, candidate = table_of(300, 30), Candidate("full", 0, 2)
    some = try_candidate(table.take(np.arange(100)), candidate, EMSettings(), 0)
    assert some.gaussians.strength > 300.0
    state = try_candidate(table, candidate, EMSettings(), 0, begun=go_on(some))
    afresh = try_candidate(table, candidate, EMSettings(), 0)
    np.testing.assert_allclose(state.gaussians.target, afresh.gaussians.target, rtol=1e-6)
    # .12 nats per row less if the target is that of the first rows
    assert state.log_likelihood > afresh.log_likelihood - 0.03 * 300
