"""Normal distributions of one continuous variable, and of several jointly, as input units."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from skcircuits.circuits.inputs._gaussian_integrals import (
    complete,
    conditional_moments,
    log_box_probability,
    log_density,
    log_peak,
    tied_rows,
    weighted_score,
)
from skcircuits.circuits.inputs.base import (
    LOG_SQRT_2PI,
    Box,
    Conditionals,
    DifferentiableLayer,
    InputUnit,
    WriteMasses,
    check_variable,
    check_variables,
    divergence,
    divide_inputs,
    entropy,
    moments_of_columns,
    multiply_inputs,
    register_input_unit,
)
from skcircuits.circuits.structure.units import Scaled, Scope
from skcircuits.exceptions import CircuitPropertyError, invalid, must
from skcircuits.numerics._arrays import Rows, Scatter, float_array, is_finite, log_ndtr_difference
from skcircuits.numerics._gaussian_stack import (
    GaussianStack,
    conditional_mean,
    sample_conditional,
)
from skcircuits.numerics._patterns import unique_rows
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray


class GaussianLayer(DifferentiableLayer):
    """Many univariate Gaussian units: ``variables``, ``means``, ``stds`` (n_units,)."""

    def __init__(self, variables: IntArray, means: FloatArray, stds: FloatArray) -> None:
        self.scopes = variables[:, None]
        self.means = means
        self.stds = stds
        self._log_peak = -np.log(stds) - LOG_SQRT_2PI

    @classmethod
    def stack(cls, units: Sequence[Gaussian]) -> GaussianLayer:
        return cls(
            np.array([unit.variable for unit in units]),
            np.array([unit.mean for unit in units]),
            np.array([unit.std for unit in units]),
        )

    @property
    def n_parameters(self) -> int:
        return 2 * len(self)

    def log_prob(self, X: FloatArray) -> FloatArray:
        cells = X.T[self.scopes[:, 0]]
        missing = np.isnan(cells)
        # Squares beyond floats are densities of zero
        with np.errstate(over="ignore"):
            cells -= self.means[:, None]
            cells /= self.stds[:, None]
            np.square(cells, out=cells)
        cells *= -0.5
        cells += self._log_peak[:, None]
        cells[missing] = 0.0
        return cells

    def log_densities(self, units: IntArray, points: FloatArray) -> FloatArray:
        """Log densities (m,) of some units, each at a point of its own."""
        with np.errstate(over="ignore"):
            squares = np.square((points - self.means[units]) / self.stds[units])
        return self._log_peak[units] - 0.5 * squares

    def log_box(self, box: Box) -> FloatArray:
        column = self.scopes[:, 0]
        # Bounds that overflow are as good as infinite
        with np.errstate(over="ignore"):
            lower = (box.lower.T[column] - self.means[:, None]) / self.stds[:, None]
            upper = (box.ends.T[column] - self.means[:, None]) / self.stds[:, None]
        return log_ndtr_difference(
            np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper)
        )

    def log_max(self, X: FloatArray) -> FloatArray:
        missing = np.isnan(X.T[self.scopes[:, 0]])
        # The best completion is the mean, where the density is highest
        return np.where(missing, self._log_peak[:, None], self.log_prob(X))

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        return np.where(np.isnan(cells), self.means[units][:, None], cells)

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        drawn = self.means[units] + self.stds[units] * rng.standard_normal(len(units))
        return np.where(np.isnan(cells), drawn[:, None], cells)

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return moments_of_columns(self, X, self.means, np.square(self.stds))

    def add_score(self, score: FloatArray, flows: FloatArray, X: FloatArray) -> None:
        pulls = self.means[:, None] - X.T[self.scopes[:, 0]]
        # A missing cell is integrated out: the density does not depend on it.
        pulls[np.isnan(pulls)] = 0.0
        pulls /= self.stds[:, None]
        # Flows come first: a narrow unit far away has none, but perhaps an infinite gradient.
        pulls *= flows
        pulls /= self.stds[:, None]
        self._scatter.add(score, pulls)

    @cached_property
    def _scatter(self) -> Scatter:
        return Scatter(self.scopes[:, 0])


@register_input_unit
class Gaussian(InputUnit):
    """A normal distribution.

    Parameters
    ----------
    variable : int
        Index of the column.
    mean : float
        Mean, in the unit of the column.
    std : float
        Standard deviation, positive, in the unit of the column.

    Examples
    --------
    >>> from skcircuits.circuits import Gaussian
    >>> Gaussian(1, mean=0.0, std=2.0)
    Gaussian(variable=1, mean=0, std=2)
    """

    layer_type = GaussianLayer

    def __init__(self, variable: int, mean: float, std: float) -> None:
        self.variable = check_variable(variable)
        self.scope = (self.variable,)
        if not is_finite(mean):
            raise invalid("mean of a Gaussian unit", "be finite", mean=mean)
        if not (is_finite(std) and std > 0):
            raise invalid(
                "standard deviation of a Gaussian unit", "be finite and positive", std=std
            )
        self.mean = float(mean)
        self.std = float(std)

    def parameters(self) -> dict[str, Any]:
        return {"variable": self.variable, "mean": self.mean, "std": self.std}


class _GaussianConditionals(Conditionals):
    """Rows completed by each unit, which give densities and means at once."""

    _layer: MultivariateGaussianLayer

    def log_prob(self) -> FloatArray:
        layer = self._layer
        cells = layer.cells(self._X)
        self._tied = tied_rows(layer.gaussians, cells)
        if self._tied is not None:
            return self._tied.log_density
        log_densities, self._offsets = complete(layer.gaussians, cells)
        return log_densities

    def add_means(self, total: FloatArray, flows: FloatArray) -> None:
        layer = self._layer
        if self._tied is not None:
            total[layer.variables] += self._tied.mean_rows(flows).T
            return
        total[layer.variables] += layer.gaussians.means.T @ flows
        total[layer.variables] += np.einsum("kn,kdn->dn", flows, self._offsets)


class MultivariateGaussianLayer(DifferentiableLayer):
    """Many Gaussian units over the same ``variables`` (scope_size,), with their factorisations."""

    def __init__(self, variables: IntArray, gaussians: GaussianStack) -> None:
        self.variables = variables
        self.gaussians = gaussians
        self.scopes = np.tile(variables, (len(gaussians.means), 1))

    @classmethod
    def stack(cls, units: Sequence[Any]) -> MultivariateGaussianLayer:
        """Stack units over the same variables; equal covariances are kept once."""
        means = np.stack([unit.mean for unit in units])
        first, shape = distinct_parameters([(unit.covariance,) for unit in units])
        covariances = np.stack([units[i].covariance for i in first])
        return cls(np.array(units[0].variables), GaussianStack(means, covariances, shape))

    def on_columns(self, columns: IntArray) -> MultivariateGaussianLayer:
        """The same units over other columns (n_variables,)."""
        return type(self)(columns, self.gaussians)

    @property
    def n_parameters(self) -> int:
        return self.gaussians.n_parameters

    @property
    def size_in_bytes(self) -> int:
        return self.gaussians.means.nbytes + self.gaussians.distinct_covariances.nbytes

    @property
    def bytes_per_row(self) -> int:
        # A factor and its inverse per distinct covariance, where patterns of missing cells are rare
        n_covariances, size, _ = self.gaussians.distinct_covariances.shape
        return 8 * (2 * n_covariances * size**2 + 4 * self.scopes.size)

    def cells(self, X: FloatArray) -> FloatArray:
        """Select the columns of the scope, shape (n, scope_size)."""
        return np.ascontiguousarray(X[:, self.variables])

    # Operations of a stack of Gaussians; low-rank stacks have separate functions
    _conditionals: ClassVar[type[Conditionals]] = _GaussianConditionals
    _log_density: ClassVar[Callable[..., FloatArray]] = staticmethod(log_density)
    _log_peak: ClassVar[Callable[..., FloatArray]] = staticmethod(log_peak)
    _mean: ClassVar[Callable[..., FloatArray]] = staticmethod(conditional_mean)
    _moments: ClassVar[Callable[..., tuple[FloatArray, FloatArray]]] = staticmethod(
        conditional_moments
    )
    _complete: ClassVar[Callable[..., FloatArray]] = staticmethod(sample_conditional)
    _score: ClassVar[Callable[..., FloatArray]] = staticmethod(weighted_score)

    def log_prob(self, X: FloatArray) -> FloatArray:
        return self._log_density(self.gaussians, self.cells(X))

    def log_box(self, box: Box) -> FloatArray:
        """Log probability of each row's box; at most three bounded variables of the unit."""
        return log_box_probability(self.gaussians, self.cells(box.lower), self.cells(box.ends))

    def prepare_boxes(self, box: Box) -> WriteMasses:
        lower, upper = self.cells(box.lower), self.cells(box.ends)

        def write(rows: Rows, masses: FloatArray) -> None:
            # Absolute errors: small probabilities are not integrated again
            ends = lower[rows], upper[rows]
            np.exp(log_box_probability(self.gaussians, *ends, least_mass=0.0), out=masses)

        return write

    def log_max(self, X: FloatArray) -> FloatArray:
        return self._log_peak(self.gaussians, self.cells(X))

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        # Cells repeat where several units complete a row
        first, row = unique_rows(cells)
        return self._mean(self.gaussians, cells[first])[units, row]

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        return self._complete(self.gaussians, units, cells, rng)

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._moments(self.gaussians, self.cells(X))

    def given(self, X: FloatArray) -> Conditionals:
        return self._conditionals(self, X)

    def add_score(self, score: FloatArray, flows: FloatArray, X: FloatArray) -> None:
        """Add flow times Σ_oo⁻¹ (μ_o - x_o) of each unit to score (n_columns, n)."""
        score[self.variables] += self._score(self.gaussians, self.cells(X), flows)


@register_input_unit
class MultivariateGaussian(InputUnit):
    """A joint normal distribution.

    Parameters
    ----------
    variables : sequence of int
        Distinct indices of columns.
    mean : array-like of shape (n_variables,)
        Mean, in the units of the columns.
    covariance : array-like of shape (n_variables, n_variables)
        Symmetric positive definite.

    Examples
    --------
    >>> from skcircuits.circuits import MultivariateGaussian
    >>> MultivariateGaussian([0, 2], [0.0, 1.0], [[1.0, 0.5], [0.5, 2.0]]).scope
    (0, 2)
    """

    layer_type = MultivariateGaussianLayer

    def __init__(
        self,
        variables: Sequence[int],
        mean: Sequence[float] | FloatArray,
        covariance: Sequence[Sequence[float]] | FloatArray,
    ) -> None:
        self.variables = self.scope = check_variables(variables)
        order = np.argsort(variables)
        self.mean = float_array(mean, "mean").copy()
        self.covariance = float_array(covariance, "covariance").copy()
        self._check_shapes()
        self.mean[:] = self.mean[order]
        # Sorted once, so that layers can stack units of one scope
        self.covariance[:] = self.covariance[np.ix_(order, order)]
        self._check_positive_definite()
        self.mean.flags.writeable = self.covariance.flags.writeable = False

    def _check_variables(self) -> None:
        if not self.variables or len(set(self.variables)) < len(self.variables):
            what = "variables of a multivariate Gaussian unit"
            raise invalid(what, "be distinct, at least one", variables=self.variables)

    def _check_shapes(self) -> None:
        """Check that variables are distinct and parameters fit to them."""
        self._check_variables()
        n_variables = len(self.variables)
        if self.mean.shape != (n_variables,) or self.covariance.shape != (n_variables,) * 2:
            what = "mean and covariance of a multivariate Gaussian unit"
            condition = f"have shapes ({n_variables},) and ({n_variables}, {n_variables})"
            raise invalid(what, condition, shapes=(self.mean.shape, self.covariance.shape))

    def _check_positive_definite(self) -> None:
        """Check that the parameters are finite and the covariance is a covariance."""
        if not (np.isfinite(self.mean).all() and np.isfinite(self.covariance).all()):
            raise invalid("mean and covariance of a multivariate Gaussian unit", "be finite")
        what = "covariance of a multivariate Gaussian unit"
        asymmetry = float(np.abs(self.covariance - self.covariance.T).max())
        # Covariances that were computed are symmetric up to rounding alone.
        if asymmetry > 0.0 and not np.allclose(
            self.covariance,
            self.covariance.T,
            rtol=1e-8,
            atol=1e-10 * np.abs(self.covariance).max(),
        ):
            way_out = "Pass the mean of the matrix and its transpose."
            raise invalid(what, "be symmetric", way_out, largest_difference=asymmetry)
        try:
            np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError:
            # Named in the error: it shows how much must be added to the diagonal.
            smallest = float(np.linalg.eigvalsh(self.covariance).min())
            way_out = "Add a small multiple of the identity to it."
            raise invalid(
                what, "be positive definite", way_out, smallest_eigenvalue=smallest
            ) from None

    @property
    def layer_key(self) -> Hashable:
        """Units over the same variables share a layer."""
        return self.layer_type, self.variables

    def parameters(self) -> dict[str, Any]:
        return {"variables": list(self.variables), "mean": self.mean, "covariance": self.covariance}

    def marginalize(self, variables: frozenset[int]) -> MultivariateGaussian | None:
        kept = [i for i, variable in enumerate(self.variables) if variable not in variables]
        if len(kept) == len(self.variables):
            return self
        return self._marginal(kept) if kept else None

    def _marginal(self, kept: list[int]) -> MultivariateGaussian:
        """The distribution of some of the variables, by their indices."""
        variables = [self.variables[i] for i in kept]
        return MultivariateGaussian(variables, self.mean[kept], self.covariance[np.ix_(kept, kept)])

    def condition(self, x: FloatArray) -> MultivariateGaussian | None:
        cells = np.asarray(x, dtype=np.float64)[list(self.variables)]
        missing = np.isnan(cells)
        if missing.all() or not missing.any():
            return self if missing.all() else None
        variables = [v for v, unknown in zip(self.variables, missing, strict=True) if unknown]
        return self._conditional(variables, cells, missing)

    def _conditional(
        self, variables: list[int], cells: FloatArray, missing: BoolArray
    ) -> MultivariateGaussian:
        """Mean μ_m + Σ_mo Σ_oo⁻¹ (x_o - μ_o), covariance Σ_mm - Σ_mo Σ_oo⁻¹ Σ_om."""
        across = self.covariance[np.ix_(missing, ~missing)]
        within = self.covariance[np.ix_(~missing, ~missing)]
        gain = np.linalg.solve(within, across.T).T
        covariance = self.covariance[np.ix_(missing, missing)] - gain @ across.T
        mean = self.mean[missing] + gain @ (cells - self.mean)[~missing]
        # The constructor checks symmetry, which rounding may break
        return MultivariateGaussian(variables, mean, (covariance + covariance.T) / 2)


def distinct_parameters(units: Sequence[tuple[FloatArray, ...]]) -> tuple[list[int], IntArray]:
    """First unit of each distinct set of arrays, and the set of each unit."""
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    shape = np.empty(len(units), dtype=np.intp)
    for i, arrays in enumerate(units):
        # Bytes: equal parameters of different units are found by one lookup.
        key = b"".join(array.tobytes() for array in arrays)
        if key not in numbers:
            numbers[key] = len(first)
            first.append(i)
        shape[i] = numbers[key]
    return first, shape


def _multiply_gaussians(left: InputUnit, right: InputUnit) -> Scaled:
    if len(left.scope) == 1:
        return _univariate_product(left, right)
    (mean, covariance), (other_mean, other_covariance) = _moments(left), _moments(right)
    # N(x; a, A) N(x; b, B) = N(a; b, A + B) N(x; m, A (A + B)⁻¹ B)
    gain = np.linalg.solve(covariance + other_covariance, covariance).T
    log_factor = _log_density(mean - other_mean, covariance + other_covariance)
    product = gain @ other_covariance
    return Scaled(_gaussian(left.scope, mean + gain @ (other_mean - mean), product), log_factor)


def _divide_gaussians(left: InputUnit, right: InputUnit) -> Scaled:
    if len(left.scope) == 1:
        return _univariate_quotient(left, right)
    (mean, covariance), (other_mean, other_covariance) = _moments(left), _moments(right)
    # N(x; a, A) / N(x; b, B) = N(x; m, A (B - A)⁻¹ B) c with the difference of precisions
    spread = other_covariance - covariance
    if np.linalg.eigvalsh(spread).min() <= 0:
        raise _too_narrow(left, right)
    gain = np.linalg.solve(spread, covariance).T
    quotient = covariance + gain @ covariance
    centre = mean + gain @ (mean - other_mean)
    log_factor = (
        _log_density(centre - mean, covariance)
        - _log_density(centre - other_mean, other_covariance)
        - _log_density(np.zeros_like(mean), quotient)
    )
    return Scaled(_gaussian(left.scope, centre, quotient), log_factor)


def _gaussian_divergence(left: InputUnit, right: InputUnit) -> tuple[float, float]:
    if len(left.scope) == 1:
        (centre, std), (other_centre, other_std) = _mean_and_std(left), _mean_and_std(right)
        width, offset = std / other_std, (centre - other_centre) / other_std
        return 0.0, float(0.5 * (width**2 - 1.0 + offset**2) - np.log(width))
    (mean, covariance), (other_mean, other_covariance) = _moments(left), _moments(right)
    # ½ (tr B⁻¹A - d + (a - b)ᵀ B⁻¹ (a - b) - log |B⁻¹A|)
    ratio = np.linalg.solve(other_covariance, covariance)
    shift = mean - other_mean
    distance = shift @ np.linalg.solve(other_covariance, shift)
    log_determinant = np.linalg.slogdet(ratio)[1]
    return 0.0, float(0.5 * (np.trace(ratio) - len(mean) + distance - log_determinant))


def _gaussian_entropy(unit: InputUnit) -> float:
    # ½ log |2πe Σ| is half the dimension less the log density at the mean.
    # The square of a univariate standard deviation may overflow.
    if len(unit.scope) == 1:
        return 0.5 - _log_normal(0.0, _mean_and_std(unit)[1])
    covariance = _moments(unit)[1]
    return float(0.5 * len(covariance) - _log_density(np.zeros(len(covariance)), covariance))


def _moments(unit: InputUnit) -> tuple[FloatArray, FloatArray]:
    """Mean vector and covariance matrix of a Gaussian unit of several variables."""
    assert isinstance(unit, MultivariateGaussian)
    return unit.mean, unit.covariance


def _mean_and_std(unit: InputUnit) -> tuple[float, float]:
    """Mean and standard deviation of one variable, whose variance may overflow."""
    if isinstance(unit, Gaussian):
        return unit.mean, unit.std
    mean, covariance = _moments(unit)
    return float(mean[0]), float(np.sqrt(covariance[0, 0]))


def _univariate_product(left: InputUnit, right: InputUnit) -> Scaled:
    """Multiply Gaussian units of one variable without squares of standard deviations."""
    (mean, std), (other_mean, other_std) = _mean_and_std(left), _mean_and_std(right)
    # Squares of standard deviations may overflow, hypot does not.
    spread = float(np.hypot(std, other_std))
    centre = mean + (std / spread) ** 2 * (other_mean - mean)
    unit = Gaussian(left.scope[0], centre, std * (other_std / spread))
    return Scaled(unit, _log_normal(mean - other_mean, spread))


def _univariate_quotient(left: InputUnit, right: InputUnit) -> Scaled:
    """Divide Gaussian units of one variable without squares of standard deviations."""
    (mean, std), (other_mean, other_std) = _mean_and_std(left), _mean_and_std(right)
    # A quotient of equal or narrower widths grows without bound
    if other_std <= std:
        raise _too_narrow(left, right)
    spread = float(np.sqrt(other_std - std) * np.sqrt(other_std + std))
    centre = mean + (std / spread) ** 2 * (mean - other_mean)
    unit = Gaussian(left.scope[0], centre, std * (other_std / spread))
    log_factor = (
        _log_normal(centre - mean, std)
        - _log_normal(centre - other_mean, other_std)
        - _log_normal(0.0, unit.std)
    )
    return Scaled(unit, log_factor)


def _too_narrow(left: InputUnit, right: InputUnit) -> CircuitPropertyError:
    """Say why Gaussian units have no quotient."""
    return CircuitPropertyError(
        must(
            "the Gaussian units of a divisor",
            "be wider in every direction than those they divide",
            "Otherwise the quotient has no finite integral.",
            numerator=left,
            divisor=right,
        )
    )


def _gaussian(scope: Scope, mean: FloatArray, covariance: FloatArray) -> InputUnit:
    """Build the joint unit; rounding differs across the diagonal."""
    return MultivariateGaussian(scope, mean, (covariance + covariance.T) / 2)


def _log_normal(offset: float, std: float) -> float:
    """Log density of a Gaussian of one variable at an offset from its mean."""
    # ``-inf`` beyond all floats
    with np.errstate(over="ignore"):
        return float(-0.5 * np.square(offset / std) - np.log(std) - LOG_SQRT_2PI)


def _log_density(offset: FloatArray, covariance: FloatArray) -> float:
    """Log density of a Gaussian at an offset (d,) from its mean."""
    distance = offset @ np.linalg.solve(covariance, offset)
    log_determinant = np.linalg.slogdet(covariance)[1]
    return float(-0.5 * (distance + log_determinant) - len(offset) * LOG_SQRT_2PI)


for _own in (Gaussian, MultivariateGaussian):
    entropy.register(_own)(_gaussian_entropy)
    for _other in (Gaussian, MultivariateGaussian):
        multiply_inputs.register(_own, _other)(_multiply_gaussians)
        divide_inputs.register(_own, _other)(_divide_gaussians)
        divergence.register(_own, _other)(_gaussian_divergence)
