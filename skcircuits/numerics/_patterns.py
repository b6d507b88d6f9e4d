"""Groups of rows: equal rows, rows with the same missing cells, and clusters of near rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Cost of a NumPy call relative to a multiplication, times the calls of each step of a factorisation
_CALL_WORK = 10_000
HASHED_WORDS = 2**16  # at once: they stay in the cache
# Patterns of so few columns are integers, and found by a lookup table unless rows are few
_TABLE_BITS, _TABLE_CODES_PER_ROW = 16, 16
# Slots of a hash table of numbers, and the arrays that are worth one
_SLOT_BITS, _MANY_NUMBERS = 16, 4096
# 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
# Digits of squared distances that count in k-means, in units of about a standard deviation
_DIGITS = 9


def distinct_numbers(x: FloatArray) -> tuple[FloatArray, IntArray]:
    """Increasing distinct numbers of x (n,), without NaN, and the inverse, as ``numpy.unique``.

    Most are found in a hash table and not sorted, which takes a fifth of the time.
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


@dataclass(frozen=True)
class PatternGroup:
    """Patterns with equally many missing cells, and the rows that have them."""

    missing: IntArray  # (n_patterns, n_missing), ascending columns
    observed: IntArray  # (n_patterns, n_observed), ascending columns
    rows: IntArray  # (n_rows,), sorted by pattern
    pattern: IntArray  # (n_rows,), ascending

    @property
    def n_patterns(self) -> int:
        return len(self.missing)

    @property
    def counts(self) -> IntArray:
        """Number of rows of each pattern, shape (n_patterns,)."""
        return np.bincount(self.pattern, minlength=self.n_patterns)

    def take(self, chosen: BoolArray | IntArray | slice) -> PatternGroup:
        """Keep some patterns, by a mask or ascending positions, and their rows."""
        kept = np.arange(self.n_patterns)[chosen]
        position = np.full(self.n_patterns, -1)
        position[kept] = np.arange(len(kept))
        pattern = position[self.pattern]
        return PatternGroup(
            self.missing[kept], self.observed[kept], self.rows[pattern >= 0], pattern[pattern >= 0]
        )

    def blocks(self, n_patterns: int) -> Iterator[PatternGroup]:
        """Yield groups of at most so many patterns, with their rows."""
        if self.n_patterns <= n_patterns:
            yield self
            return
        for start in range(0, self.n_patterns, n_patterns):
            stop = min(start + n_patterns, self.n_patterns)
            rows = slice(*np.searchsorted(self.pattern, [start, stop]))
            yield PatternGroup(
                self.missing[start:stop],
                self.observed[start:stop],
                self.rows[rows],
                self.pattern[rows] - start,
            )


def group_patterns(missing: BoolArray) -> list[PatternGroup]:
    """Group rows by which cells are `missing` (n_rows, n_columns), by ascending numbers of them."""
    patterns, inverse = distinct_patterns(missing)
    n_missing = patterns.sum(axis=1)
    # patterns in ascending number of missing cells make every group a slice
    by_size = np.argsort(n_missing, kind="stable")
    rank = np.empty_like(by_size)
    rank[by_size] = np.arange(len(by_size))
    patterns, pattern_of_row = patterns[by_size], rank[inverse]
    # 16 bits let NumPy take its radix sort
    n_values = len(patterns)
    dtype = np.uint16 if n_values <= 1 << 16 else np.int64
    order = np.argsort(pattern_of_row.astype(dtype), kind="stable")
    pattern_of_row = pattern_of_row[order]
    groups = []
    for size in np.unique(n_missing):
        start, stop = np.searchsorted(n_missing[by_size], [size, size + 1])
        rows = slice(*np.searchsorted(pattern_of_row, [start, stop]))
        mask = patterns[start:stop]
        groups.append(
            PatternGroup(
                np.nonzero(mask)[1].reshape(stop - start, -1),
                np.nonzero(~mask)[1].reshape(stop - start, -1),
                order[rows],
                pattern_of_row[rows] - start,
            )
        )
    return groups


def joined_groups(missing: BoolArray, n_gaussians: tuple[int, int]) -> list[PatternGroup]:
    """Group rows by missing cells (n_rows, n_columns), few patterns with larger ones as long as
    larger matrices cost less than calls, by ascending size; cells that a pattern lacks are columns
    from n_columns on, which depend on none, and ``observed`` of such a group is empty.
    """
    n_components, n_distinct = n_gaussians
    parts: list[list[PatternGroup]] = []
    for group in reversed(group_patterns(missing)):
        size = group.missing.shape[1]
        if parts and size:
            largest = parts[-1][0].missing.shape[1]
            work = n_distinct * group.n_patterns * (_case_work(largest) - _case_work(size))
            work += n_components * len(group.rows) * 2 * (largest**2 - size**2)
            if work <= _CALL_WORK * (2 + size):
                parts[-1].append(group)
                continue
        parts.append([group])
    return [_joined(part[::-1], missing.shape[1]) for part in reversed(parts)]


def _case_work(size: int) -> float:
    """Multiplications, and cells read and written, for the factors of one case."""
    return size**3 / 2 + 6 * size**2


def _joined(groups: list[PatternGroup], n_columns: int) -> PatternGroup:
    """One group of ascending ones, the columns that are added last in each pattern."""
    if len(groups) == 1:
        return groups[0]
    size = groups[-1].missing.shape[1]
    starts = np.cumsum([0, *(group.n_patterns for group in groups)])
    missing = np.empty((starts[-1], size), dtype=np.int64)
    for start, group in zip(starts, groups, strict=False):
        own = group.missing.shape[1]
        missing[start : start + group.n_patterns, :own] = group.missing
        missing[start : start + group.n_patterns, own:] = n_columns + np.arange(size - own)
    return PatternGroup(
        missing,
        np.empty((len(missing), 0), dtype=np.int64),
        np.concatenate([group.rows for group in groups]),
        np.concatenate([g.pattern + start for g, start in zip(groups, starts, strict=False)]),
    )


def distinct_patterns(missing: BoolArray) -> tuple[BoolArray, IntArray]:
    """Distinct rows of a Boolean table, and the inverse: ``missing == patterns[inverse]``."""
    n_rows, n_columns = missing.shape
    if n_rows == 1 or not missing.any():
        return missing[:1], np.zeros(n_rows, dtype=np.int64)
    if n_columns <= _TABLE_BITS:
        # Rows as integers: for many rows, a count of all codes finds the patterns without a sort
        codes = np.zeros(n_rows, dtype=np.int64)
        for j, column in enumerate(missing.T):  # a product would copy the table as integers
            codes |= column.astype(np.int64) << j
        if 1 << n_columns > _TABLE_CODES_PER_ROW * n_rows:
            found, inverse = np.unique(codes, return_inverse=True)
        else:
            present = np.bincount(codes, minlength=1 << n_columns) > 0
            inverse = (np.cumsum(present) - 1)[codes]
            found = np.flatnonzero(present)
        return (found[:, None] >> np.arange(n_columns) & 1).astype(bool), inverse
    # Eight cells a byte, eight bytes a word: few words to compare
    packed = np.packbits(missing, axis=1)
    words = np.zeros((n_rows, -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
    words[:, : packed.shape[1]] = packed
    first, inverse = distinct_words(words.view(np.uint64))
    return missing[first], inverse


def unique_rows(X: FloatArray | IntArray) -> tuple[IntArray, IntArray]:
    """Where each distinct row of X first appears, ascending, and the inverse; NaN equals NaN."""
    if len(X) <= 1:
        return np.zeros(len(X), np.int64), np.zeros(len(X), np.int64)
    cells = np.ascontiguousarray(np.asarray(X, dtype=np.float64) + 0.0)  # -0.0 equals 0.0
    np.copyto(cells, np.nan, where=np.isnan(cells))  # one bit pattern for every NaN
    first, inverse = distinct_words(cells.view(np.uint64))
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[inverse]


def distinct_words(words: np.ndarray) -> tuple[IntArray, IntArray]:
    """First positions and inverse of distinct rows of 64-bit words, by a verified hash: sorting
    is ten times slower.
    """
    if words.shape[1] == 0:
        return np.zeros(min(1, len(words)), np.int64), np.zeros(len(words), np.int64)
    first, inverse = distinct_keys(words[:, 0] if words.shape[1] == 1 else _hash_words(words))
    # Different hashes have different rows; equal ones are compared column by column, since copies
    # of a large table would be its peak of memory
    if (
        len(first) < len(words)
        and words.shape[1] > 1
        and any((own[first][inverse] != own).any() for own in words.T)
    ):
        _, first, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
    return first, inverse.reshape(-1)


def distinct_keys(keys: np.ndarray) -> tuple[IntArray, IntArray]:
    """First positions and inverse of distinct integers (n,), as ``np.unique`` in half the time."""
    order = np.argsort(keys)
    ordered = keys[order]
    is_start = np.ones(len(keys), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_start[1:])
    inverse = np.empty(len(keys), dtype=np.int64)
    inverse[order] = np.cumsum(is_start) - 1
    return np.minimum.reduceat(order, np.flatnonzero(is_start)), inverse


@lru_cache
def _hash_factors(n_columns: int) -> np.ndarray:
    """Fixed odd multipliers: the same rows hash equally in every process."""
    return np.asarray(np.random.PCG64(0).random_raw(n_columns)) | np.uint64(1)


def _hash_words(words: np.ndarray) -> np.ndarray:
    """Mix each row of 64-bit words into one word."""
    keys = np.empty(len(words), dtype=np.uint64)
    factors = _hash_factors(words.shape[1])
    for block in row_slices(len(words), max(1, HASHED_WORDS // len(factors))):
        # short decimals have only high bits set: fold them down before multiplying
        folded = words[block] >> np.uint64(32)
        folded ^= words[block]
        folded *= factors
        folded ^= folded >> np.uint64(29)
        np.bitwise_xor.reduce(folded, axis=1, out=keys[block])
    return keys


def k_means(
    points: FloatArray,
    centres: FloatArray,
    n_steps: int,
    *,
    weights: FloatArray | None = None,
    observed: FloatArray | None = None,
) -> FloatArray:
    """Move centres (n_clusters, d) to the weighted means of the nearest points (n, d), by distances
    over `observed` coordinates; others are 0.
    """
    for _ in range(n_steps):
        nearest = nearest_centres(points, centres, observed)
        members = (nearest == np.arange(len(centres))[:, None]).astype(points.dtype)
        if weights is not None:
            members *= weights
        sizes = members.sum(axis=1, keepdims=True) if observed is None else members @ observed
        # Columns that a cluster never observed, and clusters without points, keep their centres.
        means = members @ points / np.where(sizes > 0, sizes, 1)
        centres = np.where(sizes > 0, means, centres)
    return centres


def nearest_centres(
    points: FloatArray, centres: FloatArray, observed: FloatArray | None = None
) -> IntArray:
    """Index (n,) of the centre nearest to each point."""
    squares = np.square(centres)
    # The points' own squares are equal for all centres.
    heights = squares.sum(axis=1) if observed is None else observed @ squares.T
    # Rounded, so that of equally near centres the first is taken whatever the rounding errors.
    return np.round(heights - 2 * points @ centres.T, _DIGITS).argmin(axis=1)
