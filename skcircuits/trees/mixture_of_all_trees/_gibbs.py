"""Gibbs samplers of a mixture of all trees given observed cells.

`blocked_gibbs` alternates between the tree and the missing cells, each drawn exactly given the
other: the law of the tree given a complete row is again a spanning-tree law, with weights
``w_uv r_uv(x_u, x_v)``. `single_site_gibbs` draws one cell after the other and is the baseline.
Both are endless generators; every row is a chain of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees.mixture_of_all_trees._all_trees_mixture import AllTreesMixture
from skcircuits.trees.spanning._sampling import sample_spanning_trees
from skcircuits.trees.tree._inference import TreeInference

__all__ = ["blocked_gibbs", "single_site_gibbs"]


def blocked_gibbs(
    mixture: AllTreesMixture, start: IntArray, missing: BoolArray, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Draw component and tree given the row, then the missing cells given the tree.

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    start : ndarray of shape (n_chains, n_variables)
        Complete rows to start from.
    missing : ndarray of shape (n_chains, n_variables)
        True where a cell is to be drawn.
    rng : numpy.random.Generator
        Source of randomness.

    Yields
    ------
    ndarray of shape (n_chains, n_variables)
        Rows after each sweep.
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

    Parameters
    ----------
    mixture : AllTreesMixture
        The model.
    start : ndarray of shape (n_chains, n_variables)
        Complete rows to start from.
    missing : ndarray of shape (n_chains, n_variables)
        True where a cell is to be drawn.
    rng : numpy.random.Generator
        Source of randomness.

    Yields
    ------
    ndarray of shape (n_chains, n_variables)
        Rows after each sweep over the missing cells.
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
    weights = np.exp(log_weights - logsumexp(log_weights, axis=1, keepdims=True))
    return draw_states(weights, rng.random(len(weights)))
