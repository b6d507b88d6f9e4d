"""Expected RBF kernels of incomplete rows with complete points under a stack of Gaussians.

With P the block of Lambda + 2 G at the missing columns of a pattern, the quadratic form t_mᵀ P⁻¹
t_m is needed for every pattern and point. It is the squared norm of a product with a root of P⁻¹.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.circuits._policy import (
    FORM_BYTES,
    GAUSSIAN_BYTES,
    PATTERN_BYTES,
    PRODUCT_BYTES,
    PRODUCT_ROWS,
)
from skcircuits.circuits.inputs._gaussian_integrals import given_cells
from skcircuits.circuits.inputs.factor_gaussian import FactorStack, factor_log_density
from skcircuits.exceptions import must
from skcircuits.kernels.integrals._gaussian_kernel_pairs import (
    factor_rbf_blocks,
    log_expected_rbf_pairs,
)
from skcircuits.numerics._arrays import Rows, as_run
from skcircuits.numerics._gaussian_stack import (
    ConditionalBlock,
    GaussianStack,
    conditional_blocks,
    of_rows,
)
from skcircuits.numerics._patterns import PatternGroup, group_patterns
from skcircuits.numerics._small_cholesky import (
    cholesky,
    contract,
    gather_symmetric,
    invert_lower,
    log_diagonal,
    multiply,
    multiply_transposed,
)
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

MAX_REACH = 1e100  # of gamma in units of a column
# Of a kernel's exponent between rows or points and the means, up to which its square may be
# expanded: rounding errors stay below 1e-9.
MAX_EXPANDED = 1e6


def log_expected_rbf(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gamma: float | FloatArray
) -> FloatArray:
    r"""Log expected kernels (K, n, m) of rows (n, d) with missing cells and points (m, d).

    The kernel is exp(-sum_j gamma_j (x_j - s_j)²); a column with scale 0 is not in it but still
    tells about the missing cells. Observed cells contribute their kernel factor; their density
    is not part of it. With everything centred at the component mean, Lambda the inverse of Sigma, V
    and m the conditional covariance and mean, G = diag(gamma), P = Lambda_mm + 2 G_mm and
    t = G s, the Gaussian integral is

    .. math::

        \log E\,k = c + 2 u \cdot t - s^T t + 2\, t_m^T P^{-1} t_m,\quad
        u_o = x_o,\; u_m = m - 2 P^{-1} G m,\quad
        c = -x_o^T G x_o - m^T G u_m - \tfrac12 \log |I + 2 G V|.

    All but the last term is a matrix product. The last is computed once per pattern and
    distinct covariance.
    """
    result = np.empty((stack.n_components, len(X), len(points)))
    for rows, values in LogExpectedRBF(stack, X, points, gamma):
        result[:, rows] = values
    return result


class LogExpectedRBF:
    """:func:`log_expected_rbf` block by block: rows (p,) and their values (K, p, m).

    What depends on the missing cells alone is computed once for all rows; a block stays in the
    cache and need never be stored. Each row comes once, in no particular order; the consumer may
    overwrite the values, which last until the next block. Log densities of the rows, where they are
    asked for, share the conditional Gaussians with the values.
    """

    def __init__(
        self, stack: GaussianStack, X: FloatArray, points: FloatArray, gamma: float | FloatArray
    ) -> None:
        """Refuse kernels of width zero."""
        self._stack, self._X, self._points = stack, X, points
        self._gammas = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (stack.n_columns,))
        self._blocks: list[ConditionalBlock] | None = None
        _refuse_points_of_width_zero(stack, self._gammas)

    def log_prob(self) -> FloatArray:
        """Log densities of the observed cells, shape (K, n)."""
        if isinstance(self._stack, FactorStack):
            return factor_log_density(self._stack, self._X)
        groups = group_patterns(np.isnan(self._X))
        log_densities, _, self._blocks = given_cells(self._stack, self._X, groups)
        return log_densities

    def __iter__(self) -> Iterator[tuple[IntArray, FloatArray]]:
        stack, X, points, gammas = self._stack, self._X, self._points, self._gammas
        # Differences of squares lose their digits far from all points: such rows are computed apart
        far = _is_far(stack, X, points, gammas)
        if not far.any():
            yield from _near_rows(stack, X, points, gammas, self._blocks)
            return
        yield from _far_rows(stack, X, points, gammas, np.flatnonzero(far))
        near = np.flatnonzero(~far)
        for rows, values in _near_rows(stack, X[near], points, gammas, None):
            yield near[rows], values


def _near_rows(
    stack: GaussianStack,
    X: FloatArray,
    points: FloatArray,
    gammas: FloatArray,
    blocks: list[ConditionalBlock] | None,
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Complete rows, then incomplete ones, given their conditional Gaussians if these are known."""
    incomplete = np.isnan(X).any(axis=1)
    complete_rows, rows = np.flatnonzero(~incomplete), np.flatnonzero(incomplete)
    if len(complete_rows):
        yield from _complete_rows(stack, X, points, gammas, complete_rows)
    if len(rows) and isinstance(stack, FactorStack):
        for place, values in factor_rbf_blocks(stack, X[rows], points, gammas):
            yield rows[place], values
    elif len(rows):
        conditional = conditional_blocks(stack, X) if blocks is None else blocks
        yield from _incomplete_rows(stack, X, points, gammas, conditional)


def _refuse_points_of_width_zero(stack: GaussianStack, gammas: FloatArray) -> None:
    """Refuse kernels so narrow compared with the columns that their integrals overflow."""
    variances = np.diagonal(stack.distinct_covariances, axis1=1, axis2=2).max(axis=0, initial=0.0)
    reach = float((gammas * variances).max(initial=0.0))
    if reach > MAX_REACH:
        condition = f"be at most {MAX_REACH:g} over the variance of a column"
        way_out = "Take a wider kernel, or scale the columns."
        raise ValueError(must("gamma of a kernel", condition, way_out, gamma_times_variance=reach))


def _is_far(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gammas: FloatArray
) -> BoolArray:
    """Tell for which rows squares of differences cannot be expanded without losing digits."""
    low, high = stack.means.min(axis=0), stack.means.max(axis=0)

    def exponents(lower: FloatArray, upper: FloatArray) -> FloatArray:
        reach = np.maximum(upper - low, high - lower)
        return np.nansum(gammas * np.square(reach), axis=-1)

    with np.errstate(over="ignore"):
        if len(X) and len(points):
            # Usually the bounding box of all rows and points already shows that no pair is far
            # apart
            lowest = np.fmin(np.fmin.reduce(X), np.fmin.reduce(points))
            highest = np.fmax(np.fmax.reduce(X), np.fmax.reduce(points))
            if exponents(lowest, highest) <= MAX_EXPANDED:
                return np.zeros(len(X), dtype=bool)
        largest = exponents(points, points).max(initial=0.0)
        return np.maximum(exponents(X, X), largest) > MAX_EXPANDED


def _far_rows(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gammas: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Rows far from the means, or far points: from differences."""
    n_rows = _rows_per_block(stack.n_components**2, len(points))
    for block in row_slices(len(rows), n_rows):
        with np.errstate(over="ignore"):  # beyond floats the kernel is zero
            # A complete point is the same under every component
            yield rows[block], log_expected_rbf_pairs(stack, X[rows[block]], points, gammas)[:, 0]


def _complete_rows(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gammas: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Complete rows: the plain kernel, the same under every component."""
    # Differences are expanded into products: centred, they lose no digits
    centre = points.mean(axis=0)
    complete, points = X[rows] - centre, points - centre
    scaled = gammas * points
    ones = np.ones(len(rows))
    left_side = np.column_stack([complete, ones, -(complete**2 @ gammas)])
    constants = -np.einsum("md,md->m", scaled, points)
    right_side = np.column_stack([2.0 * scaled, constants, np.ones_like(constants)])
    for block in row_slices(len(rows), _rows_per_block(stack.n_components, len(points))):
        values = left_side[block] @ right_side.T
        yield rows[block], np.repeat(values[None], stack.n_components, axis=0)


def _incomplete_rows(
    stack: GaussianStack,
    X: FloatArray,
    points: FloatArray,
    gammas: FloatArray,
    blocks: Iterable[ConditionalBlock],
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Incomplete rows: quadratic forms per pattern and covariance, then one product per row."""
    sharers = [as_run(np.flatnonzero(stack.shape == g)) for g in range(stack.distinct.n_components)]
    # One centre for all Gaussians, so that they share the products with the points
    scaled = ScaledPoints(stack.means.mean(axis=0), points, gammas)
    for block in blocks:
        group = block.group
        smoothed = _smoothed(stack, block, gammas)
        left_side = _left_side(stack, X, block, scaled.centre, gammas, smoothed)
        roots = _of_patterns(smoothed[0], group)
        start = 0
        for part, forms in quadratic_forms(scaled, block.group, roots):
            stop = start + len(part.rows)
            sides = left_side[:, start:stop], scaled.linear
            for place, values in _sums_of_products_and_forms(sides, forms, part.pattern, sharers):
                yield part.rows[place], values
            start = stop


def _sums_of_products_and_forms(
    sides: tuple[FloatArray, FloatArray], forms: FloatArray, pattern: IntArray, sharers: list[Rows]
) -> Iterator[tuple[slice, FloatArray]]:
    """Add products of (K, n, w) and (w, m) to forms (G, P, m), block by block of rows."""
    left_side, right_side = sides
    n_components, n_rows, width = left_side.shape
    n_points = right_side.shape[1]
    for block in row_slices(n_rows, _rows_per_block(n_components, n_points)):
        # The rows of all components make one taller matrix
        taller = left_side[:, block].reshape(-1, width)
        values = (taller @ right_side).reshape(n_components, -1, n_points)
        patterns = as_run(pattern[block])
        for own, form in zip(sharers, forms):
            values[own] += form[patterns]
        yield block, values


def _rows_per_block(n_components: int, n_points: int) -> int:
    """Rows whose values under all components stay in the cache, or make a product of full speed."""
    bytes_per_row = 8 * n_components * max(1, n_points)
    enough = min(PRODUCT_ROWS, PRODUCT_BYTES // bytes_per_row)
    return max(1, GAUSSIAN_BYTES // bytes_per_row, enough)


def _smoothed(
    stack: GaussianStack, block: ConditionalBlock, gammas: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Roots W of the inverses WᵀW of P = Lambda_mm + 2 G, and ½ log |I + 2 G V|."""
    distinct, group = stack.distinct, block.group
    index = np.tile(group.missing.T, distinct.n_components)
    component = np.repeat(np.arange(distinct.n_components), group.n_patterns)
    widened = gather_symmetric(distinct.precisions, index, component)
    diagonal = np.arange(len(index))
    widened[diagonal, diagonal] += 2.0 * gammas[index]
    lower = cholesky(widened)
    return invert_lower(lower), log_diagonal(lower) - block.distinct_half_log_precisions


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


def quadratic_forms(
    points: ScaledPoints, group: PatternGroup, roots: FloatArray
) -> Iterator[tuple[PatternGroup, FloatArray]]:
    """Evaluate 2 t_mᵀ P⁻¹ t_m, block by block of patterns.

    ``roots`` (n_missing, n_missing, K, P): roots W of the inverse blocks P⁻¹ = WᵀW. Yields the next
    p patterns and their forms (K, p, m).
    """
    n_components, n_points = roots.shape[2], len(points.points)
    step = max(1, FORM_BYTES // (8 * n_components * max(1, n_points)))
    for number, block in enumerate(group.blocks(step)):
        own = roots[..., number * step : number * step + block.n_patterns]
        forms = np.empty((n_components, block.n_patterns, n_points))
        _write_forms(points, block, own, forms)
        yield block, forms


def _of_patterns(roots: FloatArray, group: PatternGroup) -> FloatArray:
    """Roots of all components and patterns, (n_missing, n_missing, K, P)."""
    return roots.reshape(len(roots), len(roots), -1, group.n_patterns)


def _write_forms(
    points: ScaledPoints, group: PatternGroup, roots: FloatArray, forms: FloatArray
) -> None:
    """Evaluate the forms through the roots of P⁻¹, shape (n_missing, n_missing, K, P)."""
    left = np.ascontiguousarray(roots.transpose(3, 2, 0, 1))
    # Temporaries of a block stay in the cache
    numbers_per_pattern = (len(roots) + len(forms)) * forms.shape[2]
    n_patterns = max(1, PATTERN_BYTES // (16 * numbers_per_pattern))
    for block in row_slices(group.n_patterns, n_patterns):
        forms[:, block] = _squared_products(left[block], points.columns[group.missing[block]])


def _squared_products(lower: FloatArray, vectors: FloatArray) -> FloatArray:
    """Squared norms |W t|² of (p, K, m, m) matrices and shared (p, m, n) vectors."""
    n_patterns, n_components, size, _ = lower.shape
    # The rows of all components make one taller matrix
    product = lower.reshape(n_patterns, -1, size) @ vectors
    product = product.reshape(n_patterns, n_components, size, -1)
    return np.einsum("pkbn,pkbn->kpn", product, product)
