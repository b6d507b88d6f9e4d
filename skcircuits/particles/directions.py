"""The direction in which Stein variational gradient descent moves the particles.

Source: Wang, Zeng and Liu, "Stein variational message passing for continuous graphical
models", ICML 2018, equation (8). With s_i the score of node i, K^i the RBF kernel over the
closed neighbourhood C_i and h_i its bandwidth,

    φ_i(x^l) = (1/n) Σ_k [ s_i(x^k) K^i_kl - (2/h_i) (x_i^k - x_i^l) K^i_kl ].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.particles._clouds import centred_rows
from skcircuits.particles._kernel_sums import kernel_chunks, kernel_sums
from skcircuits.particles.neighborhoods import Bucket, Neighborhoods
from skcircuits.particles.threads import ChunkRunner, run_serially
from skcircuits.protocols import FloatArray

__all__ = ["kernel_direction", "svgd_direction"]


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
        Score of the target at the particles, or the function that gives it.
    neighborhoods : Neighborhoods or sequence of n_coordinates array-likes of int
        The coordinates that the kernel of each coordinate sees (itself included or not).
    bandwidths : float or array-like of shape (n_nodes,)
        h_i in ``exp(-|x_C - y_C|²/h_i)``, one per node.

    Returns
    -------
    ndarray of shape (n_particles, n_coordinates)
        φ, in the precision of the particles.

    Raises
    ------
    ValueError
        If shapes disagree or a bandwidth is not positive.

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
    scores = np.ascontiguousarray(np.asarray(scores, dtype=rows.dtype).T)
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


def kernel_direction(
    rows: FloatArray,
    scores: FloatArray,
    neighborhoods: Neighborhoods,
    bandwidths: FloatArray,
    run: ChunkRunner = run_serially,
) -> FloatArray:
    """Compute the direction on the inner layout, one row per coordinate.

    Parameters
    ----------
    rows : ndarray of shape (n_coordinates + 1, n_particles)
        Centred coordinates with a last row of zeros (`centred_rows`).
    scores : ndarray of shape (n_coordinates, n_particles)
        Score of the target.
    neighborhoods : Neighborhoods
        Kernels.
    bandwidths : ndarray of shape (n_kernels,)
        One bandwidth per kernel.
    run : callable, default=run_serially
        Runs the chunks (`chunk_threads`).

    Returns
    -------
    ndarray of shape (n_coordinates, n_particles)
        φ.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import Neighborhoods, kernel_direction
    >>> from skcircuits.particles._clouds import centred_rows
    >>> x = np.array([[-2.0, 2.0]])
    >>> kernel_direction(centred_rows(x), -x, Neighborhoods.complete(1), np.array([4.0])).round(2)
    array([[ 0.96, -0.96]])
    """
    direction = np.empty_like(scores)
    bandwidths = bandwidths.astype(rows.dtype, copy=False)

    # Every coordinate is owned once, so chunks write to different rows and never collide.
    def move(chunk: Bucket) -> None:
        """Write the direction of a chunk."""
        direction[chunk.owned] = _chunk_direction(rows, scores[chunk.owned], chunk, bandwidths)

    run(move, kernel_chunks(neighborhoods, rows.shape[1] ** 2 * rows.itemsize))
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


def _as_float(values: ArrayLike) -> FloatArray:
    """Keep float32, turn everything else into float64."""
    array = np.asarray(values)
    array = array if array.dtype == np.float32 else array.astype(np.float64)
    if array.ndim != 2 or array.shape[0] == 0:
        raise ValueError(must("particles", "be a table with at least one row", shape=array.shape))
    return array


def _resolve_kernels(
    neighborhoods: Neighborhoods | Sequence[ArrayLike], bandwidths: ArrayLike
) -> tuple[Neighborhoods, FloatArray]:
    """Build kernels where plain index lists came, and give one bandwidth per kernel."""
    bandwidths = np.asarray(bandwidths, dtype=np.float64)
    if not (np.all(bandwidths > 0) and np.all(np.isfinite(bandwidths))):
        raise ValueError(must("bandwidths", "be positive and finite", bandwidths=bandwidths))
    if not isinstance(neighborhoods, Neighborhoods):
        # Nodes may share a kernel only where they also have the same bandwidth.
        neighborhoods = Neighborhoods.from_scopes(neighborhoods, share=bandwidths.ndim == 0)
    per_node = np.broadcast_to(bandwidths, (neighborhoods.n_nodes,))
    # Of nodes that share a kernel the last one counts; the check below asks for agreement.
    per_kernel = np.empty(neighborhoods.n_kernels)
    per_kernel[neighborhoods.kernel_of_node] = per_node
    if np.any(per_kernel[neighborhoods.kernel_of_node] != per_node):
        raise ValueError(
            must("bandwidths", "be equal for nodes that share a kernel", "Build with share=False.")
        )
    return neighborhoods, per_kernel
