"""K-means with missing cells, from which learners start."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray, IntArray

# Digits of squared distances that count, in units of about a standard deviation.
_DIGITS = 9


def k_means(
    points: FloatArray,
    centres: FloatArray,
    n_steps: int,
    *,
    weights: FloatArray | None = None,
    observed: FloatArray | None = None,
) -> FloatArray:
    """Move centres (n_clusters, d) to the means of the points (n, d) nearest to them.

    Points weigh `weights` (n,). With `observed` (n, d), 1 where a coordinate is observed, points
    are 0 elsewhere and distances are over observed coordinates.
    """
    for _ in range(n_steps):
        nearest = nearest_centres(points, centres, observed)
        members = (nearest == np.arange(len(centres))[:, None]).astype(points.dtype)
        if weights is not None:
            members *= weights
        sizes = members.sum(axis=1, keepdims=True) if observed is None else members @ observed
        # Columns that a cluster never observed, and clusters without points, keep their centres.
        means = members @ points / np.where(sizes > 0, sizes, 1)
        centres = np.where(sizes > 0, means, centres)
    return centres


def nearest_centres(
    points: FloatArray, centres: FloatArray, observed: FloatArray | None = None
) -> IntArray:
    """Index (n,) of the centre nearest to each point."""
    squares = np.square(centres)
    # The points' own squares are equal for all centres.
    heights = squares.sum(axis=1) if observed is None else observed @ squares.T
    # Rounded, so that of equally near centres the first is taken whatever the rounding errors.
    return np.round(heights - 2 * points @ centres.T, _DIGITS).argmin(axis=1)
