"""The Gaussian radial basis function kernel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from skcircuits.kernels.base import KernelFamily, check_positive
from skcircuits.kernels.terms import KernelTerm
from skcircuits.kernels.univariate import RBFFactor
from skcircuits.protocols import FloatArray

__all__ = ["RBF"]


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
        factor = RBFFactor(self.gamma)
        return [KernelTerm(np.array(1.0), dict.fromkeys(self._own(variables), factor))]

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        # Centred first: what cancels in x² - 2xy + y² is then small.
        center = Y.mean(axis=0) if len(Y) else 0.0
        X, Y = X - center, Y - center
        distances = (-2.0 * X) @ Y.T
        distances += np.einsum("ij,ij->i", X, X)[:, None]
        distances += np.einsum("ij,ij->i", Y, Y)
        np.maximum(distances, 0.0, out=distances)
        distances *= -self.gamma
        return np.exp(distances, out=distances)
