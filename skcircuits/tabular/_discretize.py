"""Numbers as states: categories where they are few integers, bins elsewhere.

Discrete models on numeric tables see states; their densities stay densities in original
units because every bin carries its width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.protocols import MIN_RANGE, BoolArray, FloatArray, IntArray
from skcircuits.tabular.queries import Boxes

# How far the bin of a number in many rows reaches around it, as a fraction of the range
_REACH = 1e-3
# Numbers within so many neighbouring floats are told apart by rounding alone
_FEW_FLOATS = 64


@dataclass(frozen=True)
class Discretizer:
    """Columns of an encoded table as states.

    Made by `Discretizer.fit`. A categorical column keeps its codes. A column of integers or
    neighbouring floats with few distinct values, and a constant one, has these as states. Any other
    column is cut into bins with uniform density inside: quantile bins between the least and
    the greatest number seen and, beyond them, one guard bin on each side, as wide as the
    range seen. Guard bins hold no training row; a smoothed model gives them a little mass,
    so that a new number slightly out of range is improbable and not impossible.

    ``values``: per column the number behind each state (its code in a categorical column); None for
    bins; ``bin_edges``: per column the increasing edges of its bins; None for columns of values.
    """

    values: tuple[FloatArray | None, ...]
    bin_edges: tuple[FloatArray | None, ...]

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        cardinalities: IntArray,
        *,
        n_bins: int = 8,
        max_categories: int = 32,
        sample_weight: FloatArray | None = None,
    ) -> Discretizer:
        """Learn the states of each column."""
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        values: list[FloatArray | None] = []
        bin_edges: list[FloatArray | None] = []
        for column, cardinality in zip(X.T, cardinalities, strict=True):
            seen = ~np.isnan(column) & (weight > 0)
            states = np.arange(float(cardinality)) if cardinality else np.unique(column[seen])
            is_cut = not cardinality and not _are_categories(states, max_categories)
            # A column without any number gets one state, so that a model over it exists
            values.append(None if is_cut else states if len(states) else np.zeros(1))
            bin_edges.append(_cut(column[seen], weight[seen], n_bins) if is_cut else None)
        return cls(tuple(values), tuple(bin_edges))

    @property
    def is_categorical(self) -> BoolArray:
        """Mask of the columns whose states are values and not bins, shape (d,)."""
        return np.array([values is not None for values in self.values])

    @property
    def cardinalities(self) -> IntArray:
        """Number of states per column, shape (d,)."""
        sizes = [
            len(edges) - 1 if values is None and edges is not None else len(_known(values))
            for values, edges in zip(self.values, self.bin_edges, strict=True)
        ]
        return np.array(sizes, dtype=np.int64)

    def encode(self, X: FloatArray) -> FloatArray:
        """Turn numbers into states."""
        states = self._own_states(X)
        for j, (values, edges) in enumerate(zip(self.values, self.bin_edges, strict=True)):
            if edges is not None:
                # Bins are closed on the left; the last one is closed on both sides
                state = np.searchsorted(edges, X[:, j], side="right") - 1
                states[:, j] = np.clip(state, 0, len(edges) - 2)
                states[np.isnan(X[:, j]), j] = np.nan
            elif not self._are_own_states[j]:
                known = _known(values)
                state = np.minimum(np.searchsorted(known, X[:, j]), len(known) - 1)
                states[:, j] = np.where(known[state] == X[:, j], state, np.nan)
        return states

    @cached_property
    def _are_own_states(self) -> BoolArray:
        """Mask of the columns whose values are 0, 1, ..., their own states, shape (d,)."""
        return np.array(
            [own is not None and np.array_equal(own, np.arange(len(own))) for own in self.values]
        )

    def _own_states(self, X: FloatArray) -> FloatArray:
        """A copy of X, without what is no state in columns of values 0, 1, ..."""
        states = X.copy()
        if self._are_own_states.any():
            # All columns at once: comparisons with the limits of others are never true
            n_states = np.where(self._are_own_states, self.cardinalities, np.inf)
            is_none = (n_states <= X) | ((X < 0.0) | (np.floor(X) != X)) & self._are_own_states
            states[is_none] = np.nan
        return states

    def log_volume(self, X: FloatArray) -> FloatArray:
        """Log volume of the cells that rows lie in: what to subtract from log probabilities."""
        total = np.zeros(len(X))
        states = self.encode(X)
        for j, edges in self._cut_columns():
            seen = np.flatnonzero(~np.isnan(states[:, j]))
            total[seen] += np.log(np.diff(edges))[states[seen, j].astype(np.int64)]
            # Infinite volume, zero density
            total[(X[:, j] < edges[0]) | (X[:, j] > edges[-1])] = np.inf
        return total

    def decode(self, states: FloatArray, generator: np.random.Generator | None) -> FloatArray:
        """Turn states back into numbers, drawn uniformly inside bins; None gives the middles."""
        codes = states.astype(np.int64)
        X = np.empty(states.shape)
        for j, (values, edges) in enumerate(zip(self.values, self.bin_edges, strict=True)):
            if edges is not None:
                code = codes[..., j]
                low, high = edges[code], edges[code + 1]
                middle = low + (high - low) / 2
                X[..., j] = middle if generator is None else generator.uniform(low, high)
            else:
                X[..., j] = _known(values)[codes[..., j]]
        return X

    def coverage(self, boxes: Boxes) -> list[FloatArray]:
        """Fraction of each state that lies in each box."""
        fractions = []
        for j, (values, edges) in enumerate(zip(self.values, self.bin_edges, strict=True)):
            # Open sides become infinite bounds; infinite minus infinite cannot occur below,
            # because edges are finite
            lower = np.nan_to_num(boxes.lower[:, [j]], nan=-np.inf)
            upper = np.nan_to_num(boxes.upper[:, [j]], nan=np.inf)
            if edges is not None:
                stop = np.nan_to_num(boxes.stops[:, [j]], nan=np.inf)
                covered = np.minimum(stop, edges[1:]) - np.maximum(lower, edges[:-1])
                fraction = np.clip(covered / np.diff(edges), 0.0, 1.0)
            else:
                known = _known(values)
                fraction = ((lower <= known) & (known <= upper)).astype(float)
                fraction *= boxes.states.get(j, True)
            fractions.append(fraction)
        return fractions

    def _cut_columns(self) -> Sequence[tuple[int, FloatArray]]:
        return [(j, edges) for j, edges in enumerate(self.bin_edges) if edges is not None]


def _known(values: FloatArray | None) -> FloatArray:
    assert values is not None
    return values


def _are_categories(distinct: FloatArray, max_categories: int) -> bool:
    """Tell whether the distinct numbers of a column are its states."""
    if len(distinct) <= 1 or len(distinct) > max_categories:
        return len(distinct) <= 1
    are_integers = bool((distinct == np.floor(distinct)).all())
    # Bins among neighbouring floats would be as wide as what their ends are rounded by
    return (
        are_integers
        or distinct[-1] - distinct[0] < _FEW_FLOATS * np.spacing(np.abs(distinct)).max()
    )


def _cut(numbers: FloatArray, weight: FloatArray, n_bins: int) -> FloatArray:
    """Edges of quantile bins, with a guard bin on each side."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    masses = np.bincount(inverse, weight) / weight.sum()
    are_integers = bool((distinct == np.floor(distinct)).all())
    # Integers reach half a unit around themselves. Other bins have to reach just past the
    # greatest number.
    first = distinct[0] - 0.5 if are_integers else distinct[0]
    last = distinct[-1] + 0.5 if are_integers else np.nextafter(distinct[-1], np.inf)
    span = last - first
    inner = _inner_edges(distinct, masses, n_bins, None if are_integers else _REACH * span)
    # The density of a narrower bin might overflow
    inner = inner[np.diff(inner, prepend=first) >= MIN_RANGE]
    return np.concatenate([[first - span, first], inner, [last, last + span]])


def _inner_edges(
    distinct: FloatArray, masses: FloatArray, n_bins: int, reach: float | None
) -> FloatArray:
    """Edges between increasing numbers with these fractions of the rows.

    A number with the fraction of a bin has one to itself, which reaches only so far around it;
    None stands for integers, and half a unit.
    """
    is_heavy = masses >= 1 / n_bins
    heavy = np.flatnonzero(is_heavy)
    after = np.cumsum(masses)
    before = after - masses
    fractions = np.arange(1, n_bins) / n_bins
    holder = np.minimum(np.searchsorted(after, fractions), len(masses) - 1)
    # On the side of the quantile's number on which fewer rows are misplaced
    nearest = holder + (fractions - before[holder] >= after[holder] - fractions)
    cuts = np.unique(np.concatenate([nearest, heavy, heavy + 1]))
    cuts = cuts[(cuts > 0) & (cuts < len(masses))]
    low, high = distinct[cuts - 1], distinct[cuts]
    half = (high - low) / 2
    if reach is None:
        half, reach = np.floor(half) + 0.5, 0.5
    near = np.minimum(half, reach)
    low_is_heavy, high_is_heavy = is_heavy[cuts - 1], is_heavy[cuts]
    # A bin is closed on the left: an edge that rounds to the lower number would not part them
    edges = [
        np.where(above > low, above, high)[used]
        for above, used in (
            (low + half, ~(low_is_heavy | high_is_heavy)),
            (low + near, low_is_heavy),
            (high - near, high_is_heavy),
        )
    ]
    return np.unique(np.concatenate(edges))
