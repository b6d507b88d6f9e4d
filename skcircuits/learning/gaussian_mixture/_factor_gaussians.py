"""Gaussian components whose covariances are low-rank plus diagonal: factor analysis by EM.

All components have the same loadings and noise ("factor"), or independent columns with noise of
their own ("diag", no factors). The maximisation solves for loadings and means at once, column by
column: with the moments of factors and rows summed over the observed cells of each column, a
regression with q + K coefficients whose part for the means is diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from skcircuits.circuits.inputs import FactorGaussian, FactorGaussianLayer, InputUnit
from skcircuits.circuits.inputs.factor_gaussian import (
    FactorBlock,
    FactorStack,
    factor_blocks,
    log_density_of_blocks,
)
from skcircuits.learning.expectation_maximization import (
    MIN_VARIANCE,
    ColumnMoments,
    InputStatistics,
    register_statistics,
)
from skcircuits.learning.gaussian_mixture._full_gaussians import (
    CovarianceType,
    Sums,
    weighted_sums,
)
from skcircuits.numerics._gaussian_stack import gram_of_lower
from skcircuits.numerics._patterns import PatternGroup
from skcircuits.protocols import FloatArray, IntArray

# Largest squared residual of the cells of the prior, and that of a component without factors, whose
# noise is all of its variance
_NOISE_SQUARE = 0.3
_LEAST_NOISE = 1e-7  # keeps columns that factors determine from densities without bound
_LEAST_SPREAD = 1e-3  # variance of factors around clusters: a loading of zero would stay there
_TINY = 1e-12  # keeps regressions without data solvable


@dataclass(frozen=True, eq=False)
class FactorGaussians:
    """Factor analysers in standard units.

    `stack`: means (K, c) with one pair of loadings and noise for all, or one per component.
    `mean_count`: weight of the prior of each mean, in rows at `mean_centre` (c,).
    `jitter` (c,): variance of an observed cell within its recording interval.
    `prior_count`: weight of the priors of noise and loadings of each column, in cells. Loadings are
    normal with variance 1 / q, so that q factors explain a column. Noise has an inverse gamma prior
    whose scale is learned from all columns: a fixed one would hide columns that nearly determine
    one another behind noise that is not theirs.
    """

    stack: FactorStack
    mean_count: float
    jitter: FloatArray
    prior_count: float = 1.0
    mean_centre: FloatArray | float = field(default=0.0, kw_only=True)

    @classmethod
    def single(cls, covariance: FloatArray, n_factors: int, jitter: FloatArray) -> FactorGaussians:
        """One component: the leading principal axes of a first guess of the covariance."""
        variances, axes = np.linalg.eigh(covariance)
        largest = slice(len(variances) - n_factors, None)
        rest = (
            float(variances[: len(variances) - n_factors].mean())
            if n_factors < len(variances)
            else 0.0
        )
        # A loading of zero would stay there: the likelihood has a saddle point
        loadings = axes[:, largest] * np.sqrt(np.maximum(variances[largest] - rest, 0.01))
        noise = np.maximum(np.diag(covariance) - np.square(loadings).sum(axis=1), 0.1)
        stack = FactorStack(
            np.zeros((1, len(covariance))), loadings[None], noise[None], np.zeros(1, np.intp)
        )
        return cls(stack, 0.0, jitter)

    def repeat(self, n_components: int, kind: CovarianceType, mean_count: float) -> FactorGaussians:
        """Copies of a single component."""
        own = self.stack
        shape = np.arange(n_components) if kind == "diag" else np.zeros(n_components, np.intp)
        n_distinct = n_components if kind == "diag" else 1
        stack = FactorStack(
            np.repeat(own.means, n_components, axis=0),
            np.repeat(own.loadings, n_distinct, axis=0),
            np.repeat(own.noise_variances, n_distinct, axis=0),
            shape,
        )
        return FactorGaussians(stack, mean_count, self.jitter, mean_centre=own.means[0])

    def apart(self, numbers: FloatArray, responsibilities: FloatArray) -> FactorGaussians:
        """Equal components moved to the mean factors of clusters of rows (K, n)."""
        # What is common to all, E[z zᵀ] = 1, is divided into their means and the covariance around
        # them. Clusters of rows alone would make components of columns that nearly determine one
        # another leave the directions in which these vary.
        stack, q = self.stack, self.stack.n_factors
        if q == 0:
            return self
        one = FactorStack(stack.means[:1], stack.loadings[:1], stack.noise_variances[:1])
        factors, spread = np.empty((len(numbers), q)), np.zeros((q, q))
        total = responsibilities.sum(axis=0)
        for block in factor_blocks(one, numbers):
            factors[block.rows] = block.factors[0].T
            covariances = gram_of_lower(block.roots[:, :, 0])
            spread += covariances @ np.bincount(block.pattern, total[block.rows])
        counts = np.maximum(responsibilities.sum(axis=1), _TINY)
        centres = responsibilities @ factors / counts[:, None]
        spread += (factors.T * total) @ factors - (centres.T * counts) @ centres
        root = np.linalg.cholesky(spread / counts.sum() + _LEAST_SPREAD * np.eye(q))
        means = stack.means + centres @ one.loadings[0].T
        moved = FactorStack(means, stack.loadings @ root, stack.noise_variances, stack.shape)
        return replace(self, stack=moved)

    def in_units(
        self, location: FloatArray, scale: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means (K, c), loadings (K, c, q) and noise variances (K, c) in the units of the table."""
        shape = self.stack.shape
        return (
            location + scale * self.stack.means,
            (self.stack.loadings * scale[:, None])[shape],
            (self.stack.noise_variances * scale**2)[shape],
        )

    @property
    def n_gaussians(self) -> None:
        """Patterns of missing cells are not needed."""
        return None

    def n_parameters(self) -> int:
        """Count the free parameters of all components."""
        return self.stack.n_parameters

    def expect(self, numbers: FloatArray, groups: list[PatternGroup]) -> FactorExpectation:
        """Take the factors of each row given its observed cells."""
        blocks = list(factor_blocks(self.stack, numbers))
        log_density = log_density_of_blocks(self.stack, blocks, len(numbers))
        return FactorExpectation(self, log_density, numbers, blocks)

    def join(self, parts: Sequence[Sums], factors: Sequence[float]) -> Sums:
        """Sums of blocks of rows together, in which rows weigh so many times as much."""
        return weighted_sums(parts, factors)

    def maximize(self, sums: Sums) -> FactorGaussians:
        """Loadings and means column by column, then the noise that they leave."""
        stack, sums = self.stack, self._with_prior_rows(sums)
        pairs = []
        means = np.empty_like(stack.means)
        # A loop over distinct loadings, one or one per component; columns are batched inside
        for g in range(len(stack.loadings)):
            own = np.flatnonzero(stack.shape == g)
            loadings, noise, means[own] = self._regress(
                stack.noise_variances[g], *_of_pair(sums, g, own)
            )
            pairs.append((loadings, noise))
        loadings, noise = (np.stack(parts) for parts in zip(*pairs, strict=True))
        return replace(self, stack=FactorStack(means, loadings, noise, stack.shape))

    def _with_prior_rows(self, sums: Sums) -> Sums:
        """The sums with those of the prior's rows."""
        triangles, crossed, squares, factors, counts, first = sums
        stack, rows, columns = self.stack, *np.tril_indices(self.stack.n_factors)
        own = self._prior_factors()
        products, totals = (
            np.zeros((len(triangles), len(rows))),
            np.zeros((len(triangles), own.shape[1])),
        )
        np.add.at(products, stack.shape, self.mean_count * own[:, rows] * own[:, columns])
        np.add.at(totals, stack.shape, self.mean_count * own)
        centre = np.broadcast_to(self.mean_centre, stack.n_columns)
        n_rows = self.mean_count * np.bincount(stack.shape)[:, None]
        return (
            triangles + products[:, None],
            crossed + centre[:, None] * totals[:, None],
            squares + n_rows * np.square(centre),
            factors + self.mean_count * own[:, None],
            counts,
            first + self.mean_count * centre,
        )

    def _prior_factors(self) -> FloatArray:
        """Most probable factors (K, q) of the prior's row in each component."""
        # A mean may be as far from its prior as rows of the component are, not only as its noise is
        stack, q = self.stack, self.stack.n_factors
        precisions = stack.loadings.transpose(0, 2, 1) @ stack.scaled_loadings + np.eye(q)
        away = self.mean_centre - stack.means
        pulled = np.einsum("kcq,kc->kq", stack.scaled_loadings[stack.shape], away)
        return np.linalg.solve(precisions[stack.shape], pulled[:, :, None])[:, :, 0]

    def adapt(self, sums: Sums, completeness: float) -> FactorGaussians:
        """Keep the prior, whose strength is fixed."""
        return self

    def relax(self, sums: Sums, together: FloatArray) -> FactorGaussians:
        """Keep the prior: one cell biases less than the rows vary."""
        return self

    def _regress(
        self,
        noise: FloatArray,
        moments: FloatArray,
        crossed: FloatArray,
        squares: FloatArray,
        factors: FloatArray,
        counts: FloatArray,
        first: FloatArray,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Loadings (c, q), noise (c,) and means (K, c) that components share, given `noise`."""
        q = factors.shape[2]
        total = np.maximum(counts + self.mean_count, _TINY)  # (K, c)
        prior_count = max(self.prior_count, _TINY)
        ridges = prior_count * q * noise
        moments = moments + ridges[:, None, None] * np.eye(q)
        # eliminate the means from the normal equations
        scaled = factors / total[:, :, None]
        normal = moments - np.einsum("kcq,kcr->cqr", scaled, factors)
        sides = crossed - np.einsum("kcq,kc->cq", scaled, first)
        loadings = np.linalg.solve(normal, sides[:, :, None])[:, :, 0]
        means = (first - np.einsum("cq,kcq->kc", loadings, factors)) / total
        # at the optimum, the squares left are those of the data less what is explained, less what
        # the ridge adds
        left = squares - np.einsum("cq,cq->c", loadings, crossed) - (means * first).sum(axis=0)
        left -= ridges * np.square(loadings).sum(axis=1)
        n_cells = counts.sum(axis=0)
        left = np.maximum(left, 0.0) + n_cells * self.jitter
        noise = (left + prior_count * _noise_scales(noise, q)) / (n_cells + prior_count)
        noise = np.maximum(noise, _LEAST_NOISE)
        noise[n_cells == 0.0] = 1.0  # no information about the column: standard normal
        return loadings, noise, means

    def log_prior(self) -> float:
        """Log prior up to a constant."""
        stack = self.stack
        scales = _noise_scales(stack.noise_variances, stack.n_factors)
        ratios = scales / stack.noise_variances
        terms = self.prior_count * (ratios - np.log(ratios))
        squares = self.prior_count * stack.n_factors * np.square(stack.loadings).sum()
        factors = self._prior_factors()
        left = stack.means + np.einsum("kcq,kq->kc", stack.loadings[stack.shape], factors)
        left -= self.mean_centre
        pulls = (np.square(left) / stack.noise_variances[stack.shape]).sum()
        pulls += np.square(factors).sum()
        return -0.5 * float(terms.sum() + squares + self.mean_count * pulls)


def _noise_scales(noise: FloatArray, n_factors: int) -> FloatArray:
    """Likeliest scale (..., 1) of the inverse gamma prior of noise (..., c): the harmonic mean."""
    if n_factors == 0:
        return np.full((*noise.shape[:-1], 1), _NOISE_SQUARE)
    harmonic: FloatArray = 1.0 / (1.0 / noise).mean(axis=-1, keepdims=True)
    return np.minimum(harmonic, _NOISE_SQUARE)


def _of_pair(sums: Sums, g: int, own: IntArray) -> Sums:
    """The sums of one pair of loadings and noise and of its components."""
    triangles, crossed, squares, factors, counts, first = sums
    q = crossed.shape[2]
    rows, columns = np.tril_indices(q)
    moments = np.empty((triangles.shape[1], q, q))
    moments[:, rows, columns] = moments[:, columns, rows] = triangles[g]
    return moments, crossed[g], squares[g], factors[own], counts[own], first[own]


@dataclass(frozen=True, eq=False)
class FactorExpectation:
    """Factors of each row: `log_density` (K, n) of the observed cells, `blocks` of rows."""

    gaussians: FactorGaussians
    log_density: FloatArray
    numbers: FloatArray
    blocks: list[FactorBlock]

    def mean_rows(self, responsibilities: FloatArray) -> FloatArray:
        """Rows with their conditional means in place of missing cells, shape (n, c)."""
        stack = self.gaussians.stack
        result = np.zeros(self.numbers.shape)
        for block in self.blocks:
            for k, g in enumerate(stack.shape):
                means = stack.means[k] + block.factors[k].T @ stack.loadings[g].T
                result[block.rows] += responsibilities[k, block.rows, None] * means
        return np.where(np.isnan(self.numbers), result, self.numbers)

    def sums(self, responsibilities: FloatArray) -> Sums:
        """Moments summed over the observed cells of each column.

        Of the factors (G, c, q (q + 1) / 2), of cells and factors (G, c, q), squares (G, c);
        factors (K, c, q), counts (K, c) and cells (K, c).
        """
        parts = [self._block_sums(block, responsibilities[:, block.rows]) for block in self.blocks]
        return tuple(sum(arrays) for arrays in zip(*parts, strict=True))

    def _block_sums(self, block: FactorBlock, weights: FloatArray) -> Sums:
        stack = self.gaussians.stack
        n_distinct, n_columns, q = stack.loadings.shape
        rows, columns = np.tril_indices(q)
        observed = block.observed.astype(np.float64)
        cells = np.where(block.observed, self.numbers[block.rows], 0.0)
        spreads = np.zeros((n_distinct, len(rows), len(cells)))
        crossed = np.zeros((n_distinct, n_columns, q))
        factors = np.empty((stack.n_components, n_columns, q))
        for k, g in enumerate(stack.shape):
            weighted = block.factors[k] * weights[k]
            spreads[g] += weighted[rows] * block.factors[k][columns]
            factors[k] = (weighted @ observed).T
            crossed[g] += (weighted @ cells).T
        own = np.zeros((n_distinct, len(cells)))
        np.add.at(own, stack.shape, weights)
        if q:
            for g in range(n_distinct):
                covariances = gram_of_lower(block.roots[:, :, g])[rows, columns]
                # Posterior covariances of factors depend on the pattern alone, not on the cells
                spreads[g] += np.take(covariances, block.pattern, axis=1) * own[g]
        return (
            (spreads @ observed).transpose(0, 2, 1),
            crossed,
            own @ np.square(cells),
            factors,
            weights @ observed,
            weights @ cells,
        )


class FactorGaussianStatistics(InputStatistics):
    """Moments of factors and cells, in standard units of the columns."""

    # Units that have the same covariance keep it in common

    def __init__(self, layer: Any, units: Sequence[InputUnit], moments: ColumnMoments) -> None:
        super().__init__(layer, units, moments)
        own = list(layer.variables)
        self._location, self._scale = moments.mean[own], np.sqrt(moments.variance[own])
        given = layer.gaussians
        stack = FactorStack(
            (given.means - self._location) / self._scale,
            given.loadings / self._scale[:, None],
            given.noise_variances / self._scale**2,
            given.shape,
        )
        self._gaussians = FactorGaussians(stack, 0.0, np.zeros(len(own)))
        self._sums: tuple[FloatArray, ...] | None = None

    def add(self, X: FloatArray, flows: FloatArray) -> None:
        """Add expected moments of the factors given the observed cells of each row."""
        numbers = (self.layer.cells(X) - self._location) / self._scale
        # rows without observed cells of the unit have no information about it
        seen = np.flatnonzero(~np.isnan(numbers).all(axis=1))
        if not len(seen):
            return
        sums = self._gaussians.expect(numbers[seen], []).sums(flows[:, seen])
        if self._sums is not None:
            sums = tuple(old + new for old, new in zip(self._sums, sums, strict=True))
        self._sums = sums

    def estimate(self, pseudo_count: float) -> list[InputUnit]:
        """Loadings, noise and means by regression on the factors."""
        if self._sums is None:
            return list(self.units)
        prior = replace(self._gaussians, mean_count=pseudo_count, prior_count=pseudo_count)
        means, loadings, noise = prior.maximize(self._sums).in_units(self._location, self._scale)
        # A column without noise of its own would have a density without bound
        noise = np.maximum(noise, MIN_VARIANCE * self._scale**2)
        variables, known = self.layer.variables, self._sums[4].sum(axis=1) > 0
        return [
            FactorGaussian(variables, means[u], loadings[u], noise[u]) if known[u] else unit
            for u, unit in enumerate(self.units)
        ]


register_statistics(FactorGaussianLayer, FactorGaussianStatistics)
