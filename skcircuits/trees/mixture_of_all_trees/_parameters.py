"""Unconstrained parameters of a mixture of all trees, and the gradient in them."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._all_trees import MixtureOfAllTrees
from skcircuits.trees.mixture_of_all_trees._contrasts import (
    from_contrasts,
    sum_contrasts,
    to_contrasts,
)
from skcircuits.trees.mixture_of_all_trees._margins import margin_gradient, scale_to_margins
from skcircuits.trees.tree._layout import StateLayout
from skcircuits.trees.tree._statistics import PairStatistics

__all__ = ["Parameterization"]

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
    contrasts of the logarithms of the pair tables, which `scale_to_margins` makes consistent.
    It covers every positive model once, but for a constant that may be added to all log
    weights or to the logits of a node.

    Parameters
    ----------
    layout : StateLayout
        Numbering of the states.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import Parameterization, StateLayout
    >>> parameterization = Parameterization(StateLayout([2, 3]))
    >>> model = parameterization.model(np.zeros(parameterization.size))
    >>> model.log_prob(np.array([[0, 0]])) == -np.log(6)
    array([ True])
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

        Parameters
        ----------
        weights : ndarray of shape (n_variables, n_variables)
            Positive symmetric edge weights.
        statistics : PairStatistics
            Positive, consistent probabilities.

        Returns
        -------
        ndarray of shape (size,)
            Parameters.
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

        Parameters
        ----------
        vector : ndarray of shape (size,)
            Parameters.

        Returns
        -------
        MixtureOfAllTrees
            The model.
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

        Parameters
        ----------
        model : MixtureOfAllTrees
            What `model` made of the parameters.
        codes : ndarray of shape (n_rows, n_variables)
            Complete rows, best without repetitions.
        sample_weight : ndarray of shape (n_rows,)
            Weight of each row.
        n_jobs : int, default=None
            Threads; the result does not depend on their number.

        Returns
        -------
        log_likelihood : float
            Weighted sum of the log probabilities.
        gradient : ndarray of shape (size,)
            Its derivatives with respect to the parameters.
        """
        layout = self.layout
        log_sums, counts = model.laplacians().edge_counts(codes, sample_weight, n_jobs=n_jobs)
        log_prob = log_sums + model.log_normaliser(codes)
        gradient = np.empty(self.size)
        parts = self._parts(gradient)
        total = sample_weight.sum()
        # What the edge does in the rows, less what it does without any.
        edge_sums = layout.sum_states(layout.sum_states(counts).T)
        parts.log_weights[:] = layout.pair_values(edge_sums - total * model.tree_law[1])
        # A state's own factor P_u(x_u)^(1 - degree), then its share as a margin of the tables.
        by_nodes = (layout.state_counts(codes, sample_weight) - counts.sum(axis=1)) / model.nodes
        for group, by_contrasts in zip(layout.pair_groups, parts.contrasts, strict=True):
            cells = group.rows, group.columns
            rows, columns = cells[0][:, :, 0], cells[1][:, 0, :]
            by_logits, by_rows, by_columns = margin_gradient(
                model.pairs[cells], model.nodes[rows], model.nodes[columns], counts[cells]
            )
            by_contrasts[:] = sum_contrasts(by_logits)
            # A state is a margin of as many tables as there are other variables.
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
        """Pair tables with the probabilities of rows and columns as margins."""
        logits = from_contrasts(contrasts, (rows.shape[1], columns.shape[2]))
        return scale_to_margins(np.exp(logits) * rows * columns, rows[:, :, 0], columns[:, 0, :])

    def _nodes(self, logits: FloatArray) -> FloatArray:
        largest = np.maximum.reduceat(logits, self.layout.offsets)[self.layout.owner]
        scaled = np.exp(logits - largest)
        return scaled / self.layout.sum_states(scaled)[self.layout.owner]
