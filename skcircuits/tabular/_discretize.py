"""Discretisation of tables: few integers become categories, other numbers bins.

Discrete models of numeric tables are models of states; their densities are in original units
because every bin has a width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.numerics._arrays import distinct_values
from skcircuits.protocols import (
    MAX_SCALES,
    MIN_RANGE,
    BoolArray,
    FloatArray,
    IntArray,
    WithoutCaches,
)
from skcircuits.tabular._schema import CategoryGroups
from skcircuits.tabular.queries import Boxes

# Numbers within so many neighbouring floats are told apart by rounding alone
_FEW_FLOATS = 64


@dataclass(frozen=True)
class Discretizer(WithoutCaches):
    """Columns of an encoded table as states.

    Made by `Discretizer.fit`. A categorical column keeps its codes, or has the states of groups of
    them, each of which has as many categories as its volume. A column of integers or
    neighbouring floats with few distinct values, and a constant one, has these as states. Any other
    column is cut into bins with uniform density inside: quantile bins between the least and
    the greatest number seen, of which the outermost are divided where the density falls. Beyond
    them are tails: a number slightly out of range is improbable, a distant one more so, and none is
    impossible.

    A number that many rows have is a state of its own among the bins. In columns of integers it
    is a bin, half a unit to either side. Elsewhere it is a point mass: its bin holds this number
    and the floats beside it, which count as it; it has no width, and the volume one.
    """

    values: tuple[FloatArray | None, ...]  # numbers or codes of the states, None for bins
    bins: tuple[Bins | None, ...]  # None for columns of values
    groups: tuple[CategoryGroups | None, ...]  # of categories

    @classmethod
    def fit(
        cls,
        X: FloatArray,
        cardinalities: IntArray,
        *,
        n_bins: int = 8,
        max_categories: int = 32,
        sample_weight: FloatArray | None = None,
        shared: Callable[[FloatArray, FloatArray, IntArray], FloatArray] | None = None,
        groups: Mapping[int, CategoryGroups] | None = None,
    ) -> Discretizer:
        """Learn states; `shared` gives frequent numbers of a column that is cut into bins."""
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        values: list[FloatArray | None] = []
        bins: list[Bins | None] = []
        for column, cardinality in zip(X.T, cardinalities, strict=True):
            own_bins = None
            if cardinality:
                states = np.arange(float(cardinality))
            else:
                seen = ~np.isnan(column) & (weight > 0)
                states, counts, n_rows = distinct_values(column[seen], weight[seen])
                if not _are_categories(states, max_categories):
                    known = np.empty(0) if shared is None else shared(states, counts, n_rows)
                    own_bins = Bins.fit(states, counts, n_bins, known)
            # A column without any number gets one state, so that a model over it exists
            own_values = states if len(states) else np.zeros(1)
            values.append(own_values if own_bins is None else None)
            bins.append(own_bins)
        known_groups = groups or {}
        return cls(
            tuple(values),
            tuple(bins),
            tuple(known_groups.get(j) for j in range(len(values))),
        )

    @property
    def is_categorical(self) -> BoolArray:
        """Mask of the columns whose states are values and not bins, shape (d,)."""
        return np.array([values is not None for values in self.values])

    @property
    def bin_edges(self) -> tuple[FloatArray | None, ...]:
        """Increasing edges of the bins of each column, None for columns of values."""
        return tuple(None if own is None else own.edges for own in self.bins)

    @property
    def cardinalities(self) -> IntArray:
        """Number of states per column, shape (d,)."""
        sizes = [len(self.volumes(j)) for j in range(len(self.values))]
        return np.array(sizes, dtype=np.int64)

    def encode(self, X: FloatArray, columns: Iterable[int] | None = None) -> FloatArray:
        """Turn numbers of all or some columns into states."""
        states = self._own_states(X)
        for j in range(len(self.values)) if columns is None else columns:
            values, bins = self.values[j], self.bins[j]
            if bins is not None:
                states[:, j] = bins.encode(X[:, j])
            elif (own := self.groups[j]) is not None:
                states[:, j] = own.encode(states[:, j])
            elif not self._are_own_states[j]:
                known = _known(values)
                state = np.minimum(np.searchsorted(known, X[:, j]), len(known) - 1)
                states[:, j] = np.where(known[state] == X[:, j], state, np.nan)
        return states

    @cached_property
    def keeps_cells(self) -> BoolArray:
        """Mask of the columns whose cells are the states, shape (d,)."""
        return self._are_own_states & np.array([own is None for own in self.groups])

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
        """Numbers, moved to point masses that they are beside, NaN where they are no states."""
        states = self.encode(X, self._uneven)
        X = np.where(np.isnan(states), np.nan, X)
        for j in self._uneven:
            if (bins := self.bins[j]) is not None:
                seen = np.flatnonzero(~np.isnan(states[:, j]))
                X[seen, j] = bins.known(X[seen, j], states[seen, j].astype(np.int64))
        return X

    @cached_property
    def _uneven(self) -> list[int]:
        """Columns in which some numbers are not known as they are: not those of bins alone."""
        bins = enumerate(self.bins)
        return [j for j, own in bins if own is None or not np.isnan(own.points).all()]

    def volumes(self, column: int) -> FloatArray:
        """Inverse densities (k,) within the states of a column, or numbers of categories."""
        bins, groups = self.bins[column], self.groups[column]
        if groups is not None:
            return groups.sizes.astype(np.float64)
        return np.ones(len(_known(self.values[column]))) if bins is None else bins.volumes

    def log_volume(self, X: FloatArray) -> FloatArray:
        """Log inverse density of rows within their states, to subtract from log probabilities."""
        total = np.zeros(len(X))
        states = self.encode(X)
        for j, (bins, groups) in enumerate(zip(self.bins, self.groups, strict=True)):
            if bins is None and groups is None:
                continue
            seen = np.flatnonzero(~np.isnan(states[:, j]))
            own = states[seen, j].astype(np.int64)
            if bins is None:
                total[seen] += np.log(self.volumes(j))[own]
            else:
                total[seen] += bins.log_volumes(X[seen, j], own)
        return total

    def decode(self, states: FloatArray, generator: np.random.Generator | None) -> FloatArray:
        """Numbers drawn within states; without generator the middles and the first categories."""
        codes = states.astype(np.int64)
        X = np.empty(states.shape)
        for j, (values, bins, groups) in enumerate(
            zip(self.values, self.bins, self.groups, strict=True)
        ):
            own = codes[..., j]
            if groups is not None:
                X[..., j] = groups.decode(own, generator)
            elif bins is not None:
                X[..., j] = bins.middles(own) if generator is None else bins.draw(own, generator)
            else:
                X[..., j] = _known(values)[own]
        return X

    def coverage(self, boxes: Boxes, columns: Iterable[int] | None = None) -> list[FloatArray]:
        """Fraction of each state of all or some columns that lies in each box."""
        fractions = []
        for j in range(len(self.values)) if columns is None else columns:
            values, bins = self.values[j], self.bins[j]
            # Open sides become infinite bounds
            lower = np.nan_to_num(boxes.lower[:, j], nan=-np.inf)
            upper = np.nan_to_num(boxes.upper[:, j], nan=np.inf)
            if bins is not None:
                stop = np.nan_to_num(boxes.stops[:, j], nan=np.inf)
                fractions.append(bins.coverage(lower, upper, stop))
                continue
            known = _known(values)
            fraction = ((lower[:, None] <= known) & (known <= upper[:, None])).astype(float)
            fraction *= boxes.states.get(j, True)
            if (groups := self.groups[j]) is not None:
                fraction = groups.sums(fraction) / groups.sizes
            fractions.append(fraction)
        return fractions


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


# How far the bin of a number in many rows reaches around it, as a fraction of the range, where
# other numbers are too near for a point mass
_REACH = 1e-3
# An outermost bin is divided into parts with at least so many rows, each division with as many
# parameters: its edge, its fraction, and as much again for the choice among all edges
_MIN_TAIL_ROWS = 5.0
_TAIL_PARAMETERS = 4.0
# A point mass takes up the floats beside its number. How far away the next numbers must be, in
# units of that, so that edges between them stay apart.
_APART = 4.0


@dataclass(frozen=True)
class Bins(WithoutCaches):
    """The states of a numerical column that is cut.

    Each state is a bin with a uniform density, or a point mass: a bin that holds one number and
    the floats beside it, which count as it. Numbers beyond the bins have the state of the outermost
    bin on their side, where a part of its mass lies in an exponential tail.
    """

    edges: FloatArray  # (k + 1,), increasing
    points: FloatArray  # (k,), numbers of point masses, NaN for other bins
    tail_fractions: FloatArray  # (2,), of the mass of the outermost states
    tail_scales: FloatArray  # (2,), mean distances from the outermost edges

    @classmethod
    def fit(cls, distinct: FloatArray, counts: FloatArray, n_bins: int, shared: FloatArray) -> Bins:
        """Cut between quantiles of increasing numbers (n,), which as many rows have as `counts`.

        `shared`: those of them that many rows have.
        """
        edges, points = _cut(distinct, counts, n_bins, shared)
        return cls(edges, points, *_tails(distinct, counts, edges))

    def __len__(self) -> int:
        return len(self.points)

    def encode(self, numbers: FloatArray) -> FloatArray:
        """States of numbers (n,), NaN where missing."""
        # Bins are closed on the left; the last one is closed on both sides
        state = np.searchsorted(self.edges, numbers, side="right") - 1
        return np.where(np.isnan(numbers), np.nan, np.clip(state, 0, len(self) - 1))

    def known(self, numbers: FloatArray, states: IntArray) -> FloatArray:
        """Numbers (n,) of these states, with the floats in the bin of a point mass moved to it."""
        points = self.points[states]
        is_beside = (self.edges[states] <= numbers) & (numbers <= self.edges[states + 1])
        return np.where(is_beside & ~np.isnan(points), points, numbers)

    @cached_property
    def inside(self) -> FloatArray:
        """Part of the mass of each state that lies in its bin, (k,)."""
        inside = np.ones(len(self))
        inside[0] -= self.tail_fractions[0]
        inside[-1] -= self.tail_fractions[1]
        return inside

    @property
    def volumes(self) -> FloatArray:
        """Inverse density of each state in its bin, of point masses inverse probability, (k,)."""
        return np.where(np.isnan(self.points), np.diff(self.edges), 1.0) / self.inside

    def log_volumes(self, numbers: FloatArray, states: IntArray) -> FloatArray:
        """Log of the inverse density of numbers (n,) in their states."""
        volumes = np.log(self.volumes)[states]
        distances = self.edges[0] - numbers, numbers - self.edges[-1]
        for distance, part, scale in zip(distances, self.tail_fractions, self.tail_scales):
            beyond = distance > 0.0
            volumes[beyond] = np.log(scale / part) + distance[beyond] / scale
        return volumes

    def middles(self, states: IntArray) -> FloatArray:
        """Middles of the bins of states, or their point masses."""
        low, high, point = self.edges[states], self.edges[states + 1], self.points[states]
        # The sum of two large ends might overflow
        return np.where(np.isnan(point), low + (high - low) / 2, point)

    def draw(self, states: IntArray, rng: np.random.Generator) -> FloatArray:
        within = rng.uniform(self.edges[states], self.edges[states + 1])
        drawn = np.where(np.isnan(self.points[states]), within, self.points[states])
        fraction, excess = rng.random(states.shape), rng.exponential(size=states.shape)
        (left, right), (left_scale, right_scale) = self.tail_fractions, self.tail_scales
        below = (states == 0) & (fraction < left)
        above = (states == len(self) - 1) & (fraction >= 1.0 - right)
        drawn = np.where(below, self.edges[0] - left_scale * excess, drawn)
        return np.where(above, self.edges[-1] + right_scale * excess, drawn)

    def coverage(self, lower: FloatArray, upper: FloatArray, stop: FloatArray) -> FloatArray:
        """Part (n, k) of each state in intervals, which end at `stop` for densities."""
        lower, upper, stop = lower[:, None], upper[:, None], stop[:, None]
        covered = np.minimum(stop, self.edges[1:]) - np.maximum(lower, self.edges[:-1])
        fraction = np.clip(covered / np.diff(self.edges), 0.0, 1.0)
        is_inside = (lower <= self.points) & (self.points <= upper)
        fraction = np.where(np.isnan(self.points), fraction, is_inside) * self.inside
        for state, near, far in (
            (0, self.edges[0] - stop, self.edges[0] - lower),
            (-1, lower - self.edges[-1], stop - self.edges[-1]),
        ):
            with np.errstate(over="ignore"):
                near, far = (end[:, 0] / self.tail_scales[state] for end in (near, far))
            near, far = np.clip(near, 0.0, MAX_SCALES), np.maximum(far, 0.0)
            # Differences of distances: those of two masses far out would lose digits
            within = np.exp(-near) * -np.expm1(np.minimum(near - far, 0.0))
            fraction[:, state] += self.tail_fractions[state] * within
        return fraction


def _cut(
    distinct: FloatArray, counts: FloatArray, n_bins: int, shared: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Edges of quantile bins, and numbers that are point masses."""
    masses = counts / counts.sum()
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
    inner = _inner_edges(distinct, masses, n_bins, is_heavy, reach)
    ends = [first, *inner, last]
    for low, high in {(ends[0], ends[1]), (ends[-2], ends[-1])}:
        inside = (low <= distinct) & (distinct < high)
        divided = _tail_edges(distinct[inside], counts[inside], low, high)
        inner = np.union1d(inner, divided)
    # The density of a narrower bin might overflow
    inner = inner[np.diff(inner, prepend=first) >= MIN_RANGE]
    edges = np.concatenate([[first], inner, [last]])
    points = np.full(len(edges) - 1, np.nan)
    points[np.searchsorted(edges, distinct[is_point], side="right") - 1] = distinct[is_point]
    return edges, points


def _tails(
    distinct: FloatArray, counts: FloatArray, edges: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Part of the outermost states beyond their bins, and mean distance there, both (2,)."""
    # The next of n + 1 exchangeable numbers falls beyond the first n on one side with probability 1
    # / (n + 1), whatever their distribution: so much of the mass of the outermost state does, but
    # at most half. Where several rows share one number that has the outermost bin to itself, it is
    # likely to be a bound, such as zero of debts: the square of the part remains, as if two in a
    # row had to fall beyond. An exponential tail has no memory: its mean is that of the distances
    # from where the outermost bin begins.
    n_rows = counts.sum()
    mean = np.average(distinct, weights=counts)
    spread = max(float(np.sqrt(np.average((distinct - mean) ** 2, weights=counts))), MIN_RANGE)
    fractions, scales = np.empty((2, 2))
    sides = (distinct < edges[1], edges[1]), (distinct >= edges[-2], edges[-2])
    for side, (is_own, beginning) in enumerate(sides):
        own, rows = distinct[is_own], float(counts[is_own].sum())
        # Of a single bin both tails take a part: something is left between them
        most = 1.0 / 2.0 if len(edges) > 2 else 1.0 / 3.0
        fractions[side] = min(n_rows / (n_rows + 1.0) / rows, most)
        if len(own) > 1:
            scales[side] = np.average(np.abs(own - beginning), weights=counts[is_own])
            continue
        scales[side] = spread
        if rows > 1.0:
            fractions[side] **= 2
    return fractions, scales


def _tail_edges(distinct: FloatArray, counts: FloatArray, low: float, high: float) -> list[float]:
    """Edges that divide an outermost bin where uniform parts are likelier by the BIC."""
    middles = distinct[:-1] + np.diff(distinct) / 2
    # Between integers edges lie half a unit off them: where are numbers of both kinds?
    n_fractions = np.concatenate([[0], np.cumsum(distinct != np.floor(distinct))])
    ends = np.concatenate([[0.0], np.cumsum(counts)])
    found = []
    parts = [(0, len(distinct), low, high)]
    while parts:
        start, stop, low, high = parts.pop()
        # Enough rows on both sides: the sums increase, so that these are neighbours
        least, most = ends[start] + _MIN_TAIL_ROWS, ends[stop] - _MIN_TAIL_ROWS
        first = max(int(np.searchsorted(ends, least)), start + 1)
        last = min(int(np.searchsorted(ends, most, side="right")), stop)
        if first >= last:
            continue
        edges = middles[first - 1 : last - 1]
        if n_fractions[start] == n_fractions[stop]:
            edges = np.floor(edges) + 0.5
        # A bin is closed on the left: an edge that rounds to the lower number would not part them
        edges = np.where(edges > distinct[first - 1 : last - 1], edges, distinct[first:last])
        widths = np.stack([edges - low, high - edges])
        below = ends[first:last] - ends[start]
        rows = np.stack([below, ends[stop] - ends[start] - below])
        is_possible = (widths >= MIN_RANGE).all(axis=0)
        if not is_possible.all():
            edges, widths, rows = edges[is_possible], widths[:, is_possible], rows[:, is_possible]
        if len(edges) == 0:
            continue
        total = ends[stop] - ends[start]
        gains = (rows * np.log(rows * ((high - low) / total) / widths)).sum(axis=0)
        best = int(gains.argmax())
        if gains[best] > _TAIL_PARAMETERS * np.log(total) / 2:
            edge = float(edges[best])
            found.append(edge)
            middle = int(np.searchsorted(distinct, edge))
            parts += (start, middle, low, edge), (middle, stop, edge, high)
    return found


def _inner_edges(
    distinct: FloatArray,
    masses: FloatArray,
    n_bins: int,
    is_heavy: BoolArray,
    reach: FloatArray | None,
) -> FloatArray:
    """Edges between numbers with these fractions; heavy ones have bins, which reach so far."""
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
