"""Expected RBF kernels under Gaussians: incomplete rows with points, and with each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skcircuits.circuits.inputs._gaussian_integrals import given_cells
from skcircuits.circuits.inputs.factor_gaussian import FactorStack, factor_log_density
from skcircuits.exceptions import invalid
from skcircuits.kernels.integrals._gaussian_blocks import (
    ScaledPoints,
    Selection,
    dense_blocks,
    factor_rbf_blocks,
    rows_per_block,
)
from skcircuits.numerics._gaussian_stack import (
    BLOCK_BYTES,
    ConditionalBlock,
    GaussianStack,
    cholesky,
    complete_rows,
    conditional_blocks,
    contract,
    log_diagonal,
)
from skcircuits.numerics._patterns import group_patterns
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
    """:func:`log_expected_rbf` block by block: rows (p,), each once, and values (K, p, m), which
    last until the next block; log densities of the rows share the conditional Gaussians.
    """

    def __init__(
        self, stack: GaussianStack, X: FloatArray, points: FloatArray, gamma: float | FloatArray
    ) -> None:
        """Refuse kernels of width zero."""
        self._stack, self._X, self._points = stack, X, points
        self._gammas = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (stack.n_columns,))
        self._blocks: list[ConditionalBlock] | None = None
        variances = np.diagonal(stack.distinct_covariances, axis1=1, axis2=2).max(
            axis=0, initial=0.0
        )
        reach = float((self._gammas * variances).max(initial=0.0))
        if reach > MAX_REACH:
            condition = f"be at most {MAX_REACH:g} over the variance of a column"
            way_out = "Take a wider kernel, or scale the columns."
            raise invalid("gamma of a kernel", condition, way_out, gamma_times_variance=reach)

    def log_prob(self) -> FloatArray:
        """Log densities of the observed cells, shape (K, n)."""
        if isinstance(self._stack, FactorStack):
            return factor_log_density(self._stack, self._X)
        groups = group_patterns(np.isnan(self._X))
        log_densities, _, self._blocks = given_cells(self._stack, self._X, groups)
        return log_densities

    def __iter__(self) -> Iterator[tuple[IntArray, FloatArray]]:
        for rows, _, values in self.relevant():
            yield rows, values

    def relevant(self, weights: FloatArray | None = None) -> Iterator[Selection]:
        """Blocks with the components alone that count in sums by ``weights`` (K, n)."""
        stack, X, points, gammas = self._stack, self._X, self._points, self._gammas
        # Differences of squares lose their digits far from all points: such rows are computed apart
        far = _is_far(stack, X, points, gammas)
        if not far.any():
            yield from self._near_rows(weights)
            return
        yield from self._far_rows(np.flatnonzero(far))
        near = np.flatnonzero(~far)
        own = None if weights is None else weights[:, near]
        for rows, which, values in LogExpectedRBF(stack, X[near], points, gammas)._near_rows(own):
            yield near[rows], which, values

    def _near_rows(self, weights: FloatArray | None) -> Iterator[Selection]:
        """Complete rows, then incomplete ones, by conditional Gaussians that may be known."""
        incomplete = np.isnan(self._X).any(axis=1)
        complete_rows, rows = np.flatnonzero(~incomplete), np.flatnonzero(incomplete)
        if len(complete_rows):
            yield from self._complete_rows(complete_rows)
        if len(rows) and isinstance(self._stack, FactorStack):
            blocks = factor_rbf_blocks(self._stack, self._X[rows], self._points, self._gammas)
            for place, values in blocks:
                yield rows[place], None, values
        elif len(rows):
            yield from self._incomplete_rows(weights)

    def _far_rows(self, rows: IntArray) -> Iterator[Selection]:
        """Rows far from the means, or far points: from differences."""
        n_rows = rows_per_block(self._stack.n_components**2, len(self._points))
        for block in row_slices(len(rows), n_rows):
            own = self._X[rows[block]]
            with np.errstate(over="ignore"):  # beyond floats the kernel is zero
                values = log_expected_rbf_pairs(self._stack, own, self._points, self._gammas)
            # A complete point is the same under every component
            yield rows[block], None, values[:, 0]

    def _complete_rows(self, rows: IntArray) -> Iterator[Selection]:
        """Complete rows: the plain kernel, the same under every component."""
        # Differences are expanded into products: centred, they lose no digits
        centre = self._points.mean(axis=0)
        complete, points = self._X[rows] - centre, self._points - centre
        scaled = self._gammas * points
        ones = np.ones(len(rows))
        left_side = np.column_stack([complete, ones, -(complete**2 @ self._gammas)])
        constants = -np.einsum("md,md->m", scaled, points)
        right_side = np.column_stack([2.0 * scaled, constants, np.ones_like(constants)])
        n_components = self._stack.n_components
        for block in row_slices(len(rows), rows_per_block(n_components, len(points))):
            values = left_side[block] @ right_side.T
            yield rows[block], None, np.repeat(values[None], n_components, axis=0)

    def _incomplete_rows(self, weights: FloatArray | None) -> Iterator[Selection]:
        """Incomplete rows, block by block of patterns."""
        stack, X = self._stack, self._X
        # One centre for all Gaussians, so that they share the products with the points
        scaled = ScaledPoints(stack.means.mean(axis=0), self._points, self._gammas)
        blocks = conditional_blocks(stack, X) if self._blocks is None else self._blocks
        yield from dense_blocks(stack, X, scaled, blocks, weights)


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


def log_expected_rbf_pairs(
    stack: GaussianStack, X: FloatArray, Y: FloatArray, gamma: float | FloatArray
) -> FloatArray:
    r"""Log inner products of the kernel mean embeddings of rows with missing cells.

    The kernel is exp(-sum_j gamma_j (x_j - y_j)²). Entry (k, l, i, j) of the result (K, K, n, m)
    is ``log E[k(X, Y)]`` for independent X and Y: row i of X (n, d) completed by component k, row
    j of Y (m, d) by component l.

    The difference of the two completed rows is Gaussian. With G = diag(gamma), the
    conditional means m and the conditional covariances V (0 where observed),

    .. math::

        \log E\,k = -\tfrac12 \log |A| - \delta^T A^{-1} \delta, \quad
        A = I + 2 G^{1/2} (V_x + V_y) G^{1/2}, \; \delta = G^{1/2} (m_x - m_y).

    A depends on the two patterns and components only: one factorisation per pair of
    them, then one forward substitution per pair of rows. Every entry goes through the
    same elementary operations, whatever block it is computed in.
    """
    gammas = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (stack.n_columns,))
    left, right = _embed(stack, X, gammas), _embed(stack, Y, gammas)
    n_components, size = stack.n_components, len(left.means)
    result = np.empty((n_components, n_components, len(X), len(Y)))
    # Factors of all columns of a block stay in the cache
    n_columns = max(2, BLOCK_BYTES // (8 * n_components * max(size, 1) ** 2))
    rows_of_patterns = left.rows_of_patterns()
    for columns in right.column_blocks(n_columns):
        block = right.take(columns)
        for pattern, k in np.ndindex(left.spreads.shape[3], n_components):
            rows = rows_of_patterns[pattern]
            values = _one_against_many(
                left.spreads[:, :, k, pattern], left.means[:, k, rows], block
            )
            result[k][:, rows[:, None], columns] = values.transpose(1, 0, 2)
    return result


@dataclass(frozen=True, eq=False)
class _Embeddings:
    """Completed rows in the coordinates of the kernel."""

    means: FloatArray  # (d, K, n), scaled by G^{1/2}
    spreads: FloatArray  # (d, d, K, P), 2 G^{1/2} V G^{1/2} for each pattern
    pattern: IntArray  # (n,), of each row

    def rows_of_patterns(self) -> list[IntArray]:
        order = np.argsort(self.pattern, kind="stable")
        n_patterns = self.spreads.shape[3]
        return np.split(order, np.searchsorted(self.pattern[order], np.arange(1, n_patterns)))

    def column_blocks(self, n_rows: int) -> list[IntArray]:
        """Cut the rows, sorted by pattern, into blocks."""
        order = np.argsort(self.pattern, kind="stable")
        return [order[start : start + n_rows] for start in range(0, len(order), n_rows)]

    def take(self, rows: IntArray) -> _Embeddings:
        """Keep some rows and the patterns they have."""
        patterns, pattern = np.unique(self.pattern[rows], return_inverse=True)
        means, spreads = np.take(self.means, rows, axis=2), np.take(self.spreads, patterns, axis=3)
        return _Embeddings(means, spreads, pattern)


def _embed(stack: GaussianStack, X: FloatArray, gammas: FloatArray) -> _Embeddings:
    """Conditional means and covariances of all rows; columns outside the kernel dropped."""
    rows = complete_rows(stack, X)
    kept = np.flatnonzero(gammas)
    scales = np.sqrt(gammas[kept])
    spreads = rows.covariances[np.ix_(kept, kept)]
    spreads *= 2.0 * np.outer(scales, scales)[:, :, None, None]
    return _Embeddings(rows.means[kept] * scales[:, None, None], spreads, rows.pattern)


def _one_against_many(spread: FloatArray, means: FloatArray, block: _Embeddings) -> FloatArray:
    """Log inner products (c, K, n) of c rows with one pattern and component with a block."""
    size, n_rows = means.shape
    n_components, n_columns = block.means.shape[1:]
    widened = block.spreads + spread[:, :, None, None]
    diagonal = np.arange(size)
    widened[diagonal, diagonal] += 1.0
    n_cases = n_components * widened.shape[3]
    lower = cholesky(widened.reshape(size, size, n_cases))
    half_log_determinants = log_diagonal(lower).reshape(n_components, -1)[:, block.pattern]
    factors = _per_row(lower.reshape(widened.shape), block.pattern)
    shape = (size, n_rows, n_components * n_columns)
    # Forward substitution for all pairs of rows at once, one coordinate after the other.
    solution = (means[:, :, None, None] - block.means[:, None]).reshape(shape)
    distances = np.zeros(shape[1:])
    for j in range(size):
        if j:
            solution[j] -= contract("kn,kcn->cn", factors[j, :j], solution[:j])
        solution[j] /= factors[j, j]
        with np.errstate(over="ignore"):  # beyond floats the kernel is zero
            distances += solution[j] ** 2
    # Minus from zero: equal points give 0, not -0.
    return 0.0 - distances.reshape(n_rows, n_components, n_columns) - half_log_determinants


def _per_row(lower: FloatArray, pattern: IntArray) -> FloatArray:
    """Repeat the factors (d, d, K, P) of patterns for the rows that have them, (d, d, K * n)."""
    size, _, n_components, _ = lower.shape
    result = np.empty((size, size, n_components, len(pattern)))
    for j in range(size):
        np.take(lower[j, : j + 1], pattern, axis=2, out=result[j, : j + 1], mode="clip")
    return result.reshape(size, size, n_components * len(pattern))
