"""Joint Gaussian units given observed cells and bounds on up to three directions of the others.

Units that are transformed by hyperbolic sines may have one bounded variable: intervals of x are
intervals of z, and moments of sinh(c z) are means of exp(a z). A normal density times exp(a z) is a
normal density with another mean up to a factor, so that these means are ratios of two box
probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch

import numpy as np

from skcircuits.circuits.inputs._gaussian_integrals import (
    MAX_BOUNDED,
    ConcaveLogDensities,
    CoordinateBounds,
    best_in_box,
)
from skcircuits.circuits.inputs.base import Box, InputLayer
from skcircuits.circuits.inputs.gaussian import MultivariateGaussianLayer
from skcircuits.circuits.inputs.johnson import JohnsonGaussianLayer
from skcircuits.circuits.inputs.restriction._evidence import (
    NO_COLUMNS,
    Evidence,
    Feature,
    RestrictedLayer,
    restrict,
)
from skcircuits.circuits.inputs.restriction._normal import TruncatedNormals
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._patterns import unique_rows
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Of the search for integers: choices that go on, and integers tried around the nearest one
_N_KEPT, _BESIDE = 16, np.arange(-2.0, 3.0)


@dataclass(frozen=True)
class _Bounds:
    """Rows with the same cells observed, and r bounds on linear forms of their free variables."""

    rows: IntArray  # (n,)
    forms: FloatArray  # (r, scope_size), factors of the variables, not used where observed
    low: FloatArray  # (n, r), ends of the forms, infinite where open
    high: FloatArray  # (n, r)


@dataclass(frozen=True)
class _Group:
    """Distribution of m free variables x and r forms y = F x given the observed cells of rows."""

    bounds: _Bounds
    free: IntArray  # (m,), places within the scope
    factors: FloatArray
    means: FloatArray  # (K, n, m), of x
    covariances: FloatArray  # (K, m, m), of x
    centres: FloatArray  # (K, n, r), means of y
    inner: FloatArray  # (K, r, r), covariances of y
    scales: FloatArray  # (K, r), standard deviations of y
    gains: FloatArray  # (K, m, r), the regression of x on y
    normals: TruncatedNormals  # y, standardised, in bounds; for all pairs (unit, row), units first

    @property
    def rows(self) -> IntArray:
        return self.bounds.rows

    @property
    def n_bounded(self) -> int:
        return len(self.bounds.forms)

    @cached_property
    def bounded_moments(self) -> tuple[FloatArray, FloatArray]:
        """Changes of means (K, n, r) and covariances (K, n, r, r) of the forms by the bounds."""
        n_units, n_rows, n_bounded = self.centres.shape
        if n_bounded == 0:
            return np.zeros((n_units, n_rows, 0)), np.zeros((n_units, n_rows, 0, 0))
        mean, covariance = self.normals.moments()
        scales = self.scales
        shift = mean.reshape(n_bounded, n_units, n_rows).transpose(1, 2, 0) * scales[:, None]
        spread = covariance.reshape(n_bounded, n_bounded, n_units, n_rows).transpose(2, 3, 0, 1)
        spread = spread * (scales[:, None, :, None] * scales[:, None, None])
        return shift, spread - self.inner[:, None]

    def moments_at(self, at: int) -> tuple[FloatArray, FloatArray]:
        """Means (K, m) and covariances (K, m, m) of the free variables in one of the rows."""
        shift, spread = (values[:, at] for values in self.bounded_moments)
        mean = self.means[:, at] + np.einsum("kfr,kr->kf", self.gains, shift)
        return mean, self.covariances + self.gains @ spread @ self.gains.transpose(0, 2, 1)


class RestrictedGaussians(RestrictedLayer):
    """Gaussians with observed variables and bounded linear forms y = F x (of one variable, too):
    truncated to their box, they pull the variables along by regression, x = m + G (y - F m).
    """

    def __init__(
        self, layer: MultivariateGaussianLayer, evidence: Evidence, bounds: list[_Bounds]
    ) -> None:
        super().__init__(layer, evidence)
        self._cells = layer.cells(evidence.X)
        self._is_integer = np.isin(layer.variables, evidence.integers)
        self.groups = [self._group(own) for own in bounds]
        self._group_of = np.empty(len(evidence), dtype=np.intp)
        for number, own in enumerate(bounds):
            self._group_of[own.rows] = number

    def _group(self, bounds: _Bounds) -> _Group:
        """Condition the Gaussians on the observed cells of one group of rows."""
        # One pattern per group: the first row represents all
        is_observed = ~np.isnan(self._cells[bounds.rows[0]])
        observed, free = np.flatnonzero(is_observed), np.flatnonzero(~is_observed)
        stack = self.layer.gaussians
        means = np.repeat(stack.means[:, None, free], len(bounds.rows), axis=1)
        covariances = stack.covariances[:, free[:, None], free]
        if len(observed):
            gain, covariances = _regression(stack.covariances, free, observed)
            shift = self._cells[bounds.rows][:, observed] - stack.means[:, None, observed]
            means += shift @ gain.transpose(0, 2, 1)
        factors = bounds.forms[:, free]
        across = covariances @ factors.T
        inner = factors @ across
        gains = np.linalg.solve(inner, across.transpose(0, 2, 1)).transpose(0, 2, 1)
        centres = means @ factors.T
        scales, normals = _standardized(centres, inner, bounds.low, bounds.high)
        moments = means, covariances, centres, inner
        return _Group(bounds, free, factors, *moments, scales, gains, normals)

    def log_mass(self) -> FloatArray:
        values = self.layer.log_prob(self.evidence.X)
        for group in self.groups:
            if group.n_bounded:
                log_mass = group.normals.log_mass_above(self.evidence.least_mass)
                values[:, group.rows] += log_mass.reshape(len(self.layer), -1)
        values[:, self.evidence.outside(self.layer.variables).any(axis=0)] = -np.inf
        return values

    def moments(self) -> tuple[FloatArray, FloatArray]:
        mean = np.repeat(self._cells[None], len(self.layer), axis=0)
        variance = np.zeros_like(mean)
        for group in self.groups:
            own = np.ix_(np.arange(len(self.layer)), group.rows, group.free)
            shift, spread = group.bounded_moments
            mean[own] = group.means + np.einsum("kfr,knr->knf", group.gains, shift)
            added = np.einsum("kfr,knrs,kfs->knf", group.gains, spread, group.gains)
            variance[own] = np.diagonal(group.covariances, axis1=1, axis2=2)[:, None] + added
        return mean, np.maximum(variance, 0.0)

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        group = self.groups[self._group_of[row]]
        at = int(np.flatnonzero(group.rows == row)[0])
        n_units, size = len(self.layer), self._cells.shape[1]
        mean = np.repeat(self._cells[row][None], n_units, axis=0)
        covariance = np.zeros((n_units, size, size))
        own = np.ix_(np.arange(n_units), group.free, group.free)
        mean[:, group.free], covariance[own] = group.moments_at(at)
        return self.of_features(mean, covariance, features)

    def of_features(
        self, mean: FloatArray, covariance: FloatArray, features: list[Feature]
    ) -> tuple[FloatArray, FloatArray]:
        """Means and covariances of features from those of the scope, (K, d) and (K, d, d)."""
        place = {int(variable): i for i, variable in enumerate(self.layer.variables)}
        own = np.array([f for f, feature in enumerate(features) if feature.variable in place], int)
        at = np.array([place[features[f].variable] for f in own.tolist()], int)
        units = np.arange(len(mean))
        means = np.zeros((len(units), len(features)))
        covariances = np.zeros((len(units), len(features), len(features)))
        means[:, own] = mean[:, at]
        covariances[np.ix_(units, own, own)] = covariance[np.ix_(units, at, at)]
        return means, covariances

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        cells = self.layer.draw(units, self._cells[rows], rng)
        for own, group, at in self._pairs_by_group(rows):
            if group.n_bounded == 0:
                continue
            k = units[own]
            forms = group.normals.draw(k * len(group.rows) + at, rng).T * group.scales[k]
            forms = np.clip(
                forms + group.centres[k, at], group.bounds.low[at], group.bounds.high[at]
            )
            # Moved by regression, a draw is one given its forms (Matheron's rule)
            missed = forms - cells[np.ix_(own, group.free)] @ group.factors.T
            cells[np.ix_(own, group.free)] += np.einsum("nfr,nr->nf", group.gains[k], missed)
        # Rounding may carry bounded variables over their ends
        return np.clip(cells, *self._ends()[:, rows])

    def _pairs_by_group(self, rows: IntArray) -> Iterator[tuple[IntArray, _Group, IntArray]]:
        """Pairs of each group, with the places of their rows in it."""
        numbers = self._group_of[rows]
        for number in np.unique(numbers).tolist():
            own, group = np.flatnonzero(numbers == number), self.groups[number]
            yield own, group, np.searchsorted(group.rows, rows[own])

    def mode(self, units: IntArray, rows: IntArray, left_out: IntArray = NO_COLUMNS) -> FloatArray:
        modes = self._modes_without(left_out) if len(left_out) else self._modes
        return modes[units, rows]

    @cached_property
    def _modes(self) -> FloatArray:
        """Best points (n_units, n, scope_size), for which a search asks several times."""
        return self._modes_without(NO_COLUMNS)

    def _modes_without(self, left_out: IntArray) -> FloatArray:
        modes = np.repeat(self._cells[None], len(self.layer), axis=0)
        is_out, ends = np.isin(self.layer.variables, left_out), self._ends()
        for group in self.groups:
            points = _in_box(group.means, group.covariances, group.bounds, group.factors)
            own = np.ix_(np.arange(len(self.layer)), group.rows, group.free)
            inside = ends[:, group.rows[:, None], group.free]
            points = np.clip(points, *inside)
            points = _marginal_modes(group, is_out[group.free], points)
            integers = np.flatnonzero((self._is_integer & ~is_out)[group.free])
            if len(integers):
                bounded = group.factors.any(axis=0) & ~is_out[group.free]
                points = _at_integers(group, points, integers, bounded, inside)
                if not is_out.any():
                    points = _beside_integers(group, points, integers)
            modes[own] = np.clip(points, *inside)
        return modes

    def _ends(self) -> FloatArray:
        """Lower and upper ends of the free variables of each row, (2, n, scope_size)."""
        ends = [self.evidence.bounds(v) for v in self.layer.variables.tolist()]
        return np.transpose(ends, (1, 2, 0))


def _in_box(
    means: FloatArray, covariances: FloatArray, bounds: _Bounds, factors: FloatArray
) -> FloatArray:
    """Best points (K, n, m) of Gaussians of which linear forms are bounded."""
    if len(factors) == 0:
        return means
    across = covariances @ factors.T
    centres, inner = means @ factors.T, factors @ across
    precisions: FloatArray = np.linalg.inv(inner).astype(np.float64)
    best = best_in_box(centres, precisions[:, None], bounds.low, bounds.high)
    # Free variables follow the forms by regression, at the mode as in the mean
    gains = np.linalg.solve(inner, across.transpose(0, 2, 1))
    return means + (best - centres) @ gains


def _at_integers(
    group: _Group, best: FloatArray, integers: IntArray, bounded: BoolArray, ends: FloatArray
) -> FloatArray:
    """Points (K, n, m) with the best integers found for some variables, decided one after the
    other, least freedom first, by the M-algorithm (Anderson and Mohan, 1984); the others follow by
    regression from the `best` points, `bounded` (m,) within `ends` (2, K, n, m).
    """
    # Other variables with bounds come last, for which integers make room or not
    is_integer = np.zeros(len(bounded), dtype=bool)
    is_integer[integers] = True
    others, left = np.flatnonzero(bounded & ~is_integer), np.flatnonzero(~bounded & ~is_integer)
    order = np.append(_by_freedom(group.covariances, integers), others)
    whole = np.append(order, left)
    factors = np.linalg.cholesky(group.covariances[:, whole[:, None], whole])[:, None]
    n_decided = len(order)
    slopes = _slopes_at_bounds(group, best, ends)
    units, rows = np.arange(len(best))[:, None, None], np.arange(best.shape[1])[:, None]
    # Innovations (K, n, B, I) less those of the best point, standardised, which determine the
    # integers, and log densities less that of the best point
    known, heights = np.zeros((*best.shape[:-1], 1, n_decided)), np.zeros((*best.shape[:-1], 1))
    for i, j in enumerate(order.tolist()):
        row = factors[..., i, :n_decided]
        centers = best[..., j, None] + (known @ row[..., None])[..., 0]
        scale, slope = row[..., i, None], slopes[..., j, None]
        low, high = ends[0, ..., j, None], ends[1, ..., j, None]
        if i < len(integers):
            low, high = np.ceil(low), np.floor(high)
            choices = np.clip(np.round(centers), low, high)[..., None] + _BESIDE
        else:
            choices = np.clip(centers + slope * scale**2, low, high)[..., None]
        is_out = (choices < low[..., None]) | (choices > high[..., None])
        steps = (choices - centers[..., None]) / scale[..., None]
        rise = slope[..., None] * (choices - best[..., j, None, None])
        total = np.where(is_out, -np.inf, heights[..., None] + rise - 0.5 * steps**2)
        total = total.reshape(*total.shape[:-2], -1)
        kept = np.argsort(-total, axis=-1, kind="stable")[..., :_N_KEPT]
        heights = total[units, rows, kept]
        known = known[units, rows, kept // choices.shape[-1]]
        known[..., i] = steps.reshape(total.shape)[units, rows, kept]
    points = np.empty(best.shape)
    followed = (factors[..., :n_decided] @ known[..., 0, :, None])[..., 0]
    points[..., whole] = best[..., whole] + followed
    points[..., integers] = np.round(points[..., integers])
    return points


def _beside_integers(group: _Group, points: FloatArray, integers: IntArray) -> FloatArray:
    """Points (K, n, m) whose other variables are the best ones for these integers."""
    is_other = ~group.factors[:, integers].any(axis=1)
    if not is_other.any():
        return points
    others = np.setdiff1d(np.arange(points.shape[-1]), integers)
    gains, covariances = _regression(group.covariances, others, integers)
    missed = points[..., integers] - group.means[..., integers]
    means = group.means[..., others] + missed @ gains.transpose(0, 2, 1)
    bounds = group.bounds
    bounds = replace(bounds, low=bounds.low[:, is_other], high=bounds.high[:, is_other])
    points = points.copy()
    points[..., others] = _in_box(means, covariances, bounds, group.factors[is_other][:, others])
    return points


def _slopes_at_bounds(group: _Group, best: FloatArray, ends: FloatArray) -> FloatArray:
    """Derivatives (K, n, m) of the log density at the best points, zero but at bounds."""
    is_at_bound = (best == ends[0]) | (best == ends[1])
    if not is_at_bound.any():
        return np.zeros(best.shape)
    missed = (group.means - best).transpose(0, 2, 1)
    slopes = np.linalg.solve(group.covariances, missed).transpose(0, 2, 1)
    return np.where(is_at_bound, slopes, 0.0)


def _by_freedom(covariances: FloatArray, variables: IntArray) -> IntArray:
    """Order of variables, each with the least variance left by those before it."""
    if len(variables) == 1:
        return variables
    left = covariances[:, variables[:, None], variables].mean(axis=0)
    order: list[int] = []
    for _ in variables:
        variances = np.diag(left).copy()
        variances[order] = np.inf
        j = int(variances.argmin())
        order.append(j)
        left = left - np.outer(left[:, j], left[j]) / left[j, j]
    return variables[order]


def _marginal_modes(group: _Group, is_out: BoolArray, start: FloatArray) -> FloatArray:
    """Best points (K, n, m) once variables that are left out, (m,), are integrated over bounds."""
    # Rows whose variables are all observed have none here. Without bounds, variables that are left
    # out have no effect on others.
    if is_out.all() or not is_out[group.factors.argmax(axis=1)].any():
        return start
    n_units, n_rows, _ = start.shape
    units, rows = (index.ravel() for index in np.indices((n_units, n_rows)))
    curvatures = np.zeros(start.shape[2])
    best = _best_points(group, units, rows, is_out, curvatures, start[units, rows])
    return best.reshape(start.shape)


def _best_points(
    group: _Group,
    units: IntArray,
    rows: IntArray,
    is_out: BoolArray,
    curvatures: FloatArray,
    start: FloatArray,
) -> FloatArray:
    """Best points (n, m) of pairs of unit and row, of sinh with `curvatures` (m,)."""
    forms = group.factors.argmax(axis=1)  # each bounds one variable
    is_latent = is_out[forms]
    latent, held, kept = forms[is_latent], forms[~is_latent], np.flatnonzero(~is_out)
    low, high = group.bounds.low[rows], group.bounds.high[rows]
    term = None
    if len(latent):
        gains, spreads = _regression(group.covariances, latent, kept)
        means = group.means[units, rows][:, latent]
        sides = low[:, is_latent], high[:, is_latent]
        own = group.means[units, rows][:, kept]
        term = _IntegratedBounds(own, means, gains[units], spreads[units], *sides)
    at = np.searchsorted(kept, held)
    within = group.covariances[:, kept[:, None], kept]
    precisions: FloatArray = np.linalg.inv(within).astype(np.float64, copy=False)
    density = ConcaveLogDensities(
        group.means[units, rows][:, kept],
        precisions[units],
        np.broadcast_to(curvatures[kept], (len(units), len(kept))),
        CoordinateBounds(at, low[:, ~is_latent], high[:, ~is_latent]),
        term,
    )
    best = start.copy()
    best[:, kept] = density.modes(start[:, kept])
    return best


@dataclass(frozen=True)
class _IntegratedBounds:
    """Log probabilities of the bounds of l variables given m others, for n pairs, which are concave
    in the latter (Prékopa, 1973).
    """

    means: FloatArray  # (n, m), of the others
    centers: FloatArray  # (n, l), of the l variables there
    gains: FloatArray  # (n, l, m)
    spreads: FloatArray  # (n, l, l)
    low: FloatArray  # (n, l)
    high: FloatArray  # (n, l)

    def _normals(self, z: FloatArray, chosen: IntArray) -> tuple[FloatArray, TruncatedNormals]:
        shift = np.einsum("nlm,nm->nl", self.gains[chosen], z - self.means[chosen])
        centers = self.centers[chosen] + shift
        low, high = self.low[chosen], self.high[chosen]
        # A unit for each pair
        sides = low[:, None], high[:, None]
        return _standardized(centers[:, None], self.spreads[chosen], *sides)

    def values(self, z: FloatArray, chosen: IntArray) -> FloatArray:
        return self._normals(z, chosen)[1].log_mass

    def derivatives(self, z: FloatArray, chosen: IntArray) -> tuple[FloatArray, FloatArray]:
        """By moments of y truncated to a box: ``S⁻¹ (E[y] - center)``, ``S⁻¹ (S - Cov[y]) S⁻¹``."""
        scales, normals = self._normals(z, chosen)
        mean, covariance = normals.moments()
        spreads, gains = self.spreads[chosen], self.gains[chosen]
        inner = covariance.transpose(2, 0, 1) * (scales[:, :, None] * scales[:, None])
        inverse = np.linalg.inv(spreads)
        pull = np.einsum("nij,nj->ni", inverse, scales * mean.T)
        curvature = gains.transpose(0, 2, 1) @ inverse @ (spreads - inner) @ inverse @ gains
        return np.einsum("nlm,nl->nm", gains, pull), curvature


def _regression(
    covariances: FloatArray, of: IntArray, on: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Regression of some variables on others: factors (K, o, m), covariances left (K, o, o)."""
    across = covariances[:, of[:, None], on]
    within = covariances[:, on[:, None], on]
    gain = np.linalg.solve(within, across.transpose(0, 2, 1)).transpose(0, 2, 1)
    left: FloatArray = covariances[:, of[:, None], of] - gain @ across.transpose(0, 2, 1)
    return gain.astype(np.float64, copy=False), left


def _standardized(
    centres: FloatArray, inner: FloatArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, TruncatedNormals]:
    """Standard deviations (K, r) of forms, and the forms, standardised, within `low`, `high`."""
    scales = np.sqrt(np.diagonal(inner, axis1=1, axis2=2))
    # Bounds that overflow are as good as infinite
    with np.errstate(over="ignore"):
        below, above = ((ends - centres) / scales[:, None] for ends in (low, high))
    correlations = inner / (scales[:, :, None] * scales[:, None])
    n_units, n_rows, n_forms = centres.shape
    each = np.repeat(correlations, n_rows, axis=0).transpose(1, 2, 0)
    shape = n_forms, n_units * n_rows
    return scales, TruncatedNormals(
        below.transpose(2, 0, 1).reshape(shape),
        above.transpose(2, 0, 1).reshape(shape),
        np.ascontiguousarray(each),
    )


@restrict.register
def _restrict_gaussians(
    layer: MultivariateGaussianLayer, evidence: Evidence
) -> RestrictedGaussians:
    """Intervals of variables, for each set of observed and bounded ones."""
    ends = np.stack([evidence.ends(variable) for variable in layer.variables.tolist()], axis=-1)
    kind = np.where(np.isnan(layer.cells(evidence.X)), 0, 1)
    # 0 free, 1 observed, 2 bounded: rows of one kind share their factorisations
    kind[~np.isinf(ends).all(axis=0)] = 2
    first, kind_of = unique_rows(kind)
    kinds = kind[first]
    most = int((kinds == 2).sum(axis=1).max(initial=0))
    if most > MAX_BOUNDED:
        condition = f"bound at most {MAX_BOUNDED} columns of one multivariate Gaussian"
        way_out = "Bound fewer columns, or fit covariance_type='diag' or max_joint_columns=3."
        raise CircuitPropertyError(must("conditions", condition, way_out, bounded=most))
    bounds = []
    for number, own in enumerate(kinds):
        rows, bounded = np.flatnonzero(kind_of == number), np.flatnonzero(own == 2)
        low, high = ends[:, rows[:, None], bounded]
        bounds.append(_Bounds(rows, np.eye(len(own))[bounded], low, high))
    return RestrictedGaussians(layer, evidence, bounds)


@singledispatch
def restrict_forms(layer: InputLayer, known: Evidence, directions: FloatArray) -> RestrictedLayer:
    """Restrict a layer to bounds on linear forms of one row, ``directions`` (r, n_columns + 2):
    factors of columns, lower and upper ends; those of single columns are among them.
    """
    condition = "be of a family whose linear forms have a known distribution"
    way_out = "Pass method='estimate' for an average over draws."
    raise CircuitPropertyError(must("input units", condition, way_out, family=type(layer).__name__))


@restrict_forms.register
def _restrict_gaussian_forms(
    layer: MultivariateGaussianLayer, known: Evidence, directions: FloatArray
) -> RestrictedGaussians:
    forms = directions[:, layer.variables]
    low, high = directions[None, :, -2], directions[None, :, -1]
    bounds = [_Bounds(np.arange(len(known)), forms, low, high)]
    return RestrictedGaussians(layer, known, bounds)


def can_bound_forms(layer: InputLayer, variables: list[int]) -> bool:
    """Tell whether every unit of a layer has the distribution of forms of these variables."""
    is_registered = restrict_forms.dispatch(type(layer)) is not restrict_forms.dispatch(object)
    return is_registered and all(
        np.isin(variables, scope).all() for scope in layer.scopes[layer.scope_runs[0]]
    )


class RestrictedJohnson(RestrictedLayer):
    """Hyperbolic sines of Gaussians of which some variables are observed or bounded."""

    def __init__(self, layer: JohnsonGaussianLayer, evidence: Evidence) -> None:
        super().__init__(layer, evidence)
        self._map = layer.map
        self._cells, *self._ends = (
            np.ascontiguousarray(values[:, layer.variables])
            for values in (evidence.X, evidence.box.lower, evidence.box.upper)
        )
        stop = np.ascontiguousarray(evidence.box.ends[:, layer.variables])
        lower, upper, stop = (self._map.normal(ends) for ends in (*self._ends, stop))
        normal, box = self._map.normal(self._cells), Box(lower, upper, stop=stop)
        self._normal = Evidence(normal, box, evidence.least_mass)
        inner = restrict(layer.normal, self._normal)
        assert isinstance(inner, RestrictedGaussians)
        self._inner = inner

    def log_mass(self) -> FloatArray:
        return self._inner.log_mass() + self._map.log_slopes(self._cells)

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
        # One row is one pattern: there is one group
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
        """Evidence of a single row."""
        inner = restrict(self.layer.normal, self._normal.rows(np.array([row])))
        assert isinstance(inner, RestrictedGaussians)
        return inner.groups

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        drawn, cells = self._map.cells(self._inner.draw(units, rows, rng)), self._cells[rows]
        low, high = (ends[rows] for ends in self._ends)
        return np.where(np.isnan(cells), np.fmin(np.fmax(drawn, low), high), cells)

    def _log_densities(self, points: FloatArray) -> FloatArray:
        return self.layer.log_densities(points)

    def mode(self, units: IntArray, rows: IntArray, left_out: IntArray = NO_COLUMNS) -> FloatArray:
        best = self._normal.X[rows]
        is_out = np.isin(self.layer.variables, left_out)
        for own, group, at in self._inner._pairs_by_group(rows):
            best[np.ix_(own, group.free)] = self._best(group, units[own], at, is_out[group.free])
        cells, ends = self._cells[rows], [ends[rows] for ends in self._ends]
        found = np.fmin(np.fmax(self._map.cells(best), ends[0]), ends[1])
        return np.where(np.isnan(cells), found, cells)

    def _best(self, group: _Group, k: IntArray, at: IntArray, is_out: BoolArray) -> FloatArray:
        """Best points z (n, m) of pairs, from the means moved into the bounds."""
        start: FloatArray = group.means[k, at].copy()
        # Rows whose variables are all observed have none here
        if is_out.all():
            return start
        forms = group.factors.argmax(axis=1)
        start[:, forms] = np.clip(start[:, forms], group.bounds.low[at], group.bounds.high[at])
        return _best_points(group, k, at, is_out, self._map.curvatures[group.free], start)

    def _inside(self, values: FloatArray) -> FloatArray:
        """Means within their intervals: rounding may have carried them out."""
        inside: FloatArray = np.fmin(np.fmax(values, self._ends[0]), self._ends[1])
        return np.where(np.isnan(self._cells), inside, values)


def _tilt(group: _Group, power: FloatArray) -> tuple[FloatArray, _Group]:
    """Means (K, n) of exp(power · z) over the free variables, and the law of z with that weight."""
    shift = group.covariances @ power
    log_factor = group.means @ power + 0.5 * (shift @ power)[:, None]
    moved = shift @ group.factors.T
    normals, n_rows = group.normals, len(group.rows)
    if group.n_bounded:
        steps = np.repeat((moved / group.scales).T, n_rows, axis=1)
        # Under the weight exp(power · z) a Gaussian has another mean: its intervals move the other
        # way
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
    # sinh a = (e^a - e^-a) / 2, sinh² a = (e^2a + e^-2a - 2) / 4
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
            # sinh a sinh b = (e^(a+b) - e^(a-b) - e^(b-a) + e^(-a-b)) / 4
            for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                total += a * b * _tilt(group, a * powers[i] + b * powers[j])[0]
            product = total[:, 0] / (4.0 * curvatures[i] * curvatures[j])
            second[:, i, j] = second[:, j, i] = product
    return first, second - first[:, :, None] * first[:, None]


restrict.register(JohnsonGaussianLayer, RestrictedJohnson)
