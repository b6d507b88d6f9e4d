"""Distributions of single variables given observed cells, by five methods."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np

from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import IntArray
from skcircuits.trees.mixture_of_all_trees._all_trees_mixture import AllTreesMixture
from skcircuits.trees.mixture_of_all_trees._enumeration import enumerate_marginals
from skcircuits.trees.mixture_of_all_trees._evidence_trees import (
    WeightedMarginals,
    estimate_marginals,
    sample_completions,
)
from skcircuits.trees.mixture_of_all_trees._gibbs import blocked_gibbs, single_site_gibbs

__all__ = ["conditional_marginals"]

_N_CHAINS = 16  # independent chains per row; their spread gives the standard errors
_BURN_IN = 0.25  # share of the sweeps that is added in front and thrown away


def conditional_marginals(
    mixture: AllTreesMixture,
    codes: IntArray,
    method: str,
    n_samples: int,
    rng: np.random.Generator,
) -> WeightedMarginals:
    """Distribution of every variable given the observed cells of each row.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    codes : ndarray of shape (n_rows, n_variables)
        Rows, -1 where a cell is missing.
    method : {"collapsed", "importance", "blocked_gibbs", "gibbs", "exact"}
        ``"collapsed"`` averages the exact answers of drawn trees, ``"importance"`` the
        distributions that the cells of one row per tree were drawn from, both weighted by how
        well the tree explains the observed cells;
        ``"blocked_gibbs"`` and ``"gibbs"`` average over Markov chains; ``"exact"`` enumerates
        the missing cells.
    n_samples : int
        Number of trees, or of rows drawn by the chains; ignored by ``"exact"``.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    WeightedMarginals
        Estimates, standard errors and effective sample sizes.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import (
    ...     AllTreesMixture, Parameterization, StateLayout, conditional_marginals
    ... )
    >>> parameterization = Parameterization(StateLayout([2, 2]))
    >>> model = parameterization.model(np.zeros(parameterization.size))
    >>> mixture = AllTreesMixture(np.zeros(1), [model])
    >>> rng = np.random.default_rng(0)
    >>> conditional_marginals(mixture, np.array([[1, -1]]), "exact", 0, rng).probabilities
    array([[0. , 1. , 0.5, 0.5]])
    """
    layout = mixture.layout
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
    return WeightedMarginals(*(np.concatenate(part) for part in zip(*parts, strict=True)))


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
