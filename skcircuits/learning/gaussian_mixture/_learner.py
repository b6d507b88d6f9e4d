"""Gaussian mixtures learned from rows with missing cells by expectation maximisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from skcircuits.learning.gaussian_mixture._categories import (
    Categories,
    CategoryExpectation,
    Cells,
    KernelCategories,
    KernelGaussians,
    LocationCategories,
    LocationGaussians,
    log_leave_out,
)
from skcircuits.learning.gaussian_mixture._factor_gaussians import (
    FactorExpectation,
    FactorGaussians,
)
from skcircuits.learning.gaussian_mixture._full_gaussians import (
    CovarianceType,
    FullExpectation,
    FullGaussians,
    Sums,
    TiedExpectation,
    weighted_sums,
)
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._arrays import posterior
from skcircuits.numerics._patterns import PatternGroup, group_patterns, k_means, nearest_centres
from skcircuits.protocols import FloatArray, IntArray

_SINGLE_TOL = 0.1  # of the tolerance: all starts of a single component end as one
_JOINED_BLOCKS = 32  # of rows, whose sums are kept apart: of all they might not fit in memory
_START_STEPS = 10  # iterations each start gets before the best one goes on
_BOUND_DIGITS = 9  # of nats per row, by which starts are compared
# Iterations in which the strength of the prior is learned: not in the first ones, after which
# starts are compared, and in which a location model completes columns as if independent. One
# Gaussian, which starts near its end, has none of these.
_ADAPT_STEPS = range(10, 25)
_MANY_ROWS = 10  # of each component, for each row of its prior, which then hardly matters
_MAX_CLUSTERED = 5000  # k-means sees no more rows; the others join the nearest centre
_CLUSTER_STEPS = 10
_CERTAINTY = 0.9  # responsibility of the cluster that a row starts in
# Components that complete the rows of a kernel density, iterations of them, and least rows of each
_COMPLETING, _COMPLETING_STEPS, _COMPLETING_ROWS = 8, 20, 5
_MORE_STEPS = 3  # of such components that completed some of the rows
_BANDWIDTH_ROWS = 400  # that suffice for the bandwidth of a kernel density around all rows


@dataclass(frozen=True)
class EMSettings:
    """How a mixture is learned."""

    covariance_type: CovarianceType = "full"
    by_cells: bool = False  # components are combinations of categories, with some latent classes
    by_rows: bool = False  # components are the rows
    n_factors: int = 1  # of "factor"
    pseudo_count: float = 1.0  # rows of the prior of each component
    n_init: int = 3  # starts of each mixture; the best after ten iterations go on
    n_spare: int = 0  # further ones of all mixtures together
    max_iter: int = 200
    tol: float = 1e-4  # least gain of the lower bound, in nats per row
    is_draw: bool = False  # one draw of several: no shrinkage by as much as they vary


@dataclass(frozen=True, eq=False)
class MixtureState:
    """State of a mixture during the fit, in standard units."""

    weights: FloatArray
    gaussians: FullGaussians | FactorGaussians
    categories: Categories
    log_likelihood: float = -np.inf  # before the last iteration, in original units
    lower_bound: float = -np.inf  # log posterior per row; never falls under a fixed prior
    n_iter: int = 0  # since its start
    step: int = 0  # in the schedule of the prior
    at_optimum: bool = False  # the last iteration gained less than the tolerance
    sums: tuple[Sums, ...] = ()  # statistics that the last iteration maximised
    total_weight: float = 0.0  # of their rows
    centres: IntArray | None = None  # (K,), rows that are components, each left out of its density
    completing: MixtureState | None = None  # of few components, which completed these rows

    @property
    def n_components(self) -> int:
        return len(self.weights)

    @property
    def has_fixed_prior(self) -> bool:
        """Whether `lower_bound` is under the prior of all later iterations."""
        return self.step > _ADAPT_STEPS.stop

    @property
    def n_parameters(self) -> int:
        components = self.gaussians.n_parameters() + self.categories.n_parameters()
        return self.n_components - 1 + components

    def bic(self, total_weight: float) -> float:
        """Bayesian information criterion for rows of this total weight; lower is better."""
        penalty = self.n_parameters * float(np.log(max(total_weight, 1.0)))
        return penalty - 2.0 * self.log_likelihood


def learn_gaussian_mixture(
    table: MixtureTable,
    n_components: int,
    settings: EMSettings,
    rng: np.random.Generator,
    start: MixtureState | None = None,
) -> Iterator[MixtureState]:
    """Learn a mixture with a given number of components, yielding each iteration of EM."""
    # Of the posterior (Ghahramani and Jordan, 1994, "Supervised learning from incomplete data via
    # an EM approach"), from `start` or from clusters of rows. The last state is at an optimum
    # unless `max_iter` came first.
    state = start or start_mixtures(table, n_components, settings, rng)[0]
    if start and settings.covariance_type == "full" and start.step == _ADAPT_STEPS.start:
        state = _with_own_target(table, start, settings)
    evaluated = _rows_for_bandwidth(table) if settings.by_rows else table
    while not state.at_optimum and state.n_iter < settings.max_iter:
        state = _step(evaluated, state, settings)
        if evaluated is not table:
            state = _as_of_more(state, table.total_weight / evaluated.total_weight)
        yield state
    if start is None and n_components == 1:
        table.singles[_settings_of_single(settings)] = state


def start_mixtures(
    table: MixtureTable,
    n_components: int,
    settings: EMSettings,
    rng: np.random.Generator,
    n_mixtures: int = 1,
) -> list[MixtureState]:
    """Run a few iterations from each start and keep the best, so many of them."""
    # The prior is the same for all of these iterations: their posteriors can be compared
    n_starts = settings.n_init * n_mixtures + settings.n_spare
    if settings.by_rows:
        return [_begin_by_rows(table, settings, rng)] * n_mixtures
    begin = _begin_by_cells if settings.by_cells else _begin_as_single
    single = begin(table, n_components, settings)
    if len(single.weights) == 1 or (settings.by_cells and n_components == 1):
        return [single] * n_mixtures
    starts = [_spread(table, n_components, single, settings, rng) for _ in range(n_starts)]
    if n_starts > n_mixtures:
        for _ in range(min(_START_STEPS, settings.max_iter - 1)):
            # In step, so that their posteriors are of equally many iterations
            starts = [_step(table, state, settings) for state in starts]
    # Starts that differ in the order of components alone keep theirs: rounding would choose
    return sorted(starts, key=lambda state: -round(state.lower_bound, _BOUND_DIGITS))[:n_mixtures]


def begin_again(state: MixtureState) -> MixtureState:
    """The same mixture as a start of new iterations."""
    return replace(state, n_iter=0, step=0, at_optimum=False, lower_bound=-np.inf)


def go_on(state: MixtureState) -> MixtureState:
    """The same mixture as a start on other rows, whose priors adapt at once."""
    return replace(begin_again(state), step=_ADAPT_STEPS.start)


def _with_own_target(
    table: MixtureTable, state: MixtureState, settings: EMSettings
) -> MixtureState:
    """A mixture that goes on from other rows, with covariances drawn towards that of these rows."""
    # The prior of a few of the rows would outweigh the others
    gaussians = cast(FullGaussians, state.gaussians)
    if table.total_weight > _MANY_ROWS * state.n_components * gaussians.strength:
        return state
    own = cast(FullGaussians, _begin_as_single(table, state.n_components, settings).gaussians)
    return replace(state, gaussians=replace(gaussians, target=own.target))


def _begin_as_single(table: MixtureTable, n_components: int, settings: EMSettings) -> MixtureState:
    """Components that all complete the rows as the single one does."""
    if n_components == 1:
        return _single(table, settings)
    kind, known = settings.covariance_type, _settings_of_single(settings)
    # The prior of all components would have the mean and the variance of cells far off
    near = table.without_far_cells
    # Several components would not find how columns nearly determine one another if one has not
    single = near.singles.get(known) or _single(near, settings)
    while not single.at_optimum and single.n_iter < settings.max_iter:
        single = _step(near, single, settings)
    near.singles[known] = single
    return replace(
        begin_again(single),
        weights=np.full(n_components, 1.0 / n_components),
        gaussians=single.gaussians.repeat(n_components, kind, settings.pseudo_count),
        categories=single.categories.repeat(n_components),
    )


def _begin_by_cells(table: MixtureTable, n_classes: int, settings: EMSettings) -> MixtureState:
    """Independent columns, the same in all latent classes."""
    cells = Cells.span(table, n_classes)
    categories = LocationCategories.start(table, cells, 0.5 * settings.pseudo_count)
    gaussians = LocationGaussians.start(table, cells, settings.pseudo_count)
    return MixtureState(categories.independent, gaussians, categories)


def around_other_rows(
    fit: MixtureState, table: MixtureTable, settings: EMSettings, rng: np.random.Generator
) -> MixtureState:
    """A kernel density around rows of a table, with the bandwidth of one around others."""
    start = _begin_by_rows(table, settings, rng, fit.completing)
    gaussians = cast(KernelGaussians, start.gaussians)
    categories = cast(KernelCategories, start.categories)
    return replace(
        start,
        gaussians=gaussians.with_bandwidth_of(cast(KernelGaussians, fit.gaussians)),
        categories=categories.with_chances_of(cast(KernelCategories, fit.categories)),
    )


def _begin_by_rows(
    table: MixtureTable,
    settings: EMSettings,
    rng: np.random.Generator,
    known: MixtureState | None = None,
) -> MixtureState:
    """A component per row, whose missing cells a mixture of few components completes."""
    # It goes on from one that is `known` from other rows
    max_iter = _MORE_STEPS if known else _COMPLETING_STEPS
    few = replace(settings, by_rows=False, n_init=1, n_spare=0, max_iter=max_iter)
    n_components = max(1, min(_COMPLETING, len(table.weights) // _COMPLETING_ROWS))
    # A kernel needs a whole row to stand on
    *_, state = learn_gaussian_mixture(table, n_components, few, rng, known and go_on(known))
    groups = group_patterns(np.isnan(table.numbers))
    numbers, _, joint = expect(state, table.numbers, table.codes, groups)
    chances, _ = posterior(joint)
    tables = []
    for codes, logs in zip(table.codes.T, state.categories.log_probabilities, strict=True):
        own = (codes[:, None] == np.arange(logs.shape[1])).astype(np.float64)
        tables.append(np.where(codes[:, None] < 0, chances.T @ np.exp(logs), own))
    categories = KernelCategories.around(tuple(tables), table, 0.5 * settings.pseudo_count)
    stack = cast(FullGaussians, state.gaussians).stack
    away = stack.means - state.weights @ stack.means
    covariance = np.tensordot(state.weights, stack.covariances, axes=1)
    covariance += (away.T * state.weights) @ away
    rows, weights = numbers.mean_rows(chances), categories.row_weights
    return MixtureState(
        weights,
        KernelGaussians.around(rows, weights, covariance, table.jitter),
        categories,
        step=_ADAPT_STEPS.start,
        centres=table.source,
        completing=state,
    )


def _rows_for_bandwidth(table: MixtureTable) -> MixtureTable:
    """Rows whose densities around all others the bandwidth maximises."""
    n_rows = len(table.weights)
    if n_rows <= _BANDWIDTH_ROWS:
        return table
    return table.take(np.arange(_BANDWIDTH_ROWS) * n_rows // _BANDWIDTH_ROWS)


def _as_of_more(state: MixtureState, times: float) -> MixtureState:
    """A state whose rows stand for so many times as many: further rows count beside all of them."""
    return replace(
        state,
        log_likelihood=times * state.log_likelihood,
        sums=_joined(state, (state.sums,), [times]),
        total_weight=times * state.total_weight,
    )


def _spread(
    table: MixtureTable,
    n_clusters: int,
    state: MixtureState,
    settings: EMSettings,
    rng: np.random.Generator,
) -> MixtureState:
    """Let components, or the latent classes of each combination of categories, be clusters."""
    own = np.arange(n_clusters)
    chance = np.ones((len(state.weights), 1))
    categories = state.categories
    # Latent classes are clusters within each combination of categories, which a row's codes
    # already tell
    if isinstance(categories, LocationCategories):
        own = categories.cells.levels[:, -1]
        chance = np.exp(categories.expect(table.codes, len(own)).log_density)
        chance *= categories.independent[:, None]
    labels = cluster_rows(table, n_clusters, rng)
    soft = chance * ((1.0 - _CERTAINTY) / n_clusters + _CERTAINTY * (labels == own[:, None]))
    soft /= soft.sum(axis=0)
    state = replace(state, gaussians=state.gaussians.apart(table.numbers, soft * table.weights))
    return begin_again(_step(table, state, settings, soft))


def _settings_of_single(settings: EMSettings) -> EMSettings:
    """The settings on which the fit of a single component depends."""
    if settings.covariance_type in ("full", "tied", "shrunk"):
        settings = replace(settings, covariance_type="tied", n_factors=1)
    return replace(settings, n_init=1, n_spare=0)


def _single(table: MixtureTable, settings: EMSettings) -> MixtureState:
    """A single component from marginals of categories and covariances of pairs of cells."""
    categories = Categories.marginal(table, 0.5 * settings.pseudo_count)
    gaussians: FullGaussians | FactorGaussians
    if settings.covariance_type in ("factor", "diag"):
        n_factors = settings.n_factors if settings.covariance_type == "factor" else 0
        gaussians = FactorGaussians.single(table.covariance(), n_factors, table.jitter)
    else:
        is_observed = np.asarray(~np.isnan(table.numbers).all(axis=0))
        gaussians = FullGaussians.guess(table.covariance(), table.jitter)
        gaussians = replace(gaussians, is_observed=is_observed, widest=table.widest)
    return MixtureState(np.ones(1), gaussians, categories, step=_ADAPT_STEPS.start)


def learn_more(table: MixtureTable, state: MixtureState, pseudo_count: float) -> MixtureState:
    """Learn from further rows, in one iteration over them."""
    # On-line expectation maximisation (Cappé and Moulines, 2009, "On-line expectation-maximization
    # algorithm for latent data models"): expected statistics are averaged over all rows seen. The
    # weight of a row grows with the number of rows before it, since those were seen with worse
    # parameters.
    state = replace(state, centres=None)  # further rows are other ones
    log_likelihood, sums = _expect(table, state)
    known, added = state.total_weight, table.total_weight
    total = known + added
    # The earlier mean counts (known / total)², the limit of many small portions that each count in
    # proportion to the rows before them; sums are these means times the total
    averages = _joined(state, (state.sums, sums), (known / total, 1.0 + known / total))
    prior = state.gaussians.log_prior() + state.categories.log_prior(state.weights, pseudo_count)
    bound = log_likelihood / added + prior / known
    more = replace(state, n_iter=state.n_iter + 1, lower_bound=bound, total_weight=total)
    return _maximize(more, averages, pseudo_count)


def _step(
    table: MixtureTable,
    state: MixtureState,
    settings: EMSettings,
    responsibilities: FloatArray | None = None,
) -> MixtureState:
    """One iteration; `responsibilities` (K, n) replace those of the state."""
    is_adapting = state.step in _ADAPT_STEPS
    log_likelihood, sums = _expect(table, state, responsibilities)
    bound = log_likelihood + state.gaussians.log_prior()
    bound += state.categories.log_prior(state.weights, settings.pseudo_count)
    bound /= table.total_weight or 1.0  # no row has an observed cell
    gaussians = state.gaussians
    if is_adapting:
        gaussians = gaussians.adapt(sums[1], table.completeness)
        if settings.is_draw:
            gaussians = gaussians.relax(sums[1], table.rows_together)
    # The bound may fall while the prior adapts; it stays infinite where no row explains another
    gain = 0.0 if bound == state.lower_bound else abs(bound - state.lower_bound)
    is_unique = state.n_components == 1 and settings.covariance_type not in ("factor", "diag")
    tol = settings.tol * (_SINGLE_TOL if is_unique else 1.0)
    stepped = replace(
        state,
        gaussians=gaussians,
        log_likelihood=log_likelihood - table.log_scale,
        lower_bound=bound,
        n_iter=state.n_iter + 1,
        step=state.step + 1,
        at_optimum=state.step > _ADAPT_STEPS.start and gain <= tol,
        total_weight=table.total_weight,
    )
    return _maximize(stepped, sums, settings.pseudo_count)


def _expect(
    table: MixtureTable, state: MixtureState, responsibilities: FloatArray | None = None
) -> tuple[float, tuple[Sums, Sums, Sums]]:
    """Log-likelihood, and sums over the rows: counts, numbers and categories."""
    log_likelihood = 0.0
    totals: list[tuple[Sums, ...]] = []
    for rows in table.blocks:
        n_gaussians = state.gaussians.n_gaussians
        groups = table.groups(rows, n_gaussians) if n_gaussians else []
        numbers, codes, log_joint = expect(state, table.numbers[rows], table.codes[rows], groups)
        if state.centres is not None:
            log_joint = log_joint + log_leave_out(table, rows, state.centres)
        own, log_density = posterior(log_joint)
        # The first step of a clustering: its labels are the responsibilities
        if responsibilities is not None:
            own = responsibilities[:, rows]
        own = own * table.weights[rows]
        log_likelihood += float(table.weights[rows] @ log_density)
        totals.append(((own.sum(axis=1),), numbers.sums(own), codes.sums(own)))
        if len(totals) == _JOINED_BLOCKS:
            totals = [_joined(state, totals, [1.0] * len(totals))]
    return log_likelihood, _joined(state, totals, [1.0] * len(totals))


def _joined(
    state: MixtureState, parts: Sequence[tuple[Sums, ...]], factors: Sequence[float]
) -> tuple[Sums, Sums, Sums]:
    """Sums over blocks of rows, in which rows weigh so many times as much."""
    counts, of_numbers, of_codes = zip(*parts, strict=True)
    return (
        weighted_sums(counts, factors),
        state.gaussians.join(of_numbers, factors),
        weighted_sums(of_codes, factors),
    )


def _maximize(state: MixtureState, sums: tuple[Sums, ...], pseudo_count: float) -> MixtureState:
    """Parameters that maximise the expected posterior."""
    (counts,), of_numbers, of_codes = sums
    return replace(
        state,
        weights=state.categories.weights(counts, pseudo_count),
        gaussians=state.gaussians.maximize(of_numbers),
        categories=state.categories.maximize(of_codes),
        sums=sums,
    )


def expect(
    state: MixtureState, numbers: FloatArray, codes: IntArray, groups: list[PatternGroup]
) -> tuple[FullExpectation | TiedExpectation | FactorExpectation, CategoryExpectation, FloatArray]:
    """Expectations of numbers and codes, and log joint of component and observed cells (K, n)."""
    completed = state.gaussians.expect(numbers, groups)
    categories = state.categories.expect(codes, state.n_components)
    log_joint = completed.log_density + categories.log_density
    log_joint += np.log(state.weights)[:, None]
    return completed, categories, log_joint


def cluster_rows(table: MixtureTable, n_clusters: int, rng: np.random.Generator) -> IntArray:
    """Cluster rows by k-means over their observed cells: (n,), some clusters may stay empty."""
    # k-means++ starts. The squared distance of an incomplete row is the sum over its observed
    # cells, scaled up to all columns. Categories count as indicator columns divided by the square
    # root of two: two different ones are one unit apart.
    cells, observed = _indicator_columns(table)
    if len(cells) == 0:
        return np.zeros(0, dtype=np.int64)
    chosen = np.arange(len(cells))
    # Centres of a sample are as good a start, and cost the same for any number of rows
    if len(cells) > _MAX_CLUSTERED:
        chance = table.weights / table.weights.sum()
        chosen = np.sort(rng.choice(len(cells), _MAX_CLUSTERED, replace=False, p=chance))
    sample, seen, weights = cells[chosen], observed[chosen], table.weights[chosen]
    centres = _spread_centres((sample, seen), weights, n_clusters, rng)
    centres = k_means(sample, centres, _CLUSTER_STEPS, weights=weights, observed=seen)
    return nearest_centres(cells, centres, observed)


def _indicator_columns(table: MixtureTable) -> tuple[FloatArray, FloatArray]:
    """Cells (0 where missing) and 1.0 where observed, categories as indicator columns."""
    cells, observed = [np.nan_to_num(table.numbers, nan=0.0)], [~np.isnan(table.numbers)]
    for codes, size in zip(table.codes.T, table.category_counts, strict=True):
        cells.append((codes[:, None] == np.arange(size)) / np.sqrt(2.0))
        observed.append(np.repeat(codes[:, None] >= 0, size, axis=1))
    return np.hstack(cells), np.hstack(observed).astype(np.float64)


def _spread_centres(
    rows: tuple[FloatArray, FloatArray],
    weights: FloatArray,
    n_clusters: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw centres far from one another (k-means++)."""
    cells, observed = rows
    # a centre drawn from an incomplete row has the mean, zero, in their place
    chosen = [rng.choice(len(cells), p=weights / weights.sum())]
    nearest = _squared_distances(cells, observed, cells[chosen])[:, 0]
    for _ in range(1, n_clusters):
        mass = weights * nearest
        total = mass.sum()
        chosen.append(rng.choice(len(cells), p=mass / total if total > 0.0 else None))
        nearest = np.minimum(nearest, _squared_distances(cells, observed, cells[chosen[-1:]])[:, 0])
    return cells[chosen]


def _squared_distances(cells: FloatArray, observed: FloatArray, centres: FloatArray) -> FloatArray:
    """Squared distances (n, n_clusters) over observed cells, scaled up to all columns."""
    # Missing cells are zeros on both sides of the product, so that only observed ones count
    squared = (cells**2).sum(axis=1)[:, None] - 2.0 * cells @ centres.T + observed @ (centres**2).T
    fraction = observed.mean(axis=1)[:, None] if observed.shape[1] else 1.0
    return np.maximum(squared, 0.0) / fraction
