"""Drawings of predictions against what is missing."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import mean_absolute_error

from skcircuits import (
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
    GaussianMixtureDensity,
)
from skcircuits.inspection import ExpectedPredictionDisplay

DENSITY = GaussianMixtureDensity(n_components=1, covariance_type="full")


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


@pytest.fixture
def table():
    X = np.random.default_rng(0).normal(size=(150, 3))
    return pd.DataFrame(X, columns=list("abc")), X @ [1.0, 2.0, -1.0]


def test_score_falls_with_the_fraction_of_missing_values(table):
    X, y = table
    model = ExpectedPredictionRegressor(Ridge(), density=DENSITY, random_state=0).fit(X, y)
    display = ExpectedPredictionDisplay.from_estimator(
        model, X, y, rates=(0.0, 0.5, 0.9), random_state=0
    )
    heights = display.lines_[0].get_ydata()
    assert heights[0] == pytest.approx(model.score(X, y))
    assert (np.diff(heights) < -0.1).all()
    assert len(display.bands_) == 1
    assert display.ax_.get_ylabel() == "R²"


def test_targets_of_other_rows_are_refused_before_anything_is_predicted(table):
    X, y = table
    model = ExpectedPredictionRegressor(Ridge(), density=DENSITY, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[150, 149\]"):
        ExpectedPredictionDisplay.from_estimator(model, X, y[1:])


def test_prediction_of_a_row_while_values_are_hidden(table):
    X, y = table
    model = ExpectedPredictionRegressor(Ridge(), density=DENSITY, random_state=0).fit(X, y)
    ax = plt.subplots()[1]
    display = ExpectedPredictionDisplay.from_row(model, X[:1], order=[2, 0, 1], ax=ax)
    assert display.ax_ is ax
    assert display.x == ["nothing", "c", "a", "b"]
    partly = X[:1].assign(c=np.nan)
    mean, std = model.predict(partly, return_std=True)
    assert display.curves["prediction"][1] == pytest.approx(mean[0])
    assert display.spreads["prediction"][1] == pytest.approx(std[0])
    assert (np.diff(display.spreads["prediction"]) > 0).all()


def test_predictions_of_several_targets_of_a_row(table):
    X, y = table
    model = ExpectedPredictionRegressor(Ridge(), density=DENSITY, random_state=0)
    model.fit(X, np.column_stack([y, -y]))
    display = ExpectedPredictionDisplay.from_row(model, X[:1])
    assert list(display.curves) == list(display.spreads) == ["target 0", "target 1"]
    np.testing.assert_allclose(display.curves["target 1"], -display.curves["target 0"])
    assert len(display.lines_) == len(display.bands_) == 2


def test_probabilities_of_a_row(table):
    X, y = table
    model = ExpectedPredictionClassifier(LogisticRegression(), density=DENSITY, random_state=0)
    model.fit(X, np.where(y > 0, "up", "down"))
    display = ExpectedPredictionDisplay.from_row(model, X[:1])
    assert list(display.curves) == ["down", "up"]
    np.testing.assert_allclose(display.curves["up"] + display.curves["down"], 1.0)
    assert display.ax_.get_legend() is not None


def test_scores_of_predictions():
    y = np.array([0.0, 1.0, 2.0, 3.0])
    worse = [[y, y], [1.5 - 0.5 * (y - 1.5), 1.5 + 0.5 * (y - 1.5)]]
    display = ExpectedPredictionDisplay.from_predictions(
        y, {"forest": [y, y], "ridge": worse}, rates=(0.0, 0.5), linestyle="--"
    )
    assert display.ax_.get_ylabel() == "R²"
    np.testing.assert_allclose(display.lines_[0].get_ydata(), [1.0, 1.0])
    np.testing.assert_allclose(display.lines_[1].get_ydata(), [1.0, 1.0 - (1.5**2 + 0.5**2) / 2])
    assert [line.get_label() for line in display.lines_] == ["forest", "ridge"]
    assert display.lines_[0].get_linestyle() == "--"
    # One prediction per fraction has no spread
    assert list(display.spreads) == ["ridge"]
    labels = np.array(["a", "b", "b"])
    classes = ExpectedPredictionDisplay.from_predictions(labels, [["a", "b", "a"]], rates=[0.1])
    assert classes.ax_.get_ylabel() == "accuracy"
    assert classes.lines_[0].get_ydata()[0] == pytest.approx(2 / 3)
    errors = ExpectedPredictionDisplay.from_predictions(
        y, [y + 2.0], rates=[0.1], score=mean_absolute_error
    )
    assert errors.lines_[0].get_ydata()[0] == 2.0
    assert errors.ax_.get_ylabel() == "mean absolute error"


def test_predictions_and_models_score_alike(table):
    X, y = table
    model = ExpectedPredictionRegressor(Ridge(), density=DENSITY, random_state=0).fit(X, y)
    options = {"rates": (0.0, 0.3), "random_state": 0}
    drawn = ExpectedPredictionDisplay.from_estimator(model, X, y, n_repeats=1, **options)
    hidden = X.mask(np.random.RandomState(0).random_sample((2, *X.shape))[1] < 0.3)
    predictions = [model.predict(X), model.predict(hidden)]
    again = ExpectedPredictionDisplay.from_predictions(y, predictions, rates=(0.0, 0.3))
    np.testing.assert_allclose(again.curves["score"], drawn.curves["score"])


@pytest.mark.parametrize(
    "y_pred, rates, message",
    [
        ([[1.0, 2.0]], (0.0, 0.5), r"y_pred must have shape .* \(2, 2\)"),
        ([[1.0]], (0.0,), "y_pred must have shape"),
        ([[1.0, 2.0]], (1.5,), "rates must be fractions between 0 and 1"),
    ],
)
def test_predictions_of_another_shape(y_pred, rates, message):
    with pytest.raises(ValueError, match=message):
        ExpectedPredictionDisplay.from_predictions([1.5, 2.0], y_pred, rates=rates)


def test_columns_are_hidden_by_name(table):
    X, y = table
    model = ExpectedPredictionRegressor(Ridge(), density=DENSITY, random_state=0).fit(X, y)
    display = ExpectedPredictionDisplay.from_row(model, X[:1], order=["c", "a"])
    assert display.x == ["nothing", "c", "a"]
    with pytest.raises(ValueError, match=r"X must be a single row; got n_rows=150\. Pass X"):
        ExpectedPredictionDisplay.from_row(model, X)
    with pytest.raises(ValueError, match="curve 'a' must have one height"):
        ExpectedPredictionDisplay([0.1], {"a": np.zeros(2)})
