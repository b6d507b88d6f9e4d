"""Sums and differences of numbers known by their logarithms."""

from __future__ import annotations

import numpy as np
from scipy.special import log_ndtr

from skcircuits.protocols import FloatArray

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(4)


def logsumexp(values: FloatArray, axis: int = 0) -> FloatArray:
    """Sum numbers given by their logarithms along an axis.

    Unlike :func:`scipy.special.logsumexp` this makes one temporary array, and a
    slice of ``-inf`` gives ``-inf`` without a warning.

    ``values``: logarithms; ``-inf`` stands for zero; ``axis``: the axis to sum over. Returns
    logarithms of the sums, without `axis`.
    """
    values = np.asarray(values, dtype=np.float64)
    peak = values.max(axis=axis, keepdims=True)
    peak[~np.isfinite(peak)] = 0.0  # an empty sum stays -inf, an infinite one stays inf
    scaled = np.subtract(values, peak)
    np.exp(scaled, out=scaled)
    with np.errstate(divide="ignore"):
        return np.log(scaled.sum(axis=axis)) + peak.squeeze(axis)


def log1mexp(values: FloatArray) -> FloatArray:
    """Compute log(1 - exp(v)) for v <= 0 without cancellation.

    ``values``: non-positive numbers. Returns ``log(1 - exp(values))``; ``-inf`` at zero.

    The two branches meet at -log 2, where both are accurate (Mächler, 2012, "Accurately computing
    log(1 - exp(-|a|))", equation 7).
    """
    values = np.asarray(values, dtype=np.float64)
    with np.errstate(divide="ignore"):
        near_zero = np.log(-np.expm1(np.maximum(values, -1.0)))
    return np.where(values > -np.log(2.0), near_zero, np.log1p(-np.exp(np.minimum(values, -0.5))))


def log_ndtr_difference(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Log mass that a standard normal puts between two bounds.

    Accurate relatively in both tails, where the difference of the two cumulative
    probabilities would cancel, and in intervals much narrower than one.

    ``lower``, ``upper``: bounds, infinite ones included; they broadcast. Returns ``log(Phi(upper) -
    Phi(lower))``; ``-inf`` where ``upper <= lower``.
    """
    lower, upper = np.broadcast_arrays(
        np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    )
    # the mass is symmetric: work in the lower tail, where log_ndtr loses nothing
    flip = lower > -upper
    low, high = np.where(flip, -upper, lower), np.where(flip, -lower, upper)
    log_high = log_ndtr(high)
    # bounds crossed, or both so far out that no float holds the log mass
    empty = ~(upper > lower) | np.isneginf(log_high)
    gap = np.where(empty, 0.0, log_ndtr(low) - np.where(empty, 0.0, log_high))
    result = np.asarray(log_high + log1mexp(np.minimum(gap, 0.0)))
    close = ~empty & (gap > -1e-2)
    result[close] = _log_narrow_mass(low[close], high[close])
    result[empty] = -np.inf
    return result


def _log_narrow_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """Log mass of intervals over which the density hardly changes, shape (n,).

    Either the density varies by a few per cent there or the interval reaches far into
    the upper half, where gaps of cumulative probabilities say nothing; the first case is
    integrated by four Gauss-Legendre nodes.
    """
    half = 0.5 * (high - low)
    middle = low + half
    # the density relative to its value in the middle
    steps = half * _NODES[:, None]
    relative = _NODE_WEIGHTS @ np.exp(-steps * (middle + 0.5 * steps))
    return np.log(half * relative) - 0.5 * middle**2 - 0.5 * np.log(2.0 * np.pi)
