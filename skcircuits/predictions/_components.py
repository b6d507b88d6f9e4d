"""Expansion of circuits into mixtures of products of input units, for closed forms."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from skcircuits.circuits import Circuit, Gaussian, MultivariateGaussian, Product, Sum
from skcircuits.circuits.inputs.gaussian import distinct_parameters
from skcircuits.circuits.structure.units import Unit
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._gaussian_stack import ConditionalBlock, GaussianStack, center_rows
from skcircuits.numerics._patterns import PatternGroup, group_patterns
from skcircuits.predictions._closed_forms import NoClosedFormError
from skcircuits.protocols import FloatArray, IntArray

MAX_COMPONENTS = 256
NEGLIGIBLE = 1e-14  # probability of a component

_Term = tuple[float, tuple[Unit, ...]]


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
