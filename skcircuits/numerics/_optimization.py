"""Rules of gradient ascent.

Each rule of `OPTIMIZERS` is a stateful object with one method, ``displacement(direction,
step_size)``, which turns ascent directions into displacements. All operate in place on arrays of
shape (n_coordinates, n_particles).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from skcircuits.exceptions import require_choice
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray

# Numbers per part: intermediate results stay in cache, however long the parameters.
_PART = 2**15
_DECAY = 0.9  # of running means: of gradients in Adam, as published, and of squares in RMSprop
# Inside the square roots: keeps flat coordinates from jumping.
DAMPING = 1e-6
PART_BYTES = 2**20


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


class Optimizer(Protocol):
    """Interface of all rules."""

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Give the displacement of all particles."""


class GradientAscent:
    """Move by ``step_size`` times the direction."""

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Scale the direction."""
        return step_size * direction


class AdaGrad:
    """Divide by the root of the sum of all squared directions (Duchi et al., 2011)."""

    def __init__(self) -> None:
        self._squares: FloatArray | None = None

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Scale each entry by its own history."""
        squares = direction * direction
        if self._squares is not None:
            squares += self._squares
        self._squares = squares
        return _divided_by_root(step_size * direction, squares)


class RMSprop:
    """Divide by the root of a running mean of squared directions."""

    def __init__(self) -> None:
        self._squares: FloatArray | None = None

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Scale each entry by its recent size."""
        is_first = self._squares is None
        if self._squares is None:
            self._squares = np.empty_like(direction)
        displacement = np.empty_like(direction)
        # In parts that stay in the cache, and whose temporary arrays are small.
        for part in row_slices(len(direction), max(1, PART_BYTES // max(1, direction[:1].nbytes))):
            running, squares = self._squares[part], direction[part] * direction[part]
            # Starting from the first squares, not from zero, makes the first steps unbiased.
            if is_first:
                running[...] = squares
            else:
                running *= _DECAY
                squares *= 1.0 - _DECAY
                running += squares
            displacement[part] = _divided_by_root(step_size * direction[part], running)
        return displacement


class AdamSteps:
    """RMSprop of a running mean of directions."""

    def __init__(self) -> None:
        self._rule = Adam(damping=1e-4)

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Scale the running mean of each entry by its recent size."""
        moved = np.zeros_like(direction)
        self._rule.ascend(moved, direction, step_size)
        return moved


def _divided_by_root(numerator: FloatArray, squares: FloatArray) -> FloatArray:
    """Divide in place by √(squares + damping)."""
    scale = squares + DAMPING
    np.sqrt(scale, out=scale)
    numerator /= scale
    return numerator


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "rmsprop": RMSprop,
    "adam": AdamSteps,
    "adagrad": AdaGrad,
    "sgd": GradientAscent,
}


def make_optimizer(name: str) -> Optimizer:
    """Give a fresh optimiser by its name."""
    require_choice(*OPTIMIZERS, optimizer=name)
    return OPTIMIZERS[name]()
