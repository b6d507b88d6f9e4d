"""Preprocessing of rows for Gaussian mixtures: mapped, standardised, merged and sorted.

Numbers that are far off all others are left out: a slip of the decimal point or a number that
stands for missing cells, such as 9999, would be the unit of all others, in which these are equal.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from skcircuits.circuits.inputs.johnson import SinhMap
from skcircuits.learning.expectation_maximization import ColumnMoments
from skcircuits.numerics._patterns import (
    PatternGroup,
    distinct_patterns,
    joined_groups,
    unique_rows,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Cells per block of rows, for each component: patterns of missing cells are worked out once for
# a block, complete rows have none and stay in cache
_BLOCK_CELLS, _COMPLETE_BLOCK_CELLS = 1 << 14, 1 << 13
_SORTED_ROWS = 1 << 16  # about as many rows are sorted at once
_MAX_GUESS_ROWS = 5000  # rows that a first guess of the covariance sees
_MIN_MAP_VALUES = 6  # columns of fewer stay as they are
_MIN_MAP_GAIN = 2.0  # nats over all cells that a map must gain
_MAX_MAP_CELLS = 1000  # that maps are compared on
_ROUGH_ROWS = 300  # enough for the shape of a column
# Beyond the range of the cells, in standard deviations, and quantiles within it
_BEYOND = np.array([0.0, 0.02, 0.1, 0.3, 1.0])
_WITHIN = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)
# Squares of cells further off, in standard deviations of the others, leave these no digits
_MAX_REACH = 2e6
_CURVATURES = 1.0 / np.geomspace(0.05, 30.0, 12)  # in standard units
# So many times larger ones are tried where the largest are best: the tails of a lognormal column
# may be many times as long as most of its cells. Not if more cells than a fraction are equal.
_FINER, _REPEATED = (1.0, 300.0, 9e4), 0.05
# Numbers are far off if they are so many times as far from the median as all others, of which there
# are more than these
_FAR_RATIO, _FEW_VALUES = 10.0, 12
_FAR_MAPPED_RATIO = 4.0  # where columns are nearly normal: their tails are short
# Most of the rows that may have them, and that so few different ones may have: a single one stands
# for missing cells, perhaps, and three are no cluster
_FAR_FRACTION, _FEW_FAR_FRACTION, _FEW_FAR = 0.01, 0.05, 3


@dataclass(frozen=True, eq=False)
class MixtureTable:
    """Different rows with their weights, numbers in standard units."""

    numbers: FloatArray  # (n, c), less location, over scale, NaN where missing
    codes: IntArray  # (n, q), -1 where missing
    weights: FloatArray  # (n,), positive
    location: FloatArray  # (c,)
    scale: FloatArray  # (c,)
    jitter: FloatArray  # (c,), variance of a cell within its recording interval
    cardinalities: IntArray  # (n_columns,), 0 for numbers
    blocks: list[slice]  # consecutive rows that an iteration takes at once
    source: IntArray  # (n,), index in the original table
    near: FloatArray  # (2, c), bounds of the cells that are not far off
    bends: FloatArray  # (c,), curvatures of the maps to standard units, 0 where they are linear

    @classmethod
    def prepare(
        cls,
        X: FloatArray,
        cardinalities: IntArray,
        sample_weight: FloatArray | None = None,
        like: MixtureTable | None = None,
        sinh_map: SinhMap | None = None,
    ) -> MixtureTable:
        """Prepare a table of numbers, made normal by a map if there is one, and codes.

        The units are its own or those of an earlier table that it is `like`.
        """
        # Rows without weight or without any observed cell are left out. A column without observed
        # cells has location 0 and scale 1.
        weights = np.ones(len(X)) if sample_weight is None else sample_weight
        kept = (weights > 0.0) & ~np.isnan(X).all(axis=1)
        source = np.flatnonzero(kept)
        # without copies of a large table that needs none
        all_rows = len(source) == len(X)
        first, weights = _merge_rows(X if all_rows else X[kept], weights[kept])
        source = source[first]
        X = X[source]
        is_number = cardinalities == 0
        measured = X if is_number.all() else X[:, is_number]
        if sinh_map is not None:
            measured = sinh_map.normal(measured)
        if like is not None:
            location, scale, jitter = like.location, like.scale, like.jitter
            near, bends = like.near, like.bends
        else:
            near = np.array([_near_range(own, weights) for own in measured.T]).reshape(-1, 2).T
            # One number far off would be the unit of all others, in which they are equal
            moments = ColumnMoments.of(without_far(measured, near), weights)
            location, scale = moments.mean, np.sqrt(moments.variance)
            resolution = np.array([_resolution(column) for column in measured.T]) / scale
            jitter, near = resolution**2 / 12.0, (near - location) / scale
            bends = scale * sinh_map.curvatures if sinh_map else np.zeros(len(scale))
        numbers = measured - location
        numbers /= scale
        codes = np.nan_to_num(X[:, ~is_number], nan=-1.0).astype(np.int64)
        units, blocks = (location, scale, jitter, cardinalities), _cut_blocks(np.isnan(numbers))
        return cls(numbers, codes, weights, *units, blocks, source, near, bends)

    def take(self, rows: IntArray) -> MixtureTable:
        """Keep some rows, in the units of all."""
        numbers = self.numbers[rows]
        parts = {name: getattr(self, name)[rows] for name in ("codes", "weights", "source")}
        return replace(self, numbers=numbers, blocks=_cut_blocks(np.isnan(numbers)), **parts)

    @cached_property
    def without_far_cells(self) -> MixtureTable:
        """The same rows, in which cells that are far off are missing; itself if there are none."""
        numbers = without_far(self.numbers, self.near)
        return self if numbers is self.numbers else replace(self, numbers=numbers)

    @property
    def widest(self) -> FloatArray:
        """Variances (c,) beyond which tails decide the means of mapped columns."""
        # The mean of sinh(b z) / b grows by exp(b² / 2 times the variance): by e with this one. In
        # columns that are bent more, it is twice the variance of all cells.
        return 2.0 / np.square(np.clip(self.bends, 1e-150, 1.0))

    def groups(self, block: slice, n_gaussians: tuple[int, int]) -> list[PatternGroup]:
        """Missing patterns of a block, joined as suits some Gaussians and kept once known."""
        # They take more memory than the rows do: factor analysers never ask for them
        key = block.start, n_gaussians
        if key not in self._groups:
            self._groups[key] = joined_groups(np.isnan(self.numbers[block]), n_gaussians)
        return self._groups[key]

    @cached_property
    def singles(self) -> dict[Any, Any]:
        """Single components that were learned from the rows, by the settings of their fits."""
        return {}

    @cached_property
    def _groups(self) -> dict[tuple[int, tuple[int, int]], list[PatternGroup]]:
        return {}

    @cached_property
    def total_weight(self) -> float:
        return float(self.weights.sum())

    def cells(self) -> FloatArray:
        """Cells (n, d), numbers in standard units, NaN where missing."""
        is_number = self.cardinalities == 0
        result = np.empty((len(self.weights), len(is_number)))
        result[:, is_number] = self.numbers
        result[:, ~is_number] = np.where(self.codes < 0, np.nan, self.codes)
        return result

    @property
    def n_cells(self) -> int:
        return max(1, len(self.weights) * len(self.cardinalities))

    @cached_property
    def is_measured(self) -> bool:
        """Whether most rows differ in one of several numbers: none is repeated by chance."""
        n_values = max((len(np.unique(column)) for column in self.numbers.T), default=0)
        return 2 * n_values > len(self.numbers) and self.numbers.shape[1] > 1

    @cached_property
    def completeness(self) -> float:
        """Fraction of the numeric cells that are observed."""
        if not self.numbers.size:
            return 1.0
        observed = self.weights @ ~np.isnan(self.numbers)
        return float(observed.mean()) / self.total_weight

    @cached_property
    def rows_together(self) -> FloatArray:
        """Weight of the rows in which two numeric cells are observed, shape (c, c)."""
        observed = (~np.isnan(self.numbers)).astype(np.float64)
        return (observed.T * self.weights) @ observed

    def covariance(self) -> FloatArray:
        """First guess of the covariance from pairs of observed cells, shape (c, c)."""
        chosen = self.numbers[:: max(1, len(self.numbers) // _MAX_GUESS_ROWS)]
        seen = (~np.isnan(chosen)).astype(np.float64)
        cells = np.nan_to_num(chosen)
        result: FloatArray = (cells.T @ cells) / (seen.T @ seen + 2.0)
        np.fill_diagonal(result, 1.0)
        return result

    @property
    def category_counts(self) -> IntArray:
        """Number of categories of each categorical column, shape (q,)."""
        return self.cardinalities[self.cardinalities > 0]

    @cached_property
    def rough_map(self) -> SinhMap:
        """Map that makes numbers nearly normal, from a few of the rows."""
        some = slice(None, None, -(-len(self.weights) // _ROUGH_ROWS))
        return fit_sinh_map(self.numbers[some], self.weights[some])

    @cached_property
    def log_scale(self) -> float:
        """Change of the log-likelihood of all rows by the change of units."""
        observed = self.weights @ ~np.isnan(self.numbers)
        return float(observed @ np.log(self.scale))


def _cut_blocks(missing: BoolArray) -> list[slice]:
    """Cut rows into blocks, many complete ones apart from others; no rows are one block."""
    is_complete = np.logical_not(missing.any(axis=1))
    ends = [0, *(np.flatnonzero(np.diff(is_complete)) + 1).tolist(), len(missing)]
    if missing.size < _BLOCK_CELLS:
        ends = [0, len(missing)]
    blocks = []
    for start, stop in itertools.pairwise(ends):
        # Complete rows need no conditional distributions, and have other arrays to keep in cache
        n_cells = _COMPLETE_BLOCK_CELLS if is_complete[start:stop].all() else _BLOCK_CELLS
        n_rows = max(1, n_cells // max(1, missing.shape[1]))
        blocks += [slice(i, min(i + n_rows, stop)) for i in range(start, stop, n_rows)]
    return blocks or [slice(0, 0)]


def near_range(
    cells: FloatArray, weights: FloatArray, ratio: float = _FAR_RATIO
) -> tuple[float, float]:
    """Bounds of a column's cells (n,) but those `ratio` times as far from the median as others."""
    nothing = -np.inf, np.inf
    seen = ~np.isnan(cells) & (weights > 0)
    values, place = np.unique(cells[seen], return_inverse=True)
    if len(values) <= _FEW_VALUES + 1:
        return nothing
    counts = np.bincount(place, weights[seen])
    total = counts.sum()
    median = float(values[np.searchsorted(np.cumsum(counts), 0.5 * total)])
    with np.errstate(over="ignore"):  # infinite distances are far
        distances = np.abs(values - median)
    order = np.argsort(distances, kind="stable")
    distances = distances[order]
    # Of the numbers that leave more than a few to the others
    first = np.arange(_FEW_VALUES, len(values))
    beyond = np.cumsum(counts[order][::-1])[::-1][first]
    is_few = (beyond <= _FAR_FRACTION * total) | (first >= len(values) - _FEW_FAR)
    is_few &= beyond < _FEW_FAR_FRACTION * total
    with np.errstate(over="ignore"):
        limits = ratio * distances[first - 1]
    is_far = is_few & (limits > 0.0) & (distances[first] >= limits)
    if not is_far.any():
        return nothing
    limit = float(limits[is_far.argmax()])
    return median - limit, median + limit


def mapped_near_range(cells: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Bounds of the cells (n,) that are not far off even where the others are nearly normal."""
    # A number far off in a skewed column may be an ordinary one on the scale of its logarithms
    near = np.array(near_range(cells, weights))[:, None]
    if np.isinf(near).all():
        return -np.inf, np.inf
    # Numbers far off must not decide on the scale on which they are
    sinh_map = fit_sinh_map(without_far(cells[:, None], near), weights)
    mapped = near_range(sinh_map.normal(cells[:, None])[:, 0], weights, _FAR_MAPPED_RATIO)
    if np.isinf(mapped).all():
        return -np.inf, np.inf
    ends = sinh_map.cells(np.array(mapped)[:, None])
    return float(np.minimum(near, ends)[0, 0]), float(np.maximum(near, ends)[1, 0])


def without_far(X: FloatArray, near: FloatArray) -> FloatArray:
    """Cells (n, d) in which those outside of the bounds `near` (2, d) are missing."""
    if np.isinf(near).all():
        return X
    lower, upper = near
    is_far = np.less_equal(X, lower) | np.greater_equal(X, upper)
    return np.where(is_far, np.nan, X)


def _near_range(column: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Bounds of the cells of a column that are not far off; infinite if some are too far off."""
    lower, upper = near_range(column, weights)
    if np.isinf(upper):
        return lower, upper
    inside = column[(column > lower) & (column < upper)]
    unit = np.abs(inside).max()  # squares of small numbers vanish
    reach = max(upper - np.nanmin(column), np.nanmax(column) - lower)
    is_too_far = reach > _MAX_REACH * unit * np.std(inside / unit)
    return (-np.inf, np.inf) if is_too_far else (lower, upper)


def _resolution(column: FloatArray) -> float:
    """Distance of neighbouring values in a column that repeats values, else 0."""
    # Such a column was measured to that accuracy: its cells are treated as intervals, so that a
    # component cannot shrink onto a single value
    cells = column[~np.isnan(column)]
    values = np.unique(cells)
    if len(values) < 2 or len(values) > 0.5 * len(cells):
        return 0.0
    return float(np.median(np.diff(values)))


def _merge_rows(X: FloatArray, weights: FloatArray) -> tuple[IntArray, FloatArray]:
    """Different rows, sorted by missing pattern, then by content, and their total weights."""
    first, inverse = unique_rows(X)
    weights = np.asarray(np.bincount(inverse, weights, minlength=len(first)), dtype=np.float64)
    patterns, pattern = distinct_patterns(np.isnan(X)[first])
    # by the number of missing cells first: blocks of rows then have few sizes of matrices
    pattern = np.argsort(np.argsort(patterns.sum(axis=1), kind="stable"))[pattern]
    order = np.argsort(pattern, kind="stable")
    # sorting by content copies the rows: those of some patterns at a time
    ends = np.append(np.flatnonzero(np.diff(pattern[order])) + 1, len(order))
    start = 0
    while start < len(order):
        stop = ends[min(int(np.searchsorted(ends, start + _SORTED_ROWS)), len(ends) - 1)]
        rows = order[start:stop]
        content = X[first[rows]]
        order[start:stop] = rows[np.lexsort((*content.T[::-1], pattern[rows]))]
        start = stop
    return first[order], weights[order]


def fit_sinh_map(numbers: FloatArray, weights: FloatArray) -> SinhMap:
    """Maps that make columns (n, c) as normal as hyperbolic sines can, given weights (n,)."""
    # The center and curvature of each column are those whose normal variable has the largest
    # likelihood, with its own mean and variance, times the slope of the map (as Box and Cox, 1964,
    # "An Analysis of Transformations", choose a power). All candidates are compared at once.
    maps = [_fit_column(column, weights) for column in numbers.T]
    centers, curvatures = np.array(maps, dtype=np.float64).reshape(-1, 2).T
    return SinhMap(centers, curvatures)


def _fit_column(column: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Center and curvature of one column, both 0 where it stays as it is."""
    seen = np.flatnonzero(~np.isnan(column) & (weights > 0.0))
    seen = seen[:: max(1, len(seen) // _MAX_MAP_CELLS)]
    cells, own = column[seen], weights[seen]
    n_equal = np.unique(cells, return_counts=True)[1]
    if len(n_equal) < _MIN_MAP_VALUES:
        return 0.0, 0.0
    own = own * (len(own) / own.sum())
    location = float(np.average(cells, weights=own))
    scale = float(np.sqrt(np.average(np.square(cells - location), weights=own)))
    cells = (cells - location) / scale
    is_repeated = n_equal.max() > _REPEATED * len(cells)
    best = 0.0, 0.0, 0.0
    for factor in _FINER:
        gain, center, curvature = _best_map(cells, own, factor)
        best = max(best, (gain, center, curvature))
        # The likelihood of repeated values may grow without bound
        if is_repeated or curvature < factor * _CURVATURES.max():
            break
    gain, center, curvature = best
    if gain < _MIN_MAP_GAIN:
        return 0.0, 0.0
    return location + scale * center, curvature / scale


def _best_map(cells: FloatArray, own: FloatArray, factor: float) -> tuple[float, float, float]:
    """Gain, center, curvature of the best of some maps of cells (n,), `factor` times as curved."""
    beyond = _BEYOND / factor
    low, high = cells.min() - beyond, cells.max() + beyond
    centers = np.concatenate([low, np.quantile(cells, _WITHIN), high])
    centers, curvatures = (a.ravel() for a in np.meshgrid(centers, factor * _CURVATURES))
    steps = curvatures[:, None] * (cells - centers[:, None])
    slopes = np.sqrt(1.0 + np.square(steps))
    # arcsinh from the slopes: logarithms and roots take a fraction of its time
    normal = np.copysign(np.log(np.abs(steps) + slopes), steps) / curvatures[:, None]
    spread = normal - (normal @ own / own.sum())[:, None]
    gains = -0.5 * own.sum() * np.log(np.square(spread) @ own / own.sum())
    gains -= np.log(slopes) @ own  # relative to the cells themselves
    found = int(gains.argmax())
    return float(gains[found]), float(centers[found]), float(curvatures[found])
