"""Models that combine the answers of others linearly: votes, bags, stacks, models per target,
calibrated copies.

Their expectations combine those of their members, each in its own closed form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, singledispatch
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    StackingClassifier,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.feature_selection import RFE, RFECV
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.preprocessing import FunctionTransformer
from sklearn.semi_supervised import SelfTrainingClassifier

from skcircuits.predictions._closed_forms import (
    ClosedForm,
    NoClosedFormError,
    Problem,
    Response,
    WeightedSum,
    as_matrix,
    closed_form,
    dense,
    last_step,
    transformed,
)
from skcircuits.predictions.models._linear import (
    REGRESSORS,
    LinearForm,
    build_classifier,
    build_log_linear,
    linear_form,
)
from skcircuits.predictions.models._links import (
    BOTH,
    LOGISTIC,
    LinkForm,
    one_versus_rest_form,
    score_form,
)
from skcircuits.predictions.models._trees import build_trees, is_sum_of_trees
from skcircuits.protocols import FloatArray, IntArray

MODELS = (
    FixedThresholdClassifier,
    MultiOutputClassifier,
    MultiOutputRegressor,
    RFE,
    RFECV,
    SelfTrainingClassifier,
    StackingClassifier,
    StackingRegressor,
    TunedThresholdClassifierCV,
    VotingClassifier,
    VotingRegressor,
)

# Least step of differences, relative to the values: their rounding is far below the check
LEAST_STEP = 1e-3


class Member(NamedTuple):
    """A fitted model inside of another one, the method asked of it, and the columns it sees."""

    model: Any
    method: str
    columns: IntArray | None = None  # all


@dataclass(frozen=True, eq=False)
class _MemberTable:
    """Makes the table that a member sees; no function, which could not be pickled with its form."""

    single: Problem
    columns: IntArray | None

    def __call__(self, X: FloatArray) -> Any:
        table = transformed(self.single, X)
        if self.columns is None:
            return table
        return (table.tocsc() if sparse.issparse(table) else np.asarray(table))[:, self.columns]


class Combination(NamedTuple):
    """Members, and what makes of their answers side by side (n, q) those of the model."""

    members: Sequence[Member]
    combine: Callable[[FloatArray], Any]


def build_sum(model: Any, problem: Problem) -> ClosedForm:
    """Build the form of a model that combines others linearly."""
    form = WeightedSum.average(problem, _sum_of_members)
    return linear_form(problem) if _is_linear(form) else form  # which has variances too


def _is_linear(form: ClosedForm) -> bool:
    # By its members, not by its values: narrow kernels are constant at nearly all rows
    if isinstance(form, WeightedSum):
        return all(map(_is_linear, form.forms))
    return isinstance(form, LinearForm)


for _type in MODELS:
    closed_form.register(_type, build_sum)


@closed_form.register
def _of_columns(model: FunctionTransformer, problem: Problem) -> ClosedForm:
    # The columns that a stack passes through
    return linear_form(problem)


@closed_form.register
def _of_chain(model: RegressorChain, problem: Problem) -> ClosedForm:
    # A member sees the answers of those before it: only linear functions of these stay linear
    for member in map(last_step, model.estimators_):
        if not isinstance(member, REGRESSORS):
            raise NoClosedFormError(f"{type(member).__name__} in a chain is not linear")
    return linear_form(problem)


@closed_form.register(BaggingClassifier)
@closed_form.register(BaggingRegressor)
def _of_bagging(model: Any, problem: Problem) -> ClosedForm:
    # The nodes of all trees together are faster than a sum of forms
    build = build_trees if is_sum_of_trees(model.estimators_[0]) else build_sum
    return build(model, problem)


@closed_form.register
def _of_transformed_target(model: TransformedTargetRegressor, problem: Problem) -> ClosedForm:
    reasons = []
    of_score = partial(WeightedSum.average, problem, _of_inverted_target)
    for build in (
        partial(build_sum, model, problem),
        partial(build_log_linear, model, problem),
        of_score,
    ):
        try:
            return build()
        except NoClosedFormError as reason:
            reasons.append(reason)
    raise reasons[0]


def _of_inverted_target(single: Problem) -> ClosedForm:
    """Build the form of a linear model of a transformed target: a function of one score."""
    regressor = last_step(single.response.models[0]).regressor_
    problem = _problem_of(Member(regressor, "predict"), single)
    # By its family, not by its values: narrow kernels are constant at nearly all rows
    if not isinstance(closed_form(last_step(regressor), problem), LinearForm):
        raise NoClosedFormError("the model of the transformed target is not linear")
    return score_form(single, problem.response)


def _sum_of_members(single: Problem) -> ClosedForm:
    (whole,) = single.response.models
    members, combine = combination_of(last_step(whole), single.response.method)
    trials = single.trial_rows()
    problems = [_problem_of(member, single) for member in members]
    expected = single.ask(single.response, trials)
    answers = np.hstack([single.ask(problem.response, trials) for problem in problems])
    matrix, shift = _affine(partial(single.ask, combine), answers)
    single.check(answers @ matrix + shift, expected, "a weighted sum of its members")
    return WeightedSum([_form_of(problem) for problem in problems], matrix, shift)


def _problem_of(member: Member, single: Problem) -> Problem:
    """Give the problem of a member, whose table the first steps of the whole have made."""
    if not hasattr(member.model, member.method):
        raise NoClosedFormError(f"its {type(member.model).__name__} has no {member.method}")

    to_table = _MemberTable(single, member.columns)
    return replace(single, response=Response([member.model], member.method, to_table))


def _form_of(problem: Problem) -> ClosedForm:
    model = last_step(problem.response.models[0])
    try:
        return closed_form(model, problem)
    except NoClosedFormError as reason:
        raise NoClosedFormError(f"{reason} (of the member {type(model).__name__})") from None


def _affine(
    function: Callable[[FloatArray], Any], answers: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Matrix (q, k) and shift (k,) of an affine function, by differences around answers (n, q)."""
    centre, spread = answers.mean(axis=0), answers.std(axis=0)
    with np.errstate(all="ignore"):  # other functions are found out by their values
        size = np.abs(np.append(centre, as_matrix(function(centre[None])))).max()
        # Members that hardly vary here may vary elsewhere: steps must not vanish in rounding
        steps = np.maximum(spread, LEAST_STEP * size)
        steps[steps == 0] = 1.0
        points = np.vstack([centre + np.diag(steps), centre - np.diag(steps)])
        up, down = np.split(as_matrix(function(points)), 2)
        above, below = (np.diag(part) for part in np.split(points, 2))
        matrix = (up - down) / (above - below)[:, None]
        return matrix, (up + down).mean(axis=0) / 2.0 - centre @ matrix


@singledispatch
def combination_of(model: Any, method: str) -> Combination:
    """Give the members of a fitted model and how it combines their answers to a method."""
    raise NoClosedFormError(f"{type(model).__name__} is not a combination of models")


@combination_of.register(VotingClassifier)
@combination_of.register(VotingRegressor)
def _of_votes(model: Any, method: str) -> Combination:
    if method == "votes":
        raise NoClosedFormError("a majority of votes is not linear; voting='soft' is")
    members = [Member(one, method) for one in model.estimators_]
    return Combination(members, partial(_average, len(members), model._weights_not_none))


def _average(n_members: int, weights: Any, answers: FloatArray) -> FloatArray:
    """Weighted mean of the answers of members that stand side by side."""
    parts = answers.reshape(len(answers), n_members, -1)
    return np.asarray(np.average(parts, axis=1, weights=weights))


@combination_of.register(BaggingClassifier)
@combination_of.register(BaggingRegressor)
def _of_bag(model: Any, method: str) -> Combination:
    members = [
        Member(one, method, np.asarray(columns, dtype=np.intp))
        for one, columns in zip(model.estimators_, model.estimators_features_)
    ]
    if method != "predict_proba":
        return Combination(members, partial(_average, len(members), None))
    # Members know the classes that their bootstrap samples have
    states = np.eye(model.n_classes_)
    places = np.vstack([states[np.asarray(one.classes_, dtype=int)] for one in model.estimators_])
    return Combination(members, lambda answers: answers @ places / len(members))


@combination_of.register(StackingClassifier)
@combination_of.register(StackingRegressor)
def _of_stack(model: Any, method: str) -> Combination:
    members = [Member(one, m) for one, m in zip(model.estimators_, model.stack_method_)]
    if model.passthrough:
        members.append(Member(FunctionTransformer(dense), "transform"))
    final = getattr(model.final_estimator_, method)
    if not hasattr(model, "classes_") or len(model.classes_) > 2:
        return Combination(members, final)
    # Of two classes the final estimator sees the probability of the second
    sizes = [2 if m == "predict_proba" else 1 for m in model.stack_method_]
    firsts = [sum(sizes[:i]) for i, size in enumerate(sizes) if size == 2]
    return Combination(members, lambda answers: final(np.delete(answers, firsts, axis=1)))


@combination_of.register(MultiOutputClassifier)
@combination_of.register(MultiOutputRegressor)
def _of_targets(model: Any, method: str) -> Combination:
    return Combination([Member(one, method) for one in model.estimators_], np.asarray)


@combination_of.register
def _of_one_versus_rest(model: OneVsRestClassifier, method: str) -> Combination:
    members = [Member(one, method) for one in model.estimators_]
    if method == "decision_function" or len(members) == 1:
        return Combination(members, np.asarray)
    return Combination(members, lambda answers: answers[:, 1::2])


@combination_of.register(FixedThresholdClassifier)
@combination_of.register(SelfTrainingClassifier)
@combination_of.register(TunedThresholdClassifierCV)
def _of_inner_classifier(model: Any, method: str) -> Combination:
    return Combination([Member(model.estimator_, method)], np.asarray)


@combination_of.register(RFE)
@combination_of.register(RFECV)
def _of_selected_columns(model: Any, method: str) -> Combination:
    columns = np.flatnonzero(model.support_)
    return Combination([Member(model.estimator_, method, columns)], np.asarray)


@combination_of.register
def _of_target(model: TransformedTargetRegressor, method: str) -> Combination:
    return Combination([Member(model.regressor_, method)], model.transformer_.inverse_transform)


@closed_form.register
def _of_rest(model: OneVsRestClassifier, problem: Problem) -> ClosedForm:
    is_normalised = not model.multilabel_ and len(model.classes_) > 2
    if problem.response.method != "predict_proba" or not is_normalised:
        return build_sum(model, problem)
    if not hasattr(model, "decision_function"):
        raise NoClosedFormError("probabilities of one versus the rest are normalised")
    decide = replace(problem.response, method="decision_function")
    if not _is_linear(build_sum(model, replace(problem, response=decide))):
        raise NoClosedFormError("the models of one versus the rest are not linear")
    return build_classifier(model, problem)


@closed_form.register
def _of_calibrated(model: CalibratedClassifierCV, problem: Problem) -> ClosedForm:
    return WeightedSum.average(problem, _of_copies)


def _of_copies(single: Problem) -> ClosedForm:
    """Average the copies of a classifier that folds of the training rows have calibrated."""
    (whole,) = single.response.models
    copies = last_step(whole).calibrated_classifiers_
    response = Response(copies, "predict_proba", partial(transformed, single))
    return WeightedSum.average(replace(single, response=response), _of_copy)


def _of_copy(single: Problem) -> ClosedForm:
    """Build the form of one copy, whose probabilities are functions of its decision function."""
    (copy,) = single.response.models
    if not hasattr(copy.estimator, "decision_function"):
        raise NoClosedFormError("the calibration is not that of a decision function")
    decide = replace(single.response, models=[copy.estimator], method="decision_function")
    # By its family, not by its values: narrow kernels are constant at nearly all rows
    form = closed_form(last_step(copy.estimator), replace(single, response=decide))
    if not isinstance(form, LinearForm):
        raise NoClosedFormError("the model is not a sum of functions of single columns")
    if not all(hasattr(calibrator, "a_") for calibrator in copy.calibrators):
        return score_form(single, decide)  # of two classes
    # Platt's parametrisation, 1 / (1 + exp(a f + b))
    slopes, shifts = np.array([(one.a_, one.b_) for one in copy.calibrators], dtype=float).T

    def score(X: FloatArray) -> FloatArray:
        return -(slopes * decide(X) + shifts)

    if len(slopes) == 1:
        return LinkForm.checked(LOGISTIC, score, single, BOTH, "logistic link of a linear model")
    return one_versus_rest_form(single, score, "a normalised sigmoid of its decision functions")
