"""Targets of Stein methods: type, states, full conditionals, and the most probable states.

Where states are too many to be listed, those that hold nearly all of a peaked target can still be
found: ascents by changes of one variable start from samples and from random states, and the most
probable states next to those that are known are added until there are no more (a beam search). How
much the states next to the found ones hold tells how much is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from skcircuits.circuits import Circuit
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import integers, log_probs_at
from skcircuits.numerics._patterns import unique_rows
from skcircuits.protocols import BoolArray, DiscreteTarget, FloatArray, IntArray

# Numbers of states that are kept: at first and, if they miss less than so many times what they
# hold, at last, fewer where each state is next to many others.
FIRST_KEPT, HOPELESS, MAX_KEPT, MAX_NEXT = 300, 3.0, 4000, 4e5
# Number of candidates beside each state (several lead to one state), and of rounds of the search.
MAX_CANDIDATES, MAX_ROUNDS = 5, 12
# Number of ascents from samples and from random states each, and of their sweeps.
N_ASCENTS, MAX_SWEEPS = 10, 10


def is_continuous(target: Any) -> bool:
    """Tell whether a target is given by its score function."""
    if isinstance(target, Circuit):
        if target.plan.count_variables:
            what = "variables of a target of Stein methods"
            condition = "be continuous or have finitely many states"
            way_out = "Remove the others by condition() or marginalize()."
            raise CircuitPropertyError(
                must(what, condition, way_out, counts=target.plan.count_variables)
            )
        return not target.cardinalities
    # Another target that has both is continuous: states have no gradient.
    if hasattr(target, "grad_log_prob"):
        return True
    if hasattr(target, "log_prob_unnormalized") and hasattr(target, "cardinalities"):
        return False
    condition = "have log_prob_unnormalized(X) and cardinalities, or grad_log_prob(X)"
    way_out = "Graphical models, circuits and fitted densities do."
    raise TypeError(must("target", condition, way_out, target=type(target).__name__))


def own_columns(target: Any, n_columns: int) -> IntArray:
    """Give the columns of the rows that the target is about."""
    if isinstance(target, Circuit):
        return np.array(target.variables, dtype=np.int64)
    return np.arange(n_columns)


def without_other_columns(target: Any, X: FloatArray) -> FloatArray:
    """Set the cells to 0 in columns that a target is not about: all rows are alike there."""
    columns = own_columns(target, X.shape[1])
    if len(columns) >= X.shape[1]:
        return X
    rows = np.zeros_like(X)
    rows[:, columns] = X[:, columns]
    return rows


def state_counts(target: DiscreteTarget, n_columns: int) -> IntArray:
    """Give the number of states of every column; 1 where the target has no variable."""
    cardinalities = target.cardinalities
    # Circuits name their discrete variables; they may leave columns out.
    if isinstance(cardinalities, Mapping):
        _check_all_categorical(target)
        counts = np.ones(n_columns, dtype=np.int64)
        counts[list(cardinalities)] = list(cardinalities.values())
        return counts
    counts = np.array(integers(cardinalities, "cardinalities of the target"), dtype=np.int64)
    if (counts < 1).any():
        condition = "be positive numbers of states"
        raise ValueError(must("cardinalities of the target", condition, given=counts.tolist()))
    if counts.shape != (n_columns,):
        raise ValueError(
            must("X", f"have the {len(counts)} columns of the target", n_columns=n_columns)
        )
    return counts


def _check_all_categorical(target: DiscreteTarget) -> None:
    """Refuse circuits with continuous variables: these have no states."""
    continuous = sorted(set(getattr(target, "variables", ())) - set(target.cardinalities))
    if continuous:
        raise CircuitPropertyError(
            must(
                "circuit as target",
                "be over categorical variables to have states",
                "Stein methods take circuits of one kind of variables: remove the others by "
                "condition() or marginalize().",
                continuous_variables=continuous,
            )
        )


def log_probabilities(target: DiscreteTarget, X: FloatArray) -> FloatArray:
    """Evaluate a categorical target and check the result."""
    values = log_probs_at(target.log_prob_unnormalized, X)
    # NaN and inf would pass for rates of 0 or 1/2, and weights would look right.
    wrong = np.isnan(values) | np.isposinf(values)
    if wrong.any():
        row = int(wrong.argmax())
        what = "log_prob_unnormalized(X)"
        condition = "be numbers, -inf where impossible"
        way_out = "The target cannot be evaluated at this row."
        raise ValueError(
            must(what, condition, way_out, row=X[row].tolist(), value=float(values[row]))
        )
    return values


def full_conditionals(target: DiscreteTarget, X: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Evaluate a categorical target at every state of each variable, all else fixed."""
    counts = state_counts(target, X.shape[1])
    # A variable with one state cannot move, one collapsed everywhere need not.
    movable = (counts > 1) & ~np.isnan(X).all(axis=0)
    variables = movable.nonzero()[0].tolist()
    if hasattr(target, "log_full_conditionals") and not np.isnan(X).any():
        # Where the graph is known only the factors of each variable are looked at.
        tables = target.log_full_conditionals(X)
        yield from ((variable, tables[variable]) for variable in variables)
        return
    for variable in variables:
        observed = X[~np.isnan(X[:, variable])]
        yield variable, log_probabilities_along(target, observed, variable, int(counts[variable]))


def meets_zeros(target: DiscreteTarget, X: FloatArray) -> bool:
    """Tell whether moves of one variable lead from possible rows to impossible ones."""
    return any(bool(np.isneginf(table).any()) for _, table in full_conditionals(target, X))


def log_probabilities_along(
    target: DiscreteTarget, X: FloatArray, variable: int, n_states: int
) -> FloatArray:
    """Evaluate a categorical target at every state of a variable, all else fixed, (n, n_states)."""
    # Every row in every state, which also serves collapsed rows.
    moved = np.repeat(X, n_states, axis=0)
    moved[:, variable] = np.tile(np.arange(n_states), len(X))
    return log_probabilities(target, moved).reshape(len(X), n_states)


def error_of_marginals(target: DiscreteTarget, samples: FloatArray, weights: FloatArray) -> float:
    """Largest error of a single marginal by probable states, less what these may miss.

    Zero if they miss much: the others, which are not known, may hold most of the probability.
    """
    samples = without_other_columns(target, samples)
    rows, log_prob, log_missed = probable_states(target, samples)
    probabilities = softmax(log_prob)
    counts = state_counts(target, samples.shape[1])
    pairs = [(samples, weights), (rows, -probabilities)]
    codes, signed = (np.concatenate(part) for part in zip(*pairs))
    codes = codes.astype(np.int64)
    error = max(np.abs(np.bincount(c, signed, k)).max() for c, k in zip(codes.T, counts))
    return max(0.0, error - float(np.exp(log_missed - logsumexp(log_prob))))


def probable_states(
    target: DiscreteTarget, samples: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Give states, their log probabilities, and the log sum over other states next to them."""
    rng = np.random.default_rng(0)  # equal samples have equal errors
    counts = state_counts(target, samples.shape[1])
    anywhere = rng.integers(counts, size=(N_ASCENTS, len(counts))).astype(np.float64)
    best = np.argsort(-log_probabilities(target, samples), kind="stable")[:N_ASCENTS]
    tops = _ascend(target, np.concatenate([anywhere, samples[best]]), counts)
    rows, log_prob = _most_probable(target, tops[:0], tops, 1)[:2]
    log_missed = _log_missed(target, rows, log_prob, counts, rng)
    # With independent variables, all states hold the exponential of this times the mode.
    if log_missed - log_prob.max(initial=-np.inf) > np.log(np.log(MAX_KEPT)):
        return rows, log_prob, log_missed
    rows = np.concatenate([samples, tops])
    for n_kept in (FIRST_KEPT, int(np.clip(MAX_NEXT / counts.sum(), FIRST_KEPT, MAX_KEPT))):
        rows, log_prob = _search(target, rows, n_kept)
        log_missed = _log_missed(target, rows, log_prob, counts, rng)
        if log_missed - logsumexp(log_prob) > np.log(HOPELESS):
            break
    return rows, log_prob, log_missed


def _search(target: DiscreteTarget, rows: FloatArray, n_kept: int) -> tuple[FloatArray, FloatArray]:
    """Add the most probable states next to rows until they do not change."""
    rows, log_prob, is_new = _most_probable(target, rows[:0], rows, n_kept)
    for _ in range(MAX_ROUNDS):
        around = _next_to(target, rows[is_new], log_prob[is_new], n_kept)
        rows, log_prob, is_new = _most_probable(target, rows, around, n_kept)
        if not is_new.any():
            break
    return rows, log_prob


def _log_missed(
    target: DiscreteTarget,
    rows: FloatArray,
    log_prob: FloatArray,
    counts: IntArray,
    rng: np.random.Generator,
) -> float:
    """Log sum of the probabilities of the states next to rows, each counted once."""
    # A state has the sum of random integers of its variables as key.
    integers = [rng.integers(np.iinfo(np.int64).max, size=k, dtype=np.int64) for k in counts]
    codes = rows.astype(np.int64)
    own = sum(numbers[code] for numbers, code in zip(integers, codes.T))
    keys, values = [own], [np.full(len(rows), -np.inf)]
    for variable, moved in _moves(target, rows, log_prob):
        numbers = integers[variable]
        keys.append((own[:, None] - numbers[codes[:, [variable]]] + numbers).ravel())
        values.append(moved.ravel())
    # The first of equal keys: that of a row itself, where it is one of them.
    first = np.unique(np.concatenate(keys), return_index=True)[1]
    return logsumexp(np.concatenate(values)[first])


def _ascend(target: DiscreteTarget, rows: FloatArray, counts: IntArray) -> FloatArray:
    """Give each variable in turn its most probable state, until none changes."""
    rows = rows.copy()
    for _ in range(MAX_SWEEPS):
        before = rows.copy()
        for variable in np.flatnonzero(counts > 1).tolist():
            along = log_probabilities_along(target, rows, variable, int(counts[variable]))
            own = rows[:, variable].astype(np.int64)
            gained = along.max(axis=1) > along[np.arange(len(rows)), own]
            rows[gained, variable] = along.argmax(axis=1)[gained]
        if (rows == before).all():
            break
    return rows


def _moves(
    target: DiscreteTarget, rows: FloatArray, log_prob: FloatArray
) -> Iterator[tuple[int, FloatArray]]:
    """Log probabilities of rows with any state of a variable, (n, k), for every variable."""
    for variable, table in full_conditionals(target, rows):
        own = rows[:, [variable]].astype(np.int64)
        with np.errstate(invalid="ignore"):
            values = log_prob[:, None] + table - np.take_along_axis(table, own, axis=1)
        # Nothing is known around impossible states.
        yield variable, np.where(np.isnan(values), -np.inf, values)


def _next_to(
    target: DiscreteTarget, rows: FloatArray, log_prob: FloatArray, n_kept: int
) -> FloatArray:
    """Give the most probable states that differ from rows in one variable."""
    variables, which, states, parts = [], [], [], []
    for variable, moved in _moves(target, rows, log_prob):
        row, state = np.indices(moved.shape).reshape(2, -1)
        which.append(row)
        states.append(state)
        parts.append(moved.ravel())
        variables.append(np.full(moved.size, variable))
    if not parts:
        return rows[:0]
    values = np.concatenate(parts)
    best = np.argsort(-values, kind="stable")[: MAX_CANDIDATES * n_kept]
    best = best[values[best] > -np.inf]
    found = rows[np.concatenate(which)[best]]
    found[np.arange(len(best)), np.concatenate(variables)[best]] = np.concatenate(states)[best]
    return found


def _most_probable(
    target: DiscreteTarget, known: FloatArray, others: FloatArray, n_kept: int
) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Keep the most probable distinct rows, with log probabilities, and whether they are new."""
    rows = np.concatenate([known, others])
    first = unique_rows(rows)[0]
    log_prob = log_probabilities(target, rows[first])
    best = np.argsort(-log_prob, kind="stable")[:n_kept]
    best = best[log_prob[best] > -np.inf]
    return rows[first[best]], log_prob[best], first[best] >= len(known)
