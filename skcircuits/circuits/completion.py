"""Queries that trace one explanation top-down: most probable completions and samples.

A trace follows, for every row, one child of each sum and all children of each product. The
rows of a batch are traced together, layer by layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import cast

import numpy as np

from skcircuits.circuits.evaluation import log_values
from skcircuits.circuits.inputs import InputLayer
from skcircuits.circuits.layers import ProductLayer, SumLayer
from skcircuits.circuits.moments import require_possible
from skcircuits.circuits.passes import feedforward, input_buffer
from skcircuits.circuits.plan import BATCH_ROWS, Plan
from skcircuits.numerics.row_streams import RowStreams
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["max_product_completion", "sample", "sample_completions"]

# Given a layer, which of its sums and which rows: the chosen edge of each pair.
EdgeChoice = Callable[[SumLayer, IntArray, IntArray], IntArray]
# Given traced rows and what each of them draws: where their random numbers come from.
DrawSource = Callable[[IntArray, IntArray], np.random.Generator]


def max_product_completion(plan: Plan, X: FloatArray) -> FloatArray:
    """Complete NaN cells by a max-product pass and its trace.

    Parameters
    ----------
    plan : Plan
        The circuit.
    X : ndarray of shape (n, n_columns)
        Rows with NaN.

    Returns
    -------
    ndarray of shape (n, n_columns)
        Completed rows: the most probable completions when the circuit is deterministic.

    Raises
    ------
    ZeroProbabilityError
        If the observed cells of a row are impossible.
    """
    result = X.copy()
    for rows in plan.batches(len(X), n_buffers=2):
        block = X[rows]
        inputs = input_buffer(plan, methodcaller("log_max", block), (len(block),))
        values = feedforward(plan, inputs, "max")
        require_possible(values[plan.root], rows.start)
        for layer, units, at in _trace(plan, len(block), _best_edges(plan, values)):
            cells = layer.mode(units, block[at[:, None], layer.scopes[units]])
            result[rows.start + at[:, None], layer.scopes[units]] = cells
    return result


def sample(plan: Plan, n_samples: int, rng: np.random.Generator) -> FloatArray:
    """Draw rows.

    Parameters
    ----------
    plan : Plan
        The circuit, normalised or not.
    n_samples : int
        Number of rows.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_samples, n_columns)
        Rows; columns that are no variable of the circuit are NaN.
    """
    nothing = np.full((1, plan.n_columns), np.nan)
    return sample_completions(plan, nothing, n_samples, rng)[:, 0]


def sample_completions(
    plan: Plan, X: FloatArray, n_samples: int, rng: np.random.Generator | RowStreams
) -> FloatArray:
    """Draw completions of the NaN cells of each row.

    Parameters
    ----------
    plan : Plan
        The circuit.
    X : ndarray of shape (n, n_columns)
        Rows with NaN.
    n_samples : int
        Completions per row.
    rng : numpy.random.Generator or RowStreams
        Source of randomness. Blocks have a fixed size, so that the draws of a generator do
        not depend on the working memory; those of streams depend on nothing but their row.

    Returns
    -------
    ndarray of shape (n_samples, n, n_columns)
        Completed rows.

    Raises
    ------
    ZeroProbabilityError
        If the observed cells of a row are impossible.
    """
    result = np.repeat(X[None], n_samples, axis=0)
    for rows in row_slices(len(X), max(1, BATCH_ROWS // max(1, n_samples))):
        block = X[rows]
        values = log_values(plan, block)
        require_possible(values[plan.root], rows.start)
        for draws in row_slices(n_samples, max(1, BATCH_ROWS // len(block))):
            n_draws = draws.stop - draws.start
            source = _draw_source(rng, rows, draws)
            choice = _random_edges(plan, values, source)
            for layer, units, at in _trace(plan, len(block) * n_draws, choice):
                draw, row = np.divmod(at, len(block))
                # A row reaches one input unit per variable, so the variable names the draw
                numbers = source(at, plan.n_units + layer.scopes[units, 0])
                cells = layer.draw(units, block[row[:, None], layer.scopes[units]], numbers)
                where = (draws.start + draw[:, None], rows.start + row[:, None])
                result[(*where, layer.scopes[units])] = cells
    return result


def _trace(
    plan: Plan, n_rows: int, choose: EdgeChoice
) -> Iterator[tuple[InputLayer, IntArray, IntArray]]:
    """Follow one explanation per row; yields the input units reached and their rows."""
    active = np.zeros((plan.n_units, n_rows), dtype=bool)
    active[plan.root] = True
    for layer in reversed(plan.layers):
        own, rows = np.nonzero(active[layer.units])
        if isinstance(layer, ProductLayer):
            active[layer.children[own], rows[:, None]] = True
        else:
            active[layer.children[choose(layer, own, rows)], rows] = True
    for units, inputs in plan.inputs:
        own, rows = np.nonzero(active[units])
        if len(own):
            yield inputs, own, rows


def _edge_terms(
    plan: Plan, values: FloatArray, layer: SumLayer, own: IntArray, rows: IntArray
) -> tuple[IntArray, FloatArray, IntArray]:
    """Log terms of all edges of the active sums.

    Returns the first edge of each active pair in the ragged list of terms, the terms, and
    the distance between an edge's place in the list and its number in the layer.
    """
    lengths = layer.lengths[own]
    first = np.cumsum(lengths) - lengths
    shift = np.repeat(layer.starts[own] - first, lengths)
    edges = np.arange(len(shift)) + shift
    at = np.repeat(rows, lengths)
    log_weights = plan.weights.log[layer.edges]
    return first, values[layer.children[edges], at] + log_weights[edges], layer.starts[own] - first


def _best_edges(plan: Plan, values: FloatArray) -> EdgeChoice:
    """Choose the edge with the largest term."""

    def choose(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
        if len(own) == 0:
            return own
        first, terms, shift = _edge_terms(plan, values, layer, own, rows)
        best = np.repeat(np.maximum.reduceat(terms, first), layer.lengths[own])
        hits = np.flatnonzero(terms == best)
        # Ties: the first edge of each pair that reaches the maximum.
        return hits[np.searchsorted(hits, first)] + shift

    return choose


def _draw_source(rng: np.random.Generator | RowStreams, rows: slice, draws: slice) -> DrawSource:
    """Random numbers for a block: from one generator, or from the stream of each row."""
    if isinstance(rng, np.random.Generator):
        return lambda at, place: rng

    def draw_keyed(at: IntArray, place: IntArray) -> np.random.Generator:
        draw, row = np.divmod(at, rows.stop - rows.start)
        keyed = rng.at(rows.start + row, draws.start + draw, place)
        # It has the two methods of a generator that draws use
        return cast(np.random.Generator, keyed)

    return draw_keyed


def _random_edges(plan: Plan, values: FloatArray, source: DrawSource) -> EdgeChoice:
    """Choose edges with probability proportional to their terms."""
    n_rows = values.shape[1]

    def choose(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
        if len(own) == 0:
            return own
        if n_rows == 1:
            return _draw_shared(layer, own, rows)
        at = rows % n_rows
        first, terms, shift = _edge_terms(plan, values, layer, own, at)
        terms -= np.repeat(values[layer.units][own, at], layer.lengths[own])
        steps = np.cumsum(np.exp(terms))
        last = first + layer.lengths[own] - 1
        below = np.where(first > 0, steps[first - 1], 0.0)
        numbers = source(rows, layer.units.start + own)
        drawn = below + numbers.random(len(own)) * (steps[last] - below)
        return np.clip(np.searchsorted(steps, drawn, side="right"), first, last) + shift

    def _draw_shared(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
        """All rows share one posterior: one table of steps for the whole layer."""
        posteriors = layer.posteriors(values, plan.weights)[:, 0]
        total = np.add.reduceat(posteriors, layer.starts)
        total[total == 0] = 1.0
        posteriors /= np.repeat(total, layer.lengths)
        steps = np.cumsum(posteriors)
        last = layer.starts + layer.lengths - 1
        below = np.where(layer.starts > 0, steps[layer.starts - 1], 0.0)
        numbers = source(rows, layer.units.start + own)
        drawn = below[own] + numbers.random(len(own)) * (steps[last] - below)[own]
        return np.clip(np.searchsorted(steps, drawn, side="right"), layer.starts[own], last[own])

    return choose
