"""Stein's identity for the energy: a test function that every categorical target brings along."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from skcircuits.protocols import DiscreteTarget, FloatArray, IntArray
from skcircuits.stein._targets import full_conditionals

# Weight of Stein's identity for the energy, beside one for the kernel. A tenth of it helps
# the mean energy half as much, ten times as much takes from collapsed single marginals.
_FRACTION = 0.01


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
