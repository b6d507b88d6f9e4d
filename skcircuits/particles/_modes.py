"""Modes of a target, by ascents of its density from particles and from points far around them.

Limited-memory BFGS (Nocedal 1980) follows all ascents at once. It has the score alone, not the
density, so that a step is taken if the slope along it does not change its sign and grow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skcircuits.numerics._arrays import spread_rows
from skcircuits.particles._metric import STEP, CoordinateMetric, HessianProbe
from skcircuits.protocols import FloatArray

# Numbers of particles and of points around them from which ascents start, the latter such that they
# have at most so many coordinates in all; range of widths, in standard deviations of the particles.
N_NEAR, N_FAR, MIN_FAR, MAX_SIZE, WIDTHS = 30, 200, 20, 5e3, (1.0, 100.0)
# Number of steps and of differences that are remembered, factors of steps that fail and of those
# along which the density is not concave.
N_STEPS, MEMORY, SHORTER, LONGER = 80, 8, 0.3, 3.0
# Squared distance from a mode, in units of its curvature, at which ascents end, and within which
# two ends are the same mode; Newton steps from an end that only seemed to be one.
ARRIVED, SAME, N_POLISHED = 1e-6, 0.5, 10
# Largest number of modes, and the least curvature of one, as part of the largest.
MAX_MODES, LEAST_CURVATURE = 16, 1e-8
# Products of a step and a change of slopes below this part of the squared change are rounding.
ROUNDING = 1e-12


@dataclass(frozen=True)
class Modes:
    """Points where a density is largest, and its curvature there."""

    centers: FloatArray  # (k, d)
    roots: FloatArray  # (k, d, d), R R' is the inverse of the negative Hessian


def find_modes(
    score: Callable[[FloatArray], FloatArray],
    probe: HessianProbe,
    starts: FloatArray,
    metric: CoordinateMetric,
) -> Modes | None:
    """Ascend from some points, (n, d); None where no ascent arrives at a mode."""
    with np.errstate(all="ignore"):
        return _distinct(score, probe, ascend(score, starts, metric), np.sqrt(metric.variances))


def points_around(
    particles: FloatArray, metric: CoordinateMetric, rng: np.random.Generator
) -> FloatArray:
    """Particles, and points in all directions around them, near and far."""
    d = particles.shape[1]
    n_far = int(np.clip(MAX_SIZE / d, MIN_FAR, N_FAR))
    chosen = spread_rows(len(particles), min(N_NEAR, n_far))
    low, high = np.log(WIDTHS)
    widths = np.exp(rng.uniform(low, high, (n_far, 1)))
    noise = metric.stretch(rng.standard_normal((n_far, d)))
    return np.concatenate([particles[chosen], particles.mean(axis=0) + widths * noise])


def ascend(
    score: Callable[[FloatArray], FloatArray], starts: FloatArray, metric: CoordinateMetric
) -> FloatArray:
    """Follow limited-memory BFGS from every row, (n, d); the rows that arrive at a mode."""
    x, ends = starts, []
    slopes = score(x)
    is_usable = np.isfinite(slopes).all(axis=1)
    x, slopes = x[is_usable], metric.pull(slopes[is_usable])
    # (memory, n, d), the oldest first; a pair of inner product zero is not used.
    steps = np.zeros((0, *x.shape))
    changes = np.zeros((0, *x.shape))
    scales, lengths = np.ones(len(x)), np.ones(len(x))
    for _ in range(N_STEPS):
        move = _direction(slopes, steps, changes, scales)
        rise = (move * slopes).sum(axis=1)
        arrived = (rise < ARRIVED) & (lengths == 1.0)
        ends.append(x[arrived])
        if arrived.any():
            kept = ~arrived
            x, slopes, move, rise = x[kept], slopes[kept], move[kept], rise[kept]
            steps, changes = steps[:, kept], changes[:, kept]
            scales, lengths = scales[kept], lengths[kept]
        if not len(x):
            break
        move = lengths[:, None] * move
        ahead = x + metric.stretch(move)
        slopes_ahead = metric.pull(score(ahead))
        rise_ahead = (move * slopes_ahead).sum(axis=1)
        # Without the density itself: the slope along a step may change its sign, if it shrinks.
        taken = (rise_ahead >= -0.9 * lengths * rise) & np.isfinite(slopes_ahead).all(axis=1)
        change = np.where(taken[:, None], slopes - slopes_ahead, 0.0)
        step = np.where(taken[:, None], move, 0.0)
        steps = np.concatenate([steps[-MEMORY + 1 :], step[None]])
        changes = np.concatenate([changes[-MEMORY + 1 :], change[None]])
        curvature, size = (step * change).sum(axis=1), (change**2).sum(axis=1)
        bent = taken & (curvature > ROUNDING * size)
        scales = np.where(bent, curvature / np.where(bent, size, 1.0), scales)
        scales = np.where(taken & ~bent, LONGER * scales, scales)
        x = np.where(taken[:, None], ahead, x)
        slopes = np.where(taken[:, None], slopes_ahead, slopes)
        lengths = np.where(taken, 1.0, SHORTER * lengths)
    return np.concatenate([np.empty((0, starts.shape[1])), *ends])


def _direction(
    slopes: FloatArray, steps: FloatArray, changes: FloatArray, scales: FloatArray
) -> FloatArray:
    """Multiply slopes with the inverse curvature of the remembered steps."""
    inner = np.einsum("mnd,mnd->mn", steps, changes)
    size = np.einsum("mnd,mnd->mn", changes, changes)
    usable = inner > ROUNDING * size
    rates = np.where(usable, 1.0 / np.where(usable, inner, 1.0), 0.0)
    move = slopes.copy()
    factors = np.zeros_like(rates)
    for k in range(len(steps) - 1, -1, -1):
        factors[k] = rates[k] * (steps[k] * move).sum(axis=1)
        move -= factors[k][:, None] * changes[k]
    move *= scales[:, None]
    for k in range(len(steps)):
        back = rates[k] * (changes[k] * move).sum(axis=1)
        move += (factors[k] - back)[:, None] * steps[k]
    return move


def _distinct(
    score: Callable[[FloatArray], FloatArray],
    probe: HessianProbe,
    ends: FloatArray,
    scales: FloatArray,
) -> Modes | None:
    """Give the different modes among ends of ascents, (n, d)."""
    ends = _most_curved_first(score, ends, scales)
    centers: list[FloatArray] = []
    roots: list[FloatArray] = []
    for _ in range(MAX_MODES):
        if not len(ends):
            break
        end, ends = ends[0], ends[1:]
        center, values, vectors = _polished(score, probe, end, scales)
        if not np.isfinite(values).all():
            continue
        # Other ascents end at the same ridges and saddles, too.
        weights = np.abs(values)
        others = np.concatenate([ends, np.reshape(centers, (-1, len(center)))])
        distances = (((others - center) / scales @ vectors) ** 2) @ weights
        is_known = (distances[len(ends) :] < SAME).any()
        ends = ends[distances[: len(ends)] > SAME]
        if values[0] > LEAST_CURVATURE * values[-1] and not is_known:
            centers.append(center)
            roots.append(scales[:, None] * vectors / np.sqrt(values))
    return Modes(np.array(centers), np.array(roots)) if centers else None


def _most_curved_first(
    score: Callable[[FloatArray], FloatArray], ends: FloatArray, scales: FloatArray
) -> FloatArray:
    """Order by the curvature along the diagonal; a mode has a positive one.

    Thus ends on plateaus, which are many and all alike, hide no mode.
    """
    step = STEP * scales
    curvature = (score(ends - step) - score(ends + step)) @ step
    order = np.argsort(-curvature, kind="stable")
    return ends[order[curvature[order] > 0.0]]


def _polished(
    score: Callable[[FloatArray], FloatArray],
    probe: HessianProbe,
    point: FloatArray,
    scales: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Follow Newton's method; its end, and eigenvalues and vectors of the curvature there."""
    values, vectors = np.full(len(point), np.nan), np.eye(len(point))
    for _ in range(N_POLISHED):
        curvature = probe.mean(point[None], scales) * np.outer(scales, scales)
        if not np.isfinite(curvature).all():
            return point, np.full(len(point), np.nan), vectors
        values, vectors = np.linalg.eigh(curvature)
        along = vectors.T @ (scales * score(point[None])[0])
        if values[0] <= LEAST_CURVATURE * values[-1] or (along**2 / values).sum() < ARRIVED:
            return point, values, vectors
        point = point + scales * (vectors @ (along / values))
    return point, np.full(len(point), np.nan), vectors
