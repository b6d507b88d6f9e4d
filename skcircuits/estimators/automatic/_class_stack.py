"""Expected probabilities stacked with those that densities of rows and classes give themselves.

E[P(y | x) | x_o] is P(y | x_o) as far as the classifier's P(y | x) is right: one that is too sure
of complete rows stays so where cells are missing. A density of rows and classes has a P(y | x_o) of
its own, which fails in other ways. Weights of the two are learned from held-out rows.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold

from skcircuits.circuits import Categorical, Circuit, Product, Sum
from skcircuits.estimators.automatic._stacking import stacking_weights
from skcircuits.estimators.gaussian_mixture import GaussianMixtureDensity
from skcircuits.learning.gaussian_mixture._candidates import MAX_DENSE_COLUMNS
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.tabular import TableSchema
from skcircuits.tabular._columns import Column

N_FOLDS = 3
LEAST_PER_CLASS = 2 * N_FOLDS  # below that folds teach nothing about a class
MAX_ROWS = 3000  # of which models are fitted to two thirds, for the weights
ENOUGH_ROWS = 300  # held-out rows that tell the weights; further folds are not fitted
MAX_HIDDEN = 0.7  # of the cells of a row that misses none itself
MAX_DENSITY_ROWS = 10_000  # a few components need no more
# On rows it was not fitted to, a mixture gains nothing from later iterations
TOL = 4e-3
LEAST_LIKELIHOOD = 1e-12
TYPES = (
    {"covariance_type": "tied", "n_components": 4, "location_model": True},
    {"covariance_type": "shrunk", "n_components": 8},
)
WIDE_TYPES = ({"covariance_type": "factor", "n_components": 8},)


@dataclass(frozen=True)
class TrainingClasses:
    """Training rows, encoded (n, d), with codes of their classes and weights, (n,) each."""

    rows: FloatArray
    codes: IntArray
    weights: FloatArray
    schema: TableSchema
    n_classes: int

    def take(self, rows: IntArray) -> "TrainingClasses":
        """Give some of the rows."""
        return replace(
            self, rows=self.rows[rows], codes=self.codes[rows], weights=self.weights[rows]
        )

    def are_enough(self) -> bool:
        """Tell whether each class has rows enough to hold some out."""
        usable = (self.weights > 0) & ~np.isnan(self.rows).all(axis=1)
        counts = np.bincount(self.codes[usable], minlength=self.n_classes)
        return bool(counts.min() >= LEAST_PER_CLASS)


@dataclass(frozen=True)
class Stack:
    """A weighted mean of expected probabilities and of the posteriors of circuits.

    ``circuits``: over the columns and, as the last variable, the class; ``weights``: that of the
    expected probabilities, then one per circuit.
    """

    circuits: list[Circuit]
    weights: FloatArray

    def __call__(self, expected: FloatArray, evidence: FloatArray) -> FloatArray:
        """Stack expected probabilities (n, k) with the posteriors given evidence (n, d)."""
        result = self.weights[0] * expected
        for weight, circuit in zip(self.weights[1:], self.circuits):
            result += weight * _posterior(circuit, evidence)
        return result


def learn_stack(
    training: TrainingClasses,
    fit_models: Callable[[IntArray], list],
    expect: Callable[[list, FloatArray], FloatArray],
    seed: int,
    may_hide: bool,
) -> Stack:
    """Learn densities of rows and classes, and weights from what rows held out tell.

    ``fit_models(rows)`` fits the classifier to some rows, ``expect(models, cells)`` gives the
    expected probabilities. Held-out rows that miss no cell have some hidden, if they may.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(training.codes))
    if not training.take(order[:MAX_ROWS]).are_enough():
        return Stack([], np.ones(1))
    likelihoods, weights = [], []
    for part, held_out in _folds(training, order[:MAX_ROWS], seed):
        cells = training.rows[held_out]
        if may_hide:
            cells = _with_hidden_cells(cells, rng)
        incomplete = np.isnan(cells).any(axis=1)
        cells, held_out = cells[incomplete], held_out[incomplete]
        if not len(held_out):
            continue
        answers = [expect(fit_models(part), cells)]
        answers += [_posterior(own, cells) for own in _fit_circuits(training.take(part), seed)]
        codes = training.codes[held_out]
        likelihoods.append(np.stack([own[np.arange(len(own)), codes] for own in answers], axis=1))
        weights.append(training.weights[held_out])
        if sum(map(len, weights)) >= ENOUGH_ROWS:
            break
    if not likelihoods:
        return Stack([], np.ones(1))
    learned = _weights_of(np.concatenate(likelihoods), np.concatenate(weights))
    circuits = _fit_circuits(training.take(order[:MAX_DENSITY_ROWS]), seed)
    return Stack(circuits, learned)


def _folds(
    training: TrainingClasses, rows: IntArray, seed: int
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield rows to learn from and rows to hold out."""
    folds = StratifiedKFold(N_FOLDS, shuffle=True, random_state=seed)
    for part, held_out in folds.split(rows, training.codes[rows]):
        yield rows[part], rows[held_out]


def _with_hidden_cells(rows: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Hide cells of complete rows, of each at a rate of its own."""
    rates = rng.uniform(0.0, MAX_HIDDEN, size=(len(rows), 1))
    hidden = rng.random(rows.shape) < rates
    return np.where(hidden & ~np.isnan(rows).any(axis=1, keepdims=True), np.nan, rows)


def _weights_of(likelihoods: FloatArray, row_weights: FloatArray) -> FloatArray:
    """Weights (K,) of answers, likelihoods (n, K), drawn towards equal ones by a row each."""
    nothing = np.zeros(0)
    row_weights = row_weights / np.mean(row_weights)
    likelihoods = np.maximum(likelihoods, LEAST_LIKELIHOOD)
    of_classes = np.zeros((0, likelihoods.shape[1])), nothing, nothing, likelihoods, row_weights
    return np.asarray(stacking_weights([of_classes], prior=float(likelihoods.shape[1])))


def _fit_circuits(training: TrainingClasses, seed: int) -> list[Circuit]:
    """Fit densities of rows and classes that fail in different ways, whose last variable is y.

    A Gaussian per class (quadratic discriminant analysis), means that depend on class and
    categories with one covariance (linear discriminant analysis, the location model), and
    components that no class has for itself.
    """
    is_wide = (~training.schema.is_categorical).sum() > MAX_DENSE_COLUMNS
    own = {"covariance_type": "factor"} if is_wide else {"covariance_type": "full"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # few iterations show what they know
        circuits = [_per_class(training, seed, {**own, "n_components": 1})]
        joint = np.column_stack([training.rows, training.codes])
        label = Column("class", np.arange(training.n_classes), is_integral=True)
        schema = replace(training.schema, columns=(*training.schema.columns, label), prototype=None)
        for parameters in WIDE_TYPES if is_wide else TYPES:
            density = _mixture(seed, parameters)._fit_encoded(joint, schema, training.weights)
            circuits.append(density.circuit_)
    return circuits


def _mixture(seed: int, parameters: dict) -> GaussianMixtureDensity:
    return GaussianMixtureDensity(
        tol=TOL, random_state=seed, **{"location_model": False} | parameters
    )


def _per_class(training: TrainingClasses, seed: int, parameters: dict) -> Circuit:
    """One density per class, as one circuit over rows and classes."""
    n_columns, terms, masses = training.rows.shape[1], [], []
    for code, indicators in enumerate(np.eye(training.n_classes)):
        own = training.take(np.flatnonzero(training.codes == code))
        density = _mixture(seed, parameters)._fit_encoded(own.rows, own.schema, own.weights)
        terms.append(Product([density.circuit_.root, Categorical(n_columns, indicators)]))
        masses.append(own.weights.sum())
    return Circuit(Sum(terms, weights=np.array(masses) / np.sum(masses)))


def _posterior(circuit: Circuit, evidence: FloatArray) -> FloatArray:
    """Probabilities of the classes given observed cells; given none where impossible."""
    rows = np.column_stack([evidence, np.full(len(evidence), np.nan)])
    rows[np.isneginf(circuit.log_prob(rows))] = np.nan
    return circuit.marginals(rows)[evidence.shape[1]]
