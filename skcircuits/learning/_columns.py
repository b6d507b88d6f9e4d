"""Columns as density learners see them: resolution, point masses, cells, smoothed counts of cells.

The cells of a column are its point masses, intervals that cover its range, and the tails beyond
either end. A value of several rows has an interval of its own, as wide as the column's
resolution, so that values have the probability of the interval in which they were recorded.
Counts of cells are smoothed into a histogram: a fraction of each count remains in its cell, the
rest is spread over cells of similar rank. Fraction and bandwidth are chosen by leave-one-out.
Smoothing does not cross breaks, numbers at which the frequencies of some categories jump.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.special import xlogy

from skcircuits.circuits import PiecewisePolynomial
from skcircuits.circuits.inputs.polynomial._pieces import basis_cdf
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import linked_histogram
from skcircuits.learning._polynomials import (
    Density,
    PolynomialSettings,
    Samples,
    fit_densities,
    tail_fraction,
)
from skcircuits.numerics._arrays import distinct_values
from skcircuits.protocols import MIN_RANGE, FloatArray, IntArray

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
MAX_CELLS = 128
# Most groups of numbers without point masses, and rows of each: in a mixture, every component has
# as many parameters
_MAX_GROUPS, _GROUP_ROWS = 8, 10.0
# Candidates: the part of a count that stays in its cell, and how far in ranks the rest spreads.
KEPT = (0.0, 0.3, 0.6, 0.9)
REACHES = (0.01, 0.03, 0.1, 0.3)
# Rows on either side that show whether categories jump: few, as trends are flat among them.
BREAK_FRACTION, BREAK_ROWS = 0.05, (8, 50)


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
    """Learn the facts about a column of cells (n,) with weights (n,)."""
    # Without `point_masses` every number has a density, which a coarse resolution bounds; with
    # "frequent" ones, points of grids have, too
    seen = ~np.isnan(cells) & (weights > 0)
    cells, weights = cells[seen], weights[seen]
    if cardinality:
        counts = np.bincount(cells.astype(np.intp), weights, minlength=cardinality).astype(float)
        return MixedColumn(variable, cardinality, np.empty(0), _smoothed_fractions(counts))
    if len(cells) == 0:
        return MixedColumn(variable, 0, np.empty(0), np.ones(1), 1.0, -0.5, 0.5)
    values, counts, n_rows = distinct_values(cells, weights)
    mean = np.average(values, weights=counts)
    spread = float(np.sqrt(np.average((values - mean) ** 2, weights=counts)))
    resolution = _resolution(values)
    if point_masses:
        atoms, is_grid, resolution = _atoms(values, counts, n_rows, resolution, point_masses)
    else:
        atoms, is_grid = np.empty(0), False
        resolution = max(resolution, MIN_WIDTH * spread)
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


def _atoms(
    values: FloatArray,
    counts: FloatArray,
    n_rows: IntArray,
    resolution: float,
    point_masses: PointMasses,
) -> tuple[FloatArray, bool, float]:
    """Numbers with point masses, whether they are a whole grid, and the resolution."""
    atoms = frequent_values(values, counts, n_rows, resolution)
    is_wanted = point_masses is True and len(atoms) < len(values)
    points = _grid_points(values, counts.sum()) if is_wanted else None
    if points is None:
        return atoms, False, resolution
    return points, True, (points[-1] - points[0]) / (len(points) - 1)


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
    """Probabilities (n_groups, n_categories) of categories in some groups of rows."""
    # As many pseudo-rows in all groups as make rows that are left out of their group likeliest: few
    # where nearly all groups hold one category each
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


def few_numbers(cells: FloatArray, weights: FloatArray) -> FloatArray:
    """The numbers of cells (n,), increasing, if few are seen often on average; else none."""
    seen = ~np.isnan(cells) & (weights > 0)
    values = np.unique(cells[seen])
    is_few = 1 < len(values) <= FEW_VALUES and weights[seen].sum() >= ROWS_PER_VALUE * len(values)
    return values if is_few else np.empty(0)


def frequent_values(
    values: FloatArray, counts: FloatArray, n_rows: IntArray, resolution: float | None = None
) -> FloatArray:
    """Those of increasing values (n_values,) that are point masses.

    `counts`: sums of weights; `resolution`: that of the values by default.
    """
    resolution = _resolution(values) if resolution is None else resolution
    total = counts.sum()
    if len(values) <= FEW_VALUES and total >= ROWS_PER_VALUE * len(values):
        return values
    number = np.arange(len(values))
    first = np.maximum(number - NEIGHBOURS, 0)
    last = np.minimum(number + NEIGHBOURS, len(values) - 1)
    ends = np.cumsum(counts)
    neighbours = ends[last] - ends[first] + counts[first] - counts
    width = np.maximum(values[last] - values[first], resolution)
    expected = neighbours * resolution / width
    # One row tells nothing about its value, unless it stands for several
    is_repeated = np.maximum(n_rows, counts) > 1
    is_heavy = is_repeated & (counts >= HEAVY_FRACTION * total) & (counts > HEAVY_RATIO * expected)
    return values[is_heavy]


def _grid_points(values: FloatArray, total: float) -> FloatArray | None:
    """Points of the coarsest grid that increasing values lie on; None where rows are too few."""
    # Both integers and decimals are counted in the last decimal: the common divisor of their
    # differences is exact, and every point is the number that its decimals are read as
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


@dataclass(frozen=True)
class ColumnCells:
    """The cells of one numerical column: point masses, then intervals, then the tails."""

    column: MixedColumn
    edges: FloatArray  # (G + 1,), ends of the intervals
    smooth: FloatArray  # (G,), probabilities of the intervals under a smooth density
    tail: float  # probability of either tail
    breaks: FloatArray = field(default_factory=lambda: np.empty(0))

    @classmethod
    def fit(cls, column: MixedColumn, values: FloatArray, weights: FloatArray) -> ColumnCells:
        """Cut the range of the observed values (n,) of a column, which may be none."""
        return cls.fit_all([column], [values], [weights])[0]

    @classmethod
    def fit_all(
        cls,
        columns: Sequence[MixedColumn],
        values: Sequence[FloatArray],
        weights: Sequence[FloatArray],
    ) -> list[ColumnCells]:
        """Cut the ranges of several columns; their smooth densities are fitted together."""
        inner = [
            ~np.isin(own, column.atoms) & (weight > 0)
            for column, own, weight in zip(columns, values, weights, strict=True)
        ]
        numbers = [own[kept] for own, kept in zip(values, inner, strict=True)]
        parts = [own[kept] for own, kept in zip(weights, inner, strict=True)]
        # One call for all columns: they are many and small
        spread = [i for i, part in enumerate(parts) if len(part)]
        densities: dict[int, Density] = {}
        if spread:
            resolutions = [columns[i].resolution for i in spread]
            samples = Samples.summarize(
                [numbers[i] for i in spread], [parts[i] for i in spread], resolutions
            )
            densities = dict(zip(spread, fit_densities(samples, PolynomialSettings()), strict=True))
        return [
            cls._cut(column, numbers[i], parts[i], float(weights[i].sum()), densities.get(i))
            for i, column in enumerate(columns)
        ]

    @classmethod
    def _cut(
        cls,
        column: MixedColumn,
        inner: FloatArray,
        weights: FloatArray,
        total: float,
        density: Density | None,
    ) -> ColumnCells:
        """Cells of a column from its numbers without point masses and their smooth density."""
        # Where point masses hold nearly all rows, little is left for either tail.
        rest = (weights.sum() + 1.0 / (len(column.atoms) + 1)) / (total + 1.0)
        # Where they hold all, no more than the next of all rows may lie beyond them.
        seen = total if density is None else weights.sum()
        tail = float(rest * tail_fraction(np.array([seen]))[0])
        half = column.resolution / 2
        if density is None:
            edges = np.array([column.lower - half, column.upper + half])
            return cls(column, edges, np.ones(1), tail)
        edges = _edges(inner, weights, column.resolution)
        degree = len(density.weights) - len(density.knots) + 1
        masses = np.diff(basis_cdf(edges[None], density.knots[None], degree)[0], axis=0)
        # A thousandth of a uniform one: no interval is impossible
        smooth = masses @ density.weights + 1e-3 * np.diff(edges) / (edges[-1] - edges[0])
        return cls(column, edges, smooth / smooth.sum(), tail)

    def broken(self, breaks: FloatArray) -> ColumnCells:
        """Cut the intervals at increasing numbers, beyond which no count spreads."""
        # Those next to the ends of intervals differ from them by rounding
        apart = np.abs(breaks[:, None] - self.edges).min(axis=1) > 1e-3 * self.column.resolution
        inner = (breaks > self.edges[0]) & (breaks < self.edges[-1])
        edges = np.union1d(self.edges, breaks[apart & inner])
        inside = np.searchsorted(self.edges, edges[:-1], side="right") - 1
        smooth = self.smooth[inside] * np.diff(edges) / np.diff(self.edges)[inside]
        return replace(self, edges=edges, smooth=smooth, breaks=breaks)

    @property
    def n_cells(self) -> int:
        return self._n_atoms + len(self.smooth) + 2

    @property
    def _n_atoms(self) -> int:
        return len(self.column.atoms)

    def encode(self, values: FloatArray) -> FloatArray:
        """Number the cells of values (n,); NaN where missing."""
        interval = np.searchsorted(self.edges, values, side="right") - 1
        codes = self._n_atoms + np.minimum(interval, len(self.smooth) - 1).astype(float)
        codes[values < self.edges[0]] = self.n_cells - 2
        codes[values > self.edges[-1]] = self.n_cells - 1
        if self._n_atoms:
            atoms = self.column.atoms
            place = np.minimum(np.searchsorted(atoms, values), self._n_atoms - 1)
            codes = np.where(atoms[place] == values, place, codes)
        codes[np.isnan(values)] = np.nan
        return codes

    def log_densities(self, values: FloatArray) -> FloatArray:
        """Log densities of values (n,) within their cells, 0 for point masses; NaN if missing."""
        codes = self.encode(values)
        place = np.nan_to_num(codes).astype(np.intp)
        beyond = np.maximum(self.edges[0] - values, values - self.edges[-1]) / self._tail_scale
        widths = np.concatenate([np.ones(self._n_atoms), np.diff(self.edges), np.ones(2)])
        logs = np.where(
            place < self.n_cells - 2, -np.log(widths)[place], -beyond - np.log(self._tail_scale)
        )
        return np.where(np.isnan(codes), np.nan, logs)

    def below(self, limits: FloatArray) -> FloatArray:
        """Fractions (n_cells, L) of the cells that lie below some limits (L,)."""
        lower, width = self.edges[:-1, None], np.diff(self.edges)[:, None]
        gaps = np.maximum(self.edges[0] - limits, 0.0), np.maximum(limits - self.edges[-1], 0.0)
        left, right = (np.exp(-gap / self._tail_scale) for gap in gaps)
        return np.vstack(
            [
                self.column.atoms[:, None] < limits,
                np.clip((limits - lower) / width, 0.0, 1.0),
                left,
                1.0 - right,
            ]
        )

    @property
    def _tail_scale(self) -> float:
        """Mean distance from the intervals in either tail."""
        return float(max(self.column.scale, self.column.resolution))

    def choose_smoother(
        self, counts: FloatArray, pseudo_count: float
    ) -> tuple[FloatArray, FloatArray]:
        """Operator on counts (n_states, n_cells) and prior (n_cells,), by left-out rows."""
        # A row that is left out of its state finds its own cell's count less one
        own, columns = np.minimum(counts, 1.0), counts.sum(axis=0)
        totals = np.maximum(counts.sum(axis=1, keepdims=True) - 1.0, 0.0) + pseudo_count
        spread = counts @ self._spreads  # (n_spreads, n_states, n_cells)
        spread_own = own * np.diagonal(self._spreads, axis1=1, axis2=2)[:, None]
        # all operators at once: states and cells are few, and calls take most of the time
        kept = np.array(KEPT)[:, None]
        priors = self._priors(columns, (columns @ self._spreads)[:, None], kept)
        others = (
            kept[..., None] * (counts - own)
            + (1.0 - kept[..., None]) * (spread - spread_own)[:, None]
        )
        likelihood = np.maximum(others + pseudo_count * priors[:, :, None], 1e-300) / totals
        scores = (counts * np.log(likelihood)).sum(axis=(2, 3))
        best, choice = np.unravel_index(scores.argmax(), scores.shape)
        smoother = KEPT[choice] * np.eye(self.n_cells) + (1.0 - KEPT[choice]) * self._spreads[best]
        return smoother, priors[best, choice]

    @cached_property
    def _spreads(self) -> FloatArray:
        """Operators (n_spreads, n_cells, n_cells) that spread counts of neighbouring cells."""
        if self.column.is_grid:
            # As the column has them: some points may be more common than others by nature
            inner, places, masses = (
                slice(self._n_atoms),
                self.column.atoms,
                self.column.fractions[:-1],
            )
        else:
            inner, places = slice(self._n_atoms, -2), (self.edges[:-1] + self.edges[1:]) / 2
            masses = self.smooth
        ranks = np.cumsum(masses) - masses / 2
        side = np.searchsorted(self.breaks, places, side="right")
        masses = masses * (side[:, None] == side)
        spreads = []
        for reach in REACHES:
            operator = np.eye(self.n_cells)
            near = masses * np.exp(-0.5 * ((ranks[:, None] - ranks) / reach) ** 2)
            operator[inner, inner] = near / near.sum(axis=1, keepdims=True)
            spreads.append(operator)
        return np.stack(spreads)

    def _priors(self, counts: FloatArray, spread: FloatArray, kept: FloatArray) -> FloatArray:
        """Probabilities (..., n_cells) of the column itself: smoothed counts and one row more."""
        pseudo = np.zeros(self.n_cells)
        pseudo[: self._n_atoms] = 1.0 / (self._n_atoms + 1)
        pseudo[self._n_atoms : -2] = self.smooth / (self._n_atoms + 1)
        return self.normalized(kept * counts + (1.0 - kept) * spread + pseudo)

    def normalized(self, counts: FloatArray) -> FloatArray:
        """Divide smoothed counts (..., n_cells) by their sums; tails are as probable everywhere."""
        probabilities = counts.copy()
        probabilities[..., -2:] = 0.0
        probabilities *= (1.0 - 2.0 * self.tail) / probabilities.sum(axis=-1, keepdims=True)
        probabilities[..., -2:] = self.tail
        return probabilities

    def unit(self, probabilities: FloatArray) -> PiecewisePolynomial:
        """The histogram with these probabilities (n_cells,) as an input unit."""
        return linked_histogram(
            self.column.variable,
            weights=probabilities[self._n_atoms : -2].copy(),
            atom_masses=probabilities[: self._n_atoms],
            knots=self.edges,
            atoms=self.column.atoms,
            tail_masses=probabilities[-2:].copy(),
            tail_scales=np.full(2, self._tail_scale),
        )


@dataclass(frozen=True, eq=False)
class GroupedColumn:
    """A numerical column as groups of its cells, as a categorical column has categories.

    Each frequent value has a probability of its own, and so have a few groups of other numbers.
    Within a group, numbers are distributed as in the whole table.
    """

    cells: ColumnCells
    groups: IntArray  # (n_cells,), each point mass one of its own
    fractions: FloatArray  # (n_cells,), probabilities given the group
    log_density: float  # mean over left-out rows without point masses

    @classmethod
    def fit_all(
        cls, columns: Sequence[MixedColumn], X: FloatArray, weights: FloatArray
    ) -> list[GroupedColumn]:
        """Group the cells of some columns of a table (n, d)."""
        seen = [~np.isnan(X[:, c.variable]) & (weights > 0) for c in columns]
        values = [X[own, c.variable] for c, own in zip(columns, seen, strict=True)]
        parts = [weights[own] for own in seen]
        cells = ColumnCells.fit_all(columns, values, parts)
        return [cls._group(*own) for own in zip(cells, values, parts, strict=True)]

    @classmethod
    def _group(cls, cells: ColumnCells, values: FloatArray, weights: FloatArray) -> GroupedColumn:
        """Group the cells of one column by their frequencies."""
        n_atoms = len(cells.column.atoms)
        codes = cells.encode(values).astype(np.intp)
        counts = np.bincount(codes, weights, minlength=cells.n_cells).astype(np.float64)
        # Frequencies of neighbouring cells are smoothed as in a tree with a single state
        smoother, masses = cells.choose_smoother(counts[None], 1.0)
        others = masses[n_atoms:-2]
        n_groups = int(np.clip(counts[n_atoms:].sum() // _GROUP_ROWS, 1, _MAX_GROUPS))
        ranks = (np.cumsum(others) - others / 2) / others.sum()
        inner = np.unique(np.floor(ranks * n_groups), return_inverse=True)[1]
        # The tails belong to the outermost groups
        groups = np.concatenate([np.arange(n_atoms), n_atoms + inner, n_atoms + inner[[0, -1]]])
        fractions = masses / np.bincount(groups, masses)[groups]
        return cls(cells, groups, fractions, _mean_left_out(cells, counts, masses, smoother))

    @property
    def n_groups(self) -> int:
        return int(self.groups.max()) + 1

    def encode(self, values: FloatArray) -> FloatArray:
        """Number the groups of values (n,); NaN where missing."""
        cells = self.cells.encode(values)
        return np.where(np.isnan(cells), np.nan, self.groups[np.nan_to_num(cells).astype(np.intp)])

    def unit(self, probabilities: FloatArray) -> PiecewisePolynomial:
        """The distribution with probabilities (n_groups,) of the groups."""
        return self.cells.unit(self.cell_probabilities(probabilities))

    def cell_probabilities(self, probabilities: FloatArray) -> FloatArray:
        """Probabilities (..., n_cells) of the cells from those of the groups (..., n_groups)."""
        return self.cells.normalized(probabilities[..., self.groups] * self.fractions)


def _mean_left_out(
    cells: ColumnCells, counts: FloatArray, masses: FloatArray, smoother: FloatArray
) -> float:
    """Mean log density of a row under the smoothed histogram of the others, (n_cells,) cells."""
    inner = slice(len(cells.column.atoms), -2)
    own = np.minimum(counts, 1.0) * np.diagonal(smoother)
    likely = (counts @ smoother - own + masses)[inner] / max(counts.sum(), 1.0)
    logs = np.log(likely) - np.log(np.diff(cells.edges))
    return float(counts[inner] @ logs / max(counts[inner].sum(), 1e-300))


def sharp_breaks(values: FloatArray, codes: FloatArray, weights: FloatArray) -> FloatArray:
    """Increasing numbers at which the frequencies of categories jump; all arguments are (n,)."""
    # Between two numbers lies a break if the rows next to it on either side have other frequencies
    # by the Bayesian information criterion, which counts the place as a parameter, too
    seen = np.flatnonzero(~np.isnan(values) & ~np.isnan(codes) & (weights > 0))
    order = seen[np.argsort(values[seen], kind="stable")]
    values, weights = values[order], weights[order]
    labels, label = np.unique(codes[order], return_inverse=True)
    places = np.flatnonzero(np.diff(values) > 0) + 1
    if len(labels) < 2 or len(places) == 0:
        return np.empty(0)
    reach = int(np.clip(BREAK_FRACTION * len(values), *BREAK_ROWS))
    ends = np.zeros((len(values) + 1, len(labels)))
    np.cumsum(weights[:, None] * (label[:, None] == np.arange(len(labels))), axis=0, out=ends[1:])
    left = ends[places] - ends[np.maximum(places - reach, 0)]
    right = ends[np.minimum(places + reach, len(values))] - ends[places]
    gain = log_likelihood(left) + log_likelihood(right) - log_likelihood(left + right)
    # The first term pays for the choice of the place, the second for one more set of frequencies
    gain -= np.log(len(places)) + 0.5 * (len(labels) - 1) * np.log(2.0 * reach)
    breaks = []
    while gain.max() > 0:
        best = places[gain.argmax()]
        breaks.append((values[best - 1] + values[best]) / 2)
        # The same jump shows at all places within reach
        gain[np.abs(places - best) < reach] = -np.inf
    return np.sort(breaks)


def log_likelihood(counts: FloatArray) -> FloatArray:
    """Log likelihood (n,) of counts (n, k) under their own frequencies."""
    total = counts.sum(axis=1)
    return np.asarray(xlogy(counts, counts).sum(axis=1) - xlogy(total, total))


def _edges(values: FloatArray, weights: FloatArray, resolution: float) -> FloatArray:
    """Ends of the intervals: values of several rows apart, others in groups of equal weight."""
    distinct, place = np.unique(values, return_inverse=True)
    counts = np.bincount(place, weights)
    half = resolution / 2
    limits = distinct[0] - half, distinct[-1] + half
    # Up to a third of the intervals around single values: the others lie between them.
    shared = np.flatnonzero(counts > 1.0)
    shared = shared[np.argsort(-counts[shared], kind="stable")[: MAX_CELLS // 3]]
    around = np.concatenate([distinct[shared] - half, distinct[shared] + half])
    n_left = MAX_CELLS - 2 * len(shared)
    ends = np.cumsum(counts)
    middle = (ends - counts / 2) / ends[-1] * n_left
    group = np.floor(middle)
    # The outermost groups are halved towards the ends, where densities fall, down to two rows
    beyond = np.minimum(middle, n_left - middle)
    most = max(0.0, np.floor(np.log2(ends[-1] / n_left)) - 1.0)
    steps = np.clip(np.floor(-np.log2(beyond)), 0.0, most)
    group += np.where(middle > n_left / 2, steps, -steps)
    firsts = np.flatnonzero(np.diff(group) > 0) + 1
    between = (distinct[firsts - 1] + distinct[firsts]) / 2
    edges = np.unique(np.concatenate([limits, around, between]))
    edges = edges[(edges >= limits[0]) & (edges <= limits[1])]
    # Two sums of the same numbers may differ by rounding
    kept = np.append(True, np.diff(edges) > 1e-3 * resolution)
    edges = edges[kept]
    edges[-1] = limits[1]
    return edges
