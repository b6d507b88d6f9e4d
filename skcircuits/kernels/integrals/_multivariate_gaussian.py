"""Closed forms under joint Gaussian units, given the observed cells of rows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skcircuits.circuits.inputs import MultivariateGaussian, MultivariateGaussianLayer
from skcircuits.kernels.families._structure import Monomial
from skcircuits.kernels.families.product import RBF
from skcircuits.kernels.integrals._gaussian_inner_products import inner_product_moments
from skcircuits.kernels.integrals._gaussian_kernel_pairs import log_expected_rbf_pairs
from skcircuits.kernels.integrals._gaussian_kernels import (
    log_expected_rbf,
    log_expected_rbf_blocks,
)
from skcircuits.kernels.integrals.registry import register_expectation
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.protocols import FloatArray, IntArray

__all__: list[str] = []

Functions = list[RBF | None]


def _scales(functions: Functions) -> FloatArray:
    """γ of each variable; 0 where the kernel does not look at it."""
    return np.array([0.0 if function is None else function.gamma for function in functions])


def _rbf_points(
    layer: MultivariateGaussianLayer, functions: Functions, X: FloatArray, points: FloatArray
) -> FloatArray:
    return np.exp(log_expected_rbf(layer.gaussians, X, points, _scales(functions)))


def _rbf_log_blocks(
    layer: MultivariateGaussianLayer, functions: Functions, X: FloatArray, points: FloatArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    return log_expected_rbf_blocks(layer.gaussians, X, points, _scales(functions))


def _rbf_pairs(
    left: MultivariateGaussianLayer,
    right: MultivariateGaussianLayer,
    functions: Functions,
    X: FloatArray,
    Y: FloatArray,
) -> FloatArray:
    stack, across = _common_stack(left, right)
    return np.exp(log_expected_rbf_pairs(stack, X, Y, _scales(functions)))[across]


def _inner_product_points(
    layer: MultivariateGaussianLayer,
    columns: tuple[int, ...],
    power: int,
    X: FloatArray,
    points: FloatArray,
) -> FloatArray:
    """A complete point is the same under every component."""
    moments = inner_product_moments(layer.gaussians, X, points, np.array(columns), power)
    return moments[:, :, 0]


def _inner_product_pairs(
    left: MultivariateGaussianLayer,
    right: MultivariateGaussianLayer,
    columns: tuple[int, ...],
    power: int,
    X: FloatArray,
    Y: FloatArray,
) -> FloatArray:
    stack, across = _common_stack(left, right)
    moments = inner_product_moments(stack, X, Y, np.array(columns), power)
    return np.stack([moment[across] for moment in moments])


def _common_stack(
    left: MultivariateGaussianLayer, right: MultivariateGaussianLayer
) -> tuple[GaussianStack, tuple[slice, slice]]:
    """One stack of both sides, and the pairs across them."""
    if left is right:
        return left.gaussians, (slice(None), slice(None))
    own, other = left.gaussians, right.gaussians
    stack = GaussianStack(
        np.concatenate([own.means, other.means]),
        np.concatenate([own.covariances, other.covariances]),
    )
    return stack, (slice(len(left)), slice(len(left), None))


register_expectation(
    MultivariateGaussian,
    RBF,
    points=_rbf_points,
    pairs=_rbf_pairs,
    log_blocks=_rbf_log_blocks,
)
register_expectation(
    MultivariateGaussian, Monomial, points=_inner_product_points, pairs=_inner_product_pairs
)
