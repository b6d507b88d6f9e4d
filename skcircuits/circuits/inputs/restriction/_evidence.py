"""Evidence (observed cells, boxes, states), the interface of restricted layers, and breakpoints."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits.inputs.base import Box, InputLayer, InputUnit
from skcircuits.circuits.inputs.gaussian import GaussianLayer
from skcircuits.circuits.inputs.johnson import JohnsonGaussianLayer
from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussianLayer
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomialLayer
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import Rows
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Ends of panels of a Gaussian, in standard deviations
PANELS = np.arange(-9.0, 9.5, 1.2)
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
    """Observed cells `X`, shape (n, n_columns), NaN where free, and a box for the free ones.

    Observed cells count by their density, boxes by their probability.
    """

    X: FloatArray
    box: Box

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.X)

    def rows(self, rows: Rows) -> Evidence:
        """Evidence about some rows."""
        return Evidence(self.X[rows], self.box.rows(rows))

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
    """The units of a layer given the evidence of each row.

    Values of all units at all rows have shape (n_units, n).
    """

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
        """Means (n_units, F) and covariances (n_units, F, F) of features in one row.

        Zero for features of variables outside of a unit's scope.
        """

    @abstractmethod
    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw the cells of the units' scopes, shape (m, scope_size), for pairs (m,)."""

    @abstractmethod
    def mode(self, units: IntArray, rows: IntArray, left_out: IntArray = NO_COLUMNS) -> FloatArray:
        """The best point of each row's box, (m, scope_size), for pairs of a unit and a row.

        Columns `left_out` are integrated out first; the point need not show them.
        """

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
def within(unit: InputUnit, variable: int, low: float, high: float) -> Parts:
    """Masses and distributions of the parts of a unit in which a variable lies in [low, high].

    Each family registers a function.
    """
    condition = "be of a family whose parts within intervals are known"
    raise CircuitPropertyError(must("input units", condition, family=type(unit).__name__))


@singledispatch
def breakpoints(layer: InputLayer, variable: int) -> tuple[FloatArray, FloatArray]:
    """Ends of panels within which a layer's densities of a variable are smooth, and its atoms.

    Atoms are points with a mass. Each family registers a function.
    """
    condition = "be about continuous columns, or about integer ones alone"
    way_out = "Pass method='estimate' for an average over draws."
    raise CircuitPropertyError(
        must("linear comparisons", condition, way_out, family=type(layer).__name__)
    )


@breakpoints.register
def _of_gaussians(layer: GaussianLayer, variable: int) -> tuple[FloatArray, FloatArray]:
    own = np.flatnonzero(layer.scopes[:, 0] == variable)
    return _panels(layer.means[own], layer.stds[own]), np.empty(0)


@breakpoints.register
def _of_joint_gaussians(
    layer: MultivariateGaussianLayer, variable: int
) -> tuple[FloatArray, FloatArray]:
    place = int(np.flatnonzero(layer.variables == variable)[0])
    stds = np.sqrt(layer.gaussians.covariances[:, place, place])
    return _panels(layer.gaussians.means[:, place], stds), np.empty(0)


@breakpoints.register
def _of_johnson_gaussians(
    layer: JohnsonGaussianLayer, variable: int
) -> tuple[FloatArray, FloatArray]:
    place = int(np.flatnonzero(layer.variables == variable)[0])
    gaussians = layer.normal.gaussians
    stds = np.sqrt(gaussians.covariances[:, place, place])
    # Far from its center a column is an exponential of the normal variable
    width = layer.map.curvatures[place] * stds.max() * (PANELS[1] - PANELS[0])
    n_parts = max(1, int(np.ceil(width / _BENT_STEP)))
    panels = np.linspace(PANELS[0], PANELS[-1], n_parts * (len(PANELS) - 1) + 1)
    normal = np.zeros((len(panels) * len(stds), len(layer.variables)))
    normal[:, place] = _panels(gaussians.means[:, place], stds, panels)
    return layer.map.cells(normal)[:, place], np.empty(0)


@breakpoints.register
def _of_polynomials(
    layer: PiecewisePolynomialLayer, variable: int
) -> tuple[FloatArray, FloatArray]:
    pieces, knots, tails = layer.pieces, [], []
    for unit in np.flatnonzero(layer.scopes[:, 0] == variable).tolist():
        knots.append(pieces.breakpoints[unit])
        for tail, sign in ((pieces.first[unit], -1.0), (pieces.last[unit], 1.0)):
            if pieces.masses[tail] > 0.0:
                scale = 1.0 / pieces.rates[tail]
                edge = pieces.starts[tail]
                tails.append((*sorted((edge, edge + sign * TAIL_LENGTH * scale)), scale))
    atoms = [group.atoms for group in layer.groups if group.variable == variable]
    return _with_tails(np.concatenate(knots), tails), np.concatenate([np.empty(0), *atoms])


def _with_tails(knots: FloatArray, tails: list[tuple[float, float, float]]) -> FloatArray:
    """Knots, and points in tails (start, stop, mean excess) as near as their decay asks for.

    They serve all tails of a variable: panels cost nodes.
    """
    ends = np.unique(np.append(knots, [tail[:2] for tail in tails]))
    starts, stops, scales = np.array(tails).reshape(-1, 3).T
    points = [ends]
    for low, high in pairwise(ends):
        steps = scales[(starts < high) & (stops > low)]
        # The fastest of the tails that reach into a gap decides how finely it is cut
        n = 1 if len(steps) == 0 else int(np.ceil((high - low) / (TAIL_STEP * steps.min())))
        points.append(np.linspace(low, high, n + 1)[1:-1])
    return np.sort(np.concatenate(points))


def _panels(means: FloatArray, stds: FloatArray, panels: FloatArray = PANELS) -> FloatArray:
    """Ends of the panels of some Gaussians."""
    return (means[:, None] + stds[:, None] * panels).ravel()
