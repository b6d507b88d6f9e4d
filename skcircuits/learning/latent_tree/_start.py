"""Where latent Chow-Liu trees start: the tree, and clusters as latent states.

Random parameters end in poor optima. Here the latent variable of a column starts as a
clustering of the rows by the columns that know most about it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.learning._k_means import k_means, nearest_centres
from skcircuits.learning.latent_tree._belief_propagation import LatentTotals, LatentTree
from skcircuits.learning.latent_tree._emissions import Emissions
from skcircuits.learning.latent_tree.rows import LatentRows
from skcircuits.learning.univariate._columns import rank_fractions
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees import (
    maximum_spanning_tree,
    mutual_information,
    pair_statistics,
)
from skcircuits.trees.tree._trees import root_at_center

Points = NDArray[np.floating[Any]]  # float32 is enough for clusters

_MAX_ROWS = 4000
_MAX_NEIGHBORS = 64  # columns that take part in the clustering for one column
_N_CLUSTER_STEPS = 2
_OWN_WEIGHT = 2.0  # of the column itself, relative to the strongest mutual information
_NOISE = 0.5  # most random weight added to each count of a transition


def start_latent_tree(
    rows: LatentRows,
    codes: FloatArray,
    emissions: Emissions,
    n_states: int,
    rng: np.random.Generator,
) -> tuple[LatentTree, LatentTotals]:
    """Start from the Chow-Liu tree and hard clusters."""
    statistics = pair_statistics(rows.states, rows.layout, sample_weight=rows.weight)
    information = mutual_information(statistics, rows.layout)
    vertices, vertex = _vertices(len(information), rows.joint_columns)
    information = _of_groups(information, vertex, len(vertices))
    edges = root_at_center(maximum_spanning_tree(information))
    parents = vertices[vertex]  # of a joint column: the one that stands for it
    parents[vertices] = np.where(edges < 0, -1, vertices[edges])
    some = np.sort(rng.permutation(len(rows.X))[:_MAX_ROWS])
    features, owner = _features(rows, some)
    clusters = cluster_latent_states(features, vertex[owner], information, n_states, rng)
    hidden = clusters[:, vertex]
    uniform = np.full((len(parents), n_states, n_states), 1.0 / n_states)
    blank = LatentTree(parents, uniform[0, 0], uniform, emissions)
    totals = _hard_totals(blank, codes[some], hidden, rows.weight[some])
    totals.transitions[...] += _NOISE * rng.random(uniform.shape)
    totals.blend(totals, rows.weight.sum() / rows.weight[some].sum(), 0.0)
    tree = replace(
        blank,
        prior=_normalized(totals.prior + 1.0 / n_states),
        transitions=_normalized(totals.transitions),
        emissions=emissions.with_smoothers(totals.emissions, 1.0).maximize(totals.emissions, 1.0),
    )
    return tree, totals


def _vertices(
    n_columns: int, joint_columns: tuple[tuple[int, ...], ...]
) -> tuple[IntArray, IntArray]:
    """Columns that have a latent variable, and which of these each column belongs to."""
    first = np.arange(n_columns)
    for group in joint_columns:
        first[list(group)] = group[0]
    vertices, vertex = np.unique(first, return_inverse=True)
    return vertices, vertex


def _of_groups(information: FloatArray, vertex: IntArray, n_vertices: int) -> FloatArray:
    """Largest mutual information of any columns of two groups, (n_vertices, n_vertices)."""
    largest = np.zeros((n_vertices, n_vertices))
    np.maximum.at(largest, (vertex[:, None], vertex), information)
    return largest


def _hard_totals(
    tree: LatentTree, codes: FloatArray, hidden: IntArray, weight: FloatArray
) -> LatentTotals:
    """Statistics of rows whose latent states (n, n_variables) are known."""
    totals = LatentTotals.empty(tree)
    states = np.arange(tree.n_states)
    evidence = tree.emissions.evidence(codes)
    indicators = [(column == states[:, None]).astype(float) for column in hidden.T]
    totals.prior[...] = indicators[tree.order[0]] @ weight
    for vertex in tree.order:
        posterior = indicators[vertex] * weight
        tree.emissions.add(totals.emissions, vertex, posterior, evidence)
        for child in tree.children[vertex]:
            totals.transitions[child] = posterior @ indicators[child].T
    return totals


def cluster_latent_states(
    features: Points,
    owner: IntArray,
    information: FloatArray,
    n_states: int,
    rng: np.random.Generator,
) -> IntArray:
    """Cluster the rows once per column, by the columns that know most about it.

    `features` (n, n_features), `owner` (n_features,), `information` (n_variables, n_variables) ->
    (n, n_variables).
    """
    hidden = np.empty((len(features), len(information)), dtype=np.int64)
    for variable, row in enumerate(information):
        strongest = max(row.max(), np.finfo(float).tiny)
        weights = row / strongest
        weights[variable] = _OWN_WEIGHT
        near = np.argsort(-weights, kind="stable")[:_MAX_NEIGHBORS]
        columns = np.flatnonzero(np.isin(owner, near))
        scale = np.sqrt(weights[owner[columns]]).astype(features.dtype)
        points = features[:, columns] * scale
        centres = points[rng.integers(len(points), size=n_states)]
        centres = k_means(points, centres, _N_CLUSTER_STEPS)
        hidden[:, variable] = nearest_centres(points, centres)
    return hidden


def _features(rows: LatentRows, some: IntArray) -> tuple[Points, IntArray]:
    """Some rows as points: indicators of states, ranks of values; and their columns."""
    layout = rows.layout
    discrete = rows.is_categorical[layout.owner]
    indicators = layout.one_hot(rows.states[some])[:, discrete]
    continuous = np.flatnonzero(~rows.is_categorical)
    points = [indicators]
    for v in continuous:
        ranks = rank_fractions(rows.X[some, v], rows.weight[some])
        # Two rows that differ in a category are as far apart as one standard deviation makes
        # them, which is 1 / sqrt(12) for ranks.
        points.append(np.sqrt(24.0) * np.nan_to_num(ranks - 0.5)[:, None])
    return np.hstack(points).astype(np.float32), np.concatenate(
        [layout.owner[discrete], continuous]
    )


def _normalized(counts: FloatArray) -> FloatArray:
    """Divide by the sum over the last axis."""
    return counts / counts.sum(axis=-1, keepdims=True)
