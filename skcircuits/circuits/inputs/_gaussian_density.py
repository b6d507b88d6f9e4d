"""Log densities of a stack of Gaussians on rows with missing cells, and their gradients."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits._policy import CHOLESKYS_PER_FACTOR
from skcircuits.numerics._gaussian_stack import (
    ConditionalBlock,
    GaussianStack,
    center_rows,
    conditional_blocks,
)
from skcircuits.numerics._patterns import PatternGroup, group_patterns, joined_groups
from skcircuits.numerics._small_cholesky import (
    BLOCK_BYTES,
    cases_per_block,
    cholesky,
    gather_symmetric,
    invert_lower,
    log_diagonal,
)
from skcircuits.protocols import FloatArray, IntArray

_LOG_2PI = float(np.log(2.0 * np.pi))


def log_density(stack: GaussianStack, X: FloatArray) -> FloatArray:
    r"""Log density of each row under each Gaussian, missing cells integrated out.

    ``stack``: K Gaussians over d columns; ``X`` (n, d): rows, NaN for missing cells. Returns (K,
    n): log densities of the observed cells; 0 for rows without any.

    Rows that share their pattern with enough others are whitened by one matrix product
    per pattern. The remaining patterns cost one factorisation per row and component, of
    the smaller of two blocks: of Sigma_oo, or, with Lambda the inverse of Sigma and
    delta = x - mu (0 where missing), of Lambda_mm:

    .. math::

        (x-\mu)_o^T \Sigma_{oo}^{-1} (x-\mu)_o = \delta^T\Lambda\delta -
        |L^{-1}(\Lambda\delta)_m|^2, \quad L L^T = \Lambda_{mm}.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        result = _by_pattern(stack, X)
    # Where squares overflow, no density is left
    result[np.isnan(result)] = -np.inf
    return result


def _by_pattern(stack: GaussianStack, X: FloatArray) -> FloatArray:
    """Log densities of rows with the same missing cells together."""
    missing = np.isnan(X)
    columns = np.ascontiguousarray(X.T)
    result = np.zeros((stack.n_components, len(X)))
    if not missing.any():
        return _complete(stack, columns)
    if stack.is_shared:
        return complete(stack, X)[0]
    for group in group_patterns(missing):
        n_missing, n_observed = group.missing.shape[1], group.observed.shape[1]
        if n_missing == 0:
            result[:, group.rows] = _complete(stack, columns[:, group.rows])
        elif n_observed > 0:
            lone = group.counts * (min(n_missing, n_observed) + 1) ** 3
            shared = lone > CHOLESKYS_PER_FACTOR * n_observed**3
            _write_shared(stack, columns, group.take(shared), result)
            _write_lone(stack, columns, group.take(~shared), result)
    return result


def log_peak(stack: GaussianStack, X: FloatArray) -> FloatArray:
    """Log joint density (K, n) of rows with missing cells at their conditional means."""
    peaks = log_density(stack, X)
    for block in conditional_blocks(stack, X):
        # A conditional Gaussian of m cells is |Λ_mm|^(1/2) (2π)^(-m/2) high.
        heights = block.half_log_precisions.reshape(stack.n_components, -1)
        heights = heights - 0.5 * block.group.missing.shape[1] * _LOG_2PI
        peaks[:, block.group.rows] += heights[:, block.group.pattern]
    return peaks


def weighted_score(stack: GaussianStack, X: FloatArray, weights: FloatArray) -> FloatArray:
    r"""Weighted sum over the Gaussians of the gradients of their log densities.

    ``stack``: K Gaussians over d columns; ``X`` (n, d): rows, NaN for missing cells; all are held
    in memory once per Gaussian; ``weights`` (K, n): weights of the Gaussians at each row:
    responsibilities give the score function of a mixture. Returns (d, n): weighted sums, one row
    per column of X; 0 where a cell is missing.

    With missing cells at their conditional means, one matrix per component serves all patterns:

    .. math::

        \Sigma^{-1} (\mu - x) = \begin{pmatrix}
        \Sigma_{oo}^{-1} (\mu_o - x_o) \\ 0 \end{pmatrix}.
    """
    offsets = np.ascontiguousarray(X.T) - stack.means[:, :, None]  # (K, d, n)
    missing = np.isnan(X)
    if missing.any():
        for block in conditional_blocks(stack, X):
            columns = block.group.missing[block.group.pattern].T
            offsets[:, columns, block.group.rows] = block.offsets.transpose(1, 0, 2)
    offsets *= weights[:, None]
    # The product sums over the components, too
    result = -np.tensordot(stack.precisions, offsets, ([0, 1], [0, 1]))
    result[missing.T] = 0.0
    return result


def complete(
    stack: GaussianStack, X: FloatArray, variances: FloatArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """Log densities (K, n) of rows and their offsets (K, d, n) from the means, both at once.

    ``stack``: K Gaussians over d columns; ``X`` (n, d): rows, NaN for missing cells, which are
    completed by their conditional means; ``variances`` (K, d, n): where given, conditional
    variances of missing cells are written into it.
    """
    groups = joined_groups(np.isnan(X), (stack.n_components, len(stack.distinct_covariances)))
    with np.errstate(over="ignore", invalid="ignore"):
        log_densities, offsets, blocks = center_rows(stack, X, groups)
    log_densities[np.isnan(log_densities)] = -np.inf
    log_densities[:, np.isnan(X).all(axis=1)] = 0.0
    if variances is not None:
        for block in blocks:
            _write_variances(variances, block)
    return log_densities, offsets


def _write_variances(variances: FloatArray, block: ConditionalBlock) -> None:
    """Write the conditional variances (K, d, n) of the missing cells of some rows."""
    n_components, n_columns, _ = variances.shape
    cells = block.group.missing[block.group.pattern].T
    spreads = np.einsum("jin,jin->in", block.roots, block.roots)
    spreads = spreads.reshape(len(cells), n_components, -1)[:, :, block.group.pattern]
    own = cells < n_columns  # joined groups of patterns name others, too
    rows = np.broadcast_to(block.group.rows, cells.shape)[own]
    variances[:, cells[own], rows] = spreads.transpose(1, 0, 2)[:, own]


def _complete(stack: GaussianStack, columns: FloatArray) -> FloatArray:
    """Log densities of complete rows, given as columns (d, n)."""
    n_components, size = stack.means.shape
    result = np.empty((n_components, columns.shape[1]))
    # Differences from all means stay in the cache.
    n_rows = max(16, BLOCK_BYTES // (16 * n_components * max(size, 1)))
    for start in range(0, columns.shape[1], n_rows):
        rows = slice(start, start + n_rows)
        delta = columns[:, rows] - stack.means[:, :, None]
        result[:, rows] = _squared_norms(stack.whitening @ delta)
    result += stack.log_determinants[:, None] + size * _LOG_2PI
    result *= -0.5
    return result


def _squared_norms(vectors: FloatArray) -> FloatArray:
    """Squared norms over the middle axis, (K, d, n) -> (K, n)."""
    return np.einsum("kdn,kdn->kn", vectors, vectors)


def _write_shared(
    stack: GaussianStack, columns: FloatArray, group: PatternGroup, result: FloatArray
) -> None:
    """Fill in rows whose pattern is shared: one whitening matrix per pattern."""
    n_components = stack.n_components
    size = group.observed.shape[1]
    for block in group.blocks(cases_per_block(size, n_components)):
        lower = cholesky(_gather(stack.covariances, block.observed.T))
        half_log_determinants = log_diagonal(lower).reshape(n_components, -1)
        whitening = invert_lower(lower).reshape(size, size, n_components, -1)
        whitening = np.ascontiguousarray(whitening.transpose(3, 2, 0, 1))
        stops = np.cumsum(block.counts)
        for i, (start, stop) in enumerate(zip(stops - block.counts, stops)):
            rows, observed = block.rows[start:stop], block.observed[i]
            delta = columns[observed[:, None], rows] - stack.means[:, observed, None]
            result[:, rows] = -0.5 * _squared_norms(whitening[i] @ delta)
        result[:, block.rows] -= half_log_determinants[:, block.pattern] + 0.5 * size * _LOG_2PI


def _write_lone(
    stack: GaussianStack, columns: FloatArray, group: PatternGroup, result: FloatArray
) -> None:
    """Fill in rows of rare patterns: one factorisation per row, of the smaller block."""
    size, n_observed = group.missing.shape[1], group.observed.shape[1]
    evaluate = _row_by_missing if size <= n_observed else _row_by_observed
    n_rows = cases_per_block(min(size, n_observed) + 1, stack.n_components)
    for start in range(0, len(group.rows), n_rows):
        rows = group.rows[start : start + n_rows]
        pattern = group.pattern[start : start + n_rows]
        distances, half_log_determinants = evaluate(
            stack, columns[:, rows], group.missing[pattern].T, group.observed[pattern].T
        )
        result[:, rows] = -0.5 * (distances + n_observed * _LOG_2PI) - half_log_determinants


def _row_by_missing(
    stack: GaussianStack, columns: FloatArray, missing: IntArray, observed: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Squared Mahalanobis distances and half log determinants from Lambda_mm."""
    n_components, n_rows = stack.n_components, columns.shape[1]
    delta = columns - stack.means[:, :, None]
    np.copyto(delta, 0.0, where=np.isnan(delta))
    pulled = stack.precisions @ delta  # (K, d, n)
    trapezoid = _gather(stack.precisions, missing, n_sides=1)
    trapezoid[-1] = (
        pulled[:, missing, np.arange(n_rows)].transpose(1, 0, 2).reshape(len(missing), -1)
    )
    cholesky(trapezoid)
    shape = (n_components, n_rows)
    distances = np.einsum("kdn,kdn->kn", delta, pulled)
    distances -= np.einsum("mn,mn->n", trapezoid[-1], trapezoid[-1]).reshape(shape)
    # |Sigma_oo| = |Sigma| |Lambda_mm|
    half_log_determinants = log_diagonal(trapezoid).reshape(shape)
    return distances, half_log_determinants + 0.5 * stack.log_determinants[:, None]


def _row_by_observed(
    stack: GaussianStack, columns: FloatArray, missing: IntArray, observed: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Squared Mahalanobis distances and half log determinants from Sigma_oo."""
    n_components, n_rows = stack.n_components, columns.shape[1]
    trapezoid = _gather(stack.covariances, observed, n_sides=1)
    delta = columns[observed, np.arange(n_rows)][:, None] - stack.means.T[observed].transpose(
        0, 2, 1
    )
    trapezoid[-1] = delta.reshape(len(observed), -1)
    cholesky(trapezoid)
    shape = (n_components, n_rows)
    distances = np.einsum("on,on->n", trapezoid[-1], trapezoid[-1]).reshape(shape)
    return distances, log_diagonal(trapezoid).reshape(shape)


def _gather(matrices: FloatArray, index: IntArray, n_sides: int = 0) -> FloatArray:
    """Submatrices of all components for each column of `index`, component-major cases."""
    n_components, n_cases = len(matrices), index.shape[1]
    return gather_symmetric(
        matrices,
        np.tile(index, n_components),
        np.repeat(np.arange(n_components), n_cases),
        n_sides,
    )
