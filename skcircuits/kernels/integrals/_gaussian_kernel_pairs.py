r"""Expected RBF kernels between rows that both have missing cells, and under low-rank Gaussians.

Under low-rank Gaussians, with psi the noise variances, G = diag(gamma),
h = 2 gamma / (1 + 2 gamma psi), f the mean of the factors given x_o, A their precision,
m = mu + W f and C = A + W_m' diag(h_m) W_m, the integral over the rows with missing cells is, by
Woodbury's identity and the determinant lemma,

    log E k = -|x_o - s_o|²_gamma - ½ |m_m - s_m|²_h + ½ |T (m - s)_m|²
              - ½ sum_m log(1 + 2 gamma psi) - ½ log(|C| / |A|),   T = chol(C)^-1 W_m' diag(h_m).

All but |T s_m|² is one matrix product for all rows; that one costs O(d q) per point and pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skcircuits.circuits._policy import GAUSSIAN_BYTES, PRODUCT_BYTES, PRODUCT_ROWS
from skcircuits.circuits.inputs.factor_gaussian import FactorBlock, FactorStack, factor_blocks
from skcircuits.numerics._gaussian_stack import GaussianStack, complete_rows
from skcircuits.numerics._small_cholesky import (
    BLOCK_BYTES,
    cholesky,
    contract,
    invert_lower,
    log_diagonal,
)
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray


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
    """Log expected kernels (K, p, m) of some rows and all points (m, d), block by block.

    The values of a block are overwritten by the next one.
    """
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
    # Products of many rows take less time: points are cut rather than rows
    flat, n_points = roots.reshape(-1, roots.shape[2]), points.columns.shape[1]
    for chunk in row_slices(n_points, max(1, GAUSSIAN_BYTES // (8 * max(1, len(flat))))):
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
