"""Expected answers stacked with what densities of rows and targets, and trees, say."""

import warnings
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_method_params

from skcircuits.estimators.automatic._target_stack import TrainingTargets, learn_stack
from skcircuits.predictions import ExpectedResponse
from skcircuits.predictions._any_model import DrawBudget
from skcircuits.predictions._rows import Response

STACKING_DRAWS = 128  # per held-out row, whose error is small beside that of what is held out
STACKED = ("predict_proba", "predict")  # answers that tell the target


class TrainingTable(NamedTuple):
    """What a fit has learned from.

    ``tables`` are what the models have seen, completed where they had to be; none for a frozen
    ``model``, or if they were not to be kept. ``encoded`` are the rows as they came, ``targets``
    what `_check_targets` gives.
    """

    model: BaseEstimator
    tables: list
    encoded: np.ndarray
    y: object
    targets: tuple | None
    sample_weight: np.ndarray | None
    fit_params: dict


class StackedAnswersMixin:
    """Learn the weights of the stack from held-out rows, and apply them to expected answers.

    `_learn_stack` gives ``_stack``, None without one, and ``_unstacked``, the reason why.
    """

    def _learn_stack(self, training):
        """Stack expectations with what others say of the target; give None and why not else."""
        reason = self._reason_against_stacking(training)
        if reason:
            return None, reason
        targets, is_code = training.targets
        targets, weights = targets[:, 0], training.sample_weight
        told = TrainingTargets(
            training.encoded,
            targets,
            np.ones(len(targets)) if weights is None else weights,
            self._schema,
            int(targets.max()) + 1 if is_code[0] else 0,
        )

        def fit_models(rows):
            own = _check_method_params(training.encoded, training.fit_params, indices=rows)
            tables = [_safe_indexing(table, rows) for table in training.tables]
            part = _safe_indexing(training.y, rows)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the fit to all rows has told
                return [clone(training.model).fit(table, part, **own) for table in tables]

        try:
            # Cells of tables with indicators are missing for a reason: none is hidden beside
            may_hide = not self.add_indicator
            stack = learn_stack(told, fit_models, self._expect_roughly, self._seed, may_hide)
        except ValueError as error:
            reason = f"a part of the rows cannot be learned from alone: {error}"
            warnings.warn(
                f"{type(self).__name__} gives the expectation alone, as {reason}. Pass "
                "stacking=False to do so without learning weights.",
                stacklevel=5,
            )
            return None, reason
        return stack, "" if stack else "too few rows, of some class, can be held out"

    def _reason_against_stacking(self, training):
        """Say why the expectation stays alone, "" where it need not."""
        if not self.stacking:
            return "as asked"
        if not training.tables:
            return "a frozen model cannot be fitted to a part of the rows"
        if not isinstance(self.density, str):
            return "the density is given"
        if self._responses[0] not in STACKED or training.targets[0].shape[1] > 1:
            return "only probabilities, or numbers, of one target are stacked"
        return ""

    def _expect_roughly(self, models, cells):
        """Give the expected answers of some models by few draws."""
        response = Response(models, self._responses[0], self._schema.decode)
        budget = DrawBudget(STACKING_DRAWS, self.tol, self._scale, self._seed, self.n_jobs)
        expected = ExpectedResponse(response, self.circuit_, budget)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what is impossible, predict tells
            return self._or_without_evidence(expected, self._rows(cells)).mean

    def _expectation_weight(self, method):
        """Weight of the expectation in the answer."""
        is_stacked = method in STACKED and getattr(self, "_stack", None) is not None
        return float(self._stack.weights[0]) if is_stacked else 1.0

    def _expectation_slope(self, method):
        """What an error of the expectation costs the answer, at even odds where it costs most."""
        weight = self._expectation_weight(method)
        return weight if weight == 1.0 else weight * max(1.0, self._stack.power)

    def _stacked(self, moments, method, cells):
        """Moments of answers, their means stacked with what others say of the target."""
        mean = moments.mean
        if method == "predict_proba":
            mean = np.clip(mean, 0.0, 1.0)  # rounding may leave a sum of probabilities above one
        if self._stack is None or method not in STACKED:
            return replace(moments, mean=mean)
        error = self._expectation_slope(method) * moments.error
        return replace(moments, mean=self._stack(mean, cells), error=error)
