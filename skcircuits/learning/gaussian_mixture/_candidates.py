"""Choice of covariances, factors and components of a pool of mixtures on held-out rows.

Candidates are fitted to a part of the rows and evaluated on the others. The pool is then selected
greedily with replacement (Caruana, Niculescu-Mizil, Crew and Ksikes, 2004, "Ensemble Selection
from Libraries of Models"): one mixture of mixtures, in which the observed cells of a row determine
the weights. A single component that is as good, up to the error of the comparison, is preferred.

Numerical columns may be grouped. No Gaussian can give a single number a probability, and few have a
shape that is uniform or has peaks at its ends: such a column needs many Gaussians, and none are
left for it where columns nearly determine one another. With groups of its numbers, it has the right
shape, but depends on the other columns by components alone. Which of the two is better is seen in a
mixture of few components over transformed columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from skcircuits.circuits.inputs.johnson import SinhMap
from skcircuits.learning._columns import GroupedColumn, PointMasses, describe_column
from skcircuits.learning.gaussian_mixture._full_gaussians import CovarianceType, FullGaussians
from skcircuits.learning.gaussian_mixture._held_out import (
    Criterion,
    HeldOutCells,
    MappedRows,
    Predictions,
    split_sizes,
    split_table,
)
from skcircuits.learning.gaussian_mixture._learner import (
    EMSettings,
    MixtureState,
    around_other_rows,
    go_on,
    learn_gaussian_mixture,
    start_mixtures,
)
from skcircuits.learning.gaussian_mixture._table import MixtureTable, fit_sinh_map
from skcircuits.numerics._arrays import logsumexp, safe_log
from skcircuits.protocols import FloatArray, IntArray

MAX_DENSE_COLUMNS = 40  # dense covariances of more columns are tried where they take little work
_DENSE_WORK = 1e9  # cubes of the number of columns, for each row with missing or hidden cells
_ROWS_PER_COMPONENT = 5  # at least, in the rows that candidates are fitted to
# Shapes of covariances with numbers of components; more of them for more rows
_LIBRARY: tuple[tuple[CovarianceType, tuple[int, ...]], ...] = (
    ("tied", (8, 16)),
    ("factor", (8, 16)),
    ("shrunk", (3, 8)),
    ("diag", (8,)),
    ("full", (2, 4)),
)
_ALL_SIZES = (2, 3, 4, 6, 8, 12, 16, 24, 32)  # where the shape is given
# Location models are not candidates on tables of more rows: these take cells x rows x numbers, and
# are mainly useful for few rows
MAX_LOCATION_ROWS = 10_000
_CLASSES = (2, 4, 8)  # latent classes of each combination of categories
_MANY_ROWS = 1000
TRIAL_TOL = 4e-3  # later iterations do not improve predictions of held-out rows
TRIAL_STEPS = 20
# Iterations that show whether several components may gain, and standard errors by which they are
# behind then where they never do (40 generated tables)
_FIRST_STEPS, _BEHIND = 5, 1.0
# Whole trials, of those that are best after the first iterations: pools from three of them predict
# cells as well as pools from all twelve (36 generated tables)
_MOST_TRIALS = 3
_LEAST_GAIN = 0.01  # of the loss, or in nats, that several components must make
_LARGE_GAIN = 0.3  # nats per row
_POOL_CELLS = 30_000  # tables of more cells get a smaller pool: they need it less
_MAX_POOL = 6
START_ROWS = 1500  # a mixture of many more rows starts as one of these
_FIRST_FACTORS = 4
_DENSE_FACTORS = 5  # columns for each factor, with which these take as long as a dense covariance
# Components of the mixture that shows which columns to group, rows of each, at least, iterations,
# and rows
_N_COMPONENTS, _COMPONENT_ROWS, _N_ITERATIONS, _MAX_ROWS = 8, 20, 20, 2000
_MIN_GAIN = 0.02  # nats per row by which a column must gain to be grouped


@dataclass(frozen=True)
class Candidate:
    """A mixture to try."""

    covariance_type: CovarianceType
    n_factors: int  # 0 unless "factor"
    n_components: int
    by_cells: bool = False  # as many components for each combination of categories
    by_rows: bool = False  # the components are the rows, however many

    @property
    def is_unique(self) -> bool:
        """Whether all restarts end as one mixture."""
        return self.n_components == 1 or self.by_rows

    def described(self) -> dict[str, Any]:
        """Description for users."""
        factors = {"n_factors": self.n_factors} if self.n_factors else {}
        return {
            "family": "gaussian_mixture",
            "covariance_type": self.covariance_type,
            "location_model": self.by_cells,
            **factors,
            "n_components": "rows" if self.by_rows else self.n_components,
        }


KERNELS = Candidate("tied", 0, 0, by_rows=True)

#: Mixtures and how many restarts of each are pooled.
Pool = dict[Candidate, int]


@dataclass(frozen=True)
class CandidateSpace:
    """The search space; None means a free choice. `max_components`: largest number per mixture."""

    covariance_type: CovarianceType | None = None
    n_factors: int | None = None
    n_components: int | None = None
    max_components: int = 32
    pool: int | None = None
    by_cells: bool | None = None
    by_rows: bool = False

    def fixed(self) -> Candidate | None:
        """The only candidate, if nothing is to be chosen."""
        if self.by_rows:
            return KERNELS
        if self.by_cells and self.n_components is not None:
            return Candidate("tied", 0, self.n_components, by_cells=True)
        if self.by_cells or self.covariance_type is None or self.n_components is None:
            return None
        # The number of factors is a choice of its own
        if self.covariance_type == "factor" and self.n_factors is None:
            return None
        return Candidate(self.covariance_type, self._factors(), self.n_components)

    def _factors(self) -> int:
        return self.n_factors or 0 if self.covariance_type == "factor" else 0

    def allows(self, covariance_type: CovarianceType) -> bool:
        """Whether a shape of the covariances may be chosen."""
        return self.covariance_type in (None, covariance_type)

    def components(self, sizes: tuple[int, ...], n_rows: int) -> list[int]:
        """Numbers of components to try, of some proposed ones."""
        if self.n_components is not None:
            return [self.n_components]
        most = min(self.max_components, n_rows // _ROWS_PER_COMPONENT)
        return sorted({min(size, most) for size in sizes} - {0, 1})


class Comparison:
    """Fits candidates to some rows and compares them on others."""

    def __init__(
        self, table: MixtureTable, criterion: Criterion, settings: EMSettings, seed: int
    ) -> None:
        self.settings = settings
        self.criterion = criterion
        self.seed = seed
        self._table = table
        self.fits: dict[Candidate, list[MixtureState]] = {}  # to the rows of each split
        # Trials on the first splits, which may go on, with their last states
        self._begun: dict[Candidate, list[tuple[Iterator[MixtureState], MixtureState]]] = {}
        self._predictions: dict[Candidate, list[Predictions]] = {}
        self._losses: dict[tuple[tuple[tuple[Candidate, int], ...], Criterion], FloatArray] = {}

    @cached_property
    def splits(self) -> list[tuple[MixtureTable, HeldOutCells]]:
        """Rows to fit candidates to, and others with hidden cells; drawn if there is a choice."""
        return list(split_table(self._table, np.random.default_rng(self.seed)))

    @property
    def n_rows(self) -> int:
        """Rows that candidates are fitted to."""
        return len(self.splits[0][0].weights) if self.splits else 0

    @property
    def starts(self) -> dict[Candidate, MixtureState]:
        """Initial states of candidates: one of their fits to some of the rows."""
        return {candidate: states[-1] for candidate, states in self.fits.items()}

    @property
    def candidates(self) -> list[Candidate]:
        """Candidates tried so far."""
        return list(self._predictions)

    def losses(self, pool: Pool, criterion: Criterion | None = None) -> FloatArray:
        """Losses of an equal mixture of candidates in all held-out rows."""
        criterion = criterion or self.criterion
        # The greedy search asks for many pools again
        key = (tuple(sorted(pool.items(), key=str)), criterion)
        if key not in self._losses:
            members = [self._predict(c) for c, times in pool.items() for _ in range(times)]
            self._losses[key] = self._losses_of(members, criterion)
        return self._losses[key]

    def loss(self, pool: Pool) -> float:
        """Mean loss of an equal mixture of candidates."""
        return float(self.losses(pool).mean())

    def best(self, candidates: list[Candidate]) -> Candidate:
        """The candidate with the lowest loss."""
        return min(candidates, key=lambda candidate: self.loss({candidate: 1}))

    def report(self, pool: Pool) -> list[dict[str, Any]]:
        """One row per candidate, the chosen ones first, then by loss."""
        rows = []
        for candidate in {*self.candidates, *pool}:
            row = {**candidate.described(), "pool": pool.get(candidate, 0)}
            # Candidates that were given were not compared
            if candidate in self._predictions:
                losses = self.losses({candidate: 1})
                row["loss"] = float(losses.mean())
                row["standard_error"] = float(losses.std() / np.sqrt(len(losses)))
            rows.append(row)
        return sorted(rows, key=lambda row: (-row["pool"], row.get("loss", 0.0)))

    def is_sure(self, simple: Pool, complex_: Pool) -> bool:
        """Whether a pool is better than a simpler one, significantly and by more than a trifle."""
        # Squared errors have heavy tails, log densities do not: either may show significance
        trifle = _LEAST_GAIN * (abs(self.loss(simple)) if self.criterion == "cells" else 1.0)
        if self.loss(simple) - self.loss(complex_) < trifle:
            return False
        tests: tuple[tuple[Criterion, float], ...] = (
            (self.criterion, 1.0),
            ("log_likelihood", 2.0),
        )
        # Densities of whole rows are more precise than errors of cells, and only a second opinion
        for criterion, n_errors in tests:
            gains = self.losses(simple, criterion) - self.losses(complex_, criterion)
            if gains.mean() > n_errors * gains.std() / np.sqrt(len(gains)):
                return True
        return False

    def is_promising(self, simple: Pool, complex_: Pool) -> bool:
        """Whether more like the second pool are worth a look: it is better, or far more likely."""
        # Skewed columns affect log densities long before they affect errors of hidden cells
        if self.is_sure(simple, complex_):
            return True
        gains = self.losses(simple, "log_likelihood") - self.losses(complex_, "log_likelihood")
        return bool(gains.mean() > max(_LARGE_GAIN, 3.0 * gains.std() / np.sqrt(len(gains))))

    def is_behind(self, simple: Pool, candidate: Candidate) -> bool:
        """Whether a candidate is clearly worse than a pool after a few iterations of its trial."""
        if candidate in self._predictions:
            return False
        members = self._predicted(self._go_on(candidate, _FIRST_STEPS))
        for criterion, n_errors in ((self.criterion, 0.0), ("log_likelihood", _BEHIND)):
            gains = self.losses(simple, criterion) - self._losses_of([members], criterion)
            # Predictions of cells have heavier tails, and only a veto. A row that is impossible
            # under both makes the gain NaN, which shows nothing.
            if not gains.mean() < -n_errors * gains.std() / np.sqrt(len(gains)):
                return False
        return True

    def promising(self, candidates: list[Candidate]) -> list[Candidate]:
        """The candidates that are best after a few iterations on the first split."""
        if len(candidates) <= _MOST_TRIALS:
            return candidates
        losses = [self._first_loss(candidate) for candidate in candidates]
        order = np.argsort(losses, kind="stable")[:_MOST_TRIALS]
        return [candidates[i] for i in np.sort(order)]

    def _first_loss(self, candidate: Candidate) -> float:
        """Mean loss on the first split after the first iterations of a trial, or those so far."""
        (_, held_out), *_ = self.splits
        if candidate in self._predictions:
            members = self._predictions[candidate][:1]
        else:
            begun = self._begun.get(candidate)
            state = begun[0][1] if begun else self._go_on(candidate, _FIRST_STEPS, n_splits=1)[0]
            members = [held_out.predict(state, self.criterion)]
        return float(held_out.losses(members, self.criterion).mean())

    def _predict(self, candidate: Candidate) -> list[Predictions]:
        if candidate not in self._predictions:
            self.fits[candidate] = self._go_on(candidate)
            self._predictions[candidate] = self._predicted(self.fits[candidate])
        return self._predictions[candidate]

    def _predicted(self, states: list[MixtureState]) -> list[Predictions]:
        """Predictions of held-out rows by mixtures that were fitted to the others."""
        return [
            held_out.predict(state, self.criterion)
            for state, (_, held_out) in zip(states, self.splits, strict=True)
        ]

    def _losses_of(self, members: list[list[Predictions]], criterion: Criterion) -> FloatArray:
        """Losses of an equal mixture of some members, given their predictions of each split."""
        parts = zip(self.splits, *members, strict=True)
        return np.concatenate([held.losses(own, criterion) for (_, held), *own in parts])

    def _go_on(
        self, candidate: Candidate, n_steps: int | None = None, n_splits: int | None = None
    ) -> list[MixtureState]:
        """Mixtures of the first splits after so many further iterations of their trials, or all."""
        begun, states = self._begun.setdefault(candidate, []), []
        for i, (part, _) in enumerate(self.splits[:n_splits]):
            n_more = n_steps
            if i == len(begun):
                trial = _trial(part, candidate, self.settings, self.seed)
                begun.append((trial, next(trial)))
                n_more = n_steps and n_steps - 1
            trial, last = begun[i]
            begun[i] = trial, [last, *islice(trial, n_more)][-1]
            states.append(begun[i][1])
        return states


def try_candidate(
    part: MixtureTable,
    candidate: Candidate,
    settings: EMSettings,
    seed: int,
    max_iter: int = TRIAL_STEPS,
    begun: MixtureState | None = None,
) -> MixtureState:
    """Fit a candidate, or go on with one `begun`, with enough iterations for a comparison."""
    if begun is not None:
        own = _settings_of(candidate, _trial_settings(settings, max_iter))
        n_components, rng = candidate.n_components, np.random.default_rng(seed)
        return [begun, *learn_gaussian_mixture(part, n_components, own, rng, begun)][-1]
    *_, state = _trial(part, candidate, settings, seed, max_iter)
    return state


def _trial(
    part: MixtureTable,
    candidate: Candidate,
    settings: EMSettings,
    seed: int,
    max_iter: int = TRIAL_STEPS,
) -> Iterator[MixtureState]:
    """Iterations of a candidate on some of the rows, enough for a comparison."""
    settings = _trial_settings(settings, max_iter)
    for (state,) in learn_pool(part, {candidate: 1}, settings, np.random.default_rng(seed)):
        yield state


def _trial_settings(settings: EMSettings, max_iter: int) -> EMSettings:
    """Settings of one start, since ranks of candidates settle long before their parameters do."""
    return replace(settings, n_init=1, tol=TRIAL_TOL, max_iter=max_iter)


@dataclass(frozen=True, eq=False)
class TransformedMixture:
    """A mixture over transformed or grouped columns, in units of its own."""

    state: MixtureState
    sinh_map: SinhMap | None
    units: MixtureTable  # without rows
    grouped: dict[int, GroupedColumn] = field(default_factory=dict)

    @classmethod
    def learn(
        cls,
        part: MixtureTable,
        X: FloatArray,
        candidate: Candidate,
        settings: EMSettings,
        seed: int,
        is_transformed: bool,
        grouped: dict[int, GroupedColumn],
        max_iter: int = TRIAL_STEPS,
        begun: TransformedMixture | None = None,
    ) -> TransformedMixture:
        """Fit a candidate to some rows X (n, d), over columns grouped or transformed by these."""
        # Of a fit that was `begun`, the groups, transformation and units stay
        grouped = begun.grouped if begun else grouped
        cells, cardinalities = X[part.source], part.cardinalities.copy()
        for j, own in grouped.items():
            cells[:, j], cardinalities[j] = own.encode(cells[:, j]), own.n_groups
        sinh_map = begun.sinh_map if begun else None
        if is_transformed and sinh_map is None:
            sinh_map = fit_sinh_map(cells[:, cardinalities == 0], part.weights)
        units = begun.units if begun else None
        table = MixtureTable.prepare(cells, cardinalities, part.weights, units, sinh_map)
        known = begun.state if begun else None
        state = try_candidate(table, candidate, settings, seed, max_iter=max_iter, begun=known)
        return cls(state, sinh_map, table.take(np.empty(0, dtype=np.intp)), grouped)

    @property
    def category_tables(self) -> dict[int, FloatArray]:
        """Log probabilities (K, n_states) in each component, by column that has states."""
        columns = np.flatnonzero(self.units.cardinalities).tolist()
        return dict(zip(columns, self.state.categories.log_probabilities, strict=True))

    def cell_probabilities(self, column: int) -> FloatArray:
        """Probabilities (K, n_cells) of the cells of a grouped column in each component."""
        return self.grouped[column].cell_probabilities(np.exp(self.category_tables[column]))

    @property
    def state_over_cells(self) -> MixtureState:
        """The mixture, with probabilities of the cells of grouped columns."""
        if not self.grouped:
            return self.state
        tables = {
            j: safe_log(self.cell_probabilities(j)) if j in self.grouped else table
            for j, table in self.category_tables.items()
        }
        categories = replace(self.state.categories, log_probabilities=tuple(tables.values()))
        return replace(self.state, categories=categories)

    def mapped(self, table: MixtureTable, X: FloatArray) -> MappedRows:
        """Cells of a table, prepared from rows of `X` (n, d), in the columns of this mixture."""
        cells, is_number = X[table.source], table.cardinalities == 0
        scale = np.ones(len(is_number))
        scale[is_number] = table.scale
        log_slopes, columns = np.zeros(len(cells)), []
        for j in np.flatnonzero(self.units.cardinalities).tolist():
            column = cells[:, j]
            if j in self.grouped:
                own = self.grouped[j].cells
                log_slopes += np.nan_to_num(own.log_densities(column) + np.log(scale[j]))
                column = own.encode(column)
            columns.append(np.nan_to_num(column, nan=-1.0).astype(np.int64))
        is_normal = self.units.cardinalities == 0
        numbers = normal = cells[:, is_normal]
        log_slopes += ~np.isnan(numbers) @ np.log(scale[is_normal] / self.units.scale)
        if self.sinh_map is not None:
            normal = self.sinh_map.normal(numbers)
            log_slopes += self.sinh_map.log_slopes(numbers)
        normal = (normal - self.units.location) / self.units.scale
        codes = np.stack(columns, axis=1) if columns else table.codes
        return MappedRows(normal, codes, log_slopes, self.sinh_map, self.units, table)

    def on_other_rows(self) -> TransformedMixture:
        """The same mixture as a start on other rows."""
        return replace(self, state=go_on(self.state))


def choose_pool(table: MixtureTable, space: CandidateSpace, comparison: Comparison) -> Pool:
    """Choose the mixtures to fit to all rows."""
    fixed = space.fixed()
    if fixed is not None:
        return {fixed: space.pool or 1}
    # Tables too small to hold cells out have no losses to compare
    if not comparison.splits and space.by_cells:
        return {Candidate("tied", 0, 1, by_cells=True): 1}
    if not comparison.splits:
        shape = space.covariance_type or "tied"
        return {Candidate(shape, space.n_factors or 0, space.n_components or 1): space.pool or 1}
    single, is_enough = choose_single(table, space, comparison)
    if single and is_enough:
        return {single: 1}
    n_factors = _best_number_of_factors(single, comparison)
    several = _several_components(table, space, comparison.n_rows, n_factors)
    if not several:
        return {single or Candidate("tied", 0, 1): 1}
    size = space.pool or pool_size(table.n_cells)
    # Pools by log densities gain from more candidates; a single mixture is asked for to save time
    if comparison.criterion == "cells" or space.pool == 1:
        several = comparison.promising(several)
    pool = _greedy(comparison, [*several, *([single] if single else [])], size)
    # The simpler model unless held-out cells are clearly against it
    if single and not comparison.is_sure({single: 1}, pool):
        return {single: 1}
    return pool


def choose_single(
    table: MixtureTable, space: CandidateSpace, comparison: Comparison
) -> tuple[Candidate | None, bool]:
    """The best single component, if one is allowed, and whether to look no further."""
    # Tables of numbers either gain from a few components at once, or never do; categories always
    # need several
    single = _single_component(table, space, comparison)
    if single is None or len(table.category_counts):
        return single, False
    n_factors = _best_number_of_factors(single, comparison)
    first = _several_components(table, space, comparison.n_rows, n_factors, few=True)
    one = {single: 1}
    return single, not any(
        not comparison.is_behind(one, c) and comparison.is_promising(one, {c: 1}) for c in first
    )


def is_wide(table: MixtureTable) -> bool:
    """Whether dense covariances of all numerical columns take too much work to be tried."""
    n_columns = table.numbers.shape[1]
    if n_columns <= MAX_DENSE_COLUMNS:
        return False
    n_fitted, n_held_out = split_sizes(len(table.weights), len(table.cardinalities))
    is_incomplete = np.isnan(table.numbers).any(axis=1)
    n_patterns = n_fitted * float(is_incomplete.mean()) + n_held_out
    return n_patterns * n_columns**3 > _DENSE_WORK


def without_structure(pool: Pool, n_columns: int) -> Pool:
    """Give a pool of one factor analyser a covariance without structure in its place."""
    # Imputed tables must preserve all dependences that an analysis may estimate (Meng, 1994,
    # "Multiple-Imputation Inferences with Uncongenial Sources of Input"), even if these do not
    # improve predictions
    is_single = all(c == Candidate("factor", c.n_factors, 1) for c in pool)
    return {Candidate("tied", 0, 1): 1} if is_single and n_columns <= MAX_DENSE_COLUMNS else pool


def _best_number_of_factors(single: Candidate | None, comparison: Comparison) -> int:
    """Factors of the best single component that has some."""
    if single is None or single.covariance_type == "factor":
        return single.n_factors if single else 0
    tried = [c for c in comparison.candidates if c.covariance_type == "factor"]
    return comparison.best(tried).n_factors if tried else 0


def pool_size(n_cells: int) -> int:
    """Most members of a pool that is learned from so many cells."""
    return int(np.clip(_POOL_CELLS * _MAX_POOL // max(1, n_cells), 1, _MAX_POOL))


def _single_component(
    table: MixtureTable, space: CandidateSpace, comparison: Comparison
) -> Candidate | None:
    """The best single component; None where one is not allowed."""
    if space.n_components not in (None, 1):
        return None
    # with categories, the single Gaussian is the one whose mean they move
    is_dense = not is_wide(table)
    candidates = _by_cells(table, space, (1,)) if is_dense or space.by_cells else []
    if space.by_cells:
        return candidates[0]
    dense = [Candidate("tied", 0, 1)] if space.allows("tied") else []
    if is_dense:
        candidates += dense
    if space.allows("factor"):
        candidates += _best_factors(table.numbers.shape[1], space, comparison, dense)
    for shape in ("full", "shrunk", "diag"):
        if space.covariance_type == shape:
            candidates.append(Candidate(shape, 0, 1))
    return comparison.best(candidates) if candidates else None


def _best_factors(
    n_columns: int, space: CandidateSpace, comparison: Comparison, dense: list[Candidate]
) -> list[Candidate]:
    """Double the number of factors as long as that helps, then look halfway.

    Gives the candidates with `dense` covariances instead, if one of them is better than as many
    factors as take no less work.
    """

    def candidate(n_factors: int) -> Candidate:
        return Candidate("factor", n_factors, 1)

    if space.n_factors is not None:
        return [candidate(space.n_factors)]
    # Factors of fewer than four rows each would be learned from chance
    most = max(1, min(n_columns - 1, comparison.n_rows // 4))
    best = min(_FIRST_FACTORS, most)
    for step in (2.0, 0.5):
        while 1 <= int(step * best) <= most:
            is_costly = MAX_DENSE_COLUMNS < n_columns <= _DENSE_FACTORS * best
            if is_costly and dense and comparison.best([*dense, candidate(best)]) in dense:
                return dense
            better = comparison.best([candidate(best), candidate(int(step * best))]).n_factors
            if better == best:
                break
            best = better
    around = (
        {int(0.75 * best), min(most, int(1.5 * best))} - {0}
        if n_columns > MAX_DENSE_COLUMNS
        else set()
    )
    return [comparison.best([candidate(q) for q in sorted(around | {best})])]


def _several_components(
    table: MixtureTable, space: CandidateSpace, n_rows: int, n_factors: int, few: bool = False
) -> list[Candidate]:
    """Candidates with several components; first a few of them, to see whether any helps."""
    dense = not is_wide(table) or table.numbers.shape[1] <= _DENSE_FACTORS * n_factors
    library = [(shape, sizes) for shape, sizes in _LIBRARY if space.allows(shape)]
    if space.covariance_type is not None:
        library = [(space.covariance_type, _ALL_SIZES)]
    elif few:
        library = [("full", (2,)), ("tied", (8,))] if dense else [("factor", (8,))]
    # Large tables afford few trials, and show what more components gain by themselves
    elif not len(table.category_counts) and table.n_cells > _POOL_CELLS * _MAX_POOL:
        library = [("full", (4,)), ("shrunk", (8,))] if dense else [("factor", (8,))]
    elif n_rows >= _MANY_ROWS:
        library = [(shape, (*sizes, 2 * sizes[-1])) for shape, sizes in library]
    most = n_rows // _ROWS_PER_COMPONENT
    classes = tuple(k for k in _CLASSES if k <= most)
    found = _by_cells(table, space, classes) if dense or space.by_cells else []
    if space.by_cells:
        return found
    for shape, sizes in library:
        # Full covariances of wide tables only where they are asked for
        is_left_out = not dense and shape not in ("factor", "diag")
        if not space.allows(shape) or (is_left_out and space.covariance_type != shape):
            continue
        factors = (space.n_factors or max(1, n_factors)) if shape == "factor" else 0
        if shape == "factor" and not table.numbers.shape[1]:
            continue
        found += [Candidate(shape, factors, k) for k in space.components(sizes, n_rows)]
    return found


def _by_cells(
    table: MixtureTable, space: CandidateSpace, classes: tuple[int, ...]
) -> list[Candidate]:
    """Location models with different numbers of latent classes, for mixed tables."""
    has_both = len(table.category_counts) > 0 and table.numbers.shape[1] > 0
    suits = has_both and len(table.weights) <= MAX_LOCATION_ROWS
    if not (suits or space.by_cells) or space.by_cells is False or not space.allows("tied"):
        return []
    sizes = classes if space.n_components is None else (space.n_components,)
    return [Candidate("tied", 0, k, by_cells=True) for k in sizes]


def _greedy(comparison: Comparison, candidates: list[Candidate], size: int) -> Pool:
    """Repeatedly add the mixture that decreases the loss of the pool most."""
    chosen: Counter[Candidate] = Counter()
    best, best_loss = chosen, np.inf
    for _ in range(size):
        trials = [chosen + Counter([candidate]) for candidate in candidates]
        chosen = min(trials, key=lambda trial: comparison.loss(dict(trial)))
        loss = comparison.loss(dict(chosen))
        # Forward selection with replacement (Caruana et al. 2004); equal members only change
        # weights
        if loss <= best_loss or len(set(chosen)) == 1:
            best, best_loss = chosen, min(loss, best_loss)
    return dict(best)


def learn_pool(
    table: MixtureTable,
    pool: Pool,
    settings: EMSettings,
    rng: np.random.Generator,
    fits: dict[Candidate, MixtureState] | None = None,
) -> Iterator[tuple[MixtureState, ...]]:
    """Learn a pool's mixtures in turn, yielding those so far; restarts begin at `fits`."""
    done: tuple[MixtureState, ...] = ()
    for (candidate, times), stream in zip(pool.items(), rng.spawn(len(pool)), strict=True):
        own = _settings_of(candidate, settings)
        # Where all starts end in one optimum the mixture is learned once
        copies = times if candidate.is_unique else 1
        fit = fits.get(candidate) if fits else None
        for start in _starts(table, candidate, own, stream, times // copies, fit):
            for state in learn_gaussian_mixture(table, candidate.n_components, own, stream, start):
                newest = (*done, *(state,) * copies)
                yield newest
            done = newest


def _settings_of(candidate: Candidate, settings: EMSettings) -> EMSettings:
    """The settings with the shape of a candidate."""
    return replace(
        settings,
        covariance_type=candidate.covariance_type,
        n_factors=candidate.n_factors,
        by_cells=candidate.by_cells,
        by_rows=candidate.by_rows,
    )


def _starts(
    table: MixtureTable,
    candidate: Candidate,
    settings: EMSettings,
    rng: np.random.Generator,
    n_mixtures: int,
    fit: MixtureState | None,
) -> list[MixtureState]:
    """So many starts of a candidate; where there are many more rows, mixtures of some of them."""
    n_components, n_all = candidate.n_components, len(table.weights)
    if candidate.by_rows:
        if fit:
            return [around_other_rows(fit, table, settings, rng)] * n_mixtures
        return start_mixtures(table, n_components, settings, rng, n_mixtures)
    known = [go_on(fit)] if fit is not None else []
    n_open = n_mixtures - len(known)
    if not n_open:
        return known
    # Some rows find the clusters; all rows then only polish them
    n_rows = START_ROWS * max(1, int(np.sqrt(n_components)))
    if n_all < 2 * n_rows:
        return known + start_mixtures(table, n_components, settings, rng, n_open)
    part = table.take(np.sort(rng.choice(n_all, n_rows, replace=False)))
    for start in start_mixtures(part, n_components, settings, rng, n_open):
        *_, state = learn_gaussian_mixture(part, n_components, settings, rng, start)
        known.append(go_on(state))
    return known


def grouped_columns(
    X: FloatArray,
    weights: FloatArray,
    cardinalities: IntArray,
    point_masses: PointMasses,
    histograms: bool | Collection[int],
) -> dict[int, GroupedColumn]:
    """The numerical columns of a table (n, d) that are grouped, by their index."""
    # Columns with frequent values are grouped, if there may be point masses, and with `histograms`
    # also those of the others whose shape is worth more than their dependence on other columns; or
    # given ones of them
    variables = np.flatnonzero(cardinalities == 0).tolist()
    described = [describe_column(j, X[:, j], weights, 0, point_masses) for j in variables]
    free = variables if histograms is True else histograms or ()
    wanted = [column for column in described if column.variable in free or len(column.atoms)]
    found = {own.cells.column.variable: own for own in GroupedColumn.fit_all(wanted, X, weights)}
    if histograms is not True:
        return found
    smooth = [j for j, own in found.items() if own.cells.column.is_smooth]
    if smooth:
        others = np.concatenate([smooth, np.flatnonzero(cardinalities)])
        own_shape = np.array([found[j].log_density for j in smooth])
        for i in _better_normal(X[:, others], weights, cardinalities[others], own_shape):
            del found[smooth[i]]
    return found


def _better_normal(
    X: FloatArray, weights: FloatArray, cardinalities: IntArray, log_densities: FloatArray
) -> list[int]:
    """The numbers whose shape is worth less than their dependence on one another.

    `X` (n, d): numbers first; `log_densities` (c,): means under histograms of the numbers. Under
    the mixture, a component loses -log(1 - R^2) / 2 where a column no longer depends on the others.
    Columns leave one by one, that with the largest difference first: it takes the worth of the
    others' dependence on it along.
    """
    parts, n_rows, covariances, normal = _few_components(
        X, weights, cardinalities, len(log_densities)
    )
    gains = log_densities - normal
    left = np.arange(len(gains))
    while len(left):
        inner = covariances[:, left[:, None], left]
        # 1 - R^2 is the inverse of the diagonals of covariance and precision
        ratios = np.diagonal(inner, axis1=1, axis2=2) * np.diagonal(
            np.linalg.inv(inner), axis1=1, axis2=2
        )
        # Of independent columns, -log(1 - R^2) of n rows is one n-th for each other column
        chance = (len(left) - 1) * parts @ (1.0 / n_rows)
        difference = gains[left] - 0.5 * np.maximum(parts @ np.log(ratios) - chance, 0.0)
        if difference.max() < _MIN_GAIN:
            break
        left = np.delete(left, difference.argmax())
    return [int(i) for i in left]


def _few_components(
    X: FloatArray, weights: FloatArray, cardinalities: IntArray, n_numbers: int
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Few components over transformed columns: weights, counts, covariances, log densities (c,)."""
    some = np.flatnonzero(weights > 0)
    some = some[:: 1 + len(some) // _MAX_ROWS]
    X, weights = X[some], weights[some]
    numbers = X[:, :n_numbers]
    sinh_map = fit_sinh_map(numbers, weights)
    table = MixtureTable.prepare(X, cardinalities, weights, sinh_map=sinh_map)
    n_components = int(np.clip(len(some) // _COMPONENT_ROWS, 1, _N_COMPONENTS))
    settings = EMSettings("shrunk", n_init=1, max_iter=_N_ITERATIONS)
    *_, state = learn_gaussian_mixture(table, n_components, settings, np.random.default_rng(0))
    assert isinstance(state.gaussians, FullGaussians)
    means, covariances = state.gaussians.in_units(table.location, table.scale)
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    offsets = np.nan_to_num(sinh_map.normal(numbers))[:, None] - means
    logs = -0.5 * (np.square(offsets) / variances + np.log(2.0 * np.pi * variances))
    logs = logsumexp((logs + np.log(state.weights)[:, None]).transpose(1, 0, 2))
    logs -= np.log(np.hypot(1.0, sinh_map.curvatures * (numbers - sinh_map.centers)))
    seen = ~np.isnan(numbers) * weights[:, None]
    log_densities = (seen * np.nan_to_num(logs)).sum(axis=0)
    n_rows = state.weights * table.total_weight + state.gaussians.strength
    return state.weights, n_rows, covariances, log_densities / np.maximum(seen.sum(axis=0), 1e-300)
