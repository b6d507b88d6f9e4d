"""Counts, smoothed probabilities and mutual information of pairs of variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.tree._layout import StateLayout


class PairStatistics(NamedTuple):
    """Consistent probabilities of single variables and of pairs.

    `nodes` (n_states,): probability of every state of every variable; `pairs` (n_states,
    n_states): probability of every pair of states; the block of a variable with itself is
    diagonal.
    """

    nodes: FloatArray
    pairs: FloatArray


def pair_statistics(
    codes: IntArray,
    layout: StateLayout,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> PairStatistics:
    """Estimate the probabilities of all single states and pairs of states.

    The pseudo-count is spread evenly over the cells of each pair table, so a marginal of a smoothed
    table is the smoothed marginal: ``α / (k_u k_v)`` per cell and ``α / k_u`` per state.

    `codes` (n_rows, n_variables), `sample_weight` (n_rows,).
    """
    indicators = layout.one_hot(codes)
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    # One matrix product counts all pairs of states of all pairs of variables.
    counts = (indicators * weight[:, None]).T @ indicators
    uniform = 1.0 / layout.cardinalities[layout.owner]
    total = weight.sum() + pseudo_count
    nodes = (layout.state_counts(codes, weight) + pseudo_count * uniform) / total
    counts += pseudo_count * np.outer(uniform, uniform)
    counts /= total
    # Within a variable the smoothing above means nothing: a state only meets itself.
    own = layout.owner[:, None] == layout.owner
    counts[own] = np.diag(nodes)[own]
    return PairStatistics(nodes, counts)


def mutual_information(statistics: PairStatistics, layout: StateLayout) -> FloatArray:
    """Mutual information of every pair of variables.

    Gives (n_variables, n_variables).
    """
    nodes, pairs = statistics
    # 0 log 0 = 0: states that never occur add nothing.
    positive = pairs > 0
    log_ratio = np.log(pairs, out=np.zeros_like(pairs), where=positive)
    log_nodes = np.log(nodes, out=np.zeros_like(nodes), where=nodes > 0)
    log_ratio -= log_nodes[:, None]
    log_ratio -= log_nodes
    log_ratio *= pairs
    information = layout.sum_states(layout.sum_states(log_ratio).T).T
    np.fill_diagonal(information, 0.0)
    # Rounding may leave independent variables an ulp below zero.
    return np.maximum(information, 0.0)
