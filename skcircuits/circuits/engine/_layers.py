"""Inner layers of a plan: many product or sum units in a few array operations.

Each layer writes one contiguous run of rows of ``values``, a buffer with one row per unit and shape
(n_units, *batch), where the batch is usually one axis of rows. A layer has three forward methods
(log, linear, maximum) and two backward methods (flows on the log scale, derivatives on the linear
scale). ``log_values`` and ``values`` are buffers after a forward pass, ``weights`` those of all
edges of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from skcircuits.circuits._policy import EDGE_TERMS, MANY_VALUES
from skcircuits.numerics._arrays import Rows, Scatter, as_run, divisors, finite_peaks, safe_log
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Below this a linear value next to a maximum of one may have lost digits to underflow.
TINY = 1e-280


def segment_log_sum(terms: FloatArray, starts: IntArray, lengths: IntArray) -> FloatArray:
    """Log sums of exponentials (n_segments, ...) of `terms` (n_edges, ...), which are overwritten;
    segments are given by increasing ``starts`` and positive ``lengths``.
    """
    # An impossible segment keeps a finite reference, so that -inf - -inf never happens.
    peak = finite_peaks(np.maximum.reduceat(terms, starts, axis=0))
    terms -= peak if len(peak) == 1 else np.repeat(peak, lengths, axis=0)
    np.exp(terms, out=terms)
    total = np.add.reduceat(terms, starts, axis=0)
    safe_log(total, out=total)
    total += peak
    return total


def dense_log_sum(log_values: FloatArray, weights: FloatArray) -> FloatArray:
    """Log of a weighted sum (n_blocks, n_sums, n) for blocks of sums that share their children.

    One exponential per child of ``log_values`` (n_blocks, n_children, n), one matrix product with
    ``weights`` (n_blocks, n_sums, n_children). A result far below the largest child of its block is
    computed again edge by edge, because its terms may have underflowed.
    """
    peak = finite_peaks(log_values.max(axis=1, keepdims=True))
    # The largest child becomes one, so that no exponential overflows
    scaled = log_values - peak
    np.exp(scaled, out=scaled)
    total = weights @ scaled
    # A sum that gives the largest child no weight may have lost its terms
    lost = np.any(total < TINY, axis=1)
    safe_log(total, out=total)
    total += peak
    if lost.any():
        _sum_edge_by_edge(total, log_values, weights, lost)
    return total


def _sum_edge_by_edge(
    total: FloatArray, log_values: FloatArray, weights: FloatArray, lost: BoolArray
) -> None:
    """Replace the columns marked lost, shape (n_blocks, n), by sums with own maxima."""
    blocks, rows = np.nonzero(lost)
    log_weights = safe_log(weights)
    # The terms have an axis for every edge of a block
    step = max(1, EDGE_TERMS // weights[0].size)
    for first in range(0, len(rows), step):
        block, row = blocks[first : first + step], rows[first : first + step]
        terms = log_weights[block] + log_values[block, :, row][:, None, :]
        peak = finite_peaks(terms.max(axis=-1))
        total[block, :, row] = safe_log(np.exp(terms - peak[..., None]).sum(axis=-1)) + peak


# Beyond this size ten digits after the point of a logarithm are left, for ratios of values.
MAX_LOG = 1e6
# The largest double is exp(709): room is left for what such numbers are multiplied with.
MAX_EXPONENT = 600.0


class SumWeights:
    """Log weights (n_edges,) of all sum edges of a plan, or (n_edges, *batch) for many circuits
    with one structure, which one pass evaluates.
    """

    def __init__(self, log: FloatArray) -> None:
        self.log = log
        self._matrices: dict[int, sparse.csr_matrix] = {}

    def __getstate__(self) -> dict[str, object]:
        """Omit derived attributes."""
        return {"log": self.log, "_matrices": {}}

    @cached_property
    def linear(self) -> FloatArray:
        """Weights on the linear scale."""
        return np.exp(self.log)

    @property
    def is_batch(self) -> bool:
        """Whether every element of the batch has weights of its own."""
        return self.log.ndim > 1

    def with_own_matrices(self) -> SumWeights:
        """Use the same weights for layers that lie elsewhere in a buffer."""
        # Matrices are remembered by first edges, which layers of two buffers have in common.
        shared = SumWeights(self.log)
        shared.linear = self.linear
        return shared

    def matrix(self, layer: SumLayer, n_units: int) -> sparse.csr_matrix:
        """Give a layer's weights as a matrix from all units to its own, made at first use."""
        first = layer.edges.start
        if first not in self._matrices:
            # Columns are all units, so that the product reads the buffer without a gather
            indptr = np.append(layer.starts, len(layer.children))
            parts = self.linear[layer.edges], layer.children, indptr
            shape = len(layer.lengths), n_units
            self._matrices[first] = sparse.csr_matrix(parts, shape)
        return self._matrices[first]


@dataclass(frozen=True)
class ProductLayer:
    """Products with equally many factors."""

    units: slice
    children: IntArray

    @cached_property
    def _scatter(self) -> Scatter:
        return Scatter(self.children.T.ravel())

    @cached_property
    def _factors(self) -> tuple[Rows, ...]:
        return tuple(as_run(factor) for factor in self.children.T)

    def forward_log(self, values: FloatArray, weights: SumWeights) -> None:
        """Add the log values of the factors."""
        out = values[self.units]
        # mode="clip" lets NumPy write straight into the buffer; indices are never out of bounds
        np.take(values, self.children[:, 0], axis=0, out=out, mode="clip")
        for factor in self.children.T[1:]:
            out += values[factor]

    #: The best completion of a product is the best completion of its factors.
    forward_max = forward_log

    def forward_linear(self, values: FloatArray, weights: SumWeights) -> None:
        """Multiply the values of the factors."""
        _multiply(values, self._factors, values[self.units])

    def backward_log(self, flows: FloatArray, log_values: FloatArray, weights: SumWeights) -> None:
        """Hand the flow of each product to all its factors."""
        # Every explanation of a product passes through all its factors.
        arity = self.children.shape[1]
        self._scatter.add(flows, np.tile(flows[self.units], (arity, 1)))

    def backward_linear(
        self, derivatives: FloatArray, values: FloatArray, weights: SumWeights
    ) -> None:
        """Hand the derivative of each product, times the other factors, to each factor."""
        factors = self.children.T
        # Products of the factors after each, then from the left, without divisions.
        after = [derivatives[self.units]]
        for factor in factors[:0:-1]:
            after.append(after[-1] * values[factor])
        before: FloatArray | None = None
        received = np.empty((len(factors), *after[0].shape))
        for out, factor, rest in zip(received, factors, reversed(after)):
            np.multiply(rest, 1.0 if before is None else before, out=out)
            before = values[factor] if before is None else before * values[factor]
        self._scatter.add(derivatives, received.reshape(-1, received.shape[-1]))


@dataclass(frozen=True)
class SumLayer:
    """Weighted sums."""

    units: slice
    edges: slice
    children: IntArray
    lengths: IntArray
    block_shape: tuple[int, int, int] | None = None

    @cached_property
    def starts(self) -> IntArray:
        """First edge of each sum, counted within the layer."""
        return np.cumsum(self.lengths) - self.lengths

    @cached_property
    def sum_of_edge(self) -> IntArray:
        """Position in the buffer of the sum each edge belongs to."""
        return np.repeat(np.arange(self.units.start, self.units.stop), self.lengths)

    def edges_of(self, own: IntArray) -> tuple[IntArray, IntArray]:
        """List the edges of some sums one after the other."""
        # One flat list whatever the lengths: no loop over the sums
        lengths = self.lengths[own]
        first = np.cumsum(lengths) - lengths
        edges = np.arange(lengths.sum()) + np.repeat(self.starts[own] - first, lengths)
        return edges, first

    @cached_property
    def block_children(self) -> IntArray:
        """Children of each block, shape (n_blocks, n_children); a single sum is a block."""
        if self.block_shape is None:
            assert len(self.lengths) == 1
            return self.children[None]
        return self.children.reshape(self.block_shape)[:, 0]

    @cached_property
    def _scatter(self) -> Scatter:
        return Scatter(self.children)

    @cached_property
    def _block_scatter(self) -> Scatter:
        return Scatter(self.block_children.ravel())

    def _use_blocks(self, weights: SumWeights) -> bool:
        """Blocks need one weight matrix for the whole batch."""
        return self.block_shape is not None and not weights.is_batch

    @cached_property
    def _block_rows(self) -> Rows:
        """Children of all blocks, one block after the other."""
        return as_run(self.block_children.ravel())

    def block_values(self, values: FloatArray) -> FloatArray:
        """Give the values of each block's children."""
        return values[self._block_rows].reshape(*self.block_children.shape, -1)

    def _terms(self, values: FloatArray, weights: SumWeights) -> FloatArray:
        """Log of weight times child at each edge, shape (n_edges, *batch)."""
        log_weights = weights.log[self.edges]
        terms = values[self.children]
        # Weights of one circuit serve all rows; a batch of weights has one set for each
        terms += log_weights.reshape(log_weights.shape + (1,) * (terms.ndim - log_weights.ndim))
        return terms

    def forward_log(self, values: FloatArray, weights: SumWeights) -> None:
        """Log-sum-exp of the weighted children."""
        out = values[self.units]
        if self._use_blocks(weights):
            matrices = weights.linear[self.edges].reshape(self.block_shape)
            out[...] = dense_log_sum(self.block_values(values), matrices).reshape(out.shape)
        else:
            out[...] = segment_log_sum(self._terms(values, weights), self.starts, self.lengths)

    def forward_max(self, values: FloatArray, weights: SumWeights) -> None:
        """Largest weighted child."""
        if self._use_blocks(weights) and values.ndim == 2:
            # One shared child after the other, without an array over all edges
            # Zero weights are -inf here, which a maximum passes over
            matrices = weights.log[self.edges].reshape(self.block_shape)
            blocks = values[self.units].reshape(*matrices.shape[:2], -1)
            # One buffer for all terms: allocating per child would cost more than the sums
            term = np.empty_like(blocks[0])
            for best, log_weights, children in zip(blocks, matrices, self.block_children):
                best[...] = -np.inf
                for child, column in zip(children, log_weights.T):
                    np.add(column[:, None], values[child], out=term)
                    np.maximum(best, term, out=best)
            return
        terms = self._terms(values, weights)
        np.maximum.reduceat(terms, self.starts, axis=0, out=values[self.units])

    def forward_linear(self, values: FloatArray, weights: SumWeights) -> None:
        """Weighted sum of (possibly signed) children."""
        out = values[self.units]
        linear = weights.linear[self.edges]
        if self._use_blocks(weights):
            assert self.block_shape is not None
            sums = out.reshape(*self.block_shape[:2], -1)
            np.matmul(linear.reshape(self.block_shape), self.block_values(values), out=sums)
        elif not weights.is_batch and values[0].size >= MANY_VALUES:
            # A sparse product reads each child once and writes no list of terms.
            matrix = weights.matrix(self, len(values))
            out[...] = (matrix @ values.reshape(len(values), -1)).reshape(out.shape)
        elif len(self.lengths) == 1:
            # One sum (the root of a mixture): no list of terms is needed.
            np.einsum("e...,e...->...", linear, values[self.children], out=out[0])
        else:
            terms = values[self.children]
            terms *= linear.reshape(linear.shape + (1,) * (terms.ndim - linear.ndim))
            np.add.reduceat(terms, self.starts, axis=0, out=out)

    def posteriors(self, log_values: FloatArray, weights: SumWeights) -> FloatArray:
        """Probability of each edge given that its sum is reached: θ p_child / p_sum."""
        terms = self.log_posteriors(log_values, weights)
        return np.exp(terms, out=terms)

    def log_posteriors(self, log_values: FloatArray, weights: SumWeights) -> FloatArray:
        """Logarithm of ``posteriors``, shape (n_edges, *batch)."""
        terms = self._terms(log_values, weights)
        own = log_values[self.units]
        # An impossible sum has impossible terms: -inf - 0 stays -inf, where -inf + inf is NaN
        terms -= np.repeat(np.where(np.isneginf(own), 0.0, own), self.lengths, axis=0)
        # Logarithms this large have lost the digits of ratios: these are normalised again.
        if _has_large_logs(own):
            total = np.add.reduceat(np.exp(terms), self.starts, axis=0)
            terms -= np.repeat(np.log(divisors(total)), self.lengths, axis=0)
        return terms

    def backward_log(
        self,
        flows: FloatArray,
        log_values: FloatArray,
        weights: SumWeights,
        counts: FloatArray | None = None,
    ) -> None:
        """Divide the flow of each sum among its children, and add the flows of each edge over rows
        to expected counts of the weights of all sums.
        """
        scaled = self._scaled_blocks(flows, log_values, weights)
        if scaled is not None:
            matrices, ratios, children = scaled
            if counts is not None:
                # Rows are summed by the product itself: no array has an axis for edges and rows
                counts[self.edges] += (ratios @ children.transpose(0, 2, 1) * matrices).ravel()
            received = matrices.transpose(0, 2, 1) @ ratios
            received *= children
            self._block_scatter.add(flows, received.reshape(-1, received.shape[-1]))
            return
        # Ratios of any size: logarithms are subtracted before the exponential is taken.
        edge_flows = self.posteriors(log_values, weights)
        edge_flows *= np.repeat(flows[self.units], self.lengths, axis=0)
        if counts is not None:
            counts[self.edges] += edge_flows.sum(axis=1)
        self._scatter.add(flows, edge_flows)

    def _scaled_blocks(
        self, flows: FloatArray, log_values: FloatArray, weights: SumWeights
    ) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Weights, flows over values of the sums, and values of the children over the largest,
        whose products are flows of edges; None without blocks, or where digits would be lost.
        """
        if not self._use_blocks(weights):
            return None
        assert self.block_shape is not None
        n_blocks, n_sums, _ = self.block_shape
        children = self.block_values(log_values)
        peak = finite_peaks(children.max(axis=1, keepdims=True))
        own = log_values[self.units].reshape(n_blocks, n_sums, -1)
        flow = flows[self.units].reshape(own.shape)
        # Sums that are not reached may be impossible: their ratio would be 0 / 0
        exponent = np.where(flow > 0, peak - own, 0.0)
        if exponent.max(initial=0.0) > MAX_EXPONENT or _has_large_logs(own):
            return None
        matrices = weights.linear[self.edges].reshape(self.block_shape)
        return matrices, flow * np.exp(exponent), np.exp(children - peak)

    def backward_linear(
        self, derivatives: FloatArray, values: FloatArray, weights: SumWeights
    ) -> None:
        """Hand the derivative of each sum, times the weights, to its children."""
        own = derivatives[self.units]
        if self.block_shape is None:
            received = np.repeat(own, self.lengths, axis=0)
            received *= weights.linear[self.edges][:, None]
            self._scatter.add(derivatives, received)
            return
        matrices = weights.linear[self.edges].reshape(self.block_shape)
        received = matrices.transpose(0, 2, 1) @ own.reshape(*self.block_shape[:2], -1)
        self._block_scatter.add(derivatives, received.reshape(-1, own.shape[1]))


@dataclass(frozen=True)
class BlockLayer:
    """A lowered plan's block of sums over the same children, and products that only it reads."""

    units: slice
    edges: slice
    factors: tuple[IntArray, ...]  # rows of the 1st, 2nd, ... of each child; one entry: no products

    @cached_property
    def _rows(self) -> tuple[Rows, ...]:
        return tuple(as_run(factor) for factor in self.factors)

    def forward_linear(self, values: FloatArray, weights: SumWeights) -> None:
        """Multiply the factors, then mix: the products are in no buffer."""
        matrix = weights.linear[self.edges].reshape(-1, len(self.factors[0]))
        children = _multiply(values, self._rows)
        np.matmul(matrix, children, out=values[self.units])


def _multiply(
    values: FloatArray, factors: tuple[Rows, ...], out: FloatArray | None = None
) -> FloatArray:
    """Element-wise product of some rows of the buffer."""
    if len(factors) == 1:
        if out is None:
            return _gather(values, factors[0])
        out[...] = _gather(values, factors[0])
        return out
    # The first two factors at once: no copy of either is made
    result = np.multiply(_gather(values, factors[0]), _gather(values, factors[1]), out=out)
    for rows in factors[2:]:
        result *= _gather(values, rows)
    return result


def _gather(values: FloatArray, rows: Rows) -> FloatArray:
    """Some rows of the buffer; those of a slice without a copy."""
    return values[rows] if isinstance(rows, slice) else values.take(rows, axis=0)


def _has_large_logs(log_values: FloatArray) -> bool:
    """Tell whether possible values are so small or large that their ratios lose digits."""
    return bool(((np.abs(log_values) > MAX_LOG) & ~np.isneginf(log_values)).any())
