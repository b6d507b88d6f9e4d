"""Arrays of what users pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["float_array", "integer_array", "integers"]


def float_array(values: Any, name: str) -> FloatArray:
    """Make an array of floats; integers that no float can hold, and others, are refused by name."""
    try:
        return np.asarray(values, dtype=np.float64)
    except OverflowError:
        raise ValueError(
            must(f"numbers of {name}", "be numbers that a float can hold", max=1.8e308)
        ) from None
    except Exception as error:  # dataframes have their own kinds
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(must(name, "be an array of numbers", f"It is not: {error}.")) from error


def integer_array(values: Any, name: str) -> IntArray:
    """Make a new array of integers; fractions and those beyond 64 bits are refused by name."""
    given = float_array(values, name)
    # Casts cut fractions off, and make some integer of what is too large, missing or infinite
    error = ValueError(must(f"numbers of {name}", "be integers of 64 bits"))
    if not ((np.abs(given) <= 2.0**63) & (given == np.floor(given))).all():
        raise error
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise error from None


def integers(values: Iterable[Any], name: str) -> tuple[int, ...]:
    """Read integers one by one; fractions and infinities are refused by name."""
    given = tuple(values)
    try:
        found = tuple(int(value) for value in given)
    except OverflowError:
        found = ()
    if not all(a == b for a, b in zip(found, given)) or len(found) != len(given):
        raise ValueError(must(name, "be integers", given=given))
    return found
