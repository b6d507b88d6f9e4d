"""Kernel expansions after encoders and scalers: expected kernels at the support points.

After steps that mix columns, such as principal components, the additive features z of a row given
the observed cells are a mixture of Gaussians. For one of them, with mean mu and covariance S, the
expected kernel is a Gaussian integral over the features:

    E exp(-gamma |z - s|²) = |B|^(-1/2) exp(-gamma (mu - s)' B^(-1) (mu - s)),  B = I + 2 gamma S.

Its logarithm is quadratic in s, so that all points take one product with the squares of their
coordinates.

The variance of an expansion Σ_i α_i k(x, s_i) over the missing cells is that of Mercer's expansion
under mixtures of Gaussians and categories, truncated with a certified error (`_mercer`). Other
circuits integrate pair by pair: the product of two kernels at two points,

    exp(-γ|x - a|²) exp(-γ|x - b|²) = exp(-γ|a - b|²/2) exp(-2γ|x - (a + b)/2|²),

is an RBF at the midpoint; of states, it is a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce, singledispatch
from itertools import combinations
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as gp_kernels
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.svm import SVC, SVR, NuSVC, NuSVR

from skcircuits.circuits import Circuit
from skcircuits.exceptions import CircuitPropertyError, must, warn
from skcircuits.kernels import RBF, Hamming
from skcircuits.kernels._points import expected_kernels_at_points, multiply_by_kernel
from skcircuits.kernels.expected_kernels import expected_kernel_dot, expected_kernel_matrix
from skcircuits.kernels.families.base import (
    Kernel,
    KernelStructure,
    UnivariateFunction,
    structure_of,
)
from skcircuits.kernels.families.product import MismatchKernel, StateKernel
from skcircuits.kernels.integrals._gaussian_kernels import MAX_EXPANDED
from skcircuits.parallel import (
    Parallel,
    delayed,
    memory_bound_chunks,
    row_slices,
)
from skcircuits.predictions._closed_forms import (
    BLOCK_BYTES,
    ClosedForm,
    Expectation,
    IncompleteRows,
    NoClosedFormError,
    Problem,
    WeightedSum,
    closed_form,
    dense,
    features_of,
    is_plainly_missing,
    last_step,
    steps_of,
)
from skcircuits.predictions._components import (
    MAX_COMBINATIONS,
    AdditiveFunction,
    ConditionedRows,
    GaussianComponents,
    ScoreParts,
    few_combinations,
    probe,
    score_parts,
)
from skcircuits.predictions.models._mercer import Conditionals, MixtureExpansion
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Cosine of the angle below which columns count as orthogonal in the space of the features
ORTHOGONAL = 1e-12
# Their pairs take about as many expected kernels as a row has draws
MAX_PAIRED_POINTS = 64
# Relative difference of the distances of states that count as one
EQUAL = 1e-12

OfStates = MismatchKernel | StateKernel
Functions = dict[int, RBF | OfStates]

_ROWS = 64  # per task where pairs are integrated one by one
_PATTERN_ROWS = 512  # per task where rows have equal patterns
_PAIRS = 4096  # of points at once
_POINT_ROWS = 256  # of the kernel matrix of points at once
_N_DRAWS = 100  # completions of a row where support points are random too


@dataclass(frozen=True, eq=False)
class KernelExpansion:
    """f(x) = Σ_i coefficients_i k(x, s_i) + intercept, with several outputs."""

    points: FloatArray  # (m, d), encoded rows s_i
    coefficients: FloatArray  # (m, k)
    intercept: FloatArray  # (k,)
    kernel: Kernel
    circuit: Circuit
    n_jobs: int | None = None
    name: str = "expected kernels"
    rounds_integers: bool = False
    bytes_per_row: int = 0  # blocks of rows are cut further down

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """All rows; their variance where it need not be integrated for very many pairs."""
        if with_variance and len(self.points) > MAX_PAIRED_POINTS and self._components is None:
            return np.zeros(len(rows), dtype=bool)
        return is_plainly_missing(rows)

    def mean(self, X: FloatArray) -> FloatArray:
        """Expected value of rows, missing cells integrated out, shape (n, k)."""
        return self._mean(X, self.coefficients) + self.intercept

    def variance(self, X: FloatArray) -> FloatArray:
        """Variance given the observed cells, shape (n, k), 1e-5 relative; work grows with m²."""
        return np.column_stack([self._variance(X, own) for own in self.coefficients.T])

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        X = rows.evidence
        return Expectation.exact(self.mean(X), self.variance(X) if with_variance else None)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"circuit": self.circuit, "kernel": self.kernel, "n_jobs": self.n_jobs}

    def _mean(self, X: FloatArray, coefficients: FloatArray) -> FloatArray:
        return expected_kernel_dot(X, self.points, coefficients, **self._settings)

    @cached_property
    def _components(self) -> GaussianComponents | None:
        """The circuit as a mixture of Gaussians and categories, if it is one."""
        try:
            return GaussianComponents.of(self.circuit)
        except NoClosedFormError:
            return None

    @cached_property
    def _term(self) -> tuple[float, Functions]:
        """The kernel as a weight and one function per variable whose square is known."""
        terms = structure_of(self.kernel, self.circuit.variables).product_terms()
        if terms is not None and len(terms) == 1:
            weight, combinations = terms[0]
            # Products of two RBF or state functions are functions of the same kind, others are not
            functions = {
                v: f
                for v, each in combinations.items()
                if isinstance(f := each[0][1], RBF | OfStates)
            }
            simple = all(len(each) == 1 and each[0][0] == 1.0 for each in combinations.values())
            if simple and all(
                v in functions or c == [(1.0, None)] for v, c in combinations.items()
            ):
                return weight, functions
        condition = "be a product of RBF and Hamming kernels for exact variances"
        way_out = "Use kernel='rbf' or 'hamming'."
        raise CircuitPropertyError(must("a kernel", condition, way_out, kernel=self.kernel))

    def _variance(self, X: FloatArray, coefficients: FloatArray) -> FloatArray:
        """Variance of one output, of coefficients (m,), given the observed cells of rows, (n,)."""
        found = self._mixture_expansion(coefficients)
        if not len(self.points):  # a constant
            return np.zeros(len(X))
        own = list(self.circuit.variables)
        missing = np.isnan(X[:, own])
        # Rows that share a pattern stand together.
        incomplete = np.flatnonzero(missing.any(axis=1))
        incomplete = incomplete[np.lexsort(missing[incomplete].T)]
        rows = X[incomplete]
        if np.isnan(self.points[:, own]).any():
            # Such points stand for their kernel mean embeddings: draws then, with a warning
            variances = self._variances_of_draws(rows, coefficients)
        elif found is not None:
            squared_norm = squared_norm_of(self.kernel, self.points, coefficients)
            parts = Parallel(n_jobs=self.n_jobs)(
                delayed(_variances_of_mixture)(found, self._components, rows[chunk], squared_norm)
                for chunk in row_slices(len(rows), _PATTERN_ROWS)
            )
            variances = np.concatenate([np.zeros(0), *parts])
        else:
            matrix = expected_kernel_matrix(rows, self.points, **self._settings)
            parts = Parallel(n_jobs=self.n_jobs)(
                delayed(self._variances)(rows[chunk], coefficients, matrix[chunk])
                for chunk in row_slices(len(rows), _ROWS)
            )
            variances = np.concatenate([np.zeros(0), *parts])
        result = np.zeros(len(X))
        result[incomplete] = np.maximum(variances, 0.0)
        return result

    def _mixture_expansion(self, coefficients: FloatArray) -> MixtureExpansion | None:
        """The expansion over the components of the circuit; None for other units."""
        (weight, functions), components = self._term, self._components
        if components is None:
            return None
        of_numbers = {v: f for v, f in functions.items() if isinstance(f, RBF)}
        of_labels = {v: f for v, f in functions.items() if isinstance(f, OfStates)}
        if not (
            of_numbers.keys() <= set(components.columns)
            and of_labels.keys() <= components.tables.keys()
        ):
            return None
        # Columns that the kernel does not look at have an RBF of width infinity
        gammas = [
            of_numbers[v].gamma if v in of_numbers else 0.0 for v in components.columns.tolist()
        ]
        return MixtureExpansion(
            components.columns,
            components.tables,
            np.sqrt(gammas),
            of_labels,
            self.points,
            weight * coefficients,
        )

    def _variances_of_draws(self, X: FloatArray, coefficients: FloatArray) -> FloatArray:
        """Estimate the variance from completions of each row."""
        if not len(X):
            return np.zeros(0)
        warn(
            f"Support points have missing cells: standard deviations are estimated from {_N_DRAWS} "
            f"draws, with a relative error of about {(2 * _N_DRAWS) ** -0.5:.0%}.",
        )
        draws = self.circuit.sample(_N_DRAWS, X=X, random_state=0)
        values = self._mean(draws.reshape(-1, X.shape[1]), coefficients)
        return np.asarray(values.reshape(_N_DRAWS, len(X)).var(axis=0, ddof=1))

    def _variances(self, X: FloatArray, coefficients: FloatArray, means: FloatArray) -> FloatArray:
        """Variances of some incomplete rows; every pair is centred before it is added."""
        result = np.zeros(len(X))
        for left, right in _pairs_of_points(len(self.points), len(X)):
            squared, targets, log_scale = _product_term(
                self._term, self.points[left], self.points[right], self.circuit.variables
            )
            # Pairs are symmetric: each pair of different points stands for two
            weight = coefficients[left] * coefficients[right] * np.where(left == right, 1.0, 2.0)
            scale = np.exp(log_scale)
            plan = multiply_by_kernel(self.circuit.plan, squared)
            for rows, values in expected_kernels_at_points(plan, X, targets):
                values *= scale
                centred = values - means[np.ix_(rows, left)] * means[np.ix_(rows, right)]
                result[rows] += centred @ weight
        return result


class _FeatureExpansion(NamedTuple):
    """An expansion in the space of the features, with the kernel exp(-gamma |x - s|²)."""

    points: FloatArray  # divided by `scales`
    coefficients: FloatArray
    intercept: FloatArray
    gamma: float
    scales: FloatArray | float = 1.0  # of the features, which are divided by them first


@singledispatch
def _expansion_of(model: Any) -> _FeatureExpansion:
    raise NoClosedFormError(f"{type(model).__name__} is not a kernel expansion")


@_expansion_of.register(SVR)
@_expansion_of.register(NuSVR)
@_expansion_of.register(SVC)
@_expansion_of.register(NuSVC)
def _of_support_vectors(model: Any) -> _FeatureExpansion:
    _require_rbf(model.kernel)
    n_classes = len(getattr(model, "classes_", (0, 1)))  # a regression is one difference
    if n_classes > 2 and model.decision_function_shape != "ovo":
        raise NoClosedFormError(
            "only decision_function_shape='ovo' has a closed form for more than two classes: "
            "'ovr' is not linear in the decision functions of pairs"
        )
    points = dense(model.support_vectors_)
    coefficients = _coefficients_of_pairs(dense(model.dual_coef_), model.n_support_, n_classes)
    return _FeatureExpansion(points, coefficients, model.intercept_, model._gamma)


def _coefficients_of_pairs(dual: FloatArray, n_support: IntArray, n_classes: int) -> FloatArray:
    """Coefficients (m, n_pairs) of all pairs of classes, from `dual` (n_classes - 1, m)."""
    owner = np.repeat(np.arange(n_classes), n_support) if n_classes > 2 else 0
    columns = [
        np.where(owner == i, dual[j - 1], np.where(owner == j, dual[i], 0.0))
        for i, j in combinations(range(n_classes), 2)
    ]
    return np.column_stack(columns)


@_expansion_of.register
def _of_kernel_ridge(model: KernelRidge) -> _FeatureExpansion:
    _require_rbf(model.kernel)
    points = dense(model.X_fit_)
    coefficients = model.dual_coef_.reshape(len(points), -1)
    gamma = 1.0 / points.shape[1] if model.gamma is None else model.gamma
    return _FeatureExpansion(points, coefficients, np.zeros(coefficients.shape[1]), gamma)


@_expansion_of.register
def _of_gaussian_process(model: GaussianProcessRegressor) -> _FeatureExpansion:
    factor, scales = _constant_times_rbf(model.kernel_)
    coefficients = factor * model.alpha_.reshape(len(model.X_train_), -1) * model._y_train_std
    intercept = np.atleast_1d(model._y_train_mean).astype(np.float64)
    # scikit-learn writes exp(-d² / (2 l²)), and exp(-γ d²) here
    return _FeatureExpansion(model.X_train_ / scales, coefficients, intercept, 0.5, scales)


def _require_rbf(kernel: Any) -> None:
    if kernel != "rbf":
        raise NoClosedFormError(
            f"kernel={kernel!r} has no closed form; 'rbf', 'linear' and 'poly' of degree two or "
            "three have"
        )


def _constant_times_rbf(kernel: Any) -> tuple[float, FloatArray]:
    """Factor and length scales of a Gaussian process kernel; white noise is not in predictions."""
    if isinstance(kernel, gp_kernels.RBF):
        return 1.0, np.atleast_1d(np.asarray(kernel.length_scale, dtype=np.float64))
    if isinstance(kernel, gp_kernels.Sum) and isinstance(kernel.k2, gp_kernels.WhiteKernel):
        return _constant_times_rbf(kernel.k1)
    if isinstance(kernel, gp_kernels.Product) and isinstance(kernel.k1, gp_kernels.ConstantKernel):
        factor, scales = _constant_times_rbf(kernel.k2)
        return factor * float(kernel.k1.constant_value), scales
    raise NoClosedFormError(f"the kernel {kernel} is not a constant times RBF plus white noise")


def build_nystroem(single: Problem) -> ClosedForm:
    """Build the form of a linear model on the landmarks of a Nystroem map."""
    (model,) = single.response.models
    steps = steps_of(model)
    last = last_step(model)
    if (
        not steps
        or not isinstance(steps[-1], Nystroem)
        or not hasattr(last, "coef_")
        or single.response.method == "predict_proba"
    ):
        raise NoClosedFormError("the model is not a linear function of Nystroem features")
    landmarks: Nystroem = steps[-1]
    _require_rbf(landmarks.kernel)
    points = dense(landmarks.components_)
    slopes = np.asarray(last.coef_, dtype=np.float64).reshape(-1, len(landmarks.normalization_))
    # The default of scikit-learn's pairwise kernels
    gamma = 1.0 / points.shape[1] if landmarks.gamma is None else landmarks.gamma
    expansion = _FeatureExpansion(
        points,
        landmarks.normalization_.T @ slopes.T,
        np.broadcast_to(last.intercept_, len(slopes)),
        gamma,
    )
    return _in_encoded_columns(expansion, single, n_steps=len(steps) - 1)


def build_expansion(model: Any, problem: Problem) -> ClosedForm:
    """Build the form of kernel expansions at support points."""
    if problem.response.method == "predict_proba":
        raise NoClosedFormError("probabilities of this classifier have no closed form")

    def build(single: Problem) -> ClosedForm:
        (whole,) = single.response.models
        expansion = _expansion_of(last_step(whole))
        return _in_encoded_columns(expansion, single, n_steps=len(steps_of(whole)))

    return WeightedSum.average(problem, build)


closed_form.register(GaussianProcessRegressor, build_expansion)


def _in_encoded_columns(
    expansion: _FeatureExpansion, single: Problem, n_steps: int
) -> KernelExpansion | ProjectedExpansion:
    """Write an expansion over features as one over the encoded columns."""

    def scaled(X: FloatArray) -> FloatArray:
        return features_of(single, X, n_steps) / expansion.scales

    # Of distances, components without variance are no part, though they have rounding errors
    features = probe(scaled, single, in_one_unit=True)
    try:
        kernel = _kernel_of(features, expansion.gamma)
    except NoClosedFormError as reason:
        return _of_projections(expansion, features, single, reason)
    form = KernelExpansion(
        _encoded_points(features, expansion.points),
        expansion.coefficients,
        np.asarray(expansion.intercept, dtype=np.float64),
        kernel,
        single.circuit,
        single.n_jobs,
    )
    # Pipelines may hold anything: the form is compared with the model itself before it is used
    trials = single.trial_rows()
    answers = kernel(trials, form.points) @ form.coefficients + form.intercept
    single.check(answers, single.response(trials), "a kernel expansion over the columns")
    try:
        # Closed forms depend on the input units: a row without evidence asks for all of them
        form.mean(np.full((1, single.n_columns), np.nan))
    except CircuitPropertyError as error:
        raise NoClosedFormError(f"expected kernels have no closed form: {error}") from error
    return form


def _of_projections(
    expansion: _FeatureExpansion,
    features: AdditiveFunction,
    single: Problem,
    reason: NoClosedFormError,
) -> ProjectedExpansion:
    """The form of an expansion over features that mix columns, under Gaussian components."""
    try:
        components = GaussianComponents.of(single.circuit)
    except NoClosedFormError:
        raise reason from None
    points, intercept = expansion.points, np.asarray(expansion.intercept, dtype=np.float64)
    if float(expansion.gamma * np.square(points - points.mean(axis=0)).sum(axis=1).max()) > (
        MAX_EXPANDED
    ):
        raise NoClosedFormError("the points of the kernels are too far apart")
    trials = single.trial_rows()
    distances = euclidean_distances(features(trials), points, squared=True)
    answers = np.exp(-expansion.gamma * distances) @ expansion.coefficients + intercept
    single.check(answers, single.response(trials), "a kernel expansion over its features")
    return ProjectedExpansion(
        features, components, points, expansion.coefficients, intercept, expansion.gamma
    )


def _kernel_of(features: AdditiveFunction, gamma: float) -> Kernel:
    """exp(-gamma |φ(x) - φ(y)|²) as a product over columns, where these are orthogonal."""
    numbers = np.flatnonzero(features.slopes.any(axis=1))
    directions = {j: features.slopes[j : j + 1] for j in numbers.tolist()}
    for j, table in features.tables.items():
        # Distances do not change when all categories of a column are shifted
        centred = table - table.mean(axis=0)
        if centred.any():
            directions[j] = centred
    if not directions:
        raise NoClosedFormError("the model does not depend on any column")
    _require_orthogonal(list(directions.values()))
    scales: dict[float, list[int]] = {}
    for j in numbers.tolist():
        scale = float(gamma * np.square(features.slopes[j]).sum())
        scales.setdefault(scale, []).append(j)
    factors: list[Kernel] = [RBF(gamma=scale, variables=own) for scale, own in scales.items()]
    mismatches: dict[float, list[int]] = {}
    for j in sorted(directions.keys() & features.tables.keys()):
        distances = gamma * _squared_distances(features.tables[j])
        # One-hot columns put all categories at one distance: a Hamming kernel, which is faster
        apart = distances[~np.eye(len(distances), dtype=bool)]
        if apart.max() - apart.min() <= EQUAL * apart.max():
            mismatches.setdefault(float(apart.mean()), []).append(j)
        else:
            factors.append(StateKernel(distances.tolist(), variables=[j]))
    factors += [Hamming(1.0 / cost, variables=own) for cost, own in mismatches.items()]
    return reduce(mul, factors)


def _require_orthogonal(directions: list[FloatArray]) -> None:
    stacked = np.vstack(directions)
    lengths = np.sqrt(np.square(stacked).sum(axis=1))
    stacked = stacked / np.where(lengths > 0, lengths, 1.0)[:, None]
    owner = np.repeat(np.arange(len(directions)), [len(part) for part in directions])
    cosines = np.abs(stacked @ stacked.T)
    if (cosines[owner[:, None] != owner] > ORTHOGONAL).any():
        raise NoClosedFormError(
            "the features mix columns, so that the kernel is not a product over columns"
        )


def _squared_distances(table: FloatArray) -> FloatArray:
    """Squared distances between the features (n_states, k) of the states of a column."""
    return np.asarray(np.square(table[:, None] - table).sum(axis=2))


def _encoded_points(features: AdditiveFunction, points: FloatArray) -> FloatArray:
    """Find the encoded rows of points in feature space."""
    centred = np.asarray(points, dtype=np.float64) - features.constant
    result = np.zeros((len(points), len(features.slopes)))
    for j, slopes in enumerate(features.slopes):
        if slopes.any():
            result[:, j] = centred @ slopes / np.square(slopes).sum()
    for j, table in features.tables.items():
        # Orthogonal columns add the same distance for every state
        own = table - table.mean(axis=0)
        score = (centred - table.mean(axis=0)) @ own.T - 0.5 * np.square(own).sum(axis=1)
        result[:, j] = score.argmax(axis=1)
    return result


@dataclass(frozen=True, eq=False)
class ProjectedExpansion:
    """f(x) = Σ_i coefficients_i exp(-gamma |z(x) - s_i|²) + intercept, with additive features z."""

    features: AdditiveFunction
    components: GaussianComponents
    points: FloatArray  # (m, q), s_i
    coefficients: FloatArray  # (m, k)
    intercept: FloatArray  # (k,)
    gamma: float
    name: str = "expected kernels of combinations of columns"
    rounds_integers: bool = False

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes, kernels excluded."""
        n_features = self.points.shape[1]
        return 8 * len(self.components) * n_features * (4 * n_features + 2 * MAX_COMBINATIONS)

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss few categories and are not very far from all points."""
        covered = is_plainly_missing(rows) & few_combinations(self.components, rows.evidence)
        if with_variance:
            # Missing categories would need the variance of every combination of them
            covered &= ~np.isnan(rows.evidence[:, list(self.features.tables)]).any(axis=1)
        chosen = np.flatnonzero(covered)
        for part in self._parts(rows.evidence[chosen]):
            exponents = self.gamma * np.square(part.means - self._centre).sum(axis=-1)
            covered[chosen[part.rows]] = (exponents <= MAX_EXPANDED).all(axis=(0, 1))
        return covered

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        mean = np.tile(self.intercept, (len(rows), 1))
        for part in self._parts(rows.evidence):
            n_components, n_combinations, n_rows = part.weights.shape
            per_row = 8 * n_components * n_combinations * sum(self._squares.shape)
            for chunk in memory_bound_chunks(
                n_rows, per_row, at_most=max(1, BLOCK_BYTES // per_row)
            ):
                logs = self._factors(part.means[:, :, chunk], part.variances[:, :, chunk])
                kernels = logs @ self._squares
                np.exp(kernels, out=kernels)
                answers = kernels @ self.coefficients
                weights = part.weights[:, :, chunk, None]
                mean[part.rows[chunk]] += (weights * answers).sum(axis=(0, 1))
        return Expectation.exact(mean, self._variances(rows.evidence) if with_variance else None)

    def _variances(self, X: FloatArray) -> FloatArray:
        """Variances of rows that miss no category, (n, k), by Mercer's expansion over features."""
        parts = list(score_parts(self.features, self.components, X))
        conditioned = Conditionals.of(self.components.conditioned(X))
        n_features = self.points.shape[1]
        means = np.empty((len(self.components), len(X), n_features))
        for part in parts:
            means[:, part.rows] = part.means[:, 0]
        conditioned = conditioned.projected(self.features.slopes[self.components.columns], means)
        scales = np.full(n_features, np.sqrt(self.gamma))
        kernel, nothing = RBF(self.gamma), np.full((len(X), n_features), np.nan)
        variances = []
        for own in self.coefficients.T:
            expansion = MixtureExpansion(np.arange(n_features), {}, scales, {}, self.points, own)
            squared_norm = squared_norm_of(kernel, self.points, own)
            variances.append(expansion.variances(nothing, conditioned, squared_norm))
        return np.column_stack(variances)

    def _parts(self, X: FloatArray) -> Iterator[ScoreParts]:
        covariances = ConditionedRows.projected_covariances
        return score_parts(self.features, self.components, X, covariances)

    @cached_property
    def _centre(self) -> FloatArray:
        return np.asarray(self.points.mean(axis=0))

    @cached_property
    def _squares(self) -> FloatArray:
        """Ones, the centred points and their products of coordinates, by column."""
        points = (self.points - self._centre).T
        i, j = np.tril_indices(len(points))
        return np.vstack([np.ones(points.shape[1]), points, points[i] * points[j]])

    def _factors(self, means: FloatArray, covariances: FloatArray) -> FloatArray:
        """Factors of the rows of `_squares`, (K, S, n, 1 + q + q (q + 1) / 2)."""
        n_features = means.shape[-1]
        widened = np.eye(n_features) + 2.0 * self.gamma * covariances
        half_log_determinants = 0.5 * np.linalg.slogdet(widened)[1]
        inverses = self.gamma * np.linalg.inv(widened)
        means = means - self._centre
        solved = (inverses @ means[..., None])[..., 0]
        constant = -(solved * means).sum(axis=-1) - half_log_determinants
        i, j = np.tril_indices(n_features)
        # Off-diagonal products count twice
        quadratic = np.where(i == j, -1.0, -2.0) * inverses[..., i, j]
        quadratic = np.broadcast_to(quadratic, (*constant.shape, len(i)))
        return np.concatenate([constant[..., None], 2.0 * solved, quadratic], axis=-1)


def squared_norm_of(kernel: Kernel, points: FloatArray, coefficients: FloatArray) -> float:
    """Σ_ij α_i α_j k(s_i, s_j); pairs of blocks of points are symmetric."""
    result = 0.0
    for block in row_slices(len(points), _POINT_ROWS):
        # Pairs below the diagonal have the same values: those above it count twice
        own, rest = coefficients[block], slice(block.stop, None)
        result += float(own @ kernel(points[block]) @ own)
        if len(coefficients[rest]):
            result += 2.0 * float(own @ kernel(points[block], points[rest]) @ coefficients[rest])
    return result


def _variances_of_mixture(
    expansion: MixtureExpansion, components: GaussianComponents, X: FloatArray, squared_norm: float
) -> FloatArray:
    """Variances of some incomplete rows under a mixture of Gaussians and categories."""
    return expansion.variances(X, Conditionals.of(components.conditioned(X)), squared_norm)


def _pairs_of_points(n_points: int, n_rows: int) -> Iterator[tuple[IntArray, IntArray]]:
    """All pairs i ≤ j, as many at once as memory allows."""
    n_pairs = n_points * (n_points + 1) // 2
    starts = np.arange(n_points) * n_points - np.arange(n_points) * (np.arange(n_points) - 1) // 2
    for chunk in memory_bound_chunks(n_pairs, 4 * 8 * max(1, n_rows), at_most=_PAIRS):
        numbers = np.arange(chunk.start, chunk.stop)
        left = np.searchsorted(starts, numbers, side="right") - 1
        yield left, numbers - starts[left] + left


def _product_term(
    term: tuple[float, Functions],
    left: FloatArray,
    right: FloatArray,
    variables: tuple[int, ...],
) -> tuple[KernelStructure, FloatArray, FloatArray]:
    """Product of the kernel at two points: a kernel, its points, logs of constant factors."""
    weight, functions = term
    squared, parts = KernelStructure(variables), []
    targets = np.zeros_like(left)
    log_scale = np.full(len(left), 2.0 * np.log(weight))
    for variable, function in functions.items():
        a, b = left[:, variable], right[:, variable]
        square: UnivariateFunction
        if isinstance(function, RBF):
            # γ(x-a)² + γ(x-b)² = 2γ (x - (a+b)/2)² + γ/2 (a-b)²: a product of RBF kernels is one
            # RBF kernel
            square = RBF(2.0 * function.gamma)
            targets[:, variable] = (a + b) / 2.0
            log_scale -= function.gamma / 2.0 * np.square(a - b)
        else:
            n_states = int(max(a.max(), b.max())) + 1
            # Two states are coded as one number, so that a pair of points is a point of one
            # kernel
            square = _TwoPoints(function, n_states)
            targets[:, variable] = a * n_states + b
        parts.append(squared.atom(square, [variable]))
    squared.root = squared.multiply(parts)
    return squared, targets, log_scale


@dataclass(frozen=True)
class _TwoPoints(UnivariateFunction):
    """Product of a function at two states (a, b) with the code ``a * n_states + b``."""

    function: UnivariateFunction
    n_states: int

    def univariate(self, x: FloatArray, y: FloatArray) -> FloatArray:
        first, second = np.divmod(y, self.n_states)
        return self.function.univariate(x, first) * self.function.univariate(x, second)
