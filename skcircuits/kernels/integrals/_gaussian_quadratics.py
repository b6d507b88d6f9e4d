"""Quadratic forms of many points in the inverse blocks that missing patterns pick.

With P the block of Lambda + 2 G at the missing columns of a pattern, an expected RBF
kernel needs t_mᵀ P⁻¹ t_m for every pattern and point. Three ways lead there, and
:class:`ScaledPoints` holds what the points contribute to each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._patterns import PatternGroup
from skcircuits.numerics._small_cholesky import (
    cholesky,
    gather_symmetric,
    gram_of_lower,
    invert_lower,
)
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["MAX_PRODUCT_COLUMNS", "ScaledPoints", "product_coefficients", "quadratic_forms"]

# Up to this many columns one matrix product over the d (d + 1) / 2 products of
# coordinates is faster than a triangular product per pattern.
MAX_PRODUCT_COLUMNS = 22
_BLOCK_BYTES = 1 << 22  # gathered points of a block stay in the cache
_BAND = 8  # triangular products skip the upper triangle in bands of so many rows


@dataclass(frozen=True, eq=False)
class ScaledPoints:
    """Points as the quadratic forms need them.

    Parameters
    ----------
    stack : GaussianStack
        K Gaussians over d columns.
    scaled : ndarray of shape (K, m, d)
        The vectors t = G (s - mu) of m points under each component.
    gammas : ndarray of shape (d,)
        The diagonal of G.
    """

    stack: GaussianStack
    scaled: FloatArray
    gammas: FloatArray

    @cached_property
    def products(self) -> FloatArray:
        """Products t_i t_j with i >= j, shape (K, m, d (d + 1) / 2)."""
        i, j = np.tril_indices(self.stack.n_columns)
        return self.scaled[:, :, i] * self.scaled[:, :, j]

    @cached_property
    def columns(self) -> FloatArray:
        """The points by column, shape (K, d, m)."""
        return np.ascontiguousarray(self.scaled.transpose(0, 2, 1))

    @cached_property
    def shifts(self) -> FloatArray:
        """What the points of each component differ by from the shared ones, shape (K, d)."""
        return self.gammas * (self.stack.means.mean(axis=0) - self.stack.means)

    @cached_property
    def shared(self) -> FloatArray:
        """Points about the mean of the means by column, after a row of ones, (d + 1, m)."""
        columns = self.columns[0] - self.shifts[0][:, None]
        return np.vstack([np.ones(columns.shape[1]), columns])

    @cached_property
    def complement(self) -> FloatArray:
        """The inverse H of Lambda + 2 G, shape (K, d, d)."""
        return np.asarray(np.linalg.inv(self.stack.precisions + 2.0 * np.diag(self.gammas)))

    @cached_property
    def turned(self) -> FloatArray:
        """H t by column, shape (K, d, m)."""
        return self.complement @ self.columns

    @cached_property
    def norms(self) -> FloatArray:
        """The full quadratic forms tᵀ H t, shape (K, m)."""
        return np.einsum("kdm,kdm->km", self.columns, self.turned)


def product_coefficients(
    group: PatternGroup, roots: FloatArray, shape: tuple[int, int]
) -> FloatArray:
    """Coefficients of the products of coordinates in the quadratic forms.

    Parameters
    ----------
    group : PatternGroup
        P patterns with n_missing missing cells each.
    roots : ndarray of shape (n_missing, n_missing, K * P)
        Roots W of the inverse blocks P⁻¹ = WᵀW, components slowest.
    shape : tuple of int
        (K, d).

    Returns
    -------
    ndarray of shape (K, P, d (d + 1) / 2)
        In the order of ``np.tril_indices(d)``.
    """
    n_components, n_columns = shape
    i, j = np.tril_indices(len(roots))
    values = gram_of_lower(roots)[i, j] * np.where(i == j, 1.0, 2.0)[:, None]
    result = np.zeros((n_components, group.n_patterns, n_columns * (n_columns + 1) // 2))
    # the columns of a pattern ascend, so that (i, j) stays in the lower triangle
    row, column = group.missing[:, i], group.missing[:, j]
    result[:, np.arange(group.n_patterns)[:, None], row * (row + 1) // 2 + column] = values.reshape(
        len(i), n_components, -1
    ).transpose(1, 2, 0)
    return result


def quadratic_forms(
    points: ScaledPoints, group: PatternGroup, roots: FloatArray
) -> Iterator[tuple[PatternGroup, FloatArray]]:
    """Evaluate t_mᵀ P⁻¹ t_m, block by block of patterns.

    Parameters
    ----------
    points : ScaledPoints
        m points under K components.
    group : PatternGroup
        P patterns with n_missing missing cells each.
    roots : ndarray of shape (n_missing, n_missing, K * P)
        Roots W of the inverse blocks P⁻¹ = WᵀW, components slowest.

    Yields
    ------
    block : PatternGroup
        The next p patterns and their rows.
    forms : ndarray of shape (K, p, m)
        Their quadratic forms.
    """
    n_components, n_points, n_columns = points.scaled.shape
    n_missing, n_observed = group.missing.shape[1], group.observed.shape[1]
    if n_columns <= MAX_PRODUCT_COLUMNS:
        left = product_coefficients(group, roots, (n_components, n_columns))
        right = points.products.transpose(0, 2, 1)
        for patterns, block in _pattern_blocks(group, n_components * n_points):
            yield block, left[:, patterns] @ right
    elif n_missing <= n_observed:
        left = _with_shifts(_by_pattern(roots, n_components), points.shifts, group)
        for patterns, block in _pattern_blocks(group, (n_missing + n_components) * n_points):
            ones_first = np.pad(block.missing + 1, ((0, 0), (1, 0)))
            yield block, _squared_shared_products(left[patterns], points.shared[ones_first])
    else:
        left = _by_pattern(_observed_roots(points.complement, group.observed), n_components)
        for patterns, block in _pattern_blocks(group, n_components * (n_observed + 1) * n_points):
            vectors = points.turned[:, block.observed]
            forms = _squared_lower_products(left[:, patterns], vectors)
            yield block, np.subtract(points.norms[:, None], forms, out=forms)


def _pattern_blocks(
    group: PatternGroup, numbers_per_pattern: int
) -> Iterator[tuple[slice, PatternGroup]]:
    """Cut a group into blocks whose temporaries stay in the cache."""
    n_patterns = max(1, _BLOCK_BYTES // (16 * numbers_per_pattern))
    for i, block in enumerate(group.blocks(n_patterns)):
        yield slice(i * n_patterns, i * n_patterns + block.n_patterns), block


def _by_pattern(matrices: FloatArray, n_components: int) -> FloatArray:
    """Rearrange (m, m, K * P) to (K, P, m, m)."""
    size, _, n_cases = matrices.shape
    shape = (size, size, n_components, n_cases // n_components)
    return np.ascontiguousarray(matrices.reshape(shape).transpose(2, 3, 0, 1))


def _with_shifts(lower: FloatArray, shifts: FloatArray, group: PatternGroup) -> FloatArray:
    """Join W δ and W for points t + δ: (K, P, m, m) matrices become (P, K, m, 1 + m)."""
    shifted = lower @ shifts[:, group.missing][..., None]
    joined = np.concatenate([shifted, lower], axis=-1)
    return np.ascontiguousarray(joined.transpose(1, 0, 2, 3))


def _squared_shared_products(lower: FloatArray, vectors: FloatArray) -> FloatArray:
    """Squared norms |W t|² of (p, K, m, 1 + m) matrices and shared (p, 1 + m, n) vectors."""
    n_patterns, n_components, size, _ = lower.shape
    total = np.zeros((n_patterns, n_components, vectors.shape[2]))
    for start in range(0, size, _BAND):
        stop = min(start + _BAND, size)
        # the rows of all components make one taller matrix
        rows = lower[:, :, start:stop, : stop + 1].reshape(n_patterns, -1, stop + 1)
        product = rows @ vectors[:, : stop + 1]
        product = product.reshape(n_patterns, n_components, stop - start, -1)
        total += np.einsum("pkbn,pkbn->pkn", product, product)
    return total.transpose(1, 0, 2)


def _observed_roots(complement: FloatArray, observed: IntArray) -> FloatArray:
    """Roots of the inverses of H_oo, shape (n_observed, n_observed, K * P)."""
    n_components, n_patterns = len(complement), len(observed)
    index = np.tile(observed.T, n_components)
    component = np.repeat(np.arange(n_components), n_patterns)
    return invert_lower(cholesky(gather_symmetric(complement, index, component)))


def _squared_lower_products(lower: FloatArray, vectors: FloatArray) -> FloatArray:
    """Squared norms |W t|² of (K, p, m, m) matrices W and (K, p, m, n) vectors t."""
    product = np.empty_like(vectors)
    for start in range(0, lower.shape[2], _BAND):
        stop = start + _BAND
        np.matmul(
            lower[:, :, start:stop, :stop], vectors[:, :, :stop], out=product[:, :, start:stop]
        )
    return np.einsum("kpdm,kpdm->kpm", product, product)
