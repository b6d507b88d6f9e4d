"""What one side of a pair of circuits contributes, prepared once for all its partners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from skcircuits.circuits.compatibility import Scope
from skcircuits.circuits.inputs import DiscreteLayer
from skcircuits.circuits.layers import SumWeights
from skcircuits.circuits.plan import Plan
from skcircuits.kernels.pair_plan import BasePairing, Level, Mixing, PairPlan, Region
from skcircuits.kernels.terms import KernelTerm
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["CircuitBatch", "Side", "mix", "prepare_side", "swap_sides", "take"]

# Up to this many states a region is given by the values of its units at all states.
TABLE_STATES = 16


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


@dataclass(frozen=True)
class Side:
    """A batch of circuits, ready to be paired.

    Parameters
    ----------
    plan : Plan
        The structure of the circuits.
    X : ndarray of shape (batch, n_columns)
        Their observed cells.
    matrices : dict of tuple of int to list of ndarray
        Per region the weights of each level of sums, shape (batch or 1, n_sums, n_nodes).
    tables : dict of tuple of int to ndarray
        Per region of few discrete states the values of its keys, shape
        (batch or 1, n_keys, n_states), states of the first variable slowest.
    """

    plan: Plan
    X: FloatArray
    matrices: dict[Scope, list[FloatArray]]
    tables: dict[Scope, FloatArray]

    @property
    def n_circuits(self) -> int:
        """Number of circuits."""
        return len(self.X)

    def slice(self, rows: slice) -> Side:
        """Take some of the circuits.

        Parameters
        ----------
        rows : slice
            Which ones.

        Returns
        -------
        Side
            A smaller side.
        """

        def cut(array: FloatArray) -> FloatArray:
            return array if len(array) == 1 else array[rows]

        matrices = {scope: [cut(m) for m in levels] for scope, levels in self.matrices.items()}
        tables = {scope: cut(table) for scope, table in self.tables.items()}
        return Side(self.plan, self.X[rows], matrices, tables)


def prepare_side(
    pairs: PairPlan, term: KernelTerm, batch: CircuitBatch, side: Literal["left", "right"]
) -> Side:
    """Gather the weights of a batch by region and tabulate its small regions.

    Parameters
    ----------
    pairs : PairPlan
        The compiled pair of structures.
    term : KernelTerm
        The kernel term; tables serve product kernels.
    batch : CircuitBatch
        The circuits.
    side : {"left", "right"}
        Which of the two structures they have.

    Returns
    -------
    Side
        The prepared circuits.
    """
    matrices: dict[Scope, list[FloatArray]] = {}
    tables: dict[Scope, FloatArray] = {}
    for region in pairs.regions:
        mixing: Mixing = getattr(region, side)
        matrices[region.scope] = [
            _level_matrix(level, n_nodes, batch.weights)
            for level, n_nodes in zip(mixing.levels, mixing.nodes_below, strict=True)
        ]
        if term.is_product and region.states and np.prod(region.states) <= TABLE_STATES:
            bases = _base_tables(region, batch, side, tables)
            keys = mix(bases[..., None], mixing, matrices[region.scope])
            tables[region.scope] = keys[..., 0]
    return Side(batch.plan, batch.X, matrices, tables)


def _base_tables(
    region: Region, batch: CircuitBatch, side: str, tables: dict[Scope, FloatArray]
) -> FloatArray:
    """Values of the bases of a region at all its states, shape (batch or 1, n_bases, n_states)."""
    parts = {}
    for pairing in region.pairings:
        numbers: IntArray = getattr(pairing, side)
        if numbers.tobytes() not in parts:
            tabulate = _input_table if pairing.inputs is not None else _product_table
            parts[numbers.tobytes()] = numbers, tabulate(region, pairing, batch, side, tables)
    if len(parts) == 1:
        return next(iter(parts.values()))[1]
    n_circuits = max(len(table) for _, table in parts.values())
    n_bases = getattr(region, side).n_bases
    result = np.empty((n_circuits, n_bases, int(np.prod(region.states))))
    for numbers, table in parts.values():
        result[:, numbers] = table
    return result


def _input_table(
    region: Region,
    pairing: BasePairing,
    batch: CircuitBatch,
    side: str,
    tables: dict[Scope, FloatArray],
) -> FloatArray:
    """Masses of input units; all mass on the state where it is observed."""
    assert pairing.inputs is not None
    number, units = pairing.inputs[:2] if side == "left" else pairing.inputs[2:]
    layer = batch.plan.inputs[number][1]
    assert isinstance(layer, DiscreteLayer)
    states = np.arange(region.states[0])
    masses = np.zeros((1, len(units), len(states)))
    own = layer.masses[units][:, : len(states)]
    masses[0, :, : own.shape[1]] = own
    cells = batch.X[:, region.scope[0]]
    if np.isnan(cells).all():
        return masses
    observed = (cells[:, None] == states)[:, None, :]
    return np.where(np.isnan(cells)[:, None, None], masses, observed)


def _product_table(
    region: Region,
    pairing: BasePairing,
    batch: CircuitBatch,
    side: str,
    tables: dict[Scope, FloatArray],
) -> FloatArray:
    """Outer products of the tables of the factors, states in the order of the variables."""
    variables: list[int] = []
    values = np.ones((1, 1, 1))
    for scope, asked, offered in pairing.factors:
        factor = take(tables[scope], asked if side == "left" else offered, 1)
        values = values[..., :, None] * factor[..., None, :]
        values = values.reshape(*values.shape[:2], -1)
        variables += scope
    sizes = [region.states[region.scope.index(variable)] for variable in variables]
    apart = values.reshape(*values.shape[:2], *sizes)
    order = [2 + variables.index(variable) for variable in region.scope]
    return apart.transpose(0, 1, *order).reshape(values.shape)


def mix(nodes: FloatArray, mixing: Mixing, matrices: Sequence[FloatArray]) -> FloatArray:
    """Mix bases into keys.

    Parameters
    ----------
    nodes : ndarray of shape (..., batch or 1, n_bases, m, n)
        Values of the bases.
    mixing : Mixing
        Which nodes are the keys.
    matrices : sequence of ndarray of shape (batch or 1, n_sums, n_nodes)
        Weights of each level of sums.

    Returns
    -------
    ndarray of shape (..., batch or 1, n_keys, m, n)
        Values of the keys.
    """
    for matrix in matrices:
        sums = matrix @ nodes.reshape(*nodes.shape[:-2], -1)
        sums = sums.reshape(*sums.shape[:-1], *nodes.shape[-2:])
        if len(matrices) == 1 and _are_the_sums(mixing, nodes.shape[-3], sums.shape[-3]):
            return sums
        if nodes.shape[-4] != sums.shape[-4]:
            nodes = np.broadcast_to(nodes, (*sums.shape[:-3], *nodes.shape[-3:]))
        nodes = np.concatenate([nodes, sums], axis=-3)
    return take(nodes, mixing.keys, -3)


def _are_the_sums(mixing: Mixing, n_nodes: int, n_sums: int) -> bool:
    """Whether the keys are the sums of the first level, in order."""
    return np.array_equal(mixing.keys, np.arange(n_nodes, n_nodes + n_sums))


def swap_sides(values: FloatArray) -> FloatArray:
    """Exchange left and right: (..., A, P, B, Q) to (..., B, Q, A, P).

    Parameters
    ----------
    values : ndarray of shape (..., A, P, B, Q)
        Values of pairs.

    Returns
    -------
    ndarray of shape (..., B, Q, A, P)
        A view.
    """
    return np.moveaxis(values, (-2, -1), (-4, -3))


def take(values: FloatArray, index: IntArray, axis: int) -> FloatArray:
    """Gather along an axis; no copy where everything is taken in order.

    Parameters
    ----------
    values : ndarray
        Where to gather.
    index : ndarray of int
        What to gather.
    axis : int
        Along which axis.

    Returns
    -------
    ndarray
        The values themselves where the index counts through the axis.
    """
    if np.array_equal(index, np.arange(values.shape[axis])):
        return values
    return np.take(values, index, axis=axis)


def _level_matrix(level: Level, n_nodes: int, weights: SumWeights) -> FloatArray:
    """Weights of a level of sums as matrices, shape (batch or 1, n_sums, n_nodes)."""
    linear = weights.linear[level.edges].reshape(len(level.edges), -1).T
    cells = level.rows * n_nodes + level.columns
    matrix = np.zeros((len(linear), level.n_sums * n_nodes))
    if len(np.unique(cells)) == len(cells):
        matrix[:, cells] = linear
    else:  # a child that occurs twice in one sum
        np.add.at(matrix.T, cells, linear.T)
    return matrix.reshape(-1, level.n_sums, n_nodes)
