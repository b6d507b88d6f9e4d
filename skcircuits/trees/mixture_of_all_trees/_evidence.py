"""Probabilities of incomplete rows: from drawn completions or from drawn trees."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray
from skcircuits.trees.mixture_of_all_trees._evidence_completions import (
    cell_beliefs,
    estimate_from_completions,
)
from skcircuits.trees.mixture_of_all_trees._evidence_trees import estimate_from_trees
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture

__all__ = ["estimate_evidence"]

# Beyond this log of a weight's mean square, trees vary less than completions do. The bound was
# found on jester and plants with a tenth to nine tenths of the cells missing.
_MAX_LOG_SPREAD = 3.5
# A tree takes time in proportion to the number of variables, a completion to its third power:
# small models draw nearly as many of these, large ones a sixteenth.
_VARIABLES_PER_TREE = 6
_MAX_TREES_PER_COMPLETION = 16


def estimate_evidence(
    mixture: AllTreesMixture, evidence: FloatArray, n_trees: int, seed: int
) -> FloatArray:
    """Log of an unbiased estimate of the probability of the observed cells.

    Which estimate a row gets depends on its evidence alone, not on what is drawn, so that none of
    them is biased by the choice.

    `evidence` (n_rows, n_states) -> (n_rows,).
    """
    layout = mixture.layout
    log_evidence = np.full(len(evidence), -np.inf)
    # A variable whose states are all ruled out leaves nothing to draw.
    possible = np.flatnonzero((layout.sum_states(evidence) > 0).all(axis=1))
    n_restricted = (np.minimum.reduceat(evidence, layout.offsets, axis=1) < 1).sum(axis=1)
    beliefs = cell_beliefs(mixture, evidence[possible])
    # Trees are exact where a single cell is observed, or none.
    by_completion = (n_restricted[possible] > 1) & (beliefs.log_spread <= _MAX_LOG_SPREAD)
    completed, others = possible[by_completion], possible[~by_completion]
    trees_per_completion = layout.n_variables // _VARIABLES_PER_TREE
    trees_per_completion = int(np.clip(trees_per_completion, 1, _MAX_TREES_PER_COMPLETION))
    log_evidence[completed] = estimate_from_completions(
        mixture,
        evidence[completed],
        beliefs.of_rows(by_completion),
        -(-n_trees // trees_per_completion),
        seed,
    )
    log_evidence[others] = estimate_from_trees(mixture, evidence[others], n_trees, seed)
    return log_evidence
