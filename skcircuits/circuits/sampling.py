"""Samples: a feedforward pass and a random trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from skcircuits.circuits.inverse_cdf import InverseCdf
from skcircuits.circuits.layers import SumLayer
from skcircuits.circuits.moments import require_possible
from skcircuits.circuits.passes import log_values
from skcircuits.circuits.plan import Plan
from skcircuits.circuits.scaled_inputs import linear_values
from skcircuits.circuits.tabulation import tabulated
from skcircuits.circuits.tracing import EdgeChoice, trace
from skcircuits.numerics.row_streams import DrawSource, RowStreams, draw_source
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["sample", "sample_completions"]

# Rows per batch: enough to amortise the Python of a trace over all layers.
BATCH_ROWS = 512
# Draws per batch where all share one pass.
BATCH_DRAWS = 4096
# Terms add up to their total up to rounding; a draw below it never takes an impossible edge.
ALMOST_ONE = 1.0 - 1e-9


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
    # Whatever the number of rows: the draws of a row do not depend on the others
    plan = tabulated(plan)
    result = np.repeat(X[None], n_samples, axis=0)
    for rows in row_slices(len(X), max(1, BATCH_ROWS // max(1, n_samples))):
        block = X[rows]
        posterior = _Posterior.after_pass(plan, block, rows.start)
        batch = BATCH_DRAWS if len(block) == 1 else BATCH_ROWS
        for draws in row_slices(n_samples, max(1, batch // len(block))):
            # Draw-major: pair i belongs to draw i // len(block) of row i % len(block).
            n_pairs = len(block) * (draws.stop - draws.start)
            source = draw_source(rng, rows, draws)
            for layer, units, at in trace(plan, n_pairs, posterior.chooser(source)):
                draw, row = np.divmod(at, len(block))
                scopes = layer.scopes[units]
                # A row reaches one input unit per variable, so the variable names the draw
                numbers = source(at, plan.n_units + scopes[:, 0])
                cells = layer.draw(units, block[row[:, None], scopes], numbers)
                result[draws.start + draw[:, None], rows.start + row[:, None], scopes] = cells
    return result


class _Posterior:
    """Probabilities of the edges below sums, given the observed cells.

    Parameters
    ----------
    plan : Plan
        The circuit.
    values : ndarray of shape (n_units, n)
        Linear or log values of all units.
    is_log : bool
        Which of the two.
    """

    def __init__(self, plan: Plan, values: FloatArray, is_log: bool) -> None:
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
        require_possible(values[plan.root], first_row)
        return cls(plan, values, is_log=True)

    def chooser(self, source: DrawSource) -> EdgeChoice:
        """Choose edges with probability proportional to their terms."""

        def choose(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
            uniform = source(rows, layer.units.start + own).random(len(own)) * ALMOST_ONE
            if self._values.shape[1] == 1:
                return self._draw_shared(layer, own, uniform)
            at = rows % self._values.shape[1]
            if layer.block_shape is None:
                return self._draw_in_segments(layer, own, at, uniform)
            return self._draw_in_blocks(layer, own, at, uniform)

        return choose

    def _draw_shared(self, layer: SumLayer, own: IntArray, uniform: FloatArray) -> IntArray:
        """All rows share one posterior: its distribution functions are made once."""
        if layer.units.start not in self._shared:
            posteriors = layer.posteriors(self._values, self._plan.weights)[:, 0]
            self._shared[layer.units.start] = InverseCdf(posteriors, layer.starts, layer.lengths)
        return self._shared[layer.units.start].draw(own, uniform)

    def _draw_in_blocks(
        self, layer: SumLayer, own: IntArray, at: IntArray, uniform: FloatArray
    ) -> IntArray:
        """Draw for sums whose children are shared within blocks."""
        assert layer.block_shape is not None
        n_rows = self._values.shape[1]
        n_blocks, n_sums, _ = layer.block_shape
        blocks = own // n_sums
        if 2 * len(own) < n_blocks * n_rows:
            flat = self._values.ravel()
            return self._walk_blocks(
                layer, own, at, uniform, lambda children: flat[(children * n_rows)[blocks] + at]
            )
        # Most blocks explain most rows: whole rows of the buffer are read, without a gather.
        place = blocks * n_rows + at
        everywhere = np.repeat(np.arange(n_blocks) * n_sums, n_rows)
        everywhere[place] = own
        spread = np.zeros(n_blocks * n_rows)
        spread[place] = uniform
        rows = np.tile(np.arange(n_rows), n_blocks)
        return self._walk_blocks(
            layer, everywhere, rows, spread, lambda children: self._values[children].ravel()
        )[place]

    def _walk_blocks(
        self,
        layer: SumLayer,
        own: IntArray,
        at: IntArray,
        uniform: FloatArray,
        read: Callable[[IntArray], FloatArray],
    ) -> IntArray:
        """Walk over the children of all blocks at once until the draw is reached."""
        weights = self._plan.weights.log if self._is_log else self._plan.weights.linear
        columns = weights[layer.edges].reshape(len(layer.lengths), -1).T.copy()
        totals = self._values[layer.units.start + own, at]
        drawn = uniform if self._is_log else uniform * totals
        below = np.zeros(len(own))
        # Bytes count fast; sums of more children are rare.
        passed: Any = np.zeros(len(own), dtype=np.uint8 if len(columns) < 256 else np.intp)
        factors = np.empty(len(own))
        for children, column in zip(layer.block_children.T, columns):
            # mode="clip" lets NumPy write straight into the buffer
            np.take(column, own, out=factors, mode="clip")
            if self._is_log:
                factors += read(children)
                factors -= np.where(np.isneginf(totals), 0.0, totals)
                np.exp(factors, out=factors)
            else:
                factors *= read(children)
            below += factors
            passed += below <= drawn
        edges: IntArray = layer.starts[own] + passed
        return edges

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
        terms /= np.repeat(np.add.reduceat(terms, first), lengths)
        steps = np.cumsum(terms)
        total = steps[first + lengths - 1]
        before = np.append(0.0, total[:-1])
        # Strictly below the end of the segment: its last possible edge, never the next sum.
        drawn = np.minimum(before + uniform * (total - before), np.nextafter(total, 0.0))
        return edges[np.searchsorted(steps, drawn, side="right")]
