"""Joint normal distributions whose covariance is low-rank plus diagonal (factor analysis).

Given the observed cells of a row, the factors are normal; everything follows from their posterior.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from skcircuits.circuits.inputs.base import Conditionals, check_variables, register_input_unit
from skcircuits.circuits.inputs.gaussian import (
    MultivariateGaussian,
    MultivariateGaussianLayer,
    distinct_parameters,
)
from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._gaussian_stack import (
    BLOCK_BYTES,
    LOG_2PI,
    GaussianStack,
    cholesky,
    invert_lower,
    log_diagonal,
    multiply,
    multiply_transposed,
)
from skcircuits.numerics._patterns import distinct_patterns
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray


class FactorStack(GaussianStack):
    """K Gaussians x = mean_k + W z + e with G distinct loadings W (G, d, q) of standard normal
    factors z and noise variances (G, d) of e; ``shape`` (K,) names the pair of each.
    """

    def __init__(
        self,
        means: FloatArray,
        loadings: FloatArray,
        noise_variances: FloatArray,
        shape: IntArray | None = None,
    ) -> None:
        """Freeze contiguous copies in double precision."""
        arrays = [
            np.array(a, dtype=np.float64, order="C") for a in (means, loadings, noise_variances)
        ]
        self.means, self.loadings, self.noise_variances = arrays
        self.shape = np.arange(len(self.means)) if shape is None else np.asarray(shape)
        if not all(np.isfinite(array).all() for array in arrays):
            raise invalid("means, loadings and noise variances", "be finite")
        for array in arrays:
            array.flags.writeable = False

    @property
    def n_factors(self) -> int:
        return int(self.loadings.shape[2])

    @property
    def n_parameters(self) -> int:
        n_distinct, n_columns, n_factors = self.loadings.shape
        # Rotated factors give the same covariance.
        n_loadings = n_columns * n_factors - n_factors * (n_factors - 1) // 2
        return self.means.size + n_distinct * (n_loadings + n_columns)

    @property
    def distinct_covariances(self) -> FloatArray:
        """Dense covariances W Wᵀ + diag(noise), shape (G, d, d)."""
        return self._dense

    @cached_property
    def _dense(self) -> FloatArray:
        dense: FloatArray = self.loadings @ self.loadings.transpose(0, 2, 1)
        diagonal = np.arange(self.n_columns)
        dense[:, diagonal, diagonal] += self.noise_variances
        return dense

    @cached_property
    def scaled_loadings(self) -> FloatArray:
        """Loadings divided by the noise variances, shape (G, d, q)."""
        return self.loadings / self.noise_variances[:, :, None]

    @cached_property
    def loading_products(self) -> FloatArray:
        """Lower triangles of w_j w_jᵀ / noise_j, shape (G, d, q (q + 1) / 2)."""
        rows, columns = np.tril_indices(self.n_factors)
        return self.scaled_loadings[:, :, rows] * self.loadings[:, :, columns]


@dataclass(frozen=True, eq=False)
class FactorBlock:
    """Factors of some rows given their observed cells."""

    rows: IntArray  # (n,)
    observed: BoolArray  # (n, d)
    pattern: IntArray  # (n,)
    roots: FloatArray  # (q, q, G, P), lower triangular R: covariances of factors are RᵀR
    half_log_precisions: FloatArray  # (G, P), half log determinants of their inverses
    factors: FloatArray  # (K, q, n), conditional means
    residuals: FloatArray  # (K, n, d), x - mean_k - W E[z], 0 where missing


def factor_blocks(stack: FactorStack, X: FloatArray) -> Iterator[FactorBlock]:
    """Walk over the rows in blocks that stay in the cache; NaN for missing cells."""
    observed = ~np.isnan(X)
    n_factors, n_components = stack.n_factors, stack.n_components
    per_row = n_components * (stack.n_columns + n_factors) + len(stack.loadings) * n_factors**2
    step = max(64, BLOCK_BYTES // (8 * max(1, per_row)))
    if len(X) <= step:
        yield _factor_block(stack, X, observed, np.arange(len(X)))
        return
    # rows with one pattern come together, so that they share a factorisation
    order = np.argsort(distinct_patterns(observed)[1], kind="stable")
    for start in range(0, len(X), step):
        rows = order[start : start + step]
        yield _factor_block(stack, X[rows], observed[rows], rows)


def _factor_block(
    stack: FactorStack, X: FloatArray, observed: BoolArray, rows: IntArray
) -> FactorBlock:
    """Factorise each pattern once per distinct covariance, then solve for every row."""
    patterns, pattern = distinct_patterns(observed)
    roots, half_log_precisions = _factor_roots(stack, patterns)
    cells = np.where(observed, X, 0.0)
    factors = np.empty((stack.n_components, stack.n_factors, len(X)))
    residuals = np.empty((stack.n_components, *X.shape))
    for k, g in enumerate(stack.shape):
        # Written in place: an array of all components and cells is the largest here
        delta = residuals[k]
        np.multiply(stack.means[k], observed, out=delta)
        np.subtract(cells, delta, out=delta)
        pulled = (delta @ stack.scaled_loadings[g]).T
        own = np.take(roots[:, :, g], pattern, axis=2)
        factors[k] = multiply_transposed(own, multiply(own, pulled))
        explained = factors[k].T @ stack.loadings[g].T
        explained *= observed
        delta -= explained
    return FactorBlock(rows, observed, pattern, roots, half_log_precisions, factors, residuals)


def _factor_roots(stack: FactorStack, patterns: BoolArray) -> tuple[FloatArray, FloatArray]:
    """Roots of (I + Wᵀ diag(observed / noise) W)⁻¹ and half log determinants of the inverses."""
    n_distinct, n_factors = len(stack.loadings), stack.n_factors
    precisions = np.empty((n_factors, n_factors, n_distinct, len(patterns)))
    rows, columns = np.tril_indices(n_factors)
    # A pattern adds up the products of its observed columns: one matrix product for all
    mask = patterns.astype(np.float64)
    for g in range(n_distinct):
        precisions[rows, columns, g] = stack.loading_products[g].T @ mask.T
    diagonal = np.arange(n_factors)
    precisions[diagonal, diagonal] += 1.0
    lower = cholesky(precisions.reshape(n_factors, n_factors, n_distinct * len(patterns)))
    half_log_precisions = log_diagonal(lower).reshape(n_distinct, len(patterns))
    return invert_lower(lower).reshape(precisions.shape), half_log_precisions


def factor_log_density(stack: FactorStack, X: FloatArray) -> FloatArray:
    """Log density of the observed cells of each row under each Gaussian, shape (K, n)."""
    return log_density_of_blocks(stack, factor_blocks(stack, X), len(X))


def log_density_of_blocks(
    stack: FactorStack, blocks: Iterable[FactorBlock], n_rows: int
) -> FloatArray:
    """Log densities (K, n_rows) of rows by their blocks."""
    result = np.empty((stack.n_components, n_rows))
    for block in blocks:
        result[:, block.rows] = _block_log_density(stack, block)
    return result


def _block_log_density(stack: FactorStack, block: FactorBlock) -> FloatArray:
    """Log densities (K, n) of a block by |x_o - m_o - W_o f|² / Ψ_o + |f|²: Woodbury's difference
    would lose digits at small noise.
    """
    factors = block.factors
    result = np.einsum("kqn,kqn->kn", factors, factors)
    log_noise = (
        block.observed @ np.log(stack.noise_variances).T
        + (block.observed.sum(axis=1) * LOG_2PI)[:, None]
    )
    for k, g in enumerate(stack.shape):
        with np.errstate(over="ignore"):  # squares beyond floats are densities of zero
            squared = np.square(block.residuals[k])
            result[k] += squared @ (1.0 / stack.noise_variances[g]) + log_noise[:, g]
        result[k] += 2.0 * block.half_log_precisions[g, block.pattern]
    result *= -0.5
    return result


def factor_log_peak(stack: FactorStack, X: FloatArray) -> FloatArray:
    """Log joint density at the conditional means of the missing cells, shape (K, n)."""
    result = np.empty((stack.n_components, len(X)))
    complete = stack.loading_products.sum(axis=1)
    # Products are kept by their lower triangles
    rows, columns = np.tril_indices(stack.n_factors)
    precisions = np.zeros((len(complete), stack.n_factors, stack.n_factors))
    precisions[:, rows, columns] = precisions[:, columns, rows] = complete
    half_log_complete = 0.5 * np.linalg.slogdet(precisions + np.eye(stack.n_factors))[1]
    for block in factor_blocks(stack, X):
        # the covariance of the missing cells has determinant |Ψ_m| |A of all cells| / |A|
        missing = ~block.observed
        heights = -0.5 * (missing @ np.log(stack.noise_variances).T).T
        heights -= 0.5 * missing.sum(axis=1) * LOG_2PI
        heights -= half_log_complete[:, None] - block.half_log_precisions[:, block.pattern]
        result[:, block.rows] = _block_log_density(stack, block) + heights[stack.shape]
    return result


def factor_mean(stack: FactorStack, X: FloatArray) -> FloatArray:
    """Rows with conditional means in place of missing cells, shape (K, n, d)."""
    result = np.empty((stack.n_components, *X.shape))
    for block in factor_blocks(stack, X):
        result[:, block.rows] = _block_means(stack, X, block)
    return result


def factor_moments(stack: FactorStack, X: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The same with the conditional variances of the missing cells, 0 where observed."""
    means, variances = np.empty((2, stack.n_components, *X.shape))
    for block in factor_blocks(stack, X):
        means[:, block.rows] = _block_means(stack, X, block)
        variances[:, block.rows] = _block_variances(stack, block)[stack.shape]
    return means, variances


def _block_means(stack: FactorStack, X: FloatArray, block: FactorBlock) -> FloatArray:
    """Conditional means (K, n, d) of the rows of a block."""
    factors = block.factors.transpose(0, 2, 1)
    means = stack.means[:, None] + factors @ stack.loadings.transpose(0, 2, 1)[stack.shape]
    return np.where(block.observed, X[block.rows], means)


def _block_variances(stack: FactorStack, block: FactorBlock) -> FloatArray:
    """Conditional variances (G, n, d) of the rows of a block."""
    size, _, n_distinct, n_patterns = block.roots.shape
    # Var = noise + |root · loading|²: no covariance matrix is formed
    roots = block.roots.transpose(2, 3, 0, 1).reshape(n_distinct, n_patterns * size, size)
    spread = np.square(roots @ stack.loadings.transpose(0, 2, 1))
    spread = spread.reshape(n_distinct, n_patterns, size, stack.n_columns).sum(axis=2)
    variances = stack.noise_variances[:, None] + spread[:, block.pattern]
    return np.where(block.observed, 0.0, variances)


def factor_draw(
    stack: FactorStack, component: IntArray, X: FloatArray, rng: RandomNumbers
) -> FloatArray:
    """Draw missing cells by n (d + q) standard normal numbers, noise first, then factors."""
    size, n_columns = stack.n_factors, stack.n_columns
    # All numbers of a row at once: draws do not depend on which cells are missing
    numbers = rng.standard_normal((len(X), n_columns + size))
    result = X.copy()
    for k in np.unique(component):
        g = stack.shape[k]
        own = FactorStack(
            stack.means[[k]], stack.loadings[[g]], stack.noise_variances[[g]], np.zeros(1, int)
        )
        chosen = np.flatnonzero(component == k)
        for block in factor_blocks(own, X[chosen]):
            rows = chosen[block.rows]
            roots = np.take(block.roots[:, :, 0], block.pattern, axis=2)
            factors = block.factors[0] + multiply_transposed(roots, numbers[rows, n_columns:].T)
            noise = np.sqrt(own.noise_variances[0]) * numbers[rows, :n_columns]
            drawn = own.means[0] + factors.T @ own.loadings[0].T + noise
            result[rows] = np.where(block.observed, X[rows], drawn)
    return result


def factor_score(stack: FactorStack, X: FloatArray, weights: FloatArray) -> FloatArray:
    """Weighted sum (weights (K, n)) of the gradients of the log densities, shape (d, n)."""
    result = np.zeros((X.shape[1], len(X)))
    for block in factor_blocks(stack, X):
        own = weights[:, block.rows]
        for k, g in enumerate(stack.shape):
            # Σ^-1 (x - m) is the residual over the noise: the factors took their part out
            pull = block.residuals[k] / stack.noise_variances[g]
            result[:, block.rows] -= (pull * own[k][:, None]).T
    return result


class _FactorConditionals(Conditionals):
    """Factors of the rows, which give densities and means at once."""

    _layer: FactorGaussianLayer

    def log_prob(self) -> FloatArray:
        stack, cells = self._layer.gaussians, self._layer.cells(self._X)
        self._blocks = list(factor_blocks(stack, cells))
        return log_density_of_blocks(stack, self._blocks, len(cells))

    def add_means(self, total: FloatArray, flows: FloatArray) -> None:
        stack = self._layer.gaussians
        means = stack.means.T @ flows
        for block in self._blocks:
            for k, g in enumerate(stack.shape):
                weighted = flows[k, block.rows] * block.factors[k]
                means[:, block.rows] += stack.loadings[g] @ weighted
        total[self._layer.variables] += means


class FactorGaussianLayer(MultivariateGaussianLayer):
    """Many low-rank Gaussian units over the same variables with equally many factors; operations
    without a formula in the factors (boxes, pairs of units) use dense covariances.
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
    def size_in_bytes(self) -> int:
        stack = self.gaussians
        return stack.means.nbytes + stack.loadings.nbytes + stack.noise_variances.nbytes

    @property
    def bytes_per_row(self) -> int:
        return 4 * 8 * (self.scopes.size + len(self) * self.gaussians.n_factors)

    # Of the methods of the base, those that differ: the same queries, in the factors
    _conditionals = _FactorConditionals
    _log_density = staticmethod(factor_log_density)
    _log_peak = staticmethod(factor_log_peak)
    _mean = staticmethod(factor_mean)
    _moments = staticmethod(factor_moments)
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
            raise invalid(what, condition, shapes=shapes)
        if not all(np.isfinite(array).all() for array in arrays):
            raise invalid(
                "mean, loadings and noise variances of a factor Gaussian unit", "be finite"
            )
        if not (self.noise_variances > 0.0).all():
            what = "noise variances of a factor Gaussian unit"
            raise invalid(what, "be positive", smallest=float(self.noise_variances.min()))

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
