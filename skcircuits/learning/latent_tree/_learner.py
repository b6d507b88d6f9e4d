"""Learning latent Chow-Liu trees by online expectation maximisation.

Random initial parameters lead to poor optima. Therefore the latent variable of a column starts as a
clustering of the rows by the columns with the largest mutual information with it.

Likelihoods go up the tree, posteriors and statistics down. With L_v(j) the likelihood of everything
below Z_v = j and U_v = T_v L_v the message to its parent,

    upward    L_v = emission · Π_c U_c,    U_v = T_v L_v
    downward  q_c = L_c · T_cᵀ (q_v / U_c),    statistics of T_c:  T_c · ((q_v / U_c) L_cᵀ)

which is the circuit's feedforward and backward pass with the parameters in plain arrays, so
that they can change after every block of rows: three matrix products per variable. Messages
are (n_states, n_rows), scaled to a maximum of one per row and variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skcircuits.circuits import Circuit, Product, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning._columns import rank_fractions
from skcircuits.learning.gaussian_mixture._full_gaussians import joined_sums
from skcircuits.learning.latent_tree._emissions import (
    Emissions,
    EmissionTotals,
    Evidence,
    JointNormals,
    LatentRows,
    encode_cells,
)
from skcircuits.numerics._patterns import k_means, nearest_centres
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees._trees import (
    children_of,
    maximum_spanning_tree,
    root_at_center,
    top_down_order,
)

_CACHE_BYTES = 1 << 24  # both buffers of a block of rows
_MAX_BLOCK, _MIN_BLOCK = 512, 128
_FACTORS_BEFORE_SCALING = 4  # a factor is seldom below 1e-7, float32 ends at 1e-38
_MIN_TRANSITION = 1e-7


@dataclass(frozen=True)
class LatentTree:
    """A tree of latent variables Z_v with h states each; Z_v emits column v of the table."""

    # The first of some joint columns has their latent variable; the others are no vertices, though
    # they name it as their parent

    parents: IntArray  # (n_variables,), parent of each latent variable, -1 at the root
    prior: FloatArray  # (h,), distribution of the root
    transitions: FloatArray  # (n_variables, h, h), P(Z_v = j | Z_parent = i) at v, i, j
    emissions: Emissions  # together they cover every column once

    @property
    def n_states(self) -> int:
        """Number of states of each latent variable."""
        return len(self.prior)

    @cached_property
    def order(self) -> list[int]:
        """Variables, parents before children."""
        followers = self.emissions.followers
        return [int(v) for v in top_down_order(self.parents[None])[0] if v not in followers]

    @cached_property
    def children(self) -> list[list[int]]:
        followers = self.emissions.followers
        return [[v for v in own if v not in followers] for own in children_of(self.parents)]

    def circuit(self) -> Circuit:
        """Compile to a circuit: smooth, structured-decomposable and normalised."""
        below: dict[int, list[Unit]] = {}
        for vertex in reversed(self.order):
            is_root = self.parents[vertex] < 0
            weights = self.prior[None] if is_root else self.transitions[vertex]
            if self.children[vertex]:
                factors = [
                    self.emissions.units(vertex),
                    *(below.pop(c) for c in self.children[vertex]),
                ]
                products = [Product(states) for states in zip(*factors)]
                below[vertex] = [Sum(products, weights=row) for row in weights]
            else:
                below[vertex] = self.emissions.mixed_units(vertex, weights)
        return Circuit(below[self.order[0]][0])


class LatentTotals(NamedTuple):
    """Expected counts of root states (h,), pairs of states (n_variables, h, h), and emissions."""

    prior: FloatArray
    transitions: FloatArray
    emissions: EmissionTotals

    @classmethod
    def empty(cls, tree: LatentTree) -> LatentTotals:
        """Statistics of no row."""
        return cls(
            np.zeros_like(tree.prior),
            np.zeros_like(tree.transitions),
            tree.emissions.no_totals(),
        )

    def blend(self, other: LatentTotals, keep: float, gain: float) -> None:
        """Replace by ``keep * self + gain * other``, in place."""
        pairs = [
            (self.prior, other.prior),
            (self.transitions, other.transitions),
            (self.emissions.counts, other.emissions.counts),
        ]
        for own, added in pairs:
            own *= keep
            own += gain * added
        joint = self.emissions.joint
        for first, sums in other.emissions.joint.items():
            joint[first] = joined_sums([joint[first], sums], [keep, gain])


class BeliefPropagation:
    """Sends messages through trees of the shape of one; owns the buffers."""

    def __init__(self, tree: LatentTree) -> None:
        self.dtype = np.dtype(tree.emissions.dtype)
        self._order, self._children = tree.order, tree.children
        n_variables, n_states = len(tree.parents), tree.n_states
        row_bytes = 2 * n_variables * n_states * self.dtype.itemsize
        self.n_rows = int(np.clip(_CACHE_BYTES // row_bytes, _MIN_BLOCK, _MAX_BLOCK))
        shape = n_variables, n_states, self.n_rows
        # Messages of a block of rows, of all variables: they are written anew for each block
        self._below, self._seen = np.empty(shape, self.dtype), np.empty(shape, self.dtype)
        self._work = np.empty(shape[1:], self.dtype)

    def log_prob(self, tree: LatentTree, codes: FloatArray) -> FloatArray:
        """Log probability (n,) of the cells of rows (n, n_variables), NaN where missing."""
        transitions = self._rounded(tree.transitions)
        parts = [
            self._upward(tree, transitions, codes[start : start + self.n_rows])[0]
            for start in range(0, len(codes), self.n_rows)
        ]
        return np.concatenate(parts)

    def totals(self, tree: LatentTree, codes: FloatArray, weight: FloatArray) -> LatentTotals:
        """Expected statistics of the cells of rows (n, n_variables) of some weight (n,)."""
        transitions = self._rounded(tree.transitions)
        totals = LatentTotals.empty(tree)
        for start in range(0, len(codes), self.n_rows):
            rows = slice(start, start + self.n_rows)
            _, root, evidence = self._upward(tree, transitions, codes[rows])
            root *= weight[rows].astype(self.dtype)
            self._downward(tree, transitions, root, evidence, totals)
        # The factor that all rows have in common, once at the end
        totals.transitions[...] *= tree.transitions
        return totals

    def _rounded(self, transitions: FloatArray) -> FloatArray:
        # The downward pass would divide by a message of zero
        return np.maximum(transitions, _MIN_TRANSITION).astype(self.dtype)

    def _upward(
        self, tree: LatentTree, transitions: FloatArray, codes: FloatArray
    ) -> tuple[FloatArray, FloatArray, Evidence]:
        """Likelihoods of a block: log density, posterior of the root, prepared cells."""
        evidence = tree.emissions.evidence(codes)
        n_rows = len(codes)
        log_scale = np.zeros(n_rows)
        for vertex in reversed(self._order):
            below = self._below[vertex, :, :n_rows]
            log_scale += tree.emissions.likelihood(vertex, evidence, below)
            for n_factors, child in enumerate(self._children[vertex], start=1):
                below *= self._seen[child, :, :n_rows]
                # Scaling takes a pass over the rows: as rarely as floats allow
                if n_factors % _FACTORS_BEFORE_SCALING == 0:
                    log_scale += _scale_to_one(below)
            log_scale += _scale_to_one(below)
            np.matmul(transitions[vertex], below, out=self._seen[vertex, :, :n_rows])
        root = below * tree.prior.astype(self.dtype)[:, None]
        total = root.sum(axis=0)
        root /= total
        return log_scale + np.log(total), root, evidence

    def _downward(
        self,
        tree: LatentTree,
        transitions: FloatArray,
        root: FloatArray,
        evidence: Evidence,
        totals: LatentTotals,
    ) -> None:
        """Posteriors of a block, added to the totals (those of transitions lack a factor)."""
        n_rows = root.shape[1]
        fraction = self._work[:, :n_rows]
        totals.prior[...] += root.sum(axis=1)
        # The posterior of a variable replaces its message to the parent.
        posteriors = self._seen
        posteriors[self._order[0], :, :n_rows] = root
        for vertex in self._order:
            posterior = posteriors[vertex, :, :n_rows]
            tree.emissions.add(totals.emissions, vertex, posterior, evidence)
            for child in self._children[vertex]:
                seen, below = self._seen[child, :, :n_rows], self._below[child, :, :n_rows]
                np.divide(posterior, seen, out=fraction)
                totals.transitions[child] += fraction @ below.T
                np.matmul(transitions[child].T, fraction, out=seen)
                seen *= below


def _scale_to_one(message: FloatArray) -> FloatArray:
    """Divide each row of the table by its largest entry, in place; return the logs."""
    largest = message.max(axis=0)
    message /= largest
    return np.log(largest)


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
        # To compile the circuit for this would take longer than some iterations
        precise = replace(emissions, joint=groups, dtype=np.float64)
        tree = replace(self.tree, emissions=precise)
        log_prob = BeliefPropagation(tree).log_prob(tree, precise.encode(X))
        return float(weight @ (log_prob + precise.log_densities(X)) / weight.sum())


def learn_latent_tree(
    rows: LatentRows,
    n_states: int,
    rng: np.random.Generator,
    *,
    pseudo_count: float = 0.5,
    schedule: LatentSchedule | None = None,
    start: LatentStep | None = None,
) -> Iterator[LatentStep]:
    """Learn a latent Chow-Liu tree by online expectation maximisation; a tree after each epoch.

    `start`: a step with other rows of the same columns, which takes the place of the first one.
    """
    # Running statistics S <- (1 - s) S + s (N / n_block) S_block follow blocks of rows with falling
    # steps s, so that many updates are made per pass; a few full passes follow. The weight
    # `pseudo_count` of the prior is spread over the next states of each latent state, and as much
    # of the plain column over each of its emissions.
    schedule = LatentSchedule() if schedule is None else schedule
    weight = rows.weight
    if start is None:
        emissions, codes = _emissions(rows, n_states)
        tree, totals = start_latent_tree(rows, codes, emissions, n_states, rng)
        propagation = BeliefPropagation(tree)
    else:
        yield replace(start, converged=schedule.n_epochs == 1)
        codes, propagation = start.tree.emissions.encode(rows.X), start.propagation
        totals = propagation.totals(start.tree, codes, weight)
        tree = _maximize(start.tree, totals, pseudo_count)
    sizes = enumerate(_step_sizes(schedule, len(codes), propagation.n_rows), start=1)
    for epoch, steps in islice(sizes, 0 if start is None else 1, None):
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
    joint = {
        group[0]: JointNormals.start(group, [rows.fact(v) for v in group], rows.X, n_states)
        for group in rows.joint_columns
    }
    together = {v for group in rows.joint_columns for v in group}
    numerical = {v: own for v, own in rows.numerical.items() if v not in together}
    codes = encode_cells(rows.X, numerical, joint)
    sizes = rows.layout.cardinalities
    return Emissions.marginals(sizes, numerical, codes, rows.weight, n_states, joint), codes


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
    vertices, vertex = _vertices(len(rows.information), rows.joint_columns)
    information = _of_groups(rows.information, vertex, len(vertices))
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
