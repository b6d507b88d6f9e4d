"""Expected kernels of rows with holes against complete points: one feedforward pass.

The probability of the observed cells is pushed into the sum weights, so every value of the
pass is an expectation under a normalised conditional distribution.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch

import numpy as np

from skcircuits.circuits.engine._evaluation import log_values
from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.circuits.engine._passes import feedforward
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import InputLayer, MultivariateGaussianLayer
from skcircuits.circuits.queries._moments import require_possible
from skcircuits.kernels.families._terms import KernelTerm
from skcircuits.kernels.families._univariate import ConstantFactor, RBFFactor
from skcircuits.kernels.integrals._expectations import no_closed_form, univariate_points
from skcircuits.kernels.integrals._gaussian_kernels import (
    bytes_per_row,
    log_expected_rbf,
    log_expected_rbf_blocks,
)
from skcircuits.kernels.points._point_tables import PointTables
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

__all__ = [
    "bytes_per_point_row",
    "expected_term_at_points",
    "posterior_weights",
    "rbf_scales",
]

# Values of all units for a block of rows and all points stay near the cache.
BLOCK_BYTES = 2**23
# Tables are read and written one by one, so larger blocks stay fast.
TABLE_BYTES = 2**26
# Tables of distinct points pay when they leave at most this share of the values.
LARGEST_SHARE = 0.5


def expected_term_at_points(
    plan: Plan, term: KernelTerm, X: FloatArray, points: FloatArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Integrate a product kernel over the missing cells of rows, block by block of rows.

    Parameters
    ----------
    plan : Plan
        A smooth and decomposable circuit.
    term : KernelTerm
        A term without power sums.
    X : ndarray of shape (n, n_columns)
        Rows with NaN.
    points : ndarray of shape (m, n_columns)
        Complete rows.

    Yields
    ------
    rows : ndarray of shape (p,)
        The next rows; each row comes once, in no particular order.
    values : ndarray of shape (p, m)
        E[k(x, s) | observed cells of x].

    Raises
    ------
    ZeroProbabilityError
        If the observed cells of a row are impossible.
    CircuitPropertyError
        If an input unit has no closed-form expectation of the kernel.
    """
    tables = _point_tables(plan, points)
    if tables is not None:
        yield from _by_tables(plan, term, X, tables)
        return
    weights = posterior_weights(plan, X)
    for rows, stream, log_factors in _row_blocks(plan, term, X, points):
        values = np.empty((plan.n_units, len(rows), len(points)))
        for units, layer in plan.inputs:
            if layer is stream and log_factors is not None:
                np.exp(log_factors, out=values[units])
            else:
                _write_factors(layer, term, X[rows], points, values[units])
        shared = SumWeights(weights.log[:, rows, None])
        result = feedforward(plan, values, "linear", shared)[plan.root]
        if term.coefficients != 1.0:
            result *= term.coefficients
        yield rows, result


def _point_tables(plan: Plan, points: FloatArray) -> PointTables | None:
    """Tables of distinct restrictions, where points repeat themselves enough to pay."""
    if any(layer.scopes.shape[1] > 1 for _, layer in plan.inputs):
        return None
    distinct = [len(np.unique(points[:, v])) for v in plan.units[plan.root].scope]
    if np.mean(distinct) > LARGEST_SHARE * len(points):
        return None
    tables = PointTables(plan, points)
    return tables if tables.share <= LARGEST_SHARE else None


def _by_tables(
    plan: Plan, term: KernelTerm, X: FloatArray, tables: PointTables
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Integrate by tables, block by block of rows."""
    for block in row_slices(len(X), max(1, TABLE_BYTES // max(1, tables.bytes_per_row))):
        result = tables.expected_term(term, X[block], posterior_weights(plan, X[block]))
        if term.coefficients != 1.0:
            result *= term.coefficients
        yield np.arange(block.start, block.stop), result


def _row_blocks(
    plan: Plan, term: KernelTerm, X: FloatArray, points: FloatArray
) -> Iterator[tuple[IntArray, MultivariateGaussianLayer | None, FloatArray | None]]:
    """Cut rows into blocks that fit into the cache.

    A layer of joint Gaussians factorises the missing cells of all rows at once and then
    streams its log factors in the order that suits it; the other layers follow.
    """
    joint = [layer for _, layer in plan.inputs if isinstance(layer, MultivariateGaussianLayer)]
    if joint:
        layer = joint[0]
        cells, targets = layer.cells(X), layer.cells(points)
        scales = rbf_scales(layer, term)
        for rows, values in log_expected_rbf_blocks(layer.gaussians, cells, targets, scales):
            yield rows, layer, values
        return
    n_rows = max(1, BLOCK_BYTES // (8 * plan.n_units * max(1, len(points))))
    for block in row_slices(len(X), n_rows):
        yield np.arange(block.start, block.stop), None, None


def bytes_per_point_row(plan: Plan) -> int:
    """Estimate the memory that ``expected_term_at_points`` holds for each row.

    Parameters
    ----------
    plan : Plan
        The circuit.

    Returns
    -------
    int
        Bytes, without the blocks of fixed size.
    """
    joint = [layer for _, layer in plan.inputs if isinstance(layer, MultivariateGaussianLayer)]
    factors = sum(bytes_per_row(layer.gaussians) for layer in joint)
    return 16 * (plan.n_units + len(plan.weights.log)) + factors


def posterior_weights(plan: Plan, X: FloatArray) -> SumWeights:
    """Weights of the conditional circuits of rows: θ_c p_c(x_o) / p_n(x_o).

    Parameters
    ----------
    plan : Plan
        A smooth and decomposable circuit.
    X : ndarray of shape (n, n_columns)
        Rows with NaN.

    Returns
    -------
    SumWeights
        A batch of weights, one set per row: shape (n_edges, n).

    Raises
    ------
    ZeroProbabilityError
        If the observed cells of a row are impossible.
    """
    if not plan.sum_layers and not any(layer.is_discrete for _, layer in plan.inputs):
        # Nothing to choose from, and a density is positive everywhere.
        return SumWeights(np.empty((0, len(X))))
    values = log_values(plan, X)
    require_possible(plan, values[plan.root])
    return SumWeights(_stack_edges(plan, values))


def _stack_edges(plan: Plan, values: FloatArray) -> FloatArray:
    """Log posterior of all edges in the order of the plan's weights."""
    n_rows = values.shape[1]
    posteriors = np.empty((len(plan.weights.log), n_rows))
    for layer in plan.sum_layers:
        posteriors[layer.edges] = layer.posteriors(values, plan.weights)
    with np.errstate(divide="ignore"):
        return np.log(posteriors, out=posteriors)


def rbf_scales(layer: InputLayer, term: KernelTerm) -> FloatArray:
    """Scales of the variables of joint units under an RBF kernel.

    Parameters
    ----------
    layer : InputLayer
        A layer of units with one joint scope.
    term : KernelTerm
        The kernel.

    Returns
    -------
    ndarray of shape (scope_size,)
        γ of each variable; 0 where the kernel does not look at it.

    Raises
    ------
    CircuitPropertyError
        If a factor is not RBF.
    """
    scales = []
    for variable in layer.scopes[0]:
        factor = term.factor(int(variable))
        if isinstance(factor, RBFFactor):
            scales.append(factor.gamma)
        elif isinstance(factor, ConstantFactor):
            scales.append(0.0)
        else:
            raise no_closed_form(layer, factor)
    return np.array(scales)


@singledispatch
def _write_factors(
    layer: InputLayer, term: KernelTerm, X: FloatArray, points: FloatArray, out: FloatArray
) -> None:
    """Write the expected factor of each unit at each row and point, shape (n_units, n, m).

    Univariate units: the factor at the observed value, or its expectation where NaN.
    """
    for variable in np.unique(layer.scopes):
        units = np.flatnonzero(layer.scopes[:, 0] == variable)
        factor = term.factor(int(variable))
        cells, targets = X[:, variable], points[:, variable]
        missing = np.isnan(cells)
        if missing.any():
            expected = univariate_points(layer, units, factor, targets)
            out[np.ix_(units, missing)] = expected[:, None, :]
        if not missing.all():
            out[np.ix_(units, ~missing)] = factor(cells[~missing, None], targets)


@_write_factors.register
def _(
    layer: MultivariateGaussianLayer,
    term: KernelTerm,
    X: FloatArray,
    points: FloatArray,
    out: FloatArray,
) -> None:
    scales = rbf_scales(layer, term)
    np.exp(log_expected_rbf(layer.gaussians, layer.cells(X), layer.cells(points), scales), out=out)
