"""Log densities, conditional moments, draws and gradients of low-rank Gaussians.

With A = I + W_oᵀ Ψ_o⁻¹ W_o and f = A⁻¹ W_oᵀ Ψ_o⁻¹ (x_o - m_o), the factors of a row are
N(f, A⁻¹): everything below costs O(d q²) per row (Woodbury), no matrix of the size of d.
"""

from __future__ import annotations

import numpy as np

from skcircuits.numerics._factor_stack import FactorBlock, FactorStack, factor_blocks
from skcircuits.numerics._random import RandomNumbers
from skcircuits.numerics._small_cholesky import multiply_transposed
from skcircuits.protocols import FloatArray, IntArray

__all__ = [
    "block_log_density",
    "factor_draw",
    "factor_log_density",
    "factor_log_peak",
    "factor_mean",
    "factor_score",
    "factor_variance",
]

_LOG_2PI = float(np.log(2.0 * np.pi))


def factor_log_density(stack: FactorStack, X: FloatArray) -> FloatArray:
    """Log density of the observed cells of each row under each Gaussian, shape (K, n)."""
    result = np.empty((stack.n_components, len(X)))
    for block in factor_blocks(stack, X):
        result[:, block.rows] = block_log_density(stack, block)
    return result


def block_log_density(stack: FactorStack, block: FactorBlock) -> FloatArray:
    """Log density of the rows of a block, shape (K, n).

    The squared Mahalanobis distance is |x_o - m_o - W_o f|² / Ψ_o + |f|², a sum of squares:
    the usual form of Woodbury's identity is a difference, which loses digits at small noise.
    """
    factors = block.factors
    result = np.einsum("kqn,kqn->kn", factors, factors)
    log_noise = (
        block.observed @ np.log(stack.noise_variances).T
        + (block.observed.sum(axis=1) * _LOG_2PI)[:, None]
    )
    for k, g in enumerate(stack.shape):
        squared = np.square(block.residuals[k])
        result[k] += squared @ (1.0 / stack.noise_variances[g]) + log_noise[:, g]
        result[k] += 2.0 * block.half_log_precisions[g, block.pattern]
    result *= -0.5
    return result


def factor_log_peak(stack: FactorStack, X: FloatArray) -> FloatArray:
    """Log joint density at the conditional means of the missing cells, shape (K, n)."""
    result = np.empty((stack.n_components, len(X)))
    complete = stack.loading_products.sum(axis=1)
    rows, columns = np.tril_indices(stack.n_factors)
    precisions = np.zeros((len(complete), stack.n_factors, stack.n_factors))
    precisions[:, rows, columns] = precisions[:, columns, rows] = complete
    half_log_complete = 0.5 * np.linalg.slogdet(precisions + np.eye(stack.n_factors))[1]
    for block in factor_blocks(stack, X):
        # the covariance of the missing cells has determinant |Ψ_m| |A of all cells| / |A|
        missing = ~block.observed
        heights = -0.5 * (missing @ np.log(stack.noise_variances).T).T
        heights -= 0.5 * missing.sum(axis=1) * _LOG_2PI
        heights -= half_log_complete[:, None] - block.half_log_precisions[:, block.pattern]
        result[:, block.rows] = block_log_density(stack, block) + heights[stack.shape]
    return result


def factor_mean(stack: FactorStack, X: FloatArray) -> FloatArray:
    """Rows with conditional means in place of missing cells, shape (K, n, d)."""
    result = np.empty((stack.n_components, *X.shape))
    for block in factor_blocks(stack, X):
        cells = X[block.rows]
        for k, g in enumerate(stack.shape):
            means = stack.means[k] + block.factors[k].T @ stack.loadings[g].T
            result[k, block.rows] = np.where(block.observed, cells, means)
    return result


def factor_variance(stack: FactorStack, X: FloatArray) -> FloatArray:
    """Conditional variances of the missing cells, 0 where observed, shape (K, n, d)."""
    result = np.empty((stack.n_components, *X.shape))
    for block in factor_blocks(stack, X):
        n_patterns = block.half_log_precisions.shape[1]
        size = stack.n_factors
        distinct = np.empty((len(stack.loadings), len(block.rows), stack.n_columns))
        for g, (loadings, noise) in enumerate(
            zip(stack.loadings, stack.noise_variances, strict=True)
        ):
            roots = block.roots[:, :, g].transpose(2, 0, 1).reshape(n_patterns * size, size)
            spread = np.square(roots @ loadings.T).reshape(n_patterns, size, len(noise)).sum(axis=1)
            distinct[g] = np.where(block.observed, 0.0, noise + spread[block.pattern])
        result[:, block.rows] = distinct[stack.shape]
    return result


def factor_draw(
    stack: FactorStack, component: IntArray, X: FloatArray, rng: RandomNumbers
) -> FloatArray:
    """Draw the missing cells of each row from one Gaussian given its observed cells.

    Takes n (d + q) standard normal numbers from ``rng``: first the noise, then the factors.
    """
    size, n_columns = stack.n_factors, stack.n_columns
    numbers = rng.standard_normal((len(X), n_columns + size))
    result = X.copy()
    for k in np.unique(component):
        g = stack.shape[k]
        own = FactorStack(
            stack.means[[k]], stack.loadings[[g]], stack.noise_variances[[g]], np.zeros(1, int)
        )
        chosen = np.flatnonzero(component == k)
        for block in factor_blocks(own, X[chosen]):
            rows = chosen[block.rows]
            roots = np.take(block.roots[:, :, 0], block.pattern, axis=2)
            factors = block.factors[0] + multiply_transposed(roots, numbers[rows, n_columns:].T)
            noise = np.sqrt(own.noise_variances[0]) * numbers[rows, :n_columns]
            drawn = own.means[0] + factors.T @ own.loadings[0].T + noise
            result[rows] = np.where(block.observed, X[rows], drawn)
    return result


def factor_score(stack: FactorStack, X: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted sum (weights (K, n)) of the gradients of the log densities, shape (d, n)."""
    result = np.zeros((X.shape[1], len(X)))
    for block in factor_blocks(stack, X):
        own = weights[:, block.rows]
        for k, g in enumerate(stack.shape):
            pull = block.residuals[k] / stack.noise_variances[g]
            result[:, block.rows] -= (pull * own[k][:, None]).T
    return result
