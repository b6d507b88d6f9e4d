"""What a missing value would tell: against closed forms, enumeration and nested quadrature."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVR

from skcircuits.circuits import Bernoulli, Circuit, Gaussian, MultivariateGaussian, Sum
from skcircuits.predictions import ExpectedResponse, find_closed_form
from skcircuits.predictions._closed_forms import IncompleteRows, Problem, Response
from skcircuits.predictions._expected_response import (
    ENTROPY,
    VARIANCE,
    DrawBudget,
    _by_draws,
    value_of_measuring,
)
from tests.reference.enumeration import Completions
from tests.reference.random_circuits import random_circuit, random_rows

NAN = np.nan
COVARIANCE = np.array([[2.0, 0.8, 0.3], [0.8, 1.0, -0.2], [0.3, -0.2, 1.5]])
NORMAL = Circuit(MultivariateGaussian([0, 1, 2], [1.0, 0.0, -1.0], COVARIANCE))


def expected_of(model, circuit, method="predict", *, draws_only=False):
    response = Response([model], method, np.asarray)
    form, _ = find_closed_form(Problem(response, circuit, len(circuit.variables)))
    budget = DrawBudget(2**12, 0.01, 1.0, 0)
    return ExpectedResponse(response, circuit, budget, form, draws_only=draws_only)


def rows_of(X):
    X = np.array(X, dtype=float)
    return IncompleteRows(X, X.copy(), np.zeros(X.shape[1], dtype=bool))


def linear(circuit):
    X = circuit.sample(200, random_state=0)
    return LinearRegression().fit(X, X @ np.array([1.0, -2.0, 0.5]) + 3.0)


def test_linear_models_under_a_gaussian():
    coefficients = np.array([1.0, -2.0, 0.5])
    found = value_of_measuring(
        expected_of(linear(NORMAL), NORMAL),
        rows_of([[NAN, NAN, NAN], [1.0, NAN, NAN]]),
        VARIANCE,
        0,
    )
    # Cov(f, x_j)² / Var(x_j)
    expected = (COVARIANCE @ coefficients) ** 2 / np.diag(COVARIANCE)
    np.testing.assert_allclose(found[0], expected, rtol=1e-9)
    given = COVARIANCE[1:, 1:] - np.outer(COVARIANCE[1:, 0], COVARIANCE[0, 1:]) / 2.0
    expected = (given @ coefficients[1:]) ** 2 / np.diag(given)
    np.testing.assert_allclose(found[1], [0.0, *expected], rtol=1e-9)


def test_squares_of_numbers_with_a_category_known():
    # One value missing: knowing it leaves nothing, and the whole variance is its value
    circuit = Circuit(
        0.5 * Gaussian(0, 1.0, 2.0) * Bernoulli(1, 0.3)
        + 0.5 * Gaussian(0, 3.0, 1.0) * Bernoulli(1, 0.6)
    )
    X = circuit.sample(200, random_state=0)
    model = make_pipeline(PolynomialFeatures(2), LinearRegression())
    expected = expected_of(model.fit(X, X[:, 0] ** 2 + X[:, 1]), circuit)
    assert expected.closed_form.name == "polynomial of degree two"
    rows = rows_of([[NAN, 0.0], [NAN, 1.0]])
    found = value_of_measuring(expected, rows, VARIANCE, 0)
    drawn = circuit.sample(10**5, X=rows.cells, random_state=0)[:, :, 0] ** 2
    np.testing.assert_allclose(found[:, 0], drawn.var(axis=0), rtol=0.03)
    np.testing.assert_array_equal(found[:, 1], 0.0)


def test_the_mean_is_the_same_where_the_variance_is_drawn():
    model = make_pipeline(PolynomialFeatures(3), LinearRegression())
    X = NORMAL.sample(200, random_state=0)
    expected = expected_of(model.fit(X, X[:, 0] * X[:, 1] ** 2), NORMAL)
    rows = rows_of([[NAN, NAN, 0.5], [1.0, 2.0, 0.0]])
    both = expected(rows, with_variance=True)
    np.testing.assert_array_equal(both.mean, expected(rows).mean)
    # The error of the deviation that is drawn
    assert both.error[0] > 0.0
    assert both.error[1] == 0.0
    assert both.variance[0, 0] > 0.1
    assert both.variance[1, 0] == 0.0
    np.testing.assert_array_equal(both.mean[1], model.predict([[1.0, 2.0, 0.0]]))


def mixture_of(n_components):
    """Two components, or some between these, too."""
    fractions = np.linspace(0.0, 1.0, n_components)
    weights = 0.4 + 0.2 * fractions
    first, second = np.array([[1.0, 0.8], [0.8, 1.0]]), np.array([[1.0, -0.5], [-0.5, 2.0]])
    units = [
        MultivariateGaussian([0, 1], [2.0 * t, t], (1.0 - t) * first + t * second)
        for t in fractions
    ]
    return Circuit(Sum(units, weights=weights / weights.sum()))


@pytest.mark.parametrize("n_components", [2, 12])
@pytest.mark.parametrize("kind", ["linear", "kernel"])
def test_mixtures_against_nested_quadrature(kind, n_components):
    circuit = mixture_of(n_components)
    X = circuit.sample(40, random_state=0)
    model = (LinearRegression() if kind == "linear" else SVR()).fit(X, np.sin(X).sum(axis=1))
    expected = expected_of(model, circuit)
    assert expected.is_exact(rows_of([[NAN, NAN]])).all()
    found = value_of_measuring(expected, rows_of([[NAN, NAN]]), VARIANCE, 0)[0]
    grid = np.linspace(-9.0, 11.0, 2001)
    for j in (0, 1):
        told = np.full((len(grid), 2), NAN)
        told[:, j] = grid
        density = np.exp(circuit.log_prob(told))
        means = expected(rows_of(told)).mean[:, 0]
        mean = density @ means / density.sum()
        variance = density @ (means - mean) ** 2 / density.sum()
        assert found[j] == pytest.approx(variance, rel=1e-7)


@pytest.mark.parametrize("seed", [0, 3])
def test_entropy_of_classes_against_enumeration(seed):
    circuit = random_circuit(seed, discrete=True)
    rng = np.random.default_rng(seed)
    train = circuit.sample(100, random_state=0)
    model = LogisticRegression(C=0.1).fit(train, rng.integers(0, 3, 100))
    X = random_rows(rng, circuit, 3)
    expected = expected_of(model, circuit, "predict_proba")
    found = value_of_measuring(expected, rows_of(X), ENTROPY, 0)
    is_exact = expected.is_exact(rows_of(X))

    def entropy(row):
        p = Completions(circuit, row).expectation(model.predict_proba)
        return -(p * np.log(p)).sum()

    for i, j in np.argwhere(np.isnan(X)):
        marginals = circuit.marginals(X[i : i + 1])[j][0]
        then = 0.0
        for state, mass in enumerate(marginals):
            told = X[i].copy()
            told[j] = state
            then += mass * entropy(told) if mass > 0 else 0.0
        value = entropy(X[i]) - then
        tolerance = 1e-9 if is_exact[i] else 0.01
        assert found[i, j] == pytest.approx(value, abs=tolerance)


def test_draws_agree_with_the_exact_value():
    rows = rows_of([[NAN, NAN, NAN], [1.0, NAN, NAN]])
    model = linear(NORMAL)
    exact = value_of_measuring(expected_of(model, NORMAL), rows, VARIANCE, 0)
    drawn = expected_of(model, NORMAL, draws_only=True)
    np.testing.assert_allclose(
        value_of_measuring(drawn, rows, VARIANCE, 0), exact, rtol=0.15, atol=0.05
    )


def test_long_sums_over_classes_are_drawn_with_their_errors():
    circuit = mixture_of(12)
    X = circuit.sample(300, random_state=0)
    y = (X.sum(axis=1) > 1.0).astype(int) + (X[:, 0] > 1.5)
    expected = expected_of(LogisticRegression().fit(X, y), circuit, "predict_proba")
    rows = rows_of([[NAN, 2.0], [0.5, NAN], [NAN, 2.0]])
    assert expected.is_exact(rows).all()
    exact = value_of_measuring(expected, rows, ENTROPY, 0, np.inf)
    with pytest.warns(UserWarning, match=r"1024 draws for 2 of 3 rows, with standard errors up to"):
        some = value_of_measuring(expected, rows, ENTROPY, 0, 450_000)
    np.testing.assert_array_equal(some[1], exact[1])
    drawn, errors = _by_draws(expected, rows, ENTROPY, 0)
    np.testing.assert_array_equal(some[[0, 2]], drawn[[0, 0]])
    is_missing = np.isnan(rows.cells)
    assert (errors[is_missing] > 0.0).all()
    assert (errors[is_missing] < 0.1 * exact[is_missing]).all()
    assert (np.abs(drawn - exact)[is_missing] < 3.5 * errors[is_missing]).all()
    # For no seed are the errors out of proportion
    others = [_by_draws(expected, rows.take(slice(0, 1)), ENTROPY, seed)[0] for seed in range(60)]
    assert np.abs(np.array(others) - exact[0]).max() < 0.04


def test_equal_rows_have_equal_values_whether_drawn_or_not():
    rows = [[NAN, NAN, NAN], [1.0, NAN, NAN], [NAN, NAN, NAN]]
    for draws_only in (True, False):
        expected = expected_of(linear(NORMAL), NORMAL, draws_only=draws_only)
        found = value_of_measuring(expected, rows_of(rows), VARIANCE, 0)
        np.testing.assert_array_equal(found[0], found[2])
        alone = value_of_measuring(expected, rows_of(rows[1:]), VARIANCE, 0)
        np.testing.assert_allclose(found[1:], alone, rtol=1e-12)


def test_cells_that_say_nothing_are_worth_nothing():
    circuit = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], np.eye(2)))
    X = circuit.sample(500, random_state=0)
    model = KNeighborsRegressor(20).fit(X, X[:, 0])
    found = value_of_measuring(expected_of(model, circuit), rows_of([[NAN, NAN]]), VARIANCE, 0)[0]
    assert found[0] == pytest.approx(model.predict(X).var(), rel=0.15)
    assert found[1] < 0.02
