"""Quantiles and intervals of one column by bisection of its distribution function."""

import numpy as np

__all__ = ["bisect_quantiles", "shortest_intervals"]

# Steps until bisection alone would have found any float; about ten are the rule
_N_STEPS = 120
_RELATIVE = 1e-14
_N_LEVELS = 200


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


def shortest_intervals(quantile, level):
    """The shortest of the intervals that hold a fraction `level` of the mass, (m, 2).

    `quantile(q)` gives quantiles (m, k) of levels (k,). The best lower level is searched on a
    grid that is refined around the best point; one interval, also where two would be shorter.
    """
    rest = 1.0 - level
    edges = np.linspace(0.0, 1.0, _N_LEVELS + 1)[1:-1]
    low_levels = rest * edges
    best = None
    for _ in range(4):
        both = np.concatenate([low_levels, low_levels + level])
        lower, upper = np.split(quantile(both), 2, axis=1)
        rows, chosen = np.arange(len(lower)), (upper - lower).argmin(axis=1)
        found = np.stack([lower[rows, chosen], upper[rows, chosen]], axis=1)
        if best is None:
            best = found
        else:
            shorter = np.diff(found)[:, 0] < np.diff(best)[:, 0]
            best = np.where(shorter[:, None], found, best)
        if len(lower) > 1:
            break  # one grid for all conditions
        step = low_levels[1] - low_levels[0]
        centre = low_levels[chosen[0]]
        ends = max(centre - step, 1e-15), min(centre + step, rest * (1.0 - 1e-15))
        low_levels = np.linspace(*ends, 21)
    return best
