"""Optimisers: rules that turn a direction into a displacement of the particles.

Each rule is a stateful object with one method, ``displacement(direction, step_size)``; directions
are ascent directions. All operate in place on arrays of shape (n_coordinates, n_particles).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from skcircuits.exceptions import must
from skcircuits.numerics._optimization import Adam
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray

# Inside the square roots: keeps flat coordinates from jumping.
DAMPING = 1e-6
# Of the running mean of squares in RMSprop.
DECAY = 0.9
PART_BYTES = 2**20


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
                running *= DECAY
                squares *= 1.0 - DECAY
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
    if name not in OPTIMIZERS:
        raise ValueError(must("optimizer", f"be one of {sorted(OPTIMIZERS)}", optimizer=name))
    return OPTIMIZERS[name]()
