"""Where densities are smooth: ends of panels for integrals, by family of input units."""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise

import numpy as np

from skcircuits.circuits.inputs.base import InputLayer
from skcircuits.circuits.inputs.gaussian import GaussianLayer
from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussianLayer
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomialLayer
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray

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
