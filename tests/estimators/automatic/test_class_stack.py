"""Expected probabilities stacked with those that densities of rows and classes give."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris, make_gaussian_quantiles
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.multioutput import MultiOutputClassifier
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skcircuits import ExpectedPredictionClassifier, GaussianMixtureDensity
from skcircuits.estimators.automatic._class_stack import (
    TrainingClasses,
    _fit_circuits,
    _posterior,
    _weights_of,
    _with_hidden_cells,
)
from skcircuits.tabular import TableSchema

NAN = np.nan


def hide(X, fraction=0.3, seed=0):
    return np.where(np.random.default_rng(seed).random(X.shape) < fraction, NAN, X)


def classifier(model=None, **parameters):
    return ExpectedPredictionClassifier(
        LogisticRegression(max_iter=1000) if model is None else model,
        **{"random_state": 0, "tol": 0.05} | parameters,
    )


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


def test_probabilities_are_the_weighted_mean_of_expected_ones_and_posteriors(stacked, iris):
    X, y = hide(iris[0][100:]), iris[1]
    X = X[np.isnan(X).any(axis=1)]
    alone = classifier(DecisionTreeClassifier(random_state=0), stacking=False, tol=0.01)
    expected = alone.fit(iris[0][:100], y[:100]).predict_proba(X)
    weights = stacked.stacking_weights_
    assert weights.shape == (4,)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights > 0).all()
    rest = [_posterior(circuit, X) for circuit in stacked._stack.circuits]
    mixed = weights[0] * expected + np.tensordot(weights[1:], rest, axes=1)
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


def test_weights_follow_what_is_right(iris):
    """Circles have means in common: Gaussians per class see them, linear models do not."""
    X, y = make_gaussian_quantiles(n_samples=300, n_features=3, n_classes=2, random_state=0)
    assert classifier().fit(X, y).stacking_weights_[0] < 0.1
    # A checkerboard with each coordinate twice: a tree has it, no mixture of few components
    X = np.random.default_rng(0).uniform(size=(600, 2)) * 6.0
    y = np.floor(X).sum(axis=1) % 2
    X = np.hstack([X, 2.0 * X])
    tree = DecisionTreeClassifier(min_samples_leaf=3, random_state=0)
    assert classifier(tree).fit(X, y).stacking_weights_[0] > 0.3


def test_explain_method_tells_of_stacking(stacked, iris):
    share = f"stacked, with a weight of {stacked.stacking_weights_[0]:.2f}"
    assert stacked.explain_method()["predict_proba"].endswith(share)
    assert stacked.method_.endswith(share)
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


def test_expectations_of_frozen_models_and_of_several_targets_stay_alone(iris):
    X, y = iris
    frozen = FrozenEstimator(LogisticRegression(max_iter=1000).fit(X, y))
    assert classifier(frozen).fit(X, y).stacking_weights_.tolist() == [1.0]
    assert classifier(LinearSVC()).fit(X, y).stacking_weights_.tolist() == [1.0]
    several = MultiOutputClassifier(DecisionTreeClassifier(max_depth=2))
    wrapped = classifier(several).fit(X, np.column_stack([y, y]))
    assert wrapped.stacking_weights_.tolist() == [1.0]


def test_classes_of_few_rows_are_not_held_out(iris):
    X, y = iris[0][:40], iris[1][:40].copy()
    y[5:] = np.where(y[5:] == "a", "b", y[5:])
    y[:5] = "a"
    wrapped = classifier().fit(X, y)
    assert wrapped.stacking_weights_.tolist() == [1.0]
    assert "too few rows" in wrapped.explain_method()["predict_proba"]


def test_training_rows_with_missing_values_are_held_out_as_they_are(iris):
    X, y = iris
    wrapped = classifier(n_completions=2).fit(hide(X), y)
    assert len(wrapped.stacking_weights_) == 4
    assert len(wrapped.estimators_) == 2
    native = DecisionTreeClassifier(min_samples_leaf=5)
    wrapped = classifier(native, n_completions=0).fit(hide(X), y)
    assert len(wrapped.stacking_weights_) == 4
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


def test_no_warnings_come_from_held_out_rows(iris):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ExpectedPredictionClassifier(random_state=0, tol=0.2).fit(*iris)


# ------------------------------------------------------------------ the parts


@pytest.fixture(scope="module")
def training(iris):
    X, y = iris
    codes = np.unique(y, return_inverse=True)[1]
    return TrainingClasses(X, codes, np.ones(len(X)), TableSchema.learn(X), 3)


def test_posteriors_are_those_of_bayes(training):
    """Against the class-conditional Gaussians themselves, rows missing one number."""
    circuit = _fit_circuits(training, 0)[0]
    X = training.rows[:20].copy()
    X[:, 1] = NAN
    seen = [0, 2, 3]
    masses = np.bincount(training.codes) / len(training.codes)
    joint = np.empty((20, 3))
    for term, unit in enumerate(circuit.root.children):
        (gaussian,) = [child for child in unit.children if len(child.scope) > 1]
        own = multivariate_normal(gaussian.mean[seen], gaussian.covariance[np.ix_(seen, seen)])
        joint[:, term] = np.log(masses[term]) + own.logpdf(X[:, seen])
    joint -= joint.max(axis=1, keepdims=True)
    expected = np.exp(joint) / np.exp(joint).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(_posterior(circuit, X), expected, rtol=1e-8, atol=1e-12)


def test_without_any_cell_posteriors_are_the_frequencies(training):
    frequencies = np.bincount(training.codes) / len(training.codes)
    for circuit in _fit_circuits(training, 0):
        found = _posterior(circuit, np.full((1, 4), NAN))[0]
        np.testing.assert_allclose(found, frequencies, atol=0.02)


def test_weights_are_equal_without_evidence_and_drawn_to_the_likelier():
    equal = np.full((50, 3), 0.4)
    np.testing.assert_allclose(_weights_of(equal, np.ones(50)), 1 / 3, atol=1e-4)
    better = np.column_stack([np.full(500, 0.9), np.full(500, 0.2)])
    weights = _weights_of(better, np.ones(500))
    assert weights[0] > 0.99
    # rows without weight say nothing
    unsaid = np.vstack([better, better[:, ::-1]])
    repeated = _weights_of(unsaid, np.repeat([1.0, 0.0], 500))
    assert repeated[0] > 0.99


def test_cells_are_hidden_from_complete_rows_alone():
    X = np.ones((200, 4))
    X[::2, 0] = NAN
    found = _with_hidden_cells(X, np.random.default_rng(0))
    np.testing.assert_array_equal(found[::2], X[::2])
    assert 0.2 < np.isnan(found[1::2]).mean() < 0.5
