"""Gaussian components with dense covariances: separate, shared, or shrunk towards the shared one.

``expect(numbers, groups)`` gives an expectation with ``log_density`` (K, n) and
``sums(responsibilities)``, statistics of the rows as a tuple of arrays, which ``join`` makes those
of several blocks of rows; ``maximize(sums)`` gives the components that maximise the expected
posterior, and ``log_prior()`` the log density of the prior.

The statistics are counts, means, and scatter around these means: second moments around any other
point would lose the scatter of rows that are far from it to rounding.

The prior of a mean counts as some rows of its component at the mean of a single one. A covariance
is shrunk towards a target with the weight of a number of rows that is learned (``adapt``): towards
the diagonal if there is one covariance, towards the shared covariance at a scale of each
component's own ("shrunk"), or towards that of a single component at an equal fraction of its volume
("full"; Fraley and Raftery, 2007, "Bayesian Regularization for Normal Mixture Estimation and
Model-Based Clustering"). Where columns are skewed or have heavy tails, components of the bulk are
much narrower than the shared covariance, but often of the same shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Literal, Self

import numpy as np
from scipy import sparse
from scipy.special import gammaln

from skcircuits.numerics._gaussian_stack import (
    ConditionalBlock,
    GaussianStack,
    TiedRows,
    center_rows,
    matrix_slices,
    write_variances,
)
from skcircuits.numerics._patterns import PatternGroup
from skcircuits.parallel import single_threaded_blas
from skcircuits.protocols import BoolArray, FloatArray

CovarianceType = Literal["full", "shrunk", "tied", "factor", "diag"]
Sums = tuple[FloatArray, ...]

# Rows with uncorrelated columns of unit variance that all covariances together have: too few to
# matter, but they keep covariances positive definite. One covariance, of all rows, is drawn towards
# its target by as few, to show that columns nearly determine one another. Several may move towards
# few rows each; so that they do not collapse on them, they are drawn more, towards one that shows
# this.
_RIDGE = 1e-5
_SHARED_STRENGTHS, _STRENGTHS = np.geomspace(1e-5, 2000.0, 60), np.geomspace(0.1, 2000.0, 30)
# Of variances, that rounding of sums of products may take away from nearly singular covariances
_ROUNDING = 1e-14
_LEAST_VARIANCE = 0.02  # of a direction, in a first guess of the covariance
# Rows that the prior of a component's scale, at one, weighs (of 1, 4 and 20 the best on most of ten
# kinds of generated tables), and least scale: where a column is constant in a component, nothing
# else keeps it from zero
_SCALE_ROWS, _LEAST_SCALE = 4.0, 0.01
_SPARSE_SIZE = 1 << 15  # so many numbers are added up faster by a sparse matrix


@dataclass(frozen=True, eq=False)
class FullGaussians:
    """Gaussian components with dense covariances in standard units."""

    # White squares of means and rows are expanded up to `max_square`: log densities lose less than
    # 1e-9 there

    max_square: ClassVar[float] = 1e6
    are_fixed: ClassVar[bool] = False  # the means

    stack: GaussianStack  # K means and covariances, a single one if tied
    kind: CovarianceType
    target: FloatArray  # (c, c), of the prior of covariances
    strength: float  # rows of that prior
    mean_count: float  # rows of the prior of each mean, at `mean_centre` (c,)
    jitter: FloatArray  # (c,), variance of an observed cell within its recording interval
    mean_centre: FloatArray | float = field(default=0.0, kw_only=True)
    # Rows of unit variance that each covariance is drawn towards as well
    ridges: FloatArray | float = field(default=_RIDGE, kw_only=True)
    # (c,), columns that have cells, where components have scales of their own
    is_observed: BoolArray | bool = field(default=True, kw_only=True)
    # (c,), largest variances of the target, where several components share it
    widest: FloatArray | float = field(default=np.inf, kw_only=True)

    @classmethod
    def guess(cls, covariance: FloatArray, jitter: FloatArray) -> FullGaussians:
        """One component with a first guess of the covariance, which is made positive definite."""
        variances, axes = np.linalg.eigh(covariance)
        nearest = (axes * np.maximum(variances, _LEAST_VARIANCE)) @ axes.T
        size = len(jitter)
        stack = GaussianStack(np.zeros((1, size)), nearest[None], np.zeros(1, np.intp))
        return cls(stack, "tied", np.eye(size), 1.0, 0.0, jitter)

    def repeat(self, n_components: int, kind: CovarianceType, mean_count: float) -> FullGaussians:
        """Copies of a single component, which becomes part of the prior of observed columns."""
        means = np.repeat(self.stack.means, n_components, axis=0)
        covariances, centre = self.stack.distinct_covariances, self.stack.means[0]
        if kind == "tied":
            stack = GaussianStack(means, covariances, np.zeros(n_components, np.intp))
            return replace(self, stack=stack, kind=kind, mean_count=mean_count, mean_centre=centre)
        stack = GaussianStack(means, np.repeat(covariances, n_components, axis=0))
        # K components share the volume of one, in the columns that rows have cells of
        part = np.where(self._seen, n_components ** (-1.0 / max(1, self._seen.sum())), 1.0)
        target = covariances[0] * np.outer(part, part)
        prior = (kind, target, 20.0, mean_count, self.jitter)
        own = FullGaussians(stack, *prior, mean_centre=centre, is_observed=self.is_observed)
        return replace(own, ridges=_RIDGE / n_components, widest=self.widest)

    def apart(self, numbers: FloatArray, responsibilities: FloatArray) -> Self:
        """Equal components: the first step moves them to their clusters."""
        return self

    def in_units(self, location: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (K, c) and covariances (K, c, c) in the units of the table."""
        means = location + scale * self.stack.means
        return means, self.stack.covariances * np.outer(scale, scale)

    @property
    def n_gaussians(self) -> tuple[int, int] | None:
        """Components and distinct covariances, for which patterns of cells are grouped."""
        n_components = 1 if self._is_linear else self.stack.n_components
        return n_components, len(self.stack.distinct_covariances)

    @cached_property
    def _is_linear(self) -> bool:
        """Whether rows are completed by maps of patterns rather than once for each component."""
        # Maps take columns times more numbers than a completion, however many components there are
        n_components = self.stack.n_components
        is_cheap = self.kind == "tied" and n_components > 1 and n_components >= self.stack.n_columns
        return is_cheap and self.stack.largest_square <= self.max_square

    def n_parameters(self) -> int:
        """Count the free parameters of all components."""
        return self.stack.n_parameters

    def expect(
        self, numbers: FloatArray, groups: list[PatternGroup]
    ) -> FullExpectation | TiedExpectation:
        """Complete rows by their conditional means and take their log densities."""
        if self._is_linear:
            with single_threaded_blas():  # its threads cost more than these products
                expectation = TiedExpectation.of_gaussians(self, numbers, groups)
            if expectation.largest_square() <= self.max_square:
                return expectation
        return FullExpectation(self, *center_rows(self.stack, numbers, groups), ~np.isnan(numbers))

    def maximize(self, sums: Sums) -> FullGaussians:
        """Means, and covariances shrunk towards the prior."""
        counts, _, _ = sums
        means, scatter = self._scatter(sums)
        if self.kind == "tied":
            scatter, counts = scatter[None], counts.sum(keepdims=True)
        # In proportion to its rows: with equal ridges, the component of most rows would be the
        # narrowest where columns determine one another, and take the rows of all others
        ridges = _RIDGE * (counts / max(counts.sum(), 1e-300))
        rows, squares = self._prior_rows(ridges)
        covariances = (scatter + squares) / (counts + rows)[:, None, None]
        # Rounding differs across the diagonal
        covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        variances: FloatArray = np.einsum("kii->ki", covariances)  # a view
        variances *= 1.0 + _ROUNDING
        shape = self.stack.shape if self.kind == "tied" else None
        return replace(self, ridges=ridges, stack=GaussianStack(means, covariances, shape))

    def _prior_rows(self, ridges: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows (K,) in the prior of each covariance, and their sums of products (K, c, c)."""
        unit = ridges[:, None, None] * np.eye(len(self.target))
        return self.strength + ridges, self.strength * self._targets() + unit

    def _targets(self) -> FloatArray:
        """Target of each covariance, (K, c, c), or (c, c) where it is the same for all."""
        return self.target * self._scaling() if self.kind == "shrunk" else self.target

    @cached_property
    def _seen(self) -> BoolArray:
        """Mask (c,) of the columns that have cells."""
        return np.broadcast_to(self.is_observed, len(self.target))

    def _scaling(self) -> FloatArray:
        """Factors (K, c, c) of the target, which leave columns without cells as they are."""
        factors = np.where(self._seen, np.sqrt(self._scales)[:, None], 1.0)
        return factors[:, :, None] * factors[:, None]

    @cached_property
    def _scales(self) -> FloatArray:
        """Scales (K,) of the target for each component, the likeliest under its covariance."""
        seen = self._seen
        size = np.count_nonzero(seen)
        own = np.where(seen[:, None] & seen, self.target, 0.0)
        traces = np.einsum("kij,ij->k", self.stack.precisions, own)
        scales = (self.strength + _SCALE_ROWS) * size
        scales = scales / np.maximum(self.strength * traces + _SCALE_ROWS * size, 1e-300)
        return np.maximum(scales, _LEAST_SCALE)

    def adapt(self, sums: Sums, completeness: float) -> Self:
        """Learn the prior of the covariances from the rows."""
        # Completed cells count less, by `completeness`, where components have covariances of their
        # own
        counts, _, _ = sums
        _, scatter = self._scatter(sums)
        if self.kind == "shrunk":
            scatter = scatter / self._scaling()
        target = self.target
        if self.kind != "full":
            shared = scatter if self.kind == "tied" else scatter.sum(axis=0)
            total = counts.sum(keepdims=True)
            diagonal = np.diag(np.maximum(np.diag(shared) / max(total[0], 1e-300), 1e-6))
            strength = _learned_strength(shared[None], total, diagonal, _SHARED_STRENGTHS)
            if self.kind == "tied":
                return replace(self, target=diagonal, strength=strength)
            shared = shared + strength * diagonal + _RIDGE * np.eye(len(shared))
            target = 0.5 * (shared + shared.T) / (total[0] + strength + _RIDGE)
            # In units of each component's scale: a column that does not become narrower with the
            # others would be many times as wide in components without rows, whose scale is one
            narrower = np.sqrt(1.0 / np.maximum(1.0, np.diag(target) / self.widest))
            target *= np.outer(narrower, narrower)
        own = completeness * scatter, completeness * counts
        strength = _learned_strength(*own, target, _STRENGTHS)
        return replace(self, target=target, strength=strength)

    def relax(self, sums: Sums, together: FloatArray) -> Self:
        """Shrink one covariance by the square of the fraction that minimises its own error."""
        # That fraction is of the order of the relative sampling error: it biases regressions on
        # imputed columns by as much as their standard error, its square by an order less. Rows that
        # lack one of two cells reproduce the prior, so that its weight is relative to the other
        # rows, of which there are `together` (c, c) for each pair of columns.
        if self.kind != "tied" or len(self.target) < 2:
            return self
        total = float(sums[0].sum())
        fraction = (self.strength / max(self.strength + total, 1e-300)) ** 2
        n_rows = float(together[np.triu_indices(len(self.target), 1)].mean())
        return replace(self, strength=n_rows * fraction / (1.0 - fraction))

    def _scatter(self, sums: Sums) -> tuple[FloatArray, FloatArray]:
        """New means (K, c) and scatter around them: (K, c, c), or (c, c) where tied."""
        counts, rows, scatter = sums
        away = np.zeros(self.stack.n_columns) + self.mean_centre - rows
        # Rows of the prior are a further block, all of them at its centre
        parts = self.mean_count / (counts + self.mean_count + 1e-14)
        return rows + parts[:, None] * away, scatter + products_like(scatter, parts * counts, away)

    def join(self, parts: Sequence[Sums], factors: Sequence[float]) -> Sums:
        """Statistics of blocks of rows together, in which rows weigh so many times as much."""
        return joined_sums(parts, factors)

    def log_prior(self) -> float:
        """Log prior up to a constant, as the contribution of pseudo-rows."""
        stack = self.stack.distinct
        rows, squares = self._prior_rows(np.zeros(stack.n_components) + self.ridges)
        log_prior = rows * stack.log_determinants
        log_prior += np.einsum("kij,kij->k", stack.precisions, squares)
        if self.kind == "shrunk":
            scales, size = self._scales, np.count_nonzero(self._seen)
            log_prior += _SCALE_ROWS * size * scales
            log_prior -= (self.strength + _SCALE_ROWS) * size * np.log(scales)
        away = self.stack.means - self.mean_centre
        pulls = np.sum((away[:, None] @ self.stack.precisions)[:, 0] * away)
        return -0.5 * float(log_prior.sum() + self.mean_count * pulls)


@dataclass(frozen=True, eq=False)
class FullExpectation:
    """Rows completed by each component."""

    gaussians: FullGaussians
    log_density: FloatArray  # (K, n), of the observed cells
    centered: FloatArray  # (K, c, n), completed rows less means
    blocks: list[ConditionalBlock]  # conditional covariances
    is_observed: BoolArray  # (n, c)

    def mean_rows(self, responsibilities: FloatArray) -> FloatArray:
        """Rows with their conditional means in place of missing cells, shape (n, c)."""
        completed = self.centered + self.gaussians.stack.means[:, :, None]
        return np.einsum("kn,kcn->nc", responsibilities, completed)

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Conditional means and variances (K, n, c) of the rows."""
        means = self.centered + self.gaussians.stack.means[:, :, None]
        variances = np.zeros_like(means)
        for block in self.blocks:
            write_variances(variances, block)
        return means.transpose(0, 2, 1), variances.transpose(0, 2, 1)

    def sums(self, responsibilities: FloatArray) -> Sums:
        """Expected counts (K,), means (K, c) and scatter, (K, c, c) or (c, c) where tied."""
        stack, tied = self.gaussians.stack, self.gaussians.kind == "tied"
        counts = responsibilities.sum(axis=1)
        shifts = (self.centered @ responsibilities[:, :, None])[:, :, 0]
        shifts /= np.maximum(counts, 1e-300)[:, None]
        away = self.centered - shifts[:, :, None]
        products = (away * responsibilities[:, None]) @ away.transpose(0, 2, 1)
        scatter = products.sum(axis=0) if tied else products
        own = responsibilities.sum(axis=0)[None] if tied else responsibilities
        # A view: the covariances of missing cells are added to the products themselves
        spread = scatter[None] if tied else scatter
        for block in self.blocks:
            spread += _spread(block, own, stack.n_columns)
        if self.gaussians.jitter.any():
            diagonal = np.arange(stack.n_columns)
            spread[:, diagonal, diagonal] += (own @ self.is_observed) * self.gaussians.jitter
        return counts, stack.means + shifts, scatter


@dataclass(frozen=True, eq=False)
class TiedExpectation(TiedRows):
    """Rows completed by components with one covariance, and their sums."""

    gaussians: FullGaussians

    @classmethod
    def of_gaussians(
        cls, gaussians: FullGaussians, numbers: FloatArray, groups: list[PatternGroup]
    ) -> TiedExpectation:
        """Complete rows and take their log densities."""
        return cls(**vars(TiedRows.of(gaussians.stack, numbers, groups)), gaussians=gaussians)

    def sums(self, responsibilities: FloatArray) -> Sums:
        """Expected counts (K,), means (K, c) and scatter (c, c)."""
        with single_threaded_blas():  # its threads cost more than these products
            return self._sums(responsibilities)

    def _sums(self, responsibilities: FloatArray) -> Sums:
        stack, pattern, maps = self.stack, self.maps.pattern, self.white_maps
        counts, weights = responsibilities.sum(axis=1), responsibilities.sum(axis=0)
        means = stack.means - self.centre
        n_components, size = means.shape
        indicators = sparse.csc_matrix(
            (np.ones(len(weights)), (np.arange(len(weights)), pattern)), (len(weights), len(maps))
        )
        of_patterns = responsibilities @ indicators  # (K, P)
        flat = maps.reshape(len(maps), size**2)
        are_fixed = self.gaussians.are_fixed
        shifts = np.zeros_like(means) if are_fixed else responsibilities @ self.white
        products = np.zeros((len(maps), size**2))
        for some in matrix_slices(n_components, size**2):
            own, here = of_patterns[some], means[some]
            if not are_fixed:
                mixed = (own @ flat).reshape(len(own), size, size)
                shifts[some] -= np.einsum("kij,kj->ki", mixed, here)
            products += own.T @ (here[:, :, None] * here[:, None]).reshape(len(own), size**2)
        products = products.reshape(len(maps), size, size)
        away = np.einsum("nij,nj->ni", maps[pattern], responsibilities.T @ means)
        crossed = self.white.T @ away
        around = (self.white.T * weights) @ self.white - crossed - crossed.T
        around += (maps @ products @ maps.transpose(0, 2, 1)).sum(axis=0)
        shifts /= np.maximum(counts, 1e-300)[:, None]
        # Around the means of the rows: what is lost to rounding is a part of the first moments
        rounding = _ROUNDING * np.abs(np.diag(around))
        white = around - (shifts.T * counts) @ shifts + np.diag(rounding)
        root = stack.distinct.cholesky[0]
        scatter = root @ white @ root.T
        scatter += np.tensordot(of_patterns.sum(axis=0), self.maps.spreads, axes=1)
        jitter = self.gaussians.jitter
        if jitter.any():
            scatter += np.diag((weights @ ~np.isnan(self.X)) * jitter)
        return counts, stack.means + shifts @ root.T, scatter


def products_like(scatter: FloatArray, weights: FloatArray, away: FloatArray) -> FloatArray:
    """Weighted outer products of differences (K, c): (K, c, c), or (c, c) where scatter is."""
    if scatter.ndim == 2:
        return (away.T * weights) @ away
    return weights[:, None, None] * away[:, :, None] * away[:, None]


def joined_sums(parts: Sequence[Sums], factors: Sequence[float]) -> Sums:
    """Counts, means and scatter of blocks of rows together, which weigh so many times as much."""
    if len(parts) == 1:
        ((counts, means, scatter),) = parts
        return factors[0] * counts, means, factors[0] * scatter
    weighed = np.array([factor * own[0] for factor, own in zip(factors, parts, strict=True)])
    total, first = weighed.sum(axis=0), parts[0][1]
    rows = np.array([own[1] for own in parts])
    moved = np.einsum("bk,bkc->kc", weighed, rows - first)
    means = first + moved / np.maximum(total, 1e-300)[:, None]
    away = rows - means
    if parts[0][2].ndim == 2:
        scatter = products_like(parts[0][2], weighed.ravel(), np.concatenate(away))
    else:
        scatter = (away.transpose(1, 2, 0) * weighed.T[:, None]) @ away.transpose(1, 0, 2)
    # One by one: scatter of many components takes more memory than the rows do
    for factor, own in zip(factors, parts, strict=True):
        scatter += factor * own[2]
    return total, means, scatter


def weighted_sums(parts: Sequence[Sums], factors: Sequence[float]) -> Sums:
    """Sums over blocks of rows together, in which rows weigh so many times as much."""
    return tuple(
        np.asarray(sum(factor * own for factor, own in zip(factors, arrays, strict=True)))
        for arrays in zip(*parts, strict=True)
    )


def _spread(block: ConditionalBlock, weights: FloatArray, n_columns: int) -> FloatArray:
    """Conditional covariances of the rows of a block, weighted (G, n) and summed, (G, c, c)."""
    n_distinct, group = len(weights), block.group
    n_kept = n_columns
    # joined groups of patterns name columns that the table does not have
    n_columns = max(n_columns, 1 + int(group.missing.max()))
    cases = np.arange(n_distinct)[:, None] * group.n_patterns + group.pattern
    totals = np.bincount(
        cases.ravel(), weights[:, group.rows].ravel(), minlength=n_distinct * group.n_patterns
    )
    size, shape = group.missing.shape[1], (n_distinct, n_columns, n_columns)
    values = (block.distinct_covariances * totals).reshape(size, size, n_distinct, -1)
    if values.size < _SPARSE_SIZE:
        cells = group.missing.T[:, None] * n_columns + group.missing.T[None]
        cells = cells[:, :, None] + np.arange(n_distinct)[:, None] * n_columns**2
        flat = np.bincount(cells.ravel(), values.ravel(), minlength=n_distinct * n_columns**2)
        spread = np.asarray(flat, dtype=np.float64).reshape(shape)
        return spread[:, :n_kept, :n_kept]
    # a sparse matrix sums the terms of each cell, for all covariances at once
    rows, columns = np.tril_indices(size)
    cells = group.missing.T[rows] * n_columns + group.missing.T[columns]
    collect = sparse.csc_matrix(
        (np.ones(cells.size), cells.ravel(), np.arange(cells.size + 1)),
        shape=(n_columns**2, cells.size),
    )
    triangles = values[rows, columns].transpose(0, 2, 1).reshape(-1, n_distinct)
    lower = np.asarray(collect @ triangles).T.reshape(shape)[:, :n_kept, :n_kept]
    return lower + np.tril(lower, -1).transpose(0, 2, 1)


def _learned_strength(
    scatters: FloatArray, counts: FloatArray, target: FloatArray, strengths: FloatArray
) -> float:
    """Rows of the target, among `strengths`, with the largest marginal likelihood of scatters.

    Each scatter (K, d, d) is that of N_k rows (counts (K,)) of a Gaussian whose covariance is
    drawn from an inverse Wishart distribution with mean `target` (d, d) and nu + d + 1 degrees
    of freedom: with its covariance integrated out,

        log p = log |nu S|^(df / 2) - log |nu S + T|^((df + N) / 2)
                + log Gamma_d((df + N) / 2) - log Gamma_d(df / 2) + constant.
    """
    size = len(target)
    if size < 2:
        return float(strengths[0])
    lower = np.linalg.cholesky(target)
    white = np.linalg.solve(lower, np.linalg.solve(lower, scatters).transpose(0, 2, 1))
    spectra = np.maximum(np.linalg.eigvalsh(white), 0.0)
    freedom = strengths + size + 1.0
    half = 0.5 * (freedom + counts[:, None])
    evidence = half * -np.log(strengths[:, None] + spectra[:, None]).sum(axis=2)
    evidence += 0.5 * freedom * size * np.log(strengths)
    # Gamma_d up to its constant, which cancels; for all strengths and scatters at once
    steps = 0.5 * np.arange(size)
    evidence += gammaln(half[:, :, None] - steps).sum(axis=2)
    evidence -= gammaln(0.5 * freedom[:, None] - steps).sum(axis=1)
    return float(strengths[evidence.sum(axis=0).argmax()])
