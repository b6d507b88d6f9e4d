"""Segmented sums in log space: what sum units compute.

All arrays are units-first: row ``e`` belongs to edge ``e`` (or unit ``e``), further axes
are the batch. A segment is a run of consecutive edges, the edges of one sum unit.
"""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["dense_log_sum", "segment_log_sum"]

# Below this a linear value next to a maximum of one may have lost digits to underflow.
TINY = 1e-280


def segment_log_sum(terms: FloatArray, starts: IntArray, lengths: IntArray) -> FloatArray:
    """Log of the sum of exponentials within each segment.

    Parameters
    ----------
    terms : ndarray of shape (n_edges, ...)
        Log terms; overwritten.
    starts : ndarray of shape (n_segments,)
        First edge of each segment, increasing; no segment is empty.
    lengths : ndarray of shape (n_segments,)
        Number of edges of each segment.

    Returns
    -------
    ndarray of shape (n_segments, ...)
        Log sums; ``-inf`` where all terms are.
    """
    peak = np.maximum.reduceat(terms, starts, axis=0)
    # An impossible segment keeps a finite reference, so that -inf - -inf never happens.
    peak[np.isneginf(peak)] = 0.0
    terms -= np.repeat(peak, lengths, axis=0)
    np.exp(terms, out=terms)
    total = np.add.reduceat(terms, starts, axis=0)
    with np.errstate(divide="ignore"):
        np.log(total, out=total)
    total += peak
    return total


def dense_log_sum(log_values: FloatArray, weights: FloatArray) -> FloatArray:
    """Log of a weighted sum for blocks of sums that share their children.

    One exponential per child and one matrix product per block, instead of one exponential
    per edge. A result far below the largest child of its block is computed again edge by
    edge, because its terms may have underflowed.

    Parameters
    ----------
    log_values : ndarray of shape (n_blocks, n_children, n)
        Log values of the children of each block.
    weights : ndarray of shape (n_blocks, n_sums, n_children)
        Linear weights.

    Returns
    -------
    ndarray of shape (n_blocks, n_sums, n)
        Log sums.
    """
    peak = log_values.max(axis=1, keepdims=True)
    peak[np.isneginf(peak)] = 0.0
    scaled = log_values - peak
    np.exp(scaled, out=scaled)
    total = weights @ scaled
    lost = np.any(total < TINY, axis=1)
    with np.errstate(divide="ignore"):
        np.log(total, out=total)
    total += peak
    if lost.any():
        _sum_edge_by_edge(total, log_values, weights, lost)
    return total


def _sum_edge_by_edge(
    total: FloatArray, log_values: FloatArray, weights: FloatArray, lost: BoolArray
) -> None:
    """Replace the columns marked lost, shape (n_blocks, n), by sums with own maxima."""
    blocks, rows = np.nonzero(lost)
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    # Slices of bounded size: the terms have an axis for every edge of a block.
    step = max(1, 2**20 // weights[0].size)
    for first in range(0, len(rows), step):
        block, row = blocks[first : first + step], rows[first : first + step]
        terms = log_weights[block] + log_values[block, :, row][:, None, :]
        peak = terms.max(axis=-1)
        peak[np.isneginf(peak)] = 0.0
        with np.errstate(divide="ignore"):
            total[block, :, row] = np.log(np.exp(terms - peak[..., None]).sum(axis=-1)) + peak
