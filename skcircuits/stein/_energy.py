"""Stein's identity for the energy: a test function that every categorical target brings along."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from skcircuits.protocols import DiscreteTarget, FloatArray, IntArray
from skcircuits.stein._targets import full_conditionals

__all__ = ["energy_residuals", "with_energy"]

# Weight of Stein's identity for the energy, beside one for the kernel. A tenth of it helps
# the mean energy half as much, ten times as much takes from collapsed single marginals.
_SHARE = 0.01


def energy_residuals(target: DiscreteTarget, X: FloatArray) -> FloatArray:
    """Apply the Barker operator to the log probability of a target.

    With the rates ``g_{i,d}(x) = p(x +_i d) / (p(x) + p(x +_i d))`` it is
    ``sum_{i,d} g_{i,d}(x) (log p(x +_i d) - log p(x))``, whose mean under the target is
    zero. Samples with too much of the modes have a negative mean, those with too little of
    them a positive one: a wide kernel over the states hardly sees the difference.

    Parameters
    ----------
    target : DiscreteTarget
        A categorical target.
    X : ndarray of shape (n, d)
        Possible rows; NaN where collapsed, and then p is the marginal of the others.

    Returns
    -------
    ndarray of shape (n,)
        One number per row.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.stein._energy import energy_residuals
    >>> model = IsingModel.grid(1, 2, couplings=0.5)
    >>> states = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> residuals = energy_residuals(model, states)
    >>> residuals.round(3)
    array([-0.538,  1.462,  1.462, -0.538])
    >>> p = np.exp(model.log_prob_unnormalized(states) - model.log_partition())
    >>> round(abs(float(p @ residuals)), 12)
    0.0
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


def with_energy(K: FloatArray, residuals: FloatArray, counts: IntArray) -> FloatArray:
    """Add Stein's identity for the energy to the form that weights minimise.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Stein Gram matrix of distinct samples.
    residuals : ndarray of shape (n,)
        Their :func:`energy_residuals`.
    counts : ndarray of int of shape (n,)
        How often each sample occurs.

    Returns
    -------
    ndarray of shape (n, n)
        ``K`` and a share of the squared weighted sum of the residuals.
    """
    # Both parts on the scale of their diagonals, as independent samples would have them.
    own, others = counts @ residuals**2, counts @ K.diagonal()
    if own == 0:
        return K
    return K + _SHARE * others / own * np.outer(residuals, residuals)
