"""A linear kernel on the blanket, added to the RBF kernel.

Kernels add. With z the particles standardised by their own mean and deviation, the kernel
1 + z_C·z'_C over the closed neighbourhood C of node i adds to its direction

    φ_i(x) = mean_l s_i(x^l) + Σ_{j in C} z_j(x) mean_l[ s_i(x^l) z_j(x^l) ] + z_i(x) / σ_i.

It vanishes exactly where Stein's identity holds for the linear functions of the blanket,
E_q[s_i] = 0 and E_q[s_i (x_j - μ_j)] = -δ_ij: what fixes the first two moments of a Gaussian, and
what few particles repelled by an RBF kernel alone get wrong.
"""

from __future__ import annotations

import numpy as np

from skcircuits.particles._clouds import row_deviations
from skcircuits.particles._kernel_sums import kernel_chunks
from skcircuits.particles.neighborhoods import Bucket, Neighborhoods
from skcircuits.particles.threads import ChunkRunner, run_serially
from skcircuits.protocols import FloatArray

__all__ = ["linear_direction"]


def linear_direction(
    rows: FloatArray,
    scores: FloatArray,
    neighborhoods: Neighborhoods,
    run: ChunkRunner = run_serially,
) -> FloatArray:
    """Compute the direction of the linear kernel over every neighbourhood.

    Parameters
    ----------
    rows : ndarray of shape (n_coordinates + 1, n_particles)
        Centred coordinates with a last row of zeros (`centred_rows`).
    scores : ndarray of shape (n_coordinates, n_particles)
        Score of the target.
    neighborhoods : Neighborhoods
        Scopes of the kernels.
    run : callable, default=run_serially
        Runs the chunks (`chunk_threads`).

    Returns
    -------
    ndarray of shape (n_coordinates, n_particles)
        φ of the linear kernel; a coordinate on which all particles agree has only the
        mean score.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import Neighborhoods, linear_direction
    >>> from skcircuits.particles._clouds import centred_rows
    >>> x = np.array([[-1.0, 1.0]])  # mean 0 and variance 1: a fixed point for N(0, 1)
    >>> linear_direction(centred_rows(x), -x, Neighborhoods.complete(1))
    array([[0., 0.]])
    """
    n_particles = rows.shape[1]
    deviations = row_deviations(rows)[:, None]
    # Where all particles agree there is no unit to measure in; the slope term drops out.
    precisions = np.divide(1.0, deviations, where=deviations > 0, out=np.zeros_like(deviations))
    standardized = rows * precisions
    # The two terms that need no neighbours: z_i / σ_i, then the mean score.
    direction = standardized[:-1] * precisions[:-1]
    direction += scores.mean(axis=1, keepdims=True)

    def move(chunk: Bucket) -> None:
        """Add the slopes on the neighbourhoods of a chunk."""
        seen = standardized[chunk.scopes]
        # mean_l s_i(x^l) z_j(x^l) for every owned i and seen j; padding has z = 0.
        slopes = np.matmul(scores[chunk.owned], seen.transpose(0, 2, 1))
        slopes /= n_particles
        direction[chunk.owned] += np.matmul(slopes, seen)

    largest_scope = int(neighborhoods.scope_sizes.max())
    run(move, kernel_chunks(neighborhoods, largest_scope * n_particles * rows.itemsize))
    return direction
