"""Distinct numbers of a long array in which most repeat, and distinct parameters of units."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skcircuits.protocols import FloatArray, IntArray

__all__ = ["distinct_numbers", "distinct_parameters"]

# Slots of the hash table (as a power of two), and the arrays that are worth one.
_SLOT_BITS = 16
_MANY_NUMBERS = 4096
# 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def distinct_numbers(x: FloatArray) -> tuple[FloatArray, IntArray]:
    """Find the increasing distinct numbers of x, infinite ones included, and the inverse.

    The same as ``numpy.unique``, without sorting all.
    """
    if len(x) < _MANY_NUMBERS:
        return np.unique(x, return_inverse=True)
    x = x + 0.0  # -0.0 equals 0.0
    slots = (x.view(np.uint64) * _MULTIPLIER) >> np.uint64(64 - _SLOT_BITS)
    slots = slots.view(np.int64)
    # One of the numbers of each slot; the others, if any, are sorted
    owner = np.full(1 << _SLOT_BITS, np.nan)
    owner[slots] = x
    strangers = np.flatnonzero(owner[slots] != x)
    if len(strangers) > len(x) // 8:
        return np.unique(x, return_inverse=True)
    taken = np.flatnonzero(owner == owner)
    numbers = np.unique(np.concatenate([owner[taken], x[strangers]]))
    rank = np.empty(len(owner), dtype=np.int64)
    rank[taken] = np.searchsorted(numbers, owner[taken])
    inverse = rank[slots]
    inverse[strangers] = np.searchsorted(numbers, x[strangers])
    return numbers, inverse


def distinct_parameters(units: Sequence[tuple[FloatArray, ...]]) -> tuple[list[int], IntArray]:
    """First unit of each distinct set of arrays, and the set of each unit."""
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    shape = np.empty(len(units), dtype=np.intp)
    for i, arrays in enumerate(units):
        key = b"".join(array.tobytes() for array in arrays)
        if key not in numbers:
            numbers[key] = len(first)
            first.append(i)
        shape[i] = numbers[key]
    return first, shape
