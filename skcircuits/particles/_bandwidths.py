"""The median rule: bandwidth of a kernel = factor × (median distance in its scope)².

The exact median of all pairs costs several times the direction itself. Up to
``MAX_PAIRS`` pairs it is exact; beyond, a fixed subset of pairs is used, so that the rule
stays deterministic and the bandwidths settle when the particles do.
"""

from __future__ import annotations

import numpy as np

from skcircuits.particles._kernel_sums import for_each_chunk, negative_squared_distances
from skcircuits.particles._neighborhoods import Bucket, Neighborhoods
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["median_bandwidths"]

# The median of this many pairs is within about 3 % of the median of all of them.
MAX_PAIRS = 1500
# Pairs are taken among at most this many particles, evenly spread.
MAX_PARTICLES = 512


def median_bandwidths(
    rows: FloatArray,
    neighborhoods: Neighborhoods,
    *,
    factor: float = 1.0,
    n_jobs: int | None = None,
) -> FloatArray:
    """Compute the bandwidth of every kernel from the spread of the particles.

    Where more than half of the pairs coincide the median is zero and the mean squared
    distance takes its place; where all particles coincide the bandwidth is ``factor``.
    """
    # Distances among all of many particles would cost as much as an iteration.
    if rows.shape[1] > MAX_PARTICLES:
        chosen = np.linspace(0, rows.shape[1] - 1, MAX_PARTICLES).astype(np.int64)
        rows = np.ascontiguousarray(rows[:, chosen])
    n_particles = rows.shape[1]
    pairs = _pairs(n_particles)
    squared_medians = np.ones(neighborhoods.n_kernels, dtype=rows.dtype)

    def measure(chunk: Bucket) -> None:
        """Write the squared medians of a chunk."""
        negative = negative_squared_distances(rows, chunk)
        distances = -negative.reshape(len(negative), -1)[:, pairs]
        # Differences of this size are what rounding leaves of equal particles.
        norms = negative[:, 0].min(axis=1, keepdims=True)
        distances[distances < -8.0 * np.finfo(rows.dtype).eps * norms] = 0.0
        squared_medians[chunk.kernels] = _squared_median(distances)

    if pairs.size:
        for_each_chunk(measure, neighborhoods, n_particles**2 * rows.itemsize, n_jobs)
    return factor * squared_medians


def _pairs(n_particles: int) -> IntArray:
    """Give all pairs of particles, or those a few evenly spread lags apart.

    Pairs are positions in a flattened matrix of particles by particles.
    """
    if n_particles * (n_particles - 1) // 2 <= MAX_PAIRS:
        first, second = np.triu_indices(n_particles, 1)
        return first * n_particles + second
    # Starting particles may come in an order (a chain, a sorted table): lags from
    # neighbours to half the cloud see near and far pairs alike.
    n_lags = MAX_PAIRS // n_particles
    lags = 1 + ((np.arange(n_lags) + 0.5) * (n_particles // 2) / n_lags).astype(np.int64)
    first = np.tile(np.arange(n_particles), n_lags)
    return first * n_particles + (first + np.repeat(lags, n_particles)) % n_particles


def _squared_median(squared_distances: FloatArray) -> FloatArray:
    """Give the square of each row's median distance, never zero."""
    # Squares keep the order of distances: roots are taken of the middle ones only.
    n_pairs = squared_distances.shape[1]
    middle = n_pairs // 2
    ordered = np.partition(squared_distances, middle, axis=1)
    squared_medians = ordered[:, middle]
    if n_pairs % 2 == 0:
        below = ordered[:, :middle].max(axis=1)
        squared_medians = 0.25 * (np.sqrt(below) + np.sqrt(squared_medians)) ** 2
    collapsed = squared_medians <= 0.0
    if np.any(collapsed):
        means = squared_distances[collapsed].mean(axis=1)
        squared_medians[collapsed] = np.where(means > 0.0, means, 1.0)
    return squared_medians
