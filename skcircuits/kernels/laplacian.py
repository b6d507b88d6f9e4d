"""The Laplacian kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from skcircuits.kernels.base import KernelFamily, check_positive
from skcircuits.kernels.terms import KernelTerm
from skcircuits.kernels.univariate import LaplacianFactor
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

    def __init__(self, gamma: float = 1.0, variables: Sequence[int] | None = None) -> None:
        super().__init__(variables)
        self.gamma = check_positive("gamma", gamma)

    def get_params(self) -> dict[str, Any]:
        """Constructor arguments.

        Returns
        -------
        dict
            Parameters by name.
        """
        return {"gamma": self.gamma, "variables": self.variables}

    def is_positive_definite(self) -> bool:
        """Certify that every Gram matrix is positive semidefinite.

        Returns
        -------
        bool
            True.
        """
        return True

    def terms(self, variables: Sequence[int]) -> list[KernelTerm]:
        """One factor per variable.

        Parameters
        ----------
        variables : sequence of int
            All variables of the table.

        Returns
        -------
        list of KernelTerm
            One term.
        """
        factor = LaplacianFactor(self.gamma)
        return [KernelTerm(np.array(1.0), dict.fromkeys(self._own(variables), factor))]

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        distances = cdist(X, Y, metric="cityblock")
        distances *= -self.gamma
        return np.exp(distances, out=distances)
