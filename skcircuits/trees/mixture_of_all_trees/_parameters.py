"""Unconstrained parameters of a mixture of all trees, and the gradient in them."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from scipy.linalg import helmert

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._marginal_scaling import (
    marginal_gradient,
    scale_to_marginals,
)
from skcircuits.trees.mixture_of_all_trees._model import MixtureOfAllTrees
from skcircuits.trees.tree._layout import StateLayout
from skcircuits.trees.tree._statistics import PairStatistics

# Bounds of the parameters (natural logarithms): a factor exp(18) between the weakest and the
# strongest edge, and odds ratios of two binary variables within exp(±48). Few models within them
# are too badly conditioned to be evaluated; beyond, many are.
_LOG_WEIGHT_BOUND = 9.0
_CONTRAST_BOUND = 12.0
# Least probability of a state against the most probable one: far below one row in a table.
_LOG_NODE_BOUND = 25.0


class _Parts(NamedTuple):
    log_weights: FloatArray  # (n_pairs,)
    node_logits: FloatArray  # (n_states,)
    contrasts: list[FloatArray]  # per pair group (n_pairs, k_first - 1, k_second - 1)


class Parameterization:
    """One flat vector of real numbers for every positive mixture of all trees.

    The vector holds the logarithms of the edge weights, logits of the node probabilities and
    contrasts of the logarithms of the pair tables, which `scale_to_marginals` makes consistent. It
    covers every positive model once, but for a constant that may be added to all log weights or to
    the logits of a node.

    `layout`: numbering of the states.
    """

    def __init__(self, layout: StateLayout) -> None:
        self.layout = layout
        sizes = [len(layout.pairs[0]), layout.n_states]
        self._contrast_shapes = [
            (n_pairs, k_first - 1, k_second - 1)
            for n_pairs, k_first, k_second in (group.shape for group in layout.pair_groups)
        ]
        sizes += [prod(shape) for shape in self._contrast_shapes]
        self._ends = np.cumsum(sizes)
        self.size = int(self._ends[-1])

    def vector(self, weights: FloatArray, statistics: PairStatistics) -> FloatArray:
        """Parameters of the model with these weights and positive probabilities.

        `weights` (n_variables, n_variables) -> (size,).
        """
        vector = np.empty(self.size)
        parts = self._parts(vector)
        parts.log_weights[:] = np.log(self.layout.pair_values(weights))
        parts.node_logits[:] = np.log(statistics.nodes)
        for group, contrasts in zip(self.layout.pair_groups, parts.contrasts, strict=True):
            contrasts[:] = to_contrasts(np.log(statistics.pairs[group.rows, group.columns]))
        return self.bounded(vector)

    def bounded(self, vector: FloatArray) -> FloatArray:
        """Shift and clip all parameters into their bounds, in place."""
        parts = self._parts(vector)
        if len(parts.log_weights):
            middle = (parts.log_weights.max() + parts.log_weights.min()) / 2
            parts.log_weights[:] -= middle
        largest = np.maximum.reduceat(parts.node_logits, self.layout.offsets)
        parts.node_logits[:] -= largest[self.layout.owner]
        np.maximum(parts.node_logits, -_LOG_NODE_BOUND, out=parts.node_logits)
        np.clip(parts.log_weights, -_LOG_WEIGHT_BOUND, _LOG_WEIGHT_BOUND, out=parts.log_weights)
        for contrasts in parts.contrasts:
            np.clip(contrasts, -_CONTRAST_BOUND, _CONTRAST_BOUND, out=contrasts)
        return vector

    def model(self, vector: FloatArray) -> MixtureOfAllTrees:
        """The mixture of all trees with these parameters.

        `vector` (size,).
        """
        parts = self._parts(vector)
        nodes = self._nodes(parts.node_logits)
        # Group by group: all tables at once would take as much as the model
        tables = (
            self._scaled_tables(nodes[group.rows], nodes[group.columns], contrasts)
            for group, contrasts in zip(self.layout.pair_groups, parts.contrasts, strict=True)
        )
        weights = self.layout.pair_matrix(np.exp(parts.log_weights))
        return MixtureOfAllTrees(self.layout, weights, nodes, self.layout.state_matrix(tables))

    def gradient(
        self,
        model: MixtureOfAllTrees,
        codes: IntArray,
        sample_weight: FloatArray,
        *,
        n_jobs: int | None = None,
    ) -> tuple[float, FloatArray]:
        """Log-likelihood of weighted rows and its gradient.

        `codes` (n_rows, n_variables), `sample_weight` (n_rows,) -> `gradient` (size,).
        """
        layout = self.layout
        log_sums, counts = model.laplacians().edge_counts(codes, sample_weight, n_jobs=n_jobs)
        log_prob = log_sums + model.log_normaliser(codes)
        gradient = np.empty(self.size)
        parts = self._parts(gradient)
        total = sample_weight.sum()
        # What the edge does in the rows, less what it does without any.
        edge_sums = layout.sum_states(layout.sum_states(counts).T)
        parts.log_weights[:] = layout.pair_values(edge_sums - total * model.tree_distribution[1])
        # A state's own factor P_u(x_u)^(1 - degree), then its fraction as a marginal of the tables.
        by_nodes = (layout.state_counts(codes, sample_weight) - counts.sum(axis=1)) / model.nodes
        for group, by_contrasts in zip(layout.pair_groups, parts.contrasts, strict=True):
            cells = group.rows, group.columns
            rows, columns = cells[0][:, :, 0], cells[1][:, 0, :]
            by_logits, by_rows, by_columns = marginal_gradient(
                model.pairs[cells], model.nodes[rows], model.nodes[columns], counts[cells]
            )
            by_contrasts[:] = sum_contrasts(by_logits)
            # A state is a marginal of as many tables as there are other variables.
            np.add.at(by_nodes, rows, by_rows)
            np.add.at(by_nodes, columns, by_columns)
        # Back through the softmax.
        by_logits_of_nodes = model.nodes * by_nodes
        sums = layout.sum_states(by_logits_of_nodes)[layout.owner]
        parts.node_logits[:] = by_logits_of_nodes - model.nodes * sums
        return float(sample_weight @ log_prob), gradient

    def _parts(self, vector: FloatArray) -> _Parts:
        """Views of the vector."""
        log_weights, node_logits, *flat = np.split(vector, self._ends[:-1])
        shapes = zip(self._contrast_shapes, flat, strict=True)
        return _Parts(log_weights, node_logits, [part.reshape(shape) for shape, part in shapes])

    @staticmethod
    def _scaled_tables(rows: FloatArray, columns: FloatArray, contrasts: FloatArray) -> FloatArray:
        """Pair tables with the probabilities of rows and columns as marginals."""
        logits = from_contrasts(contrasts, (rows.shape[1], columns.shape[2]))
        return scale_to_marginals(np.exp(logits) * rows * columns, rows[:, :, 0], columns[:, 0, :])

    def _nodes(self, logits: FloatArray) -> FloatArray:
        largest = np.maximum.reduceat(logits, self.layout.offsets)[self.layout.owner]
        scaled = np.exp(logits - largest)
        return scaled / self.layout.sum_states(scaled)[self.layout.owner]


def from_contrasts(contrasts: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Tables with these coordinates; their rows and columns sum to zero.

    `contrasts` (n_tables, n_rows - 1, n_columns - 1) -> (n_tables, n_rows, n_columns).
    """
    corners = [_corners(size) for size in shape]
    tables: FloatArray = corners[0] @ contrasts @ corners[1].T
    return tables


def sum_contrasts(tables: FloatArray) -> FloatArray:
    """Pull derivatives by the cells back to the coordinates: the adjoint of `from_contrasts`.

    `tables` (n_tables, n_rows, n_columns) -> (n_tables, n_rows - 1, n_columns - 1).
    """
    n_rows, n_columns = tables.shape[1:]
    sums: FloatArray = _corners(n_rows).T @ tables @ _corners(n_columns)
    return sums


def to_contrasts(tables: FloatArray) -> FloatArray:
    """Coordinates of tables, disregarding a function of the row and one of the column.

    `tables` (n_tables, n_rows, n_columns) -> (n_tables, n_rows - 1, n_columns - 1).
    """
    # The corners are orthogonal but not of unit length over the states
    fractions = [(size - 1) / size for size in tables.shape[1:]]
    return np.multiply(sum_contrasts(tables), np.prod(fractions))


def _corners(n_states: int) -> FloatArray:
    """Corners of a regular simplex around the origin, at distance one: (n_states, n_states - 1).

    For two states they are 1 and -1.
    """
    if n_states == 1:
        return np.zeros((1, 0))
    corners: FloatArray = helmert(n_states).T * np.sqrt(n_states / (n_states - 1))
    return corners
