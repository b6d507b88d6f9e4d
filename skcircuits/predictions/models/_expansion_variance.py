"""Variance of a kernel expansion Σ_i α_i k(x, s_i) over the missing cells of rows.

Under mixtures of Gaussians and categories by Mercer's expansion, truncated with a certified error
(`_mercer`). Other circuits integrate pair by pair: the product of two kernels at two points,

    exp(-γ|x - a|²) exp(-γ|x - b|²) = exp(-γ|a - b|²/2) exp(-2γ|x - (a + b)/2|²),

is an RBF at the midpoint; of states, it is a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.exceptions import CircuitPropertyError, must, warn
from skcircuits.kernels._points import expected_kernels_at_points, multiply_by_kernel
from skcircuits.kernels.expected_kernels import expected_kernel_dot, expected_kernel_matrix
from skcircuits.kernels.families.base import (
    Kernel,
    KernelStructure,
    UnivariateFunction,
    structure_of,
)
from skcircuits.kernels.families.product import RBF, MismatchKernel, StateKernel
from skcircuits.parallel import (
    Parallel,
    delayed,
    memory_bound_chunks,
    row_slices,
)
from skcircuits.predictions._closed_forms import NoClosedFormError
from skcircuits.predictions._components import GaussianComponents
from skcircuits.predictions.models._mercer import Conditionals, MixtureExpansion
from skcircuits.protocols import FloatArray, IntArray

OfStates = MismatchKernel | StateKernel
Functions = dict[int, RBF | OfStates]

_ROWS = 64  # per task where pairs are integrated one by one
_PATTERN_ROWS = 512  # per task where rows have equal patterns
_PAIRS = 4096  # of points at once
_POINT_ROWS = 256  # of the kernel matrix of points at once
_N_DRAWS = 100  # completions of a row where support points are random too


def expansion_variance(
    X: Any,
    points: Any,
    coefficients: FloatArray,
    *,
    circuit: Circuit,
    kernel: Kernel,
    n_jobs: int | None = None,
) -> FloatArray:
    """Variance of Σ_i α_i k(x, s_i) given the observed cells of each row, shape (n,).

    For products of RBF and Hamming kernels and complete points s_i (m, n_columns) exact up to a
    certified relative error of 1e-5, 0 where nothing is missing. Points with missing cells stand
    for their kernel mean embeddings; the variance is then estimated from draws, with a warning.
    Raises ``CircuitPropertyError`` for other kernels, ``ZeroProbabilityError`` where the observed
    cells of a row are impossible.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import RBF
    >>> from skcircuits.predictions.models._expansion_variance import expansion_variance
    >>> p = Circuit(Bernoulli(0, 0.5))
    >>> expansion_variance(
    ...     [[np.nan]], [[0.0]], np.ones(1), circuit=p, kernel=RBF(gamma=50.0)
    ... ).round(6)
    array([0.25])
    """
    X, points = np.asarray(X, dtype=np.float64), np.asarray(points, dtype=np.float64)
    term = _single_term(kernel, circuit)
    if not len(points):  # a constant
        return np.zeros(len(X))
    own = list(circuit.variables)
    missing = np.isnan(X[:, own])
    # Rows that share a pattern stand together.
    incomplete = np.flatnonzero(missing.any(axis=1))
    incomplete = incomplete[np.lexsort(missing[incomplete].T)]
    rows = X[incomplete]
    settings: Any = {"circuit": circuit, "kernel": kernel, "n_jobs": n_jobs}
    found = _mixture_expansion(circuit, term, points, coefficients)
    if np.isnan(points[:, own]).any():
        variances = _variances_of_draws(rows, points, coefficients, settings)
    elif found is not None:
        squared_norm = squared_norm_of(kernel, points, coefficients)
        parts = Parallel(n_jobs=n_jobs)(
            delayed(_variances_of_mixture)(*found, rows[chunk], squared_norm)
            for chunk in row_slices(len(rows), _PATTERN_ROWS)
        )
        variances = np.concatenate([np.zeros(0), *parts])
    else:
        matrix = expected_kernel_matrix(rows, points, **settings)
        parts = Parallel(n_jobs=n_jobs)(
            delayed(_variances)(circuit, term, rows[chunk], points, coefficients, matrix[chunk])
            for chunk in row_slices(len(rows), _ROWS)
        )
        variances = np.concatenate([np.zeros(0), *parts])
    result = np.zeros(len(X))
    result[incomplete] = np.maximum(variances, 0.0)
    return result


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


def _single_term(kernel: Kernel, circuit: Circuit) -> tuple[float, Functions]:
    """The kernel as a weight and one function per variable whose square is known."""
    terms = structure_of(kernel, circuit.variables).product_terms()
    if terms is not None and len(terms) == 1:
        weight, combinations = terms[0]
        # Products of two RBF or state functions are functions of the same kind, others are not
        functions = {
            v: f for v, each in combinations.items() if isinstance(f := each[0][1], RBF | OfStates)
        }
        simple = all(len(each) == 1 and each[0][0] == 1.0 for each in combinations.values())
        if simple and all(v in functions or c == [(1.0, None)] for v, c in combinations.items()):
            return weight, functions
    condition = "be a product of RBF and Hamming kernels for exact variances"
    way_out = "Use kernel='rbf' or 'hamming'."
    raise CircuitPropertyError(must("a kernel", condition, way_out, kernel=kernel))


def _mixture_expansion(
    circuit: Circuit, term: tuple[float, Functions], points: FloatArray, coefficients: FloatArray
) -> tuple[MixtureExpansion, GaussianComponents] | None:
    """The expansion over the components of the circuit, and these; None for other units."""
    try:
        components = GaussianComponents.of(circuit)
    except NoClosedFormError:
        return None
    weight, functions = term
    of_numbers = {v: f for v, f in functions.items() if isinstance(f, RBF)}
    of_labels = {v: f for v, f in functions.items() if isinstance(f, OfStates)}
    if not (
        of_numbers.keys() <= set(components.columns)
        and of_labels.keys() <= components.tables.keys()
    ):
        return None
    # Columns that the kernel does not look at have an RBF of width infinity
    gammas = [of_numbers[v].gamma if v in of_numbers else 0.0 for v in components.columns.tolist()]
    expansion = MixtureExpansion(
        components.columns,
        components.tables,
        np.sqrt(gammas),
        of_labels,
        points,
        weight * coefficients,
    )
    return expansion, components


def _variances_of_mixture(
    expansion: MixtureExpansion, components: GaussianComponents, X: FloatArray, squared_norm: float
) -> FloatArray:
    """Variances of some incomplete rows under a mixture of Gaussians and categories."""
    return expansion.variances(X, Conditionals.of(components.conditioned(X)), squared_norm)


def _variances_of_draws(
    X: FloatArray, points: FloatArray, coefficients: FloatArray, settings: dict[str, Any]
) -> FloatArray:
    """Estimate the variance from completions of each row."""
    if not len(X):
        return np.zeros(0)
    warn(
        f"Support points have missing cells: standard deviations are estimated from {_N_DRAWS} "
        f"draws, with a relative error of about {(2 * _N_DRAWS) ** -0.5:.0%}.",
    )
    draws = settings["circuit"].sample(_N_DRAWS, X=X, random_state=0)
    rows = draws.reshape(-1, X.shape[1])
    values = expected_kernel_dot(rows, points, coefficients, **settings)
    return np.asarray(values.reshape(_N_DRAWS, len(X)).var(axis=0, ddof=1))


def _variances(
    circuit: Circuit,
    term: tuple[float, Functions],
    X: FloatArray,
    points: FloatArray,
    coefficients: FloatArray,
    means: FloatArray,
) -> FloatArray:
    """Variances of some incomplete rows; every pair is centred before it is added."""
    result = np.zeros(len(X))
    for left, right in _pairs_of_points(len(points), len(X)):
        squared, targets, log_scale = _product_term(
            term, points[left], points[right], circuit.variables
        )
        # Pairs are symmetric: each pair of different points stands for two
        weight = coefficients[left] * coefficients[right] * np.where(left == right, 1.0, 2.0)
        scale = np.exp(log_scale)
        plan = multiply_by_kernel(circuit.plan, squared)
        for rows, values in expected_kernels_at_points(plan, X, targets):
            values *= scale
            centred = values - means[np.ix_(rows, left)] * means[np.ix_(rows, right)]
            result[rows] += centred @ weight
    return result


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
