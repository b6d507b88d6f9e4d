"""Completions of rows: random ones and the most probable.

All take a feedforward pass and a trace from the root to one input unit per variable; where rows
have several induced trees, a search for the most probable completions follows.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import methodcaller
from typing import Any

import numpy as np

from skcircuits.circuits._policy import (
    BATCH_DRAWS,
    MANY_ROWS,
    MAX_PAIRS,
    MAX_TRACE_VALUES,
    MIN_PAIRS,
    PLACES_PER_DRAW,
)
from skcircuits.circuits.engine._layers import SumLayer
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
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.engine._tables import tabulated
from skcircuits.circuits.queries._marginals import require_possible
from skcircuits.circuits.queries._search import Known, ObservedUnits, search_completions
from skcircuits.numerics._random import DrawSource, InverseCdf, RowStreams, draw_source
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

# Terms may add up to slightly less than their total: draws below this never take an edge of
# probability zero.
ALMOST_ONE = 1.0 - 1e-9
# Draws that show whether rows have several trees, and the gain in log density that shows it
_N_DRAWS, _SEVERAL_TREES = 64, 1e-9
# Arrays of the size of all values that a search holds at once
SEARCH_BUFFERS = 16


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
                return self._draw_shared(layer, own, uniform)
            at = rows % self._values.shape[1]
            if layer.block_shape is None and len(layer.lengths) > 1:
                return self._draw_in_segments(layer, own, at, uniform)
            # Arrays over all rows and blocks have one entry for each pair: enough for one draw.
            n_places = len(layer.block_children) * self._values.shape[1]
            reads_rows = n_draws == 1 and PLACES_PER_DRAW * len(own) >= n_places
            draw = self._draw_in_rows if reads_rows else self._draw_in_blocks
            return draw(layer, own, at, uniform)

        return choose

    def _draw_shared(self, layer: SumLayer, own: IntArray, uniform: FloatArray) -> IntArray:
        """All rows share one posterior, whose distribution functions are computed once."""
        if layer.units.start not in self._shared:
            posteriors = layer.posteriors(self._values, self._plan.weights)[:, 0]
            self._shared[layer.units.start] = InverseCdf(posteriors, layer.starts, layer.lengths)
        return self._shared[layer.units.start].draw(own, uniform)

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


def rows_have_several_trees(plan: Plan) -> bool:
    """Tell whether some of the circuit's draws have several induced trees of positive value.

    Under deterministic circuits no row has, so that max-product is exact. A proof of determinism
    compares all pairs of children, which takes longer than a search where there are many.
    """
    return plan.remember("rows_have_several_trees", lambda: _draws_have_several_trees(plan))


def _draws_have_several_trees(plan: Plan) -> bool:
    if not plan.sum_layers:
        return False
    rows = sample(plan, _N_DRAWS, np.random.default_rng(0))
    values = log_values(plan, rows)
    inputs = input_buffer(plan, methodcaller("log_prob", rows), (len(rows),))
    best = feedforward(plan, inputs, "max")[plan.root]
    return bool((values[plan.root] > best + _SEVERAL_TREES).any())
