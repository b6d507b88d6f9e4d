"""The Stein discrepancy with coordinate-wise kernels: how far the particles are from the target.

Source: Wang, Zeng and Liu, ICML 2018, theorem 2. With Δ = x_i - x_i',

    u_i(x, x') = K^i [ s_i s_i' + (2/h_i) Δ (s_i - s_i') + 2/h_i - 4 Δ²/h_i² ],

and the squared discrepancy is Σ_i mean u_i over all pairs, the diagonal included (the
V-statistic). With kernels over the blankets it is zero when every conditional
distribution q(x_i | blanket) is right; that alone does not make the joint distribution right.
"""

from __future__ import annotations

import numpy as np

from skcircuits.particles._kernels import (
    centred_rows,
    for_each_chunk,
    kernel_sums,
    median_bandwidths,
)
from skcircuits.particles._neighborhoods import Bucket, Neighborhoods
from skcircuits.protocols import FloatArray

# Kernels that are measured at once have coordinates of about this size.
BLOCK_BYTES = 2**26


def total_discrepancy(graph: Neighborhoods, coordinates: FloatArray, scores: FloatArray) -> float:
    """Squared Stein discrepancy of (n_coordinates, n_particles), in double precision."""
    per_coordinate, _ = discrepancies_over(graph, coordinates, scores)
    return float(per_coordinate.sum())


def discrepancies_over(
    graph: Neighborhoods, coordinates: FloatArray, scores: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Discrepancy of each coordinate, (d,), and bandwidth of each kernel, block by block.

    In double precision whatever the run had, as near zero the sums cancel; only a block at a time
    is held in it.
    """
    discrepancies, bandwidths = np.empty(len(scores)), np.empty(graph.n_kernels)
    max_kernels = max(1, BLOCK_BYTES // (8 * coordinates.shape[1]))
    for kernels, local, block in graph.blocks(max_kernels):
        rows = centred_rows(coordinates[local].astype(np.float64))
        widths = median_bandwidths(rows, block)
        moved = local[: kernels.owned.size]
        local_scores = np.ascontiguousarray(scores[moved], dtype=np.float64)
        discrepancies[moved] = coordinate_discrepancies(rows, local_scores, block, widths)
        bandwidths[kernels.kernels] = widths
    return discrepancies, bandwidths


def coordinate_discrepancies(
    rows: FloatArray,
    scores: FloatArray,
    neighborhoods: Neighborhoods,
    bandwidths: FloatArray,
) -> FloatArray:
    """Compute every coordinate's part of the squared Stein discrepancy."""
    discrepancies = np.empty(len(scores))
    bandwidths = bandwidths.astype(rows.dtype, copy=False)

    def measure(chunk: Bucket) -> None:
        """Write the discrepancies of a chunk."""
        discrepancies[chunk.owned] = _chunk_discrepancies(
            rows, scores[chunk.owned], chunk, bandwidths
        )

    for_each_chunk(measure, neighborhoods, rows.shape[1] ** 2 * rows.itemsize, None)
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
