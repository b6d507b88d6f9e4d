"""Iterative optimisation for several learners: Adam, and k-means, which initialises them."""

from __future__ import annotations

import numpy as np

from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

# Numbers per part: intermediate results stay in cache, however long the parameters.
_PART = 2**15
# Of the running mean, as published.
_DECAY = 0.9


class Adam:
    """Divide a running mean of gradients by the root of their running squares.

    Kingma and Ba (2015). ``damping`` is added to the root: it bounds the steps of parameters
    whose gradient is nearly zero.
    """

    def __init__(self, decay_squares: float = 0.999, damping: float = 1e-8) -> None:
        self._decay_squares = decay_squares
        self._damping = damping
        self._n_steps = 0
        self._moments: FloatArray | None = None  # (2, n): means, squares

    def ascend(self, parameters: FloatArray, gradient: FloatArray, step_size: float) -> None:
        """Move contiguous parameters in place; the gradient has their shape."""
        # Like the first gradient: in single precision where that is
        if self._moments is None:
            self._moments = np.zeros((2, gradient.size), dtype=gradient.dtype)
        self._n_steps += 1
        # Running means begin at zero: both are divided by the weight that they hold so far
        step_size /= 1 - _DECAY**self._n_steps
        unbias = 1 / (1 - self._decay_squares**self._n_steps)
        parameters, gradient = parameters.reshape(-1), gradient.reshape(-1)
        for part in row_slices(gradient.size, _PART):
            own, mean, square = gradient[part], self._moments[0, part], self._moments[1, part]
            mean += (1 - _DECAY) * (own - mean)
            square += (1 - self._decay_squares) * (own**2 - square)
            parameters[part] += step_size * mean / (np.sqrt(square * unbias) + self._damping)


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
    return (heights - 2 * points @ centres.T).argmin(axis=1)
