"""The directions of SVGD in the internal layout, one row per coordinate, and fields of them.

Source: Wang, Zeng and Liu, "Stein variational message passing for continuous graphical models",
ICML 2018, equation (8). With s_i the score of node i, K^i the RBF kernel over the closed
neighbourhood C_i and h_i its bandwidth,

    φ_i(x^l) = (1/n) Σ_k [ s_i(x^k) K^i_kl - (2/h_i) (x_i^k - x_i^l) K^i_kl ].

Directions of sums of kernels are sums. With z the particles standardised by their own mean and
standard deviation σ, adding the kernel 1 + z_C·z'_C over C_i adds

    φ_i(x) = mean_l s_i(x^l) + Σ_{j in C} z_j(x) mean_l[ s_i(x^l) z_j(x^l) ] + z_i(x) / σ_i.

It vanishes exactly if Stein's identity holds for the linear functions of the blanket, E_q[s_i] = 0
and E_q[s_i (x_j - μ_j)] = -δ_ij. This determines the first two moments of a Gaussian, which are
wrong if few particles are repelled by an RBF kernel alone.

Every sum has the form Σ_k v_k K^i_kl for a few rows v, with K^i_kl = exp(-|x^k_C - x^l_C|² / h_i).
Kernel matrices are computed tile by tile in cache and never stored. Bandwidths follow the median
rule: factor × (median distance in the scope)².

A velocity field is a function of rows, scores and the number of the iteration. Sums of kernels give
sums of fields: `make_field` assembles the `kernel` of `GraphicalSVGDSampler`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import float_array, single_or_double
from skcircuits.parallel import row_slices, thread_map
from skcircuits.particles._neighborhoods import Bucket, Neighborhoods, RandomScopes
from skcircuits.protocols import FloatArray, IntArray

# Kernel tiles of this size stay in the second-level cache between the product that
# makes them, the exponential and the product that consumes them.
TILE_BYTES = 2**20
# Bandwidths follow the spread of the particles, which changes slowly, and their median
# costs more than an iteration.
ITERATIONS_PER_BANDWIDTH = 10


def kernel_sums(
    rows: FloatArray, bucket: Bucket, bandwidths: FloatArray, values: FloatArray
) -> FloatArray:
    """Multiply values with the kernel matrices of a bucket."""
    left, right = _distance_factors(rows, bucket, 1.0 / bandwidths[bucket.kernels])
    n_particles = rows.shape[1]
    sums = np.empty_like(values)
    tile = max(1, TILE_BYTES // (len(left) * n_particles * rows.itemsize))
    # If coordinates are large relative to the bandwidth, rounding gives positive exponents.
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
    """Call a function, in threads, on chunks of kernels of one tile, equal for every ``n_jobs``."""
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
    """Centre coordinates, so that |x|² + |y|² - 2 x·y cancels less, and append a row of zeros."""
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
    """Median squared distances times ``factor``; where they are zero, means; else ``factor``."""
    # Distances between all particles would cost as much as an iteration.
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
        # Rounding errors of the distances of equal particles are at most this large.
        norms = negative[:, 0].min(axis=1, keepdims=True)
        distances[distances < -8.0 * np.finfo(rows.dtype).eps * norms] = 0.0
        squared_medians[chunk.kernels] = _squared_median(distances)

    if pairs.size:
        for_each_chunk(measure, neighborhoods, n_particles**2 * rows.itemsize, n_jobs)
    return factor * squared_medians


def _pairs(n_particles: int) -> IntArray:
    """All pairs of particles, or those a few lags apart, as positions in the flattened matrix."""
    if n_particles * (n_particles - 1) // 2 <= MAX_PAIRS:
        first, second = np.triu_indices(n_particles, 1)
        return first * n_particles + second
    # Starting particles may come in an order (a chain, a sorted table): lags from
    # neighbours to half the cloud include near and far pairs.
    n_lags = MAX_PAIRS // n_particles
    lags = 1 + ((np.arange(n_lags) + 0.5) * (n_particles // 2) / n_lags).astype(np.int64)
    first = np.tile(np.arange(n_particles), n_lags)
    return first * n_particles + (first + np.repeat(lags, n_particles)) % n_particles


def _squared_median(squared_distances: FloatArray) -> FloatArray:
    """Give the square of each row's median distance, never zero."""
    # Squares have the order of the distances, so that only the middle ones need a square root.
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


def kernel_direction(
    rows: FloatArray,
    scores: FloatArray,
    neighborhoods: Neighborhoods,
    bandwidths: FloatArray,
    n_jobs: int | None = None,
) -> FloatArray:
    """Compute the direction on the inner layout, one row per coordinate."""
    direction = np.empty_like(scores)
    bandwidths = bandwidths.astype(rows.dtype, copy=False)

    # Every coordinate is owned once, so chunks write to different rows and never collide.
    def move(chunk: Bucket) -> None:
        """Write the direction of a chunk."""
        direction[chunk.owned] = _chunk_direction(rows, scores[chunk.owned], chunk, bandwidths)

    for_each_chunk(move, neighborhoods, rows.shape[1] ** 2 * rows.itemsize, n_jobs)
    return direction


def _chunk_direction(
    rows: FloatArray, scores: FloatArray, chunk: Bucket, bandwidths: FloatArray
) -> FloatArray:
    """Move a block of kernels, given its coordinates and those of its halo."""
    attraction = (2.0 / bandwidths[chunk.kernels])[:, None, None]
    owned = rows[chunk.owned]
    n_bucket, n_owned, n_particles = owned.shape
    # φ_i = [ K (s_i - 2 x_i/h_i) + (2/h_i) x_i ∘ (K 1) ] / n: one product for both sums.
    values = np.ones((n_bucket, n_owned + 1, n_particles), dtype=rows.dtype)
    values[:, :n_owned] = scores - attraction * owned
    sums = kernel_sums(rows, chunk, bandwidths, values)
    # In place, in the copy that gathering made: the block is still in cache.
    owned *= attraction
    owned *= sums[:, n_owned:]
    owned += sums[:, :n_owned]
    owned /= n_particles
    return owned


def linear_direction(
    rows: FloatArray,
    scores: FloatArray,
    neighborhoods: Neighborhoods,
    n_jobs: int | None = None,
    *,
    weight: float = 1.0,
    out: FloatArray | None = None,
) -> FloatArray:
    """Direction of the linear kernel over every neighbourhood, or its multiple added to ``out``."""
    n_particles = rows.shape[1]
    scales = row_scales(rows)[:, None]
    # If all particles agree, their scale is zero, and the slope term is omitted.
    precisions = np.divide(1.0, scales, where=scales > 0, out=np.zeros_like(scales))
    direction = np.zeros_like(scores) if out is None else out

    def move(chunk: Bucket) -> None:
        """Add the contribution of a chunk to its coordinates."""
        seen = rows[chunk.scopes] * precisions[chunk.scopes]
        owned = scores[chunk.owned]
        # mean_l s_i(x^l) z_j(x^l) for every owned i and seen j; padding has z = 0.
        slopes = np.matmul(owned, seen.transpose(0, 2, 1))
        slopes /= n_particles
        moved = np.matmul(slopes, seen)
        # The two terms that need no neighbours: z_i / σ_i, then the mean score.
        moved += rows[chunk.owned] * precisions[chunk.owned] ** 2
        moved += owned.mean(axis=2, keepdims=True)
        moved *= weight
        direction[chunk.owned] += moved

    largest_scope = int(neighborhoods.scope_sizes.max())
    for_each_chunk(move, neighborhoods, largest_scope * n_particles * rows.itemsize, n_jobs)
    return direction


Field = Callable[[FloatArray, FloatArray, int], FloatArray]


def kernel_field(
    neighborhoods: Neighborhoods, bandwidth_factor: float = 1.0, n_jobs: int | None = None
) -> Field:
    """SVGD with fixed scopes and bandwidths by the median rule, measured every tenth iteration."""
    bandwidths: FloatArray | None = None

    def velocity(rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        nonlocal bandwidths
        if bandwidths is None or iteration % ITERATIONS_PER_BANDWIDTH == 0:
            bandwidths = median_bandwidths(
                rows, neighborhoods, factor=bandwidth_factor, n_jobs=n_jobs
            )
        return kernel_direction(rows, scores, neighborhoods, bandwidths, n_jobs)

    return velocity


def rbf_and_linear_field(
    seen: Neighborhoods,
    blanket: Neighborhoods,
    *,
    weight: float = 1.0,
    bandwidth_factor: float,
    linear_weight: float,
    n_jobs: int | None,
) -> Field:
    """Weighted sum of an RBF kernel over scopes and a linear one; weights of zero cost nothing."""
    kernel = kernel_field(seen, bandwidth_factor, n_jobs)

    def velocity(rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        total = kernel(rows, scores, iteration) if weight else np.zeros_like(scores)
        total *= weight
        if linear_weight:
            linear_direction(rows, scores, blanket, n_jobs, weight=linear_weight, out=total)
        return total

    return velocity


def make_field(
    kernel: str,
    graph: Neighborhoods,
    scopes: RandomScopes | None = None,
    *,
    bandwidth_factor: float = 1.0,
    linear_weight: float = 0.0,
    local_weight: float = 0.5,
    n_jobs: int | None = None,
) -> Field:
    """Assemble the velocity field of a kernel."""
    over = partial(
        rbf_and_linear_field,
        bandwidth_factor=bandwidth_factor,
        linear_weight=linear_weight,
        n_jobs=n_jobs,
    )
    everything = Neighborhoods.complete(graph.n_coordinates)
    # The linear term keeps to the blanket even where the RBF kernel sees everything: the blanket
    # is where the moments of the target are decided.
    if kernel in ("graphical", "global"):
        return over(graph if kernel == "graphical" else everything, graph)
    if kernel not in ("random", "combine") or scopes is None:
        condition = "be 'graphical', 'global', or with scopes 'random' or 'combine'"
        raise invalid("kernel", condition, kernel=kernel, scopes=scopes)
    # The global part sees the joint distribution, the local part keeps the variances.
    weight = 1.0 if kernel == "random" else local_weight
    remaining = kernel_field(everything, bandwidth_factor, n_jobs)

    def velocity(rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        drawn = scopes.draw(iteration)
        total = over(drawn, drawn, weight=weight)(rows, scores, iteration)
        if weight < 1.0:
            total += (1.0 - weight) * remaining(rows, scores, iteration)
        return total

    return velocity


def svgd_direction(
    particles: ArrayLike,
    grad_log_prob: ArrayLike | Callable[[FloatArray], FloatArray],
    neighborhoods: Neighborhoods | Sequence[ArrayLike],
    bandwidths: ArrayLike,
) -> FloatArray:
    """Compute the graphical SVGD direction of every particle.

    Parameters
    ----------
    particles : array-like of shape (n_particles, n_coordinates)
        Current particles.
    grad_log_prob : array-like of shape (n_particles, n_coordinates) or callable
        Score of the target at the particles, or a function that computes it.
    neighborhoods : Neighborhoods or sequence of n_coordinates array-likes of int
        The coordinates on which the kernel of each coordinate depends (with or without the
        coordinate itself).
    bandwidths : float or array-like of shape (n_nodes,)
        h_i in ``exp(-|x_C - y_C|²/h_i)``, one per node.

    Returns
    -------
    ndarray of shape (n_particles, n_coordinates)
        φ, in the precision of the particles.

    Raises
    ------
    ValueError
        If shapes do not match, or if a bandwidth is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import svgd_direction
    >>> x = np.array([[-1.0, 0.0], [1.0, 0.5]])
    >>> svgd_direction(x, lambda x: -x, [[0], [1]], 2.0).round(3)
    array([[ 0.297, -0.441],
           [-0.297, -0.029]])
    """
    array: FloatArray = single_or_double(particles, "particles")
    if array.ndim != 2 or array.shape[0] == 0:
        raise invalid("particles", "be a table with at least one row", shape=array.shape)
    rows = np.ascontiguousarray(array.T)
    scores = grad_log_prob(rows.T) if callable(grad_log_prob) else grad_log_prob
    scores = np.ascontiguousarray(
        float_array(scores, "grad_log_prob").astype(rows.dtype, copy=False).T
    )
    if scores.shape != rows.shape:
        raise invalid("grad_log_prob", "have the shape of the particles", shape=scores.T.shape)
    neighborhoods, bandwidths = _resolve_kernels(neighborhoods, bandwidths)
    if neighborhoods.n_coordinates != len(rows):
        raise invalid(
            "neighborhoods", "cover every coordinate", covered=neighborhoods.n_coordinates
        )
    return kernel_direction(centred_rows(rows), scores, neighborhoods, bandwidths).T


def _resolve_kernels(
    neighborhoods: Neighborhoods | Sequence[ArrayLike], bandwidths: ArrayLike
) -> tuple[Neighborhoods, FloatArray]:
    """Build kernels where plain index lists came, and give one bandwidth per kernel."""
    bandwidths = float_array(bandwidths, "bandwidths")
    if not (np.all(bandwidths > 0) and np.all(np.isfinite(bandwidths))):
        raise invalid("bandwidths", "be positive and finite", bandwidths=bandwidths)
    if not isinstance(neighborhoods, Neighborhoods):
        # Nodes may share a kernel only where they also have the same bandwidth.
        neighborhoods = Neighborhoods.from_scopes(neighborhoods, merge=bandwidths.ndim == 0)
    n_nodes = neighborhoods.n_nodes
    if bandwidths.shape not in ((), (1,), (n_nodes,)):
        raise invalid("bandwidths", f"be one or {n_nodes} numbers", shape=bandwidths.shape)
    per_node = np.broadcast_to(bandwidths, (n_nodes,))
    # The value of the last node of a kernel is used; the check below requires that all agree.
    per_kernel = np.empty(neighborhoods.n_kernels)
    per_kernel[neighborhoods.kernel_of_node] = per_node
    if np.any(per_kernel[neighborhoods.kernel_of_node] != per_node):
        raise invalid(
            "bandwidths", "be equal for nodes that share a kernel", "Build with merge=False."
        )
    return neighborhoods, per_kernel
