"""Closed forms of expected predictions, registered per type of model, and what they are given.

A family of models is one module: it registers builders with `closed_form.register`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _num_samples

from skcircuits.circuits import Circuit
from skcircuits.exceptions import invalid, must
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Number of complete rows on which a closed form must agree with the models, and the tolerance
N_TRIALS = 64
RELATIVE_ERROR = 1e-9
BLOCK_BYTES = 2**22  # of nodes or kernels of a block of rows, which stay in the cache
BYTES_PER_CELL = 8 * 6  # of a row that a model is asked for: cells, codes, tables, answers
TINY = 1e-300  # below any width


@dataclass(frozen=True)
class IncompleteRows:
    """Encoded rows with missing cells, for the model and for the density."""

    cells: FloatArray  # (n, d), of the model, NaN where they have to be completed
    evidence: FloatArray  # (n, d), of the density, NaN also where it cannot use a cell
    is_integral: BoolArray  # (d,), columns whose draws are rounded
    bounds: tuple[FloatArray, FloatArray] | None = None  # (d,) each, of draws

    def __len__(self) -> int:
        return len(self.cells)

    def take(self, rows: IntArray | BoolArray | slice) -> IncompleteRows:
        return replace(self, cells=self.cells[rows], evidence=self.evidence[rows])

    def completed(self, drawn: FloatArray) -> FloatArray:
        """Put drawn cells, shape (..., n, d), where cells are missing; `drawn` is used up."""
        # The model was fitted to integers only and must not be evaluated between them
        drawn[..., self.is_integral] = np.rint(drawn[..., self.is_integral])
        if self.bounds is not None:
            np.clip(drawn, *self.bounds, out=drawn)
        return np.where(np.isnan(self.cells), drawn, self.cells)


@dataclass(frozen=True)
class Expectation:
    """Moments of a response with k outputs, given the observed cells of n rows."""

    mean: FloatArray  # (n, k)
    variance: FloatArray | None  # (n, k), if requested
    error: FloatArray  # (n,), largest standard error in scales of the outputs, 0 if exact

    @classmethod
    def exact(cls, mean: FloatArray, variance: FloatArray | None = None) -> Expectation:
        """Give the result of a closed form; rounding may have made variances negative."""
        if variance is not None:
            variance = np.maximum(variance, 0.0)
        return cls(mean, variance, np.zeros(len(mean)))

    def take(self, rows: IntArray) -> Expectation:
        """Give some of the rows, also repeatedly."""
        variance = None if self.variance is None else self.variance[rows]
        return Expectation(self.mean[rows], variance, self.error[rows])

    @classmethod
    def put_together(
        cls, n_rows: int, parts: Sequence[tuple[IntArray, Expectation]]
    ) -> Expectation:
        """Join the expectations of disjoint sets of rows."""
        first = parts[0][1]
        whole = cls(
            np.empty((n_rows, first.mean.shape[1])),
            None if first.variance is None else np.empty((n_rows, first.mean.shape[1])),
            np.empty(n_rows),
        )
        for rows, part in parts:
            # Every row is in one part only, so that no value is written twice
            whole.mean[rows], whole.error[rows] = part.mean, part.error
            if whole.variance is not None:
                whole.variance[rows] = part.variance
        return whole


@dataclass(frozen=True)
class Response:
    """The mean response (n, k) of fitted models for complete rows."""

    models: Sequence[Any]  # fitted alike, on completions of the same rows
    method: str  # or "votes", the indicators of predicted classes
    to_table: Callable[[FloatArray], Any]  # of encoded rows, as the models were fitted to

    def __call__(self, encoded: FloatArray) -> FloatArray:
        """Answer for complete encoded rows."""
        return self.of_table(self.to_table(encoded))

    def of_table(self, table: Any) -> FloatArray:
        """Answer for a table of complete rows."""
        answers = [self._ask(model, table) for model in self.models]
        return answers[0] if len(answers) == 1 else np.mean(answers, axis=0)

    def _ask(self, model: Any, table: Any) -> FloatArray:
        if self.method == "votes":
            return _votes(ask(model, "predict", table), classes_of(model))
        return as_matrix(ask(model, self.method, table))


def ask(model: Any, method: str, table: Any) -> Any:
    """Answer of a model as an array, or as a list of arrays (n, k) if it has one per target."""
    answer = getattr(model, method)(table)
    # Models may answer with lists, too: only those of matrices have a part per target
    has_parts = isinstance(answer, list | tuple) and len(answer) > 0 and np.ndim(answer[0]) == 2
    parts = [np.asarray(part) for part in (answer if has_parts else [answer])]
    n_rows, shapes = _num_samples(table), [part.shape for part in parts]
    if any(shape[:1] != (n_rows,) for shape in shapes):
        condition = f"return an answer for each of {n_rows} rows"
        shown = shapes if has_parts else shapes[0]
        raise invalid(f"{type(model).__name__}.{method}", condition, shape=shown)
    return parts if has_parts else parts[0]


def classes_of(model: Any) -> Any:
    """Classes of a fitted classifier as an array, or as a list of arrays for several targets."""
    try:
        classes = model.classes_
    except AttributeError as error:
        way_out = "Let its fit store the sorted classes."
        condition = "have classes_ once it is fitted"
        raise AttributeError(must("estimator", condition, way_out, estimator=model)) from error
    if isinstance(classes, list | tuple) and np.ndim(classes[0]) == 1:
        return [np.asarray(own) for own in classes]
    return np.asarray(classes)


def _votes(labels: Any, classes: Any) -> FloatArray:
    """Indicators (n, k) of the classes of each target side by side, or labels that are some."""
    if isinstance(classes, list):
        return np.hstack([_votes(own, seen) for own, seen in zip(labels.T, classes)])
    if labels.ndim == 2:  # they do not exclude each other
        return as_matrix(labels)
    return (labels[:, None] == classes).astype(np.float64)


def as_matrix(answer: Any) -> FloatArray:
    """Write the answer of a model as one array (n, k); a list of arrays side by side."""
    if isinstance(answer, list):
        return np.hstack([as_matrix(part) for part in answer])
    matrix = np.asarray(answer, dtype=np.float64)
    return matrix[:, None] if matrix.ndim == 1 else matrix


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

    @property
    def rounds_integers(self) -> bool:
        """Whether missing integers are those that draws are rounded to, not numbers between."""

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Tell which rows have a closed form, shape (n,)."""

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the moments of rows that are covered."""


@runtime_checkable
class SumOfTerms(Protocol):
    """A closed form that is a sum, which may be long."""

    def n_terms(self, rows: IncompleteRows, *, with_variance: bool) -> FloatArray:
        """Number of terms for each of the rows, shape (n,), infinite where they are not covered."""


def count_terms(form: ClosedForm, rows: IncompleteRows, *, with_variance: bool) -> FloatArray:
    """Number of terms of each row, shape (n,), 0 where they are no matter, inf if not covered."""
    if isinstance(form, SumOfTerms):
        return form.n_terms(rows, with_variance=with_variance)
    return np.where(form.covers(rows, with_variance=with_variance), 0.0, np.inf)


def explain(form: ClosedForm | None, reason: str, circuit: Circuit, is_integral: BoolArray) -> str:
    """Say how expectations are computed, and the reason if there is no closed form."""
    if form is None:
        return f"draws: {reason}"
    # Integers that are states of the circuit are never between two of them
    numbers = np.setdiff1d(np.flatnonzero(is_integral), list(circuit.cardinalities))
    is_rounded = form.rounds_integers or not len(numbers)
    return f"exact: {form.name}" + ("" if is_rounded else ", integers not rounded")


@dataclass(frozen=True)
class Problem:
    """The models and the distribution for which a closed form is sought."""

    response: Response
    circuit: Circuit  # variables with cardinalities are categorical
    n_columns: int  # of encoded rows
    n_jobs: int | None = None
    bounds: tuple[FloatArray, FloatArray] | None = None  # (d,) each, of draws
    is_integral: BoolArray | None = None  # (d,), columns whose draws are rounded

    def of_single_models(self) -> list[Problem]:
        """Give the problem of every single model."""
        models = self.response.models
        return [replace(self, response=replace(self.response, models=[model])) for model in models]

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

    def check(
        self, answers: FloatArray, expected: FloatArray, thing: str, *, in_one_unit: bool = False
    ) -> None:
        """Raise NoClosedFormError if a form differs from the models on complete rows."""
        # Errors of outputs in one unit, such as coordinates, are relative to the largest output
        spread = np.abs(expected - expected.mean(axis=0)).max(axis=0)
        # Errors are relative to the variation of the predictions: a large constant hides none
        size = np.maximum(spread, 1e-6 * np.abs(expected).max(axis=0))
        size = size.max() if in_one_unit else size
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
    def rounds_integers(self) -> bool:
        """Whether all forms do."""
        return all(form.rounds_integers for form in self.forms)

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes: forms are evaluated one by one."""
        return max(form.bytes_per_row for form in self.forms)

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Tell which rows all forms cover."""
        return np.isfinite(self.n_terms(rows, with_variance=with_variance))

    def n_terms(self, rows: IncompleteRows, *, with_variance: bool) -> FloatArray:
        """Number of terms of all forms."""
        # Variances of sums need covariances, for which there is no closed form
        if with_variance and (np.count_nonzero(self.matrix, axis=0) > 1).any():
            return np.full(len(rows), np.inf)
        counts = [count_terms(form, rows, with_variance=with_variance) for form in self.forms]
        return np.sum(counts, axis=0)

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Combine the moments."""
        parts = [form.expectation(rows, with_variance=with_variance) for form in self.forms]
        mean = np.hstack([part.mean for part in parts]) @ self.matrix + self.shift
        variances = [part.variance for part in parts if part.variance is not None]
        return Expectation.exact(
            mean, np.hstack(variances) @ self.matrix**2 if with_variance else None
        )
