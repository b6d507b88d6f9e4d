"""Expectations stacked with what models of incomplete rows say of the target."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris, make_gaussian_quantiles
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, QuantileRegressor, Ridge
from sklearn.metrics import log_loss
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skcircuits import (
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
    GaussianMixtureDensity,
)
from skcircuits.estimators.automatic import _inner_density
from skcircuits.estimators.prediction import _target_stack
from skcircuits.estimators.prediction._requirements import predicts_median, predicts_quantile
from skcircuits.estimators.prediction._target_stack import (
    N_TREES,
    Members,
    TrainingTargets,
    _fit_kernels,
    _fit_mixtures,
    _grow_trees,
    _of_last_column,
    _pooled,
    _power_of,
    _weights_of,
    _weights_of_medians,
    _with_hidden_cells,
)
from skcircuits.tabular import TableSchema

NAN = np.nan


def hide(X, fraction=0.3, seed=0):
    return np.where(np.random.default_rng(seed).random(X.shape) < fraction, NAN, X)


def classifier(model=None, **parameters):
    return ExpectedPredictionClassifier(
        LogisticRegression(max_iter=1000) if model is None else model,
        **{"random_state": 0, "tol": 0.05, "density": "gaussian_mixture"} | parameters,
    )


def regressor(model, **parameters):
    return ExpectedPredictionRegressor(
        model, **{"random_state": 0, "density": "gaussian_mixture"} | parameters
    )


@pytest.fixture(scope="module", autouse=True)
def short_fits():
    """Keep fits short: what is tested needs neither as many trees nor a chosen mixture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_target_stack, "MAX_TREES", 30)
        patch.setitem(
            _inner_density._NAMED,
            "gaussian_mixture",
            lambda: GaussianMixtureDensity(n_components=3, covariance_type="tied"),
        )
        yield


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order], np.array(["a", "b", "c"])[y[order]]


@pytest.fixture(scope="module")
def stacked(iris):
    X, y = iris
    return classifier(DecisionTreeClassifier(random_state=0)).fit(X[:100], y[:100])


def test_complete_rows_get_the_classifiers_own_probabilities(stacked, iris):
    X = iris[0][100:].copy()
    expected = stacked.estimator_.predict_proba(X)
    np.testing.assert_array_equal(stacked.predict_proba(X), expected)
    X[::2, 1] = NAN
    np.testing.assert_array_equal(stacked.predict_proba(X)[1::2], expected[1::2])


class Remainders(LogisticRegression):
    """Probabilities of a tenth each; the first is what the others leave of `total`."""

    total = 1.0

    def predict_proba(self, X):
        probabilities = super().predict_proba(X).round(1)
        probabilities[:, 0] = self.total - probabilities[:, 1:].sum(axis=1)
        return np.maximum(probabilities, self.total - 1.0)


class Rounded(Remainders):
    total = 1.0 - 1e-15


def test_probabilities_that_rounding_leaves_below_zero_count_as_zero(iris):
    exact, rounded = (
        classifier(model).fit(*iris) for model in (Remainders(max_iter=500), Rounded(max_iter=500))
    )
    assert np.ptp(exact.stacking_weights_) > 0.01  # they are learned
    np.testing.assert_allclose(rounded.stacking_weights_, exact.stacking_weights_, rtol=1e-6)


def test_probabilities_are_a_power_of_the_mean_root_of_all_answers(stacked, iris):
    X, y = hide(iris[0][100:]), iris[1]
    X = X[np.isnan(X).any(axis=1)]
    alone = classifier(DecisionTreeClassifier(random_state=0), stacking=False, tol=0.01)
    expected = alone.fit(iris[0][:100], y[:100]).predict_proba(X)
    weights = stacked.stacking_weights_
    assert weights.shape == (4,)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights > 0).all()
    rest = stacked._stack.members.answers(X)
    mixed = np.tensordot(weights, np.sqrt([expected, *rest]), axes=1)
    mixed **= 2.0 * stacked._stack.power
    mixed /= mixed.sum(axis=1, keepdims=True)
    found = stacked.predict_proba(X)
    np.testing.assert_allclose(found, mixed, atol=0.05)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-9)
    assert (stacked.predict(X) == stacked.classes_[found.argmax(axis=1)]).all()
    # an error of what is weighed is no larger than that of all
    assert (stacked.standard_error(X) <= 0.05).all()


def test_stacking_lowers_the_log_loss_of_a_classifier_that_is_too_sure(stacked, iris):
    X, y = iris
    alone = classifier(DecisionTreeClassifier(random_state=0), stacking=False)
    alone.fit(X[:100], y[:100])
    incomplete = np.vstack([hide(X[100:], seed=seed) for seed in range(4)])
    truth = np.tile(y[100:], 4)
    losses = [log_loss(truth, model.predict_proba(incomplete)) for model in (stacked, alone)]
    assert losses[0] < 0.9 * losses[1]


def test_held_out_rows_choose_the_number_of_trees():
    X = np.random.default_rng(0).uniform(size=(300, 2))
    few = _target_stack.N_TREES[0]
    # Half of the labels are wrong: the trees that follow learn nothing else
    y = (X[:, 0] > 0.5) ^ (np.random.default_rng(1).random(300) < 0.5)
    chosen = [
        classifier().fit(rows, labels)._stack.members.trees.n_iter_
        for rows, labels in ((X, X[:, 0] > 0.5), (hide(X, 0.5), y))
    ]
    assert chosen[0] > chosen[1] == few


def test_weights_follow_what_is_right(iris):
    """Circles have means in common: Gaussians per class see them, linear models do not."""
    X, y = make_gaussian_quantiles(n_samples=300, n_features=3, n_classes=2, random_state=0)
    assert classifier().fit(X, y).stacking_weights_[0] < 0.1
    # A checkerboard with each coordinate twice: a tree and a component per row have it, no mixture
    # of few components
    X = np.random.default_rng(0).uniform(size=(600, 2)) * 6.0
    y = np.floor(X).sum(axis=1) % 2
    X = np.hstack([X, 2.0 * X])
    tree = DecisionTreeClassifier(min_samples_leaf=3, random_state=0)
    of_tree, *of_mixtures, _, of_kernels = classifier(tree).fit(X, y).stacking_weights_
    assert of_tree > 0.1
    assert of_kernels > 0.5
    assert max(of_mixtures) < 0.05


def test_kernel_densities_count_only_where_rows_are_near():
    """Each row twice with little noise; then rows without near ones, and a linear target."""
    rng = np.random.default_rng(0)
    half = rng.uniform(size=(120, 4))
    twice = np.vstack([half, half + 1e-3 * rng.normal(size=half.shape)])
    apart = rng.normal(size=(240, 4))
    cases = (
        (twice, np.tile(rng.normal(size=120), 2), True),
        (apart, apart.sum(axis=1) + rng.normal(size=240), False),
    )
    for X, y, counts in cases:
        wrapped = regressor(Ridge()).fit(X, y)
        assert len(wrapped._stack.members.kernels) == counts
        assert len(wrapped.stacking_weights_) == 4 + counts
        assert not counts or wrapped.stacking_weights_[-1] > 0.5
        assert wrapped.stacking_weights_.sum() == pytest.approx(1.0)
        assert np.isfinite(wrapped.predict(hide(X))).all()


def test_explain_method_tells_of_stacking(stacked, iris):
    ending = f"stacked, with a weight of {stacked.stacking_weights_[0]:.2f}"
    assert stacked.explain_method()["predict_proba"].endswith(ending)
    assert stacked.method_.endswith(ending)
    model = classifier().fit(*iris)
    assert "stacked" not in model.explain_method()["decision_function"]


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"stacking": False}, "as asked"),
        ({"density": GaussianMixtureDensity(n_components=1)}, "the density is given"),
    ],
    ids=["as asked", "density given"],
)
def test_expectations_stay_alone(parameters, reason, iris):
    wrapped = classifier(**parameters).fit(*iris)
    assert wrapped.explain_method()["predict_proba"].endswith(f"; not stacked: {reason}")
    assert wrapped.stacking_weights_.tolist() == [1.0]
    assert "stacked" not in wrapped.method_


def test_quantiles_are_not_stacked_with_means():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + rng.exponential(size=300)
    X[rng.random(X.shape) < 0.2] = NAN
    boosted = HistGradientBoostingRegressor(loss="quantile", quantile=0.9, max_iter=20)
    for model in (QuantileRegressor(quantile=0.9, alpha=0.0), boosted):
        wrapped = regressor(make_pipeline(StandardScaler(), model)).fit(X, y)
        assert "not stacked: the model predicts a quantile" in wrapped.explain_method()["predict"]
        assert np.mean(y <= wrapped.predict(X)) > 0.8


class OfAnotherLibrary(Ridge):
    def __init__(self, loss_function="RMSE", objective=None):
        super().__init__()
        self.loss_function, self.objective = loss_function, objective


def test_quantiles_are_known_by_the_names_of_other_libraries():
    assert not predicts_quantile(make_pipeline(StandardScaler(), OfAnotherLibrary()))
    assert predicts_quantile(make_pipeline(OfAnotherLibrary("Quantile:alpha=0.9")))
    assert predicts_quantile(OfAnotherLibrary(objective="reg:quantileerror"))
    assert not predicts_median(OfAnotherLibrary(objective="reg:quantileerror"))


def test_models_of_medians_are_stacked_by_absolute_errors():
    for model in (
        HistGradientBoostingRegressor(loss="absolute_error"),
        make_pipeline(StandardScaler(), RandomForestRegressor(criterion="absolute_error")),
        OfAnotherLibrary("MAE"),
        OfAnotherLibrary(objective="reg:absoluteerror"),
        OfAnotherLibrary(objective="mean_absolute_error"),
    ):
        assert predicts_median(model)
        assert not predicts_quantile(model)
    assert not predicts_median(HistGradientBoostingRegressor())
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = np.exp(X[:, 0] + rng.normal(size=300))
    X[rng.random(X.shape) < 0.3] = NAN
    model = HistGradientBoostingRegressor(loss="absolute_error", max_iter=20, random_state=0)
    wrapped = regressor(model).fit(X[:200], y[:200])
    assert wrapped.stacking_weights_[0] < 1.0
    assert wrapped._stack.members.trees.loss == "absolute_error"
    assert np.isfinite(wrapped.predict(X[200:])).all()


def test_weights_of_least_absolute_error():
    rng = np.random.default_rng(0)
    signal = rng.normal(size=2000)
    targets = signal + rng.exponential(size=2000)
    # A model of medians with errors of its own, and one of means
    answers = np.stack([signal + np.log(2.0) + 0.5 * rng.normal(size=2000), signal + 1.0])
    found = _weights_of_medians(answers[:, :, None], targets, np.ones(2000), np.ones(2))
    grid = np.linspace(0.0, 1.0, 101)
    losses = np.abs(grid[:, None] * answers[0] + (1.0 - grid)[:, None] * answers[1] - targets)
    best = losses.mean(axis=1).min()
    assert np.abs(found @ answers - targets).mean() < 1.001 * best
    squares = _weights_of(answers[:, :, None], targets, np.ones(2000), np.ones(2))
    assert np.abs(squares @ answers - targets).mean() > 1.004 * best
    # Without any error, all rows are as good
    same = np.stack([targets, targets])[:, :, None]
    exact = _weights_of_medians(same, targets, np.ones(2000), np.ones(2))
    np.testing.assert_allclose(exact, 0.5, rtol=1e-6)


def test_expectations_of_frozen_models_and_of_several_targets_stay_alone(iris):
    X, y = iris
    frozen = FrozenEstimator(LogisticRegression(max_iter=1000).fit(X, y))
    assert classifier(frozen).fit(X, y).stacking_weights_.tolist() == [1.0]
    assert classifier(LinearSVC()).fit(X, y).stacking_weights_.tolist() == [1.0]
    several = MultiOutputClassifier(DecisionTreeClassifier(max_depth=2))
    wrapped = classifier(several).fit(X, np.column_stack([y, y]))
    assert wrapped.stacking_weights_.tolist() == [1.0]


@pytest.mark.parametrize(
    ("counts", "is_stacked"),
    [([1, 20, 19], False), ([5, 6, 6], False), ([2, 20, 18], True)],
    ids=["a single row", "few rows", "a rare class"],
)
def test_classes_of_few_rows(iris, counts, is_stacked):
    """With a rare class, predictions are stacked all the same, and without a warning."""
    X, y = iris
    rows = np.concatenate([np.flatnonzero(y == c)[:n] for c, n in zip("abc", counts)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wrapped = classifier().fit(X[rows], y[rows])
    assert (len(wrapped.stacking_weights_) > 1) == is_stacked
    assert ("too few" in wrapped.explain_method()["predict_proba"]) != is_stacked
    test = np.setdiff1d(np.arange(len(y)), rows)
    incomplete = hide(X[test])
    probabilities = wrapped.predict_proba(incomplete)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert np.mean(wrapped.predict(incomplete)[y[test] != "a"] == y[test][y[test] != "a"]) > 0.75


def test_a_rare_class_of_many_rows_is_among_those_that_weights_are_learned_from(iris, monkeypatch):
    monkeypatch.setattr(_target_stack, "MAX_ROWS", 40)
    X, y = iris
    rows = np.flatnonzero(y != "a")
    rows = np.append(rows, np.flatnonzero(y == "a")[:2])
    for seed in range(2):
        wrapped = classifier(random_state=seed).fit(X[rows], y[rows])
        assert len(wrapped.stacking_weights_) > 1


def test_a_rare_class_does_not_leave_an_overconfident_model_alone():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4))
    y = (X[:, 0] + rng.normal(size=300) > 0).astype(int)
    y[:3] = 2
    losses = []
    for stacking in (True, False):
        model = classifier(DecisionTreeClassifier(random_state=0), stacking=stacking)
        answers = model.fit(X[:150], y[:150]).predict_proba(hide(X[150:]))
        losses.append(log_loss(y[150:], answers, labels=[0, 1, 2]))
    assert losses[0] < 0.8 * losses[1]


def test_training_rows_with_missing_values_are_held_out_as_they_are(iris):
    X, y = iris[0][:75], iris[1][:75]
    wrapped = classifier(n_completions=2, n_draws=64, tol=0.5).fit(hide(X), y)
    assert len(wrapped.stacking_weights_) > 1
    assert len(wrapped.estimators_) == 2
    native = DecisionTreeClassifier(min_samples_leaf=5)
    wrapped = classifier(native, n_completions=0).fit(hide(X), y)
    assert len(wrapped.stacking_weights_) > 1
    indicated = classifier(n_completions=1, add_indicator=True, n_draws=64, tol=0.5).fit(hide(X), y)
    np.testing.assert_allclose(indicated.predict_proba(hide(X, seed=1)).sum(axis=1), 1.0)


def test_tables_of_categories_and_weights(iris):
    X, y = iris
    table = pd.DataFrame(X[:, :2], columns=["a", "b"])
    table["size"] = pd.Categorical(np.where(X[:, 2] > 3, "large", "small"))
    table["few"] = np.round(X[:, 3])
    weights = np.where(y == "a", 0.5, 2.0)
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype")
    wrapped = classifier(model).fit(table, y, sample_weight=weights)
    rows = table.mask(np.random.default_rng(1).random(table.shape) < 0.4)
    found = wrapped.predict_proba(rows)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    nothing = table[:1].mask(np.ones((1, 4), dtype=bool))
    masses = np.array([weights[y == label].sum() for label in "abc"]) / weights.sum()
    np.testing.assert_allclose(wrapped.predict_proba(nothing)[0], masses, atol=0.1)


def test_weights_that_are_no_counts_may_have_any_sum(iris):
    """Priors are in rows: weights of a small sum left densities and trees nothing but these."""
    X, y = iris
    weights = np.random.default_rng(0).random(len(y))

    def answers(weights):
        wrapped = classifier(GaussianNB()).fit(X, y, sample_weight=weights)
        return wrapped._stack.members.answers(hide(X))

    np.testing.assert_allclose(answers(1e-6 * weights), answers(weights), atol=1e-6)


@pytest.mark.parametrize("rows", [slice(None), slice(30)], ids=["many rows", "few rows"])
def test_regressors_are_stacked(iris, rows):
    X, y = iris[0][rows, :3], iris[0][rows, 3]
    model = make_pipeline(StandardScaler(), Ridge(100.0))
    wrapped = regressor(model, tol=0.01).fit(X, y)
    np.testing.assert_array_equal(wrapped.predict(X), wrapped.estimator_.predict(X))
    alone = regressor(model, stacking=False).fit(X, y)
    incomplete = hide(X)
    incomplete = incomplete[np.isnan(incomplete).any(axis=1)]
    members = [alone.predict(incomplete)]
    members += [answer[:, 0] for answer in wrapped._stack.members.answers(incomplete)]
    mean, std = wrapped.predict(incomplete, return_std=True)
    np.testing.assert_allclose(mean, wrapped.stacking_weights_ @ members, rtol=1e-9)
    np.testing.assert_array_equal(std, alone.predict(incomplete, return_std=True)[1])
    assert wrapped.stacking_weights_.shape == (4,)
    assert f"stacked, with a weight of {wrapped.stacking_weights_[0]:.2f}" in wrapped.method_


def test_stacking_lowers_the_error_of_a_rough_regressor(iris):
    X, y = iris[0][:, :3], iris[0][:, 3]
    errors = []
    for stacking in (True, False):
        model = regressor(Ridge(100.0), stacking=stacking)
        model.fit(X[:100], y[:100])
        predicted = [model.predict(hide(X[100:], seed=seed)) for seed in range(4)]
        errors.append(np.square(np.array(predicted) - y[100:]).mean())
    assert errors[0] < 0.9 * errors[1]


@pytest.mark.parametrize("y", [np.zeros(40), 1e-180 * np.arange(40.0)], ids=["constant", "tiny"])
def test_targets_without_variance(y):
    X = np.random.default_rng(0).normal(size=(40, 3))
    wrapped = regressor(Ridge()).fit(X, y)
    found = wrapped.predict(hide(X))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, y, atol=1e-178)


def test_columns_without_any_value_are_stacked(iris):
    X, y = iris[0][:60, :3].copy(), iris[0][:60, 3]
    X[:, 1] = NAN
    wrapped = regressor(Ridge(), n_completions=1).fit(X, y)
    assert len(wrapped.stacking_weights_) == 4
    X[::2, 1] = 1.0
    assert np.isfinite(wrapped.predict(X)).all()


def test_numbers_of_few_rows_are_not_held_out(iris):
    wrapped = regressor(Ridge()).fit(iris[0][:29, :3], iris[0][:29, 3])
    assert wrapped.stacking_weights_.tolist() == [1.0]


def test_models_that_cannot_learn_from_parts_are_told(iris):
    """Neighbours that all rows have, and parts have not."""
    X, y = iris[0][:36, :3], iris[0][:36, 3]
    model = regressor(KNeighborsRegressor(30))
    with pytest.warns(
        UserWarning, match="uses the expectation alone, because the model cannot be fitted"
    ):
        model.fit(X, y)
    assert model.stacking_weights_.tolist() == [1.0]
    assert "a subset of the rows" in model.explain_method()["predict"]
    np.testing.assert_array_equal(model.predict(X), model.estimator_.predict(X))


def test_no_warnings_come_from_held_out_rows(iris):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ExpectedPredictionClassifier(random_state=0, tol=0.2).fit(*iris)


# ------------------------------------------------------------------ the parts


@pytest.fixture(scope="module", params=[3, 0], ids=["classes", "numbers"])
def training(iris, request):
    X, y = iris
    targets = np.unique(y, return_inverse=True)[1] if request.param else X[:, 0] ** 2
    rows = X if request.param else X[:, 1:]
    schema = TableSchema.learn(rows)
    return TrainingTargets(rows, targets.astype(float), np.ones(len(X)), schema, request.param)


def test_densities_answer_by_bayes_rule(training):
    """Against the density of rows and target itself: over all classes, or a fine grid."""
    mixtures = [own for (own,) in _fit_mixtures(training, [0])]
    for circuit in mixtures + _fit_kernels(training, 0):
        rows = np.column_stack([training.rows[:10], np.full(10, NAN)])
        rows[:, 1] = NAN
        found = _of_last_column(circuit, rows)
        grid = np.arange(3.0) if training.n_classes else np.linspace(-150.0, 250.0, 4001)
        joint = np.repeat(rows[:, None], len(grid), axis=1)
        joint[:, :, -1] = grid
        masses = np.exp(circuit.log_prob(joint.reshape(-1, rows.shape[1]))).reshape(10, -1)
        masses /= masses.sum(axis=1, keepdims=True)
        expected = masses if training.n_classes else masses @ grid[:, None]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


def test_kernels_are_around_rows_of_positive_weight(training, monkeypatch):
    monkeypatch.setattr(_target_stack, "MAX_KERNELS", 20)
    weights = (np.arange(len(training.targets)) >= len(training.targets) - 40).astype(float)
    (found,) = _fit_kernels(replace(training, weights=weights), 0)
    (expected,) = _fit_kernels(training.take(np.arange(len(weights) - 40, len(weights))), 0)
    rows = np.column_stack([hide(training.rows), np.full(len(training.rows), NAN)])
    np.testing.assert_array_equal(_of_last_column(found, rows), _of_last_column(expected, rows))


def test_without_any_cell_answers_are_those_of_all_rows(training):
    nothing = np.full((1, training.rows.shape[1]), NAN)
    average = np.mean(training.targets)
    expected = np.full(3, 1 / 3) if training.n_classes else [average]
    # trees have seen no row without any cell: they take the way of rows alike
    members = Members.fit(training, True, 0)
    for found in members.of_mixtures(nothing) + members.of_kernels(nothing):
        np.testing.assert_allclose(found[0], expected, rtol=0.06)


def test_answers_of_several_starts_are_averaged(training):
    rows = hide(training.rows)
    single = [Members.fit(training, True, seed, 10).of_mixtures(rows) for seed in (5, 6)]
    found = Members.fit(training, True, 5, 10, n_starts=2).of_mixtures(rows)
    np.testing.assert_allclose(found, np.mean(single, axis=0), rtol=1e-9)


def test_classifiers_average_the_starts_of_their_densities(stacked):
    assert [len(own) for own in stacked._stack.members.mixtures] == [3, 3]


def test_answers_are_no_more_extreme_than_targets(training):
    far = 1e3 * training.rows[:5]
    for found in Members.fit(training, True, 0).answers(far):
        least = 0.0 if training.n_classes else training.targets.min()
        most = 1.0 if training.n_classes else training.targets.max()
        assert (found >= least).all()
        assert (found <= most).all()


def test_first_trees_are_those_of_a_shorter_fit(training):
    n_trees = _target_stack.N_TREES[0]
    whole, short = (Members.fit(training, True, 0, n) for n in (n_trees + 1, n_trees))
    expected = short.answers(training.rows)[len(short.mixtures)]
    np.testing.assert_allclose(whole.of_first_trees(training.rows)[0], expected, rtol=1e-12)


def test_trees_learn_from_hidden_cells_unless_they_must_not(training):
    """The last number and the first tell the same: where one is missing, the other counts."""
    rows = np.column_stack([training.rows, training.rows])
    doubled = TrainingTargets(
        rows, training.targets, training.weights, TableSchema.learn(rows), training.n_classes
    )
    half = rows.copy()
    half[:, : training.rows.shape[1]] = NAN
    errors = []
    for may_hide in (True, False):
        trees = _grow_trees(doubled, may_hide, 0, N_TREES[-1])
        errors.append(np.mean(np.square(trees.predict(half) - training.targets)))
    assert errors[0] < 0.5 * errors[1]


def test_pools_are_halfway_between_means_and_products():
    answers = np.array([[[0.9, 0.1], [1.0, 0.0]], [[0.5, 0.5], [0.2, 0.8]]])
    found = _pooled(np.array([0.25, 0.75]), answers)
    expected = (0.25 * np.sqrt(answers[0]) + 0.75 * np.sqrt(answers[1])) ** 2
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (found > 0.0).all()  # a zero does not decide alone
    numbers = answers[:, :, :1]
    np.testing.assert_allclose(
        _pooled(np.array([0.25, 0.75]), numbers), 0.25 * numbers[0] + 0.75 * numbers[1], rtol=1e-12
    )


@pytest.mark.parametrize("prior_rows", [[1.0, 1.0, 1.0], [1.0, 0.1, 2.0]])
def test_weights_of_roots_have_the_least_penalised_loss(prior_rows):
    """No weights of a fine grid do better."""
    rng = np.random.default_rng(0)
    answers = rng.dirichlet(np.ones(3), size=(3, 40))
    answers[0, :5] = [1.0, 0.0, 0.0]
    targets, row_weights = rng.integers(0, 3, 40), rng.uniform(size=40)

    def loss(weights):
        pooled = _pooled(weights, answers)
        right = pooled[np.arange(40), targets] / pooled.sum(axis=1)
        return -row_weights @ np.log(right) - prior_rows @ np.log(weights)

    found = _weights_of(answers, targets.astype(float), row_weights, np.array(prior_rows))
    assert found.sum() == pytest.approx(1.0)
    grid = np.arange(0.02, 1.0, 0.02)
    others = [(a, b, 1.0 - a - b) for a in grid for b in grid if a + b < 0.99]
    assert loss(found) <= min(loss(np.array(own)) for own in others)


@pytest.mark.parametrize("is_class", [True, False], ids=["classes", "numbers"])
def test_weights_are_those_of_the_prior_without_evidence_and_drawn_to_the_better(is_class):
    truth = np.arange(500) % 2.0

    def answers(*rights):
        """Answers that are right by a fraction."""
        probability = np.array(rights)[:, None] * (2.0 * truth - 1.0) / 2.0 + 0.5
        parts = [1.0 - probability, probability] if is_class else [1e6 + probability]
        return np.stack(parts, axis=2)

    targets = truth if is_class else 1e6 + truth
    rows = np.ones(500)
    for prior_rows in (np.ones(3), np.array([1.0, 1.0, 0.1])):
        alike = _weights_of(answers(0.4, 0.4, 0.4), targets, rows, prior_rows)
        np.testing.assert_allclose(alike, prior_rows / prior_rows.sum(), atol=1e-4)
    better = _weights_of(answers(0.9, 0.1), targets, rows, np.ones(2))
    assert better[0] > 0.95
    # rows without weight say nothing
    half = np.repeat([1.0, 0.0], 250)
    twisted = answers(0.9, 0.1)
    twisted[:, 250:] = twisted[::-1, 250:]
    assert _weights_of(twisted, targets, half, np.ones(2))[0] > 0.95


def test_small_errors_tell_predictions_apart_as_large_ones_do():
    """A prior of few rows does not decide where all members nearly know the target."""
    rng = np.random.default_rng(0)
    targets = rng.normal(size=200)
    errors = rng.normal(size=(2, 200)) * [[1.0], [3.0]]
    large, small = (
        _weights_of((targets + size * errors)[:, :, None], targets, np.ones(200), np.ones(2))
        for size in (0.3, 0.003)
    )
    assert large[0] > 0.85
    np.testing.assert_allclose(small, large, rtol=1e-6)
    # nor where one of them has no error at all
    exact = np.stack([targets, targets + errors[1]])
    assert _weights_of(exact[:, :, None], targets, np.ones(200), np.ones(2))[0] > 0.99


@pytest.mark.parametrize("true_power", [0.5, 1.0, 3.0])
def test_powers_undo_too_much_and_too_little_confidence(true_power):
    """Classes drawn from known probabilities, which the answers tell with a wrong power."""
    rng = np.random.default_rng(0)
    right = rng.dirichlet(np.ones(3), size=4000)
    targets = (rng.random((4000, 1)) > right.cumsum(axis=1)).sum(axis=1)
    told = right ** (1.0 / true_power)
    told /= told.sum(axis=1, keepdims=True)
    assert _power_of(told, targets, np.ones(4000)) == pytest.approx(true_power, rel=0.1)
    # a row tells nearly nothing, one without weight nothing at all
    assert _power_of(told[:1], targets[:1], np.ones(1)) == pytest.approx(1.0, abs=0.2)
    assert _power_of(told[:1], targets[:1], np.zeros(1)) == pytest.approx(1.0, abs=1e-3)


def test_cells_are_hidden_from_complete_rows_alone():
    X = np.ones((200, 4))
    X[::2, 0] = NAN
    found = _with_hidden_cells(X, np.random.default_rng(0))
    np.testing.assert_array_equal(found[::2], X[::2])
    assert 0.2 < np.isnan(found[1::2]).mean() < 0.5
