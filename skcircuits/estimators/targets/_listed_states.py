"""Weights of samples against states of a categorical target whose probabilities are known.

These are all states where they are few, and otherwise the samples and the states that differ from
one of them in a single variable, whose probabilities are known up to a constant.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from scipy.special import softmax

from skcircuits.numerics._patterns import unique_rows
from skcircuits.stein._ridge import state_functions
from skcircuits.stein._targets import (
    full_conditionals,
    log_probabilities,
    state_counts,
    without_other_columns,
)

# States that are listed
MAX_STATES = 2**12
# Most probable states next to samples that are looked at, and the effective number of them below
# which they hold so much that other states hardly matter.
MAX_NEAR, FEW_STATES = 1000, 10.0


@dataclass(frozen=True)
class ListedStates:
    """All states of a target with their probabilities, and those that distinct samples hold."""

    rows: np.ndarray  # (n_states, d), NaN where collapsed, possible ones instead of others
    probabilities: np.ndarray  # (n_states,)
    shape: tuple  # numbers of states of the variables that have several
    held: np.ndarray  # (n_samples,), positions of the samples among the states

    @classmethod
    def of(cls, target, samples):
        """List the states; None if they are many or the samples are collapsed differently."""
        hidden = np.isnan(samples)
        counts = np.where(hidden[0], 1, state_counts(target, samples.shape[1]))
        n_states = prod(counts.tolist())
        if n_states > MAX_STATES or (hidden != hidden[0]).any():
            return None
        moving = counts > 1
        shape = tuple(counts[moving].tolist())
        rows = np.zeros((n_states, len(counts)))
        rows[:, moving] = np.indices(shape).reshape(len(shape), n_states).T
        rows[:, hidden[0]] = np.nan
        log_prob = log_probabilities(target, rows)
        # Impossible states count nowhere, but tables of them could not be computed.
        rows[np.isneginf(log_prob)] = rows[log_prob.argmax()]
        codes = without_other_columns(target, samples)[:, moving].astype(np.int64)
        steps = n_states // np.cumprod(shape, dtype=np.int64)
        return cls(rows, softmax(log_prob), shape, codes @ steps)

    @property
    def are_held(self):
        """Whether no other state is possible than those of the samples."""
        return not np.delete(self.probabilities, self.held).any()

    def nearest(self):
        """Give each sample its probability and that of the states it is nearest to, (n_samples,).

        A state that no sample holds passes its probability to its neighbours on the shortest ways
        to samples, in equal parts, so that most variables keep their states.
        """
        mass = self.probabilities.reshape(self.shape)
        reached = np.bincount(self.held, minlength=mass.size).reshape(self.shape)
        rings = [reached]
        while not reached.all():
            rings.append((_around(reached) > 0) & (reached == 0))
            reached = reached + rings[-1]
        for inner, outer in zip(rings[-2::-1], rings[:0:-1]):
            passed = np.where(outer, mass / np.maximum(_around(inner), 1), 0.0)
            mass = mass + np.where(inner, _around(passed), 0.0)
        return mass.ravel()[self.held]

    def improve(self, weights, tables, neighbors):
        """Average weights with `nearest`, and give the largest error of a single marginal too.

        The fraction is that for which single and pairwise marginals have the least squared error.
        ``tables``: per variable probabilities of its states in each row, (n_states, k_j).
        """
        families = state_functions(tables, neighbors)
        nearest = self.nearest()
        own, other = (
            np.concatenate([self._errors(w, f) / np.sqrt(f.shape[1]) for f in families])
            for w in (weights, nearest)
        )
        change = own - other
        fraction = -(other @ change) / max(change @ change, np.finfo(float).tiny)
        improved = nearest + np.clip(fraction, 0.0, 1.0) * (weights - nearest)
        return improved, max(np.abs(self._errors(improved, table)).max() for table in tables)

    def _errors(self, weights, functions):
        """Errors of weighted means of functions of the states, (n_states, m) -> (m,)."""
        return weights @ functions[self.held] - self.probabilities @ functions


def _around(values):
    """Sum over all states that differ in one variable."""
    sums = (values.sum(axis=j, keepdims=True) - values for j in range(values.ndim))
    return sum(sums, np.zeros(values.shape))


def error_near_samples(target, samples, weights):
    """Largest error of a single marginal if few states near complete samples hold nearly all.

    Zero if these are not few: the others, which are not known, may hold most of the probability.
    """
    samples = without_other_columns(target, samples)
    rows = _probable_rows(target, samples)
    probabilities = softmax(log_probabilities(target, rows))
    if 1.0 / (probabilities**2).sum() >= FEW_STATES:
        return 0.0
    counts = state_counts(target, samples.shape[1])
    pairs = [(samples, weights), (rows, -probabilities)]
    codes, signed = (np.concatenate(part) for part in zip(*pairs))
    codes = codes.astype(np.int64)
    return max(np.abs(np.bincount(c, signed, k)).max() for c, k in zip(codes.T, counts))


def _probable_rows(target, samples):
    """Give the most probable of the samples and the states next to them."""
    log_prob = log_probabilities(target, samples)
    rows, values = [samples], [log_prob]
    for variable, table in full_conditionals(target, samples):
        own = samples[:, [variable]].astype(np.int64)
        moved = log_prob[:, None] + table - np.take_along_axis(table, own, axis=1)
        best = np.argsort(-moved, axis=None)[:MAX_NEAR]
        which, states = np.unravel_index(best, moved.shape)
        rows.append(samples[which])
        rows[-1][:, variable] = states
        values.append(moved[which, states])
    rows, values = np.concatenate(rows), np.concatenate(values)
    rows = rows[np.argsort(-values, kind="stable")[:MAX_NEAR]]
    return rows[unique_rows(rows)[0]]
