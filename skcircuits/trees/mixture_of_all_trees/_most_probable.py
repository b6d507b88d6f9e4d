"""Most probable completions under a mixture of all trees."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._enumeration import (
    MAX_COMPLETIONS,
    most_probable_enumerated,
    n_completions,
)
from skcircuits.trees.mixture_of_all_trees._evidence_trees import sample_completions
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture

__all__ = ["most_probable_completions"]


def most_probable_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    n_starts: int,
    n_trees: int,
    rng: np.random.Generator,
) -> tuple[IntArray, BoolArray]:
    """Complete rows (n_rows, n_variables), and tell which were searched and not enumerated.

    `evidence` (n_rows, n_states) with a possible state per variable. Up to `MAX_COMPLETIONS`
    completions are enumerated, which is exact. Beyond, the problem is NP-hard: `n_starts` rows
    drawn given the evidence are improved by the best change of one cell at a time until none helps.
    """
    is_searched = n_completions(evidence, mixture) > MAX_COMPLETIONS
    codes = np.empty((len(evidence), mixture.layout.n_variables), dtype=np.int64)
    codes[~is_searched] = most_probable_enumerated(mixture, evidence[~is_searched])
    for row in np.flatnonzero(is_searched):
        starts = sample_completions(mixture, evidence[[row]], n_starts, n_trees, rng)[:, 0]
        tops = [_ascend(mixture, evidence[row], start) for start in np.unique(starts, axis=0)]
        codes[row] = max(tops, key=lambda top: top[1])[0]
    return codes, is_searched


def _ascend(
    mixture: AllTreesMixture, evidence: FloatArray, codes: IntArray
) -> tuple[IntArray, float]:
    """Change one cell at a time, always the best one: a local optimum and its log probability."""
    layout = mixture.layout
    with np.errstate(divide="ignore"):
        log_evidence = np.log(evidence)
    n_open = layout.sum_states((evidence > 0).astype(float))
    is_open = (evidence > 0) & (n_open > 1)[layout.owner]
    states = np.flatnonzero(is_open)
    neighbours = np.empty((len(states), layout.n_variables), dtype=np.int64)
    reached = -np.inf
    while True:
        # The row itself is among its neighbours: each open cell keeps its state once.
        neighbours[:] = codes
        neighbours[np.arange(len(states)), layout.owner[states]] = layout.own_state[states]
        log_prob = mixture.log_prob(neighbours)
        log_prob += log_evidence[layout.flat(neighbours)].sum(axis=1)
        best = int(log_prob.argmax())
        if not log_prob[best] > reached:
            return codes, reached
        codes, reached = neighbours[best].copy(), float(log_prob[best])
