"""Quantiles and intervals of one column by bisection of its distribution function."""

import numpy as np

__all__ = ["bisect_quantiles", "shortest_intervals"]

# Steps until bisection alone would have found any float; about ten are the rule
_N_STEPS = 120
_RELATIVE = 1e-14
# Of the table that says where the shortest interval is, and of levels tried there
_N_POINTS = 257
_N_LEVELS = 13


def bisect_quantiles(distribution, levels, start=0.0, scale=1.0):
    """Smallest numbers where a distribution function reaches levels.

    ``distribution``: ``distribution(x)``: probabilities (m, k) that each of m conditions leaves the
    column at most at x (m, k); ``levels`` (m, k): levels in (0, 1); ``start``, ``scale`` (m, 1): a
    typical number, and a distance from it, to begin with. Returns (m, k): the quantiles.
    """
    low = np.broadcast_to(start - scale, levels.shape).astype(float)
    high = np.broadcast_to(start + scale, levels.shape).astype(float)
    width = np.broadcast_to(scale, levels.shape)
    for _ in range(60):
        too_high, too_low = distribution(low) >= levels, distribution(high) < levels
        if not (too_high.any() or too_low.any()):
            break
        width = width * 4.0
        low, high = np.where(too_high, low - width, low), np.where(too_low, high + width, high)
    return _find_roots(lambda x: distribution(x) - levels, low, high, scale)


def _find_roots(function, low, high, scale):
    """Zeros of increasing functions between ends, by Chandrupatla's method.

    Inverse quadratic interpolation where it can be trusted, else bisection, which also ends at
    the points where a function jumps. Gives ends where the function is not negative.
    """
    low_value, high_value = function(low), function(high)
    # The last point, the end on the other side of the root, and the point before the last
    a, b, c = high, low, high
    fa, fb, fc = high_value, low_value, high_value
    fraction = np.full(low.shape, 0.5)
    for _ in range(_N_STEPS):
        x = a + fraction * (b - a)
        fx = function(x)
        is_same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(is_same, a, b), np.where(is_same, fa, fb)
        b, fb = np.where(is_same, b, a), np.where(is_same, fb, fa)
        a, fa = x, fx
        width = np.abs(b - a)
        tolerance = _RELATIVE * (np.abs(a) + np.abs(b) + scale)
        if ((width <= tolerance) | (fa == 0.0)).all():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            trusted = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
            inner = fa / (fb - fa) * fc / (fb - fc)
            outer = (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            fraction = np.where(trusted & np.isfinite(inner + outer), inner + outer, 0.5)
            least = np.minimum(0.5, np.where(width > 0.0, tolerance / width, 0.5))
        fraction = np.clip(fraction, least, 1.0 - least)
    return np.where(fa == 0.0, a, np.where(fa >= 0.0, a, b))


def shortest_intervals(quantile, distribution, level):
    """The shortest of the intervals that hold a fraction `level` of the mass, (m, 2).

    `quantile(q)` gives quantiles (m, k) of levels (m, k), `distribution(x)` is as above. A table
    of the distribution function says between which levels the best lower one lies; there the
    quantiles themselves decide. One interval, also where two would be shorter.
    """
    rest = 1.0 - level
    outer = quantile(np.array([[0.01 * rest, 1.0 - 0.01 * rest]]))
    points = outer[:, :1] + (outer[:, 1:] - outer[:, :1]) * np.linspace(0.0, 1.0, _N_POINTS)
    first, last = _best_levels(points, distribution(points), level)
    for _ in range(2):
        fractions = np.linspace(0.0, 1.0, _N_LEVELS)
        levels = np.clip(first + (last - first) * fractions, 1e-15, rest * (1.0 - 1e-15))
        lower, upper = np.split(quantile(np.hstack([levels, levels + level])), 2, axis=1)
        chosen = (upper - lower).argmin(axis=1)[:, None]
        first, last = (
            np.take_along_axis(levels, np.clip(chosen + step, 0, _N_LEVELS - 1), axis=1)
            for step in (-1, 1)
        )
    return np.hstack([np.take_along_axis(ends, chosen, axis=1) for ends in (lower, upper)])


def _best_levels(points, reached, level):
    """Levels (m, 1) around that of the point (m, k) where the shortest interval begins."""
    reached = np.maximum.accumulate(reached, axis=1)
    wanted, k = reached + level, reached.shape[1]
    # One search serves all conditions: that of row i lies between 2 i and 2 i + 1
    offset = 2.0 * np.arange(len(reached))[:, None]
    ends = np.searchsorted((reached + offset).ravel(), (np.minimum(wanted, 1.0) + offset).ravel())
    ends = ends.reshape(reached.shape) - np.arange(len(reached))[:, None] * k
    after = np.clip(ends, 1, k - 1)
    (x0, x1), (f0, f1) = (
        [np.take_along_axis(values, at, axis=1) for at in (after - 1, after)]
        for values in (points, reached)
    )
    fraction = np.divide(wanted - f0, f1 - f0, out=np.ones_like(f0), where=f1 > f0)
    lengths = np.where((ends < k) & (wanted <= 1.0), x0 + fraction * (x1 - x0) - points, np.inf)
    best = lengths.argmin(axis=1)[:, None]
    around = (np.maximum(best - 2, 0), np.minimum(best + 2, k - 1))
    first, last = (np.take_along_axis(reached, at, axis=1) for at in around)
    return np.where(best <= 2, 0.0, first), last
