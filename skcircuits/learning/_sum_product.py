"""LearnSPN: learn a circuit from tables with categories, numbers, missing cells.

Recursively, a region (rows and variables) is cut into independent groups of variables, a product,
or else into two groups of similar rows, a sum (Gens and Domingos, 2013). The recursion ends with
input units over disjoint variables, the factors of the distribution of a region.

Tests of independence leave missing cells out pair by pair and compare all pairs of columns at once,
by one matrix product of indicator (or feature) columns.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import chdtrc, ndtri, xlogy

from skcircuits.circuits import (
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    PiecewisePolynomial,
    Product,
    Sum,
)
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning._columns import (
    ColumnCells,
    MixedColumn,
    describe_column,
    rank_fractions,
    smoothed_masses,
    standardized,
)
from skcircuits.learning._polynomials import (
    Density,
    PolynomialSettings,
    Samples,
    fit_densities,
    tail_fraction,
)
from skcircuits.learning.gaussian_mixture._learner import EMSettings, learn_gaussian_mixture
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._arrays import logsumexp
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Levels of numbers in the G-test, which needs this many rows per pair of levels.
N_LEVELS = 3
ROWS_PER_PAIR = 5
# A group of rows must weigh this much, or this fraction of a small region.
MIN_GROUP_WEIGHT = 5.0
MIN_GROUP_FRACTION = 0.05
# By default, rows of less weight, or of a smaller fraction of all rows, are not cut.
MIN_WEIGHT = 10.0
MIN_FRACTION = 0.0025
# Part of a region's pseudo-rows that is like the whole table.
WHOLE_FRACTION = 0.25
# Random sine features per column, besides the rank itself, and their frequency.
N_FEATURES = 6
FREQUENCY = 3.0

LeafFamily = Literal["polynomial", "histogram", "gaussian", "multivariate"]
# Per variable of a region: fractions that its pseudo-rows have
Priors = Mapping[int, FloatArray]


@dataclass(frozen=True)
class SplitSettings:
    """When and how regions are cut."""

    alpha: float = 0.05  # of any dependence of independent variables, over all pairs (Bonferroni)
    min_weight: float = MIN_WEIGHT  # of rows that are cut further
    independence: Literal["g_test", "rdc"] = "g_test"  # by levels and ranks, or random features
    joint: bool = False  # leaves have joint normals; rows are cut only if the criterion gains

    @classmethod
    def for_table(cls, table: MixedTable, alpha: float = 0.05, **more: Any) -> SplitSettings:
        """Settings whose `min_weight` suits a table, unless given among `more` fields."""
        least = max(MIN_WEIGHT, MIN_FRACTION * float(table.weights.sum()))
        return cls(alpha, **{"min_weight": least, **more})


@dataclass(eq=False)
class Region:
    """A node of the structure."""

    rows: IntArray  # (m,)
    variables: tuple[int, ...]
    kind: Literal["factorised", "product", "sum"] = "factorised"  # open regions are factorised
    parts: list[Region] = field(default_factory=list)


def learn_structure(
    table: MixedTable, settings: SplitSettings, rng: np.random.Generator
) -> Iterator[Region]:
    """Learn a structure, cutting one region per step."""
    root = Region(np.flatnonzero(table.weights > 0), tuple(range(table.X.shape[1])))
    seed = int(rng.integers(2**32))
    # Products cut into groups that depend: only their rows remain to be cut
    open_regions = deque([(root, False)])
    while open_regions:
        region, is_connected = open_regions.popleft()
        _cut(table, region, is_connected, settings, seed)
        open_regions.extend((part, region.kind == "product") for part in region.parts)
        yield root


def learn_circuit(
    table: MixedTable,
    splits: SplitSettings,
    leaves: LeafSettings,
    rng: np.random.Generator,
    structure: Region | None = None,
) -> tuple[Region, Circuit]:
    """Learn a structure, then its leaves; a `structure` that was learned from this table stays."""
    if structure is None:
        *_, structure = learn_structure(table, splits, rng)
    return structure, structure_to_circuit(table, structure, leaves)


def structure_to_circuit(table: MixedTable, root: Region, settings: LeafSettings) -> Circuit:
    """Fit the input units of a structure and put it together."""
    regions = _regions(root)
    ends = [region for region in regions if region.kind == "factorised"]
    priors = _priors(table, regions, settings.smoothing)
    places = [(region.rows, region.variables, priors[id(region)]) for region in ends]
    fitted = fit_leaves(table, places, settings)
    built: dict[int, Unit] = {
        id(region): units[0] if len(units) == 1 else Product(units)
        for region, units in zip(ends, fitted)
    }
    for region in reversed(regions):
        if region.kind == "product":
            factors = [built[id(part)] for part in region.parts]
            built[id(region)] = Product(
                [unit for f in factors for unit in (f.children if isinstance(f, Product) else (f,))]
            )
        elif region.kind == "sum":
            sizes = np.array([table.weights[part.rows].sum() for part in region.parts])
            parts = [built[id(part)] for part in region.parts]
            built[id(region)] = _mixture(parts, sizes / sizes.sum())
    return Circuit(built[id(root)])


def _priors(table: MixedTable, regions: list[Region], smoothing: float) -> dict[int, Priors]:
    """Distribution of the pseudo-rows of each region: mostly that of the region it was cut from."""
    # Values that no row of a region has are more probable if they occur in regions nearby. A
    # fraction has the distribution of the whole column, which would otherwise vanish along deep
    # paths.
    root = regions[0]
    priors: dict[int, Priors] = {id(root): {v: table.columns[v].fractions for v in root.variables}}
    for region in regions:
        prior = priors[id(region)]
        if region.kind == "product":
            for part in region.parts:
                priors[id(part)] = {v: prior[v] for v in part.variables}
        elif region.kind == "sum":
            blend = {
                v: (1.0 - WHOLE_FRACTION) * table.fractions(region.rows, v, smoothing * prior[v])
                + WHOLE_FRACTION * table.columns[v].fractions
                for v in region.variables
            }
            for part in region.parts:
                priors[id(part)] = blend
    return priors


def held_out_scores(
    table: MixedTable,
    candidates: Sequence[tuple[SplitSettings, LeafSettings]],
    n_folds: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Mean log density (n_candidates,) of rows left out in turn, one fold at a time."""
    # All candidates see the same folds, and the columns' point masses are those of the whole table,
    # so that their densities refer to one measure
    fold = rng.permutation(len(table.X)) % n_folds
    totals = np.zeros(len(candidates))
    for number in range(n_folds):
        held_out = (fold == number) & (table.weights > 0)
        training = replace(table, weights=np.where(held_out, 0.0, table.weights))
        if not held_out.any() or not (training.weights > 0).any():
            continue
        for i, (splits, leaves) in enumerate(candidates):
            # The same random numbers for all candidates
            _, circuit = learn_circuit(training, splits, leaves, np.random.default_rng(number))
            totals[i] += table.weights[held_out] @ circuit.log_prob(table.X[held_out])
    return totals / table.weights.sum()


def _mixture(parts: list[Unit], fractions: FloatArray) -> Sum:
    """A sum whose children are no sums."""
    children: list[Unit] = []
    weights: list[FloatArray] = []
    for part, fraction in zip(parts, fractions):
        if isinstance(part, Sum):
            children.extend(part.children)
            weights.append(fraction * part.weights)
        else:
            children.append(part)
            weights.append(np.array([fraction]))
    return Sum(children, weights=np.concatenate(weights))


def _regions(root: Region) -> list[Region]:
    """All regions, parts after the whole."""
    regions = [root]
    for region in regions:
        regions.extend(region.parts)
    return regions


def _cut(
    table: MixedTable, region: Region, is_connected: bool, settings: SplitSettings, seed: int
) -> None:
    """Cut a region in place, or leave it factorised."""
    weights = table.weights[region.rows]
    if len(region.variables) == 1 or weights.sum() < settings.min_weight:
        return
    view = _View(table, region)
    # Parts of a product are connected by construction: only groups of rows are tested again
    if not is_connected:
        groups = _independent_groups(view, settings, seed)
        if len(groups) > 1:
            _divide(region, "product", [Region(region.rows, group) for group in groups])
            return
    second = split_rows(view.normal_scores(), view.label_indicators(), weights)
    sizes = weights[~second].sum(), weights[second].sum()
    if min(sizes) < min(MIN_GROUP_WEIGHT, MIN_GROUP_FRACTION * sum(sizes)):
        return
    if settings.joint and _criterion_gain(view, second) <= 0:
        return
    parts = [Region(region.rows[group], region.variables) for group in (~second, second)]
    _divide(region, "sum", parts)


def _divide(region: Region, kind: Literal["product", "sum"], parts: list[Region]) -> None:
    """Assign the parts of a region, which has none until its kind is set."""
    # In this order, so that Ctrl-C in between leaves a complete structure
    region.parts = parts
    region.kind = kind


class _View:
    """The columns of a region as tests and clusters want them."""

    def __init__(self, table: MixedTable, region: Region) -> None:
        self.cells = table.X[region.rows[:, None], list(region.variables)]
        self.weights = table.weights[region.rows]
        self.columns = [table.columns[variable] for variable in region.variables]
        self.variables = region.variables
        self.is_categorical = np.array([column.cardinality > 0 for column in self.columns])
        self.is_smooth = np.array([column.is_smooth for column in self.columns])
        self.fractions = self.cells.copy()
        for j in np.flatnonzero(~self.is_categorical):
            self.fractions[:, j] = rank_fractions(self.cells[:, j], self.weights)

    def levels(self) -> FloatArray:
        """Codes of categories, levels of numbers, shape (n, d)."""
        levels = self.cells.copy()
        for j in np.flatnonzero(~self.is_categorical):
            levels[:, j] = rank_levels(self.fractions[:, j])
        return levels

    def normal_scores(self) -> FloatArray:
        """Numbers as standardised normal quantiles of their ranks, shape (n, a)."""
        scores = ndtri(self.fractions[:, ~self.is_categorical])
        return np.where(np.isnan(scores), np.nan, standardized(scores, self.weights))

    def label_indicators(self) -> list[FloatArray]:
        """Indicators of the categories of each categorical column, shape (n, k)."""
        return [
            (self.cells[:, [j]] == np.arange(self.columns[j].cardinality)).astype(float)
            for j in np.flatnonzero(self.is_categorical)
        ]


def _independent_groups(view: _View, settings: SplitSettings, seed: int) -> list[tuple[int, ...]]:
    """Connected components of the graph of dependent pairs, as variables."""
    if settings.independence == "g_test":
        p_values = _test_of_levels(view)
    else:
        rng = np.random.default_rng(seed)
        p_values = random_features_test(view.fractions, view.is_categorical, view.weights, rng)
    if settings.joint:
        # Joint Gaussian units keep numbers together, however dependent
        p_values[np.ix_(view.is_smooth, view.is_smooth)] = 0.0
    n_variables = len(view.variables)
    # Bonferroni: one false edge joins two groups for good
    n_pairs = n_variables * (n_variables - 1) / 2
    n_groups, group_of = connected_components(p_values < settings.alpha / n_pairs, directed=False)
    variables = np.array(view.variables)
    return [tuple(variables[group_of == group].tolist()) for group in range(n_groups)]


def _test_of_levels(view: _View) -> FloatArray:
    """G-test of all pairs; pairs of numbers with few rows are tested by rank correlation."""
    # Three by three levels of thirty rows hide all but the strongest dependence, ranks do not
    p_values = g_test(view.levels(), view.weights)
    seen = ~np.isnan(view.cells) & ~view.is_categorical
    n_rows = seen.T @ (seen * view.weights[:, None])
    is_small = (n_rows > 0) & (n_rows < ROWS_PER_PAIR * N_LEVELS**2)
    if is_small.any():
        by_rank = rank_correlation_test(np.where(seen, view.fractions, np.nan), view.weights)
        p_values = np.where(is_small, by_rank, p_values)
    return p_values


def _criterion_gain(view: _View, second: BoolArray) -> float:
    """Gain of the information criterion when two groups get a model each, in nats."""
    # The model: a joint normal distribution of the columns without point masses, and independent
    # levels of all others
    numbers = standardized(view.cells[:, view.is_smooth], view.weights)  # 0 where missing
    levels = view.levels()[:, ~view.is_smooth]
    indicators = [
        (column[:, None] == np.unique(column[~np.isnan(column)])).astype(float)
        for column in levels.T
    ]
    k = numbers.shape[1]
    n_parameters = k * (k + 3) / 2 + sum(max(0, block.shape[1] - 1) for block in indicators) + 1

    def log_likelihood(weights: FloatArray) -> float:
        total = weights.sum()
        mean = weights @ numbers / total
        covariance = (numbers - mean).T @ ((numbers - mean) * weights[:, None]) / total
        # Half a percent of a standard deviation: collapsing to a point does not pay off
        value = -0.5 * total * np.linalg.slogdet(covariance + 5e-3 * np.eye(k))[1]
        for block in indicators:
            counts = weights @ block
            value += float(xlogy(counts, counts / max(counts.sum(), 1e-300)).sum())
        return float(value)

    groups = [view.weights * ~second, view.weights * second]
    total = view.weights.sum()
    parts = sum(log_likelihood(g) + float(xlogy(g.sum(), g.sum() / total)) for g in groups)
    return parts - log_likelihood(view.weights) - 0.5 * n_parameters * float(np.log(total))


# Least variance of a standardised column within a group; pseudo-rows of unit variance.
MIN_VARIANCE = 0.05
PRIOR_ROWS = 0.3
MAX_STEPS = 60
# Gain per row of the mean log likelihood that is worth another step.
TOLERANCE = 1e-5


def split_rows(numbers: FloatArray, categories: list[FloatArray], weights: FloatArray) -> BoolArray:
    """Cluster rows by a mixture of two factorised distributions, fitted by EM.

    Within a group numbers are normal and categories categorical, all independent; missing cells do
    not take part. Both families are exponential: with the statistics [z², z, 1, indicators] of a
    row, an E step and an M step are one matrix product each. The start is the sign of the first
    principal component, so that nothing is random.

    `numbers` (n, a), `categories` (n, k_j), `weights` (n,) -> (n,).
    """
    seen = ~np.isnan(numbers)
    filled = np.where(seen, numbers, 0.0)
    statistics = np.hstack([filled**2, filled, seen, *categories])
    groups = _first_guess(filled, categories, weights)
    previous = -np.inf
    for _ in range(MAX_STEPS):
        parameters, log_fractions = _maximize(statistics, groups * weights[:, None], categories)
        log_terms = statistics @ parameters + log_fractions
        log_likelihood = logsumexp(log_terms, axis=1)
        groups = np.exp(log_terms - log_likelihood[:, None])
        mean = float(weights @ log_likelihood / weights.sum())
        if mean - previous < TOLERANCE:
            break
        previous = mean
    return groups[:, 1] > groups[:, 0]


def _first_guess(
    filled: FloatArray, categories: list[FloatArray], weights: FloatArray
) -> FloatArray:
    """Lean to one group or the other by the first principal component, shape (n, 2)."""
    features = np.hstack([filled, *categories])
    features = features - np.average(features, axis=0, weights=weights)
    spread = np.sqrt(np.average(features**2, axis=0, weights=weights))
    # The square root leaves rare categories less variance than common ones
    features /= np.sqrt(np.where(spread > 0, spread, 1.0))
    _, vectors = np.linalg.eigh(features.T @ (features * weights[:, None]))
    axis = vectors[:, -1] * np.sign(vectors[np.abs(vectors[:, -1]).argmax(), -1])
    component = features @ axis
    second = rank_fractions(component, weights) > 0.5
    return np.where(second[:, None], [0.1, 0.9], [0.9, 0.1])


def _maximize(
    statistics: FloatArray, weighted_groups: FloatArray, categories: list[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Natural parameters of both groups, shape (n_statistics, 2), and log fractions (2,)."""
    sums = statistics.T @ weighted_groups
    n_numbers = (len(sums) - sum(column.shape[1] for column in categories)) // 3
    squares, totals, counts = sums[: 3 * n_numbers].reshape(3, n_numbers, 2)
    mean = totals / (counts + PRIOR_ROWS)
    scatter = squares - 2 * mean * totals + counts * mean**2
    variance = np.maximum((scatter + PRIOR_ROWS) / (counts + PRIOR_ROWS), MIN_VARIANCE)
    normal = [-0.5 / variance, mean / variance, -0.5 * (mean**2 / variance + np.log(variance))]
    categorical = []
    first = 3 * n_numbers
    for column in categories:
        smoothed = sums[first : first + column.shape[1]] + 1.0 / column.shape[1]
        categorical.append(np.log(smoothed / smoothed.sum(axis=0)))
        first += column.shape[1]
    size = weighted_groups.sum(axis=0) + 1.0
    return np.vstack([*normal, *categorical]), np.log(size / size.sum())


def rank_levels(fractions: FloatArray) -> FloatArray:
    """Cut ranks (n,) into levels of about equal weight; few distinct values are levels each."""
    levels = np.full(len(fractions), np.nan)
    seen = ~np.isnan(fractions)
    distinct, place = np.unique(fractions[seen], return_inverse=True)
    few = len(distinct) <= 2 * N_LEVELS
    levels[seen] = place if few else np.floor(fractions[seen] * N_LEVELS)
    return levels


def g_test(levels: FloatArray, weights: FloatArray) -> FloatArray:
    """Likelihood-ratio test of independence (d, d) for every pair of columns of levels (n, d)."""
    # G = 2 Σ O log(O / E) over the cells of the pair's contingency table, from rows where both
    # columns are observed; chi-squared with (r - 1)(c - 1) degrees of freedom, r and c the numbers
    # of levels observed in these rows
    indicators, starts = _indicators(levels)
    column_of = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, indicators.shape[1])))
    observed = indicators.T @ (indicators * weights[:, None])
    # marginals[l, j]: weight of level l among the rows that have column j
    marginals = np.add.reduceat(observed, starts, axis=1)
    totals = np.add.reduceat(marginals, starts, axis=0)
    rows = marginals[:, column_of]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = observed * totals[np.ix_(column_of, column_of)] / (rows * rows.T)
        terms = np.where(observed > 0, observed * np.log(ratio), 0.0)
    statistic = 2 * np.add.reduceat(np.add.reduceat(terms, starts, axis=0), starts, axis=1)
    n_levels = np.add.reduceat((marginals > 0).astype(float), starts, axis=0)
    freedom = np.maximum(n_levels - 1, 0) * np.maximum(n_levels.T - 1, 0)
    return _p_values(statistic, freedom)


def rank_correlation_test(fractions: FloatArray, weights: FloatArray) -> FloatArray:
    """Test of monotone dependence (d, d) for every pair of numerical columns (n, d)."""
    # With Spearman's rank correlation r of n rows where both columns are observed, -(n - 5/2) log(1
    # - r²) is about chi-squared with one degree of freedom (Bartlett, 1938)
    seen = (~np.isnan(fractions)).astype(float)
    centred = np.where(seen > 0, fractions - 0.5, 0.0)
    products = centred.T @ (centred * weights[:, None])
    squares = (centred**2).T @ (seen * weights[:, None])
    n_rows = seen.T @ (seen * weights[:, None])
    scale = squares * squares.T
    is_defined = scale > 0
    r_squared = products**2 / np.where(is_defined, scale, 1.0)
    factor = np.maximum(n_rows - 2.5, 0.0)
    statistic = -factor * np.log1p(-np.minimum(r_squared, 1 - 1e-12))
    return _p_values(statistic, is_defined.astype(float))


def random_features_test(
    fractions: FloatArray, is_categorical: BoolArray, weights: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Rank-based test for any dependence: canonical correlations of random features.

    Features as in the randomised dependence coefficient (Lopez-Paz, Hennig and Schölkopf, 2013):
    ranks and sines of random affine functions of them. With canonical correlations ρ_i between two
    columns' features of ranks a and b, -(n - (a + b + 3) / 2) Σ log(1 - ρ_i²) is about chi-squared
    with a b degrees of freedom (Bartlett, 1938). Missing cells take their column's mean; n counts
    the rows where both columns are observed.

    `fractions` (n, d), `is_categorical` (d,), `weights` (n,) -> (d, d).
    """
    slopes = FREQUENCY * rng.standard_normal(N_FEATURES)
    phases = rng.uniform(0.0, 2 * np.pi, N_FEATURES)
    whitened = [
        _whitened(
            _indicators(column[:, None])[0] if category else _sines(column, slopes, phases),
            ~np.isnan(column),
            weights,
        )
        for column, category in zip(fractions.T, is_categorical)
    ]
    ranks = np.array([features.shape[1] for features in whitened])
    width = max(1, int(ranks.max()))
    padded = np.zeros((len(weights), len(ranks), width))
    for j, features in enumerate(whitened):
        padded[:, j, : ranks[j]] = features
    flat = padded.reshape(len(weights), -1)
    blocks = (flat.T @ flat).reshape(len(ranks), width, len(ranks), width).swapaxes(1, 2)
    correlations = np.minimum(np.linalg.svd(blocks, compute_uv=False), 1 - 1e-12)
    seen = (~np.isnan(fractions)).astype(float)
    n_rows = seen.T @ (seen * weights[:, None])
    factor = np.maximum(n_rows - (ranks[:, None] + ranks + 3) / 2, 0.0)
    statistic = -factor * np.log1p(-(correlations**2)).sum(axis=2)
    return _p_values(statistic, np.outer(ranks, ranks).astype(float))


def _p_values(statistic: FloatArray, freedom: FloatArray) -> FloatArray:
    """Upper tail of chi-squared; 1 where there is no freedom, and on the diagonal."""
    p_values = chdtrc(np.maximum(freedom, 1.0), np.maximum(statistic, 0.0))
    p_values[freedom == 0] = 1.0
    np.fill_diagonal(p_values, 1.0)
    return p_values


def _indicators(levels: FloatArray) -> tuple[FloatArray, IntArray]:
    """Indicator columns of all levels, and the first one of each column."""
    blocks = []
    for column in levels.T:
        seen = np.unique(column[~np.isnan(column)])
        # A column without any level keeps one that never occurs
        blocks.append(column[:, None] == (seen if len(seen) else np.zeros(1)))
    sizes = np.array([block.shape[1] for block in blocks])
    return np.hstack(blocks).astype(float), np.cumsum(sizes) - sizes


def _sines(column: FloatArray, slopes: FloatArray, phases: FloatArray) -> FloatArray:
    """Features of a column of ranks, shape (n, 1 + N_FEATURES)."""
    return np.column_stack([column, np.sin(column[:, None] * slopes + phases)])


def _whitened(features: FloatArray, seen: BoolArray, weights: FloatArray) -> FloatArray:
    """Orthonormal combinations of centred, weighted features; constant ones vanish."""
    if not seen.any():
        return np.zeros((len(features), 0))
    fraction = weights * seen
    filled = np.where(seen[:, None], features, 0.0)
    centred = (filled - np.average(filled, axis=0, weights=fraction)) * seen[:, None]
    left, values, _ = np.linalg.svd(centred * np.sqrt(weights)[:, None], full_matrices=False)
    return left[:, values > 1e-6 * max(values[0], 1e-300)]


@dataclass(frozen=True)
class MixedTable:
    """Rows (n, d) of numbers and codes, NaN where missing, weights (n,), facts about `columns`."""

    X: FloatArray
    weights: FloatArray
    columns: tuple[MixedColumn, ...]

    @classmethod
    def describe(
        cls,
        X: FloatArray,
        weights: FloatArray,
        cardinalities: Iterable[int],
        point_masses: bool | Literal["frequent"] = True,
    ) -> MixedTable:
        """Find out the facts about the columns; `cardinalities` (d,) are 0 for numbers."""
        columns = tuple(
            describe_column(j, X[:, j], weights, int(cardinality), point_masses)
            for j, cardinality in enumerate(cardinalities)
        )
        return cls(X, weights, columns)

    def cells(self, rows: IntArray, variable: int) -> tuple[FloatArray, FloatArray]:
        """Observed cells (k,) of a column in some rows (m,), and their weights."""
        cells = self.X[rows, variable]
        seen = ~np.isnan(cells)
        return cells[seen], self.weights[rows][seen]

    def fractions(self, rows: IntArray, variable: int, pseudo_counts: FloatArray) -> FloatArray:
        """Fractions (k,) of a column's categories, or of its atoms and the rest, in rows (m,)."""
        column = self.columns[variable]
        cells, weights = self.cells(rows, variable)
        if column.cardinality:
            place = cells.astype(np.intp)
        else:
            place = np.searchsorted(column.atoms, cells)
            # Values that are not atoms have the last index
            place[~np.isin(cells, column.atoms)] = len(column.atoms)
        counts = np.bincount(place, weights, minlength=len(pseudo_counts)) + pseudo_counts
        return counts / counts.sum()


@dataclass(frozen=True)
class LeafSettings:
    """How to fit the input units."""

    family: LeafFamily = "polynomial"  # of numbers, polynomials where there are point masses
    polynomials: PolynomialSettings = field(default_factory=PolynomialSettings)
    smoothing: float = 1.0  # pseudo-rows of each unit

    def without_degrees(self) -> LeafSettings:
        """Give settings that take a small part of the time."""
        return replace(self, polynomials=replace(self.polynomials, max_degree=0))


def fit_leaves(
    table: MixedTable,
    regions: Sequence[tuple[IntArray, tuple[int, ...], Priors]],
    settings: LeafSettings,
) -> list[list[InputUnit]]:
    """Fit the units of factorised regions, those of one family all together."""
    units: list[list[InputUnit]] = [[] for _ in regions]
    polynomials: list[tuple[int, IntArray, MixedColumn, FloatArray]] = []
    grids: dict[int, list[tuple[int, IntArray, FloatArray]]] = defaultdict(list)
    categorical: dict[int, list[tuple[int, IntArray, FloatArray]]] = defaultdict(list)
    for number, (rows, variables, priors) in enumerate(regions):
        smooth = []
        for variable in variables:
            column = table.columns[variable]
            if column.cardinality:
                categorical[variable].append((number, rows, priors[variable]))
            elif column.is_grid:
                grids[variable].append((number, rows, priors[variable]))
            elif column.is_smooth and settings.family in ("gaussian", "multivariate"):
                smooth.append(column)
            else:
                polynomials.append((number, rows, column, priors[variable]))
        units[number] += _fit_gaussians(table, rows, smooth, settings)
    samples = [(rows, column, prior) for _, rows, column, prior in polynomials]
    for (number, *_), unit in zip(polynomials, _fit_polynomials(table, samples, settings)):
        units[number].append(unit)
    for variable, entries in [*categorical.items(), *grids.items()]:
        fit: Callable[..., Sequence[InputUnit]]
        fit = _fit_grid if variable in grids else _fit_categories
        places = [(rows, prior) for _, rows, prior in entries]
        fitted = fit(table, table.columns[variable], places, settings.smoothing)
        for (number, *_), leaf in zip(entries, fitted):
            units[number].append(leaf)
    return units


def _fit_gaussians(
    table: MixedTable, rows: IntArray, columns: list[MixedColumn], settings: LeafSettings
) -> list[InputUnit]:
    """One joint normal distribution, or one per column."""
    if not columns:
        return []
    if settings.family == "multivariate" and len(columns) > 1:
        return [_fit_joint(table, rows, columns, settings.smoothing)]
    units: list[InputUnit] = []
    for column in columns:
        cells, weights = table.cells(rows, column.variable)
        total = weights.sum() + settings.smoothing
        # Pseudo-rows have the moments of the whole column: few rows keep its width
        middle = (column.lower + column.upper) / 2
        mean = (weights @ cells + settings.smoothing * middle) / total if total else middle
        scatter = weights @ (cells - mean) ** 2 + settings.smoothing * column.scale**2
        variance = scatter / total if total else column.scale**2
        # Numbers are rounded to the resolution: no unit is narrower than rounding
        units.append(Gaussian(column.variable, mean, max(np.sqrt(variance), column.resolution / 4)))
    return units


def _fit_joint(
    table: MixedTable, rows: IntArray, columns: list[MixedColumn], smoothing: float
) -> MultivariateGaussian:
    """Joint normal distribution of rows with missing cells, by EM."""
    variables = [column.variable for column in columns]
    scale = np.array([column.scale for column in columns])
    prepared = MixtureTable.prepare(
        table.X[rows[:, None], variables],
        np.zeros(len(columns), dtype=np.int64),
        table.weights[rows],
    )
    # Without any prior, covariances of few rows are singular
    em = EMSettings(pseudo_count=max(smoothing, 1e-3), n_init=1)
    *_, state = learn_gaussian_mixture(prepared, 1, em, np.random.default_rng(0))
    means, covariances, *_ = state.gaussians.in_units(prepared.location, prepared.scale)
    # A column that is constant in the region keeps a little of its overall spread
    floor = np.diag((1e-3 * scale) ** 2)
    return MultivariateGaussian(variables, means[0], covariances[0] + floor)


def _fit_grid(
    table: MixedTable,
    column: MixedColumn,
    samples: list[tuple[IntArray, FloatArray]],
    smoothing: float,
) -> list[PiecewisePolynomial]:
    """Masses of the points of a grid: counts of a region spread to neighbouring points."""
    grid = ColumnCells.fit(column, *table.cells(np.flatnonzero(table.weights > 0), column.variable))
    counts = _counts(table, column.variable, samples, grid.encode, grid.n_cells)
    # One operator for all regions: each alone has too few rows to choose it
    smoother, _ = grid.choose_smoother(counts, smoothing)
    masses = counts @ smoother
    masses[:, :-2] += smoothing * np.array([prior for _, prior in samples])
    return [grid.unit(row) for row in grid.normalized(masses)]


def _fit_categories(
    table: MixedTable,
    column: MixedColumn,
    samples: list[tuple[IntArray, FloatArray]],
    smoothing: float,
) -> list[Categorical]:
    """Probabilities of a column's categories in some regions."""
    priors = np.array([prior for _, prior in samples])
    counts = _counts(table, column.variable, samples, np.asarray, priors.shape[1])
    masses = smoothed_masses(counts, priors, smoothing)
    return [Categorical(column.variable, row) for row in masses]


def _counts(
    table: MixedTable,
    variable: int,
    samples: list[tuple[IntArray, FloatArray]],
    encode: Callable[[FloatArray], FloatArray],
    n_codes: int,
) -> FloatArray:
    """Weights (n_samples, n_codes) of the codes of a column in some regions."""
    found = (table.cells(rows, variable) for rows, _ in samples)
    return np.stack(
        [np.bincount(encode(x).astype(np.intp), w, minlength=n_codes) for x, w in found]
    )


def _fit_polynomials(
    table: MixedTable,
    samples: list[tuple[IntArray, MixedColumn, FloatArray]],
    settings: LeafSettings,
) -> list[PiecewisePolynomial]:
    """Piecewise polynomials with tails and point masses."""
    found = [_off_atoms(*table.cells(rows, c.variable), c.atoms) for rows, c, _ in samples]
    present = [i for i, (cells, _) in enumerate(found) if len(cells)]
    densities: dict[int, Density] = {}
    if present:
        # All at once: fits of many small samples are one batch
        summary = Samples.summarize(
            [found[i][0] for i in present],
            [found[i][1] for i in present],
            [samples[i][1].resolution for i in present],
        )
        densities = dict(zip(present, fit_densities(summary, settings.polynomials)))
    units = []
    for i, (rows, column, prior) in enumerate(samples):
        fractions = table.fractions(rows, column.variable, settings.smoothing * prior)
        half = column.resolution / 2
        # A region without numbers off the atoms: uniform over the column's range
        whole = np.array([column.lower - half, column.upper + half])
        knots, weights, beyond = densities.get(i, Density(whole, np.ones(1), np.zeros(2)))
        tails, scale = _tails(column, *found[i], beyond)
        rest = fractions[-1]
        units.append(
            PiecewisePolynomial(
                column.variable,
                knots,
                weights / weights.sum() * (rest * (1.0 - tails.sum())),
                column.atoms,
                fractions[:-1],
                rest * tails,
                [scale] * 2,
            )
        )
    return units


def _off_atoms(
    cells: FloatArray, weights: FloatArray, atoms: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Leave out cells at atoms."""
    kept = ~np.isin(cells, atoms) & (weights > 0)
    return cells[kept], weights[kept]


def _tails(
    column: MixedColumn, cells: FloatArray, weights: FloatArray, beyond: FloatArray
) -> tuple[FloatArray, float]:
    """Masses and scale of the tails of a region."""
    # The mass of the density itself beyond the numbers is removed; the square of the fraction, the
    # probability that two in a row fall outside, remains. The width of the tails is the spread of
    # the numbers of the region.
    total = weights.sum()
    spread = 0.0
    if total > 0:
        mean = weights @ cells / total
        spread = np.sqrt(weights @ (cells - mean) ** 2 / total)
    scale = max(spread, column.resolution, 1e-3 * column.scale)
    fraction = tail_fraction(total)
    return np.where(beyond > 0, np.maximum(fraction - beyond, fraction**2), fraction), float(scale)
