"""Functions of trees that are no sums of leaves, against boxes of the thresholds and draws."""

import numpy as np
import pytest
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from skcircuits.predictions import find_closed_form
from skcircuits.predictions.models import _steps
from tests.predictions.test_closed_forms import (
    NAN,
    by_cells,
    discrete_circuit,
    gaussian_circuit,
    problem_of,
    rows_of,
    train,
)

X = np.array([[0.3, NAN, 1.0], [NAN, -0.5, 2.0], [NAN, 40.0, 0.0]])
SMALL = {"n_estimators": 4, "random_state": 0}
BOOSTED = {
    "votes": (AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), **SMALL), "predict_proba"),
    "medians": (AdaBoostRegressor(**SMALL), "predict"),
    "gradients": (GradientBoostingClassifier(max_depth=2, **SMALL), "predict_proba"),
    "sums": (GradientBoostingRegressor(max_depth=2, **SMALL), "predict"),
}


def fitted(name, circuit, n_classes):
    model, method = BOOSTED[name]
    n_classes = n_classes if method == "predict_proba" else 0
    return problem_of(train(model, circuit, n_classes=n_classes, n_rows=80), circuit, method)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", BOOSTED)
def test_moments_against_boxes(name, n_classes, joint):
    problem = fitted(name, gaussian_circuit(joint=joint), n_classes)
    (model,) = problem.response.models
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    rows = rows_of(X)
    assert form.covers(rows, with_variance=True).all()
    found = form.expectation(rows, with_variance=True)
    assert (found.error == 0).all()
    for row, mean, variance in zip(X, found.mean, found.variance, strict=True):
        expected = by_cells(problem, model, row)
        np.testing.assert_allclose(mean, expected, rtol=1e-9)

        def squares(answers, expected=expected):
            return np.square(answers - expected)

        both = by_cells(problem, model, row, squares)
        np.testing.assert_allclose(variance, both, rtol=1e-8, atol=1e-14)


def test_rows_that_miss_more_are_drawn():
    problem = fitted("gradients", gaussian_circuit(), 3)
    form, _ = find_closed_form(problem)
    several = rows_of([[NAN, NAN, 1.0], [0.3, NAN, NAN], [0.3, 0.5, NAN], [0.3, NAN, 1.0]])
    assert form.covers(several, with_variance=False).tolist() == [False, False, False, True]


def test_histograms_behind_a_scaler_against_draws():
    circuit = gaussian_circuit()
    model = make_pipeline(StandardScaler(), HistGradientBoostingClassifier(max_iter=5))
    problem = problem_of(train(model, circuit, n_classes=3), circuit, "predict_proba")
    form, _ = find_closed_form(problem)
    n_draws = 10**5
    drawn = circuit.sample(n_draws, X=X[:2], random_state=0)
    answers = problem.response(drawn.reshape(-1, 3)).reshape(n_draws, 2, -1)
    found = form.expectation(rows_of(X[:2]), with_variance=True)
    error = answers.std(axis=0) / np.sqrt(n_draws)
    assert (np.abs(answers.mean(axis=0) - found.mean) < 5.0 * error).all()
    np.testing.assert_allclose(found.mean.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(found.variance), answers.std(axis=0), rtol=0.03)


def test_completed_copies_have_thresholds_of_their_own():
    circuit = gaussian_circuit()
    problems = [
        problem_of(
            train(AdaBoostRegressor(n_estimators=3, random_state=i), circuit, n_rows=50 + 20 * i),
            circuit,
        )
        for i in range(2)
    ]
    both = problem_of(None, circuit)
    models = [problem.response.models[0] for problem in problems]
    both.response.models[:] = models
    form, _ = find_closed_form(both)
    rows = rows_of(X[:2])
    single = [find_closed_form(own)[0].expectation(rows, with_variance=False) for own in problems]
    found = form.expectation(rows, with_variance=True)
    mean = (single[0].mean + single[1].mean) / 2.0
    np.testing.assert_allclose(found.mean, mean, rtol=1e-12)


def test_what_is_not_constant_between_thresholds_is_drawn(monkeypatch):
    problem = problem_of(
        train(AdaBoostRegressor(LinearRegression(), n_estimators=2), gaussian_circuit()),
        gaussian_circuit(),
    )
    assert find_closed_form(problem) == (None, "AdaBoostRegressor is not a sum of trees")
    assert find_closed_form(fitted("medians", discrete_circuit(), 0))[0] is None
    monkeypatch.setattr(_steps, "MAX_THRESHOLDS", 0)
    form, reason = find_closed_form(fitted("gradients", gaussian_circuit(), 2))
    assert form is None and "link" in reason
