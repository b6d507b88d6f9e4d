"""Tree distributions as circuits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from skcircuits.circuits import Circuit, Product, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._all_trees import MixtureOfAllTrees
from skcircuits.trees.mixture_of_all_trees._all_trees_mixture import AllTreesMixture
from skcircuits.trees.mixture_of_all_trees._prior_trees import sample_trees
from skcircuits.trees.tree._chow_liu import ChowLiuTree
from skcircuits.trees.tree._rooted import children_of, edges_of, top_down_order

__all__ = ["InputMaker", "sampled_circuit", "tree_unit"]

#: Makes an input unit from a variable and the probabilities of its states.
InputMaker = Callable[[int, FloatArray], Unit]


def sampled_circuit(
    mixture: AllTreesMixture, n_trees: int, rng: np.random.Generator, make_input: InputMaker
) -> Circuit:
    """Write a mixture of trees drawn from a mixture of all trees as one circuit.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    n_trees : int
        Number of trees to draw; equal ones are merged.
    rng : numpy.random.Generator
        Source of randomness.
    make_input : callable
        ``make_input(variable, probabilities)`` gives the input unit of a variable.

    Returns
    -------
    Circuit
        A smooth and decomposable mixture of tree distributions.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Categorical
    >>> from skcircuits.trees import AllTreesMixture, Parameterization, StateLayout
    >>> from skcircuits.trees import sampled_circuit
    >>> parameterization = Parameterization(StateLayout([2, 2, 2]))
    >>> model = parameterization.model(np.zeros(parameterization.size))
    >>> mixture = AllTreesMixture(np.zeros(1), [model])
    >>> circuit = sampled_circuit(mixture, 5, np.random.default_rng(0), Categorical)
    >>> np.exp(circuit.log_prob(np.zeros((1, 3))))
    array([0.125])
    """
    components, parents = sample_trees(mixture, n_trees, rng)
    # The order of the edges and the choice of the root do not make another tree.
    edges = np.sort(edges_of(parents), axis=2)
    codes = np.sort(edges[:, :, 0] * parents.shape[1] + edges[:, :, 1], axis=1)
    _, first, counts = np.unique(
        np.column_stack([components, codes]), axis=0, return_index=True, return_counts=True
    )
    units = [
        tree_unit(mixture.components[component], parent, make_input)
        for component, parent in zip(components[first], parents[first], strict=True)
    ]
    return Circuit(Sum(units, weights=list(counts / n_trees)) if len(units) > 1 else units[0])


def tree_unit(
    model: MixtureOfAllTrees | ChowLiuTree, parents: IntArray, make_input: InputMaker
) -> Unit:
    """Write one tree of a mixture of all trees as a unit.

    Parameters
    ----------
    model : MixtureOfAllTrees or ChowLiuTree
        Whose pair tables the tree has.
    parents : ndarray of shape (n_variables,)
        Parent of each variable, -1 at the root.
    make_input : callable
        ``make_input(variable, probabilities)`` gives the input unit of a variable.

    Returns
    -------
    Unit
        A leaf of the tree is one input unit per state of its parent, an inner variable a sum
        over its own states; subtrees are shared by all states above them.
    """
    children = children_of(parents)
    below: dict[int, list[Unit]] = {}  # per variable its subtree given each parent state
    for variable in top_down_order(parents[None])[0, ::-1]:
        conditionals = _conditionals(model, variable, parents[variable])
        # Bottom-up without recursion: a path of a thousand variables is no problem.
        subtrees = [below.pop(child) for child in children[variable]]
        below[int(variable)] = _conditional_units(int(variable), conditionals, subtrees, make_input)
    return below[int(np.flatnonzero(parents < 0)[0])][0]


def _conditionals(model: MixtureOfAllTrees | ChowLiuTree, variable: int, above: int) -> FloatArray:
    """Probabilities of the states of a variable, a row per state of the variable above."""
    layout = model.layout
    states = np.flatnonzero(layout.owner == variable)
    if above < 0:
        return model.nodes[None, states]
    rows = np.flatnonzero(layout.owner == above)
    joint = model.pairs[np.ix_(rows, states)]
    return joint / joint.sum(axis=1, keepdims=True)


def _conditional_units(
    variable: int, conditionals: FloatArray, subtrees: list[list[Unit]], make_input: InputMaker
) -> list[Unit]:
    """A variable and all below it, given each state of its parent."""
    # A leaf needs no sum over its states: the input unit does that itself.
    if not subtrees:
        return [make_input(variable, probabilities) for probabilities in conditionals]
    indicators = np.eye(conditionals.shape[1])
    branches = [
        Product([make_input(variable, indicator), *(subtree[state] for subtree in subtrees)])
        for state, indicator in enumerate(indicators)
    ]
    # A constant column needs no sum.
    if len(branches) == 1:
        return [branches[0]] * len(conditionals)
    return [Sum(branches, weights=list(probabilities)) for probabilities in conditionals]
