"""Chow-Liu trees of complete and incomplete rows, their mixtures and circuits, and completed rows.

Learners of structures need complete rows. Draws would make their results depend on chance, and a
row of weight two would not be that row twice; completions of incomplete rows that count by their
probabilities under a tree of these rows do neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import softmax

from skcircuits.circuits import Categorical, Circuit, Indicator, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.numerics._arrays import logsumexp, safe_log
from skcircuits.numerics._random import RowStreams
from skcircuits.parallel import memory_bound_chunks, row_slices
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees._trees import (
    InputMaker,
    StateLayout,
    TreeInference,
    conditional_tables,
    distinct_rows,
    edges_of,
    maximum_spanning_tree,
    root_at_center,
    top_down_order,
    tree_unit,
)

# States per variable from which on sparse products take less time than dense ones
_MANY_STATES = 32
_BLOCK_PAIRS = 1 << 16  # of states whose information is computed at once
_MAX_SINGLE = 1 << 24  # single precision counts so far
_N_INDEPENDENT_STEPS = 10  # EM steps with independent variables before trees are learned
_MAX_COMPLETIONS = 4  # of a row
_MAX_STEPS, _TOL = 50, 1e-4  # of expectation maximisation


class PairStatistics(NamedTuple):
    """Consistent probabilities of single variables and of pairs."""

    nodes: FloatArray  # (n_states,)
    pairs: FloatArray  # (n_states, n_states), diagonal for pairs of a variable with itself


def pair_statistics(
    codes: IntArray,
    layout: StateLayout,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> PairStatistics:
    """Probabilities of states and pairs in weighted rows of codes (n_rows, n_variables), with a
    pseudo-count α: ``α / (k_u k_v)`` per cell and so ``α / k_u`` per state.
    """
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    counts = _pair_counts(codes, layout, weight)
    uniform = 1.0 / layout.cardinalities[layout.owner]
    total = weight.sum() + pseudo_count
    nodes = (layout.state_counts(codes, weight) + pseudo_count * uniform) / total
    counts += pseudo_count * np.outer(uniform, uniform)
    counts /= total
    # Within a variable the smoothing above means nothing: a state only meets itself.
    counts *= layout.owner[:, None] != layout.owner
    np.fill_diagonal(counts, nodes)
    return PairStatistics(nodes, counts)


def _pair_counts(codes: IntArray, layout: StateLayout, weight: FloatArray) -> FloatArray:
    """Weights of the rows with each pair of states, (n_states, n_states), by one matrix product."""
    indicators: Any = layout.one_hot(codes)
    if layout.n_states > _MANY_STATES * layout.n_variables:
        # As many multiplications as pairs of cells, and not of states
        indicators = csr_array(indicators)
        return (indicators * weight[:, None]).T.dot(indicators).toarray()
    if (weight == 1.0).all() and len(codes) < _MAX_SINGLE:
        # Numbers of rows are exact, and half the matrix is computed
        indicators = indicators.astype(np.float32)
        return (indicators.T @ indicators).astype(np.float64)
    return (indicators * weight[:, None]).T @ indicators


def mutual_information(statistics: PairStatistics, layout: StateLayout) -> FloatArray:
    """Mutual information (n_variables, n_variables) of every pair of variables."""
    nodes, pairs = statistics
    # 0 log 0 = 0: states that never occur add nothing.
    positive = pairs > 0
    log_ratio = np.log(pairs, out=np.zeros_like(pairs), where=positive)
    log_nodes = np.log(nodes, out=np.zeros_like(nodes), where=nodes > 0)
    log_ratio -= log_nodes[:, None]
    log_ratio -= log_nodes
    log_ratio *= pairs
    information = layout.sum_states(layout.sum_states(log_ratio).T).T
    np.fill_diagonal(information, 0.0)
    # Rounding may leave independent variables an ulp below zero.
    return np.maximum(information, 0.0)


class ChowLiuTree(NamedTuple):
    """A tree distribution."""

    layout: StateLayout
    parents: IntArray  # (n_variables,), -1 at the root
    statistics: PairStatistics  # probabilities of states and pairs

    def log_prob(self, codes: IntArray) -> FloatArray:
        """Log probabilities (n_rows,) of complete rows (n_rows, n_variables)."""
        flat = self.layout.flat(codes)
        children = np.flatnonzero(self.parents >= 0)
        nodes, pairs = self.statistics
        log_nodes = safe_log(nodes)
        log_prob = log_nodes[flat[:, self.parents < 0]].sum(axis=1)
        # P(child, parent) / P(parent) along every edge.
        joint = safe_log(pairs[flat[:, children], flat[:, self.parents[children]]])
        above = log_nodes[flat[:, self.parents[children]]]
        # An impossible parent has an impossible joint: -inf - (-inf) must stay -inf.
        joint -= np.where(np.isneginf(above), 0.0, above)
        return log_prob + joint.sum(axis=1)


class TreeMixture(NamedTuple):
    """A mixture of tree distributions with `log_weights` (n_components,)."""

    log_weights: FloatArray
    trees: list[ChowLiuTree]

    def log_joint(self, codes: IntArray) -> FloatArray:
        """Log probability of complete rows with each component, (n_rows, n_components)."""
        return self.log_weights + np.stack([tree.log_prob(codes) for tree in self.trees], axis=1)

    def log_prob(self, codes: IntArray) -> FloatArray:
        """Log probability of complete rows, shape (n_rows,)."""
        return logsumexp(self.log_joint(codes), axis=1)

    def responsibilities(self, codes: IntArray) -> FloatArray:
        """Posterior probability of the components, (n_rows, n_components)."""
        log_joint = self.log_joint(codes)
        return softmax(log_joint, axis=1)


def chow_liu_tree(
    codes: IntArray,
    layout: StateLayout,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> ChowLiuTree:
    """Learn the likeliest tree (Chow and Liu, 1968) of weighted rows (n_rows, n_variables)."""
    statistics = pair_statistics(
        codes, layout, sample_weight=sample_weight, pseudo_count=pseudo_count
    )
    parents = maximum_spanning_tree(mutual_information(statistics, layout))
    return ChowLiuTree(layout, parents, statistics)


def learn_tree_mixture(
    codes: IntArray,
    layout: StateLayout,
    n_components: int,
    rng: np.random.Generator,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> Iterator[TreeMixture]:
    """Learn a mixture of Chow-Liu trees of weighted rows by expectation maximisation, from
    independent variables in each component: else, all would become the tree of the table.
    """
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    # Responsibilities of a mixture of independent variables, by a few EM steps
    indicators = layout.one_hot(codes)
    uniform = pseudo_count / layout.cardinalities[layout.owner]
    # Uneven random responsibilities; the steps below pull them apart.
    responsibilities = rng.dirichlet(np.ones(n_components), size=len(codes))
    for _ in range(_N_INDEPENDENT_STEPS):
        weighted = weight[:, None] * responsibilities
        totals = weighted.sum(axis=0)
        nodes = (weighted.T @ indicators + uniform) / (totals + pseudo_count)[:, None]
        # One product scores all rows under all components; log 0 would turn 0 into NaN.
        log_joint = indicators @ np.log(np.maximum(nodes, np.finfo(float).tiny)).T
        log_joint += np.log(np.maximum(totals, np.finfo(float).tiny))
        responsibilities = softmax(log_joint, axis=1)
    while True:
        # An average row's worth of prior keeps every component alive.
        fractions = weight @ responsibilities + weight.mean() / n_components
        fractions /= fractions.sum()
        trees = [
            chow_liu_tree(codes, layout, sample_weight=part, pseudo_count=pseudo_count)
            for part in (weight[:, None] * responsibilities).T
        ]
        mixture = TreeMixture(np.log(fractions), trees)
        yield mixture
        responsibilities = mixture.responsibilities(codes)


def observed_tree(
    codes: IntArray,
    layout: StateLayout,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> ChowLiuTree:
    """Tree of pairs of cells that are observed together; rows of `codes` without both count as
    independent, where expectation maximisation may start: it does not get away from closer tables.
    """
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    counts = _pair_counts(codes, layout, weight)
    # The pairs of a state with itself are all rows that have it
    alone = counts.diagonal() + pseudo_count / layout.cardinalities[layout.owner]
    observed = _observed_pairs(counts, layout, pseudo_count)
    parents = maximum_spanning_tree(_pair_information(observed, layout))
    alone /= layout.sum_states(alone)[layout.owner]
    nodes, pairs = alone.copy(), np.zeros_like(observed)
    edges = edges_of(parents[None])[0]
    has_both = (codes[:, edges] >= 0).all(axis=2)
    fractions = np.average(has_both, axis=0, weights=weight)
    for (parent, child), together in zip(edges.tolist(), fractions.tolist(), strict=True):
        above, below = layout.states_of(parent), layout.states_of(child)
        joint = together * observed[above, below]
        joint += (1.0 - together) * np.outer(alone[above], alone[below])
        # Tables of two edges come from different rows: conditionals fit together, marginals do not
        totals = joint.sum(axis=1, keepdims=True)
        given = np.divide(
            joint, totals, out=np.full_like(joint, 1 / joint.shape[1]), where=totals > 0
        )
        table = given * nodes[above][:, None]
        nodes[below] = table.sum(axis=0)
        pairs[above, below] = table
        pairs[below, above] = table.T
    np.fill_diagonal(pairs, nodes)
    return ChowLiuTree(layout, parents, PairStatistics(nodes, pairs))


def observed_information(
    codes: IntArray,
    layout: StateLayout,
    *,
    sample_weight: FloatArray | None = None,
) -> FloatArray:
    """Mutual information (n_variables, n_variables) of the pairs from the rows with both, each by a
    table smoothed by one pseudo-row and normalised by itself.
    """
    weight = np.ones(len(codes)) if sample_weight is None else sample_weight
    counts = _pair_counts(codes, layout, weight)
    return _pair_information(_observed_pairs(counts, layout, 1.0), layout)


def _observed_pairs(pairs: FloatArray, layout: StateLayout, pseudo_count: float) -> FloatArray:
    """Turn counts of rows into the joint table of each pair of variables."""
    uniform = 1.0 / layout.cardinalities[layout.owner]
    for some in _blocks(layout):
        pairs[some] += pseudo_count * (uniform[some, None] * uniform)
    totals = layout.sum_states(layout.sum_states(pairs).T).T
    totals = np.where(totals > 0, totals, 1.0)
    for some in _blocks(layout):
        pairs[some] /= totals[layout.owner[some]][:, layout.owner]
    return pairs


def _blocks(layout: StateLayout) -> list[slice]:
    """Blocks of states whose pairs with all others stay in the cache."""
    return row_slices(layout.n_states, max(1, _BLOCK_PAIRS // layout.n_states))


def _pair_information(pairs: FloatArray, layout: StateLayout) -> FloatArray:
    """Mutual information of each pair table, (n_variables, n_variables)."""
    # rows[a, v]: probability of state a in the table with variable v.
    rows = layout.sum_states(pairs)
    terms = np.empty_like(rows)
    for some in _blocks(layout):
        own = pairs[some]
        product = rows[some][:, layout.owner] * rows.T[layout.owner[some]]
        ratio = np.divide(own, product, out=np.ones_like(own), where=own > 0)
        terms[some] = layout.sum_states(own * np.log(ratio))
    information = layout.sum_states(terms.T).T
    np.fill_diagonal(information, 0.0)
    return np.maximum(information, 0.0)


def mixture_circuit(mixture: TreeMixture, make_input: InputMaker | None = None) -> Circuit:
    """Write a mixture of trees as a circuit, whose input units are over states by default."""
    units = []
    for tree in mixture.trees:
        parents = root_at_center(tree.parents)  # the shallowest circuit
        tables = conditional_tables(tree.layout, *tree.statistics, parents)
        units.append(tree_unit(tables, parents, make_input or _input))
    if len(units) == 1:
        return Circuit(units[0])
    return Circuit(Sum(units, weights=np.exp(mixture.log_weights)))


def _input(variable: int, probabilities: FloatArray) -> Unit:
    """An indicator where one state has all mass, a categorical unit elsewhere."""
    if len(probabilities) > 1 and probabilities.max() == 1.0:
        return Indicator(variable, int(probabilities.argmax()), len(probabilities))
    return Categorical(variable, probabilities)


class Completions(NamedTuple):
    """Distinct complete rows, `codes`, and `fractions` (n_rows, n_completions) of each row."""

    codes: IntArray
    fractions: csr_array

    def totals(self, weight: FloatArray) -> FloatArray:
        """Weights (n_completions,) of the completions of rows that weigh `weight` (n_rows,)."""
        totals: FloatArray = self.fractions.T @ weight
        return totals


def complete_rows(
    tables: Sequence[IntArray],
    layout: StateLayout,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
) -> list[Completions]:
    """Complete codes (n_rows, n_variables), -1 where missing, by a tree of the first of the tables,
    in all ways if few, else by the most probable ones and some that stand for the rest with equal
    probability (Fearnhead and Clifford, 2003), by the cells of the row alone.
    """
    tree = None
    if any((codes < 0).any() for codes in tables):
        weight = np.ones(len(tables[0])) if sample_weight is None else sample_weight
        tree = expected_tree(tables[0], layout, sample_weight=weight, pseudo_count=pseudo_count)
    completed = []
    for table in tables:
        rows, index = distinct_rows(table)
        codes, source, weight = (rows, np.arange(len(rows)), np.ones(len(rows)))
        if tree is not None:
            codes, source, weight = _complete(tree, rows)
        codes, position = distinct_rows(codes)
        shape = len(rows), len(codes)
        starts = np.searchsorted(source, np.arange(len(rows) + 1))
        completed.append(Completions(codes, csr_array((weight, position, starts), shape)[index]))
    return completed


def expected_tree(
    codes: IntArray,
    layout: StateLayout,
    *,
    sample_weight: FloatArray,
    pseudo_count: float = 1.0,
) -> ChowLiuTree:
    """Learn the tables of the tree of observed pairs of rows of codes (-1: missing) by EM."""
    tree = observed_tree(codes, layout, sample_weight=sample_weight, pseudo_count=pseudo_count)
    rows, index = distinct_rows(codes)
    if (rows >= 0).all():
        return tree
    weight = np.bincount(index, sample_weight, minlength=len(rows)).astype(np.float64)
    uniform = pseudo_count / layout.cardinalities[layout.owner]
    is_edge = np.eye(layout.n_variables, dtype=bool)
    parents, children = edges_of(tree.parents[None])[0].T
    is_edge[parents, children] = is_edge[children, parents] = True
    prior = np.outer(uniform, uniform) / pseudo_count * is_edge[layout.owner][:, layout.owner]
    prior[layout.owner[:, None] == layout.owner] = 0.0
    np.fill_diagonal(prior, uniform)
    reached = -np.inf
    for _ in range(_MAX_STEPS):
        counts, log_likelihood = prior.copy(), 0.0
        for some in memory_bound_chunks(len(rows), _bytes_per_row(layout)):
            inference = _inference(tree, rows[some])
            counts += inference.edge_counts(weight[some])
            log_likelihood += float(weight[some] @ inference.log_evidence[0])
        counts /= weight.sum() + pseudo_count
        tree = ChowLiuTree(layout, tree.parents, PairStatistics(np.diag(counts).copy(), counts))
        if log_likelihood < reached + _TOL * weight.sum():
            break
        reached = log_likelihood
    return tree


def _inference(tree: ChowLiuTree, codes: IntArray) -> TreeInference:
    nodes, pairs = tree.statistics
    ratios = pairs / nodes[:, None] / nodes
    evidence = tree.layout.evidence(codes)
    return TreeInference(tree.parents[None], tree.layout, nodes, ratios, evidence[None])


def _bytes_per_row(layout: StateLayout) -> int:
    return 32 * layout.n_variables * int(layout.cardinalities.max())


def _complete(tree: ChowLiuTree, rows: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    """Completions of distinct rows: codes, numbers of the rows they belong to, probabilities."""
    parts = []
    for some in memory_bound_chunks(len(rows), _bytes_per_row(tree.layout)):
        codes, source, weight = _complete_chunk(tree, rows[some])
        parts.append((codes, source + some.start, weight))
    codes, source, weight = (np.concatenate(part) for part in zip(*parts, strict=True))
    return codes, source, weight


def _complete_chunk(tree: ChowLiuTree, rows: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
    inference = _inference(tree, rows)
    streams = RowStreams(rows.astype(float), 0)
    # Whole rows are copied at every variable: in few bytes, which hold -1 and one more than a code
    narrow = np.min_scalar_type(-int(tree.layout.cardinalities.max()) - 1)
    codes, source, weight = rows.astype(narrow), np.arange(len(rows)), np.ones(len(rows))
    for variable in top_down_order(tree.parents[None])[0].tolist():
        size = int(tree.layout.cardinalities[variable])
        is_open = codes[:, variable] < 0
        if not is_open.any():
            continue
        # A branch per state, in order, so that completions of a row stay side by side
        masses = np.zeros((len(codes), size))
        above = codes[is_open, tree.parents[variable]]
        masses[is_open] = inference.given_parent(variable, source[is_open], above)
        masses[~is_open, codes[~is_open, variable]] = 1.0
        masses *= weight[:, None]
        branch, state = np.nonzero(masses)
        offsets = streams.at(np.arange(len(rows)), 0, variable).random(len(rows))
        source, weight = source[branch], masses[branch, state]
        kept, weight = _thinned(source, weight, offsets, _MAX_COMPLETIONS)
        codes, source = codes[branch[kept]], source[kept]
        codes[:, variable] = state[kept]
    return codes.astype(np.int64), source, weight


def _thinned(
    source: IntArray, weight: FloatArray, offsets: FloatArray, n_most: int
) -> tuple[IntArray, FloatArray]:
    """Numbers (n_kept,) and weights, right on average, of so many of the candidates (n,) of each
    `source`, ascending: those above a threshold, and evenly spaced others, from `offsets`
    (n_rows,).
    """
    n_rows = len(offsets)
    counts = np.bincount(source, minlength=n_rows)
    if counts.max(initial=0) <= n_most:
        return np.arange(len(source)), weight
    starts = np.cumsum(counts) - counts
    order = np.lexsort([-weight, source])  # the heaviest of each row first
    rank = np.empty(len(source), dtype=np.int64)
    rank[order] = np.arange(len(source)) - starts[source]
    heaviest_first = weight[order]
    ends = np.append(np.cumsum(heaviest_first[::-1])[::-1], 0.0)
    rest = np.empty(len(source))  # own weight and that of all lighter ones
    rest[order] = ends[:-1] - ends[(starts + counts)[source]]
    is_light = (counts[source] > n_most) & (weight * (n_most - rank) < rest)
    light = np.flatnonzero(is_light)
    own = source[light]
    totals = np.bincount(own, weight[light], minlength=n_rows)
    n_light = n_most - (counts - np.bincount(own, minlength=n_rows))
    thresholds = totals / np.maximum(n_light, 1)
    # A candidate stays if even spacing comes past it
    steps = weight[light] / thresholds[own]
    passed = np.cumsum(steps)
    before = np.append(0.0, passed)[np.searchsorted(own, np.arange(n_rows))]
    passed += (offsets - before)[own]
    chosen = np.floor(passed) > np.floor(passed - steps)
    weight = weight.copy()
    weight[light] = thresholds[own]
    is_kept = ~is_light
    is_kept[light] = chosen
    kept = np.flatnonzero(is_kept)
    totals = np.bincount(source[kept], weight[kept], minlength=n_rows)
    return kept, weight[kept] / totals[source[kept]]
