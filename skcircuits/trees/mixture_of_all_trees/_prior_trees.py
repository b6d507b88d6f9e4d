"""Trees, rows and circuits of trees drawn from a mixture of all trees."""

from __future__ import annotations

import numpy as np

from skcircuits.circuits import Circuit, Sum
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import IntArray
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture
from skcircuits.trees.spanning._sampling import sample_spanning_trees
from skcircuits.trees.tree._circuit import InputMaker, conditional_tables, tree_unit
from skcircuits.trees.tree._inference import TreeInference
from skcircuits.trees.tree._rooted import edges_of


def sample_trees(
    mixture: AllTreesMixture, n_trees: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw components from their weights, and a spanning tree from the prior of each.

    Gives `components` (n_trees,), `parents` (n_trees, n_variables).
    """
    # Without the last fraction, which may round below one.
    cumulative = np.cumsum(np.exp(mixture.log_weights))[:-1]
    components = np.searchsorted(cumulative, rng.random(n_trees), side="right")
    weights = np.stack([component.weights for component in mixture.components])
    return components, sample_spanning_trees(weights, components, rng)


def sample_rows(mixture: AllTreesMixture, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw rows: a component, a tree of it, then the variables from its root down.

    Gives (n_rows, n_variables).
    """
    layout = mixture.layout
    components, parents = sample_trees(mixture, n_rows, rng)
    rows = np.empty((n_rows, layout.n_variables), dtype=np.int64)
    nothing_observed = np.ones((1, 1, layout.n_states))
    for component, model in enumerate(mixture.components):
        mine = np.flatnonzero(components == component)
        # One tree and one row each: the upward pass has nothing to collect, the downward
        # pass draws.
        ratios = model.ratios()
        for chunk in memory_bound_chunks(len(mine), 64 * layout.n_states):
            trees = mine[chunk]
            inference = TreeInference(parents[trees], layout, model.nodes, ratios, nothing_observed)
            rows[trees] = inference.sample(rng)[:, 0]
    return rows


def sampled_circuit(
    mixture: AllTreesMixture, n_trees: int, rng: np.random.Generator, make_input: InputMaker
) -> Circuit:
    """Write a mixture of trees drawn from a mixture of all trees as one circuit."""
    components, parents = sample_trees(mixture, n_trees, rng)
    # The order of the edges and the choice of the root do not make another tree.
    edges = np.sort(edges_of(parents), axis=2)
    codes = np.sort(edges[:, :, 0] * parents.shape[1] + edges[:, :, 1], axis=1)
    _, first, counts = np.unique(
        np.column_stack([components, codes]), axis=0, return_index=True, return_counts=True
    )
    units = [
        tree_unit(conditional_tables(mixture.components[i], parent), parent, make_input)
        for i, parent in zip(components[first], parents[first], strict=True)
    ]
    return Circuit(Sum(units, weights=list(counts / n_trees)) if len(units) > 1 else units[0])
