"""Expectations of a kernel under two circuits: one pass over pairs of units of equal scope.

Values of a region are arrays (N, A, P, B, Q): parts of the kernel, batch and keys of the left
circuit, batch and keys of the right circuit. A batch of size one is broadcast.

Regions are computed in blocks of pairs that fit into the cache. Regions with few discrete states
are not paired unit by unit: both sides list their values at all states, which are combined by one
matrix product with the kernel matrix of the states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Literal

import numpy as np

from skcircuits.circuits._policy import CACHE_NUMBERS, JOINT_NUMBERS, TABLE_STATES
from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import DiscreteLayer, InputLayer
from skcircuits.circuits.structure.properties import VariableSet
from skcircuits.kernels.families.base import Combination, value_of
from skcircuits.kernels.integrals.registry import (
    expected_at_points,
    expected_of_pairs,
    joint_expectation,
    require_closed_form,
    scope_terms,
)
from skcircuits.kernels.pairs._plan import (
    BasePairing,
    KernelPlan,
    Level,
    Mixing,
    PairPlan,
    PartSplits,
    Region,
)
from skcircuits.parallel import row_slices, working_memory_bytes
from skcircuits.protocols import FloatArray, IntArray


@dataclass(frozen=True)
class CircuitBatch:
    """Circuits of one structure, each with its weights of sums or all with the same."""

    plan: Plan
    weights: SumWeights  # (n_edges, batch), or one set for all
    X: FloatArray  # (batch, n_columns), their observed cells; one row of NaN without evidence


@dataclass(frozen=True)
class Side:
    """A batch of circuits, or its ``rows``, ready to be paired: per region, ``matrices``, the
    weights (batch or 1, n_sums, n_nodes) of each level of sums, transposed on the right, and
    ``tables`` of the keys at few states, (n_parts, batch or 1, n_keys, n_states) with the kernel on
    the left.
    """

    batch: CircuitBatch
    matrices: dict[VariableSet, list[FloatArray]]
    tables: dict[VariableSet, FloatArray]
    rows: slice

    @property
    def X(self) -> FloatArray:
        """Observed cells of the circuits taken."""
        return self.batch.X[self.rows]

    def take(self, rows: slice) -> Side:
        """Take some circuits of the batch, with lazy copies."""
        return replace(self, rows=rows)

    def matrices_of(self, scope: VariableSet) -> list[FloatArray]:
        """Weights of each level of sums of a region, of the circuits taken."""
        return [self._cut(matrix) for matrix in self.matrices[scope]]

    def table_of(self, scope: VariableSet) -> FloatArray:
        """Values of the keys of a region at all its states, of the circuits taken."""
        return self._cut(self.tables[scope])

    def _cut(self, array: FloatArray) -> FloatArray:
        """Take circuits along the third axis from the end."""
        return array if array.shape[-3] == 1 else array[..., self.rows, :, :]


def prepare_side(
    pairs: PairPlan, kernel: KernelPlan, batch: CircuitBatch, side: Literal["left", "right"]
) -> Side:
    """Gather the weights of a batch by region and tabulate its small regions."""
    few = (region for region in pairs.regions if region.states)
    tabulated = {region.scope for region in few if prod(region.states) <= TABLE_STATES}
    prepared = Side(batch, {}, {}, slice(None))
    tables: dict[VariableSet, FloatArray] = {}
    for region in pairs.regions:
        scope = region.scope
        matrices = _level_matrices(getattr(region, side), batch.weights, side)
        if scope in tabulated:
            tables[scope] = _tabulate(region, batch, side, matrices, tables)
        else:
            prepared.matrices[scope] = matrices
        if region.is_needed_above(tabulated):
            if scope in tabulated and side == "left":
                states = np.array(list(product(*map(range, region.states))), dtype=np.float64)
                parts = kernel.parts[region.scope]
                between = np.stack(
                    [kernel.structure.value(part, states, region.variables) for part in parts]
                )
                # The left side takes the kernel along, so that a pair costs one matrix product
                prepared.tables[scope] = tables[scope] @ between[:, None]
            elif scope in tabulated:
                prepared.tables[scope] = np.ascontiguousarray(tables[scope].transpose(0, 2, 1))
    return prepared


def _tabulate(
    region: Region,
    batch: CircuitBatch,
    side: Literal["left", "right"],
    matrices: list[FloatArray],
    tables: dict[VariableSet, FloatArray],
) -> FloatArray:
    """Values (batch or 1, n_keys, n_states) of a region's keys at all states, the first slowest."""
    mixing: Mixing = getattr(region, side)
    bases = _base_tables(region, batch, side, tables)
    if side == "left":
        return mix_left(bases[..., None], mixing, matrices)[..., 0]
    return mix_right(bases.transpose(2, 0, 1), mixing, matrices).transpose(1, 2, 0)


def _base_tables(
    region: Region, batch: CircuitBatch, side: str, tables: dict[VariableSet, FloatArray]
) -> FloatArray:
    """Values of the bases of a region at all its states, (batch or 1, n_bases, n_states)."""
    parts = {}
    for pairing in region.pairings:
        numbers: IntArray = getattr(pairing, side)
        # The same bases may meet several partners: their values are tabulated once
        if numbers.tobytes() not in parts:
            if pairing.inputs is not None:
                table = _input_table(region, pairing.inputs, batch, side)
            else:
                table = _product_table(region, pairing, side, tables)
            parts[numbers.tobytes()] = numbers, table
    if len(parts) == 1:
        return next(iter(parts.values()))[1]
    n_circuits = max(len(table) for _, table in parts.values())
    n_bases = getattr(region, side).n_bases
    result = np.empty((n_circuits, n_bases, prod(region.states)))
    for numbers, table in parts.values():
        result[:, numbers] = table
    return result


def _input_table(
    region: Region, inputs: tuple[int, IntArray, int, IntArray], batch: CircuitBatch, side: str
) -> FloatArray:
    """Masses of input units; all mass on the state where it is observed."""
    number, units = inputs[:2] if side == "left" else inputs[2:]
    layer = batch.plan.inputs[number][1]
    assert isinstance(layer, DiscreteLayer)
    states = np.arange(region.states[0])
    masses = np.zeros((1, len(units), len(states)))
    # The other circuit may have more states, which have no mass under this one
    own = layer.masses[units][:, : len(states)]
    masses[0, :, : own.shape[1]] = own
    cells = batch.X[:, region.variables[0]]
    # One table serves all circuits without evidence here.
    if np.isnan(cells).all():
        return masses
    observed = (cells[:, None] == states)[:, None, :]
    return np.where(np.isnan(cells)[:, None, None], masses, observed)


def _product_table(
    region: Region, pairing: BasePairing, side: str, tables: dict[VariableSet, FloatArray]
) -> FloatArray:
    """Outer products of the tables of the factors, states in the order of the variables."""
    variables: list[int] = []
    values = np.ones((1, 1, 1))
    for factor in pairing.factors:
        table = take(tables[factor.scope], getattr(factor, side), 1)
        values = values[..., :, None] * table[..., None, :]
        values = values.reshape(*values.shape[:2], -1)
        variables += factor.scope.variables
    sizes = [region.states[region.variables.index(variable)] for variable in variables]
    apart = values.reshape(*values.shape[:2], *sizes)
    # Factors list their variables one after the other, regions in ascending order.
    order = [2 + variables.index(variable) for variable in region.variables]
    return apart.transpose(0, 1, *order).reshape(values.shape)


def mix_left(nodes: FloatArray, mixing: Mixing, matrices: Sequence[FloatArray]) -> FloatArray:
    """Mix bases of the left circuits (..., batch or 1, n_bases, m, n) into keys, by ``matrices``
    (batch or 1, n_sums, n_nodes), so that neither side needs pairs in another order.
    """
    return _mix(nodes, mixing, matrices, -3, _left_sums)


def mix_right(nodes: FloatArray, mixing: Mixing, matrices: Sequence[FloatArray]) -> FloatArray:
    """Mix bases of the right circuits (..., k, m, batch or 1, n_bases) into keys."""
    return _mix(nodes, mixing, matrices, -1, right_sums)


def _mix(
    nodes: FloatArray,
    mixing: Mixing,
    matrices: Sequence[FloatArray],
    axis: int,
    sums_of: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """Append level after level of sums to the nodes along an axis and choose the keys."""
    for matrix in matrices:
        sums = sums_of(matrix, nodes)
        # Most regions are one level of sums that all are keys: nothing is appended
        if mixing.keys_are_sums:
            return sums
        shape = list(sums.shape)
        shape[axis] = nodes.shape[axis]
        nodes = np.concatenate([np.broadcast_to(nodes, shape), sums], axis=axis)
    return take(nodes, mixing.chosen, axis)


def _left_sums(matrix: FloatArray, nodes: FloatArray) -> FloatArray:
    """Matrix products over the third axis from the end."""
    sums = matrix @ nodes.reshape(*nodes.shape[:-2], -1)
    return sums.reshape(*sums.shape[:-1], *nodes.shape[-2:])


def right_sums(matrix: FloatArray, nodes: FloatArray) -> FloatArray:
    """Multiply (..., batch or 1, n_nodes) by (batch or 1, n_nodes, n_sums), without copies."""
    flat = nodes.reshape(-1, *nodes.shape[-2:])
    sums = np.empty((len(flat), max(len(matrix), flat.shape[1]), matrix.shape[2]))
    np.matmul(flat.transpose(1, 0, 2), matrix, out=sums.transpose(1, 0, 2))
    return sums.reshape(*nodes.shape[:-2], *sums.shape[1:])


def take(values: FloatArray, index: IntArray | None, axis: int) -> FloatArray:
    """Gather along an axis; None takes everything, without a copy."""
    return values if index is None else np.take(values, index, axis=axis)


def _level_matrices(
    mixing: Mixing, weights: SumWeights, side: Literal["left", "right"]
) -> list[FloatArray]:
    """Arrange the weights of a region's sums as matrices, level by level (see ``Side``)."""
    levels = zip(mixing.levels, mixing.nodes_below, strict=True)
    axes = (2, 0, 1) if side == "left" else (2, 1, 0)
    matrices = (_level_matrix(level, n_nodes, weights) for level, n_nodes in levels)
    return [np.ascontiguousarray(matrix.transpose(axes)) for matrix in matrices]


def _level_matrix(level: Level, n_nodes: int, weights: SumWeights) -> FloatArray:
    """Weights of a level of sums, shape (n_sums, n_nodes, batch or 1)."""
    linear = weights.linear[level.edges].reshape(len(level.edges), -1)
    cells = level.rows * n_nodes + level.columns
    matrix = np.zeros((level.n_sums * n_nodes, linear.shape[1]))
    if len(np.unique(cells)) == len(cells):
        matrix[cells] = linear
    else:  # a child that occurs twice in one sum
        np.add.at(matrix, cells, linear)
    return matrix.reshape(level.n_sums, n_nodes, -1)


Values = dict[VariableSet, FloatArray]
Inputs = tuple[InputLayer, IntArray]


def expected_kernels(
    pairs: PairPlan, kernel: KernelPlan, left: CircuitBatch, right: CircuitBatch
) -> FloatArray:
    """E[k(X, Y)] for all pairs of circuits of two batches, X and Y independent; of one batch on
    both sides, one triangle is computed.
    """
    own, other = (
        prepare_side(pairs, kernel, left, "left"),
        prepare_side(pairs, kernel, right, "right"),
    )
    needed = own.tables.keys() | own.matrices.keys()
    regions = [region for region in pairs.regions if region.scope in needed]
    n_numbers = max(
        (region.numbers_per_pair(own.tables) * len(kernel.parts[region.scope]))
        for region in regions
    )
    result = np.empty((len(left.X), len(right.X)))
    # Squares of so many pairs gather the fewest rows and columns for them
    side = max(1, int((_numbers_of_block(regions) // n_numbers) ** 0.5))
    for rows, columns in product(*(row_slices(size, side) for size in result.shape)):
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
                number, _, other_number, _ = pairing.inputs
                left, right = pairs.left.inputs[number][1], pairs.right.inputs[other_number][1]
                for part in kernel.parts[region.scope]:
                    require_closed_form(left, right, kernel.structure, part)


def _numbers_of_block(regions: list[Region]) -> int:
    """Numbers that the largest array of a block may have."""
    if any(region.has_joint_inputs for region in regions):
        return max(CACHE_NUMBERS, min(JOINT_NUMBERS, working_memory_bytes() // 64))
    return CACHE_NUMBERS


def _block(regions: list[Region], kernel: KernelPlan, left: Side, right: Side) -> FloatArray:
    """Pass over the regions for a block of pairs of circuits."""
    block = _Block(kernel, left, right)
    uses = Counter(scope for region in regions for scope in _scopes_below(region, left.tables))
    for region in regions:
        block.values[region.scope] = block.evaluate(region)
        for scope in _scopes_below(region, left.tables):
            uses[scope] -= 1
            if uses[scope] == 0:
                block.values.pop(scope, None)
    root = block.values[regions[-1].scope][0, :, 0, :, 0]
    return np.broadcast_to(root, (len(left.X), len(right.X)))


def _scopes_below(region: Region, tables: Container[VariableSet]) -> list[VariableSet]:
    """Regions whose values a region needs; a table needs none."""
    return [] if region.scope in tables else region.factor_scopes


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
        first, second = (
            take(take(self.values[factor.scope], factor.left, -3), factor.right, -1)
            for factor in pairing.factors
        )
        return _combine(first, second, splits)

    def _inputs(self, region: Region, places: tuple[int, IntArray, int, IntArray]) -> FloatArray:
        """Values of pairs of input units of two layers; A, B are 1 without observed cells."""
        number, units, other_number, other_units = places
        left = self._left.batch.plan.inputs[number][1], units
        right = self._right.batch.plan.inputs[other_number][1], other_units
        parts, structure = self._kernel.parts[region.scope], self._kernel.structure
        if region.has_joint_inputs:
            columns = left[0].scopes[0]
            sides = self._left, self._right
            tables = tuple(_one_if_missing(side.X[:, columns]) for side in sides)
            terms = [scope_terms(structure, part, left[0]) for part in parts]
            values = [joint_expectation((left[0], right[0]), term, tables) for term in terms]
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


def pair_tables(left: FloatArray, right: FloatArray) -> FloatArray:
    """Pairs (N, A, P, B, Q) of units given at all states, the left with the kernel."""
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
