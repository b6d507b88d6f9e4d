"""Gaussians with low-rank plus diagonal covariances: what a row says about their factors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.exceptions import must
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._patterns import distinct_patterns
from skcircuits.numerics._small_cholesky import (
    BLOCK_BYTES,
    cholesky,
    invert_lower,
    log_diagonal,
    multiply,
    multiply_transposed,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["FactorBlock", "FactorStack", "factor_blocks"]


class FactorStack(GaussianStack):
    """K Gaussians x = mean_k + W z + e with standard normal factors z and independent noise e.

    Components use G distinct pairs of loadings W (G, d, q) and noise variances (G, d);
    ``shape`` (K,) names the pair of each. Dense covariances are made when asked for.
    """

    def __init__(
        self,
        means: FloatArray,
        loadings: FloatArray,
        noise_variances: FloatArray,
        shape: IntArray | None = None,
    ) -> None:
        """Check the shapes; freeze contiguous copies in double precision."""
        arrays = [
            np.array(a, dtype=np.float64, order="C") for a in (means, loadings, noise_variances)
        ]
        self.means, self.loadings, self.noise_variances = arrays
        self.shape = np.arange(len(self.means)) if shape is None else np.asarray(shape)
        n_distinct, n_columns = self.noise_variances.shape
        if (
            self.loadings.shape[:2] != (n_distinct, n_columns)
            or self.means.shape[1:] != (n_columns,)
            or self.shape.shape != (len(self.means),)
        ):
            shapes = tuple(array.shape for array in arrays)
            raise ValueError(
                must(
                    "means, loadings and noise variances",
                    "be (K, d), (G, d, q) and (G, d)",
                    shapes=shapes,
                )
            )
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError(must("means, loadings and noise variances", "be finite"))
        for array in arrays:
            array.flags.writeable = False

    @property
    def n_factors(self) -> int:
        """Number of factors q."""
        return int(self.loadings.shape[2])

    @property
    def distinct_covariances(self) -> FloatArray:
        """Dense covariances W Wᵀ + diag(noise), shape (G, d, d)."""
        return self._dense

    @cached_property
    def _dense(self) -> FloatArray:
        dense: FloatArray = self.loadings @ self.loadings.transpose(0, 2, 1)
        diagonal = np.arange(self.n_columns)
        dense[:, diagonal, diagonal] += self.noise_variances
        return dense

    @cached_property
    def scaled_loadings(self) -> FloatArray:
        """Loadings divided by the noise variances, shape (G, d, q)."""
        return self.loadings / self.noise_variances[:, :, None]

    @cached_property
    def loading_products(self) -> FloatArray:
        """Lower triangles of w_j w_jᵀ / noise_j, shape (G, d, q (q + 1) / 2)."""
        rows, columns = np.tril_indices(self.n_factors)
        return self.scaled_loadings[:, :, rows] * self.loadings[:, :, columns]


@dataclass(frozen=True, eq=False)
class FactorBlock:
    """Factors of some rows given their observed cells.

    Parameters
    ----------
    rows : ndarray of shape (n,)
        Row numbers.
    observed : ndarray of shape (n, d)
        True where a cell is observed.
    pattern : ndarray of shape (n,)
        Pattern of each row.
    roots : ndarray of shape (q, q, G, P)
        Lower triangular R; the covariance of the factors is RᵀR.
    half_log_precisions : ndarray of shape (G, P)
        Half log determinants of their inverses.
    factors : ndarray of shape (K, q, n)
        Conditional means of the factors.
    residuals : ndarray of shape (K, n, d)
        x - mean_k - W E[z] where observed, 0 elsewhere.
    """

    rows: IntArray
    observed: BoolArray
    pattern: IntArray
    roots: FloatArray
    half_log_precisions: FloatArray
    factors: FloatArray
    residuals: FloatArray


def factor_blocks(stack: FactorStack, X: FloatArray) -> Iterator[FactorBlock]:
    """Walk over the rows in blocks that stay in the cache; NaN for missing cells."""
    observed = ~np.isnan(X)
    n_factors, n_components = stack.n_factors, stack.n_components
    per_row = n_components * (stack.n_columns + n_factors) + len(stack.loadings) * n_factors**2
    step = max(64, BLOCK_BYTES // (8 * max(1, per_row)))
    if len(X) <= step:
        yield _factor_block(stack, X, observed, np.arange(len(X)))
        return
    # rows with one pattern come together, so that they share a factorisation
    order = np.argsort(distinct_patterns(observed)[1], kind="stable")
    for start in range(0, len(X), step):
        rows = order[start : start + step]
        yield _factor_block(stack, X[rows], observed[rows], rows)


def _factor_block(
    stack: FactorStack, X: FloatArray, observed: BoolArray, rows: IntArray
) -> FactorBlock:
    """Factorise each pattern once per distinct covariance, then solve for every row."""
    patterns, pattern = distinct_patterns(observed)
    roots, half_log_precisions = _factor_roots(stack, patterns)
    cells = np.where(observed, X, 0.0)
    factors = np.empty((stack.n_components, stack.n_factors, len(X)))
    residuals = np.empty((stack.n_components, *X.shape))
    for k, g in enumerate(stack.shape):
        delta = residuals[k]
        np.multiply(stack.means[k], observed, out=delta)
        np.subtract(cells, delta, out=delta)
        pulled = (delta @ stack.scaled_loadings[g]).T
        own = np.take(roots[:, :, g], pattern, axis=2)
        factors[k] = multiply_transposed(own, multiply(own, pulled))
        explained = factors[k].T @ stack.loadings[g].T
        explained *= observed
        delta -= explained
    return FactorBlock(rows, observed, pattern, roots, half_log_precisions, factors, residuals)


def _factor_roots(stack: FactorStack, patterns: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Roots of (I + Wᵀ diag(observed / noise) W)⁻¹ and half log determinants of the inverses."""
    n_distinct, n_factors = len(stack.loadings), stack.n_factors
    precisions = np.empty((n_factors, n_factors, n_distinct, len(patterns)))
    rows, columns = np.tril_indices(n_factors)
    mask = patterns.astype(np.float64)
    for g in range(n_distinct):
        precisions[rows, columns, g] = stack.loading_products[g].T @ mask.T
    diagonal = np.arange(n_factors)
    precisions[diagonal, diagonal] += 1.0
    lower = cholesky(precisions.reshape(n_factors, n_factors, n_distinct * len(patterns)))
    half_log_precisions = log_diagonal(lower).reshape(n_distinct, len(patterns))
    return invert_lower(lower).reshape(precisions.shape), half_log_precisions
