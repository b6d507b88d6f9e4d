"""Expected probabilities of several classes under a softmax of additive scores."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import LinearSVC

from skcircuits.circuits import Categorical, Circuit, MultivariateGaussian
from skcircuits.predictions import find_closed_form
from skcircuits.predictions._closed_forms import IncompleteRows, Problem, Response, count_terms
from skcircuits.predictions._components import GaussianComponents
from skcircuits.predictions._expected_response import DrawBudget, ExpectedResponse
from skcircuits.predictions.models._links import SoftmaxForm

NAN = np.nan


def mixture(seed=0):
    """Two numbers and a category with three states."""
    rng = np.random.default_rng(seed)
    terms = []
    for weight in (0.3, 0.7):
        root = rng.normal(size=(2, 2))
        numbers = MultivariateGaussian([0, 1], rng.normal(size=2), root @ root.T + 0.2 * np.eye(2))
        terms.append(weight * (numbers * Categorical(2, rng.dirichlet(np.ones(3)))))
    return Circuit(terms[0] + terms[1])


def form_of(model, circuit, n_classes=3):
    X = circuit.sample(300, random_state=0)
    rng = np.random.default_rng(0)
    slopes = rng.normal(size=(3, n_classes))
    y = (X @ slopes + rng.gumbel(size=(300, n_classes))).argmax(axis=1)
    model.fit(X, y)
    response = Response([model], "predict_proba", lambda encoded: encoded)
    form, reason = find_closed_form(Problem(response, circuit, X.shape[1]))
    assert not reason
    return form


def rows_of(*rows):
    X = np.array(rows, dtype=float)
    return IncompleteRows(X, X, np.zeros(X.shape[1], dtype=bool))


def integrate(circuit, model, row, half_width=20.0, n_nodes=401):
    """Expected probabilities of a row that misses both numbers and the category, by brute force."""
    grid = np.linspace(-half_width, half_width, n_nodes)
    cells = np.array(np.meshgrid(grid, grid)).reshape(2, -1).T
    total, mass = 0.0, 0.0
    for state in range(3):
        completed = np.column_stack([cells, np.full(len(cells), float(state))])
        density = np.exp(circuit.log_prob(completed))
        total, mass = total + density @ model.predict_proba(completed), mass + density.sum()
    return total / mass


@pytest.mark.parametrize("factor", [0.1, 1.0, 2.0])
def test_two_missing_numbers_and_a_category_by_brute_force(factor):
    circuit, model = mixture(), LogisticRegression(max_iter=500)
    form_of(model, circuit)
    model.coef_ *= factor
    response = Response([model], "predict_proba", lambda encoded: encoded)
    form, _ = find_closed_form(Problem(response, circuit, 3))
    assert isinstance(form, SoftmaxForm)
    rows = rows_of([NAN, NAN, NAN])
    assert form.covers(rows, with_variance=True).all()
    found = form.expectation(rows, with_variance=True)
    np.testing.assert_allclose(found.mean[0], integrate(circuit, model, rows.cells[0]), atol=2e-9)
    assert (found.variance > 0).all()
    assert found.mean.sum() == pytest.approx(1.0, abs=1e-12)


NORMALISED = {
    "one versus the rest": OneVsRestClassifier(LogisticRegression()),
    "gradient descent": SGDClassifier(loss="log_loss", alpha=0.1, random_state=0),
    "calibrated": CalibratedClassifierCV(LinearSVC(), cv=2),
}


@pytest.mark.parametrize("name", NORMALISED)
def test_logistic_functions_divided_by_their_sum_by_brute_force(name):
    circuit, model = mixture(), NORMALISED[name]
    form = form_of(model, circuit)
    rows = rows_of([NAN, NAN, NAN])
    assert "normalised logistic" in form.name
    assert form.covers(rows, with_variance=False).all()
    found = form.expectation(rows, with_variance=False)
    np.testing.assert_allclose(found.mean[0], integrate(circuit, model, rows.cells[0]), atol=2e-9)


def test_one_missing_number_is_integrated_along_a_line():
    circuit, model = mixture(1), LinearDiscriminantAnalysis()
    form = form_of(model, circuit, n_classes=5)
    row = np.array([0.4, NAN, 1.0])
    found = form.expectation(rows_of(row), with_variance=True)
    grid = np.linspace(-12, 12, 20001)
    completed = np.column_stack([np.full_like(grid, 0.4), grid, np.ones_like(grid)])
    weights = np.exp(circuit.log_prob(completed))
    answers = model.predict_proba(completed)
    mean = weights @ answers / weights.sum()
    square = weights @ answers**2 / weights.sum()
    np.testing.assert_allclose(found.mean[0], mean, atol=1e-9)
    np.testing.assert_allclose(found.variance[0], square - mean**2, atol=1e-9)


def test_scores_in_many_directions_are_left_to_draws():
    rng = np.random.default_rng(0)
    circuit = Circuit(MultivariateGaussian(list(range(6)), np.zeros(6), np.eye(6)))
    model = LogisticRegression().fit(rng.normal(size=(60, 6)), np.repeat(np.arange(6), 10))
    model.coef_ = 3.0 * rng.normal(size=(6, 6))
    response = Response([model], "predict_proba", lambda encoded: encoded)
    form, _ = find_closed_form(Problem(response, circuit, 6))
    rows = rows_of([NAN] * 6, [0.0, 0.0, 0.0, 0.0, 0.0, NAN])
    assert form.covers(rows, with_variance=False).tolist() == [False, True]
    assert "draws elsewhere" in form.name


@pytest.mark.slow
def test_against_a_million_draws():
    circuit, model = mixture(2), LogisticRegression(max_iter=500)
    form = form_of(model, circuit)
    rows = rows_of([NAN, 0.3, NAN], [NAN, NAN, 2.0])
    exact = form.expectation(rows, with_variance=True)
    drawn = circuit.sample(10**6, X=rows.cells, random_state=0)
    answers = np.stack([model.predict_proba(drawn[:, i]) for i in range(2)])
    error = answers.std(axis=1) / 1e3
    assert (np.abs(answers.mean(axis=1) - exact.mean) < 5.0 * error).all()
    np.testing.assert_allclose(answers.var(axis=1), exact.variance, rtol=0.02)
    direct = softmax(drawn[:, 0] @ model.coef_.T + model.intercept_, axis=1).mean(axis=0)
    np.testing.assert_allclose(exact.mean[0], direct, atol=5e-3)


def test_long_sums_are_drawn():
    circuit, model = mixture(), LogisticRegression(max_iter=500)
    form = form_of(model, circuit, n_classes=4)
    rows = rows_of([NAN, NAN, 1.0], [0.3, NAN, 1.0], [0.3, 0.2, NAN])
    long, short, _ = n_terms = count_terms(form, rows, with_variance=False)
    assert long > short
    response = Response([model], "predict_proba", lambda encoded: encoded)
    budget = DrawBudget(2000, 0.03, 1.0, 0)
    exact = ExpectedResponse(response, circuit, budget, form)(rows)
    limited = ExpectedResponse(response, circuit, budget, form, max_terms=short)
    assert (n_terms <= short).tolist() == [False, True, True]
    found = limited(rows)
    assert (found.error > 0.0).tolist() == [True, False, False]
    np.testing.assert_array_equal(found.mean[1:], exact.mean[1:])
    assert np.abs(found.mean - exact.mean).max() < 3.0 * found.error[0]


def test_draws_that_a_tolerance_asks_for():
    assert DrawBudget(2000, 0.03, 1.0, 0).n_needed == pytest.approx(0.075 / 0.03**2)
    # Rows that `max_draws` do not answer accurately enough are rather summed
    assert DrawBudget(2000, 0.003, 1.0, 0).n_needed == pytest.approx(0.075 / 0.003**2)
    assert DrawBudget(2000, 0.0, 1.0, 0).n_needed > 1e15
    assert DrawBudget(2000, 10.0, 1.0, 0).n_needed == 32


def test_axes_of_more_missing_cells_than_classes_and_of_fewer():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(6, 6))
    circuit = Circuit(MultivariateGaussian(range(6), rng.normal(size=6), root @ root.T))
    conditioned = GaussianComponents.of(circuit).conditioned(
        np.array([[NAN] * 6, [0.0] * 4 + [NAN] * 2, [0.0] * 6])
    )
    slopes = rng.normal(size=(6, 4))
    axes = conditioned.projected_axes(slopes)
    covariances = conditioned.projected_covariances(slopes)
    np.testing.assert_allclose(np.swapaxes(axes, -1, -2) @ axes, covariances, atol=1e-12)
    lengths = np.linalg.norm(axes, axis=-1)
    assert (np.diff(lengths, axis=-1) <= 1e-12).all()
