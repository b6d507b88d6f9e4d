import numpy as np
import pytest

from skcircuits import AutomaticDensity, GaussianMixtureDensity
from skcircuits.estimators.automatic._misfit import _below, are_misfit
from skcircuits.learning.gaussian_mixture._candidates import Candidate, try_candidate
from skcircuits.learning.gaussian_mixture._learner import EMSettings
from skcircuits.learning.gaussian_mixture._table import MixtureTable


def prepared(X):
    return MixtureTable.prepare(X, np.zeros(X.shape[1], dtype=np.int64))


def fitted(table, *candidate):
    return try_candidate(table, Candidate(*candidate), EMSettings(), 0)


@pytest.mark.parametrize("candidate", [("full", 0, 2), ("tied", 0, 2), ("factor", 1, 2)])
def test_states_and_circuits_have_the_same_marginals(candidate):
    X = np.random.default_rng(0).gamma(2.0, size=(60, 3)) * [1.0, 20.0, 0.1]
    shape, n_factors, n_components = candidate
    factors = {"n_factors": n_factors} if n_factors else {}
    density = GaussianMixtureDensity(
        covariance_type=shape, n_components=n_components, random_state=0, **factors
    ).fit(X)
    (state,) = density._states
    limits = np.quantile(X, [0.1, 0.5, 0.8], axis=0).T
    asked = [
        [density.probability({j: (None, limit)}) for limit in own]
        for j, own in enumerate(limits.tolist())
    ]
    for fit in (state, density):
        np.testing.assert_allclose(_below(fit, prepared(X), np.arange(3), limits), asked)


def test_a_normal_column_is_fitted_by_a_normal_distribution_and_a_uniform_one_is_not():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=500), rng.random(500), rng.normal(size=500)])
    X[::7, 0] = np.nan
    X[:, 2] = np.nan  # nothing is known about it
    for kept, expected in (([0, 2], False), ([0, 1, 2], True)):
        table = prepared(X[:, kept])
        state = fitted(table, "tied", 0, 1)
        assert are_misfit([(state, 1.0)], table, X[:, kept], 500) is expected


def test_weights_count():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1)) + 5.0 * (rng.random((400, 1)) < 0.5)
    table = prepared(X)
    single, two = fitted(table, "tied", 0, 1), fitted(table, "full", 0, 2)
    assert are_misfit([(single, 0.9), (two, 0.1)], table, X, 400)
    assert not are_misfit([(single, 0.1), (two, 0.9)], table, X, 400)


def largest_errors(table, n_columns):
    density = AutomaticDensity(random_state=0).fit(table)
    levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
    queries = [
        {j: (None, limit)}
        for j in range(n_columns)
        for limit in np.quantile(table[:, j], levels).tolist()
    ]
    found = density.probabilities(queries).reshape(n_columns, -1)
    return np.abs(found - levels).max(axis=1), density


def test_skewed_columns_without_categories():
    rng = np.random.default_rng(0)
    z = rng.normal(size=(600, 2)) @ [[1.0, 0.5, 0.3], [0.0, 0.8, 0.5]]
    errors, density = largest_errors(np.exp(z + 0.4 * rng.normal(size=(600, 3))), 3)
    assert density.selection_[0]["transformation"] == "johnson"
    assert errors.max() < 0.03


def test_other_families_are_tried_where_gaussian_mixtures_do_not_suit():
    rng = np.random.default_rng(0)
    errors, density = largest_errors(rng.random((600, 3)), 3)
    assert density.selection_[0]["family"] != "gaussian_mixture"
    assert errors.max() < 0.03
    few = AutomaticDensity(families=["gaussian_mixture"], random_state=0).fit(rng.random((200, 2)))
    assert {row["family"] for row in few.selection_} == {"gaussian_mixture"}


def test_normal_tables_get_no_further_candidates():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4)) @ rng.normal(size=(4, 4))
    density = AutomaticDensity(random_state=0).fit(X)
    assert all("transformation" not in row for row in density.selection_)
    assert {row["n_components"] for row in density.selection_ if row["weight"]} == {1}


def test_skewed_columns_of_large_tables(monkeypatch):
    monkeypatch.setattr("skcircuits.learning.gaussian_mixture._candidates._POOL_CELLS", 100)
    rng = np.random.default_rng(0)
    errors, density = largest_errors(np.exp(rng.normal(size=(600, 2))), 2)
    assert density.selection_[0]["transformation"] == "johnson"
    assert errors.max() < 0.03
