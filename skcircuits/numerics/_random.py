"""Sources of randomness."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Protocol

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["RandomNumbers", "as_generator", "draw_states"]


class RandomNumbers(Protocol):
    """Gives random numbers: a `numpy.random.Generator`, or draws keyed per row."""

    def random(self, size: int, /) -> FloatArray:
        """Draw uniform numbers in [0, 1)."""

    def standard_normal(self, size: int | tuple[int, int], /) -> FloatArray:
        """Draw standard normal numbers."""


def as_generator(random_state: Any) -> np.random.Generator:
    """Make a generator from what scikit-learn calls a random state.

    One made from a RandomState advances that state. Anything but these and non-negative
    integers is refused: numpy tries to make seeds of objects, for a matrix without end.

    Examples
    --------
    >>> from skcircuits.numerics._random import as_generator
    >>> bool(as_generator(0).integers(10) == as_generator(0).integers(10))
    True
    """
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**32, size=4, dtype=np.uint32))
    sources = np.random.Generator | np.random.BitGenerator | np.random.SeedSequence
    is_seed = isinstance(random_state, Integral) and int(random_state) >= 0
    if not (random_state is None or is_seed or isinstance(random_state, sources)):
        raise ValueError(
            must(
                "random_state",
                "be a non-negative integer, a Generator, a RandomState or None",
                random_state=random_state,
            )
        )
    return np.random.default_rng(random_state)


def draw_states(weights: FloatArray, uniforms: FloatArray) -> IntArray:
    """Draw a state with probability proportional to the weights along the last axis.

    Parameters
    ----------
    weights : ndarray of shape (..., n_states)
        Non-negative, finite and not all zero.
    uniforms : ndarray of shape (...)
        Uniform numbers in [0, 1); broadcast against the weights.

    Returns
    -------
    ndarray of int of shape (...)
        The states; one without weight is never drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.numerics._random import draw_states
    >>> draw_states(np.array([0.0, 3.0, 1.0]), np.array([0.0, 0.7, 0.8]))
    array([1, 1, 2])
    """
    cumulative = np.cumsum(weights, axis=-1)
    # Scaling the uniform numbers saves normalising the weights
    thresholds = uniforms * cumulative[..., -1]
    states: IntArray = (cumulative[..., :-1] <= thresholds[..., None]).sum(axis=-1)
    return states
