"""Adam, and modes of densities that are known by their scores, or log-concave within bounds.

Where the score alone is known, modes are found by limited-memory BFGS (Nocedal 1980), which follows
all ascents at once: a step is taken if the slope along it does not change its sign and grow.
Coordinates are such that the points of interest have about unit covariance.

Concave log densities have a single maximum within bounds, which damped Newton steps reach, each the
solution of a quadratic program in the bounds (Boyd and Vandenberghe, 2004, "Convex Optimization",
section 9.5), also where correlations are near one and coordinate ascent crawls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from scipy.cluster.vq import vq
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial.distance import cdist

from skcircuits.numerics._arrays import spread_rows
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Numbers per part: intermediate results stay in cache, however long the parameters.
_PART = 2**15
_DECAY = 0.9  # of the running mean of gradients, as published


class Adam:
    """Adam (Kingma and Ba, 2015); ``damping`` bounds the steps where gradients are nearly zero."""

    def __init__(self, decay_squares: float = 0.999, damping: float = 1e-8) -> None:
        self._decay_squares = decay_squares
        self._damping = damping
        self._n_steps = 0
        self._moments: FloatArray | None = None  # (2, n): means, squares

    def ascend(self, parameters: FloatArray, gradient: FloatArray, step_size: float) -> None:
        """Move contiguous parameters in place; the gradient has their shape."""
        # Like the first gradient: in single precision where that is
        if self._moments is None:
            self._moments = np.zeros((2, gradient.size), dtype=gradient.dtype)
        self._n_steps += 1
        # Running means begin at zero: both are divided by the weight that they hold so far
        step_size /= 1 - _DECAY**self._n_steps
        unbias = 1 / (1 - self._decay_squares**self._n_steps)
        parameters, gradient = parameters.reshape(-1), gradient.reshape(-1)
        for part in row_slices(gradient.size, _PART):
            own, mean, square = gradient[part], self._moments[0, part], self._moments[1, part]
            mean += (1 - _DECAY) * (own - mean)
            square += (1 - self._decay_squares) * (own**2 - square)
            parameters[part] += step_size * mean / (np.sqrt(square * unbias) + self._damping)


Function = Callable[[FloatArray], FloatArray]
Difference = tuple[FloatArray, FloatArray, FloatArray]

# Number of steps and of differences that are remembered, length of the first step, factors of steps
# that fail and of those along which the density is not concave.
N_STEPS, MEMORY, FIRST_MOVE, SHORTER, LONGER = 80, 8, 0.01, 0.3, 3.0
# Squared distance from a mode, in units of its curvature, at which ascents end, and within which
# two ends are the same mode; Newton steps from an end that only seemed to be one.
ARRIVED, SAME, N_POLISHED = 1e-6, 0.5, 10
# Largest number of modes, and the least curvature of one, as part of the largest.
MAX_MODES, LEAST_CURVATURE = 16, 1e-8
# Products of a step and a change of slopes below this part of the squared change are rounding.
ROUNDING = 1e-12
# Differences for a curvature: the cube root of the rounding error.
DIFFERENCE = 1e-5
# Number of rows that ascend to find parts, of their steps, and the largest step, so that none jumps
# over a valley; points between two ends, and the decrease of log density that counts as a valley.
MAX_CLIMBERS, N_MOVES, MAX_MOVE = 100, 40, 0.5
N_POINTS, DEPTH = 16, 0.3
# Ends of ascents that are less than so many standard deviations apart, in every coordinate, are one
# place.
SAME_PLACE = 0.05


@dataclass(frozen=True)
class Modes:
    """Points where a density is largest, and its curvature there."""

    centers: FloatArray  # (k, d)
    roots: FloatArray  # (k, d, d), R R' is the inverse of the negative Hessian


def find_modes(score: Function, curvature: Function, starts: FloatArray) -> Modes | None:
    """Ascend from points (n, d) with negative Hessians ``curvature``; None if there is no mode."""
    with np.errstate(all="ignore"):
        ascents = ascend(score, starts)
        return _distinct(score, curvature, ascents.ends[ascents.arrived])


def separate_parts(score: Function, Z: FloatArray, n_climbers: int = MAX_CLIMBERS) -> IntArray:
    """Give the part that each row belongs to, (n,): no valley lies between ends in one part."""
    chosen = spread_rows(len(Z), n_climbers)
    # Some diverge: values that cannot be computed there are not a valley.
    with np.errstate(all="ignore"):
        places, own = gather(ascend(score, Z[chosen], N_MOVES, MAX_MOVE).ends)
        if len(places) == 1:
            return np.zeros(len(Z), dtype=np.int64)
        own = connected_components(_passages(score, places), directed=False)[1][own]
    return np.asarray(own[vq(Z, Z[chosen])[0]], dtype=np.int64)


def gather(ends: FloatArray) -> tuple[FloatArray, IntArray]:
    """Give the places where ascents end, (k, d), and that of each of them, (n,)."""
    own = np.full(len(ends), -1)
    places: list[int] = []
    while (own < 0).any():
        place = int(own.argmin())
        is_near = (np.abs(ends - ends[place]) <= SAME_PLACE).all(axis=1) & (own < 0)
        is_near[place] = True  # even where it is no number
        own[is_near] = len(places)
        places.append(place)
    return ends[places], own


@dataclass(frozen=True)
class Ascents:
    """Where ascents from some points end, and which of them arrive at a mode or a plateau."""

    ends: FloatArray  # (n, d)
    arrived: BoolArray  # (n,)


def ascend(
    score: Function, starts: FloatArray, n_steps: int = N_STEPS, max_move: float = np.inf
) -> Ascents:
    """Follow limited-memory BFGS from every row, (n, d), by steps of at most some length."""
    ends, arrived = starts.copy(), np.zeros(len(starts), dtype=bool)
    slopes = score(starts)
    rows = np.flatnonzero(np.isfinite(slopes).all(axis=1))
    x, slopes = starts[rows], slopes[rows]
    # Steps, changes of slopes (n, d) and rates (n,), the oldest first; a rate of zero is not used.
    memory: list[Difference] = []
    scales, is_concave = np.ones(len(x)), np.ones(len(x), dtype=bool)
    # A first step that only shows the curvature: longer ones leave the surroundings of narrow modes
    lengths = np.minimum(1.0, FIRST_MOVE / np.maximum(np.linalg.norm(slopes, axis=1), 1e-300))
    for _ in range(n_steps):
        move = _direction(slopes, memory, scales)
        rise = _products(move, slopes)
        is_there = (rise < ARRIVED) & (lengths == 1.0)
        if is_there.any():
            ends[rows[is_there]], arrived[rows[is_there]] = x[is_there], True
            kept = ~is_there
            rows, x, slopes, move, rise = rows[kept], x[kept], slopes[kept], move[kept], rise[kept]
            memory = [(step[kept], change[kept], rate[kept]) for step, change, rate in memory]
            scales, lengths, is_concave = scales[kept], lengths[kept], is_concave[kept]
        if not len(x):
            break
        size = np.linalg.norm(move, axis=1)
        fractions = np.minimum(lengths, max_move / np.maximum(size, 1e-300))
        move = fractions[:, None] * move
        ahead = x + move
        slopes_ahead = score(ahead)
        rise_ahead = _products(move, slopes_ahead)
        # Without the density itself: the slope along a step may change its sign, if it shrinks. It
        # shrinks outwards, too, in heavy tails, where the density was not concave
        least = np.where(is_concave, -0.9 * fractions * rise, 0.0)
        taken = (rise_ahead >= least) & np.isfinite(slopes_ahead).all(axis=1)
        change = np.where(taken[:, None], slopes - slopes_ahead, 0.0)
        step = np.where(taken[:, None], move, 0.0)
        curvature, size = _products(step, change), _products(change, change)
        bent = taken & (curvature > ROUNDING * size)
        rate = np.where(bent, 1.0 / np.where(bent, curvature, 1.0), 0.0)
        memory = [*memory[-MEMORY + 1 :], (step, change, rate)]
        is_concave = np.where(taken, bent, is_concave)
        scales = np.where(bent, curvature / np.where(bent, size, 1.0), scales)
        scales = np.where(taken & ~bent, LONGER * scales, scales)
        x = np.where(taken[:, None], ahead, x)
        slopes = np.where(taken[:, None], slopes_ahead, slopes)
        lengths = np.where(taken, 1.0, SHORTER * fractions)
    ends[rows] = x
    return Ascents(ends, arrived)


def _direction(slopes: FloatArray, memory: list[Difference], scales: FloatArray) -> FloatArray:
    """Multiply slopes with the inverse curvature of the remembered steps."""
    move = slopes.copy()
    factors = []
    for step, change, rate in reversed(memory):
        factors.append(rate * _products(step, move))
        move -= factors[-1][:, None] * change
    move *= scales[:, None]
    for (step, change, rate), factor in zip(memory, reversed(factors)):
        move += (factor - rate * _products(change, move))[:, None] * step
    return move


def _products(left: FloatArray, right: FloatArray) -> FloatArray:
    """Inner products of rows, (n,)."""
    return np.einsum("nd,nd->n", left, right)


def _distinct(score: Function, curvature: Function, ends: FloatArray) -> Modes | None:
    """Give the different modes among ends of ascents, (n, d)."""
    ends = _most_curved_first(score, ends)
    centers: list[FloatArray] = []
    roots: list[FloatArray] = []
    for _ in range(MAX_MODES):
        if not len(ends):
            break
        end, ends = ends[0], ends[1:]
        center, values, vectors = _polished(score, curvature, end)
        if not np.isfinite(values).all():
            continue
        # Other ascents end at the same ridges and saddles, too.
        weights = np.abs(values)
        others = np.concatenate([ends, np.reshape(centers, (-1, len(center)))])
        distances = (((others - center) @ vectors) ** 2) @ weights
        is_known = (distances[len(ends) :] < SAME).any()
        ends = ends[distances[: len(ends)] > SAME]
        if values[0] > LEAST_CURVATURE * values[-1] and not is_known:
            centers.append(center)
            roots.append(vectors / np.sqrt(values))
    return Modes(np.array(centers), np.array(roots)) if centers else None


def _most_curved_first(score: Function, ends: FloatArray) -> FloatArray:
    """Order by the curvature along the diagonal: ends on plateaus, which are many, hide no mode."""
    curvature = (score(ends - DIFFERENCE) - score(ends + DIFFERENCE)).sum(axis=1)
    order = np.argsort(-curvature, kind="stable")
    return ends[order[curvature[order] > 0.0]]


def _polished(
    score: Function, curvature: Function, point: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Follow Newton's method; its end, and eigenvalues and vectors of the curvature there."""
    unknown, vectors = np.full(len(point), np.nan), np.eye(len(point))
    for _ in range(N_POLISHED):
        curved = curvature(point)
        if not np.isfinite(curved).all():
            return point, unknown, vectors
        values, vectors = np.linalg.eigh(curved)
        along = vectors.T @ score(point[None])[0]
        if values[0] <= LEAST_CURVATURE * values[-1] or (along**2 / values).sum() < ARRIVED:
            return point, values, vectors
        point = point + vectors @ (along / values)
    return point, unknown, vectors


def _passages(score: Function, ends: FloatArray) -> coo_array:
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


# Newton steps, and halvings of each
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
        own, low, high = self.bounds
        best[:, own] = np.clip(best[:, own], low, high)
        return best

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


def best_in_box(
    centers: FloatArray, precisions: FloatArray, low: FloatArray, high: FloatArray
) -> FloatArray:
    """Densest points (..., r) in boxes, exactly: the way to the center leaves the box through a
    side that the center has crossed; with that coordinate at its end, the rest is a smaller
    problem.
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
