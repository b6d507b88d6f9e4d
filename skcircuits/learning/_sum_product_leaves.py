"""Input units of regions, with which the recursion of structure learning ends.

A region is a set of rows and a set of variables. Its units, over disjoint variables, are the
factors of its distribution.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from skcircuits.circuits import Categorical, Gaussian, MultivariateGaussian, PiecewisePolynomial
from skcircuits.circuits.inputs import InputUnit
from skcircuits.learning._columns import ColumnCells, MixedColumn, describe_column, smoothed_masses
from skcircuits.learning._polynomials import (
    Density,
    PolynomialSettings,
    Samples,
    fit_densities,
    tail_fraction,
)
from skcircuits.learning.gaussian_mixture._learner import EMSettings, learn_gaussian_mixture
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.protocols import FloatArray, IntArray

LeafFamily = Literal["polynomial", "histogram", "gaussian", "multivariate"]
# Per variable of a region: fractions that its pseudo-rows have
Priors = Mapping[int, FloatArray]


@dataclass(frozen=True)
class MixedTable:
    """Rows (n, d) of numbers and codes, NaN where missing, weights (n,), facts about `columns`."""

    X: FloatArray
    weights: FloatArray
    columns: tuple[MixedColumn, ...]

    @classmethod
    def describe(
        cls,
        X: FloatArray,
        weights: FloatArray,
        cardinalities: Iterable[int],
        point_masses: bool | Literal["frequent"] = True,
    ) -> MixedTable:
        """Find out the facts about the columns; `cardinalities` (d,) are 0 for numbers."""
        columns = tuple(
            describe_column(j, X[:, j], weights, int(cardinality), point_masses)
            for j, cardinality in enumerate(cardinalities)
        )
        return cls(X, weights, columns)

    def cells(self, rows: IntArray, variable: int) -> tuple[FloatArray, FloatArray]:
        """Observed cells (k,) of a column in some rows (m,), and their weights."""
        cells = self.X[rows, variable]
        seen = ~np.isnan(cells)
        return cells[seen], self.weights[rows][seen]

    def fractions(self, rows: IntArray, variable: int, pseudo_counts: FloatArray) -> FloatArray:
        """Fractions of a column's categories, or of its atoms and the rest, in some rows.

        `rows` (m,), `pseudo_counts` (k,), positive -> (k,).
        """
        column = self.columns[variable]
        cells, weights = self.cells(rows, variable)
        if column.cardinality:
            place = cells.astype(np.intp)
        else:
            place = np.searchsorted(column.atoms, cells)
            # Values that are not atoms have the last index
            place[~np.isin(cells, column.atoms)] = len(column.atoms)
        counts = np.bincount(place, weights, minlength=len(pseudo_counts)) + pseudo_counts
        return counts / counts.sum()


@dataclass(frozen=True)
class LeafSettings:
    """How to fit the input units."""

    family: LeafFamily = "polynomial"  # of numbers, polynomials where there are point masses
    polynomials: PolynomialSettings = field(default_factory=PolynomialSettings)
    smoothing: float = 1.0  # pseudo-rows of each unit

    def without_degrees(self) -> LeafSettings:
        """Give settings that take a small part of the time."""
        return replace(self, polynomials=replace(self.polynomials, max_degree=0))


def fit_leaves(
    table: MixedTable,
    regions: Sequence[tuple[IntArray, tuple[int, ...], Priors]],
    settings: LeafSettings,
) -> list[list[InputUnit]]:
    """Fit the units of factorised regions, those of one family all together."""
    units: list[list[InputUnit]] = [[] for _ in regions]
    polynomials: list[tuple[int, IntArray, MixedColumn, FloatArray]] = []
    grids: dict[int, list[tuple[int, IntArray, FloatArray]]] = defaultdict(list)
    categorical: dict[int, list[tuple[int, IntArray, FloatArray]]] = defaultdict(list)
    for number, (rows, variables, priors) in enumerate(regions):
        smooth = []
        for variable in variables:
            column = table.columns[variable]
            if column.cardinality:
                categorical[variable].append((number, rows, priors[variable]))
            elif column.is_grid:
                grids[variable].append((number, rows, priors[variable]))
            elif column.is_smooth and settings.family in ("gaussian", "multivariate"):
                smooth.append(column)
            else:
                polynomials.append((number, rows, column, priors[variable]))
        units[number] += _fit_gaussians(table, rows, smooth, settings)
    samples = [(rows, column, prior) for _, rows, column, prior in polynomials]
    for (number, *_), unit in zip(polynomials, _fit_polynomials(table, samples, settings)):
        units[number].append(unit)
    for variable, entries in [*categorical.items(), *grids.items()]:
        fit: Callable[..., Sequence[InputUnit]]
        fit = _fit_grid if variable in grids else _fit_categories
        places = [(rows, prior) for _, rows, prior in entries]
        fitted = fit(table, table.columns[variable], places, settings.smoothing)
        for (number, *_), leaf in zip(entries, fitted):
            units[number].append(leaf)
    return units


def _fit_gaussians(
    table: MixedTable, rows: IntArray, columns: list[MixedColumn], settings: LeafSettings
) -> list[InputUnit]:
    """One joint normal distribution, or one per column."""
    if not columns:
        return []
    if settings.family == "multivariate" and len(columns) > 1:
        return [_fit_joint(table, rows, columns, settings.smoothing)]
    units: list[InputUnit] = []
    for column in columns:
        cells, weights = table.cells(rows, column.variable)
        total = weights.sum() + settings.smoothing
        # Pseudo-rows have the moments of the whole column: few rows keep its width
        middle = (column.lower + column.upper) / 2
        mean = (weights @ cells + settings.smoothing * middle) / total if total else middle
        scatter = weights @ (cells - mean) ** 2 + settings.smoothing * column.scale**2
        variance = scatter / total if total else column.scale**2
        # Numbers are rounded to the resolution: no unit is narrower than rounding
        units.append(Gaussian(column.variable, mean, max(np.sqrt(variance), column.resolution / 4)))
    return units


def _fit_joint(
    table: MixedTable, rows: IntArray, columns: list[MixedColumn], smoothing: float
) -> MultivariateGaussian:
    """Joint normal distribution of rows with missing cells, by EM."""
    variables = [column.variable for column in columns]
    scale = np.array([column.scale for column in columns])
    prepared = MixtureTable.prepare(
        table.X[rows[:, None], variables],
        np.zeros(len(columns), dtype=np.int64),
        table.weights[rows],
    )
    # Without any prior, covariances of few rows are singular
    em = EMSettings(pseudo_count=max(smoothing, 1e-3), n_init=1)
    *_, state = learn_gaussian_mixture(prepared, 1, em, np.random.default_rng(0))
    means, covariances, *_ = state.gaussians.in_units(prepared.location, prepared.scale)
    # A column that is constant in the region keeps a little of its overall spread
    floor = np.diag((1e-3 * scale) ** 2)
    return MultivariateGaussian(variables, means[0], covariances[0] + floor)


def _fit_grid(
    table: MixedTable,
    column: MixedColumn,
    samples: list[tuple[IntArray, FloatArray]],
    smoothing: float,
) -> list[PiecewisePolynomial]:
    """Masses of the points of a grid: counts of a region spread to neighbouring points."""
    grid = ColumnCells.fit(column, *table.cells(np.flatnonzero(table.weights > 0), column.variable))
    counts = _counts(table, column.variable, samples, grid.encode, grid.n_cells)
    # One operator for all regions: each alone has too few rows to choose it
    smoother, _ = grid.choose_smoother(counts, smoothing)
    masses = counts @ smoother
    masses[:, :-2] += smoothing * np.array([prior for _, prior in samples])
    return [grid.unit(row) for row in grid.normalized(masses)]


def _fit_categories(
    table: MixedTable,
    column: MixedColumn,
    samples: list[tuple[IntArray, FloatArray]],
    smoothing: float,
) -> list[Categorical]:
    """Probabilities of a column's categories in some regions."""
    priors = np.array([prior for _, prior in samples])
    counts = _counts(table, column.variable, samples, np.asarray, priors.shape[1])
    masses = smoothed_masses(counts, priors, smoothing)
    return [Categorical(column.variable, row) for row in masses]


def _counts(
    table: MixedTable,
    variable: int,
    samples: list[tuple[IntArray, FloatArray]],
    encode: Callable[[FloatArray], FloatArray],
    n_codes: int,
) -> FloatArray:
    """Weights (n_samples, n_codes) of the codes of a column in some regions."""
    found = (table.cells(rows, variable) for rows, _ in samples)
    return np.stack(
        [np.bincount(encode(x).astype(np.intp), w, minlength=n_codes) for x, w in found]
    )


def _fit_polynomials(
    table: MixedTable,
    samples: list[tuple[IntArray, MixedColumn, FloatArray]],
    settings: LeafSettings,
) -> list[PiecewisePolynomial]:
    """Piecewise polynomials with tails and point masses."""
    found = [_off_atoms(*table.cells(rows, c.variable), c.atoms) for rows, c, _ in samples]
    present = [i for i, (cells, _) in enumerate(found) if len(cells)]
    densities: dict[int, Density] = {}
    if present:
        # All at once: fits of many small samples are one batch
        summary = Samples.summarize(
            [found[i][0] for i in present],
            [found[i][1] for i in present],
            [samples[i][1].resolution for i in present],
        )
        densities = dict(zip(present, fit_densities(summary, settings.polynomials)))
    units = []
    for i, (rows, column, prior) in enumerate(samples):
        fractions = table.fractions(rows, column.variable, settings.smoothing * prior)
        half = column.resolution / 2
        # A region without numbers off the atoms: uniform over the column's range
        whole = np.array([column.lower - half, column.upper + half])
        knots, weights, beyond = densities.get(i, Density(whole, np.ones(1), np.zeros(2)))
        tails, scale = _tails(column, *found[i], beyond)
        rest = fractions[-1]
        units.append(
            PiecewisePolynomial(
                column.variable,
                knots,
                weights / weights.sum() * (rest * (1.0 - tails.sum())),
                column.atoms,
                fractions[:-1],
                rest * tails,
                [scale] * 2,
            )
        )
    return units


def _off_atoms(
    cells: FloatArray, weights: FloatArray, atoms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Leave out cells at atoms."""
    kept = ~np.isin(cells, atoms) & (weights > 0)
    return cells[kept], weights[kept]


def _tails(
    column: MixedColumn, cells: FloatArray, weights: FloatArray, beyond: FloatArray
) -> tuple[FloatArray, float]:
    """Masses and scale of the tails of a region.

    The mass of the density itself beyond the numbers is removed; the square of the fraction,
    the probability that two in a row fall outside, remains. The width of the tails is the spread
    of the numbers of the region.
    """
    total = weights.sum()
    spread = 0.0
    if total > 0:
        mean = weights @ cells / total
        spread = np.sqrt(weights @ (cells - mean) ** 2 / total)
    scale = max(spread, column.resolution, 1e-3 * column.scale)
    fraction = tail_fraction(total)
    return np.where(beyond > 0, np.maximum(fraction - beyond, fraction**2), fraction), float(scale)
