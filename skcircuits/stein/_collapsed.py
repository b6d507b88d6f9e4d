"""Stein kernels of collapsed rows: one set of collapsed variables, or a set for every row.

A collapsed row represents its observed states and the exact conditional distribution of the other
variables. For a product kernel, an entry is the kernel of the observed states times one expected
kernel per component of collapsed variables, and only the components next to a variable change when
that variable moves.

Rows with different collapsed variables have no common structure, so that their measures are
compared on the joint states of all variables: one side as a sparse vector (its support is small),
the other multiplied with the kernel table of every variable, which makes it dense.

The expected kernels are ``M(a, b) = E[k(x, y)]`` for x ~ p(. | a), y ~ p(. | b), for all pairs of a
batch. Components with a small joint state space are embedded as tables times kernel tables, which
is one matrix product. Larger ones are computed by a pass over pairs of buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.graphical.inference._elimination import EliminationTree
from skcircuits.graphical.inference._posterior import Component, Posterior, Solution
from skcircuits.graphical.inference._propagation import joint_table
from skcircuits.graphical.inference._rows import missing_patterns
from skcircuits.parallel import memory_bound_chunks, working_memory_bytes
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein._measures import (
    Atoms,
    Measures,
    ProductTerm,
    contract,
    moved_rows,
)

# Joint tables of at most this many states are multiplied out.
EMBEDDED_STATES = 4096

Tables = Mapping[int, FloatArray]
# A Gram matrix of collapsed rows that would take longer is refused before it starts.
MAX_SECONDS = 60.0
# Multiplications per second, of joint tables and of the pass over pairs of cliques.
EMBEDDED_RATE, PAIRED_RATE = 5e9, 3e8


def expected_kernel_of_component(left: Solution, right: Solution, tables: Tables) -> FloatArray:
    """Compute the expected kernel of one component for all pairs of evidences."""
    tree = left.component.tree
    if np.prod(tree.shape(tree.variables), dtype=float) <= EMBEDDED_STATES:
        values = _embedded(tree, left.conditionals, right.conditionals, tables)
    else:
        values = _paired(tree, left.conditionals, right.conditionals, tables)
    # If no evidence reaches the component, one table serves all rows.
    values = np.broadcast_to(values, (len(left.log_partition), len(right.log_partition)))
    return values[left.rows][:, right.rows]


def apply_tables(vectors: FloatArray, tables: Sequence[FloatArray]) -> FloatArray:
    """Multiply each axis of a batch of tensors with a matrix."""
    for table in tables:
        # Each product consumes the first state axis and appends the new one.
        vectors = np.tensordot(vectors, table, axes=(1, 0))
    return vectors


def _embedded(
    tree: EliminationTree, left: Sequence[FloatArray], right: Sequence[FloatArray], tables: Tables
) -> FloatArray:
    # One side carries the kernel: K is symmetric.
    weighted = apply_tables(joint_table(tree, left), [tables[v] for v in tree.variables])
    other = joint_table(tree, right)
    return weighted.reshape(len(weighted), -1) @ other.reshape(len(other), -1).T


def _paired(
    tree: EliminationTree, left: Sequence[FloatArray], right: Sequence[FloatArray], tables: Tables
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
    tree: EliminationTree, left: Sequence[FloatArray], right: Sequence[FloatArray], tables: Tables
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


def shared_block(
    left: Measures, right: Measures, *, posterior: Posterior, terms: Sequence[ProductTerm]
) -> FloatArray:
    """Compute the Stein kernel of rows that collapse the same variables."""
    pair = _Pair(posterior, _codes(left.X), _codes(right.X))
    total = np.zeros((len(pair.left), len(pair.right)))
    for term in terms:
        # At the rows themselves; valid wherever the moving variable is not on the boundary.
        fixed = [pair.expectations(part, term.tables) for part in posterior.components]
        for variable, ours in left.atoms.items():
            theirs = right.atoms[variable]
            touching = [variable in component.boundary for component in posterior.components]
            # Kernel of the moving variable, then of the components that depend on it.
            values = term.tables[variable][ours.locations.ravel()][:, theirs.locations.ravel()]
            for component, touches in zip(posterior.components, touching):
                if touches:
                    moved = pair.moved(variable, ours, theirs)
                    values = values * moved.expectations(component, term.tables)
            # Everything else is common to all atoms of a pair of rows.
            block = term.weight * contract(ours, theirs, values)
            for expectation, touches in zip(fixed, touching):
                if not touches:
                    block *= expectation
            total += block * pair.kernel_without(variable, left.atoms, term.tables)
    return total


def estimated_seconds(posterior: Posterior, n_rows: int, counts: IntArray) -> float:
    """Estimate the time of a Gram matrix from the sizes of the cliques that are summed over."""
    seconds = 0.0
    for component in posterior.components:
        tree = component.tree
        n_states = float(np.prod(tree.shape(tree.variables), dtype=float))
        cliques = sum(float(np.prod(tree.shape(b.axes), dtype=float)) ** 2 for b in tree.buckets)
        is_embedded = n_states <= EMBEDDED_STATES
        cost = n_states / EMBEDDED_RATE if is_embedded else cliques / PAIRED_RATE
        # At the rows themselves, and with each variable of the boundary moved in both.
        moves = sum(float(counts[variable]) ** 2 for variable in component.boundary)
        seconds += cost * n_rows**2 * (1.0 + moves) / 2.0
    return seconds


class _Pair:
    """Two batches of evidences and the kernels between them."""

    def __init__(self, posterior: Posterior, left: IntArray, right: IntArray) -> None:
        self.posterior = posterior
        self.left = left
        self.right = right

    def moved(self, variable: int, left: Atoms, right: Atoms) -> _Pair:
        """Give the evidences of all atoms of one variable."""
        return _Pair(
            self.posterior,
            # The evidence moves, which need not be where the atom sits.
            moved_rows(self.left, variable, left.evidence),
            moved_rows(self.right, variable, right.evidence),
        )

    def expectations(self, component: Component, tables: Tables) -> FloatArray:
        """Expected kernel of one component for all pairs."""
        return expected_kernel_of_component(
            self.posterior.solve_component(component, self.left),
            self.posterior.solve_component(component, self.right),
            tables,
        )

    def kernel_without(self, variable: int, observed: Iterable[int], tables: Tables) -> FloatArray:
        """Multiply the kernels of all observed variables but one."""
        product = np.ones((len(self.left), len(self.right)))
        for other in observed:
            if other != variable:
                product *= tables[other][self.left[:, other]][:, self.right[:, other]]
        return product


def _codes(X: FloatArray) -> IntArray:
    # States of collapsed variables are never read.
    return np.nan_to_num(X, nan=0.0).astype(np.int64)


@dataclass(frozen=True)
class RowMeasure:
    """The signed measure of one row and one variable."""

    states: IntArray  # (d,)
    variable: int
    hidden: tuple[int, ...]
    locations: IntArray  # (m,)
    weights: FloatArray  # (m, *states of the hidden variables)


def check_joint_states(counts: IntArray, n_rows: int) -> None:
    """Refuse when a batch of dense vectors over all joint states would not fit."""
    n_bytes = 8 * n_rows * prod(counts.tolist())
    if n_bytes > working_memory_bytes():
        raise CircuitPropertyError(
            must(
                "rows that collapse different variables",
                "have few joint states",
                f"{n_rows} rows need {n_bytes / 2**20:.3g} MiB: collapse the same variables "
                "in all rows, or raise sklearn.set_config(working_memory=...).",
                n_joint_states=prod(counts.tolist()),
            )
        )


def row_measures(measures: Measures, target: Any) -> list[dict[int, RowMeasure]]:
    """Solve the conditional distributions of all atoms of all rows."""
    solved: list[dict[int, RowMeasure]] = [{} for _ in measures.X]
    for rows, hidden in missing_patterns(np.isnan(measures.X)):
        codes = np.nan_to_num(measures.X[rows], nan=0.0).astype(np.int64)
        mine = {v: atoms[rows] for v, atoms in measures.atoms.items() if v not in hidden}
        if not mine:
            continue
        # All rows with one pattern, all their variables and atoms in one solve.
        evidence = [moved_rows(codes, v, atoms.evidence) for v, atoms in mine.items()]
        joint = _joint_distribution(
            target.posterior(hidden), np.concatenate(evidence), measures.counts
        )
        parts = np.split(joint, np.cumsum([len(part) for part in evidence])[:-1])
        for (variable, atoms), part in zip(mine.items(), parts):
            weights = part.reshape(*atoms.coefficients.shape, *part.shape[1:])
            weights = weights * np.expand_dims(
                atoms.coefficients, axis=tuple(range(2, weights.ndim))
            )
            # From here on rows are treated separately, because their patterns differ.
            for index, row in enumerate(rows.tolist()):
                solved[row][variable] = RowMeasure(
                    codes[index],
                    variable,
                    tuple(sorted(hidden)),
                    atoms.locations[index],
                    weights[index],
                )
    return solved


def _joint_distribution(posterior: Posterior, codes: IntArray, counts: IntArray) -> FloatArray:
    """Multiply the components out; axes are the hidden variables in increasing order."""
    # Components are independent given the observed states.
    hidden = sorted(posterior.hidden)
    joint = np.ones((1,) * (1 + len(hidden)))
    for solution in posterior.solve(codes):
        variables = solution.component.tree.variables
        table = joint_table(solution.component.tree, solution.conditionals)
        table = table[solution.rows] if len(table) > 1 else table
        order = np.argsort(variables)
        shape = [int(counts[v]) if v in variables else 1 for v in hidden]
        joint = joint * table.transpose(0, *(order + 1)).reshape(len(table), *shape)
    return np.broadcast_to(joint, (len(codes), *joint.shape[1:]))


def rows_block(
    left: Sequence[dict[int, RowMeasure]],
    right: Sequence[dict[int, RowMeasure]],
    *,
    counts: IntArray,
    terms: Sequence[ProductTerm],
) -> FloatArray:
    """Compute the Stein kernel of rows that collapse variables of their own."""
    total = np.zeros((len(left), len(right)))
    for variable in range(len(counts)):
        # Only pairs of rows that both sampled the variable have a term for it.
        ours = [index for index, row in enumerate(left) if variable in row]
        theirs = [index for index, row in enumerate(right) if variable in row]
        if not ours or not theirs:
            continue
        sparse = _sparse_rows((right[index][variable] for index in theirs), counts)
        for term in terms:
            # The dense side is the large one: it exists for one variable at a time.
            dense = np.stack(
                [_dense_row(left[index][variable], counts, term.tables) for index in ours]
            )
            total[np.ix_(ours, theirs)] += term.weight * (sparse @ dense.T).T
    return total


def _sparse_rows(measures: Iterator[RowMeasure], counts: IntArray) -> csr_array:
    """Lay measures out on the joint states of all variables, last variable fastest."""
    strides = np.append(np.cumprod(counts[:0:-1])[::-1], 1)
    indices, values, ends = [], [], [0]
    for measure in measures:
        hidden = list(measure.hidden)
        shape = tuple(counts[hidden].tolist())
        free = np.indices(shape).reshape(len(shape), prod(shape))
        offsets = strides[hidden] @ free
        # The moving variable and the hidden ones get their own offsets.
        states = measure.states.copy()
        states[[*hidden, measure.variable]] = 0
        origin = states @ strides + measure.locations * strides[measure.variable]
        indices.append((origin[:, None] + offsets).ravel())
        values.append(measure.weights.ravel())
        ends.append(ends[-1] + measure.weights.size)
    cells = (np.concatenate(values), np.concatenate(indices), ends)
    return csr_array(cells, shape=(len(ends) - 1, prod(counts.tolist())))


def _dense_row(measure: RowMeasure, counts: IntArray, tables: Tables) -> FloatArray:
    """Apply the kernel table of every variable to a measure."""
    variable, hidden = measure.variable, measure.hidden
    smooth = apply_tables(measure.weights, [tables[v] for v in hidden])
    moving = np.tensordot(tables[variable][measure.locations], smooth, axes=(0, 0))
    others = [v for v in tables if v != variable and v not in hidden]
    # Observed variables: an outer product of rows of their tables.
    fixed = np.ones(1)
    for v in others:
        fixed = np.multiply.outer(fixed, tables[v][measure.states[v]]).ravel()
    axes = [*others, variable, *hidden]
    # Back to the axes in the order of the variables, as the sparse side has them.
    dense = np.multiply.outer(fixed, moving.ravel()).reshape(counts[axes])
    return dense.transpose(np.argsort(axes)).ravel()
