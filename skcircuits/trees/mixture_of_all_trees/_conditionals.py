"""Distributions of single variables given observed cells, by five methods."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from scipy.special import softmax

from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._enumeration import (
    MAX_EXACT_COMPLETIONS,
    enumerate_marginals,
    n_completions,
)
from skcircuits.trees.mixture_of_all_trees._evidence_completions import estimate_conditionals
from skcircuits.trees.mixture_of_all_trees._evidence_trees import (
    WeightedMarginals,
    estimate_marginals,
    sample_completions,
)
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture
from skcircuits.trees.spanning._sampling import sample_spanning_trees
from skcircuits.trees.tree._inference import TreeInference

_N_CHAINS = 16  # independent chains per row; their spread gives the standard errors
_BURN_IN = 0.25  # fraction of the sweeps that is added in front and thrown away


def conditional_marginals(
    mixture: AllTreesMixture,
    codes: IntArray,
    method: str,
    n_samples: int,
    rng: np.random.Generator,
) -> WeightedMarginals:
    """Distribution of every variable given the observed cells of each row.

    `codes` (n_rows, n_variables).
    """
    layout = mixture.layout
    if method == "auto":
        return _exact_or_estimated(mixture, codes, n_samples, rng)
    if method == "exact":
        exact = enumerate_marginals(mixture, layout.evidence(codes))
        return WeightedMarginals(exact, np.zeros_like(exact), np.full(len(codes), np.inf))
    if method in ("collapsed", "importance"):
        return estimate_marginals(
            mixture, layout.evidence(codes), n_samples, rng, collapsed=method == "collapsed"
        )
    sampler = blocked_gibbs if method == "blocked_gibbs" else single_site_gibbs
    bytes_per_row = 8 * _N_CHAINS * (layout.n_states + layout.n_variables**2)
    parts = []
    for rows in memory_bound_chunks(len(codes), bytes_per_row):
        start = _first_rows(mixture, codes[rows], rng)
        missing = np.repeat(codes[rows] < 0, _N_CHAINS, axis=0)
        # At least so many rows are averaged as were asked for, after the burn-in.
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


def _first_rows(mixture: AllTreesMixture, codes: IntArray, rng: np.random.Generator) -> IntArray:
    """Complete rows for all chains: near the target, because drawn from weighted trees."""
    evidence = mixture.layout.evidence(codes)
    drawn = sample_completions(mixture, evidence, _N_CHAINS, _N_CHAINS, rng)
    return drawn.transpose(1, 0, 2).reshape(-1, codes.shape[1])


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
    """Draw component and tree given the row, then the missing cells given the tree.

    `start` (n_chains, n_variables), `missing` (n_chains, n_variables) -> (n_chains, n_variables).
    """
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
                    sample_spanning_trees(weights, np.arange(len(rows)), rng),
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
    """Draw every missing cell given all other cells, one after the other.

    `start` (n_chains, n_variables), `missing` (n_chains, n_variables) -> (n_chains, n_variables).
    """
    codes = start
    cardinalities = mixture.layout.cardinalities
    while True:
        codes = codes.copy()
        for variable in np.flatnonzero(missing.any(axis=0)):
            rows = np.flatnonzero(missing[:, variable])
            n_states = cardinalities[variable]
            # Every state of the variable, beside all other cells of the row.
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
