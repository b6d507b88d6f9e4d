"""Variance of a kernel expansion Σ_i α_i k(x, s_i) over the missing cells of rows.

The second moment needs E[k(x, s_i) k(x, s_j)] for all pairs of points. The product of two
kernels at two points is one kernel again:

    exp(-γ|x - a|²) exp(-γ|x - b|²) = exp(-γ|a - b|²/2) exp(-2γ|x - (a + b)/2|²),

an RBF at the midpoint; of states, it is a table. Under a mixture of products of input units
the pair (a, b) therefore factorises into g_a g_b R_ab with g_a² = E[k(x, a)²] and, for each
pattern of missing cells with conditional covariance V,

    R_ab = exp(-(a - b)ᵀ C (a - b)),   C = ½ Γ^½ (I - (I + 4 Γ^½ V Γ^½)⁻¹) Γ^½,

which no observed value enters: it is one for all rows of a pattern. Where C is small, R is expanded
in few monomials. Other circuits integrate pair by pair.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.circuits.engine._plan import Plan, compile_plan
from skcircuits.circuits.inputs import (
    DiscreteLayer,
    GaussianLayer,
    InputUnit,
    MultivariateGaussianLayer,
)
from skcircuits.circuits.structure.units import Product, Sum, Unit
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.kernels.families._structure import KernelStructure, UnivariateFunction
from skcircuits.kernels.families.base import Kernel, structure_of
from skcircuits.kernels.families.product import RBF, MismatchKernel
from skcircuits.kernels.matrix import expected_kernel_dot, expected_kernel_matrix
from skcircuits.kernels.points._evaluation import (
    expected_kernels_at_points,
    posterior_weights,
)
from skcircuits.kernels.points._plan import multiply_by_kernel
from skcircuits.parallel import (
    Parallel,
    delayed,
    memory_bound_chunks,
    row_slices,
    single_threaded_blas,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["expansion_variance"]

Functions = dict[int, RBF | MismatchKernel]

_ROWS = 64  # per task where pairs are integrated one by one
_PATTERN_ROWS = 256  # per task where rows have equal patterns
_PAIRS = 4096  # of points at once
_N_DRAWS = 100  # completions of a row where support points are random too
# Monomials that add less to every entry of R are left out.
_TOLERANCE = 1e-13


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

    Exact for products of RBF and Hamming kernels and complete points s_i (m, n_columns), 0 where
    nothing is missing. Points with missing cells stand for their kernel mean embeddings; the
    variance is then estimated from draws, with a warning. Raises ``CircuitPropertyError`` for
    other kernels, ``ZeroProbabilityError`` where the observed cells of a row are impossible.

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
    missing = np.isnan(X[:, own])
    # Rows that share a pattern stand together.
    incomplete = np.flatnonzero(missing.any(axis=1))
    incomplete = incomplete[np.lexsort(missing[incomplete].T)]
    rows = X[incomplete]
    settings: Any = {"circuit": circuit, "kernel": kernel, "n_jobs": n_jobs}
    components = _components(circuit.root)
    if np.isnan(points[:, own]).any():
        variances = _variances_of_draws(rows, points, coefficients, settings)
    elif components is not None:
        means = expected_kernel_dot(rows, points, coefficients, **settings)
        parts = Parallel(n_jobs=n_jobs)(
            delayed(_second_moments)(
                circuit, components, kernel, term[1], rows[chunk], points, coefficients
            )
            for chunk in row_slices(len(rows), _PATTERN_ROWS)
        )
        variances = np.concatenate([np.zeros(0), *parts]) - np.square(means)
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


def _variances_of_draws(
    X: FloatArray, points: FloatArray, coefficients: FloatArray, settings: dict[str, Any]
) -> FloatArray:
    """Estimate the variance from completions of each row."""
    if not len(X):
        return np.zeros(0)
    warnings.warn(
        f"Support points have missing cells: standard deviations are estimated from {_N_DRAWS} "
        f"draws, with a relative error of about {(2 * _N_DRAWS) ** -0.5:.0%}.",
        stacklevel=3,
    )
    draws = settings["circuit"].sample(_N_DRAWS, X=X, random_state=0)
    rows = draws.reshape(-1, X.shape[1])
    values = expected_kernel_dot(rows, points, coefficients, **settings)
    return np.asarray(values.reshape(_N_DRAWS, len(X)).var(axis=0, ddof=1))


class _Component(NamedTuple):
    """A component of a mixture: its own plan, the discrete variables and the Gaussian scopes.

    ``masses`` by variable; ``covariances`` are pairs of variables and their covariance.
    """

    plan: Plan
    masses: dict[int, FloatArray]
    covariances: list[tuple[IntArray, FloatArray]]


def _components(root: Unit) -> list[_Component] | None:
    """Components of a mixture of products of discrete and Gaussian units; None for others."""
    units = root.children if isinstance(root, Sum) else (root,)
    found = []
    for unit in units:
        leaves = [leaf for leaf in _factors(unit) if isinstance(leaf, InputUnit)]
        if sum(len(leaf.scope) for leaf in leaves) < len(root.scope):
            return None
        component = _Component(compile_plan(unit), {}, [])
        for _, layer in component.plan.inputs:
            for i, scope in enumerate(layer.scopes):
                if isinstance(layer, DiscreteLayer):
                    component.masses[int(scope[0])] = layer.masses[i]
                elif isinstance(layer, GaussianLayer):
                    component.covariances.append((scope, np.array([[layer.stds[i] ** 2]])))
                elif isinstance(layer, MultivariateGaussianLayer):
                    component.covariances.append((scope, layer.gaussians.covariances[i]))
                else:
                    return None
        found.append(component)
    return found


def _factors(unit: Unit) -> Iterator[Unit]:
    """Factors of nested products."""
    stack = [unit]
    while stack:
        top = stack.pop()
        if isinstance(top, Product):
            stack.extend(top.children)
        else:
            yield top


def _second_moments(
    circuit: Circuit,
    components: list[_Component],
    kernel: Kernel,
    functions: Functions,
    X: FloatArray,
    points: FloatArray,
    coefficients: FloatArray,
) -> FloatArray:
    """E[f(x)²] of rows, sorted by their patterns."""
    posteriors = posterior_weights(circuit.plan, X).linear
    missing = np.isnan(X)
    starts = np.flatnonzero(np.r_[True, (missing[1:] != missing[:-1]).any(axis=1)])
    squared = structure_of(kernel, circuit.variables)
    squared.root = squared.multiply([squared.root, squared.root])
    result = np.zeros(len(X))
    for number, component in enumerate(components):
        weights = np.empty((len(X), len(points)))  # α_a g_a
        plan = multiply_by_kernel(component.plan, squared)
        for rows, values in expected_kernels_at_points(plan, X, points):
            weights[rows] = values
        np.sqrt(weights, out=weights)
        weights *= coefficients
        with single_threaded_blas():  # its threads cost more than these products
            moments = np.concatenate(
                [
                    _quadratic_forms(component, functions, missing[own.start], points, weights[own])
                    for own in map(slice, starts, np.r_[starts[1:], len(X)])
                ]
            )
        result += posteriors[number] * moments if len(posteriors) else moments
    return result


def _quadratic_forms(
    component: _Component,
    functions: Functions,
    missing: BoolArray,
    points: FloatArray,
    weights: FloatArray,
) -> FloatArray:
    """Σ_ab w_a R_ab w_b of rows with one pattern."""
    moved = [np.zeros((0, len(points)))]
    for scope, covariance in component.covariances:
        own = missing[scope]
        if own.any():
            moved.append(_moved_points(scope, covariance, own, functions, points))
    z = np.concatenate(moved)
    z = z[np.abs(z).max(axis=1, initial=0.0) > 0.0]
    tables = [
        _table(component.masses[v], functions[v], points[:, v])
        for v in np.flatnonzero(missing).tolist()
        if v in component.masses and v in functions
    ]
    levels = None if tables else _monomials(2.0 * np.square(z).max(axis=1), len(points))
    if levels is not None:
        return _by_monomials(z, levels, weights)
    return _by_pairs(z, tables, weights)


def _moved_points(
    scope: IntArray,
    covariance: FloatArray,
    missing: BoolArray,
    functions: Functions,
    points: FloatArray,
) -> FloatArray:
    """Points z (a, m) with (a - b)ᵀ C (a - b) = |z_a - z_b|², about their middle."""
    conditional = np.linalg.inv(np.linalg.inv(covariance)[np.ix_(missing, missing)])
    known = np.array([v in functions for v in scope[missing].tolist()])
    variables = scope[missing][known]
    gammas = np.array([functions[v].gamma for v in variables.tolist()])  # type: ignore[union-attr]
    scales = np.sqrt(gammas)
    spread = 4.0 * np.outer(scales, scales) * conditional[np.ix_(known, known)]
    values, vectors = np.linalg.eigh(spread)
    values = np.maximum(values, 0.0)
    targets = points[:, variables] * scales
    targets -= (targets.max(axis=0) + targets.min(axis=0)) / 2.0
    return np.sqrt(values / (2.0 * (1.0 + values)))[:, None] * (targets @ vectors).T


def _table(masses: FloatArray, function: UnivariateFunction, codes: FloatArray) -> FloatArray:
    """R_ab of a discrete variable at all pairs of points."""
    states, which = np.unique(codes, return_inverse=True)
    kernel = function.univariate(np.arange(len(masses), dtype=np.float64)[:, None], states)
    products = kernel.T @ (masses[:, None] * kernel)
    scales = np.sqrt(np.diagonal(products))
    scales = np.where(scales > 0.0, scales, 1.0)
    return np.asarray((products / np.outer(scales, scales))[which[:, None], which])


def _by_pairs(z: FloatArray, tables: list[FloatArray], weights: FloatArray) -> FloatArray:
    """Sum over all pairs of points, block by block above the diagonal."""
    squares, ones = np.square(z).sum(axis=0), np.ones(z.shape[1])
    left, right = np.vstack([2.0 * z, -squares, -ones]).T, np.vstack([z, ones, squares])
    result = np.zeros(len(weights))
    blocks = list(row_slices(len(squares), 256))
    for number, columns in enumerate(blocks):
        for rows in blocks[: number + 1]:
            pairs = left[rows] @ right[:, columns]  # -|z_a - z_b|²
            np.exp(pairs, out=pairs)
            for table in tables:
                pairs *= table[rows, columns]
            twice = 1.0 if rows == columns else 2.0
            result += twice * np.einsum("nb,nb->n", weights[:, rows] @ pairs, weights[:, columns])
    return result


class _Level(NamedTuple):
    """Monomials of one degree: what each multiplies, by which variable, and 2^|α| / α!."""

    parents: IntArray
    variables: IntArray
    coefficients: FloatArray


def _monomials(reaches: FloatArray, at_most: int) -> list[_Level] | None:
    """Monomials whose largest term Π_j reach_j^α_j / α_j! counts; None for too many.

    A monomial multiplies one of the degree before by its last variable; ``reaches`` are the
    largest 2 z_j².
    """
    levels: list[_Level] = []
    last, power = np.zeros(1, dtype=np.intp), np.zeros(1)
    sizes, coefficients = np.ones(1), np.ones(1)
    n_monomials = 1
    while len(sizes) and n_monomials <= at_most:
        parents, variables = np.divmod(np.arange(len(sizes) * len(reaches)), max(len(reaches), 1))
        powers = np.where(variables == last[parents], power[parents] + 1.0, 1.0)
        grown = sizes[parents] * reaches[variables] / powers
        kept = (variables >= last[parents]) & (grown > _TOLERANCE)
        parents, last, power, sizes = parents[kept], variables[kept], powers[kept], grown[kept]
        coefficients = coefficients[parents] * 2.0 / power
        levels.append(_Level(parents, last, coefficients))
        n_monomials += len(parents)
    return levels if n_monomials <= at_most else None


def _by_monomials(z: FloatArray, levels: list[_Level], weights: FloatArray) -> FloatArray:
    """Expand exp(2 u·v) = Σ_α 2^|α| / α! u^α v^α: a sum of squares."""
    values = np.exp(-np.square(z).sum(axis=0))[None]
    result = np.square(weights @ values[0])
    for level in levels:
        values = values[level.parents] * z[level.variables]
        result += np.square(weights @ values.T) @ level.coefficients
    return result


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
