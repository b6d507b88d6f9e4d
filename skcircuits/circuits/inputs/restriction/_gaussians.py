"""Joint Gaussian units restricted to boxes: up to three bounded variables per unit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.circuits.inputs.multivariate_gaussian import MultivariateGaussianLayer
from skcircuits.circuits.inputs.restriction._evidence import (
    Evidence,
    Feature,
    RestrictedLayer,
    restrict,
)
from skcircuits.circuits.inputs.restriction._normal import TruncatedNormals
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import FloatArray, IntArray

MAX_BOUNDED = 3


@dataclass(frozen=True)
class _Group:
    """Rows with the same variables observed and bounded; places within the scope.

    Moments of the other variables given the observed ones: `means` (K, n, m), `covariances`
    (K, m, m) over the free ones, bounded first.
    """

    rows: IntArray
    observed: IntArray
    bounded: IntArray
    free: IntArray
    means: FloatArray
    covariances: FloatArray
    normals: TruncatedNormals | None
    gains: FloatArray

    @property
    def scales(self) -> FloatArray:
        """Standard deviations of the bounded variables, (K, r)."""
        n_bounded = len(self.bounded)
        stds: FloatArray = np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2)[:, :n_bounded])
        return stds


class RestrictedGaussians(RestrictedLayer):
    """Gaussians of which some variables are observed and some bounded."""

    def __init__(self, layer: MultivariateGaussianLayer, evidence: Evidence) -> None:
        self.layer, self._evidence = layer, evidence
        self._cells = layer.cells(evidence.X)
        is_free = np.isnan(self._cells)
        lower, upper = layer.cells(evidence.box.lower), layer.cells(evidence.box.upper)
        self._lower = np.where(is_free & ~np.isnan(lower), lower, -np.inf)
        self._upper = np.where(is_free & ~np.isnan(upper), upper, np.inf)
        kind = np.where(is_free, 0, 1)
        kind[~np.isinf(self._lower) | ~np.isinf(self._upper)] = 2
        self._kinds, self._kind_of = np.unique(kind, axis=0, return_inverse=True)
        self._kind_of = self._kind_of.reshape(-1)
        most = int((self._kinds == 2).sum(axis=1).max(initial=0))
        if most > MAX_BOUNDED:
            condition = f"bound at most {MAX_BOUNDED} columns of one multivariate Gaussian"
            way_out = "Bound fewer columns, or fit covariance_type='diag'."
            raise CircuitPropertyError(must("conditions", condition, way_out, bounded=most))
        self._groups = [self._group(number) for number in range(len(self._kinds))]

    def _group(self, number: int) -> _Group:
        """Condition the Gaussians on what is observed in one group of rows."""
        kind, rows = self._kinds[number], np.flatnonzero(self._kind_of == number)
        observed, bounded = np.flatnonzero(kind == 1), np.flatnonzero(kind == 2)
        free = np.concatenate([bounded, np.flatnonzero(kind == 0)])
        stack = self.layer.gaussians
        means = np.broadcast_to(stack.means[:, None, free], (len(self.layer), len(rows), len(free)))
        covariances = stack.covariances[:, free[:, None], free]
        if len(observed):
            across = stack.covariances[:, free[:, None], observed]
            within = stack.covariances[:, observed[:, None], observed]
            gain = np.linalg.solve(within, across.transpose(0, 2, 1)).transpose(0, 2, 1)
            shift = self._cells[rows][:, observed] - stack.means[:, None, observed]
            means = means + shift @ gain.transpose(0, 2, 1)
            covariances = covariances - gain @ across.transpose(0, 2, 1)
        normals, n_bounded = None, len(bounded)
        gains = np.zeros((len(self.layer), len(free), n_bounded))
        if n_bounded:
            inner = covariances[:, :n_bounded, :n_bounded]
            gains = np.linalg.solve(inner, covariances[:, :n_bounded]).transpose(0, 2, 1)
            normals = self._normals(rows, bounded, means[..., :n_bounded], inner)
        return _Group(rows, observed, bounded, free, means, covariances, normals, gains)

    def _normals(
        self, rows: IntArray, bounded: IntArray, means: FloatArray, covariances: FloatArray
    ) -> TruncatedNormals:
        """Standardised boxes of all pairs of a unit and a row of a group, units first."""
        scales = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))  # (K, r)
        correlations = covariances / (scales[:, :, None] * scales[:, None])
        with np.errstate(over="ignore"):
            low = (self._lower[rows][:, bounded] - means) / scales[:, None]
            high = (self._upper[rows][:, bounded] - means) / scales[:, None]
        n_bounded, n_rows = len(bounded), len(rows)
        each = np.repeat(correlations, n_rows, axis=0).transpose(1, 2, 0)
        return TruncatedNormals(
            low.transpose(2, 0, 1).reshape(n_bounded, -1),
            high.transpose(2, 0, 1).reshape(n_bounded, -1),
            np.ascontiguousarray(each),
        )

    def group_of(self, row: int) -> _Group:
        """Moments of the Gaussians given what is observed in a row."""
        return self._groups[self._kind_of[row]]

    def log_mass(self) -> FloatArray:
        """Log density of the observed cells times the probability of the box given them."""
        values = self.layer.log_prob(self._evidence.X)
        for group in self._groups:
            if group.normals is not None:
                log_box = group.normals.log_mass().reshape(len(self.layer), -1)
                values[:, group.rows] += log_box
        outside = self._evidence.outside(self.layer.variables).any(axis=0)
        values[:, outside] = -np.inf
        return values

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each cell, (n_units, n, scope_size)."""
        mean = np.repeat(self._cells[None], len(self.layer), axis=0)
        variance = np.zeros_like(mean)
        for group in self._groups:
            own = np.ix_(np.arange(len(self.layer)), group.rows, group.free)
            shift, spread = self._bounded_moments(group)
            mean[own] = group.means + np.einsum("kfr,knr->knf", group.gains, shift)
            added = np.einsum("kfr,knrs,kfs->knf", group.gains, spread, group.gains)
            variance[own] = np.diagonal(group.covariances, axis1=1, axis2=2)[:, None] + added
        return mean, np.maximum(variance, 0.0)

    def _bounded_moments(self, group: _Group) -> tuple[FloatArray, FloatArray]:
        """What a box adds to the means (K, n, r) and covariances (K, n, r, r) of its variables."""
        n_units, n_rows, n_bounded = len(self.layer), len(group.rows), len(group.bounded)
        if group.normals is None:
            return np.zeros((n_units, n_rows, 0)), np.zeros((n_units, n_rows, 0, 0))
        mean, covariance = group.normals.moments()
        scales = group.scales
        shift = mean.reshape(n_bounded, n_units, n_rows).transpose(1, 2, 0) * scales[:, None]
        spread = covariance.reshape(n_bounded, n_bounded, n_units, n_rows).transpose(2, 3, 0, 1)
        spread = spread * (scales[:, None, :, None] * scales[:, None, None])
        return shift, spread - group.covariances[:, None, :n_bounded, :n_bounded]

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        """Means and covariances of features in one row."""
        group = self._groups[self._kind_of[row]]
        at = int(np.flatnonzero(group.rows == row)[0])
        n_units, size = len(self.layer), self._cells.shape[1]
        mean = np.repeat(self._cells[row][None], n_units, axis=0)
        covariance = np.zeros((n_units, size, size))
        shift, spread = (values[:, at] for values in self._bounded_moments(group))
        mean[:, group.free] = group.means[:, at] + np.einsum("kfr,kr->kf", group.gains, shift)
        covariance[np.ix_(np.arange(n_units), group.free, group.free)] = (
            group.covariances + group.gains @ spread @ group.gains.transpose(0, 2, 1)
        )
        return moments_of_features(self.layer, mean, covariance, features)

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw the bounded cells, then the free ones given these, shape (m, scope_size)."""
        cells = self._cells[rows]
        for own, group, at in self._pairs_by_group(rows):
            if group.normals is not None:
                cases = units[own] * len(group.rows) + at
                drawn = group.normals.draw(cases, rng).T * group.scales[units[own]]
                drawn += group.means[units[own], at, : len(group.bounded)]
                bounds = (
                    bound[np.ix_(group.rows[at], group.bounded)]
                    for bound in (self._lower, self._upper)
                )
                cells[np.ix_(own, group.bounded)] = np.clip(drawn, *bounds)
        return self.layer.draw(units, cells, rng)

    def _pairs_by_group(self, rows: IntArray) -> Iterator[tuple[IntArray, _Group, IntArray]]:
        """Pairs of each group, with the places of their rows in it."""
        kinds = self._kind_of[rows]
        for number in np.unique(kinds).tolist():
            own, group = np.flatnonzero(kinds == number), self._groups[number]
            yield own, group, np.searchsorted(group.rows, rows[own])

    def log_max(self) -> FloatArray:
        """Log density at the best point of each row's box."""
        modes = self._modes()
        return np.stack(
            [self.layer.log_prob(self._spread(mode))[k] for k, mode in enumerate(modes)]
        )

    def mode(self, units: IntArray, rows: IntArray) -> FloatArray:
        """The point of the box with the highest density, shape (m, scope_size)."""
        modes: FloatArray = self._modes()[units, rows]
        return modes

    def _spread(self, cells: FloatArray) -> FloatArray:
        X = np.full_like(self._evidence.X, np.nan)
        X[:, self.layer.variables] = cells
        return X

    def _modes(self) -> FloatArray:
        """Best points, (K, n, scope_size): a quadratic program in the bounded variables."""
        modes = np.repeat(self._cells[None], len(self.layer), axis=0)
        for group in self._groups:
            bounded = group.means[..., : len(group.bounded)]
            low, high = (
                bound[np.ix_(group.rows, group.bounded)] for bound in (self._lower, self._upper)
            )
            inner = group.covariances[:, : len(group.bounded), : len(group.bounded)]
            best = best_in_box(bounded, np.linalg.inv(inner), low, high)
            full = group.means + np.einsum("kfr,knr->knf", group.gains, best - bounded)
            full[..., : len(group.bounded)] = best
            modes[np.ix_(np.arange(len(self.layer)), group.rows, group.free)] = full
        return modes


def moments_of_features(
    layer: MultivariateGaussianLayer,
    mean: FloatArray,
    covariance: FloatArray,
    features: list[Feature],
) -> tuple[FloatArray, FloatArray]:
    """Means and covariances of features from those of the scope, (K, d) and (K, d, d)."""
    place = {int(variable): i for i, variable in enumerate(layer.variables)}
    own = np.array([f for f, feature in enumerate(features) if feature.variable in place], int)
    at = np.array([place[features[f].variable] for f in own.tolist()], int)
    units = np.arange(len(layer))
    means = np.zeros((len(units), len(features)))
    covariances = np.zeros((len(units), len(features), len(features)))
    means[:, own] = mean[:, at]
    covariances[np.ix_(units, own, own)] = covariance[np.ix_(units, at, at)]
    return means, covariances


def best_in_box(
    centre: FloatArray, precisions: NDArray[np.floating[Any]], low: FloatArray, high: FloatArray
) -> FloatArray:
    """Densest points (K, n, r) of Gaussians in boxes (n, r)."""
    best = np.clip(centre, low, high)
    # Coordinate descent: exact in each coordinate, and there are at most three
    for _ in range(200 if centre.shape[-1] > 1 else 1):
        for i in range(centre.shape[-1]):
            others = best - centre
            others[..., i] = 0.0
            pull = np.einsum("knr,kr->kn", others, precisions[:, i])
            target = centre[..., i] - pull / precisions[:, None, i, i]
            best[..., i] = np.clip(target, low[:, i], high[:, i])
    return best


@restrict.register
def _restrict_gaussians(
    layer: MultivariateGaussianLayer, evidence: Evidence
) -> RestrictedGaussians:
    return RestrictedGaussians(layer, evidence)
