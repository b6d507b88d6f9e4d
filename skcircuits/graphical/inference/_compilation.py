"""Compilation to circuits: the trace of variable elimination, read top-down.

A bucket that holds ``p(x | separator)`` becomes one sum unit per state of its separator:
over the states of x, an indicator times the units of the child buckets in the context
that state completes. Contexts with equal distributions and equal children share one unit,
so the circuit is context-minimal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.circuits import Categorical, Indicator, Product, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.exceptions import must
from skcircuits.graphical.inference._elimination_tree import Bucket
from skcircuits.graphical.inference._posterior import Posterior, Solution
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["compile_posterior"]

UnitTable = NDArray[np.object_]


def compile_posterior(posterior: Posterior, codes: IntArray) -> Unit:
    """Build the units of ``p(hidden | observed)`` for one evidence."""
    # Components are independent given the evidence: their product is the circuit.
    roots = [_compile_solution(solution) for solution in posterior.solve(codes)]
    if not roots:
        raise ValueError(
            must("evidence", "leave a variable free", "log_partition(evidence) is a number.")
        )
    return roots[0] if len(roots) == 1 else Product(roots)


def _compile_solution(solution: Solution) -> Unit:
    tree = solution.component.tree
    tables: list[UnitTable] = []
    for bucket, log_conditional in zip(tree.buckets, solution.log_conditionals):
        # Axes of length one appear where no factor saw the variable.
        weights = np.broadcast_to(np.exp(log_conditional[0]), tree.shape(bucket.axes))
        # Leaves of the tree need no indicators: a categorical unit says it all.
        if bucket.children:
            # Units of one variable are shared within its bucket; others cannot be equal.
            factory = _SumFactory(bucket.variable, weights.shape[-1])
            children = _child_contexts(bucket, tree.buckets, tables, weights.shape)
            units = [factory.unit(*context) for context in zip(_rows(weights), children)]
        else:
            units = _categoricals(bucket.variable, weights)
        # Assigning a list to an object array would look into the units.
        table = np.empty(len(units), dtype=object)
        table[:] = units
        tables.append(table.reshape(weights.shape[:-1]))
    root: Unit = tables[-1].item()
    return root


def _rows(weights: FloatArray) -> FloatArray:
    return weights.reshape(-1, weights.shape[-1])


def _categoricals(variable: int, weights: FloatArray) -> list[Unit]:
    """One input unit per distinct distribution."""
    distinct, which = np.unique(_rows(weights), axis=0, return_inverse=True)
    units = [Categorical(variable, probabilities) for probabilities in distinct]
    return [units[index] for index in which.ravel()]


def _child_contexts(
    bucket: Bucket, buckets: tuple[Bucket, ...], tables: list[UnitTable], shape: tuple[int, ...]
) -> list[list[list[Unit]]]:
    """Per context of a bucket, per state of its variable: the units of its children."""
    columns = []
    for child in bucket.children:
        # Separators list variables in the order of the axes, so new axes are enough.
        seen = buckets[child].separator
        table = tables[child][tuple(slice(None) if v in seen else None for v in bucket.axes)]
        columns.append(np.broadcast_to(table, shape))
    contexts: list[list[list[Unit]]] = (
        np.stack(columns, axis=-1).reshape(-1, shape[-1], len(columns)).tolist()
    )
    return contexts


class _SumFactory:
    """Sum units over the states of one variable; equal units are built once."""

    def __init__(self, variable: int, n_states: int) -> None:
        self.indicators = [Indicator(variable, state, n_states) for state in range(n_states)]
        self.units: dict[Any, Unit] = {}

    def unit(self, weights: FloatArray, children: list[list[Unit]]) -> Unit:
        """Give ``sum_x weights[x] [X = x] prod(children[x])``."""
        # States of probability zero leave no trace: this is where determinism pays.
        states = weights.nonzero()[0].tolist()
        products = [self._product(state, children[state]) for state in states]
        # Bitwise equal weights and the same children: the same function.
        key = (weights[states].tobytes(), *map(id, products))
        if key not in self.units:
            self.units[key] = Sum(products, weights=weights[states])
        return self.units[key]

    def _product(self, state: int, children: Sequence[Unit]) -> Unit:
        key = (state, *map(id, children))
        if key not in self.units:
            self.units[key] = Product([self.indicators[state], *children])
        return self.units[key]
