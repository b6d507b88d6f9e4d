"""Tree distributions: exact inference in many trees and rows at once, and trees as circuits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from skcircuits.circuits import Product, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.numerics._random import draw_states
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.tree._layout import StateLayout, children_of, top_down_order, vertex_depths

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


class TreeInference:
    """Belief propagation in tree distributions that share their pair tables.

    With r_uv(a, b) = P_uv(a, b) / (P_u(a) P_v(b)) a tree distribution is ``Π_u P_u(x_u) Π_{uv}
    r_uv(x_u, x_v)``. One pass from the leaves to the root collects what lies below every variable,
    one pass back answers queries.

    `parents` (n_trees, n_variables): parent of each variable, -1 at the root; `layout`: numbering
    of the states; `nodes` (n_states,): probability of every state; `ratios` (n_states, n_states):
    r_uv at all pairs of states; `evidence` (n_trees or 1, n_rows, n_states): factor on the
    probability of each state, per row: 0 rules a state out, ones leave a variable open (see
    `StateLayout.evidence`). Rows shared by all trees, or of each tree; `log_evidence` (n_trees,
    n_rows): log of the expected product of the factors, per tree: the log probability of the
    observed cells.
    """

    def __init__(
        self,
        parents: IntArray,
        layout: StateLayout,
        nodes: FloatArray,
        ratios: FloatArray,
        evidence: FloatArray,
    ) -> None:
        self.parents = parents
        self.depths = vertex_depths(parents)
        self._ratios = ratios
        self._layout = layout
        self._states = np.arange(layout.cardinalities.max())
        self._trees = np.arange(len(parents))
        self._collect(nodes * evidence)

    def marginals(self) -> FloatArray:
        """Distribution of every variable given the observed cells.

        Gives (n_trees, n_rows, n_states).
        """
        beliefs = np.empty_like(self._below)
        trees, roots = np.nonzero(self.depths == 0)
        beliefs[trees, roots] = _normalized(self._below[trees, roots])
        for trees, children in self._levels():
            parents, ratios, below = self._edge(trees, children)
            # What the parent believes without this child's own message.
            above = _quotient(beliefs[trees, parents], below @ ratios.transpose(0, 2, 1))
            beliefs[trees, children] = below * (above @ ratios)
        return self._by_flat_state(beliefs)

    def sample(self, rng: np.random.Generator) -> IntArray:
        """Draw all variables given the observed cells, from the root down.

        Gives (n_trees, n_rows, n_variables).
        """
        n_trees, n_variables, n_rows, _ = self._below.shape
        codes = np.empty((n_trees, n_rows, n_variables), dtype=np.int64)
        trees, roots = np.nonzero(self.depths == 0)
        codes[trees, :, roots] = _draw(self._below[trees, roots], rng)
        for trees, children in self._levels():
            codes[trees, :, children] = _draw(self._given_parents(trees, children, codes), rng)
        return codes

    def conditionals(self, codes: IntArray) -> FloatArray:
        """Distribution of every variable given the observed cells and the state of its parent.

        These are the distributions that `sample` draws from. Averaged over drawn rows they
        estimate the marginals like the rows themselves, with less noise.

        `codes` (n_trees, n_rows, n_variables) -> (n_trees, n_rows, n_states).
        """
        weights = np.empty_like(self._below)
        trees, roots = np.nonzero(self.depths == 0)
        weights[trees, roots] = self._below[trees, roots]
        for trees, children in self._levels():
            weights[trees, children] = self._given_parents(trees, children, codes)
        return self._by_flat_state(_normalized(weights))

    def _levels(self) -> Iterator[tuple[IntArray, IntArray]]:
        """Trees and variables of equal depth, from the children of the roots down."""
        for depth in range(1, self.depths.max(initial=0) + 1):
            trees, variables = np.nonzero(self.depths == depth)
            yield trees, variables

    def _given_parents(self, trees: IntArray, children: IntArray, codes: IntArray) -> FloatArray:
        """Weights of the states of some variables (n_variables, n_rows, n_states)."""
        parents, ratios, below = self._edge(trees, children)
        parent_states = codes[trees, :, parents][:, :, None]
        weights: FloatArray = below * np.take_along_axis(ratios, parent_states, axis=1)
        return weights

    def _by_flat_state(self, values: FloatArray) -> FloatArray:
        """Turn (n_trees, n_variables, n_rows, states) into (n_trees, n_rows, flat states)."""
        return values[:, self._layout.owner, :, self._layout.own_state].transpose(1, 2, 0)

    def _collect(self, weights: FloatArray) -> None:
        """Pass from the leaves to the root; sets what lies at and below each variable."""
        cardinalities = self._layout.cardinalities
        flat = self._flat(np.arange(len(cardinalities)))
        # Padding states get no mass, so whatever their tables hold does not matter.
        below = np.where(self._states < cardinalities[:, None], weights[..., flat], 0.0)
        below = below.transpose(0, 2, 1, 3)
        shape = (len(self.parents), *below.shape[1:])
        # A copy per tree, because each gathers messages along its own edges.
        self._below = np.broadcast_to(below, shape).copy()
        self.log_evidence = np.zeros((shape[0], shape[2]))
        order = np.argsort(self.depths, axis=1, kind="stable")
        # The i-th vertices from the end, of all trees at once: their children are done.
        for children in order.T[:0:-1]:
            parents, ratios, below = self._edge(self._trees, children)
            joint = self._below[self._trees, parents] * (below @ ratios.transpose(0, 2, 1))
            # Rescaled at once: a hub multiplies as many messages as it has neighbours.
            largest = joint.max(axis=2)
            self._below[self._trees, parents] = _quotient(joint, largest[:, :, None])
            with np.errstate(divide="ignore"):
                self.log_evidence += np.log(largest)
        with np.errstate(divide="ignore"):
            self.log_evidence += np.log(self._below[self._trees, order[:, 0]].sum(axis=2))

    def _edge(self, trees: IntArray, children: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Parents, tables (parent state, child state) and what lies below the children."""
        parents = self.parents[trees, children]
        rows, columns = self._flat(parents), self._flat(children)
        ratios = self._ratios[rows[:, :, None], columns[:, None, :]]
        return parents, ratios, self._below[trees, children]

    def _flat(self, variables: IntArray) -> IntArray:
        """Flat states (n_variables, n_states); valid indices also where a state is missing."""
        flat = self._layout.offsets[variables][:, None] + self._states
        return np.minimum(flat, self._layout.n_states - 1)


def _normalized(weights: FloatArray) -> FloatArray:
    return _quotient(weights, weights.sum(axis=-1, keepdims=True))


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Divide, with 0 / 0 = 0 where evidence rules a state out."""
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    return np.divide(numerator, denominator, out=np.zeros(shape), where=denominator > 0)


def _draw(weights: FloatArray, rng: np.random.Generator) -> IntArray:
    return draw_states(weights, rng.random(weights.shape[:-1]))
