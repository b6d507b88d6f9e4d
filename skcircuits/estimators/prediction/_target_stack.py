"""Stacking of expected predictions with models that predict the target from incomplete rows.

E[f(x) | x_o] equals E[y | x_o] only if f is right about complete rows: if a model is overconfident
or underfitted, its expectation is, too. Joint densities of rows and target give E[y | x_o] by
Bayes' rule, and trees that are grown on incomplete rows learn it; their errors differ in kind. Of
the densities, a component per row knows rows that are nearly alike, as in series and panels. The
weights are learned from held-out rows, and so is an exponent of pooled probabilities, because the
average of calibrated probabilities is underconfident. If the model minimises absolute errors,
weights and trees do so, too: medians of skewed targets lie far from means.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold

from skcircuits.circuits import Circuit
from skcircuits.estimators.automatic._comparison import least_square, stacking_weights
from skcircuits.estimators.gaussian_mixture import GaussianMixtureDensity
from skcircuits.exceptions import ZeroProbabilityError
from skcircuits.learning.gaussian_mixture._candidates import MAX_DENSE_COLUMNS, TRIAL_TOL
from skcircuits.learning.gaussian_mixture._categories import KERNEL_STEPS, MAX_KERNEL_CELLS
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.tabular import TableSchema
from skcircuits.tabular._columns import Column

N_FOLDS = 3
MIN_OF_A_CLASS = 2  # so that rows are left to learn from where one is held out
MIN_PER_CLASS = 2 * N_FOLDS  # on average; with fewer rows, folds are not informative
MIN_NUMBERS = 10 * N_FOLDS  # squared errors of fewer rows are those of the farthest
MAX_ROWS = 3000  # of which models are fitted to two thirds, for the weights
MAX_FOLDS = 2  # that models are fitted to
ENOUGH_ROWS = 300  # held-out rows that determine the weights; no further folds are fitted
MAX_HIDDEN = 0.7  # largest rate of hidden cells in complete rows
MAX_MEMBER_ROWS = 10_000  # a few components and small trees need no more
MIN_LIKELIHOOD = 1e-12
MIN_PROBABILITY = 1e-6  # smaller probabilities count as this one
N_REWEIGHTINGS = 10  # of rows by their errors
SMALL_ERROR = 0.05  # relative to the mean error; smaller ones count as this one
POWER_ROWS = 10.0  # that the prior of the power, around 1, weighs
MAX_LOG_POWER = 2.0
MIN_VARIANCE = 1e-200
LEAST_ERROR = 1e-10  # squared, relative to the variance of the target
TYPES = (
    {"covariance_type": "tied", "n_components": 4, "location_model": True},
    {"covariance_type": "shrunk", "n_components": 8, "location_model": False},
)
N_STARTS = 3  # of densities whose answers are averaged: they end at optima that differ
WIDE_TYPES = ({"covariance_type": "factor", "n_components": 8, "location_model": False},)
KERNELS = {"n_components": "rows", "max_iter": 2 * KERNEL_STEPS}
# Rows that are components, each of which is compared with each row
MIN_KERNELS, MAX_KERNELS = 100, 2000
# Rows that the prior of its weight counts, where it is one for the others: few tables need it, and
# much then. On 36 splits of nine tables of classes .966 times the log loss without it, but .979
# where it is one, too.
KERNEL_PRIOR = 0.1
LEAST_WEIGHT = 0.05  # with a smaller one, the kernel density is left out
N_COPIES = 4  # of a row for trees: one as it is, the others with hidden cells if it is complete
MIN_LEAF = 20  # rows
# Small trees: predictions from incomplete rows are simple
MAX_LEAVES = 8
MAX_BINS = 63
MAX_TREES = 1000  # of all classes together
# Trees per class, of which held-out rows choose: on twelve generated tables of 300 and of 900 rows
# 15 or 25 were best on all but three of 24, and 100 had up to 1.5 times their log loss
N_TREES = (10, 15, 25, 40, 60, 100)


@dataclass(frozen=True)
class TrainingTargets:
    """Training rows with their targets and weights."""

    rows: FloatArray  # (n, d), encoded
    targets: FloatArray  # (n,), codes of classes, or numbers where there are none
    weights: FloatArray  # (n,)
    schema: TableSchema
    n_classes: int
    of_medians: bool = False  # whether the model minimises absolute errors

    def take(self, rows: IntArray) -> "TrainingTargets":
        """Give some of the rows."""
        return replace(
            self, rows=self.rows[rows], targets=self.targets[rows], weights=self.weights[rows]
        )

    @property
    def codes(self) -> IntArray:
        """Codes of the classes; numbers are of one class."""
        return (self.targets if self.n_classes else np.zeros(len(self.targets))).astype(np.intp)

    def are_enough(self) -> bool:
        """Tell whether there are enough rows to hold some out, and two or more of each class."""
        # Losses are averages over rows, so that a rare class does not make them uncertain
        usable = (self.weights > 0) & ~np.isnan(self.rows).all(axis=1)
        counts = np.bincount(self.codes[usable], minlength=self.n_classes)
        least = MIN_PER_CLASS if self.n_classes else MIN_NUMBERS
        if self.n_classes == 1 or counts.sum() < least * max(1, len(counts)):
            return False
        return bool((counts >= MIN_OF_A_CLASS).all())


@dataclass(frozen=True)
class Members:
    """Models that predict the target from incomplete rows directly."""

    # Circuits are over the columns and, as the last one, the target
    mixtures: list[list[Circuit]]  # of each the circuits of all starts
    kernels: list[Circuit]  # a component per row, if any
    trees: HistGradientBoostingClassifier | HistGradientBoostingRegressor
    bounds: tuple[float, float]  # least and largest target, or probability

    @classmethod
    def fit(
        cls,
        training: TrainingTargets,
        may_hide: bool,
        seed: int,
        n_trees: int = N_TREES[-1],
        n_starts: int = 1,
        has_kernels: bool = True,
    ) -> "Members":
        """Learn from rows and targets: densities first, then so many trees per class."""
        bounds = 0.0, 1.0
        if not training.n_classes:
            bounds = float(training.targets.min()), float(training.targets.max())
        trees = _grow_trees(training, may_hide, seed, n_trees)
        mixtures = _fit_mixtures(training, range(seed, seed + n_starts))
        kernels = _fit_kernels(training, seed) if has_kernels else []
        return cls(mixtures, kernels, trees, bounds)

    def answers(self, evidence: FloatArray) -> list[FloatArray]:
        """Predictions of each member, probabilities (n, k) or means (n, 1), the kernels' last."""
        ask = getattr(self.trees, "predict_proba", self.trees.predict)
        of_trees = self._within_bounds(ask(evidence))
        return [*self.of_mixtures(evidence), of_trees, *self.of_kernels(evidence)]

    def of_mixtures(self, evidence: FloatArray) -> list[FloatArray]:
        """Predictions of the mixtures, those of all starts averaged."""
        rows = _with_open_target(evidence)
        return [
            np.mean([self._of_circuit(circuit, rows) for circuit in own], axis=0)
            for own in self.mixtures
        ]

    def of_kernels(self, evidence: FloatArray) -> list[FloatArray]:
        """Predictions of the kernel density, if any."""
        rows = _with_open_target(evidence)
        return [self._of_circuit(circuit, rows) for circuit in self.kernels]

    def of_first_trees(self, evidence: FloatArray) -> FloatArray:
        """Predictions of the first 10, 15, ... trees of each class, (len(N_TREES), n, k)."""
        ask = getattr(self.trees, "staged_predict_proba", self.trees.staged_predict)
        stages = list(ask(evidence))
        return np.stack([self._within_bounds(stages[min(n, len(stages)) - 1]) for n in N_TREES])

    def _of_circuit(self, circuit: Circuit, rows: FloatArray) -> FloatArray:
        return self._within_bounds(_of_last_column(circuit, rows))

    def _within_bounds(self, answer: FloatArray) -> FloatArray:
        # The mean of a target is where the target is
        return np.clip(answer.reshape(len(answer), -1), *self.bounds)


@dataclass(frozen=True)
class Stack:
    """Expectations pooled with other predictions; probabilities are then raised to a `power`."""

    members: Members
    weights: FloatArray
    power: float = 1.0

    def __call__(self, expected: FloatArray, evidence: FloatArray) -> FloatArray:
        """Stack expectations (n, k) with the answers to evidence (n, d)."""
        result = _pooled(self.weights, np.stack([expected, *self.members.answers(evidence)]))
        if result.shape[1] == 1:
            return result
        result **= self.power
        result /= result.sum(axis=1, keepdims=True)
        return result


def learn_stack(
    training: TrainingTargets,
    fit_models: Callable[[IntArray], list],
    expect: Callable[[list, FloatArray], FloatArray],
    seed: int,
    may_hide: bool,
) -> Stack | None:
    """Learn members and weights on held-out rows; None if too few rows can be held out.

    ``fit_models(rows)`` fits the model to some rows, ``expect(models, cells)`` gives its
    expectations. If `may_hide`, some cells of complete held-out rows are hidden.
    """
    rng = np.random.default_rng(seed)
    order = _with_all_classes(training, rng.permutation(len(training.targets)))
    if not training.take(order[:MAX_ROWS]).are_enough():
        return None
    answered: list[tuple[FloatArray, ...]] = []
    for part, held_out in _folds(training, order[:MAX_ROWS], seed):
        cells = training.rows[held_out]
        if may_hide:
            cells = _with_hidden_cells(cells, rng)
        incomplete = np.isnan(cells).any(axis=1)
        # Complete rows have the model's own prediction: there is nothing to stack
        cells, held_out = cells[incomplete], held_out[incomplete]
        if not len(held_out):
            continue
        members = Members.fit(training.take(part), may_hide, seed)
        answers = np.stack([expect(fit_models(part), cells), *members.of_mixtures(cells)], axis=1)
        trees = np.moveaxis(members.of_first_trees(cells), 0, 1)
        kernels = np.reshape(members.of_kernels(cells), (-1, *answers[:, 0].shape)).swapaxes(0, 1)
        asked = training.take(held_out)
        answered.append((answers, trees, kernels, asked.targets, asked.weights))
        # A fold costs a fit, and a few weights are decided by enough rows
        if len(answered) == MAX_FOLDS or len(answers) >= ENOUGH_ROWS:
            break
    if not answered:
        return None
    answers, trees, kernels, targets, weights = map(np.concatenate, zip(*answered, strict=True))
    weights /= np.mean(weights)
    of_medians = training.of_medians
    losses = [weights @ _losses(own, targets, of_medians) for own in np.moveaxis(trees, 1, 0)]
    best = int(np.argmin(losses))
    answers = np.concatenate([answers, trees[:, [best]], kernels], axis=1).swapaxes(0, 1)
    found = _weights_of_members(answers, kernels.shape[1], targets, weights, of_medians)
    power = 1.0
    if training.n_classes:
        own = _pooled(found, answers[: len(found)])
        power = _power_of(own, targets.astype(np.intp), weights)
    few = training.take(order[:MAX_MEMBER_ROWS])
    # Posterior probabilities differ from start to start, expected numbers hardly do
    n_starts = N_STARTS if training.n_classes else 1
    has_kernels = len(found) > len(answers) - kernels.shape[1]
    members = Members.fit(few, may_hide, seed, N_TREES[best], n_starts, has_kernels)
    return Stack(members, found, power)


def _with_all_classes(training: TrainingTargets, order: IntArray) -> IntArray:
    """Move rows of rare classes among the first `MAX_ROWS`, if they would have too few."""
    is_first = np.zeros(len(order), dtype=bool)
    for k in range(training.n_classes):
        is_first[np.flatnonzero(training.codes[order] == k)[:MIN_OF_A_CLASS]] = True
    others = np.flatnonzero(~is_first)
    is_first[others[: max(0, MAX_ROWS - int(is_first.sum()))]] = True
    return np.concatenate([order[is_first], order[~is_first]])


def _losses(answers: FloatArray, targets: FloatArray, of_medians: bool) -> FloatArray:
    """Log losses of probabilities (n, k), or errors of numbers (n, 1), shape (n,)."""
    if answers.shape[1] == 1:
        errors = np.abs(answers[:, 0] - targets)
        return errors if of_medians else np.square(errors)
    own = answers[np.arange(len(answers)), targets.astype(np.intp)]
    return -np.log(np.maximum(own, MIN_PROBABILITY))


def _folds(
    training: TrainingTargets, rows: IntArray, seed: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield rows to learn from and rows to hold out."""
    folds = (StratifiedKFold if training.n_classes else KFold)(
        N_FOLDS, shuffle=True, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # some folds may lack a rare class
        parts = list(folds.split(rows, training.codes[rows]))
    for part, held_out in parts:
        yield rows[part], rows[held_out]


def _with_hidden_cells(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Hide cells of complete rows, with a random rate for each row."""
    rates = rng.uniform(0.0, MAX_HIDDEN, size=(len(rows), 1))
    hidden = rng.random(rows.shape) < rates
    return np.where(hidden & ~np.isnan(rows).any(axis=1, keepdims=True), np.nan, rows)


def _weights_of_members(
    answers: FloatArray,
    n_kernels: int,
    targets: FloatArray,
    row_weights: FloatArray,
    of_medians: bool,
) -> FloatArray:
    """Weights of answers (K, n, k), the last of kernel densities, without these if they are small.

    Kernel densities take longest to answer.
    """
    n_others = len(answers) - n_kernels
    prior_rows = np.repeat([1.0, KERNEL_PRIOR], [n_others, n_kernels])
    weigh = _weights_of_medians if of_medians else _weights_of
    found = weigh(answers, targets, row_weights, prior_rows)
    if found[n_others:].sum() >= LEAST_WEIGHT:
        return found
    return np.asarray(found[:n_others] / found[:n_others].sum())


def _pooled(weights: FloatArray, answers: FloatArray) -> FloatArray:
    """Weighted means of numbers (K, n, 1), or squares of those of roots of probabilities."""
    if answers.shape[2] == 1:
        return np.tensordot(weights, answers, axes=1)
    # Halfway between the linear and the logarithmic pool (Garg et al., 2004, "Generalized Opinion
    # Pooling"): the least sum of squared Hellinger distances to all answers. Where they disagree it
    # is more certain than their mean, and an answer of zero does not decide alone.
    return np.square(np.tensordot(weights, np.sqrt(answers), axes=1))


def _power_of(pooled: FloatArray, targets: IntArray, row_weights: FloatArray) -> float:
    """Power of probabilities (n, k) that minimises the log loss, shrunk towards 1."""
    # Means of calibrated probabilities are underconfident (Ranjan and Gneiting, 2010, "Combining
    # Probability Forecasts")
    logs = np.log(np.maximum(pooled, MIN_PROBABILITY))
    # A power of one leaves probabilities as they are; smaller ones make them less certain
    own = logs[np.arange(len(logs)), targets]

    def loss(log_power: float) -> float:
        power = np.exp(log_power)
        lost = row_weights @ (logsumexp(power * logs, axis=1) - power * own)
        return float(lost + POWER_ROWS * log_power**2)

    bounds = -MAX_LOG_POWER, MAX_LOG_POWER
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))


def _weights_of(
    answers: FloatArray, targets: FloatArray, row_weights: FloatArray, prior_rows: FloatArray
) -> FloatArray:
    """Weights (K,) of predictions (K, n, k) of least loss, shrunk as by some rows of a prior."""
    n_members, _, n_outputs = answers.shape
    if n_outputs > 1:
        roots = np.sqrt(answers)
        return _weights_of_roots(roots, targets.astype(np.intp), row_weights, prior_rows)
    means, n_rows = answers[:, :, 0].T, float(prior_rows.sum())
    prior = prior_rows / n_rows
    centre = np.average(targets, weights=row_weights)  # weights sum to one: nothing changes
    variance = np.average(np.square(targets - centre), weights=row_weights)
    # A Gaussian log likelihood where errors are small, else the prior would decide there
    least = least_square(means, targets, row_weights, prior) / row_weights.sum()
    unit = np.clip(2.0 * least, LEAST_ERROR * variance, variance)
    row_weights = row_weights / max(unit, MIN_VARIANCE)
    found = means - centre, targets - centre, row_weights, np.zeros((0, n_members)), np.zeros(0)
    return np.asarray(stacking_weights([found], prior=n_rows, centre=prior))


def _weights_of_roots(
    roots: FloatArray, targets: IntArray, row_weights: FloatArray, prior_rows: FloatArray
) -> FloatArray:
    """Weights (K,) of roots of probabilities (K, n, k) of least log loss of their squared means."""
    own = np.take_along_axis(roots, targets[None, :, None], axis=2)[:, :, 0]

    def objective(logits: FloatArray) -> tuple[float, FloatArray]:
        log_weights = log_softmax(logits)
        weights = np.exp(log_weights)
        mean = np.tensordot(weights, roots, axes=1)
        total = np.square(mean).sum(axis=1)
        right = np.maximum(weights @ own, MIN_LIKELIHOOD)
        loss = row_weights @ (np.log(total) - 2.0 * np.log(right)) - prior_rows @ log_weights
        slopes = np.einsum("knc,nc->kn", roots, mean / total[:, None]) - own / right
        gradient = 2.0 * slopes @ row_weights
        # by the logits; the prior's part is written out, where a weight may vanish
        slopes = weights * (gradient - weights @ gradient + prior_rows.sum()) - prior_rows
        return float(loss), slopes

    found = minimize(objective, np.log(prior_rows), jac=True, method="L-BFGS-B")
    return np.asarray(softmax(found.x))


def _weights_of_medians(
    answers: FloatArray, targets: FloatArray, row_weights: FloatArray, prior_rows: FloatArray
) -> FloatArray:
    """Weights (K,) of predictions (K, n, 1) of least absolute error, by reweighted squares."""
    weights = np.full(len(answers), 1.0 / len(answers))
    for _ in range(N_REWEIGHTINGS):
        errors = np.abs(weights @ answers[:, :, 0] - targets)
        typical = np.average(errors, weights=row_weights)
        reweighted = row_weights / np.maximum(errors, max(SMALL_ERROR * typical, MIN_VARIANCE))
        reweighted /= np.mean(reweighted)
        weights = _weights_of(answers, targets, reweighted, prior_rows)
    return weights


def _fit_mixtures(training: TrainingTargets, seeds: Iterable[int]) -> list[list[Circuit]]:
    """Fit diverse mixtures of rows and target, the last column, each from several starts."""
    # Means that depend on the categories, with one covariance (linear discriminant analysis and
    # linear regression, the location model), and components that are shared by all classes
    types = WIDE_TYPES if _is_wide(training) else TYPES
    return [[_fit_circuit(training, seed, own) for seed in seeds] for own in types]


def _fit_kernels(training: TrainingTargets, seed: int) -> list[Circuit]:
    """Fit a density with a component per row; rows of many columns have no near ones."""
    if _is_wide(training):
        return []
    n_rows = min(MAX_KERNELS, max(MIN_KERNELS, MAX_KERNEL_CELLS // (training.rows.shape[1] + 1)))
    # Rows are in random order
    some = training.take(np.flatnonzero(training.weights > 0)[:n_rows])
    return [_fit_circuit(some, seed, KERNELS)]


def _is_wide(training: TrainingTargets) -> bool:
    return bool((~training.schema.is_categorical).sum() > MAX_DENSE_COLUMNS)


def _fit_circuit(training: TrainingTargets, seed: int, parameters: Mapping[str, object]) -> Circuit:
    labels = np.arange(training.n_classes) if training.n_classes else None
    target = Column("target", labels, is_integral=labels is not None)
    columns = (*training.schema.columns, target)
    schema = replace(training.schema, columns=columns, prototype=None)
    joint = np.column_stack([training.rows, training.targets])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations suffice
        density = GaussianMixtureDensity(tol=TRIAL_TOL, random_state=seed, **parameters)
        return density._fit_encoded(joint, schema, training.weights).circuit_


def _grow_trees(
    training: TrainingTargets, may_hide: bool, seed: int, n_trees: int
) -> HistGradientBoostingClassifier | HistGradientBoostingRegressor:
    """Grow boosted trees on the rows, complete ones also with hidden cells."""
    rng = np.random.default_rng(seed)
    # Incomplete rows are copied as they are where that avoids weights: without them, scikit-learn
    # finds bins in a fraction of the time
    is_even = np.ptp(training.weights) == 0.0
    copied = np.flatnonzero(is_even | ~np.isnan(training.rows).any(axis=1))
    n_hidden = min(N_COPIES - 1, max(1, MAX_MEMBER_ROWS // len(training.rows))) if may_hide else 0
    origin = np.concatenate([np.arange(len(training.rows)), *[copied] * n_hidden])
    hidden = [_with_hidden_cells(training.rows[copied], rng) for _ in range(n_hidden)]
    grow = HistGradientBoostingClassifier if training.n_classes else HistGradientBoostingRegressor
    loss = {"loss": "absolute_error"} if training.of_medians else {}
    trees = grow(
        **loss,
        max_iter=min(n_trees, max(1, MAX_TREES // max(1, training.n_classes))),
        max_leaf_nodes=MAX_LEAVES,
        max_bins=MAX_BINS,
        # copies of a row are one row
        min_samples_leaf=round(MIN_LEAF * len(origin) / len(training.rows)),
        categorical_features=training.schema.is_categorical
        & (training.schema.cardinalities <= MAX_BINS),
        early_stopping=False,
        random_state=seed,
    )
    weights = training.weights / np.bincount(origin)
    targets = training.codes if training.n_classes else training.targets
    rows = np.vstack([training.rows, *hidden])
    rows[:, np.isnan(rows).all(axis=0)] = 0.0  # trees refuse columns without any value
    return trees.fit(rows, targets[origin], None if is_even else weights[origin])


def _with_open_target(evidence: FloatArray) -> FloatArray:
    """Rows with a missing target as the last column."""
    return np.column_stack([evidence, np.full(len(evidence), np.nan)])


def _of_last_column(circuit: Circuit, rows: FloatArray) -> FloatArray:
    """Probabilities or mean of the last column given the others; marginal ones if impossible."""
    last = rows.shape[1] - 1

    def answer(rows: FloatArray) -> FloatArray:
        if last in circuit.cardinalities:
            return circuit.marginals(rows)[last]
        return circuit.expectation(rows)[:, [last]]

    try:
        return answer(rows)
    except ZeroProbabilityError:
        return answer(np.where(np.isneginf(circuit.log_prob(rows))[:, None], np.nan, rows))
