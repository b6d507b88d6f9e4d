"""Linear and polynomial kernels."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb
from typing import ClassVar

import numpy as np

from skcircuits.exceptions import must
from skcircuits.kernels.families._structure import KernelStructure, Part
from skcircuits.kernels.families.base import KernelFamily
from skcircuits.protocols import FloatArray

__all__ = ["Linear", "Polynomial"]


class Polynomial(KernelFamily):
    """(x·y + c)^degree.

    Values may be negative. Over a scope the kernel is represented by the degree + 1 powers of
    the scope's part of x·y (binomial splitting), so it fits to every way of decomposing.

    Parameters
    ----------
    degree : int, default=3
        Positive.
    c : float, default=1.0
        Non-negative constant.
    variables : sequence of int, default=None
        Columns the kernel looks at; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import Polynomial
    >>> Polynomial(degree=2, c=1.0)([[1.0, 2.0]], [[3.0, 1.0]])
    array([[36.]])
    """

    _is_certified = True
    _parameters: ClassVar[tuple[str, ...]] = ("degree", "c", "variables")

    def __init__(
        self, degree: int = 3, c: float = 1.0, variables: Sequence[int] | None = None
    ) -> None:
        super().__init__(variables)
        if isinstance(degree, bool) or not isinstance(degree, int | np.integer) or degree < 1:
            raise ValueError(must("degree of a kernel", "be a positive integer", degree=degree))
        if not (np.isfinite(c) and c >= 0):
            raise ValueError(must("c of a kernel", "be finite and non-negative", c=c))
        self.degree = int(degree)
        self.c = float(c)

    def _part(self, structure: KernelStructure) -> Part:
        inner_product = structure.inner_product(self._own(structure.variables))
        # Binomial theorem; the power zero is the constant one.
        return structure.mixture(
            (comb(self.degree, i) * self.c ** (self.degree - i), inner_product * i)
            for i in range(self.degree + 1)
        )

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return (X @ Y.T + self.c) ** self.degree


class Linear(Polynomial):
    """x·y.

    Parameters
    ----------
    variables : sequence of int, default=None
        Columns the kernel looks at; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 1.0]])
    array([[5.]])
    """

    _parameters = ("variables",)

    def __init__(self, variables: Sequence[int] | None = None) -> None:
        super().__init__(degree=1, c=0.0, variables=variables)
