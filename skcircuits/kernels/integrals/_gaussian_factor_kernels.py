r"""Expected RBF kernels of rows with missing cells under low-rank Gaussians.

With psi the noise variances, G = diag(gamma), h = 2 gamma / (1 + 2 gamma psi), f the mean of the
factors given x_o, A their precision, m = mu + W f and C = A + W_m' diag(h_m) W_m, the Gaussian
integral is, by Woodbury's identity and the determinant lemma,

    log E k = -|x_o - s_o|²_gamma - ½ |m_m - s_m|²_h + ½ |T (m - s)_m|²
              - ½ sum_m log(1 + 2 gamma psi) - ½ log(|C| / |A|),   T = chol(C)^-1 W_m' diag(h_m).

All but |T s_m|² is one matrix product for all rows; that one costs O(d q) per point and pattern.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skcircuits.numerics._factor_stack import FactorBlock, FactorStack, factor_blocks
from skcircuits.numerics._small_cholesky import cholesky, invert_lower, log_diagonal
from skcircuits.protocols import BoolArray, FloatArray, IntArray

_BLOCK_BYTES = 1 << 22


class _CentredPoints(NamedTuple):
    """The points less a centre, by column, and their squares, both of shape (d, m)."""

    centre: FloatArray
    columns: FloatArray
    squares: FloatArray

    @classmethod
    def of(cls, points: FloatArray, centre: FloatArray) -> _CentredPoints:
        columns = np.ascontiguousarray((points - centre).T)
        return cls(centre, columns, np.square(columns))


class _Smoothed(NamedTuple):
    """What the patterns of a block make of the kernel, for one distinct covariance.

    ``roots`` (P, q, d): T, with zeros where observed; ``constants`` (P,): what depends on the
    pattern alone.
    """

    roots: FloatArray
    constants: FloatArray


def factor_rbf_blocks(
    stack: FactorStack, X: FloatArray, points: FloatArray, gammas: FloatArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Log expected kernels (K, p, m) of some rows and all points (m, d), block by block."""
    per_row = 8 * max(1, len(points)) * (stack.n_factors + stack.n_components + 1)
    n_rows = max(8, _BLOCK_BYTES // per_row)
    # Components with a covariance in common are centred alike
    sharers = [np.flatnonzero(stack.shape == g) for g in range(len(stack.loadings))]
    centred = [_CentredPoints.of(points, stack.means[own].mean(axis=0)) for own in sharers]
    for block in factor_blocks(stack, X):
        patterns = _observed_patterns(block)
        smoothed = [_smooth(stack, block, patterns, g, gammas) for g in range(len(sharers))]
        # Rows with one pattern share the products with the points.
        order = np.argsort(block.pattern, kind="stable")
        for start in range(0, len(order), n_rows):
            local = order[start : start + n_rows]
            values = np.empty((stack.n_components, len(local), len(points)))
            for g, own in enumerate(sharers):
                part = block, local, g, smoothed[g]
                _write_values(stack, X, centred[g], gammas, part, own, values)
            yield block.rows[local], values


def _observed_patterns(block: FactorBlock) -> BoolArray:
    """Which cells each pattern observes, shape (P, d)."""
    n_patterns = block.half_log_precisions.shape[1]
    first = np.empty(n_patterns, dtype=np.intp)
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
    roots = (inverse @ (loadings * scales[:, None]).T).reshape(n_patterns, n_factors, len(noise))
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
    first = np.searchsorted(pattern, np.arange(len(patterns)))
    cells = np.where(observed, X[block.rows[local]] - points.centre, 0.0)
    linear, constants = np.empty((len(own), *cells.shape)), np.empty((len(own), len(local), 1))
    for i, k in enumerate(own):
        factors = block.factors[k][:, local].T
        offset = stack.means[k] - points.centre
        means = np.where(observed, cells, offset + factors @ stack.loadings[g].T)
        np.multiply(weights, means, out=linear[i])
        white = np.einsum("nqd,nd->nq", roots[pattern], means)
        squares = np.einsum("nq,nq->n", white, white) - np.einsum("nd,nd->n", linear[i], means)
        constants[i, :, 0] = smoothed.constants[patterns][pattern] + 0.5 * squares
        linear[i] -= np.einsum("nqd,nq->nd", roots[pattern], white)
    # One product for the linear terms of all rows and the factors of all patterns
    n_columns, n_points = points.columns.shape
    n_linear = len(own) * len(local)
    left = np.concatenate([linear.reshape(-1, n_columns), roots.reshape(-1, n_columns)])
    product = left @ points.columns
    shared = _point_terms(product[n_linear:], weights[first], points)
    found = product[:n_linear].reshape(len(own), len(local), n_points)
    found += constants
    found += shared[pattern]
    values[own] = found


def _point_terms(white: FloatArray, weights: FloatArray, points: _CentredPoints) -> FloatArray:
    """½ |T s|² - ½ Σ_j weights_j s_j² for each pattern and point, shape (P, m), given T s."""
    np.square(white, out=white)
    result = white.reshape(len(weights), -1, white.shape[1]).sum(axis=1)
    result -= weights @ points.squares
    result *= 0.5
    return np.asarray(result)
