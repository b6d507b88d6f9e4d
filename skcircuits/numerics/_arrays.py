"""Validation of arrays, row operations, and sums in log space."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import log_ndtr

from skcircuits.exceptions import invalid, must
from skcircuits.protocols import FloatArray, IntArray

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(4)


def is_number(value: object) -> bool:
    """Whether something is a single number; type checkers do not know floats as `Real`."""
    return isinstance(value, Real)


def float_array(values: Any, name: str) -> FloatArray:
    """Make an array of floats, NaN where masked; what no float can hold is refused by name."""
    _refuse_complex(values, name)
    try:
        return np.asarray(without_mask(values), dtype=np.float64)
    except OverflowError:
        raise invalid(
            f"numbers of {name}", "be numbers that a float can hold", "Scale them down."
        ) from None
    except Exception as error:
        # Dataframes have their own kinds of errors; others are not about the values
        if not isinstance(error, TypeError | ValueError) and _library(error) != _library(values):
            raise
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(must(name, "be an array of numbers", f"It is not: {error}.")) from error


def without_mask(values: Any) -> Any:
    """Masked cells as missing: a plain conversion would read the values under the mask."""
    if not np.ma.is_masked(values):
        return values
    return values.astype(np.float64 if values.dtype.kind in "biuf" else object).filled(np.nan)


def _refuse_complex(values: Any, name: str) -> None:
    """Refuse arrays whose imaginary parts a cast would cut off with no more than a warning."""
    if getattr(getattr(values, "dtype", None), "kind", "") == "c":
        raise TypeError(must(name, "be real numbers", "Pass .real of complex ones."))


def _library(something: object) -> str:
    return type(something).__module__.partition(".")[0]


def single_or_double(values: Any, name: str) -> NDArray[Any]:
    """Keep arrays of single precision, make everything else an array of floats."""
    is_single = getattr(values, "dtype", None) == np.float32
    return np.asarray(values) if is_single else float_array(values, name)


def integer_array(values: Any, name: str) -> IntArray:
    """Make a new array of integers; fractions and those beyond 64 bits are refused by name."""
    # Through floats first, which refuse text and objects by name
    given = float_array(values, name)
    # Casts cut fractions off, and make some integer of what is too large, missing or infinite
    error = invalid(f"numbers of {name}", "be integers of 64 bits")
    if not ((np.abs(given) <= 2.0**63) & (given == np.floor(given))).all():
        raise error
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        raise error from None


def listed(values: Iterable[Any], name: str) -> tuple[Any, ...]:
    """Make a tuple; the error for objects that are not iterable names them."""
    try:
        return tuple(values)
    except TypeError as error:
        raise TypeError(must(name, "be a list", type=type(values).__name__)) from error


def integers(values: Iterable[Any], name: str) -> tuple[int, ...]:
    """Read integers one by one; fractions and infinities are refused by name."""
    given = listed(values, name)
    try:
        found = tuple(int(value) for value in given)
    except (OverflowError, TypeError, ValueError, np.ma.MaskError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(must(name, "be integers", given=given)) from error
    # int() cuts fractions off, and reads text
    if not all(a == b for a, b in zip(found, given)):
        raise invalid(name, "be integers", given=given)
    return found


def is_finite(value: Any) -> bool:
    """Whether something is a single finite number."""
    try:
        return not isinstance(value, str | bytes) and bool(np.isfinite(float(value)))
    except (TypeError, ValueError, OverflowError):
        return False


#: Some rows of an array; those of a slice are read without a copy.
Rows = slice | IntArray


def as_run(rows: IntArray) -> Rows:
    """Turn rows that follow each other into a slice, which is read without a copy."""
    first = int(rows[0])
    is_run = np.array_equal(rows, np.arange(first, first + len(rows)))
    return slice(first, first + len(rows)) if is_run else rows


class Scatter:
    """Adds rows of contributions (n, *batch) to the rows of a buffer they belong to."""

    def __init__(self, targets: IntArray) -> None:
        self._targets = targets

    @cached_property
    def _sums(self) -> tuple[Rows, sparse.csr_matrix | None]:
        """Rows that receive something, and the matrix that sums the contributions to each."""
        order = np.argsort(self._targets, kind="stable")
        ordered = self._targets[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        n_terms = len(order)
        # In a tree no row receives twice, so that nothing is summed beforehand
        if len(starts) == n_terms:
            return as_run(self._targets), None
        sums = (np.ones(n_terms), order, np.append(starts, n_terms))
        return as_run(ordered[starts]), sparse.csr_matrix(sums, (len(starts), n_terms))

    def add(self, buffer: FloatArray, contributions: FloatArray) -> None:
        """Add ``contributions[i]`` to ``buffer[targets[i]]``."""
        # To build a matrix takes longer than to add single numbers one by one
        if contributions.shape[1:] == (1,):
            np.add.at(buffer[:, 0], self._targets, contributions[:, 0])
            return
        rows, matrix = self._sums
        buffer[rows] += contributions if matrix is None else matrix @ contributions


def distinct_values(
    values: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Distinct values of (n,), increasing, with sums of `weights` (n,) and numbers of entries."""
    is_counted = bool((weights == 1.0).all())
    counts: FloatArray
    if len(values) and values.min() >= 0.0 and values.max() < len(values):
        codes = values.astype(np.intp)
        if (codes == values).all():
            # Codes of categories need not be sorted
            every = np.bincount(codes)
            seen = np.flatnonzero(every)
            counts = (every if is_counted else np.bincount(codes, weights))[seen].astype(np.float64)
            return seen.astype(np.float64), counts, every[seen].astype(np.int64)
    if is_counted:
        # Without the place of each value, sorting takes a fraction of the time
        distinct, own = np.unique(values, return_counts=True)
        return distinct, own.astype(np.float64), own.astype(np.int64)
    distinct, place, own = np.unique(values, return_inverse=True, return_counts=True)
    counts = np.bincount(place, weights).astype(np.float64)
    return distinct, counts, own.astype(np.int64)


def spread_rows(n_rows: int, n_wanted: int) -> IntArray:
    """Indices of at most so many rows, evenly spread."""
    return np.linspace(0, n_rows - 1, min(n_rows, n_wanted)).astype(np.int64)


def scores_at(grad_log_prob: Callable[[FloatArray], FloatArray], points: FloatArray) -> FloatArray:
    """Evaluate the score of a target at points (n, d), in their precision, and check its shape."""
    if not len(points):
        return points  # lists and reductions of a target may have another shape then
    # A copy is cheap compared with what follows, and some targets write into their argument
    found = grad_log_prob(points.copy(order="K"))
    _refuse_complex(found, "grad_log_prob of the target")
    scores = np.asarray(found, dtype=points.dtype)
    _require_shape(scores, points.shape, "grad_log_prob", "a gradient")
    return scores


def log_probs_at(log_prob: Callable[[FloatArray], FloatArray], points: FloatArray) -> FloatArray:
    """Evaluate the log density of a target at points (n, d), and check its shape, (n,)."""
    if not len(points):
        return np.empty(0)  # as for scores
    values = np.asarray(log_prob(points.copy(order="K")), dtype=np.float64)
    _require_shape(values, points.shape[:1], "log_prob_unnormalized", "a number")
    return values


def _require_shape(values: FloatArray, shape: tuple[int, ...], function: str, what: str) -> None:
    if values.shape != shape:
        condition, way_out = f"give an array of shape {shape}", f"It is {what} for every row of X."
        raise invalid(f"{function} of the target", condition, way_out, shape=values.shape)


def divisors(values: FloatArray) -> FloatArray:
    """Numbers to divide by: one in the place of those that are not positive."""
    return np.where(values > 0.0, values, 1.0)


def observed_ranges(X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Least and largest observed cells (d,) of columns; infinity and minus infinity without any."""
    return np.fmin.reduce(X, axis=0, initial=np.inf), np.fmax.reduce(X, axis=0, initial=-np.inf)


def finite_peaks(peaks: FloatArray) -> FloatArray:
    """Largest logarithms as references of others, in place: zero where all are ``-inf``."""
    np.copyto(peaks, 0.0, where=peaks == -np.inf)
    return peaks


def safe_log(values: FloatArray | float, out: FloatArray | None = None) -> FloatArray:
    """Compute the logarithm, -inf where a value is zero."""
    with np.errstate(divide="ignore"):
        return np.log(values, out=out)


def logsumexp(values: FloatArray, axis: int = 0) -> FloatArray:
    """Log of the sum of exponentials along an axis: one temporary, no warning for ``-inf``."""
    values = np.asarray(values, dtype=np.float64)
    peak = values.max(axis=axis, keepdims=True)
    peak[~np.isfinite(peak)] = 0.0  # an empty sum stays -inf, an infinite one stays inf
    scaled = np.subtract(values, peak)
    np.exp(scaled, out=scaled)
    return safe_log(scaled.sum(axis=axis)) + peak.squeeze(axis)


def posterior(log_joint: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Probabilities (K, n) of logarithms up to a constant, zero where all are ``-inf``, and the log
    sums (n,); each exponential is taken once.
    """
    peak = finite_peaks(log_joint.max(axis=0))
    result = np.subtract(log_joint, peak)
    np.exp(result, out=result)
    total = result.sum(axis=0)
    result /= divisors(total)
    return result, safe_log(total) + peak


def log1mexp(values: FloatArray) -> FloatArray:
    """log(1 - exp(v)) for v <= 0 without cancellation (Mächler, 2012, equation 7)."""
    values = np.asarray(values, dtype=np.float64)
    near_zero = safe_log(-np.expm1(np.maximum(values, -1.0)))
    return np.where(values > -np.log(2.0), near_zero, np.log1p(-np.exp(np.minimum(values, -0.5))))


def log_ndtr_difference(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """``log(Phi(upper) - Phi(lower))``, relatively accurate in both tails; ``-inf`` if empty."""
    lower, upper = np.broadcast_arrays(
        np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    )
    # the mass is symmetric: work in the lower tail, where log_ndtr loses nothing
    flip = lower > -upper
    low, high = np.where(flip, -upper, lower), np.where(flip, -lower, upper)
    log_high = log_ndtr(high)
    # bounds crossed, or both so far out that no float holds the log mass
    empty = ~(upper > lower) | np.isneginf(log_high)
    gap = np.where(empty, 0.0, log_ndtr(low) - np.where(empty, 0.0, log_high))
    result = np.asarray(log_high + log1mexp(np.minimum(gap, 0.0)))
    close = ~empty & (gap > -1e-2)
    result[close] = _log_narrow_mass(low[close], high[close])
    result[empty] = -np.inf
    return result


def _log_narrow_mass(low: FloatArray, high: FloatArray) -> FloatArray:
    """Log mass (n,) of intervals of nearly constant density, by four Gauss-Legendre nodes, or far
    in the upper half, where differences of cumulative probabilities have no digits.
    """
    half = 0.5 * (high - low)
    middle = low + half
    # the density relative to its value in the middle
    steps = half * _NODES[:, None]
    relative = _NODE_WEIGHTS @ np.exp(-steps * (middle + 0.5 * steps))
    return np.log(half * relative) - 0.5 * middle**2 - 0.5 * np.log(2.0 * np.pi)


def neighbor_lists(adjacency: sparse.csr_array) -> list[IntArray]:
    """List the nodes that each node is joined to."""
    adjacency.sum_duplicates()
    columns = adjacency.indices.astype(np.int64)
    rows = np.repeat(np.arange(adjacency.shape[0]), np.diff(adjacency.indptr))
    joins_others = columns != rows
    # A node is no neighbour of its own, whatever the diagonal holds
    ends = np.cumsum(np.bincount(rows[joins_others], minlength=adjacency.shape[0]))
    return np.split(columns[joins_others], ends[:-1])
