import copy
import itertools
import warnings
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.callback import ScoringMonitor
from sklearn.exceptions import ConvergenceWarning

from skcircuits import CircuitImputer, MoATDensity
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.parallel import thread_map
from skcircuits.trees.mixture_of_all_trees._conditionals import enumerate_evidence
from skcircuits.trees.mixture_of_all_trees._learning import learn_all_trees


def make(**parameters):
    return MoATDensity(**{"max_iter": 8, "n_tree_samples": 64, "random_state": 0} | parameters)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    hidden = rng.random((600, 1)) < 0.5
    return (rng.random((600, 6)) < np.where(hidden, 0.8, 0.25)).astype(float)


@pytest.fixture(scope="module")
def fitted(X):
    return make().fit(X)


ALL_ROWS = np.array(list(itertools.product([0.0, 1.0], repeat=6)))


def test_sums_to_one(fitted):
    assert np.exp(fitted.score_samples(ALL_ROWS)).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("n_components", [1, 3])
def test_attributes(X, n_components):
    density = make(n_components=n_components).fit(X)
    assert density.weights_.shape == (n_components,)
    assert density.edge_weights_.shape == density.edge_marginals_.shape == (n_components, 6, 6)
    # A tree over six columns has five edges.
    np.testing.assert_allclose(density.edge_marginals_.sum(axis=(1, 2)), 10)
    assert [nodes.shape for nodes in density.node_marginals_] == [(n_components, 2)] * 6
    np.testing.assert_allclose(density.node_marginals_[0].sum(axis=1), 1)
    assert len(density.loss_curve_) == len(density.validation_scores_) == density.n_iter_
    assert density.bin_edges_ == (None,) * 6


def test_margins_match_the_rows(fitted, X):
    for column, nodes in enumerate(fitted.node_marginals_):
        assert nodes[0, 1] == pytest.approx(X[:, column].mean(), abs=0.05)


def test_categorical_table_with_unseen_and_missing_categories():
    rng = np.random.default_rng(1)
    color = rng.choice(["red", "green", "blue"], size=300)
    size = np.where(rng.random(300) < 0.8, color == "red", rng.random(300) < 0.5)
    frame = pd.DataFrame({"color": color, "big": size, "n": rng.integers(4, size=300)})
    density = make().fit(frame)
    assert [len(nodes[0]) for nodes in density.node_marginals_] == [3, 2, 4]
    rows = pd.DataFrame({"color": ["pink", None], "big": [True, True], "n": [1, 1]})
    scores = density.score_samples(rows)
    assert scores[1] == pytest.approx(np.log(density.probability({"big": True, "n": 1})), abs=0.05)
    # Good and Turing: no color came once, which half a row of 301 smoothes
    assert scores[0] == pytest.approx(scores[1] + np.log(0.5 / 301))
    given = density.probability({"color": "red"}, given={"big": True})
    assert given > density.probability({"color": "red"}) + 0.1


def test_numbers_stay_densities_in_original_units():
    rng = np.random.default_rng(2)
    X = np.column_stack([rng.normal(size=500), rng.integers(3, size=500)])
    density = make().fit(X)
    assert density.bin_edges_[0] is not None and density.bin_edges_[1] is None
    scaled = make().fit(X * [1000, 1])
    np.testing.assert_allclose(
        scaled.score_samples(X * [1000, 1]), density.score_samples(X) - np.log(1000), rtol=1e-6
    )


def test_validation_rows(X):
    held_out = X[:100]
    density = make().fit(X[100:], X_val=held_out)
    assert max(density.validation_scores_) == pytest.approx(density.score(held_out), abs=1e-12)


def test_without_validation_the_training_rows_decide(X):
    density = make(validation_fraction=None).fit(X)
    assert max(density.validation_scores_) == pytest.approx(density.score(X), abs=1e-12)


def test_early_stopping(X):
    density = make(max_iter=200, tol=10.0, n_iter_no_change=3).fit(X)
    assert density.n_iter_ == 4


def test_a_planned_end_does_not_warn(X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(max_iter=2).fit(X)


@pytest.mark.parametrize("n_components", [1, 2])
def test_partial_fit_learns(X, n_components):
    density = make(n_components=n_components)
    scores = []
    for _ in range(6):
        for rows in np.split(X, 3):
            density.partial_fit(rows)
        scores.append(density.score(X))
    assert scores[-1] > scores[0]
    assert density.n_iter_ == len(density.loss_curve_) == 18


def test_warm_start_continues(X):
    density = make(warm_start=True, max_iter=3).fit(X)
    first = density.score(X)
    bins = density._states
    density.fit(X)
    assert density._states is bins
    assert density.loss_curve_[0] < make(max_iter=3).fit(X).loss_curve_[0]
    assert density.score(X) > first - 0.02


def test_warm_start_cannot_change_the_number_of_components(X):
    density = make(warm_start=True, max_iter=2).fit(X)
    with pytest.raises(ValueError, match="n_components must"):
        density.set_params(n_components=2).fit(X)


def test_weights_of_zero_are_absent_rows(X):
    weight = np.ones(len(X))
    weight[300:] = 0
    weighted = make(validation_fraction=None).fit(X, sample_weight=weight)
    np.testing.assert_allclose(
        weighted.score_samples(X), make(validation_fraction=None).fit(X[:300]).score_samples(X)
    )


@pytest.mark.parametrize("n_components", [1, 2])
def test_weights_near_the_smallest_float_are_relative(X, n_components):
    # The reciprocal of 1e-320 is infinite. From a random start only ratios of weights count.
    weight = np.random.default_rng(0).integers(1, 4, size=len(X))
    density = make(n_components=n_components, init="random", max_iter=3)
    expected = density.fit(X, sample_weight=weight * 1e-200).score_samples(X)
    density.fit(X, sample_weight=weight * 1e-320)
    np.testing.assert_allclose(density.score_samples(X), expected, atol=1e-2)


def test_interrupt_keeps_the_best(X, monkeypatch):
    def interrupted(*arguments, **options):
        epochs = learn_all_trees(*arguments, **options)
        yield next(epochs)
        yield next(epochs)
        raise KeyboardInterrupt

    monkeypatch.setattr("skcircuits.estimators.moat.learn_all_trees", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        density = make(max_iter=50).fit(X)
    assert density.n_iter_ == 2
    assert np.isfinite(density.score(X))


def test_callbacks_see_a_usable_estimator(X):
    seen = []

    def scoring(estimator, X, y=None):
        seen.append(estimator.score(X))
        return {"mean_log_density": seen[-1]}

    density = make(max_iter=3).set_callbacks(ScoringMonitor(scoring=scoring)).fit(X)
    assert len(seen) >= 3 and np.isfinite(seen).all()
    plain = make(max_iter=3).fit(X)
    np.testing.assert_array_equal(density.score_samples(X), plain.score_samples(X))


def test_incomplete_rows_approach_the_enumeration(X):
    density = make(n_tree_samples=31).fit(X)
    rows = X[:50].copy()
    rows[np.random.default_rng(3).random(rows.shape) < 0.4] = np.nan
    agree = np.isnan(rows[:, None]) | (rows[:, None] == ALL_ROWS)
    exact = np.log(agree.all(axis=2) @ np.exp(density.score_samples(ALL_ROWS)))
    np.testing.assert_allclose(density.score_samples(rows), exact, atol=0.1)


def test_missing_cells_can_be_refused(X):
    incomplete = X.copy()
    incomplete[0, 0] = np.nan
    with pytest.raises(ValueError, match=r"complete.*n_missing_or_unseen_cells=1.*estimate"):
        make(missing="error").fit(incomplete)
    with pytest.raises(ValueError, match="complete"):
        make(missing="error").fit(X).score_samples(incomplete)


@pytest.mark.parametrize("proposal", ["posterior", "prior"])
@pytest.mark.parametrize("method", ["collapsed", "importance", "blocked_gibbs", "gibbs"])
def test_conditional_marginals(fitted, X, method, proposal):
    rows = X[:4].copy()
    rows[:, 2:5] = np.nan
    exact = fitted.conditional_marginals(rows, method="exact")
    marginals, errors, sizes = fitted.conditional_marginals(
        rows,
        method=method,
        n_samples=2000,
        random_state=0,
        return_errors=True,
        proposal=proposal,
    )
    assert [m.shape for m in marginals] == [(4, 2)] * 6
    for estimate, error, truth in zip(marginals, errors, exact, strict=True):
        assert (np.abs(estimate - truth) <= 5 * error + 1e-9).all()
    np.testing.assert_allclose(marginals[0], np.eye(2)[rows[:, 0].astype(int)], atol=1e-12)
    assert (sizes > 1).all()


def test_unknown_method(fitted, X):
    with pytest.raises(ValueError, match=r"method must.*blocked_gibbs"):
        fitted.conditional_marginals(X[:1], method="magic")
    with pytest.raises(ValueError, match=r"proposal must.*prior"):
        fitted.conditional_marginals(X[:1], proposal="magic")


def test_probabilities_of_queries_are_exact(fitted):
    prob = np.exp(fitted.score_samples(ALL_ROWS))
    chosen = (ALL_ROWS[:, 0] == 1) & (ALL_ROWS[:, 3] == 0)
    assert fitted.probability({0: 1, 3: 0}) == pytest.approx(prob[chosen].sum(), abs=1e-12)
    given = ALL_ROWS[:, 0] == 1
    assert fitted.probability({3: 0}, given={0: 1}) == pytest.approx(
        prob[chosen].sum() / prob[given].sum(), abs=1e-12
    )


def test_observed_cells_decide_queries_about_them():
    rng = np.random.default_rng(0)
    jobs, numbers = rng.choice(["cook", "nurse"], 200), rng.normal(size=200)
    X = pd.DataFrame({"job": jobs, "n": rng.integers(3, size=200), "x": numbers})
    density = make(max_iter=2).fit(X)
    row = pd.DataFrame({"job": ["cook"], "n": [1], "x": [0.25]})
    queries = ["job == 'cook'", "job != 'cook'", "n > 1", "n >= 1", "x > 0.3", "x < 0.3 and n == 1"]
    found = density.probabilities(queries, given=row)
    np.testing.assert_allclose(found, [[1.0, 0.0, 0.0, 1.0, 0.0, 1.0]], atol=1e-12)


def test_sampled_rows_and_trees(fitted):
    rows = fitted.sample(4000, random_state=0)
    fractions = (rows[:, None] == ALL_ROWS).all(axis=2).mean(axis=0)
    np.testing.assert_allclose(fractions, np.exp(fitted.score_samples(ALL_ROWS)), atol=0.025)
    trees = fitted.sample_trees(3000, random_state=0)
    assert trees.shape == (3000, 5, 2)
    uses = (np.sort(trees, axis=2) == [0, 1]).all(axis=2).any(axis=1).mean()
    assert uses == pytest.approx(fitted.edge_marginals_[0, 0, 1], abs=0.03)


def test_rows_with_many_missing_values_are_estimated_and_repeat(X):
    density = make(n_tree_samples=8).fit(X)
    rows = X[:30].copy()
    rows[:, 1:] = np.nan
    rows[0] = np.nan
    scores = density.score_samples(rows)
    np.testing.assert_array_equal(scores, density.score_samples(rows))
    np.testing.assert_allclose(scores[::-1], density.score_samples(rows[::-1]), rtol=1e-12)
    assert scores[0] == pytest.approx(0, abs=1e-12)
    exact = [np.log(density.probability({0: row[0]})) for row in rows[1:]]
    np.testing.assert_allclose(scores[1:], exact, atol=1e-9)  # one cell: every tree agrees


def test_completions_follow_the_conditional_marginals(fitted, X):
    rows = X[:3].copy()
    rows[:, 1:4] = np.nan
    drawn = fitted.sample(4000, random_state=0, X=rows)
    exact = fitted.conditional_marginals(rows, method="exact")
    for column in range(6):
        np.testing.assert_allclose(drawn[:, :, column].mean(axis=0), exact[column][:, 1], atol=0.04)


def test_circuit_of_more_trees_approaches_the_model(fitted, X):
    circuit = fitted.to_circuit(3000, random_state=1)
    np.testing.assert_allclose(circuit.log_prob(X), fitted.score_samples(X), atol=0.1)


def test_circuit_serves_the_imputer(fitted, X):
    incomplete = X.copy()
    incomplete[::2, 1] = np.nan
    completed = CircuitImputer(density=fitted.to_circuit(20, random_state=0)).fit_transform(
        incomplete
    )
    np.testing.assert_array_equal(completed[1::2], X[1::2])
    assert (completed[::2, 1] == X[::2, 1]).mean() > 0.6


def test_circuit_keeps_original_values():
    X = np.random.default_rng(4).choice([1.0, 4.0, 6.0], size=(100, 3))
    density = make().fit(X)
    circuit = density.to_circuit(5, random_state=0)
    drawn = circuit.sample(50, random_state=np.random.default_rng(0))
    assert set(np.unique(drawn)) <= {1.0, 4.0, 6.0}


def test_circuit_of_bins_and_negative_values():
    rng = np.random.default_rng(5)
    X = np.column_stack([rng.normal(size=300), rng.choice([-1.0, 1.0], size=300)])
    density = make(max_iter=2).fit(X)  # two columns have a single tree: no sampling error
    fresh = np.column_stack([rng.normal(size=50), rng.choice([-1.0, 1.0], size=50)])
    fresh[:10, 0] = fresh[10:20, 1] = np.nan
    circuit = density.to_circuit(3, random_state=0)
    np.testing.assert_allclose(circuit.log_prob(fresh), density.score_samples(fresh), atol=1e-9)


def test_most_probable_explanation_is_exact_where_it_can_be(fitted, X):
    rows = X[:6].copy()
    rows[:5, 1] = rows[:3, 3] = rows[1, 0] = np.nan
    completed = fitted.mpe(rows)
    np.testing.assert_array_equal(completed[~np.isnan(rows)], rows[~np.isnan(rows)])
    for row, best in zip(rows, completed, strict=True):
        missing = np.flatnonzero(np.isnan(row))
        others = np.tile(row, (2 ** len(missing), 1))
        others[:, missing] = list(product((0.0, 1.0), repeat=len(missing)))
        assert fitted.score_samples(best[None])[0] == fitted.score_samples(others).max()


def test_long_searches_for_the_most_probable_explanation_warn():
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=(300, 1))
    X = np.where(rng.random((300, 20)) < 0.1, 1 - group, group).astype(float)
    density = make(max_iter=2).fit(X)
    row = np.full((1, 20), np.nan)
    row[0, 0] = 1.0
    with pytest.warns(UserWarning, match="found by a local search"):
        found = density.mpe(row, n_starts=4, random_state=0)
    np.testing.assert_array_equal(found, np.ones((1, 20)))


def test_marginals_are_exact_where_rows_have_few_completions(fitted, X):
    rows = X[:4].copy()
    rows[1, :2] = np.nan
    for ours, exact in zip(
        fitted.conditional_marginals(rows),
        fitted.conditional_marginals(rows, method="exact"),
        strict=True,
    ):
        np.testing.assert_array_equal(ours, exact)


@pytest.mark.parametrize("learning_rate", [1.5, 3.0, 1e30])
def test_absurd_learning_rates_are_refused(X, learning_rate):
    with pytest.raises(ValueError, match="learning_rate"):
        make(learning_rate=learning_rate).fit(X)


def test_rows_next_to_impossible_have_scores():
    # Two columns that always agree, and nearly no smoothing: disagreement is as good as impossible
    X = np.repeat(np.random.default_rng(0).integers(2, size=(500, 1)), 4, axis=1).astype(float)
    density = make(max_iter=1, pseudo_count=1e-300, learning_rate=1e-6).fit(X)
    rows = np.array([[0, 1, 0, 1], [0, 0, 0, 1], [0, 0, 0, 0], [np.nan, 1, 0, 1]], dtype=float)
    scores = density.score_samples(rows)
    assert not np.isnan(scores).any()
    assert scores[2] > -1.0
    assert (scores[[0, 1, 3]] < -10.0).all()


def test_number_of_parameters(X):
    density = make(max_iter=1).fit(X)
    # 15 pair tables with one free cell, 6 marginals, 14 ratios of edge weights
    assert density._n_parameters() == 15 + 6 + 14
    assert clone(density).set_params(n_components=2).fit(X)._n_parameters() == 2 * 35 + 1


def test_difficult_columns():
    rng = np.random.default_rng(6)
    bit = rng.integers(2, size=200)
    constants = [np.zeros(200), np.full(200, 3)]
    X = np.column_stack([bit, bit, 1 - bit, *constants, rng.integers(2, size=200)])
    for n_components in (1, 2):
        density = make(n_components=n_components, max_iter=30).fit(X.astype(float))
        assert np.isfinite(density.score_samples(X)).all()
        assert np.isfinite(density.validation_scores_).all()


def test_mixture_is_a_discrete_target(fitted, X):
    assert fitted.mixture_.cardinalities.tolist() == [2] * 6
    np.testing.assert_allclose(
        fitted.mixture_.log_prob_unnormalized(X), fitted.score_samples(X), rtol=1e-12
    )


def two_groups(n_rows, fraction, seed=0):
    """Rows of two groups that a mixture tells apart; ``fraction`` of them are of the first."""
    rng = np.random.default_rng(seed)
    group = rng.random((n_rows, 1)) < fraction
    return (rng.random((n_rows, 6)) < np.where(group, 0.95, 0.05)).astype(float)


def test_estimated_probabilities_of_queries_and_their_complements_add_up():
    rng = np.random.default_rng(77)
    z = rng.normal(size=300)
    X = pd.DataFrame(
        {
            "x": z * 3 + rng.normal(size=300),
            "n": rng.poisson(np.exp(z / 2)),
            "sex": np.where(z + rng.normal(size=300) > 0.3, "f", "m"),
            "level": np.digitize(z, [-0.7, 0.7]),
            "flag": rng.random(300) < 0.3,
            "grid": np.round(z * 2) / 2,
            "time": z * 100,
        }
    )
    density = make(max_iter=5).fit(X)
    for given in ("x > 0", "sex == 'f'", "n <= 1"):
        for query in ("x > 1", "sex == 'f'", "level >= 1", "flag", "grid <= 0"):
            both = density.probabilities([query, f"not ({query})"], given=given)
            assert both.sum() == pytest.approx(1.0, abs=0.1), (query, given)


def test_impossible_queries_of_wide_tables():
    X = np.random.default_rng(0).integers(2, size=(100, 40)).astype(float)
    density = make(max_iter=1).fit(X)
    assert density.probability({0: (5, 6)}) == 0.0
    with pytest.raises(ZeroProbabilityError):
        density.probability({0: 1}, given={1: (5, 6)})


def test_estimated_probabilities_do_not_exceed_one():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({f"c{j}": rng.choice(list("abcdefgh"), 200) for j in range(6)})
    density = make(max_iter=2, n_tree_samples=4).fit(X)
    nothing = " and ".join(f"c{j} == 'a'" for j in range(6))
    assert density.probability(f"not ({nothing})") <= 1.0


def test_duplicate_columns_can_be_sampled():
    X = np.repeat(np.random.default_rng(0).integers(2, size=(600, 5)), 2, axis=1).astype(float)
    density = make(batch_size=64, max_iter=40, n_iter_no_change=40).fit(X)
    pairs = density.sample(500, random_state=0).reshape(500, 5, 2)
    assert (pairs[:, :, 0] == pairs[:, :, 1]).mean() > 0.99
    row = np.full((1, 10), np.nan)
    row[0, 3] = 1.0
    assert density.score_samples(row)[0] == pytest.approx(np.log(0.5), abs=0.05)


def test_few_rows_hardly_change_the_weights_of_a_mixture():
    density = make(n_components=2).fit(two_groups(1000, 0.5))
    before = density.weights_
    density.partial_fit(two_groups(20, 1.0, seed=1))
    np.testing.assert_allclose(density.weights_, before, atol=0.02)
    with pytest.raises(ValueError, match="n_components must stay 2"):
        density.set_params(n_components=3).partial_fit(two_groups(20, 1.0))
    assert density.bic(two_groups(100, 0.5)) == density.set_params(n_components=2).bic(
        two_groups(100, 0.5)
    )


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_weights_of_a_mixture_do_not_depend_on_the_unit_of_sample_weight(scale):
    X = two_groups(1000, 0.9)
    density = make(n_components=2, pseudo_count=1e-9).fit(X, sample_weight=np.full(1000, scale))
    assert density.weights_.max() == pytest.approx(0.9, abs=0.03)


def test_batches_count_by_their_weight():
    rng = np.random.default_rng(0)
    X = (rng.random((2000, 3)) < 0.05).astype(float)
    X[:20] = 1.0
    weight = np.ones(2000)
    weight[:20] = 1980 / 20  # half of the weight
    density = make(batch_size=128, max_iter=20, n_iter_no_change=20, validation_fraction=None)
    density.fit(X, sample_weight=weight)
    assert np.exp(density.score_samples([[1.0, 1.0, 1.0]])[0]) == pytest.approx(0.5, abs=0.05)


def test_completions_of_few_missing_cells_are_exact(fitted):
    row = np.array([[1.0, np.nan, 0.0, np.nan, 1.0, np.nan]])
    drawn = fitted.set_params(n_tree_samples=1).sample(20_000, random_state=0, X=row)[:, 0]
    fitted.set_params(n_tree_samples=64)
    assert (drawn[:, [0, 2, 4]] == [1, 0, 1]).all()
    consistent = ALL_ROWS[(ALL_ROWS[:, [0, 2, 4]] == [1, 0, 1]).all(axis=1)]
    law = np.exp(fitted.score_samples(consistent))
    counts = np.bincount((drawn[:, [1, 3, 5]] @ [4, 2, 1]).astype(int), minlength=8)
    assert chisquare(counts, 20_000 * law / law.sum()).pvalue > 1e-3


def test_validation_rows_do_not_teach():
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(400, 2)).astype(float)
    X[::2, 0] = X[1::2, 1] = np.nan  # the columns never meet
    together = np.repeat(rng.integers(2, size=(400, 1)), 2, axis=1).astype(float)
    density = make().fit(X, X_val=together)
    assert density.probability({1: 1}, given={0: 1}) < 0.8


def test_a_breakdown_keeps_the_best(X, monkeypatch):
    def breaks_down(*args, **kwargs):
        epochs = learn_all_trees(*args, **kwargs)
        yield next(epochs)
        yield next(epochs)
        raise FloatingPointError("Laplacians must be positive definite")

    monkeypatch.setattr("skcircuits.estimators.moat.learn_all_trees", breaks_down)
    with pytest.warns(ConvergenceWarning, match="broke down .Laplacians.* after 2 iterations"):
        density = make().fit(X)
    assert density.n_iter_ == 2 and np.isfinite(density.score(X))


def test_an_interrupted_fit_leaves_the_old_model(X, monkeypatch):
    density = make().fit(X)
    before = density.score_samples(X)

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("skcircuits.estimators.moat.learn_all_trees", interrupted)
    with pytest.raises(KeyboardInterrupt):
        density.fit(X + 5)
    np.testing.assert_array_equal(density.score_samples(X), before)
    monkeypatch.undo()
    n_iter = density.n_iter_
    assert density.partial_fit(X).n_iter_ == n_iter + 1 == len(density.loss_curve_)


def test_one_draw_tells_nothing_about_its_error(fitted):
    row = [[1.0, np.nan, 0.0, np.nan, np.nan, np.nan]]
    _, errors, sizes = fitted.conditional_marginals(
        row, method="collapsed", n_samples=1, return_errors=True
    )
    assert sizes[0] == pytest.approx(1) and np.isinf(errors[1]).all() and (errors[0] == 0).all()


def test_states_that_do_not_exist_are_refused(fitted):
    with pytest.raises(
        ValueError, match=r"variable 0 must be states from 0 to 1; got row=1, code=2"
    ):
        fitted.mixture_.log_prob(np.array([[1, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0]]))


def test_equal_incomplete_rows_are_scored_once(fitted, monkeypatch):
    asked = []
    original = enumerate_evidence
    monkeypatch.setattr(
        "skcircuits.estimators.moat.enumerate_evidence",
        lambda mixture, evidence: asked.append(len(evidence)) or original(mixture, evidence),
    )
    rows = np.tile([[1.0, np.nan, 0.0, 1.0, 1.0, 0.0], [0.0, np.nan, 0.0, 1.0, 1.0, 0.0]], (50, 1))
    scores = fitted.score_samples(rows)
    assert asked == [2] and (scores[::2] == scores[0]).all() and scores[0] != scores[1]


def test_huge_weights_are_refused(X):
    with pytest.raises(ValueError, match="sample_weight must sum to less than 1e"):
        make().fit(X, sample_weight=np.full(len(X), 1e307))


def test_start_is_the_smoothed_weighted_table(X):
    weight = np.where(X[:, 0] == 1, 3.0, 1.0)
    # Steps so small that the start is all there is
    density = make(learning_rate=1e-9, max_iter=1, pseudo_count=50, validation_fraction=None)
    density.fit(X, sample_weight=weight)
    expected = (weight @ X + 50 / 2) / (weight.sum() + 50)
    learned = [nodes[0, 1] for nodes in density.node_marginals_]
    np.testing.assert_allclose(learned, expected, atol=1e-6)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_learning_follows_the_weights(method):
    X = two_groups(600, 0.5)
    weight = np.where(X.mean(axis=1) > 0.5, 9.0, 1.0)
    # The random start knows nothing of the weights
    density = make(
        init="random", batch_size=50, learning_rate=0.1, max_iter=12, validation_fraction=None
    )
    for _ in range(1 if method == "fit" else 12):
        getattr(density, method)(X, sample_weight=weight)
    learned = [nodes[0, 1] for nodes in density.node_marginals_]
    np.testing.assert_allclose(learned, np.average(X, axis=0, weights=weight), atol=0.06)


def test_validation_scores_are_weighted(X):
    weight = np.where(X.sum(axis=1) > 3, 5.0, 1.0)
    density = make(validation_fraction=None, max_iter=2).fit(X, sample_weight=weight)
    expected = np.average(density.score_samples(X), weights=weight)
    assert max(density.validation_scores_) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
@pytest.mark.parametrize(
    "better", [{"batch_size": 20}, {"learning_rate": 0.5}, {"init": "mutual_information"}]
)
def test_more_steps_larger_steps_and_a_better_start_help(X, method, better):
    plain = {"init": "random", "batch_size": 600, "max_iter": 1, "validation_fraction": None}
    slow, fast = (getattr(make(**plain | p), method)(X).score(X) for p in ({}, better))
    assert fast > slow + 0.5


@pytest.mark.parametrize("n_components", [1, 2])
def test_pseudo_count_is_in_the_unit_of_the_weights(X, n_components):
    rng = np.random.default_rng(0)
    incomplete = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    weight = rng.random(len(X))
    one, other = (
        make(n_components=n_components, max_iter=2, pseudo_count=20 * unit)
        .fit(incomplete, sample_weight=unit * weight)
        .score_samples(ALL_ROWS)
        for unit in (1.0, 2.0**-20)
    )
    np.testing.assert_allclose(other, one, rtol=1e-9)


def test_learning_goes_on_from_the_best_pass():
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(2, size=(300, 1)), 3, axis=1).astype(float)
    # Every pass learns more of a dependence that the validation rows do not have.
    unlike = rng.integers(2, size=(300, 3)).astype(float)
    density = make(pseudo_count=1000, batch_size=50).fit(X, X_val=unlike)
    assert np.argmax(density.validation_scores_) == 0
    best = density.score_samples(ALL_ROWS[:8, 3:])
    density.set_params(learning_rate=1e-9).partial_fit(X)
    np.testing.assert_allclose(density.score_samples(ALL_ROWS[:8, 3:]), best, atol=1e-6)


def test_weights_of_a_mixture_follow_the_rows_of_the_next_fit():
    density = make(n_components=2, warm_start=True, random_state=2).fit(two_groups(600, 0.5))
    X = two_groups(600, 0.9, seed=1)
    density.fit(X)
    assert density.weights_.max() == pytest.approx(0.9, abs=0.03)
    # They are in the order of the components.
    for column, nodes in enumerate(density.node_marginals_):
        assert density.weights_ @ nodes[:, 1] == pytest.approx(X[:, column].mean(), abs=0.03)


def test_partial_fit_expects_new_categories():
    table = pd.DataFrame({"c": ["u", "v", "u"], "d": ["x", "y", "x"]})
    density = make().partial_fit(table)
    rows = pd.DataFrame({"c": ["new", None], "d": ["x", "x"]})
    new, missing = density.score_samples(rows)
    # One of three categories was seen once
    assert new - missing == pytest.approx(np.log(1.5 / 4.0))
    with pytest.raises(ValueError, match="X must have an observed cell"):
        density.partial_fit(pd.DataFrame({"c": [None, None], "d": [None, None]}))


def test_partial_fit_notes_the_negative_log_likelihood(X):
    density = make(learning_rate=1e-9).partial_fit(X)
    assert density.loss_curve_ == pytest.approx([-density.score(X)], abs=1e-6)


def test_more_trees_estimate_incomplete_rows_better(fitted, X):
    rng = np.random.default_rng(0)
    rows = X[:60].copy()
    np.put_along_axis(rows, rng.random(rows.shape).argsort(axis=1)[:, :4], np.nan, axis=1)
    agree = (np.isnan(rows[:, None]) | (rows[:, None] == ALL_ROWS)).all(axis=2)
    exact = np.log(agree @ np.exp(fitted.score_samples(ALL_ROWS)))
    density = copy.deepcopy(fitted)
    few, many, enough = (
        np.abs(density.set_params(n_tree_samples=n).score_samples(rows) - exact).mean()
        for n in (1, 15, 16)
    )
    assert few > 2 * many > 1e-3
    assert enough < 1e-12  # all 16 completions of a row are summed


def test_completions_from_more_trees_come_closer(fitted, X, monkeypatch):
    monkeypatch.setattr("skcircuits.estimators.moat.MAX_EXACT_COMPLETIONS", 1)
    rows = X[:3].copy()
    rows[:, 1:4] = np.nan
    exact = np.stack([m[:, 1] for m in fitted.conditional_marginals(rows, method="exact")], axis=1)
    density = copy.deepcopy(fitted)
    few, many = (
        np.abs(
            density.set_params(n_tree_samples=n).sample(2000, random_state=0, X=rows).mean(axis=0)
            - exact
        ).mean()
        for n in (1, 256)
    )
    assert few > 3 * many


def test_random_state_decides_on_the_trees_that_score_incomplete_rows(X):
    incomplete = X[:20].copy()
    incomplete[:, 1:5] = np.nan
    # Fits alike but for the trees
    options = {"learning_rate": 1e-12, "max_iter": 1, "validation_fraction": None}
    one, other = (make(n_tree_samples=4, random_state=s, **options).fit(X) for s in (0, 1))
    np.testing.assert_allclose(one.score_samples(X), other.score_samples(X), rtol=1e-9)
    assert np.abs(one.score_samples(incomplete) - other.score_samples(incomplete)).max() > 1e-3


@pytest.mark.parametrize("n_components", [1, 2])
def test_fits_and_scores_use_the_threads_asked_for(X, n_components, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "skcircuits.trees._spanning_trees.thread_map",
        lambda function, items, n_jobs=None: asked.append(n_jobs) or thread_map(function, items),
    )
    density = make(n_components=n_components, max_iter=1, n_jobs=2).fit(X)
    # Several components are learned side by side, each by one thread.
    assert set(asked) == ({2} if n_components == 1 else {1, 2})
    asked.clear()
    density.score_samples(X)
    assert set(asked) == {2}


def test_hundreds_of_categories_meet_rare_bins_up_to_rounding():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": [f"c{i}" for i in range(200)] * 2, "b": rng.normal(size=400)})
    density = MoATDensity(max_iter=3, random_state=0).fit(X)
    assert np.isfinite(density.score_samples(X)).all()


def test_quantiles_take_few_estimates_per_state(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 1)) + rng.normal(size=(300, 8))
    density = make(max_iter=2).fit(X)
    n_asked = []
    estimate = MoATDensity._log_states

    def counted(self, evidence, most_completions):
        n_asked.append(len(evidence))
        return estimate(self, evidence, most_completions)

    monkeypatch.setattr(MoATDensity, "_log_states", counted)
    lower, upper = density.interval(0.8, 2, given="x0 > 0.5", kind="highest_density")
    assert sum(n_asked) <= 1 + len(density.bin_edges_[2])
    reached = [density.probability(f"x2 <= {end}", given="x0 > 0.5") for end in (lower, upper)]
    assert reached[1] - reached[0] == pytest.approx(0.8, abs=0.01)


def test_information_is_not_that_of_the_error_of_a_sum():
    """Probabilities of joint states are estimates here, which need not add up to one."""
    rng = np.random.default_rng(3)
    group = rng.integers(3, size=300)
    X = np.column_stack(
        [group[:, None] + rng.normal(size=(300, 3)), (group + rng.integers(2, size=300)) % 3]
    )
    X = np.column_stack([X, rng.random(300) < 0.2 + 0.3 * group])
    density = MoATDensity(max_iter=3, random_state=0).fit(X)
    table = density.probabilities([{3: i, 4: j} for i in range(3) for j in range(2)])
    assert table.sum() == pytest.approx(1.0, abs=0.005)
    table = table.reshape(3, 2) / table.sum()
    independent = table.sum(axis=1, keepdims=True) * table.sum(axis=0)
    information = (table * np.log(table / independent)).sum()
    assert density.mutual_information(3, 4) == pytest.approx(information, rel=1e-9)
    # Against draws of rows, which are exact
    drawn = density.sample(20_000, random_state=0)
    counts = np.histogram2d(drawn[:, 3], drawn[:, 4], bins=(3, 2))[0] / 20_000
    np.testing.assert_allclose(counts, table, atol=0.012)
