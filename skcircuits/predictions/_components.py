"""What closed forms integrate over: mixtures of products, and additive functions of their columns.

Circuits are expanded into mixtures of products of input units. Additive functions of columns, the
scores and features of most models, are identified by probing the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from skcircuits.circuits import Circuit, Gaussian, MultivariateGaussian, Product, Sum
from skcircuits.circuits.inputs.gaussian import distinct_parameters
from skcircuits.circuits.structure.units import Unit
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._gaussian_stack import ConditionalBlock, GaussianStack, center_rows
from skcircuits.numerics._patterns import PatternGroup, group_patterns
from skcircuits.predictions._closed_forms import NoClosedFormError, Problem
from skcircuits.protocols import BoolArray, FloatArray, IntArray

MAX_COMPONENTS = 256
NEGLIGIBLE = 1e-14  # probability of a component

_Term = tuple[float, tuple[Unit, ...]]

# Combinations of missing categories that are taken one by one, per row
MAX_COMBINATIONS = 64


@dataclass(frozen=True, eq=False)
class Components:
    """A mixture, weights (K,), of products of input units or sums over single columns."""

    weights: FloatArray
    units: list[tuple[Unit, ...]]

    @classmethod
    def of(cls, circuit: Circuit) -> Components:
        """Expand a circuit; NoClosedFormError if that gives too many components."""
        terms = _expand(circuit.root)
        return cls(np.array([weight for weight, _ in terms]), [units for _, units in terms])

    def __len__(self) -> int:
        return len(self.weights)

    @cached_property
    def circuits(self) -> list[list[Circuit]]:
        """The factors of each component as circuits."""
        # Components have units in common: circuits are compiled once
        known: dict[int, Circuit] = {}
        return [
            [known.setdefault(id(unit), Circuit(unit)) for unit in units] for units in self.units
        ]

    def is_joint(self) -> bool:
        """Tell whether some factor has several columns."""
        return any(len(unit.scope) > 1 for units in self.units for unit in units)

    def responsibilities(self, X: FloatArray) -> FloatArray:
        """Probability of each component given the observed cells, shape (K, n)."""
        logs = np.repeat(safe_log(self.weights)[:, None], len(X), axis=1)
        for log, factors in zip(logs, self.circuits):
            for factor in factors:
                log += factor.log_prob(X)
        return normalized(logs)


def _expand(unit: Unit) -> list[_Term]:
    """Write a unit as a sum of weighted products of factors."""
    if isinstance(unit, Sum) and len(unit.scope) > 1:
        terms = [
            (float(weight) * inner, factors)
            for child, weight in zip(unit.children, unit.weights)
            if weight > 0
            for inner, factors in _expand(child)
        ]
    elif isinstance(unit, Product):
        parts = [_expand(child) for child in unit.children]
        # As floats, and before anything is multiplied out: the number may be astronomical
        if np.prod([float(len(part)) for part in parts]) > MAX_COMPONENTS:
            raise _too_many()
        terms = [
            (float(np.prod([w for w, _ in chosen])), tuple(u for _, f in chosen for u in f))
            for chosen in product(*parts)
        ]
    else:
        terms = [(1.0, (unit,))]
    if len(terms) > MAX_COMPONENTS:
        raise _too_many()
    return terms


def _too_many() -> NoClosedFormError:
    return NoClosedFormError(
        f"the density is not a mixture of at most {MAX_COMPONENTS} products of input units"
    )


def normalized(logs: FloatArray) -> FloatArray:
    """Turn log weights, shape (K, ...), into probabilities."""
    peaks = logs.max(axis=0)
    if np.isneginf(peaks).any():
        raise ZeroProbabilityError("The observed values of a row have probability zero.")
    weights = np.exp(logs - peaks)
    return weights / weights.sum(axis=0)


@dataclass(frozen=True, eq=False)
class GaussianComponents:
    """A mixture of Gaussians over the numeric columns times distributions of categories."""

    weights: FloatArray  # (K,)
    columns: IntArray  # (p,), the numeric ones
    stack: GaussianStack
    tables: dict[int, FloatArray]  # (K, n_states), by categorical column

    @classmethod
    def of(cls, circuit: Circuit) -> GaussianComponents:
        """Expand a circuit; NoClosedFormError if its components are not of that form."""
        terms = _expand_all(circuit)
        columns = np.array([v for v in circuit.variables if v not in circuit.cardinalities])
        place = {int(v): i for i, v in enumerate(columns)}
        K, p = len(terms), len(columns)
        means, covariances = np.zeros((K, p)), np.zeros((K, p, p))
        tables = {j: np.zeros((K, n)) for j, n in circuit.cardinalities.items()}
        for k, (_, units) in enumerate(terms):
            for unit in units:
                if isinstance(unit, Gaussian):
                    i = place[unit.variable]
                    means[k, i], covariances[k, i, i] = unit.mean, unit.std**2
                elif isinstance(unit, MultivariateGaussian):
                    own = [place[v] for v in unit.variables]
                    means[k, own] = unit.mean
                    covariances[np.ix_([k], own, own)] = unit.covariance
                else:
                    _write_table(tables, k, unit)
        weights = np.array([weight for weight, _ in terms])
        # Components with a covariance in common are factorised once
        first, shape = distinct_parameters([(covariance,) for covariance in covariances])
        stack = GaussianStack(means, covariances[first], shape)
        return cls(weights, columns.astype(np.int64), stack, tables)

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def bytes_per_row(self) -> int:
        """Memory that conditioning one row takes."""
        n_numbers = len(self.columns)
        return 8 * len(self) * (n_numbers + 1) * (n_numbers + 6)

    def conditioned(self, X: FloatArray) -> ConditionedRows:
        """Condition on the observed cells of rows."""
        numbers = X[:, self.columns]
        logs = np.repeat(safe_log(self.weights)[:, None], len(X), axis=1)
        for j, table in self.tables.items():
            seen = np.flatnonzero(~np.isnan(X[:, j]))
            # Impossible categories have the logarithm -inf, which removes their components
            logs[:, seen] += safe_log(table[:, X[seen, j].astype(np.intp)])
        groups = group_patterns(np.isnan(numbers))
        log_density, centered, blocks = center_rows(self.stack, numbers, groups)
        logs += log_density
        means = centered.transpose(0, 2, 1) + self.stack.means[:, None]
        np.copyto(means, numbers, where=~np.isnan(numbers))  # without rounding
        return ConditionedRows(normalized(logs), means, blocks)

    def cases(self, categories: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        """Possible states (t, c) of categories, their components and conditional masses, (t,)."""
        components, masses = np.arange(len(self)), np.ones(len(self))
        states = np.empty((len(self), 0), dtype=np.intp)
        for j in categories.tolist():
            own = self.tables[j][components]
            case, state = np.nonzero(own)
            components, masses = components[case], masses[case] * own[case, state]
            states = np.column_stack([states[case], state])
        return components, states, masses

    def n_cases(self, X: FloatArray) -> FloatArray:
        """Number of cases of the missing categories that the observed ones allow, shape (n,)."""
        result = np.ones((len(X), len(self)))
        with np.errstate(over="ignore"):
            for j, table in self.tables.items():
                is_possible, missing = table.T > 0.0, np.isnan(X[:, j])
                seen = is_possible[np.where(missing, 0.0, X[:, j]).astype(np.intp)]
                result *= np.where(missing[:, None], is_possible.sum(axis=0), seen)
        return np.asarray(result.sum(axis=1))


@dataclass(frozen=True, eq=False)
class ConditionedRows:
    """Conditional distributions of rows: a mixture of Gaussians for each."""

    weights: FloatArray  # (K, n), given the observed cells
    means: FloatArray  # (K, n, p), observed cells repeated
    blocks: list[ConditionalBlock]  # covariances per pattern of missing numbers

    def projected_variances(self, slopes: FloatArray) -> FloatArray:
        """Variances of linear functions, slopes (p, k), shape (K, n, k)."""
        n_components, n_rows, _ = self.means.shape
        variances = np.zeros((n_components, n_rows, slopes.shape[1]))
        for group, spread in self._spreads(slopes):
            variances[:, group.rows] = np.square(spread).sum(axis=0)[:, group.pattern]
        return variances

    def projected_covariances(self, slopes: FloatArray) -> FloatArray:
        """Covariances of linear functions, slopes (p, k), shape (K, n, k, k)."""
        n_components, n_rows, _ = self.means.shape
        result = np.zeros((n_components, n_rows, slopes.shape[1], slopes.shape[1]))
        for group, spread in self._spreads(slopes):
            covariances = np.einsum("ikpo,ikpq->kpoq", spread, spread)
            result[:, group.rows] = covariances[:, group.pattern]
        return result

    def projected_axes(self, slopes: FloatArray) -> FloatArray:
        """Principal axes of linear functions, slopes (p, k), the longest first, (K, n, a, k)."""
        n_components, n_rows, _ = self.means.shape
        most = max([1, *(block.group.missing.shape[1] for block in self.blocks)])
        result = np.zeros((n_components, n_rows, min(most, slopes.shape[1]), slopes.shape[1]))
        for group, spread in self._spreads(slopes):
            # Few cells are missing, of many functions: the smaller Gram matrix has the same axes
            roots = spread.transpose(1, 2, 0, 3)
            if roots.shape[2] <= roots.shape[3]:
                _, vectors = np.linalg.eigh(roots @ np.swapaxes(roots, -1, -2))
                axes = np.swapaxes(vectors, -1, -2) @ roots
            else:
                values, vectors = np.linalg.eigh(np.swapaxes(roots, -1, -2) @ roots)
                lengths = np.sqrt(np.maximum(values, 0.0))
                axes = np.swapaxes(vectors * lengths[..., None, :], -1, -2)
            result[:, group.rows, : axes.shape[2]] = axes[:, :, ::-1][:, group.pattern]
        return result

    def _spreads(self, slopes: FloatArray) -> Iterator[tuple[PatternGroup, FloatArray]]:
        """Roots of the covariances times slopes, shape (m, K, P, k), group by group."""
        for block in self.blocks:
            size = block.group.missing.shape[1]
            roots = block.roots.reshape(size, size, len(self.means), -1)
            yield block.group, np.einsum("ijkp,pjo->ikpo", roots, slopes[block.group.missing])


def _expand_all(circuit: Circuit) -> list[_Term]:
    """Expand a circuit down to its input units, sums over one column included."""
    terms: list[_Term] = []
    for weight, units in _expand(circuit.root):
        choices = [
            list(zip(unit.weights, unit.children)) if isinstance(unit, Sum) else [(1.0, unit)]
            for unit in units
        ]
        # Counted in floats before any is built: products of many sums overflow integers
        if len(terms) + np.prod([float(len(choice)) for choice in choices]) > MAX_COMPONENTS:
            raise _too_many()
        for chosen in product(*choices):
            factor = float(np.prod([w for w, _ in chosen]))
            terms.append((weight * factor, tuple(unit for _, unit in chosen)))
    return [term for term in terms if term[0] > 0]


def _write_table(tables: dict[int, FloatArray], k: int, unit: Unit) -> None:
    # No table has the number -1: units over several columns are refused with the others
    (j,) = unit.scope if len(unit.scope) == 1 else (-1,)
    if j not in tables:
        raise NoClosedFormError(f"the density has input units of type {type(unit).__name__}")
    # A mixture of categorical units is a table of its values at the states
    nothing = np.full((tables[j].shape[1], j + 1), np.nan)
    nothing[:, j] = np.arange(len(nothing))
    tables[j][k] = np.exp(Circuit(unit).log_prob(nothing))


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
    variances: FloatArray  # (K, 1, n, k), or covariances (K, 1, n, k, k), or axes (K, 1, n, a, k)


def score_parts(
    additive: AdditiveFunction,
    components: GaussianComponents,
    X: FloatArray,
    project: Callable[[ConditionedRows, FloatArray], FloatArray] = (
        ConditionedRows.projected_variances
    ),
) -> Iterator[ScoreParts]:
    """Yield the conditional distributions of an additive function, block by block of rows;
    ``project`` gives what is asked for of the variances of linear functions (p, k).
    """
    conditioned = components.conditioned(X)
    weights = conditioned.weights
    means = additive._given_components(conditioned, components, X)
    variances = project(conditioned, additive.slopes[components.columns])
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


def few_combinations(components: GaussianComponents, X: FloatArray) -> BoolArray:
    """Tell where categories can be missing in few ways only, shape (n,)."""
    n_combinations = np.ones(len(X))
    with np.errstate(over="ignore"):
        for j, table in components.tables.items():
            n_combinations *= np.where(np.isnan(X[:, j]), table.shape[1], 1)
    return n_combinations <= MAX_COMBINATIONS


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
