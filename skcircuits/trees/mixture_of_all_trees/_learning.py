"""Learning mixtures of all trees by mini-batch Adam with gradients in closed form.

In a mixture of several components, one component per row is drawn from its responsibilities, so
that an epoch costs about as much as with one component, however many there are.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from skcircuits.numerics._arrays import logsumexp
from skcircuits.numerics._optimization import Adam
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import row_slices, thread_map
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees._chow_liu import (
    Completions,
    learn_tree_mixture,
    mutual_information,
    pair_statistics,
)
from skcircuits.trees._trees import StateLayout
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture
from skcircuits.trees.mixture_of_all_trees._parameters import Parameterization

# Initial edge weights are powers of the mutual informations: the cube is closer to the best
# trees than the informations themselves. The weakest are raised to a fraction of the strongest
# that falls with the number of variables, so that n² of them together stay weak, but not so
# far that learning would take long to raise those it needs.
_POWER = 3
_WEAKEST_INFORMATION = 1e-4
_WEAKEST_FRACTION = -2.5  # power of the number of variables
_N_TREE_STEPS = 20  # EM steps of the mixture of trees a mixture of MoATs starts from
_REFRESH_EVERY = 3  # epochs between evaluations of every component on every row
_NEGLIGIBLE = 7.0  # nats below the best component: not evaluated in between


class Schedule(NamedTuple):
    """Training schedule."""

    n_epochs: int  # in which the rate falls along half a cosine
    learning_rate: float  # of Adam, at the start
    batch_size: int  # rows per step
    last_rate: float = 0.02  # fraction of the rate at the end

    def rate(self, done: float) -> float:
        """Learning rate after a fraction of the run."""
        fraction = self.last_rate + (1 - self.last_rate) * (1 + np.cos(np.pi * done)) / 2
        return self.learning_rate * fraction


@dataclass(frozen=True)
class Epoch:
    """State of learning after a pass over the rows."""

    parameterization: Parameterization
    log_weights: FloatArray  # (n_components,)
    vectors: FloatArray  # (n_components, size), parameters
    loss: float  # mean negative log-likelihood as the pass met the rows
    converged: bool  # the last planned epoch

    @property
    def mixture(self) -> AllTreesMixture:
        """The model, made anew: it takes several times the memory of its parameters."""
        return _mixture(self.parameterization, self.log_weights, self.vectors)


@dataclass
class Training:
    """Parameters and the state of their optimiser, to be continued at any time.

    `rules` are the optimisers of the components. `masses` and `earlier_masses` (n_components,) are
    weights of rows by their responsibilities: of those learned from now, and before (`close`).
    """

    parameterization: Parameterization  # meaning of the vectors
    log_weights: FloatArray  # (n_components,), of the mixture
    vectors: FloatArray  # (n_components, size), parameters of the components

    def __post_init__(self) -> None:
        # Squares are forgotten faster than by default: the gradients of batches soon shrink.
        self.rules = [Adam(decay_squares=0.99) for _ in self.vectors]
        self.masses: FloatArray = np.zeros(len(self.vectors))
        self.earlier_masses: FloatArray = np.zeros(len(self.vectors))

    def copy(self) -> Training:
        """Copy the arrays that learning changes in place."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(other, name, value.copy())
        return other

    @property
    def mixture(self) -> AllTreesMixture:
        """The model with the current parameters."""
        return _mixture(self.parameterization, self.log_weights, self.vectors)

    def epoch(self, loss: float, converged: bool) -> Epoch:
        """Keep the current parameters."""
        kept = self.log_weights.copy(), self.vectors.copy()
        return Epoch(self.parameterization, *kept, loss, converged)

    def weigh(self, masses: FloatArray, row_mass: float) -> None:
        """Set the mixture weights by the rows of now and before."""
        self.masses = masses
        self.log_weights = _log_fractions(masses + self.earlier_masses, row_mass)

    def reset(self) -> None:
        """Let only the rows that come now decide on the mixture weights."""
        self.masses, self.earlier_masses = np.zeros((2, len(self.vectors)))

    def close(self) -> None:
        """Count the rows learned from so far when others follow."""
        self.earlier_masses = self.earlier_masses + self.masses
        self.masses = np.zeros(len(self.vectors))

    def restore(self, epoch: Epoch) -> None:
        """Go back to the parameters of an earlier epoch."""
        self.log_weights = epoch.log_weights.copy()
        self.vectors = epoch.vectors.copy()

    def ascend(self, component: int, gradient: FloatArray, rate: float) -> None:
        """Move one component up its gradient."""
        self.rules[component].ascend(self.vectors[component], gradient, rate)
        self.parameterization.bounded(self.vectors[component])


def start_training(
    completions: Completions,
    layout: StateLayout,
    n_components: int,
    rng: np.random.Generator,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
    init: str = "mutual_information",
) -> Training:
    """First parameters; `init`: "mutual_information", "published" or "random"; weights of rows."""
    parameterization = Parameterization(layout)
    if init == "random":
        vectors = rng.normal(size=(n_components, parameterization.size))
        return Training(parameterization, np.full(n_components, -np.log(n_components)), vectors)
    codes = completions.codes
    weight = _weights(completions, sample_weight)
    row_mass = float(weight.mean())
    weight = completions.totals(weight)
    parts = weight[:, None]
    if n_components > 1:
        steps = learn_tree_mixture(
            codes, layout, n_components, rng, sample_weight=weight, pseudo_count=pseudo_count
        )
        *_, trees = islice(steps, _N_TREE_STEPS)
        parts = parts * trees.responsibilities(codes)
    # From the groups of the trees; equal starts would stay equal.
    vectors = np.stack(
        [_estimated(parameterization, codes, part, pseudo_count, init) for part in parts.T]
    )
    log_weights = _log_fractions(parts.sum(axis=0), row_mass)
    return Training(parameterization, log_weights, vectors)


def learn_all_trees(
    training: Training,
    completions: Completions,
    rng: np.random.Generator,
    schedule: Schedule,
    *,
    sample_weight: FloatArray | None = None,
    n_jobs: int | None = None,
) -> Iterator[Epoch]:
    """Maximise the expected likelihood of completed, weighted rows by mini-batch Adam."""
    weight = _weights(completions, sample_weight)
    # Batches are drawn from all rows, so that the steps stay the same, but equal rows of a
    # batch are computed once.
    rows = completions.codes
    rows = rows.astype(np.min_scalar_type(rows.max(initial=0)))  # an eighth of the memory
    totals = completions.totals(weight)
    assignment = _Assignment(len(rows), len(training.vectors))
    mean_weight = weight.mean()
    n_batches = len(row_slices(len(weight), schedule.batch_size))
    for epoch in range(schedule.n_epochs):
        assignment.refresh(training, rows, totals, epoch, n_jobs)
        log_likelihood = 0.0
        order = rng.permutation(len(weight))
        for i, batch in enumerate(row_slices(len(weight), schedule.batch_size)):
            done = (epoch + i / n_batches) / schedule.n_epochs
            rate = schedule.rate(done)
            chosen = order[batch]
            parts = completions.fractions[chosen]
            own = parts.data * np.repeat(weight[chosen], np.diff(parts.indptr))
            # One drawn component per row: an unbiased gradient at the price of one component.
            components = assignment.draw(parts.indices, rng)
            expected = mean_weight * len(chosen)
            log_likelihood += _step(
                training, rows, parts.indices, own, components, expected, rate, n_jobs
            )
        if assignment.log_likelihood is not None:
            # The steps saw drawn components only; this is the likelihood of the mixture.
            log_likelihood = assignment.log_likelihood
        loss = -log_likelihood / weight.sum()
        last = epoch + 1 == schedule.n_epochs
        yield training.epoch(loss, last)


def _weights(completions: Completions, sample_weight: FloatArray | None) -> FloatArray:
    return np.ones(completions.fractions.shape[0]) if sample_weight is None else sample_weight


def _mixture(
    parameterization: Parameterization, log_weights: FloatArray, vectors: FloatArray
) -> AllTreesMixture:
    models = [parameterization.model(vector) for vector in vectors]
    return AllTreesMixture(log_weights.copy(), models)


def _step(
    training: Training,
    rows: IntArray,
    index: IntArray,
    weight: FloatArray,
    components: IntArray,
    expected: float,
    rate: float,
    n_jobs: int | None,
) -> float:
    """Move every component by its rows of the batch; equal rows are computed once.

    Gradients are means over the rows of a component, so that Adam sees the same scale for
    large and small ones, times the weight of the batch over that of an average batch: batches
    that happen to be light count less.
    """
    n_components = len(training.vectors)
    importance = weight.sum() / expected
    # One component shares its rows out among the threads; several are shared out themselves.
    inner = n_jobs if n_components == 1 else 1

    def ascend(component: int) -> float:
        mine = components == component
        fraction = weight[mine].sum()
        if fraction <= 0:
            return 0.0
        present, position = np.unique(index[mine], return_inverse=True)
        totals = np.bincount(position, weight[mine]).astype(np.float64)
        parameterization = training.parameterization
        model = parameterization.model(training.vectors[component])
        log_likelihood, gradient = parameterization.gradient(
            model, rows[present].astype(np.int64), totals, n_jobs=inner
        )
        gradient *= importance / fraction
        training.ascend(component, gradient, rate)
        return log_likelihood

    outer = 1 if n_components == 1 else n_jobs
    return float(sum(thread_map(ascend, [(c,) for c in range(n_components)], outer)))


def _estimated(
    parameterization: Parameterization,
    codes: IntArray,
    weight: FloatArray,
    pseudo_count: float,
    init: str,
) -> FloatArray:
    """Pair tables of the weighted rows, and edge weights by their mutual informations."""
    layout = parameterization.layout
    statistics = pair_statistics(codes, layout, sample_weight=weight, pseudo_count=pseudo_count)
    information = np.maximum(mutual_information(statistics, layout), _WEAKEST_INFORMATION)
    if init == "published":
        return parameterization.vector(information, statistics)
    weights = information**_POWER
    weakest = weights.max() * float(layout.n_variables) ** _WEAKEST_FRACTION
    return parameterization.vector(np.maximum(weights, weakest), statistics)


def _log_fractions(masses: FloatArray, row_mass: float) -> FloatArray:
    """Log mixture weights; half an average row more each keeps an empty component alive."""
    masses = masses + row_mass / 2
    return np.log(masses / masses.sum())


class _Assignment:
    """Which component a row belongs to, by the latest evaluation of each component."""

    def __init__(self, n_rows: int, n_components: int) -> None:
        self.log_joint = np.zeros((n_rows, n_components))
        self.responsibilities = np.ones((n_rows, n_components))
        self.log_likelihood: float | None = None  # of a mixture, at the latest refresh

    def refresh(
        self, training: Training, rows: IntArray, totals: FloatArray, epoch: int, n_jobs: int | None
    ) -> None:
        """Evaluate the components (every few epochs all of them) and reweight them."""
        if self.log_joint.shape[1] == 1:
            return
        # Components far below the best of a row rarely catch up within a few epochs.
        stale = np.ones(self.log_joint.shape, dtype=bool)
        if epoch % _REFRESH_EVERY:
            stale = self.log_joint > self.log_joint.max(axis=1, keepdims=True) - _NEGLIGIBLE
        mixture = training.mixture
        for component, (model, outdated) in enumerate(
            zip(mixture.components, stale.T, strict=True)
        ):
            codes = rows[outdated].astype(np.int64)
            self.log_joint[outdated, component] = model.log_prob(codes, n_jobs=n_jobs)
        log_joint = self.log_joint + training.log_weights
        log_prob = logsumexp(log_joint, axis=1)
        self.log_likelihood = float(totals @ log_prob)
        self.responsibilities = np.exp(log_joint - log_prob[:, None])
        training.weigh(totals @ self.responsibilities, float(totals.mean()))

    def draw(self, index: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw a component for each row."""
        if self.responsibilities.shape[1] == 1:
            return np.zeros(len(index), dtype=np.int64)
        return draw_states(self.responsibilities[index], rng.random(len(index)))
