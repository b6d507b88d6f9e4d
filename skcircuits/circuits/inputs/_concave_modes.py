"""Most probable points of concave log densities: normal ones, their hyperbolic sines, and bounds.

Where z is normal and x = sinh(c z) / c, the log density of x is log N(z) - log cosh(c z), and the
log probability that other variables lie in a box given z is concave as well (Prékopa, 1973). Damped
Newton steps, each the solution of a quadratic program in the bounds, reach the only maximum (Boyd
and Vandenberghe, 2004, "Convex Optimization", section 9.5), also where correlations are near one
and coordinate ascent crawls.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from skcircuits.protocols import FloatArray, IntArray

_MAX_STEPS, _MAX_HALVINGS = 100, 60
# Smallest gain in nats that is told from rounding; the last step from there squares the distance
_MIN_GAIN = 1e-10
_ARMIJO = 1e-4


class CoordinateBounds(NamedTuple):
    """Intervals of r coordinates (r,), with ends (n, r) that may be infinite."""

    coordinates: IntArray
    low: FloatArray
    high: FloatArray


class ConcaveTerm(Protocol):
    """A concave function of z (n, m), of some of the densities."""

    def values(self, z: FloatArray, chosen: IntArray) -> FloatArray:
        """Values, (n,)."""

    def derivatives(self, z: FloatArray, chosen: IntArray) -> tuple[FloatArray, FloatArray]:
        """Gradients (n, m) and negative Hessians (n, m, m)."""


@dataclass(frozen=True)
class ConcaveLogDensities:
    """n log densities of m coordinates, up to constants, within bounds."""

    means: FloatArray  # (n, m), of a normal density
    precisions: FloatArray  # (n, m, m)
    curvatures: FloatArray  # (n, m), c: minus log cosh(c z)
    bounds: CoordinateBounds
    term: ConcaveTerm | None = None  # added to the normal one

    def modes(self, start: FloatArray) -> FloatArray:
        """Find the maxima (n, m), from points within the bounds."""
        best = start.copy()
        heights = self._values(best, np.arange(len(best)))
        # Where even the start has no density there is nothing to ascend by
        pending = np.flatnonzero(np.isfinite(heights))
        for _ in range(_MAX_STEPS):
            if not len(pending):
                break
            gradients, curvatures = self._derivatives(best[pending], pending)
            steps = self._newton_steps(best[pending], gradients, curvatures, pending)
            gains = np.einsum("nj,nj->n", gradients, steps)
            rounding = 64 * np.finfo(float).eps * np.abs(heights[pending])
            is_last = gains <= _MIN_GAIN + rounding
            best[pending[is_last]] += steps[is_last]
            going = ~is_last
            pending, steps, gains = pending[going], steps[going], gains[going]
            moved = self._ascend(best, heights, steps, gains, pending)
            pending = pending[moved]
        return self._clipped(best)

    def _ascend(
        self,
        best: FloatArray,
        heights: FloatArray,
        steps: FloatArray,
        gains: FloatArray,
        pending: IntArray,
    ) -> FloatArray:
        """Take the steps, halved until they gain; tell which were taken."""
        is_taken = np.zeros(len(pending), dtype=bool)
        length = 1.0
        for _ in range(_MAX_HALVINGS):
            left = np.flatnonzero(~is_taken)
            if not len(left):
                break
            own = pending[left]
            tried = best[own] + length * steps[left]
            found = self._values(tried, own)
            is_higher = found >= heights[own] + _ARMIJO * length * gains[left]
            best[own[is_higher]], heights[own[is_higher]] = tried[is_higher], found[is_higher]
            is_taken[left[is_higher]] = True
            length /= 2.0
        return is_taken

    def _values(self, z: FloatArray, chosen: IntArray) -> FloatArray:
        offsets = z - self.means[chosen]
        values = -0.5 * np.einsum("ni,nij,nj->n", offsets, self.precisions[chosen], offsets)
        slopes = np.abs(self.curvatures[chosen] * z)
        # log cosh, without overflow and up to a constant
        values -= (slopes + np.log1p(np.exp(-2.0 * slopes))).sum(axis=1)
        if self.term is not None:
            values += self.term.values(z, chosen)
        return values

    def _derivatives(self, z: FloatArray, chosen: IntArray) -> tuple[FloatArray, FloatArray]:
        """Gradients (n, m) and negative Hessians (n, m, m)."""
        precisions, factors = self.precisions[chosen], self.curvatures[chosen]
        tanh = np.tanh(factors * z)
        gradients = -np.einsum("nij,nj->ni", precisions, z - self.means[chosen]) - factors * tanh
        curvatures = precisions.copy()
        diagonal = np.arange(z.shape[1])
        curvatures[:, diagonal, diagonal] += factors**2 * (1.0 - tanh**2)
        if self.term is not None:
            gradient, curvature = self.term.derivatives(z, chosen)
            gradients += gradient
            curvatures += curvature
        return gradients, curvatures

    def _newton_steps(
        self, z: FloatArray, gradients: FloatArray, curvatures: FloatArray, chosen: IntArray
    ) -> FloatArray:
        """Steps (n, m) to the maxima of the quadratic approximations within the bounds."""
        own = self.bounds.coordinates
        sides = np.broadcast_to(np.eye(z.shape[1])[:, own], (*z.shape, len(own)))
        solved = np.linalg.solve(curvatures, np.concatenate([gradients[:, :, None], sides], axis=2))
        steps, covariances = solved[:, :, 0], solved[:, :, 1:]
        if len(own):
            low, high = self.bounds.low[chosen], self.bounds.high[chosen]
            precisions = np.linalg.inv(covariances[:, own])
            goal = z[:, own] + steps[:, own]
            inside = best_in_box(goal, precisions, low, high)
            # The other coordinates follow those within bounds by regression
            pull = np.einsum("nrs,ns->nr", precisions, inside - goal)
            steps += np.einsum("njr,nr->nj", covariances, pull)
        return np.asarray(steps)

    def _clipped(self, z: FloatArray) -> FloatArray:
        own, low, high = self.bounds
        z[:, own] = np.clip(z[:, own], low, high)
        return z


def best_in_box(
    centers: FloatArray, precisions: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Densest points (..., r) of normal distributions in boxes, exactly.

    The way from the densest point in the box to the center leaves the box at once, through a side
    that the center has crossed. With that coordinate at its end, the others are a smaller problem.
    """
    best: FloatArray = np.clip(centers, low, high)
    size = centers.shape[-1]
    if size < 2:
        return best
    least = np.full(centers.shape[:-1], np.inf)
    clipped = best
    for i in range(size):
        rest = np.delete(np.arange(size), i)
        inner = precisions[..., rest[:, None], rest]
        pull = precisions[..., rest, i] * (clipped[..., [i]] - centers[..., [i]])
        shifted = centers[..., rest] - np.linalg.solve(inner, pull[..., None])[..., 0]
        tried = np.empty_like(clipped)
        tried[..., i] = clipped[..., i]
        tried[..., rest] = best_in_box(shifted, inner, low[..., rest], high[..., rest])
        offsets = tried - centers
        cost = np.einsum("...i,...ij,...j->...", offsets, precisions, offsets)
        is_better = cost < least
        best = np.where(is_better[..., None], tried, best)
        least = np.where(is_better, cost, least)
    return best
