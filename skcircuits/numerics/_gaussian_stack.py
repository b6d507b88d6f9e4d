"""A stack of multivariate Gaussians over the same columns."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["GaussianStack"]


class GaussianStack:
    """K Gaussians with means (K, d) over G distinct covariances (G, d, d).

    ``shape`` (K,) names the covariance of each; by default each has its own. Factors are
    computed once per distinct covariance.
    """

    means: FloatArray
    shape: IntArray

    def __init__(
        self, means: FloatArray, covariances: FloatArray, shape: IntArray | None = None
    ) -> None:
        """Check the shapes; freeze contiguous copies in double precision."""
        means = np.array(means, dtype=np.float64, order="C")
        covariances = np.array(covariances, dtype=np.float64, order="C")
        n_distinct = len(means) if shape is None else len(covariances)
        if means.ndim != 2 or covariances.shape != (n_distinct, *(means.shape[1],) * 2):
            shapes = (means.shape, covariances.shape)
            raise ValueError(
                must("means and covariances", "be (K, d) and (K, d, d)", shapes=shapes)
            )
        if not (np.isfinite(means).all() and np.isfinite(covariances).all()):
            raise ValueError(must("means and covariances", "be finite"))
        means.flags.writeable = covariances.flags.writeable = False
        self.means = means
        self._covariances = covariances
        self.shape = np.arange(len(means)) if shape is None else np.asarray(shape)

    @property
    def distinct_covariances(self) -> FloatArray:
        """The covariances that differ, shape (G, d, d)."""
        return self._covariances

    @property
    def n_components(self) -> int:
        """Number of Gaussians."""
        return self.means.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of columns of each Gaussian."""
        return self.means.shape[1]

    @property
    def is_shared(self) -> bool:
        """Whether some Gaussians have one covariance in common."""
        return len(self.distinct_covariances) < self.n_components

    @property
    def distinct(self) -> GaussianStack:
        """The distinct covariances as a stack of their own, centred at zero."""
        if not self.is_shared:
            return self
        return self._distinct

    @cached_property
    def _distinct(self) -> GaussianStack:
        n_distinct = len(self.distinct_covariances)
        return GaussianStack(np.zeros((n_distinct, self.n_columns)), self.distinct_covariances)

    def _spread(self, values: FloatArray) -> FloatArray:
        """Repeat what belongs to a distinct covariance for each of its Gaussians."""
        return values[self.shape] if self.is_shared else values

    @cached_property
    def covariances(self) -> FloatArray:
        """Covariances, shape (K, d, d)."""
        return self._spread(self.distinct_covariances)

    @cached_property
    def _cholesky(self) -> FloatArray:
        """Lower Cholesky factors of the distinct covariances."""
        try:
            return np.asarray(np.linalg.cholesky(self.distinct_covariances))
        except np.linalg.LinAlgError:
            smallest = float(np.linalg.eigvalsh(self.distinct_covariances).min())
            raise ValueError(
                must(
                    "covariances",
                    "be positive definite",
                    "Add a small positive number to the diagonal.",
                    smallest_eigenvalue=smallest,
                )
            ) from None

    @cached_property
    def _whitening(self) -> FloatArray:
        # pivoting never moves a row of an upper triangle: this is back substitution
        upper = np.linalg.inv(self._cholesky.transpose(0, 2, 1))
        return np.ascontiguousarray(upper.transpose(0, 2, 1))

    @property
    def cholesky(self) -> FloatArray:
        """Lower Cholesky factors of the covariances, shape (K, d, d)."""
        return self._spread(self._cholesky)

    @cached_property
    def whitening(self) -> FloatArray:
        """Inverses of the Cholesky factors, lower triangular, shape (K, d, d)."""
        return self._spread(self._whitening)

    @cached_property
    def precisions(self) -> FloatArray:
        """Inverse covariances, shape (K, d, d)."""
        return self._spread(self._whitening.transpose(0, 2, 1) @ self._whitening)

    @cached_property
    def log_determinants(self) -> FloatArray:
        """Log determinants of the covariances, shape (K,)."""
        diagonals: FloatArray = np.diagonal(self._cholesky, axis1=1, axis2=2)
        return self._spread(2.0 * np.log(diagonals).sum(axis=1))
