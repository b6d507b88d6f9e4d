"""Answers of a mixture of all trees by enumeration of the missing cells, or a search among them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skcircuits.exceptions import must
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._evidence_trees import sample_completions
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture

MAX_COMPLETIONS = 2**17  # completions of one row that are enumerated at most
MAX_EXACT_COMPLETIONS = 4096  # up to so many, enumeration is no slower than an estimate


def n_completions(evidence: FloatArray, mixture: AllTreesMixture) -> FloatArray:
    """Number of complete rows that the evidence allows.

    `evidence` (n_rows, n_states) -> (n_rows,).
    """
    layout = mixture.layout
    return layout.sum_states((evidence > 0).astype(float)).prod(axis=1)


def enumerate_evidence(mixture: AllTreesMixture, evidence: FloatArray) -> FloatArray:
    """Log of the expected product of the factors: the log probability of observed cells.

    `evidence` (n_rows, n_states) -> (n_rows,).
    """
    log_evidence = np.full(len(evidence), -np.inf)
    # A variable whose states are all ruled out leaves nothing to enumerate.
    possible = n_completions(evidence, mixture) > 0
    parts = [_log_sums(block) for block in _completions(mixture, evidence[possible])]
    log_evidence[possible] = np.concatenate([np.empty(0), *parts])
    return log_evidence


def enumerate_marginals(mixture: AllTreesMixture, evidence: FloatArray) -> FloatArray:
    """Distribution of every variable given the observed cells.

    `evidence` (n_rows, n_states) -> (n_rows, n_states).
    """
    parts = [np.empty((0, evidence.shape[1]))]
    for block in _completions(mixture, evidence):
        sizes = np.diff([*block.starts, len(block.codes)])
        weights = np.exp(block.log_joint - np.repeat(_log_sums(block), sizes))
        indicators = mixture.layout.one_hot(block.codes)
        parts.append(np.add.reduceat(weights[:, None] * indicators, block.starts, axis=0))
    return np.concatenate(parts)


def draw_enumerated(
    mixture: AllTreesMixture, evidence: FloatArray, n_samples: int, rng: np.random.Generator
) -> IntArray:
    """Draw complete rows given the observed cells.

    `evidence` (n_rows, n_states) -> (n_samples, n_rows, n_variables).
    """
    parts = [np.empty((n_samples, 0, mixture.layout.n_variables), dtype=np.int64)]
    for block in _completions(mixture, evidence):
        ends = np.append(block.starts[1:], len(block.codes))
        owner = np.repeat(np.arange(len(ends)), ends - block.starts)
        # Row r has the numbers from r to r + 1: one search serves the draws of all rows.
        cumulative = np.cumsum(np.exp(block.log_joint - _log_sums(block)[owner]))
        cumulative += owner - np.append(0.0, cumulative)[block.starts][owner]
        numbers = np.arange(len(ends)) + rng.random((n_samples, len(ends)))
        found = np.searchsorted(cumulative, numbers.ravel(), side="right").reshape(numbers.shape)
        parts.append(block.codes[np.clip(found, block.starts, ends - 1)])
    return np.concatenate(parts, axis=1)


def _most_probable_enumerated(mixture: AllTreesMixture, evidence: FloatArray) -> IntArray:
    """Most probable completion of each row: `evidence` (n_rows, n_states) -> (n_rows, n_variables).

    The first of equally probable ones.
    """
    parts = [np.empty((0, mixture.layout.n_variables), dtype=np.int64)]
    for block in _completions(mixture, evidence):
        largest = np.maximum.reduceat(block.log_joint, block.starts)
        sizes = np.diff([*block.starts, len(block.codes)])
        is_largest = block.log_joint >= np.repeat(largest, sizes)
        first = np.flatnonzero(is_largest)
        parts.append(block.codes[first[np.searchsorted(first, block.starts)]])
    return np.concatenate(parts)


class _Block(NamedTuple):
    """All completions of some rows, one row after the other."""

    codes: IntArray  # (n_completions, n_variables)
    log_joint: FloatArray  # (n_completions,)
    starts: IntArray  # (n_rows,) where the completions of each row begin


def _completions(mixture: AllTreesMixture, evidence: FloatArray) -> Iterator[_Block]:
    """Enumerate the completions of all rows, as many rows at once as memory allows."""
    layout = mixture.layout
    most = n_completions(evidence, mixture).max(initial=1)
    if most > MAX_COMPLETIONS:
        raise ValueError(
            must(
                "rows to enumerate",
                f"have at most {MAX_COMPLETIONS} completions",
                "Use method='collapsed'.",
                completions=float(most),
            )
        )
    for rows in memory_bound_chunks(len(evidence), 32 * layout.n_states * int(most)):
        chosen = evidence[rows]
        counts = layout.sum_states((chosen > 0).astype(float)).astype(np.int64)
        # Completion number c of a row has the digits of c to the bases of its counts.
        strides = np.cumprod(counts, axis=1)
        owner = np.repeat(np.arange(len(chosen)), strides[:, -1])
        starts = np.concatenate([[0], np.cumsum(strides[:-1, -1])])
        # All completions of all rows in one array: the likelihood is computed in one call.
        rank = np.arange(len(owner)) - starts[owner]
        ranks = rank[:, None] // (strides // counts)[owner] % counts[owner]
        # Sorted by variable, then by exclusion, the allowed states of a variable come first.
        order = np.argsort(2 * layout.owner + (chosen <= 0), axis=1, kind="stable")
        flat = order[owner[:, None], layout.offsets + ranks]
        factors = np.log(chosen, where=chosen > 0, out=np.zeros_like(chosen))
        factors = factors[owner[:, None], flat].sum(axis=1)
        codes = flat - layout.offsets
        yield _Block(codes, factors + mixture.log_prob(codes), starts)


def _log_sums(block: _Block) -> FloatArray:
    """Log of the sum over the completions of each row."""
    log_sums: FloatArray = np.logaddexp.reduceat(block.log_joint, block.starts)
    return log_sums


def most_probable_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    n_starts: int,
    n_trees: int,
    rng: np.random.Generator,
) -> tuple[IntArray, BoolArray]:
    """Complete rows (n_rows, n_variables), and tell which were searched and not enumerated.

    `evidence` (n_rows, n_states) with a possible state per variable. Up to `MAX_COMPLETIONS`
    completions are enumerated, which is exact. Beyond, the problem is NP-hard: `n_starts` rows
    drawn given the evidence are improved by the best change of one cell at a time until none helps.
    """
    is_searched = n_completions(evidence, mixture) > MAX_COMPLETIONS
    codes = np.empty((len(evidence), mixture.layout.n_variables), dtype=np.int64)
    codes[~is_searched] = _most_probable_enumerated(mixture, evidence[~is_searched])
    for row in np.flatnonzero(is_searched):
        starts = sample_completions(mixture, evidence[[row]], n_starts, n_trees, rng)[:, 0]
        tops = [_ascend(mixture, evidence[row], start) for start in np.unique(starts, axis=0)]
        codes[row] = max(tops, key=lambda top: top[1])[0]
    return codes, is_searched


def _ascend(
    mixture: AllTreesMixture, evidence: FloatArray, codes: IntArray
) -> tuple[IntArray, float]:
    """Change one cell at a time, always the best one: a local optimum and its log probability."""
    layout = mixture.layout
    with np.errstate(divide="ignore"):
        log_evidence = np.log(evidence)
    n_open = layout.sum_states((evidence > 0).astype(float))
    is_open = (evidence > 0) & (n_open > 1)[layout.owner]
    states = np.flatnonzero(is_open)
    neighbours = np.empty((len(states), layout.n_variables), dtype=np.int64)
    reached = -np.inf
    while True:
        # The row itself is among its neighbours: each open cell keeps its state once.
        neighbours[:] = codes
        neighbours[np.arange(len(states)), layout.owner[states]] = layout.own_state[states]
        log_prob = mixture.log_prob(neighbours)
        log_prob += log_evidence[layout.flat(neighbours)].sum(axis=1)
        best = int(log_prob.argmax())
        if not log_prob[best] > reached:
            return codes, reached
        codes, reached = neighbours[best].copy(), float(log_prob[best])
