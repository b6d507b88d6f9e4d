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

__all__ = ["MAX_PRODUCT_COLUMNS", "ScaledPoints", "quadratic_forms"]

# Up to this many columns one matrix product over the d (d + 1) / 2 products of
# coordinates is faster than a triangular product per pattern.
MAX_PRODUCT_COLUMNS = 22
_BLOCK_BYTES = 1 << 22  # gathered points of a block stay in the cache
_FORM_BYTES = 1 << 22  # forms of many patterns at once, which products need
_BAND = 8  # triangular products skip the upper triangle in bands of so many rows


@dataclass(frozen=True, eq=False)
class ScaledPoints:
    """Points as the quadratic forms need them.

    Parameters
    ----------
    stack : GaussianStack
        K Gaussians over d columns, for their covariances.
    centres : ndarray of shape (K, d)
        What points are centred at under each of them.
    points : ndarray of shape (m, d)
        The points s.
    gammas : ndarray of shape (d,)
        The diagonal of G.
    """

    stack: GaussianStack
    centres: FloatArray
    points: FloatArray
    gammas: FloatArray

    @cached_property
    def scaled(self) -> FloatArray:
        """The vectors t = G (s - centre), shape (K, m, d)."""
        return self.gammas * (self.points - self.centres[:, None])

    @cached_property
    def distances(self) -> FloatArray:
        """The squared distances tᵀ (s - centre), shape (K, m)."""
        return np.einsum("kmd,kmd->km", self.scaled, self.points - self.centres[:, None])

    @cached_property
    def products(self) -> FloatArray:
        """Products t_i t_j with i >= j, then the distances, shape (K, d (d + 1) / 2 + 1, m)."""
        i, j = np.tril_indices(self.stack.n_columns)
        products = self.columns[:, i] * self.columns[:, j]
        return np.concatenate([products, self.distances[:, None]], axis=1)

    @cached_property
    def columns(self) -> FloatArray:
        """The points by column, shape (K, d, m)."""
        return np.ascontiguousarray(self.scaled.transpose(0, 2, 1))

    @cached_property
    def shifts(self) -> FloatArray:
        """What the points of each component differ by from the shared ones, shape (K, d)."""
        return self.gammas * (self.centres.mean(axis=0) - self.centres)

    @cached_property
    def shared(self) -> FloatArray:
        """Points about the mean of the centres by column, after a row of ones, (d + 1, m)."""
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


def quadratic_forms(
    points: ScaledPoints, group: PatternGroup, roots: FloatArray
) -> Iterator[tuple[PatternGroup, FloatArray]]:
    """Evaluate 2 t_mᵀ P⁻¹ t_m - tᵀ (s - centre), block by block of patterns.

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
        What depends on these patterns and the points alone.
    """
    n_components, n_points, n_columns = points.scaled.shape
    size = len(roots)
    by_pattern = roots.reshape(size, size, n_components, group.n_patterns)
    step = max(1, _FORM_BYTES // (8 * n_components * max(1, n_points)))
    for number, block in enumerate(group.blocks(step)):
        own = by_pattern[..., number * step : number * step + block.n_patterns]
        if n_columns <= MAX_PRODUCT_COLUMNS:
            yield block, _coefficients(block, own, n_columns) @ points.products
            continue
        forms = np.empty((n_components, block.n_patterns, n_points))
        write = _write_missing if size <= block.observed.shape[1] else _write_complement
        write(points, block, own, forms)
        forms *= 2.0
        forms -= points.distances[:, None]
        yield block, forms


def _coefficients(group: PatternGroup, roots: FloatArray, n_columns: int) -> FloatArray:
    """Coefficients of the products of coordinates and of the distance, (K, P, products + 1).

    The roots have the shape (n_missing, n_missing, K, P).
    """
    size, _, n_components, n_patterns = roots.shape
    i, j = np.tril_indices(size)
    inverses = gram_of_lower(roots.reshape(size, size, -1))[i, j]
    inverses *= np.where(i == j, 2.0, 4.0)[:, None]
    result = np.zeros((n_components, n_patterns, n_columns * (n_columns + 1) // 2 + 1))
    result[:, :, -1] = -1.0
    # the columns of a pattern ascend, so that (i, j) stays in the lower triangle
    row, column = group.missing[:, i], group.missing[:, j]
    values = inverses.reshape(len(i), n_components, n_patterns).transpose(1, 2, 0)
    result[:, np.arange(n_patterns)[:, None], row * (row + 1) // 2 + column] = values
    return result


def _write_missing(
    points: ScaledPoints, group: PatternGroup, roots: FloatArray, forms: FloatArray
) -> None:
    """Evaluate t_mᵀ P⁻¹ t_m through the roots of P⁻¹, shape (n_missing, n_missing, K, P)."""
    left = _with_shifts(_by_pattern(roots), points.shifts, group)
    numbers = (len(roots) + len(forms)) * forms.shape[2]
    for patterns, block in _pattern_blocks(group, numbers):
        ones_first = np.pad(block.missing + 1, ((0, 0), (1, 0)))
        forms[:, patterns] = _squared_shared_products(left[patterns], points.shared[ones_first])


def _write_complement(
    points: ScaledPoints, group: PatternGroup, roots: FloatArray, forms: FloatArray
) -> None:
    """Evaluate t_mᵀ P⁻¹ t_m through the inverse of Λ + 2 G at the observed columns."""
    observed = _observed_roots(points.complement, group.observed)
    left = _by_pattern(observed.reshape(*observed.shape[:2], len(forms), group.n_patterns))
    numbers = len(forms) * (len(observed) + 1) * forms.shape[2]
    for patterns, block in _pattern_blocks(group, numbers):
        squares = _squared_lower_products(left[:, patterns], points.turned[:, block.observed])
        np.subtract(points.norms[:, None], squares, out=forms[:, patterns])


def _pattern_blocks(
    group: PatternGroup, numbers_per_pattern: int
) -> Iterator[tuple[slice, PatternGroup]]:
    """Cut a group into blocks whose temporaries stay in the cache."""
    n_patterns = max(1, _BLOCK_BYTES // (16 * numbers_per_pattern))
    for i, block in enumerate(group.blocks(n_patterns)):
        yield slice(i * n_patterns, i * n_patterns + block.n_patterns), block


def _by_pattern(matrices: FloatArray) -> FloatArray:
    """Rearrange (m, m, K, P) to (K, P, m, m)."""
    return np.ascontiguousarray(matrices.transpose(2, 3, 0, 1))


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
