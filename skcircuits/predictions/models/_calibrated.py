"""Sigmoid calibration of linear classifiers: logistic links, one per calibrated copy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV

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
from skcircuits.predictions.models._additive import probe
from skcircuits.predictions.models._logistic import LogisticForm
from skcircuits.protocols import FloatArray

__all__: list[str] = []


@closed_form.register
def _build(model: CalibratedClassifierCV, problem: Problem) -> ClosedForm:
    if len(model.classes_) != 2:
        raise NoClosedFormError("calibrated probabilities of several classes are no softmax")
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
        raise NoClosedFormError("the calibration is no sigmoid of a decision function")

    def to_table(X: FloatArray) -> Any:
        table = single.response.to_table(X)
        for step in steps:
            table = step.transform(table)
        return table

    inner = replace(single.response, models=[copy.estimator], to_table=to_table)
    decide = replace(inner, method="decision_function")

    def score(X: FloatArray) -> FloatArray:
        return -(calibrator.a_ * decide(X) + calibrator.b_)

    trials = single.trial_rows()
    expected = copy.predict_proba(to_table(trials))[:, 1:]
    single.check(expit(score(trials)), np.asarray(expected), "a sigmoid calibration")
    return LogisticForm(probe(score, single), GaussianComponents.of(single.circuit))
