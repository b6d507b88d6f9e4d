"""Numbers of a column that are so far off the others that they say nothing about them.

A slip of the decimal point or a number that stands for missing cells, such as 9999, would be the
unit of all others, in which these are equal.
"""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray

# Numbers are far off if they are so many times as far from the median as all others, of which there
# are more than these
_FAR_RATIO, _FEW_VALUES = 10.0, 12
# Most of the rows that may have them, and that so few different ones may have: a single one stands
# for missing cells, perhaps, and three are no cluster
_FAR_FRACTION, _FEW_FAR_FRACTION, _FEW_FAR = 0.01, 0.05, 3


def near_range(cells: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Bounds of the cells (n,) of a column that are not far off, infinite where all are near.

    Examples
    --------
    >>> import numpy as np
    >>> near_range(np.append(np.arange(31.0), 9999.0), np.ones(32))
    (-135.0, 165.0)
    """
    nothing = -np.inf, np.inf
    seen = ~np.isnan(cells) & (weights > 0)
    values, place = np.unique(cells[seen], return_inverse=True)
    if len(values) <= _FEW_VALUES + 1:
        return nothing
    counts = np.bincount(place, weights[seen])
    total = counts.sum()
    median = float(values[np.searchsorted(np.cumsum(counts), 0.5 * total)])
    with np.errstate(over="ignore"):  # infinite distances are far
        distances = np.abs(values - median)
    order = np.argsort(distances, kind="stable")
    distances = distances[order]
    # Of the numbers that leave more than a few to the others
    first = np.arange(_FEW_VALUES, len(values))
    beyond = np.cumsum(counts[order][::-1])[::-1][first]
    is_few = (beyond <= _FAR_FRACTION * total) | (first >= len(values) - _FEW_FAR)
    is_few &= beyond < _FEW_FAR_FRACTION * total
    with np.errstate(over="ignore"):
        limits = _FAR_RATIO * distances[first - 1]
    is_far = is_few & (limits > 0.0) & (distances[first] >= limits)
    if not is_far.any():
        return nothing
    limit = float(limits[is_far.argmax()])
    return median - limit, median + limit


def without_far(X: FloatArray, near: FloatArray) -> FloatArray:
    """Cells (n, d) in which those outside of the bounds `near` (2, d) are missing."""
    if np.isinf(near).all():
        return X
    lower, upper = near
    is_far = np.less_equal(X, lower) | np.greater_equal(X, upper)
    return np.where(is_far, np.nan, X)
