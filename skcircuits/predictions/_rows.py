"""Incomplete rows, responses of models, and moments: the types of all expected predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skcircuits.protocols import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class IncompleteRows:
    """Encoded rows with missing cells, for the model and for the density.

    `cells` (n, d): input of the model, NaN where it has to be completed; `evidence` (n, d):
    observed cells of the density, NaN also where it cannot use a cell; `is_integral` (d,): columns
    whose draws are rounded, as the model has seen integers only; `bounds` of two (d,), or None:
    least and largest value of each column to draw, where the model refuses others.
    """

    cells: FloatArray
    evidence: FloatArray
    is_integral: BoolArray
    bounds: tuple[FloatArray, FloatArray] | None = None

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.cells)

    def take(self, rows: IntArray | BoolArray | slice) -> IncompleteRows:
        """Give some of the rows."""
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
    """Moments of a response with k outputs, given the observed cells of n rows.

    `mean` (n, k): conditional expectations; `variance` (n, k) or None: conditional variances, None
    if not requested; `error` (n,): standard error of the mean (and of the root of the variance, if
    there is one), in the scale of each output, the largest of all outputs; 0 where both are exact.
    """

    mean: FloatArray
    variance: FloatArray | None
    error: FloatArray

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
    """The mean response (n, k) of fitted models for complete rows.

    `models`: fitted alike, on completions of the same rows; `method` ("predict", "predict_proba",
    "decision_function", "votes"): which response; votes are the indicators of the classes that they
    predict; `to_table`: turns encoded rows into the kind of table that the models were fitted to.
    """

    models: Sequence[Any]
    method: str
    to_table: Callable[[FloatArray], Any]

    def __call__(self, encoded: FloatArray) -> FloatArray:
        """Answer for complete encoded rows."""
        return self.of_table(self.to_table(encoded))

    def of_table(self, table: Any) -> FloatArray:
        """Answer for a table of complete rows."""
        answers = [self._ask(model, table) for model in self.models]
        return answers[0] if len(answers) == 1 else np.mean(answers, axis=0)

    def _ask(self, model: Any, table: Any) -> FloatArray:
        if self.method == "votes":
            return _votes(model.predict(table), model.classes_)
        return as_matrix(getattr(model, self.method)(table))


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
