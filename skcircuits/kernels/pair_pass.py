"""One pass over pairs of units with the same scope: expectations of a kernel under two circuits.

Values of a region are arrays (*axes, A, P, B, Q): power axes of the kernel term, batch and
keys of the left circuit, batch and keys of the right one. A batch of size one stands for all.
Regions of few discrete states are not paired unit by unit: both sides list their values at all
states, and one matrix product with the kernel between states does the rest.
"""

from __future__ import annotations

from collections import Counter
from functools import reduce, singledispatch
from itertools import product

import numpy as np

from skcircuits.circuits.compatibility import Scope
from skcircuits.circuits.inputs import InputLayer, MultivariateGaussianLayer
from skcircuits.kernels.expectations import no_closed_form, univariate_pairs, univariate_points
from skcircuits.kernels.pair_plan import BasePairing, PairPlan, Region
from skcircuits.kernels.pair_sides import CircuitBatch, Side, mix, prepare_side, swap_sides, take
from skcircuits.kernels.points import rbf_scales
from skcircuits.kernels.terms import KernelTerm, combine_scopes
from skcircuits.kernels.univariate import Factor
from skcircuits.numerics.gaussian_kernel_pairs import log_expected_rbf_pairs
from skcircuits.numerics.gaussian_stack import GaussianStack
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["cut_square", "expected_term_of_pairs"]

# Numbers in the largest array of a block of pairs: they stay in the cache.
CACHE_NUMBERS = 2**18


def expected_term_of_pairs(
    pairs: PairPlan, term: KernelTerm, left: CircuitBatch, right: CircuitBatch
) -> FloatArray:
    """Integrate a kernel term over all pairs of circuits of two batches.

    Parameters
    ----------
    pairs : PairPlan
        The compiled pair of structures.
    term : KernelTerm
        The kernel term.
    left, right : CircuitBatch
        The circuits. One batch on both sides is computed for one triangle only.

    Returns
    -------
    ndarray of shape (n_left, n_right)
        E[k(X, Y)], X from a circuit on the left, Y from one on the right, independent.

    Raises
    ------
    CircuitPropertyError
        If a pair of input units has no closed-form expectation of the kernel.
    """
    own = prepare_side(pairs, term, left, "left")
    other = prepare_side(pairs, term, right, "right")
    numbers = CACHE_NUMBERS // int(np.prod(term.axis_shape, initial=1))
    blocks = cut_square(numbers // pairs.numbers_per_pair(own.tables), len(left.X), len(right.X))
    result = np.empty((len(left.X), len(right.X)))
    for rows, columns in blocks:
        if left is right and columns.start < rows.start:
            result[rows, columns] = result[columns, rows].T
        else:
            result[rows, columns] = _block(pairs, term, own.slice(rows), other.slice(columns))
    return result


def cut_square(n_pairs: int, n_rows: int, n_columns: int) -> list[tuple[slice, slice]]:
    """Cut a matrix into square blocks, the rows of blocks from top to bottom.

    Parameters
    ----------
    n_pairs : int
        Most entries of a block (one at least).
    n_rows, n_columns : int
        Shape of the matrix.

    Returns
    -------
    list of (slice, slice)
        Rows and columns of each block.
    """
    side = max(1, int(max(n_pairs, 1) ** 0.5))
    return list(product(row_slices(n_rows, side), row_slices(n_columns, side)))


def _block(pairs: PairPlan, term: KernelTerm, left: Side, right: Side) -> FloatArray:
    """One pass over the regions for a block of pairs of circuits."""
    values: dict[Scope, FloatArray] = {}
    uses = Counter(scope for region in pairs.regions for scope in region.factor_scopes)
    for region in pairs.regions:
        values[region.scope] = _region_values(region, term, left, right, values)
        for scope in region.factor_scopes:
            uses[scope] -= 1
            if uses[scope] == 0:
                del values[scope]
    root = values[pairs.regions[-1].scope][..., 0, :, 0]
    total = np.tensordot(term.coefficients, root, axes=term.coefficients.ndim)
    return np.broadcast_to(total, (left.n_circuits, right.n_circuits))


def _region_values(
    region: Region, term: KernelTerm, left: Side, right: Side, values: dict[Scope, FloatArray]
) -> FloatArray:
    """Values of all pairs of keys of a region."""
    if region.scope in left.tables:
        if not region.is_needed_above(left.tables):
            return np.empty(0)  # a larger table holds what this one tells
        return _table_values(region, term, left.tables[region.scope], right.tables[region.scope])
    bases = _base_values(region, term, left, right, values)
    mixed = mix(bases, region.left, left.matrices[region.scope])
    turned = mix(swap_sides(mixed), region.right, right.matrices[region.scope])
    return swap_sides(turned)


def _table_values(
    region: Region, term: KernelTerm, left: FloatArray, right: FloatArray
) -> FloatArray:
    """Expected kernels of units given by their values at all states: one matrix product."""
    factors = [
        term.factor(variable)(np.arange(size, dtype=float)[:, None], np.arange(size, dtype=float))
        for variable, size in zip(region.scope, region.states, strict=True)
    ]
    kernel = reduce(lambda a, b: np.asarray(np.kron(a, b), dtype=np.float64), factors)
    flat = left.reshape(-1, left.shape[-1]) @ kernel @ right.reshape(-1, right.shape[-1]).T
    return flat.reshape(*left.shape[:2], *right.shape[:2])


def _base_values(
    region: Region, term: KernelTerm, left: Side, right: Side, values: dict[Scope, FloatArray]
) -> FloatArray:
    """Values of all pairs of bases of a region."""
    parts = []
    for pairing in region.pairings:
        if pairing.inputs is None:
            parts.append(_product_values(pairing, term, values))
        else:
            own, units, other, other_units = pairing.inputs
            inputs = (
                (left.plan.inputs[own][1], units),
                (
                    right.plan.inputs[other][1],
                    other_units,
                ),
            )
            parts.append(_input_values(inputs[0][0], inputs, term, left.X, right.X))
    if len(parts) == 1:
        return parts[0]
    n_left = max(part.shape[-4] for part in parts)
    n_right = max(part.shape[-2] for part in parts)
    shape = (*term.axis_shape, n_left, region.left.n_bases, n_right, region.right.n_bases)
    result = np.empty(shape)
    bases_last = np.moveaxis(result, -3, -2)
    for pairing, part in zip(region.pairings, parts, strict=True):
        where = (..., pairing.left[:, None], pairing.right)
        bases_last[where] = np.moveaxis(part, -3, -2)
    return result


def _product_values(
    pairing: BasePairing, term: KernelTerm, values: dict[Scope, FloatArray]
) -> FloatArray:
    """Combine the factors of pairs of products."""
    result: FloatArray | None = None
    for scope, asked, offered in pairing.factors:
        factor = take(take(values[scope], asked, -3), offered, -1)
        result = factor if result is None else combine_scopes(result, factor, term)
    assert result is not None
    return result


Inputs = tuple[tuple[InputLayer, IntArray], tuple[InputLayer, IntArray]]


@singledispatch
def _input_values(
    layer: InputLayer, inputs: Inputs, term: KernelTerm, X: FloatArray, Y: FloatArray
) -> FloatArray:
    """Expected kernel of all pairs of input units, shape (*axes, A, n_left, B, n_right)."""
    variable = int(layer.scopes[inputs[0][1][0], 0])
    cells, other_cells = _distinct(X[:, variable]), _distinct(Y[:, variable])
    shape = (len(cells), len(inputs[0][1]), len(other_cells), len(inputs[1][1]))
    result = np.zeros((*term.axis_shape, *shape))
    for powers, factor in term.leaf_factors(variable):
        _fill_univariate(np.moveaxis(result[powers], 1, 2), inputs, factor, cells, other_cells)
    return result


def _distinct(cells: FloatArray) -> FloatArray:
    """One NaN stands for a column that is missing everywhere."""
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
    if not term.is_product or not isinstance(other, MultivariateGaussianLayer):
        raise no_closed_form(layer, term.factor(int(layer.scopes[0, 0])), other)
    rows, other_rows = _distinct_rows(layer.cells(X)), _distinct_rows(layer.cells(Y))
    stack, shift = layer.gaussians, 0
    if other is not layer:
        # One stack of both sides; only the pairs across them are used.
        shift = len(layer)
        stack = GaussianStack(
            np.concatenate([stack.means, other.gaussians.means]),
            np.concatenate([stack.covariances, other.gaussians.covariances]),
        )
    values = log_expected_rbf_pairs(stack, rows, other_rows, rbf_scales(layer, term))
    chosen = values[np.ix_(units, other_units + shift)]
    return np.exp(chosen.transpose(2, 0, 3, 1))


def _distinct_rows(cells: FloatArray) -> FloatArray:
    """One row of NaN stands for rows without any observed cell."""
    return cells[:1] if np.isnan(cells).all() else cells
