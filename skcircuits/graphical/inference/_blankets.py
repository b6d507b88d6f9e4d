"""Full conditionals: each variable given its Markov blanket, by table lookup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from skcircuits.graphical.factors import Factor
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["FullConditional", "full_conditionals", "log_full_conditional", "markov_blankets"]

# Factors of one variable are merged into one table while it has at most this many cells.
_MERGED_CELLS = 4096


@dataclass(frozen=True)
class FullConditional:
    """The factors of one variable, ready for lookups.

    Parameters
    ----------
    columns : tuple of ndarray of int
        Per table the other variables it depends on.
    strides : tuple of ndarray of int
        Per table the weights that turn their states into a row number.
    log_tables : tuple of ndarray of shape (rows, states)
        Per table the log values for every state of the variable.
    """

    columns: tuple[IntArray, ...]
    strides: tuple[IntArray, ...]
    log_tables: tuple[FloatArray, ...]


def markov_blankets(factors: Sequence[Factor], n_variables: int) -> tuple[IntArray, ...]:
    """Find the variables that share a factor with each variable.

    Parameters
    ----------
    factors : sequence of Factor
        The factors of the model.
    n_variables : int
        Number of variables.

    Returns
    -------
    tuple of ndarray of int
        Sorted blankets, without the variable itself.
    """
    blankets: list[set[int]] = [set() for _ in range(n_variables)]
    for factor in factors:
        for variable in factor.scope:
            blankets[variable].update(factor.scope)
    return tuple(
        np.array(sorted(blanket - {variable}), dtype=np.int64)
        for variable, blanket in enumerate(blankets)
    )


def full_conditionals(
    factors: Sequence[Factor], cardinalities: IntArray
) -> tuple[FullConditional, ...]:
    """Collect the factors of every variable.

    Parameters
    ----------
    factors : sequence of Factor
        The factors of the model.
    cardinalities : ndarray of int of shape (d,)
        Number of states of each variable.

    Returns
    -------
    tuple of FullConditional
        One per variable.
    """
    touching: list[list[Factor]] = [[] for _ in cardinalities]
    for factor in factors:
        for variable in factor.scope:
            touching[variable].append(factor)
    return tuple(
        _merge(variable, members, cardinalities) for variable, members in enumerate(touching)
    )


def log_full_conditional(conditional: FullConditional, codes: IntArray) -> FloatArray:
    """Evaluate a full conditional up to a constant per row.

    Parameters
    ----------
    conditional : FullConditional
        The factors of one variable.
    codes : ndarray of int of shape (n, d)
        States of all variables; the variable's own column is ignored.

    Returns
    -------
    ndarray of shape (n, states)
        Sum of the log factors for every state of the variable.
    """
    # Usually a single table: the merged one.
    lookups = zip(conditional.columns, conditional.strides, conditional.log_tables)
    columns, strides, table = next(lookups)
    total = table[codes[:, columns] @ strides]
    for columns, strides, table in lookups:
        total += table[codes[:, columns] @ strides]
    return total


def _merge(variable: int, factors: list[Factor], cardinalities: IntArray) -> FullConditional:
    """Group factors greedily, smallest blankets first, into tables of bounded size."""
    # The first group exists even without factors: its table is the uniform distribution.
    groups: list[tuple[list[int], list[Factor]]] = [([], [])]
    for factor in sorted(factors, key=lambda factor: len(factor.scope)):
        blanket = sorted({*groups[-1][0], *factor.scope} - {variable})
        if groups[-1][1] and prod(cardinalities[[*blanket, variable]].tolist()) > _MERGED_CELLS:
            blanket = sorted(set(factor.scope) - {variable})
            groups.append((blanket, []))
        groups[-1] = (blanket, [*groups[-1][1], factor])
    columns = tuple(np.array(blanket, dtype=np.int64) for blanket, _ in groups)
    return FullConditional(
        columns=columns,
        strides=tuple(_strides(cardinalities[blanket]) for blanket in columns),
        log_tables=tuple(
            _sum_of_factors([*blanket, variable], members, cardinalities)
            for blanket, members in groups
        ),
    )


def _strides(states: IntArray) -> IntArray:
    """Weights of a mixed-radix code, last variable fastest."""
    return np.append(np.cumprod(states[:0:-1])[::-1], 1)[: len(states)].astype(np.int64)


def _sum_of_factors(axes: list[int], factors: list[Factor], cardinalities: IntArray) -> FloatArray:
    """Add log tables over common axes; the last axis stays apart."""
    total = np.zeros(cardinalities[axes])
    for factor in factors:
        # Axes in the order of the group, of length one where the factor has none.
        order = np.argsort([axes.index(v) for v in factor.scope])
        shape = [int(cardinalities[v]) if v in factor.scope else 1 for v in axes]
        total += factor.log_table.transpose(order).reshape(shape)
    return total.reshape(-1, int(cardinalities[axes[-1]]))
