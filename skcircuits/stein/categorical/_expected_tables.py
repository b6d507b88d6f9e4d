"""Expected kernels between conditional distributions of collapsed variables.

``M(a, b) = E[k(x, y)]`` for x ~ p(. | a), y ~ p(. | b) and a product kernel, for all pairs
of a batch. Components with a small joint state space are embedded: tables times kernel
tables, one matrix product. Larger ones go through a pass over pairs of buckets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from skcircuits.graphical.inference._elimination import EliminationTree
from skcircuits.graphical.inference._posterior import Solution
from skcircuits.graphical.inference._propagation import joint_table
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray

# Joint tables of at most this many states are multiplied out.
EMBEDDED_STATES = 4096

Tables = Mapping[int, FloatArray]


def expected_kernel_of_component(left: Solution, right: Solution, tables: Tables) -> FloatArray:
    """Compute the expected kernel of one component for all pairs of evidences."""
    tree = left.component.tree
    if np.prod(tree.shape(tree.variables), dtype=float) <= EMBEDDED_STATES:
        values = _embedded(tree, left.conditionals, right.conditionals, tables)
    else:
        values = _paired(tree, left.conditionals, right.conditionals, tables)
    # Where no evidence reaches the component one table stands for all.
    values = np.broadcast_to(values, (len(left.log_partition), len(right.log_partition)))
    return values[left.rows][:, right.rows]


def apply_tables(vectors: FloatArray, tables: Sequence[FloatArray]) -> FloatArray:
    """Multiply each axis of a batch of tensors with a matrix."""
    for table in tables:
        # Each product consumes the first state axis and appends the new one.
        vectors = np.tensordot(vectors, table, axes=(1, 0))
    return vectors


def _embedded(
    tree: EliminationTree,
    left: Sequence[FloatArray],
    right: Sequence[FloatArray],
    tables: Tables,
) -> FloatArray:
    # One side carries the kernel: K is symmetric.
    weighted = apply_tables(joint_table(tree, left), [tables[v] for v in tree.variables])
    other = joint_table(tree, right)
    return weighted.reshape(len(weighted), -1) @ other.reshape(len(other), -1).T


def _paired(
    tree: EliminationTree,
    left: Sequence[FloatArray],
    right: Sequence[FloatArray],
    tables: Tables,
) -> FloatArray:
    """Pass over pairs of buckets, for blocks of pairs that fit into memory."""
    n_left, n_right = max(map(len, left)), max(map(len, right))
    values = np.empty((n_left, n_right))
    # The largest clique squared, per pair, with room for the operands of one product.
    widest = max(int(np.prod(tree.shape(bucket.axes))) for bucket in tree.buckets)
    for rows in memory_bound_chunks(n_left, 8 * 4 * n_right * widest**2):
        block = [table[rows] if len(table) > 1 else table for table in left]
        values[rows] = _pair_pass(tree, block, right, tables)
    return values


def _pair_pass(
    tree: EliminationTree,
    left: Sequence[FloatArray],
    right: Sequence[FloatArray],
    tables: Tables,
) -> FloatArray:
    """Expected kernel below every pair of contexts, leaves first.

    Messages have the axes (left rows, right rows, *left separator, *right separator).
    """
    messages: list[FloatArray] = []
    for bucket, mine, other in zip(tree.buckets, left, right):
        depth = len(bucket.axes)
        ours = list(range(2, 2 + depth))
        theirs = list(range(2 + depth, 2 + 2 * depth))
        operands: list[Any] = [
            mine,
            [0, *ours],
            other,
            [1, *theirs],
            tables[bucket.variable],
            [ours[0], theirs[0]],
        ]
        for child in bucket.children:
            axes = [bucket.axes.index(v) for v in tree.buckets[child].separator]
            labels = [0, 1, *(ours[a] for a in axes), *(theirs[a] for a in axes)]
            operands += [messages[child], labels]
        output = [0, 1, *ours[1:], *theirs[1:]]
        # Tables of all rows have length one and broadcast.
        messages.append(np.einsum(*operands, output, optimize="greedy"))
    return messages[-1]
