"""Samples: a feedforward pass and a random trace."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits.inverse_cdf import InverseCdf
from skcircuits.circuits.layers import SumLayer
from skcircuits.circuits.moments import require_possible
from skcircuits.circuits.passes import log_values
from skcircuits.circuits.plan import Plan
from skcircuits.circuits.scaled_inputs import linear_values
from skcircuits.circuits.tracing import EdgeChoice, pairs_by_block, trace
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["sample", "sample_completions"]

# Rows per batch, few enough for the values of all units to stay in cache.
BATCH_ROWS = 256
# Draws per batch where all share one pass.
BATCH_DRAWS = 4096


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
    plan: Plan, X: FloatArray, n_samples: int, rng: np.random.Generator
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
    rng : numpy.random.Generator
        Source of randomness. Blocks have a fixed size, so that the draws do not depend on
        the working memory.

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
        posterior = _Posterior.after_pass(plan, block, rows.start)
        batch = BATCH_DRAWS if len(block) == 1 else BATCH_ROWS
        for draws in row_slices(n_samples, max(1, batch // len(block))):
            # Draw-major: pair i belongs to draw i // len(block) of row i % len(block).
            n_pairs = len(block) * (draws.stop - draws.start)
            for layer, units, at in trace(plan, n_pairs, posterior.chooser(rng)):
                draw, row = np.divmod(at, len(block))
                scopes = layer.scopes[units]
                cells = layer.draw(units, block[row[:, None], scopes], rng)
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

    def chooser(self, rng: np.random.Generator) -> EdgeChoice:
        """Choose edges with probability proportional to their terms."""

        def choose(layer: SumLayer, own: IntArray, rows: IntArray) -> IntArray:
            uniform = rng.random(len(own))
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
        """Draw for one block of sums after the other: their children are the same."""
        assert layer.block_shape is not None
        weights = self._plan.weights
        matrices = (weights.log if self._is_log else weights.linear)[layer.edges]
        matrices = matrices.reshape(layer.block_shape)
        edges = np.empty(len(own), dtype=np.intp)
        for block, pairs, sums in pairs_by_block(layer, own):
            terms = np.take(self._values[layer.block_children[block]], at[pairs], axis=1)
            if self._is_log:
                terms += matrices[block].T[:, sums]
                terms -= self._values[layer.units.start + own[pairs], at[pairs]]
                np.exp(terms, out=terms)
            else:
                terms *= matrices[block].T[:, sums]
            steps = np.cumsum(terms, axis=0, out=terms)
            # Strictly below the total, so that no edge of weight zero is ever drawn.
            drawn = np.minimum(uniform[pairs] * steps[-1], np.nextafter(steps[-1], 0.0))
            edges[pairs] = (steps <= drawn).sum(axis=0)
        return edges + layer.starts[own]

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
        return edges[InverseCdf(terms, first, lengths).draw(np.arange(len(own)), uniform)]
