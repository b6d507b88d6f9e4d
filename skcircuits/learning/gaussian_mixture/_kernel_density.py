"""Kernel density estimates: one component per row, of which only the bandwidth is learned.

All components have the same covariance. A categorical cell is that of the component's row, or, with
a probability that is learned for each column, a draw from the frequencies of the column. The
likelihood leaves out the row itself, as bandwidths would shrink to zero otherwise (Duin, 1976, "On
the Choice of Smoothing Parameters for Parzen Estimators of Probability Density Functions";
Aitchison and Aitken, 1976, "Multivariate Binary Discrimination by the Kernel Method"). Missing
cells of a component's row are completed by a mixture of few components.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skcircuits.learning.gaussian_mixture._categories import Categories
from skcircuits.learning.gaussian_mixture._full_gaussians import FullGaussians, Sums
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._patterns import PatternGroup, distinct_patterns
from skcircuits.protocols import BoolArray, FloatArray, IntArray

#: Each row is compared with each: most rows of a kernel density.
MAX_KERNEL_ROWS = 5000
_FIRST_VARIANCE = 0.25  # in standard units
_FIRST_CHANCE = 0.3


@dataclass(frozen=True, eq=False)
class KernelGaussians(FullGaussians):
    """Gaussians with one covariance and fixed rows as means.

    Squared distances and sums over components are matrix products: with one covariance, the
    log density of a row with a pattern of missing cells is linear in the component's row and its
    squares.
    """

    @classmethod
    def around(cls, rows: FloatArray, jitter: FloatArray) -> KernelGaussians:
        """Independent columns around complete rows (K, c)."""
        size = rows.shape[1]
        covariance = _FIRST_VARIANCE * np.eye(size)
        stack = GaussianStack(rows, covariance[None], np.zeros(len(rows), np.intp))
        return cls(stack, "tied", covariance, 1.0, 0.0, jitter)

    def with_bandwidth_of(self, other: KernelGaussians) -> KernelGaussians:
        """The same rows, with the covariance that was learned around others."""
        covariances = other.stack.distinct_covariances
        stack = GaussianStack(self.stack.means, covariances, self.stack.shape)
        return replace(other, stack=stack, jitter=self.jitter)

    @property
    def n_gaussians(self) -> None:
        """Patterns of missing cells are not needed."""
        return None

    def n_parameters(self) -> int:
        """Count the free parameters: those of one covariance."""
        return self.stack.n_columns * (self.stack.n_columns + 1) // 2

    @property
    def squares(self) -> FloatArray:
        """Products of the numbers of each row, shape (K, c * c)."""
        means = self.stack.means
        return (means[:, :, None] * means[:, None]).reshape(len(means), -1)

    def expect(  # type: ignore[override]
        self, numbers: FloatArray, groups: list[PatternGroup]
    ) -> KernelExpectation:
        """Log densities; `groups` are not needed."""
        observed = ~np.isnan(numbers)
        patterns, pattern = distinct_patterns(~observed)
        covariance = self.stack.distinct_covariances[0]
        size = len(covariance)
        # unobserved cells as if they were independent of all with variance one
        both = ~patterns[:, :, None] & ~patterns[:, None]
        padded = np.where(both, covariance, np.eye(size))
        precisions = np.linalg.inv(padded) * both
        log_determinants = np.linalg.slogdet(padded)[1]
        cells, own = np.nan_to_num(numbers), precisions[pattern]
        pulled = np.einsum("nij,nj->ni", own, cells)
        distances = self.squares @ own.reshape(len(own), size**2).T - 2.0 * (
            self.stack.means @ pulled.T
        )
        distances += np.einsum("ni,ni->n", pulled, cells)
        constants = log_determinants[pattern] + observed.sum(axis=1) * np.log(2.0 * np.pi)
        # Expanded squares may round below zero
        log_density = -0.5 * (np.maximum(distances, 0.0) + constants)
        gains = patterns[:, :, None] * (covariance @ precisions) + both * np.eye(size)
        spreads = patterns[:, :, None] * (covariance - gains @ covariance) * patterns[:, None]
        return KernelExpectation(
            self, log_density, cells, observed, gains[pattern], spreads[pattern]
        )

    def _scatter(self, sums: Sums) -> tuple[FloatArray, FloatArray]:
        """The means, and the scatter around them."""
        return self.stack.means, sums[2]


@dataclass(frozen=True, eq=False)
class KernelExpectation:
    """Rows completed by each component, (x - m) = gain (x - m)_o."""

    gaussians: KernelGaussians
    log_density: FloatArray  # (K, n), of the observed cells
    cells: FloatArray  # (n, c), 0 where missing
    is_observed: BoolArray  # (n, c)
    gains: FloatArray  # (n, c, c), completed residuals per observed one
    spreads: FloatArray  # (n, c, c), conditional covariances

    def mean_rows(self, responsibilities: FloatArray) -> FloatArray:
        """Rows with their conditional means in place of missing cells, shape (n, c)."""
        means = responsibilities.T @ self.gaussians.stack.means
        return means + np.einsum("nij,nj->ni", self.gains, self.cells - means)

    def sums(self, responsibilities: FloatArray) -> Sums:
        """Expected counts (K,), nothing, and the scatter (c, c) around the components."""
        products = self._products(responsibilities)
        weights = responsibilities.sum(axis=0)
        scatter = (self.gains @ products @ self.gains.transpose(0, 2, 1)).sum(axis=0)
        scatter += np.einsum("n,nij->ij", weights, self.spreads)
        scatter += np.diag((weights @ self.is_observed) * self.gaussians.jitter)
        return responsibilities.sum(axis=1), np.zeros(0), scatter

    def _products(self, responsibilities: FloatArray) -> FloatArray:
        """Products (n, c, c) of residuals of observed cells, summed over components."""
        gaussians, cells = self.gaussians, self.cells
        # Expanded: residuals of all rows from all centres would be an array of n² c²
        firsts = responsibilities.T @ gaussians.stack.means
        n_rows, n_columns = cells.shape
        products = responsibilities.T @ gaussians.squares
        products = products.reshape(n_rows, n_columns, n_columns)
        cross = cells[:, :, None] * firsts[:, None]
        products -= cross + cross.transpose(0, 2, 1)
        weights = responsibilities.sum(axis=0)
        products += weights[:, None, None] * cells[:, :, None] * cells[:, None]
        return products


@dataclass(frozen=True, eq=False)
class KernelCategories(Categories):
    """Categories of rows, which a chance per column replaces by any."""

    tables: tuple[FloatArray, ...]  # (K, n_categories_j), probabilities of each row's own category
    chances: FloatArray  # (q,)
    row_weights: FloatArray  # (K,), probabilities of the components

    @classmethod
    def around(
        cls, tables: tuple[FloatArray, ...], table: MixtureTable, pseudo_count: float
    ) -> KernelCategories:
        """The same chance for all columns."""
        marginals = Categories.marginal(table, pseudo_count).marginals
        chances = np.full(len(tables), _FIRST_CHANCE)
        weights = table.weights / table.total_weight
        logs = _log_mixed(tables, marginals, chances)
        return cls(logs, marginals, pseudo_count, tables, chances, weights)

    def with_chances_of(self, other: KernelCategories) -> KernelCategories:
        """The same rows, with the chances that were learned around others."""
        logs = _log_mixed(self.tables, self.marginals, other.chances)
        return replace(self, log_probabilities=logs, chances=other.chances)

    def n_parameters(self) -> int:
        """Count the free parameters: one chance per column."""
        return len(self.chances)

    def maximize(self, sums: Sums) -> KernelCategories:
        """Probabilities that cells are drawn from the column, shrunk towards one half."""
        chances = np.empty(len(self.chances))
        columns = zip(sums, self.log_probabilities, self.marginals, self.chances, strict=True)
        for j, (counts, log_table, marginal, chance) in enumerate(columns):
            # Posterior probability that a cell came from the column's frequencies, summed over
            # cells
            any_category = (counts * np.exp(np.log(chance * marginal) - log_table)).sum()
            total = counts.sum() + 2.0 * self.pseudo_count
            chances[j] = (any_category + self.pseudo_count) / total
        logs = _log_mixed(self.tables, self.marginals, chances)
        return replace(self, log_probabilities=logs, chances=chances)

    def weights(self, counts: FloatArray, pseudo_count: float) -> FloatArray:
        """Probabilities of the components: the weights of their rows."""
        return self.row_weights

    def log_prior(self, weights: FloatArray, pseudo_count: float) -> float:
        """Log prior of the chances up to a constant."""
        return self.pseudo_count * float(np.log(self.chances * (1.0 - self.chances)).sum())


def _log_mixed(
    tables: tuple[FloatArray, ...], marginals: tuple[FloatArray, ...], chances: FloatArray
) -> tuple[FloatArray, ...]:
    columns = zip(tables, marginals, chances, strict=True)
    return tuple(np.log((1.0 - chance) * own + chance * all_) for own, all_, chance in columns)


def log_leave_out(table: MixtureTable, rows: slice, centres: IntArray) -> FloatArray:
    """Log of the remaining weight (K, n) of components without one copy of the row evaluated."""
    weights = table.weights[rows]
    left = safe_log(np.maximum(weights - 1.0, 0.0) / weights)
    return np.where(centres[:, None] == table.source[rows], left, 0.0)
