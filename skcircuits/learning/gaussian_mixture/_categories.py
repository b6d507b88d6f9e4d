"""Categorical columns of Gaussian mixtures: independent in a component, or linked to the numbers.

In the general location model there is a component for each combination of categories. The cells of
the contingency table of some categorical columns follow a log-linear model with the
two-way interactions that are supported by the rows. Within a cell the numbers are Gaussian, with a
common covariance and means that are sums of effects, one per category (Olkin and Tate,
1961, "Multivariate Correlation Models with Mixed Discrete and Continuous Variables"; Little and
Schluchter, 1985, "Maximum Likelihood Estimation for Mixed Continuous and Categorical Data with
Missing Values"). Few rows therefore suffice to learn how numbers depend on many categories. A
latent class is a further categorical column, which is never observed.

In kernel density estimates there is a component for each row, and only the bandwidth is learned.
All components have the same covariance. A categorical cell is that of the component's row, or, with
a probability that is learned for each column, a draw from the frequencies of the column. The
likelihood leaves out the row itself, as bandwidths would shrink to zero otherwise (Duin, 1976, "On
the Choice of Smoothing Parameters for Parzen Estimators of Probability Density Functions";
Aitchison and Aitken, 1976, "Multivariate Binary Discrimination by the Kernel Method"). Missing
cells of a component's row are completed by a mixture of few components.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar, Self

import numpy as np
from scipy.special import gammaln

from skcircuits.learning.gaussian_mixture._full_gaussians import (
    FullGaussians,
    Sums,
    products_like,
)
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.protocols import BoolArray, FloatArray, IntArray

_MAX_CELLS = 256
_MAX_WORK = 3_000_000  # cells x rows x numbers of one iteration
_N_SWEEPS = 6
_EFFECT_ROWS = (0.5, 1e4)  # least and most rows that the prior of an effect may weigh
_FIRST_EFFECT_ROWS = 5.0
_INTERCEPT_ROWS = 1e-3

#: Each row is compared with each: most rows of a kernel density.
MAX_KERNEL_ROWS = 5000
#: Most numbers of all rows of one that nobody asked for.
MAX_KERNEL_CELLS = 40_000
#: Iterations after which predictions of cells are as good as at the optimum: held-out losses of 31
#: tables were .9986 +- .003 times those after twenty that start from independent columns.
KERNEL_STEPS = 5
_FIRST_CHANCE = 0.3
# Length of the steps of a bandwidth, relative to those of expectation maximisation, and most that a
# variance changes before it is lengthened
_STEP, _MOST_CHANGE = 1.5, 1e3


@dataclass(frozen=True, eq=False)
class Categories:
    """Distributions of the categorical columns within each component."""

    log_probabilities: tuple[FloatArray, ...]  # (K, n_categories_j) each
    marginals: tuple[FloatArray, ...]  # (n_categories_j,) each: smoothed frequencies
    pseudo_count: float  # weight of the prior

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
            log_density += np.hstack([table, np.zeros((len(table), 1))])[:, column]
        sizes = tuple(table.shape[1] for table in self.log_probabilities)
        return CategoryExpectation(log_density, codes, sizes)

    def maximize(self, sums: Sums) -> Categories:
        """Frequencies shrunk towards those of the columns."""
        tables = []
        for counts, marginal in zip(sums, self.marginals, strict=True):
            smoothed = counts + self.pseudo_count * marginal
            tables.append(np.log(smoothed / smoothed.sum(axis=1, keepdims=True)))
        return replace(self, log_probabilities=tuple(tables))

    def weights(self, counts: FloatArray, pseudo_count: float) -> FloatArray:
        """Probabilities of the components (K,), whose prior keeps all of them positive."""
        smoothed = counts + pseudo_count
        return smoothed / smoothed.sum()

    def log_prior(self, weights: FloatArray, pseudo_count: float) -> float:
        """Log prior up to a constant, as that of `pseudo_count` pseudo-rows of each component."""
        terms = zip(self.log_probabilities, self.marginals, strict=True)
        tables = float(sum((table @ marginal).sum() for table, marginal in terms))
        return self.pseudo_count * tables + pseudo_count * float(np.log(weights).sum())


@dataclass(frozen=True, eq=False)
class CategoryExpectation:
    """Codes (n, q), -1 where missing, with `sizes` of columns, and their `log_density` (K, n)."""

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


def max_cells(n_rows: int, n_numbers: int) -> int:
    """Most combinations of categories for so many rows: time and memory grow with rows x cells."""
    return min(_MAX_CELLS, _MAX_WORK // max(1, n_rows * n_numbers))


@dataclass(frozen=True, eq=False)
class Cells:
    """Combinations of categories, and of a latent class, that are components."""

    columns: tuple[int, ...]  # that span the cells
    levels: IntArray  # (K, len(columns) + 1), categories, the latent class last
    sizes: tuple[int, ...]  # number of levels of each
    associated: BoolArray  # (q, q), which columns depend on one another
    prior_rows: float  # rows of independent columns that the prior weighs

    @classmethod
    def span(cls, table: MixtureTable, n_classes: int) -> Cells:
        """Cross the most informative columns, as many as the work allows."""
        gains = _pair_gains(table)
        associated = gains.max(axis=2) > 0.0
        together = gains[associated].sum(axis=0)
        prior_rows = PRIOR_ROWS[together.argmax()] if associated.any() else PRIOR_ROWS[0]
        information = _number_information(table) + np.maximum(gains.max(axis=2), 0.0).sum(axis=1)

        most = max_cells(*table.numbers.shape)
        chosen: list[int] = []
        n_cells = n_classes
        # Greedily: a column of many categories may leave no room for others
        for column in np.argsort(-information, kind="stable"):
            if n_cells * table.category_counts[column] <= most:
                chosen.append(int(column))
                n_cells *= int(table.category_counts[column])
        columns = tuple(sorted(chosen))
        sizes = (*(int(table.category_counts[j]) for j in columns), n_classes)
        levels = np.stack(np.unravel_index(np.arange(n_cells), sizes), axis=1)
        return cls(columns, levels, sizes, associated, float(prior_rows))

    @property
    def outside(self) -> list[int]:
        """Categorical columns that do not span the cells."""
        return [j for j in range(len(self.associated)) if j not in self.columns]

    def marginal_entries(self) -> list[IntArray]:
        """Entry of each cell in the one-way marginals, and in the relevant two-way ones."""
        latent = len(self.columns)
        result = list(self.levels.T)
        for a, b in combinations(range(latent + 1), 2):
            # A latent class is there to depend on all columns
            if b == latent or self.associated[self.columns[a], self.columns[b]]:
                result.append(self.levels[:, a] * self.sizes[b] + self.levels[:, b])
        return result

    def outside_marginal_entries(self, column: int, size: int) -> list[IntArray]:
        """The same of the table (K, size), row by row, of a column that does not span cells."""
        n_cells = len(self.levels)
        own = np.tile(np.arange(size), n_cells)
        result = [np.repeat(np.arange(n_cells), size), own]
        for a, levels in enumerate(self.levels.T):
            if a == len(self.columns) or self.associated[self.columns[a], column]:
                result.append(np.repeat(levels, size) * size + own)
        return result

    def design(self) -> tuple[FloatArray, IntArray]:
        """Indicator columns (K, p) of a constant and all levels, and the factor (p,) of each."""
        blocks = [np.ones((len(self.levels), 1))]
        factors = [-1]
        for j, size in enumerate(self.sizes):
            blocks.append(self.levels[:, j, None] == np.arange(size))
            factors += [j] * size
        return np.hstack(blocks).astype(np.float64), np.array(factors)


def _indicators(table: MixtureTable) -> list[FloatArray]:
    """Indicator columns (n, n_categories_j) of each categorical column."""
    return [
        (column[:, None] == np.arange(size)).astype(np.float64)
        for column, size in zip(table.codes.T, table.category_counts, strict=True)
    ]


def _pair_gains(table: MixtureTable) -> FloatArray:
    """Evidence (q, q, len(PRIOR_ROWS)) for dependent pairs of categories, from rows with both."""
    indicators = _indicators(table)
    gains = np.full((len(indicators), len(indicators), len(PRIOR_ROWS)), -np.inf)
    for (i, first), (j, second) in combinations(enumerate(indicators), 2):
        gains[i, j] = gains[j, i] = dependence_gains((first.T * table.weights) @ second)
    return gains


def _number_information(table: MixtureTable) -> FloatArray:
    """Information in nats (q,) of each categorical column about the numbers of all rows."""
    # From the fraction of the variance between categories, minus its expectation by chance
    seen = ~np.isnan(table.numbers)
    numbers = np.nan_to_num(table.numbers)
    result = []
    for own in _indicators(table):
        weighted = own.T * table.weights
        counts, sums = weighted @ seen, weighted @ numbers
        n_seen = np.maximum(counts.sum(axis=0), 1.0)
        between = (sums**2 / np.maximum(counts, 1e-300)).sum(axis=0) / n_seen
        # k categories explain (k - 1) / n of a variance by chance
        fraction = np.clip(between - (own.shape[1] - 1) / n_seen, 0.0, 0.99)
        result.append(-0.5 * float(n_seen @ np.log1p(-fraction)))
    return np.array(result)


@dataclass(frozen=True, eq=False)
class LocationCategories(Categories):
    """Categories given the cell: certain for the columns that span the cells."""

    # Those of another column follow a log-linear model with its two-way interactions with the
    # columns of the cells

    cells: Cells
    independent: FloatArray  # (K,), probabilities of independent columns, which are the prior

    @classmethod
    def start(cls, table: MixtureTable, cells: Cells, pseudo_count: float) -> LocationCategories:
        """Independent columns."""
        marginal = Categories.marginal(table, pseudo_count)
        n_cells = len(cells.levels)
        independent = np.full(n_cells, 1.0 / cells.sizes[-1])
        tables = [np.repeat(own, n_cells, axis=0) for own in marginal.log_probabilities]
        for i, j in enumerate(cells.columns):
            level = cells.levels[:, i, None]
            independent *= marginal.marginals[j][level[:, 0]]
            certain = level == np.arange(cells.sizes[i])
            tables[j] = np.where(certain, 0.0, -np.inf)
        return cls(tuple(tables), marginal.marginals, pseudo_count, cells, independent)

    def n_parameters(self) -> int:
        """Count the free parameters given the cell."""
        free = sum(size - 1 for size in self.cells.sizes)
        return sum((len(self.marginals[j]) - 1) * (1 + free) for j in self.cells.outside)

    def weights(self, counts: FloatArray, pseudo_count: float) -> FloatArray:
        """Probabilities of the cells, shrunk towards independence."""
        smoothed = counts + self.cells.prior_rows * self.independent
        table = fit_marginals(smoothed, self.cells.marginal_entries(), self.independent, _N_SWEEPS)
        return table / table.sum()

    def maximize(self, sums: Sums) -> Categories:
        """Fit the columns that do not span the cells."""
        tables = list(self.log_probabilities)
        for j in self.cells.outside:
            independent = np.outer(self.independent, self.marginals[j])
            smoothed = sums[j] + self.cells.prior_rows * independent
            entries = self.cells.outside_marginal_entries(j, independent.shape[1])
            table = fit_marginals(smoothed.ravel(), entries, independent.ravel(), _N_SWEEPS)
            # Logarithms of zero would make expected counts NaN
            table = np.maximum(table.reshape(independent.shape), 1e-300)
            tables[j] = np.log(table / table.sum(axis=1, keepdims=True))
        return replace(self, log_probabilities=tuple(tables))

    def log_prior(self, weights: FloatArray, pseudo_count: float) -> float:
        """Log prior up to a constant, as the contribution of pseudo-rows."""
        total = float(self.independent @ np.log(weights))
        for j in self.cells.outside:
            total += float(self.independent @ self.log_probabilities[j] @ self.marginals[j])
        return self.cells.prior_rows * total


@dataclass(frozen=True, eq=False)
class LocationGaussians(FullGaussians):
    """Gaussians with one covariance, and means that are sums of effects of the levels."""

    design: FloatArray  # (K, p), which effects a cell has
    factors: IntArray  # (p,), column of each effect, -1 for the constant
    effect_rows: FloatArray  # (p,), that the prior of each effect, at zero, weighs
    effects: FloatArray  # (p, c)

    @classmethod
    def start(cls, table: MixtureTable, cells: Cells, class_rows: float) -> LocationGaussians:
        """Standard normal in all cells."""
        size = table.numbers.shape[1]
        design, factors = cells.design()
        # The constant is hardly shrunk: it is the mean of all rows
        rows = np.where(factors < 0, _INTERCEPT_ROWS, _FIRST_EFFECT_ROWS)
        # Effects of classes have no column to learn their prior from
        rows[factors == len(cells.columns)] = class_rows
        means = np.zeros((len(design), size))
        stack = GaussianStack(means, np.eye(size)[None], np.zeros(len(design), np.intp))
        effects = np.zeros((len(factors), size))
        prior = (np.eye(size), 1.0, 0.0, table.jitter)
        return cls(stack, "tied", *prior, design, factors, rows, effects)

    def n_parameters(self) -> int:
        """Count the free parameters: effects that are not redundant, and one covariance."""
        size = self.stack.n_columns
        # Effects of all levels of a column add up to a constant, which is one already
        n_effects = 1 + sum(np.sum(self.factors == j) - 1 for j in set(self.factors) - {-1})
        return int(n_effects) * size + size * (size + 1) // 2

    def adapt(self, sums: Sums, completeness: float) -> Self:
        """Learn the priors of the effects of each observed column, and of the covariance."""
        # One iteration of expectation maximisation for the variance of a column's effects, relative
        # to the covariance of the numbers (automatic relevance determination)
        counts, rows, _ = sums
        inverse = np.linalg.inv(self._normal_matrix(counts * completeness))
        effects = inverse @ ((self.design.T * counts) @ rows * completeness)
        size = self.stack.n_columns
        squares = np.einsum("pi,ij,pj->p", effects, self.stack.precisions[0], effects)
        rows = np.array(self.effect_rows)
        for j in set(self.factors) - {-1, self.factors[-1]}:
            own = self.factors == j
            # E |effect|² = mean² + variance, in units of the covariance of the numbers
            energy = squares[own].sum() + size * np.diag(inverse)[own].sum()
            rows[own] = np.clip(size * own.sum() / max(energy, 1e-300), *_EFFECT_ROWS)
        adapted = replace(self, effect_rows=rows)
        return super(LocationGaussians, adapted).adapt(sums, completeness)

    def maximize(self, sums: Sums) -> LocationGaussians:
        """Effects by ridge regression on the levels, and the covariance around them."""
        updated = super().maximize(sums)
        return replace(self, stack=updated.stack, effects=self._new_effects(sums))

    def log_prior(self) -> float:
        """Log prior up to a constant, as the contribution of pseudo-rows."""
        precision = self.stack.precisions[0]
        pulls = np.einsum("pi,ij,pj,p->", self.effects, precision, self.effects, self.effect_rows)
        return super().log_prior() - 0.5 * float(pulls)

    def _normal_matrix(self, counts: FloatArray) -> FloatArray:
        """Weighted squares of the design plus the prior, shape (p, p)."""
        return self.design.T @ (counts[:, None] * self.design) + np.diag(self.effect_rows)

    def _new_effects(self, sums: Sums) -> FloatArray:
        counts, rows, _ = sums
        # Ridge regression: each effect has as many rows at zero as its prior weighs
        effects = np.linalg.solve(self._normal_matrix(counts), (self.design.T * counts) @ rows)
        return np.asarray(effects, dtype=np.float64)

    def _scatter(self, sums: Sums) -> tuple[FloatArray, FloatArray]:
        """Means of the cells, and the scatter around them and of the effects around zero."""
        counts, rows, scatter = sums
        effects = self._new_effects(sums)
        means = self.design @ effects
        scatter = scatter + products_like(scatter, counts, rows - means)
        return means, scatter + (effects.T * self.effect_rows) @ effects


#: Rows of independent columns that a table of counts may be smoothed by.
PRIOR_ROWS = np.geomspace(1.0, 1000.0, 13)


def dependence_gains(counts: FloatArray) -> FloatArray:
    """Log Bayes factors for the dependence of two columns, one for each of `PRIOR_ROWS`."""
    # Counts (r, c) have a Dirichlet prior at independence that weighs so many rows, against
    # independence for sure. Both have the marginals of the counts, smoothed by one row spread
    # evenly (Good, 1965, "The Estimation of Probabilities").
    total = counts.sum()
    marginals = [
        (counts.sum(axis=axis) + 1.0 / counts.shape[1 - axis]) / (total + 1.0) for axis in (1, 0)
    ]
    independent = np.outer(*marginals)
    # The ratio of the marginal likelihoods of both, where the multinomial coefficients cancel
    prior = PRIOR_ROWS[:, None, None] * independent
    evidence = (gammaln(counts + prior) - gammaln(prior)).sum(axis=(1, 2))
    evidence += gammaln(PRIOR_ROWS) - gammaln(PRIOR_ROWS + total)
    return evidence - (counts * np.log(independent)).sum()


def fit_marginals(
    counts: FloatArray, marginals: Sequence[IntArray], start: FloatArray, n_sweeps: int
) -> FloatArray:
    """Fit a table (n_cells,) to the marginals of some counts by iterative proportional fitting.

    Each of `marginals` (n_cells,) is the entry of a marginal to which a cell contributes. The table
    keeps the interactions of `start` that no marginal contains, so that a product of one-way tables
    ends as the maximum likelihood estimate of the log-linear model with these marginals; no step
    lowers the likelihood (Bishop, Fienberg and Holland, 1975, "Discrete Multivariate Analysis").
    """
    table = start * (counts.sum() / start.sum())
    wanted = [np.bincount(marginal, counts) for marginal in marginals]
    for _ in range(n_sweeps):
        for marginal, target in zip(marginals, wanted, strict=True):
            reached = np.bincount(marginal, table)
            # Deming and Stephan (1940); cells that the start excludes stay zero
            table = table * (target / np.maximum(reached, 1e-300))[marginal]
    return table


@dataclass(frozen=True, eq=False)
class KernelGaussians(FullGaussians):
    """Gaussians with one covariance and fixed rows as means."""

    # Each row completed by each other one would take too much memory
    max_square: ClassVar[float] = np.inf
    are_fixed: ClassVar[bool] = True

    @classmethod
    def around(
        cls, rows: FloatArray, weights: FloatArray, covariance: FloatArray, jitter: FloatArray
    ) -> KernelGaussians:
        """Around complete rows (K, c), by a rule of thumb from their covariance."""
        # Scott, 1992, "Multivariate Density Estimation"
        n_rows = weights.sum() ** 2 / np.square(weights).sum()
        covariance = n_rows ** (-2.0 / (rows.shape[1] + 4.0)) * covariance
        stack = GaussianStack(rows, covariance[None], np.zeros(len(rows), np.intp))
        return cls(stack, "tied", covariance, 1.0, 0.0, jitter)

    def with_bandwidth_of(self, other: KernelGaussians) -> KernelGaussians:
        """The same rows, with the covariance that was learned around others."""
        covariances = other.stack.distinct_covariances
        stack = GaussianStack(self.stack.means, covariances, self.stack.shape)
        return replace(other, stack=stack, jitter=self.jitter)

    def n_parameters(self) -> int:
        """Count the free parameters: those of one covariance."""
        return self.stack.n_parameters - self.stack.means.size

    def maximize(self, sums: Sums) -> FullGaussians:
        """Lengthen the step to the covariance that maximises the expected posterior."""
        # Bandwidths narrow slowly. Steps of less than twice the length end at the same optimum
        # (Peters and Walker, 1978, "An Iterative Procedure for Obtaining Maximum-Likelihood
        # Estimates of the Parameters for a Mixture of Normal Distributions"). Those of the
        # logarithm of a covariance, relative to the one before, keep it positive definite.
        updated = super().maximize(sums)
        if not self.stack.n_columns:
            return updated
        lower, covariance = self.stack.distinct.cholesky[0], updated.stack.distinct_covariances[0]
        white = np.linalg.solve(lower, np.linalg.solve(lower, covariance).T)
        ratios, axes = np.linalg.eigh(0.5 * (white + white.T))
        ratios = np.clip(ratios, 1.0 / _MOST_CHANGE, _MOST_CHANGE)
        root = lower @ axes * ratios ** (0.5 * _STEP)
        stack = GaussianStack(updated.stack.means, (root @ root.T)[None], self.stack.shape)
        return replace(updated, stack=stack)

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
    """Log of the remaining weight (K, n) of components without the row and copies of it."""
    weights = table.weights[rows]
    copies = weights if table.is_measured else 1.0
    left = safe_log(np.maximum(weights - copies, 0.0) / weights)
    return np.where(centres[:, None] == table.source[rows], left, 0.0)
