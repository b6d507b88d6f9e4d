"""Closed forms of classifiers in a sigmoid calibration."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV

from skcircuits.predictions._closed_forms import (
    ClosedForm,
    NoClosedFormError,
    Problem,
    WeightedSum,
    closed_form,
    last_step,
    transformed,
)
from skcircuits.predictions._components import GaussianComponents
from skcircuits.predictions._rows import Response
from skcircuits.predictions.models._additive import probe
from skcircuits.predictions.models._linear import LinearForm
from skcircuits.predictions.models._logistic import LogisticForm
from skcircuits.protocols import FloatArray


@closed_form.register
def _of_calibrated(model: CalibratedClassifierCV, problem: Problem) -> ClosedForm:
    if len(model.classes_) != 2:
        raise NoClosedFormError("calibrated probabilities of several classes are not a softmax")
    return WeightedSum.average(problem, _of_copies)


def _of_copies(single: Problem) -> ClosedForm:
    """Average the copies of a classifier that folds of the training rows have calibrated."""
    (whole,) = single.response.models
    copies = last_step(whole).calibrated_classifiers_
    response = Response(copies, "predict_proba", partial(transformed, single))
    return WeightedSum.average(replace(single, response=response), _of_copy)


def _of_copy(single: Problem) -> ClosedForm:
    """Build the form of one copy, whose probability is a sigmoid of its decision function."""
    (copy,) = single.response.models
    (calibrator,) = copy.calibrators
    if not hasattr(calibrator, "a_") or not hasattr(copy.estimator, "decision_function"):
        raise NoClosedFormError("the calibration is not a sigmoid of a decision function")
    decide = replace(single.response, models=[copy.estimator], method="decision_function")
    # By its family, not by its values: narrow kernels are constant at nearly all rows
    form = closed_form(last_step(copy.estimator), replace(single, response=decide))
    if not isinstance(form, LinearForm):
        raise NoClosedFormError("the model is not a sum of functions of single columns")

    def score(X: FloatArray) -> FloatArray:
        # Platt's parametrisation, 1 / (1 + exp(a f + b))
        return -(calibrator.a_ * decide(X) + calibrator.b_)

    trials = single.trial_rows()
    expected = single.response(trials)[:, 1:]
    single.check(expit(score(trials)), expected, "a sigmoid of its decision function")
    return LogisticForm(probe(score, single), GaussianComponents.of(single.circuit))
