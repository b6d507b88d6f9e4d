"""Functions of trees that are no sums of leaves, such as boosted probabilities and squares.

Between two neighbouring thresholds of a column they are constant. If one number is missing, the
expectation is a sum over the intervals between its thresholds: the models are asked once in each,
and the conditional mixture of Gaussians gives its probability.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr
from sklearn.ensemble import AdaBoostRegressor

from skcircuits.predictions._closed_forms import (
    BYTES_PER_CELL,
    ClosedForm,
    Expectation,
    IncompleteRows,
    NoClosedFormError,
    Problem,
    Response,
    closed_form,
    is_plainly_missing,
    last_step,
)
from skcircuits.predictions._components import GaussianComponents, probe
from skcircuits.predictions.models._trees import (
    MODELS,
    MissingNumbers,
    Splits,
    TreeForm,
    Trees,
    build_trees,
    tree_features,
    trees_of,
)
from skcircuits.protocols import BoolArray, FloatArray

# Models are asked in every interval: beyond this number, draws need fewer answers
MAX_THRESHOLDS = 512
NEGLIGIBLE = 1e-13  # probability of an interval


@dataclass(frozen=True, eq=False)
class StepForm:
    """Moments of models that are constant between the `thresholds` (t,) of each numeric column."""

    response: Response
    components: GaussianComponents
    thresholds: dict[int, FloatArray]
    n_columns: int
    name: str = "steps between thresholds where one number is missing, draws elsewhere"
    rounds_integers: bool = True

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes."""
        n_intervals = 1 + max(map(len, self.thresholds.values()), default=0)
        per_interval = BYTES_PER_CELL * self.n_columns + 8 * 3 * len(self.components)
        return n_intervals * per_interval + self.components.bytes_per_row

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss one number and nothing else."""
        missing = np.isnan(rows.cells)
        number = missing[:, self.components.columns].any(axis=1)
        return is_plainly_missing(rows) & number & (missing.sum(axis=1) == 1)

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        conditioned = self.components.conditioned(rows.evidence)
        numbers = MissingNumbers.of(conditioned, self.components)
        weights = conditioned.weights.T
        parts = []
        for j, thresholds in self.thresholds.items():
            own = np.flatnonzero(np.isnan(rows.cells[:, j]))
            if len(own):
                column = np.full(len(own), j)
                variances = numbers.covariance(own, column, column)
                moments = numbers.mean(own, column), np.sqrt(variances)
                masses = _masses(thresholds, weights[own], *moments)
                part = self._of_column(rows.cells[own], j, thresholds, masses)
                parts.append((own, part))
        return Expectation.put_together(len(rows), parts)

    def _of_column(
        self, cells: FloatArray, column: int, thresholds: FloatArray, masses: FloatArray
    ) -> Expectation:
        """Moments over the intervals (t + 1) of one column, by their masses (n, t + 1)."""
        row, interval = np.nonzero(masses > NEGLIGIBLE)
        completed = cells[row]
        completed[:, column] = _middles(thresholds)[interval]
        answers = self.response(completed)
        mass = masses[row, interval][:, None]
        # Intervals of a row follow one another, and each row has some
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        total = np.add.reduceat(mass, starts)
        mean = np.add.reduceat(mass * answers, starts) / total
        squares = mass * np.square(answers - mean[row])
        return Expectation.exact(mean, np.add.reduceat(squares, starts) / total)


def _masses(
    thresholds: FloatArray, weights: FloatArray, means: FloatArray, stds: FloatArray
) -> FloatArray:
    """Probabilities of the intervals between thresholds of mixtures (n, K), shape (n, t + 1)."""
    spread = np.maximum(stds, np.finfo(float).tiny)[..., None]
    below = ndtr((thresholds - means[..., None]) / spread)
    parts = np.diff(below, axis=2, prepend=0.0, append=1.0)
    return np.einsum("nk,nkt->nt", weights, parts)


def _middles(thresholds: FloatArray) -> FloatArray:
    """A value in each interval, shape (t + 1,)."""
    if not len(thresholds):
        return np.zeros(1)
    beyond = 1.0 + np.abs(thresholds[[0, -1]])
    ends = thresholds[0] - beyond[0], thresholds[-1] + beyond[1]
    return np.concatenate(
        [[ends[0]], (thresholds[1:] + thresholds[:-1]) / 2.0, [ends[1]]], dtype=np.float64
    )


def build_trees_or_steps(model: Any, problem: Problem) -> ClosedForm:
    """Build the form of trees: a sum of leaves whose squares are steps, or else steps."""
    steps: StepForm | None
    try:
        steps = _build_steps(problem)
    except NoClosedFormError:
        steps = None
    try:
        form = build_trees(model, problem)
    except NoClosedFormError:
        if steps is None:
            raise
        return steps
    return replace(form, steps=steps) if isinstance(form, TreeForm) else form


for _type in (AdaBoostRegressor, *MODELS):
    closed_form.register(_type, build_trees_or_steps)


def _build_steps(problem: Problem) -> StepForm:
    components = GaussianComponents.of(problem.circuit)
    if not len(components.columns):
        raise NoClosedFormError("there are no numerical columns")
    found: dict[int, list[FloatArray]] = {j: [] for j in components.columns.tolist()}
    for single in problem.of_single_models():
        splits = _splits_of(single)
        for j, cuts in found.items():
            cuts.append(splits.cut[splits.column == j])
    thresholds = {j: np.unique(np.concatenate(cuts)) for j, cuts in found.items()}
    if max(map(len, thresholds.values()), default=0) > MAX_THRESHOLDS:
        raise NoClosedFormError("the trees have too many thresholds")
    _check_steps(problem, thresholds)
    return StepForm(problem.response, components, thresholds, problem.n_columns)


def _splits_of(single: Problem) -> Splits:
    """Splits of all trees of a model in terms of the columns."""
    (whole,) = single.response.models
    model = last_step(whole)
    if isinstance(model, AdaBoostRegressor):
        trees = Trees.joined([trees_of(one, "predict") for one in model.estimators_])
    else:
        trees = trees_of(model, "decision_function")
    features = probe(lambda X: tree_features(single, X), single)
    return Splits.of(trees, features, single.integral_columns)


def _check_steps(problem: Problem, thresholds: dict[int, FloatArray]) -> None:
    """Refuse models that are not constant between the thresholds of some column."""
    trials = problem.trial_rows()
    expected = problem.ask(problem.response, trials)
    for j, cuts in thresholds.items():
        moved = trials.copy()
        moved[:, j] = _middles(cuts)[np.searchsorted(cuts, trials[:, j])]
        answers = problem.ask(problem.response, moved)
        problem.check(answers, expected, "constant between the thresholds of its trees")
