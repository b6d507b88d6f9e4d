"""Every regressor and classifier of scikit-learn as base of an expected prediction."""

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    clone,
    is_classifier,
)
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
)
from sklearn.feature_selection import RFE
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import r2_score
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import ComplementNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC
from sklearn.utils import all_estimators

from skcircuits import (
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
    GaussianMixtureDensity,
)

NAN = np.nan
KINDS = {"regressor": ExpectedPredictionRegressor, "classifier": ExpectedPredictionClassifier}
INNER = {"regressor": Ridge(), "classifier": LogisticRegression()}
# They answer nothing for rows far from the training rows, isolated ones or tables like this one
UNFIT = {"RadiusNeighborsRegressor", "RadiusNeighborsClassifier", "IsotonicRegression"}


def table(seed=0, n=90):
    """Positive columns, two targets, and the same rows with missing values."""
    rng = np.random.default_rng(seed)
    X = np.abs(rng.normal(size=(n, 4)) @ rng.normal(size=(4, 4)) + 3.0) + 0.1
    y = X[:, 0] - 0.1 * X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    return X, y - y.min() + 0.1, np.where(rng.random(X.shape) < 0.3, NAN, X)


def make(name, kind):
    """Build an estimator of scikit-learn with as few parameters as it needs."""
    known = {"random_state": 0, "n_estimators": 5, "max_iter": 50 if "Boost" not in name else 5}
    known |= {"estimator": INNER[kind], "estimators": [("a", INNER[kind]), ("b", INNER[kind])]}
    known["param_grid"] = known["param_distributions"] = {
        "alpha" if kind == "regressor" else "C": [0.1, 1.0]
    }
    cls = dict(all_estimators(type_filter=kind))[name]
    parameters = inspect.signature(cls).parameters
    model = cls(**{key: value for key, value in known.items() if key in parameters})
    if name == "CategoricalNB":
        model.set_params(min_categories=50)
    return model


def fit_alone(model, X, targets):
    """Fit a model on the first target that it accepts; None where it accepts none."""
    for y in targets:
        try:
            return clone(model).fit(X, y), y
        except Exception:
            continue
    return None, None


def check_answers(wrapped, alone, X, incomplete):
    """Same methods, shapes and kinds as the model alone; on complete rows the same answers."""
    for method in ("predict", "predict_proba", "decision_function"):
        assert hasattr(wrapped, method) == hasattr(alone, method)
        if not hasattr(alone, method):
            continue
        expected, found = (getattr(model, method)(X) for model in (alone, wrapped))
        missing = getattr(wrapped, method)(incomplete)
        if not isinstance(expected, list):
            expected, found, missing = [expected], [found], [missing]
        for own, same, other in zip(expected, found, missing, strict=True):
            assert own.shape == other.shape
            np.testing.assert_array_equal(same, own)
            if own.dtype.kind == "f":
                assert np.isfinite(other).all()
            if method == "predict_proba" and np.allclose(own.sum(axis=1), 1.0):
                np.testing.assert_allclose(other.sum(axis=1), 1.0, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for kind in KINDS for name, _ in all_estimators(type_filter=kind)],
)
@pytest.mark.filterwarnings("ignore")
def test_any_model(name, kind):
    X, y, incomplete = table()
    model = make(name, kind)
    if kind == "classifier":
        X = np.rint(X) if name == "CategoricalNB" else X
        three = np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, [0.3, 0.6]))]
        two = np.where(y > np.median(y), "a", "b")
        targets = three, two, np.column_stack([two, two[::-1]])
    else:
        targets = y, np.column_stack([y, y[::-1]])
    alone, y = fit_alone(model, X, targets)
    if alone is None or name in UNFIT:
        pytest.skip(f"{name} cannot be fitted to the table")
    wrapped = KINDS[kind](
        clone(model),
        density=GaussianMixtureDensity(n_components=2, covariance_type="shrunk"),
        random_state=0,
        n_draws=64,
        tol=0.5,
        n_completions=2,
    )
    complete = clone(wrapped).fit(X, y)
    check_answers(complete, alone, X, incomplete)
    if kind == "classifier":
        assert 0.0 < complete.score(X, y) <= 1.0
    else:
        # Generalised linear models have a score of their own
        assert complete.score(X, y) == pytest.approx(r2_score(y, alone.predict(X)))
        assert np.isfinite(complete.predict(incomplete, return_std=True)[1]).all()
    values = complete.value_of_measuring(incomplete[:3])
    assert np.isfinite(values).all() and (values >= 0).all()
    again = clone(wrapped).fit(incomplete, y)
    assert again.predict(incomplete).shape == complete.predict(incomplete).shape
    assert np.isfinite(again.score(incomplete, y))


# ------------------------------------------------------------- what used to go wrong


def test_models_of_counts_get_no_negative_draws():
    X, y, incomplete = table()
    labels = np.where(y > np.median(y), "a", "b")
    for model in (
        MultinomialNB(),
        make_pipeline(MinMaxScaler(), CalibratedClassifierCV(ComplementNB())),
    ):
        wrapped = expected(model).fit(X - X.min(axis=0), labels)
        assert wrapped.predict_proba(incomplete - X.min(axis=0)).shape == (len(y), 2)


def expected(model, **parameters):
    kind = KINDS["classifier" if is_classifier(model) else "regressor"]
    density = GaussianMixtureDensity(n_components=1, covariance_type="shrunk")
    return kind(model, density=density, random_state=0, n_draws=64, tol=0.5, **parameters)


def test_models_that_predict_only_once_they_are_fitted():
    X, y, incomplete = table()
    stacked = StackingRegressor([("a", Ridge()), ("b", SVR())], cv=2)
    assert np.isfinite(expected(stacked).fit(X, y).predict(incomplete)).all()


def test_several_targets_are_right_together():
    X, y, incomplete = table()
    labels = np.column_stack([y > np.median(y), X[:, 1] > np.median(X[:, 1])]).astype(int)
    model = MultiOutputClassifier(LogisticRegression())
    wrapped = expected(model).fit(X, labels)
    assert wrapped.score(X, labels) == clone(model).fit(X, labels).score(X, labels)
    right = (wrapped.predict(incomplete) == labels).all(axis=1)
    assert wrapped.score(incomplete, labels) == right.mean()
    weights = np.arange(len(y))
    assert wrapped.score(incomplete, labels, weights) == np.average(right, weights=weights)


def test_decision_functions_of_pairs_choose_classes():
    """Six pairs of four classes: columns are no classes."""
    X, y, incomplete = table(n=200)
    y = np.digitize(y, np.quantile(y, [0.25, 0.5, 0.75]))
    settings = {
        "density": GaussianMixtureDensity(n_components=1, covariance_type="full"),
        "random_state": 0,
    }
    pairs, classes = (
        ExpectedPredictionClassifier(SVC(decision_function_shape=shape), **settings).fit(X, y)
        for shape in ("ovo", "ovr")
    )
    assert pairs.method_ == "exact: expected kernels"
    assert "'ovr' is not linear" in classes.method_
    assert pairs.decision_function(incomplete).shape == (200, 6)
    # Votes of expected differences and expected votes hardly ever differ
    assert (pairs.predict(incomplete) == classes.predict(incomplete)).mean() > 0.9
    assert pairs.score(incomplete, y) > 0.6


def test_stacks_decide_pairs_if_their_final_classifier_does():
    """Three pairs of three classes."""
    X, y, incomplete = table(n=200)
    y = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    final = make_pipeline(StandardScaler(), SVC(decision_function_shape="ovo"))
    stack = StackingClassifier([("a", LogisticRegression(max_iter=500))], final)
    settings = {
        "density": GaussianMixtureDensity(n_components=1, covariance_type="full"),
        "random_state": 0,
    }
    wrapped = ExpectedPredictionClassifier(stack, **settings).fit(X, y)
    assert wrapped.decision_function(incomplete).shape == (200, 3)
    assert wrapped.score(incomplete, y) > 0.6


@pytest.mark.parametrize("n_classes", [3, 4])
@pytest.mark.parametrize("shape", ["ovo", "ovr"])
def test_selected_columns_decide_as_their_classifier_does(shape, n_classes):
    X, y, _ = table(n=200)
    y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    X[:, -1] *= 1e-9  # nothing depends on this column
    svc = SVC(kernel="linear", decision_function_shape=shape)
    model = RFE(svc, n_features_to_select=X.shape[1] - 1).fit(X, y)
    density = GaussianMixtureDensity(n_components=1, covariance_type="full")
    wrapped = ExpectedPredictionClassifier(FrozenEstimator(model), density=density, random_state=0)
    incomplete = X.copy()
    incomplete[:, -1] = np.nan
    predicted = wrapped.fit(X, y).predict(incomplete)
    assert (predicted == model.predict(X)).mean() > 0.98  # but for ties of votes


@pytest.mark.parametrize("response_method", ["predict_proba", "decision_function"])
def test_thresholds_decide_about_expectations(response_method):
    X, y, incomplete = table(n=200)
    y = np.where(y > np.median(y), "high", "low")
    threshold = 0.8 if response_method == "predict_proba" else 1.0
    model = FixedThresholdClassifier(
        LogisticRegression(max_iter=500),
        threshold=threshold,
        pos_label="high",
        response_method=response_method,
    )
    density = GaussianMixtureDensity(n_components=1, covariance_type="full")
    settings = {"density": density, "stacking": False, "random_state": 0}
    wrapped = ExpectedPredictionClassifier(model, **settings).fit(X, y)
    assert wrapped.method_ == "exact: logistic link of a linear model"
    answers = getattr(wrapped, response_method)(incomplete)
    # Probabilities come in the order of the classes; decisions are about the second one
    score = answers[:, 0] if answers.ndim == 2 else -answers
    expected = np.where(score >= threshold, "high", "low")
    np.testing.assert_array_equal(wrapped.predict(incomplete), expected)
    assert (expected != np.where(score >= 0.5 * (answers.ndim == 2), "high", "low")).any()
    np.testing.assert_array_equal(wrapped.predict(X), clone(model).fit(X, y).predict(X))


def test_votes_of_classifiers_of_several_targets():
    X, y, incomplete = table(n=200)
    first = np.array(["low", "high"])[(y > np.median(y)).astype(int)]
    second = np.digitize(X[:, 1], np.quantile(X[:, 1], [0.3, 0.6])).astype(str)
    targets = np.column_stack([first, second])
    settings = {
        "density": GaussianMixtureDensity(n_components=1, covariance_type="full"),
        "random_state": 0,
    }
    both = ExpectedPredictionClassifier(MultiOutputClassifier(LinearSVC()), **settings)
    predicted = both.fit(X, targets).predict(incomplete)
    assert both.method_.startswith("draws")
    for j, own in enumerate(targets.T):
        alone = ExpectedPredictionClassifier(LinearSVC(), method="draws", **settings)
        # Expected votes and the sign of expected decisions hardly ever differ
        assert (alone.fit(X, own).predict(incomplete) == predicted[:, j]).mean() > 0.9
    assert np.isfinite(both.value_of_measuring(incomplete[:5])).all()


def test_labels_that_do_not_exclude_each_other():
    X, y, incomplete = table(n=200)
    labels = np.column_stack([y > np.median(y), X[:, 1] > X[:, 2], X[:, 3] > 3.0]).astype(int)
    model = OneVsRestClassifier(LogisticRegression(max_iter=500))
    wrapped = ExpectedPredictionClassifier(
        model,
        density=GaussianMixtureDensity(n_components=1, covariance_type="full"),
        random_state=0,
    ).fit(X, labels)
    assert wrapped.method_ == "exact: logistic link of a linear model"
    probabilities = wrapped.predict_proba(incomplete)
    predicted = wrapped.predict(incomplete)
    np.testing.assert_array_equal(predicted, probabilities > 0.5)
    assert (predicted == labels).mean() > 0.75


def test_one_class_alone():
    X, y, incomplete = table()
    wrapped = expected(RandomForestClassifier(3)).fit(X, np.repeat("only", len(y)))
    assert (wrapped.predict(incomplete) == "only").all()


def test_trees_behind_encoders_of_their_own_are_averaged():
    X, y, incomplete = table()
    forest = make_pipeline(StandardScaler(), RandomForestRegressor(3, max_depth=3, random_state=0))
    wrapped = expected(forest, n_completions=2).fit(incomplete, y)
    assert wrapped.method_.startswith("exact: probabilities of leaves")
    row = np.where(np.arange(4) == 1, NAN, X[:1])
    drawn = clone(wrapped).set_params(method="draws", n_draws=4096, tol=0.01).fit(incomplete, y)
    assert wrapped.predict(row) == pytest.approx(drawn.predict(row), abs=0.03 * y.std())
    assert wrapped.standard_error(row) == 0.0


@pytest.mark.parametrize(
    ("kind", "model", "match"),
    [
        ("regressor", LogisticRegression(), "be a regressor.*ExpectedPredictionClassifier"),
        ("classifier", Ridge(), "be a classifier.*ExpectedPredictionRegressor"),
        ("regressor", StandardScaler(), "have predict"),
        ("regressor", FrozenEstimator(LogisticRegression()), "be a regressor"),
    ],
    ids=str,
)
def test_models_of_the_other_kind_are_refused_at_once(kind, model, match, monkeypatch):
    X, y, _ = table()
    monkeypatch.setattr(type(model), "fit", lambda *args: pytest.fail("fitted for nothing"))
    with pytest.raises(TypeError, match=match):
        KINDS[kind](model).fit(X, (y > y.mean()).astype(int))


def test_pipelines_that_refuse_categories_are_refused_at_once(monkeypatch):
    X, y, _ = table()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(job=np.where(y > 1, "nurse", "cook"))
    with monkeypatch.context() as patch:
        patch.setattr(GaussianMixtureDensity, "fit", lambda *args: pytest.fail("for nothing"))
        with pytest.raises(ValueError, match=r"columns \['job'\].*OneHotEncoder"):
            expected(make_pipeline(StandardScaler(), Ridge())).fit(frame, y)
    encoder = make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough")
    for model in (make_pipeline(encoder, Ridge()), DummyRegressor()):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            expected(model).fit(frame, y).predict(frame.assign(job=None))


class AnswersWithLists(BaseEstimator):
    """A model of lists, as thin wrappers of other libraries give them; its `fit` returns None."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.fitted_ = clone(self.model).fit(X, y)
        if hasattr(self.fitted_, "classes_"):
            own = self.fitted_.classes_
            has_targets = isinstance(own, list)
            self.classes_ = [part.tolist() for part in own] if has_targets else own.tolist()

    def predict(self, X):
        return self.fitted_.predict(X).tolist()

    def predict_proba(self, X):
        answer = self.fitted_.predict_proba(X)
        has_targets = isinstance(answer, list)
        return [part.tolist() for part in answer] if has_targets else answer.tolist()


class RegressorWithLists(RegressorMixin, AnswersWithLists):
    predict_proba = property()


class ClassifierWithLists(ClassifierMixin, AnswersWithLists):
    pass


class LabelsInLists(ClassifierWithLists):
    predict_proba = property()


@pytest.mark.parametrize("n_targets", [1, 2])
@pytest.mark.parametrize("of_lists", [RegressorWithLists, ClassifierWithLists, LabelsInLists])
def test_models_may_answer_with_lists_and_fit_may_return_nothing(of_lists, n_targets):
    """Whatever a model answers with, expectations are those of the model with arrays."""
    X, y, incomplete = table()
    parameters = {
        "density": GaussianMixtureDensity(n_components=1, random_state=0),
        "method": "draws",
    }
    parameters |= {"n_draws": 64, "tol": 1.0, "random_state": 0}
    classes = np.digitize(y, np.quantile(y, [0.4, 0.7]))
    if of_lists is RegressorWithLists:
        wrap, model = ExpectedPredictionRegressor, LinearRegression()
        targets = np.stack([y, -y], axis=1)
    else:
        wrap, model = ExpectedPredictionClassifier, LogisticRegression(max_iter=1000)
        model = MultiOutputClassifier(model) if n_targets == 2 else model
        targets = np.stack([np.array(["low", "mid", "top"])[classes], classes > 0], axis=1)
    targets = targets if n_targets == 2 else targets[:, 0]
    expected = wrap(model, **parameters).fit(X, targets)
    found = wrap(of_lists(model), **parameters).fit(X, targets)
    for rows in (X, incomplete):
        assert found.predict(rows).shape == expected.predict(rows).shape
        if of_lists is not LabelsInLists:
            np.testing.assert_array_equal(found.predict(rows), expected.predict(rows))
    if of_lists is ClassifierWithLists:
        pairs = found.predict_proba(incomplete), expected.predict_proba(incomplete)
        for own, other in zip(*pairs) if n_targets == 2 else [pairs]:
            np.testing.assert_array_equal(own, other)
    if of_lists is LabelsInLists:
        np.testing.assert_array_equal(found.predict(X), expected.predict(X))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda rows: rows[:-1], "predict_proba must return an answer for each of"),
        (lambda rows: rows[:, 1], "predict_proba must have a column for each class"),
    ],
)
def test_answers_of_the_wrong_shape_are_refused(answer, message):
    """One column of two probabilities would make every incomplete row the first class."""

    class Wrong(ClassifierWithLists):
        def predict_proba(self, X):
            return answer(self.fitted_.predict_proba(X))

    X, y, _ = table()
    wrapped = ExpectedPredictionClassifier(
        Wrong(LogisticRegression()), density=GaussianMixtureDensity(n_components=1, random_state=0)
    )
    with pytest.raises(ValueError, match=message):
        wrapped.fit(X, y > np.median(y))


def test_a_classifier_without_classes_is_refused():
    """The labels of expected probabilities are those of the classifier."""

    class Nameless(ClassifierWithLists):
        def fit(self, X, y):
            super().fit(X, y)
            del self.classes_

    X, y, _ = table()
    wrapped = ExpectedPredictionClassifier(
        Nameless(LogisticRegression()),
        density=GaussianMixtureDensity(n_components=1, random_state=0),
    )
    with pytest.raises(AttributeError, match="classes_ once it is fitted"):
        wrapped.fit(X, y > np.median(y))
