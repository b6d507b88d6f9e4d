"""Importance sampling of trees given observed cells.

Marginals of a mixture of all trees are NP-hard, those of one tree are easy. Selvam, Zhang and
Van den Broeck (2023, section 5.2) draw trees from their prior and weight them by the
probability P(e|T) of the observed cells e; the more is observed, the fewer trees matter. Here
trees are drawn given e as far as a spanning-tree law can know it (`TreeProposal`), so that the
weights of the trees are nearly equal, and all equal both when nothing and when everything is
observed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._all_trees_mixture import AllTreesMixture
from skcircuits.trees.mixture_of_all_trees._tree_proposals import TreeProposal
from skcircuits.trees.spanning._sampling import UniformSource, sample_spanning_trees
from skcircuits.trees.tree._inference import TreeInference
from skcircuits.trees.tree._layout import StateLayout

__all__ = [
    "WeightedMarginals",
    "estimate_evidence",
    "estimate_marginals",
    "sample_completions",
]


class WeightedMarginals(NamedTuple):
    """Estimated distributions of all variables given the observed cells of each row.

    Attributes
    ----------
    probabilities : ndarray of shape (n_rows, n_states)
        Probability of every flat state.
    standard_errors : ndarray of shape (n_rows, n_states)
        Standard errors of the probabilities, infinite where a single draw counts.
    effective_sample_size : ndarray of shape (n_rows,)
        Number of independent draws that would estimate equally well.
    """

    probabilities: FloatArray
    standard_errors: FloatArray
    effective_sample_size: FloatArray


def estimate_evidence(
    mixture: AllTreesMixture, evidence: FloatArray, n_trees: int, seed: int
) -> FloatArray:
    """Log probability of the observed cells.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    evidence : ndarray of shape (n_rows, n_states)
        Factors on the states, see `StateLayout.evidence`.
    n_trees : int
        Number of trees per row.
    seed : int
        All rows use the same random numbers, made from this seed: the answer about a row
        does not depend on the rows beside it.

    Returns
    -------
    ndarray of shape (n_rows,)
        Estimates whose exponentials are unbiased; exact for rows without missing cells and
        for rows without observed ones.
    """
    log_evidence = np.full(len(evidence), -np.inf)
    layout = mixture.layout
    # A variable whose states are all ruled out leaves nothing to draw.
    possible = np.flatnonzero((layout.sum_states(evidence) > 0).all(axis=1))
    for chunk in _chunks(len(possible), layout, n_trees):
        rows = possible[chunk]
        # Started afresh for every chunk: the numbers depend on the tree alone.
        source = _CommonSource(np.random.default_rng(seed), n_trees)
        trees = _EvidenceTrees(mixture, evidence[rows], n_trees, source)
        log_evidence[rows] = trees.log_evidence
    return log_evidence


def estimate_marginals(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    n_trees: int,
    rng: np.random.Generator,
    *,
    collapsed: bool = True,
) -> WeightedMarginals:
    """Distribution of every variable given the observed cells.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    evidence : ndarray of shape (n_rows, n_states)
        Factors on the states; every variable keeps a possible state.
    n_trees : int
        Number of trees per row.
    rng : numpy.random.Generator
        Source of randomness.
    collapsed : bool, default=True
        Average the exact marginals of the trees. Otherwise one row is drawn from each tree,
        and every variable enters with the distribution its state was drawn from, given the
        state drawn for its parent: unbiased as the states themselves, and with less noise
        (Casella and Robert, 1996).

    Returns
    -------
    WeightedMarginals
        Estimates with their errors.
    """
    parts = []
    for rows in _chunks(len(evidence), mixture.layout, n_trees):
        trees = _EvidenceTrees(mixture, evidence[rows], n_trees, rng)
        answers = trees.marginals() if collapsed else trees.conditionals(rng)
        parts.append(_average(trees.weights[:, :, None], answers))
    return WeightedMarginals(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def sample_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    n_samples: int,
    n_trees: int,
    rng: np.random.Generator,
) -> IntArray:
    """Complete rows: draw a weighted tree, then the missing cells given the tree.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    evidence : ndarray of shape (n_rows, n_states)
        Factors on the states; every variable keeps a possible state.
    n_samples : int
        Number of draws per row.
    n_trees : int
        Number of weighted trees per row to draw from; the law of the completions is exact
        in the limit of many.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_samples, n_rows, n_variables)
        Complete rows.
    """
    layout = mixture.layout
    codes = np.empty((n_samples, len(evidence), layout.n_variables), dtype=np.int64)
    for rows in _chunks(len(evidence), layout, n_trees + n_samples):
        trees = _EvidenceTrees(mixture, evidence[rows], n_trees, rng)
        codes[:, rows] = trees.completions(n_samples, rng)
    return codes


class _EvidenceTrees:
    """Components and trees drawn given each row, and their importance weights.

    Drawn are pairs (component k, tree T) with probability q(k, T) proportional to
    ``π_k/Z_k Π_u P_u(e_u) Π_{uv∈T} w_uv r̂_uv``. The sum of these over all pairs is the
    constant C, a determinant per component, and P(e) = C E_q[ρ] with
    ``ρ = P(e|T) / (Π_u P_u(e_u) Π_{uv∈T} r̂_uv)``.
    """

    def __init__(
        self,
        mixture: AllTreesMixture,
        evidence: FloatArray,
        n_trees: int,
        rng: UniformSource,
    ) -> None:
        self.layout = mixture.layout
        self.mixture = mixture
        self.evidence = evidence
        self.shape = (len(evidence), n_trees)
        self.rows: IntArray = np.repeat(np.arange(len(evidence)), n_trees)
        proposals = [TreeProposal(model, evidence) for model in mixture.components]
        log_shares = mixture.log_weights[:, None] + np.stack([p.log_mass for p in proposals])
        log_constant = logsumexp(log_shares, axis=0)
        # All but the last cumulative share: that one may round below one.
        bounds = np.cumsum(np.exp(log_shares - log_constant), axis=0)[:-1, self.rows]
        self.components: IntArray = (bounds <= rng.random(len(self.rows))).sum(axis=0)
        # One graph per component and row; every tree names its own.
        graphs = self.components * len(evidence) + self.rows
        weights = np.concatenate([proposal.weights for proposal in proposals])
        self.parents = sample_spanning_trees(weights, graphs, rng)
        self.inferences = self._infer(self.components, self.parents, self.rows)
        log_ratios = np.empty(len(self.rows))
        for (mine, inference), proposal in zip(self.inferences, proposals, strict=True):
            log_ratios[mine] = inference.log_evidence[:, 0]
            log_ratios[mine] -= proposal.log_evidence(self.parents[mine], self.rows[mine])
        log_ratios = log_ratios.reshape(self.shape)
        # The mean of ρ estimates P(e) / C; its shares are the weights of the trees.
        log_sums = logsumexp(log_ratios, axis=1)
        self.log_evidence: FloatArray = log_constant + log_sums - np.log(n_trees)
        self.weights: FloatArray = np.exp(log_ratios - log_sums[:, None])

    def marginals(self) -> FloatArray:
        """Exact marginals of each tree, (n_rows, n_trees, n_states)."""
        answers = np.empty((len(self.rows), self.layout.n_states))
        for mine, inference in self.inferences:
            answers[mine] = inference.marginals()[:, 0]
        return answers.reshape(*self.shape, -1)

    def conditionals(self, rng: np.random.Generator) -> FloatArray:
        """What a row drawn from each tree is drawn from, (n_rows, n_trees, n_states)."""
        answers = np.empty((len(self.rows), self.layout.n_states))
        for mine, inference in self.inferences:
            answers[mine] = inference.conditionals(inference.sample(rng))[:, 0]
        return answers.reshape(*self.shape, -1)

    def completions(self, n_samples: int, rng: np.random.Generator) -> IntArray:
        """Rows drawn from trees chosen by their weights, (n_samples, n_rows, n_variables)."""
        n_rows, n_trees = self.shape
        chosen = draw_states(self.weights[:, None, :], rng.random((n_rows, n_samples)))
        # Numbers of trees within a row become positions among all trees.
        chosen = (chosen + n_trees * np.arange(n_rows)[:, None]).ravel()
        inferences = self._infer(self.components[chosen], self.parents[chosen], self.rows[chosen])
        codes = np.empty((len(chosen), self.layout.n_variables), dtype=np.int64)
        for mine, inference in inferences:
            codes[mine] = inference.sample(rng)[:, 0]
        return codes.reshape(n_rows, n_samples, -1).transpose(1, 0, 2)

    def _infer(
        self, components: IntArray, parents: IntArray, rows: IntArray
    ) -> list[tuple[IntArray, TreeInference]]:
        """Per component its trees, and inference of one row in each of them."""
        inferences = []
        for component, model in enumerate(self.mixture.components):
            mine = np.flatnonzero(components == component)
            own_rows = self.evidence[rows[mine]][:, None, :]
            inference = TreeInference(
                parents[mine], self.layout, model.nodes, model.ratios(), own_rows
            )
            inferences.append((mine, inference))
        return inferences


class _CommonSource:
    """Random numbers that depend on the tree and on the call, but not on the row."""

    def __init__(self, rng: np.random.Generator, n_trees: int) -> None:
        self.rng = rng
        self.n_trees = n_trees

    def random(self, size: int) -> FloatArray:
        return np.tile(self.rng.random(self.n_trees), size // self.n_trees)


def _average(weights: FloatArray, answers: FloatArray) -> WeightedMarginals:
    probabilities = (weights * answers).sum(axis=1)
    # Delta method for a ratio of two means, corrected as a variance of few draws is: a single
    # draw that counts tells nothing about its error.
    squares = (weights**2 * (answers - probabilities[:, None]) ** 2).sum(axis=1)
    concentration = (weights**2).sum(axis=(1, 2))
    # By the evidence; sums of weights may miss one by rounding
    certain = np.minimum(probabilities, 1 - probabilities) < 1e-14
    rest = np.where(certain, 1.0, np.maximum(1 - concentration, 0.0)[:, None])
    errors = np.full(squares.shape, np.inf)
    np.divide(squares, rest, out=errors, where=rest > np.finfo(float).eps)
    return WeightedMarginals(probabilities, np.sqrt(errors), 1 / concentration)


def _chunks(n_rows: int, layout: StateLayout, n_trees: int) -> list[slice]:
    # Messages, answers and walks of every tree, and a few tables of every pair of states.
    bytes_per_row = 64 * n_trees * layout.n_states + 32 * layout.n_states**2
    return list(memory_bound_chunks(n_rows, bytes_per_row))
