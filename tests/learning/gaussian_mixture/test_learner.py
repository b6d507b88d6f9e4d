import tracemalloc
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal
from sklearn.covariance import EmpiricalCovariance
from sklearn.decomposition import FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from skcircuits import GaussianMixtureDensity
from skcircuits.learning.gaussian_mixture._candidates import (
    Candidate,
    CandidateSpace,
    Comparison,
    choose_pool,
    learn_pool,
    try_candidate,
)
from skcircuits.learning.gaussian_mixture._categories import Categories
from skcircuits.learning.gaussian_mixture._factor_gaussians import FactorGaussians
from skcircuits.learning.gaussian_mixture._full_gaussians import (
    FullExpectation,
    FullGaussians,
    TiedExpectation,
)
from skcircuits.learning.gaussian_mixture._held_out import HeldOutCells
from skcircuits.learning.gaussian_mixture._learner import (
    EMSettings,
    MixtureState,
    _expect,
    cluster_rows,
    learn_gaussian_mixture,
)
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._gaussian_stack import GaussianStack, center_rows
from skcircuits.numerics._patterns import group_patterns, joined_groups

NUMBERS = np.zeros(4, dtype=np.int64)


def three_groups(n_rows=600, fraction=0.3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 4)) @ (np.eye(4) + 0.3 * rng.normal(size=(4, 4)))
    X[: n_rows // 3] += [8.0, 0.0, -8.0, 0.0]
    X[n_rows // 3 : n_rows // 2] -= [8.0, 8.0, 0.0, 0.0]
    X[rng.random(X.shape) < fraction] = np.nan
    return X


def mixed_table(n_rows=400, seed=0):
    """Two groups in a number and two categorical columns."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n_rows)
    X = np.column_stack(
        [6.0 * group + rng.normal(size=n_rows), group, rng.integers(0, 3, n_rows)]
    ).astype(float)
    X[:, 1] = np.where(rng.random(n_rows) < 0.1, 1 - X[:, 1], X[:, 1])
    X[rng.random(X.shape) < 0.2] = np.nan
    return X, np.array([0, 2, 3])


TYPES = ["full", "shrunk", "tied", "factor", "diag"]


def moments(table, state):
    """Means and dense covariances of the components, in the units of the table."""
    means, *others = state.gaussians.in_units(table.location, table.scale)
    if len(others) == 1:
        return means, others[0]
    loadings, noise = others
    return means, loadings @ loadings.transpose(0, 2, 1) + noise[:, :, None] * np.eye(
        means.shape[1]
    )


def last_state(X, n_components, cardinalities=NUMBERS, sample_weight=None, **settings):
    table = MixtureTable.prepare(X, cardinalities, sample_weight)
    *_, state = learn_gaussian_mixture(
        table, n_components, EMSettings(**settings), np.random.default_rng(0)
    )
    return table, state


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("n_components", [1, 3])
def test_the_lower_bound_never_falls(covariance_type, n_components):
    table = MixtureTable.prepare(three_groups(), NUMBERS)
    settings = EMSettings(covariance_type=covariance_type, tol=1e-9, max_iter=60)
    states = list(learn_gaussian_mixture(table, n_components, settings, np.random.default_rng(0)))
    # the prior is learned in the first iterations
    bounds = np.array([state.lower_bound for state in states])[26:]
    assert (np.diff(bounds) > -1e-12).all()
    assert (np.diff([state.n_iter for state in states]) == 1).all()


def test_the_lower_bound_never_falls_on_mixed_tables():
    X, cardinalities = mixed_table()
    table = MixtureTable.prepare(X, cardinalities)
    for covariance_type in TYPES:
        settings = EMSettings(covariance_type=covariance_type, tol=1e-9, max_iter=60)
        states = list(learn_gaussian_mixture(table, 3, settings, np.random.default_rng(0)))
        assert (np.diff([state.lower_bound for state in states])[16:] > -1e-12).all()


def test_the_log_likelihood_is_that_of_the_observed_cells():
    X = three_groups(80)
    table, state = last_state(X, 2, tol=1e-12, max_iter=2000)
    means, covariances = moments(table, state)
    total = 0.0
    for x in X:
        seen = ~np.isnan(x)
        if seen.any():
            total += np.log(
                sum(
                    weight * multivariate_normal(mean[seen], cov[np.ix_(seen, seen)]).pdf(x[seen])
                    for weight, mean, cov in zip(state.weights, means, covariances, strict=True)
                )
            )
    np.testing.assert_allclose(state.log_likelihood, total, rtol=1e-6)


def test_a_complete_table_and_one_component_have_closed_form_moments():
    X = three_groups(fraction=0.0)
    table, state = last_state(X, 1)
    means, covariances = moments(table, state)
    np.testing.assert_allclose(means[0], X.mean(axis=0), atol=1e-10)
    # drawn towards the diagonal by as many rows as the table says
    strength = state.gaussians.strength
    expected = np.cov(X.T, bias=True)
    expected *= np.where(np.eye(4) == 1.0, 1.0, len(X) / (len(X) + strength))
    assert strength < 20.0
    np.testing.assert_allclose(covariances[0], expected, rtol=1e-3, atol=1e-3)
    assert state.at_optimum


def test_complete_tables_agree_with_scikit_learn():
    X = three_groups(fraction=0.0)
    _, state = last_state(X, 3, pseudo_count=1e-6, tol=1e-8)
    peer = GaussianMixture(3, n_init=5, tol=1e-8, max_iter=500, random_state=0).fit(X)
    np.testing.assert_allclose(state.log_likelihood / len(X), peer.score(X), atol=0.01)
    np.testing.assert_allclose(np.sort(state.weights), np.sort(peer.weights_), atol=0.01)
    assert abs(state.bic(len(X)) - peer.bic(X)) < 10.0


def test_a_regression_is_learned_through_missing_values():
    rng = np.random.default_rng(0)
    x = rng.normal(size=4000)
    X = np.column_stack([x, 2.0 * x + 0.5 * rng.normal(size=4000)])
    # missing at random given the first column: means of the observed cells are biased
    X[(x > 0.0) & (rng.random(4000) < 0.8), 1] = np.nan
    table, state = last_state(X, 1, NUMBERS[:2], tol=1e-9)
    means, covariances = moments(table, state)
    np.testing.assert_allclose(means[0], [0.0, 0.0], atol=0.1)
    np.testing.assert_allclose(covariances[0], [[1.0, 2.0], [2.0, 4.25]], atol=0.25)
    assert np.nanmean(X[:, 1]) < -0.5


def test_categories_are_factors_of_the_components():
    X, cardinalities = mixed_table(2000)
    table, state = last_state(X, 2, cardinalities, tol=1e-7)
    order = np.argsort(state.gaussians.in_units(table.location, table.scale)[0][:, 0])
    signal, noise = (np.exp(values)[order] for values in state.categories.log_probabilities)
    np.testing.assert_allclose(signal, [[0.9, 0.1], [0.1, 0.9]], atol=0.04)
    np.testing.assert_allclose(noise, 1.0 / 3.0, atol=0.06)


def test_a_table_of_labels_only():
    X = np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, np.nan]] * 20)
    for covariance_type in ["full", "tied", "diag"]:
        _, state = last_state(X, 2, np.array([2, 3]), covariance_type=covariance_type)
        np.testing.assert_allclose(np.sort(state.weights), 0.5, atol=0.05)
        for values in state.categories.log_probabilities:
            assert np.isfinite(values).all()  # the third label of column 1 was never seen


@pytest.mark.parametrize("covariance_type", TYPES)
def test_degenerate_tables_give_proper_mixtures(covariance_type):
    rng = np.random.default_rng(0)
    constant = np.column_stack([np.full(50, 3.0), rng.normal(size=50), np.full(50, np.nan)])
    tables = [
        constant,
        constant[:1],
        np.full((5, 3), np.nan),
        np.repeat(rng.normal(size=(2, 3)), 20, axis=0),
        1e12 * rng.normal(size=(30, 3)),
        1e-12 * rng.normal(size=(30, 3)),
    ]
    for X in tables:
        for n_components in [1, 3]:
            table, state = last_state(X, n_components, NUMBERS[:3], covariance_type=covariance_type)
            means, covariances = moments(table, state)
            assert np.isfinite(means).all() and np.isfinite(state.lower_bound)
            np.testing.assert_allclose(state.weights.sum(), 1.0)
            assert (np.linalg.eigvalsh(covariances) > 0).all()


@pytest.mark.parametrize("covariance_type", TYPES)
def test_a_column_without_cells_is_standard_normal(covariance_type):
    X = np.column_stack([np.arange(20.0), np.full(20, np.nan)])
    table, state = last_state(X, 1, NUMBERS[:2], covariance_type=covariance_type)
    means, covariances = moments(table, state)
    np.testing.assert_allclose(means[0, 1], 0.0, atol=1e-12)
    np.testing.assert_allclose(covariances[0, 1], [0.0, 1.0], atol=1e-12)


def test_weights_equal_repeated_rows_in_any_order():
    X = three_groups(120)
    counts = np.random.default_rng(1).integers(0, 4, len(X))
    repeated = np.random.default_rng(2).permutation(np.repeat(X, counts, axis=0))
    _, weighted = last_state(X, 3, sample_weight=counts.astype(float))
    _, plain = last_state(repeated, 3)
    np.testing.assert_allclose(weighted.lower_bound, plain.lower_bound, rtol=1e-9)
    np.testing.assert_allclose(
        weighted.gaussians.stack.means, plain.gaussians.stack.means, rtol=1e-6
    )


def test_empty_rows_say_nothing():
    X = three_groups(100)
    padded = np.vstack([X, np.full((50, 4), np.nan)])
    assert last_state(X, 2)[1].log_likelihood == last_state(padded, 2)[1].log_likelihood


def test_units_do_not_matter():
    X, units = three_groups(200), np.array([1e-6, 1.0, 1e6, 10.0])
    _, state = last_state(X, 2)
    _, rescaled = last_state(X * units + 5.0 * units, 2)
    np.testing.assert_allclose(state.weights, rescaled.weights, rtol=1e-6)
    jacobian = (~np.isnan(X)).sum(axis=0) @ np.log(units)
    np.testing.assert_allclose(rescaled.log_likelihood, state.log_likelihood - jacobian, rtol=1e-6)


def test_parameters_are_counted():
    table = MixtureTable.prepare(*mixed_table())
    categories = Categories.marginal(table, 1.0).repeat(2)
    single = FullGaussians.guess(np.eye(4), np.zeros(4))
    assert single.repeat(2, "full", 1.0).n_parameters() == 2 * (4 + 10)
    assert single.repeat(2, "tied", 1.0).n_parameters() == 2 * 4 + 10
    factors = FactorGaussians.single(np.eye(4), 2, np.zeros(4))
    assert factors.repeat(3, "factor", 1.0).n_parameters() == 3 * 4 + (4 * 2 - 1) + 4
    none = FactorGaussians.single(np.eye(4), 0, np.zeros(4))
    assert none.repeat(2, "diag", 1.0).n_parameters() == 2 * 8
    assert categories.n_parameters() == 2 * (1 + 2)


def test_factor_analysis_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2)) @ rng.normal(size=(2, 6)) + rng.uniform(0.5, 1.0, 6) * (
        rng.normal(size=(3000, 6))
    )
    table, state = last_state(
        X, 1, np.zeros(6, int), covariance_type="factor", n_factors=2, tol=1e-9, max_iter=2000
    )
    peer = FactorAnalysis(2, tol=1e-8, max_iter=5000, svd_method="lapack").fit(X)
    np.testing.assert_allclose(moments(table, state)[1][0], peer.get_covariance(), atol=0.02)
    assert state.log_likelihood / len(X) == pytest.approx(peer.score(X), abs=1e-3)


def test_tied_components_agree_with_scikit_learn():
    X = three_groups(fraction=0.0)
    _, state = last_state(X, 3, covariance_type="tied", pseudo_count=1e-6, tol=1e-8)
    peer = GaussianMixture(3, covariance_type="tied", n_init=5, tol=1e-8, random_state=0).fit(X)
    np.testing.assert_allclose(state.log_likelihood / len(X), peer.score(X), atol=0.02)


def test_few_rows_are_drawn_towards_the_diagonal_and_many_are_not():
    rng = np.random.default_rng(0)
    independent = rng.normal(size=(30, 12))
    dependent = independent[:, :1] + 0.1 * rng.normal(size=(3000, 12))[:30]
    strengths = [
        last_state(X, 1, np.zeros(12, int))[1].gaussians.strength for X in (independent, dependent)
    ]
    assert strengths[0] > 20.0 * strengths[1]


def test_few_valued_columns_make_no_narrow_components():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 2, 500), rng.poisson(3.0, 500), rng.normal(size=500)])
    for covariance_type in TYPES:
        table, state = last_state(
            X.astype(float), 6, NUMBERS[:3], covariance_type=covariance_type, tol=1e-6
        )
        variances = np.diagonal(moments(table, state)[1], axis1=1, axis2=2)
        # an integer stands for an interval of length one
        assert (variances[:, :2] > 0.8 / 12).all()


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_joined_patterns_change_no_expectation(covariance_type):
    table, state = last_state(three_groups(300, 0.4), 3, covariance_type=covariance_type)
    missing = np.isnan(table.numbers)
    joined = joined_groups(missing, state.gaussians.n_gaussians)
    assert len(joined) < len(group_patterns(missing))
    weights = np.random.default_rng(0).random((3, len(table.numbers)))
    expected, found = (
        state.gaussians.expect(table.numbers, groups)
        for groups in (group_patterns(missing), joined)
    )
    np.testing.assert_allclose(found.log_density, expected.log_density)
    np.testing.assert_allclose(found.mean_rows(weights), expected.mean_rows(weights))
    for own, other in zip(found.sums(weights), expected.sums(weights), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-12)


@pytest.mark.parametrize(("n_components", "n_columns"), [(5, 3), (40, 6), (13, 13)])
def test_maps_of_patterns_complete_rows_as_each_component_does(n_components, n_columns):
    rng = np.random.default_rng(0)
    X = 1.0 + 2.0 * rng.normal(size=(150, n_columns))
    X[50:][rng.random((100, n_columns)) < 0.4] = np.nan
    root = rng.normal(size=(n_columns, n_columns))
    stack = GaussianStack(
        rng.normal(size=(n_components, n_columns)),
        (root @ root.T + 0.1 * np.eye(n_columns))[None],
        np.zeros(n_components, np.intp),
    )
    jitter = np.linspace(0.0, 0.1, n_columns)
    gaussians = FullGaussians(stack, "tied", np.eye(n_columns), 1.0, 1.0, jitter)
    groups = joined_groups(np.isnan(X), gaussians.n_gaussians)
    found = TiedExpectation.of_gaussians(gaussians, X, groups)
    expected = FullExpectation(gaussians, *center_rows(stack, X, groups), ~np.isnan(X))
    weights = rng.random((n_components, len(X)))
    np.testing.assert_allclose(found.log_density, expected.log_density, rtol=1e-10)
    np.testing.assert_allclose(found.mean_rows(weights), expected.mean_rows(weights), rtol=1e-10)
    for ask in (lambda own: own.sums(weights), lambda own: own.moments()):
        for own, other in zip(ask(found), ask(expected), strict=True):
            np.testing.assert_allclose(own, other, rtol=1e-10, atol=1e-10)


def test_log_densities_of_components_far_from_each_other_are_exact():
    rng = np.random.default_rng(0)
    means = rng.normal(size=(6, 3))
    means[0, 1] = 1e6
    covariance = np.array([[1.0, 0.0, 0.999999], [0.0, 1.0, 0.0], [0.999999, 0.0, 1.0]])
    stack = GaussianStack(means, covariance[None], np.zeros(6, np.intp))
    gaussians = FullGaussians(stack, "tied", np.eye(3), 1.0, 1.0, np.zeros(3))
    X = means + rng.multivariate_normal(np.zeros(3), covariance, 6)
    X[3:, 1] = np.nan
    groups = joined_groups(np.isnan(X), gaussians.n_gaussians)
    found = gaussians.expect(X, groups).log_density
    for k, row in enumerate(X):
        seen = ~np.isnan(row)
        own = multivariate_normal(means[k, seen], covariance[np.ix_(seen, seen)])
        assert found[k, k] == pytest.approx(own.logpdf(row[seen]), rel=1e-6)


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
@pytest.mark.parametrize("far", [1e4, 1e8])
def test_scatter_of_rows_far_away_is_not_lost_to_rounding(covariance_type, far):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    X[:, 1] = X[:, 0] + 1e-3 * X[:, 1]
    X[:20] += np.round(far)  # the first component is there, and comes to these rows now
    single = FullGaussians.guess(np.eye(3), np.zeros(3)).repeat(4, covariance_type, 0.0)
    weights = np.zeros((4, 60))
    weights[0, :20], weights[1, 20:40], weights[2, 40:] = 1.0, 0.5, 2.0
    blocks = [slice(0, 35), slice(35, 60)]
    parts = []
    for own in blocks:
        groups = joined_groups(np.isnan(X[own]), single.n_gaussians)
        parts.append(single.expect(X[own], groups).sums(weights[:, own]))
    counts, means, scatter = single.join(parts, [1.0, 3.0])
    factor = np.repeat([1.0, 3.0], [35, 25])
    expected = []
    for k, own in enumerate(weights * factor):
        assert counts[k] == pytest.approx(own.sum())
        if not own.any():
            expected.append(np.zeros((3, 3)))
            continue
        mean = X[own > 0].min(axis=0) + np.average(X - X[own > 0].min(axis=0), axis=0, weights=own)
        np.testing.assert_allclose(means[k], mean, rtol=1e-12, atol=1e-12)
        expected.append(((X - mean).T * own) @ (X - mean))
    expected = np.sum(expected, axis=0) if covariance_type == "tied" else np.array(expected)
    np.testing.assert_allclose(scatter, expected, atol=1e-14 * far * np.abs(expected).max())


def test_statistics_of_many_blocks_do_not_fill_the_memory():
    X = np.random.default_rng(0).normal(size=(6400, 100))
    table = MixtureTable.prepare(X, np.zeros(100, dtype=np.int64))
    single = FullGaussians.guess(np.eye(100), np.zeros(100)).repeat(8, "full", 0.0)
    scatter = single.stack.covariances.nbytes
    assert len(table.blocks) * scatter > 50e6  # of all blocks together
    state = MixtureState(np.full(8, 0.125), single, Categories.marginal(table, 0.5))
    tracemalloc.start()
    _, ((counts,), (_, means, _), _) = _expect(table, state)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 45 * scatter
    np.testing.assert_allclose(counts, 800.0)
    np.testing.assert_allclose(means, np.zeros((8, 100)), atol=1e-10)


def extreme_tables():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 4)) @ rng.normal(size=(4, 4))
    multiple = X.copy()
    multiple[[5, 17, 40], 0] = 1e6
    multiple[:, 1] = 2.0 * multiple[:, 0]
    scales = X * [1e-8, 1e-3, 1e3, 1e8]
    offset = X + 1e9
    offset[:, 2] = offset[:, 1]
    far = np.column_stack([X, 3.0 * X[:, 0], np.ones(80)])
    far[0], far[1], far[2:10] = 1e8, -1e8, far[2:10] + 1e6
    return {"multiple": multiple, "scales": scales, "offset": offset, "far": far}


@pytest.mark.parametrize("covariance_type", TYPES)
@pytest.mark.parametrize("name", ["multiple", "scales", "offset", "far"])
@pytest.mark.parametrize("fraction", [0.0, 0.2])
def test_extreme_tables_are_fitted(covariance_type, name, fraction):
    X = extreme_tables()[name]
    X[np.random.default_rng(1).random(X.shape) < fraction] = np.nan
    own = {"n_factors": 2} if covariance_type == "factor" else {}
    density = GaussianMixtureDensity(
        n_components=12, covariance_type=covariance_type, max_iter=20, random_state=0, **own
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        density.fit(X)
    assert np.isfinite(density.score_samples(X)).all()


@pytest.mark.parametrize("fraction", [0.1, 0.3])
def test_one_component_starts_near_its_end(fraction):
    # pairs of cells tell nearly all that one Gaussian is learned from
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 6)) + 0.3 * rng.normal(size=(400, 6))
    X[rng.random(X.shape) < fraction] = np.nan
    settings = EMSettings("tied", tol=4e-3)
    table = MixtureTable.prepare(X, np.zeros(6, int))
    *_, state = learn_gaussian_mixture(table, 1, settings, rng)
    assert state.n_iter <= 10
    *_, end = learn_gaussian_mixture(table, 1, replace(settings, tol=1e-9), rng)
    assert end.log_likelihood - state.log_likelihood < 0.01 * len(X)


def compare(X, cardinalities, criterion="log_likelihood"):
    table = MixtureTable.prepare(X, cardinalities)
    return table, Comparison(table, criterion, EMSettings(tol=1e-3), seed=0)


def test_fits_to_few_rows_are_compared_on_many():
    # heavy tails need many rows to tell candidates apart, fits to fewer show what these are worth
    X = np.random.default_rng(0).normal(size=(12_000, 5))
    _, comparison = compare(X, np.zeros(5, int))
    ((part, held_out),) = comparison.splits
    assert len(held_out.table.weights) > len(part.weights) == comparison.n_rows
    assert not np.intersect1d(part.source, held_out.table.source).size


@pytest.mark.parametrize("criterion", ["log_likelihood", "cells"])
def test_one_gaussian_is_found_for_what_it_is(criterion):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2)) @ rng.normal(size=(2, 8)) + 0.5 * rng.normal(size=(400, 8))
    X[rng.random(X.shape) < 0.3] = np.nan
    table, comparison = compare(X, np.zeros(8, int), criterion)
    ((candidate, times),) = choose_pool(table, CandidateSpace(), comparison).items()
    assert candidate.n_components == times == 1
    assert candidate.covariance_type == "tied" or candidate.n_factors in (2, 3, 4)


@pytest.mark.parametrize("criterion", ["log_likelihood", "cells"])
def test_groups_are_found(criterion):
    table, comparison = compare(three_groups(), NUMBERS, criterion)
    pool = choose_pool(table, CandidateSpace(), comparison)
    assert min(candidate.n_components for candidate in pool) > 1
    chosen = comparison.loss(pool)
    assert chosen < comparison.loss({Candidate("tied", 0, 1): 1})
    *_, states = learn_pool(table, pool, EMSettings(), np.random.default_rng(0))
    assert len(states) == sum(pool.values())


def test_what_is_given_is_not_searched():
    table, comparison = compare(three_groups(), NUMBERS)
    space = CandidateSpace("factor", 2, 3, pool=4)
    assert choose_pool(table, space, comparison) == {Candidate("factor", 2, 3): 4}
    assert not comparison.candidates
    choose_pool(table, CandidateSpace(covariance_type="diag", n_components=3), comparison)
    half_open = choose_pool(table, CandidateSpace(covariance_type="shrunk"), comparison)
    assert {candidate.covariance_type for candidate in half_open} == {"shrunk"}
    assert choose_pool(*(lambda t, c: (t, CandidateSpace(), c))(*compare(three_groups(5), NUMBERS)))


def test_held_out_losses_of_a_pool_by_hand():
    _, comparison = compare(*mixed_table(), "cells")
    first, second = Candidate("full", 0, 1), Candidate("tied", 0, 3)
    (part, held_out), *_ = comparison.splits
    assert not set(map(tuple, np.nan_to_num(part.numbers))) & set(
        map(tuple, np.nan_to_num(held_out.table.numbers[~np.isnan(held_out.table.numbers[:, 0])]))
    )
    single = comparison.losses({first: 1})
    np.testing.assert_allclose(comparison.losses({first: 2}), single, rtol=1e-12)
    both = comparison.losses({first: 1, second: 1})
    assert both.shape == single.shape and np.isfinite(both).all()
    n_hidden = held_out.hidden_numbers.sum() + held_out.hidden_codes.sum()
    assert n_hidden > 0


@pytest.mark.parametrize("hidden", ["hidden_numbers", "hidden_codes"])
def test_held_out_losses_where_only_one_kind_of_cell_is_hidden(hidden):
    X, cardinalities = mixed_table()
    table, state = last_state(X, 2, cardinalities)
    cells = HeldOutCells.draw(table, 0.3, np.random.default_rng(0))
    cells = replace(cells, **{hidden: np.zeros_like(getattr(cells, hidden))})
    losses = cells.losses([cells.predict(state)], "cells")
    assert losses.dtype == np.float64 and (losses >= 0).all() and losses.any()


def test_clusters_see_through_missing_values():
    table = MixtureTable.prepare(three_groups(), NUMBERS)
    labels = cluster_rows(table, 3, np.random.default_rng(0))
    complete = ~np.isnan(table.numbers).any(axis=1)
    raw = table.numbers[complete] * table.scale + table.location
    first, second = raw[:, 0] - raw[:, 2] > 10.0, raw[:, 1] < -8.0
    for members in (first, second):
        assert np.bincount(labels[complete][members], minlength=3).max() > 0.8 * members.sum()
    X, cardinalities = mixed_table()
    assert set(
        cluster_rows(MixtureTable.prepare(X, cardinalities), 2, np.random.default_rng(0))
    ) == {0, 1}


def test_a_large_offset_is_no_constant_column():
    # 0.001 wide at 1e9: the spread is 1e-12 of the mean, yet it is the signal
    rng = np.random.default_rng(0)
    X = np.ldexp(rng.integers(-2048, 2048, size=(500, 2)), -20)  # exact after the shift
    centred = MixtureTable.prepare(X, NUMBERS[:2])
    shifted = MixtureTable.prepare(X + 2.0**30, NUMBERS[:2])
    np.testing.assert_allclose(shifted.scale, centred.scale, rtol=1e-3)
    assert MixtureTable.prepare(np.full((10**4, 2), 0.1), NUMBERS[:2]).scale[0] == 1e-3


def test_each_observed_cell_of_held_out_rows_is_hidden_in_one_turn():
    _, comparison = compare(*mixed_table(), "cells")
    (_, held_out), *_ = comparison.splits
    turns = held_out.in_turns(3, np.random.default_rng(0))
    numbers = np.sum([turn.hidden_numbers for turn in turns], axis=0)
    codes = np.sum([turn.hidden_codes for turn in turns], axis=0)
    np.testing.assert_array_equal(numbers, ~np.isnan(held_out.table.numbers))
    np.testing.assert_array_equal(codes, held_out.table.codes >= 0)
    assert min(turn.hidden_numbers.sum() for turn in turns) > 0


@pytest.mark.parametrize(
    ("covariance_type", "peer"),
    [("factor", FactorAnalysis(2, tol=1e-8, max_iter=5000)), ("tied", EmpiricalCovariance())],
)
@pytest.mark.parametrize("noise", [0.3, 0.03, 0.003])
def test_columns_that_nearly_determine_one_another_keep_their_precision(
    covariance_type, peer, noise
):
    rng = np.random.default_rng(0)
    loadings = rng.normal(size=(8, 2))
    X = rng.normal(size=(1060, 2)) @ loadings.T + noise * rng.normal(size=(1060, 8))
    learned, held_out = X[:60], X[60:]
    density = GaussianMixtureDensity(
        n_components=1, covariance_type=covariance_type, n_factors=2, random_state=0
    ).fit(learned)
    assert density.score(held_out) > peer.fit(learned).score(held_out) - 0.05


@pytest.mark.parametrize("covariance_type", ["full", "shrunk", "tied", "factor"])
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_three_components_explain_collinear_columns_as_well_as_one(covariance_type, missing):
    rng = np.random.default_rng(1)
    groups = 3.0 * rng.normal(size=(3, 2))[rng.integers(3, size=100)]
    X = (groups + rng.normal(size=(100, 2))) @ rng.normal(size=(2, 8))
    X += 0.003 * rng.normal(size=X.shape)
    X[rng.random(X.shape) < missing] = np.nan
    one, three = (
        GaussianMixtureDensity(
            n_components=k, covariance_type=covariance_type, n_factors=2, random_state=0
        ).fit(X)
        for k in (1, 3)
    )
    assert three.score(X) > one.score(X) - 0.05


@pytest.mark.parametrize("covariance_type", ["full", "tied", "factor"])
def test_prior_of_a_mean_is_a_row_of_the_component(covariance_type):
    table = MixtureTable.prepare(three_groups(), NUMBERS)
    settings = EMSettings(covariance_type=covariance_type, n_factors=2, max_iter=12)
    *_, state = learn_gaussian_mixture(table, 3, settings, np.random.default_rng(0))
    gaussians = replace(state.gaussians, mean_count=2.5)
    means, covariances = gaussians.stack.means, gaussians.stack.covariances
    away = means - gaussians.mean_centre
    expected = -1.25 * np.einsum("kc,kcd,kd->", away, np.linalg.inv(covariances), away)
    without = replace(gaussians, mean_count=0.0)
    assert gaussians.log_prior() - without.log_prior() == pytest.approx(expected)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "shrunk"])
def test_covariances_maximise_likelihood_and_log_prior(covariance_type):
    X = three_groups()
    X = np.column_stack([X, X[:, 0] - X[:, 1]])  # a relation that only the prior makes inexact
    table = MixtureTable.prepare(X, np.zeros(X.shape[1], dtype=np.int64))
    settings = EMSettings(covariance_type=covariance_type, max_iter=5)
    *_, state = learn_gaussian_mixture(table, 3, settings, np.random.default_rng(0))
    counts = np.array([20.0, 60.0, 120.0])
    rows = np.random.default_rng(1).normal(size=(3, 50, 4))
    rows = np.concatenate([rows, rows[..., :1] - rows[..., 1:2]], axis=2)
    second = np.einsum("knc,knd->kcd", rows, rows) * counts[:, None, None] / 50
    first = rows.mean(axis=1) * counts[:, None]
    tied = covariance_type == "tied"
    means = rows.mean(axis=1)
    around = second - counts[:, None, None] * means[:, :, None] * means[:, None]
    sums = counts, means, around.sum(axis=0) if tied else around
    found = replace(state.gaussians, strength=0.0, mean_count=0.0).maximize(sums)

    def objective(covariances):
        stack = GaussianStack(found.stack.means, covariances, found.stack.shape)
        away = first[:, :, None] * found.stack.means[:, None]
        scatter = second - away - away.transpose(0, 2, 1)
        scatter += (
            counts[:, None, None] * found.stack.means[:, :, None] * found.stack.means[:, None]
        )
        inverses = np.linalg.inv(stack.covariances)
        log_density = -0.5 * counts @ np.linalg.slogdet(stack.covariances)[1]
        log_density -= 0.5 * np.einsum("kcd,kdc->", inverses, scatter)
        return log_density + replace(found, stack=stack).log_prior()

    best = found.stack.distinct_covariances
    for k in range(len(best)):
        narrow = np.linalg.eigh(best[k])[1][:, 0]
        for factor in (0.8, 1.2):  # along the relation
            other = best.copy()
            other[k] += (factor - 1.0) * (narrow @ best[k] @ narrow) * np.outer(narrow, narrow)
            assert objective(other) < objective(best)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "shrunk", "factor", "diag"])
def test_a_single_component_is_learned_once_for_a_table(covariance_type):
    X = three_groups(200)
    settings = EMSettings(covariance_type=covariance_type, n_factors=2, n_init=1)

    def learned(table):
        *_, state = learn_gaussian_mixture(table, 3, settings, np.random.default_rng(0))
        return state

    fresh = learned(MixtureTable.prepare(X, NUMBERS))
    table = MixtureTable.prepare(X, NUMBERS)
    alone = replace(settings, covariance_type="tied") if covariance_type == "shrunk" else settings
    for _ in learn_gaussian_mixture(table, 1, alone, np.random.default_rng(1)):
        pass
    assert len(table.singles) == 1
    again = learned(table)
    assert len(table.singles) == 1
    assert again.lower_bound == fresh.lower_bound
    units = np.zeros(4), np.ones(4)
    pairs = zip(again.gaussians.in_units(*units), fresh.gaussians.in_units(*units), strict=True)
    assert all(np.array_equal(found, expected) for found, expected in pairs)


@pytest.mark.parametrize("covariance_type", ["full", "shrunk"])
def test_a_sum_of_columns_moves_no_rows_between_components(covariance_type):
    """It says nothing that the columns do not say."""
    rng = np.random.default_rng(0)
    parts = np.exp(0.7 * rng.normal(size=(800, 3)) + 0.5 * rng.normal(size=(800, 1)))
    X = np.column_stack([parts, parts.sum(axis=1)])
    fits = [
        GaussianMixtureDensity(n_components=8, covariance_type=covariance_type, random_state=0).fit(
            table[:500]
        )
        for table in (parts, X)
    ]
    without_sum, with_sum = (
        density.score(table[500:])
        for density, table in zip(fits, (parts, np.where(np.arange(4) < 3, X, np.nan)), strict=True)
    )
    assert with_sum == pytest.approx(without_sum, abs=0.06)


@pytest.mark.parametrize("is_done", [False, True])
def test_a_trial_goes_on_where_it_was_interrupted(is_done):
    X, cardinalities = mixed_table(80)
    table, candidate = MixtureTable.prepare(X, cardinalities), Candidate("tied", 0, 3)
    whole = try_candidate(table, candidate, EMSettings(), seed=0)
    begun = try_candidate(table, candidate, EMSettings(), 0, max_iter=20 if is_done else 3)
    again = try_candidate(table, candidate, EMSettings(), seed=1, begun=begun)
    assert again.n_iter == whole.n_iter > 3
    np.testing.assert_array_equal(again.weights, whole.weights)
    for one, other in zip(moments(table, again), moments(table, whole), strict=True):
        np.testing.assert_array_equal(one, other)


def shrunk_gaussians(X, n_components=3):
    table = MixtureTable.prepare(X, np.zeros(X.shape[1], dtype=np.int64))
    settings = EMSettings(covariance_type="shrunk", max_iter=12)
    *_, state = learn_gaussian_mixture(table, n_components, settings, np.random.default_rng(0))
    return state.gaussians


def test_scales_of_shared_covariances_are_the_likeliest():
    gaussians = shrunk_gaussians(three_groups())
    strength, size = gaussians.strength, 4
    without = replace(gaussians, strength=0.0, target=0.0 * gaussians.target)
    expected = without.log_prior()
    for precision, covariance in zip(
        gaussians.stack.precisions, gaussians.stack.covariances, strict=True
    ):

        def loss(log_scale, precision=precision, covariance=covariance):
            # Rows of the target at the scale, and four of a prior with its mode at one
            scale, trace = np.exp(log_scale), np.trace(precision @ gaussians.target)
            rows = strength * (np.linalg.slogdet(covariance)[1] - size * log_scale)
            return rows + strength * scale * trace + 4.0 * size * (scale - log_scale)

        found = minimize_scalar(loss, bounds=(-4, 4), method="bounded", options={"xatol": 1e-9})
        expected -= 0.5 * found.fun
    # Without strength or target each scale is one, and its prior 4 * size / 2
    expected += 0.5 * 3 * 4.0 * size
    assert gaussians.log_prior() == pytest.approx(expected)


def test_components_of_the_bulk_are_narrower_than_those_of_the_tail(monkeypatch):
    def scores():
        density = GaussianMixtureDensity(n_components=8, covariance_type="shrunk", random_state=0)
        return [density.fit(X[:150]).score(X[150:]) for X in tables]

    tables = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(1150, 2)) @ rng.normal(size=(2, 6))
        X[:, :3] += 0.3 * rng.normal(size=(1150, 3))
        tables.append(np.column_stack([X[:, :3], np.exp(0.4 * X[:, 3:])]))
    own = scores()
    ones = property(lambda self: np.ones(self.stack.n_components))
    monkeypatch.setattr(FullGaussians, "_scales", ones)
    assert np.mean(own) > np.mean(scores()) + 0.05


def test_a_column_without_cells_is_standard_normal_in_shrunk_components():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.exp(rng.normal(size=(300, 3))), np.full(300, np.nan)])
    gaussians = shrunk_gaussians(X)
    np.testing.assert_allclose(gaussians.stack.covariances[:, 3, 3], 1.0, rtol=1e-6)
    np.testing.assert_allclose(gaussians.stack.covariances[:, 3, :3], 0.0, atol=1e-12)


def test_trials_of_components_that_are_behind_stop_and_may_go_on():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 6)) @ rng.normal(size=(6, 6))
    table = MixtureTable.prepare(X, np.zeros(6, dtype=np.int64))
    comparison, other = (
        Comparison(table, "log_likelihood", EMSettings(), seed=0) for _ in range(2)
    )
    single, several = Candidate("tied", 0, 1), Candidate("tied", 0, 8)
    assert comparison.is_behind({single: 1}, several)
    assert comparison.candidates == [single]
    # A trial that goes on ends as one that did not stop
    assert comparison.loss({several: 1}) == other.loss({several: 1})


def test_cells_show_early_which_trials_are_worth_their_time():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 5)) @ rng.normal(size=(5, 5))
    table = MixtureTable.prepare(X, np.zeros(5, dtype=np.int64))
    candidates = [Candidate("tied", 0, k) for k in (2, 4, 8)]
    candidates += [Candidate("diag", 0, k) for k in (2, 8)]
    raced, other = (Comparison(table, "cells", EMSettings(), seed=0) for _ in range(2))
    # Columns depend on one another: components without covariances are left out
    kept = raced.promising(candidates)
    assert kept == candidates[:3]
    assert not raced.candidates
    # Trials of both splits end as if they had not stopped
    assert len(raced.splits) == 2
    for candidate in kept:
        np.testing.assert_array_equal(raced.losses({candidate: 1}), other.losses({candidate: 1}))


# Two full covariances show first whether several components gain; three others go on
@pytest.mark.parametrize(("pool", "n_several"), [(None, 9), (1, 4)])
def test_log_densities_choose_single_mixtures_among_few(pool, n_several):
    rng = np.random.default_rng(0)
    X = 5.0 * rng.normal(size=(4, 5))[rng.integers(4, size=200)] + rng.normal(size=(200, 5))
    table = MixtureTable.prepare(X, np.zeros(5, dtype=np.int64))
    comparison = Comparison(table, "log_likelihood", EMSettings(), seed=0)
    chosen = choose_pool(table, CandidateSpace(pool=pool), comparison)
    several = [c for c in comparison.candidates if c.n_components > 1]
    assert set(chosen) <= set(several)
    assert len(several) == n_several


def test_trials_go_on_where_a_row_is_impossible_under_both(monkeypatch):
    rng = np.random.default_rng(0)
    table = MixtureTable.prepare(rng.normal(size=(60, 2)), np.zeros(2, dtype=np.int64))
    comparison = Comparison(table, "log_likelihood", EMSettings(), seed=0)
    monkeypatch.setattr(Comparison, "_losses_of", lambda *_: np.array([np.inf, 1.0]))
    with np.errstate(invalid="ignore"):
        assert not comparison.is_behind({Candidate("tied", 0, 1): 1}, Candidate("tied", 0, 8))
