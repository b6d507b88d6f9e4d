"""Normal distributions truncated to boxes of up to three dimensions: moments and draws.

Coordinates are treated one after the other. The first has the density of a normal variable times
the probability that the others lie within their bounds, which is log-concave; given it, the others
are again truncated normal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.polynomial.legendre import leggauss
from scipy.special import log_ndtr, ndtr, ndtri_exp

from skcircuits.circuits.inputs._gaussian_integrals import (
    MIN_MASS,
    clip_to_mass,
    find_support,
    first_coordinate,
    given_first,
    log_standard_box,
)
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import FloatArray, IntArray

_DROP = 80.0  # twice the nats below its peak from where on a density is left out
_NODES, _WEIGHTS = leggauss(32)
_NODES = (_NODES + 1.0) / 2.0
_MAX_TRIALS = 12
# Rectangles whose moments lose few digits in closed form: width, variance by squared mean
_MIN_LOG_MASS, _MIN_WIDTH, _MIN_SPREAD = np.log(1e-12), 0.3, 1e-3
_PANEL_NODES, _PANEL_WEIGHTS = leggauss(8)
_PANEL_NODES, _PANEL_WEIGHTS = (_PANEL_NODES + 1.0) / 2.0, _PANEL_WEIGHTS / 2.0
# From values at the nodes of a panel to the powers of their polynomial on [0, 1]
_PANEL_POWERS = np.linalg.inv(np.vander(_PANEL_NODES, increasing=True))
# Ends of panels on the way from the peak to an end: log-concave functions are steep near these only
_NEAR = 0.25 * 0.65 ** np.arange(18)
_FRACTIONS = np.concatenate([[0.0], _NEAR[::-1], [0.5], 1.0 - _NEAR, [1.0]])


def truncated_moments(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of standard normal numbers between bounds, of any shape."""
    low, high = np.broadcast_arrays(low, high)
    mean, variance = np.empty(low.shape), np.empty(low.shape)
    peak = np.clip(0.0, low, high)
    # Far out or narrow, differences of cumulative probabilities lose digits.
    is_wide = (np.abs(peak) < 3.0) & (high - low > 0.5)
    mean[is_wide], variance[is_wide] = _wide_moments(low[is_wide], high[is_wide])
    rest = ~is_wide
    mean[rest], variance[rest] = _quadrature_moments(low[rest], high[rest], peak[rest])
    return mean, variance


def _wide_moments(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Moments (n,) in closed form, where these lose few digits."""
    total = ndtr(high) - ndtr(low)
    with np.errstate(over="ignore"):  # bounds that overflow are as good as infinite
        at_low, at_high = (np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi) for z in (low, high))
    mean = (at_low - at_high) / total
    first = np.where(np.isinf(low), 0.0, low) * at_low
    last = np.where(np.isinf(high), 0.0, high) * at_high
    return mean, np.maximum(1.0 + (first - last) / total - mean**2, 0.0)


def _quadrature_moments(
    low: FloatArray, high: FloatArray, peak: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Moments (n,) by Gauss-Legendre quadrature where the mass is: nothing cancels far out."""
    reach = _DROP / (np.sqrt(peak**2 + _DROP) + np.abs(peak))
    far = np.sqrt(peak**2 + _DROP)
    start = np.where(peak > 0.0, peak, np.maximum(low, -far)) - peak
    start = np.where(peak < 0.0, np.maximum(low - peak, -reach), start)
    stop = np.where(peak < 0.0, 0.0, np.minimum(high, far) - peak)
    stop = np.where(peak > 0.0, np.minimum(high - peak, reach), stop)
    width = np.maximum(stop - start, 0.0)
    total, first, second = np.zeros((3, *peak.shape))
    for node, weight in zip(_NODES, _WEIGHTS):
        step = start + node * width
        value = weight * np.exp(-0.5 * step * (step + 2.0 * peak))
        total += value
        value *= step
        first += value
        second += value * step
    first /= total
    second /= total
    return peak + first, np.maximum(second - first**2, 0.0)


def draw_truncated(low: FloatArray, high: FloatArray, uniform: FloatArray) -> FloatArray:
    """Turn uniform numbers into standard normal ones between bounds, all of shape (m,)."""
    # In the lower tail logarithms of cumulative probabilities keep all digits
    flip = low > 0.0
    start, stop = np.where(flip, -high, low), np.where(flip, -low, high)
    log_start, log_stop = log_ndtr(start), log_ndtr(stop)
    level = safe_log(uniform + (1.0 - uniform) * np.exp(log_start - log_stop))
    drawn = np.clip(ndtri_exp(log_stop + level), start, stop)
    return np.where(flip, -drawn, drawn)


@dataclass(frozen=True)
class TruncatedNormals:
    """C standardised normals of r coordinates in [low, high] (r, C), `correlations` (r, r, C)."""

    low: FloatArray
    high: FloatArray
    correlations: FloatArray

    @cached_property
    def log_mass(self) -> FloatArray:
        """Log probabilities of the boxes, (C,); ``-inf`` where empty."""
        return self.log_mass_above(MIN_MASS)

    def log_mass_above(self, least_mass: float) -> FloatArray:
        """The same, to an absolute 1e-15 where rectangles have less than a mass."""
        is_empty = (self.low > self.high).any(axis=0)
        # An empty box would have no peak: any other stands in
        low, high = np.where(is_empty, -1.0, self.low), np.where(is_empty, 1.0, self.high)
        values = log_standard_box(low, high, self.correlations, least_mass)
        return np.where(is_empty, -np.inf, values)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Means (r, C) and covariances (r, r, C)."""
        if len(self.low) == 1:
            mean, variance = truncated_moments(self.low[0], self.high[0])
            return mean[None], variance[None, None]
        if len(self.low) == 3:
            return self._moments_by_panels()
        mean, covariance = self._rectangle_moments()
        is_sure = covariance[[0, 1], [0, 1]] > _MIN_SPREAD * mean**2
        is_sure &= self.high - self.low > _MIN_WIDTH
        rest = np.flatnonzero(~is_sure.all(axis=0) | ~(self.log_mass > _MIN_LOG_MASS))
        if len(rest):
            mean[:, rest], covariance[:, :, rest] = self._take(rest)._moments_by_panels()
        return mean, covariance

    def _rectangle_moments(self) -> tuple[FloatArray, FloatArray]:
        """Moments of two coordinates in closed form (Manjunath and Wilhelm, 2021)."""
        correlation, mass = self.correlations[0, 1], np.exp(self.log_mass)
        scale = np.sqrt(1.0 - correlation**2)
        ends = clip_to_mass(np.stack([self.low, self.high]))  # (side, coordinate, C)
        heights = np.exp(-0.5 * ends**2) / np.sqrt(2.0 * np.pi)
        # Density of each coordinate at its ends with the other in its interval, whose mass keeps
        # its digits in the lower tail
        other = ends[:, ::-1]
        below, above = ((one - correlation * ends) / scale for one in other[:, None])
        is_upper = below > 0.0
        first, last = np.where(is_upper, -above, below), np.where(is_upper, -below, above)
        edges = heights * (ndtr(last) - ndtr(first))
        fall = edges[0] - edges[1]
        pull = (ends * edges)[0] - (ends * edges)[1]
        across = (ends[:, 1] - correlation * ends[:, None, 0]) / scale
        corners = heights[:, None, 0] * np.exp(-0.5 * across**2) / np.sqrt(2.0 * np.pi) / scale
        twist = scale**2 * (corners[0, 0] - corners[0, 1] - corners[1, 0] + corners[1, 1])
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            mean = (fall + correlation * fall[::-1]) / mass
            square = 1.0 + (pull + correlation**2 * pull[::-1] + correlation * twist) / mass
            product = correlation + (correlation * pull.sum(axis=0) + twist) / mass
            second = np.array([[square[0], product], [product, square[1]]])
            return mean, second - mean[:, None] * mean

    def _moments_by_panels(self) -> tuple[FloatArray, FloatArray]:
        """Moments by quadrature over the first coordinate."""
        nodes, weights = self._panels()  # (m, C)
        mean_rest, covariance_rest = self._rest(nodes).moments()
        n_rest, shape = len(self.low) - 1, nodes.shape
        slopes, scales = self.correlations[0, 1:], self._scales
        # Back from standardised conditional coordinates, (r - 1, m, C)
        rest = slopes[:, None] * nodes + scales[:, None] * mean_rest.reshape(n_rest, *shape)
        points = np.concatenate([nodes[None], rest])
        mean = (weights * points).sum(axis=1)
        centred = points - mean[:, None]
        covariance = np.einsum("mc,imc,jmc->ijc", weights, centred, centred)
        inner = covariance_rest.reshape(n_rest, n_rest, *shape)
        inner = inner * scales[:, None, None] * scales[None, :, None]
        covariance[1:, 1:] += np.einsum("mc,ijmc->ijc", weights, inner)
        return mean, covariance

    def draw(self, cases: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw from some of the distributions, cases (m,), result (r, m)."""
        if len(self.low) == 2 and 1 < len(cases) <= self.low.shape[1]:
            return self._draw_by_trial(cases, rng)
        return self._draw_in_turn(cases, rng)

    def _draw_in_turn(self, cases: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw the first coordinate, then the others given it, (r, m)."""
        first = self._draw_first(cases, rng.random(len(cases)))
        if len(self.low) == 1:
            return first[None]
        own = self._take(cases)
        return own._joined(first, own._rest(first[None]).draw(np.arange(len(cases)), rng))

    def _joined(self, first: FloatArray, rest: FloatArray) -> FloatArray:
        """All coordinates (r, C) from the first and the others, standardised given the first."""
        return np.concatenate([first[None], self.correlations[0, 1:] * first + self._scales * rest])

    def _draw_by_trial(self, cases: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw where each case is drawn about once: the first coordinate regardless of the others,
        kept with the probability of their sides; cases that are rejected often use a table.
        """
        drawn = np.empty((len(self.low), len(cases)))
        pending = np.arange(len(cases))
        # Most first draws are kept; those of improbable sides would be tried for ever.
        for _ in range(_MAX_TRIALS):
            own = self._take(cases[pending])
            first = draw_truncated(own.low[0], own.high[0], rng.random(len(pending)))
            rest = own._rest(first[None])
            is_kept = np.log(rng.random(len(pending)) + 1e-300) < rest.log_mass
            kept = np.flatnonzero(is_kept)
            if len(kept):
                inner = rest._take(kept).draw(np.arange(len(kept)), rng)
                drawn[:, pending[kept]] = own._take(kept)._joined(first[kept], inner)
            pending = pending[~is_kept]
            if len(pending) == 0:
                return drawn
        drawn[:, pending] = self._take(cases[pending])._draw_in_turn(np.arange(len(pending)), rng)
        return drawn

    def _draw_first(self, cases: IntArray, uniform: FloatArray) -> FloatArray:
        """Invert the cumulative distribution of the first coordinate."""
        if len(self.low) == 1:
            return draw_truncated(self.low[0, cases], self.high[0, cases], uniform)
        edges, density = self._table
        widths = np.diff(edges, axis=0)
        masses = (density * _PANEL_WEIGHTS[:, None]).sum(axis=1) * widths  # (panels, C)
        ends = np.cumsum(masses, axis=0)
        target = uniform * ends[-1, cases]
        panel = np.minimum((ends[:, cases] <= target).sum(axis=0), len(ends) - 1)
        missing = target - (ends[panel, cases] - masses[panel, cases])
        # Powers of the interpolated density within the panel, integrated
        powers = _PANEL_POWERS @ density[panel, :, cases].T
        powers /= np.arange(1, len(powers) + 1)[:, None]
        goal = np.clip(missing / masses[panel, cases], 0.0, 1.0) * powers.sum(axis=0)
        low, high = np.zeros(len(cases)), np.ones(len(cases))
        for _ in range(50):
            middle = (low + high) / 2.0
            value = np.zeros(len(cases))
            for power in powers[::-1]:
                value += power
                value *= middle
            is_below = value < goal
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        drawn = edges[panel, cases] + widths[panel, cases] * low
        return np.clip(drawn, self.low[0, cases], self.high[0, cases])

    def _take(self, cases: IntArray) -> TruncatedNormals:
        return TruncatedNormals(
            self.low[:, cases], self.high[:, cases], self.correlations[:, :, cases]
        )

    @property
    def _scales(self) -> FloatArray:
        """Standard deviations of the other coordinates given the first, (r - 1, C)."""
        return np.sqrt(1.0 - self.correlations[0, 1:] ** 2)

    def _rest(self, z: FloatArray) -> TruncatedNormals:
        """The other coordinates given values (m, C) of the first, flattened."""
        return TruncatedNormals(*given_first(self.low, self.high, self.correlations, z))

    @cached_property
    def _table(self) -> tuple[FloatArray, FloatArray]:
        """Edges (p + 1, C) of panels of the first coordinate, densities at nodes (p, k, C)."""
        log_function, start, stop = first_coordinate(self.low, self.high, self.correlations)
        peak, (below, above) = find_support(log_function, start, stop)
        edges = np.concatenate(
            [peak - below * _FRACTIONS[::-1, None], (peak + above * _FRACTIONS[:, None])[1:]]
        )
        points = _panel_points(edges)
        log_density = log_function(points.reshape(-1, len(peak))).reshape(points.shape)
        return edges, np.exp(log_density - log_density.max(axis=(0, 1)))

    def _panels(self) -> tuple[FloatArray, FloatArray]:
        """Nodes of the first coordinate and their probabilities, both (m, C)."""
        edges, density = self._table
        weights = density * _PANEL_WEIGHTS[:, None] * np.diff(edges, axis=0)[:, None]
        weights = weights.reshape(-1, edges.shape[1])
        points = _panel_points(edges).reshape(weights.shape)
        return points, weights / weights.sum(axis=0)


def _panel_points(edges: FloatArray) -> FloatArray:
    """Nodes of panels between edges (p + 1, C), shape (p, k, C)."""
    return edges[:-1, None] + np.diff(edges, axis=0)[:, None] * _PANEL_NODES[:, None]
