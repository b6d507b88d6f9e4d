"""Kernels that count mismatches: for categorical columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from skcircuits.kernels.base import KernelFamily, check_positive
from skcircuits.kernels.terms import KernelTerm
from skcircuits.kernels.univariate import MismatchFactor
from skcircuits.protocols import FloatArray

__all__ = ["Delta", "Hamming"]


class _MismatchKernel(KernelFamily):
    """A power of the number of columns in which two rows differ."""

    @property
    def penalty(self) -> float:
        """Factor for each mismatch."""
        raise NotImplementedError

    def is_positive_definite(self) -> bool:
        """Certify that every Gram matrix is positive semidefinite.

        Returns
        -------
        bool
            True: every factor is a mixture of a constant and an equality kernel.
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
        factor = MismatchFactor(self.penalty)
        return [KernelTerm(np.array(1.0), dict.fromkeys(self._own(variables), factor))]

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        if X.shape[1] == 0:
            return np.ones((len(X), len(Y)))
        mismatches = np.rint(cdist(X, Y, metric="hamming") * X.shape[1])
        return self.penalty**mismatches


class Hamming(_MismatchKernel):
    """exp(-(number of mismatches) / scale).

    Parameters
    ----------
    scale : float, default=1.0
        Positive; the number of mismatches that divides the value by e.
    variables : sequence of int, default=None
        Columns the kernel looks at; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import Hamming
    >>> Hamming(scale=2.0)([[0, 1]], [[0, 1], [1, 0]]).round(4)
    array([[1.    , 0.3679]])
    """

    def __init__(self, scale: float = 1.0, variables: Sequence[int] | None = None) -> None:
        super().__init__(variables)
        self.scale = check_positive("scale", scale)

    @property
    def penalty(self) -> float:
        """Factor for each mismatch."""
        return float(np.exp(-1.0 / self.scale))

    def get_params(self) -> dict[str, Any]:
        """Constructor arguments.

        Returns
        -------
        dict
            Parameters by name.
        """
        return {"scale": self.scale, "variables": self.variables}


class Delta(_MismatchKernel):
    """One where two rows are equal, zero elsewhere.

    Parameters
    ----------
    variables : sequence of int, default=None
        Columns the kernel looks at; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import Delta
    >>> Delta()([[0, 1]], [[0, 1], [1, 1]])
    array([[1., 0.]])
    """

    def __init__(self, variables: Sequence[int] | None = None) -> None:
        super().__init__(variables)

    @property
    def penalty(self) -> float:
        """Factor for each mismatch."""
        return 0.0

    def get_params(self) -> dict[str, Any]:
        """Constructor arguments.

        Returns
        -------
        dict
            Parameters by name.
        """
        return {"variables": self.variables}
