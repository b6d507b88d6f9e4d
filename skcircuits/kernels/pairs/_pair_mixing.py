"""From values of bases to values of keys: the sums of a region on both sides of its pairs.

The sums of the left circuits are matrices times values, those of the right circuits are values
times matrices, so neither needs the values of pairs in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.kernels.pairs._pair_regions import Level, Mixing
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["level_matrices", "mix_left", "mix_right", "right_sums", "take"]


def mix_left(nodes: FloatArray, mixing: Mixing, matrices: Sequence[FloatArray]) -> FloatArray:
    """Mix bases of the left circuits into keys.

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
    return _mix(nodes, mixing, matrices, -3, _left_sums)


def mix_right(nodes: FloatArray, mixing: Mixing, matrices: Sequence[FloatArray]) -> FloatArray:
    """Mix bases of the right circuits into keys.

    Parameters
    ----------
    nodes : ndarray of shape (..., k, m, batch or 1, n_bases)
        Values of the bases.
    mixing : Mixing
        Which nodes are the keys.
    matrices : sequence of ndarray of shape (batch or 1, n_nodes, n_sums)
        Weights of each level of sums; products with contiguous ones are the fastest.

    Returns
    -------
    ndarray of shape (..., k, m, batch or 1, n_keys)
        Values of the keys.
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
    """Multiply values by matrices of the right circuits.

    Parameters
    ----------
    matrix : ndarray of shape (batch or 1, n_nodes, n_sums)
        One matrix per right circuit.
    nodes : ndarray of shape (..., batch or 1, n_nodes)
        Values.

    Returns
    -------
    ndarray of shape (..., batch or 1, n_sums)
        Weighted sums; neither the values nor they are copied into another order.
    """
    flat = nodes.reshape(-1, *nodes.shape[-2:])
    sums = np.empty((len(flat), max(len(matrix), flat.shape[1]), matrix.shape[2]))
    np.matmul(flat.transpose(1, 0, 2), matrix, out=sums.transpose(1, 0, 2))
    return sums.reshape(*nodes.shape[:-2], *sums.shape[1:])


def take(values: FloatArray, index: IntArray | None, axis: int) -> FloatArray:
    """Gather along an axis; no copy where everything is taken in order.

    Parameters
    ----------
    values : ndarray
        Where to gather.
    index : ndarray of int or None
        What to gather; None for everything.
    axis : int
        Along which axis.

    Returns
    -------
    ndarray
        The values themselves where the index is None.
    """
    return values if index is None else np.take(values, index, axis=axis)


def level_matrices(
    mixing: Mixing, weights: SumWeights, side: Literal["left", "right"]
) -> list[FloatArray]:
    """Arrange the weights of a region's sums as matrices.

    Parameters
    ----------
    mixing : Mixing
        The sums of the region.
    weights : SumWeights
        Weights of shape (n_edges,) or (n_edges, batch).
    side : {"left", "right"}
        Matrices of the right stand behind the values.

    Returns
    -------
    list of ndarray
        One per level of sums: of shape (batch or 1, n_sums, n_nodes) on the left, of shape
        (batch or 1, n_nodes, n_sums) on the right.
    """
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
