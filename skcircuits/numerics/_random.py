"""Sources of randomness, and draws from discrete distributions."""

from __future__ import annotations

from numbers import Integral
from typing import Any, Protocol

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["InverseCdf", "RandomNumbers", "as_generator", "draw_states"]


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

    ``weights`` (..., n_states): non-negative, finite and not all zero; ``uniforms`` (...): uniform
    numbers in [0, 1); broadcast against the weights. Returns (...): the states; one without weight
    is never drawn.
    """
    cumulative = np.cumsum(weights, axis=-1)
    # Scaling the uniform numbers saves normalising the weights
    thresholds = uniforms * cumulative[..., -1]
    states: IntArray = (cumulative[..., :-1] <= thresholds[..., None]).sum(axis=-1)
    return states


class InverseCdf:
    """Inverts distribution functions, each with a guide to where a search should start.

    The unit interval of a distribution with k outcomes is cut into k buckets; for every
    bucket the guide names the first outcome that may fall into it (the indexed search of
    Chen and Asau, 1974). A draw takes one lookup and on average less than two steps.
    """

    def __init__(self, masses: FloatArray, starts: IntArray, lengths: IntArray) -> None:
        self._starts = starts
        self._lengths = lengths
        self._steps = _distribution_functions(masses, starts, lengths)
        distribution = np.repeat(np.arange(len(starts)), lengths)
        buckets = (np.arange(len(masses)) - starts[distribution]) / lengths[distribution]
        # A guide may point too low, never too high: rounding is taken off.
        lowest = np.searchsorted(
            self._steps + distribution, buckets + distribution - 1e-9, side="right"
        )
        self._guide = np.clip(lowest, starts[distribution], (starts + lengths - 1)[distribution])

    def draw(self, distributions: IntArray, uniform: FloatArray) -> IntArray:
        """Draw one outcome per entry."""
        bucket = (uniform * self._lengths[distributions]).astype(np.intp)
        outcomes = self._guide[self._starts[distributions] + bucket]
        # All draws take their steps together; those that have arrived drop out.
        behind = np.flatnonzero(self._steps[outcomes] <= uniform)
        while len(behind):
            outcomes[behind] += 1
            behind = behind[self._steps[outcomes[behind]] <= uniform[behind]]
        return outcomes


def _distribution_functions(masses: FloatArray, starts: IntArray, lengths: IntArray) -> FloatArray:
    """Cumulative masses of each distribution, ending in exactly one."""
    totals = np.add.reduceat(masses, starts)
    totals[totals == 0.0] = 1.0
    # Normalised before they are added up, so that large distributions do not drown small ones.
    steps = np.cumsum(masses / np.repeat(totals, lengths))
    last = starts + lengths - 1
    before = np.where(starts > 0, steps[starts - 1], 0.0)
    steps -= np.repeat(before, lengths)
    ends = np.where(steps[last] > 0, steps[last], 1.0)
    steps /= np.repeat(ends, lengths)
    # Distributions of mass zero are never drawn from; their search must end.
    steps[last] = 1.0
    return steps
