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
from typing import ClassVar

import numpy as np

from skcircuits.learning.gaussian_mixture._categories import Categories
from skcircuits.learning.gaussian_mixture._full_gaussians import (
    FullGaussians,
    Sums,
    products_like,
)
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.protocols import FloatArray, IntArray

#: Each row is compared with each: most rows of a kernel density.
MAX_KERNEL_ROWS = 5000
_FIRST_VARIANCE = 0.25  # in standard units
_FIRST_CHANCE = 0.3


@dataclass(frozen=True, eq=False)
class KernelGaussians(FullGaussians):
    """Gaussians with one covariance and fixed rows as means."""

    # Each row completed by each other one would take too much memory
    max_square: ClassVar[float] = np.inf

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

    def n_parameters(self) -> int:
        """Count the free parameters: those of one covariance."""
        return self.stack.n_columns * (self.stack.n_columns + 1) // 2

    def _scatter(self, sums: Sums) -> tuple[FloatArray, FloatArray]:
        """The means, and the scatter around them."""
        counts, rows, scatter = sums
        means = self.stack.means
        return means, scatter + products_like(scatter, counts, rows - means)


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
