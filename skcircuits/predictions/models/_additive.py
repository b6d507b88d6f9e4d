r"""Additive functions of columns, identified by probing and integrated in closed form.

Kernel expansions after steps that mix columns, such as principal components, are functions of
additive features z. Given the observed cells these are a mixture of Gaussians. For one of them,
with mean mu and covariance S, the expected kernel is a Gaussian integral over the features:

    E exp(-gamma |z - s|²) = |B|^(-1/2) exp(-gamma (mu - s)' B^(-1) (mu - s)),  B = I + 2 gamma S.

Its logarithm is quadratic in s, so that all points take one product with the squares of their
coordinates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._patterns import group_patterns
from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._closed_forms import Problem, is_plainly_missing
from skcircuits.predictions._components import ConditionedRows, GaussianComponents
from skcircuits.predictions._rows import Expectation, IncompleteRows
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Combinations of missing categories that are taken one by one, per row
MAX_COMBINATIONS = 64


@dataclass(frozen=True, eq=False)
class AdditiveFunction:
    """f(x) = constant + Σ_j slope_j x_j + Σ_j table_j[x_j], with k outputs.

    `constant` (k,): value at zeros and first states; `slopes` (d, k): of numeric columns; 0 for
    categorical ones; `tables` of column to (n_states, k): of categorical columns.
    """

    constant: FloatArray
    slopes: FloatArray
    tables: dict[int, FloatArray]

    def __call__(self, X: FloatArray) -> FloatArray:
        """Value at encoded rows, missing cells left out, shape (n, k)."""
        result = np.nan_to_num(X) @ self.slopes + self.constant
        for j, table in self.tables.items():
            seen = ~np.isnan(X[:, j])
            result[seen] += table[X[seen, j].astype(np.intp)]
        return result

    def mean(self, circuit: Circuit, X: FloatArray) -> FloatArray:
        """Conditional expectation under any circuit, shape (n, k)."""
        result = circuit.expectation(X) @ self.slopes + self.constant
        if self.tables:
            for j, marginals in circuit.marginals(X).items():
                result += marginals @ self.tables[j]
        return result

    def moments(
        self, components: GaussianComponents, X: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Conditional mean and variance under a mixture of products, shapes (n, k)."""
        conditioned = components.conditioned(X)
        weights = conditioned.weights[..., None]
        means, variances = self._given_components(conditioned, components, X)
        for j, table in self.tables.items():
            missing = np.flatnonzero(np.isnan(X[:, j]))
            masses = components.tables[j]
            own = masses @ table  # (K, k)
            spread = np.square(table - own[:, None]) * masses[:, :, None]
            # A missing category is independent of the numbers within a component, so that its mean
            # and variance are simply added
            means[:, missing] += own[:, None]
            variances[:, missing] += spread.sum(axis=1)[:, None]
        # Beside the first component: weights that sum to one but for rounding add no variance
        mean = means[0] + (weights * (means - means[0])).sum(axis=0)
        variance = (weights * (variances + np.square(means - mean))).sum(axis=0)
        return mean, variance

    def _given_components(
        self, conditioned: ConditionedRows, components: GaussianComponents, X: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean and variance per component of all but missing categories, (K, n, k)."""
        means, variances = conditioned.projected(self.slopes[components.columns])
        means += self.constant
        for j, table in self.tables.items():
            seen = np.flatnonzero(~np.isnan(X[:, j]))
            means[:, seen] += table[X[seen, j].astype(np.intp)]
        return means, variances


def probe(function: Callable[[FloatArray], FloatArray], problem: Problem) -> AdditiveFunction:
    """Write a function of complete encoded rows as an additive one; refuse if it is not."""
    location, scale = problem.location, problem.scale
    cardinalities = problem.circuit.cardinalities
    # Categories have no typical value between them: their first states are the point of reference
    location[list(cardinalities)] = 0.0
    numbers = [j for j in range(problem.n_columns) if j not in cardinalities]
    states = [(j, s) for j, n_states in cardinalities.items() for s in range(n_states)]
    rows = np.repeat(location[None], 1 + 2 * len(numbers) + len(states), axis=0)
    steps = np.where(scale > 0, scale, 1.0)[numbers]
    up, down = 1 + np.arange(len(numbers)), 1 + len(numbers) + np.arange(len(numbers))
    rows[up, numbers] += steps
    rows[down, numbers] -= steps
    # Differences of the rows after rounding, which matters if a location is large
    steps = rows[up, numbers] - rows[down, numbers]
    for row, (j, state) in zip(rows[1 + 2 * len(numbers) :], states):
        row[j] = state
    trials = problem.trial_rows()
    answers = problem.ask(function, np.vstack([rows, trials]))
    base, expected = answers[0], answers[len(rows) :]
    slopes = np.zeros((problem.n_columns, answers.shape[1]))
    slopes[numbers] = (answers[up] - answers[down]) / steps[:, None]
    tables = {j: np.zeros((n, answers.shape[1])) for j, n in cardinalities.items()}
    for (j, state), answer in zip(states, answers[1 + 2 * len(numbers) : len(rows)]):
        tables[j][state] = answer - base
    additive = AdditiveFunction(base - location @ slopes, slopes, tables)
    problem.check(additive(trials), expected, "a sum of functions of single columns")
    return additive


class ScoreParts(NamedTuple):
    """Conditional distribution of an additive function: a mixture of Gaussians per row.

    `rows` (n,): which rows; `weights` (K, S, n): probabilities of components and combinations of
    missing categories; `means` (K, S, n, k): means of the Gaussians; `variances` (K, 1, n, k) or
    (K, 1, n, k, k): their variances, or covariances where these are asked for.
    """

    rows: IntArray
    weights: FloatArray
    means: FloatArray
    variances: FloatArray


def score_parts(
    additive: AdditiveFunction,
    components: GaussianComponents,
    X: FloatArray,
    *,
    with_covariances: bool = False,
) -> Iterator[ScoreParts]:
    """Yield the conditional distributions of an additive function, block by block of rows."""
    conditioned = components.conditioned(X)
    weights = conditioned.weights
    means, variances = additive._given_components(conditioned, components, X)
    # A softmax depends on the covariances of several scores
    if with_covariances:
        variances = conditioned.projected_covariances(additive.slopes[components.columns])
    categories = np.array(sorted(additive.tables), dtype=np.intp)
    for group in group_patterns(np.isnan(X[:, categories])):
        for number, missing in enumerate(group.missing):
            rows = group.rows[group.pattern == number]
            log_masses, offsets = _combinations(additive, components, categories[missing])
            masses = np.exp(log_masses)
            yield ScoreParts(
                rows,
                weights[:, None, rows] * masses[:, :, None],
                means[:, None, rows] + offsets[None, :, None],
                variances[:, None, rows],
            )


def few_combinations(additive: AdditiveFunction, X: FloatArray) -> BoolArray:
    """Tell where categories can be missing in few ways only, shape (n,)."""
    # Products of many numbers of states overflow, sums of logarithms do not
    total = np.zeros(len(X))
    for j, table in additive.tables.items():
        # A table of zeros needs no combinations, but costs no more than others
        total += np.where(np.isnan(X[:, j]), np.log(len(table)), 0.0)
    return np.asarray(total <= np.log(MAX_COMBINATIONS) + 1e-9)


def _combinations(
    additive: AdditiveFunction, components: GaussianComponents, missing: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Log probabilities (K, S) and values (S, k) of all combinations of missing categories."""
    log_masses = np.zeros((len(components), 1))
    offsets = np.zeros((1, len(additive.constant)))
    # Given the component the columns are independent: masses multiply, and offsets add up
    for j in missing.tolist():
        log_table = safe_log(components.tables[j])
        log_masses = (log_masses[:, :, None] + log_table[:, None]).reshape(len(components), -1)
        offsets = (offsets[:, None] + additive.tables[j]).reshape(-1, offsets.shape[1])
    return log_masses, offsets


# Of a kernel's exponent beside the centre of the points, up to which its square may be expanded:
# rounding errors stay below 1e-9
MAX_EXPANDED = 1e6
BLOCK_BYTES = 2**22  # of kernels of a block of rows, which stay in the cache


@dataclass(frozen=True, eq=False)
class ProjectedExpansion:
    """f(x) = Σ_i coefficients_i exp(-gamma |z(x) - s_i|²) + intercept, with additive features z.

    `points` (m, q): points s_i in the space of the features; `coefficients` (m, k): their factors;
    `intercept` (k,): constant.
    """

    features: AdditiveFunction
    components: GaussianComponents
    points: FloatArray
    coefficients: FloatArray
    intercept: FloatArray
    gamma: float
    name: str = "expected kernels of combinations of columns"

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes, kernels excluded."""
        n_features = self.points.shape[1]
        return 8 * len(self.components) * n_features * (4 * n_features + 2 * MAX_COMBINATIONS)

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss few categories and are not very far from all points."""
        covered = is_plainly_missing(rows) & few_combinations(self.features, rows.evidence)
        if with_variance:
            return np.zeros(len(rows), dtype=bool)
        chosen = np.flatnonzero(covered)
        for part in self._parts(rows.evidence[chosen]):
            exponents = self.gamma * np.square(part.means - self._centre).sum(axis=-1)
            covered[chosen[part.rows]] = (exponents <= MAX_EXPANDED).all(axis=(0, 1))
        return covered

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the means."""
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
        return Expectation.exact(mean)

    def _parts(self, X: FloatArray) -> Iterator[ScoreParts]:
        return score_parts(self.features, self.components, X, with_covariances=True)

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
