"""Exact answers of a mixture of all trees by enumeration of the missing cells."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from skcircuits.exceptions import must
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees.all_trees_mixture import AllTreesMixture
from skcircuits.trees.layout import StateLayout

__all__ = ["MAX_COMPLETIONS", "enumerate_evidence", "enumerate_marginals", "n_completions"]

MAX_COMPLETIONS = 2**17  # completions of one row that are enumerated at most


def n_completions(evidence: FloatArray, mixture: AllTreesMixture) -> FloatArray:
    """Number of complete rows that the evidence allows.

    Parameters
    ----------
    evidence : ndarray of shape (n_rows, n_states)
        Factors on the states, see `StateLayout.evidence`.
    mixture : AllTreesMixture
        The model.

    Returns
    -------
    ndarray of shape (n_rows,)
        Numbers of completions, as floats.
    """
    layout = mixture.components[0].layout
    return layout.sum_states((evidence > 0).astype(float)).prod(axis=1)


def enumerate_evidence(mixture: AllTreesMixture, evidence: FloatArray) -> FloatArray:
    """Log of the expected product of the factors: the log probability of observed cells.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    evidence : ndarray of shape (n_rows, n_states)
        Factors on the states.

    Returns
    -------
    ndarray of shape (n_rows,)
        Exact log probabilities.

    Raises
    ------
    ValueError
        If a row has more than `MAX_COMPLETIONS` completions.
    """
    log_evidence = np.empty(len(evidence))
    for rows, _, log_joint in _completions(mixture, evidence):
        log_evidence[rows] = logsumexp(log_joint, axis=1)
    return log_evidence


def enumerate_marginals(mixture: AllTreesMixture, evidence: FloatArray) -> FloatArray:
    """Distribution of every variable given the observed cells.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    evidence : ndarray of shape (n_rows, n_states)
        Factors on the states.

    Returns
    -------
    ndarray of shape (n_rows, n_states)
        Exact probability of every flat state.

    Raises
    ------
    ValueError
        If a row has more than `MAX_COMPLETIONS` completions.
    """
    layout = mixture.components[0].layout
    marginals = np.empty(evidence.shape)
    for rows, codes, log_joint in _completions(mixture, evidence):
        weights = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
        indicators = layout.one_hot(codes.reshape(-1, layout.n_variables))
        indicators = indicators.reshape(*codes.shape[:2], layout.n_states)
        marginals[rows] = (weights[:, None, :] @ indicators)[:, 0]
    return marginals


def _completions(
    mixture: AllTreesMixture, evidence: FloatArray
) -> Iterator[tuple[IntArray, IntArray, FloatArray]]:
    """Yield rows, their completions (rows, completions, variables) and log joint weights.

    Rows that allow the same number of states everywhere are enumerated together.
    """
    layout = mixture.components[0].layout
    numbers = n_completions(evidence, mixture)
    if numbers.max(initial=0) > MAX_COMPLETIONS:
        raise ValueError(
            must(
                "rows to enumerate",
                f"have at most {MAX_COMPLETIONS} completions",
                "Use method='collapsed'.",
                completions=float(numbers.max()),
            )
        )
    allowed = evidence > 0
    counts = layout.sum_states(allowed.astype(float)).astype(np.int64)
    patterns, group = np.unique(counts, axis=0, return_inverse=True)
    for i, pattern in enumerate(patterns):
        members = np.flatnonzero(group.ravel() == i)
        ranks = np.stack(np.unravel_index(np.arange(pattern.prod()), pattern), axis=1)
        for chunk in memory_bound_chunks(len(members), 32 * layout.n_states * len(ranks)):
            rows = members[chunk]
            codes = _kth_allowed(allowed[rows], ranks, layout)
            flat = layout.flat(codes)
            with np.errstate(divide="ignore"):
                factors = np.log(evidence[rows])
            log_factors = np.take_along_axis(factors[:, None, :], flat, axis=2).sum(axis=2)
            log_prob = mixture.log_prob(codes.reshape(-1, layout.n_variables))
            yield rows, codes, log_factors + log_prob.reshape(log_factors.shape)


def _kth_allowed(allowed: BoolArray, ranks: IntArray, layout: StateLayout) -> IntArray:
    """Codes of the states with the given ranks among the allowed ones of each variable."""
    # Sorted by variable, then by exclusion, the allowed states of a variable come first.
    order = np.argsort(2 * layout.owner + ~allowed, axis=1, kind="stable")
    return order[:, layout.offsets + ranks] - layout.offsets
