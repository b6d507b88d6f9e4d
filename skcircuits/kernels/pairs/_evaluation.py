"""Expectations of a kernel under two circuits: one pass over pairs of units of equal scope.

Values of a region are arrays (N, A, P, B, Q): parts of the kernel, batch and keys of the left
circuit, batch and keys of the right circuit. A batch of size one is broadcast.

Regions are computed in blocks of pairs that fit into the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from itertools import product

import numpy as np

from skcircuits.circuits._policy import CACHE_NUMBERS, JOINT_NUMBERS
from skcircuits.circuits.inputs import InputLayer
from skcircuits.circuits.structure._scopes import VariableSet
from skcircuits.kernels.families._structure import Combination, value_of
from skcircuits.kernels.integrals.registry import (
    expected_at_points,
    expected_of_pairs,
    joint_of_pairs,
    require_closed_form,
    scope_terms,
)
from skcircuits.kernels.pairs._plan import (
    BasePairing,
    FactorKeys,
    KernelPlan,
    PairPlan,
    PartSplits,
    Region,
)
from skcircuits.kernels.pairs._sides import (
    CircuitBatch,
    Side,
    mix_left,
    mix_right,
    prepare_side,
    right_sums,
    take,
)
from skcircuits.parallel import row_slices, working_memory_bytes
from skcircuits.protocols import FloatArray, IntArray

Values = dict[VariableSet, FloatArray]
Inputs = tuple[InputLayer, IntArray]


def expected_kernels(
    pairs: PairPlan, kernel: KernelPlan, left: CircuitBatch, right: CircuitBatch
) -> FloatArray:
    """E[k(X, Y)] for all pairs of circuits of two batches, X and Y independent.

    One batch on both sides is computed for one triangle only. Raises ``CircuitPropertyError``
    where a pair of input units has no closed form.
    """
    own, other = (
        prepare_side(pairs, kernel, left, "left"),
        prepare_side(pairs, kernel, right, "right"),
    )
    needed = own.tables.keys() | own.matrices.keys()
    regions = [region for region in pairs.regions if region.scope in needed]
    n_numbers = max(_numbers_per_pair(region, kernel, own) for region in regions)
    result = np.empty((len(left.X), len(right.X)))
    for rows, columns in cut_square(_numbers_of_block(regions) // n_numbers, *result.shape):
        # The kernel is symmetric: the block across the diagonal is done.
        if left is right and columns.start < rows.start:
            result[rows, columns] = result[columns, rows].T
        else:
            result[rows, columns] = _block(regions, kernel, own.take(rows), other.take(columns))
    return result


def require_closed_forms(pairs: PairPlan, kernel: KernelPlan) -> None:
    """Raise ``CircuitPropertyError`` where a pair of input units has no closed form."""
    for region in pairs.regions:
        for pairing in region.pairings:
            if pairing.inputs is not None:
                layers = (
                    plan.inputs[number][1]
                    for plan, number in zip((pairs.left, pairs.right), pairing.inputs[::2])
                )
                left, right = layers
                for part in kernel.parts[region.scope]:
                    require_closed_form(left, right, kernel.structure, part)


def cut_square(n_pairs: int, n_rows: int, n_columns: int) -> list[tuple[slice, slice]]:
    """Cut a matrix into square blocks of at most ``n_pairs`` entries (one at least)."""
    # Squares gather the fewest rows and columns for their pairs.
    side = max(1, int(max(n_pairs, 1) ** 0.5))
    return list(product(row_slices(n_rows, side), row_slices(n_columns, side)))


def _numbers_of_block(regions: list[Region]) -> int:
    """Numbers that the largest array of a block may have."""
    if any(region.has_joint_inputs for region in regions):
        return max(CACHE_NUMBERS, min(JOINT_NUMBERS, working_memory_bytes() // 64))
    return CACHE_NUMBERS


def _numbers_per_pair(region: Region, kernel: KernelPlan, side: Side) -> int:
    """Numbers in the values of a region for one pair of circuits."""
    return region.numbers_per_pair(side.tables) * len(kernel.parts[region.scope])


def _block(regions: list[Region], kernel: KernelPlan, left: Side, right: Side) -> FloatArray:
    """Pass over the regions for a block of pairs of circuits."""
    block = _Block(kernel, left, right)
    uses = _uses(regions, left.tables)
    for region in regions:
        block.values[region.scope] = block.evaluate(region)
        _forget(block.values, uses, _scopes_below(region, left.tables))
    root = block.values[regions[-1].scope][0, :, 0, :, 0]
    return np.broadcast_to(root, (len(left.X), len(right.X)))


def _scopes_below(region: Region, tables: Container[VariableSet]) -> list[VariableSet]:
    """Regions whose values a region needs; a table needs none."""
    return [] if region.scope in tables else region.factor_scopes


def _uses(regions: list[Region], tables: Container[VariableSet]) -> Counter[VariableSet]:
    """How often each region is needed."""
    return Counter(scope for region in regions for scope in _scopes_below(region, tables))


def _forget(values: Values, uses: Counter[VariableSet], scopes: list[VariableSet]) -> None:
    """Count remaining uses down and release values that are no longer needed."""
    for scope in scopes:
        uses[scope] -= 1
        if uses[scope] == 0:
            values.pop(scope, None)


class _Block:
    """Values of regions for all pairs of some circuits on the left and on the right."""

    def __init__(self, kernel: KernelPlan, left: Side, right: Side) -> None:
        self._kernel, self._left, self._right = kernel, left, right
        self.values: Values = {}

    def evaluate(self, region: Region) -> FloatArray:
        """Values of all pairs of keys of a region."""
        scope = region.scope
        if scope in self._left.tables:
            return pair_tables(self._left.table_of(scope), self._right.table_of(scope))
        # One side after the other: edges times bases, instead of edges times edges.
        mixed = mix_left(self._bases(region), region.left, self._left.matrices_of(scope))
        return mix_right(mixed, region.right, self._right.matrices_of(scope))

    def _bases(self, region: Region) -> FloatArray:
        """Values of all pairs of bases of a region."""
        splits = self._kernel.splits[region.scope]
        parts = [self._pairing(region, *each) for each in zip(region.pairings, splits, strict=True)]
        if len(parts) == 1:
            return parts[0]
        # A part without evidence is the same for all circuits, and is broadcast
        n_left = max(part.shape[-4] for part in parts)
        n_right = max(part.shape[-2] for part in parts)
        shape = n_left, region.left.n_bases, n_right, region.right.n_bases
        result = np.empty((len(parts[0]), *shape))
        # The two index arrays are for adjacent axes, so that NumPy leaves the others in place.
        bases_last = np.moveaxis(result, -3, -2)
        for pairing, part in zip(region.pairings, parts, strict=True):
            where = (..., pairing.left[:, None], pairing.right)
            bases_last[where] = np.moveaxis(part, -3, -2)
        return result

    def _pairing(self, region: Region, pairing: BasePairing, splits: PartSplits) -> FloatArray:
        """Values of pairs of input units, or of pairs of products of two factors."""
        if pairing.inputs is not None:
            return self._inputs(region, pairing.inputs)
        first, second = (self._keys(factor) for factor in pairing.factors)
        return _combine(first, second, splits)

    def _inputs(self, region: Region, places: tuple[int, IntArray, int, IntArray]) -> FloatArray:
        """Values of pairs of input units of two layers; A, B are 1 without observed cells."""
        number, units, other_number, other_units = places
        left = self._left.batch.plan.inputs[number][1], units
        right = self._right.batch.plan.inputs[other_number][1], other_units
        parts, structure = self._kernel.parts[region.scope], self._kernel.structure
        if region.has_joint_inputs:
            columns = left[0].scopes[0]
            rows, other_rows = (
                _one_if_missing(side.X[:, columns]) for side in (self._left, self._right)
            )
            terms = [scope_terms(structure, part, left[0]) for part in parts]
            values = [joint_of_pairs(left[0], right[0], term, rows, other_rows) for term in terms]
            chosen = np.stack(values)[:, units[:, None], other_units]
            return chosen.transpose(0, 3, 1, 4, 2)
        cells, other_cells = (
            _one_if_missing(side.X[:, region.variables])[:, 0] for side in (self._left, self._right)
        )
        result = np.empty((len(parts), len(cells), len(units), len(other_cells), len(other_units)))
        for part, out in zip(parts, result, strict=True):
            function = structure.on_variable(part, region.variables[0])
            _fill_univariate(out.swapaxes(1, 2), left, right, function, (cells, other_cells))
        return result

    def _keys(self, factor: FactorKeys) -> FloatArray:
        """Values of pairs of keys of a smaller region."""
        return take(take(self.values[factor.scope], factor.left, -3), factor.right, -1)


def pair_tables(left: FloatArray, right: FloatArray) -> FloatArray:
    """Pair units given by their values at all states, (N, A, P, B, Q).

    On the left (N, A, P, n_states), times the kernel between states; on the right
    (B, n_states, Q).
    """
    return right_sums(right, left[:, :, :, None])


def _combine(first: FloatArray, second: FloatArray, splits: PartSplits) -> FloatArray:
    """Multiply the parts of two disjoint scopes: Σ_t c_t first_i(t) second_j(t) per part."""
    # Most kernels are products over the variables: one part, no sum over terms.
    if splits == [[(1.0, 0, 0)]]:
        return first * second
    shape = np.broadcast_shapes(first.shape[1:], second.shape[1:])
    result = np.zeros((len(splits), *shape))
    for out, terms in zip(result, splits, strict=True):
        for weight, i, j in terms:
            out += weight * first[i] * second[j]
    return result


def _one_if_missing(cells: FloatArray) -> FloatArray:
    """One row of NaN represents rows without any observed cell."""
    return cells[:1] if np.isnan(cells).all() else cells


def _fill_univariate(
    out: FloatArray,
    left: Inputs,
    right: Inputs,
    function: Combination,
    cells: tuple[FloatArray, FloatArray],
) -> None:
    """Write E[f(X, Y)] into out of shape (A, B, n_left, n_right), by what is observed."""
    # Four blocks: the variable is integrated over on the sides where it is missing
    missing, seen = zip(*((np.isnan(c).nonzero()[0], (~np.isnan(c)).nonzero()[0]) for c in cells))
    own, other = (c[~np.isnan(c)] for c in cells)
    if len(missing[0]) and len(missing[1]):
        out[np.ix_(*missing)] = expected_of_pairs(left, right, function)
    if len(missing[0]) and len(other):
        expected = expected_at_points(*left, function, other)
        out[np.ix_(missing[0], seen[1])] = expected.T[:, :, None]
    if len(own) and len(missing[1]):
        expected = expected_at_points(*right, function, own)
        out[np.ix_(seen[0], missing[1])] = expected.T[:, None, None, :]
    if len(own) and len(other):
        observed = value_of(function, own[:, None], other)
        out[np.ix_(*seen)] = observed[:, :, None, None]
