"""Trees drawn from a mixture of all trees: what stands in for it where cells are missing.

Marginals of a mixture of all trees are NP-hard, those of every single tree are easy. A bank
of trees drawn from the prior turns the sum over all trees into a weighted average, the
importance sampler of Selvam, Zhang and Van den Broeck (2023, section 5.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.all_trees_mixture import AllTreesMixture
from skcircuits.trees.inference import TreeInference
from skcircuits.trees.spanning import sample_spanning_trees

__all__ = ["TreeBank", "WeightedMarginals", "draw_components", "sample_rows", "sample_trees"]


class WeightedMarginals(NamedTuple):
    """Estimated distributions of all variables given the observed cells of each row.

    Attributes
    ----------
    probabilities : ndarray of shape (n_rows, n_states)
        Probability of every flat state.
    standard_errors : ndarray of shape (n_rows, n_states)
        Standard errors of the probabilities.
    effective_sample_size : ndarray of shape (n_rows,)
        Number of independent draws that would estimate equally well.
    """

    probabilities: FloatArray
    standard_errors: FloatArray
    effective_sample_size: FloatArray


def sample_trees(
    mixture: AllTreesMixture, components: IntArray, rng: np.random.Generator
) -> IntArray:
    """Draw a spanning tree from the prior of each given component.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    components : ndarray of shape (n_trees,)
        Component of each tree.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_trees, n_variables)
        Parents, -1 at the roots.
    """
    n_variables = mixture.components[0].layout.n_variables
    parents = np.empty((len(components), n_variables), dtype=np.int64)
    for component, model in enumerate(mixture.components):
        mine = np.flatnonzero(components == component)
        shape = (len(mine), n_variables, n_variables)
        parents[mine] = sample_spanning_trees(np.broadcast_to(model.weights, shape), rng)
    return parents


def sample_rows(mixture: AllTreesMixture, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw rows: a component, a tree of it, then the variables from its root down.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    n_rows : int
        Number of rows.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_rows, n_variables)
        Exact independent draws.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import AllTreesMixture, Parameterization, StateLayout, sample_rows
    >>> parameterization = Parameterization(StateLayout([2, 2, 3]))
    >>> model = parameterization.model(np.zeros(parameterization.size))
    >>> mixture = AllTreesMixture(np.zeros(1), [model])
    >>> sample_rows(mixture, 5, np.random.default_rng(0)).shape
    (5, 3)
    """
    layout = mixture.components[0].layout
    components = draw_components(mixture, n_rows, rng)
    rows = np.empty((n_rows, layout.n_variables), dtype=np.int64)
    for component, model in enumerate(mixture.components):
        mine = np.flatnonzero(components == component)
        for chunk in memory_bound_chunks(len(mine), 64 * layout.n_states):
            chosen = mine[chunk]
            parents = sample_trees(mixture, components[chosen], rng)
            nothing = np.ones((1, 1, layout.n_states))
            inference = TreeInference(parents, layout, model.nodes, model.ratios(), nothing)
            rows[chosen] = inference.sample(rng)[:, 0]
    return rows


def draw_components(mixture: AllTreesMixture, n_draws: int, rng: np.random.Generator) -> IntArray:
    """Draw components from the mixture weights, shape (n_draws,)."""
    cumulative = np.cumsum(np.exp(mixture.log_weights))[:-1]
    return np.searchsorted(cumulative, rng.random(n_draws), side="right")


class TreeBank:
    """A finite mixture of trees drawn from a mixture of all trees.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    n_trees : int
        Number of trees, shared out among the components in proportion to their weights; at
        least one each.
    rng : numpy.random.Generator
        Draws the trees.

    Attributes
    ----------
    mixture : AllTreesMixture
        The model.
    components : ndarray of shape (n_drawn,)
        Component of each tree, ascending.
    parents : ndarray of shape (n_drawn, n_variables)
        The trees.
    log_weights : ndarray of shape (n_drawn,)
        Log weights of the trees, which sum to one.
    """

    def __init__(self, mixture: AllTreesMixture, n_trees: int, rng: np.random.Generator) -> None:
        self.mixture = mixture
        self.layout = mixture.components[0].layout
        shares = np.maximum(1, np.rint(n_trees * np.exp(mixture.log_weights)).astype(np.int64))
        self.components: IntArray = np.repeat(np.arange(len(shares)), shares)
        self.parents = sample_trees(mixture, self.components, rng)
        self.log_weights: FloatArray = (mixture.log_weights - np.log(shares))[self.components]

    def log_evidence(self, evidence: FloatArray) -> FloatArray:
        """Log probability of the observed cells.

        Parameters
        ----------
        evidence : ndarray of shape (n_rows, n_states)
            Factors on the states, see `StateLayout.evidence`.

        Returns
        -------
        ndarray of shape (n_rows,)
            Estimates whose exponentials are unbiased over the draw of the bank.
        """
        parts = [
            logsumexp(self._log_joint(self._infer(evidence[rows])), axis=0)
            for rows in self._chunks(len(evidence))
        ]
        return np.concatenate([np.empty(0), *parts])

    def marginals(
        self, evidence: FloatArray, rng: np.random.Generator | None = None
    ) -> WeightedMarginals:
        """Distribution of every variable given the observed cells.

        Parameters
        ----------
        evidence : ndarray of shape (n_rows, n_states)
            Factors on the states.
        rng : numpy.random.Generator, default=None
            None averages the exact marginals of the trees (collapsed importance sampling);
            a generator averages one drawn row per tree (importance sampling).

        Returns
        -------
        WeightedMarginals
            Estimates with their errors.
        """
        parts = [self._marginals(evidence[rows], rng) for rows in self._chunks(len(evidence))]
        return WeightedMarginals(*(np.concatenate(part) for part in zip(*parts, strict=True)))

    def sample(self, evidence: FloatArray, n_samples: int, rng: np.random.Generator) -> IntArray:
        """Complete rows: draw a tree given the observed cells, then the cells given the tree.

        Parameters
        ----------
        evidence : ndarray of shape (n_rows, n_states)
            Factors on the states.
        n_samples : int
            Number of draws per row.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray of shape (n_samples, n_rows, n_variables)
            Complete rows.
        """
        log_joint = np.concatenate(
            [self._log_joint(self._infer(evidence[rows])) for rows in self._chunks(len(evidence))],
            axis=1,
        )
        posterior = np.exp(log_joint - logsumexp(log_joint, axis=0))
        uniforms = rng.random((n_samples, len(evidence), 1))
        # All but the last cumulative sum: that one may round below one.
        trees = (uniforms > np.cumsum(posterior[:-1], axis=0).T).sum(axis=2).ravel()
        rows = np.tile(np.arange(len(evidence)), n_samples)
        drawn = np.empty((len(rows), self.layout.n_variables), dtype=np.int64)
        for component in range(len(self.mixture.components)):
            mine = np.flatnonzero(self.components[trees] == component)
            single = evidence[rows[mine]][:, None, :]
            inference = self._inference(component, self.parents[trees[mine]], single)
            drawn[mine] = inference.sample(rng)[:, 0]
        return drawn.reshape(n_samples, len(evidence), -1)

    def _marginals(
        self, evidence: FloatArray, rng: np.random.Generator | None
    ) -> WeightedMarginals:
        inferences = self._infer(evidence)
        log_joint = self._log_joint(inferences)
        weights = np.exp(log_joint - logsumexp(log_joint, axis=0))[:, :, None]
        answers = np.concatenate([self._answer(inference, rng) for inference in inferences])
        probabilities = (weights * answers).sum(axis=0)
        # Delta method for a ratio of two means.
        errors = np.sqrt((weights**2 * (answers - probabilities) ** 2).sum(axis=0))
        return WeightedMarginals(probabilities, errors, 1 / (weights**2).sum(axis=(0, 2)))

    def _answer(self, inference: TreeInference, rng: np.random.Generator | None) -> FloatArray:
        """What each tree says about each row, (n_trees, n_rows, n_states)."""
        if rng is None:
            return inference.marginals()
        codes = inference.sample(rng)
        indicators = self.layout.one_hot(codes.reshape(-1, codes.shape[2]))
        return indicators.reshape(*codes.shape[:2], -1)

    def _infer(self, evidence: FloatArray) -> list[TreeInference]:
        """Inference of all rows in all trees, component by component."""
        return [
            self._inference(component, self.parents[self.components == component], evidence[None])
            for component in range(len(self.mixture.components))
        ]

    def _inference(self, component: int, parents: IntArray, evidence: FloatArray) -> TreeInference:
        model = self.mixture.components[component]
        return TreeInference(parents, self.layout, model.nodes, model.ratios(), evidence)

    def _log_joint(self, inferences: list[TreeInference]) -> FloatArray:
        """Log probability of each tree together with the evidence, (n_trees, n_rows)."""
        return self.log_weights[:, None] + np.concatenate([i.log_evidence for i in inferences])

    def _chunks(self, n_rows: int) -> list[slice]:
        # Factors, messages and answers of every tree for every state.
        return list(memory_bound_chunks(n_rows, 64 * len(self.parents) * self.layout.n_states))
