"""Additive functions of columns, identified by probing and integrated in closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._patterns import group_patterns
from skcircuits.predictions._closed_forms import Problem
from skcircuits.predictions._components import ConditionedRows, GaussianComponents
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Combinations of missing categories that are taken one by one, per row
MAX_COMBINATIONS = 64


@dataclass(frozen=True, eq=False)
class AdditiveFunction:
    """f(x) = constant + Σ_j slope_j x_j + Σ_j table_j[x_j], with k outputs."""

    constant: FloatArray  # (k,), at zeros and first states
    slopes: FloatArray  # (d, k), 0 for categorical columns
    tables: dict[int, FloatArray]  # (n_states, k), by categorical column

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
        self, components: GaussianComponents, X: FloatArray, *, with_variance: bool
    ) -> tuple[FloatArray, FloatArray | None]:
        """Conditional mean and variance, if asked for, under a mixture of products, (n, k)."""
        conditioned = components.conditioned(X)
        means = self._given_components(conditioned, components, X)
        posterior = {}
        for j, table in self.tables.items():
            posterior[j] = components.tables[j] @ table  # (K, k)
            means[:, np.isnan(X[:, j])] += posterior[j][:, None]
        # Beside the first component: weights that sum to one but for rounding add no variance
        weights = conditioned.weights[..., None]
        mean = means[0] + (weights * (means - means[0])).sum(axis=0)
        if not with_variance:
            return mean, None
        variances = conditioned.projected_variances(self.slopes[components.columns])
        for j, table in self.tables.items():
            # A missing category is independent of the numbers within a component, so that its
            # variance is simply added
            squares = np.square(table - posterior[j][:, None])
            spread = (squares * components.tables[j][:, :, None]).sum(axis=1)
            variances[:, np.isnan(X[:, j])] += spread[:, None]
        return mean, (weights * (variances + np.square(means - mean))).sum(axis=0)

    def _given_components(
        self, conditioned: ConditionedRows, components: GaussianComponents, X: FloatArray
    ) -> FloatArray:
        """Mean per component of all but missing categories, (K, n, k)."""
        means = conditioned.means @ self.slopes[components.columns] + self.constant
        for j, table in self.tables.items():
            seen = np.flatnonzero(~np.isnan(X[:, j]))
            means[:, seen] += table[X[seen, j].astype(np.intp)]
        return np.asarray(means)


def probe(
    function: Callable[[FloatArray], FloatArray], problem: Problem, *, in_one_unit: bool = False
) -> AdditiveFunction:
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
    thing = "a sum of functions of single columns"
    problem.check(additive(trials), expected, thing, in_one_unit=in_one_unit)
    return additive


class ScoreParts(NamedTuple):
    """Conditional distribution of an additive function: a mixture of Gaussians per row."""

    rows: IntArray  # (n,)
    weights: FloatArray  # (K, S, n), of components and combinations of missing categories
    means: FloatArray  # (K, S, n, k)
    variances: FloatArray  # (K, 1, n, k), or covariances (K, 1, n, k, k)


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
    means = additive._given_components(conditioned, components, X)
    slopes = additive.slopes[components.columns]
    # A softmax depends on the covariances of several scores
    project = (
        conditioned.projected_covariances if with_covariances else conditioned.projected_variances
    )
    variances = project(slopes)
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
