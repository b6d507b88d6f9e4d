"""Expected RBF kernels between rows that both have missing cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcircuits.numerics._gaussian_stack import GaussianStack, complete_rows
from skcircuits.numerics._small_cholesky import BLOCK_BYTES, cholesky, contract, log_diagonal
from skcircuits.protocols import FloatArray, IntArray


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
    """Completed rows in the coordinates of the kernel.

    ``means`` (d, K, n) are scaled by G^{1/2}, ``spreads`` (d, d, K, P) hold
    2 G^{1/2} V G^{1/2} for each pattern, ``pattern`` (n,) is that of each row.
    """

    means: FloatArray
    spreads: FloatArray
    pattern: IntArray

    def rows_of_patterns(self) -> list[IntArray]:
        """The rows that have each pattern."""
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
