"""Spanning-tree laws that stand in for the law of the tree given observed cells.

Given complete rows a tree is drawn from edge weights ``w_uv r_uv(x_u, x_v)``; given some cells
e only, its law ``P(T) P(e|T)`` is no longer a product over edges. A close simple product has
the weights ``w_uv r̂_uv``, with r̂_uv an average of r_uv over the states that u and v may take:

1. Every variable follows its own margin q_u, restricted to the states that e allows:
   ``r̂⁰_uv = Σ_ab q_u(a) r_uv(a, b) q_v(b)``.
2. One end of the edge also listens to its other neighbours in the tree. With ``π_uw`` the
   probability of the edge under the law of the first step, the expected message of w is
   ``1 - π_uw + π_uw Σ_b r_uw(a, b) q_w(b)``, and ``b_{u∖v}(a) ∝ q_u(a) Π_{w≠v}`` of these is
   what u is likely to be before the edge itself is considered, as in belief propagation. The
   edge (u, v) counts what either end adds in this way: ``r̂_uv = r̂_{u∖v} r̂_{v∖u} / r̂⁰_uv``, with
   ``r̂_{u∖v} = Σ_ab b_{u∖v}(a) r_uv(a, b) q_v(b)``.

The law is exact when no cell, one cell or every cell is observed.
"""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._all_trees import MixtureOfAllTrees
from skcircuits.trees.spanning._laplacian import log_tree_sums, spanning_tree_laws
from skcircuits.trees.tree._layout import StateLayout
from skcircuits.trees.tree._rooted import edges_of

__all__ = ["TreeProposal"]


class TreeProposal:
    """The laws of the trees of one mixture of all trees given each of several rows.

    Parameters
    ----------
    model : MixtureOfAllTrees
        The model.
    evidence : ndarray of shape (n_rows, n_states)
        Factors on the states, see `StateLayout.evidence`; every variable keeps a possible
        state.

    Attributes
    ----------
    weights : ndarray of shape (n_rows, n_variables, n_variables)
        Edge weights of the laws.
    log_mass : ndarray of shape (n_rows,)
        Log of ``Π_u P_u(e_u)`` times the sum over all trees of ``P(T) Π_{uv∈T} r̂_uv``: the
        approximation of the probability of the evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import Parameterization, StateLayout, TreeProposal
    >>> parameterization = Parameterization(StateLayout([2, 2]))
    >>> model = parameterization.model(np.zeros(parameterization.size))
    >>> np.exp(TreeProposal(model, np.array([[0.0, 1, 1, 1]])).log_mass)
    array([0.5])
    """

    def __init__(self, model: MixtureOfAllTrees, evidence: FloatArray) -> None:
        layout = model.layout
        allowed = model.nodes * evidence
        margins = layout.sum_states(allowed)
        allowed /= margins[:, layout.owner]
        # The same vertex for all rows: no row depends on those beside it, not even by rounding.
        root = int(model.weights.sum(axis=1).argmax())
        # Σ_b r_uv(a, b) q_v(b) per flat state of u and variable v.
        messages = np.add.reduceat(allowed[:, None, :] * model.ratios(), layout.offsets, axis=2)
        mean_ratios = np.add.reduceat(messages * allowed[:, :, None], layout.offsets, axis=1)
        _, edges = spanning_tree_laws(model.weights * mean_ratios, root)
        beliefs = _beliefs(allowed, messages, edges, layout)
        one_end = np.add.reduceat(messages * beliefs, layout.offsets, axis=1)
        diagonal = np.arange(layout.n_variables)
        mean_ratios[:, diagonal, diagonal] = 1.0  # no edge: never looked up
        mean_ratios = one_end * one_end.transpose(0, 2, 1) / mean_ratios
        log_margins: FloatArray = np.log(margins).sum(axis=1)
        self.weights: FloatArray = model.weights * mean_ratios
        self.log_mass = log_margins + log_tree_sums(self.weights, root) - model.tree_law[0]
        mean_ratios[:, diagonal, diagonal] = 1.0
        self._log_margins = log_margins
        self._log_mean_ratios: FloatArray = np.log(mean_ratios)

    def log_evidence(self, parents: IntArray, rows: IntArray) -> FloatArray:
        """What the law takes for the probability of the evidence in given trees.

        Parameters
        ----------
        parents : ndarray of shape (n_trees, n_variables)
            Parents in each tree, -1 at the roots.
        rows : ndarray of shape (n_trees,)
            The row each tree belongs to.

        Returns
        -------
        ndarray of shape (n_trees,)
            Log of ``Π_u P_u(e_u) Π_{uv∈T} r̂_uv``.
        """
        edges = edges_of(parents)
        log_ratios = self._log_mean_ratios[rows[:, None], edges[:, :, 0], edges[:, :, 1]]
        return self._log_margins[rows] + log_ratios.sum(axis=1)


def _beliefs(
    allowed: FloatArray, messages: FloatArray, edges: FloatArray, layout: StateLayout
) -> FloatArray:
    """Distribution of every u without the message of v, (n_rows, flat states of u, v)."""
    # A variable sends itself no message, since its probability of an edge is zero.
    log_messages = np.log1p(edges[:, layout.owner] * (messages - 1.0))
    with np.errstate(divide="ignore"):
        log_beliefs = np.log(allowed) + log_messages.sum(axis=2)
    log_beliefs = log_beliefs[:, :, None] - log_messages
    largest = np.maximum.reduceat(log_beliefs, layout.offsets, axis=1)
    beliefs: FloatArray = np.exp(log_beliefs - largest[:, layout.owner])
    beliefs /= np.add.reduceat(beliefs, layout.offsets, axis=1)[:, layout.owner]
    return beliefs
