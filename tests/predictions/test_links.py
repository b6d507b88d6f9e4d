"""Functions of linear scores: links of any shape, hidden layers and Fourier features."""

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer, StandardScaler
from sklearn.svm import SVR, LinearSVC

from skcircuits.circuits import Circuit, MultivariateGaussian
from skcircuits.predictions import find_closed_form
from skcircuits.predictions.models._links import COSINE, EXPONENTIAL, HIDDEN_LAYERS
from tests.predictions.test_closed_forms import (
    INCOMPLETE_NUMBERS,
    INCOMPLETE_STATES,
    NAN,
    assert_exact,
    discrete_circuit,
    encoder,
    gaussian_circuit,
    problem_of,
    rows_of,
    train,
)
from tests.reference.enumeration import Completions

pytestmark = pytest.mark.filterwarnings("ignore:Stochastic Optimizer")


def network(activation, n_layers=1):
    sizes = (8,) * n_layers
    return MLPRegressor(
        hidden_layer_sizes=sizes, activation=activation, max_iter=20, random_state=0
    )


@pytest.mark.parametrize(
    "link", [COSINE, EXPONENTIAL, *HIDDEN_LAYERS.values()], ids=["cos", "exp", *HIDDEN_LAYERS]
)
@pytest.mark.parametrize("mean", [-4.0, 0.0, 1.3])
@pytest.mark.parametrize("std", [0.0, 0.3, 2.5])
def test_moments_of_normal_scores_against_quadrature(link, mean, std):
    def expectation(function):
        if std == 0:
            return function(mean)
        kink = np.clip(-mean / std, -12.0, 12.0)
        return sum(
            quad(lambda z: function(mean + std * z) * np.exp(-0.5 * z * z), *ends, epsabs=1e-13)[0]
            for ends in ((-14.0, kink), (kink, 14.0))
        ) / np.sqrt(2.0 * np.pi)

    first, second = (m[0] for m in link.moments(np.array([mean]), np.array([std])))
    assert first == pytest.approx(expectation(link.value), rel=1e-9, abs=1e-10)
    square = expectation(lambda s: link.value(s) ** 2)
    assert second == pytest.approx(square, rel=1e-9, abs=1e-10)


@pytest.mark.parametrize("activation", ["tanh", "logistic"])
def test_smooth_hidden_layers(activation):
    model = make_pipeline(StandardScaler(), network(activation))
    for circuit, X in (
        (discrete_circuit(), INCOMPLETE_STATES),
        (gaussian_circuit(), INCOMPLETE_NUMBERS),
    ):
        problem = problem_of(train(model, circuit), circuit)
        form, reason = find_closed_form(problem)
        assert form.name == "hidden layer of linear scores", reason
        assert not form.covers(rows_of(X), with_variance=True).any()
        assert_exact(form, problem, X, with_variance=False, tol=1e-7)


def test_random_fourier_features():
    sampler = RBFSampler(n_components=30, random_state=0)
    model = make_pipeline(encoder([2]), StandardScaler(), sampler, Ridge())
    circuit = gaussian_circuit()
    problem = problem_of(train(model, circuit), circuit)
    form, reason = find_closed_form(problem)
    assert form.name == "sum of random Fourier features", reason
    assert_exact(form, problem, INCOMPLETE_NUMBERS, with_variance=False, tol=1e-7)


def test_fourier_features_with_sparse_coefficients():
    model = make_pipeline(
        RBFSampler(n_components=30, random_state=0), SGDClassifier(random_state=0)
    )
    circuit = gaussian_circuit()
    train(model, circuit, n_classes=2)[-1].sparsify()
    problem = problem_of(model, circuit, "decision_function")
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    assert_exact(form, problem, INCOMPLETE_NUMBERS, with_variance=False, tol=1e-7)


def of_target(regressor=None, **parameters):
    return TransformedTargetRegressor(Ridge() if regressor is None else regressor, **parameters)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (of_target(func=np.log1p, inverse_func=np.expm1), "exponential function"),
        (of_target(func=np.sqrt, inverse_func=np.square), "function"),
        (of_target(transformer=PowerTransformer()), "function"),
        (of_target(network("identity"), func=np.sqrt, inverse_func=np.square), None),
    ],
    ids=["log1p", "root", "power", "network"],
)
def test_linear_models_of_a_transformed_target(model, name):
    circuit = gaussian_circuit()
    problem = problem_of(train(model, circuit), circuit)
    form, reason = find_closed_form(problem)
    if name is None:
        assert form is None and reason == "the model is not a weighted sum of its members"
        return
    assert form.name == f"{name} of a linear model", reason
    assert_exact(form, problem, INCOMPLETE_NUMBERS, tol=1e-7)


KINKED = {
    "hidden layer": (make_pipeline(StandardScaler(), network("relu")), "predict"),
    "isotonic": (CalibratedClassifierCV(LinearSVC(), method="isotonic", cv=2), "predict_proba"),
    "Huber": (SGDClassifier(loss="modified_huber", random_state=0), "predict_proba"),
}


@pytest.mark.parametrize("name", KINKED)
def test_functions_with_kinks_on_a_fine_grid(name):
    model, method = KINKED[name]
    circuit = Circuit(MultivariateGaussian([0, 1], [0.3, -0.2], [[1.0, 0.5], [0.5, 2.0]]))
    problem = problem_of(
        train(model, circuit, n_classes=2 * (method != "predict")), circuit, method
    )
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    rows = rows_of([[0.4, NAN], [NAN, NAN]])
    assert form.covers(rows, with_variance=False).all()
    grid = np.linspace(-12.0, 12.0, 200_001)
    cells = np.column_stack([np.full_like(grid, 0.4), grid])
    density = np.exp(circuit.log_prob(cells))
    mean = density @ problem.response(cells) / density.sum()
    found = form.expectation(rows, with_variance=False).mean
    np.testing.assert_allclose(found[0], mean, rtol=1e-7, atol=1e-8)
    drawn = circuit.sample(200_000, X=rows.cells, random_state=0)[:, 1]
    answers = problem.response(drawn)
    assert (np.abs(answers.mean(axis=0) - found[1]) < 5.0 * answers.std(axis=0) / 400.0).all()


@pytest.mark.filterwarnings("ignore:The provided functions")
def test_rows_for_which_a_link_grows_too_fast_are_drawn():
    circuit = Circuit(MultivariateGaussian([0, 1], np.zeros(2), np.eye(2)))
    model = of_target(func=np.sinh, inverse_func=lambda s: np.sinh(8.0 * s))
    X = circuit.sample(200, random_state=0)
    problem = problem_of(model.fit(X, np.arcsinh(X @ [0.5, 0.5])), circuit)
    model.regressor_.coef_[:] = 1.0
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    assert not form.covers(rows_of([[NAN, NAN]]), with_variance=False).any()


@pytest.mark.parametrize("offset", [1e5, 1e7, 1e9])
def test_standard_deviations_beside_a_large_constant(offset):
    circuit = gaussian_circuit()
    X = circuit.sample(300, random_state=0)
    model = of_target(Ridge(1e-6), func=np.sqrt, inverse_func=np.square)
    problem = problem_of(model.fit(X, offset + X @ [1.0, 0.5, 0.0]), circuit)
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    rows = rows_of([[0.4, NAN, 0.0], [NAN, NAN, NAN], [0.4, -0.3, NAN]])
    found = form.expectation(rows, with_variance=True).variance[:, 0]
    # Squares of scores are linear so far from zero
    completions = Completions(circuit, rows.cells[0])
    mean, square = (completions.expectation(lambda X, p=p: X[:, 1:2] ** p) for p in (1, 2))
    assert found[0] == pytest.approx((square - mean**2)[0] / 4.0, rel=0.02)
    # A missing category does not matter
    assert found[2] < 1e-3 * found[0]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_logarithms_of_large_targets():
    circuit = gaussian_circuit()
    X = circuit.sample(300, random_state=0)
    model = of_target(func=np.log, inverse_func=np.exp).fit(X, np.exp(14.0 + X[:, 0]))
    problem = problem_of(model, circuit)
    form, reason = find_closed_form(problem)
    assert form.name == "linear model with a logarithmic link", reason
    # Moments beyond the largest number
    model.regressor_.coef_ *= 30.0
    form, _ = find_closed_form(problem)
    covered = form.covers(rows_of([[NAN, 0.2, 1.0], [-20.0, NAN, 0.0]]), with_variance=False)
    assert covered.tolist() == [False, True]


@pytest.mark.filterwarnings("ignore:The provided functions")
def test_a_missing_category_beside_known_numbers_adds_no_error_of_narrow_integrals():
    model = of_target(func=np.cbrt, inverse_func=lambda s: np.clip(s, 0.5, 1.5))
    circuit = gaussian_circuit()
    problem = problem_of(train(model, circuit), circuit)
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    numbers = circuit.sample(50, random_state=3)[:, :2]
    rows = rows_of(np.column_stack([numbers, np.full(50, NAN)]))
    assert_exact(form, problem, rows.cells, tol=1e-10)


@pytest.mark.parametrize(
    ("model", "method", "reason"),
    [
        (network("relu", 2), "predict", "one hidden layer"),
        (network("identity"), "predict", "logistic, tanh or relu"),
        (of_target(SVR(), func=np.sqrt, inverse_func=np.square), "predict", "weighted sum"),
        (make_pipeline(RBFSampler(), LogisticRegression()), "predict_proba", "functions of single"),
        (CalibratedClassifierCV(GaussianNB(), cv=2), "predict_proba", "of a decision function"),
    ],
    ids=["layers", "activation", "kernel", "features", "calibration"],
)
def test_reasons_for_no_closed_form_of_scores(model, method, reason):
    circuit = gaussian_circuit()
    n_classes = 0 if method == "predict" else 2
    problem = problem_of(train(model, circuit, n_classes=n_classes), circuit, method)
    form, found = find_closed_form(problem)
    assert form is None and reason in found
