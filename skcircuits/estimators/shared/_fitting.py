"""Fits: training and validation rows, and the loop that runs a learner on them.

The loop handles callbacks, verbosity, early stopping and Ctrl-C. A learner is a generator that
yields its state after each step (an EM iteration, an epoch, a move of all particles). It may end by
itself, or yield a state whose ``converged`` is true. A state that was yielded is never changed
again, since it may turn out to be the best.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.callback import CallbackSupportMixin
from sklearn.exceptions import ConvergenceWarning

from skcircuits.estimators._base import Interval, fit_context, is_inner_fit
from skcircuits.exceptions import warn
from skcircuits.learning._columns import FEW_VALUES, HEAVY_FRACTION
from skcircuits.numerics._arrays import distinct_values
from skcircuits.numerics._patterns import unique_rows
from skcircuits.protocols import MIN_RANGE

# Integer weights become rows up to so many cells, or times as many rows as there are: fits to more
# would take long, and need much memory
_MOST_CELLS = 1_000_000
_MOST_TIMES = 10
# Rows of which fewer others are expected to be equal are copies where they are equal
_BY_CHANCE = 0.02


@dataclass(frozen=True)
class TrainingRows:
    """Encoded rows of positive weight."""

    X: np.ndarray  # (n, d), NaN where missing
    weight: np.ndarray  # (n,)
    states: np.ndarray | None = None  # (n, d), of the cells of columns that are seen as states
    validation: TrainingRows | None = None  # rows that choose among models

    @classmethod
    def of(cls, X, sample_weight):
        """Keep the rows of positive weight; `sample_weight` None weighs all the same."""
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        kept = weight > 0
        # A copy of a large table would stay during the fit
        return cls(X, weight) if kept.all() else cls(X[kept], weight[kept])

    @property
    def counts(self):
        """Numbers of rows that the rows stand for, (n,): integer weights, one for others."""
        return self.weight if _are_counts(self.weight) else np.ones(len(self.X))

    def as_observations(self, is_number):
        """Rows that are the same for a row of weight two and for that row twice."""
        # Copies of one row become one row: if some were held out, they would choose what repeats
        # training rows. Rows that may be equal by chance are repeated if their weights are
        # integers.
        first, place = unique_rows(self.X)
        if len(first) == len(self.X) and self.weight.max(initial=0.0) <= 1.0:
            return self
        total = np.bincount(place, self.weight)
        merges = _hardly_occur_twice(self.X[first][:, is_number], total)[place]
        is_first = np.zeros(len(self.X), dtype=bool)
        is_first[first] = True
        kept = np.flatnonzero(is_first | ~merges)
        weight = np.where(merges, total[place], self.weight)[kept]
        merged = replace(self.take(kept), weight=weight)
        times = np.where(merges[kept], 1.0, merged.counts)
        most = max(_MOST_CELLS // max(1, self.X.shape[1]), _MOST_TIMES * len(kept))
        if len(kept) < times.sum() <= most:
            rows = np.repeat(np.arange(len(kept)), times.astype(np.int64))
            return replace(merged.take(rows), weight=(weight / times)[rows])
        return merged if len(kept) < len(self.X) else self

    @property
    def codes(self):
        """States as integers, -1 where missing, shape (n, d)."""
        return np.nan_to_num(self.states, nan=-1.0).astype(np.int64)

    @property
    def has_missing(self):
        """Whether any cell is missing of a column that has others, from which it may be learned."""
        is_missing = np.isnan(self.X if self.states is None else self.states)
        return bool((is_missing.any(axis=0) & ~is_missing.all(axis=0)).any())

    def log_new_mass(self, column):
        """Log probability that the next cell of a column has a state that no row has."""
        if column not in self._log_new_masses:
            seen = ~np.isnan(self.X[:, column])
            _, counts, _ = distinct_values(self.X[seen, column], self.weight[seen])
            n_single = np.count_nonzero((counts > 0) & (counts <= 1))
            # Good-Turing: as probable as the states that occurred once
            log_mass = float(np.log((n_single + 0.5) / (counts.sum() + 1.0)))
            self._log_new_masses[column] = log_mass
        return self._log_new_masses[column]

    @cached_property
    def _log_new_masses(self):
        return {}

    def take(self, indices):
        """Select rows."""
        states = None if self.states is None else self.states[indices]
        return TrainingRows(self.X[indices], self.weight[indices], states)

    def evenly_spaced(self, n_rows):
        """About so many of the rows, from all over the table: tables are often sorted."""
        return self.take(slice(None, None, -(-len(self.X) // n_rows)))

    def in_canonical_order(self):
        """Sort the rows by their cells, so that draws for a row depend on its cells."""
        cells = np.ascontiguousarray(np.column_stack([self.X, self.weight]))
        cells += 0.0  # -0 becomes 0
        bits = cells.view(np.int64)
        # Big-endian bytes sort as the numbers do, so that neither units nor origins matter, once
        # negative numbers are inverted, whose bits run backwards, and others follow them
        bits ^= (bits >> 63) | np.iinfo(np.int64).min
        ordered = bits.astype(">i8")
        opaque = ordered.view(np.dtype((np.void, ordered.itemsize * ordered.shape[1]))).ravel()
        return self.take(np.argsort(opaque, kind="stable"))

    def hold_out(self, fraction, generator):
        """Hold out a fraction as validation rows; tables too small or empty use all twice."""
        n_held_out = int((fraction or 0) * len(self.X))
        if not n_held_out:
            return replace(self, validation=self)
        order = generator.permutation(len(self.X))
        # Sorted, so that parts keep the canonical order of the rows
        held_out = self.take(np.sort(order[:n_held_out]))
        rest = self.take(np.sort(order[n_held_out:]))
        if any(np.isnan(part.X).all() for part in (held_out, rest)):
            return replace(self, validation=self)
        return replace(rest, validation=held_out)


def weights_in_rows(weights):
    """Weights (n,) in rows, as priors are: those that are no counts may have any sum."""
    if weights is None or _are_counts(weights):
        return weights
    found = weights / weights[weights > 0].mean()
    # Rounding makes no fractions of counts: equal weights are one row each
    near = np.rint(found)
    return np.where(np.abs(found - near) <= 1e-12 * near, near, found)


def _are_counts(weights):
    return bool((weights == np.floor(weights)).all())


def _hardly_occur_twice(numbers, weight):
    """Mark different rows (n, c), of weights (n,), that hardly any other row is by chance, (n,)."""
    # Columns count as independent, those of few values not at all. Values of a single row are as
    # probable as other points of the grid on which the column lies, unless they weigh much.
    log_expected = np.full(len(numbers), np.log(len(numbers)))
    for column in numbers.T:
        seen = ~np.isnan(column)
        values, own, counts = np.unique(column[seen], return_inverse=True, return_counts=True)
        if len(values) > FEW_VALUES:
            n_points = (values[-1] - values[0]) / max(np.diff(values).min(), MIN_RANGE)
            alone = np.minimum(1.0 / len(own), 1.0 / n_points)
            fractions = np.where(counts > 1, counts / len(own), alone)
            heavy = np.bincount(own, weight[seen]) / weight[seen].sum()
            fractions = np.where(heavy >= HEAVY_FRACTION, heavy, fractions)
            log_expected[seen] += np.log(fractions)[own]
    return log_expected < np.log(_BY_CHANCE)


class ValidationMixin:
    """Hold out a fraction of the rows, or take validation rows in ``fit``.

    Parameters
    ----------
    validation_fraction : float or None, default=0.1
        Fraction of the rows that are held out to choose the best iteration and for early stopping,
        unless validation rows are passed to `fit`. Equal rows that chance hardly explains, as
        in continuous columns, are drawn together, and rows whose weights are no integers one by
        one, whatever they weigh. If None, or if the table is too small, the training rows are used
        instead.
    """

    _counts_rows = True
    _validation_constraints: ClassVar[dict] = {
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
    }

    @fit_context
    def fit(self, X, y=None, sample_weight=None, *, X_val=None):
        """Fit the density.

        Parameters
        ----------
        X : dataframe or array-like of shape (n_samples, n_features)
            Training rows; cells may be missing.
        y : Ignored
            Not used, present for API consistency by convention.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows. None gives equal weights. A row of weight two counts as that row
            twice if all weights are integers. If rows of other weights, or of weights that add up
            to more than a million cells and ten times the rows of `X`, may be equal by chance, this
            holds only on average. Rows of weight zero, or of less than 2e-16 times the largest
            weight, are ignored, except that their categories are known.
        X_val : dataframe or array-like of shape (n_validation, n_features), default=None
            Validation rows; None holds out a `validation_fraction` of X.

        Returns
        -------
        object
            The fitted estimator.

        Warns
        -----
        ConvergenceWarning
            If `max_iter` iterations do not suffice, or if Ctrl-C ends the fit, which then keeps the
            best parameters so far.
        UserWarning
            If most rows have a category of their own in some column.
        """
        return self._fit(X, sample_weight, X_val)

    def _add_validation(self, rows, validation, generator):
        if validation is not None:
            return super()._add_validation(rows, validation, generator)
        return rows.hold_out(self.validation_fraction, generator)


@dataclass
class FitResult:
    """How a fit loop ended."""

    state: Any = None  # the best one by score, else the last
    n_iter: int = 0
    converged: bool = False  # false after Ctrl-C, a stop by a callback, or max_iter
    scores: list = field(default_factory=list)  # one per step
    finished: Any = None  # what `finish` made of the state


def drive(
    estimator,
    steps,
    *,
    max_iter=None,
    score=None,
    tol=0.0,
    n_iter_no_change=None,
    attributes=None,
    progress=None,
    X=None,
    context=None,
    finish=None,
):
    """Run a learner to its end and keep the best state.

    `steps` yields the learner's state after each step; that it ends by itself is convergence.
    Functions of a state: `score`, a float, higher is better; `attributes`, the fitted attributes
    of `estimator` at that state, for callbacks that evaluate it during the fit; `progress`, what
    verbose lines show instead of the score; `finish`, the work that remains once the steps are
    over, where it is long enough to be interrupted. Stops when `n_iter_no_change` steps in a row
    have not improved the score by `tol`. `context` is the task whose steps these are, where one
    fit runs several loops; `X` (n, d) are the encoded rows, for callbacks.

    Before the first step has ended, Ctrl-C and numerical errors are raised; later the best state
    so far is returned with a ConvergenceWarning, as when `max_iter` came before convergence. In a
    fit within another one Ctrl-C is always raised: it ends the fit that the user has called.
    """
    keeper = _Keeper(score, tol, n_iter_no_change)
    tasks = _Tasks(estimator, max_iter, X, context)
    result = keeper.result
    try:
        for state in tasks.around(steps, attributes):
            keeper.take(state)
            _print_progress(estimator, result, max_iter, progress and progress(state))
            tasks.stop |= result.converged
        if finish is not None:
            # Within the same try: this work may be interrupted too
            result.finished = finish(result.state)
        result.converged |= tasks.learner_ended
    except (KeyboardInterrupt, FloatingPointError) as error:
        ends_all = isinstance(error, KeyboardInterrupt) and is_inner_fit()
        if result.state is None or ends_all:
            raise
        result.converged = False
        reason = f"broke down ({error})" if str(error) else "was interrupted"
        _warn(estimator, f"{reason} after {result.n_iter} iterations and keeps the best.")
        return result
    if not (result.converged or tasks.stop):
        warn_not_converged(estimator, max_iter)
    return result


@contextmanager
def whole_fit(estimator, n_tasks):
    """Callback context of a fit that consists of several tasks."""
    fit = estimator._init_callback_context(max_subtasks=n_tasks)
    fit.call_on_fit_task_begin(estimator=estimator)
    yield fit
    fit.call_on_fit_task_end(estimator=estimator)


@contextmanager
def stages(estimator, *names):
    """Tasks for callbacks, one per stage of a fit that runs several loops."""
    with whole_fit(estimator, len(names)) as fit:
        yield [fit.subcontext(task_name=name, max_subtasks=None) for name in names]


@contextmanager
def inner_fit(estimator, inner, task):
    """Task of a fit in which another estimator is fitted, with the same callbacks."""
    with task.propagate_callback_context(inner):
        task.call_on_fit_task_begin(estimator=estimator)
        yield
        task.call_on_fit_task_end(estimator=estimator)


def warn_not_converged(estimator, max_iter):
    """Warn that max_iter was reached, and suggest a way out."""
    way_out = getattr(estimator, "_convergence_way_out", "Increase max_iter or tol.")
    if way_out:
        _warn(estimator, f"did not converge in max_iter={max_iter} iterations. {way_out}")


class _Keeper:
    """Keep the best state and judge whether the score still improves."""

    def __init__(self, score, tol, n_iter_no_change):
        self.score = score
        self.tol = tol
        self.n_iter_no_change = n_iter_no_change
        self.result = FitResult()
        self.best = -np.inf
        self.bar = -np.inf  # the score that the next improvement has to pass by tol
        self.n_stalled = 0

    def take(self, state):
        result = self.result
        value = None if self.score is None else float(self.score(state))
        # Counted after an interrupt of the score could have come
        result.n_iter += 1
        result.converged = bool(getattr(state, "converged", False))
        if value is None:
            result.state = state
            return
        result.scores.append(value)
        if result.state is None or value >= self.best:  # of ties the later one
            result.state, self.best = state, value
        if value > self.bar + self.tol:
            self.bar, self.n_stalled = value, 0
        else:
            self.n_stalled += 1
        if self.n_iter_no_change is not None:
            result.converged |= self.n_stalled >= self.n_iter_no_change


class _Tasks:
    """Tell scikit-learn's callbacks about the fit and its steps."""

    def __init__(self, estimator, max_iter, X, context):
        self.estimator = estimator
        self.max_iter = max_iter
        self.stop = False
        self.learner_ended = False
        self.context = context
        if context is None and isinstance(estimator, CallbackSupportMixin):
            self.context = estimator._init_callback_context(max_subtasks=max_iter)
        # Callbacks score the estimator on a table of the user's kind; those that score ask
        # for a target, which densities ignore. Both are made only when a callback asks.
        self.data = {}
        if X is not None:
            self.data["X"] = lambda: estimator._schema.decode(X)
            self.data["y"] = lambda: np.zeros(len(X))

    def around(self, steps, attributes):
        """Yield the states of the learner, each step inside a task."""
        self._begin(self.context)
        steps = iter(steps)
        for _ in count() if self.max_iter is None else range(self.max_iter):
            task = None if self.context is None else self.context.subcontext(task_name="iteration")
            self._begin(task)
            state = next(steps, None)
            if state is None:
                self.learner_ended = True
                self._end(task)
                break
            # The task ends after the state was judged: a callback may ask for the best one
            yield state
            self.stop |= self._end(task, attributes and (lambda state=state: attributes(state)))
            if self.stop:
                break
        self._end(self.context)

    def _begin(self, task):
        if task is not None:
            task.call_on_fit_task_begin(estimator=self.estimator, **self.data)

    def _end(self, task, attributes=None):
        if task is None:
            return False
        return task.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=attributes, **self.data
        )


def _print_progress(estimator, result, max_iter, details):
    """Print a line: about twenty of them at verbose=1, one per step above."""
    verbose = getattr(estimator, "verbose", 0)
    every = 1
    if verbose == 1:
        # Without a known end the lines thin out: 1, 2, ... 9, 10, 20, ... 90, 100, 200, ...
        every = 10 ** (len(str(result.n_iter)) - 1) if max_iter is None else max(1, max_iter // 20)
    if verbose and (result.n_iter % every == 0 or result.converged):
        score = f": score {result.scores[-1]:.6g}" if result.scores and not details else ""
        details = details or getattr(result.state, "progress", "")
        line = f"[{type(estimator).__name__}] iteration {result.n_iter}{score}"
        print(f"{line}: {details}" if details else line)


def _warn(estimator, message):
    warn(f"{type(estimator).__name__} {message}", ConvergenceWarning)
