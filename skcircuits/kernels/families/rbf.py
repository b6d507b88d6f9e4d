"""The Gaussian radial basis function kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from skcircuits.kernels.families._univariate import RBFFactor
from skcircuits.kernels.families.base import KernelFamily, check_positive
from skcircuits.protocols import FloatArray

__all__ = ["RBF"]

# γ x² up to which x² - 2xy + y² may cancel: rounding then changes a kernel value by 1e-12.
LARGEST_REACH = 1e3


class RBF(KernelFamily):
    """exp(-γ ‖x - y‖²).

    Parameters
    ----------
    gamma : float, default=1.0
        Positive; inverse squared units of the columns.
    variables : sequence of int, default=None
        Columns the kernel looks at; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import RBF
    >>> RBF(gamma=0.5)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.1353]])
    """

    _parameters = ("gamma", "variables")

    def __init__(self, gamma: float = 1.0, variables: Sequence[int] | None = None) -> None:
        super().__init__(variables)
        self.gamma = check_positive("gamma", gamma)

    def _factor(self) -> RBFFactor:
        return RBFFactor(self.gamma)

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        distances = _squared_distances(X, Y, self.gamma)
        distances *= -self.gamma
        return np.exp(distances, out=distances)


def _squared_distances(X: FloatArray, Y: FloatArray, gamma: float) -> FloatArray:
    """Squared distances of all pairs, accurate next to 1/γ."""
    # Centred first: what cancels in x² - 2xy + y² is then small.
    center = Y.mean(axis=0) if len(Y) else 0.0
    near_X, near_Y = X - center, Y - center
    squares_X = np.einsum("ij,ij->i", near_X, near_X)
    squares_Y = np.einsum("ij,ij->i", near_Y, near_Y)
    reach = max(squares_X.max(initial=0.0), squares_Y.max(initial=0.0))
    if not gamma * reach < LARGEST_REACH:  # also where a square overflows
        return cdist(X, Y, metric="sqeuclidean")
    distances = (-2.0 * near_X) @ near_Y.T
    distances += squares_X[:, None]
    distances += squares_Y
    return np.maximum(distances, 0.0, out=distances)
