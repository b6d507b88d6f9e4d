"""Targets of Stein methods: type, states, full conditionals, and the most probable states.

Where states are too many to be listed, those that hold nearly all of a peaked target can still be
found: ascents by changes of one variable start from samples and from random states, and the most
probable states next to those that are known are added until there are no more (a beam search). How
much the states next to the found ones hold tells how much is missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import logsumexp, softmax

from skcircuits.circuits import Circuit
from skcircuits.exceptions import CircuitPropertyError, invalid, must
from skcircuits.graphical import FactorGraph
from skcircuits.numerics._arrays import integers, log_probs_at
from skcircuits.numerics._patterns import distinct_keys
from skcircuits.protocols import BoolArray, DiscreteTarget, FloatArray, IntArray

# Numbers of states that are kept: at first and, if they miss less than so many times what they
# hold, at last, fewer where each state is next to many others.
FIRST_KEPT, HOPELESS, MAX_KEPT, MAX_NEXT = 300, 3.0, 4000, 4e5
MAX_ROUNDS = 12
# Cells of the tables of a graph whose marginals take less time than a search for states.
MAX_CELLS = 1e6
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
        counts = np.ones(n_columns, dtype=np.int64)
        counts[list(cardinalities)] = list(cardinalities.values())
        return counts
    counts = np.array(integers(cardinalities, "cardinalities of the target"), dtype=np.int64)
    if (counts < 1).any():
        condition = "be positive numbers of states"
        raise invalid("cardinalities of the target", condition, given=counts.tolist())
    if counts.shape != (n_columns,):
        raise invalid("X", f"have the {len(counts)} columns of the target", n_columns=n_columns)
    return counts


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
        raise invalid(what, condition, way_out, row=X[row].tolist(), value=float(values[row]))
    return values


def full_conditionals(target: DiscreteTarget, X: FloatArray) -> Iterator[tuple[int, FloatArray]]:
    """Evaluate a categorical target at every state of each variable, all else fixed."""
    counts = state_counts(target, X.shape[1])
    # A variable with one state cannot move, one collapsed everywhere need not.
    movable = (counts > 1) & ~np.isnan(X).all(axis=0)
    variables = movable.nonzero()[0].tolist()
    # Where the graph is known only the factors of each variable are looked at.
    is_complete = not np.isnan(X).any()
    if is_complete and hasattr(target, "log_full_conditionals"):
        tables = target.log_full_conditionals(X)
        yield from ((variable, tables[variable]) for variable in variables)
        return
    if isinstance(target, FactorGraph) and (np.isnan(X) == np.isnan(X[:1])).all():
        yield from zip(variables, target.log_full_conditionals(X, variables))
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


def known_marginals(target: DiscreteTarget, n_columns: int) -> dict[int, FloatArray]:
    """Distributions of the variables of circuits, and of graphs of small width; else none."""
    if isinstance(target, Circuit):
        try:
            tables = target.marginals(np.full((1, n_columns), np.nan))
        except CircuitPropertyError:
            return {}
        return {variable: table[0] for variable, table in tables.items()}
    if not isinstance(target, FactorGraph):
        return {}
    if target.posterior(range(n_columns)).n_cells > MAX_CELLS:
        return {}
    return dict(enumerate(target.marginals()))


def error_of_marginals(target: DiscreteTarget, samples: FloatArray, weights: FloatArray) -> float:
    """Largest error of a marginal by probable states, less what they may miss, at least 0."""
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
    best = _largest(log_probabilities(target, samples), N_ASCENTS)
    tops = _ascend(target, np.concatenate([anywhere, samples[best]]), counts)
    integers = rng.integers(np.iinfo(np.int64).max, size=(len(counts), int(counts.max(initial=0))))
    found = _States.of(target, tops, integers).most_probable(1)
    log_missed = logsumexp(_next_to(target, found, found, integers).log_prob)
    # With independent variables, all states hold the exponential of this times the mode.
    if log_missed - found.log_prob.max(initial=-np.inf) <= np.log(np.log(MAX_KEPT)):
        found = _States.of(target, np.concatenate([samples, tops]), integers)
        for n_kept in (FIRST_KEPT, int(np.clip(MAX_NEXT / counts.sum(), FIRST_KEPT, MAX_KEPT))):
            found = _search(target, found.most_probable(n_kept), integers, n_kept)
            log_missed = logsumexp(_next_to(target, found, found, integers).log_prob)
            if log_missed - logsumexp(found.log_prob) > np.log(HOPELESS):
                break
    return found.rows, log_probabilities(target, found.rows), log_missed


@dataclass(frozen=True)
class _States:
    """Distinct possible states."""

    rows: FloatArray  # (n, d)
    keys: IntArray  # (n,), sums of random integers, one for each state of each variable
    log_prob: FloatArray

    @classmethod
    def of(cls, target: DiscreteTarget, rows: FloatArray, integers: IntArray) -> _States:
        keys = integers[np.arange(len(integers)), rows.astype(np.int64)].sum(axis=1)
        first = np.sort(distinct_keys(keys)[0])
        log_prob = log_probabilities(target, rows[first])
        return cls(rows[first], keys[first], log_prob).at(log_prob > -np.inf)

    def most_probable(self, n_kept: int) -> _States:
        return self.at(_largest(self.log_prob, n_kept))

    def at(self, which: BoolArray | IntArray) -> _States:
        return _States(self.rows[which], self.keys[which], self.log_prob[which])


def _search(target: DiscreteTarget, found: _States, integers: IntArray, n_kept: int) -> _States:
    """Add the most probable states next to known ones until they do not change."""
    latest = found
    for _ in range(MAX_ROUNDS):
        least = found.log_prob[-1] if len(found.keys) == n_kept else -np.inf
        others = _next_to(target, latest, found, integers, least).most_probable(n_kept)
        if not len(others.keys):
            break
        joint = _States(*map(np.concatenate, zip(vars(found).values(), vars(others).values())))
        best = _largest(joint.log_prob, n_kept)
        latest = joint.at(best[best >= len(found.keys)])
        found = joint.at(best)
    return found


def _next_to(
    target: DiscreteTarget,
    origin: _States,
    known: _States,
    integers: IntArray,
    least: float = -np.inf,
) -> _States:
    """Give the states that differ from some in one variable, are not known and exceed `least`."""
    own = origin.rows.astype(np.int64)
    conditionals = dict(full_conditionals(target, origin.rows))
    moving = np.fromiter(conditionals, dtype=np.int64)
    # One column for every state of every variable that can change.
    counts = np.array([table.shape[1] for table in conditionals.values()], dtype=np.int64)
    variables, starts = np.repeat(moving, counts), np.cumsum(counts) - counts
    states = np.arange(counts.sum()) - np.repeat(starts, counts)
    tables = np.concatenate([np.zeros((len(own), 0)), *conditionals.values()], axis=1)
    current = own[:, moving] + starts
    ratios = tables - np.repeat(np.take_along_axis(tables, current, axis=1), counts, axis=1)
    np.put_along_axis(ratios, current, -np.inf, axis=1)  # a state is not next to itself
    row, column = (ratios > (least - origin.log_prob)[:, None]).nonzero()
    variables, states = variables[column], states[column]
    changes = integers[variables, states] - integers[variables, own[row, variables]]
    # Of equal keys the first counts: that of a known state, if it is one.
    n_known = len(known.keys)
    first, _ = distinct_keys(np.concatenate([known.keys, origin.keys[row] + changes]))
    first = first[first >= n_known] - n_known
    rows = origin.rows[row[first]]
    rows[np.arange(len(first)), variables[first]] = states[first]
    keys = origin.keys[row[first]] + changes[first]
    return _States(rows, keys, origin.log_prob[row[first]] + ratios[row[first], column[first]])


def _largest(values: FloatArray, n: int) -> IntArray:
    """Indices of the largest values in descending order, of equal ones the first."""
    least = np.partition(values, -n)[-n] if n < len(values) else -np.inf
    which = (values >= least).nonzero()[0]
    return which[np.argsort(-values[which], kind="stable")[:n]]


def _ascend(target: DiscreteTarget, rows: FloatArray, counts: IntArray) -> FloatArray:
    """Give each variable in turn its most probable state, until none changes."""
    rows = rows.copy()
    moving = np.flatnonzero(counts > 1)
    n_unchanged = 0
    for variable in np.tile(moving, MAX_SWEEPS).tolist():
        if isinstance(target, FactorGraph):  # looks at the factors of the variable alone
            along = target.log_full_conditionals(rows, [variable])[0]
        else:
            along = log_probabilities_along(target, rows, variable, int(counts[variable]))
        own = rows[:, variable].astype(np.int64)
        gained = along.max(axis=1) > along[np.arange(len(rows)), own]
        rows[gained, variable] = along.argmax(axis=1)[gained]
        n_unchanged = 0 if gained.any() else n_unchanged + 1
        if n_unchanged == len(moving):
            break
    return rows
