"""Closed forms of expected predictions, registered per type of model.

A family of models is one module: it registers builders with `closed_form.register`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Protocol

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from skcircuits.circuits import Circuit
from skcircuits.predictions._rows import Expectation, IncompleteRows, Response
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Number of complete rows on which a closed form must agree with the models, and the tolerance
N_TRIALS = 64
RELATIVE_ERROR = 1e-9


class NoClosedFormError(Exception):
    """Raised if there is no closed form; the message is the reason."""


class ClosedForm(Protocol):
    """An exact method for the expectations of a response, for the rows that it covers."""

    @property
    def name(self) -> str:
        """Description of the closed form, as shown in `method_`."""

    @property
    def bytes_per_row(self) -> int:
        """Memory per row in bytes, in addition to the result."""

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Tell which rows have a closed form, shape (n,)."""

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the moments of rows that are covered."""


@dataclass(frozen=True)
class Problem:
    """The models and the distribution for which a closed form is sought.

    `response`: the models; `circuit`: the distribution of the rows; variables with cardinalities
    are categorical; `n_columns`: number of columns of the encoded rows; `n_jobs`: number of
    parallel jobs; `bounds` of two (d,), or None: least and largest value of each column to draw;
    `is_integral` (d,), or None: columns whose draws are rounded.
    """

    response: Response
    circuit: Circuit
    n_columns: int
    n_jobs: int | None = None
    bounds: tuple[FloatArray, FloatArray] | None = None
    is_integral: BoolArray | None = None

    def of_single_models(self) -> list[Problem]:
        """Give the problem of every single model."""
        models = self.response.models
        return [replace(self, response=replace(self.response, models=[model])) for model in models]

    def asking(self, method: str) -> Problem:
        """Give the same problem for another method of the models."""
        return replace(self, response=replace(self.response, method=method))

    def trial_rows(self) -> FloatArray:
        """Give complete encoded rows: draws of the density, and others with a wider spread."""
        drawn = self.circuit.sample(N_TRIALS, random_state=0)[:, : self.n_columns]
        rng = np.random.default_rng(0)
        mixed = rng.permuted(drawn, axis=0)  # independent columns, for rows far from the data
        location, scale = self.location, self.scale
        is_number = np.ones(self.n_columns, dtype=bool)
        is_number[list(self.circuit.cardinalities)] = False
        wide = np.where(is_number, location + 3.0 * (mixed - location), mixed)
        wide[: N_TRIALS // 2] += np.where(is_number, scale, 0.0)
        rows = np.vstack([drawn, mixed, wide])
        rows[:, self.integral_columns] = np.rint(rows[:, self.integral_columns])
        return rows

    @property
    def integral_columns(self) -> IntArray:
        """Columns whose draws are rounded."""
        return np.flatnonzero([] if self.is_integral is None else self.is_integral)

    @property
    def location(self) -> FloatArray:
        """Mean of each column, codes included, shape (d,)."""
        return self.circuit.expectation(np.full((1, self.n_columns), np.nan))[0]

    @property
    def scale(self) -> FloatArray:
        """Standard deviation of each column, shape (d,)."""
        return np.sqrt(self.circuit.variance(np.full((1, self.n_columns), np.nan))[0])

    def ask(self, function: Callable[[FloatArray], FloatArray], rows: FloatArray) -> FloatArray:
        """Evaluate a model at complete rows; NoClosedFormError if it fails there."""
        try:
            with np.errstate(all="ignore"):  # rows far from the data may be outside the domain
                return function(rows)
        except Exception as error:
            (reason, *_) = str(error).splitlines() or [type(error).__name__]
            raise NoClosedFormError(f"the model fails for a trial row: {reason}") from error

    def check(self, answers: FloatArray, expected: FloatArray, thing: str) -> None:
        """Raise NoClosedFormError if a form differs from the models on complete rows."""
        spread = np.abs(expected - expected.mean(axis=0)).max(axis=0)
        # Errors are relative to the variation of the predictions: a large constant hides none
        size = np.maximum(spread, 1e-6 * np.abs(expected).max(axis=0))
        if not (np.abs(answers - expected) <= RELATIVE_ERROR * np.maximum(size, 1e-300)).all():
            raise NoClosedFormError(f"the model is not {thing}")


@singledispatch
def closed_form(model: Any, problem: Problem) -> ClosedForm:
    """Build the closed form for the last step of the models; NoClosedFormError if none."""
    raise NoClosedFormError(f"{type(model).__name__} has no closed form")


def last_step(model: Any) -> Any:
    """Give the fitted estimator behind pipelines, searches and frozen estimators."""
    model = _unwrapped(model)
    return last_step(model.steps[-1][1]) if isinstance(model, Pipeline) else model


def steps_of(model: Any) -> list[Any]:
    """Give the transformers in front of the last step."""
    model = _unwrapped(model)
    if not isinstance(model, Pipeline):
        return []
    steps = [step for _, step in model.steps[:-1] if step not in (None, "passthrough")]
    return [*steps, *steps_of(model.steps[-1][1])]


def _unwrapped(model: Any) -> Any:
    while isinstance(model, FrozenEstimator) or hasattr(model, "best_estimator_"):
        frozen = isinstance(model, FrozenEstimator)
        model = model.estimator if frozen else model.best_estimator_
    return model


def transformed(single: Problem, X: FloatArray, n_steps: int | None = None) -> Any:
    """Apply the first transformers of a model to encoded rows; None: all of them."""
    (model,) = single.response.models
    table = single.response.to_table(X)
    for step in steps_of(model)[:n_steps]:
        table = step.transform(table)
    return table


def features_of(single: Problem, X: FloatArray, n_steps: int) -> FloatArray:
    """Features that the first transformers of a model give to encoded rows, shape (n, q)."""
    return dense(transformed(single, X, n_steps))


def dense(values: Any) -> FloatArray:
    """Numbers of a fitted model, which are sparse where its table was."""
    return np.asarray(values.toarray() if sparse.issparse(values) else values, dtype=np.float64)


def is_plainly_missing(rows: IncompleteRows) -> BoolArray:
    """Tell where the density has as many missing values as the model, shape (n,)."""
    # A cell that the model sees and the density does not is no matter of the closed form
    same = np.isnan(rows.cells) == np.isnan(rows.evidence)
    return np.asarray(same.all(axis=1))


@dataclass(frozen=True, eq=False)
class WeightedSum:
    """The answers of closed forms side by side (n, q), times a matrix (q, k), plus a shift (k,)."""

    forms: list[ClosedForm]
    matrix: FloatArray
    shift: FloatArray

    @classmethod
    def average(cls, problem: Problem, build: Callable[[Problem], ClosedForm]) -> ClosedForm:
        """Build the form of one model, or the mean of those of several."""
        forms = [build(single) for single in problem.of_single_models()]
        if len(forms) == 1:
            return forms[0]
        n_outputs = problem.response(problem.trial_rows()[:1]).shape[1]
        matrix = np.tile(np.eye(n_outputs) / len(forms), (len(forms), 1))
        return cls(forms, matrix, np.zeros(n_outputs))

    @property
    def name(self) -> str:
        """Names of the forms, each once."""
        names = list(dict.fromkeys(form.name for form in self.forms))
        return names[0] if len(names) == 1 else f"weighted sum ({', '.join(names)})"

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes: forms are evaluated one by one."""
        return max(form.bytes_per_row for form in self.forms)

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Tell which rows all forms cover."""
        # Variances of sums need covariances, for which there is no closed form
        if with_variance and (np.count_nonzero(self.matrix, axis=0) > 1).any():
            return np.zeros(len(rows), dtype=bool)
        covered = [form.covers(rows, with_variance=with_variance) for form in self.forms]
        return np.asarray(np.all(covered, axis=0))

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Combine the moments."""
        parts = [form.expectation(rows, with_variance=with_variance) for form in self.forms]
        mean = np.hstack([part.mean for part in parts]) @ self.matrix + self.shift
        variances = [part.variance for part in parts if part.variance is not None]
        return Expectation.exact(
            mean, np.hstack(variances) @ self.matrix**2 if with_variance else None
        )
