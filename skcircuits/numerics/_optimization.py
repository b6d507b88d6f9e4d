"""Adam, and modes of densities that are known by their scores.

Modes are found by limited-memory BFGS (Nocedal 1980), which follows all ascents at once: a step is
taken if the slope along it does not change its sign and grow. Coordinates are such that the points
of interest have about unit covariance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
