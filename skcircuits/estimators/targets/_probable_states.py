"""The most probable states of a categorical target, which weights of samples are compared with.

Where states are too many to be listed, those that hold nearly all of a peaked target can still be
found: ascents by changes of one variable start from samples and from random states, and the most
probable states next to those that are known are added until there are no more (a beam search). How
much the states next to the found ones hold tells how much is missing.
"""

import numpy as np
from scipy.special import logsumexp, softmax

from skcircuits.numerics._patterns import unique_rows
from skcircuits.stein._targets import (
    full_conditionals,
    log_probabilities,
    log_probabilities_along,
    state_counts,
    without_other_columns,
)

# Numbers of states that are kept: at first and, if they miss less than so many times what they
# hold, at last, fewer where each state is next to many others.
FIRST_KEPT, HOPELESS, MAX_KEPT, MAX_NEXT = 300, 3.0, 4000, 4e5
# Number of candidates beside each state (several lead to one state), and of rounds of the search.
MAX_CANDIDATES, MAX_ROUNDS = 5, 12
# Number of ascents from samples and from random states each, and of their sweeps.
N_ASCENTS, MAX_SWEEPS = 10, 10


def error_of_marginals(target, samples, weights):
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


def probable_states(target, samples):
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


def _search(target, rows, n_kept):
    """Add the most probable states next to rows until they do not change."""
    rows, log_prob, is_new = _most_probable(target, rows[:0], rows, n_kept)
    for _ in range(MAX_ROUNDS):
        around = _next_to(target, rows[is_new], log_prob[is_new], n_kept)
        rows, log_prob, is_new = _most_probable(target, rows, around, n_kept)
        if not is_new.any():
            break
    return rows, log_prob


def _log_missed(target, rows, log_prob, counts, rng):
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


def _ascend(target, rows, counts):
    """Give each variable in turn its most probable state, until none changes."""
    rows = rows.copy()
    for _ in range(MAX_SWEEPS):
        before = rows.copy()
        for variable in np.flatnonzero(counts > 1):
            along = log_probabilities_along(target, rows, variable, counts[variable])
            own = rows[:, variable].astype(np.int64)
            gained = along.max(axis=1) > along[np.arange(len(rows)), own]
            rows[gained, variable] = along.argmax(axis=1)[gained]
        if (rows == before).all():
            break
    return rows


def _moves(target, rows, log_prob):
    """Log probabilities of rows with any state of a variable, (n, k), for every variable."""
    for variable, table in full_conditionals(target, rows):
        own = rows[:, [variable]].astype(np.int64)
        with np.errstate(invalid="ignore"):
            values = log_prob[:, None] + table - np.take_along_axis(table, own, axis=1)
        # Nothing is known around impossible states.
        yield variable, np.where(np.isnan(values), -np.inf, values)


def _next_to(target, rows, log_prob, n_kept):
    """Give the most probable states that differ from rows in one variable."""
    variables, which, states, values = [], [], [], []
    for variable, moved in _moves(target, rows, log_prob):
        row, state = np.indices(moved.shape).reshape(2, -1)
        which.append(row)
        states.append(state)
        values.append(moved.ravel())
        variables.append(np.full(moved.size, variable))
    if not values:
        return rows[:0]
    values = np.concatenate(values)
    best = np.argsort(-values, kind="stable")[: MAX_CANDIDATES * n_kept]
    best = best[values[best] > -np.inf]
    found = rows[np.concatenate(which)[best]]
    found[np.arange(len(best)), np.concatenate(variables)[best]] = np.concatenate(states)[best]
    return found


def _most_probable(target, known, others, n_kept):
    """Keep the most probable distinct rows, with log probabilities, and whether they are new."""
    rows = np.concatenate([known, others])
    first = unique_rows(rows)[0]
    log_prob = log_probabilities(target, rows[first])
    best = np.argsort(-log_prob, kind="stable")[:n_kept]
    best = best[log_prob[best] > -np.inf]
    return rows[first[best]], log_prob[best], first[best] >= len(known)
