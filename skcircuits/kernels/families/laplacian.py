"""The Laplacian kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from skcircuits.kernels.families._univariate import LaplacianFactor
from skcircuits.kernels.families.base import KernelFamily, check_positive
from skcircuits.protocols import FloatArray

__all__ = ["Laplacian"]


class Laplacian(KernelFamily):
    """exp(-γ ‖x - y‖₁).

    Parameters
    ----------
    gamma : float, default=1.0
        Positive; inverse units of the columns.
    variables : sequence of int, default=None
        Columns the kernel looks at; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import Laplacian
    >>> Laplacian(gamma=0.5)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    _parameters = ("gamma", "variables")

    def __init__(self, gamma: float = 1.0, variables: Sequence[int] | None = None) -> None:
        super().__init__(variables)
        self.gamma = check_positive("gamma", gamma)

    def _factor(self) -> LaplacianFactor:
        return LaplacianFactor(self.gamma)

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        distances = cdist(X, Y, metric="cityblock")
        distances *= -self.gamma
        return np.exp(distances, out=distances)
