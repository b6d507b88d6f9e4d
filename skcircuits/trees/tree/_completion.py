"""Complete the rows a model is to be learned from."""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.tree._chow_liu import chow_liu_tree
from skcircuits.trees.tree._inference import TreeInference
from skcircuits.trees.tree._layout import StateLayout

__all__ = ["complete_rows"]

_N_ROUNDS = 5  # a Chow-Liu tree settles within a few rounds of fitting and drawing


def complete_rows(
    codes: IntArray,
    layout: StateLayout,
    rng: np.random.Generator,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> IntArray:
    """Fill missing cells with draws from a Chow-Liu tree given the observed cells.

    Starts from draws of each column alone, then fits a tree and draws from it in turns
    (stochastic expectation maximisation).

    Parameters
    ----------
    codes : ndarray of shape (n_rows, n_variables)
        Rows, -1 where a cell is missing.
    layout : StateLayout
        Numbering of the states.
    rng : numpy.random.Generator
        Source of randomness.
    sample_weight : ndarray of shape (n_rows,), default=None
        Weight of each row; 1 without.
    pseudo_count : float, default=1.0
        Smoothing of the trees.

    Returns
    -------
    ndarray of shape (n_rows, n_variables)
        Complete rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import StateLayout, complete_rows
    >>> codes = np.array([[0, 0], [1, 1], [-1, 1]] * 20)
    >>> complete = complete_rows(codes, StateLayout([2, 2]), np.random.default_rng(0))
    >>> bool(complete[2::3, 0].mean() > 0.8)
    True
    """
    holes = np.flatnonzero((codes < 0).any(axis=1))
    if not len(holes):
        return codes
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    evidence = layout.evidence(codes[holes])
    nodes = weight @ layout.one_hot(codes) + pseudo_count / layout.cardinalities[layout.owner]
    nodes = nodes / layout.sum_states(nodes)[layout.owner]
    # A star without dependence: the first draws are from each column alone.
    parents = np.zeros(layout.n_variables, dtype=np.int64)
    parents[0] = -1
    ratios = np.ones((layout.n_states, layout.n_states))  # independent columns
    complete = codes.copy()
    for _ in range(_N_ROUNDS):
        # Only rows with holes are drawn; all rows shape the next tree.
        inference = TreeInference(parents[None], layout, nodes, ratios, evidence[None])
        complete[holes] = inference.sample(rng)[0]
        tree = chow_liu_tree(complete, layout, sample_weight=weight, pseudo_count=pseudo_count)
        parents, (nodes, pairs) = tree.parents, tree.statistics
        ratios = pairs / nodes[:, None] / nodes
    return complete
