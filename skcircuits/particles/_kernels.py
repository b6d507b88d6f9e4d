"""Sums over particles weighted by local RBF kernels: the one heavy pass of the package.

For every kernel i with scope C_i and bandwidth h_i, K^i_kl = exp(-|x^k_C - x^l_C|² / h_i).
Directions and discrepancies are all of the form Σ_k v_k K^i_kl for a few rows v, so the
kernel matrices are made tile by tile, in cache, and never stored. Bandwidths follow the median
rule: factor × (median distance in the scope)².
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skcircuits.parallel import row_slices, thread_map
from skcircuits.particles._neighborhoods import Bucket, Neighborhoods
from skcircuits.protocols import FloatArray, IntArray

# Kernel tiles of this size stay in the second-level cache between the product that
# makes them, the exponential and the product that consumes them.
TILE_BYTES = 2**20


def kernel_sums(
    rows: FloatArray, bucket: Bucket, bandwidths: FloatArray, values: FloatArray
) -> FloatArray:
    """Multiply values with the kernel matrices of a bucket."""
    left, right = _distance_factors(rows, bucket, 1.0 / bandwidths[bucket.kernels])
    n_particles = rows.shape[1]
    sums = np.empty_like(values)
    tile = max(1, TILE_BYTES // (len(left) * n_particles * rows.itemsize))
    # Coordinates that are huge against the bandwidth leave exponents visibly above zero.
    may_cancel = -right[:, -1].min() * np.finfo(rows.dtype).eps > 1e-3
    for columns in row_slices(n_particles, tile):
        kernel = np.matmul(left, right[:, :, columns])
        # A pass over the tile costs half an exponential, so it is left out where it can be.
        if may_cancel:
            np.minimum(kernel, 0.0, out=kernel)
        # K is symmetric: values @ K needs no transpose of the tile.
        np.exp(kernel, out=kernel)
        np.matmul(values, kernel, out=sums[:, :, columns])
    return sums


def for_each_chunk(
    function: Callable[[Bucket], None],
    neighborhoods: Neighborhoods,
    kernel_bytes: int,
    n_jobs: int | None,
) -> None:
    """Call a function on chunks of kernels that fit into one tile, shared out to threads.

    Chunks depend on the shapes only, so results are bitwise equal for every ``n_jobs``.
    """
    size = max(1, TILE_BYTES // kernel_bytes)
    chunks = [
        (bucket.part(rows),)
        for bucket in neighborhoods.buckets
        for rows in row_slices(len(bucket.kernels), size)
    ]
    thread_map(function, chunks, n_jobs)


def negative_squared_distances(rows: FloatArray, bucket: Bucket) -> FloatArray:
    """Compute -|x^k_C - x^l_C|² between all particles in the scopes of a bucket."""
    left, right = _distance_factors(rows, bucket, np.ones(len(bucket.kernels), dtype=rows.dtype))
    return np.matmul(left, right)


def _distance_factors(
    rows: FloatArray, bucket: Bucket, scales: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Write -a |x - y|² as one product of vectors, (√(2a) x, -a|x|², 1)·(√(2a) y, 1, -a|y|²)."""
    n_bucket, scope_size = bucket.scopes.shape
    left = np.empty((n_bucket, scope_size + 2, rows.shape[1]), dtype=rows.dtype)
    points, half_norms = left[:, :scope_size], left[:, scope_size]
    np.multiply(rows[bucket.scopes], np.sqrt(2.0 * scales)[:, None, None], out=points)
    np.einsum("bcn,bcn->bn", points, points, out=half_norms)
    half_norms *= -0.5
    left[:, scope_size + 1] = 1.0
    # The same vectors with the last two rows exchanged: one product gives all exponents.
    right = left.copy()
    right[:, scope_size] = 1.0
    right[:, scope_size + 1] = half_norms
    return left.transpose(0, 2, 1), right


def centred_rows(coordinates: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Centre every coordinate and append a row of zeros.

    Kernels and directions do not change when a coordinate is shifted, but distances
    computed as |x|² + |y|² - 2 x·y cancel the less the closer the data is to zero.
    """
    n_coordinates, n_particles = coordinates.shape
    if out is None:
        out = np.empty((n_coordinates + 1, n_particles), dtype=coordinates.dtype)
    means = coordinates.mean(axis=1, keepdims=True)
    np.subtract(coordinates, means, out=out[:-1])
    out[-1] = 0.0
    return out


def row_scales(rows: FloatArray) -> FloatArray:
    """Give the standard deviation of every centred coordinate."""
    variances = np.einsum("dn,dn->d", rows, rows)
    variances /= rows.shape[1]
    return np.sqrt(variances, out=variances)


# The exact median of all pairs costs several times the direction itself. That of this many, a fixed
# subset so that bandwidths settle when the particles do, is within about 3 % of it.
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
