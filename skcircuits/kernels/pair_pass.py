"""One pass over pairs of units with the same scope: expectations of a kernel under two circuits.

Values of a region are arrays (*axes, A, P, B, Q): power axes of the kernel term, batch and
keys of the left circuit, batch and keys of the right one. A batch of size one stands for all.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from skcircuits.circuits.inputs import InputLayer, MultivariateGaussianLayer
from skcircuits.circuits.layers import SumWeights
from skcircuits.circuits.plan import Plan
from skcircuits.kernels.expectations import no_closed_form, univariate_pairs, univariate_points
from skcircuits.kernels.pair_plan import BasePairing, Mixing, PairPlan, Region
from skcircuits.kernels.points import rbf_scales
from skcircuits.kernels.terms import KernelTerm, combine_scopes
from skcircuits.kernels.univariate import Factor
from skcircuits.numerics.gaussian_kernel_pairs import log_expected_rbf_pairs
from skcircuits.numerics.gaussian_stack import GaussianStack
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["CircuitBatch", "expected_term_of_pairs"]


@dataclass(frozen=True)
class CircuitBatch:
    """Many circuits of one structure: conditioned on rows, with their own sum weights.

    Parameters
    ----------
    plan : Plan
        The structure.
    weights : SumWeights
        Weights of shape (n_edges,), shared, or (n_edges, batch).
    X : ndarray of shape (batch, n_columns)
        Observed cells; one row of NaN for a single circuit without evidence.
    """

    plan: Plan
    weights: SumWeights
    X: FloatArray

    def slice(self, rows: slice) -> CircuitBatch:
        """Take some of the circuits.

        Parameters
        ----------
        rows : slice
            Which ones.

        Returns
        -------
        CircuitBatch
            A smaller batch.
        """
        weights = SumWeights(self.weights.log[:, rows]) if self.weights.is_batch else self.weights
        return CircuitBatch(self.plan, weights, self.X[rows])


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
        The circuits.

    Returns
    -------
    ndarray of shape (n_left, n_right)
        E[k(X, Y)], X from a circuit on the left, Y from one on the right, independent.

    Raises
    ------
    CircuitPropertyError
        If a pair of input units has no closed-form expectation of the kernel.
    """
    uses = Counter(
        scope
        for region in pairs.regions
        for pairing in region.pairings
        for scope, _, _ in pairing.factors
    )
    values: dict[tuple[int, ...], FloatArray] = {}
    for region in pairs.regions:
        bases = _base_values(region, term, left, right, values)
        mixed = _mix_right(region.right, right.weights, _mix_left(region.left, left.weights, bases))
        values[region.scope] = mixed
        for scope in {scope for p in region.pairings for scope, _, _ in p.factors}:
            uses[scope] -= sum(s == scope for p in region.pairings for s, _, _ in p.factors)
            if uses[scope] == 0:
                del values[scope]
    root = values[pairs.regions[-1].scope][..., 0, :, 0]
    n_axes = term.coefficients.ndim
    total = np.tensordot(term.coefficients, root, axes=n_axes)
    return np.broadcast_to(total, (len(left.X), len(right.X))).copy()


def _base_values(
    region: Region,
    term: KernelTerm,
    left: CircuitBatch,
    right: CircuitBatch,
    values: dict[tuple[int, ...], FloatArray],
) -> FloatArray:
    """Values of all pairs of bases of a region."""
    parts = []
    for pairing in region.pairings:
        if pairing.inputs is None:
            parts.append(_product_values(pairing, term, values))
        else:
            own, units, other, other_units = pairing.inputs
            inputs = (left.plan.inputs[own][1], units), (right.plan.inputs[other][1], other_units)
            parts.append(_input_values(inputs[0][0], inputs, term, left.X, right.X))
    if len(parts) == 1:
        return parts[0]
    n_left = max(part.shape[-4] for part in parts)
    n_right = max(part.shape[-2] for part in parts)
    shape = (*term.axis_shape, n_left, region.left.n_bases, n_right, region.right.n_bases)
    result = np.empty(shape)
    bases_last = np.moveaxis(result, -3, -2)
    for pairing, part in zip(region.pairings, parts):
        where = (..., pairing.left[:, None], pairing.right)
        bases_last[where] = np.moveaxis(part, -3, -2)
    return result


def _product_values(
    pairing: BasePairing, term: KernelTerm, values: dict[tuple[int, ...], FloatArray]
) -> FloatArray:
    """Combine the factors of pairs of products."""
    result: FloatArray | None = None
    for scope, asked, offered in pairing.factors:
        factor = _take(_take(values[scope], asked, -3), offered, -1)
        result = factor if result is None else combine_scopes(result, factor, term)
    assert result is not None
    return result


def _take(values: FloatArray, index: IntArray, axis: int) -> FloatArray:
    """Gather along an axis; no copy where everything is taken in order."""
    if np.array_equal(index, np.arange(values.shape[axis])):
        return values
    return np.take(values, index, axis=axis)


def _mix_left(mixing: Mixing, weights: SumWeights, bases: FloatArray) -> FloatArray:
    """From bases to keys of the left circuits: (..., A, bases, B, Q) to (..., A, keys, B, Q)."""
    if mixing.is_identity:
        return bases
    nodes = bases
    for level in mixing.levels:
        flat = nodes.reshape(*nodes.shape[:-2], -1)
        sums = _level_matrix(level, nodes.shape[-3], weights) @ flat
        sums = sums.reshape(*sums.shape[:-1], *nodes.shape[-2:])
        nodes = _append(nodes, sums, -3)
    return _take(nodes, mixing.keys, -3)


def _mix_right(mixing: Mixing, weights: SumWeights, bases: FloatArray) -> FloatArray:
    """From bases to keys of the right circuits: (..., A, P, B, bases) to (..., A, P, B, keys)."""
    if mixing.is_identity:
        return bases
    nodes = bases
    for level in mixing.levels:
        matrix = _level_matrix(level, nodes.shape[-1], weights)
        # The batch of the right side first, so that each circuit is one matrix product.
        turned = np.moveaxis(nodes, -2, -4)
        flat = turned.reshape(*turned.shape[:-3], -1, turned.shape[-1])
        sums = flat @ matrix.swapaxes(-1, -2)
        sums = sums.reshape(*sums.shape[:-2], *turned.shape[-3:-1], sums.shape[-1])
        nodes = _append(nodes, np.moveaxis(sums, -4, -2), -1)
    return _take(nodes, mixing.keys, -1)


def _append(nodes: FloatArray, sums: FloatArray, axis: int) -> FloatArray:
    """Put the sums of a level behind the nodes below; batches of size one are stretched."""
    batch = 4 if axis == -3 else 2
    if nodes.shape[-batch] != sums.shape[-batch]:
        shape = list(nodes.shape)
        shape[-batch] = sums.shape[-batch]
        nodes = np.broadcast_to(nodes, shape)
    return np.concatenate([nodes, sums], axis=axis)


def _level_matrix(
    level: tuple[int, IntArray, IntArray, IntArray], n_nodes: int, weights: SumWeights
) -> FloatArray:
    """Weights of a level of sums as matrices, shape (batch or 1, n_sums, n_nodes)."""
    n_sums, rows, columns, edges = level
    linear = weights.linear[edges].reshape(len(edges), -1).T
    cells = rows * n_nodes + columns
    matrix = np.zeros((len(linear), n_sums * n_nodes))
    if len(np.unique(cells)) == len(cells):
        matrix[:, cells] = linear
    else:  # a child that occurs twice in one sum
        np.add.at(matrix.T, cells, linear.T)
    return matrix.reshape(-1, n_sums, n_nodes)


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
