"""Where the densities of a variable are smooth: rules by family, for integrals over panels."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from skcircuits.circuits.inputs.base import InputLayer
from skcircuits.circuits.inputs.gaussian import GaussianLayer
from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussianLayer
from skcircuits.circuits.inputs.polynomial.piecewise_polynomial import PiecewisePolynomialLayer
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.protocols import FloatArray

__all__ = ["breakpoints"]

# Ends of panels, in standard deviations, of a Gaussian and in mean excesses of a tail
PANELS = np.arange(-9.0, 9.5, 0.75)
TAIL_PANELS = np.concatenate([np.arange(0.0, 6.0, 0.5), np.arange(6.0, 42.0, 2.0)])


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
    pieces, breaks = layer.pieces, []
    for unit in np.flatnonzero(layer.scopes[:, 0] == variable).tolist():
        breaks.append(pieces.breakpoints[unit])
        for tail, sign in ((pieces.first[unit], -1), (pieces.last[unit], 1)):
            if pieces.masses[tail] > 0.0:
                breaks.append(pieces.starts[tail] + sign * TAIL_PANELS / pieces.rates[tail])
    atoms = [group.atoms for group in layer.groups if group.variable == variable]
    return np.concatenate(breaks), np.concatenate([np.empty(0), *atoms])


def _panels(means: FloatArray, stds: FloatArray) -> FloatArray:
    """Ends of the panels of some Gaussians."""
    ends: FloatArray = (means[:, None] + stds[:, None] * PANELS).ravel()
    return ends
