"""Models that combine others linearly: enumeration, quadrature, draws, and reasons against."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFE, RFECV
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.svm import SVC, SVR, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

from skcircuits.predictions import find_closed_form
from skcircuits.predictions._closed_forms import Problem, Response
from tests.predictions.test_closed_forms import (
    INCOMPLETE_NUMBERS,
    INCOMPLETE_STATES,
    NAN,
    assert_exact,
    discrete_circuit,
    gaussian_circuit,
    problem_of,
    rows_of,
    train,
)

pytestmark = pytest.mark.filterwarnings("ignore:y contains no unlabeled samples")

FOREST = RandomForestRegressor(4, random_state=0)
NARROW = KernelRidge(kernel="rbf", gamma=1e7)
# Samples of few rows lack a category
ENCODER = ColumnTransformer(
    [("encode", OneHotEncoder(sparse_output=False, handle_unknown="ignore"), [2])],
    remainder="passthrough",
)
SUPPORT = make_pipeline(ENCODER, SVR())
PROBABLE = RandomForestClassifier(4, max_depth=4, random_state=0)
LOGISTIC = make_pipeline(ENCODER, LogisticRegression())
# Model, method, number of classes, number of targets
SUMS = {
    "votes": (
        VotingRegressor([("a", Ridge()), ("b", FOREST)], weights=[1.0, 3.0]),
        "predict",
        0,
        1,
    ),
    "soft votes": (
        VotingClassifier([("a", LOGISTIC), ("b", PROBABLE)], voting="soft", weights=[2.0, 1.0]),
        "predict_proba",
        2,
        1,
    ),
    "targets": (MultiOutputRegressor(FOREST), "predict", 0, 3),
    "targets of classes": (MultiOutputClassifier(PROBABLE), "predict_proba", 3, 2),
    "bag": (BaggingRegressor(SUPPORT, 3, max_samples=0.2, random_state=0), "predict", 0, 1),
    "bag of columns": (
        BaggingRegressor(SVR(), 3, max_samples=0.2, max_features=2, random_state=0),
        "predict",
        0,
        1,
    ),
    "bag of classifiers": (
        BaggingClassifier(LOGISTIC, 3, max_samples=12, random_state=0),
        "predict_proba",
        2,
        1,
    ),
    "bag of decisions": (
        BaggingClassifier(SVC(), 2, max_samples=0.3, random_state=0),
        "decision_function",
        2,
        1,
    ),
    "stack": (
        StackingRegressor(
            [("a", Ridge()), ("b", FOREST)], make_pipeline(StandardScaler(), Ridge()), cv=2
        ),
        "predict",
        0,
        1,
    ),
    "stack with columns": (
        StackingRegressor([("a", FOREST)], Ridge(), cv=2, passthrough=True),
        "predict",
        0,
        1,
    ),
    "stack of classifiers with columns": (
        StackingClassifier([("a", PROBABLE), ("b", LinearSVC())], LinearSVC(), passthrough=True),
        "decision_function",
        2,
        1,
    ),
    "stack of classifiers": (
        StackingClassifier([("a", LOGISTIC), ("b", LinearSVC())], LogisticRegression(), cv=2),
        "decision_function",
        2,
        1,
    ),
    "one versus rest": (OneVsRestClassifier(SVC()), "decision_function", 3, 1),
    "one versus rest, two classes": (OneVsRestClassifier(LOGISTIC), "predict_proba", 2, 1),
    "pairs": (SVC(decision_function_shape="ovo"), "decision_function", 4, 1),
    "pairs of NuSVC": (NuSVC(nu=0.2, decision_function_shape="ovo"), "decision_function", 3, 1),
    "selected columns": (RFE(Ridge(), n_features_to_select=2), "predict", 0, 1),
    "selected columns of a forest": (RFECV(FOREST, cv=2), "predict", 0, 1),
    "threshold": (FixedThresholdClassifier(LOGISTIC), "predict_proba", 2, 1),
    "self-training": (SelfTrainingClassifier(LOGISTIC), "predict_proba", 2, 1),
    "nested": (
        make_pipeline(
            StandardScaler(),
            TransformedTargetRegressor(
                VotingRegressor([("a", BaggingRegressor(SVR(), 2, random_state=0)), ("b", FOREST)]),
                transformer=StandardScaler(),
            ),
        ),
        "predict",
        0,
        1,
    ),
}


def fitted(name, circuit, n_rows=300):
    model, method, n_classes, outputs = SUMS[name]
    model = train(model, circuit, n_rows=n_rows, n_classes=n_classes, outputs=outputs)
    return problem_of(model, circuit, method)


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_models_on_categories(name):
    circuit = discrete_circuit()
    problem = fitted(name, circuit)
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    assert_exact(form, problem, INCOMPLETE_STATES, with_variance=False)


@pytest.mark.parametrize("name", SUMS)
def test_sums_of_models_against_draws(name):
    circuit = gaussian_circuit()
    problem = fitted(name, circuit, n_rows=60)
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    rows = rows_of([[0.3, NAN, 1.0], [NAN, -0.5, 2.0]])
    assert form.covers(rows, with_variance=False).all()
    n_draws = 10**5
    drawn = circuit.sample(n_draws, X=rows.cells, random_state=0)
    answers = problem.response(drawn.reshape(-1, 3)).reshape(n_draws, 2, -1)
    found = form.expectation(rows, with_variance=False).mean
    error = answers.std(axis=0) / np.sqrt(n_draws) + 1e-12
    assert (np.abs(answers.mean(axis=0) - found) < 5.0 * error).all()


@pytest.mark.parametrize(
    "model",
    [
        VotingRegressor([("a", Ridge()), ("b", LinearRegression())]),
        BaggingRegressor(Ridge(), 3, max_features=2, random_state=0),
        StackingRegressor([("a", Ridge()), ("b", LinearRegression())], Ridge(), cv=2),
        StackingRegressor([("a", Ridge())], Ridge(), cv=2, passthrough=True),
    ],
    ids=["votes", "bag", "stack", "stack with columns"],
)
def test_sums_of_linear_models_are_linear(model):
    circuit = gaussian_circuit()
    problem = problem_of(train(model, circuit), circuit)
    form, _ = find_closed_form(problem)
    assert form.name == "linear model"
    assert_exact(form, problem, INCOMPLETE_NUMBERS)


def test_chains_of_linear_models_are_linear():
    circuit = gaussian_circuit()
    scaled = make_pipeline(StandardScaler(), Ridge())
    problem = problem_of(train(RegressorChain(scaled), circuit, outputs=3), circuit)
    form, _ = find_closed_form(problem)
    assert form.name == "linear model"
    assert_exact(form, problem, INCOMPLETE_NUMBERS)
    chain = train(RegressorChain(SVR()), circuit, n_rows=30, outputs=2)
    form, reason = find_closed_form(problem_of(chain, circuit))
    assert form is None and reason == "SVR in a chain is not linear"


@pytest.mark.parametrize(
    "model",
    [
        VotingRegressor([("a", NARROW), ("b", Ridge())]),
        VotingRegressor([("a", NARROW), ("b", DummyRegressor())]),
        make_pipeline(Nystroem(n_components=20, gamma=1e7, random_state=0), Ridge(alpha=1e-3)),
    ],
    ids=["beside a slope", "beside a constant", "landmarks"],
)
def test_kernels_that_no_trial_row_is_near_are_no_constants(model):
    circuit = gaussian_circuit()
    problem = problem_of(train(model, circuit, n_rows=20), circuit)
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    rows = circuit.sample(20, random_state=1)  # those of the training
    rows[:, 2] = NAN
    assert_exact(form, problem, rows, with_variance=False, tol=1e-7)


def test_calibrated_narrow_kernels_are_not_taken_for_constants():
    circuit = gaussian_circuit()
    model = CalibratedClassifierCV(SVC(gamma=1e8), cv=2)
    problem = problem_of(train(model, circuit, n_classes=2), circuit, "predict_proba")
    assert find_closed_form(problem)[0] is None


@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_scales_and_shifts_of_the_target(scale):
    circuit = gaussian_circuit()
    X = circuit.sample(60, random_state=1)
    stack = StackingRegressor([("a", FOREST), ("b", Ridge())], LinearRegression(), cv=2)
    model = stack.fit(X, scale * (1e3 + np.sin(X[:, 0]) + X[:, 1]))
    form, reason = find_closed_form(problem_of(model, circuit))
    assert form is not None, reason
    expected = model.final_estimator_.coef_
    np.testing.assert_allclose(form.matrix.ravel(), expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["targets", "scaled targets"])
def test_variances_of_outputs_that_have_a_member_each(name):
    circuit = gaussian_circuit()
    model = MultiOutputRegressor(SUPPORT)
    if name == "scaled targets":
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    problem = problem_of(train(model, circuit, n_rows=40, outputs=2), circuit)
    form, _ = find_closed_form(problem)
    assert form.name == "expected kernels"
    assert_exact(form, problem, INCOMPLETE_NUMBERS, tol=1e-4)


def random_sum(rng, depth):
    """Votes, bags, stacks and scaled targets of each other, at the bottom of simple models."""
    if depth == 0:
        return (Ridge(), FOREST, SVR(), NARROW, DummyRegressor())[rng.integers(5)]
    members = [(str(i), random_sum(rng, depth - 1)) for i in range(rng.integers(1, 4))]
    choices = (
        VotingRegressor(members, weights=rng.random(len(members))),
        BaggingRegressor(
            members[0][1], 2, max_features=0.7, bootstrap_features=True, random_state=0
        ),
        StackingRegressor(members, LinearRegression(), cv=2, passthrough=bool(rng.integers(2))),
        TransformedTargetRegressor(members[0][1], transformer=StandardScaler()),
        make_pipeline(StandardScaler(), members[0][1]),
    )
    return choices[rng.integers(len(choices))]


@pytest.mark.parametrize("seed", range(12))
def test_random_sums_against_enumeration(seed):
    rng = np.random.default_rng(seed)
    circuit = discrete_circuit()
    model = train(random_sum(rng, 2), circuit, n_rows=int(rng.integers(20, 80)))
    problem = problem_of(model, circuit)
    form, reason = find_closed_form(problem)
    assert form is not None, reason
    assert_exact(form, problem, INCOMPLETE_STATES, with_variance=False, tol=1e-6)


def test_variances_of_sums_have_no_closed_form():
    problem = fitted("votes", discrete_circuit())
    form, _ = find_closed_form(problem)
    assert not form.covers(rows_of(INCOMPLETE_STATES), with_variance=True).any()


def test_several_fitted_copies_are_averaged():
    circuit = discrete_circuit()
    copies = [
        train(VotingRegressor([("a", Ridge()), ("b", FOREST)]), circuit, n_rows=n)
        for n in (50, 200)
    ]
    problem = Problem(Response(copies, "predict", np.asarray), circuit, 4)
    form, _ = find_closed_form(problem)
    assert form.name == "weighted sum (linear model, probabilities of leaves)"
    assert_exact(form, problem, INCOMPLETE_STATES, with_variance=False)


@pytest.mark.parametrize(
    ("model", "method", "reason"),
    [
        (
            VotingRegressor([("a", Ridge()), ("b", KNeighborsRegressor())]),
            "predict",
            "KNeighborsRegressor has no closed form (of the member KNeighborsRegressor)",
        ),
        (VotingClassifier([("a", LOGISTIC)]), "votes", "a majority of votes is not linear"),
        (
            BaggingRegressor(KNeighborsRegressor(), 2),
            "predict",
            "(of the member KNeighborsRegressor)",
        ),
        (BaggingClassifier(LinearSVC(), 2), "predict_proba", "LinearSVC has no predict_proba"),
        (
            StackingRegressor([("a", FOREST)], PoissonRegressor(), cv=2),
            "predict",
            "not a weighted sum of its members",
        ),
        (
            StackingClassifier([("a", PROBABLE)], LogisticRegression(), cv=2),
            "predict_proba",
            "not a weighted sum of its members",
        ),
        (OneVsRestClassifier(DecisionTreeClassifier()), "predict_proba", "are normalised"),
        (
            MultiOutputRegressor(KNeighborsRegressor()),
            "predict",
            "(of the member KNeighborsRegressor)",
        ),
        (
            TransformedTargetRegressor(SVR(), func=np.log, inverse_func=np.exp),
            "predict",
            "not a weighted sum of its members",
        ),
        (SVC(), "decision_function", "only decision_function_shape='ovo'"),
        (
            VotingClassifier([("a", KNeighborsClassifier()), ("b", LOGISTIC)], voting="soft"),
            "predict_proba",
            "(of the member KNeighborsClassifier)",
        ),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else None,
)
def test_reasons_for_no_closed_form_of_sums(model, method, reason):
    circuit = gaussian_circuit()
    n_classes = 0 if method == "predict" else 3
    outputs = 2 if isinstance(model, MultiOutputRegressor) else 1
    problem = problem_of(
        train(model, circuit, n_classes=n_classes, outputs=outputs), circuit, method
    )
    form, found = find_closed_form(problem)
    assert form is None
    assert reason in found
