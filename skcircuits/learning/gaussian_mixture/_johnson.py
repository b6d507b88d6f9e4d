"""Monotone maps of columns that make each of them as normal as hyperbolic sines can.

The center and curvature of each column are those whose normal variable has the largest
likelihood, with its own mean and variance, times the slope of the map (as Box and Cox, 1964, "An
Analysis of Transformations", choose a power). All candidates of a grid are compared at once.
"""

import numpy as np

from skcircuits.circuits.inputs.johnson import SinhMap
from skcircuits.protocols import FloatArray

_FEW_VALUES = 6  # columns of fewer stay as they are
_LEAST_GAIN = 2.0  # nats over all cells that a map must gain
_MAX_CELLS = 1000  # that maps are compared on
# Beyond the range of the cells, in standard deviations, and quantiles within it
_BEYOND = np.array([0.0, 0.02, 0.1, 0.3, 1.0])
_WITHIN = (0.02, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98)
_CURVATURES = 1.0 / np.geomspace(0.05, 30.0, 12)  # in standard units


def fit_sinh_map(numbers: FloatArray, weights: FloatArray) -> SinhMap:
    """Maps of numerical columns (n, c) with missing cells, for rows with weights (n,)."""
    maps = [_fit_column(column, weights) for column in numbers.T]
    centers, curvatures = np.array(maps, dtype=np.float64).reshape(-1, 2).T
    return SinhMap(centers, curvatures)


def _fit_column(column: FloatArray, weights: FloatArray) -> tuple[float, float]:
    """Center and curvature of one column, both 0 where it stays as it is."""
    seen = np.flatnonzero(~np.isnan(column) & (weights > 0.0))
    seen = seen[:: max(1, len(seen) // _MAX_CELLS)]
    cells, own = column[seen], weights[seen]
    if len(np.unique(cells)) < _FEW_VALUES:
        return 0.0, 0.0
    own = own * (len(own) / own.sum())
    location = float(np.average(cells, weights=own))
    scale = float(np.sqrt(np.average(np.square(cells - location), weights=own)))
    cells = (cells - location) / scale
    low, high = cells.min() - _BEYOND, cells.max() + _BEYOND
    centers = np.concatenate([low, np.quantile(cells, _WITHIN), high])
    centers, curvatures = (a.ravel() for a in np.meshgrid(centers, _CURVATURES))
    steps = curvatures[:, None] * (cells - centers[:, None])
    normal = np.arcsinh(steps) / curvatures[:, None]
    spread = normal - (normal @ own / own.sum())[:, None]
    gains = -0.5 * own.sum() * np.log(np.square(spread) @ own / own.sum())
    gains -= np.log(np.hypot(1.0, steps)) @ own  # relative to the cells themselves
    best = int(gains.argmax())
    if gains[best] < _LEAST_GAIN:
        return 0.0, 0.0
    return location + scale * centers[best], curvatures[best] / scale
