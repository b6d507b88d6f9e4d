"""Rules that turn a direction into a displacement of the particles.

Each rule is an object with a memory and one method, ``displacement(direction,
step_size)``; directions are ascent directions. All work in place on arrays of shape
(n_coordinates, n_particles).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray

__all__ = ["AdaGrad", "Adam", "GradientAscent", "Optimizer", "RMSprop", "make_optimizer"]

# Inside the square roots: keeps flat coordinates from jumping.
DAMPING = 1e-6


class Optimizer(Protocol):
    """What every rule offers.

    Examples
    --------
    A rule of one's own for `svgd_steps`, steps of bounded length:

    >>> import numpy as np
    >>> from skcircuits.particles import KernelField, Neighborhoods, StepSchedule, svgd_steps
    >>> class Clipped:
    ...     def displacement(self, direction, step_size):
    ...         return step_size * np.clip(direction, -1.0, 1.0)
    >>> steps = svgd_steps(np.array([[50.0], [60.0]]), lambda x: -x,
    ...                    KernelField(Neighborhoods.complete(1)), Clipped(), StepSchedule(0.5))
    >>> next(steps).particles
    array([[49.5],
           [59.5]])
    """

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Give the displacement of all particles.

        Parameters
        ----------
        direction : ndarray
            Ascent direction.
        step_size : float
            Length of a step, as the rule reads it.

        Returns
        -------
        ndarray
            Displacement, shape of ``direction``.
        """


class GradientAscent:
    """Move by ``step_size`` times the direction.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import GradientAscent
    >>> GradientAscent().displacement(np.array([[2.0, -1.0]]), 0.5)
    array([[ 1. , -0.5]])
    """

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Scale the direction.

        Parameters
        ----------
        direction : ndarray
            Ascent direction.
        step_size : float
            Factor.

        Returns
        -------
        ndarray
            Displacement.
        """
        return step_size * direction


class AdaGrad:
    """Divide by the root of the sum of all squared directions (Duchi et al., 2011).

    Examples
    --------
    Equal directions move the particles less and less:

    >>> import numpy as np
    >>> from skcircuits.particles import AdaGrad
    >>> rule = AdaGrad()
    >>> [rule.displacement(np.array([3.0]), 0.5).round(3).item() for _ in range(3)]
    [0.5, 0.354, 0.289]
    """

    def __init__(self) -> None:
        self._squares: FloatArray | None = None

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Scale each entry by its own history.

        Parameters
        ----------
        direction : ndarray
            Ascent direction.
        step_size : float
            Length of the first step of every entry.

        Returns
        -------
        ndarray
            Displacement.
        """
        squares = direction * direction
        if self._squares is not None:
            squares += self._squares
        self._squares = squares
        return _divided_by_root(step_size * direction, squares)


class RMSprop:
    """Divide by the root of a running mean of squared directions.

    Parameters
    ----------
    decay : float, default=0.9
        Share of the past in the running mean.

    Examples
    --------
    Large and small directions move the particles equally far:

    >>> import numpy as np
    >>> from skcircuits.particles import RMSprop
    >>> RMSprop().displacement(np.array([200.0, -0.1]), 0.5).round(3)
    array([ 0.5, -0.5])
    """

    def __init__(self, decay: float = 0.9) -> None:
        self._decay = decay
        self._squares: FloatArray | None = None

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Scale each entry by its recent size.

        Parameters
        ----------
        direction : ndarray
            Ascent direction.
        step_size : float
            Typical length of a step.

        Returns
        -------
        ndarray
            Displacement.
        """
        squares = direction * direction
        # Starting from the first squares, not from zero, makes the first steps unbiased.
        if self._squares is None:
            self._squares = squares
        else:
            self._squares *= self._decay
            squares *= 1.0 - self._decay
            self._squares += squares
        return _divided_by_root(step_size * direction, self._squares)


class Adam:
    """RMSprop of a running mean of directions (Kingma and Ba, 2015).

    Parameters
    ----------
    decay : float, default=0.9
        Share of the past in the mean of directions.
    decay_squares : float, default=0.999
        Share of the past in the mean of squares.

    Examples
    --------
    Directions that contradict each other move the particles less:

    >>> import numpy as np
    >>> from skcircuits.particles import Adam
    >>> rule = Adam()
    >>> [rule.displacement(np.array([s]), 0.5).round(3).item() for s in (2.0, -2.0, 2.0)]
    [0.5, -0.026, 0.168]
    """

    def __init__(self, decay: float = 0.9, decay_squares: float = 0.999) -> None:
        self._decay = decay
        self._decay_squares = decay_squares
        self._n_steps = 0
        self._mean: FloatArray | None = None
        self._squares: FloatArray | None = None

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Scale the running mean of each entry by its recent size.

        Parameters
        ----------
        direction : ndarray
            Ascent direction.
        step_size : float
            Typical length of a step.

        Returns
        -------
        ndarray
            Displacement.
        """
        if self._mean is None or self._squares is None:
            self._mean, self._squares = np.zeros_like(direction), np.zeros_like(direction)
        self._n_steps += 1
        self._mean += (1.0 - self._decay) * (direction - self._mean)
        self._squares += (1.0 - self._decay_squares) * (direction**2 - self._squares)
        unbiased_mean = self._mean / (1.0 - self._decay**self._n_steps)
        unbiased_squares = self._squares / (1.0 - self._decay_squares**self._n_steps)
        return _divided_by_root(step_size * unbiased_mean, unbiased_squares)


def _divided_by_root(numerator: FloatArray, squares: FloatArray) -> FloatArray:
    """Divide in place by √(squares + damping)."""
    scale = squares + DAMPING
    np.sqrt(scale, out=scale)
    numerator /= scale
    return numerator


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "rmsprop": RMSprop,
    "adam": Adam,
    "adagrad": AdaGrad,
    "sgd": GradientAscent,
}


def make_optimizer(name: str) -> Optimizer:
    """Give a fresh optimiser by its name.

    Parameters
    ----------
    name : {"rmsprop", "adam", "adagrad", "sgd"}
        Which rule.

    Returns
    -------
    Optimizer
        An optimiser that has seen nothing yet.

    Raises
    ------
    ValueError
        If there is no such rule.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import make_optimizer
    >>> make_optimizer("sgd").displacement(np.array([2.0, -1.0]), 0.5)
    array([ 1. , -0.5])
    """
    if name not in OPTIMIZERS:
        raise ValueError(must("optimizer", f"be one of {sorted(OPTIMIZERS)}", optimizer=name))
    return OPTIMIZERS[name]()
