"""Joint normal distributions truncated to a box.

Every query is one about a joint normal distribution given that it lies in the box, which
`restriction` answers, divided by the probability of the box.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from skcircuits.circuits.inputs.base import Box, DensityLayer, InputUnit
from skcircuits.circuits.inputs.multivariate_gaussian import (
    MultivariateGaussian,
    MultivariateGaussianLayer,
)
from skcircuits.circuits.inputs.registry import register_input_unit
from skcircuits.circuits.inputs.restriction import Evidence, RestrictedLayer, restrict
from skcircuits.circuits.inputs.restriction._evidence import Feature
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray


class TruncatedGaussianLayer(DensityLayer):
    """Many units over the same variables with one box: ``normal`` without it."""

    def __init__(
        self, variables: IntArray, lower: FloatArray, upper: FloatArray, gaussians: GaussianStack
    ) -> None:
        self.variables, self.lower, self.upper = variables, lower, upper
        self.normal = MultivariateGaussianLayer(variables, gaussians)
        self.scopes = self.normal.scopes
        # By the method that evaluates rows: those without any cell have log density 0 exactly
        nothing = np.full((1, int(variables.max()) + 1), np.nan)
        self.log_masses = self._restricted(nothing).log_mass()

    @classmethod
    def stack(cls, units: Sequence[TruncatedGaussian]) -> TruncatedGaussianLayer:
        inner = MultivariateGaussianLayer.stack([unit.normal for unit in units])
        return cls(inner.variables, units[0].lower, units[0].upper, inner.gaussians)

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

    def within(self, box: Box) -> Box:
        """The parts of the boxes of rows that lie in the box of the units."""
        lower, upper, stop = box.lower.copy(), box.upper.copy(), box.ends.copy()
        own = self.variables
        lower[:, own] = np.fmax(lower[:, own], np.where(np.isinf(self.lower), np.nan, self.lower))
        for ends in (upper, stop):
            ends[:, own] = np.fmin(ends[:, own], np.where(np.isinf(self.upper), np.nan, self.upper))
        return Box(lower, upper, box.closed, box.states, stop)

    def _is_bounded(self, X: FloatArray) -> BoolArray:
        """Tell which rows lack a bounded variable: elsewhere the box is a matter of the cells."""
        bounded = np.isfinite(self.lower) | np.isfinite(self.upper)
        return np.asarray(np.isnan(X[:, self.variables[bounded]]).any(axis=1))

    def _restricted(self, X: FloatArray) -> RestrictedLayer:
        nothing = np.full(X.shape, np.nan)
        return restrict(self.normal, Evidence(X, self.within(Box(nothing, nothing))))

    def log_prob(self, X: FloatArray) -> FloatArray:
        cells = self.normal.cells(X)
        outside = ((cells < self.lower) | (cells > self.upper)).any(axis=1)
        values = self.normal.log_prob(X) - self.log_masses
        some = np.flatnonzero(self._is_bounded(X))
        if len(some):
            values[:, some] = self._restricted(X[some]).log_mass() - self.log_masses
        values[:, outside] = -np.inf
        return values

    def log_box(self, box: Box) -> FloatArray:
        """Log probability of each row's box; at most three bounded variables of the unit."""
        return self.normal.log_box(self.within(box)) - self.log_masses

    def log_max(self, X: FloatArray) -> FloatArray:
        return self._restricted(X).log_max() - self.log_masses

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        restricted, row = self._of_cells(cells)
        return restricted.mode(units, row)

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        restricted, row = self._of_cells(cells)
        return restricted.draw(units, row, rng)

    def _of_cells(self, cells: FloatArray) -> tuple[RestrictedLayer, IntArray]:
        """The units restricted to the distinct rows of cells (m, scope_size), and these rows."""
        distinct, row = np.unique(cells, axis=0, return_inverse=True)
        X = np.full((len(distinct), int(self.variables.max()) + 1), np.nan)
        X[:, self.variables] = distinct
        return self._restricted(X), row.ravel()

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean, variance = self.normal.conditional_moments(X)
        some = np.flatnonzero(self._is_bounded(X))
        if len(some):
            mean[:, some], variance[:, some] = self._restricted(X[some]).moments()
        return mean, variance


class _RestrictedTruncatedGaussians(RestrictedLayer):
    """Truncated Gaussians of which some variables are observed or bounded further."""

    def __init__(self, layer: TruncatedGaussianLayer, evidence: Evidence) -> None:
        self.layer = layer
        self._inner = restrict(layer.normal, Evidence(evidence.X, layer.within(evidence.box)))

    def log_mass(self) -> FloatArray:
        return self._inner.log_mass() - self.layer.log_masses

    def moments(self) -> tuple[FloatArray, FloatArray]:
        return self._inner.moments()

    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        return self._inner.feature_moments(row, features)

    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        return self._inner.draw(units, rows, rng)

    def log_max(self) -> FloatArray:
        return self._inner.log_max() - self.layer.log_masses

    def mode(self, units: IntArray, rows: IntArray) -> FloatArray:
        return self._inner.mode(units, rows)

    def marginal_mode(self, units: IntArray, rows: IntArray, left_out: IntArray) -> FloatArray:
        return self._inner.marginal_mode(units, rows, left_out)


restrict.register(TruncatedGaussianLayer, _RestrictedTruncatedGaussians)


@register_input_unit
class TruncatedGaussian(InputUnit):
    """A joint normal distribution truncated to a box.

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

    Raises
    ------
    ValueError
        If shapes do not match, the matrix is not a covariance, or the box is empty.

    See Also
    --------
    MultivariateGaussian : The same without truncation.

    Notes
    -----
    Densities with any missing cells, conditionals, boxes, means, variances, draws and most probable
    completions are exact, also under intervals; variables that are truncated or bounded by a query
    are at most three together. `Circuit.marginalize` can remove variables that are not truncated.
    Products and kernels have no closed form.

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
    ) -> None:
        self.normal = MultivariateGaussian(variables, mean, covariance)
        self.variables = self.scope = self.normal.variables
        self.mean, self.covariance = self.normal.mean, self.normal.covariance
        # Variables are sorted by the inner unit
        order = np.argsort(variables)
        ends = [_infinite_where_largest(float_array(own, "bounds")) for own in (lower, upper)]
        if any(own.shape != (len(self.variables),) for own in ends):
            condition = f"have shape ({len(self.variables)},)"
            shapes = tuple(own.shape for own in ends)
            raise ValueError(
                must("lower and upper of a truncated Gaussian unit", condition, shapes=shapes)
            )
        self.lower, self.upper = (own[order] for own in ends)
        if not (self.lower < self.upper).all():
            raise ValueError(
                must(
                    "lower of a truncated Gaussian unit",
                    "be less than upper",
                    lower=self.lower,
                    upper=self.upper,
                )
            )
        self.lower.flags.writeable = self.upper.flags.writeable = False

    @property
    def layer_key(self) -> Hashable:
        """Units over the same variables with the same box share a layer."""
        return self.layer_type, self.variables, self.lower.tobytes(), self.upper.tobytes()

    def parameters(self) -> dict[str, Any]:
        # Files hold finite numbers: the largest one stands for infinity
        bounds = {"lower": np.nan_to_num(self.lower), "upper": np.nan_to_num(self.upper)}
        return {**self.normal.parameters(), **bounds}

    def _of(self, normal: MultivariateGaussian | None) -> InputUnit | None:
        """The unit of some of the variables; one without truncated ones is a Gaussian."""
        if normal is None:
            return None
        kept = [self.variables.index(v) for v in normal.variables]
        lower, upper = self.lower[kept], self.upper[kept]
        if np.isinf(lower).all() and np.isinf(upper).all():
            return normal
        return TruncatedGaussian(normal.variables, normal.mean, normal.covariance, lower, upper)

    def marginalize(self, variables: frozenset[int]) -> InputUnit | None:
        removed = np.isin(self.variables, list(variables))
        truncated = np.isfinite(self.lower) | np.isfinite(self.upper)
        if (removed & truncated).any() and not removed.all():
            raise CircuitPropertyError(
                must(
                    "variables that are removed from a truncated Gaussian unit",
                    "not be truncated",
                    "Leave their cells missing instead: queries marginalise them.",
                    truncated=np.array(self.variables)[removed & truncated].tolist(),
                )
            )
        return self._of(self.normal.marginalize(variables))

    def condition(self, x: FloatArray) -> InputUnit | None:
        return self._of(self.normal.condition(x))


def _infinite_where_largest(ends: FloatArray) -> FloatArray:
    """Ends of a box, infinite where they are the largest float."""
    is_largest = np.abs(ends) >= np.finfo(np.float64).max
    return np.where(is_largest, np.copysign(np.inf, ends), ends)
