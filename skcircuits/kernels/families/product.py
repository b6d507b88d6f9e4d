"""Kernels that are products of one function of each variable, and powers of inner products."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from math import comb
from typing import ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from skcircuits.exceptions import invalid
from skcircuits.kernels.families.base import (
    KernelFamily,
    KernelStructure,
    Part,
    UnivariateFunction,
    check_positive,
)
from skcircuits.numerics._arrays import is_finite
from skcircuits.protocols import FloatArray

# γ x² up to which x² - 2xy + y² may cancel: rounding then changes a kernel value by 1e-12.
MAX_REACH = 1e3


class DistanceKernel(KernelFamily):
    """exp(-γ d(x, y)) with a distance that adds up over the columns."""

    _is_certified = True
    _parameters = ("gamma", "variables")

    def __init__(self, gamma: float = 1.0, variables: Sequence[int] | None = None) -> None:
        super().__init__(variables)
        self.gamma = check_positive("gamma", gamma)

    @staticmethod
    @abstractmethod
    def _distance(difference: FloatArray) -> FloatArray:
        """Distance in a single variable."""

    @abstractmethod
    def _distances(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Distances of all pairs, shape (n, m), a new array."""

    def univariate(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value over a single variable."""
        with np.errstate(over="ignore"):  # beyond floats the kernel is zero
            return np.exp(-self.gamma * self._distance(np.subtract(x, y)))

    def merge(self, other: UnivariateFunction) -> DistanceKernel | None:
        """Exponents add up."""
        # exp(-a d) exp(-b d) = exp(-(a + b) d): a product stays within the family
        return type(self)(self.gamma + other.gamma) if isinstance(other, type(self)) else None

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        distances = self._distances(X, Y)
        distances *= -self.gamma
        return np.exp(distances, out=distances)


class RBF(DistanceKernel):
    """exp(-γ ‖x - y‖²).

    Parameters
    ----------
    gamma : float, default=1.0
        Positive coefficient, in inverse squared units of the columns.
    variables : sequence of int, default=None
        Columns to which the kernel applies; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import RBF
    >>> RBF(gamma=0.5)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.1353]])
    """

    @staticmethod
    def _distance(difference: FloatArray) -> FloatArray:
        return np.square(difference)

    def _distances(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Squared distances of all pairs, accurate next to 1/γ."""
        # Centred first, so that cancellation in x² - 2xy + y² is small.
        center = Y.mean(axis=0) if len(Y) else 0.0
        near_X, near_Y = X - center, Y - center
        squares_X = np.einsum("ij,ij->i", near_X, near_X)
        squares_Y = np.einsum("ij,ij->i", near_Y, near_Y)
        reach = max(squares_X.max(initial=0.0), squares_Y.max(initial=0.0))
        if not self.gamma * reach < MAX_REACH:  # also where a square overflows
            return cdist(X, Y, metric="sqeuclidean")
        distances = (-2.0 * near_X) @ near_Y.T
        distances += squares_X[:, None]
        distances += squares_Y
        return np.maximum(distances, 0.0, out=distances)


class Laplacian(DistanceKernel):
    """exp(-γ ‖x - y‖₁).

    Parameters
    ----------
    gamma : float, default=1.0
        Positive coefficient, in inverse units of the columns.
    variables : sequence of int, default=None
        Columns to which the kernel applies; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import Laplacian
    >>> Laplacian(gamma=0.5)([[0.0]], [[0.0], [2.0]]).round(4)
    array([[1.    , 0.3679]])
    """

    @staticmethod
    def _distance(difference: FloatArray) -> FloatArray:
        return np.abs(difference)

    def _distances(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        return cdist(X, Y, metric="cityblock")


class MismatchKernel(KernelFamily):
    """A power of the number of columns in which two rows differ."""

    _is_certified = True

    @property
    @abstractmethod
    def penalty(self) -> float:
        """Factor for each mismatch."""

    def univariate(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value over a single variable."""
        return np.where(np.equal(x, y), 1.0, self.penalty)

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        # The mean over no columns is NaN.
        if X.shape[1] == 0:
            return np.ones((len(X), len(Y)))
        # cdist divides by the number of columns, which rounds.
        mismatches = np.rint(cdist(X, Y, metric="hamming") * X.shape[1])
        return self.penalty**mismatches


class Hamming(MismatchKernel):
    """exp(-(number of mismatches) / scale).

    Parameters
    ----------
    scale : float, default=1.0
        Positive number of mismatches by which the kernel decreases by a factor of e.
    variables : sequence of int, default=None
        Columns to which the kernel applies; None for all.

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


class Delta(MismatchKernel):
    """One if two rows are equal, zero otherwise.

    Parameters
    ----------
    variables : sequence of int, default=None
        Columns to which the kernel applies; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import Delta
    >>> Delta()([[0, 1]], [[0, 1], [1, 1]])
    array([[1., 0.]])
    """

    _parameters = ("variables",)

    @property
    def penalty(self) -> float:
        """Factor for each mismatch."""
        return 0.0


class StateKernel(KernelFamily):
    """exp(-‖φ(x) - φ(y)‖²) of one column by squared distances (n_states, n_states) of points φ."""

    _is_certified = True
    _parameters = ("distances", "variables")

    def __init__(self, distances: Sequence[Sequence[float]], variables: Sequence[int]) -> None:
        super().__init__(variables)
        self.distances = tuple(tuple(float(d) for d in row) for row in distances)
        self._values = np.exp(-np.array(self.distances))

    def univariate(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value between states, given by their codes."""
        # Tables of several columns have room for the states of the largest: these weigh nothing
        last = len(self._values) - 1.0
        rows, columns = (np.minimum(codes, last).astype(np.intp) for codes in (x, y))
        return np.asarray(self._values[rows, columns])


class Polynomial(KernelFamily):
    """(x·y + c)^degree.

    Values may be negative. Over a scope, the kernel is represented by the degree + 1 powers of the
    corresponding part of x·y (binomial expansion), so that it is compatible with every
    decomposition.

    Parameters
    ----------
    degree : int, default=3
        Positive.
    c : float, default=1.0
        Non-negative constant.
    variables : sequence of int, default=None
        Columns to which the kernel applies; None for all.

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
            raise invalid("degree of a kernel", "be a positive integer", degree=degree)
        if not (is_finite(c) and c >= 0):
            raise invalid("c of a kernel", "be finite and non-negative", c=c)
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
        Columns to which the kernel applies; None for all.

    Examples
    --------
    >>> from skcircuits.kernels import Linear
    >>> Linear()([[1.0, 2.0]], [[3.0, 1.0]])
    array([[5.]])
    """

    _parameters = ("variables",)

    def __init__(self, variables: Sequence[int] | None = None) -> None:
        super().__init__(degree=1, c=0.0, variables=variables)
