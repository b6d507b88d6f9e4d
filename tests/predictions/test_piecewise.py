"""Sums of functions of single columns against quadrature, boxes and draws."""

import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    PolynomialFeatures,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
)

from skcircuits import ExpectedPredictionRegressor, GaussianMixtureDensity
from skcircuits.predictions import find_closed_form
from skcircuits.predictions._closed_forms import Problem
from skcircuits.predictions.models import _piecewise
from tests.predictions.test_closed_forms import (
    NAN,
    gaussian_circuit,
    problem_of,
    rows_of,
    train,
)

BINS = KBinsDiscretizer(quantile_method="averaged_inverted_cdf")
SMOOTH = {
    "splines": SplineTransformer(),
    "linear beyond the knots": SplineTransformer(extrapolation="linear"),
    "periodic splines": SplineTransformer(extrapolation="periodic"),
    "power": PowerTransformer(),
    "function": FunctionTransformer(np.tanh),
    "kink": FunctionTransformer(np.abs),
    "quantiles": QuantileTransformer(n_quantiles=10),
}


def fitted(transformer, circuit, model=None, method="predict", **settings):
    steps = [("numbers", transformer, [0, 1]), ("category", OneHotEncoder(), [2])]
    columns = ColumnTransformer(steps, sparse_threshold=0)
    model = train(make_pipeline(columns, model or Ridge()), circuit, n_rows=150, **settings)
    return problem_of(model, circuit, method)


def by_quadrature(problem, row, function=None, n_nodes=50_001):
    """Trapezoidal sum over the missing number of a row, and sum over its missing category."""
    (j,) = np.flatnonzero(np.isnan(row[:2]))
    grid = np.linspace(-15.0, 15.0, n_nodes)
    states = np.arange(3.0) if np.isnan(row[2]) else row[[2]]
    total = mass = 0.0
    for state in states:
        rows = np.repeat(row[None], n_nodes, axis=0)
        rows[:, j], rows[:, 2] = grid, state
        density = np.exp(problem.circuit.log_prob(rows))
        total += density @ (function or problem.response)(rows)
        mass += density.sum()
    return total / mass


@pytest.mark.parametrize("name", SMOOTH)
def test_functions_of_single_columns_against_quadrature(name):
    problem = fitted(SMOOTH[name], gaussian_circuit())
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    assert form.name == "functions of single columns"
    X = np.array([[0.3, NAN, 1.0], [NAN, -0.5, NAN], [NAN, 2.0, 2.0]])
    rows = rows_of(X)
    assert form.covers(rows, with_variance=False).all()
    assert not form.covers(rows, with_variance=True).any()
    found = form.expectation(rows, with_variance=False).mean
    tol = 1e-9 if name not in ("kink", "quantiles") else 1e-7  # of the trapezoidal sum
    for row, own in zip(X, found, strict=True):
        np.testing.assert_allclose(own, by_quadrature(problem, row), rtol=tol)


def test_bins_against_boxes():
    problem = fitted(BINS, gaussian_circuit())
    form, _ = find_closed_form(problem)
    row = np.array([0.3, NAN, 1.0])
    (model,) = problem.response.models
    inner = model[0].named_transformers_["numbers"].bin_edges_[1][1:-1]
    middles = np.concatenate([[inner[0] - 1], (inner[1:] + inner[:-1]) / 2, [inner[-1] + 1]])
    lower, upper, inside = (np.tile(row, (len(middles), 1)) for _ in range(3))
    lower[:], upper[:] = NAN, NAN
    lower[1:, 1], upper[:-1, 1], inside[:, 1] = inner, inner, middles
    masses = np.exp(problem.circuit.condition(row).log_prob_box(lower, upper))
    found = form.expectation(rows_of(row[None]), with_variance=False).mean[0]
    np.testing.assert_allclose(found, masses @ problem.response(inside), rtol=1e-9)


@pytest.mark.parametrize("joint", [False, True])
def test_several_missing_cells_against_draws(joint):
    circuit = gaussian_circuit(joint=joint)
    problem = fitted(
        SplineTransformer(), circuit, LogisticRegression(), "decision_function", n_classes=3
    )
    form, _ = find_closed_form(problem)
    rows = rows_of([[NAN, NAN, NAN], [NAN, NAN, 1.0]])
    n_draws = 10**5
    drawn = circuit.sample(n_draws, X=rows.cells, random_state=0)
    answers = problem.response(drawn.reshape(-1, 3)).reshape(n_draws, 2, -1)
    error = answers.std(axis=0) / np.sqrt(n_draws)
    found = form.expectation(rows, with_variance=False).mean
    assert found.shape == (2, 3)
    assert (np.abs(answers.mean(axis=0) - found) < 5.0 * error).all()


def test_categories_alone():
    problem = fitted(SplineTransformer(), gaussian_circuit())
    form, _ = find_closed_form(problem)
    states = np.column_stack([np.full((3, 2), [0.3, -0.5]), np.arange(3.0)])
    masses = np.exp(problem.circuit.log_prob(states))
    expected = masses @ problem.response(states) / masses.sum()
    found = form.expectation(rows_of([[0.3, -0.5, NAN]]), with_variance=False).mean[0]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_values_beyond_the_bounds_are_at_the_bounds():
    circuit = gaussian_circuit()
    bounds = np.array([-1.0, -1.5, 0.0]), np.array([2.0, 2.5, 2.0])

    def logarithm(rows):
        return np.log(2.0 + rows)

    columns = ColumnTransformer([("log", FunctionTransformer(logarithm), [0, 1])])
    X = np.clip(circuit.sample(150, random_state=1), *bounds)
    model = make_pipeline(columns, Ridge()).fit(X, np.sin(X[:, 0]) + X[:, 1])
    problem = problem_of(model, circuit)
    assert find_closed_form(problem)[0] is None  # of negative numbers
    problem = Problem(problem.response, circuit, 3, bounds=bounds)
    form, _ = find_closed_form(problem)
    row = np.array([0.3, NAN, 1.0])
    expected = by_quadrature(problem, row, lambda rows: model.predict(np.clip(rows, *bounds)))
    found = form.expectation(rows_of(row[None]), with_variance=False).mean[0]
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_what_is_narrow_beside_the_domain_is_seen():
    # Outliers of a column make its bins narrow
    circuit = gaussian_circuit()

    def bump(rows):
        return np.where(np.abs(rows - 0.4) < 0.004, 100.0, 0.0)

    problem = fitted(FunctionTransformer(bump), circuit)
    row = np.array([0.3, NAN, 1.0])
    form, _ = find_closed_form(problem)
    if form is not None:
        found = form.expectation(rows_of(row[None]), with_variance=False).mean[0]
        expected = by_quadrature(problem, row, n_nodes=400_001)
        np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_panels_are_joined_where_one_polynomial_fits():
    form, _ = find_closed_form(fitted(BINS, gaussian_circuit()))
    for function in form.functions.values():
        assert function.coefficients.shape == (1, 5, 1)  # five bins
    form, _ = find_closed_form(fitted(SplineTransformer(), gaussian_circuit()))
    for function in form.functions.values():
        # Five knots, and constants beyond them
        assert len(function.edges) < 15


def test_a_narrow_panel_is_not_joined_with_a_wide_one():
    edges = np.array([0.0, 1.0, 1.0 + 1e-6, 4.0])
    coefficients = np.zeros((_piecewise.N_COEFFICIENTS, 3, 1))
    coefficients[0, :, 0] = [1.0, 2.0, 1.0]
    function = _piecewise.PiecewiseFunction(edges, coefficients)
    joined = _piecewise._merged(function, np.ones(1))
    np.testing.assert_array_equal(joined.edges, edges)


def test_columns_without_variation():
    circuit = gaussian_circuit()
    problem = fitted(SplineTransformer(), circuit)
    bounds = np.array([-1.0, 0.5, 0.0]), np.array([2.0, 0.5, 2.0])
    problem = Problem(problem.response, circuit, 3, bounds=bounds)
    form, _ = find_closed_form(problem)
    found = form.expectation(rows_of([[0.3, NAN, 1.0]]), with_variance=False).mean
    np.testing.assert_allclose(found, problem.response(np.array([[0.3, 0.5, 1.0]])), rtol=1e-9)


def test_rows_far_from_the_data_are_drawn():
    problem = fitted(SplineTransformer(extrapolation="linear"), gaussian_circuit())
    form, _ = find_closed_form(problem)
    far = rows_of([[1e3, NAN, 1.0], [0.3, NAN, 1.0], [1e3, 0.0, NAN]])
    assert form.covers(far, with_variance=False).tolist() == [False, True, True]


def test_very_many_columns_are_drawn(monkeypatch):
    problem = fitted(SplineTransformer(), gaussian_circuit())
    monkeypatch.setattr(_piecewise, "MAX_COLUMNS", 1)
    assert find_closed_form(problem)[0] is None


@pytest.mark.parametrize(
    "transformer", [PolynomialFeatures(4), QuantileTransformer(n_quantiles=150)]
)
def test_products_and_very_many_kinks_are_drawn(transformer):
    form, reason = find_closed_form(fitted(transformer, gaussian_circuit()))
    assert form is None and reason == "the model is not a sum of functions of single columns"


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_logarithms_of_positive_columns():
    rng = np.random.default_rng(0)
    X = np.exp(rng.normal(size=(200, 2)) @ [[1.0, 0.5], [0.0, 0.5]])
    model = make_pipeline(FunctionTransformer(np.log), Ridge())
    settings = {"density": GaussianMixtureDensity(n_components=2), "random_state": 0, "tol": 0.01}
    exact, drawn = (
        ExpectedPredictionRegressor(model, method=method, **settings).fit(X, np.log(X).sum(axis=1))
        for method in ("exact", "draws")
    )
    incomplete = np.where(rng.random(X.shape) < 0.5, NAN, X)
    difference = exact.predict(incomplete) - drawn.predict(incomplete)
    error = drawn.standard_error(incomplete) * np.log(X).sum(axis=1).std()
    assert (np.abs(difference) <= 5.0 * error + 1e-12).all()
