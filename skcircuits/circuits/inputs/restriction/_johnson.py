"""Normal units seen through hyperbolic sines, given observed cells and intervals.

Intervals of x are intervals of z. Moments of sinh(c z) are means of exp(a z), and a normal density
times exp(a z) is one with another mean: a ratio of two probabilities of boxes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from skcircuits.circuits.inputs.base import Box
from skcircuits.circuits.inputs.johnson import JohnsonGaussianLayer
from skcircuits.circuits.inputs.restriction._evidence import (
    Evidence,
    Feature,
    RestrictedLayer,
    restrict,
)
from skcircuits.circuits.inputs.restriction._gaussians import RestrictedGaussians, _Group
from skcircuits.circuits.inputs.restriction._normal import TruncatedNormals
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import FloatArray, IntArray

_MAX_SWEEPS, _TOL = 1000, 1e-13


class RestrictedJohnson(RestrictedLayer):
    """Hyperbolic sines of Gaussians of which some variables are observed or bounded."""

    def __init__(self, layer: JohnsonGaussianLayer, evidence: Evidence) -> None:
        self.layer, self._map = layer, layer.map
        self._cells, *self._ends = (
            np.ascontiguousarray(values[:, layer.variables])
            for values in (evidence.X, evidence.box.lower, evidence.box.upper)
        )
        stop = np.ascontiguousarray(evidence.box.ends[:, layer.variables])
        lower, upper, stop = (self._map.normal(ends) for ends in (*self._ends, stop))
        self._normal = Evidence(self._map.normal(self._cells), Box(lower, upper, stop=stop))
        inner = restrict(layer.normal, self._normal)
        assert isinstance(inner, RestrictedGaussians)
        self._inner = inner

    def log_mass(self) -> FloatArray:
        values: FloatArray = self._inner.log_mass() + self._map.log_slopes(self._cells)
        return values

    def moments(self) -> tuple[FloatArray, FloatArray]:
        mean, variance = self._inner.moments()
        mean += self._map.centers
        for group in self._inner.groups:
            for i, j in enumerate(group.free.tolist()):
                curvature = float(self._map.curvatures[j])
                if curvature == 0.0:
                    continue
                power = np.zeros(len(group.free))
                power[i] = curvature
                first, second = _sinh_and_square(group, power)
                mean[:, group.rows, j] = self._map.centers[j] + first / curvature
                variance[:, group.rows, j] = (second - first**2) / curvature**2
        is_free = np.isnan(self._cells)
        mean, variance = np.where(is_free, mean, self._cells), np.where(is_free, variance, 0.0)
        return self._inside(mean), np.maximum(variance, 0.0)

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        (group,) = self._one_row(row)
        places = self.layer.variables.tolist()
        size, n_units = len(places), len(self.layer)
        mean = np.repeat(np.nan_to_num(self._cells[row])[None], n_units, axis=0)
        covariance = np.zeros((n_units, size, size))
        own, inner = _sinh_moments(group, self._map.curvatures[group.free])
        mean[:, group.free] = self._map.centers[group.free] + own
        covariance[np.ix_(np.arange(n_units), group.free, group.free)] = inner
        at = [
            Feature(places.index(f.variable) if f.variable in places else -1, f.values)
            for f in features
        ]
        return self._inner.of_features(mean, covariance, at)

    def _one_row(self, row: int) -> list[_Group]:
        """What is known about one row alone."""
        inner = restrict(self.layer.normal, self._normal.rows(np.array([row])))
        assert isinstance(inner, RestrictedGaussians)
        return inner.groups

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        drawn, cells = self._map.cells(self._inner.draw(units, rows, rng)), self._cells[rows]
        low, high = (ends[rows] for ends in self._ends)
        return np.where(np.isnan(cells), np.fmin(np.fmax(drawn, low), high), cells)

    def log_max(self) -> FloatArray:
        n_units, n_rows = len(self.layer), len(self._cells)
        units = np.repeat(np.arange(n_units), n_rows)
        best = self.mode(units, np.tile(np.arange(n_rows), n_units))
        return self.layer.log_densities(best.reshape(n_units, n_rows, -1))

    def mode(self, units: IntArray, rows: IntArray) -> FloatArray:
        """Coordinate ascent on the concave bound of `JohnsonGaussianLayer.mode`, in the box."""
        gaussians, curvatures = self.layer.normal.gaussians, self._map.curvatures
        means, precisions = gaussians.means[units], gaussians.precisions[units]
        observed = self._normal.X[rows]
        low, high = (
            np.where(np.isnan(observed), np.where(np.isnan(ends), open_end, ends), observed)
            for ends, open_end in (
                (self._normal.box.lower[rows], -np.inf),
                (self._normal.box.upper[rows], np.inf),
            )
        )
        best = np.clip(means, low, high)
        for _ in range(_MAX_SWEEPS):
            previous = best.copy()
            for j, curvature in enumerate(curvatures.tolist()):
                slope = curvature * best[:, j]
                bent = np.where(slope, np.tanh(slope) / np.where(slope, slope, 1.0), 1.0)
                own = precisions[:, j, j]
                pull = np.einsum("nk,nk->n", precisions[:, j], best - means)
                goal = own * best[:, j] - pull
                best[:, j] = goal / (own + bent * curvature**2)
                best[:, j] = np.clip(best[:, j], low[:, j], high[:, j])
            if np.abs(best - previous).max(initial=0.0) <= _TOL * np.abs(best).max(initial=1.0):
                break
        cells, ends = self._cells[rows], [ends[rows] for ends in self._ends]
        found = np.fmin(np.fmax(self._map.cells(best), ends[0]), ends[1])
        return np.where(np.isnan(cells), found, cells)

    def _inside(self, values: FloatArray) -> FloatArray:
        """Means within their intervals: rounding may have carried them out."""
        inside: FloatArray = np.fmin(np.fmax(values, self._ends[0]), self._ends[1])
        return np.where(np.isnan(self._cells), inside, values)


def _tilt(group: _Group, power: FloatArray) -> tuple[FloatArray, _Group]:
    """Means (K, n) of exp(power · z) over the free variables, and what z is under that weight."""
    shift = group.covariances @ power
    log_factor = group.means @ power + 0.5 * (shift @ power)[:, None]
    moved = shift @ group.factors.T
    normals, n_rows = group.normals, len(group.rows)
    if group.n_bounded:
        steps = np.repeat((moved / group.scales).T, n_rows, axis=1)
        tilted = TruncatedNormals(normals.low - steps, normals.high - steps, normals.correlations)
        is_possible = normals.log_mass > -np.inf
        gain = np.zeros(len(is_possible))
        gain[is_possible] = tilted.log_mass[is_possible] - normals.log_mass[is_possible]
        log_factor = log_factor + gain.reshape(len(shift), -1)
        normals = tilted
    means, centres = group.means + shift[:, None], group.centres + moved[:, None]
    # Pairs without a chance to take part may be beyond floats
    return np.exp(np.minimum(log_factor, 300.0)), replace(
        group, means=means, centres=centres, normals=normals
    )


def _sinh_and_square(group: _Group, power: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means (K, n) of sinh(power · z) and of its square."""
    once = [_tilt(group, sign * power)[0] for sign in (1.0, -1.0)]
    twice = [_tilt(group, 2.0 * sign * power)[0] for sign in (1.0, -1.0)]
    return 0.5 * (once[0] - once[1]), 0.25 * (twice[0] + twice[1]) - 0.5


def _sinh_moments(group: _Group, curvatures: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Means (K, m) and covariances (K, m, m) of sinh(c z) / c, or of z, in the only row."""
    powers, flat = np.diag(curvatures), np.flatnonzero(curvatures == 0.0)
    first, covariances = group.moments_at(0)
    second = covariances + first[:, :, None] * first[:, None]
    bent = np.flatnonzero(curvatures).tolist()
    for i in bent:
        factors, tilted = zip(*(_tilt(group, sign * powers[i]) for sign in (1.0, -1.0)))
        first[:, i] = (factors[0] - factors[1])[:, 0] / (2.0 * curvatures[i])
        if len(flat):
            up, down = (f * own.moments_at(0)[0][:, flat] for f, own in zip(factors, tilted))
            second[:, i, flat] = second[:, flat, i] = (up - down) / (2.0 * curvatures[i])
        for j in bent[: bent.index(i) + 1]:
            total = np.zeros_like(group.means[..., 0])
            for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                total += a * b * _tilt(group, a * powers[i] + b * powers[j])[0]
            product = total[:, 0] / (4.0 * curvatures[i] * curvatures[j])
            second[:, i, j] = second[:, j, i] = product
    return first, second - first[:, :, None] * first[:, None]


restrict.register(JohnsonGaussianLayer, RestrictedJohnson)
