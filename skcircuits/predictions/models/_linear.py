"""Exact moments of linear models after any steps that are additive over the columns.

After polynomial features of degree two and three, means are exact by sigma points.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import softmax
from sklearn import linear_model
from sklearn.cross_decomposition import CCA, PLSCanonical, PLSRegression
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, MultinomialNB
from sklearn.neighbors import NearestCentroid
from sklearn.svm import SVC, SVR, LinearSVC, LinearSVR, NuSVC, NuSVR

from skcircuits.circuits import Circuit
from skcircuits.numerics._patterns import group_patterns
from skcircuits.predictions._closed_forms import (
    ClosedForm,
    Expectation,
    IncompleteRows,
    NoClosedFormError,
    Problem,
    Response,
    WeightedSum,
    closed_form,
    is_plainly_missing,
    last_step,
    steps_of,
    transformed,
)
from skcircuits.predictions._components import AdditiveFunction, GaussianComponents, probe
from skcircuits.predictions.models._kernel_expansions import build_expansion, build_nystroem
from skcircuits.predictions.models._links import (
    BOTH,
    EXPONENTIAL,
    LOGISTIC,
    LinkForm,
    SoftmaxForm,
    build_fourier,
    one_versus_rest_form,
    score_form,
)
from skcircuits.predictions.models._piecewise import piecewise_form
from skcircuits.protocols import BoolArray, FloatArray, IntArray

REGRESSORS = (
    *(
        getattr(linear_model, name)
        for name in linear_model.__all__
        if name.endswith(("Regression", "Ridge", "Lasso", "Net", "CV", "Lars", "Pursuit"))
        or name in ("HuberRegressor", "SGDRegressor", "TheilSenRegressor", "QuantileRegressor")
        or name in ("LassoLarsIC", "RANSACRegressor", "PassiveAggressiveRegressor")
    ),
    CCA,
    DummyRegressor,
    LinearSVR,
    PLSCanonical,
    PLSRegression,
)
CLASSIFIERS = (
    *(
        getattr(linear_model, name)
        for name in linear_model.__all__
        if name.endswith(("Classifier", "ClassifierCV"))
    ),
    LinearDiscriminantAnalysis,
    LinearSVC,
    NearestCentroid,
    QuadraticDiscriminantAnalysis,
    linear_model.LogisticRegression,
    linear_model.LogisticRegressionCV,
    linear_model.Perceptron,
)
# Whose log probabilities are sums over the columns
NAIVE_BAYES = (BernoulliNB, CategoricalNB, ComplementNB, MultinomialNB)
# Methods whose answers are scores of classes, in order of preference
SCORES = ("decision_function", "predict_joint_log_proba")
LOG_LINEAR = (
    linear_model.GammaRegressor,
    linear_model.PoissonRegressor,
    linear_model.TweedieRegressor,
)

# Degree of polynomials whose means are exact by sigma points; their differences must vanish
# relative to the size of the values
MAX_DEGREE, POLYNOMIAL = 3, 1e-9
# Points of a row that misses categories: as many answers of the model as elsewhere for completions
MAX_POINTS = 512


@dataclass(frozen=True, eq=False)
class LinearForm:
    """Moments of an additive function; the variance needs Gaussian components."""

    additive: AdditiveFunction
    circuit: Circuit
    components: GaussianComponents | None
    name: str = "linear model"
    rounds_integers: bool = False

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes."""
        return 0 if self.components is None else self.components.bytes_per_row

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """All rows have an exact mean."""
        if with_variance and self.components is None:
            return np.zeros(len(rows), dtype=bool)
        return is_plainly_missing(rows)

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        if self.components is None:
            return Expectation.exact(self.additive.mean(self.circuit, rows.evidence))
        return Expectation.exact(
            *self.additive.moments(self.components, rows.evidence, with_variance=with_variance)
        )


def linear_form(problem: Problem) -> LinearForm:
    """Build the form of models that are additive over the columns."""
    additive = probe(problem.response, problem)
    try:
        components = GaussianComponents.of(problem.circuit)
    except NoClosedFormError:
        components = None
    return LinearForm(additive, problem.circuit, components)


def build_linear(model: Any, problem: Problem) -> ClosedForm:
    """Build the form of models that are linear in landmarks, columns or functions of them."""
    reasons = []
    of_landmarks, of_waves = (
        partial(WeightedSum.average, build=build) for build in (build_nystroem, build_fourier)
    )
    # Landmarks first: their kernels may be so narrow that no trial row is near one
    for form in (of_landmarks, linear_form, polynomial_form, piecewise_form, of_waves):
        try:
            return form(problem)
        except NoClosedFormError as reason:
            reasons.append(reason)
    raise reasons[1]


def build_log_linear(model: Any, problem: Problem) -> ClosedForm:
    """Build the form of models whose logarithm is additive."""
    link = getattr(model, "link", "log")
    if link == "identity" or (link == "auto" and model.power <= 0.0):
        return linear_form(problem)

    def build(single: Problem) -> ClosedForm:
        def score(X: FloatArray) -> FloatArray:
            answers = single.response(X)
            # The logarithm of a generalised linear model with log link is additive, if it exists
            if (answers <= 0).any():
                raise NoClosedFormError("predictions are not positive")
            return np.log(answers)

        n_outputs = single.response(single.trial_rows()[:1]).shape[1]
        weights = np.eye(n_outputs), np.zeros(n_outputs)
        name = "linear model with a logarithmic link"
        return LinkForm.checked(EXPONENTIAL, score, single, weights, name)

    return WeightedSum.average(problem, build)


def build_classifier(model: Any, problem: Problem) -> ClosedForm:
    """Build the form of classifiers whose scores are linear."""
    # Classes and decision functions are those of scores, which are linear
    if problem.response.method != "predict_proba":
        return build_linear(model, problem)
    return WeightedSum.average(problem, _build_logistic)


def _build_logistic(single: Problem) -> ClosedForm:
    (model,) = single.response.models
    last = last_step(model)
    method = next(filter(partial(hasattr, last), SCORES), None)
    if method is None:
        raise NoClosedFormError("the classifier has no decision function")
    if any(isinstance(step, Nystroem) and step.kernel != "linear" for step in steps_of(model)):
        raise NoClosedFormError("the model is not a sum of functions of single columns")
    # A pipeline has not all methods of its last step
    answer = Response([last], method, partial(transformed, single))

    def score(X: FloatArray) -> FloatArray:
        scores = answer(X)
        # scikit-learn keeps a single score for two classes; that of several has a free constant
        return scores if scores.shape[1] == 1 else scores - scores.mean(axis=1, keepdims=True)

    trials = single.trial_rows()
    scores, expected = single.ask(score, trials), single.ask(single.response, trials)
    if scores.shape[1] == 1:
        try:
            return LinkForm.checked(
                LOGISTIC, score, single, BOTH, "logistic link of a linear model"
            )
        except NoClosedFormError:
            return score_form(single, score)
    try:
        single.check(softmax(scores, axis=1), expected, "a softmax of the decision functions")
        return SoftmaxForm(probe(score, single), GaussianComponents.of(single.circuit))
    except NoClosedFormError as reason:
        try:
            return one_versus_rest_form(single, answer, "a normalised logistic function")
        except NoClosedFormError:
            raise reason from None


def _build_kernel_machine(model: Any, problem: Problem) -> ClosedForm:
    # Expansions of linear kernels are linear, those of degree two and three are polynomials
    is_polynomial = model.kernel in ("poly", "polynomial") and model.degree <= MAX_DEGREE
    is_polynomial |= model.kernel == "linear"
    return (build_linear if is_polynomial else build_expansion)(model, problem)


def _build_constant(model: Any, problem: Problem) -> ClosedForm:
    if model.strategy in ("stratified", "uniform"):
        raise NoClosedFormError("the answers of the classifier are random")
    return linear_form(problem)


for _type in REGRESSORS:
    closed_form.register(_type, build_linear)
for _type in (*CLASSIFIERS, *NAIVE_BAYES):
    closed_form.register(_type, build_classifier)
for _type in (KernelRidge, NuSVC, NuSVR, SVC, SVR):
    closed_form.register(_type, _build_kernel_machine)
closed_form.register(DummyClassifier, _build_constant)
for _type in LOG_LINEAR:
    closed_form.register(_type, build_log_linear)


@dataclass(frozen=True, eq=False)
class PolynomialForm:
    """Moments of a function of low degree in the numbers: the model at a few points per row.

    For a Gaussian with covariance V = WᵀW over m cells, the average over the 2 m points mean
    ± sqrt(m) w_i, w_i the rows of W, has the same moments up to the third. The points on either
    side of the mean give the slope g of a function of degree two, whose variance is |W g|² + ½
    |W H Wᵀ|² with the matrix H of its second derivatives. Missing categories are independent of the
    numbers within a component: their combinations are components, too.

    `curvature` (p, p, k): H, or None if it is not the same everywhere.
    """

    response: Response
    components: GaussianComponents
    degree: int
    curvature: FloatArray | None
    rounds_integers: bool = False

    @property
    def name(self) -> str:
        """Description of the form, and of the rows that it covers."""
        degree = f"polynomial of degree {('two', 'three')[self.degree - 2]}"
        tables = self.components.tables
        nothing = np.full((1, 1 + max(tables, default=0)), np.nan)
        most = 2 * len(self.components.columns) * self.components.n_cases(nothing)
        if tables and most > MAX_POINTS:
            return f"{degree} where missing categories have few states, draws elsewhere"
        return degree

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes."""
        n_numbers, n_categories = len(self.components.columns), len(self.components.tables)
        points = 16 * MAX_POINTS * (n_numbers + n_categories) if n_categories else 0
        return max(2 * (n_numbers + 1) * self.components.bytes_per_row, points)

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss numbers, and categories only where the points are few."""
        if with_variance and self.curvature is None:
            return np.zeros(len(rows), dtype=bool)
        n_numbers = np.isnan(rows.cells[:, self.components.columns]).sum(axis=1)
        has_categories = ~np.isnan(rows.evidence[:, list(self.components.tables)]).any(axis=1)
        is_short = 2 * n_numbers * self.components.n_cases(rows.evidence) <= MAX_POINTS
        return is_plainly_missing(rows) & (n_numbers > 0) & (has_categories | is_short)

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        categories = np.array(sorted(self.components.tables), dtype=np.intp)
        parts = []
        for group in group_patterns(np.isnan(rows.cells[:, categories])):
            for number, missing in enumerate(group.missing):
                own = np.asarray(group.rows[group.pattern == number])
                found = self._missing_categories(rows.take(own), categories[missing], with_variance)
                parts.append((own, found))
        return Expectation.put_together(len(rows), parts)

    def _missing_categories(
        self, rows: IncompleteRows, categories: IntArray, with_variance: bool
    ) -> Expectation:
        """Moments of rows that miss the same categories."""
        conditioned = self.components.conditioned(rows.evidence)
        components, states, masses = self.components.cases(categories)
        parts = []
        for block in conditioned.blocks:
            group = block.group
            size = group.missing.shape[1]
            roots = block.roots.reshape(size, size, len(self.components), -1)
            weights = conditioned.weights[components[:, None], group.rows] * masses[:, None]
            # Most components of location models are impossible given the observed categories
            case, row = np.nonzero(weights)
            own, pattern = components[case], group.pattern[row]
            cells = rows.cells[group.rows[row]]
            cells[:, categories] = states[case]
            cells[:, self.components.columns] = conditioned.means[own, group.rows[row]]
            steps = np.sqrt(size) * roots[:, :, own, pattern].transpose(0, 2, 1)
            columns = self.components.columns[group.missing[pattern]]
            answers = self._at_points(cells, columns, steps)
            places = row, np.arange(len(row))
            average = sparse.csr_array((weights[case, row], places), (len(group.rows), len(row)))
            means = answers.mean(axis=(0, 1))  # (t, k)
            mean = average @ means
            variance = None
            if with_variance:
                slopes = (answers[0] - answers[1]) / (2.0 * np.sqrt(size))
                inner = np.square(slopes).sum(axis=0)
                inner += self._variance_of_squares(roots, group.missing)[own, pattern]
                variance = average @ (inner + np.square(means - mean[row]))
            parts.append((group.rows, Expectation.exact(mean, variance)))
        return Expectation.put_together(len(rows), parts)

    def _at_points(self, cells: FloatArray, columns: IntArray, steps: FloatArray) -> FloatArray:
        """Answers at the points around cells (t, d), steps (m, t, m), shape (2, m, t, k)."""
        # Either side of the mean, so that odd moments cancel
        points = np.repeat(cells[None], 2 * len(steps), axis=0)
        local = np.arange(len(cells))[:, None]
        points[: len(steps), local, columns] += steps
        points[len(steps) :, local, columns] -= steps
        answers = self.response(points.reshape(-1, cells.shape[1]))
        return answers.reshape(2, *steps.shape[:2], -1)

    def _variance_of_squares(self, roots: FloatArray, missing: IntArray) -> FloatArray:
        """½ |W H Wᵀ|² of the roots W (m, m, K, P) of each pattern, shape (K, P, k)."""
        assert self.curvature is not None
        inner = self.curvature[missing[:, :, None], missing[:, None]]  # (P, m, m, k)
        half = np.einsum("iakp,pabo->kpibo", roots, inner)
        whole = np.einsum("kpibo,jbkp->kpoij", half, roots)
        return np.asarray(0.5 * np.square(whole).sum(axis=(-1, -2)))


def polynomial_form(problem: Problem) -> PolynomialForm:
    """Build the form of models of degree two or three in the numbers."""
    components = GaussianComponents.of(problem.circuit)
    start = problem.trial_rows()
    step = np.zeros_like(start)
    numbers = components.columns
    rng = np.random.default_rng(0)
    step[:, numbers] = problem.scale[numbers] * rng.normal(size=(len(start), len(numbers)))
    stacked = np.vstack([start + i * step for i in range(MAX_DEGREE + 2)])
    values = problem.ask(problem.response, stacked).reshape(MAX_DEGREE + 2, len(start), -1)
    size = np.abs(values).max(axis=(0, 1))
    for degree in range(2, MAX_DEGREE + 1):
        # The next differences of equidistant points vanish for this degree and for no higher one
        difference = np.diff(values[: degree + 2], n=degree + 1, axis=0)
        if (np.abs(difference) <= POLYNOMIAL * size).all():
            curvature = _curvature(problem, start, numbers, size) if degree == 2 else None
            return PolynomialForm(problem.response, components, degree, curvature)
    raise NoClosedFormError(
        f"the model is not of degree {MAX_DEGREE} or less in the numerical columns"
    )


def _curvature(
    problem: Problem, rows: FloatArray, numbers: IntArray, size: FloatArray
) -> FloatArray | None:
    """Second derivatives (p, p, k) of a function of degree two; None if categories matter."""
    scale = np.where(problem.scale > 0, problem.scale, 1.0)[numbers]
    steps = np.zeros((len(numbers), rows.shape[1]))
    steps[np.arange(len(numbers)), numbers] = scale
    base = rows[0]
    i, j = np.triu_indices(len(numbers))
    corners = [base + a * steps[i] + b * steps[j] for a, b in ((1, 1), (1, 0), (0, 1), (0, 0))]
    both, first, second, neither = np.split(problem.ask(problem.response, np.vstack(corners)), 4)
    mixed = both - first - second + neither
    result = np.zeros((len(numbers), len(numbers), mixed.shape[1]))
    result[i, j] = result[j, i] = mixed
    # Along one direction in every row: the curvature may depend on the categories
    direction = np.random.default_rng(1).normal(size=len(numbers))
    along = direction @ steps
    up, middle, down = np.split(
        problem.ask(problem.response, np.vstack([rows + along, rows, rows - along])), 3
    )
    expected = np.einsum("i,ijk,j->k", direction, result, direction)
    if not (np.abs(up - 2.0 * middle + down - expected) <= POLYNOMIAL * size).all():
        return None
    return result / np.outer(scale, scale)[:, :, None]
