"""Kernel densities beside sums over all pairs of rows."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from skcircuits import AutomaticDensity, CircuitImputer, GaussianMixtureDensity
from skcircuits.learning.gaussian_mixture._candidates import KERNELS as CANDIDATE
from skcircuits.learning.gaussian_mixture._candidates import learn_pool
from skcircuits.learning.gaussian_mixture._categories import KERNEL_STEPS, KernelGaussians
from skcircuits.learning.gaussian_mixture._learner import EMSettings, learn_gaussian_mixture
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._gaussian_stack import GaussianStack, complete_rows
from skcircuits.numerics._patterns import group_patterns

KERNELS = EMSettings("tied", by_rows=True, tol=0.0, max_iter=40)


def curved(n_rows=60, seed=0):
    """A parabola, noise of its own, and a category that follows the first column."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_rows)
    X = np.column_stack([x, x**2 + 0.2 * rng.normal(size=n_rows), rng.normal(size=n_rows), x > 0])
    X[rng.random(X.shape) < 0.2] = np.nan
    return X[~np.isnan(X).all(axis=1)]


@pytest.fixture(scope="module")
def table():
    return MixtureTable.prepare(curved(), np.array([0, 0, 0, 2]))


def states(table):
    return list(learn_gaussian_mixture(table, 0, KERNELS, np.random.default_rng(0)))


def test_scatter_is_around_the_rows(table):
    rng = np.random.default_rng(1)
    root = rng.normal(size=(3, 3))
    rows = rng.normal(size=(20, 3))
    stack = GaussianStack(rows, (root @ root.T + np.eye(3))[None], np.zeros(20, np.intp))
    jitter = np.array([0.0, 0.1, 0.0])
    gaussians = replace(KernelGaussians.around(rows, np.ones(20), np.eye(3), jitter), stack=stack)
    groups = group_patterns(np.isnan(table.numbers))
    completed = complete_rows(stack, table.numbers)
    weights = rng.random((20, len(table.weights)))
    expected = np.diag((weights.sum(axis=0) @ ~np.isnan(table.numbers)) * jitter)
    for k, i in np.ndindex(weights.shape):
        offset = completed.means[:, k, i] - rows[k]
        spread = completed.covariances[:, :, k, completed.pattern[i]]
        expected += weights[k, i] * (np.outer(offset, offset) + spread)
    means, scatter = gaussians._scatter(gaussians.expect(table.numbers, groups).sums(weights))
    np.testing.assert_array_equal(means, rows)
    np.testing.assert_allclose(scatter, expected, atol=1e-10)


def test_no_row_explains_itself(table):
    *_, before, after = states(table)
    covariance = before.gaussians.stack.distinct_covariances[0]
    tables = before.categories.log_probabilities[0]
    total = 0.0
    for i, (numbers, codes) in enumerate(zip(table.numbers, table.codes, strict=True)):
        seen = np.flatnonzero(~np.isnan(numbers))
        densities = np.exp(tables[:, codes[0]]) if codes[0] >= 0 else np.ones(len(tables))
        if len(seen):
            own = covariance[np.ix_(seen, seen)]
            offsets = numbers[seen] - before.gaussians.stack.means[:, seen]
            densities = densities * multivariate_normal(np.zeros(len(seen)), own).pdf(offsets)
        total += np.log((np.delete(densities, i) * np.delete(before.weights, i)).sum())
    assert after.log_likelihood == pytest.approx(total - table.log_scale)


def test_iterations_never_lose_once_the_prior_is_learned(table):
    bounds = [state.lower_bound for state in states(table)][26:]
    assert len(bounds) > 3
    assert (np.diff(bounds) > -1e-10).all()


def test_few_iterations_arrive_at_a_narrow_bandwidth():
    rng = np.random.default_rng(0)
    angles = 6.0 * rng.random(200)
    helix = np.column_stack([np.cos(angles), np.sin(angles), angles])
    numbers = helix + 0.02 * rng.normal(size=helix.shape)
    bounds = [s.lower_bound for s in states(MixtureTable.prepare(numbers, np.zeros(3, np.intp)))]
    # More than 60 from a start as wide as the table, or by steps of expectation maximisation
    assert bounds[-1] - bounds[KERNEL_STEPS] < 1.0


def test_copies_of_a_row_explain_one_another():
    X = curved(30)
    cardinalities = np.array([0, 0, 0, 2])
    twice = MixtureTable.prepare(np.vstack([X, X]), cardinalities)
    weighted = MixtureTable.prepare(X, cardinalities, np.full(len(X), 2.0))
    *_, one = states(twice)
    *_, other = states(weighted)
    assert one.log_likelihood == pytest.approx(other.log_likelihood)
    *_, single = states(MixtureTable.prepare(X, cardinalities))
    assert one.log_likelihood > 2.0 * single.log_likelihood


@pytest.mark.parametrize("X", [np.arange(3.0)[None], np.ones((20, 2))], ids=["row", "constant"])
def test_a_single_row_that_no_other_explains_is_learned_without_a_warning(X):
    density = GaussianMixtureDensity(n_components="rows", random_state=0).fit(X)
    assert density.converged_
    np.testing.assert_allclose(
        density.circuit_.expectation(np.full((1, X.shape[1]), np.nan)), X[:1]
    )


def test_a_fit_to_some_of_the_rows_is_where_others_start():
    cardinalities = np.array([0, 0, 0, 2])
    table = MixtureTable.prepare(curved(120), cardinalities)
    part = table.take(np.arange(80))
    settings = EMSettings(tol=0.0, max_iter=40)
    *_, (fit,) = learn_pool(part, {CANDIDATE: 1}, settings, np.random.default_rng(0))
    one = replace(settings, max_iter=1)
    found = {
        name: list(learn_pool(table, {CANDIDATE: 1}, one, np.random.default_rng(0), fits))
        for name, fits in (("afresh", None), ("started", {CANDIDATE: fit}))
    }
    *_, (best,) = learn_pool(table, {CANDIDATE: 1}, settings, np.random.default_rng(0))
    loss = {name: best.log_likelihood - state.log_likelihood for name, [[state]] in found.items()}
    assert loss["started"] < 0.2 * loss["afresh"]
    assert found["started"][0][0].n_components == len(table.weights)


def test_some_rows_tell_the_bandwidth_of_many(monkeypatch):
    table = MixtureTable.prepare(curved(800), np.array([0, 0, 0, 2]))
    *_, some = states(table)
    monkeypatch.setattr("skcircuits.learning.gaussian_mixture._learner._BANDWIDTH_ROWS", 800)
    *_, many = states(table)
    assert some.n_components == many.n_components == len(table.weights)
    covariances = [np.diag(own.gaussians.stack.distinct_covariances[0]) for own in (some, many)]
    np.testing.assert_allclose(*covariances, rtol=0.3)
    np.testing.assert_allclose(some.categories.chances, many.categories.chances, atol=0.05)
    # Statistics are of as many rows, so that further batches do not count more than these
    assert some.total_weight == pytest.approx(table.total_weight)
    assert some.sums[0][0].sum() == pytest.approx(table.total_weight)
    per_row = (some.log_likelihood - many.log_likelihood) / table.total_weight
    assert abs(per_row) < 0.2


def test_it_follows_a_bend_that_one_component_misses():
    X, held_out = curved(200), curved(200, seed=1)
    density = GaussianMixtureDensity(n_components="rows", random_state=0).fit(X)
    assert density.n_components_ == len(X)
    assert density.selection_[0]["n_components"] == "rows"
    single = GaussianMixtureDensity(n_components=1, random_state=0).fit(X)
    assert density.score(held_out) > single.score(held_out) + 0.2


def test_what_rows_cannot_be_is_refused(monkeypatch):
    with pytest.raises(ValueError, match="one covariance for all components"):
        GaussianMixtureDensity(n_components="rows", covariance_type="full").fit(curved())
    monkeypatch.setattr("skcircuits.estimators.gaussian_mixture.MAX_KERNEL_ROWS", 20)
    with pytest.raises(ValueError, match="at most 20 different rows"):
        GaussianMixtureDensity(n_components="rows").fit(curved())


def test_they_are_tried_where_cells_are_asked_for():
    density = AutomaticDensity(families=["gaussian_mixture"], selection="cells", random_state=0)
    report = density.fit(curved(100)).selection_
    assert "rows" in [row["n_components"] for row in report]


def test_they_predict_a_class_on_a_curved_surface():
    rng = np.random.default_rng(0)
    hidden = rng.uniform(-1.5, 1.5, (1200, 2))
    waves = np.sin(2.0 * hidden @ rng.normal(size=(2, 10))) + 0.05 * rng.normal(size=(1200, 10))
    X = np.column_stack([waves, np.square(hidden).sum(axis=1) < 1.5])
    masked = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    masked[800:, 10] = np.nan
    imputer = CircuitImputer(categorical_features=[10], random_state=0).fit(masked[:800])
    chosen = imputer.density_.selection_
    assert "rows" in [row["n_components"] for row in chosen if row["weight"] > 0.1]
    # .155 without kernels, .105 with them
    assert np.mean(imputer.transform(masked[800:])[:, 10] != X[800:, 10]) < 0.13


def test_copies_of_measured_rows_are_no_evidence_for_a_narrow_kernel():
    X, held_out = curved(150), curved(150, seed=1)
    density = GaussianMixtureDensity(n_components="rows", random_state=0)
    once = density.fit(X).score(held_out)
    repeated = density.fit(np.tile(X, (3, 1))).score(held_out)
    heavy = density.fit(X, sample_weight=np.linspace(2.0, 30.0, len(X))).score(held_out)
    # With copies left in, both are below -1e5
    assert repeated > once - 0.1 and heavy > once - 0.3
