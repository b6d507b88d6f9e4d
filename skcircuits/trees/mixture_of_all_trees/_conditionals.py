"""Distributions of single variables given observed cells, by one of five methods."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np
from scipy.special import softmax

from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import logsumexp, safe_log
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks, row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._spanning_trees import log_partitions_and_inverses, sample_spanning_trees
from skcircuits.trees._trees import TreeInference
from skcircuits.trees.mixture_of_all_trees._evidence import (
    WeightedMarginals,
    estimate_conditionals,
    estimate_marginals,
    sample_completions,
)
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture

MAX_COMPLETIONS = 2**17  # completions of one row that are enumerated at most
MAX_EXACT_COMPLETIONS = 4096  # up to so many, enumeration is no slower than an estimate
_CHANGES_AT_ONCE = 4  # of one cell, whose probabilities are computed together
_BOUND_ROUNDING = 1e-6  # error of a bound by rounding
_MAX_EDGE_ERROR = 1e-9  # fraction of the edges of a tree: more digits lost than bounds may lose
_N_CHAINS = 16  # independent chains per row; their spread gives the standard errors
_BURN_IN = 0.25  # fraction of the sweeps that is added in front and thrown away


def n_completions(evidence: FloatArray, mixture: AllTreesMixture) -> FloatArray:
    """Numbers (n_rows,) of complete rows that evidence (n_rows, n_states) allows."""
    layout = mixture.layout
    return layout.sum_states((evidence > 0).astype(float)).prod(axis=1)


def enumerate_evidence(mixture: AllTreesMixture, evidence: FloatArray) -> FloatArray:
    """Log probabilities (n_rows,) of evidence (n_rows, n_states)."""
    log_evidence = np.full(len(evidence), -np.inf)
    # If all states of a variable are ruled out, there is nothing to enumerate.
    possible = n_completions(evidence, mixture) > 0
    parts = [_log_sums(block) for block in _completions(mixture, evidence[possible])]
    log_evidence[possible] = np.concatenate([np.empty(0), *parts])
    return log_evidence


def enumerate_marginals(mixture: AllTreesMixture, evidence: FloatArray) -> FloatArray:
    """Distributions (n_rows, n_states) of all variables given evidence (n_rows, n_states)."""
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
    """Draw complete rows (n_samples, n_rows, n_variables) given evidence (n_rows, n_states)."""
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
    """Most probable completions (n_rows, n_variables), the first of ties, of evidence by states."""
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
        condition = f"have at most {MAX_COMPLETIONS} completions"
        way_out = "Use method='collapsed'."
        raise invalid("rows to enumerate", condition, way_out, completions=float(most))
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
    return np.logaddexp.reduceat(block.log_joint, block.starts)


def most_probable_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    n_starts: int,
    n_trees: int,
    rng: np.random.Generator,
) -> tuple[IntArray, BoolArray]:
    """Most probable rows (n_rows, n_variables), and which were found by search: up to
    `MAX_COMPLETIONS` are enumerated, else (NP-hard) `n_starts` draws are improved cell by cell.
    """
    is_searched = n_completions(evidence, mixture) > MAX_COMPLETIONS
    codes = np.empty((len(evidence), mixture.layout.n_variables), dtype=np.int64)
    codes[~is_searched] = _most_probable_enumerated(mixture, evidence[~is_searched])
    if not is_searched.any():
        return codes, is_searched
    neighbourhood = _Neighbourhood(mixture)
    for row in np.flatnonzero(is_searched):
        starts = sample_completions(mixture, evidence[[row]], n_starts, n_trees, rng)[:, 0]
        tops = [_ascend(neighbourhood, evidence[row], start) for start in np.unique(starts, axis=0)]
        codes[row] = max(tops, key=lambda top: top[1])[0]
    return codes, is_searched


class _Neighbourhood:
    """Log probabilities of rows and upper bounds of those one cell away: log determinants are
    concave, so that first-order changes, by the resistances of edges, are never below.
    """

    def __init__(self, mixture: AllTreesMixture) -> None:
        self.mixture = mixture
        self._affinities = [model.affinities() for model in mixture.components]
        self._laplacians = [model.laplacians() for model in mixture.components]

    def log_prob(self, codes: IntArray) -> FloatArray:
        """Log probabilities (n_rows,) of complete rows, as those of the mixture."""
        log_joint = [
            laplacians.log_partitions(codes) + model.log_normaliser(codes)
            for model, laplacians in zip(self.mixture.components, self._laplacians, strict=True)
        ]
        found: FloatArray = logsumexp(
            self.mixture.log_weights + np.stack(log_joint, axis=1), axis=1
        )
        return found

    def bounds(self, codes: IntArray, states: IntArray) -> FloatArray:
        """Upper bounds (n_states,) of the log probability of a row with one of the flat states."""
        layout = self.mixture.layout
        flat, owners = layout.flat(codes), layout.owner[states]
        bounds = []
        for model, affinities in zip(self.mixture.components, self._affinities, strict=True):
            weights = affinities[flat[:, None], flat]
            log_sum, resistances = _resistances(weights)
            changes = affinities[states[:, None], flat]
            changes -= weights[owners]
            log_nodes = np.log(model.nodes)
            normaliser = log_nodes[flat].sum() - model.tree_distribution[0]
            normaliser = normaliser + log_nodes[states] - log_nodes[flat[owners]]
            changes *= resistances[owners]
            bounds.append(log_sum + changes.sum(axis=1) + normaliser)
        found: FloatArray = logsumexp(self.mixture.log_weights + np.stack(bounds, axis=1), axis=1)
        return found


def _resistances(weights: FloatArray) -> tuple[float, FloatArray]:
    """Log sum over trees, and effective resistances (n, n); infinite where digits are lost."""
    n_variables = len(weights)
    lost = np.inf, np.zeros(weights.shape)
    try:
        log_sums, inverses = log_partitions_and_inverses(weights[None])
    except FloatingPointError:
        return lost
    diagonal = np.diagonal(inverses[0])
    resistances = diagonal[:, None] + diagonal - 2 * inverses[0]
    # Probabilities of the edges add up to their number in a tree (Foster, 1949)
    n_edges = float((weights * resistances).sum()) / 2
    is_exact = abs(n_edges - (n_variables - 1)) <= _MAX_EDGE_ERROR * n_variables
    return (float(log_sums[0]), resistances) if is_exact else lost


def _ascend(
    neighbourhood: _Neighbourhood, evidence: FloatArray, codes: IntArray
) -> tuple[IntArray, float]:
    """Change one cell at a time, always the best one: a local optimum and its log probability."""
    layout = neighbourhood.mixture.layout
    log_evidence = safe_log(evidence)
    n_open = layout.sum_states((evidence > 0).astype(float))
    states = np.flatnonzero((evidence > 0) & (n_open > 1)[layout.owner])

    def score(rows: IntArray) -> FloatArray:
        return neighbourhood.log_prob(rows) + log_evidence[layout.flat(rows)].sum(axis=1)

    reached = float(score(codes[None])[0])
    while True:
        flat = layout.flat(codes)
        others = np.setdiff1d(states, flat)
        owners = layout.owner[others]
        bounds = neighbourhood.bounds(codes, others) + log_evidence[flat].sum()
        bounds += log_evidence[others] - log_evidence[flat[owners]]
        order = np.argsort(-bounds, kind="stable")
        best, highest = None, reached
        # The best change is among the first few by their bounds
        for part in row_slices(len(others), _CHANGES_AT_ONCE):
            chosen = order[part]
            if not bounds[chosen[0]] + _BOUND_ROUNDING > highest:
                break
            neighbours = np.tile(codes, (len(chosen), 1))
            changed = others[chosen]
            neighbours[np.arange(len(chosen)), owners[chosen]] = layout.own_state[changed]
            scores = score(neighbours)
            if scores.max() > highest:
                best, highest = neighbours[scores.argmax()].copy(), float(scores.max())
        if best is None:
            return codes, reached
        codes, reached = best, highest


def conditional_marginals(
    mixture: AllTreesMixture,
    codes: IntArray,
    method: str,
    n_samples: int,
    rng: np.random.Generator,
    *,
    from_prior: bool = False,
) -> WeightedMarginals:
    """Distribution of every variable given the observed cells of rows (n_rows, n_variables)."""
    layout = mixture.layout
    if method == "auto":
        return _exact_or_estimated(mixture, codes, n_samples, rng)
    if method == "exact":
        exact = enumerate_marginals(mixture, layout.evidence(codes))
        return WeightedMarginals(exact, np.zeros_like(exact), np.full(len(codes), np.inf))
    if method in ("collapsed", "importance"):
        return estimate_marginals(
            mixture,
            layout.evidence(codes),
            n_samples,
            rng,
            collapsed=method == "collapsed",
            from_prior=from_prior,
        )
    sampler = blocked_gibbs if method == "blocked_gibbs" else single_site_gibbs
    bytes_per_row = 8 * _N_CHAINS * (layout.n_states + layout.n_variables**2)
    parts = []
    for rows in memory_bound_chunks(len(codes), bytes_per_row):
        # Near the target, because drawn from weighted trees
        evidence = layout.evidence(codes[rows])
        drawn = sample_completions(mixture, evidence, _N_CHAINS, _N_CHAINS, rng)
        start = drawn.transpose(1, 0, 2).reshape(-1, layout.n_variables)
        missing = np.repeat(codes[rows] < 0, _N_CHAINS, axis=0)
        # At least as many rows are averaged as requested, after the burn-in.
        n_sweeps = -(-n_samples // _N_CHAINS)
        n_discarded = int(np.ceil(_BURN_IN * n_sweeps))
        sweeps = sampler(mixture, start, missing, rng)
        kept = islice(sweeps, n_discarded, n_discarded + n_sweeps)
        parts.append(_chain_averages(mixture, kept, n_sweeps))
    return WeightedMarginals.of_parts(parts, layout.n_states)


def _exact_or_estimated(
    mixture: AllTreesMixture, codes: IntArray, n_samples: int, rng: np.random.Generator
) -> WeightedMarginals:
    """Enumerate rows with few completions; draw completions or trees for the others."""
    few = n_completions(mixture.layout.evidence(codes), mixture) <= MAX_EXACT_COMPLETIONS
    exact = conditional_marginals(mixture, codes[few], "exact", n_samples, rng)
    if few.all():
        return exact
    estimated = estimate_conditionals(mixture, mixture.layout.evidence(codes[~few]), n_samples, rng)
    order = np.argsort(np.concatenate([np.flatnonzero(few), np.flatnonzero(~few)]))
    return WeightedMarginals.of_parts([exact, estimated], mixture.layout.n_states).of_rows(order)


def _chain_averages(
    mixture: AllTreesMixture, sweeps: Iterator[IntArray], n_sweeps: int
) -> WeightedMarginals:
    layout = mixture.layout
    total = sum(layout.one_hot(codes) for codes in sweeps) / n_sweeps
    # Chains are independent, the rows within one are not: errors come from chain means.
    chains = np.reshape(total, (-1, _N_CHAINS, layout.n_states))
    probabilities = chains.mean(axis=1)
    errors = chains.std(axis=1, ddof=1) / np.sqrt(_N_CHAINS)
    # Independent draws would have variance p (1 - p) / n.
    spread, noise = (probabilities * (1 - probabilities)).sum(axis=1), (errors**2).sum(axis=1)
    most = float(n_sweeps * _N_CHAINS)
    sizes = np.divide(spread, noise, out=np.full(len(spread), most), where=noise > 0)
    return WeightedMarginals(probabilities, errors, np.minimum(sizes, most))


def blocked_gibbs(
    mixture: AllTreesMixture, start: IntArray, missing: BoolArray, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Draw component and tree given the row, then missing cells, of (n_chains, n_variables)."""
    codes = start
    layout = mixture.layout
    while True:
        components = _draw_components(mixture, codes, rng)
        evidence = layout.evidence(np.where(missing, -1, codes))
        codes = codes.copy()
        for component, model in enumerate(mixture.components):
            mine = np.flatnonzero(components == component)
            affinities, ratios = model.affinities(), model.ratios()
            for chunk in memory_bound_chunks(len(mine), 24 * layout.n_variables**2):
                rows = mine[chunk]
                # P(T|x) is a spanning-tree law with the affinities of the row as weights.
                flat = layout.flat(codes[rows])
                weights = affinities[flat[:, :, None], flat[:, None, :]]
                inference = TreeInference(
                    sample_spanning_trees(weights, np.arange(len(rows)), rng.random),
                    layout,
                    model.nodes,
                    ratios,
                    evidence[rows][:, None, :],
                )
                codes[rows] = inference.sample(rng)[:, 0]
        yield codes


def single_site_gibbs(
    mixture: AllTreesMixture, start: IntArray, missing: BoolArray, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Draw missing cells of rows (n_chains, n_variables) one after the other, given all others."""
    codes = start
    cardinalities = mixture.layout.cardinalities
    while True:
        codes = codes.copy()
        for variable in np.flatnonzero(missing.any(axis=0)):
            rows = np.flatnonzero(missing[:, variable])
            n_states = cardinalities[variable]
            # Every state of the variable, with all other cells of the row.
            candidates = np.repeat(codes[rows], n_states, axis=0)
            candidates[:, variable] = np.tile(np.arange(n_states), len(rows))
            log_prob = mixture.log_prob(candidates).reshape(len(rows), n_states)
            codes[rows, variable] = _draw_by_log(log_prob, rng)
        yield codes


def _draw_components(
    mixture: AllTreesMixture, codes: IntArray, rng: np.random.Generator
) -> IntArray:
    if len(mixture.components) == 1:
        return np.zeros(len(codes), dtype=np.int64)
    return _draw_by_log(mixture.log_joint(codes), rng)


def _draw_by_log(log_weights: FloatArray, rng: np.random.Generator) -> IntArray:
    """Draw a column per row, with probability proportional to exp(log_weights)."""
    weights = softmax(log_weights, axis=1)
    return draw_states(weights, rng.random(len(weights)))
