"""Gibbs sampling, vectorised over chains."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skcircuits.exceptions import must
from skcircuits.graphical.inference._blankets import FullConditional, log_full_conditional
from skcircuits.numerics._random import draw_states
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["check_schedule", "gibbs_chains"]


def check_schedule(*, n_samples: int, burn_in: int, thin: int, n_chains: int) -> None:
    """Refuse numbers of sweeps and chains that mean nothing.

    Parameters
    ----------
    n_samples, burn_in : int
        At least 0.
    thin, n_chains : int
        At least 1.
    """
    for name, value in (("n_samples", n_samples), ("burn_in", burn_in)):
        if value < 0:
            raise ValueError(must(name, "be at least 0", "", **{name: value}))
    for name, value in (("thin", thin), ("n_chains", n_chains)):
        if value < 1:
            raise ValueError(must(name, "be at least 1", "", **{name: value}))


def gibbs_chains(
    conditionals: Sequence[FullConditional],
    start: IntArray,
    n_samples: int,
    *,
    burn_in: int,
    thin: int,
    rng: np.random.Generator,
) -> IntArray:
    """Run chains with a systematic scan over the variables.

    Parameters
    ----------
    conditionals : sequence of FullConditional
        One per variable.
    start : ndarray of int of shape (n_chains, d)
        First states.
    n_samples : int
        States to keep of each chain.
    burn_in : int
        Full sweeps before the first state is kept.
    thin : int
        Full sweeps from one kept state to the next.
    rng : Generator
        Source of randomness.

    Returns
    -------
    ndarray of int of shape (n_chains, n_samples, d)
        The kept states.
    """
    states = start.copy()  # updated in place by every sweep
    kept = np.empty((len(states), n_samples, states.shape[1]), dtype=np.int64)
    for _ in range(burn_in):
        _sweep(conditionals, states, rng)
    for index in range(n_samples):
        for _ in range(thin):
            _sweep(conditionals, states, rng)
        kept[:, index] = states
    return kept


def _sweep(
    conditionals: Sequence[FullConditional], states: IntArray, rng: np.random.Generator
) -> None:
    """Renew every variable of every chain once, in place."""
    # All random numbers of a sweep in one call; the update itself is a few lookups.
    uniform = rng.random((len(conditionals), len(states)))
    for variable, conditional in enumerate(conditionals):
        logits = log_full_conditional(conditional, states)
        states[:, variable] = _draw(logits, uniform[variable])


def _draw(logits: FloatArray, uniform: FloatArray) -> IntArray:
    """Invert the cumulative distribution of each row of logits."""
    peak = logits.max(axis=-1, keepdims=True)
    # A state whose every neighbour is impossible moves uniformly until it escapes.
    peak[np.isneginf(peak)] = 0.0
    weights = np.exp(logits - peak)
    weights[~weights.any(axis=-1)] = 1.0
    return draw_states(weights, uniform)
