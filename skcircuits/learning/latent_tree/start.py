"""Where latent Chow-Liu trees start: the tree, and clusters as latent states.

Random parameters end in poor optima. Here the latent variable of a column starts as a
clustering of the rows by the columns that know most about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.learning.latent_tree._belief_propagation import LatentTotals
from skcircuits.learning.latent_tree._emissions import EmissionGroup
from skcircuits.learning.latent_tree._tree import LatentTree
from skcircuits.learning.parameters._leaf_statistics import ColumnMoments
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees import (
    StateLayout,
    maximum_spanning_tree,
    mutual_information,
    pair_statistics,
)
from skcircuits.trees.tree._rooted import root_at_center

__all__ = ["LatentRows", "cluster_hidden_states", "start_latent_tree"]

Points = NDArray[np.floating[Any]]  # float32 is enough for clusters

_MAX_ROWS = 4000
_MAX_NEIGHBORS = 64  # columns that take part in the clustering for one column
_N_CLUSTER_STEPS = 3
_OWN_WEIGHT = 2.0  # of the column itself, relative to the strongest mutual information
_NOISE = 0.5  # most random weight added to each count of a transition


@dataclass(frozen=True)
class LatentRows:
    """Training rows of a latent tree.

    Parameters
    ----------
    X : ndarray of shape (n, n_variables)
        Codes of categorical columns and numbers of continuous ones, NaN where missing.
    weight : ndarray of shape (n,)
        Weight of each row.
    states : ndarray of shape (n, n_variables)
        Complete codes of all columns, numbers cut into bins: what the tree and the start are
        learned from.
    layout : StateLayout
        Numbering of these states.
    is_categorical : ndarray of bool of shape (n_variables,)
        Columns with categorical emissions; the others have Gaussian ones.

    Examples
    --------
    A categorical column and one of numbers, cut into two bins for the tree:

    >>> import numpy as np
    >>> from skcircuits.learning import LatentRows, learn_latent_tree
    >>> from skcircuits.trees import StateLayout
    >>> rng, categories = np.random.default_rng(0), np.repeat([0, 1], 20)
    >>> X = np.column_stack([categories, 2 * categories - 1 + rng.normal(scale=0.1, size=40)])
    >>> states = (X > 0).astype(int)
    >>> rows = LatentRows(X, np.ones(40), states, StateLayout([2, 2]), np.array([True, False]))
    >>> *_, last = learn_latent_tree(rows, 2, rng)
    >>> last.circuit.expectation([[0, np.nan], [1, np.nan]]).round(1)
    array([[ 0. , -0.9],
           [ 1. ,  0.9]])
    """

    X: FloatArray
    weight: FloatArray
    states: IntArray
    layout: StateLayout
    is_categorical: BoolArray


def start_latent_tree(
    rows: LatentRows,
    emissions: Sequence[EmissionGroup],
    n_states: int,
    rng: np.random.Generator,
) -> tuple[LatentTree, LatentTotals]:
    """Start from the Chow-Liu tree and hard clusters.

    Parameters
    ----------
    rows : LatentRows
        Training rows.
    emissions : sequence of EmissionGroup
        Emissions without latent states.
    n_states : int
        Number of latent states.
    rng : numpy.random.Generator
        Draws centres and noise.

    Returns
    -------
    tree : LatentTree
        The start.
    totals : LatentTotals
        The statistics it was made of, scaled to all rows.
    """
    statistics = pair_statistics(rows.states, rows.layout, sample_weight=rows.weight)
    information = mutual_information(statistics, rows.layout)
    parents = root_at_center(maximum_spanning_tree(information))
    some = np.sort(rng.permutation(len(rows.X))[:_MAX_ROWS])
    features, owner = _features(rows, some)
    hidden = cluster_hidden_states(features, owner, information, n_states, rng)
    uniform = np.full((len(parents), n_states, n_states), 1.0 / n_states)
    blank = LatentTree(parents, uniform[0, 0], uniform, emissions)
    totals = _hard_totals(blank, rows.X[some], hidden, rows.weight[some])
    totals.transitions[...] += _NOISE * rng.random(uniform.shape)
    totals.blend(totals, rows.weight.sum() / rows.weight[some].sum(), 0.0)
    tree = replace(
        blank,
        prior=_normalized(totals.prior + 1.0 / n_states),
        transitions=_normalized(totals.transitions),
        emissions=[group.maximize(t, 1.0) for group, t in zip(emissions, totals.emissions)],
    )
    return tree, totals


def _hard_totals(
    tree: LatentTree, X: FloatArray, hidden: IntArray, weight: FloatArray
) -> LatentTotals:
    """Statistics of rows whose latent states (n, n_variables) are known."""
    totals = LatentTotals.empty(tree)
    states = np.arange(tree.n_states)
    evidence = [group.evidence(X) for group in tree.emissions]
    indicators = [(column == states[:, None]).astype(float) for column in hidden.T]
    totals.prior[...] = indicators[tree.order[0]] @ weight
    for vertex in tree.order:
        posterior = indicators[vertex] * weight
        number, index = tree.emitters[vertex]
        tree.emissions[number].add(totals.emissions[number], index, posterior, evidence[number])
        for child in tree.children[vertex]:
            totals.transitions[child] = posterior @ indicators[child].T
    return totals


def cluster_hidden_states(
    features: Points,
    owner: IntArray,
    information: FloatArray,
    n_states: int,
    rng: np.random.Generator,
) -> IntArray:
    """Cluster the rows once per column, by the columns that know most about it.

    Parameters
    ----------
    features : ndarray of shape (n, n_features)
        Rows as points.
    owner : ndarray of shape (n_features,)
        Column each feature belongs to.
    information : ndarray of shape (n_variables, n_variables)
        Mutual information: the squared weight of a column in the distance.
    n_states : int
        Number of clusters.
    rng : numpy.random.Generator
        Draws the rows that are the first centres.

    Returns
    -------
    ndarray of shape (n, n_variables)
        Cluster of each row, per column.
    """
    hidden = np.empty((len(features), len(information)), dtype=np.int64)
    for variable, row in enumerate(information):
        strongest = max(row.max(), np.finfo(float).tiny)
        weights = row / strongest
        weights[variable] = _OWN_WEIGHT
        near = np.argsort(-weights, kind="stable")[:_MAX_NEIGHBORS]
        columns = np.flatnonzero(np.isin(owner, near))
        scale = np.sqrt(weights[owner[columns]]).astype(features.dtype)
        hidden[:, variable] = _cluster(features[:, columns] * scale, n_states, rng)
    return hidden


def _features(rows: LatentRows, some: IntArray) -> tuple[Points, IntArray]:
    """Some rows as points: indicators of states, standardised numbers; and their columns."""
    layout = rows.layout
    discrete = rows.is_categorical[layout.owner]
    indicators = layout.one_hot(rows.states[some])[:, discrete]
    continuous = np.flatnonzero(~rows.is_categorical)
    moments = ColumnMoments.of(rows.X, rows.weight)
    numbers = (rows.X[some] - moments.mean) / np.sqrt(moments.variance)
    # Two rows that differ in a category are as far apart as one standard deviation makes them.
    numbers = np.sqrt(2) * np.nan_to_num(numbers[:, continuous])
    features = np.hstack([indicators, numbers]).astype(np.float32)
    return features, np.concatenate([layout.owner[discrete], continuous])


def _cluster(points: Points, n_clusters: int, rng: np.random.Generator) -> IntArray:
    """Assign points to clusters by a few steps of k-means from random points."""
    centers = points[rng.integers(len(points), size=n_clusters)]
    for step in range(_N_CLUSTER_STEPS):
        distances = np.square(centers).sum(axis=1) - 2 * points @ centers.T
        nearest = distances.argmin(axis=1)
        if step + 1 < _N_CLUSTER_STEPS:
            members = (nearest == np.arange(n_clusters)[:, None]).astype(np.float32)
            sizes = members.sum(axis=1, keepdims=True)
            means = members @ points / np.maximum(sizes, 1.0)
            centers = np.where(sizes > 0, means, centers)
    return nearest


def _normalized(counts: FloatArray) -> FloatArray:
    """Divide by the sum over the last axis."""
    return counts / counts.sum(axis=-1, keepdims=True)
