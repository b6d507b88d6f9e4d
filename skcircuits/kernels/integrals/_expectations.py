"""Expected factors under input units: the input values of an expected-kernel pass.

The capability table of the package lives in these rules. ``univariate_points`` and
``univariate_pairs`` are registered per layer type; a combination of a layer and a factor
without a closed form raises ``CircuitPropertyError`` with the way out.
"""

from __future__ import annotations

from functools import singledispatch
from math import comb, factorial

import numpy as np

from skcircuits.circuits.inputs import DiscreteLayer, GaussianLayer, InputLayer
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.kernels.families._univariate import (
    CombinationFactor,
    ConstantFactor,
    Factor,
    LaplacianFactor,
    MonomialFactor,
    RBFFactor,
)
from skcircuits.kernels.integrals._gaussian_univariate import expected_laplacian, expected_rbf
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["no_closed_form", "univariate_pairs", "univariate_points"]


def univariate_points(
    layer: InputLayer, units: IntArray, factor: Factor, points: FloatArray
) -> FloatArray:
    """Integrate a factor against points: E[f(X, s)] for units over one variable.

    Parameters
    ----------
    layer : InputLayer
        A layer of univariate units.
    units : ndarray of shape (n_units,)
        Units of one variable.
    factor : Factor
        The kernel's factor of that variable.
    points : ndarray of shape (m,)
        Complete values of the variable.

    Returns
    -------
    ndarray of shape (n_units, m)
        Expected values.

    Raises
    ------
    CircuitPropertyError
        If the pair of family and factor has no closed form.
    """
    if isinstance(factor, ConstantFactor):
        return np.ones((len(units), len(points)))
    if isinstance(factor, CombinationFactor):
        terms = [w * univariate_points(layer, units, f, points) for w, f in factor.terms]
        return np.sum(terms, axis=0)
    return _points(layer, units, factor, points)


def univariate_pairs(
    left: InputLayer, left_units: IntArray, right: InputLayer, right_units: IntArray, factor: Factor
) -> FloatArray:
    """Integrate a factor against two units: E[f(X, Y)], X and Y independent.

    Parameters
    ----------
    left : InputLayer
        A layer of univariate units.
    left_units : ndarray of shape (n_left_units,)
        Units of one variable.
    right : InputLayer
        A layer of univariate units.
    right_units : ndarray of shape (n_right_units,)
        Units of the same variable.
    factor : Factor
        The kernel's factor of that variable.

    Returns
    -------
    ndarray of shape (n_left_units, n_right_units)
        Expected values.

    Raises
    ------
    CircuitPropertyError
        If the pair of families and the factor have no closed form.
    """
    if isinstance(factor, ConstantFactor):
        return np.ones((len(left_units), len(right_units)))
    if isinstance(factor, CombinationFactor):
        terms = [
            w * univariate_pairs(left, left_units, right, right_units, f) for w, f in factor.terms
        ]
        return np.sum(terms, axis=0)
    if type(left) is not type(right):
        raise no_closed_form(left, factor, right)
    return _pairs(left, left_units, right, right_units, factor)


def no_closed_form(
    layer: InputLayer, factor: Factor, other: InputLayer | None = None
) -> CircuitPropertyError:
    """Word the error for a combination outside the capability table.

    Parameters
    ----------
    layer : InputLayer
        Layer of the units.
    factor : Factor
        Factor that cannot be integrated.
    other : InputLayer, default=None
        Layer of the units on the other side.

    Returns
    -------
    CircuitPropertyError
        To be raised.
    """
    families = type(layer).__name__.removesuffix("Layer")
    if other is not None and type(other) is not type(layer):
        families += " and " + type(other).__name__.removesuffix("Layer")
    return CircuitPropertyError(
        must(
            "a kernel and the input units of a circuit",
            "have a closed-form expectation",
            "Use RBF, Linear or Polynomial on continuous variables (no products of them), "
            "Laplacian on univariate ones, and Hamming or Delta on discrete ones "
            "(kernel objects take `variables`).",
            factor=type(factor).__name__.removesuffix("Factor"),
            input_units=families,
        )
    )


@singledispatch
def _points(layer: InputLayer, units: IntArray, factor: Factor, points: FloatArray) -> FloatArray:
    """Rule per layer type for E[f(X, s)]."""
    raise no_closed_form(layer, factor)


@singledispatch
def _pairs(
    left: InputLayer, left_units: IntArray, right: InputLayer, right_units: IntArray, factor: Factor
) -> FloatArray:
    """Rule per layer type for E[f(X, Y)]."""
    raise no_closed_form(left, factor)


@_points.register
def _(layer: DiscreteLayer, units: IntArray, factor: Factor, points: FloatArray) -> FloatArray:
    states = np.arange(layer.masses.shape[1], dtype=np.float64)
    return layer.masses[units] @ factor(states[:, None], points)


@_pairs.register
def _(
    left: DiscreteLayer,
    left_units: IntArray,
    right: DiscreteLayer,
    right_units: IntArray,
    factor: Factor,
) -> FloatArray:
    rows = np.arange(left.masses.shape[1], dtype=np.float64)
    columns = np.arange(right.masses.shape[1], dtype=np.float64)
    table = factor(rows[:, None], columns)
    return left.masses[left_units] @ table @ right.masses[right_units].T


@_points.register
def _(layer: GaussianLayer, units: IntArray, factor: Factor, points: FloatArray) -> FloatArray:
    means, stds = layer.means[units][:, None], layer.stds[units][:, None]
    if isinstance(factor, MonomialFactor):
        return _gaussian_moment(means, stds, factor.degree) * points**factor.degree
    return _gaussian_factor(layer, factor, means - points, stds)


@_pairs.register
def _(
    left: GaussianLayer,
    left_units: IntArray,
    right: GaussianLayer,
    right_units: IntArray,
    factor: Factor,
) -> FloatArray:
    left_means, left_stds = left.means[left_units][:, None], left.stds[left_units][:, None]
    right_means, right_stds = right.means[right_units], right.stds[right_units]
    if isinstance(factor, MonomialFactor):
        return _gaussian_moment(left_means, left_stds, factor.degree) * _gaussian_moment(
            right_means, right_stds, factor.degree
        )
    # The difference of two independent Gaussians is Gaussian.
    return _gaussian_factor(left, factor, left_means - right_means, np.hypot(left_stds, right_stds))


def _gaussian_factor(
    layer: InputLayer, factor: Factor, means: FloatArray, stds: FloatArray
) -> FloatArray:
    """E[f(D)] of a function f of the difference D ~ N(mean, std²)."""
    if isinstance(factor, RBFFactor):
        return expected_rbf(means, stds, factor.gamma)
    if isinstance(factor, LaplacianFactor):
        return expected_laplacian(means, stds, factor.gamma)
    raise no_closed_form(layer, factor)


def _gaussian_moment(mean: FloatArray, std: FloatArray, order: int) -> FloatArray:
    """E[X^m] = Σ_k C(m, 2k) (2k-1)!! σ^2k μ^(m-2k)."""
    return np.sum(
        [
            comb(order, 2 * k)
            * (factorial(2 * k) // (2**k * factorial(k)))
            * std ** (2 * k)
            * mean ** (order - 2 * k)
            for k in range(order // 2 + 1)
        ],
        axis=0,
    )
