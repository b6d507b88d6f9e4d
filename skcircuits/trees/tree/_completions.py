"""Completions of incomplete rows with their probabilities, by a Chow-Liu tree of these rows.

Learners of structures need complete rows. Draws would make their results depend on chance, and a
row of weight two would not be that row twice; completions that count by their probabilities do
neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from skcircuits.numerics._random import RowStreams
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees.tree._chow_liu import ChowLiuTree, PairStatistics, observed_tree
from skcircuits.trees.tree._trees import (
    StateLayout,
    TreeInference,
    distinct_rows,
    edges_of,
    top_down_order,
)

_MAX_COMPLETIONS = 4  # of a row
_MAX_STEPS, _TOL = 50, 1e-4  # of expectation maximisation


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
    """Complete the rows of tables by a tree that is learned from the first of them.

    Rows with few completions have all of them. Of others the most probable ones are kept as they
    are, and some stand for the rest, each with the same probability (Fearnhead and Clifford, 2003).
    Which these are depends on the cells of the row alone.

    `tables`: codes (n_rows, n_variables), -1 where missing; `sample_weight` (n_rows,) of the first.
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
    """Keep at most so many of the candidates of each row, with weights right on average.

    Weights above a threshold stay; of the rest, evenly spaced ones stay with the threshold as
    weight.

    `source` (n,): row of each candidate, ascending; `weight` (n,), one in all per row; `offsets`
    (n_rows,), uniform: where even spacing begins -> numbers (n_kept,) of those that stay, weights.
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
