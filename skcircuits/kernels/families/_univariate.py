"""Functions of one variable at two rows: the factors of product kernels.

A product kernel is one factor per variable. Factors know their value at two points; rules
that integrate them over input units live in ``expectations``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import reduce

import numpy as np

from skcircuits.protocols import FloatArray

__all__ = [
    "CombinationFactor",
    "ConstantFactor",
    "Factor",
    "LaplacianFactor",
    "MismatchFactor",
    "MonomialFactor",
    "ProductFactor",
    "RBFFactor",
    "multiply_factors",
]


class Factor(ABC):
    """A symmetric function of one variable at two points."""

    @abstractmethod
    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value at broadcast arrays of points."""


@dataclass(frozen=True)
class ConstantFactor(Factor):
    """The value one: the kernel does not look at the variable."""

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Ones of the broadcast shape."""
        return np.ones(np.broadcast_shapes(np.shape(x), np.shape(y)))


@dataclass(frozen=True)
class RBFFactor(Factor):
    """exp(-γ (x - y)²).

    Parameters
    ----------
    gamma : float
        Non-negative.
    """

    gamma: float

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value at broadcast arrays of points."""
        return np.exp(-self.gamma * np.square(np.subtract(x, y)))


@dataclass(frozen=True)
class LaplacianFactor(Factor):
    """exp(-γ |x - y|).

    Parameters
    ----------
    gamma : float
        Non-negative.
    """

    gamma: float

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value at broadcast arrays of points."""
        return np.exp(-self.gamma * np.abs(np.subtract(x, y)))


@dataclass(frozen=True)
class MismatchFactor(Factor):
    """One where both states agree, another value where they differ.

    Parameters
    ----------
    penalty : float
        Value at different states, in [0, 1].
    """

    penalty: float

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value at broadcast arrays of states."""
        return np.where(np.equal(x, y), 1.0, self.penalty)


@dataclass(frozen=True)
class MonomialFactor(Factor):
    """(x y)^m: what linear and polynomial kernels are made of.

    Parameters
    ----------
    degree : int
        Positive.
    """

    degree: int

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value at broadcast arrays of points."""
        return np.multiply(x, y) ** self.degree


@dataclass(frozen=True)
class ProductFactor(Factor):
    """A product of factors of different kinds.

    Parameters
    ----------
    factors : tuple of Factor
        At least two.
    """

    factors: tuple[Factor, ...]

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value at broadcast arrays of points."""
        return reduce(np.multiply, [factor(x, y) for factor in self.factors])


@dataclass(frozen=True)
class CombinationFactor(Factor):
    """A linear combination of factors.

    Parameters
    ----------
    terms : tuple of (float, Factor)
        Coefficients and factors.
    """

    terms: tuple[tuple[float, Factor], ...]

    def __call__(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value at broadcast arrays of points."""
        return reduce(np.add, [weight * factor(x, y) for weight, factor in self.terms])


def multiply_factors(left: Factor, right: Factor) -> Factor:
    """Multiply two factors of one variable; equal kinds stay one factor of that kind.

    Parameters
    ----------
    left, right : Factor
        The factors.

    Returns
    -------
    Factor
        Their product.

    Examples
    --------
    >>> from skcircuits.kernels.families._univariate import RBFFactor, multiply_factors
    >>> multiply_factors(RBFFactor(1.0), RBFFactor(0.5))
    RBFFactor(gamma=1.5)
    """
    if isinstance(left, ConstantFactor):
        return right
    if isinstance(right, ConstantFactor):
        return left
    if isinstance(left, RBFFactor) and isinstance(right, RBFFactor):
        return RBFFactor(left.gamma + right.gamma)
    if isinstance(left, LaplacianFactor) and isinstance(right, LaplacianFactor):
        return LaplacianFactor(left.gamma + right.gamma)
    if isinstance(left, MismatchFactor) and isinstance(right, MismatchFactor):
        return MismatchFactor(left.penalty * right.penalty)
    if isinstance(left, MonomialFactor) and isinstance(right, MonomialFactor):
        return MonomialFactor(left.degree + right.degree)
    if isinstance(left, CombinationFactor):
        return CombinationFactor(
            tuple((weight, multiply_factors(term, right)) for weight, term in left.terms)
        )
    if isinstance(right, CombinationFactor):
        return multiply_factors(right, left)
    return ProductFactor((*_parts(left), *_parts(right)))


def _parts(factor: Factor) -> tuple[Factor, ...]:
    return factor.factors if isinstance(factor, ProductFactor) else (factor,)
