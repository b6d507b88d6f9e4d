"""The directions of SVGD on the inner layout, one row per coordinate.

Source: Wang, Zeng and Liu, "Stein variational message passing for continuous graphical
models", ICML 2018, equation (8). With s_i the score of node i, K^i the RBF kernel over the
closed neighbourhood C_i and h_i its bandwidth,

    φ_i(x^l) = (1/n) Σ_k [ s_i(x^k) K^i_kl - (2/h_i) (x_i^k - x_i^l) K^i_kl ].

Kernels add. With z the particles standardised by their own mean and standard deviation σ, the
kernel 1 + z_C·z'_C over C_i adds

    φ_i(x) = mean_l s_i(x^l) + Σ_{j in C} z_j(x) mean_l[ s_i(x^l) z_j(x^l) ] + z_i(x) / σ_i.

It vanishes exactly where Stein's identity holds for the linear functions of the blanket,
E_q[s_i] = 0 and E_q[s_i (x_j - μ_j)] = -δ_ij: what fixes the first two moments of a Gaussian, and
what few particles repelled by an RBF kernel alone get wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.numerics._arrays import float_array, single_or_double
from skcircuits.particles._kernels import centred_rows, for_each_chunk, kernel_sums, row_scales
from skcircuits.particles._neighborhoods import Bucket, Neighborhoods
from skcircuits.protocols import FloatArray


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
    """Compute the direction of the linear kernel over every neighbourhood.

    It is added to ``out``, times a weight, where that is given.
    """
    n_particles = rows.shape[1]
    scales = row_scales(rows)[:, None]
    # Where all particles agree there is no unit to measure in; the slope term drops out.
    precisions = np.divide(1.0, scales, where=scales > 0, out=np.zeros_like(scales))
    direction = np.zeros_like(scores) if out is None else out

    def move(chunk: Bucket) -> None:
        """Add what a chunk contributes to its coordinates."""
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
    rows = np.ascontiguousarray(_as_float(particles).T)
    scores = grad_log_prob(rows.T) if callable(grad_log_prob) else grad_log_prob
    scores = np.ascontiguousarray(
        float_array(scores, "grad_log_prob").astype(rows.dtype, copy=False).T
    )
    if scores.shape != rows.shape:
        raise ValueError(
            must("grad_log_prob", "have the shape of the particles", shape=scores.T.shape)
        )
    neighborhoods, bandwidths = _resolve_kernels(neighborhoods, bandwidths)
    if neighborhoods.n_coordinates != len(rows):
        raise ValueError(
            must("neighborhoods", "cover every coordinate", covered=neighborhoods.n_coordinates)
        )
    return kernel_direction(centred_rows(rows), scores, neighborhoods, bandwidths).T


def _as_float(values: ArrayLike) -> FloatArray:
    """Keep float32, turn everything else into float64."""
    array: FloatArray = single_or_double(values, "particles")
    if array.ndim != 2 or array.shape[0] == 0:
        raise ValueError(must("particles", "be a table with at least one row", shape=array.shape))
    return array


def _resolve_kernels(
    neighborhoods: Neighborhoods | Sequence[ArrayLike], bandwidths: ArrayLike
) -> tuple[Neighborhoods, FloatArray]:
    """Build kernels where plain index lists came, and give one bandwidth per kernel."""
    bandwidths = float_array(bandwidths, "bandwidths")
    if not (np.all(bandwidths > 0) and np.all(np.isfinite(bandwidths))):
        raise ValueError(must("bandwidths", "be positive and finite", bandwidths=bandwidths))
    if not isinstance(neighborhoods, Neighborhoods):
        # Nodes may share a kernel only where they also have the same bandwidth.
        neighborhoods = Neighborhoods.from_scopes(neighborhoods, merge=bandwidths.ndim == 0)
    n_nodes = neighborhoods.n_nodes
    if bandwidths.shape not in ((), (1,), (n_nodes,)):
        raise ValueError(must("bandwidths", f"be one or {n_nodes} numbers", shape=bandwidths.shape))
    per_node = np.broadcast_to(bandwidths, (n_nodes,))
    # Of nodes that share a kernel the last one counts; the check below asks for agreement.
    per_kernel = np.empty(neighborhoods.n_kernels)
    per_kernel[neighborhoods.kernel_of_node] = per_node
    if np.any(per_kernel[neighborhoods.kernel_of_node] != per_node):
        raise ValueError(
            must("bandwidths", "be equal for nodes that share a kernel", "Build with merge=False.")
        )
    return neighborhoods, per_kernel
