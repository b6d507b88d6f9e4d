"""One pass over pairs of units with the same scope: expectations of a kernel under two circuits.

Values of a region are arrays (*axes, A, P, B, Q): power axes of the kernel term, batch and
keys of the left circuit, batch and keys of the right one. A batch of size one stands for all.

Circuits that agree about the cells of a region have equal values there, so small regions are
computed once per pair of distinct circuits; larger regions follow block by block of pairs,
which stay in the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from itertools import product

import numpy as np

from skcircuits.circuits.structure.units import Scope
from skcircuits.kernels.families._terms import KernelTerm, combine_scopes
from skcircuits.kernels.pairs._circuit_batch import CircuitBatch
from skcircuits.kernels.pairs._pair_inputs import input_values
from skcircuits.kernels.pairs._pair_mixing import mix_left, mix_right, take
from skcircuits.kernels.pairs._pair_regions import BasePairing, FactorKeys, PairPlan, Region
from skcircuits.kernels.pairs._pair_sides import Side, prepare_side
from skcircuits.kernels.pairs._pair_tables import pair_tables
from skcircuits.parallel import row_slices, working_memory_bytes
from skcircuits.protocols import FloatArray

__all__ = ["cut_square", "expected_term_of_pairs"]

# Numbers in the largest array of a block of pairs: they stay in the cache.
CACHE_NUMBERS = 3 * 2**15
# The same for joint units: conditioning them on the rows of a block costs more than memory.
JOINT_NUMBERS = 2**22
# Numbers in the values of a region that are computed before all blocks, and gathered by them.
SHARED_NUMBERS = 2**19
# Pairs of circuits per pair of distinct ones that make the detour pay.
SMALLEST_GAIN = 4

Values = dict[Scope, FloatArray]


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
    own, other = prepare_side(pairs, term, left, "left"), prepare_side(pairs, term, right, "right")
    regions = [region for region in pairs.regions if region.scope in own.restrictions]
    shared = _shared_values(regions, term, own, other)
    rest = [region for region in regions if region.scope not in shared]
    n_numbers = max(region.numbers_per_pair(own.tables) for region in rest) * _n_powers(term)
    result = np.empty((len(left.X), len(right.X)))
    for rows, columns in cut_square(_numbers_of_block(rest) // n_numbers, *result.shape):
        if left is right and columns.start < rows.start:
            result[rows, columns] = result[columns, rows].T
        else:
            block = own.take(rows), other.take(columns)
            result[rows, columns] = _block(rest, term, *block, shared)
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


def _numbers_of_block(regions: list[Region]) -> int:
    """Numbers that the largest array of a block may have."""
    if any(region.has_joint_inputs for region in regions):
        return max(CACHE_NUMBERS, min(JOINT_NUMBERS, working_memory_bytes() // 64))
    return CACHE_NUMBERS


def _n_powers(term: KernelTerm) -> int:
    return int(np.prod(term.axis_shape, initial=1))


def _shared_values(regions: list[Region], term: KernelTerm, left: Side, right: Side) -> Values:
    """Values of the small regions for all pairs of circuits that differ there."""
    shared: Values = {}
    uses = _uses(regions, left.tables)
    n_pairs = len(left.X) * len(right.X)
    for region in regions[:-1]:
        below = _scopes_below(region, left.tables)
        first = left.restrictions[region.scope].first, right.restrictions[region.scope].first
        n_distinct = len(first[0]) * len(first[1])
        n_numbers = n_distinct * region.numbers_per_pair(left.tables) * _n_powers(term)
        pays = SMALLEST_GAIN * n_distinct <= n_pairs and n_numbers <= SHARED_NUMBERS
        if pays and all(scope in shared for scope in below):
            block = _Block(term, left.take(first[0]), right.take(first[1]), shared)
            values = block.evaluate(region)
            whole = *term.axis_shape, len(first[0]), values.shape[-3], len(first[1])
            shared[region.scope] = np.broadcast_to(values, (*whole, values.shape[-1]))
            _forget(shared, uses, below)
    return shared


def _block(
    regions: list[Region], term: KernelTerm, left: Side, right: Side, shared: Values
) -> FloatArray:
    """Pass over the regions that are not shared, for a block of pairs of circuits."""
    block = _Block(term, left, right, shared)
    uses = _uses(regions, left.tables)
    for region in regions:
        block.values[region.scope] = block.evaluate(region)
        _forget(block.values, uses, _scopes_below(region, left.tables))
    root = block.values[regions[-1].scope][..., 0, :, 0]
    total = np.tensordot(term.coefficients, root, axes=term.coefficients.ndim)
    return np.broadcast_to(total, (len(left.X), len(right.X)))


def _scopes_below(region: Region, tables: Container[Scope]) -> list[Scope]:
    """Regions whose values a region needs; a table needs none."""
    return [] if region.scope in tables else region.factor_scopes


def _uses(regions: list[Region], tables: Container[Scope]) -> Counter[Scope]:
    """How often each region is needed."""
    return Counter(scope for region in regions for scope in _scopes_below(region, tables))


def _forget(values: Values, uses: Counter[Scope], scopes: list[Scope]) -> None:
    """Count uses down and let go of what is not needed any more."""
    for scope in scopes:
        uses[scope] -= 1
        if uses[scope] == 0:
            values.pop(scope, None)


class _Block:
    """Values of regions for all pairs of some circuits on the left and on the right."""

    def __init__(self, term: KernelTerm, left: Side, right: Side, shared: Values) -> None:
        self._term, self._left, self._right = term, left, right
        self._shared = shared
        self.values: Values = {}

    def evaluate(self, region: Region) -> FloatArray:
        """Values of all pairs of keys of a region."""
        scope = region.scope
        if scope in self._left.tables:
            return pair_tables(self._left.table_of(scope), self._right.table_of(scope))
        mixed = mix_left(self._bases(region), region.left, self._left.matrices_of(scope))
        return mix_right(mixed, region.right, self._right.matrices_of(scope))

    def _bases(self, region: Region) -> FloatArray:
        """Values of all pairs of bases of a region."""
        parts = [self._pairing(pairing) for pairing in region.pairings]
        if len(parts) == 1:
            return parts[0]
        n_left = max(part.shape[-4] for part in parts)
        n_right = max(part.shape[-2] for part in parts)
        shape = n_left, region.left.n_bases, n_right, region.right.n_bases
        result = np.empty((*self._term.axis_shape, *shape))
        bases_last = np.moveaxis(result, -3, -2)
        for pairing, part in zip(region.pairings, parts, strict=True):
            where = (..., pairing.left[:, None], pairing.right)
            bases_last[where] = np.moveaxis(part, -3, -2)
        return result

    def _pairing(self, pairing: BasePairing) -> FloatArray:
        """Values of pairs of input units, or of pairs of products of two factors."""
        if pairing.inputs is not None:
            plans = self._left.batch.plan, self._right.batch.plan
            return input_values(plans, pairing.inputs, self._term, (self._left.X, self._right.X))
        first, second = (self._keys(factor) for factor in pairing.factors)
        return combine_scopes(first, second, self._term)

    def _keys(self, factor: FactorKeys) -> FloatArray:
        """Values of pairs of keys of a smaller region."""
        scope = factor.scope
        if scope in self.values:
            return take(take(self.values[scope], factor.left, -3), factor.right, -1)
        shared = self._shared[scope]
        n_left, n_distinct, n_right = shared.shape[-3:]
        keys = np.arange(n_left) if factor.left is None else factor.left
        rows = self._left.numbers_of(scope)[:, None] * n_left + keys
        index = rows[:, :, None] * n_distinct + self._right.numbers_of(scope)
        flat = shared.reshape(*self._term.axis_shape, -1, n_right)
        return take(np.take(flat, index, axis=-2), factor.right, -1)
