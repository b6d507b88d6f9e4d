"""Expected RBF kernels of incomplete rows and points under Gaussians, block by block of patterns.

With P the block of Lambda + 2 G at the missing columns of a pattern, the quadratic form t_mᵀ P⁻¹
t_m is needed for every pattern and point. It is the squared norm of a product with a root of P⁻¹.
Of few missing columns, the whole exponent is a linear function of the coordinates of a point and
their products, which all components share.

Under a mixture, E k(x, s) = Σ_k w_k E_k k(x, s) with weights w_k given x_o. Beside the component of
the largest weight, k counts only where w_k E_k k exceeds rounding errors for some point. All
components have the factor of the observed cells in common, the others are at most one, and, by
Jensen's inequality, E_k exp(-D) ≥ exp(-E_k D) with the squared distance D of the missing cells.

Under low-rank Gaussians, with psi the noise variances, G = diag(gamma),
h = 2 gamma / (1 + 2 gamma psi), f the mean of the factors given x_o, A their precision,
m = mu + W f and C = A + W_m' diag(h_m) W_m, the integral over the rows with missing cells is, by
Woodbury's identity and the determinant lemma,

    log E k = -|x_o - s_o|²_gamma - ½ |m_m - s_m|²_h + ½ |T (m - s)_m|²
              - ½ sum_m log(1 + 2 gamma psi) - ½ log(|C| / |A|),   T = chol(C)^-1 W_m' diag(h_m).

All but |T s_m|² is one matrix product for all rows; that one costs O(d q) per point and pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from skcircuits.circuits._policy import (
    COLUMNS_PER_SUM,
    FORM_BYTES,
    GAUSSIAN_BYTES,
    MAX_CHOSEN,
    MISSING_PER_COMPONENT,
    MONOMIAL_COVARIANCES,
    PATTERN_BYTES,
    PATTERNS_PER_PAIR,
    PRODUCT_BYTES,
    PRODUCT_ROWS,
)
from skcircuits.circuits.inputs.factor_gaussian import FactorBlock, FactorStack, factor_blocks
from skcircuits.numerics._arrays import as_run
from skcircuits.numerics._gaussian_stack import (
    ConditionalBlock,
    GaussianStack,
    cholesky,
    contract,
    gather_symmetric,
    gram_of_lower,
    invert_lower,
    log_diagonal,
    multiply,
    multiply_transposed,
    of_rows,
)
from skcircuits.numerics._patterns import PatternGroup
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Relative to an expected kernel, what may be left out: less than the rounding errors of exponents
NEGLIGIBLE = 1e-14

# Rows (p,), components (L, p) or all, and logs (L, p, m) of expected kernels, until the next ones
Selection = tuple[IntArray, IntArray | None, FloatArray]


def dense_blocks(
    stack: GaussianStack,
    X: FloatArray,
    points: ScaledPoints,
    blocks: Iterable[ConditionalBlock],
    weights: FloatArray | None,
) -> Iterator[Selection]:
    """Rows of conditional Gaussians, with the components alone that count by weights (K, n)."""
    for block in blocks:
        counts = np.ones((stack.n_components, len(block.group.rows)), dtype=bool)
        if weights is not None and len(weights) > 1 and len(points.points):
            counts = _counts(stack, block, points, weights[:, block.group.rows])
        values_of = _by_monomials if _has_monomials(stack, points, block.group) else _by_forms
        yield from values_of(stack, X, block, points, counts)


def _counts(
    stack: GaussianStack, block: ConditionalBlock, points: ScaledPoints, weights: FloatArray
) -> BoolArray:
    """Tell which components count in sums of expected kernels by weights (K, n), shape (K, n)."""
    missing = block.group.missing[block.group.pattern]
    largest, every = weights.argmax(axis=0), np.arange(len(missing))
    means = stack.means[largest[:, None], missing] + block.offsets[:, largest, every].T
    lowest, highest = points.points.min(axis=0), points.points.max(axis=0)
    reach = np.maximum(means - lowest[missing], highest[missing] - means)
    # Conditional variances are at most those of the columns
    variances = np.diagonal(stack.distinct_covariances, axis1=1, axis2=2)[stack.shape[largest]]
    with np.errstate(over="ignore", invalid="ignore"):
        squares = np.square(reach) + np.take_along_axis(variances, missing, axis=1)
        distances = np.einsum("nj,nj->n", points.gammas[missing], squares)
        left_out = NEGLIGIBLE / len(weights) * weights.max(axis=0) * np.exp(-distances)
    return ~(weights <= left_out)


def _slots(counts: BoolArray, n_rows_of: Callable[[int], int]) -> list[tuple[IntArray, IntArray]]:
    """Parts of rows (p,) with all components (p, L) that ``counts`` (K, n) tells for any row."""
    n_rows = counts.shape[1]
    n_counting = counts.sum(axis=0)
    order = np.argsort(n_counting, kind="stable")
    n_counting = n_counting[order]
    ranked = np.argsort(~counts[:, order], axis=0, kind="stable").T
    # Rows with about as many components go together
    stops = np.searchsorted(n_counting, 1.25 * n_counting + 1.0)
    parts, start = [], 0
    while start < n_rows:
        stop = min(stops[start], start + n_rows_of(int(n_counting[start])))
        parts.append((order[start:stop], ranked[start:stop, : n_counting[stop - 1]]))
        start = stop
    return parts


def _by_forms(
    stack: GaussianStack,
    X: FloatArray,
    block: ConditionalBlock,
    points: ScaledPoints,
    counts: BoolArray,
) -> Iterator[Selection]:
    """Quadratic forms per pattern and covariance, then a product per row."""
    smoothed = _smoothed(stack, block, points.gammas)
    left_side = _left_side(stack, X, block, points.centre, points.gammas, smoothed)
    roots = _of_patterns(smoothed[0], block.group)
    stop = 0
    for part, forms in quadratic_forms(points, block.group, roots):
        own = slice(stop, stop := stop + len(part.rows))
        sides = left_side[:, own], points.linear
        add = _sums_over_some if counts[:, own].mean() < MAX_CHOSEN else _sums_over_all
        for rows, which, values in add(sides, forms, stack.shape, part.pattern, counts[:, own]):
            yield part.rows[rows], which, values


def _sums_over_all(
    sides: tuple[FloatArray, FloatArray],
    forms: FloatArray,
    shape: IntArray,
    pattern: IntArray,
    counts: BoolArray,
) -> Iterator[tuple[slice, None, FloatArray]]:
    """Add products of (K, n, w) and (w, m) to forms (G, P, m), block by block of rows."""
    left_side, right_side = sides
    n_components, n_rows, width = left_side.shape
    n_points = right_side.shape[1]
    sharers = [as_run(np.flatnonzero(shape == g)) for g in range(len(forms))]
    step = min(n_rows, rows_per_block(n_components, n_points))
    # Memory that was used before is faster than new memory
    buffer = np.empty((n_components * step, n_points))
    for block in row_slices(n_rows, step):
        # The rows of all components make one taller matrix
        taller = left_side[:, block].reshape(-1, width)
        products = np.matmul(taller, right_side, out=buffer[: len(taller)])
        values = products.reshape(n_components, -1, n_points)
        patterns = as_run(pattern[block])
        for own, form in zip(sharers, forms):
            values[own] += form[patterns]
        yield block, None, values


def _sums_over_some(
    sides: tuple[FloatArray, FloatArray],
    forms: FloatArray,
    shape: IntArray,
    pattern: IntArray,
    counts: BoolArray,
) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """The same sums for the components (K, n) that count."""
    (left_side, right_side), n_points = sides, forms.shape[2]
    for rows, which in _slots(counts, lambda n_slots: rows_per_block(n_slots, n_points)):
        taller = left_side[which.T, rows]
        values = taller.reshape(-1, len(right_side)) @ right_side
        values = values.reshape(*taller.shape[:2], n_points)
        values += forms[shape[which.T], pattern[rows]]
        yield rows, which.T, values


def _has_monomials(stack: GaussianStack, points: ScaledPoints, group: PatternGroup) -> bool:
    """Whether one product for each row takes less time than forms and a product for all rows."""
    size, n_patterns = group.missing.shape[1], group.n_patterns
    n_own, n_distinct = size * (size + 1) // 2, len(stack.distinct_covariances)
    # Forms are shared by the rows of a pattern and the components of a covariance
    n_shared = n_own * n_patterns * n_distinct / (stack.n_components * len(group.rows))
    return (
        n_distinct >= MONOMIAL_COVARIANCES
        and size + n_own <= stack.n_columns + COLUMNS_PER_SUM + n_shared
        and _has_products(points, group, n_distinct)
    )


def _by_monomials(
    stack: GaussianStack,
    X: FloatArray,
    block: ConditionalBlock,
    points: ScaledPoints,
    counts: BoolArray,
) -> Iterator[Selection]:
    """One product of coefficients of the components and monomials of the points for each row."""
    group = block.group
    size, n_points = group.missing.shape[1], len(points.points)
    n_features = size + size * (size + 1) // 2 + 2
    n_numbers = PATTERN_BYTES // (8 * max(1, n_points))  # for each point
    parts = _slots(counts, lambda n_slots: max(1, n_numbers // (n_features + n_slots)))
    rows = np.concatenate([np.repeat(rows, which.shape[1]) for rows, which in parts])
    components = np.concatenate([which.ravel() for _, which in parts])
    coefficients = _coefficients(stack, block, points, rows, components)
    index, observed = points.monomials_of(group.missing), points.observed(X[group.rows])
    # Memory that was used before is faster than new memory
    buffer = np.empty((max(len(rows) for rows, _ in parts), n_features, n_points))
    results = np.empty((max(which.size for _, which in parts), n_points))
    start = 0
    for rows, which in parts:
        monomials = buffer[: len(rows)]
        np.take(points.monomials, index[group.pattern[rows]], axis=0, out=monomials, mode="clip")
        monomials[:, -1] = observed[rows]
        own = coefficients[start : start + which.size].reshape(*which.shape, n_features)
        start += which.size
        values = results[: which.size].reshape(*which.shape, n_points)
        np.matmul(own, monomials, out=values)
        yield group.rows[rows], which.T, values.transpose(1, 0, 2)


def _coefficients(
    stack: GaussianStack,
    block: ConditionalBlock,
    points: ScaledPoints,
    rows: IntArray,
    components: IntArray,
) -> FloatArray:
    """Coefficients (N, size + pairs + 2) of monomials for pairs of a row and a component."""
    group, gammas = block.group, points.gammas
    missing = group.missing[group.pattern[rows]].T
    cases = stack.shape[components] * group.n_patterns + group.pattern[rows]
    case = np.arange(len(cases))
    is_met = np.bincount(cases)
    if is_met.max() > 1:  # pairs with one pattern and covariance share their factors
        case = (np.cumsum(is_met > 0) - 1)[cases]
        cases = np.flatnonzero(is_met)
    roots, half_log_determinants = _smoothed(stack, block, gammas, cases)
    own = of_rows(roots, case)
    offsets = (stack.means - points.centre)[components, missing]
    means = block.offsets[:, components, rows] + offsets
    pulled = gammas[missing] * means
    moved = means - 2.0 * multiply_transposed(own, multiply(own, pulled))  # u_m
    size, (i, j) = len(missing), np.tril_indices(len(missing))
    inverses = gram_of_lower(roots)[i, j]
    inverses[i != j] *= 2.0
    result = np.empty((len(rows), size + len(i) + 2))
    result[:, :size] = np.sqrt(2.0) * moved.T
    result[:, size:-2] = inverses.T[case]
    # -s_j t_j in units of 2 t_j²; a column outside the kernel has t_j = 0
    in_kernel = gammas > np.finfo(np.float64).tiny
    squares = np.divide(0.5, gammas, out=np.zeros_like(gammas), where=in_kernel)
    result[:, size:-2][:, i == j] -= squares[missing].T
    result[:, -2] = -contract("mn,mn->n", pulled, moved) - half_log_determinants[case]
    result[:, -1] = 1.0
    return result


def rows_per_block(n_components: int, n_points: int) -> int:
    """Rows whose values under all components stay in the cache, or make a product of full speed."""
    bytes_per_row = 8 * n_components * max(1, n_points)
    enough = min(PRODUCT_ROWS, PRODUCT_BYTES // bytes_per_row)
    return max(1, GAUSSIAN_BYTES // bytes_per_row, enough)


def _smoothed(
    stack: GaussianStack,
    block: ConditionalBlock,
    gammas: FloatArray,
    cases: IntArray | slice = slice(None),
) -> tuple[FloatArray, FloatArray]:
    """Roots W of the inverses WᵀW of P = Lambda_mm + 2 G, and ½ log |I + 2 G V|, for all or some
    pairs of a distinct covariance and a pattern, patterns fastest.
    """
    distinct, group = stack.distinct, block.group
    every = np.arange(distinct.n_components * group.n_patterns)[cases]
    component, pattern = np.divmod(every, group.n_patterns)
    index = group.missing[pattern].T
    widened = gather_symmetric(distinct.precisions, index, component)
    diagonal = np.arange(len(index))
    widened[diagonal, diagonal] += 2.0 * gammas[index]
    lower = cholesky(widened)
    return invert_lower(lower), log_diagonal(lower) - block.distinct_half_log_precisions[cases]


def _left_side(
    stack: GaussianStack,
    X: FloatArray,
    block: ConditionalBlock,
    centre: FloatArray,
    gammas: FloatArray,
    smoothed: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """[u, c, 1] of all rows, everything less the centre, shape (K, n, d + 2)."""
    roots, half_log_determinants = smoothed
    group = block.group
    missing = group.missing[group.pattern]
    offsets = stack.means - centre
    means = block.offsets + offsets[:, missing].transpose(2, 0, 1)  # (m, K, n)
    pulled = gammas[missing].T[:, None] * means  # G m
    moved = means - 2.0 * _solve(stack, _of_patterns(roots, group), group.pattern, pulled)  # u_m
    left_side = np.ones((stack.n_components, len(group.rows), stack.n_columns + 2))
    linear, constant = left_side[:, :, : stack.n_columns], left_side[:, :, stack.n_columns]
    observed = X[group.rows] - centre
    np.put_along_axis(observed, missing, 0.0, axis=1)
    linear[:] = observed
    np.negative(np.square(observed) @ gammas, out=constant[0])
    constant[1:] = constant[0]
    constant -= np.einsum("mkn,mkn->kn", pulled, moved)
    log_determinants = half_log_determinants.reshape(-1, group.n_patterns)
    constant -= log_determinants[stack.shape][:, group.pattern]
    linear[:, np.arange(len(missing))[:, None], missing] = moved.transpose(1, 2, 0)
    return left_side


def _solve(
    stack: GaussianStack, roots: FloatArray, pattern: IntArray, sides: FloatArray
) -> FloatArray:
    """P⁻¹ times sides (m, K, n), by roots (m, m, G, P) of the patterns (n,) of the rows."""
    if not stack.is_shared:
        cases = of_rows(roots, pattern).reshape(*roots.shape[:2], -1)
        flat = sides.reshape(len(sides), -1)
        return multiply_transposed(cases, multiply(cases, flat)).reshape(sides.shape)
    result = np.empty_like(sides)
    for g in range(roots.shape[2]):
        own = stack.shape == g
        cases = of_rows(roots[:, :, g], pattern)
        white = contract("ijn,jkn->ikn", cases, sides[:, own])
        result[:, own] = contract("jin,jkn->ikn", cases, white)
    return result


@dataclass(frozen=True, eq=False)
class ScaledPoints:
    """Points s (m, d) less a centre, as the quadratic forms of Gaussians need them."""

    centre: FloatArray  # (d,)
    points: FloatArray
    gammas: FloatArray  # (d,), the diagonal of G

    @cached_property
    def linear(self) -> FloatArray:
        """The vectors 2 t, t = G (s - centre), ones and -tᵀ (s - centre), shape (d + 2, m)."""
        centred = self.points - self.centre
        scaled = self.gammas * centred
        distances = np.einsum("md,md->m", scaled, centred)
        return np.vstack([2.0 * scaled.T, np.ones(len(scaled)), -distances])

    @cached_property
    def columns(self) -> FloatArray:
        """The vectors sqrt(2) t by column, shape (d, m)."""
        scaled = np.sqrt(2.0) * self.gammas * (self.points - self.centre)
        return np.ascontiguousarray(scaled.T)

    @cached_property
    def products(self) -> FloatArray:
        """The products 2 t_i t_j of columns j ≤ i, shape (d (d + 1) / 2, m)."""
        columns = self.columns
        return np.concatenate([columns[: i + 1] * columns[i] for i in range(len(columns))])

    @cached_property
    def monomials(self) -> FloatArray:
        """Columns, their products, and ones, shape (d + d (d + 1) / 2 + 1, m)."""
        return np.vstack([self.columns, self.products, np.ones(len(self.points))])

    def monomials_of(self, missing: IntArray) -> IntArray:
        """Places of the monomials of some columns (P, size), then those of ones twice."""
        i, j = np.tril_indices(missing.shape[1])
        products = missing[:, i] * (missing[:, i] + 1) // 2 + missing[:, j] + len(self.gammas)
        ones = np.full((len(missing), 2), len(self.monomials) - 1)
        return np.hstack([missing, products, ones])

    def observed(self, X: FloatArray) -> FloatArray:
        """-|x_o - s_o|²_gamma over the observed cells of rows, shape (n, m)."""
        is_seen = ~np.isnan(X)
        cells = np.where(is_seen, X - self.centre, 0.0)
        squares = self.gammas[:, None] * np.square(self.points - self.centre).T
        result = np.hstack([cells, is_seen]) @ np.vstack([self.linear[: len(squares)], -squares])
        result -= (np.square(cells) @ self.gammas)[:, None]
        return np.asarray(result)


def quadratic_forms(
    points: ScaledPoints, group: PatternGroup, roots: FloatArray
) -> Iterator[tuple[PatternGroup, FloatArray]]:
    """Yield p patterns at a time and their forms 2 t_mᵀ P⁻¹ t_m (K, p, m), with roots (n_missing,
    n_missing, K, P) of the inverse blocks P⁻¹ = WᵀW.
    """
    n_components, n_points = roots.shape[2], len(points.points)
    step = max(1, FORM_BYTES // (8 * n_components * max(1, n_points)))
    write = _write_products if _has_products(points, group, n_components) else _write_norms
    buffer = np.empty((n_components, min(step, group.n_patterns), n_points))
    for number, block in enumerate(group.blocks(step)):
        own = roots[..., number * step : number * step + block.n_patterns]
        forms = buffer[:, : block.n_patterns]
        write(points, block.missing, own, forms)
        yield block, forms


def _has_products(points: ScaledPoints, group: PatternGroup, n_components: int) -> bool:
    """Whether products of pairs of columns take less time than norms, and little memory."""
    size = group.missing.shape[1]
    n_columns, n_points = points.columns.shape
    n_pairs = n_columns * (n_columns + 1) // 2
    return (
        size <= MISSING_PER_COMPONENT * n_components
        # Each pair is multiplied once, and taken by several patterns
        and PATTERNS_PER_PAIR * n_pairs <= group.n_patterns * size * (size + 1) // 2
        and 8 * n_pairs * n_points <= FORM_BYTES
    )


def _write_products(
    points: ScaledPoints, missing: IntArray, roots: FloatArray, forms: FloatArray
) -> None:
    """Write the sums of P⁻¹_ij 2 t_i t_j over pairs of missing columns."""
    size, _, n_components, n_patterns = roots.shape
    i, j = np.tril_indices(size)
    inverses = gram_of_lower(roots.reshape(size, size, -1))[i, j]
    inverses[i != j] *= 2.0
    coefficients = inverses.reshape(-1, n_components, n_patterns).transpose(2, 1, 0)
    coefficients = np.ascontiguousarray(coefficients)
    pairs = missing[:, i] * (missing[:, i] + 1) // 2 + missing[:, j]
    parts = _parts(forms, len(i))
    buffer = np.empty((parts[0].stop, len(i), forms.shape[2]))
    for part in parts:
        own = pairs[part]
        products = np.take(points.products, own, axis=0, out=buffer[: len(own)], mode="clip")
        np.matmul(coefficients[part], products, out=forms[:, part].transpose(1, 0, 2))


def _write_norms(
    points: ScaledPoints, missing: IntArray, roots: FloatArray, forms: FloatArray
) -> None:
    """Write the squared norms of sqrt(2) W t_m."""
    size, _, n_components, n_patterns = roots.shape
    # The rows of all components make one taller matrix
    taller = np.ascontiguousarray(roots.transpose(3, 2, 0, 1))
    taller = taller.reshape(n_patterns, n_components * size, size)
    parts = _parts(forms, (1 + n_components) * size)
    buffer = np.empty((parts[0].stop, n_components * size, forms.shape[2]))
    for part in parts:
        own = taller[part]
        white = np.matmul(own, points.columns[missing[part]], out=buffer[: len(own)])
        white = white.reshape(len(own), n_components, size, -1)
        np.einsum("pkbn,pkbn->kpn", white, white, out=forms[:, part])


def _parts(forms: FloatArray, n_temporaries: int) -> list[slice]:
    """Slices of patterns whose temporaries stay in the cache."""
    n_points = max(1, forms.shape[2])
    n_patterns = max(1, PATTERN_BYTES // (8 * n_temporaries * n_points))
    return list(row_slices(forms.shape[1], n_patterns))


def _of_patterns(roots: FloatArray, group: PatternGroup) -> FloatArray:
    """Roots of all components and patterns, (n_missing, n_missing, K, P)."""
    return roots.reshape(len(roots), len(roots), -1, group.n_patterns)


class _CentredPoints(NamedTuple):
    """The points less a centre, by column, then ones, (d + 1, m), and squares of these (d, m)."""

    centre: FloatArray
    columns: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, points: FloatArray, centre: FloatArray) -> _CentredPoints:
        columns = np.vstack([(points - centre).T, np.ones(len(points))])
        return cls(centre, columns, np.square(columns[:-1]))


class _Smoothed(NamedTuple):
    """Terms of the kernel for the patterns of a block and one distinct covariance."""

    roots: FloatArray  # (P, q, d), T / sqrt(2), with zeros where observed
    constants: FloatArray  # (P,), terms that depend on the pattern alone


def factor_rbf_blocks(
    stack: FactorStack, X: FloatArray, points: FloatArray, gammas: FloatArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Log expected kernels (K, p, m) of some rows and all points, until the next block."""
    per_row = 8 * max(1, len(points)) * stack.n_components
    product_rows = min(PRODUCT_ROWS, PRODUCT_BYTES // per_row)
    n_rows = max(8, product_rows, GAUSSIAN_BYTES // per_row)
    # Components with a covariance in common are centred alike
    sharers = [np.flatnonzero(stack.shape == g) for g in range(len(stack.loadings))]
    centred = [_CentredPoints.of(points, stack.means[own].mean(axis=0)) for own in sharers]
    # Memory that was used before is faster than new memory
    buffer = np.empty((stack.n_components, min(n_rows, len(X)), len(points)))
    for block in factor_blocks(stack, X):
        patterns = _observed_patterns(block)
        smoothed = [_smooth(stack, block, patterns, g, gammas) for g in range(len(sharers))]
        # Rows with one pattern share the products with the points.
        order = np.argsort(block.pattern, kind="stable")
        for start in range(0, len(order), n_rows):
            local = order[start : start + n_rows]
            values = buffer[:, : len(local)]
            for g, own in enumerate(sharers):
                part = block, local, g, smoothed[g]
                _write_values(stack, X, centred[g], gammas, part, own, values)
            yield block.rows[local], values


def _observed_patterns(block: FactorBlock) -> BoolArray:
    """Which cells each pattern observes, shape (P, d)."""
    n_patterns = block.half_log_precisions.shape[1]
    first = np.empty(n_patterns, dtype=np.intp)
    # Any row of a pattern will do: the last one written stays
    first[block.pattern] = np.arange(len(block.pattern))
    return block.observed[first]


def _smooth(
    stack: FactorStack, block: FactorBlock, patterns: BoolArray, g: int, gammas: FloatArray
) -> _Smoothed:
    """Factorise C for each pattern."""
    loadings, noise = stack.loadings[g], stack.noise_variances[g]
    scales = _scales(stack, g, gammas)
    n_factors, n_patterns = stack.n_factors, len(patterns)
    # C = I + sum_j c_j w_j w_j', c_j = 1 / psi_j where observed, h_j where missing
    coefficients = np.where(patterns, 1.0, scales * noise)
    precisions = np.empty((n_factors, n_factors, n_patterns))
    rows, columns = np.tril_indices(n_factors)
    precisions[rows, columns] = stack.loading_products[g].T @ coefficients.T
    diagonal = np.arange(n_factors)
    precisions[diagonal, diagonal] += 1.0
    lower = cholesky(precisions)
    half_log_ratio = log_diagonal(lower) - block.half_log_precisions[g]
    inverse = invert_lower(lower).transpose(2, 0, 1).reshape(n_patterns * n_factors, n_factors)
    halved = np.sqrt(0.5) * loadings * scales[:, None]
    roots = (inverse @ halved.T).reshape(n_patterns, n_factors, len(noise))
    # Observed cells have a factor of their own, outside the integral
    roots *= ~patterns[:, None]
    constants = -0.5 * (~patterns @ np.log1p(2.0 * gammas * noise)) - half_log_ratio
    return _Smoothed(roots, constants)


def _scales(stack: FactorStack, g: int, gammas: FloatArray) -> FloatArray:
    """Scales h of the kernel once the noise of a missing cell is integrated out."""
    return 2.0 * gammas / (1.0 + 2.0 * gammas * stack.noise_variances[g])


def _write_values(
    stack: FactorStack,
    X: FloatArray,
    points: _CentredPoints,
    gammas: FloatArray,
    part: tuple[FactorBlock, IntArray, int, _Smoothed],
    own: IntArray,
    values: FloatArray,
) -> None:
    """Write the values of the components with one distinct covariance."""
    block, local, g, smoothed = part
    # consecutive rows have equal patterns
    patterns, pattern = np.unique(block.pattern[local], return_inverse=True)
    roots = smoothed.roots[patterns]
    observed = block.observed[local]
    weights = np.where(observed, 2.0 * gammas, _scales(stack, g, gammas))
    half_weights = 0.5 * weights[np.searchsorted(pattern, np.arange(len(patterns)))]
    cells = np.where(observed, X[block.rows[local]] - points.centre, 0.0)
    # The last coordinate is that of the constant
    linear = np.empty((len(own), len(local), cells.shape[1] + 1))
    for i, k in enumerate(own):
        factors = block.factors[k][:, local].T
        offset = stack.means[k] - points.centre
        means = np.where(observed, cells, offset + factors @ stack.loadings[g].T)
        slopes = np.multiply(weights, means, out=linear[i, :, :-1])
        white = np.einsum("nqd,nd->nq", roots[pattern], means)
        squares = 0.5 * np.einsum("nd,nd->n", slopes, means) - np.einsum("nq,nq->n", white, white)
        linear[i, :, -1] = smoothed.constants[patterns][pattern] - squares
        slopes -= 2.0 * np.einsum("nqd,nq->nd", roots[pattern], white)
    # Products of many rows and points take less time: points are cut only where memory asks for it
    flat, n_points = roots.reshape(-1, roots.shape[2]), points.columns.shape[1]
    for chunk in row_slices(n_points, max(1, PRODUCT_BYTES // (8 * max(1, len(flat))))):
        columns = points.columns[:, chunk]
        # ½ |T s|² - ½ Σ_j weights_j s_j²: rows with one pattern have it in common
        white = (flat @ columns[:-1]).reshape(*roots.shape[:2], columns.shape[1])
        shared = half_weights @ points.squares[:, chunk]
        np.subtract(np.einsum("pqm,pqm->pm", white, white), shared, out=shared)
        shared = shared if len(patterns) == len(local) else shared[pattern]
        for i, k in enumerate(own):
            found = values[k, :, chunk]
            np.matmul(linear[i], columns, out=found)
            found += shared
