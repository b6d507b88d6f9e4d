"""Tree distributions as circuits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from skcircuits.circuits import Product, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.tree._layout import StateLayout
from skcircuits.trees.tree._rooted import children_of, top_down_order

#: Makes an input unit from a variable and the probabilities of its states.
InputMaker = Callable[[int, FloatArray], Unit]


class PairTables(Protocol):
    """Probabilities of states (n_states,) and pairs of states (n_states, n_states)."""

    @property
    def layout(self) -> StateLayout:
        """Numbering of the states."""

    @property
    def nodes(self) -> FloatArray:
        """Probability of every state."""

    @property
    def pairs(self) -> FloatArray:
        """Probability of every pair of states."""


def tree_unit(tables: list[FloatArray], parents: IntArray, make_input: InputMaker) -> Unit:
    """Write the tree with these parents (n_variables,) and conditional tables as a unit.

    `tables`: per variable (n_states_of_parent, n_states). A leaf of the tree is one input unit per
    state of its parent, an inner variable a sum over its own states; subtrees are shared by all
    states above them.
    """
    children = children_of(parents)
    below: dict[int, list[Unit]] = {}  # per variable its subtree given each parent state
    for variable in top_down_order(parents[None])[0, ::-1].tolist():
        # Bottom-up without recursion: a path of a thousand variables is no problem.
        subtrees = [below.pop(child) for child in children[variable]]
        below[variable] = _conditional_units(variable, tables[variable], subtrees, make_input)
    return below[int(np.flatnonzero(parents < 0)[0])][0]


def conditional_tables(model: PairTables, parents: IntArray) -> list[FloatArray]:
    """Probabilities of the states of each variable, a row per state of the variable above."""
    layout = model.layout
    tables = []
    for variable, above in enumerate(parents.tolist()):
        states = np.flatnonzero(layout.owner == variable)
        rows = np.flatnonzero(layout.owner == above)
        joint = model.pairs[np.ix_(rows, states)] if above >= 0 else model.nodes[None, states]
        tables.append(joint / joint.sum(axis=1, keepdims=True))
    return tables


def _conditional_units(
    variable: int, conditionals: FloatArray, subtrees: list[list[Unit]], make_input: InputMaker
) -> list[Unit]:
    """A variable and all below it, given each state of its parent."""
    # A leaf needs no sum over its states: the input unit does that itself.
    if not subtrees:
        return [make_input(variable, probabilities) for probabilities in conditionals]
    indicators = np.eye(conditionals.shape[1])
    branches = [
        Product([make_input(variable, indicator), *(subtree[state] for subtree in subtrees)])
        for state, indicator in enumerate(indicators)
    ]
    # A constant column needs no sum.
    if len(branches) == 1:
        return [branches[0]] * len(conditionals)
    return [Sum(branches, weights=list(probabilities)) for probabilities in conditionals]
