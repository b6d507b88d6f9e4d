"""A stack of multivariate Gaussians over the same columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray

__all__ = ["GaussianStack"]


@dataclass(frozen=True, eq=False)
class GaussianStack:
    """Gaussians N(mean_k, covariance_k), k = 1..K, with their factors.

    Parameters
    ----------
    means : ndarray of shape (K, d)
        Means.
    covariances : ndarray of shape (K, d, d)
        Positive definite covariances.

    Raises
    ------
    ValueError
        If shapes do not fit, a number is not finite or a covariance is not positive
        definite.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.numerics._gaussian_stack import GaussianStack
    >>> GaussianStack(np.zeros((1, 2)), np.eye(2)[None]).log_determinants
    array([0.])
    """

    means: FloatArray
    covariances: FloatArray

    def __post_init__(self) -> None:
        """Check the shapes; freeze contiguous copies in double precision."""
        means = np.array(self.means, dtype=np.float64, order="C")
        covariances = np.array(self.covariances, dtype=np.float64, order="C")
        if means.ndim != 2 or covariances.shape != (*means.shape, means.shape[1]):
            shapes = (means.shape, covariances.shape)
            raise ValueError(
                must("means and covariances", "be (K, d) and (K, d, d)", shapes=shapes)
            )
        if not (np.isfinite(means).all() and np.isfinite(covariances).all()):
            raise ValueError(must("means and covariances", "be finite"))
        means.flags.writeable = covariances.flags.writeable = False
        object.__setattr__(self, "means", means)
        object.__setattr__(self, "covariances", covariances)

    @property
    def n_components(self) -> int:
        """Number of Gaussians."""
        return self.means.shape[0]

    @property
    def n_columns(self) -> int:
        """Number of columns of each Gaussian."""
        return self.means.shape[1]

    @cached_property
    def cholesky(self) -> FloatArray:
        """Lower Cholesky factors of the covariances, shape (K, d, d)."""
        try:
            return np.asarray(np.linalg.cholesky(self.covariances))
        except np.linalg.LinAlgError:
            smallest = float(np.linalg.eigvalsh(self.covariances).min())
            raise ValueError(
                must(
                    "covariances",
                    "be positive definite",
                    "Add a small positive number to the diagonal.",
                    smallest_eigenvalue=smallest,
                )
            ) from None

    @cached_property
    def whitening(self) -> FloatArray:
        """Inverses of the Cholesky factors, lower triangular, shape (K, d, d)."""
        # pivoting never moves a row of an upper triangle: this is back substitution
        upper = np.linalg.inv(self.cholesky.transpose(0, 2, 1))
        return np.ascontiguousarray(upper.transpose(0, 2, 1))

    @cached_property
    def precisions(self) -> FloatArray:
        """Inverse covariances, shape (K, d, d)."""
        return self.whitening.transpose(0, 2, 1) @ self.whitening

    @cached_property
    def log_determinants(self) -> FloatArray:
        """Log determinants of the covariances, shape (K,)."""
        diagonals: FloatArray = np.diagonal(self.cholesky, axis1=1, axis2=2)
        return 2.0 * np.log(diagonals).sum(axis=1)
