"""Strudel: deterministic, structured-decomposable circuits grown from a Chow-Liu tree.

Dang, Vergari and Van den Broeck, "Strudel: Learning Structured-Decomposable Probabilistic
Circuits", PGM 2020. Each step splits one edge: its product is replaced by one copy per state
of a variable. The edge is the one that carries most rows (eFLOW), the variable the one with
most mutual information to the others of the scope on these rows (vMI). Weights are counts,
so the likelihood of training and validation rows follows each split without a pass.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
from scipy.special import xlogy

from skcircuits.circuits import Circuit
from skcircuits.exceptions import require
from skcircuits.learning.strudel._structure import (
    Conditioning,
    Edge,
    Shape,
    SumNode,
    UnitBuilder,
    compile_tree,
)
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees import StateLayout, chow_liu_tree
from skcircuits.trees.tree._trees import root_at_center


@dataclass(frozen=True)
class StrudelStep:
    """The circuit after a number of splits, which remains available when growth continues.

    Parameters
    ----------
    learner : StrudelLearner
        What grows.
    n_splits : int
        Number of splits done.
    log_density, validation_log_density : float
        Mean log probability of the training and of the validation rows.
    n_parameters : int
        Number of free weights of the sums that carry training rows.
    """

    learner: StrudelLearner
    n_splits: int
    log_density: float
    validation_log_density: float
    n_parameters: int

    @cached_property
    def circuit(self) -> Circuit:
        """Deterministic and structured-decomposable, over the states of all variables."""
        builder = UnitBuilder(self.learner.shape, self.learner.root, self.n_splits)
        return Circuit(builder.build(self.weights_of)[self.learner.root])

    def weights_of(self, node: SumNode) -> FloatArray:
        """Weights of the edges of a sum, from the rows they carried after these splits."""
        return self.learner.fractions(node.at(self.n_splits)[1])


class StrudelLearner:
    """Learner that grows a circuit by splitting edges.

    Parameters
    ----------
    codes : ndarray of shape (n, n_variables)
        Complete training rows.
    layout : StateLayout
        Layout of the states.
    validation : ndarray of shape (n_validation, n_variables)
        Complete rows whose likelihood is computed after each split.
    weight : ndarray of shape (n,), default=None
        Weight of each training row; 1 by default.
    validation_weight : ndarray of shape (n_validation,), default=None
        Weight of each validation row; 1 by default.
    pseudo_count : float, default=1.0
        Weight that is distributed over the edges of each sum, and over the cells of pairwise
        tables.

    Attributes
    ----------
    shape : Shape
        The Chow-Liu tree, rooted at its centre.
    root : SumNode
        Root of the growing circuit.

    Examples
    --------
    Splits follow the rows; the circuits of earlier steps stay available:

    >>> import numpy as np
    >>> from skcircuits.circuits import is_deterministic
    >>> from skcircuits.learning import StrudelLearner
    >>> from skcircuits.trees import StateLayout
    >>> codes = np.random.default_rng(0).integers(2, size=(50, 4))
    >>> steps = list(StrudelLearner(codes, StateLayout([2] * 4), codes).steps())
    >>> steps[-1].log_density > steps[0].log_density
    True
    >>> is_deterministic(steps[2].circuit)
    True
    """

    def __init__(
        self,
        codes: IntArray,
        layout: StateLayout,
        validation: IntArray,
        *,
        weight: FloatArray | None = None,
        validation_weight: FloatArray | None = None,
        pseudo_count: float = 1.0,
    ) -> None:
        require("one_hot", "the layout of the states of discrete variables", layout=layout)
        weight = np.ones(len(codes)) if weight is None else weight
        held_out = np.ones(len(validation)) if validation_weight is None else validation_weight
        self.layout = layout
        self.pseudo_count = pseudo_count
        self._n_training = len(codes)
        self.codes = np.concatenate([codes, validation])
        # Column 0: weight as a training row, column 1: as a validation row.
        self.weights = np.zeros((len(self.codes), 2))
        self.weights[: len(codes), 0] = weight
        self.weights[len(codes) :, 1] = held_out
        self._indicators = layout.one_hot(codes).astype(np.float32)
        self._is_weighted = bool((weight != 1).any() or (held_out != 1).any())
        tree = chow_liu_tree(codes, layout, sample_weight=weight, pseudo_count=pseudo_count)
        self.shape = Shape(root_at_center(tree.parents), layout.cardinalities)
        compiled = compile_tree(self.shape, self.codes)
        self.root = compiled[-1]
        self.n_splits = 0
        # Contribution of each sum to both log likelihoods and to the number of parameters.
        self._scores: dict[SumNode, FloatArray] = {}
        self._totals = np.zeros(3)
        # Edges have no order: of equal flows the one that came first is split first
        self._ties = count()
        self._heap: list[tuple[float, int, Edge]] = []
        for node in compiled:
            self._rescore(node)
            self._offer(node.edges)

    def steps(self) -> Iterator[StrudelStep]:
        """Split one edge after another until no edge can be split.

        Yields
        ------
        StrudelStep
            The Chow-Liu tree, then the circuit after each split.
        """
        yield self._step()
        while True:
            choice = self._choose()
            if choice is None:
                return
            self.n_splits += 1
            self._split(*choice)
            yield self._step()

    def _step(self) -> StrudelStep:
        with np.errstate(invalid="ignore"):
            training, validation = self._totals[:2] / self.weights.sum(axis=0)
        n_parameters = round(self._totals[2])
        return StrudelStep(self, self.n_splits, float(training), float(validation), n_parameters)

    def _choose(self) -> tuple[Edge, int] | None:
        """Edge with the largest flow that can be split, and the variable to split on."""
        while self._heap:
            negative_flow, _, edge = heapq.heappop(self._heap)
            flow = self._flow(edge)
            if edge not in edge.owner.edges or flow <= 0:
                continue
            if flow < -negative_flow:
                # Rows have moved to copies since the edge was put here.
                self._offer([edge])
                continue
            variable = self._most_informative(edge)
            if variable is not None:
                return edge, variable
        return None

    def _flow(self, edge: Edge) -> float:
        """Weight of the training rows of an edge."""
        return float(self._counts(edge)[0])

    def _counts(self, edge: Edge) -> FloatArray:
        """Weight of the training and of the validation rows of an edge, shape (2,)."""
        if self._is_weighted:
            return np.asarray(self.weights[edge.rows].sum(axis=0))
        # Rows are in order, training rows first
        n_training = np.searchsorted(edge.rows, self._n_training)
        return np.array([n_training, len(edge.rows) - n_training], dtype=float)

    def _offer(self, edges: list[Edge]) -> None:
        """Put edges that may be split one day into the heap."""
        for edge in edges:
            flow = self._flow(edge) if edge.child.factors else 0.0
            if flow > 0:
                heapq.heappush(self._heap, (-flow, next(self._ties), edge))

    def _most_informative(self, edge: Edge) -> int | None:
        """Variable with most mutual information to the scope, on the rows of the edge."""
        scope = self.shape.scopes[edge.child.variable]
        training = edge.rows[: np.searchsorted(edge.rows, self._n_training)]
        sizes = self.layout.cardinalities[scope]
        states = np.concatenate(
            [
                np.arange(start, start + size)
                for start, size in zip(self.layout.offsets[scope], sizes)
            ]
        )
        weights = self.weights[training, 0]
        indicators = self._indicators[np.ix_(training, states)]
        weighted = (
            indicators * weights[:, None].astype(np.float32) if self._is_weighted else indicators
        )
        pairs = (weighted.T @ indicators).astype(np.float64)
        starts = np.cumsum(sizes) - sizes
        # A variable with one state in all rows of the edge has no information
        undecided = np.maximum.reduceat(np.diag(pairs), starts) < 0.999999 * weights.sum()
        if not undecided.any():
            return None
        gain = np.where(undecided, _information_sums(pairs, starts, self.pseudo_count, sizes), -1.0)
        return int(scope[gain.argmax()])

    def _split(self, edge: Edge, variable: int) -> None:
        """Replace an edge by one per state of the variable."""
        owner, position = edge.owner, edge.owner.edges.index(edge)
        states = self.codes[edge.rows, variable]
        touched: list[SumNode] = [owner]
        new_edges: list[Edge] = []
        replacements: list[Edge] = []
        moving = np.zeros(len(self.codes), dtype=bool)
        for state in range(self.layout.cardinalities[variable]):
            rows = edge.rows[states == state]
            moving[rows] = True
            conditioning = Conditioning(self.shape, variable, state, moving)
            child = conditioning.product(edge.child)
            moving[rows] = False
            if child is not None:
                replacements.append(Edge(owner, child, rows))
                touched += conditioning.touched
                new_edges += conditioning.new_edges
        owner.edges[position : position + 1] = replacements
        for node in dict.fromkeys(touched):
            self._rescore(node)
        self._offer(replacements + new_edges)

    def _rescore(self, node: SumNode) -> None:
        """Update the weights of a sum and its contributions to size and log likelihoods."""
        counts = np.array([self._counts(edge) for edge in node.edges])
        log_likelihood = counts.T @ np.log(self.fractions(counts[:, 0]))
        # Nothing may lead to a sum any more that has lost all its rows to copies.
        n_free = len(counts) - 1 if counts[:, 0].any() else 0
        score = np.append(log_likelihood, n_free)
        # Only sums that a split touched change: no pass over the circuit is needed
        self._totals += score - self._scores.get(node, 0.0)
        self._scores[node] = score
        node.record(self.n_splits, counts[:, 0])

    def fractions(self, counts: FloatArray) -> FloatArray:
        """Compute the weights of the edges of a sum from the weights of their rows.

        Parameters
        ----------
        counts : ndarray of shape (n_edges,)
            Weight of the rows of each edge.

        Returns
        -------
        ndarray of shape (n_edges,)
            Positive fractions that sum to one, including `pseudo_count`.
        """
        smoothed = counts + self.pseudo_count / len(counts)
        return smoothed / smoothed.sum()


def _information_sums(
    pairs: FloatArray, starts: IntArray, pseudo_count: float, sizes: IntArray
) -> FloatArray:
    """Sum over all other variables of the mutual information with each, from pair counts."""
    uniform = 1.0 / np.repeat(sizes, sizes)
    total = pairs[: sizes[0], : sizes[0]].sum() + pseudo_count
    joint = (pairs + pseudo_count * np.outer(uniform, uniform)) / total
    nodes = (np.diag(pairs) + pseudo_count * uniform) / total
    negentropy = np.add.reduceat(xlogy(nodes, nodes), starts)
    joint_negentropy = np.add.reduceat(np.add.reduceat(xlogy(joint, joint), starts, 0), starts, 1)
    # So that a variable has no information about itself
    np.fill_diagonal(joint_negentropy, 2 * negentropy)
    information = joint_negentropy - negentropy[:, None] - negentropy
    return information.sum(axis=1)
