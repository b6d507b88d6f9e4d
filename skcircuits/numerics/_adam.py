"""Adam: gradient ascent with running moments of the gradient."""

from __future__ import annotations

import numpy as np

from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray

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
