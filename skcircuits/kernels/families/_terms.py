"""Kernels in the form that integrals need: sums of terms that split along any partition.

A term is a product of one factor per variable, times powers of sums of x_j y_j when
polynomial kernels take part. Over a scope S it is the array of

    P_i(S) = Π_{j in S} f_j(x_j, y_j) · (Σ_{j in S} x_j y_j)^i,    i = 0, ..., d

(one axis per power sum), and two disjoint scopes combine by the binomial theorem. A plain
product kernel is the case without power sums: one number, combined by a product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import comb

import numpy as np

from skcircuits.kernels.families._univariate import (
    ConstantFactor,
    Factor,
    MonomialFactor,
    multiply_factors,
)
from skcircuits.protocols import FloatArray

__all__ = ["KernelTerm", "PowerSum", "combine_scopes", "multiply_terms"]


@dataclass(frozen=True)
class PowerSum:
    """Powers of Σ_j x_j y_j.

    Parameters
    ----------
    degree : int
        Highest power.
    variables : tuple of int
        Variables of the sum.
    """

    degree: int
    variables: tuple[int, ...]


@dataclass(frozen=True)
class KernelTerm:
    """A term of a kernel.

    Parameters
    ----------
    coefficients : ndarray of shape (degree_1 + 1, degree_2 + 1, ...)
        Coefficient of each combination of powers; a scalar array without power sums.
    factors : mapping of int to Factor
        Factor of each variable; absent variables have the constant factor.
    power_sums : tuple of PowerSum
        One per axis of the coefficients.
    """

    coefficients: FloatArray
    factors: Mapping[int, Factor] = field(default_factory=dict)
    power_sums: tuple[PowerSum, ...] = ()

    @property
    def is_product(self) -> bool:
        """Whether the term is a number times a product of factors."""
        return not self.power_sums

    @property
    def axis_shape(self) -> tuple[int, ...]:
        """Shape of the axes that powers take."""
        return tuple(power.degree + 1 for power in self.power_sums)

    def factor(self, variable: int) -> Factor:
        """Give the factor of a variable.

        Parameters
        ----------
        variable : int
            Column number.

        Returns
        -------
        Factor
            The constant factor when the term does not look at the variable.
        """
        return self.factors.get(variable, ConstantFactor())

    def leaf_factors(self, variable: int) -> Iterator[tuple[tuple[int, ...], Factor]]:
        """List the combinations of powers a single variable can have.

        Parameters
        ----------
        variable : int
            Column number.

        Yields
        ------
        powers : tuple of int
            Index into the power axes.
        factor : Factor
            f_j · (x_j y_j)^(sum of the powers).
        """
        ranges = [
            range(power.degree + 1) if variable in power.variables else range(1)
            for power in self.power_sums
        ]
        for powers in product(*ranges):
            factor = self.factor(variable)
            if sum(powers):
                factor = multiply_factors(factor, MonomialFactor(sum(powers)))
            yield powers, factor


def multiply_terms(left: KernelTerm, right: KernelTerm) -> KernelTerm:
    """Multiply two terms.

    Parameters
    ----------
    left, right : KernelTerm
        The terms.

    Returns
    -------
    KernelTerm
        Factors multiply per variable; power sums over the same variables merge into one.
    """
    factors = dict(left.factors)
    for variable, factor in right.factors.items():
        factors[variable] = multiply_factors(factors.get(variable, ConstantFactor()), factor)
    coefficients = np.multiply.outer(left.coefficients, right.coefficients)
    sums = list(left.power_sums + right.power_sums)
    for position in range(len(left.power_sums), len(sums)):
        twin = _position_of_twin(left.power_sums, sums[position])
        if twin is not None:
            coefficients, sums = _merge_axes(coefficients, sums, twin, position)
            return KernelTerm(coefficients, factors, tuple(sums))
    return KernelTerm(coefficients, factors, tuple(sums))


def _position_of_twin(sums: tuple[PowerSum, ...], wanted: PowerSum) -> int | None:
    """Find a power sum over the same variables."""
    same = [i for i, power in enumerate(sums) if power.variables == wanted.variables]
    return same[0] if same else None


def _merge_axes(
    coefficients: FloatArray, sums: list[PowerSum], first: int, second: int
) -> tuple[FloatArray, list[PowerSum]]:
    """Multiply two polynomials in one sum: the axes convolve."""
    moved = np.moveaxis(coefficients, (first, second), (0, 1))
    n_first, n_second = moved.shape[:2]
    merged = np.zeros((n_first + n_second - 1, *moved.shape[2:]))
    for i in range(n_first):
        merged[i : i + n_second] += moved[i]
    total = PowerSum(n_first + n_second - 2, sums[first].variables)
    kept = [power for i, power in enumerate(sums) if i not in (first, second)]
    return merged, [total, *kept]


def combine_scopes(left: FloatArray, right: FloatArray, term: KernelTerm) -> FloatArray:
    """Combine the values of two disjoint scopes.

    Parameters
    ----------
    left, right : ndarray of shape (*axis_shape, ...)
        Values of both scopes, the power axes of the term first.
    term : KernelTerm
        The term.

    Returns
    -------
    ndarray of shape (*axis_shape, ...)
        P_i(S ∪ T) = Σ_l C(i, l) P_l(S) P_{i-l}(T) along every power axis.
    """
    if term.is_product:
        return left * right
    result = np.zeros(np.broadcast_shapes(left.shape, right.shape))
    for total in np.ndindex(*term.axis_shape):
        for part in product(*(range(power + 1) for power in total)):
            rest = tuple(power - taken for power, taken in zip(total, part))
            n_ways = np.prod([comb(power, taken) for power, taken in zip(total, part)])
            result[total] += n_ways * left[part] * right[rest]
    return result
