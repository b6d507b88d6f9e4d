"""Variable elimination as a tree of buckets, and the two passes over it.

Summing the variables of a connected graph out one by one leaves one bucket per variable
(Dechter 1999). The forward pass turns the factors into ``p(variable | separator)``, a
distribution that factorises along the tree; the backward pass gives the marginals. Both
work on a batch: row ``r`` of every table belongs to the r-th evidence, the structure is
shared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from skcircuits.numerics._random import draw_states
from skcircuits.protocols import FloatArray, IntArray

__all__ = [
    "Bucket",
    "EliminationTree",
    "Table",
    "backward_pass",
    "build_tree",
    "draw_rows",
    "forward_pass",
    "joint_table",
]

# A table of a batch of evidences, (rows or 1, *states), and the variable of each axis.
Table = tuple[FloatArray, Sequence[int]]


@dataclass(frozen=True)
class Bucket:
    """One variable with what is needed to sum it out."""

    variable: int
    separator: tuple[int, ...]
    factors: tuple[int, ...]
    children: tuple[int, ...]

    @property
    def axes(self) -> tuple[int, ...]:
        """Variables of the axes of the tables of this bucket."""
        return (*self.separator, self.variable)


@dataclass(frozen=True)
class EliminationTree:
    """The buckets of one connected graph in elimination order; the last is the root."""

    buckets: tuple[Bucket, ...]
    cardinalities: tuple[int, ...]

    @property
    def width(self) -> int:
        """Size of the largest separator, the induced width of the order."""
        return max(len(bucket.separator) for bucket in self.buckets)

    @property
    def n_cells(self) -> int:
        """Cells of all tables together, for one evidence."""
        return sum(prod(self.shape(bucket.axes)) for bucket in self.buckets)

    @property
    def variables(self) -> tuple[int, ...]:
        """The variables, root first: the axes of the joint table."""
        return tuple(bucket.variable for bucket in reversed(self.buckets))

    def shape(self, variables: Sequence[int]) -> tuple[int, ...]:
        """Give the number of states of some variables."""
        return tuple(self.cardinalities[v] for v in variables)


def build_tree(
    scopes: Sequence[Sequence[int]], order: Sequence[int], cardinalities: Sequence[int]
) -> EliminationTree:
    """Lay out the buckets of an elimination order."""
    position = {variable: step for step, variable in enumerate(order)}
    factors: list[list[int]] = [[] for _ in order]
    cliques: list[set[int]] = [{variable} for variable in order]
    children: list[list[int]] = [[] for _ in order]
    for index, scope in enumerate(scopes):
        # A factor belongs where its first variable is summed out.
        first = min(position[v] for v in scope)
        factors[first].append(index)
        cliques[first].update(scope)
    buckets = []
    for step, variable in enumerate(order):
        # Latest first, everywhere: axes of messages and tables then align by reshaping.
        separator = sorted(cliques[step] - {variable}, key=position.__getitem__, reverse=True)
        if separator:
            # The message is next needed where its earliest variable goes.
            parent = position[separator[-1]]
            children[parent].append(step)
            cliques[parent].update(separator)
        buckets.append(
            Bucket(variable, tuple(separator), tuple(factors[step]), tuple(children[step]))
        )
    return EliminationTree(tuple(buckets), tuple(int(k) for k in cardinalities))


def forward_pass(
    tree: EliminationTree, factors: Sequence[Table]
) -> tuple[list[FloatArray], FloatArray]:
    """Sum the variables out, leaves first."""
    conditionals: list[FloatArray] = []
    messages: list[FloatArray] = []
    for bucket in tree.buckets:
        incoming = [factors[index] for index in bucket.factors]
        incoming += [(messages[child], tree.buckets[child].separator) for child in bucket.children]
        # Row axis of length one until a table of the evidences joins.
        total = np.zeros((1, *tree.shape(bucket.axes)))
        for table, variables in incoming:
            total = total + _aligned(table, variables, bucket.axes)
        conditional, message = _normalize(total)
        conditionals.append(conditional)
        messages.append(message)
    return conditionals, messages[-1]


def backward_pass(
    tree: EliminationTree, log_conditionals: Sequence[FloatArray]
) -> dict[int, FloatArray]:
    """Compute all marginals, root first."""
    # p(separator) of each bucket; the root has an empty separator.
    contexts: dict[int, FloatArray] = {len(tree.buckets) - 1: np.ones(1)}
    marginals = {}
    for step in range(len(tree.buckets) - 1, -1, -1):
        bucket = tree.buckets[step]
        joint = contexts.pop(step)[..., None] * np.exp(log_conditionals[step])
        marginals[bucket.variable] = joint.sum(axis=tuple(range(1, joint.ndim - 1)))
        for child in bucket.children:
            kept = tree.buckets[child].separator
            # A child's separator lies within the clique of its parent.
            dropped = [axis for axis, v in enumerate(bucket.axes, start=1) if v not in kept]
            contexts[child] = joint.sum(axis=tuple(dropped))
    return marginals


def draw_rows(
    tree: EliminationTree,
    log_conditionals: Sequence[FloatArray],
    rows: IntArray,
    codes: IntArray,
    rng: np.random.Generator,
) -> None:
    """Draw the variables of the tree, root first, and write them into ``codes``."""
    for bucket, conditional in zip(reversed(tree.buckets), reversed(log_conditionals)):
        # Parents were drawn before: their columns of the codes are valid.
        row = rows if conditional.shape[0] > 1 else np.zeros_like(rows)
        weights = np.exp(conditional[(row, *(codes[:, v] for v in bucket.separator))])
        codes[:, bucket.variable] = draw_states(weights, rng.random(len(codes)))


def joint_table(tree: EliminationTree, log_conditionals: Sequence[FloatArray]) -> FloatArray:
    """Multiply the conditionals out."""
    total = np.zeros((1,) * (1 + len(tree.buckets)))
    for bucket, conditional in zip(tree.buckets, log_conditionals):
        total = total + _aligned(conditional, bucket.axes, tree.variables)
    return np.exp(total)


def _aligned(table: FloatArray, variables: Sequence[int], axes: Sequence[int]) -> FloatArray:
    """Order the axes of a table like ``axes``, with length one where it has none."""
    order = sorted(range(len(variables)), key=lambda axis: axes.index(variables[axis]))
    table = table.transpose([0, *(axis + 1 for axis in order)])
    present = set(variables)
    states = iter(table.shape[1:])
    return table.reshape(table.shape[0], *(next(states) if v in present else 1 for v in axes))


def _normalize(log_table: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Split a log table into conditionals over its last axis and log normalisers."""
    peak = log_table.max(axis=-1, keepdims=True)
    # Impossible contexts get zeros here, the uniform distribution in the end.
    impossible = np.isneginf(peak)
    shifted = np.where(impossible, 0.0, log_table - np.where(impossible, 0.0, peak))
    log_sum = np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted - log_sum, np.where(impossible, -np.inf, peak + log_sum)[..., 0]
