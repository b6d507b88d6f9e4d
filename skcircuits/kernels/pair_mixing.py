"""From values of bases to values of keys: the sums of a region on both sides of its pairs.

The sums of the left circuits are matrices times values, those of the right circuits are values
times matrices, so neither needs the values of pairs in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from skcircuits.circuits.layers import SumWeights
from skcircuits.kernels.pair_plan import Level, Mixing
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["level_matrices", "mix_left", "mix_right", "take"]


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
    return _mix(nodes, mixing, matrices, -1, _right_sums)


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
    return take(nodes, mixing.keys, axis)


def _left_sums(matrix: FloatArray, nodes: FloatArray) -> FloatArray:
    """Matrix products over the third axis from the end."""
    sums = matrix @ nodes.reshape(*nodes.shape[:-2], -1)
    return sums.reshape(*sums.shape[:-1], *nodes.shape[-2:])


def _right_sums(matrix: FloatArray, nodes: FloatArray) -> FloatArray:
    """Matrix products over the last axis; neither operand nor result is copied in between."""
    flat = nodes.reshape(-1, *nodes.shape[-2:])
    sums = np.empty((len(flat), max(len(matrix), flat.shape[1]), matrix.shape[2]))
    np.matmul(flat.transpose(1, 0, 2), matrix, out=sums.transpose(1, 0, 2))
    return sums.reshape(*nodes.shape[:-2], *sums.shape[1:])


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
    if len(index) == values.shape[axis] and bool((index[1:] > index[:-1]).all()):
        return values
    return np.take(values, index, axis=axis)


def level_matrices(mixing: Mixing, weights: SumWeights) -> list[FloatArray]:
    """Arrange the weights of a region's sums as matrices.

    Parameters
    ----------
    mixing : Mixing
        The sums of the region.
    weights : SumWeights
        Weights of shape (n_edges,) or (n_edges, batch).

    Returns
    -------
    list of ndarray of shape (batch or 1, n_sums, n_nodes)
        One per level of sums.
    """
    levels = zip(mixing.levels, mixing.nodes_below, strict=True)
    return [_level_matrix(level, n_nodes, weights) for level, n_nodes in levels]


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
