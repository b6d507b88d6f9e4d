"""Discretisation of tables: few integers become categories, other numbers bins.

Discrete models of numeric tables are models of states; their densities are in original units
because every bin has a width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.protocols import MIN_RANGE, BoolArray, FloatArray, IntArray
from skcircuits.tabular._category_groups import CategoryGroups
from skcircuits.tabular.queries import Boxes

# How far the bin of a number in many rows reaches around it, as a fraction of the range, where
# other numbers are too near for a point mass
_REACH = 1e-3
# An outermost bin is divided into parts with at least so many rows, each division with as many
# parameters: its edge, its fraction, and as much again for the choice among all edges
_MIN_TAIL_ROWS = 5.0
_TAIL_PARAMETERS = 4.0
# Numbers within so many neighbouring floats are told apart by rounding alone
_FEW_FLOATS = 64
# A point mass takes up the floats beside its number. How far away the next numbers must be, in
# units of that, so that edges between them stay apart.
_APART = 4.0


@dataclass(frozen=True)
class Discretizer:
    """Columns of an encoded table as states.

    Made by `Discretizer.fit`. A categorical column keeps its codes, or has the states of groups of
    them, each of which has as many categories as its volume. A column of integers or
    neighbouring floats with few distinct values, and a constant one, has these as states. Any other
    column is cut into bins with uniform density inside: quantile bins between the least and
    the greatest number seen, of which the outermost are divided where the density falls. Beyond
    them lies one guard bin on each side, as wide as the range seen. Guard bins hold no training
    row; a smoothed model gives them a little mass, so that a new number slightly out of range is
    improbable and not impossible.

    A number that many rows have is a state of its own among the bins. In columns of integers it
    is a bin, half a unit to either side. Elsewhere it is a point mass: its bin holds this number
    and the floats beside it, which count as it; it has no width, and the volume one.

    ``values``: per column the number behind each state, the codes of a categorical column; None for
    bins; ``bin_edges``: per column the increasing edges of its bins; None for columns of values;
    ``points``: per column the number of each bin that is a point mass, NaN for other bins; None for
    columns of values; ``groups``: per column its groups of categories, None for other columns.
    """

    values: tuple[FloatArray | None, ...]
    bin_edges: tuple[FloatArray | None, ...]
    points: tuple[FloatArray | None, ...]
    groups: tuple[CategoryGroups | None, ...]

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        cardinalities: IntArray,
        *,
        n_bins: int = 8,
        max_categories: int = 32,
        sample_weight: FloatArray | None = None,
        shared: Callable[[int], FloatArray] | None = None,
        groups: Mapping[int, CategoryGroups] | None = None,
    ) -> Discretizer:
        """Learn the states of each column.

        `shared`: gives the numbers that many rows have in a column that is cut into bins, beside
        those with the rows of a bin; `groups`: of the categories of some columns.
        """
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        values: list[FloatArray | None] = []
        bin_edges: list[FloatArray | None] = []
        points: list[FloatArray | None] = []
        for j, (column, cardinality) in enumerate(zip(X.T, cardinalities, strict=True)):
            seen = ~np.isnan(column) & (weight > 0)
            states = np.arange(float(cardinality)) if cardinality else np.unique(column[seen])
            is_cut = not cardinality and not _are_categories(states, max_categories)
            # A column without any number gets one state, so that a model over it exists
            values.append(None if is_cut else states if len(states) else np.zeros(1))
            edges, own_points = None, None
            if is_cut:
                known = np.empty(0) if shared is None else shared(j)
                edges, own_points = _cut(column[seen], weight[seen], n_bins, known)
            bin_edges.append(edges)
            points.append(own_points)
        known_groups = groups or {}
        return cls(
            tuple(values),
            tuple(bin_edges),
            tuple(points),
            tuple(known_groups.get(j) for j in range(len(values))),
        )

    @property
    def is_categorical(self) -> BoolArray:
        """Mask of the columns whose states are values and not bins, shape (d,)."""
        return np.array([values is not None for values in self.values])

    @property
    def cardinalities(self) -> IntArray:
        """Number of states per column, shape (d,)."""
        sizes = [len(self.volumes(j)) for j in range(len(self.values))]
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
            elif (own := self.groups[j]) is not None:
                states[:, j] = own.encode(states[:, j])
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
        """A copy of X, with NaN for values that do not occur in columns of values 0, 1, ..."""
        states = X.copy()
        if self._are_own_states.any():
            # All columns at once: comparisons with the limits of others are never true
            n_values = [np.inf if own is None else len(own) for own in self.values]
            n_states = np.where(self._are_own_states, n_values, np.inf)
            is_none = (n_states <= X) | ((X < 0.0) | (np.floor(X) != X)) & self._are_own_states
            states[is_none] = np.nan
        return states

    def known(self, X: FloatArray) -> FloatArray:
        """Numbers as represented by their states.

        Those that are not states are missing, those next to a point mass are moved to it.
        """
        states = self.encode(X)
        X = np.where(np.isnan(states), np.nan, X)
        for j, _, points in self._cut_columns():
            if not np.isnan(points).all():
                seen = np.flatnonzero(~np.isnan(states[:, j]))
                # Floats beside a point mass count as it, as its bin reaches around it
                own = points[states[seen, j].astype(np.int64)]
                X[seen, j] = np.where(np.isnan(own), X[seen, j], own)
        return X

    def volumes(self, column: int) -> FloatArray:
        """Widths of the bins of a column, one for its point masses and values, (k,).

        Of groups of categories, their numbers.
        """
        edges, points, groups = self.bin_edges[column], self.points[column], self.groups[column]
        if groups is not None:
            return groups.sizes.astype(np.float64)
        if edges is None or points is None:
            return np.ones(len(_known(self.values[column])))
        return np.where(np.isnan(points), np.diff(edges), 1.0)

    def log_volume(self, X: FloatArray) -> FloatArray:
        """Log volume of the cells that rows lie in: what to subtract from log probabilities."""
        total = np.zeros(len(X))
        states = self.encode(X)
        for j, (edges, groups) in enumerate(zip(self.bin_edges, self.groups, strict=True)):
            if edges is None and groups is None:
                continue
            seen = np.flatnonzero(~np.isnan(states[:, j]))
            total[seen] += np.log(self.volumes(j))[states[seen, j].astype(np.int64)]
            if edges is not None:
                # Infinite volume, zero density
                total[(X[:, j] < edges[0]) | (X[:, j] > edges[-1])] = np.inf
        return total

    def decode(self, states: FloatArray, generator: np.random.Generator | None) -> FloatArray:
        """Turn states back into numbers, drawn uniformly inside bins and groups.

        None gives the middles of bins and the first categories of groups.
        """
        codes = states.astype(np.int64)
        X = np.empty(states.shape)
        for j, (values, groups) in enumerate(zip(self.values, self.groups, strict=True)):
            if groups is not None:
                X[..., j] = groups.decode(codes[..., j], generator)
            elif values is not None:
                X[..., j] = values[codes[..., j]]
        for j, edges, points in self._cut_columns():
            code = codes[..., j]
            low, high, point = edges[code], edges[code + 1], points[code]
            # The sum of two large ends might overflow
            middle = low + (high - low) / 2
            number = middle if generator is None else generator.uniform(low, high)
            X[..., j] = np.where(np.isnan(point), number, point)
        return X

    def coverage(self, boxes: Boxes) -> list[FloatArray]:
        """Fraction of each state that lies in each box."""
        fractions = []
        columns = zip(self.values, self.bin_edges, self.points, strict=True)
        for j, (values, edges, points) in enumerate(columns):
            # Open sides become infinite bounds; infinite minus infinite cannot occur below,
            # because edges are finite
            lower = np.nan_to_num(boxes.lower[:, [j]], nan=-np.inf)
            upper = np.nan_to_num(boxes.upper[:, [j]], nan=np.inf)
            if edges is not None and points is not None:
                stop = np.nan_to_num(boxes.stops[:, [j]], nan=np.inf)
                covered = np.minimum(stop, edges[1:]) - np.maximum(lower, edges[:-1])
                fraction = np.clip(covered / np.diff(edges), 0.0, 1.0)
                is_inside = (lower <= points) & (points <= upper)
                fraction = np.where(np.isnan(points), fraction, is_inside)
            else:
                known = _known(values)
                fraction = ((lower <= known) & (known <= upper)).astype(float)
                fraction *= boxes.states.get(j, True)
                if (groups := self.groups[j]) is not None:
                    fraction = groups.sums(fraction) / groups.sizes
            fractions.append(fraction)
        return fractions

    def _cut_columns(self) -> Iterator[tuple[int, FloatArray, FloatArray]]:
        """Number, edges of the bins and point masses of every column that is cut."""
        for j, (edges, points) in enumerate(zip(self.bin_edges, self.points, strict=True)):
            if edges is not None and points is not None:
                yield j, edges, points


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


def _cut(
    numbers: FloatArray, weight: FloatArray, n_bins: int, shared: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Edges of quantile bins, with a guard bin on each side, and numbers that are point masses."""
    distinct, inverse = np.unique(numbers, return_inverse=True)
    masses = np.bincount(inverse, weight) / weight.sum()
    is_heavy = (masses >= 1 / n_bins) | np.isin(distinct, shared)
    is_point = np.zeros(len(distinct), dtype=bool)
    # Integers reach half a unit around themselves. Other bins have to reach just past the
    # greatest number.
    first, last, reach = distinct[0] - 0.5, distinct[-1] + 0.5, None
    if (distinct != np.floor(distinct)).any():
        first, last = distinct[0], np.nextafter(distinct[-1], np.inf)
        around = np.maximum(np.spacing(np.abs(distinct)), MIN_RANGE)
        is_apart = np.diff(distinct) > _APART * np.maximum(around[1:], around[:-1])
        is_point = is_heavy & np.append(is_apart, True) & np.append(True, is_apart)
        reach = np.where(is_point, around, _REACH * (last - first))
        if is_point[0]:
            first -= reach[0]
        if is_point[-1]:
            last = distinct[-1] + reach[-1]
    span = last - first
    inner = _inner_edges(distinct, masses, n_bins, is_heavy, reach)
    ends = [first, *inner, last]
    for low, high in {(ends[0], ends[1]), (ends[-2], ends[-1])}:
        inside = (low <= distinct) & (distinct < high)
        divided = _tail_edges(distinct[inside], masses[inside] * weight.sum(), low, high)
        inner = np.union1d(inner, divided)
    # The density of a narrower bin might overflow
    inner = inner[np.diff(inner, prepend=first) >= MIN_RANGE]
    edges = np.concatenate([[first - span, first], inner, [last, last + span]])
    points = np.full(len(edges) - 1, np.nan)
    points[np.searchsorted(edges, distinct[is_point], side="right") - 1] = distinct[is_point]
    return edges, points


def _tail_edges(distinct: FloatArray, counts: FloatArray, low: float, high: float) -> list[float]:
    """Edges that divide an outermost bin, in which the density of a skewed column falls.

    A division in two uniform parts is kept if their likelihood exceeds that of one by the
    Bayesian information criterion.
    """
    if len(distinct) < 2:
        return []
    edges = distinct[:-1] + np.diff(distinct) / 2
    if (distinct == np.floor(distinct)).all():
        edges = np.floor(edges) + 0.5
    ends = np.cumsum(counts)
    total, below = ends[-1], ends[:-1]
    above = total - below
    # A bin is closed on the left: an edge that rounds to the lower number would not part them
    edges = np.where(edges > distinct[:-1], edges, distinct[1:])
    is_possible = np.minimum(below, above) >= _MIN_TAIL_ROWS
    is_possible &= np.minimum(edges - low, high - edges) >= MIN_RANGE
    if not is_possible.any():
        return []
    below, above, edges = below[is_possible], above[is_possible], edges[is_possible]
    gains = below * np.log(below / total * (high - low) / (edges - low))
    gains += above * np.log(above / total * (high - low) / (high - edges))
    best = int(gains.argmax())
    if gains[best] <= _TAIL_PARAMETERS * np.log(total) / 2:
        return []
    edge = float(edges[best])
    is_below = distinct < edge
    return [
        *_tail_edges(distinct[is_below], counts[is_below], low, edge),
        edge,
        *_tail_edges(distinct[~is_below], counts[~is_below], edge, high),
    ]


def _inner_edges(
    distinct: FloatArray,
    masses: FloatArray,
    n_bins: int,
    is_heavy: BoolArray,
    reach: FloatArray | None,
) -> FloatArray:
    """Edges between increasing numbers with these fractions of the rows.

    A heavy number has a bin to itself, which reaches only so far around it; None stands for
    integers, and half a unit.
    """
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
        half, reach = np.floor(half) + 0.5, np.full(len(distinct), 0.5)
    low_is_heavy, high_is_heavy = is_heavy[cuts - 1], is_heavy[cuts]
    # A bin is closed on the left: an edge that rounds to the lower number would not part them
    edges = [
        np.where(above > low, above, high)[used]
        for above, used in (
            (low + half, ~(low_is_heavy | high_is_heavy)),
            (low + np.minimum(half, reach[cuts - 1]), low_is_heavy),
            (high - np.minimum(half, reach[cuts]), high_is_heavy),
        )
    ]
    return np.unique(np.concatenate(edges))
