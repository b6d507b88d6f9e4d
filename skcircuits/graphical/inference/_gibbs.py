"""Gibbs sampling, and full conditionals by table lookup in the Markov blanket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from skcircuits.graphical.factor import Factor
from skcircuits.numerics._random import draw_states
from skcircuits.protocols import FloatArray, IntArray

# Joint states of a model that are enumerated to see whether moves connect them.
_MAX_JOINT_STATES = 4096
# A variable is stuck if independent draws would all be equal with less than this probability.
_CHANCE = 1e-6

# Factors of one variable are merged into one table while it has at most this many cells.
_MERGED_CELLS = 4096


@dataclass(frozen=True)
class FullConditional:
    """The factors of one variable, ready for lookups."""

    columns: tuple[IntArray, ...]
    strides: tuple[IntArray, ...]
    log_tables: tuple[FloatArray, ...]


def markov_blankets(factors: Sequence[Factor], n_variables: int) -> tuple[IntArray, ...]:
    """Find the variables that share a factor with each variable."""
    blankets: list[set[int]] = [set() for _ in range(n_variables)]
    for factor in factors:
        for variable in factor.scope:
            blankets[variable].update(factor.scope)
    return tuple(
        np.array(sorted(blanket - {variable}), dtype=np.int64)
        for variable, blanket in enumerate(blankets)
    )


def full_conditionals(
    factors: Sequence[Factor], cardinalities: IntArray
) -> tuple[FullConditional, ...]:
    """Collect the factors of every variable."""
    touching: list[list[Factor]] = [[] for _ in cardinalities]
    for factor in factors:
        for variable in factor.scope:
            touching[variable].append(factor)
    return tuple(
        _merge(variable, members, cardinalities) for variable, members in enumerate(touching)
    )


def log_full_conditional(conditional: FullConditional, codes: IntArray) -> FloatArray:
    """Log full conditional of rows (n, k), up to a constant each, from codes (d, n) by column."""
    # Usually there is a single, merged table.
    lookups = zip(conditional.columns, conditional.strides, conditional.log_tables)
    columns, strides, table = next(lookups)
    total = table.take(strides @ codes.take(columns, axis=0), axis=0)
    for columns, strides, table in lookups:
        total += table.take(strides @ codes.take(columns, axis=0), axis=0)
    return total


def _merge(variable: int, factors: list[Factor], cardinalities: IntArray) -> FullConditional:
    """Group factors greedily, smallest blankets first, into tables of bounded size."""
    # The first group exists even without factors: its table is the uniform distribution.
    groups: list[tuple[list[int], list[Factor]]] = [([], [])]
    for factor in sorted(factors, key=lambda factor: len(factor.scope)):
        blanket = sorted({*groups[-1][0], *factor.scope} - {variable})
        # One lookup per group: merged tables save most of them, until they leave the cache
        if groups[-1][1] and prod(cardinalities[[*blanket, variable]].tolist()) > _MERGED_CELLS:
            blanket = sorted(set(factor.scope) - {variable})
            groups.append((blanket, []))
        groups[-1] = (blanket, [*groups[-1][1], factor])
    columns = tuple(np.array(blanket, dtype=np.int64) for blanket, _ in groups)
    return FullConditional(
        columns=columns,
        strides=tuple(_strides(cardinalities[blanket]) for blanket in columns),
        log_tables=tuple(
            _sum_of_factors([*blanket, variable], members, cardinalities)
            for blanket, members in groups
        ),
    )


def _strides(states: IntArray) -> IntArray:
    """Weights of a mixed-radix code, last variable fastest."""
    return np.append(np.cumprod(states[:0:-1])[::-1], 1)[: len(states)].astype(np.int64)


def _sum_of_factors(axes: list[int], factors: list[Factor], cardinalities: IntArray) -> FloatArray:
    """Add log tables over common axes; the last axis stays apart."""
    total = np.zeros(cardinalities[axes])
    for factor in factors:
        # Axes in the order of the group, of length one where the factor has none.
        order = np.argsort([axes.index(v) for v in factor.scope])
        shape = [int(cardinalities[v]) if v in factor.scope else 1 for v in axes]
        total += factor.log_table.transpose(order).reshape(shape)
    return total.reshape(-1, int(cardinalities[axes[-1]]))


def gibbs_chains(
    conditionals: Sequence[FullConditional],
    start: IntArray,
    n_samples: int,
    *,
    burn_in: int,
    thin: int,
    rng: np.random.Generator,
) -> IntArray:
    """Run chains with a systematic scan over the variables."""
    states = start.T.copy()  # updated in place by every sweep
    kept = np.empty((len(start), n_samples, len(states)), dtype=np.int64)
    for _ in range(burn_in):
        _sweep(conditionals, states, rng)
    for index in range(n_samples):
        for _ in range(thin):
            _sweep(conditionals, states, rng)
        kept[:, index] = states.T
    return kept


def stuck_variables(
    kept: IntArray, conditional_marginals: Callable[[FloatArray], list[FloatArray]]
) -> list[int]:
    """Variables that some chain of (n_chains, n_samples, d) never moved although it should have."""
    if not kept.size:
        return []
    still = (kept == kept[:, :1]).all(axis=1)
    if not still.any():
        return []
    try:
        marginals = conditional_marginals(np.full((1, kept.shape[2]), np.nan))
    except MemoryError:  # too dense for exact marginals: nothing to compare with
        return []
    stuck = []
    for variable in still.any(axis=0).nonzero()[0].tolist():
        states = kept[still[:, variable], 0, variable]
        # Independent draws would all show this state with this probability: a chain does no
        # better
        if np.any(marginals[variable][0, states] ** kept.shape[1] < _CHANCE):
            stuck.append(variable)
    return stuck


def has_separate_states(
    cardinalities: IntArray, log_prob: Callable[[FloatArray], FloatArray]
) -> bool:
    """Whether moves of one variable leave possible states unconnected; False for large models."""
    n_states = prod(cardinalities.tolist())
    if n_states > _MAX_JOINT_STATES:
        return False
    strides = _strides(cardinalities)
    states = np.arange(n_states)[:, None] // strides % cardinalities
    possible = ~np.isneginf(log_prob(states.astype(np.float64)))
    edges = []
    for variable, stride in enumerate(strides.tolist()):
        # All states that differ in one variable are joined with the first possible of them.
        lines = np.arange(n_states) - states[:, variable] * stride
        members = possible.nonzero()[0]
        _, first, which = np.unique(lines[members], return_index=True, return_inverse=True)
        edges.append(np.stack([members, members[first][which]]))
    pairs = np.concatenate(edges, axis=1)
    graph = sparse.csr_array((np.ones(pairs.shape[1]), tuple(pairs)), (n_states, n_states))
    labels = csgraph.connected_components(graph, directed=False)[1]
    return len(np.unique(labels[possible])) > 1


def _sweep(
    conditionals: Sequence[FullConditional], states: IntArray, rng: np.random.Generator
) -> None:
    """Update every variable of every chain once, in place; states (d, n_chains)."""
    # All random numbers of a sweep in one call; the update itself is a few lookups.
    uniform = rng.random(states.shape)
    for variable, conditional in enumerate(conditionals):
        logits = log_full_conditional(conditional, states)
        states[variable] = _draw(logits, uniform[variable])


def _draw(logits: FloatArray, uniform: FloatArray) -> IntArray:
    """Invert the cumulative distribution of each row of logits."""
    peak = logits.max(axis=-1, keepdims=True)
    # If all states are impossible, the variable is drawn uniformly until the chain is possible.
    peak[np.isneginf(peak)] = 0.0
    weights = np.exp(logits - peak)
    weights[~weights.any(axis=-1)] = 1.0
    return draw_states(weights, uniform)
