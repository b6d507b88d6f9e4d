"""Closed forms of expected predictions against enumeration and quadrature."""

import dataclasses
import itertools
import pickle

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import (
    ElasticNet,
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    RidgeClassifier,
    SGDClassifier,
    TweedieRegressor,
)
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, MultinomialNB
from sklearn.neighbors import KNeighborsRegressor, NearestCentroid
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Sum,
)
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.predictions import ExpectedResponse, find_closed_form
from skcircuits.predictions._closed_forms import IncompleteRows, Problem, Response
from skcircuits.predictions._components import GaussianComponents, probe
from skcircuits.predictions.models import _linear, _trees
from skcircuits.predictions.models._kernel_expansions import ProjectedExpansion
from tests.reference.enumeration import Completions

NAN = np.nan
SIZES = (2, 3, 2, 3)


def discrete_circuit(seed=0, n_components=3):
    rng = np.random.default_rng(seed)
    terms = []
    for weight in rng.dirichlet(np.ones(n_components)):
        factors = [Bernoulli(0, float(rng.random()))]
        factors += [Categorical(j, rng.dirichlet(np.ones(SIZES[j]))) for j in (1, 2, 3)]
        term = factors[0]
        for factor in factors[1:]:
            term = term * factor
        terms.append(weight * term)
    return Circuit(sum(terms[1:], terms[0]))


def gaussian_circuit(seed=0, n_components=2, joint=True):
    """Two numeric columns and a categorical one."""
    rng = np.random.default_rng(seed)
    terms = []
    for weight in rng.dirichlet(np.full(n_components, 5.0)):
        mean = rng.normal(size=2)
        factor = rng.normal(size=(2, 2))
        covariance = factor @ factor.T + 0.3 * np.eye(2)
        if joint:
            numbers = MultivariateGaussian([0, 1], mean, covariance)
        else:
            numbers = Gaussian(0, mean[0], covariance[0, 0] ** 0.5)
            numbers = numbers * Gaussian(1, mean[1], covariance[1, 1] ** 0.5)
        terms.append(weight * (numbers * Categorical(2, rng.dirichlet(np.ones(3)))))
    return Circuit(sum(terms[1:], terms[0]))


def encoder(columns, remainder="passthrough"):
    return ColumnTransformer(
        [("encode", OneHotEncoder(sparse_output=False), columns)], remainder=remainder
    )


def train(model, circuit, *, n_rows=300, n_classes=0, outputs=1):
    X = circuit.sample(n_rows, random_state=1)
    angles = X @ np.linspace(0.5, 1.5, X.shape[1] * outputs).reshape(X.shape[1], outputs)
    y = (np.sin(2.0 * angles) + 0.5 * angles).squeeze()
    if n_classes:
        y = np.digitize(y, np.quantile(y, np.linspace(0, 1, n_classes + 1)[1:-1]))
    elif y.ndim == 1:
        y = y - y.min() + 0.1  # positive, for logarithmic links
    return model.fit(X, y)


def problem_of(model, circuit, method="predict"):
    response = Response([model], method, np.asarray)
    return Problem(response, circuit, len(circuit.variables))


def rows_of(X):
    X = np.asarray(X, dtype=float)
    return IncompleteRows(X, X, np.zeros(X.shape[1], dtype=bool))


def assert_exact(form, problem, X, *, with_variance=True, tol=1e-9):
    form = pickle.loads(pickle.dumps(form))  # fitted estimators keep their forms
    rows = rows_of(X)
    assert form.covers(rows, with_variance=with_variance).all()
    found = form.expectation(rows, with_variance=with_variance)
    assert (found.error == 0).all()
    for i, row in enumerate(rows.cells):
        completions = Completions(problem.circuit, row)
        mean = completions.expectation(problem.response)
        scale = np.abs(problem.response(completions.nodes)).max()
        np.testing.assert_allclose(found.mean[i], mean, rtol=tol, atol=tol * scale)
        if with_variance:
            spread = completions.expectation(
                lambda nodes, m=mean: (problem.response(nodes) - m) ** 2
            )
            np.testing.assert_allclose(found.variance[i], spread, rtol=tol, atol=tol * scale**2)


INCOMPLETE_STATES = [
    [NAN, NAN, NAN, NAN],
    [1.0, NAN, NAN, 2.0],
    [NAN, 2.0, 0.0, NAN],
    [0.0, 1.0, NAN, 0.0],
]
INCOMPLETE_NUMBERS = [
    [0.3, NAN, NAN],
    [NAN, NAN, 1.0],
    [NAN, -0.5, 2.0],
    [NAN, NAN, NAN],
    [1.0, 2.0, NAN],
]

LINEAR = {
    "least squares": LinearRegression(),
    "elastic net": ElasticNet(alpha=0.01),
    "Huber": HuberRegressor(),
    "linear SVR": LinearSVR(random_state=0, max_iter=10_000),
    "partial least squares": PLSRegression(2),
    "identity link": TweedieRegressor(power=0),
    "named identity link": TweedieRegressor(power=0, link="identity"),
    "linear kernel": SVR(kernel="linear"),
    "linear kernel ridge": KernelRidge(kernel="linear"),
    "pipeline": make_pipeline(PCA(), StandardScaler(), MinMaxScaler(), Ridge()),
    "scaled target": TransformedTargetRegressor(Ridge(), transformer=StandardScaler()),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_regressors(name):
    for circuit, X in (
        (discrete_circuit(), INCOMPLETE_STATES),
        (gaussian_circuit(), INCOMPLETE_NUMBERS),
        (gaussian_circuit(joint=False), INCOMPLETE_NUMBERS),
    ):
        problem = problem_of(train(LINEAR[name], circuit), circuit)
        form, _ = find_closed_form(problem)
        assert form.name == "linear model"
        assert_exact(form, problem, X)


@pytest.mark.parametrize("front", ["one-hot", "scaled one-hot", "ordinal"])
def test_encoders_fold_into_linear_models(front):
    circuit = gaussian_circuit()
    steps = {
        "one-hot": encoder([2], StandardScaler()),
        "scaled one-hot": make_pipeline(encoder([2]), StandardScaler()),
        "ordinal": StandardScaler(),
    }
    model = train(make_pipeline(steps[front], Ridge()), circuit, outputs=2)
    problem = problem_of(model, circuit)
    form, _ = find_closed_form(problem)
    assert_exact(form, problem, INCOMPLETE_NUMBERS)


@pytest.mark.parametrize("interaction_only", [False, True])
def test_polynomials_of_degree_two(interaction_only):
    circuit = gaussian_circuit()
    features = PolynomialFeatures(2, interaction_only=interaction_only)
    model = make_pipeline(encoder([2], StandardScaler()), features, Ridge())
    problem = problem_of(train(model, circuit), circuit)
    form, reason = find_closed_form(problem)
    assert form.name == "polynomial of degree two", reason
    X = np.array(INCOMPLETE_NUMBERS)
    covered = form.covers(rows_of(X), with_variance=False)
    # Where only categories are missing, all completions are few
    assert covered.tolist() == np.isnan(X[:, :2]).any(axis=1).tolist()
    assert_exact(form, problem, [*X[covered], [NAN, 0.5, 1.0], [NAN, NAN, 1.0]])


def test_polynomials_have_no_points_in_impossible_states(monkeypatch):
    rng = np.random.default_rng(0)
    terms = [
        0.25 * MultivariateGaussian([0, 1], rng.normal(size=2), np.eye(2)) * Categorical(2, state)
        for state in np.eye(4)
    ]
    circuit = Circuit(sum(terms[1:], terms[0]))
    model = make_pipeline(encoder([2]), PolynomialFeatures(2), Ridge())
    problem = problem_of(train(model, circuit), circuit)
    form, _ = find_closed_form(problem)
    # Each component has one state: 4 points in each at most, where two numbers are missing
    monkeypatch.setattr(_linear, "MAX_POINTS", 4 * 4)
    assert form.name == "polynomial of degree two"
    X = [[NAN, NAN, NAN], [0.3, NAN, NAN], [NAN, NAN, 1.0]]
    assert form.covers(rows_of(X), with_variance=True).all()
    assert_exact(form, problem, X)
    seen = []
    monkeypatch.setattr(Response, "__call__", lambda self, X: seen.append(len(X)) or X[:, :1])
    form.expectation(rows_of(X), with_variance=False)
    assert sorted(seen) == [4, 8, 16]
    monkeypatch.setattr(_linear, "MAX_POINTS", 4 * 4 - 1)
    assert form.name.endswith("where missing categories have few states, draws elsewhere")
    assert form.covers(rows_of(X), with_variance=True).tolist() == [False, True, True]


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(encoder([2], StandardScaler()), PolynomialFeatures(3), Ridge()),
        SVR(kernel="poly", coef0=0.5),
        KernelRidge(kernel="polynomial"),
    ],
    ids=["features", "SVR", "kernel ridge"],
)
def test_polynomials_of_degree_three_have_exact_means(model):
    circuit = gaussian_circuit()
    problem = problem_of(train(model, circuit), circuit)
    form, reason = find_closed_form(problem)
    assert form.name == "polynomial of degree three", reason
    X = [[0.3, NAN, 1.0], [NAN, NAN, 2.0], [NAN, 0.2, NAN], [NAN, NAN, NAN]]
    assert_exact(form, problem, X, with_variance=False)
    assert not form.covers(rows_of(X), with_variance=True).any()


def test_variances_of_degree_two_whose_curvature_depends_on_a_category_are_drawn():
    circuit = gaussian_circuit()
    X = circuit.sample(300, random_state=1)
    squares = make_pipeline(encoder([2]), PolynomialFeatures(3), LinearRegression())
    problem = problem_of(squares.fit(X, X[:, 0] ** 2 * X[:, 2]), circuit)
    form, _ = find_closed_form(problem)
    assert form.name == "polynomial of degree two"
    rows = [[0.3, NAN, 1.0], [NAN, NAN, 2.0]]
    assert not form.covers(rows_of(rows), with_variance=True).any()
    assert_exact(form, problem, rows, with_variance=False)


def test_several_fitted_copies_are_one_linear_model():
    circuit = gaussian_circuit()
    models = [train(Ridge(alpha), circuit) for alpha in (0.1, 100.0)]
    problem = Problem(Response(models, "predict", np.asarray), circuit, 3)
    form, _ = find_closed_form(problem)
    assert_exact(form, problem, INCOMPLETE_NUMBERS)


@pytest.mark.parametrize(
    "model",
    [
        LinearSVC(),
        RidgeClassifier(),
        LinearDiscriminantAnalysis(),
        SVC(kernel="linear", decision_function_shape="ovo"),
    ],
    ids=["support vectors", "ridge", "discriminants", "pairs"],
)
def test_linear_decision_functions(model):
    circuit = gaussian_circuit()
    problem = problem_of(train(model, circuit, n_classes=3), circuit, "decision_function")
    form, _ = find_closed_form(problem)
    assert_exact(form, problem, INCOMPLETE_NUMBERS)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (SVR(kernel="poly", degree=2, coef0=1.0), "predict"),
        (KernelRidge(kernel="polynomial", degree=2), "predict"),
        (QuadraticDiscriminantAnalysis(), "decision_function"),
        (NearestCentroid(), "decision_function"),
    ],
    ids=["SVR", "kernel ridge", "discriminants", "centroids"],
)
def test_other_functions_of_degree_two(model, method):
    circuit = gaussian_circuit()
    n_classes = 3 if method == "decision_function" else 0
    problem = problem_of(train(model, circuit, n_classes=n_classes), circuit, method)
    form, reason = find_closed_form(problem)
    assert form.name == "polynomial of degree two", reason
    assert_exact(form, problem, [[0.3, NAN, 1.0], [NAN, NAN, 2.0], [NAN, 0.2, NAN], [NAN] * 3])


@pytest.mark.parametrize("strategy", ["prior", "most_frequent", "stratified"])
def test_constant_classifiers(strategy):
    circuit = discrete_circuit()
    model = train(DummyClassifier(strategy=strategy), circuit, n_classes=3)
    problem = problem_of(model, circuit, "predict_proba")
    form, reason = find_closed_form(problem)
    if strategy == "stratified":
        assert "random" in reason
    else:
        assert_exact(form, problem, INCOMPLETE_STATES)


SOFTMAX = {
    "Bernoulli": make_pipeline(encoder([0, 1, 2, 3]), BernoulliNB()),
    "categorical": CategoricalNB(min_categories=3),
    "multinomial": MultinomialNB(),
    "complement": make_pipeline(encoder([1, 3]), ComplementNB()),
    "centroids": NearestCentroid(),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", SOFTMAX)
def test_softmax_links_on_categories(name, n_classes):
    circuit = discrete_circuit()
    problem = problem_of(
        train(SOFTMAX[name], circuit, n_classes=n_classes), circuit, "predict_proba"
    )
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    assert form.name.startswith(("softmax", "logistic"))
    assert_exact(form, problem, INCOMPLETE_STATES)


@pytest.mark.parametrize(
    "model",
    [
        PoissonRegressor(alpha=0.01),
        TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp),
    ],
    ids=["Poisson", "log target"],
)
def test_logarithmic_links(model):
    for circuit, X in (
        (discrete_circuit(), INCOMPLETE_STATES),
        (gaussian_circuit(), INCOMPLETE_NUMBERS[:1] + INCOMPLETE_NUMBERS[2:]),
    ):
        problem = problem_of(train(model, circuit), circuit)
        form, _ = find_closed_form(problem)
        assert form.name == "linear model with a logarithmic link"
        assert_exact(form, problem, X, tol=1e-7)


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(C=0.1),
        LogisticRegression(C=1e4),
        SGDClassifier(loss="log_loss", alpha=0.1, random_state=0),
        LinearDiscriminantAnalysis(),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
    ids=["weak", "strong", "gradient descent", "discriminants", "pipeline"],
)
def test_logistic_links(model):
    for circuit, X in (
        (discrete_circuit(), INCOMPLETE_STATES),
        (gaussian_circuit(), INCOMPLETE_NUMBERS),
    ):
        problem = problem_of(train(model, circuit, n_classes=2), circuit, "predict_proba")
        form, _ = find_closed_form(problem)
        assert form.name == "logistic link of a linear model"
        # Steep links are hard on the quadrature of the reference, not on ours
        assert_exact(form, problem, X, tol=1e-8 if circuit.cardinalities != {2: 3} else 1e-6)


GAUSSIAN_PROCESS = GaussianProcessRegressor(
    ConstantKernel(2.0) * RBF(1.5) + WhiteKernel(0.1), optimizer=None, normalize_y=True
)
EXPANSIONS = {
    "SVR": SVR(C=10.0),
    "NuSVR": NuSVR(),
    "kernel ridge": KernelRidge(kernel="rbf", gamma=0.3),
    "Gaussian process": GAUSSIAN_PROCESS,
    "Nystroem": make_pipeline(Nystroem(n_components=30, random_state=0), Ridge()),
}


@pytest.mark.parametrize("name", EXPANSIONS)
@pytest.mark.parametrize("transformed", [False, True])
def test_kernel_expansions(name, transformed):
    circuit = gaussian_circuit()
    model = make_pipeline(encoder([2], StandardScaler()), EXPANSIONS[name])
    if transformed:
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    problem = problem_of(train(model, circuit, n_rows=60), circuit)
    form, _ = find_closed_form(problem)
    assert form.name == "expected kernels"
    assert_exact(form, problem, INCOMPLETE_NUMBERS, tol=1e-8)


def test_a_component_without_variance_is_no_part_of_distances():
    circuit = gaussian_circuit()
    # Columns of one category add up to one
    model = make_pipeline(encoder([2], StandardScaler()), PCA(), SVR())
    problem = problem_of(train(model, circuit, n_rows=60), circuit)
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    assert_exact(form, problem, INCOMPLETE_NUMBERS, tol=1e-8)


@pytest.mark.parametrize("front", [[], [PCA()]], ids=["columns", "components"])
def test_gaussian_processes_with_a_length_scale_for_each_feature(front):
    circuit = gaussian_circuit()
    kernel = ConstantKernel(2.0) * RBF([0.7, 1.0, 2.0, 1.5, 3.0]) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, optimizer=None)
    model = make_pipeline(encoder([2], StandardScaler()), *front, process)
    problem = problem_of(train(model, circuit, n_rows=60), circuit)
    form, reason = find_closed_form(problem)
    assert form.name.startswith("expected kernels"), reason
    assert_exact(form, problem, INCOMPLETE_NUMBERS, with_variance=not front, tol=1e-8)


@pytest.mark.parametrize("name", EXPANSIONS)
def test_kernel_expansions_whose_states_are_not_equally_far_apart(name):
    circuit = gaussian_circuit()
    model = make_pipeline(encoder([2]), StandardScaler(), EXPANSIONS[name])
    problem = problem_of(train(model, circuit, n_rows=60), circuit)
    form, _ = find_closed_form(problem)
    assert form.name == "expected kernels"
    assert_exact(form, problem, INCOMPLETE_NUMBERS, tol=1e-8)


def test_variances_of_many_pairs_of_points_are_drawn():
    circuit = Circuit(
        Categorical(2, [0.2, 0.3, 0.5])
        * Gaussian(1, 0.0, 1.0)
        * PiecewisePolynomial(0, knots=[0.0, 1.0, 3.0], weights=[0.25, 0.5, 0.25])
    )
    for n_rows, is_exact in ((40, True), (200, False)):
        problem = problem_of(train(SVR(epsilon=0.0), circuit, n_rows=n_rows), circuit)
        form, _ = find_closed_form(problem)
        rows = rows_of(INCOMPLETE_NUMBERS)
        assert form.covers(rows, with_variance=False).all()
        assert form.covers(rows, with_variance=True).all() == is_exact


MIXED = {
    "components": make_pipeline(StandardScaler(), PCA(2)),
    "components of categories": make_pipeline(encoder([2], StandardScaler()), PCA(3)),
    "more features than columns": FeatureUnion([("a", StandardScaler()), ("b", PCA(2))]),
}


@pytest.mark.parametrize("name", EXPANSIONS)
@pytest.mark.parametrize("front", MIXED)
def test_kernels_of_features_that_mix_columns(front, name):
    for joint in (True, False):
        circuit = gaussian_circuit(joint=joint)
        model = make_pipeline(MIXED[front], EXPANSIONS[name])
        problem = problem_of(train(model, circuit, n_rows=60), circuit)
        form, reason = find_closed_form(problem)
        assert form.name == "expected kernels of combinations of columns", reason
        assert_exact(form, problem, INCOMPLETE_NUMBERS, with_variance=False, tol=1e-8)
        covered = form.covers(rows_of(INCOMPLETE_NUMBERS), with_variance=True)
        assert covered.tolist() == [not np.isnan(row[2]) for row in INCOMPLETE_NUMBERS]
        numbers = [row for row in INCOMPLETE_NUMBERS if not np.isnan(row[2])]
        assert_exact(form, problem, numbers, tol=1e-8)


def test_both_forms_of_kernels_of_the_columns_agree():
    circuit = gaussian_circuit()
    svr = train(SVR(gamma=0.3), circuit, n_rows=60)
    problem = problem_of(svr, circuit)
    by_columns, _ = find_closed_form(problem)
    assert by_columns.name == "expected kernels"
    by_features = ProjectedExpansion(
        probe(np.asarray, problem),
        GaussianComponents.of(circuit),
        svr.support_vectors_,
        svr.dual_coef_.T,
        svr.intercept_,
        0.3,
    )
    many = dataclasses.replace(by_features, points=np.tile(svr.support_vectors_, (9, 1)))
    many = dataclasses.replace(many, coefficients=np.tile(svr.dual_coef_.T / 9.0, (9, 1)))
    numbers = rows_of([row for row in INCOMPLETE_NUMBERS if not np.isnan(row[2])])
    expected = by_columns.expectation(numbers, with_variance=True).variance
    for form in (by_features, many):  # pairs of points, and eigenfunctions of many points
        variance = form.expectation(numbers, with_variance=True).variance
        np.testing.assert_allclose(variance, expected, rtol=2e-5)
    rows = rows_of(INCOMPLETE_NUMBERS)
    one, other = (f.expectation(rows, with_variance=False) for f in (by_columns, by_features))
    np.testing.assert_allclose(other.mean, one.mean, rtol=1e-11)


def test_rows_far_from_all_points_have_no_expanded_squares():
    circuit = gaussian_circuit()
    problem = problem_of(train(make_pipeline(PCA(2), SVR()), circuit, n_rows=60), circuit)
    form, _ = find_closed_form(problem)
    far = rows_of([[0.3, NAN, 1.0], [1e9, NAN, 1.0]])
    assert form.covers(far, with_variance=False).tolist() == [True, False]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("far", [1e155, -1e200, 1e300])
def test_rows_too_far_away_for_a_density_are_impossible(far):
    components = GaussianComponents.of(gaussian_circuit())
    with pytest.raises(ZeroProbabilityError, match="probability zero"):
        components.conditioned(np.array([[far, NAN, 0.0], [0.0, far, 1.0]]))


def test_components_of_far_rows_under_nearly_equal_columns():
    rng = np.random.default_rng(0)
    covariance = np.array([[1.0, 0.9999, 0.3], [0.9999, 1.0, 0.3], [0.3, 0.3, 1.0]])
    means, weights = rng.normal(size=(3, 3)), np.array([0.2, 0.3, 0.5])
    units = [MultivariateGaussian((0, 1, 2), mean, covariance) for mean in means]
    circuit = Circuit(Sum(units, weights=weights))
    rows = np.array([[60.0, NAN, NAN], [NAN, NAN, -300.0]])
    found = GaussianComponents.of(circuit).conditioned(rows).weights
    squares = np.square(np.array([60.0, -300.0]) - means[:, [0, 2]])
    logs = np.log(weights)[:, None] - 0.5 * squares
    expected = np.exp(logs - logs.max(axis=0))
    np.testing.assert_allclose(found, expected / expected.sum(axis=0), rtol=1e-9)


def test_kernels_of_mixed_features_need_gaussian_components():
    circuit = Circuit(
        Gaussian(0, 0.0, 1.0)
        * PiecewisePolynomial(1, knots=[0.0, 1.0, 3.0], weights=[0.25, 0.5, 0.25])
    )
    problem = problem_of(train(make_pipeline(PCA(1), SVR()), circuit, n_rows=60), circuit)
    form, reason = find_closed_form(problem)
    assert form is None
    assert "mix columns" in reason


@pytest.mark.parametrize("scaler", ["passthrough", StandardScaler()])
def test_decision_functions_of_support_vectors(scaler):
    circuit = discrete_circuit()
    model = train(make_pipeline(encoder([0, 1, 2, 3]), scaler, SVC()), circuit, n_classes=2)
    problem = problem_of(model, circuit, "decision_function")
    form, _ = find_closed_form(problem)
    assert_exact(form, problem, INCOMPLETE_STATES)


TREES = {
    "tree": DecisionTreeRegressor(max_depth=4, random_state=0),
    "forest": RandomForestRegressor(5, random_state=0),
    "extra trees": ExtraTreesRegressor(5, max_depth=5, random_state=0),
    "bagging": BaggingRegressor(n_estimators=4, max_features=0.7, random_state=0),
    "boosting": GradientBoostingRegressor(n_estimators=10, random_state=0),
    "histogram boosting": HistGradientBoostingRegressor(max_iter=10, random_state=0),
    "histogram boosting of categories": HistGradientBoostingRegressor(
        max_iter=10, categorical_features=[1, 3], random_state=0
    ),
}


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("encoded", [False, True])
def test_trees_on_categories(name, encoded):
    circuit = discrete_circuit()
    model = make_pipeline(encoder([1, 3]), TREES[name]) if encoded else TREES[name]
    problem = problem_of(train(model, circuit), circuit)
    form, _ = find_closed_form(problem)
    assert form.name == "probabilities of leaves"
    assert_exact(form, problem, INCOMPLETE_STATES, with_variance=False)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (DecisionTreeClassifier(max_depth=4, random_state=0), "predict_proba"),
        (RandomForestClassifier(5, random_state=0), "predict_proba"),
        (GradientBoostingClassifier(n_estimators=5, random_state=0), "decision_function"),
        (
            AdaBoostClassifier(DecisionTreeClassifier(max_depth=2), n_estimators=5, random_state=0),
            "decision_function",
        ),
    ],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_that_classify(model, method, n_classes):
    circuit = discrete_circuit()
    problem = problem_of(train(model, circuit, n_classes=n_classes), circuit, method)
    form, _ = find_closed_form(problem)
    assert_exact(form, problem, INCOMPLETE_STATES, with_variance=False)


def thresholds(model, column):
    trees = getattr(model, "estimators_", [model])
    trees = [tree.tree_ for tree in np.ravel(trees)]
    cuts = [tree.threshold[tree.feature == column] for tree in trees]
    return np.unique(np.concatenate(cuts))


def by_cells(problem, model, row, function=lambda answers: answers):
    """Sum over the cells of the grid that all thresholds make, and over the categories."""
    conditional = problem.circuit.condition(row)
    missing = np.flatnonzero(np.isnan(row))
    axes = []
    for j in missing:
        if j in problem.circuit.cardinalities:
            axes.append([(s, s, s) for s in range(problem.circuit.cardinalities[j])])
            continue
        cuts = thresholds(model, j)
        cuts = cuts if len(cuts) else np.zeros(1)  # no tree splits the column
        middles = np.concatenate([[cuts[0] - 1], (cuts[1:] + cuts[:-1]) / 2, [cuts[-1] + 1]])
        axes.append(list(zip([NAN, *cuts], [*cuts, NAN], middles)))
    cells = np.array(list(itertools.product(*axes)))
    lower, upper, inside = (np.tile(row, (len(cells), 1)) for _ in range(3))
    lower[:], upper[:] = NAN, NAN
    lower[:, missing], upper[:, missing], inside[:, missing] = np.moveaxis(cells, 2, 0)
    masses = np.exp(conditional.log_prob_box(lower, upper))
    assert masses.sum() == pytest.approx(1.0)
    return masses @ function(problem.response(inside))


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("name", ["tree", "forest", "boosting"])
def test_trees_on_numbers(name, joint):
    circuit = gaussian_circuit(joint=joint)
    model = train(TREES[name], circuit, n_rows=60)
    problem = problem_of(model, circuit)
    form, _ = find_closed_form(problem)
    X = np.array([[0.3, NAN, NAN], [NAN, -0.5, 2.0], [1.0, 2.0, NAN], [NAN, NAN, 1.0]])
    rows = rows_of(X)
    assert form.name == "probabilities of leaves"
    assert form.covers(rows, with_variance=False).all()
    found = form.expectation(rows, with_variance=False).mean
    expected = [by_cells(problem, model, row) for row in X]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def joint_circuit(n_numbers, n_components=2):
    """Numeric columns and a categorical one, with strong dependences."""
    rng = np.random.default_rng(n_numbers)
    terms = []
    for weight in rng.dirichlet(np.full(n_components, 5.0)):
        factor = rng.normal(size=(n_numbers, n_numbers))
        covariance = factor @ factor.T + 0.1 * np.eye(n_numbers)
        columns = list(range(n_numbers))
        numbers = MultivariateGaussian(columns, rng.normal(size=n_numbers), covariance)
        terms.append(weight * (numbers * Categorical(n_numbers, rng.dirichlet(np.ones(3)))))
    return Circuit(sum(terms[1:], terms[0]))


@pytest.mark.parametrize(("max_depth", "n_trees"), [(2, 4), (3, 2)])
def test_leaves_that_bound_up_to_three_missing_numbers(max_depth, n_trees):
    circuit = joint_circuit(3)
    boosting = GradientBoostingRegressor(max_depth=max_depth, n_estimators=n_trees, random_state=0)
    model = train(boosting, circuit, n_rows=200)
    problem = problem_of(model, circuit)
    form, _ = find_closed_form(problem)
    assert form.name == "probabilities of leaves"
    X = np.array([[NAN, NAN, NAN, NAN], [NAN, NAN, NAN, 2.0], [NAN, 0.5, NAN, NAN]])
    rows = rows_of(X)
    assert form.covers(rows, with_variance=False).all()
    found = form.expectation(rows, with_variance=False).mean
    expected = [by_cells(problem, model, row) for row in X]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_stumps_of_any_number_of_missing_numbers():
    circuit = joint_circuit(8)
    boosting = GradientBoostingRegressor(max_depth=1, n_estimators=50, random_state=0)
    model = train(boosting, circuit)
    form, _ = find_closed_form(problem_of(model, circuit))
    assert form.name == "probabilities of leaves"
    rows = rows_of([[0.5, *[NAN] * 8], [NAN] * 9])
    found = form.expectation(rows, with_variance=False).mean[:, 0]
    for row, mean in zip(rows.cells, found):
        given = circuit.condition(row)
        expected = model.init_.constant_[0, 0]
        for (stump,) in model.estimators_:
            own, lower, upper = stump.tree_, np.full((1, 9), NAN), np.full((1, 9), NAN)
            (column, *_), (cut, *_) = own.feature, own.threshold
            upper[0, column] = cut
            left = np.exp(given.log_prob_box(lower, upper))[0]
            if not np.isnan(row[column]):
                left = row[column] <= cut
            _, low, high = own.value[:, 0, 0]
            expected += 0.1 * (left * low + (1.0 - left) * high)
        assert mean == pytest.approx(expected, rel=1e-12)


def test_leaves_that_bound_many_missing_numbers_are_drawn(monkeypatch):
    circuit = joint_circuit(5)
    model = train(RandomForestRegressor(3, max_depth=6, random_state=0), circuit)
    form, _ = find_closed_form(problem_of(model, circuit))
    assert form.name.endswith("draws elsewhere")
    rows = rows_of([[NAN] * 5 + [1.0], [0.1, 0.2, NAN, NAN, NAN, 1.0], [0.1, 0.2, 0.3, *[NAN] * 3]])
    assert form.covers(rows, with_variance=False).tolist() == [False, True, True]
    # Three missing numbers are an integral per leaf
    monkeypatch.setattr(_trees, "MAX_INTEGRALS", 0)
    assert form.covers(rows, with_variance=False).tolist() == [False, False, True]


def test_trees_behind_scalers_that_turn_columns_around():
    circuit = gaussian_circuit(joint=False)
    X = circuit.sample(100, random_state=1)

    class Turned(StandardScaler):
        def transform(self, X, copy=None):
            return -super().transform(X, copy)

    tree = DecisionTreeRegressor(max_depth=4, random_state=0)
    model = make_pipeline(Turned(), tree).fit(X, np.sin(X).sum(axis=1))
    problem = problem_of(model, circuit)
    form, reason = find_closed_form(problem)
    assert form, reason
    row = np.array([[0.3, NAN, 1.0]])
    grid = np.linspace(-8.0, 8.0, 400_001)
    completed = np.column_stack([np.full(len(grid), 0.3), grid, np.ones(len(grid))])
    density = np.exp(circuit.log_prob(completed))
    mean = density @ model.predict(completed) / density.sum()
    assert form.expectation(rows_of(row), with_variance=False).mean[0, 0] == pytest.approx(
        mean, rel=1e-4
    )


@pytest.mark.parametrize("ensemble", [False, True])
def test_calibrated_linear_classifiers(ensemble):
    calibrated = CalibratedClassifierCV(LinearSVC(random_state=0), cv=2, ensemble=ensemble)
    for circuit, X in (
        (discrete_circuit(), INCOMPLETE_STATES),
        (gaussian_circuit(), INCOMPLETE_NUMBERS[:1] + INCOMPLETE_NUMBERS[2:3]),
    ):
        model = train(make_pipeline(StandardScaler(), calibrated), circuit, n_classes=2)
        problem = problem_of(model, circuit, "predict_proba")
        form, reason = find_closed_form(problem)
        assert form is not None, reason
        assert_exact(form, problem, X, with_variance=not ensemble, tol=1e-8)


def test_kernels_have_no_closed_form_of_calibrations():
    circuit = gaussian_circuit()
    model = train(CalibratedClassifierCV(SVC(), cv=2), circuit, n_classes=2)
    problem = problem_of(model, circuit, "predict_proba")
    assert "sum of functions of single" in find_closed_form(problem)[1]


@pytest.mark.parametrize(
    "last",
    [SVR(), KernelRidge(kernel="rbf"), Nystroem(n_components=20, random_state=0)],
    ids=["support vectors", "kernel ridge", "landmarks"],
)
def test_models_of_sparse_tables_are_those_of_dense_ones(last):
    circuit, means = gaussian_circuit(), []
    for is_sparse in (False, True):
        encode = ColumnTransformer(
            [("encode", OneHotEncoder(sparse_output=is_sparse), [2])],
            remainder="passthrough",
            sparse_threshold=1.0,
        )
        steps = [encode, last, Ridge()] if isinstance(last, Nystroem) else [encode, last]
        problem = problem_of(train(make_pipeline(*steps), circuit), circuit, "predict")
        form, reason = find_closed_form(problem)
        assert form is not None, reason
        rows = rows_of([[0.3, NAN, 1.0], [NAN, -0.5, 2.0], [0.1, 0.2, NAN]])
        means.append(form.expectation(rows, with_variance=False).mean)
    np.testing.assert_allclose(means[1], means[0], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "method"),
    [
        (make_pipeline(StandardScaler(), Ridge()), "predict"),
        (make_pipeline(PolynomialFeatures(2), Ridge()), "predict"),
        (PoissonRegressor(alpha=0.1), "predict"),
        (make_pipeline(encoder([2]), SVR()), "predict"),
        (make_pipeline(encoder([2]), PCA(3), NuSVR()), "predict"),
        (
            make_pipeline(encoder([2]), Nystroem(n_components=50, random_state=0), Ridge()),
            "predict",
        ),
        (make_pipeline(encoder([2]), SVC()), "decision_function"),
        (LogisticRegression(), "predict_proba"),
        (CalibratedClassifierCV(LinearSVC(), cv=2), "predict_proba"),
        (SVR(kernel="poly", degree=2), "predict"),
        (NearestCentroid(), "predict_proba"),
        (QuadraticDiscriminantAnalysis(), "decision_function"),
        (FixedThresholdClassifier(LogisticRegression()), "predict_proba"),
        (RandomForestRegressor(5, random_state=0), "predict"),
    ],
    ids=lambda value: type(value[-1] if hasattr(value, "steps") else value).__name__,
)
@pytest.mark.parametrize("joint", [False, True])
def test_against_a_million_draws(model, method, joint):
    circuit = gaussian_circuit(joint=joint)
    n_classes = 0 if method == "predict" else 2
    problem = problem_of(train(model, circuit, n_classes=n_classes), circuit, method)
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    rows = rows_of([[0.3, NAN, 1.0], [NAN, -0.5, 2.0], [NAN, NAN, 0.0]])
    assert form.covers(rows, with_variance=False).all()
    drawn = circuit.sample(10**6, X=rows.cells, random_state=0)
    answers = np.stack([problem.response(drawn[:, i]) for i in range(3)])
    found = form.expectation(rows, with_variance=False).mean
    error = answers.std(axis=1) / 1e3 + 1e-12
    assert (np.abs(answers.mean(axis=1) - found) < 5.0 * error).all()


@pytest.mark.parametrize(
    ("model", "method", "reason"),
    [
        (KNeighborsRegressor(), "predict", "KNeighborsRegressor has no closed form"),
        (make_pipeline(PolynomialFeatures(4), Ridge()), "predict", "sum of functions of single"),
        (SVR(kernel="poly", degree=4), "predict", "kernel='poly'"),
        (
            SGDClassifier(loss="modified_huber"),
            "predict_proba",
            "softmax of the decision functions",
        ),
        (
            make_pipeline(PCA(2), GradientBoostingClassifier(n_estimators=2)),
            "predict_proba",
            "link",
        ),
        (CalibratedClassifierCV(LinearSVC(), method="isotonic"), "predict_proba", "one score"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else None,
)
def test_reasons_for_no_closed_form(model, method, reason):
    circuit = gaussian_circuit()
    n_classes = 3 if method == "predict_proba" else 0
    problem = problem_of(train(model, circuit, n_classes=n_classes), circuit, method)
    form, found = find_closed_form(problem)
    assert form is None
    assert reason in found


def test_frozen_estimators_are_looked_into():
    circuit = gaussian_circuit()
    frozen = FrozenEstimator(train(Ridge(), circuit))
    assert find_closed_form(problem_of(frozen, circuit))[0].name == "linear model"


def test_every_row_goes_its_best_way():
    """Equal rows, closed forms for some rows, enumeration and draws for others."""
    from skcircuits.predictions._expected_response import DrawBudget

    circuit = gaussian_circuit()
    # Its form serves rows that miss one number
    model = train(AdaBoostRegressor(n_estimators=3, random_state=0), circuit)
    problem = problem_of(model, circuit)
    form, _ = find_closed_form(problem)
    budget = DrawBudget(2**14, 0.01, 1.0, 0)
    expected = ExpectedResponse(problem.response, circuit, budget, form)
    X = [[NAN, NAN, 1.0], [0.3, NAN, 1.0], [0.3, 0.2, NAN], [NAN, NAN, 1.0]]
    found = expected(rows_of(X), with_variance=False)
    assert (found.error[[1, 2]] == 0).all()
    assert 0 < found.error[0] <= 0.01
    assert found.mean[0] == found.mean[3]
    means = [Completions(circuit, np.array(row)).expectation(problem.response) for row in X]
    np.testing.assert_allclose(found.mean, means, atol=0.05)
    # Of several numbers a variance is drawn, and categories are enumerated; means stay
    with_variance = expected(rows_of(X), with_variance=True)
    np.testing.assert_array_equal(with_variance.error > 0, [True, False, False, True])
    assert with_variance.error.max() <= 0.01
    np.testing.assert_array_equal(with_variance.mean, found.mean)
    assert (with_variance.variance > 0).all()
