"""Completions of rows: random ones and the most probable.

All take a feedforward pass and a trace from the root to one input unit per variable. Where rows
have several induced trees, a search for the most probable completions follows: max-product finds
the best induced tree, whereas the density of a row adds up many of them. The search starts from the
completions of several trees and ascends by exact conditionals: the value of the root is linear in
the units over each variable, so that one pass down gives the densities of a row with any other
value of any single variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import methodcaller
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits._policy import (
    BATCH_DRAWS,
    MANY_ROWS,
    MAX_PAIRS,
    MAX_TRACE_VALUES,
    MIN_PAIRS,
    PLACES_PER_DRAW,
)
from skcircuits.circuits.engine._layers import ProductLayer, SumLayer
from skcircuits.circuits.engine._passes import (
    EdgeChoice,
    best_edges,
    draw_in_runs,
    feedforward,
    input_buffer,
    linear_values,
    log_values,
    trace,
)
from skcircuits.circuits.engine._plan import Plan, remembered
from skcircuits.circuits.engine._transformations import tabulated
from skcircuits.circuits.inputs.base import DiscreteInputLayer, StateFlows
from skcircuits.circuits.inputs.restriction._evidence import NO_COLUMNS
from skcircuits.circuits.queries._marginals import require_possible
from skcircuits.numerics._arrays import divisors, safe_log
from skcircuits.numerics._random import DrawSource, InverseCdf, RowStreams, draw_source
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Terms may add up to slightly less than their total: draws below this never take an edge of
# probability zero.
ALMOST_ONE = 1.0 - 1e-9
# Draws that show whether rows have several trees, and the gain in log density that shows it
_N_DRAWS, _SEVERAL_TREES = 64, 1e-9
# Arrays of the size of all values that a search holds at once
SEARCH_BUFFERS = 16

# Trees of which completions are compared: below so many children of the root, in two orders
_N_CHILDREN = 2
# Most rows change in one or two steps.
_N_STEPS = 3
# Modes that are tried in each scope, and modes of which an average is tried
_N_MODES, _N_AVERAGED = 2, 6
# Log densities that grow by less are at their maximum.
_MIN_GAIN = 1e-3
# Log densities below the best of a row, from which ascents seldom overtake it: of starts, and
# of completions after a step
_MAX_BEHIND_AT_START, _MAX_BEHIND = 1.0, 0.1
# Ratios beyond are far from the best completion, or would overflow
_MAX_LOG_RATIO = 600.0


def sample(plan: Plan, n_samples: int, rng: np.random.Generator | RowStreams) -> FloatArray:
    """Draw rows."""
    nothing = np.full((1, plan.n_columns), np.nan)
    return sample_completions(plan, nothing, n_samples, rng)[:, 0]


def sample_completions(
    plan: Plan, X: FloatArray, n_samples: int, rng: np.random.Generator | RowStreams
) -> FloatArray:
    """Draw completions of the NaN cells of each row."""
    # For any number of rows, so that the draws of a row do not depend on the other rows
    plan = tabulated(plan)
    result = np.repeat(X[None], n_samples, axis=0)
    n_pairs = min(MAX_PAIRS, max(MIN_PAIRS, MAX_TRACE_VALUES // plan.n_units))
    for rows in row_slices(len(X), max(1, n_pairs // max(1, n_samples))):
        posterior = _Posterior.after_pass(plan, X[rows], rows.start)
        n_rows = rows.stop - rows.start
        batch = BATCH_DRAWS if n_rows == 1 else n_pairs
        for draws in row_slices(n_samples, max(1, batch // n_rows)):
            source = draw_source(rng, rows, draws)
            # Draw-major: pair i belongs to draw i // n_rows of row i % n_rows.
            pairs = np.ascontiguousarray(result[draws, rows].reshape(-1, X.shape[1]))
            n_draws = draws.stop - draws.start
            _complete(plan, pairs, posterior.chooser(source, n_draws), source)
            result[draws, rows] = pairs.reshape(-1, n_rows, X.shape[1])
    return result


def _complete(plan: Plan, pairs: FloatArray, choose: EdgeChoice, source: DrawSource) -> None:
    """Draw the NaN cells of contiguous pairs of a row and a draw, in place."""
    cells = pairs.reshape(-1)
    for layer, units, at in trace(plan, len(pairs), choose):
        scopes = layer.scopes[units]
        places = scopes + (at * pairs.shape[1])[:, None]
        # Each row reaches one input unit per variable, so that the variable identifies the draw
        numbers = source(at, plan.n_units + scopes[:, 0])
        cells[places] = layer.draw(units, cells[places], numbers)


class _Posterior:
    """Probabilities of the edges below sums, given the observed cells."""

    def __init__(self, plan: Plan, values: FloatArray, is_log: bool = True) -> None:
        self._plan = plan
        self._values = values
        self._is_log = is_log
        self._shared: dict[int, InverseCdf] = {}

    @classmethod
    def after_pass(cls, plan: Plan, X: FloatArray, first_row: int) -> _Posterior:
        """Evaluate some rows, on the linear scale if no value can underflow."""
        if len(X) > 1:
            values = linear_values(plan, X)
            if values is not None:
                return cls(plan, values, is_log=False)
        values = log_values(plan, X)
        require_possible(plan, values[plan.root], first_row)
        return cls(plan, values)

    def chooser(self, source: DrawSource, n_draws: int) -> EdgeChoice:
        """Choose edges with probability proportional to their terms, for some draws per row."""

        def choose(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
            uniform = source(rows, layer.units.start + own).random(len(own)) * ALMOST_ONE
            if self._values.shape[1] == 1:
                # All rows share one posterior, whose distribution functions are computed once
                if layer.units.start not in self._shared:
                    posteriors = layer.posteriors(self._values, self._plan.weights)[:, 0]
                    self._shared[layer.units.start] = InverseCdf(
                        posteriors, layer.starts, layer.lengths
                    )
                return self._shared[layer.units.start].draw(own, uniform)
            at = rows % self._values.shape[1]
            if layer.block_shape is None and len(layer.lengths) > 1:
                return self._draw_in_segments(layer, own, at, uniform)
            # Arrays over all rows and blocks have one entry for each pair: enough for one draw.
            n_places = len(layer.block_children) * self._values.shape[1]
            reads_rows = n_draws == 1 and PLACES_PER_DRAW * len(own) >= n_places
            draw = self._draw_in_rows if reads_rows else self._draw_in_blocks
            return draw(layer, own, at, uniform)

        return choose

    def _draw_in_blocks(
        self, layer: SumLayer, own: IntArray, at: IntArray, uniform: FloatArray
    ) -> IntArray:
        """Draw for sums whose children are shared within blocks."""
        n_rows = self._values.shape[1]
        blocks = own // (len(layer.lengths) // len(layer.block_children))
        flat = self._values.ravel()
        below = ((children * n_rows)[blocks] + at for children in layer.block_children.T)
        return self._walk_blocks(layer, own, at, uniform, (flat[places] for places in below))

    def _draw_in_rows(
        self, layer: SumLayer, own: IntArray, at: IntArray, uniform: FloatArray
    ) -> IntArray:
        """Draw if most rows reach most blocks: the buffer is then read without a gather."""
        n_rows = self._values.shape[1]
        n_blocks = len(layer.block_children)
        n_sums = len(layer.lengths) // n_blocks
        place = own // n_sums * n_rows + at
        everywhere = np.repeat(np.arange(n_blocks) * n_sums, n_rows)
        everywhere[place] = own
        spread = np.zeros(n_blocks * n_rows)
        spread[place] = uniform
        rows = np.tile(np.arange(n_rows), n_blocks)
        values = layer.block_values(self._values)
        return self._walk_blocks(layer, everywhere, rows, spread, values.transpose(1, 0, 2))[place]

    def _walk_blocks(
        self,
        layer: SumLayer,
        own: IntArray,
        at: IntArray,
        uniform: FloatArray,
        below: Iterable[FloatArray],
    ) -> IntArray:
        """Walk over the children of all blocks at once until the draw is reached."""
        weights = self._plan.weights.log if self._is_log else self._plan.weights.linear
        columns = weights[layer.edges].reshape(len(layer.lengths), -1).T.copy()
        totals = self._values[layer.units.start + own, at]
        drawn = uniform if self._is_log else uniform * totals
        steps = np.zeros(len(own))
        # Counters of one byte are fast; sums with more children are rare.
        passed: Any = np.zeros(len(own), dtype=np.uint8 if len(columns) < 256 else np.intp)
        terms = np.empty(len(own))
        for column, values in zip(columns, below):
            # mode="clip" lets NumPy write straight into the buffer
            np.take(column, own, out=terms, mode="clip")
            factors = terms.reshape(values.shape)
            if self._is_log:
                factors += values
                terms -= np.where(np.isneginf(totals), 0.0, totals)
                np.exp(terms, out=terms)
            else:
                factors *= values
            steps += terms
            passed += steps <= drawn
        return layer.starts[own] + passed

    def _draw_in_segments(
        self, layer: SumLayer, own: IntArray, at: IntArray, uniform: FloatArray
    ) -> IntArray:
        """Draw among the edges of sums of different lengths."""
        edges, first = layer.edges_of(own)
        lengths = layer.lengths[own]
        below = self._values[layer.children[edges], np.repeat(at, lengths)]
        if self._is_log:
            values = np.repeat(self._values[layer.units.start + own, at], lengths)
            terms = np.exp(below + self._plan.weights.log[layer.edges][edges] - values)
        else:
            terms = below * self._plan.weights.linear[layer.edges][edges]
        return edges[draw_in_runs(terms, first, lengths, uniform)]


def max_product_completion(plan: Plan, X: FloatArray) -> FloatArray:
    """Complete NaN cells by a max-product pass and its trace."""
    # For few rows, filling the tables takes longer than the pass itself
    if len(X) >= MANY_ROWS:
        plan = tabulated(plan, "max")
    result = X.copy()
    for rows in plan.batches(len(X), n_buffers=2):
        block = X[rows]
        inputs = input_buffer(plan, methodcaller("log_max", block), (len(block),))
        values = feedforward(plan, inputs, "max")
        require_possible(plan, values[plan.root], rows.start)
        for layer, units, at in trace(plan, len(block), best_edges(plan, values)):
            scopes = layer.scopes[units]
            result[rows.start + at[:, None], scopes] = layer.mode(units, block[at[:, None], scopes])
    return result


def searched_completion(plan: Plan, X: FloatArray) -> FloatArray:
    """Complete NaN cells by max-product, then by a search if rows have several induced trees."""
    if not rows_have_several_trees(plan):
        return max_product_completion(plan, X)
    result = np.empty(X.shape)
    for rows in plan.batches(len(X), n_buffers=SEARCH_BUFFERS):
        block = X[rows]
        sums = log_values(plan, block)
        require_possible(plan, sums[plan.root], rows.start)
        inputs = input_buffer(plan, methodcaller("log_max", block), (len(block),))
        peaks = feedforward(plan, inputs, "max")
        layers = [(own, ObservedUnits(layer, block)) for own, layer in plan.inputs]
        known = Known(plan, layers, block)
        result[rows] = search_completions(known, peaks, sums)[0]
    return result


@remembered
def rows_have_several_trees(plan: Plan) -> bool:
    """Tell whether some draws have several induced trees, without which max-product is exact; a
    proof of determinism, over all pairs of children, may take longer than a search.
    """
    if not plan.sum_layers:
        return False
    rows = sample(plan, _N_DRAWS, np.random.default_rng(0))
    values = log_values(plan, rows)
    inputs = input_buffer(plan, methodcaller("log_prob", rows), (len(rows),))
    best = feedforward(plan, inputs, "max")[plan.root]
    return bool((values[plan.root] > best + _SEVERAL_TREES).any())


class ObservedUnits:
    """The units of a layer given observed cells, NaN where missing; searches ask a layer that is
    restricted by other evidence for the same.
    """

    def __init__(self, layer: Any, X: FloatArray) -> None:
        self.layer, self._X = layer, X

    def mode(self, units: IntArray, rows: IntArray) -> FloatArray:
        """Best cells (m, scope_size) for pairs of a unit and a row."""
        return np.asarray(self.layer.mode(units, self._X[rows[:, None], self.layer.scopes[units]]))

    def divided(self, weights: FloatArray, rows: IntArray) -> Iterator[StateFlows]:
        """Sums of weights (n_units, m) times the masses of each possible state, in m rows."""
        return iter(self.layer.state_flows(weights, self._X[rows]))


class Known(NamedTuple):
    """A circuit and evidence about n rows."""

    plan: Plan
    layers: Sequence[tuple[slice, Any]]  # positions and units of each input layer
    X: FloatArray  # (n, n_columns), NaN where free
    integers: IntArray = NO_COLUMNS  # columns in which completions are integers

    def completions(self, values: FloatArray, starts: IntArray) -> FloatArray:
        """Rows completed by the best trees of the units ``starts`` (n_starts, n), given ``values``
        (n_units, n) of all units, (n_starts, n, n_columns).
        """
        n_rows = len(self.X)
        best = best_edges(self.plan, values)
        known = {id(own.layer): own for _, own in self.layers}
        result = np.tile(self.X, (len(starts), 1))

        def choose(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
            # Pair i belongs to row i % n_rows
            return best(layer, own, rows % n_rows)

        for layer, units, at in trace(self.plan, len(result), choose, starts.ravel()):
            cells = known[id(layer)].mode(units, at % n_rows)
            result[at[:, None], layer.scopes[units]] = cells
        return result.reshape(len(starts), *self.X.shape)


def search_completions(
    known: Known, peaks: FloatArray, sums: FloatArray | None
) -> tuple[FloatArray, FloatArray]:
    """Completions (n, n_columns) and their log densities (n,), at least those of max-product, given
    all values of max-product and, unless these take too long, of sum-product.
    """
    starts = [_starts(known, values) for values in (peaks, sums) if values is not None]
    ascents = _Ascents(known, peaks, np.concatenate(starts), _enough(known, sums))
    for _ in range(_N_STEPS):
        if not len(ascents.active):
            break
        ascents.step()
    return ascents.best()


def _starts(known: Known, values: FloatArray) -> FloatArray:
    """Completions by the best trees of the root, below each of its best children."""
    root = known.plan.layers[-1]
    if not isinstance(root, SumLayer):
        return known.completions(values, np.full((1, len(known.X)), known.plan.root))
    terms = values[root.children] + known.plan.weights.log[root.edges][:, None]
    order = np.argsort(-terms, axis=0, kind="stable")[:_N_CHILDREN]
    # The best cells of children that are impossible given the evidence need not agree with it
    is_impossible = np.isneginf(np.take_along_axis(terms, order, axis=0))
    order = np.where(is_impossible, order[0], order)
    return known.completions(values, root.children[order])


def _enough(known: Known, sums: FloatArray | None) -> FloatArray:
    """Log densities (n,) that none exceeds: half the evidence where all free cells have states."""
    layers = [layer for _, layer in known.plan.inputs if not isinstance(layer, DiscreteInputLayer)]
    numeric = np.unique(np.concatenate([NO_COLUMNS, *(layer.scopes.ravel() for layer in layers)]))
    has_states = ~np.isnan(known.X[:, numeric]).any(axis=1)
    half = np.inf if sums is None else sums[known.plan.root] - np.log(2.0)
    return np.where(has_states, half, np.inf)


def _is_first(starts: FloatArray) -> BoolArray:
    """Whether completions (n_starts, n, n_columns) differ from all before of the same row."""
    is_open = np.isnan(starts)
    # A cell that is left open would be summed out
    is_first = (is_open == is_open[0]).all(axis=2)
    for k, rows in enumerate(starts):
        for before in starts[:k]:
            is_first[k] &= ((rows != before) & ~is_open[k]).any(axis=1)
    return is_first


class _Proposals(NamedTuple):
    """Cells for some rows, and the gain in log density where a column changes alone."""

    cells: FloatArray  # (m, n_columns)
    gains: FloatArray  # (m, n_columns), 0 where nothing is better

    def take(self, rows: IntArray, scope: IntArray, cells: FloatArray, gains: FloatArray) -> None:
        """Keep cells (k, scope_size) of some rows where their gains (k,) are the largest yet."""
        # Comparisons with NaN are false: a gain that has overflowed is none
        better = gains > self.gains[rows[:, None], scope].max(axis=1)
        at = rows[better, None]
        self.cells[at, scope], self.gains[at, scope] = cells[better], gains[better, None]


class _Weighed(NamedTuple):
    """An input layer with what its units contribute to m rows."""

    own: Any  # the units, which list states, and integers where the evidence asks for them
    slopes: FloatArray  # (n_units, m), derivatives of the root times peaks
    peaks: FloatArray  # (n_units, m), log values by max-product
    now: FloatArray  # (n_units, m), parts of the present value of the root

    @property
    def runs(self) -> list[slice]:
        """Units of one scope each."""
        starts, counts = self.own.layer.scope_runs
        return [slice(*ends) for ends in zip(starts.tolist(), (starts + counts).tolist())]

    def terms(self, rows: FloatArray, at: IntArray) -> FloatArray:
        """Parts (n_units, k) of the value of the root at other cells (k, n_columns) of k rows."""
        terms: FloatArray = self.own.layer.log_prob(rows)
        terms -= self.peaks[:, at]
        np.exp(terms, out=terms)
        terms *= self.slopes[:, at]
        return terms


class _Ascents:
    """Completions that move to values of higher density; after each step, the best of a row and
    those that are nearly as good go on, each point once.
    """

    def __init__(
        self, known: Known, peaks: FloatArray, starts: FloatArray, enough: FloatArray
    ) -> None:
        """Evaluate starts (n_starts, n, n_columns), first those of max-product with values
        ``peaks``; log densities of ``enough`` (n,) end the search of a row.
        """
        plan = known.plan
        self._known, self._enough = known, enough
        is_first = _is_first(starts)
        values = log_values(plan, starts[0])
        # At an end of a piece the density may be that of the other side
        values[plan.root] = np.maximum(values[plan.root], peaks[plan.root])
        is_first[1:] &= values[plan.root] < enough
        others = log_values(plan, starts[1:][is_first[1:]])
        self._values = np.concatenate([values, others], axis=1)
        #: Rows of the evidence to which the completions belong.
        self._row_of = np.nonzero(is_first)[1]
        self.rows, self.heights = starts[is_first], self._values[plan.root].copy()
        self._peaks = peaks
        #: Completions that may still change, to which the columns of the values belong.
        self.active = np.arange(len(self.rows))
        self._go_on([(self.active, self._values)], _MAX_BEHIND_AT_START)

    def best(self) -> tuple[FloatArray, FloatArray]:
        """The best completion of each row, the first of those that tie, and its log density."""
        order = np.lexsort((-self.heights, self._row_of))
        _, first = np.unique(self._row_of[order], return_index=True)
        return self.rows[order[first]], self.heights[order[first]]

    def step(self) -> None:
        """Change all columns that gain; only the one that gains most where these are worse."""
        found = self._propose()
        gains = np.where(found.gains > _MIN_GAIN, found.gains, np.inf)
        waiting = np.flatnonzero((found.gains > _MIN_GAIN).any(axis=1))
        moved = [(self.active[:0], self._values[:, :0])]
        for least in (gains.min(axis=1), found.gains.max(axis=1)):
            if not len(waiting):
                break
            # Columns of one scope have equal gains and change together
            is_taken = found.gains[waiting] >= least[waiting, None]
            at = self.active[waiting]
            rows = np.where(is_taken, found.cells[waiting], self.rows[at])
            values = log_values(self._known.plan, rows)
            gain = values[self._known.plan.root] - self.heights[at]
            better = gain > 0.0
            self.rows[at[better]] = rows[better]
            self.heights[at[better]] += gain[better]
            # Those that gain little stay where they are
            at = np.where(gain > _MIN_GAIN, at, -1)
            moved.append((at, values))
            waiting = waiting[~better]
        self._go_on(moved, _MAX_BEHIND)

    def _go_on(self, moved: Sequence[tuple[IntArray, FloatArray]], max_behind: float) -> None:
        """Keep ``moved`` completions near the best of their row, each once, if not surely best."""
        best = np.full(len(self._enough), -np.inf)
        np.maximum.at(best, self._row_of, self.heights)
        active = np.concatenate([at for at, _ in moved])
        row_of = self._row_of[active]
        behind = best[row_of] - self.heights[active]
        is_kept = (active >= 0) & (behind <= max_behind) & (best < self._enough)[row_of]
        active = active[is_kept]
        # Completions of one row that are equal have nearly equal heights
        order = np.lexsort((behind[is_kept], row_of[is_kept]))
        before, after = active[order[:-1]], active[order[1:]]
        has_met = self._row_of[before] == self._row_of[after]
        has_met[has_met] = (self.rows[before[has_met]] == self.rows[after[has_met]]).all(axis=1)
        is_new = np.ones(len(active), dtype=bool)
        is_new[order[1:][has_met]] = False
        is_kept[is_kept] = is_new
        ends = np.cumsum([len(at) for at, _ in moved])[:-1]
        parts = [
            values if own.all() else values[:, own]
            for own, (_, values) in zip(np.split(is_kept, ends), moved)
        ]
        self.active = active[is_new]
        self._values = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def _propose(self) -> _Proposals:
        """Find better cells of each column of the active completions, all others given."""
        rows, row_of = self.rows[self.active], self._row_of[self.active]
        peaks = self._peaks[:, row_of]
        found = _Proposals(rows.copy(), np.zeros(rows.shape))
        # Far from the best completion, ratios overflow: such gains are not taken
        with np.errstate(over="ignore", invalid="ignore"):
            ratios = _ratios(self._values, peaks)
            slopes = _derivatives(self._known.plan, ratios, peaks)
            # Units that are impossible given the evidence have derivatives of zero
            peaks[np.isneginf(peaks)] = 0.0
            discrete: list[_Weighed] = []
            modal: list[_Weighed] = []
            for units, own in self._known.layers:
                now = slopes[units] * ratios[units]
                is_discrete = isinstance(own.layer, DiscreteInputLayer)
                parts = discrete if is_discrete else modal
                parts.append(_Weighed(own, slopes[units], peaks[units], now))
            self._try_states(found, discrete)
            self._try_modes(found, modal)
        return found

    def _try_states(self, found: _Proposals, layers: Sequence[_Weighed]) -> None:
        """Find the best state of each discrete variable, of units of all layers."""
        sums: dict[int, tuple[IntArray, FloatArray, FloatArray]] = {}
        row_of = self._row_of[self.active]
        for own, slopes, peaks, now in layers:
            for variable, rows, masses in own.divided(slopes * np.exp(-peaks), row_of):
                units = (own.layer.scopes == variable).any(axis=1)
                before = now[units][:, rows].sum(axis=0)
                if variable in sums:
                    # Units with few and many states are in different layers
                    _, others, before_of_others = sums[variable]
                    few, many = sorted((others, masses), key=len)
                    masses = many.copy()
                    masses[: len(few)] += few
                    before = before + before_of_others
                sums[variable] = rows, masses, before
        for variable, (rows, masses, before) in sums.items():
            states = masses.argmax(axis=0)
            gains = _log_ratios(masses[states, np.arange(len(rows))], before)
            found.take(rows, np.array([variable]), states[:, None].astype(float), gains)

    def _try_modes(self, found: _Proposals, layers: Sequence[_Weighed]) -> None:
        """Try modes of units, and an average of modes, in each scope, of units of all layers."""
        members: dict[tuple[int, ...], list[tuple[_Weighed, slice]]] = {}
        for weighed in layers:
            for run in weighed.runs:
                scope = tuple(weighed.own.layer.scopes[run.start].tolist())
                members.setdefault(scope, []).append((weighed, run))
        for scope, parts in list(members.items()):
            if len(parts) == 1 and self._try_integers(found, scope, *parts[0]):
                del members[scope]
        trials = np.tile(self.rows[self.active], (_N_MODES + 1, 1, 1))
        before = {}
        for scope, parts in members.items():
            trials[:, :, scope] = self._trials_of(parts, np.array(scope))
            before[scope] = sum(weighed.now[run].sum(axis=0) for weighed, run in parts)
        rows = self.rows[self.active]
        for cells in np.where(np.isfinite(trials), trials, rows):
            # Most rows are at modes already
            at = np.flatnonzero((cells != rows).any(axis=1))
            terms = {id(weighed): weighed.terms(cells[at], at) for weighed in layers}
            for scope, parts in members.items():
                after = sum(terms[id(weighed)][run].sum(axis=0) for weighed, run in parts)
                gains = _log_ratios(after, before[scope][at])
                columns = np.array(scope)
                found.take(at, columns, cells[np.ix_(at, columns)], gains)

    def _try_integers(
        self, found: _Proposals, scope: tuple[int, ...], weighed: _Weighed, run: slice
    ) -> bool:
        """Find the best integer where a scope is a variable of few; tell whether it is."""
        if len(scope) > 1 or scope[0] not in self._known.integers:
            return False
        slopes, peaks, row_of = weighed.slopes[run], weighed.peaks[run], self._row_of[self.active]
        flows = weighed.own.integer_flows(scope[0], slopes, peaks, row_of)
        if flows is None:
            return False
        integers, masses = flows
        best, every = masses.argmax(axis=0), np.arange(masses.shape[1])
        gains = _log_ratios(masses[best, every], weighed.now[run].sum(axis=0))
        found.take(every, np.array(scope), integers[best, None], gains)
        return True

    def _trials_of(self, parts: Sequence[tuple[_Weighed, slice]], scope: IntArray) -> FloatArray:
        """Cells (_N_MODES + 1, m, scope_size) for the scope of some runs of units."""
        slopes = np.concatenate([weighed.slopes[run] for weighed, run in parts])
        now = np.concatenate([weighed.now[run] for weighed, run in parts])
        n_modes = min(_N_AVERAGED, len(slopes))
        top = np.argpartition(-slopes, n_modes - 1, axis=0)[:n_modes]
        order = np.argsort(-np.take_along_axis(slopes, top, axis=0), axis=0, kind="stable")
        top = np.take_along_axis(top, order, axis=0)
        rows = np.broadcast_to(self._row_of[self.active], top.shape)
        modes = np.empty((*top.shape, parts[0][0].own.layer.scopes.shape[1]))
        first = 0
        for weighed, run in parts:
            n_units = run.stop - run.start
            at = (top >= first) & (top < first + n_units)
            if at.any():
                modes[at] = weighed.own.mode(run.start + top[at] - first, rows[at])
            first += n_units
        # An iteration of EM for the mode of a mixture of Gaussians with one covariance
        responsibilities = np.take_along_axis(now, top, axis=0)
        total = responsibilities.sum(axis=0)
        responsibilities = np.where(total > 0.0, responsibilities / divisors(total), 1.0 / n_modes)
        average = np.einsum("kn,kns->ns", responsibilities, modes)
        # Where the nearest integer is the present one, that on the other side of the average
        nearest, now_at = np.round(average), self.rows[self.active][:, scope]
        nearest += np.where(nearest == now_at, np.sign(average - nearest), 0.0)
        average = np.where(np.isin(scope, self._known.integers), nearest, average)
        # Rounding may carry it out of observed cells and intervals
        np.clip(average, modes.min(axis=0), modes.max(axis=0), out=average)
        return np.stack([*(modes[min(i, n_modes - 1)] for i in range(_N_MODES)), average])


def _log_ratios(after: FloatArray, before: FloatArray) -> FloatArray:
    """Logarithms of ratios; of ``after`` alone where the row was impossible before."""
    return np.asarray(safe_log(after) - safe_log(divisors(before)))


def _ratios(values: FloatArray, peaks: FloatArray) -> FloatArray:
    """Values of units over their peaks, 0 for units that are impossible given the evidence."""
    ratios = values - peaks
    np.exp(np.minimum(ratios, _MAX_LOG_RATIO, out=ratios), out=ratios)
    ratios[peaks == -np.inf] = 0.0
    return ratios


def _derivatives(plan: Plan, ratios: FloatArray, peaks: FloatArray) -> FloatArray:
    """Derivatives of the root by all units, times the unit's peak over the root's: like flows."""
    result = np.zeros_like(ratios)
    result[plan.root] = 1.0
    for layer in reversed(plan.layers):
        # Sums pass on weights and peaks, products the ratios of their other factors
        if isinstance(layer, ProductLayer):
            layer.backward_linear(result, ratios, plan.weights)
        else:
            layer.backward_log(result, peaks, plan.weights)
    return result
