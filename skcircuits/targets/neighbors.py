"""The graph of a target, found by moving one coordinate at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Points in a row that must show nothing new, and how many are tried at most.
_QUIET_POINTS, _MAX_POINTS = 2, 12
# Coordinates beyond which d² probes are refused.
_MAX_COORDINATES = 20_000


def find_neighbors(target: Any, X: ArrayLike, *, tol: float = 1e-9) -> list[IntArray]:
    """Find the Markov blanket of every coordinate from the sparsity of the Hessian.

    One coordinate moves at a time; the coordinates whose score changes are its neighbours. This
    is repeated at row after row of X, with moves of other lengths, until two rows in succession
    have shown no pair that was not known. It is an estimate: a dependence that vanishes, to
    rounding, at all of these points is missed.

    Parameters
    ----------
    target : object
        Has ``grad_log_prob(X)``.
    X : array-like of shape (n, d)
        Points where the target has its mass, at least three.
    tol : float, default=1e-9
        Change of a score, relative to its size, that counts as rounding.

    Returns
    -------
    list of ndarray of int
        Neighbours of each coordinate, ascending; symmetric.

    Raises
    ------
    ValueError
        If there are fewer than three points, a score is not finite, or every point shows pairs
        that those before did not.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.targets import find_neighbors, from_function
    >>> precision = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]])
    >>> target = from_function(lambda x: -0.5 * ((x @ precision) * x).sum(axis=1),
    ...                        lambda x: -x @ precision)
    >>> find_neighbors(target, np.random.default_rng(0).normal(size=(5, 3)))
    [array([1]), array([0, 2]), array([1])]
    """
    points = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or len(points) <= _QUIET_POINTS:
        raise ValueError(must("X", "have at least three rows", shape=points.shape))
    d = points.shape[1]
    if d > _MAX_COORDINATES:
        raise ValueError(
            must("coordinates", f"be at most {_MAX_COORDINATES}", "Give neighbors.", n=d)
        )
    rng = np.random.default_rng(0)
    scales = points.std(axis=0)
    scales[scales == 0] = 1.0
    found = np.zeros((d, d), dtype=bool)
    n_quiet = 0
    for row in rng.permutation(len(points))[:_MAX_POINTS]:
        moves = scales * rng.uniform(0.2, 1.0, d) * rng.choice([-1.0, 1.0], d)
        seen = _moved_scores(target, points[row], moves, tol)
        # Second derivatives are symmetric: either direction tells.
        seen |= seen.T
        n_quiet = 0 if (seen & ~found).any() else n_quiet + 1
        found |= seen
        if n_quiet == _QUIET_POINTS:
            np.fill_diagonal(found, False)
            return [np.flatnonzero(row) for row in found]
    raise ValueError(
        must(
            "points of X",
            f"show all pairs before the last {_QUIET_POINTS} of at most {_MAX_POINTS}",
            "Pass more points where the target has its mass, or give neighbors.",
            n_pairs=int(found.sum()) // 2,
        )
    )


def _moved_scores(target: Any, point: FloatArray, moves: FloatArray, tol: float) -> BoolArray:
    """Tell which scores (columns) change when a coordinate (row) moves, (d, d)."""
    d = len(point)
    before = _finite(target.grad_log_prob(point[None]), point)[0]
    changed = np.empty((d, d), dtype=bool)
    for part in memory_bound_chunks(d, 4 * 8 * d):
        # The length of a chunk may change rounding: the point itself comes along.
        moved = np.tile(point, (part.stop - part.start + 1, 1))
        rows = np.arange(part.stop - part.start)
        moved[rows, part.start + rows] += moves[part]
        scores = _finite(target.grad_log_prob(moved), point)
        size = 1.0 + np.maximum(np.abs(before), np.abs(scores[:-1]))
        changed[part] = np.abs(scores[:-1] - scores[-1]) > tol * size
    return changed


def _finite(scores: ArrayLike, point: FloatArray) -> FloatArray:
    array = np.asarray(scores, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError(must("grad_log_prob", "be finite near the points", point=point.tolist()))
    return array
