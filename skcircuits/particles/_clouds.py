"""The layout particles have inside the package: one contiguous row per coordinate.

Gathering the coordinates of a neighbourhood is then a copy of whole rows, and a row of
zeros at the end serves as the coordinate that padding points to.
"""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray

__all__ = ["centred_rows", "row_deviations"]


def centred_rows(coordinates: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Centre every coordinate and append a row of zeros.

    Kernels and directions do not change when a coordinate is shifted, but distances
    computed as |x|² + |y|² - 2 x·y cancel the less the closer the data is to zero.

    Parameters
    ----------
    coordinates : ndarray of shape (n_coordinates, n_particles)
        One row per coordinate.
    out : ndarray of shape (n_coordinates + 1, n_particles), default=None
        Where to write.

    Returns
    -------
    ndarray of shape (n_coordinates + 1, n_particles)
        Centred rows; the last one is zero.
    """
    n_coordinates, n_particles = coordinates.shape
    if out is None:
        out = np.empty((n_coordinates + 1, n_particles), dtype=coordinates.dtype)
    means = coordinates.mean(axis=1, keepdims=True)
    np.subtract(coordinates, means, out=out[:-1])
    out[-1] = 0.0
    return out


def row_deviations(rows: FloatArray) -> FloatArray:
    """Give the standard deviation of every centred coordinate.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_particles)
        Rows with mean zero.

    Returns
    -------
    ndarray of shape (n_rows,)
        Root mean squares.
    """
    variances = np.einsum("dn,dn->d", rows, rows)
    variances /= rows.shape[1]
    return np.sqrt(variances, out=variances)
