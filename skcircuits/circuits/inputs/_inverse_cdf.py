"""Draws from many discrete distributions of different lengths."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray, IntArray

__all__ = ["InverseCdf"]


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
