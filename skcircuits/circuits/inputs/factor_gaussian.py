"""Joint normal distributions whose covariance is low-rank plus diagonal (factor analysis)."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from skcircuits.circuits.inputs.base import Conditionals, check_variables
from skcircuits.circuits.inputs.gaussian import (
    MultivariateGaussian,
    MultivariateGaussianLayer,
    distinct_parameters,
)
from skcircuits.circuits.inputs.registry import register_input_unit
from skcircuits.exceptions import must
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._factor_stack import (
    FactorStack,
    factor_draw,
    factor_log_density,
    factor_log_peak,
    factor_mean,
    factor_score,
    factor_variance,
    factor_weighted_mean,
)
from skcircuits.protocols import BoolArray, FloatArray


class FactorGaussianLayer(MultivariateGaussianLayer):
    """Many low-rank Gaussian units over the same variables with equally many factors.

    Operations without a formula in the factors (boxes, pairs of units) use dense covariances.

    ``variables`` (scope_size,): columns of all units; ``gaussians``: means, loadings and noise
    variances of the units.
    """

    gaussians: FactorStack

    @classmethod
    def stack(cls, units: Sequence[FactorGaussian]) -> FactorGaussianLayer:
        """Stack units over the same variables; equal covariances are kept once."""
        first, shape = distinct_parameters([(u.loadings, u.noise_variances) for u in units])
        gaussians = FactorStack(
            np.stack([unit.mean for unit in units]),
            np.stack([units[i].loadings for i in first]),
            np.stack([units[i].noise_variances for i in first]),
            shape,
        )
        return cls(np.array(units[0].variables), gaussians)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters of all units, with shared covariances counted once."""
        gaussians = self.gaussians
        # Rotated factors give the same covariance.
        rotations = gaussians.n_factors * (gaussians.n_factors - 1) // 2
        loadings = gaussians.n_columns * gaussians.n_factors - rotations
        return gaussians.means.size + len(gaussians.loadings) * (loadings + gaussians.n_columns)

    @property
    def size_in_bytes(self) -> int:
        stack = self.gaussians
        return stack.means.nbytes + stack.loadings.nbytes + stack.noise_variances.nbytes

    @property
    def bytes_per_row(self) -> int:
        return 4 * 8 * (self.scopes.size + len(self) * self.gaussians.n_factors)

    # Of the methods of the base, those that differ: the same queries, in the factors
    _conditionals = Conditionals
    _log_density = staticmethod(factor_log_density)
    _log_peak = staticmethod(factor_log_peak)
    _mean = staticmethod(factor_mean)
    _weighted_mean = staticmethod(factor_weighted_mean)
    _variance = staticmethod(factor_variance)
    _complete = staticmethod(factor_draw)
    _score = staticmethod(factor_score)


@register_input_unit
class FactorGaussian(MultivariateGaussian):
    """A joint normal distribution with covariance ``loadings @ loadings.T + diag(noise)``.

    This is the model of factor analysis: each row is the mean plus loadings times a few standard
    normal factors plus independent noise. For d columns and q factors, log densities with any
    missing cells, marginals, conditionals, moments, draws and expected RBF kernels cost O(d q²) per
    row, compared with O(d³) for `MultivariateGaussian`.

    Parameters
    ----------
    variables : sequence of int
        Distinct indices of columns.
    mean : array-like of shape (n_variables,)
        Mean, in the units of the columns.
    loadings : array-like of shape (n_variables, n_factors)
        Change of each column for one standard deviation of each factor.
    noise_variances : array-like of shape (n_variables,)
        Positive variances of the independent noise.

    Attributes
    ----------
    covariance : ndarray of shape (n_variables, n_variables)
        The dense covariance.

    Raises
    ------
    ValueError
        If shapes do not match, a number is not finite, or a noise variance is not positive.

    See Also
    --------
    MultivariateGaussian : The same with any covariance.

    References
    ----------
    .. [1] Ghahramani and Hinton, "The EM Algorithm for Mixtures of Factor Analyzers", 1996.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Circuit, FactorGaussian
    >>> unit = FactorGaussian([0, 1], [0.0, 0.0], [[1.0], [1.0]], [1.0, 1.0])
    >>> unit.covariance
    array([[2., 1.],
           [1., 2.]])
    >>> Circuit(unit).expectation(np.array([[4.0, np.nan]]))
    array([[4., 2.]])
    """

    layer_type = FactorGaussianLayer

    def __init__(
        self,
        variables: Sequence[int],
        mean: Sequence[float] | FloatArray,
        loadings: Sequence[Sequence[float]] | FloatArray,
        noise_variances: Sequence[float] | FloatArray,
    ) -> None:
        self.variables = self.scope = check_variables(variables)
        self.mean = float_array(mean, "mean").copy()
        self.loadings = float_array(loadings, "loadings").copy()
        self.noise_variances = float_array(noise_variances, "noise_variances").copy()
        self._check_parameters()
        # Variables are sorted, together with their parameters
        order = np.argsort(variables)
        for array in (self.mean, self.loadings, self.noise_variances):
            array[:] = array[order]
            array.flags.writeable = False

    def _check_parameters(self) -> None:
        """Check that variables are distinct and parameters fit to them."""
        self._check_variables()
        size = len(self.variables)
        arrays = (self.mean, self.loadings, self.noise_variances)
        shapes = tuple(array.shape for array in arrays)
        if shapes[0] != (size,) or shapes[2] != (size,) or shapes[1][:-1] != (size,):
            what = "mean, loadings and noise variances of a factor Gaussian unit"
            condition = f"have shapes ({size},), ({size}, n_factors) and ({size},)"
            raise ValueError(must(what, condition, shapes=shapes))
        if not all(np.isfinite(array).all() for array in arrays):
            raise ValueError(
                must("mean, loadings and noise variances of a factor Gaussian unit", "be finite")
            )
        if not (self.noise_variances > 0.0).all():
            what = "noise variances of a factor Gaussian unit"
            raise ValueError(must(what, "be positive", smallest=float(self.noise_variances.min())))

    @cached_property
    def covariance(self) -> FloatArray:  # type: ignore[override]
        """The dense covariance, shape (n_variables, n_variables)."""
        dense: FloatArray = self.loadings @ self.loadings.T + np.diag(self.noise_variances)
        dense.flags.writeable = False
        return dense

    @property
    def layer_key(self) -> Hashable:
        """Units over the same variables with equally many factors share a layer."""
        return self.layer_type, self.variables, self.loadings.shape[1]

    def parameters(self) -> dict[str, Any]:
        return {
            "variables": list(self.variables),
            "mean": self.mean,
            "loadings": self.loadings,
            "noise_variances": self.noise_variances,
        }

    def _marginal(self, kept: list[int]) -> FactorGaussian:
        variables = [self.variables[i] for i in kept]
        parameters = self.mean[kept], self.loadings[kept], self.noise_variances[kept]
        return FactorGaussian(variables, *parameters)

    def _conditional(
        self, variables: list[int], cells: FloatArray, missing: BoolArray
    ) -> FactorGaussian:
        """Factors given x are N(f, RᵀR): mean m + W f, loadings W Rᵀ, the same noise."""
        observed = self.loadings[~missing] / self.noise_variances[~missing, None]
        precision = np.eye(self.loadings.shape[1]) + observed.T @ self.loadings[~missing]
        lower = np.linalg.cholesky(precision)
        # Woodbury: a system of n_factors unknowns instead of n_observed
        factors = np.linalg.solve(precision, observed.T @ (cells - self.mean)[~missing])
        own = self.loadings[missing]
        mean = self.mean[missing] + own @ factors
        loadings = np.linalg.solve(lower, own.T).T
        return FactorGaussian(variables, mean, loadings, self.noise_variances[missing])
