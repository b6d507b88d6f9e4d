"""Joint normal distributions, or hyperbolic sines of them, truncated to a box.

Every query is one about the distribution given that it lies in the box, which `restriction`
answers, divided by the probability of the box.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from skcircuits.circuits.inputs.base import Box, DensityLayer, InputUnit, register_input_unit
from skcircuits.circuits.inputs.factor_gaussian import FactorGaussian
from skcircuits.circuits.inputs.gaussian import (
    Gaussian,
    GaussianLayer,
    MultivariateGaussian,
    MultivariateGaussianLayer,
)
from skcircuits.circuits.inputs.johnson import JohnsonGaussian, JohnsonGaussianLayer
from skcircuits.circuits.inputs.restriction import Evidence, RestrictedLayer, restrict
from skcircuits.circuits.inputs.restriction._evidence import (
    LEAST_MASS,
    NO_COLUMNS,
    Breakpoints,
    Feature,
    Parts,
    breakpoints,
    within,
)
from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._patterns import unique_rows
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray


class TruncatedGaussianLayer(DensityLayer):
    """Many units over the same variables with one box; ``normal`` is without it, its columns the
    places of the variables, ``kept`` in the scope or ``hidden``.
    """

    def __init__(
        self, first: TruncatedGaussian, normal: MultivariateGaussianLayer | JohnsonGaussianLayer
    ) -> None:
        self.lower, self.upper = first.lower, first.upper
        self.normal = normal
        is_hidden = np.isin(first.variables, first.hidden)
        self.kept, self.hidden = np.flatnonzero(~is_hidden), np.flatnonzero(is_hidden)
        self.scope = np.array(first.scope)
        self.scopes = np.tile(self.scope, (len(normal), 1))
        # By the method that evaluates rows: those without any cell have log density 0 exactly
        nothing = np.full((1, int(self.scope.max()) + 1), np.nan)
        self.log_masses = self._restricted(nothing).log_mass()

    @classmethod
    def stack(cls, units: Sequence[TruncatedGaussian]) -> TruncatedGaussianLayer:
        family: Any = units[0].normal.layer_type
        normal = family.stack([unit.normal for unit in units])
        return cls(units[0], normal.on_columns(np.arange(len(normal.variables))))

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of all units; the finite bounds count once."""
        n_bounds = np.isfinite(self.lower).sum() + np.isfinite(self.upper).sum()
        return self.normal.n_parameters + int(n_bounds)

    @property
    def size_in_bytes(self) -> int:
        bounds = self.lower.nbytes + self.upper.nbytes + self.log_masses.nbytes
        return self.normal.size_in_bytes + bounds

    @property
    def bytes_per_row(self) -> int:
        return self.normal.bytes_per_row

    def cells(self, X: FloatArray) -> FloatArray:
        """Cells of all variables, (n, n_variables), NaN for those that are integrated out."""
        cells = np.full((len(X), len(self.lower)), np.nan)
        cells[:, self.kept] = X[:, self.scope]
        return cells

    def evidence(self, X: FloatArray, box: Box) -> Evidence:
        """Cells of rows, and the parts of their boxes that lie in the box of the units."""
        ends = [self.cells(own) for own in (box.lower, box.upper, box.ends)]
        # NaN is no bound, as infinity is in the box of the units
        np.fmax(ends[0], np.where(np.isinf(self.lower), np.nan, self.lower), out=ends[0])
        for own in ends[1:]:
            np.fmin(own, np.where(np.isinf(self.upper), np.nan, self.upper), out=own)
        return Evidence(self.cells(X), Box(ends[0], ends[1], box.closed, stop=ends[2]))

    def _is_bounded(self, X: FloatArray) -> BoolArray:
        """Tell which rows lack a bounded variable: elsewhere the box is a matter of the cells."""
        bounded = np.isfinite(self.lower) | np.isfinite(self.upper)
        return np.asarray(np.isnan(self.cells(X)[:, bounded]).any(axis=1))

    def _restricted(self, X: FloatArray) -> RestrictedLayer:
        return restrict(self.normal, self.evidence(X, _no_box(X)))

    def log_prob(self, X: FloatArray) -> FloatArray:
        values = np.empty((len(self), len(X)))
        is_bounded = self._is_bounded(X)
        some, others = np.flatnonzero(is_bounded), np.flatnonzero(~is_bounded)
        if len(some):
            values[:, some] = self._restricted(X[some]).log_mass()
        cells = self.cells(X)
        values[:, others] = self.normal.log_prob(cells[others])
        outside = (cells < self.lower) | (cells > self.upper)
        values[:, outside.any(axis=1)] = -np.inf
        return values - self.log_masses

    def log_box(self, box: Box) -> FloatArray:
        """Log probability of each row's box; at most three bounded variables of the unit."""
        return self.normal.log_box(self.evidence(box.lower, box).box) - self.log_masses

    def log_max(self, X: FloatArray) -> FloatArray:
        return restrict(self, Evidence(X, _no_box(X))).log_max()

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        restricted, row = self._of_cells(cells)
        return restricted.mode(units, row)

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        restricted, row = self._of_cells(cells)
        return restricted.draw(units, row, rng)

    def _of_cells(self, cells: FloatArray) -> tuple[RestrictedLayer, IntArray]:
        """The units restricted to the distinct rows of cells (m, scope_size), and these rows."""
        first, row = unique_rows(cells)
        X = np.full((len(first), int(self.scope.max()) + 1), np.nan)
        X[:, self.scope] = cells[first]
        return restrict(self, Evidence(X, _no_box(X))), row

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, variance = self.normal.conditional_moments(self.cells(X))
        some = np.flatnonzero(self._is_bounded(X))
        if len(some):
            mean[:, some], variance[:, some] = self._restricted(X[some]).moments()
        return mean[:, :, self.kept], variance[:, :, self.kept]


class _RestrictedTruncatedGaussians(RestrictedLayer):
    """Truncated Gaussians of which some variables are observed or bounded further."""

    def __init__(self, layer: TruncatedGaussianLayer, evidence: Evidence) -> None:
        super().__init__(layer, evidence)
        self._inner = restrict(layer.normal, layer.evidence(evidence.X, evidence.box))

    def log_mass(self) -> FloatArray:
        return self._inner.log_mass() - self.layer.log_masses

    def moments(self) -> tuple[FloatArray, FloatArray]:
        mean, variance = self._inner.moments()
        return mean[:, :, self.layer.kept], variance[:, :, self.layer.kept]

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        place = dict(zip(self.layer.scope.tolist(), self.layer.kept.tolist(), strict=True))
        own = [feature._replace(variable=place.get(feature.variable, -1)) for feature in features]
        return self._inner.feature_moments(row, own)

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        return self._inner.draw(units, rows, rng)[:, self.layer.kept]

    def mode(self, units: IntArray, rows: IntArray, left_out: IntArray = NO_COLUMNS) -> FloatArray:
        places = self.layer.kept[np.isin(self.layer.scope, left_out)]
        hidden = np.union1d(places, self.layer.hidden)
        return self._inner.mode(units, rows, hidden)[:, self.layer.kept]


restrict.register(TruncatedGaussianLayer, _RestrictedTruncatedGaussians)


@breakpoints.register
def _of_truncated_gaussians(layer: TruncatedGaussianLayer, variable: int) -> Breakpoints:
    place = int(layer.kept[layer.scope == variable][0])
    ends = np.array([layer.lower[place], layer.upper[place]])
    inside = breakpoints(layer.normal, place).within(*ends)
    return inside._replace(knots=ends[np.isfinite(ends)])


@register_input_unit
class TruncatedGaussian(InputUnit):
    """A joint normal distribution, or hyperbolic sines of one, truncated to a box.

    Parameters
    ----------
    variables : sequence of int
        Distinct indices of columns.
    mean : array-like of shape (n_variables,)
        Mean before truncation, in the units of the columns.
    covariance : array-like of shape (n_variables, n_variables)
        Covariance before truncation, symmetric and positive definite.
    lower, upper : array-like of shape (n_variables,)
        Ends of the box, which belong to it; infinite for variables that are not truncated. At most
        three variables are truncated.
    hidden : sequence of int, default=()
        Truncated variables that are integrated out: the others depend on the box by them.
    centers, curvatures : array-like of shape (n_variables,), default=None
        Those of a `JohnsonGaussian`, whose distribution is truncated instead: `mean` and
        `covariance` are then those of the normal variables, and the box is one of the columns.

    Raises
    ------
    ValueError
        If shapes do not match, the matrix is not a covariance, or the box is empty.

    See Also
    --------
    MultivariateGaussian, JohnsonGaussian : The same without truncation.

    Notes
    -----
    Densities with any missing cells, conditionals, boxes, means, variances, draws and most probable
    completions are exact, also under intervals; variables that are truncated or bounded by a query
    are at most three together. Products and kernels have no closed form.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Circuit, TruncatedGaussian
    >>> unit = TruncatedGaussian([0], [0.0], [[1.0]], lower=[0.0], upper=[np.inf])
    >>> Circuit(unit).expectation(np.array([[np.nan]])).round(3)
    array([[0.798]])
    """

    layer_type = TruncatedGaussianLayer

    def __init__(
        self,
        variables: Sequence[int],
        mean: Sequence[float] | FloatArray,
        covariance: Sequence[Sequence[float]] | FloatArray,
        lower: Sequence[float] | FloatArray,
        upper: Sequence[float] | FloatArray,
        hidden: Sequence[int] = (),
        centers: Sequence[float] | FloatArray | None = None,
        curvatures: Sequence[float] | FloatArray | None = None,
    ) -> None:
        self.normal: MultivariateGaussian | JohnsonGaussian
        if centers is None or curvatures is None:
            self.normal = MultivariateGaussian(variables, mean, covariance)
        else:
            self.normal = JohnsonGaussian(variables, mean, covariance, centers, curvatures)
        self.variables = self.normal.variables
        own = self.normal.parameters()
        self.mean, self.covariance = own["mean"], own["covariance"]
        self.hidden = tuple(sorted(int(v) for v in hidden))
        self.scope = tuple(v for v in self.variables if v not in self.hidden)
        # Variables are sorted by the inner unit
        order = np.argsort(variables)
        ends = [_infinite_where_largest(float_array(own, "bounds")) for own in (lower, upper)]
        if any(own.shape != (len(self.variables),) for own in ends):
            condition = f"have shape ({len(self.variables)},)"
            shapes = tuple(own.shape for own in ends)
            raise invalid("lower and upper of a truncated Gaussian unit", condition, shapes=shapes)
        self.lower, self.upper = (own[order] for own in ends)
        is_free = np.isinf(self.lower) & np.isinf(self.upper)
        free = np.array(self.variables)[is_free].tolist()
        if not self.scope or not set(self.variables).difference(free).issuperset(self.hidden):
            condition = "be truncated variables, not all variables"
            raise invalid("hidden of a truncated Gaussian unit", condition, hidden=self.hidden)
        if not (self.lower < self.upper).all():
            what = "lower of a truncated Gaussian unit"
            raise invalid(what, "be less than upper", lower=self.lower, upper=self.upper)
        self.lower.flags.writeable = self.upper.flags.writeable = False

    @property
    def layer_key(self) -> Hashable:
        """Units over the same variables with the same box, and map, share a layer."""
        box = self.lower.tobytes(), self.upper.tobytes()
        return self.layer_type, self.normal.layer_key, self.hidden, *box

    def parameters(self) -> dict[str, Any]:
        # Files hold finite numbers: the largest one stands for infinity
        bounds = {"lower": np.nan_to_num(self.lower), "upper": np.nan_to_num(self.upper)}
        return {**self.normal.parameters(), **bounds, "hidden": np.array(self.hidden, dtype=int)}

    def _of(
        self, normal: MultivariateGaussian | JohnsonGaussian | None, hidden: frozenset[int]
    ) -> InputUnit | None:
        """The unit of some of the variables; one without truncated ones is a Gaussian."""
        if normal is None or hidden.issuperset(normal.variables):
            return None
        kept = [self.variables.index(v) for v in normal.variables]
        lower, upper = self.lower[kept], self.upper[kept]
        if np.isinf(lower).all() and np.isinf(upper).all():
            return normal
        own = sorted(hidden.intersection(normal.variables))
        return TruncatedGaussian(**normal.parameters(), lower=lower, upper=upper, hidden=own)

    def marginalize(self, variables: frozenset[int]) -> InputUnit | None:
        truncated = np.isfinite(self.lower) | np.isfinite(self.upper)
        bounded = variables.intersection(np.array(self.variables)[truncated].tolist())
        # The others depend on the box by truncated variables
        return self._of(self.normal.marginalize(variables - bounded), bounded.union(self.hidden))

    def condition(self, x: FloatArray) -> InputUnit | None:
        row = np.array(x, dtype=np.float64)
        row[list(self.hidden)] = np.nan
        return self._of(self.normal.condition(row), frozenset(self.hidden))


@within.register(GaussianLayer)
@within.register(MultivariateGaussianLayer)
@within.register(JohnsonGaussianLayer)
@within.register(TruncatedGaussianLayer)
def _gaussians_within(
    layer: DensityLayer, units: Sequence[Any], variable: int, low: float, high: float
) -> list[Parts]:
    # Truncated units of a layer have one box
    joint = _joint(units[0])
    place = joint.variables.index(variable)
    lower, upper = (
        getattr(joint, name, np.full(len(joint.variables), end)).copy()
        for name, end in (("lower", -np.inf), ("upper", np.inf))
    )
    lower[place], upper[place] = max(lower[place], low), min(upper[place], high)
    if lower[place] >= upper[place]:
        return [[] for _ in units]
    ends = np.full((2, 1, max(joint.variables) + 1), np.nan)
    ends[:, 0, variable] = low, high
    ends[np.isinf(ends)] = np.nan
    masses = np.exp(layer.log_box(Box(*ends)))[:, 0].tolist()
    box = {"lower": lower, "upper": upper}
    return [
        [(mass, TruncatedGaussian(**{**_joint(unit).parameters(), **box}))]
        if mass > LEAST_MASS
        else []
        for unit, mass in zip(units, masses, strict=True)
    ]


def _joint(unit: Any) -> MultivariateGaussian | JohnsonGaussian | TruncatedGaussian:
    """A unit of a Gaussian family as one that may be truncated."""
    if isinstance(unit, Gaussian):
        return MultivariateGaussian([unit.variable], [unit.mean], [[unit.std**2]])
    if isinstance(unit, FactorGaussian):
        return MultivariateGaussian(unit.variables, unit.mean, unit.covariance)
    joint: MultivariateGaussian | JohnsonGaussian | TruncatedGaussian = unit
    return joint


def _infinite_where_largest(ends: FloatArray) -> FloatArray:
    """Ends of a box, infinite where they are the largest float."""
    is_largest = np.abs(ends) >= np.finfo(np.float64).max
    return np.where(is_largest, np.copysign(np.inf, ends), ends)


def _no_box(X: FloatArray) -> Box:
    """Boxes without bounds for some rows."""
    nothing = np.full(X.shape, np.nan)
    return Box(nothing, nothing)
