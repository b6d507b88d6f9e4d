"""Chow-Liu trees and their mixtures, learned by expectation maximisation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.tree._layout import StateLayout
from skcircuits.trees.tree._rooted import maximum_spanning_tree
from skcircuits.trees.tree._statistics import PairStatistics, mutual_information, pair_statistics

__all__ = ["ChowLiuTree", "TreeMixture", "chow_liu_tree", "learn_tree_mixture"]

_N_INDEPENDENT_STEPS = 10  # EM steps with independent variables before trees are learned


class ChowLiuTree(NamedTuple):
    """A tree distribution.

    Attributes
    ----------
    layout : StateLayout
        Numbering of the states.
    parents : ndarray of shape (n_variables,)
        Parent of each variable, -1 at the root.
    statistics : PairStatistics
        Probabilities of states and pairs.
    """

    layout: StateLayout
    parents: IntArray
    statistics: PairStatistics

    @property
    def nodes(self) -> FloatArray:
        """Probability of every state."""
        return self.statistics.nodes

    @property
    def pairs(self) -> FloatArray:
        """Probability of every pair of states."""
        return self.statistics.pairs

    def log_prob(self, codes: IntArray) -> FloatArray:
        """Log probability of complete rows (n_rows, n_variables), shape (n_rows,).

        A cell that the tree holds impossible gives minus infinity.
        """
        flat = self.layout.flat(codes)
        children = np.flatnonzero(self.parents >= 0)
        nodes, pairs = self.statistics
        with np.errstate(divide="ignore"):
            log_prob = np.log(nodes)[flat[:, self.parents < 0]].sum(axis=1)
            # P(child, parent) / P(parent) along every edge.
            joint = np.log(pairs[flat[:, children], flat[:, self.parents[children]]])
            above = np.log(nodes)[flat[:, self.parents[children]]]
        # An impossible parent has an impossible joint: -inf - (-inf) must stay -inf.
        joint -= np.where(np.isneginf(above), 0.0, above)
        return log_prob + joint.sum(axis=1)


class TreeMixture(NamedTuple):
    """A mixture of tree distributions.

    Attributes
    ----------
    log_weights : ndarray of shape (n_components,)
        Log mixture weights.
    trees : list of ChowLiuTree
        The components.
    """

    log_weights: FloatArray
    trees: list[ChowLiuTree]

    def log_joint(self, codes: IntArray) -> FloatArray:
        """Log probability of complete rows with each component, (n_rows, n_components)."""
        return self.log_weights + np.stack([tree.log_prob(codes) for tree in self.trees], axis=1)

    def log_prob(self, codes: IntArray) -> FloatArray:
        """Log probability of complete rows, shape (n_rows,)."""
        log_prob: FloatArray = logsumexp(self.log_joint(codes), axis=1)
        return log_prob

    def responsibilities(self, codes: IntArray) -> FloatArray:
        """Posterior probability of the components, (n_rows, n_components)."""
        log_joint = self.log_joint(codes)
        return np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))


def chow_liu_tree(
    codes: IntArray,
    layout: StateLayout,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> ChowLiuTree:
    """Learn the most likely tree distribution (Chow and Liu, 1968).

    Parameters
    ----------
    codes : ndarray of shape (n_rows, n_variables)
        Complete rows.
    layout : StateLayout
        Numbering of the states.
    sample_weight : ndarray of shape (n_rows,), default=None
        Weight of each row; 1 without.
    pseudo_count : float, default=1.0
        Total weight of the uniform rows that are added.

    Returns
    -------
    ChowLiuTree
        The tree.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import StateLayout, chow_liu_tree
    >>> codes = np.array([[0, 0, 0], [0, 0, 1], [1, 1, 1], [1, 1, 0]])
    >>> tree = chow_liu_tree(codes, StateLayout([2, 2, 2]), pseudo_count=0)
    >>> np.exp(tree.log_prob(codes))
    array([0.25, 0.25, 0.25, 0.25])
    """
    statistics = pair_statistics(
        codes, layout, sample_weight=sample_weight, pseudo_count=pseudo_count
    )
    parents = maximum_spanning_tree(mutual_information(statistics, layout))
    return ChowLiuTree(layout, parents, statistics)


def learn_tree_mixture(
    codes: IntArray,
    layout: StateLayout,
    n_components: int,
    rng: np.random.Generator,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> Iterator[TreeMixture]:
    """Learn a mixture of Chow-Liu trees by expectation maximisation.

    A few steps with independent variables inside each component come first: from random
    responsibilities, trees would all become the tree of the whole table.

    Parameters
    ----------
    codes : ndarray of shape (n_rows, n_variables)
        Complete rows.
    layout : StateLayout
        Numbering of the states.
    n_components : int
        Number of trees.
    rng : numpy.random.Generator
        Draws the first responsibilities.
    sample_weight : ndarray of shape (n_rows,), default=None
        Weight of each row; 1 without.
    pseudo_count : float, default=1.0
        Total weight of the uniform rows added to each component.

    Yields
    ------
    TreeMixture
        The mixture after each step; the loop never ends by itself.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import StateLayout, learn_tree_mixture
    >>> codes = np.array([[0, 0], [0, 0], [1, 1], [1, 0]])
    >>> steps = learn_tree_mixture(codes, StateLayout([2, 2]), 2, np.random.default_rng(0))
    >>> len(next(steps).trees)
    2
    """
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    responsibilities = _independent_start(codes, layout, n_components, rng, weight, pseudo_count)
    while True:
        # An average row's worth of prior keeps every component alive.
        shares = weight @ responsibilities + weight.mean() / n_components
        shares /= shares.sum()
        trees = [
            chow_liu_tree(codes, layout, sample_weight=part, pseudo_count=pseudo_count)
            for part in (weight[:, None] * responsibilities).T
        ]
        mixture = TreeMixture(np.log(shares), trees)
        yield mixture
        responsibilities = mixture.responsibilities(codes)


def _independent_start(
    codes: IntArray,
    layout: StateLayout,
    n_components: int,
    rng: np.random.Generator,
    weight: FloatArray,
    pseudo_count: float,
) -> FloatArray:
    """Responsibilities of a mixture of independent variables, by a few EM steps."""
    indicators = layout.one_hot(codes)
    uniform = pseudo_count / layout.cardinalities[layout.owner]
    # Uneven random responsibilities; the steps below pull them apart.
    responsibilities = rng.dirichlet(np.ones(n_components), size=len(codes))
    for _ in range(_N_INDEPENDENT_STEPS):
        weighted = weight[:, None] * responsibilities
        totals = weighted.sum(axis=0)
        nodes = (weighted.T @ indicators + uniform) / (totals + pseudo_count)[:, None]
        # One product scores all rows under all components; log 0 would turn 0 into NaN.
        log_joint = indicators @ np.log(np.maximum(nodes, np.finfo(float).tiny)).T
        log_joint += np.log(np.maximum(totals, np.finfo(float).tiny))
        responsibilities = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
    return responsibilities
