"""The Stein discrepancy with coordinate-wise kernels: how far the particles are from the target.

Source: Wang, Zeng and Liu, ICML 2018, theorem 2. With Δ = x_i - x_i',

    u_i(x, x') = K^i [ s_i s_i' + (2/h_i) Δ (s_i - s_i') + 2/h_i - 4 Δ²/h_i² ],

and the squared discrepancy is Σ_i mean u_i over all pairs, the diagonal included (the
V-statistic). With kernels over the blankets it is zero when every conditional
distribution q(x_i | blanket) is right; that alone does not make the joint distribution right.
"""

from __future__ import annotations

import numpy as np

from skcircuits.particles._kernel_sums import kernel_chunks, kernel_sums
from skcircuits.particles.neighborhoods import Bucket, Neighborhoods
from skcircuits.particles.threads import ChunkRunner, run_serially
from skcircuits.protocols import FloatArray

__all__ = ["coordinate_discrepancies", "node_discrepancies"]


def node_discrepancies(
    rows: FloatArray,
    scores: FloatArray,
    neighborhoods: Neighborhoods,
    bandwidths: FloatArray,
    run: ChunkRunner = run_serially,
) -> FloatArray:
    """Compute every node's share of the squared Stein discrepancy.

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
    ndarray of shape (n_nodes,)
        Non-negative; their sum is the squared Stein discrepancy.

    Examples
    --------
    Particles for two independent standard normal variables, the second ones too far right:

    >>> import numpy as np
    >>> from skcircuits.particles import Neighborhoods, node_discrepancies
    >>> from skcircuits.particles._clouds import centred_rows
    >>> x = np.array([[-1.0, 0.0, 1.0], [1.0, 2.0, 3.0]])
    >>> apart = Neighborhoods.from_graph([[], []])
    >>> node_discrepancies(centred_rows(x), -x, apart, np.ones(2)).round(2)
    array([0.14, 2.14])
    """
    per_coordinate = coordinate_discrepancies(rows, scores, neighborhoods, bandwidths, run)
    totals = np.zeros(neighborhoods.n_nodes)
    np.add.at(totals, neighborhoods.node_of_coordinate, per_coordinate)
    return totals


def coordinate_discrepancies(
    rows: FloatArray,
    scores: FloatArray,
    neighborhoods: Neighborhoods,
    bandwidths: FloatArray,
    run: ChunkRunner = run_serially,
) -> FloatArray:
    """Compute every coordinate's share of the squared Stein discrepancy.

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
    ndarray of shape (n_coordinates,)
        mean u_i over all pairs of particles, 0 where rounding made it negative.
    """
    discrepancies = np.empty(len(scores))
    bandwidths = bandwidths.astype(rows.dtype, copy=False)

    def measure(chunk: Bucket) -> None:
        """Write the discrepancies of a chunk."""
        discrepancies[chunk.owned] = _chunk_discrepancies(
            rows, scores[chunk.owned], chunk, bandwidths
        )

    run(measure, kernel_chunks(neighborhoods, rows.shape[1] ** 2 * rows.itemsize))
    # A V-statistic is not negative; rounding of its cancelling sums may be.
    return np.maximum(discrepancies, 0.0)


def _chunk_discrepancies(
    rows: FloatArray, scores: FloatArray, chunk: Bucket, bandwidths: FloatArray
) -> FloatArray:
    """Sum u_i over all pairs, with every double sum written through K s, K x and K 1."""
    attraction = (2.0 / bandwidths[chunk.kernels])[:, None, None]
    owned = rows[chunk.owned]
    n_owned, n_particles = owned.shape[1:]
    values = np.concatenate([scores, owned, np.ones_like(owned[:, :1])], axis=1)
    sums = kernel_sums(rows, chunk, bandwidths, values)
    smooth_scores, smooth_owned = sums[:, :n_owned], sums[:, n_owned:-1]
    weights = sums[:, -1:]
    # Σ K Δ (s - s') = 2 Σ (x s K1 - x K s) and Σ K Δ² = 2 Σ (x² K1 - x K x).
    total = scores * smooth_scores
    total += 2.0 * attraction * owned * (scores * weights - smooth_scores)
    total += attraction * weights
    total -= 2.0 * attraction**2 * owned * (owned * weights - smooth_owned)
    # Sums over pairs are long: single precision would lose digits that a copy does not.
    return total.sum(axis=2, dtype=np.float64) / n_particles**2
