"""Arrays of what users pass, and rows of arrays: read as slices, added to."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray, IntArray


def is_number(value: object) -> bool:
    """Whether something is a single number; type checkers do not know floats as `Real`."""
    return isinstance(value, Real)


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


def single_or_double(values: Any, name: str) -> NDArray[Any]:
    """Keep arrays of single precision, make everything else an array of floats."""
    is_single = getattr(values, "dtype", None) == np.float32
    return np.asarray(values) if is_single else float_array(values, name)


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
    except (OverflowError, np.ma.MaskError):
        found = ()
    if not all(a == b for a, b in zip(found, given)) or len(found) != len(given):
        raise ValueError(must(name, "be integers", given=given))
    return found


#: Some rows of an array; those of a slice are read without a copy.
Rows = slice | IntArray


def as_run(rows: IntArray) -> Rows:
    """Turn rows that follow each other into a slice, which is read without a copy."""
    first = int(rows[0])
    is_run = np.array_equal(rows, np.arange(first, first + len(rows)))
    return slice(first, first + len(rows)) if is_run else rows


class Scatter:
    """Adds rows of contributions to the rows of a buffer they belong to."""

    def __init__(self, targets: IntArray) -> None:
        distinct, inverse = np.unique(targets, return_inverse=True)
        n_terms = len(targets)
        self._repeats = len(distinct) < n_terms
        # In a tree no row receives twice: nothing has to be added up before
        self._rows = as_run(distinct if self._repeats else targets)
        shape = (len(distinct), n_terms)
        self._matrix = sparse.csr_matrix((np.ones(n_terms), (inverse, np.arange(n_terms))), shape)

    def add(self, buffer: FloatArray, contributions: FloatArray) -> None:
        """Add ``contributions[i]`` to ``buffer[targets[i]]``."""
        buffer[self._rows] += self._matrix @ contributions if self._repeats else contributions
