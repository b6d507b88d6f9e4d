"""Components of a Gaussian mixture: expectations, their sums over rows, and maximisers.

Each class holds the parameters of all components for one kind of column. ``expect(rows)``
gives an expectation with ``log_density`` (n_components, n) and ``sums(responsibilities)``,
a tuple of arrays that adds up over blocks of rows; ``maximize(sums)`` gives the components
that maximise the expected posterior, and ``log_prior()`` the prior's part of it.

The prior weighs as much as some rows per component: for numbers, rows that vary as a single
component fitted to all rows does, shrunk to an equal share of its volume (Fraley and Raftery,
2007, "Bayesian Regularization for Normal Mixture Estimation and Model-Based Clustering");
for categories, rows with the frequencies of the column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._gaussian_conditionals import ConditionalBlock, conditional_blocks
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._patterns import PatternGroup
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["Categories", "DiagonalGaussians", "FullGaussians", "Sums"]

Sums = tuple[FloatArray, ...]

_LOG_2PI = float(np.log(2.0 * np.pi))
# Rows with uncorrelated columns of unit variance that every prior has: too few to matter,
# but they keep covariances positive definite
RIDGE_COUNT = 0.001
_LEAST_COUNT = 10.0 * np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class FullGaussians:
    """Gaussian components with full covariances.

    Parameters
    ----------
    stack : GaussianStack
        Means and covariances in standard units.
    prior_scatter : ndarray of shape (c, c)
        Scatter matrix of the rows of the prior.
    prior_count : float
        Number of these rows.
    """

    stack: GaussianStack
    prior_scatter: FloatArray
    prior_count: float

    @classmethod
    def standard(cls, n_columns: int) -> FullGaussians:
        """One standard normal component."""
        stack = GaussianStack(np.zeros((1, n_columns)), np.eye(n_columns)[None])
        return cls(stack, RIDGE_COUNT * np.eye(n_columns), RIDGE_COUNT)

    def repeat(self, n_components: int, pseudo_count: float) -> FullGaussians:
        """Copies of a single component, which becomes the prior of each."""
        means = np.repeat(self.stack.means, n_components, axis=0)
        covariances = np.repeat(self.stack.covariances, n_components, axis=0)
        n_columns = means.shape[1]
        scatter = self.stack.covariances[0] * pseudo_count * _shrinkage(n_components, n_columns)
        return FullGaussians(
            GaussianStack(means, covariances),
            scatter + RIDGE_COUNT * np.eye(n_columns),
            pseudo_count + RIDGE_COUNT,
        )

    def in_units(self, location: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means (K, c) and covariances (K, c, c) in the units of the table."""
        means = location + scale * self.stack.means
        return means, self.stack.covariances * np.outer(scale, scale)

    def n_parameters(self) -> int:
        """Count the free parameters of all components."""
        n_components, n_columns = self.stack.means.shape
        return n_components * (n_columns + n_columns * (n_columns + 1) // 2)

    def expect(self, numbers: FloatArray, groups: list[PatternGroup]) -> FullExpectation:
        """Complete rows by their conditional means and take their log densities.

        A row's squared Mahalanobis distance over the observed cells is that of the row
        completed by its conditional mean: one whitening serves all patterns.
        """
        stack = self.stack
        n_observed = np.count_nonzero(~np.isnan(numbers), axis=1)
        blocks = list(conditional_blocks(stack, numbers, groups))
        deviations = np.ascontiguousarray(numbers.T) - stack.means[:, :, None]  # (K, c, n)
        log_density = np.zeros((stack.n_components, len(numbers)))
        for block in blocks:
            rows, missing = block.group.rows, block.group.missing[block.group.pattern]
            deviations[:, missing.T, rows] = block.deviations.transpose(1, 0, 2)
            log_precisions = block.half_log_precisions.reshape(stack.n_components, -1)
            log_density[:, rows] = -log_precisions[:, block.group.pattern]
        white = stack.whitening @ deviations
        log_density -= 0.5 * np.einsum("kcn,kcn->kn", white, white)
        log_density -= 0.5 * (stack.log_determinants[:, None] + n_observed * _LOG_2PI)
        return FullExpectation(log_density, deviations + stack.means[:, :, None], blocks)

    def maximize(self, sums: Sums) -> FullGaussians:
        """Means, and covariances drawn towards the prior."""
        counts, first, second = sums
        means = first / (counts + _LEAST_COUNT)[:, None]
        scatter = second - counts[:, None, None] * means[:, :, None] * means[:, None]
        total = (counts + self.prior_count)[:, None, None]
        covariances = (scatter + self.prior_scatter) / total
        covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        return replace(self, stack=GaussianStack(means, covariances))

    def log_prior(self) -> float:
        """Log prior up to a constant: what the rows of the prior add."""
        traces = np.einsum("kij,ij->k", self.stack.precisions, self.prior_scatter)
        return -0.5 * float((self.prior_count * self.stack.log_determinants + traces).sum())


@dataclass(frozen=True, eq=False)
class FullExpectation:
    """Rows completed by each component.

    Parameters
    ----------
    log_density : ndarray of shape (K, n)
        Log densities of the observed cells.
    completed : ndarray of shape (K, c, n)
        Rows with conditional means in place of missing cells.
    blocks : list of ConditionalBlock
        Conditional covariances.
    """

    log_density: FloatArray
    completed: FloatArray
    blocks: list[ConditionalBlock]

    def sums(self, responsibilities: FloatArray) -> Sums:
        """Expected counts (K,), sums (K, c) and sums of products (K, c, c)."""
        weighted = self.completed * responsibilities[:, None]
        second = weighted @ self.completed.transpose(0, 2, 1)
        for block in self.blocks:
            second += _spread(block, responsibilities, second.shape)
        return responsibilities.sum(axis=1), weighted.sum(axis=2), second


def _spread(
    block: ConditionalBlock, responsibilities: FloatArray, shape: tuple[int, ...]
) -> FloatArray:
    """Conditional covariances of the rows of a block, weighted and summed, (K, c, c)."""
    n_components, n_columns, _ = shape
    group = block.group
    cases = np.arange(n_components)[:, None] * group.n_patterns + group.pattern
    totals = np.bincount(
        cases.ravel(),
        responsibilities[:, group.rows].ravel(),
        minlength=n_components * group.n_patterns,
    )
    size = group.missing.shape[1]
    values = (block.covariances * totals).reshape(size, size, n_components, -1)
    cells = group.missing.T[:, None] * n_columns + group.missing.T[None]
    cells = cells[:, :, None] + np.arange(n_components)[:, None] * n_columns**2
    flat = np.bincount(cells.ravel(), values.ravel(), minlength=n_components * n_columns**2)
    return np.asarray(flat, dtype=np.float64).reshape(shape)


def _shrinkage(n_components: int, n_columns: int) -> float:
    """How much smaller than the data a component is: K of them share its volume."""
    return float(n_components ** (-2.0 / max(1, n_columns)))


@dataclass(frozen=True, eq=False)
class DiagonalGaussians:
    """Gaussian components with independent columns.

    Parameters
    ----------
    means, variances : ndarray of shape (K, c)
        In standard units.
    prior_scatter : ndarray of shape (c,)
        Sums of squares of the rows of the prior.
    prior_count : float
        Number of these rows.
    """

    means: FloatArray
    variances: FloatArray
    prior_scatter: FloatArray
    prior_count: float

    @classmethod
    def standard(cls, n_columns: int) -> DiagonalGaussians:
        """One standard normal component."""
        return cls(
            np.zeros((1, n_columns)),
            np.ones((1, n_columns)),
            np.full(n_columns, RIDGE_COUNT),
            RIDGE_COUNT,
        )

    def repeat(self, n_components: int, pseudo_count: float) -> DiagonalGaussians:
        """Copies of a single component, which becomes the prior of each."""
        scatter = self.variances[0] * pseudo_count * _shrinkage(n_components, self.means.shape[1])
        return DiagonalGaussians(
            np.repeat(self.means, n_components, axis=0),
            np.repeat(self.variances, n_components, axis=0),
            scatter + RIDGE_COUNT,
            pseudo_count + RIDGE_COUNT,
        )

    def in_units(self, location: FloatArray, scale: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Means and variances (K, c) in the units of the table."""
        return location + scale * self.means, self.variances * scale**2

    def n_parameters(self) -> int:
        """Count the free parameters of all components."""
        return 2 * self.means.size

    def expect(self, numbers: FloatArray, groups: list[PatternGroup]) -> DiagonalExpectation:
        """Log densities; missing cells drop out, since columns are independent."""
        observed = ~np.isnan(numbers)
        cells = np.where(observed, numbers, 0.0)
        log_density = np.zeros((len(self.means), len(numbers)))
        for k, (mean, variance) in enumerate(zip(self.means, self.variances, strict=True)):
            white = np.where(observed, (cells - mean) / np.sqrt(variance), 0.0)
            log_density[k] = np.einsum("nc,nc->n", white, white)
        log_density += (np.log(self.variances) + _LOG_2PI) @ observed.T
        return DiagonalExpectation(-0.5 * log_density, cells, observed)

    def maximize(self, sums: Sums) -> DiagonalGaussians:
        """Means, and variances drawn towards the prior."""
        counts, first, second = sums
        means = first / (counts + _LEAST_COUNT)
        scatter = np.maximum(second - counts * means**2, 0.0)
        variances = (scatter + self.prior_scatter) / (counts + self.prior_count)
        return replace(self, means=means, variances=variances)

    def log_prior(self) -> float:
        """Log prior up to a constant: what the rows of the prior add."""
        terms = self.prior_count * np.log(self.variances) + self.prior_scatter / self.variances
        return -0.5 * float(terms.sum())


@dataclass(frozen=True, eq=False)
class DiagonalExpectation:
    """Rows and their log densities.

    Parameters
    ----------
    log_density : ndarray of shape (K, n)
        Log densities of the observed cells.
    cells : ndarray of shape (n, c)
        Rows with 0 in place of missing cells.
    observed : ndarray of shape (n, c)
        Which cells are observed.
    """

    log_density: FloatArray
    cells: FloatArray
    observed: BoolArray

    def sums(self, responsibilities: FloatArray) -> Sums:
        """Counts, sums and sums of squares of the observed cells, (K, c) each."""
        return (
            responsibilities @ self.observed,
            responsibilities @ self.cells,
            responsibilities @ self.cells**2,
        )


@dataclass(frozen=True, eq=False)
class Categories:
    """Distributions of the categorical columns within each component.

    Parameters
    ----------
    log_probabilities : tuple of ndarray of shape (K, n_categories_j)
        One table per column.
    marginals : tuple of ndarray of shape (n_categories_j,)
        Frequencies in all rows, smoothed by one row spread evenly.
    pseudo_count : float
        Weight of the prior.
    """

    log_probabilities: tuple[FloatArray, ...]
    marginals: tuple[FloatArray, ...]
    pseudo_count: float

    @classmethod
    def marginal(cls, table: MixtureTable, pseudo_count: float) -> Categories:
        """One component with the frequencies of the columns."""
        marginals = []
        for codes, size in zip(table.codes.T, table.category_counts, strict=True):
            counts = np.bincount(codes + 1, table.weights, minlength=size + 1)[1:] + 1.0 / size
            marginals.append(counts / counts.sum())
        tables = tuple(np.log(marginal)[None] for marginal in marginals)
        return cls(tables, tuple(marginals), pseudo_count)

    def repeat(self, n_components: int) -> Categories:
        """Copies of the first component."""
        tables = tuple(
            np.repeat(table[:1], n_components, axis=0) for table in self.log_probabilities
        )
        return replace(self, log_probabilities=tables)

    def n_parameters(self) -> int:
        """Count the free parameters of all components."""
        return sum(table.shape[0] * (table.shape[1] - 1) for table in self.log_probabilities)

    def expect(self, codes: IntArray, n_components: int) -> CategoryExpectation:
        """Log probabilities of the observed categories."""
        log_density = np.zeros((n_components, len(codes)))
        for column, table in zip(codes.T, self.log_probabilities, strict=True):
            # code -1 picks the last column: a missing category is certain
            log_density += np.pad(table, ((0, 0), (0, 1)))[:, column]
        sizes = tuple(table.shape[1] for table in self.log_probabilities)
        return CategoryExpectation(log_density, codes, sizes)

    def maximize(self, sums: Sums) -> Categories:
        """Frequencies drawn towards those of the columns."""
        tables = []
        for counts, marginal in zip(sums, self.marginals, strict=True):
            smoothed = counts + self.pseudo_count * marginal
            tables.append(np.log(smoothed / smoothed.sum(axis=1, keepdims=True)))
        return replace(self, log_probabilities=tuple(tables))

    def log_prior(self) -> float:
        """Log prior up to a constant: what `pseudo_count` rows of each component add."""
        terms = zip(self.log_probabilities, self.marginals, strict=True)
        return self.pseudo_count * float(sum((table @ marginal).sum() for table, marginal in terms))


@dataclass(frozen=True, eq=False)
class CategoryExpectation:
    """Codes and their log probabilities.

    Parameters
    ----------
    log_density : ndarray of shape (K, n)
        Log probabilities of the observed categories.
    codes : ndarray of shape (n, q)
        Codes, -1 where missing.
    sizes : tuple of int
        Number of categories of each column.
    """

    log_density: FloatArray
    codes: IntArray
    sizes: tuple[int, ...]

    def sums(self, responsibilities: FloatArray) -> Sums:
        """Expected counts of the categories, (K, n_categories_j) for each column."""
        counts = []
        for column, size in zip(self.codes.T, self.sizes, strict=True):
            one_hot = column[:, None] == np.arange(size)
            counts.append(responsibilities @ one_hot)
        return tuple(counts)
