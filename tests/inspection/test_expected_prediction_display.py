"""Drawings of predictions against what is missing."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, Ridge

from skcircuits import (
    ExpectedPredictionClassifier,
    ExpectedPredictionRegressor,
    GaussianMixtureDensity,
)
from skcircuits.inspection import ExpectedPredictionDisplay

DENSITY = GaussianMixtureDensity(n_components=1)


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


def test_probabilities_of_a_row(table):
    X, y = table
    model = ExpectedPredictionClassifier(LogisticRegression(), density=DENSITY, random_state=0)
    model.fit(X, np.where(y > 0, "up", "down"))
    display = ExpectedPredictionDisplay.from_row(model, X[:1])
    assert list(display.curves) == ["down", "up"]
    np.testing.assert_allclose(display.curves["up"] + display.curves["down"], 1.0)
    assert display.ax_.get_legend() is not None
