"""Expected predictions of regressors and classifiers: what holds for any model."""

import tracemalloc
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, RidgeClassifier
from sklearn.metrics import log_loss, root_mean_squared_error
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor, RadiusNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PowerTransformer,
    SplineTransformer,
    StandardScaler,
    scale,
)
from sklearn.svm import SVR, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from skcircuits import (
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
    ExpectedPredictionSVR,
    GaussianMixtureDensity,
    WMISPNDensity,
)
from skcircuits.circuits import Categorical, Circuit, MultivariateGaussian
from skcircuits.estimators.prediction import _expected_prediction

NAN = np.nan
DENSITY = GaussianMixtureDensity(n_components=2, covariance_type="full")


def hide(X, fraction=0.3, seed=0):
    missing = np.random.default_rng(seed).random(X.shape) < fraction
    return np.where(missing, NAN, X)


def regressor(model=None, **parameters):
    return ExpectedPredictionRegressor(
        model, **{"density": DENSITY, "random_state": 0, "tol": 0.1} | parameters
    )


def classifier(model=None, **parameters):
    return ExpectedPredictionClassifier(
        model, **{"density": DENSITY, "random_state": 0, "tol": 0.1} | parameters
    )


@pytest.fixture
def numbers():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 4)) @ rng.normal(size=(4, 4)) + 3.0
    return X, X[:, 0] - 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=120)


@pytest.fixture
def classes(numbers):
    X, y = numbers
    return X, np.array(["low", "middle", "high"])[np.digitize(y, np.quantile(y, [0.3, 0.6]))]


@pytest.fixture
def frame(numbers):
    X, y = numbers
    job = np.where(X[:, 2] > 3, "nurse", "cook")
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "job": pd.Categorical(job)})
    table["many"] = np.round(X[:, 3]).astype(int)
    return table, y


# ------------------------------------------------------------- rows without missing values


@pytest.mark.parametrize(
    "model",
    [
        LinearRegression(),
        SVR(),
        RandomForestRegressor(n_estimators=5, random_state=0),
        HistGradientBoostingRegressor(max_iter=5),
        make_pipeline(StandardScaler(), KNeighborsRegressor()),
    ],
    ids=lambda model: type(model).__name__,
)
def test_complete_rows_get_the_prediction_of_the_regressor(model, numbers):
    X, y = numbers
    expected = clone(model).fit(X, y).predict(X)
    wrapped = regressor(model).fit(X, y)
    np.testing.assert_array_equal(wrapped.predict(X), expected)
    mean, std = wrapped.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, expected)
    assert (std == 0.0).all()
    mixed = X.copy()
    mixed[::2, 1] = NAN
    own = wrapped.estimator_.predict(X[1::2])
    np.testing.assert_array_equal(wrapped.predict(mixed)[1::2], own)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(),
        RandomForestClassifier(n_estimators=5, random_state=0),
        LinearSVC(),
        KNeighborsClassifier(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_complete_rows_get_the_prediction_of_the_classifier(model, classes):
    X, y = classes
    fitted = clone(model).fit(X, y)
    wrapped = classifier(model).fit(X, y)
    assert wrapped.classes_.tolist() == ["high", "low", "middle"]
    for method in ("predict", "predict_proba", "decision_function"):
        assert hasattr(wrapped, method) == hasattr(fitted, method)
        if hasattr(fitted, method):
            np.testing.assert_array_equal(getattr(wrapped, method)(X), getattr(fitted, method)(X))


def test_float32_tables_reach_the_model_as_they_are(numbers):
    X, y = numbers
    X = X.astype(np.float32)
    expected = KNeighborsRegressor().fit(X, y).predict(X)
    np.testing.assert_array_equal(regressor(KNeighborsRegressor()).fit(X, y).predict(X), expected)


# ------------------------------------------------------------- rows with missing values


def test_expected_predictions_beat_those_of_means():
    X, y = load_diabetes(return_X_y=True)
    model = RandomForestRegressor(n_estimators=10, min_samples_leaf=5, random_state=0)
    wrapped = regressor(model).fit(X[::2], y[::2])
    incomplete = np.vstack([hide(X[1::2], seed=seed) for seed in range(4)])
    filled = np.where(np.isnan(incomplete), X[::2].mean(axis=0), incomplete)
    truth = np.tile(y[1::2], 4)
    ours = root_mean_squared_error(truth, wrapped.predict(incomplete))
    assert ours < 0.99 * root_mean_squared_error(truth, wrapped.estimator_.predict(filled))


def test_expected_probabilities_beat_those_of_means():
    X, y = load_iris(return_X_y=True)
    wrapped = classifier(LogisticRegression(max_iter=1000)).fit(X[::2], y[::2])
    incomplete = hide(X[1::2])
    filled = np.where(np.isnan(incomplete), X[::2].mean(axis=0), incomplete)
    ours = log_loss(y[1::2], wrapped.predict_proba(incomplete))
    assert ours < 0.7 * log_loss(y[1::2], wrapped.estimator_.predict_proba(filled))


def test_draws_and_standard_deviations_of_a_known_distribution():
    circuit = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.6], [0.6, 1.0]]))

    class Square(LinearRegression):
        def predict(self, X):
            return X[:, 1] ** 2

    X = circuit.sample(200, random_state=0)
    drawn = {"method": "draws", "n_draws": 2**14, "tol": 0.005}
    model = regressor(Square(), density=circuit, **drawn).fit(X, X[:, 1])
    mean, std = model.predict([[0.5, NAN], [NAN, 1.0]], return_std=True)
    # X1 given X0 = .5 is normal with mean .3 and variance .64
    assert mean[0] == pytest.approx(0.3**2 + 0.64, abs=0.03)
    assert std[0] == pytest.approx(np.sqrt(2 * 0.64**2 + 4 * 0.09 * 0.64), rel=0.05)
    assert (mean[1], std[1]) == (1.0, 0.0)
    error = model.standard_error([[0.5, NAN], [0.5, 1.0]])
    assert 0 < error[0] <= 0.005
    assert error[1] == 0.0


def test_a_warning_tells_the_error_where_the_budget_ends(numbers):
    X, y = numbers
    model = regressor(KNeighborsRegressor(), tol=1e-6, n_draws=64).fit(X, y)
    with pytest.warns(ConvergenceWarning, match=r"n_draws=64.*the largest is 0\.\d+"):
        model.predict(hide(X))


def test_the_unit_of_a_decision_function_does_not_matter(numbers):
    X, y = numbers

    class Scaled(RidgeClassifier):
        def __init__(self, unit=1.0):
            super().__init__()
            self.unit = unit

        def decision_function(self, X):
            return self.unit * np.sin(X[:, 0] * X[:, 1])

    def answers(unit):
        model = classifier(Scaled(unit), tol=0.03).fit(X, y > 0)
        decided = model.decision_function(hide(X))
        return decided / unit, model.standard_error(hide(X)), model.value_of_measuring(hide(X))

    expected = answers(1.0)
    # No warning that a standard error is above `tol` either
    for unit in (2.0**-10, 2.0**10):
        for found, own in zip(answers(unit), expected):
            np.testing.assert_allclose(found, own, rtol=1e-12)


def test_predictions_depend_on_the_row_and_the_seed_alone(numbers, monkeypatch):
    X, y = numbers
    model = regressor(KNeighborsRegressor()).fit(X, y)
    incomplete = hide(X)
    predicted = model.predict(incomplete)
    np.testing.assert_array_equal(model.predict(incomplete), predicted)
    np.testing.assert_allclose(model.predict(incomplete[::-1]), predicted[::-1], rtol=1e-12)
    np.testing.assert_allclose(model.predict(incomplete[7:9]), predicted[7:9], rtol=1e-12)
    with sklearn.config_context(working_memory=0.01):
        np.testing.assert_allclose(model.predict(incomplete), predicted, rtol=1e-10)
    monkeypatch.setattr(_expected_prediction, "BLOCK_ROWS", 7)
    np.testing.assert_allclose(model.predict(incomplete), predicted, rtol=1e-12)
    doubled = np.vstack([incomplete, incomplete])
    # another place in a block may round otherwise; other draws would be seen in the third digit
    np.testing.assert_allclose(*np.split(model.predict(doubled), 2), rtol=1e-12)


def test_no_copy_of_a_table_with_many_rows_is_made(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 20))
    density = Circuit(MultivariateGaussian(range(20), X.mean(axis=0), np.cov(X.T)))
    model = regressor(FrozenEstimator(Ridge().fit(X, X[:, 0])), density=density).fit(X[:100])
    X[rng.random(X.shape) < 0.1] = NAN
    before = X.copy()
    monkeypatch.setattr(_expected_prediction, "BLOCK_ROWS", 500)
    tracemalloc.start()
    model.predict(X)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < X.nbytes
    np.testing.assert_array_equal(X, before)


def test_few_categories_are_enumerated():
    circuit = Circuit(
        0.4 * Categorical(0, [0.9, 0.1]) * Categorical(1, [0.2, 0.3, 0.5])
        + 0.6 * Categorical(0, [0.2, 0.8]) * Categorical(1, [0.6, 0.3, 0.1])
    )
    X = circuit.sample(100, random_state=0)
    model = KNeighborsRegressor(3).fit(X, X.sum(axis=1))
    wrapped = regressor(FrozenEstimator(model), density=circuit).fit(X)
    completions = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    weights = np.exp(circuit.log_prob(completions) - circuit.log_prob([[1.0, NAN]]))
    assert wrapped.predict([[1.0, NAN]])[0] == pytest.approx(
        weights @ model.predict(completions), rel=1e-12
    )
    assert wrapped.standard_error([[1.0, NAN]])[0] == 0.0


def test_impossible_evidence_gives_way_to_the_marginal(numbers):
    circuit = Circuit(Categorical(0, [1.0, 0.0]) * Categorical(1, [0.5, 0.5]))
    model = regressor(LinearRegression(), density=circuit)
    model.fit([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [0.0, 1.0, 5.0])
    with pytest.warns(UserWarning, match="1 rows have probability zero"):
        predicted = model.predict([[1.0, NAN], [0.0, NAN]])
    # The observed cell stays what it is for the model
    np.testing.assert_allclose(predicted, [5.5, 0.5])


# ------------------------------------------------------------- training rows


@pytest.mark.parametrize("dtype", [float, bool, str])
def test_masked_targets_are_missing(dtype):
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = np.ma.masked_array((X[:, 0] > 0).astype(dtype), np.arange(40) == 3)
    model = ExpectedPredictionClassifier(LogisticRegression())
    if dtype is float:
        model = ExpectedPredictionRegressor(Ridge())
    with pytest.raises(ValueError, match="contains NaN"):
        model.fit(X, y)


def test_training_rows_with_missing_values_give_one_clone_per_copy(numbers):
    X, y = numbers
    incomplete = hide(X)
    model = regressor(Ridge(), n_completions=3).fit(incomplete, y)
    assert len(model.estimators_) == 3
    each = [estimator.predict(X) for estimator in model.estimators_]
    assert not np.allclose(each[0], each[1])
    np.testing.assert_allclose(model.predict(X), np.mean(each, axis=0), rtol=1e-12)
    assert len(regressor(Ridge(), n_completions=3).fit(X, y).estimators_) == 1


def test_completions_of_training_rows_know_the_target():
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    X = np.column_stack([y + 0.3 * rng.normal(size=400), rng.normal(size=400)])
    incomplete = X.copy()
    incomplete[:300, 0] = NAN
    model = regressor(LinearRegression(), density="auto").fit(incomplete, y)
    # Draws that do not know y would pull the slope to a quarter
    assert model.estimator_.coef_[0] == pytest.approx(
        LinearRegression().fit(X, y).coef_[0], rel=0.1
    )


def test_completions_of_training_rows_know_the_class():
    rng = np.random.default_rng(0)
    y = np.repeat(["no", "yes"], 200)
    X = np.column_stack([4.0 * (y == "yes") + rng.normal(size=400), rng.normal(size=400)])
    incomplete = X.copy()
    incomplete[::2, 0] = NAN
    model = classifier(LogisticRegression(), density="auto").fit(incomplete, y)
    assert model.score(X, y) > 0.95
    assert np.mean([clone.coef_[0, 0] for clone in model.estimators_]) > 2.0


def test_no_completions_hand_missing_values_to_the_model(numbers):
    X, y = numbers
    incomplete = hide(X)
    boosting = HistGradientBoostingRegressor(max_iter=5, random_state=0)
    model = regressor(boosting, n_completions=0).fit(incomplete, y)
    assert len(model.estimators_) == 1
    np.testing.assert_array_equal(model.predict(X), clone(boosting).fit(incomplete, y).predict(X))
    with pytest.raises(ValueError, match="NaN"):
        regressor(Ridge(), n_completions=0).fit(incomplete, y)


def test_indicators_of_missing_values():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + 3.0 * (X[:, 1] > 0)
    incomplete = X.copy()
    incomplete[X[:, 1] > 0, 1] = NAN  # missing says all
    plain = regressor(Ridge()).fit(incomplete, y)
    told = regressor(Ridge(), add_indicator=True).fit(incomplete, y)
    assert told.n_features_in_ == 2
    assert told.estimator_.n_features_in_ == 3
    errors = [root_mean_squared_error(y, m.predict(incomplete)) for m in (plain, told)]
    assert errors[1] < 0.5 * errors[0]
    frame = pd.DataFrame(incomplete, columns=["a", "b"], index=np.arange(7, 307))
    named = regressor(Ridge(), add_indicator=True).fit(frame, y)
    assert named.estimator_.feature_names_in_.tolist() == ["a", "b", "missingindicator_b"]
    assert named.is_categorical_.tolist() == [False, False]
    np.testing.assert_allclose(named.predict(frame), told.predict(incomplete), rtol=1e-6)


# ------------------------------------------------------------- tables


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_models_get_dataframes_with_their_dtypes(frame, library):
    table, y = frame
    if library == "polars":
        table = pl.DataFrame({name: table[name].tolist() for name in table})
        table = table.with_columns(pl.col("job").cast(pl.Categorical))
    seen = []

    class Watching(HistGradientBoostingRegressor):
        def predict(self, X):
            seen.append(X)
            return super().predict(X)

    model = regressor(Watching(max_iter=3, categorical_features="from_dtype")).fit(table, y)
    incomplete = table.clone() if library == "polars" else table.copy()
    if library == "polars":
        incomplete = incomplete.with_columns(
            pl.when(pl.int_range(pl.len()) % 2 == 0)
            .then(None)
            .otherwise(pl.col("job"))
            .alias("job")
        )
    else:
        incomplete.loc[::2, "job"] = None
        incomplete.loc[::3, "a"] = None
    assert np.isfinite(model.predict(incomplete)).all()
    for drawn in seen:
        assert type(drawn) is type(table)
        assert list(drawn.columns) == list(table.columns)
        assert str(drawn["job"].dtype) == str(table["job"].dtype)
        assert str(drawn["many"].dtype) == str(table["many"].dtype)


def test_default_models_read_categories(frame):
    table, y = frame
    incomplete = table.copy()
    incomplete.loc[::2, "job"] = None
    model = regressor().fit(table, y)
    assert root_mean_squared_error(y, model.predict(incomplete)) < 0.8 * y.std()
    labels = np.where(y > np.median(y), "up", "down")
    assert classifier().fit(table, labels).score(incomplete, labels) > 0.7
    unseen = incomplete.astype({"job": object})
    unseen.loc[0, "job"] = "pilot"
    np.testing.assert_allclose(model.predict(unseen[:1]), model.predict(incomplete[:1]))


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_default_models_read_dates(zone):
    days = pd.date_range("2024-01-01", periods=60, tz=zone)
    table = pd.DataFrame({"a": np.arange(60) % 7 * 1.5, "day": days})
    y = np.arange(60.0)
    model = regressor().fit(table, y)
    assert root_mean_squared_error(y, model.predict(table)) < 0.2 * y.std()
    assert classifier().fit(table, y > 30).score(table, y > 30) > 0.9
    assert np.isfinite(model.predict(table.assign(day=pd.Series([pd.NaT] * 60)))).all()
    for model in (Ridge(), HistGradientBoostingRegressor()):
        with pytest.raises(ValueError, match=r"read dates, which columns \['day'\].*Function"):
            regressor(model).fit(table, y)


def test_models_that_refuse_categories_are_refused_at_once(frame, monkeypatch):
    table, y = frame

    def never(*args, **kwargs):
        raise AssertionError("learned a density for nothing")

    monkeypatch.setattr(GaussianMixtureDensity, "fit", never)
    with pytest.raises(ValueError, match=r"columns \['job'\].*OneHotEncoder"):
        regressor(Ridge()).fit(table, y)


@pytest.mark.parametrize("model", [SVR(), None], ids=["SVR", "default"])
def test_targets_without_variance_have_predictions_without(model, numbers):
    """Expansions without support vectors."""
    X = numbers[0]
    fitted = regressor(model).fit(X, np.full(len(X), 3.0))
    mean, std = fitted.predict(hide(X), return_std=True)
    np.testing.assert_allclose(mean, 3.0, rtol=1e-12)
    np.testing.assert_array_equal(std, 0.0)


def test_densities_that_do_not_cover_the_columns_are_refused_at_once(numbers):
    X, y = numbers

    class Never(Ridge):
        def fit(self, X, y):
            raise AssertionError("fitted for nothing")

    circuit = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], np.eye(2)))
    with pytest.raises(ValueError, match=r"each column, but \[2, 3\] have none"):
        regressor(Never(), density=circuit).fit(X, y)


def test_encoders_in_front_read_categories(frame):
    table, y = frame
    encoder = make_column_transformer((OneHotEncoder(), ["job"]), remainder=StandardScaler())
    model = regressor(make_pipeline(encoder, Ridge())).fit(table, y)
    incomplete = table.assign(job=None)
    assert np.isfinite(model.predict(incomplete)).all()


# ------------------------------------------------------------- scikit-learn's tools


def test_frozen_models_are_used_as_they_are(numbers):
    X, y = numbers
    frozen = FrozenEstimator(Ridge().fit(X, y))
    model = regressor(frozen).fit(hide(X))
    assert model.estimator_ is frozen
    np.testing.assert_array_equal(model.predict(X), frozen.predict(X))
    assert np.isfinite(model.predict(hide(X))).all()


def test_classifiers_without_probabilities_have_none(classes):
    X, y = classes
    model = classifier(LinearSVC()).fit(X, y)
    with pytest.raises(AttributeError, match="predict_proba"):
        model.predict_proba(X)
    incomplete = hide(X)
    decision = model.decision_function(incomplete)
    np.testing.assert_array_equal(model.predict(incomplete), model.classes_[decision.argmax(1)])
    assert not hasattr(classifier(LinearSVC()), "predict_proba")


def test_classifiers_that_only_predict_vote(classes):
    X, y = classes

    class Votes(DecisionTreeClassifier):
        predict_proba = property()  # an AttributeError

    model = classifier(Votes(max_depth=3, random_state=0)).fit(X, y)
    assert not hasattr(model, "predict_proba")
    assert model.score(hide(X), y) > 0.5


def test_models_without_an_answer_say_so(numbers):
    X, y = numbers
    model = regressor(RadiusNeighborsRegressor(radius=1e-3)).fit(X, y)
    with pytest.raises(ValueError, match="estimator must predict a number for all completed rows"):
        model.predict(hide(X))
    long = make_pipeline(StandardScaler(), RadiusNeighborsRegressor(radius=1e-3))
    with pytest.raises(ValueError, match=r"got estimator=Pipeline\(\.\.\.\)"):
        regressor(long).fit(X, y).predict(hide(X))
    # Yeo and Johnson's inverse ends at -1 / lambda
    skewed = TransformedTargetRegressor(Ridge(), transformer=PowerTransformer())
    with (
        pytest.raises(ValueError, match="those of power transformers may not be"),
        pytest.warns(UserWarning, match="inverse-transformed data are NaN"),
    ):
        regressor(skewed).fit(X, np.exp(1.5 * scale(X[:, 0]))).predict(hide(X))


def test_logarithms_of_probabilities(classes):
    X, y = classes
    model = classifier(LogisticRegression(), n_completions=2)
    found = cross_val_predict(model, hide(X), y, cv=2, method="predict_log_proba")
    probabilities = cross_val_predict(model, hide(X), y, cv=2, method="predict_proba")
    np.testing.assert_array_equal(found, np.log(probabilities))
    several = classifier(MultiOutputClassifier(LogisticRegression()), n_completions=2)
    several.fit(X, np.column_stack([y, y[::-1]]))
    for logs, own in zip(several.predict_log_proba(X), several.predict_proba(X), strict=True):
        np.testing.assert_array_equal(logs, np.log(own))
    assert not hasattr(classifier(LinearSVC()).fit(X, y), "predict_log_proba")


@pytest.mark.parametrize(
    ("model", "methods"),
    [
        (ClassifierChain(LogisticRegression()), ("predict_proba", "decision_function")),
        (ClassifierChain(LinearSVC()), ("decision_function",)),
        (RidgeClassifier(), ("decision_function",)),
        (OneVsRestClassifier(LinearSVC()), ("decision_function",)),
    ],
    ids=["chain", "chain of decisions", "ridge", "one versus rest"],
)
def test_labels_that_do_not_exclude_each_other(model, methods, numbers):
    X, _ = numbers
    labels = (X[:, :3] > np.median(X[:, :3], axis=0)).astype(int)
    wrapped = classifier(model).fit(X, labels)
    incomplete = hide(X)
    for method in methods:
        own = getattr(wrapped.estimator_, method)(X)
        np.testing.assert_array_equal(getattr(wrapped, method)(X), own)
        expected = getattr(wrapped, method)(incomplete)
        assert expected.shape == own.shape
    predicted = wrapped.predict(incomplete)
    assert predicted.shape == labels.shape and wrapped.score(X, labels) > 0.5
    first = getattr(wrapped, methods[0])(incomplete)
    threshold = 0.5 if methods[0] == "predict_proba" else 0.0
    is_incomplete = np.isnan(incomplete).any(axis=1)
    np.testing.assert_array_equal(predicted[is_incomplete], (first > threshold)[is_incomplete])


def test_labels_in_a_column(classes):
    X, y = classes

    class Column(LogisticRegression):
        def predict(self, X):  # as CatBoostClassifier does for three classes
            return super().predict(X)[:, None]

    incomplete = hide(X)
    incomplete[:5] = X[:5]
    own = classifier(LogisticRegression(), method="draws").fit(X, y)
    model = classifier(Column(), method="draws").fit(X, y)
    for rows in (X, incomplete):
        np.testing.assert_array_equal(model.predict(rows), own.predict(rows))


class _WithoutTags:
    """A model that does not derive from BaseEstimator."""

    def __init__(self, model):
        self.model = model

    def fit(self, X, y):
        self.fitted_ = clone(self.model).fit(X, y)
        return self

    def predict(self, X):
        return self.fitted_.predict(X)

    def get_params(self, deep=True):
        return {"model": self.model}

    def set_params(self, model):
        self.model = model
        return self


class _Probable(_WithoutTags):
    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return super().fit(X, y)

    def predict_proba(self, X):
        return self.fitted_.predict_proba(X)


def test_models_without_tags(numbers, classes):
    X, y = numbers
    incomplete = hide(X)
    own = regressor(Ridge(), method="draws").fit(X, y)
    model = regressor(_WithoutTags(Ridge())).fit(X, y)
    np.testing.assert_array_equal(model.predict(incomplete), own.predict(incomplete))
    frozen = regressor(FrozenEstimator(_WithoutTags(Ridge()).fit(X, y))).fit(X, y)
    np.testing.assert_array_equal(frozen.predict(incomplete), own.predict(incomplete))
    assert cross_val_score(model, X, y, cv=2, error_score="raise").mean() > 0.3
    X, y = classes
    own = classifier(LogisticRegression(), method="draws").fit(X, y)
    model = classifier(_Probable(LogisticRegression())).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(incomplete), own.predict_proba(incomplete))


def test_models_that_cannot_be_cloned_are_refused_at_once(numbers):
    model = _WithoutTags(Ridge())

    class Fixed:
        fit, predict = model.fit, model.predict

    with pytest.raises(TypeError, match=r"have get_params.*FrozenEstimator"):
        regressor(Fixed()).fit(*numbers)


@pytest.mark.parametrize("must_complete", [False, True])
@pytest.mark.parametrize(
    "transformer", [FunctionTransformer(np.log), PowerTransformer("box-cox")], ids=["log", "power"]
)
@pytest.mark.parametrize("model", [Ridge(), RandomForestRegressor(5, random_state=0)])
def test_models_that_fail_beyond_the_values_seen(model, transformer, must_complete):
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(150, 2)))  # a Gaussian would draw negative values, too
    y = np.log(X).sum(axis=1)
    incomplete = hide(X)
    wrapped = regressor(make_pipeline(transformer, model), tol=0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        wrapped.fit(incomplete if must_complete else X, y)
        answers = wrapped.predict(incomplete)
    # Every draw is within the range, and so are the answers
    assert np.isfinite(answers).all()
    assert (answers > y.min() - 1.0).all() and (answers < y.max() + 1.0).all()


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (Ridge(), ""),
        (SVR(), ""),
        (make_pipeline(SplineTransformer(), Ridge()), "; standard deviations by draws"),
        (
            RandomForestRegressor(3, max_depth=2, random_state=0),
            "; standard deviations by draws where several numbers are missing",
        ),
        (KNeighborsRegressor(), ""),
    ],
    ids=["linear", "kernel", "splines", "forest", "draws"],
)
def test_standard_deviations_by_draws_are_told(model, told, numbers):
    ways = regressor(model, stacking=False).fit(*numbers).explain_method()
    assert ways["predict"].removesuffix("; not stacked: as asked").endswith(told)
    assert ("deviations" in ways["predict"]) == bool(told)


def _difference_of_logarithms(X):
    return np.log(X[:, [0]] / X[:, [1]])


def _root_of_difference(X):
    return np.sqrt(X[:, [0]] - X[:, [1]])


def test_models_that_fail_beyond_some_corner_of_the_values_seen():
    rng = np.random.default_rng(0)
    small = np.exp(rng.normal(size=150))
    X = np.column_stack([small * np.exp(rng.exponential(size=150)), small])
    y = np.log(X[:, 0] / X[:, 1])
    # Ratios of two numbers beyond the same end of their ranges are positive
    model = make_pipeline(FunctionTransformer(_difference_of_logarithms), Ridge())
    assert np.isfinite(regressor(model).fit(X, y).predict(hide(X))).all()
    model = make_pipeline(FunctionTransformer(_root_of_difference), Ridge())
    with pytest.raises(ValueError, match="NaN") as caught, np.errstate(invalid="ignore"):
        regressor(model).fit(X, y).predict(hide(X))
    assert "missing values, which were drawn" in caught.value.__notes__[0]


def test_searches_over_model_and_density(numbers):
    X, y = numbers
    grid = {"estimator__alpha": [1e-3, 1e3], "density__n_components": [1, 2]}
    model = regressor(Ridge(), n_completions=2)
    search = GridSearchCV(model, grid, cv=2, error_score="raise").fit(hide(X), y)
    assert search.best_params_["estimator__alpha"] == 1e-3
    pipeline = regressor(make_pipeline(StandardScaler(), Ridge()))
    pipeline.set_params(estimator__ridge__alpha=3.0)
    assert pipeline.estimator[-1].alpha == 3.0


def test_cross_validation_calibration_and_votes(classes):
    X, y = classes
    incomplete = hide(X)
    model = classifier(LogisticRegression(), n_completions=2)
    assert cross_val_score(model, incomplete, y, cv=2, error_score="raise").mean() > 0.4
    calibrated = CalibratedClassifierCV(model, cv=2).fit(incomplete, y)
    np.testing.assert_allclose(calibrated.predict_proba(incomplete).sum(axis=1), 1.0)
    votes = VotingClassifier([("a", model), ("b", classifier(LinearSVC()))]).fit(X, y)
    assert votes.score(X, y) > 0.5


def test_permutation_importance(numbers):
    X, y = numbers
    model = regressor(Ridge()).fit(X, y)
    found = permutation_importance(model, hide(X), y, n_repeats=2, random_state=0)
    assert np.isfinite(found.importances_mean).all()


def test_several_targets(numbers, classes):
    X, y = numbers
    targets = np.column_stack([y, 10.0 * X[:, 2]])
    incomplete = hide(X)
    for model in (Ridge(), None, MultiOutputRegressor(SVR())):
        wrapped = regressor(model, n_completions=2).fit(incomplete, targets)
        mean, std = wrapped.predict(incomplete, return_std=True)
        assert mean.shape == std.shape == targets.shape
    outer = MultiOutputRegressor(regressor(Ridge(), n_completions=2)).fit(incomplete, targets)
    assert outer.predict(incomplete).shape == targets.shape
    labels = np.column_stack([classes[1], np.where(X[:, 1] > 3, "a", "b")])
    for model in (
        RandomForestClassifier(5, random_state=0),
        MultiOutputClassifier(LogisticRegression()),
    ):
        wrapped = classifier(model, n_completions=2).fit(incomplete, labels)
        probabilities = wrapped.predict_proba(incomplete)
        assert [p.shape for p in probabilities] == [(120, 3), (120, 2)]
        predicted = wrapped.predict(incomplete)
        assert predicted.shape == labels.shape
        assert (predicted == labels).mean() > 0.6
        complete = wrapped.predict(X)
        assert set(complete[:, 1]) <= {"a", "b"}


def test_weights_reach_the_model_and_the_density(numbers):
    X, y = numbers
    weights = (np.arange(len(y)) < 60).astype(float)
    weighted = regressor(Ridge()).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(
        weighted.estimator_.coef_, Ridge().fit(X[:60], y[:60]).coef_, rtol=1e-9
    )
    with pytest.raises(ValueError, match=r"cannot take weights.*Use an estimator whose fit has"):
        regressor(KNeighborsRegressor()).fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("fraction", [0.0, 0.2])
def test_weights_reach_the_last_step_of_a_pipeline(numbers, fraction):
    X, y = numbers
    rng = np.random.default_rng(0)
    X = np.where(rng.random(X.shape) < fraction, NAN, X)
    weights = np.resize([0.0, 1.0, 2.0], len(y))
    kept = np.flatnonzero(weights)
    incomplete = np.where(rng.random(X.shape) < 0.3, NAN, X)[kept]
    predicted = []
    for model in (Ridge(), make_pipeline(FunctionTransformer(), make_pipeline(Ridge()))):
        fitted = regressor(model, density=DENSITY).fit(X, y, sample_weight=weights)
        predicted.append(fitted.predict(incomplete))
    np.testing.assert_allclose(predicted[1], predicted[0], rtol=1e-9)
    with pytest.raises(ValueError, match="cannot take weights"):
        regressor(make_pipeline(KNeighborsRegressor())).fit(X, y, sample_weight=weights)


def test_weights_reach_models_that_pass_them_on(numbers):
    X, y = numbers
    weights = (np.arange(len(y)) < 60).astype(float)
    wrapped = TransformedTargetRegressor(Ridge(), func=np.positive, inverse_func=np.positive)
    piped = TransformedTargetRegressor(
        GridSearchCV(make_pipeline(Ridge()), {"ridge__alpha": [1.0]}, cv=3)
    )
    for model in (wrapped, piped, GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=3)):
        fitted = regressor(model).fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(
            fitted.predict(X), Ridge().fit(X[:60], y[:60]).predict(X), rtol=1e-9
        )
    # The default is a Pipeline in a TransformedTargetRegressor
    np.testing.assert_allclose(
        regressor(None).fit(X, y, sample_weight=weights).predict(X[60:]),
        regressor(None).fit(X[:60], y[:60]).predict(X[60:]),
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="cannot take weights"):
        regressor(TransformedTargetRegressor(KNeighborsRegressor())).fit(
            X, y, sample_weight=weights
        )


@pytest.mark.parametrize("fraction", [0.0, 0.2])
def test_rows_without_weight_do_not_exist(numbers, fraction):
    X, y = numbers
    rng = np.random.default_rng(0)
    X = np.where(rng.random(X.shape) < fraction, NAN, X)
    weights = np.resize([0.0, 1.0, 2.0], len(y))
    kept = np.flatnonzero(weights)
    X[weights == 0] *= 30.0
    model = regressor(Ridge(), density=DENSITY if fraction else "auto")
    incomplete = np.where(rng.random(X.shape) < 0.3, NAN, X)[kept]
    weighted = model.fit(X, y, sample_weight=weights).predict(incomplete)
    without = model.fit(X[kept], y[kept], sample_weight=weights[kept]).predict(incomplete)
    np.testing.assert_array_equal(weighted, without)


def test_smooth_forms_say_that_integers_are_not_rounded(numbers):
    X, y = numbers
    counts = np.column_stack([np.rint(3.0 * X[:, 0]), X[:, 1:]])
    forest = RandomForestRegressor(3, max_depth=2, random_state=0)
    note = "integers not rounded"
    for table, model, is_told in ((counts, Ridge(), True), (X, Ridge(), False)):
        assert (note in regressor(model).fit(table, y).explain_method()["predict"]) == is_told
    assert note not in regressor(forest).fit(counts, y).explain_method()["predict"]


def test_metadata_are_routed(numbers):
    X, y = numbers
    weights = np.linspace(0.0, 1.0, len(y))
    with sklearn.config_context(enable_metadata_routing=True):
        inner = Ridge().set_fit_request(sample_weight=True)
        routed = regressor(inner).fit(X, y, sample_weight=weights)
        own = Ridge().fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(routed.estimator_.coef_, own.coef_, rtol=1e-12)
        ignoring = regressor(Ridge().set_fit_request(sample_weight=False))
        ignoring.fit(X, y, sample_weight=weights)
        np.testing.assert_allclose(ignoring.estimator_.coef_, Ridge().fit(X, y).coef_, rtol=1e-12)


def test_no_warnings_where_nothing_is_wrong(classes):
    X, y = classes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classifier(density="auto").fit(X, y).predict_proba(hide(X))


# ------------------------------------------------------------- closed forms


def test_the_way_to_the_expectation_is_told(numbers, classes):
    X, y = numbers
    exact = regressor(Ridge(), method="exact").fit(X, y)
    assert exact.method_ == "exact: linear model"
    incomplete = hide(X)
    assert (exact.standard_error(incomplete) == 0.0).all()
    drawn = regressor(Ridge(), method="draws", tol=0.01).fit(X, y)
    assert drawn.method_ == "draws: as asked"
    error = drawn.standard_error(incomplete)
    assert error.max() > 0
    difference = (drawn.predict(incomplete) - exact.predict(incomplete)) / y.std()
    assert np.abs(difference).max() < 0.06
    assert regressor().fit(X, y).method_ == "exact: expected kernels"
    nearest = classifier(KNeighborsClassifier()).fit(*classes)
    assert nearest.method_ == "draws: KNeighborsClassifier has no closed form"


def test_each_answer_is_explained(numbers, classes):
    y = np.where(classes[1] == "low", "low", "other")
    boosting = GradientBoostingClassifier(n_estimators=2)
    explained = classifier(boosting).fit(numbers[0], y).explain_method()
    assert explained["decision_function"].startswith("exact: probabilities of leaves")
    assert explained["predict_proba"].startswith("exact: steps between thresholds")
    nearest = classifier(KNeighborsClassifier()).fit(*classes).explain_method()["predict_proba"]
    assert nearest.startswith("draws: KNeighborsClassifier has no closed form")
    three = classifier(LogisticRegression()).fit(*classes)
    assert three.explain_method()["predict_proba"].startswith("exact: softmax link")
    drawn = regressor(Ridge(), method="draws").fit(*numbers)
    assert drawn.explain_method() == {
        "predict": "draws: as asked; not stacked: the density is given"
    }


def test_models_without_closed_form_can_be_refused(numbers):
    with pytest.raises(ValueError, match=r"method='exact', but KNeighborsRegressor has no"):
        regressor(KNeighborsRegressor(), method="exact").fit(*numbers)


def test_closed_forms_of_several_completions(numbers):
    X, y = numbers
    incomplete = hide(X)
    for model in (Ridge(), RandomForestRegressor(3, max_depth=3, random_state=0), None):
        exact = regressor(model, n_completions=3).fit(incomplete, y)
        assert exact.method_.startswith("exact")
        drawn = clone(exact).set_params(method="draws", tol=0.02).fit(incomplete, y)
        difference = (drawn.predict(incomplete) - exact.predict(incomplete)) / y.std()
        assert np.abs(difference).max() < 0.15
        assert np.sqrt(np.mean(difference**2)) < 0.03


def test_value_of_measuring(numbers, classes):
    X, y = numbers
    incomplete = hide(X)
    model = regressor(Ridge()).fit(X, y)
    values = model.value_of_measuring(incomplete)
    assert values.shape == X.shape
    np.testing.assert_array_equal(values[~np.isnan(incomplete)], 0.0)
    assert (values[np.isnan(incomplete)] > 0).any()
    # Alone, a missing value explains all of the variance
    alone = np.flatnonzero(np.isnan(incomplete).sum(axis=1) == 1)
    _, std = model.predict(incomplete, return_std=True)
    np.testing.assert_allclose(values.sum(axis=1)[alone], std[alone] ** 2 / y.var(), rtol=1e-6)
    costs = np.array([1.0, 2.0, 4.0, 8.0])
    np.testing.assert_allclose(model.value_of_measuring(incomplete, costs), values / costs)
    with pytest.raises(ValueError, match="costs must be 4 positive numbers"):
        model.value_of_measuring(incomplete, costs=[1.0, 0.0, 1.0, 1.0])
    by_place = dict(enumerate(costs.tolist()))
    np.testing.assert_allclose(model.value_of_measuring(incomplete, by_place), values / costs)
    entropies = classifier(LogisticRegression()).fit(*classes).value_of_measuring(incomplete[:5])
    assert (entropies >= 0).all()
    assert entropies.max() < np.log(3)


def test_costs_of_measuring_by_name(numbers):
    X, y = numbers
    table = pd.DataFrame(X, columns=list("abcd"))
    model = regressor(Ridge()).fit(table, y)
    rows = table.mask(np.isnan(hide(X))).head(10)
    costs = {"d": 8.0, "b": 2.0, "a": 1.0, "c": 4.0}
    expected = model.value_of_measuring(rows) / [1.0, 2.0, 4.0, 8.0]
    for named in (costs, pd.Series(costs)):
        np.testing.assert_allclose(model.value_of_measuring(rows, costs=named), expected)
    with pytest.raises(ValueError, match=r"unknown=\['e'\], missing=\['d'\]"):
        model.value_of_measuring(rows, costs={"a": 1.0, "b": 2.0, "c": 4.0, "e": 8.0})
    repeated = pd.Series([*costs.values(), 3.0], index=[*costs, "a"])
    with pytest.raises(ValueError, match=r"repeated=\['a'\]"):
        model.value_of_measuring(rows, costs=repeated)
    for wrong in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="costs must be 4 positive numbers"):
            model.value_of_measuring(rows, costs=costs | {"c": wrong})


@pytest.mark.parametrize("model", [regressor(Ridge()), ExpectedPredictionSVR(density=DENSITY)])
def test_columns_without_values_in_fit_do_not_matter(model, numbers):
    X, y = numbers
    without = clone(model).fit(X, y)
    empty = np.full(len(X), NAN)
    message = r"Columns \[4\] have no observed value .* do not depend"
    with pytest.warns(UserWarning, match=message) as caught:
        model = clone(model).fit(np.column_stack([X, empty]), y)
    assert {warning.filename for warning in caught} == {__file__}
    incomplete = hide(X)
    observed = np.column_stack([incomplete, np.linspace(-3.0, 3.0, len(X))])
    missing = np.column_stack([incomplete, empty])
    np.testing.assert_array_equal(model.predict(observed), model.predict(missing))
    assert not model.value_of_measuring(missing)[:, 4].any()
    # Neither do they make incomplete rows of complete ones
    answers, std = model.predict(np.column_stack([X, empty]), return_std=True)
    assert not std.any()
    np.testing.assert_allclose(answers, without.predict(X), rtol=1e-9)


@pytest.mark.parametrize("model", [regressor(Ridge()), ExpectedPredictionSVR(density=DENSITY)])
def test_columns_that_only_rows_of_weight_zero_have_do_not_matter(model, numbers):
    X, y = numbers
    weights = (np.arange(len(X)) >= 5).astype(float)
    extra = np.where(weights > 0, NAN, np.arange(len(X)))
    with pytest.warns(UserWarning, match=r"Columns \[4\] have no observed value .* do not depend"):
        model = clone(model).fit(np.column_stack([X, extra]), y, sample_weight=weights)
    missing = np.column_stack([hide(X), np.full(len(X), NAN)])
    observed = np.column_stack([hide(X), np.linspace(-3.0, 3.0, len(X))])
    np.testing.assert_array_equal(model.predict(observed), model.predict(missing))


def test_default_models_read_the_columns_of_rows_with_positive_weight(numbers):
    X, y = numbers
    weights = (np.arange(len(X)) >= 5).astype(float)
    table = pd.DataFrame(X, columns=list("abcd")).assign(
        number=np.where(weights > 0, X[:, 0], NAN), text=np.where(weights > 0, None, "a")
    )
    model = regressor(None, add_indicator=True, n_completions=1)
    with pytest.warns(UserWarning, match=r"Columns \['text'\] have no observed value"):
        weighted = clone(model).fit(table, y, sample_weight=weights)
    with pytest.warns(UserWarning, match=r"Columns \['text'\] have no observed value"):
        without = clone(model).fit(table[5:], y[5:], sample_weight=weights[5:])
    np.testing.assert_array_equal(weighted.predict(table), without.predict(table))


@pytest.mark.parametrize("make", [regressor, classifier])
def test_default_models_of_tables_without_values_are_constant(make, numbers):
    X, y = numbers
    with pytest.warns(UserWarning, match="no observed value"):
        model = make().fit(np.full(X.shape, NAN), y if make is regressor else y > y.mean())
    answers = model.predict(X)
    expected = model.estimator_.predict(np.zeros(X.shape))
    np.testing.assert_allclose(answers, expected)
    assert len(np.unique(answers)) == 1


def test_columns_without_values_in_fit_of_all_kinds(numbers):
    X, y = numbers
    nothing = [None] * len(X)
    table = pd.DataFrame(
        {
            "x": X[:, 0],
            "text": pd.Series(nothing, dtype=object),
            "category": pd.Categorical(nothing, categories=["u", "v"]),
            "date": pd.Series(nothing, dtype="datetime64[ns]"),
            "count": pd.Series(nothing, dtype="Int64"),
            "z": X[:, 1],
        }
    )
    new = table.head(3).assign(text="a", category="u", date=pd.Timestamp("2020-01-01"), count=3)
    new.loc[0, "x"] = NAN
    names = r"\['text', 'category', 'date', 'count'\]"
    for kind in (pd.DataFrame, pl.DataFrame, np.ndarray):
        rows, others = table, new
        if kind is pl.DataFrame:
            dtypes = {"text": pl.String, "category": pl.Categorical, "date": pl.Datetime}
            dtypes |= {"x": pl.Float64, "count": pl.Int64, "z": pl.Float64}
            rows, others = (
                pl.DataFrame(
                    {c: own[c].astype(object).where(own[c].notna(), None).tolist() for c in own},
                    schema_overrides=dtypes,
                )
                for own in (table, new)
            )
        elif kind is np.ndarray:
            rows, others = table.to_numpy(dtype=object), new.to_numpy(dtype=object)
        with pytest.warns(UserWarning, match="no observed value" if kind is np.ndarray else names):
            model = regressor().fit(rows, y)
        answers = model.predict(others)
        without = model.predict(rows[:3] if kind is np.ndarray else rows.head(3))
        assert np.isfinite(answers).all()
        np.testing.assert_array_equal(answers[1:], without[1:])


def test_a_fixed_model_still_reads_columns_without_values_in_fit(numbers):
    X, y = numbers
    model = FrozenEstimator(Ridge().fit(X, y))
    nothing = np.where(np.arange(4) == 2, NAN, X)
    with pytest.warns(UserWarning, match="their density is a guess"):
        fitted = regressor(model).fit(nothing, y)
    np.testing.assert_array_equal(fitted.predict(X), model.predict(X))


def test_measuring_what_is_worth_most_pays(numbers):
    X, y = numbers
    incomplete = hide(X, 0.6)
    model = regressor(Ridge()).fit(X, y)
    values = model.value_of_measuring(incomplete)
    rows = np.flatnonzero(np.isnan(incomplete).sum(axis=1) > 1)
    best, other = incomplete.copy(), incomplete.copy()
    chosen = values.argmax(axis=1)
    worst = np.where(np.isnan(incomplete), values, np.inf).argmin(axis=1)
    best[rows, chosen[rows]] = X[rows, chosen[rows]]
    other[rows, worst[rows]] = X[rows, worst[rows]]
    full = model.predict(X)
    errors = [root_mean_squared_error(full[rows], model.predict(Z)[rows]) for Z in (best, other)]
    assert errors[0] < 0.7 * errors[1]


@pytest.mark.filterwarnings("ignore:X does not have valid feature names:UserWarning")
def test_columns_without_names_count_by_place():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=40), "b": rng.choice(["u", "v"], 40)})
    model = ExpectedPredictionRegressor(density=DENSITY, random_state=0)
    model.fit(X, X["a"])
    numbered = X.set_axis(range(2), axis=1)
    np.testing.assert_array_equal(model.predict(numbered), model.predict(X))
    assert numbered.columns.tolist() == [0, 1]


@pytest.mark.parametrize("labels", [("u", "v"), (True, False)])
@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_missing_labels_are_counted(missing, labels):
    y = pd.Series([labels[0], missing, labels[1]] * 5, dtype=object)
    with pytest.raises(ValueError, match=r"^y must have a label in every row; got n_missing=5"):
        classifier().fit(np.arange(30.0).reshape(15, 2), y)


def test_classes_that_cannot_be_sorted_are_refused_by_name():
    y = pd.DataFrame({"size": [1, 2, 3] * 5, "kind": ["u", "v", "u"] * 5})
    for mixed, error in [(y, TypeError), (pd.Series([1, "u", 2] * 5, dtype=object), ValueError)]:
        with pytest.raises(error, match=r"^y must have classes of one type; got types=\['int'"):
            classifier().fit(np.arange(30.0).reshape(15, 2), mixed)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (pd.Series(pd.date_range("2020", periods=15)), "hold numbers; got dtype='datetime64"),
        (np.full(15, 1e200), r"be at most 1e\+150 in magnitude; got largest=1e\+200"),
    ],
)
def test_targets_that_are_no_moderate_numbers_are_refused_by_name(y, message):
    for model in (ExpectedPredictionRegressor(), ExpectedPredictionSVR()):
        with pytest.raises(ValueError, match=f"^y must {message}"):
            model.fit(np.arange(30.0).reshape(15, 2), y)


def test_missing_methods_of_classifiers_have_a_way_out(numbers):
    X, y = numbers
    with pytest.raises(AttributeError) as caught:
        classifier(LinearSVC()).fit(X, y > y.mean()).predict_proba(X)
    cause = str(caught.value.__cause__)
    assert cause.startswith("estimator must have predict_proba; got estimator=LinearSVC()")
    assert "CalibratedClassifierCV" in cause


def test_boosting_by_dtype_refuses_texts_by_name():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"word": rng.choice(["a", "b"], 60), "x": rng.normal(size=60)})
    model = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=2)
    with pytest.raises(ValueError, match=r"columns \['word'\] do not have.*astype\('category'\)"):
        classifier(model).fit(X, X["x"] > 0)
    declared = X.astype({"word": "category"})
    assert classifier(model, stacking=False).fit(declared, X["x"] > 0).predict(declared).any()


def test_declared_categories_that_no_row_has_are_missing_for_models_that_cannot_read_them():
    rng = np.random.default_rng(0)
    sizes = rng.choice(["S", "L"], 90)
    X = pd.DataFrame({"size": pd.Categorical(sizes), "x": rng.normal(size=90) + (sizes == "S")})
    y = X["x"] + 2.0 * (sizes == "L")
    declared = X.assign(size=X["size"].cat.set_categories(["XS", "S", "M", "L"]))
    encode = make_column_transformer((OneHotEncoder(), ["size"]), remainder="passthrough")
    linear = regressor(
        make_pipeline(encode, Ridge()), density=GaussianMixtureDensity(n_components=1)
    )
    incomplete = declared.head(4).assign(size=declared["size"].where(declared["x"] > 1e9))
    method = linear.fit(X, y).method_
    assert linear.fit(declared, y).method_ == method
    rows = declared.head(4)[["x"]]
    predicted = {c: linear.estimator_.predict(declared.head(4).assign(size=c)) for c in "SL"}
    often = predicted["S" if (sizes == "S").sum() > 45 else "L"]
    expected = sum(
        linear.density_.probability(f"size == '{c}'", given=rows) * predicted.get(c, often)
        for c in ["XS", "S", "M", "L"]
    )
    np.testing.assert_allclose(linear.predict(incomplete), expected, rtol=1e-9)
    # Completions are listed here: not one of them may be a category that the encoder refuses
    trees = make_pipeline(encode, HistGradientBoostingRegressor(max_iter=5))
    model = regressor(trees).fit(declared, y)
    assert np.isfinite(model.predict(incomplete)).all()
    assert model.predict(declared).tolist() == trees.fit(declared, y).predict(declared).tolist()
    new = incomplete.assign(size=pd.Categorical(["M"] * 4, declared["size"].cat.categories))
    for one in (model, linear):
        assert one.predict(new).tolist() == one.predict(incomplete).tolist()
        assert (one.value_of_measuring(new) == one.value_of_measuring(incomplete)).all()
    with pytest.raises(ValueError, match=r"'size' must occur in the rows of fit.*; got value='M'"):
        model.set_params(handle_unknown="error").predict(new)


def test_declared_categories_that_no_row_has_reach_models_that_can_read_them():
    rng = np.random.default_rng(0)
    sizes = pd.Categorical(rng.choice(["S", "L"], 90), ["S", "L", "M"])
    X = pd.DataFrame({"size": sizes, "x": rng.normal(size=90)})
    boosting = HistGradientBoostingRegressor(categorical_features="from_dtype", max_iter=5)
    model = regressor(boosting).fit(X, X["x"])
    new = X.assign(size=pd.Categorical(["M"] * 90, sizes.categories))
    assert model.predict(new).tolist() == boosting.fit(X, X["x"]).predict(new).tolist()


@pytest.mark.parametrize("density", [WMISPNDensity(), GaussianMixtureDensity(n_components=2)])
def test_boosted_splits_of_named_categories_against_draws(density):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({c: rng.normal(size=300) for c in "ab"})
    X.insert(1, "word", pd.Categorical(rng.choice([*"uvwxyz"], 300)))
    X["count"] = pd.Categorical(rng.integers(3, 9, 300))
    y = X["a"] + 2.0 * X["word"].isin(["u", "x"]) * (X["count"].astype(int) % 2)
    boosting = HistGradientBoostingRegressor(max_iter=10)  # reads categories by their dtype
    # Each of several models has its own codes of the categories that it has seen
    incomplete = X.mask(rng.random(X.shape) < 0.1)
    exact, drawn = (
        regressor(boosting, density=density, n_completions=2, method=method, n_draws=256, tol=0.0)
        for method in ("exact", "draws")
    )
    rows = X.head(20).copy()
    rows["a"] = np.nan
    for j in range(20):
        rows.iloc[j, 1 + 2 * (j % 2)] = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        difference = exact.fit(incomplete, y).predict(rows) - drawn.fit(incomplete, y).predict(rows)
        error = drawn.standard_error(rows) * y.std()
    assert (exact.standard_error(rows) == 0).all()
    assert (abs(difference) < 5.0 * error).all()
    assert (exact.predict(X) == np.mean([m.predict(X) for m in exact.estimators_], axis=0)).all()


def test_models_that_cannot_read_missing_values_say_how_to_complete_them():
    X = np.array([[0.0], [1.0], [np.nan], [3.0]])
    with pytest.raises(ValueError, match="NaN") as caught:
        regressor(Ridge(), n_completions=0).fit(X, np.arange(4.0))
    assert "n_completions" in caught.value.__notes__[-1]


@pytest.mark.parametrize("fraction", [0.0, 0.2])
def test_errors_of_models_have_a_note_on_columns_that_are_no_numbers(fraction):
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(60), unit="D")
    X = pd.DataFrame({"day": days, "word": rng.choice(["a", "b"], 60), "x": rng.normal(size=60)})
    X["x"] = X["x"].where(rng.random(60) >= fraction)
    encode = make_column_transformer((OneHotEncoder(), ["word"]), remainder="passthrough")
    with pytest.raises((TypeError, ValueError)) as caught:
        regressor(make_pipeline(encode, Ridge())).fit(X, np.arange(60.0))
    (note,) = caught.value.__notes__
    assert note.startswith(
        "The table has categories in columns ['word'] and dates in columns ['day']"
    )


@pytest.mark.parametrize("container", ["pandas", "polars"])
@pytest.mark.parametrize("make", [regressor, classifier])
def test_frames_that_are_asked_of_all_transformers_change_nothing(numbers, make, container):
    X = pd.DataFrame(hide(numbers[0]), columns=list("abcd"))
    X["kind"] = pd.Categorical(np.where(numbers[0][:, 0] > 3.0, "large", "small"))
    X.loc[::5, "kind"] = None
    y = numbers[0][:, 1] if make is regressor else (numbers[0][:, 1] > 3.0).astype(str)
    usual = make(n_completions=2).fit(X, y).predict(X)
    with sklearn.config_context(transform_output=container):
        found = make(n_completions=2).fit(X, y).predict(X)
    np.testing.assert_array_equal(found, usual)
