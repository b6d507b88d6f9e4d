"""Chow-Liu trees of incomplete rows, and trees as circuits."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits import Categorical, Circuit, Indicator, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees import (
    ChowLiuTree,
    PairStatistics,
    StateLayout,
    TreeMixture,
    conditional_tables,
    maximum_spanning_tree,
    tree_unit,
)
from skcircuits.trees.tree._layout import root_at_center


def observed_tree(
    codes: IntArray,
    layout: StateLayout,
    statistics: PairStatistics,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> ChowLiuTree:
    """Learn the tree from pairs of observed cells, its tables given.

    `codes` (n, n_variables), `sample_weight` (n,).
    """
    information = observed_information(
        codes, layout, sample_weight=sample_weight, pseudo_count=pseudo_count
    )
    return ChowLiuTree(layout, maximum_spanning_tree(information), statistics)


def observed_information(
    codes: IntArray,
    layout: StateLayout,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> FloatArray:
    """Mutual information of every pair of variables, from the rows that have both.

    Each pair table is smoothed and normalised by itself and has marginals of its own, so that its
    mutual information is that of a distribution whatever cells are missing elsewhere.

    `codes` (n, n_variables), `sample_weight` (n,) -> (n_variables, n_variables).
    """
    indicators = layout.one_hot(codes)
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    uniform = 1.0 / layout.cardinalities[layout.owner]
    pairs = (indicators * weight[:, None]).T @ indicators
    pairs += pseudo_count * np.outer(uniform, uniform)
    totals = layout.sum_states(layout.sum_states(pairs).T).T[layout.owner][:, layout.owner]
    pairs /= np.where(totals > 0, totals, 1.0)
    # rows[a, v]: probability of state a in the table with variable v.
    rows = layout.sum_states(pairs)[:, layout.owner]
    product = rows * rows.T
    ratio = np.divide(pairs, product, out=np.ones_like(pairs), where=pairs > 0)
    information = layout.sum_states(layout.sum_states(pairs * np.log(ratio)).T).T
    np.fill_diagonal(information, 0.0)
    return np.maximum(information, 0.0)


def mixture_circuit(mixture: TreeMixture) -> Circuit:
    """Write a mixture of trees as a circuit."""
    units = []
    for tree in mixture.trees:
        parents = root_at_center(tree.parents)  # the shallowest circuit
        units.append(tree_unit(conditional_tables(tree, parents), parents, _input))
    if len(units) == 1:
        return Circuit(units[0])
    return Circuit(Sum(units, weights=np.exp(mixture.log_weights)))


def _input(variable: int, probabilities: FloatArray) -> Unit:
    """An indicator where one state has all mass, a categorical unit elsewhere."""
    if len(probabilities) > 1 and probabilities.max() == 1.0:
        return Indicator(variable, int(probabilities.argmax()), len(probabilities))
    return Categorical(variable, probabilities)
