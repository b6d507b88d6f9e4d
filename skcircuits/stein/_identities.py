"""What kernels hardly see beside what they do: energies of states, parts that valleys separate.

Stein's identity holds within every mode of a density as well as over all of them: how much mass a
mode has shows only in the valley between it and the next one, where hardly a sample lies. Weights
that follow the identity alone leave a mode for another one that happens to fit better.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.cluster.vq import vq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist
from scipy.special import expit

from skcircuits.protocols import DiscreteTarget, FloatArray, IntArray
from skcircuits.stein._ridge import spread_rows
from skcircuits.stein._targets import full_conditionals

# Weight of Stein's identity for the energy, beside one for the kernel. A tenth of it helps
# the mean energy half as much, ten times as much takes from collapsed single marginals.
_FRACTION = 0.01
# Samples that ascend the density, their steps, and how far a step goes at most in standard
# deviations of the samples, so that none jumps a valley.
MAX_CLIMBERS, N_STEPS, MAX_MOVE = 100, 40, 0.5
FIRST_STEP, LONGER, SHORTER = 0.5, 1.5, 0.4
# Points on the way between two ends, and the loss of log density that makes a valley.
N_POINTS, DEPTH = 16, 0.3


def energy_residuals(target: DiscreteTarget, X: FloatArray) -> FloatArray:
    """Apply the Barker operator to the log probability of a target.

    With the rates ``g_{i,d}(x) = p(x +_i d) / (p(x) + p(x +_i d))`` it is
    ``sum_{i,d} g_{i,d}(x) (log p(x +_i d) - log p(x))``, whose mean under the target is
    zero. Samples with too much of the modes have a negative mean, those with too little of
    them a positive one: a wide kernel over the states hardly sees the difference.
    """
    total = np.zeros(len(X))
    for variable, log_conditional in full_conditionals(target, X):
        observed = ~np.isnan(X[:, variable])
        own = X[observed, variable].astype(np.int64)
        gain = log_conditional - np.take_along_axis(log_conditional, own[:, None], axis=1)
        # Impossible states are never moved to: 0 times -inf is 0 here.
        possible = ~np.isneginf(gain)
        flow = np.where(possible, expit(gain) * np.where(possible, gain, 0.0), 0.0)
        total[observed] += flow.sum(axis=1)
    return total


def scaled_features(
    diagonal: FloatArray, residuals: FloatArray, counts: IntArray, fraction: float = _FRACTION
) -> FloatArray | None:
    """Scale residuals, (n,) or (n, k), so that their squares add to a form with that diagonal.

    None where all of them are zero.
    """
    # Both parts on the scale of their diagonals, as independent samples would have them.
    squares = residuals**2 if residuals.ndim == 1 else (residuals**2).sum(axis=1)
    own, others = counts @ squares, counts @ diagonal
    return None if own == 0 else np.sqrt(fraction * others / own) * residuals


def separate_parts(score: Callable[[FloatArray], FloatArray], Z: FloatArray) -> IntArray:
    """Give the part that each row belongs to, (n,); rows have about unit covariance."""
    chosen = spread_rows(len(Z), MAX_CLIMBERS)
    # Some leave for infinity: what cannot be computed there is no valley.
    with np.errstate(all="ignore"):
        passages = _passages(score, _ascend(score, Z[chosen]))
    own = connected_components(passages, directed=False)[1]
    return np.asarray(own[vq(Z, Z[chosen])[0]], dtype=np.int64)


def _ascend(score: Callable[[FloatArray], FloatArray], Z: FloatArray) -> FloatArray:
    """Follow the score from every row, each with its own step."""
    slopes, steps = score(Z), np.full((len(Z), 1), FIRST_STEP)
    for _ in range(N_STEPS):
        moves = steps * slopes
        lengths = np.linalg.norm(moves, axis=1, keepdims=True)
        moves *= np.minimum(1.0, MAX_MOVE / np.maximum(lengths, 1e-300))
        ahead = score(Z + moves)
        # Without the density itself: the slope along a step may change its sign, if it shrinks.
        before, after = ((moves * s).sum(axis=1, keepdims=True) for s in (slopes, ahead))
        taken = (after >= -0.9 * before) & np.isfinite(after)
        Z, slopes = np.where(taken, Z + moves, Z), np.where(taken, ahead, slopes)
        steps *= np.where(taken, LONGER, SHORTER)
    return Z


def _passages(score: Callable[[FloatArray], FloatArray], ends: FloatArray) -> coo_array:
    """Join ends next to each other where the density does not fall in between."""
    # Plus one: a distance of zero would be no edge.
    tree = coo_array(minimum_spanning_tree(1.0 + cdist(ends, ends)))
    start, change = ends[tree.row], ends[tree.col] - ends[tree.row]
    fractions = (np.arange(N_POINTS) + 0.5) / N_POINTS
    way = start + fractions[:, None, None] * change
    slopes = score(way.reshape(-1, ends.shape[1])).reshape(way.shape)
    gained = np.cumsum((slopes * change).sum(axis=2), axis=0) / N_POINTS
    loss = np.minimum(0.0, gained[-1]) - gained.min(axis=0)
    is_open = ~(loss > DEPTH)
    return coo_array((tree.data[is_open], (tree.row[is_open], tree.col[is_open])), tree.shape)
