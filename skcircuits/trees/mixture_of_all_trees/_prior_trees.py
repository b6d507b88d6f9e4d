"""Trees and rows drawn from a mixture of all trees."""

from __future__ import annotations

import numpy as np

from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import IntArray
from skcircuits.trees.mixture_of_all_trees._all_trees_mixture import AllTreesMixture
from skcircuits.trees.spanning._sampling import sample_spanning_trees
from skcircuits.trees.tree._inference import TreeInference

__all__ = ["sample_rows", "sample_trees"]


def sample_trees(
    mixture: AllTreesMixture, n_trees: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw components from their weights, and a spanning tree from the prior of each.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    n_trees : int
        Number of trees.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    components : ndarray of shape (n_trees,)
        Component of each tree.
    parents : ndarray of shape (n_trees, n_variables)
        Parents in each tree, -1 at the roots.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import AllTreesMixture, Parameterization, StateLayout, sample_trees
    >>> parameterization = Parameterization(StateLayout([2, 2]))
    >>> model = parameterization.model(np.zeros(parameterization.size))
    >>> mixture = AllTreesMixture(np.zeros(1), [model])
    >>> sample_trees(mixture, 2, np.random.default_rng(0))
    (array([0, 0]), array([[-1,  0],
           [-1,  0]]))
    """
    # Without the last share, which may round below one.
    cumulative = np.cumsum(np.exp(mixture.log_weights))[:-1]
    components = np.searchsorted(cumulative, rng.random(n_trees), side="right")
    weights = np.stack([component.weights for component in mixture.components])
    return components, sample_spanning_trees(weights, components, rng)


def sample_rows(mixture: AllTreesMixture, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw rows: a component, a tree of it, then the variables from its root down.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    n_rows : int
        Number of rows.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_rows, n_variables)
        Exact independent draws.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import AllTreesMixture, Parameterization, StateLayout, sample_rows
    >>> parameterization = Parameterization(StateLayout([2, 2, 3]))
    >>> model = parameterization.model(np.zeros(parameterization.size))
    >>> mixture = AllTreesMixture(np.zeros(1), [model])
    >>> sample_rows(mixture, 5, np.random.default_rng(0)).shape
    (5, 3)
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
