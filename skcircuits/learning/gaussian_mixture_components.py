"""Components of a Gaussian mixture: expectations, their sums over rows, and maximisers.

Each class holds the parameters of all components for one kind of column. ``expect(rows)``
gives an expectation with ``log_density`` (n_components, n) and ``sums(responsibilities)``,
a tuple of arrays that adds up over blocks of rows; ``maximize(sums)`` gives the components
that maximise the expected posterior, and ``log_prior()`` the prior's part of it.

The prior weighs as much as `pseudo_count` rows per component: for numbers, rows with
uncorrelated columns of unit variance (in standard units); for categories, rows with the
frequencies of the column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skcircuits.learning.gaussian_mixture_table import MixtureTable
from skcircuits.numerics.gaussian_conditionals import ConditionalBlock, conditional_blocks
from skcircuits.numerics.gaussian_stack import GaussianStack
from skcircuits.numerics.patterns import PatternGroup
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["Categories", "DiagonalGaussians", "FullGaussians", "Sums"]

Sums = tuple[FloatArray, ...]

_LOG_2PI = float(np.log(2.0 * np.pi))
_LEAST_COUNT = 10.0 * np.finfo(np.float64).eps


@dataclass(frozen=True, eq=False)
class FullGaussians:
    """Gaussian components with full covariances.

    Parameters
    ----------
    stack : GaussianStack
        Means and covariances in standard units.
    pseudo_count : float
        Weight of the prior.
    """

    stack: GaussianStack
    pseudo_count: float

    @classmethod
    def standard(cls, n_columns: int, pseudo_count: float) -> FullGaussians:
        """One standard normal component."""
        return cls(GaussianStack(np.zeros((1, n_columns)), np.eye(n_columns)[None]), pseudo_count)

    def repeat(self, n_components: int) -> FullGaussians:
        """Copies of the first component."""
        means = np.repeat(self.stack.means[:1], n_components, axis=0)
        covariances = np.repeat(self.stack.covariances[:1], n_components, axis=0)
        return replace(self, stack=GaussianStack(means, covariances))

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
        prior = self.pseudo_count * np.eye(means.shape[1])
        covariances = (scatter + prior) / (counts + self.pseudo_count)[:, None, None]
        covariances = 0.5 * (covariances + covariances.transpose(0, 2, 1))
        return replace(self, stack=GaussianStack(means, covariances))

    def log_prior(self) -> float:
        """Log prior up to a constant: what `pseudo_count` rows of each component add."""
        traces = np.trace(self.stack.precisions, axis1=1, axis2=2)
        return -0.5 * self.pseudo_count * float((self.stack.log_determinants + traces).sum())


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


@dataclass(frozen=True, eq=False)
class DiagonalGaussians:
    """Gaussian components with independent columns.

    Parameters
    ----------
    means, variances : ndarray of shape (K, c)
        In standard units.
    pseudo_count : float
        Weight of the prior.
    """

    means: FloatArray
    variances: FloatArray
    pseudo_count: float

    @classmethod
    def standard(cls, n_columns: int, pseudo_count: float) -> DiagonalGaussians:
        """One standard normal component."""
        return cls(np.zeros((1, n_columns)), np.ones((1, n_columns)), pseudo_count)

    def repeat(self, n_components: int) -> DiagonalGaussians:
        """Copies of the first component."""
        means, variances = (
            np.repeat(values[:1], n_components, axis=0) for values in (self.means, self.variances)
        )
        return replace(self, means=means, variances=variances)

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
        variances = (scatter + self.pseudo_count) / (counts + self.pseudo_count)
        return replace(self, means=means, variances=variances)

    def log_prior(self) -> float:
        """Log prior up to a constant: what `pseudo_count` rows of each component add."""
        terms = np.log(self.variances) + 1.0 / self.variances
        return -0.5 * self.pseudo_count * float(terms.sum())


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
