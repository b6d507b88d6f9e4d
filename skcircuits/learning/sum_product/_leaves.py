"""Input units of regions: what a structure learner puts at the ends of its recursion.

A region is a set of rows and a set of variables. Its units, over disjoint variables, are the
factors of its distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from skcircuits.circuits import Categorical, Gaussian, MultivariateGaussian, PiecewisePolynomial
from skcircuits.circuits.inputs import InputUnit
from skcircuits.learning.gaussian_mixture._learner import EMSettings, learn_gaussian_mixture
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.learning.univariate._b_splines import Density, fit_densities, tail_fraction
from skcircuits.learning.univariate._columns import MixedColumn
from skcircuits.learning.univariate._polynomials import TINY, PolynomialSettings, Samples
from skcircuits.numerics._bsplines import basis_cdf
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["LeafFamily", "LeafSettings", "MixedTable", "fit_leaves"]

LeafFamily = Literal["polynomial", "histogram", "gaussian", "multivariate"]


@dataclass(frozen=True)
class MixedTable:
    """Rows with numbers, codes of categories and missing cells.

    `X` (n, d): numbers and codes, NaN where missing; `weights` (n,): weights of the rows, as
    numbers of equal rows; `columns`: facts about each column.
    """

    X: FloatArray
    weights: FloatArray
    columns: tuple[MixedColumn, ...]

    def cells(self, rows: IntArray, variable: int) -> tuple[FloatArray, FloatArray]:
        """Observed cells of a column and their weights.

        `rows` (m,) -> `cells, weights` (k,).
        """
        cells = self.X[rows, variable]
        seen = ~np.isnan(cells)
        return cells[seen], self.weights[rows][seen]


@dataclass(frozen=True)
class LeafSettings:
    """How to fit the input units.

    `family`: distributions of numbers. A column with point masses takes polynomials always;
    `polynomials`: candidates for piecewise polynomials; `smoothing`: pseudo-rows that each unit
    takes from the column's overall distribution.
    """

    family: LeafFamily = "polynomial"
    polynomials: PolynomialSettings = field(default_factory=PolynomialSettings)
    smoothing: float = 1.0

    def without_degrees(self) -> LeafSettings:
        """Give settings that take a small part of the time."""
        return replace(self, polynomials=replace(self.polynomials, max_degree=0))


def fit_leaves(
    table: MixedTable,
    regions: Sequence[tuple[IntArray, tuple[int, ...]]],
    settings: LeafSettings,
) -> list[list[InputUnit]]:
    """Fit the units of factorised regions, those of one family all together."""
    units: list[list[InputUnit]] = [[] for _ in regions]
    polynomials: list[tuple[int, IntArray, MixedColumn]] = []
    for number, (rows, variables) in enumerate(regions):
        smooth = []
        for variable in variables:
            column = table.columns[variable]
            if column.cardinality:
                units[number].append(_fit_categories(table, rows, column, settings.smoothing))
            elif column.is_smooth and settings.family in ("gaussian", "multivariate"):
                smooth.append(column)
            else:
                polynomials.append((number, rows, column))
        units[number] += _fit_gaussians(table, rows, smooth, settings)
    samples = [(rows, column) for _, rows, column in polynomials]
    for (number, _, _), unit in zip(polynomials, _fit_polynomials(table, samples, settings)):
        units[number].append(unit)
    return units


def _fit_categories(
    table: MixedTable, rows: IntArray, column: MixedColumn, smoothing: float
) -> Categorical:
    """Frequencies of categories, drawn towards those of the whole table."""
    codes, weights = table.cells(rows, column.variable)
    counts = np.bincount(codes.astype(np.intp), weights, minlength=column.cardinality).astype(float)
    counts += smoothing * column.fractions
    if counts.sum() == 0:
        counts = column.fractions
    return Categorical(column.variable, counts / counts.sum())


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
        middle = (column.lower + column.upper) / 2
        mean = (weights @ cells + settings.smoothing * middle) / total if total else middle
        scatter = weights @ (cells - mean) ** 2 + settings.smoothing * column.scale**2
        variance = scatter / total if total else column.scale**2
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
    em = EMSettings(pseudo_count=max(smoothing, 1e-3), n_init=1)
    *_, state = learn_gaussian_mixture(prepared, 1, em, np.random.default_rng(0))
    means, covariances, *_ = state.gaussians.in_units(prepared.location, prepared.scale)
    # A column that is constant in the region keeps a little of its overall spread
    floor = np.diag((1e-3 * scale) ** 2)
    return MultivariateGaussian(variables, means[0], covariances[0] + floor)


def _fit_polynomials(
    table: MixedTable, samples: list[tuple[IntArray, MixedColumn]], settings: LeafSettings
) -> list[PiecewisePolynomial]:
    """Piecewise polynomials with tails and point masses."""
    everywhere = np.flatnonzero(table.weights > 0)
    grids = {column.variable: column for _, column in samples if column.is_grid}
    # What a grid is like in all rows says which of its points are more common by nature
    wholes = [(everywhere, column) for column in grids.values()]
    found = [_off_atoms(*table.cells(rows, c.variable), c) for rows, c in samples + wholes]
    densities = _fit_densities(found, samples + wholes, settings)
    whole_masses = {
        column.variable: _grid_masses(column, density)
        for (_, column), density in zip(wholes, densities[len(samples) :])
    }
    units = []
    for (rows, column), (cells, weights), density in zip(samples, found, densities):
        if column.is_grid:
            ratio = column.fractions[:-1] / whole_masses[column.variable]
            masses = _grid_masses(column, density) * ratio
            fractions = _grid_fractions(column, masses, weights.sum(), settings.smoothing)
        else:
            fractions = _atom_fractions(table, rows, column, settings.smoothing)
        tails, scale = _tails(column, cells, weights, density.beyond)
        rest = fractions[-1]
        units.append(
            PiecewisePolynomial(
                column.variable,
                density.knots,
                density.weights / density.weights.sum() * (rest * (1.0 - tails.sum())),
                column.atoms,
                fractions[:-1],
                rest * tails,
                [scale] * 2,
            )
        )
    return units


def _fit_densities(
    found: list[tuple[FloatArray, FloatArray]],
    samples: list[tuple[IntArray, MixedColumn]],
    settings: LeafSettings,
) -> list[Density]:
    """A density for each sample of numbers; one over the column's range where there is none."""
    present = [i for i, (cells, _) in enumerate(found) if len(cells)]
    densities = []
    for _, column in samples:
        half = column.resolution / 2
        whole = np.array([column.lower - half, column.upper + half])
        densities.append(Density(whole, np.ones(1), np.zeros(2)))
    if present:
        summary = Samples.summarize(
            [found[i][0] for i in present],
            [found[i][1] for i in present],
            [samples[i][1].resolution for i in present],
        )
        for i, density in zip(present, fit_densities(summary, settings.polynomials)):
            densities[i] = density
    return densities


def _grid_masses(column: MixedColumn, density: Density) -> FloatArray:
    """Mass of a density around each point of a grid, shape (n_atoms,)."""
    half = column.resolution / 2
    edges = np.append(column.atoms - half, column.atoms[-1] + half)
    degree = len(density.weights) - len(density.knots) + 1
    masses = np.diff(basis_cdf(edges[None], density.knots[None], degree)[0], axis=0)
    return np.maximum(masses @ density.weights, TINY)


def _grid_fractions(
    column: MixedColumn, masses: FloatArray, total: float, smoothing: float
) -> FloatArray:
    """Mass of each point of a grid and of the rest in a region, shape (n_atoms + 1,)."""
    fractions = smoothing * column.fractions
    fractions[:-1] += total * masses / masses.sum()
    return fractions / fractions.sum()


def _off_atoms(
    cells: FloatArray, weights: FloatArray, column: MixedColumn
) -> tuple[FloatArray, FloatArray]:
    """Leave out cells at atoms, but for those of a grid, whose masses a density smooths."""
    kept = weights > 0
    if not column.is_grid:
        kept &= ~np.isin(cells, column.atoms)
    return cells[kept], weights[kept]


def _atom_fractions(
    table: MixedTable, rows: IntArray, column: MixedColumn, smoothing: float
) -> FloatArray:
    """Mass of each atom and of the rest in a region, shape (n_atoms + 1,)."""
    if len(column.atoms) == 0:
        return np.ones(1)
    cells, weights = table.cells(rows, column.variable)
    place = np.searchsorted(column.atoms, cells)
    is_atom = column.atoms[np.minimum(place, len(column.atoms) - 1)] == cells
    kind = np.where(is_atom, place, len(column.atoms))
    counts = np.bincount(kind, weights, minlength=len(column.atoms) + 1).astype(float)
    counts += smoothing * column.fractions
    return counts / counts.sum() if counts.sum() else column.fractions


def _tails(
    column: MixedColumn, cells: FloatArray, weights: FloatArray, beyond: FloatArray
) -> tuple[FloatArray, float]:
    """Masses and scale of the tails of a region.

    What the density itself puts beyond the numbers is taken off; the square of the fraction,
    the chance that two in a row fall outside, remains. Tails are as wide as the numbers of
    the region scatter.
    """
    total = weights.sum()
    spread = 0.0
    if total > 0:
        mean = weights @ cells / total
        spread = np.sqrt(weights @ (cells - mean) ** 2 / total)
    scale = max(spread, column.resolution, 1e-3 * column.scale)
    fraction = tail_fraction(total)
    return np.where(beyond > 0, np.maximum(fraction - beyond, fraction**2), fraction), float(scale)
