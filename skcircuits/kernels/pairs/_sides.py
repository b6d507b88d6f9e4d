"""Batches of circuits of one structure as one side of a pair.

Regions with few discrete states are not paired unit by unit: both sides list their values at all
states, which are combined by one matrix product with the kernel matrix of the states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Literal

import numpy as np

from skcircuits.circuits._policy import TABLE_STATES
from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import DiscreteLayer
from skcircuits.circuits.structure._scopes import VariableSet
from skcircuits.kernels.pairs._plan import BasePairing, KernelPlan, Level, Mixing, PairPlan, Region
from skcircuits.protocols import FloatArray, IntArray


@dataclass(frozen=True)
class CircuitBatch:
    """Circuits of one structure, each with its weights of sums or all with the same."""

    plan: Plan
    weights: SumWeights  # (n_edges, batch), or one set for all
    X: FloatArray  # (batch, n_columns), their observed cells; one row of NaN without evidence


@dataclass(frozen=True)
class Side:
    """A batch of circuits, ready to be paired; or some of its circuits (``rows``).

    Per region: ``matrices``, the weights of each level of sums, (batch or 1, n_sums, n_nodes)
    on the left and (batch or 1, n_nodes, n_sums) on the right; ``tables``, where it has few
    discrete states, the values of its keys at them times the parts of the kernel between
    states, (n_parts, batch or 1, n_keys, n_states), on the left and (batch or 1, n_states,
    n_keys) on the right.
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
    """Gather the weights of a batch by region and tabulate its small regions.

    Regions that only larger tables ask for are left out.
    """
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
                between = _kernel_between_states(region, kernel)
                # The left side takes the kernel along, so that a pair costs one matrix product
                prepared.tables[scope] = tables[scope] @ between[:, None]
            elif scope in tabulated:
                prepared.tables[scope] = np.ascontiguousarray(tables[scope].transpose(0, 2, 1))
    return prepared


def _kernel_between_states(region: Region, kernel: KernelPlan) -> FloatArray:
    """Parts of a kernel at all pairs of states of a region, (n_parts, n_states, n_states)."""
    states = np.array(list(product(*map(range, region.states))), dtype=np.float64)
    parts = kernel.parts[region.scope]
    return np.stack([kernel.structure.value(part, states, region.variables) for part in parts])


def _tabulate(
    region: Region,
    batch: CircuitBatch,
    side: Literal["left", "right"],
    matrices: list[FloatArray],
    tables: dict[VariableSet, FloatArray],
) -> FloatArray:
    """Values of the keys of a region at all its states, (batch or 1, n_keys, n_states).

    States of the first variable are slowest; ``tables`` are those of the regions below.
    """
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
    """Mix bases of the left circuits, (..., batch or 1, n_bases, m, n), into keys.

    ``matrices`` (batch or 1, n_sums, n_nodes) are the weights of each level of sums. They stand
    before the values here and behind them in ``mix_right``, so that neither side needs the
    values of pairs in another order.
    """
    return _mix(nodes, mixing, matrices, -3, _left_sums)


def mix_right(nodes: FloatArray, mixing: Mixing, matrices: Sequence[FloatArray]) -> FloatArray:
    """Mix bases of the right circuits, (..., k, m, batch or 1, n_bases), into keys.

    ``matrices`` are (batch or 1, n_nodes, n_sums); products with contiguous ones are the
    fastest.
    """
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
