"""The resolution and the point masses of a column, as used by density learners."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from skcircuits.protocols import MIN_RANGE, BoolArray, FloatArray, IntArray

# Which numbers have a probability of their own: frequent values and all points of grids, frequent
# values, or none.
PointMasses = bool | Literal["frequent"]

# A numerical column with at most this many distinct values, each seen this often on
# average, is made of point masses alone.
FEW_VALUES = 12
ROWS_PER_VALUE = 10
# Elsewhere a point mass holds this fraction of the rows and this many times as many as the
# neighbouring values lead to expect.
HEAVY_FRACTION = 0.05
HEAVY_RATIO = 8.0
# Width, in standard deviations, of the narrowest peak of a column without point masses.
MIN_WIDTH = 0.01
# Distinct values on either side that count as neighbours.
NEIGHBOURS = 5
# Values that are multiples of a step with at most so many decimals lie on a grid; one of up to
# this many points, with ROWS_PER_VALUE rows each on average, is made of point masses too.
MAX_DECIMALS = 9
MAX_GRID = 256
# Candidates for the weight of the pseudo-rows of categories, relative to the given weight.
PSEUDO_ROWS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class MixedColumn:
    """Facts about one column."""

    variable: int
    cardinality: int  # 0 for numbers
    atoms: FloatArray  # (a,), increasing numbers that have a probability of their own
    fractions: FloatArray  # of categories; of atoms, then of other numbers; all positive
    resolution: float = 0.0  # smallest distance between two values
    lower: float = 0.0  # least number
    upper: float = 0.0  # greatest number
    scale: float = 1.0  # standard deviation, positive
    is_grid: bool = False  # atoms are all points of an even grid from `lower` to `upper`

    @property
    def is_smooth(self) -> bool:
        """Whether the column holds numbers without point masses."""
        return not self.cardinality and len(self.atoms) == 0


def describe_column(
    variable: int,
    cells: FloatArray,
    weights: FloatArray,
    cardinality: int,
    point_masses: PointMasses = True,
) -> MixedColumn:
    """Learn the facts about a column.

    `cells` (n,), `weights` (n,). Without `point_masses` every number has a density, which a
    coarse resolution bounds; with "frequent" ones, points of grids have, too.
    """
    seen = ~np.isnan(cells) & (weights > 0)
    cells, weights = cells[seen], weights[seen]
    nothing = np.empty(0)
    if cardinality:
        counts = np.bincount(cells.astype(np.intp), weights, minlength=cardinality).astype(float)
        return MixedColumn(variable, cardinality, nothing, _smoothed_fractions(counts))
    if len(cells) == 0:
        return MixedColumn(variable, 0, nothing, np.ones(1), 1.0, -0.5, 0.5)
    values, place = np.unique(cells, return_inverse=True)
    counts = np.bincount(place, weights).astype(float)
    resolution = _resolution(values)
    mean = np.average(values, weights=counts)
    spread = float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    atoms, is_grid = nothing, False
    if not point_masses:
        resolution = max(resolution, MIN_WIDTH * spread)
    else:
        atoms = values[_heavy_values(values, counts, np.bincount(place), resolution)]
        is_wanted = point_masses is True and len(atoms) < len(values)
        points = _grid_points(values, counts.sum()) if is_wanted else None
        if points is not None:
            atoms, is_grid = points, True
            resolution = (points[-1] - points[0]) / (len(points) - 1)
    place = np.searchsorted(atoms, values)
    is_atom = np.isin(values, atoms)
    place[~is_atom] = len(atoms)
    return MixedColumn(
        variable,
        0,
        atoms,
        _smoothed_fractions(np.bincount(place, counts, minlength=len(atoms) + 1).astype(float)),
        resolution,
        float(values[0]),
        float(values[-1]),
        float(max(spread, resolution)),
        is_grid,
    )


def standardized(cells: FloatArray, weights: FloatArray) -> FloatArray:
    """Columns (n, d) with weighted mean 0 and variance 1 of the observed cells, 0 where missing."""
    seen = ~np.isnan(cells)
    total = np.maximum(weights @ seen, 1e-300)
    centred = np.where(seen, cells - weights @ np.where(seen, cells, 0.0) / total, 0.0)
    variance = weights @ centred**2 / total
    return centred / np.sqrt(np.where(variance > 0, variance, 1.0))


def rank_fractions(column: FloatArray, weights: FloatArray) -> FloatArray:
    """Mid-ranks (n,) as fractions of the weight (n,): the empirical distribution function."""
    fractions = np.full(len(column), np.nan)
    seen = ~np.isnan(column)
    if seen.any():
        _, place = np.unique(column[seen], return_inverse=True)
        counts = np.bincount(place, weights[seen])
        ends = np.cumsum(counts)
        fractions[seen] = ((ends - counts / 2) / ends[-1])[place]
    return fractions


def frequencies(codes: FloatArray, n_categories: int) -> FloatArray:
    """Fractions (n_categories,) of the observed codes (n,), zero where there are none."""
    counts = np.bincount(codes[~np.isnan(codes)].astype(np.intp), minlength=n_categories)
    return np.asarray(counts / max(1, counts.sum()))


def smoothed_masses(counts: FloatArray, priors: FloatArray, smoothing: float) -> FloatArray:
    """Probabilities (n_groups, n_categories) of categories in some groups of rows.

    As many pseudo-rows in all groups as make rows that are left out of their group likeliest: few
    where nearly all groups hold one category each.

    `counts`, `priors` (n_groups, n_categories); `smoothing`: usual number of pseudo-rows.
    """
    pseudo_rows = smoothing * np.array(PSEUDO_ROWS)[:, None, None]
    # Leave-one-out: each row's category is predicted without it
    others = counts - np.minimum(counts, 1.0) + pseudo_rows * priors
    totals = np.maximum(counts.sum(axis=1, keepdims=True) - 1.0, 0.0) + pseudo_rows
    scores = (counts * np.log(others / totals)).sum(axis=(1, 2))
    masses = counts + pseudo_rows[scores.argmax()] * priors
    return np.asarray(masses / masses.sum(axis=1, keepdims=True))


def _smoothed_fractions(counts: FloatArray) -> FloatArray:
    """Fractions after adding one pseudo-row, spread evenly."""
    return (counts + 1.0 / len(counts)) / (counts.sum() + 1.0)


def _resolution(values: FloatArray) -> float:
    """Smallest gap that a density can resolve; a thousandth of a single value (or of one)."""
    if len(values) > 1:
        return float(max(np.diff(values).min(), MIN_RANGE))
    return 1e-3 * max(1.0, abs(float(values[0])))


def _heavy_values(
    values: FloatArray, counts: FloatArray, n_rows: IntArray, resolution: float
) -> BoolArray:
    """Mark the values that are point masses; `counts` (n_values,) are sums of weights."""
    total = counts.sum()
    if len(values) <= FEW_VALUES and total >= ROWS_PER_VALUE * len(values):
        return np.ones(len(values), dtype=bool)
    number = np.arange(len(values))
    first = np.maximum(number - NEIGHBOURS, 0)
    last = np.minimum(number + NEIGHBOURS, len(values) - 1)
    ends = np.cumsum(counts)
    neighbours = ends[last] - ends[first] + counts[first] - counts
    width = np.maximum(values[last] - values[first], resolution)
    expected = neighbours * resolution / width
    # One row tells nothing about its value, unless it stands for several
    is_repeated = np.maximum(n_rows, counts) > 1
    return is_repeated & (counts >= HEAVY_FRACTION * total) & (counts > HEAVY_RATIO * expected)


def _grid_points(values: FloatArray, total: float) -> FloatArray | None:
    """Points of the coarsest grid that increasing values lie on; None where rows are too few.

    Both integers and decimals are counted in the last decimal: the common divisor of their
    differences is exact, and every point is the number that its decimals are read as.
    """
    if len(values) < 2 or np.abs(values).max() * 10.0**MAX_DECIMALS > 2.0**52:
        return None
    for decimals in range(MAX_DECIMALS + 1):
        if np.array_equal(np.round(values, decimals), values):
            break
    else:
        return None
    unit = 10**decimals
    numbers = np.rint(values * unit).astype(np.int64)
    step = int(np.gcd.reduce(np.diff(numbers)))
    n_points = (int(numbers[-1]) - int(numbers[0])) // step + 1
    if n_points > MAX_GRID or total < ROWS_PER_VALUE * n_points:
        return None
    return np.arange(numbers[0], numbers[-1] + 1, step) / unit
