"""Stein kernels of collapsed rows when every row collapses its own variables.

Two rows then have no common structure, so their measures are compared on the joint states of
all variables: one side as a sparse vector (its support is small), the other multiplied
with the kernel table of every variable, which makes it dense.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.graphical.inference._posterior import Posterior
from skcircuits.graphical.inference._propagation import joint_table
from skcircuits.graphical.inference._rows import missing_patterns
from skcircuits.parallel import working_memory_bytes
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein.categorical._expected_tables import Tables, apply_tables
from skcircuits.stein.categorical._measures import Measures, moved_rows
from skcircuits.stein.categorical._product_terms import ProductTerm


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
            # From here on every row goes its own way: the patterns differ.
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
