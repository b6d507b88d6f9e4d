"""Variance of a kernel expansion over the missing cells of rows.

For f(x) = Σ_i α_i k(x, s_i) the second moment needs E[k(x, s_i) k(x, s_j)] for all pairs of
points, and the product of two kernels at different points is one kernel again:

    exp(-γ|x - a|²) exp(-γ|x - b|²) = exp(-γ|a - b|²/2) exp(-2γ|x - (a + b)/2|²),

an RBF at the midpoint. For states, a pair of points is written as one code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.kernels.families._structure import (
    KernelStructure,
    UnivariateFunction,
)
from skcircuits.kernels.families.base import Kernel, structure_of
from skcircuits.kernels.families.product import RBF, MismatchKernel
from skcircuits.kernels.matrix import expected_kernel_matrix
from skcircuits.kernels.points._evaluation import expected_kernels_at_points
from skcircuits.kernels.points._plan import multiply_by_kernel
from skcircuits.parallel import Parallel, delayed, memory_bound_chunks, row_slices
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["expansion_variance"]

Functions = dict[int, RBF | MismatchKernel]

_ROWS = 64  # per task
_PAIRS = 4096  # of points at once


def expansion_variance(
    X: Any,
    points: Any,
    coefficients: FloatArray,
    *,
    circuit: Circuit,
    kernel: Kernel,
    n_jobs: int | None = None,
) -> FloatArray:
    """Variance of Σ_i α_i k(x, s_i) given the observed cells of each row.

    Parameters
    ----------
    X : array-like of shape (n, n_columns)
        Rows, NaN for unknown cells.
    points : array-like of shape (m, n_columns)
        Complete rows s_i. The work grows with m².
    coefficients : ndarray of shape (m,)
        The α_i.
    circuit : Circuit
        The distribution of the rows.
    kernel : Kernel
        RBF on some variables, Hamming on others.
    n_jobs : int, default=None
        Number of parallel jobs (see joblib). The result does not depend on it.

    Returns
    -------
    ndarray of shape (n,)
        Variances, 0 where nothing is missing.

    Raises
    ------
    CircuitPropertyError
        If the kernel has other factors, or a point has holes.
    ZeroProbabilityError
        If the observed cells of a row are impossible.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import RBF
    >>> from skcircuits.kernels._expansion_variance import expansion_variance
    >>> p = Circuit(Bernoulli(0, 0.5))
    >>> expansion_variance(
    ...     [[np.nan]], [[0.0]], np.ones(1), circuit=p, kernel=RBF(gamma=50.0)
    ... ).round(6)
    array([0.25])
    """
    X, points = np.asarray(X, dtype=np.float64), np.asarray(points, dtype=np.float64)
    term = _single_term(kernel, circuit)
    own = list(circuit.variables)
    _refuse_holes(points[:, own])
    incomplete = np.flatnonzero(np.isnan(X[:, own]).any(axis=1))
    means = expected_kernel_matrix(
        X[incomplete], points, circuit=circuit, kernel=kernel, n_jobs=n_jobs
    )
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_variances)(circuit, term, X[incomplete[rows]], points, coefficients, means[rows])
        for rows in row_slices(len(incomplete), _ROWS)
    )
    result = np.zeros(len(X))
    result[incomplete] = np.maximum(np.concatenate([np.zeros(0), *parts]), 0.0)
    return result


def _single_term(kernel: Kernel, circuit: Circuit) -> tuple[float, Functions]:
    """The kernel as a weight and one function per variable whose square is known."""
    terms = structure_of(kernel, circuit.variables).product_terms()
    if terms is not None and len(terms) == 1:
        weight, combinations = terms[0]
        functions = {v: each[0][1] for v, each in combinations.items() if each != [(1.0, None)]}
        simple = all(len(each) == 1 and each[0][0] == 1.0 for each in combinations.values())
        if simple and all(isinstance(f, RBF | MismatchKernel) for f in functions.values()):
            return weight, functions  # type: ignore[return-value]
    raise CircuitPropertyError(
        must(
            "a kernel",
            "be a product of RBF and Hamming kernels for exact variances",
            "Use kernel='rbf' or 'hamming'.",
            kernel=kernel,
        )
    )


def _refuse_holes(points: FloatArray) -> None:
    """A point with holes is random too: the product of two kernels has no closed form."""
    n_incomplete = int(np.isnan(points).any(axis=1).sum())
    if n_incomplete:
        raise CircuitPropertyError(
            must(
                "points (support vectors)",
                "be complete rows for exact variances",
                "Complete the training rows first, for example with CircuitImputer.",
                n_incomplete=n_incomplete,
            )
        )


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
            square = RBF(2.0 * function.gamma)
            targets[:, variable] = (a + b) / 2.0
            log_scale -= function.gamma / 2.0 * np.square(a - b)
        else:
            n_states = int(max(a.max(), b.max())) + 1
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
