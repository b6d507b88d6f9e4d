"""Kernels that count mismatches: for categorical columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import numpy as np
from scipy.spatial.distance import cdist

from skcircuits.kernels.families._univariate import MismatchFactor
from skcircuits.kernels.families.base import KernelFamily, check_positive
from skcircuits.protocols import FloatArray

__all__ = ["Delta", "Hamming"]


class _MismatchKernel(KernelFamily):
    """A power of the number of columns in which two rows differ."""

    @property
    @abstractmethod
    def penalty(self) -> float:
        """Factor for each mismatch."""

    def _factor(self) -> MismatchFactor:
        return MismatchFactor(self.penalty)

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

    _parameters = ("scale", "variables")

    def __init__(self, scale: float = 1.0, variables: Sequence[int] | None = None) -> None:
        super().__init__(variables)
        self.scale = check_positive("scale", scale)

    @property
    def penalty(self) -> float:
        """Factor for each mismatch."""
        return float(np.exp(-1.0 / self.scale))


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

    _parameters = ("variables",)

    def __init__(self, variables: Sequence[int] | None = None) -> None:
        super().__init__(variables)

    @property
    def penalty(self) -> float:
        """Factor for each mismatch."""
        return 0.0
