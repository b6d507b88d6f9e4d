"""Choice of the settings of LearnSPN by the likelihood of held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.learning.sum_product._learner import (
    SplitSettings,
    learn_structure,
    structure_to_unit,
)
from skcircuits.learning.sum_product._leaves import LeafSettings, MixedTable
from skcircuits.protocols import FloatArray

__all__ = ["held_out_scores"]


def held_out_scores(
    table: MixedTable,
    candidates: Sequence[tuple[SplitSettings, LeafSettings]],
    n_folds: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Mean log density (n_candidates,) of rows left out in turn, one fold at a time.

    All candidates see the same folds, and the columns' point masses are those of the whole
    table, so that their densities refer to one measure.
    """
    fold = rng.permutation(len(table.X)) % n_folds
    totals = np.zeros(len(candidates))
    for number in range(n_folds):
        held_out = (fold == number) & (table.weights > 0)
        training = replace(table, weights=np.where(held_out, 0.0, table.weights))
        if not held_out.any() or not (training.weights > 0).any():
            continue
        for i, (splits, leaves) in enumerate(candidates):
            # The same random numbers for all candidates
            *_, root = learn_structure(training, splits, np.random.default_rng(number))
            circuit = Circuit(structure_to_unit(training, root, leaves))
            totals[i] += table.weights[held_out] @ circuit.log_prob(table.X[held_out])
    return totals / table.weights.sum()
