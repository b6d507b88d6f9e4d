"""The joint normal distribution of several continuous variables, as one input unit."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from skcircuits.circuits.inputs._gaussian_boxes import log_box_probability
from skcircuits.circuits.inputs._gaussian_density import log_density, log_peak, weighted_score
from skcircuits.circuits.inputs.base import (
    Box,
    DifferentiableLayer,
    InputUnit,
    check_variable,
)
from skcircuits.exceptions import must
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._gaussian_conditionals import (
    conditional_mean,
    conditional_variance,
    sample_conditional,
)
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["MultivariateGaussian", "MultivariateGaussianLayer", "distinct_parameters"]


class MultivariateGaussianLayer(DifferentiableLayer):
    """Many Gaussian units over the same variables.

    ``variables`` (scope_size,): columns of all units; ``gaussians``: means and covariances of the
    units, with their factorisations.
    """

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

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of all units; a shared covariance counts once."""
        n_units, n_variables = self.scopes.shape
        n_covariances = len(self.gaussians.distinct_covariances)
        return n_units * n_variables + n_covariances * n_variables * (n_variables + 1) // 2

    @property
    def size_in_bytes(self) -> int:
        """Memory the stacked parameters take."""
        return self.gaussians.means.nbytes + self.gaussians.distinct_covariances.nbytes

    @property
    def bytes_per_row(self) -> int:
        """Temporary memory that evaluating one row takes: a few matrices per unit."""
        return 4 * 8 * self.scopes.size * self.scopes.shape[1]

    def cells(self, X: FloatArray) -> FloatArray:
        """Select the columns of the scope, shape (n, scope_size)."""
        return np.ascontiguousarray(X[:, self.variables])

    # What a stack of Gaussians can be asked; low-rank stacks have functions of their own
    _log_density: ClassVar[Callable[..., FloatArray]] = staticmethod(log_density)
    _log_peak: ClassVar[Callable[..., FloatArray]] = staticmethod(log_peak)
    _mean: ClassVar[Callable[..., FloatArray]] = staticmethod(conditional_mean)
    _variance: ClassVar[Callable[..., FloatArray]] = staticmethod(conditional_variance)
    _complete: ClassVar[Callable[..., FloatArray]] = staticmethod(sample_conditional)
    _score: ClassVar[Callable[..., FloatArray]] = staticmethod(weighted_score)

    def log_prob(self, X: FloatArray) -> FloatArray:
        """Log density of the observed cells under each unit, shape (n_units, n)."""
        return self._log_density(self.gaussians, self.cells(X))

    def log_box(self, box: Box) -> FloatArray:
        """Log probability of each row's box; at most three bounded variables of the unit."""
        return log_box_probability(self.gaussians, self.cells(box.lower), self.cells(box.upper))

    def log_max(self, X: FloatArray) -> FloatArray:
        """Log joint density at the conditional means, shape (n_units, n)."""
        return self._log_peak(self.gaussians, self.cells(X))

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        """Fill NaN cells with the conditional mean, shape (m, scope_size)."""
        return self._mean(self.gaussians, cells)[units, np.arange(len(units))]

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        """Draw NaN cells given the observed ones, shape (m, scope_size)."""
        return self._complete(self.gaussians, units, cells, rng)

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of every cell given the observed ones, (n_units, n, scope_size)."""
        cells = self.cells(X)
        return self._mean(self.gaussians, cells), self._variance(self.gaussians, cells)

    def conditional_means(self, X: FloatArray) -> FloatArray:
        """Mean of every cell given the observed ones, shape (n_units, n, scope_size)."""
        return self._mean(self.gaussians, self.cells(X))

    def add_score(self, score: FloatArray, flows: FloatArray, X: FloatArray) -> None:
        """Add flow times Σ_oo⁻¹ (μ_o - x_o) of each unit to score (n_columns, n)."""
        score[self.variables] += self._score(self.gaussians, self.cells(X), flows)


class MultivariateGaussian(InputUnit):
    """A joint normal distribution.

    Parameters
    ----------
    variables : sequence of int
        Distinct column numbers.
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
        self.variables = self.scope = tuple(sorted(map(check_variable, variables)))
        order = np.argsort(variables)
        self.mean = float_array(mean, "mean").copy()
        self.covariance = float_array(covariance, "covariance").copy()
        self._check_shapes()
        self.mean[:] = self.mean[order]
        self.covariance[:] = self.covariance[np.ix_(order, order)]
        self._check_positive_definite()
        self.mean.flags.writeable = self.covariance.flags.writeable = False

    def _check_variables(self) -> None:
        """Check that variables are distinct."""
        if not self.variables or len(set(self.variables)) < len(self.variables):
            raise ValueError(
                must(
                    "variables of a multivariate Gaussian unit",
                    "be distinct, at least one",
                    variables=self.variables,
                )
            )

    def _check_shapes(self) -> None:
        """Check that variables are distinct and parameters fit to them."""
        self._check_variables()
        n_variables = len(self.variables)
        if self.mean.shape != (n_variables,) or self.covariance.shape != (n_variables,) * 2:
            raise ValueError(
                must(
                    "mean and covariance of a multivariate Gaussian unit",
                    f"have shapes ({n_variables},) and ({n_variables}, {n_variables})",
                    shapes=(self.mean.shape, self.covariance.shape),
                )
            )

    def _check_positive_definite(self) -> None:
        """Check that the parameters are finite and the covariance is a covariance."""
        if not (np.isfinite(self.mean).all() and np.isfinite(self.covariance).all()):
            raise ValueError(
                must("mean and covariance of a multivariate Gaussian unit", "be finite")
            )
        scale = np.abs(self.covariance).max()
        symmetric = np.allclose(self.covariance, self.covariance.T, rtol=1e-8, atol=1e-10 * scale)
        try:
            np.linalg.cholesky(self.covariance)
        except np.linalg.LinAlgError:
            symmetric = False
        if not symmetric:
            smallest = float(np.linalg.eigvalsh(self.covariance).min())
            raise ValueError(
                must(
                    "covariance of a multivariate Gaussian unit",
                    "be symmetric and positive definite",
                    "Add a small multiple of the identity to it.",
                    smallest_eigenvalue=smallest,
                )
            )

    @property
    def layer_key(self) -> Hashable:
        """Units over the same variables share a layer."""
        return self.layer_type, self.variables

    def parameters(self) -> dict[str, Any]:
        """Constructor arguments that rebuild the unit."""
        return {
            "variables": list(self.variables),
            "mean": self.mean,
            "covariance": self.covariance,
        }

    def marginalize(self, variables: frozenset[int]) -> MultivariateGaussian | None:
        """Integrate out some variables."""
        kept = [i for i, variable in enumerate(self.variables) if variable not in variables]
        if len(kept) == len(self.variables):
            return self
        return self._marginal(kept) if kept else None

    def _marginal(self, kept: list[int]) -> MultivariateGaussian:
        """The distribution of some of the variables, by their indices."""
        variables = [self.variables[i] for i in kept]
        return MultivariateGaussian(variables, self.mean[kept], self.covariance[np.ix_(kept, kept)])

    def condition(self, x: FloatArray) -> MultivariateGaussian | None:
        """Fix the observed variables at their values."""
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
        return MultivariateGaussian(variables, mean, (covariance + covariance.T) / 2)


def distinct_parameters(units: Sequence[tuple[FloatArray, ...]]) -> tuple[list[int], IntArray]:
    """First unit of each distinct set of arrays, and the set of each unit."""
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    shape = np.empty(len(units), dtype=np.intp)
    for i, arrays in enumerate(units):
        key = b"".join(array.tobytes() for array in arrays)
        if key not in numbers:
            numbers[key] = len(first)
            first.append(i)
        shape[i] = numbers[key]
    return first, shape
