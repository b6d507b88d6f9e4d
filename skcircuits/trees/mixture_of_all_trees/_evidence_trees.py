"""Importance sampling of trees given observed cells.

Marginals of a mixture of all trees are NP-hard, those of one tree are easy. Selvam, Zhang and Van
den Broeck (2023, section 5.2) draw trees from their prior and weight them by the probability P(e|T)
of the observed cells e; the more is observed, the fewer trees contribute. Here the proposal is a
spanning-tree law that approximates the posterior given e (`TreeProposal`), so that the weights of
the trees are nearly equal, and exactly equal if nothing or everything is observed. Marginals can
also be estimated from trees of the prior (`PriorProposal`), for comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from skcircuits.numerics._arrays import logsumexp, safe_log
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._spanning_trees import (
    UniformSource,
    log_partitions,
    log_partitions_and_marginals,
    sample_spanning_trees,
)
from skcircuits.trees._trees import StateLayout, TreeInference, edges_of
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture, MixtureOfAllTrees


class WeightedMarginals(NamedTuple):
    """Estimated distributions of all variables given the observed cells of each row."""

    probabilities: FloatArray  # (n_rows, n_states)
    standard_errors: FloatArray  # (n_rows, n_states), infinite where one draw counts
    effective_sample_size: FloatArray  # (n_rows,)

    @classmethod
    def of_parts(cls, parts: Sequence[WeightedMarginals], n_states: int) -> WeightedMarginals:
        """One part of the rows after the other; there may be none."""
        none = cls(np.empty((0, n_states)), np.empty((0, n_states)), np.empty(0))
        return cls(*(np.concatenate(fields) for fields in zip(none, *parts, strict=True)))

    def of_rows(self, chosen: BoolArray | IntArray) -> WeightedMarginals:
        """Estimates of some rows, in this order."""
        return WeightedMarginals(*(field[chosen] for field in self))


def estimate_from_trees(
    mixture: AllTreesMixture, evidence: FloatArray, n_trees: int, seed: int
) -> FloatArray:
    """Logs (n_rows,) of unbiased estimates of the probability of evidence (n_rows, n_states)."""
    log_evidence = np.full(len(evidence), -np.inf)
    for chunk in _chunks(len(evidence), mixture.layout, n_trees):
        rows = np.arange(len(evidence))[chunk]
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
    from_prior: bool = False,
) -> WeightedMarginals:
    """Distributions of all variables given evidence (n_rows, n_states)."""
    parts = []
    for rows in _chunks(len(evidence), mixture.layout, n_trees):
        trees = _EvidenceTrees(mixture, evidence[rows], n_trees, rng, from_prior=from_prior)
        answers = trees.marginals() if collapsed else trees.conditionals(rng)
        parts.append(weighted_average(trees.weights, answers))
    return WeightedMarginals.of_parts(parts, evidence.shape[1])


def sample_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    n_samples: int,
    n_trees: int,
    rng: np.random.Generator,
) -> IntArray:
    """Complete rows: draw a weighted tree, then the missing cells given the tree.

    `evidence` (n_rows, n_states) -> (n_samples, n_rows, n_variables).
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
        *,
        from_prior: bool = False,
    ) -> None:
        self.layout = mixture.layout
        self.mixture = mixture
        self.evidence = evidence
        self.shape = (len(evidence), n_trees)
        self.rows: IntArray = np.repeat(np.arange(len(evidence)), n_trees)
        propose = PriorProposal if from_prior else TreeProposal
        proposals = [propose(model, evidence) for model in mixture.components]
        log_fractions = mixture.log_weights[:, None] + np.stack([p.log_mass for p in proposals])
        log_constant = logsumexp(log_fractions, axis=0)
        # All but the last cumulative fraction: that one may round below one.
        bounds = np.cumsum(np.exp(log_fractions - log_constant), axis=0)[:-1, self.rows]
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
        # The mean of ρ estimates P(e) / C; its fractions are the weights of the trees.
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
        """Distributions from which rows are drawn given each tree, (n_rows, n_trees, n_states)."""
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


def weighted_average(weights: FloatArray, answers: FloatArray) -> WeightedMarginals:
    """Answers (n_rows, n_draws, n_states) under weights (n_rows, n_draws) with sum one."""
    weights = weights[:, :, None]
    probabilities = (weights * answers).sum(axis=1)
    # Delta method for a ratio of two means, corrected like a variance of few draws: a single
    # draw with all weight has no information about its error.
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


class TreeProposal:
    """The laws of the trees of one mixture of all trees given each of several rows.

    `model`: the model; `evidence` (n_rows, n_states): factors on the states, see
    `StateLayout.evidence`; every variable keeps a possible state; `weights` (n_rows, n_variables,
    n_variables): edge weights of the laws; `log_mass` (n_rows,): log of ``Π_u P_u(e_u)`` times the
    sum over all trees of ``P(T) Π_{uv∈T} r̂_uv``: the approximation of the probability of the
    evidence.
    """

    def __init__(self, model: MixtureOfAllTrees, evidence: FloatArray) -> None:
        layout = model.layout
        allowed = model.nodes * evidence
        marginals = layout.sum_states(allowed)
        allowed /= marginals[:, layout.owner]
        # The same vertex for all rows: no row depends on those beside it, not even by rounding.
        root = int(model.weights.sum(axis=1).argmax())
        # Σ_b r_uv(a, b) q_v(b) per flat state of u and variable v.
        messages = np.add.reduceat(allowed[:, None, :] * model.ratios(), layout.offsets, axis=2)
        mean_ratios = np.add.reduceat(messages * allowed[:, :, None], layout.offsets, axis=1)
        _, edges = log_partitions_and_marginals(model.weights * mean_ratios, root)
        beliefs = _beliefs(allowed, messages, edges, layout)
        one_end = np.add.reduceat(messages * beliefs, layout.offsets, axis=1)
        diagonal = np.arange(layout.n_variables)
        mean_ratios[:, diagonal, diagonal] = 1.0  # no edge: never looked up
        mean_ratios = one_end * one_end.transpose(0, 2, 1) / mean_ratios
        log_margins: FloatArray = np.log(marginals).sum(axis=1)
        self.weights: FloatArray = model.weights * mean_ratios
        self.log_mass = (
            log_margins + log_partitions(self.weights, root) - model.tree_distribution[0]
        )
        mean_ratios[:, diagonal, diagonal] = 1.0
        self._log_margins = log_margins
        self._log_mean_ratios: FloatArray = np.log(mean_ratios)

    def log_evidence(self, parents: IntArray, rows: IntArray) -> FloatArray:
        """Approximation of the probability of the evidence in given trees by the law.

        `parents` (n_trees, n_variables), `rows` (n_trees,) -> (n_trees,).
        """
        edges = edges_of(parents)
        log_ratios = self._log_mean_ratios[rows[:, None], edges[:, :, 0], edges[:, :, 1]]
        return self._log_margins[rows] + log_ratios.sum(axis=1)


class PriorProposal:
    """The prior law of the trees, whatever is observed; with the attributes of `TreeProposal`."""

    def __init__(self, model: MixtureOfAllTrees, evidence: FloatArray) -> None:
        self.weights: FloatArray = np.broadcast_to(
            model.weights, (len(evidence), *model.weights.shape)
        )
        self.log_mass: FloatArray = np.zeros(len(evidence))

    def log_evidence(self, parents: IntArray, rows: IntArray) -> FloatArray:
        """The law approximates the probability of the evidence in every tree by one."""
        return np.zeros(len(rows))


def _beliefs(
    allowed: FloatArray, messages: FloatArray, edges: FloatArray, layout: StateLayout
) -> FloatArray:
    """Distribution of every u without the message of v, (n_rows, flat states of u, v)."""
    # A variable sends itself no message, since its probability of an edge is zero.
    log_messages = np.log1p(edges[:, layout.owner] * (messages - 1.0))
    log_beliefs = safe_log(allowed) + log_messages.sum(axis=2)
    log_beliefs = log_beliefs[:, :, None] - log_messages
    largest = np.maximum.reduceat(log_beliefs, layout.offsets, axis=1)
    beliefs: FloatArray = np.exp(log_beliefs - largest[:, layout.owner])
    beliefs /= np.add.reduceat(beliefs, layout.offsets, axis=1)[:, layout.owner]
    return beliefs
