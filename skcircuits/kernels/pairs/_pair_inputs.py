"""Expected kernels of pairs of input units: where a pass over pairs of circuits starts."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import InputLayer, MultivariateGaussianLayer
from skcircuits.kernels.families._terms import KernelTerm
from skcircuits.kernels.families._univariate import (
    ConstantFactor,
    Factor,
    MonomialFactor,
    ProductFactor,
)
from skcircuits.kernels.integrals._expectations import (
    no_closed_form,
    univariate_pairs,
    univariate_points,
)
from skcircuits.kernels.integrals._gaussian_inner_products import inner_product_moments
from skcircuits.kernels.integrals._gaussian_kernel_pairs import log_expected_rbf_pairs
from skcircuits.kernels.points._point_pass import rbf_scales
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["input_values"]

Inputs = tuple[tuple[InputLayer, IntArray], tuple[InputLayer, IntArray]]


def input_values(
    plans: tuple[Plan, Plan],
    places: tuple[int, IntArray, int, IntArray],
    term: KernelTerm,
    tables: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Integrate a kernel term over all pairs of input units of two layers.

    Parameters
    ----------
    plans : tuple of Plan
        Of the left and the right circuits.
    places : tuple of (int, ndarray, int, ndarray)
        Number of the left layer and units in it, then those of the right.
    term : KernelTerm
        The kernel term.
    tables : tuple of ndarray of shape (batch, n_columns)
        Observed cells of the left and the right circuits.

    Returns
    -------
    ndarray of shape (*axis_shape, A, n_left, B, n_right)
        Expected values; A and B are 1 where no circuit of a batch observes anything.

    Raises
    ------
    CircuitPropertyError
        If a pair of units has no closed-form expectation of the kernel.
    """
    number, units, other_number, other_units = places
    left = plans[0].inputs[number][1], units
    right = plans[1].inputs[other_number][1], other_units
    return _input_values(left[0], (left, right), term, *tables)


@singledispatch
def _input_values(
    layer: InputLayer, inputs: Inputs, term: KernelTerm, X: FloatArray, Y: FloatArray
) -> FloatArray:
    """Rule per layer type of the left units; here for layers over one variable per unit."""
    variable = int(layer.scopes[inputs[0][1][0], 0])
    cells, other_cells = _one_if_missing(X[:, variable]), _one_if_missing(Y[:, variable])
    shape = (len(cells), len(inputs[0][1]), len(other_cells), len(inputs[1][1]))
    result = np.zeros((*term.axis_shape, *shape))
    for powers, factor in term.leaf_factors(variable):
        _fill_univariate(np.moveaxis(result[powers], 1, 2), inputs, factor, cells, other_cells)
    return result


def _one_if_missing(cells: FloatArray) -> FloatArray:
    """One row of NaN stands for rows without any observed cell."""
    return cells[:1] if np.isnan(cells).all() else cells


def _fill_univariate(
    out: FloatArray, inputs: Inputs, factor: Factor, cells: FloatArray, other_cells: FloatArray
) -> None:
    """Write E[f(X, Y)] into out of shape (A, B, n_left, n_right), by what is observed."""
    (layer, units), (other, other_units) = inputs
    seen, other_seen = np.flatnonzero(~np.isnan(cells)), np.flatnonzero(~np.isnan(other_cells))
    holes, other_holes = np.flatnonzero(np.isnan(cells)), np.flatnonzero(np.isnan(other_cells))
    if len(holes) and len(other_holes):
        both = univariate_pairs(layer, units, other, other_units, factor)
        out[np.ix_(holes, other_holes)] = both
    if len(holes) and len(other_seen):
        expected = univariate_points(layer, units, factor, other_cells[other_seen])
        out[np.ix_(holes, other_seen)] = expected.T[:, :, None]
    if len(seen) and len(other_holes):
        expected = univariate_points(other, other_units, factor, cells[seen])
        out[np.ix_(seen, other_holes)] = expected.T[:, None, None, :]
    if len(seen) and len(other_seen):
        observed = factor(cells[seen, None], other_cells[other_seen])
        out[np.ix_(seen, other_seen)] = observed[:, :, None, None]


@_input_values.register
def _(
    layer: MultivariateGaussianLayer,
    inputs: Inputs,
    term: KernelTerm,
    X: FloatArray,
    Y: FloatArray,
) -> FloatArray:
    (_, units), (other, other_units) = inputs
    if not isinstance(other, MultivariateGaussianLayer):
        raise no_closed_form(layer, term.factor(int(layer.scopes[0, 0])), other)
    rows, other_rows = _one_if_missing(layer.cells(X)), _one_if_missing(layer.cells(Y))
    stack, shift = layer.gaussians, 0
    if other is not layer:
        # One stack of both sides; only the pairs across them are used.
        shift = len(layer)
        stack = GaussianStack(
            np.concatenate([stack.means, other.gaussians.means]),
            np.concatenate([stack.covariances, other.gaussians.covariances]),
        )
    values = _joint_values(layer, stack, term, (rows, other_rows))
    chosen = values[..., units[:, None], other_units + shift, :, :]
    return np.moveaxis(chosen, -2, -4).swapaxes(-1, -2)


def _joint_values(
    layer: MultivariateGaussianLayer,
    stack: GaussianStack,
    term: KernelTerm,
    tables: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """Expected kernels of all pairs of Gaussians and rows, shape (*axes, K, K, n, m).

    Over their scope a term is a product of factors, or powers of one inner product.
    """
    scope = layer.scopes[0].tolist()
    sums = [i for i, power in enumerate(term.power_sums) if set(power.variables) & set(scope)]
    if not sums:
        values = np.exp(log_expected_rbf_pairs(stack, *tables, rbf_scales(layer, term)))
        result = np.zeros((*term.axis_shape, *values.shape))
        result[(0,) * len(term.axis_shape)] = values
        return result
    others = [f for v in scope if not isinstance(f := term.factor(v), ConstantFactor)]
    if len(sums) > 1 or others:
        degrees = [MonomialFactor(term.power_sums[i].degree) for i in sums]
        raise no_closed_form(layer, ProductFactor((*degrees, *others)))
    (axis,) = sums
    power_sum = term.power_sums[axis]
    columns = np.array([i for i, v in enumerate(scope) if v in power_sum.variables])
    moments = inner_product_moments(stack, *tables, columns, power_sum.degree)
    result = np.zeros((*term.axis_shape, *moments.shape[1:]))
    where = [0] * axis + [slice(None)] + [0] * (len(term.axis_shape) - axis - 1)
    result[tuple(where)] = moments
    return result
