"""Evidence (observed cells, boxes, states), the interface of restricted layers, and breakpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits.inputs._gaussian_integrals import MIN_MASS
from skcircuits.circuits.inputs.base import Box, InputLayer, InputUnit
from skcircuits.circuits.inputs.gaussian import GaussianLayer, MultivariateGaussianLayer
from skcircuits.circuits.inputs.johnson import JohnsonGaussianLayer
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomialLayer
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import Rows
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Where a Gaussian has its mass, and the length of panels that resolve it, in standard deviations
REACH, STEP = 9.0, 1.2
# Largest change of the logarithm of a hyperbolic sine within a panel
_BENT_STEP = 0.6
# Length of a tail and of its panels, in mean excesses: twelve nodes integrate the product of
# three exponentials to twelve digits
TAIL_LENGTH, TAIL_STEP = 42.0, 4.0
LEAST_MASS = 1e-15  # parts of units of less are left out
NO_COLUMNS: IntArray = np.empty(0, dtype=np.intp)

Parts = list[tuple[float, InputUnit]]


@dataclass(frozen=True)
class Evidence:
    """Observed cells `X` (n, n_columns), NaN where free, and a box for the free ones, to an
    absolute error of 1e-15, relative below ``least_mass``; best points have integers in the columns
    `integers`.
    """

    X: FloatArray
    box: Box
    least_mass: float = MIN_MASS
    integers: IntArray = field(default_factory=lambda: NO_COLUMNS)

    def __len__(self) -> int:
        return len(self.X)

    def rows(self, rows: Rows) -> Evidence:
        """Evidence about some rows."""
        return replace(self, X=self.X[rows], box=self.box.rows(rows))

    def outside(self, variables: IntArray) -> BoolArray:
        """Where an observed cell of some variables lies outside its interval, (n_variables, n)."""
        cells = self.X.T[variables]
        # Comparisons with NaN are false: free cells and open sides exclude nothing
        below, above = self.box.lower.T[variables], self.box.upper.T[variables]
        return (cells < below) | (cells > above)

    def bounds(self, variable: int) -> tuple[FloatArray, FloatArray]:
        """Bounds of a variable where it is free, infinite where open, both of shape (n,)."""
        return self._sides(variable, self.box.upper)

    def ends(self, variable: int) -> tuple[FloatArray, FloatArray]:
        """The same as `bounds`, up to where intervals end for densities."""
        return self._sides(variable, self.box.ends)

    def _sides(self, variable: int, upper: FloatArray) -> tuple[FloatArray, FloatArray]:
        is_free = np.isnan(self.X[:, variable])
        low, high = self.box.lower[:, variable], upper[:, variable]
        low = np.where(is_free & ~np.isnan(low), low, -np.inf)
        return low, np.where(is_free & ~np.isnan(high), high, np.inf)


class Feature(NamedTuple):
    """A function of one variable: its value, or one number per state of a discrete variable."""

    variable: int
    values: FloatArray | None = None


class RestrictedLayer(ABC):
    """The units of a layer given the evidence of each row; values have shape (n_units, n)."""

    def __init__(self, layer: Any, evidence: Evidence) -> None:
        self.layer, self.evidence = layer, evidence

    @abstractmethod
    def log_mass(self) -> FloatArray:
        """Log density of the observed cells times the probability of the box, (n_units, n)."""

    @abstractmethod
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each cell under each unit, (n_units, n, scope_size)."""

    @abstractmethod
    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        """Means (n_units, F) and covariances of features in one row, zero outside scopes."""

    @abstractmethod
    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw the cells of the units' scopes, shape (m, scope_size), for pairs (m,)."""

    @abstractmethod
    def mode(self, units: IntArray, rows: IntArray, left_out: IntArray = NO_COLUMNS) -> FloatArray:
        """Best points (m, scope_size) in boxes for pairs of unit and row."""

    def integer_flows(
        self, variable: int, weights: FloatArray, peaks: FloatArray, rows: IntArray
    ) -> tuple[FloatArray, FloatArray] | None:
        """Integers (s,), and sums (s, m) of weights (k, m) of a variable's units times densities
        over their `peaks` (k, m); None if there are many integers or the family does not list them.
        """
        return None

    def log_max(self) -> FloatArray:
        """Log density at the best point of each row's box, (n_units, n)."""
        n_units, n_rows = len(self.layer), len(self.evidence)
        pairs = np.repeat(np.arange(n_units), n_rows), np.tile(np.arange(n_rows), n_units)
        values = self._log_densities(self.mode(*pairs).reshape(n_units, n_rows, -1))
        for own, scope in zip(values, self.layer.scopes):
            own[self.evidence.outside(scope).any(axis=0)] = -np.inf
        return values

    def _log_densities(self, points: FloatArray) -> FloatArray:
        """Log densities (n_units, n) of the units at points (n_units, n, scope_size)."""
        values = np.empty(points.shape[:2])
        X = np.full(self.evidence.X.shape, np.nan)
        for unit, scope in enumerate(self.layer.scopes):
            X[:, scope] = points[unit]
            values[unit] = self.layer.log_prob(X)[unit]
        return values


@singledispatch
def restrict(layer: InputLayer, evidence: Evidence) -> RestrictedLayer:
    """Restrict a layer; each family registers a function."""
    condition = "be of a family that can be restricted to intervals and sets"
    way_out = "Condition on observed cells, or ask for probabilities alone."
    raise CircuitPropertyError(must("input units", condition, way_out, family=type(layer).__name__))


@singledispatch
def within(
    layer: InputLayer, units: Sequence[Any], variable: int, low: float, high: float
) -> list[Parts]:
    """Masses and distributions of the parts of units with a variable in [low, high], by family."""
    condition = "be of a family whose parts within intervals are known"
    raise CircuitPropertyError(must("input units", condition, family=type(units[0]).__name__))


class Breakpoints(NamedTuple):
    """Where densities of a variable are smooth: between ``knots``; ``atoms`` have a mass; panels of
    the lengths in ``regions`` (3, n), starts, stops and lengths, resolve them.
    """

    knots: FloatArray
    atoms: FloatArray
    regions: FloatArray

    @classmethod
    def merge(cls, parts: list[Breakpoints]) -> Breakpoints:
        """All densities at once."""
        knots, atoms, regions = (np.concatenate(own, axis=-1) for own in zip(*parts))
        return cls(np.unique(knots), np.unique(atoms), regions)

    @property
    def points(self) -> FloatArray:
        """All points between which there is mass."""
        return np.concatenate([self.knots, self.regions[:2].ravel()])

    def within(self, low: float, high: float) -> Breakpoints:
        """The same between two points."""
        knots = self.knots[(self.knots >= low) & (self.knots <= high)]
        starts, stops, lengths = self.regions
        regions = np.array([np.maximum(starts, low), np.minimum(stops, high), lengths])
        return Breakpoints(knots, self.atoms, regions[:, regions[0] < regions[1]])

    def edges(self, length: float = 1.0) -> FloatArray:
        """Ends of panels, which knots divide, of a multiple of the lengths."""
        ends = np.unique(self.points)
        if len(ends) < 2:
            return ends
        starts, stops, lengths = self.regions
        first, last = np.searchsorted(ends, starts), np.searchsorted(ends, stops)
        gaps, least = np.diff(ends), _least_over(first, last, lengths * length, len(ends) - 1)
        # Intervals without mass are one panel
        position = np.append(0.0, np.cumsum(gaps / np.where(np.isinf(least), gaps, least)))
        fixed = np.union1d(self.knots, ends[[0, -1]])
        at = position[np.searchsorted(ends, fixed)]
        # Rounding makes no further panel
        counts = np.ceil(np.diff(at) - 1e-9).astype(np.intp)
        owners = np.repeat(np.arange(len(counts)), counts)
        steps = np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
        inner = at[owners] + np.diff(at)[owners] * steps / counts[owners]
        return np.union1d(fixed, np.interp(inner[steps > 0], position, ends))


def _least_over(first: IntArray, last: IntArray, values: FloatArray, n: int) -> FloatArray:
    """For each i < n the least value over ranges first <= i < last, (n,), by powers of two."""
    kept = last > first
    first, last, values = first[kept], last[kept], values[kept]
    exponents = np.frexp(last - first)[1] - 1
    least = np.full((exponents.max(initial=0) + 1, n), np.inf)
    np.minimum.at(least, (exponents, first), values)
    np.minimum.at(least, (exponents, last - 2**exponents), values)
    for exponent in range(len(least) - 1, 0, -1):
        half, below, own = 2 ** (exponent - 1), least[exponent - 1], least[exponent]
        np.minimum(below, own, out=below)
        np.minimum(below[half:], own[:-half], out=below[half:])
    return np.asarray(least[0])


@singledispatch
def breakpoints(layer: InputLayer, variable: int) -> Breakpoints:
    """How to integrate a layer's densities of a variable; each family registers a function."""
    condition = "be about continuous columns, or about integer ones alone"
    way_out = "Pass method='estimate' for an average over draws."
    raise CircuitPropertyError(
        must("linear comparisons", condition, way_out, family=type(layer).__name__)
    )


@breakpoints.register
def _of_gaussians(layer: GaussianLayer, variable: int) -> Breakpoints:
    own = np.flatnonzero(layer.scopes[:, 0] == variable)
    return _smooth(_gaussian_regions(layer.means[own], layer.stds[own]))


@breakpoints.register
def _of_joint_gaussians(layer: MultivariateGaussianLayer, variable: int) -> Breakpoints:
    place = int(np.flatnonzero(layer.variables == variable)[0])
    stds = np.sqrt(layer.gaussians.covariances[:, place, place])
    return _smooth(_gaussian_regions(layer.gaussians.means[:, place], stds))


@breakpoints.register
def _of_johnson_gaussians(layer: JohnsonGaussianLayer, variable: int) -> Breakpoints:
    place = int(np.flatnonzero(layer.variables == variable)[0])
    regions = breakpoints(layer.normal, place).regions
    # Far from its center a column is an exponential of the normal variable
    regions[2] = np.minimum(regions[2], _BENT_STEP / max(layer.map.curvatures[place], 1e-300))
    edges = _smooth(regions).edges()
    normal = np.zeros((len(edges), len(layer.variables)))
    normal[:, place] = edges
    cells = layer.map.cells(normal)[:, place]
    return _smooth(np.array([cells[:-1], cells[1:], np.diff(cells)]))


@breakpoints.register
def _of_polynomials(layer: PiecewisePolynomialLayer, variable: int) -> Breakpoints:
    pieces, knots, tails = layer.pieces, [], [np.empty((3, 0))]
    for unit in np.flatnonzero(layer.scopes[:, 0] == variable).tolist():
        knots.append(pieces.breakpoints[unit])
        for tail, sign in ((pieces.first[unit], -1.0), (pieces.last[unit], 1.0)):
            if pieces.masses[tail] > 0.0:
                scale, edge = 1.0 / pieces.rates[tail], pieces.starts[tail]
                ends = sorted((edge, edge + sign * TAIL_LENGTH * scale))
                tails.append(np.array([*ends, TAIL_STEP * scale])[:, None])
    atoms = [group.atoms for group in layer.groups if group.variable == variable]
    return Breakpoints(
        np.unique(np.concatenate(knots)),
        np.concatenate([np.empty(0), *atoms]),
        np.concatenate(tails, axis=1),
    )


def _smooth(regions: FloatArray) -> Breakpoints:
    return Breakpoints(np.empty(0), np.empty(0), regions)


def _gaussian_regions(means: FloatArray, stds: FloatArray) -> FloatArray:
    """Where some Gaussians have mass, and lengths of panels there, (3, n)."""
    return np.array([means - REACH * stds, means + REACH * stds, STEP * stds])
