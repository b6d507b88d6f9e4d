"""Linear comparisons of columns: what each family of input units knows about them.

Rules by family say where densities are smooth, for integrals over panels, and restrict joint
Gaussians to bounds on linear forms of up to three independent directions.
"""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise

import numpy as np

from skcircuits.circuits.inputs.base import Box, InputLayer
from skcircuits.circuits.inputs.gaussian import GaussianLayer
from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussianLayer
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomialLayer
from skcircuits.circuits.inputs.restriction._evidence import Evidence, Feature, RestrictedLayer
from skcircuits.circuits.inputs.restriction._gaussians import (
    RestrictedGaussians,
    best_in_box,
    moments_of_features,
)
from skcircuits.circuits.inputs.restriction._normal import TruncatedNormals
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import FloatArray, IntArray

# Ends of panels of a Gaussian, in standard deviations
PANELS = np.arange(-9.0, 9.5, 1.2)
# Length of a tail and of its panels, in mean excesses: twelve nodes integrate the product of
# three exponentials to twelve digits
TAIL_LENGTH, TAIL_STEP = 42.0, 4.0


@singledispatch
def breakpoints(layer: InputLayer, variable: int) -> tuple[FloatArray, FloatArray]:
    """Ends of panels within which a layer's densities of a variable are smooth, and its atoms.

    Atoms are points with a mass. Each family registers what it can do.
    """
    raise CircuitPropertyError(
        must(
            "linear comparisons",
            "be about continuous columns, or about integer ones alone",
            "Pass method='estimate' for an average over draws.",
            family=type(layer).__name__,
        )
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
        n = 1 if len(steps) == 0 else int(np.ceil((high - low) / (TAIL_STEP * steps.min())))
        points.append(np.linspace(low, high, n + 1)[1:-1])
    return np.sort(np.concatenate(points))


def _panels(means: FloatArray, stds: FloatArray) -> FloatArray:
    """Ends of the panels of some Gaussians."""
    ends: FloatArray = (means[:, None] + stds[:, None] * PANELS).ravel()
    return ends


class RestrictedForms(RestrictedLayer):
    """Gaussians given one row of observed cells and bounds on linear forms of the free ones.

    Forms y = F x of a Gaussian are Gaussian: truncated to their box, they pull the variables
    along by regression, x = m + G (y - F m).
    """

    def __init__(
        self, layer: MultivariateGaussianLayer, known: Evidence, directions: FloatArray
    ) -> None:
        """Take rows (r, n_columns + 2) of factors of columns, lower and upper ends."""
        self.layer, self._known = layer, known
        nothing = np.full(known.X.shape, np.nan)
        group = RestrictedGaussians(layer, Evidence(known.X, Box(nothing, nothing))).group_of(0)
        self._free = group.free
        self._means, self._covariances = group.means[:, 0], group.covariances
        self._factors = directions[:, layer.variables[group.free]]
        self._low, self._high = directions[:, -2], directions[:, -1]
        self._centres = self._means @ self._factors.T  # (K, r)
        across = self._covariances @ self._factors.T  # (K, m, r)
        self._inner = self._factors @ across
        self._gains = np.linalg.solve(self._inner, across.transpose(0, 2, 1)).transpose(0, 2, 1)
        self._scales = np.sqrt(np.diagonal(self._inner, axis1=1, axis2=2))
        correlations = self._inner / (self._scales[:, :, None] * self._scales[:, None])
        self._normals = TruncatedNormals(
            ((self._low - self._centres) / self._scales).T,
            ((self._high - self._centres) / self._scales).T,
            np.ascontiguousarray(correlations.transpose(1, 2, 0)),
        )

    def log_mass(self) -> FloatArray:
        """Log density of the observed cells times the probability of the bounds given them."""
        values: FloatArray = self.layer.log_prob(self._known.X) + self._normals.log_mass()[:, None]
        return values

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each cell, (n_units, 1, scope_size)."""
        mean, covariance = self._joint_moments()
        return mean[:, None], np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0)[:, None]

    def _joint_moments(self) -> tuple[FloatArray, FloatArray]:
        """Means (K, d) and covariances (K, d, d) of the whole scope."""
        shift, spread = self._normals.moments()
        shift = shift.T * self._scales
        spread = spread.transpose(2, 0, 1) * (self._scales[:, :, None] * self._scales[:, None])
        size = len(self.layer.variables)
        mean = np.repeat(self.layer.cells(self._known.X), len(self.layer), axis=0)
        covariance = np.zeros((len(self.layer), size, size))
        mean[:, self._free] = self._means + np.einsum("kmr,kr->km", self._gains, shift)
        added = self._gains @ (spread - self._inner) @ self._gains.transpose(0, 2, 1)
        units = np.arange(len(self.layer))
        covariance[np.ix_(units, self._free, self._free)] = self._covariances + added
        return mean, covariance

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        """Means and covariances of features."""
        return moments_of_features(self.layer, *self._joint_moments(), features)

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw cells, then move them to where their forms were drawn, shape (m, scope_size)."""
        forms = self._normals.draw(units, rng).T * self._scales[units] + self._centres[units]
        forms = np.clip(forms, self._low, self._high)
        cells = self.layer.draw(units, self.layer.cells(self._known.X)[rows], rng)
        missed = forms - cells[:, self._free] @ self._factors.T
        cells[:, self._free] += np.einsum("kmr,kr->km", self._gains[units], missed)
        return cells

    def log_max(self) -> FloatArray:
        """Log density at the best point, (n_units, 1)."""
        modes = self._modes()
        X = np.repeat(self._known.X, len(modes), axis=0)
        X[:, self.layer.variables] = modes
        return np.diagonal(self.layer.log_prob(X))[:, None].copy()

    def mode(self, units: IntArray, rows: IntArray) -> FloatArray:
        """The point with the highest density, shape (m, scope_size)."""
        return self._modes()[units]

    def _modes(self) -> FloatArray:
        low, high = np.atleast_2d(self._low), np.atleast_2d(self._high)
        precisions = np.linalg.inv(self._inner)
        best = best_in_box(self._centres[:, None], precisions, low, high)[:, 0]
        modes = np.repeat(self.layer.cells(self._known.X), len(self.layer), axis=0)
        pull = np.einsum("kmr,kr->km", self._gains, best - self._centres)
        modes[:, self._free] = self._means + pull
        return modes


@singledispatch
def restrict_forms(layer: InputLayer, known: Evidence, directions: FloatArray) -> RestrictedLayer:
    """Restrict a layer to bounds on linear forms, as `RestrictedForms`; families register it."""
    raise CircuitPropertyError(
        must(
            "input units",
            "be of a family whose linear forms have a known distribution",
            "Pass method='estimate' for an average over draws.",
            family=type(layer).__name__,
        )
    )


@restrict_forms.register
def _restrict_gaussian_forms(
    layer: MultivariateGaussianLayer, known: Evidence, directions: FloatArray
) -> RestrictedForms:
    return RestrictedForms(layer, known, directions)


def can_bound_forms(layer: InputLayer, variables: list[int]) -> bool:
    """Tell whether every unit of a layer knows the distribution of forms of these variables."""
    is_registered = restrict_forms.dispatch(type(layer)) is not restrict_forms.dispatch(object)
    return is_registered and all(
        np.isin(variables, scope).all() for scope in np.unique(layer.scopes, axis=0)
    )
