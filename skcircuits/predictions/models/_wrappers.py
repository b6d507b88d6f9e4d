"""Closed forms of models that wrap others: transformed targets and sigmoid calibration."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor

from skcircuits.predictions._closed_forms import (
    AverageForm,
    ClosedForm,
    NoClosedFormError,
    Problem,
    closed_form,
    last_step,
    steps_of,
)
from skcircuits.predictions._components import GaussianComponents
from skcircuits.predictions._rows import Expectation, IncompleteRows
from skcircuits.predictions.models._additive import probe
from skcircuits.predictions.models._linear import build_linear, build_log_linear
from skcircuits.predictions.models._logistic import LogisticForm
from skcircuits.protocols import BoolArray, FloatArray


@dataclass(frozen=True, eq=False)
class AffineForm:
    """factor * f(x) + shift of a closed form, per output."""

    inner: ClosedForm
    factor: FloatArray
    shift: FloatArray

    @property
    def name(self) -> str:
        """Name of the inner form."""
        return self.inner.name

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes."""
        return self.inner.bytes_per_row

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that the inner form covers."""
        return self.inner.covers(rows, with_variance=with_variance)

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Scale and shift the moments."""
        found = self.inner.expectation(rows, with_variance=with_variance)
        variance = None if found.variance is None else found.variance * self.factor**2
        return Expectation.exact(found.mean * self.factor + self.shift, variance)


@closed_form.register
def _of_transformed_target(model: TransformedTargetRegressor, problem: Problem) -> ClosedForm:
    inner = last_step(model.regressor_)
    if closed_form.dispatch(type(inner)) is build_linear:
        # Logarithms first: over few states the exponential is a polynomial as well
        for build in (build_log_linear, build_linear):
            try:
                return build(inner, problem)
            except NoClosedFormError:
                continue
    return AverageForm.of(problem, _build_affine)


def _build_affine(single: Problem) -> ClosedForm:
    """Take the closed form of the regressor inside, where the target comes back affinely."""
    (model,) = (last_step(model) for model in single.response.models)
    inner = replace(single, response=replace(single.response, models=[model.regressor_]))
    # Four evenly spaced points around zero show whether the inverse is affine: a line through the
    # ends must pass the others
    levels = np.arange(4.0)[:, None] - 1.5
    n_outputs = single.response(single.trial_rows()[:1]).shape[1]
    levels = np.repeat(levels, n_outputs, axis=1)
    back = model.transformer_.inverse_transform(levels)
    factor = (back[-1] - back[0]) / 3.0
    shift = back.mean(axis=0)
    if not np.allclose(levels * factor + shift, back, rtol=1e-12, atol=1e-12 * np.abs(back).max()):
        raise NoClosedFormError("the transformation of the target is not affine")
    return AffineForm(closed_form(last_step(model.regressor_), inner), factor, shift)


@closed_form.register
def _of_calibrated(model: CalibratedClassifierCV, problem: Problem) -> ClosedForm:
    if len(model.classes_) != 2:
        raise NoClosedFormError("calibrated probabilities of several classes are not a softmax")
    forms = [
        _of_copy(copy, single, steps_of(whole))
        for single in problem.of_single_models()
        for whole in single.response.models
        for copy in last_step(whole).calibrated_classifiers_
    ]
    return forms[0] if len(forms) == 1 else AverageForm(forms)


def _of_copy(copy: Any, single: Problem, steps: list[Any]) -> ClosedForm:
    """Build the form of one copy, whose probability is a sigmoid of its decision function."""
    (calibrator,) = copy.calibrators
    if not hasattr(calibrator, "a_") or not hasattr(copy.estimator, "decision_function"):
        raise NoClosedFormError("the calibration is not a sigmoid of a decision function")

    def to_table(X: FloatArray) -> Any:
        table = single.response.to_table(X)
        for step in steps:
            table = step.transform(table)
        return table

    inner = replace(single.response, models=[copy.estimator], to_table=to_table)
    decide = replace(inner, method="decision_function")

    def score(X: FloatArray) -> FloatArray:
        # Platt's parametrisation, 1 / (1 + exp(a f + b))
        return -(calibrator.a_ * decide(X) + calibrator.b_)

    trials = single.trial_rows()
    expected = copy.predict_proba(to_table(trials))[:, 1:]
    single.check(expit(score(trials)), np.asarray(expected), "a sigmoid of its decision function")
    return LogisticForm(probe(score, single), GaussianComponents.of(single.circuit))
