"""Learning latent Chow-Liu trees by online expectation maximisation.

Random initial parameters lead to poor optima. Therefore the latent variable of a column starts as a
clustering of the rows by the columns with the largest mutual information with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skcircuits.circuits import Circuit
from skcircuits.learning._columns import ColumnCells, rank_fractions, sharp_breaks
from skcircuits.learning.latent_tree._belief_propagation import (
    BeliefPropagation,
    LatentTotals,
    LatentTree,
)
from skcircuits.learning.latent_tree._emissions import (
    Emissions,
    JointNormals,
    LatentRows,
    encode_cells,
)
from skcircuits.numerics._patterns import k_means, nearest_centres
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees._chow_liu import observed_information
from skcircuits.trees._trees import maximum_spanning_tree, root_at_center

# Small tables are divided into blocks, too: with few steps per pass, learning would be slow.
_MIN_BLOCKS, _MIN_BLOCK_ROWS = 8, 64
# The smoothing of counts changes slowly: it is chosen again after so many passes.
_SMOOTHING_EPOCHS = 4
Points = NDArray[np.floating[Any]]  # float32 is enough for clusters

_MAX_ROWS = 4000
_MAX_NEIGHBORS = 64  # columns that take part in the clustering for one column
_N_CLUSTER_STEPS = 2
_OWN_WEIGHT = 2.0  # of the column itself, relative to the strongest mutual information
_NOISE = 0.5  # most random weight added to each count of a transition


@dataclass(frozen=True)
class LatentSchedule:
    """Schedule of the steps, whose sizes fall geometrically."""

    n_epochs: int = 60
    n_full_epochs: int = 3  # at the end: these update once, with the statistics of all rows
    first_step: float = 0.3  # fraction of a block in the running statistics
    last_step: float = 0.03


@dataclass(frozen=True)
class LatentStep:
    """A tree after an epoch."""

    tree: LatentTree
    propagation: BeliefPropagation  # evaluates trees of this shape
    converged: bool  # true for the last epoch of the schedule

    @cached_property
    def circuit(self) -> Circuit:
        """The tree as a circuit."""
        return self.tree.circuit()

    def mean_log_prob(self, X: FloatArray, weight: FloatArray) -> float:
        """Weighted mean log probability of the cells of rows (n, d), densities of joint columns."""
        codes = self.tree.emissions.encode(X)
        return float(weight @ self.propagation.log_prob(self.tree, codes) / weight.sum())

    def mean_log_density(self, X: FloatArray, weight: FloatArray) -> float:
        """Weighted mean log density of rows (n, d), of columns on a grid per step."""
        emissions = self.tree.emissions
        groups = {first: group.within_steps() for first, group in emissions.joint.items()}
        tree = replace(self.tree, emissions=replace(emissions, joint=groups))
        log_density = tree.circuit().log_prob(X)
        for group in groups.values():
            # A probability of a step over its width is a density: comparable with other models
            log_density += ~np.isnan(X[:, group.columns]) @ np.log(group.steps)
        return float(weight @ log_density / weight.sum())


def learn_latent_tree(
    rows: LatentRows,
    n_states: int,
    rng: np.random.Generator,
    *,
    pseudo_count: float = 0.5,
    schedule: LatentSchedule | None = None,
) -> Iterator[LatentStep]:
    """Learn a latent Chow-Liu tree by online expectation maximisation.

    Running statistics S ← (1 - s) S + s (N / n_block) S_block follow blocks of rows with
    falling steps s, so that many updates are made per pass; a few full passes follow.

    The weight ``pseudo_count`` of the prior is spread over the next states of each latent state,
    and as much of the plain column over each of its emissions. Yields the tree after each epoch.
    """
    schedule = LatentSchedule() if schedule is None else schedule
    weight = rows.weight
    emissions, codes = _emissions(rows, n_states)
    tree, totals = start_latent_tree(rows, codes, emissions, n_states, rng)
    propagation = BeliefPropagation(tree)
    sizes = _step_sizes(schedule, len(codes), propagation.n_rows)
    for epoch, steps in enumerate(sizes, start=1):
        # A full pass keeps the order: sums do not depend on it but for rounding.
        order = rng.permutation(len(codes)) if len(steps) > 1 else np.arange(len(codes))
        for block, step in zip(np.array_split(order, len(steps)), steps):
            added = propagation.totals(tree, codes[block], weight[block])
            fraction = weight[block].sum()
            if fraction > 0:
                # Statistics of a block estimate those of all rows
                totals.blend(added, 1.0 - step, step * weight.sum() / fraction)
                tree = _maximize(tree, totals, pseudo_count)
        if epoch % _SMOOTHING_EPOCHS == 1:
            emissions = tree.emissions.with_smoothers(totals.emissions, pseudo_count)
            tree = replace(tree, emissions=emissions)
        yield LatentStep(tree, propagation, converged=epoch == schedule.n_epochs)


def _emissions(rows: LatentRows, n_states: int) -> tuple[Emissions, FloatArray]:
    """Emissions that do not depend on the latent states yet, and the cells of the rows."""
    columns = np.flatnonzero(~rows.is_categorical).tolist()
    seen = [~np.isnan(rows.X[:, v]) & (rows.weight > 0) for v in columns]
    values = [rows.X[own, v] for v, own in zip(columns, seen, strict=True)]
    weights = [rows.weight[own] for own in seen]
    described = [rows.fact(v) for v in columns]
    facts = dict(zip(columns, described, strict=True))
    joint = {
        group[0]: JointNormals.start(group, [facts[v] for v in group], rows.X, n_states)
        for group in rows.joint_columns
    }
    alone = [i for i, v in enumerate(columns) if not any(v in g for g in rows.joint_columns)]
    cells = ColumnCells.fit_all(
        [described[i] for i in alone], [values[i] for i in alone], [weights[i] for i in alone]
    )
    numerical = {
        columns[i]: own.broken(_breaks(rows, columns[i]))
        for i, own in zip(alone, cells, strict=True)
    }
    codes = encode_cells(rows.X, numerical, joint)
    sizes = rows.layout.cardinalities
    return Emissions.marginals(sizes, numerical, codes, rows.weight, n_states, joint), codes


def _breaks(rows: LatentRows, column: int) -> FloatArray:
    """Numbers of a column at which the frequencies of any categories jump."""
    categories = rows.X.T[rows.is_categorical]
    found = [sharp_breaks(rows.X[:, column], codes, rows.weight) for codes in categories]
    return np.unique(np.concatenate([np.empty(0), *found]))


def _step_sizes(schedule: LatentSchedule, n_rows: int, batch_rows: int) -> Iterator[FloatArray]:
    """Step sizes of the blocks of each epoch."""
    n_blocks = int(np.clip(n_rows // _MIN_BLOCK_ROWS, 1, _MIN_BLOCKS))
    n_blocks = max(n_blocks, -(-n_rows // batch_rows))
    # Passes in blocks come first, whole ones last: the end has no noise of blocks
    n_online = max(schedule.n_epochs - schedule.n_full_epochs, 0)
    sizes = np.geomspace(schedule.first_step, schedule.last_step, max(n_online * n_blocks, 1))
    yield from sizes[: n_online * n_blocks].reshape(n_online, n_blocks)
    for _ in range(schedule.n_epochs - n_online):
        yield np.ones(1)


def _maximize(tree: LatentTree, totals: LatentTotals, pseudo_count: float) -> LatentTree:
    """Parameters that fit the statistics."""
    fraction = pseudo_count / tree.n_states
    transitions = totals.transitions + fraction
    transitions /= transitions.sum(axis=2, keepdims=True)
    prior = totals.prior + fraction
    emissions = tree.emissions.maximize(totals.emissions, pseudo_count)
    return replace(tree, prior=prior / prior.sum(), transitions=transitions, emissions=emissions)


def start_latent_tree(
    rows: LatentRows,
    codes: FloatArray,
    emissions: Emissions,
    n_states: int,
    rng: np.random.Generator,
) -> tuple[LatentTree, LatentTotals]:
    """Start from the Chow-Liu tree and hard clusters."""
    information = observed_information(rows.states, rows.layout, sample_weight=rows.weight)
    vertices, vertex = _vertices(len(information), rows.joint_columns)
    information = _of_groups(information, vertex, len(vertices))
    edges = root_at_center(maximum_spanning_tree(information))
    parents = vertices[vertex]  # of a joint column: the column that represents it
    parents[vertices] = np.where(edges < 0, -1, vertices[edges])
    some = np.sort(rng.permutation(len(rows.X))[:_MAX_ROWS])
    features, owner = _features(rows, some)
    clusters = cluster_latent_states(features, vertex[owner], information, n_states, rng)
    hidden = clusters[:, vertex]
    uniform = np.full((len(parents), n_states, n_states), 1.0 / n_states)
    blank = LatentTree(parents, uniform[0, 0], uniform, emissions)
    totals = _hard_totals(blank, codes[some], hidden, rows.weight[some])
    # Hard clusters make transitions nearly certain: steps would hardly leave them
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
    """Cluster the rows once per column, by the columns with most information about it.

    `features` (n, n_features), `owner` (n_features,), `information` (n_variables, n_variables) ->
    (n, n_variables).
    """
    hidden = np.empty((len(features), len(information)), dtype=np.int64)
    for variable, row in enumerate(information):
        strongest = max(row.max(), np.finfo(float).tiny)
        weights = row / strongest
        weights[variable] = _OWN_WEIGHT
        # Columns without information about this one would only blur its clusters
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
    indicators = layout.one_hot(rows.states[some])
    # A missing cell is where the column is on average, as that of a number is below
    totals = rows.weight[some] @ indicators
    sums = np.maximum(layout.sum_states(totals), np.finfo(float).tiny)[layout.owner]
    is_missing = (rows.states[some] < 0)[:, layout.owner]
    indicators = np.where(is_missing, totals / sums, indicators)[:, discrete]
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
