"""Gaussian mixtures learned from rows with missing cells by expectation maximisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from skcircuits.learning.gaussian_mixture._components import (
    Categories,
    DiagonalGaussians,
    FullGaussians,
    Sums,
)
from skcircuits.learning.gaussian_mixture._start import cluster_rows
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._logspace import logsumexp
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["EMSettings", "MixtureState", "learn_gaussian_mixture", "search_components"]

_START_STEPS = 10  # iterations each start gets before the best one goes on


@dataclass(frozen=True)
class EMSettings:
    """How a mixture is learned.

    Parameters
    ----------
    covariance_type : {"full", "diag"}, default="full"
        Shape of the covariances.
    pseudo_count : float, default=0.1
        Rows that the prior of each component weighs as much as.
    n_init : int, default=3
        Number of starts; the best after ten iterations goes on.
    max_iter : int, default=200
        Most iterations for one number of components.
    tol : float, default=1e-4
        Least gain of the lower bound, in nats per row, that an iteration must make.
    """

    covariance_type: Literal["full", "diag"] = "full"
    pseudo_count: float = 0.1
    n_init: int = 3
    max_iter: int = 200
    tol: float = 1e-4


@dataclass(frozen=True, eq=False)
class MixtureState:
    """A mixture on its way, in standard units.

    Parameters
    ----------
    weights : ndarray of shape (K,)
        Positive weights, summing to one.
    gaussians : FullGaussians or DiagonalGaussians
        Components of the numeric columns.
    categories : Categories
        Components of the categorical columns.
    log_likelihood : float
        Of all rows under the parameters before the last iteration, in original units.
    lower_bound : float
        Log posterior per row up to a constant, under the same parameters; it never falls.
    n_iter : int
        Iterations since the best start was chosen.
    at_optimum : bool
        Whether the last iteration gained less than the tolerance.
    """

    weights: FloatArray
    gaussians: FullGaussians | DiagonalGaussians
    categories: Categories
    log_likelihood: float = -np.inf
    lower_bound: float = -np.inf
    n_iter: int = 0
    at_optimum: bool = False

    @property
    def n_components(self) -> int:
        """Number of components."""
        return len(self.weights)

    @property
    def n_parameters(self) -> int:
        """Number of free parameters."""
        components = self.gaussians.n_parameters() + self.categories.n_parameters()
        return self.n_components - 1 + components

    def bic(self, total_weight: float) -> float:
        """Bayesian information criterion; lower is better.

        Parameters
        ----------
        total_weight : float
            Weight of all rows: their number where each counts once.

        Returns
        -------
        float
            The criterion, of the log-likelihood before the last iteration.
        """
        penalty = self.n_parameters * float(np.log(max(total_weight, 1.0)))
        return penalty - 2.0 * self.log_likelihood


def learn_gaussian_mixture(
    table: MixtureTable, n_components: int, settings: EMSettings, rng: np.random.Generator
) -> Iterator[MixtureState]:
    """Learn a mixture with a given number of components.

    Parameters
    ----------
    table : MixtureTable
        Rows.
    n_components : int
        Number of components.
    settings : EMSettings
        How to learn.
    rng : numpy.random.Generator
        Source of the starts.

    Yields
    ------
    MixtureState
        After each iteration; the last one is at an optimum unless `max_iter` came first.

    Notes
    -----
    Expectation maximisation of the posterior (Ghahramani and Jordan, 1994, "Supervised
    learning from incomplete data via an EM approach"). The prior of each component weighs
    `pseudo_count` rows, and a thousandth of a row of uncorrelated columns keeps every
    covariance positive definite, whatever the rows.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.learning.gaussian_mixture._learner import EMSettings, learn_gaussian_mixture
    >>> from skcircuits.learning.gaussian_mixture._table import MixtureTable
    >>> X = np.array([[0.0], [1.0], [9.0], [10.0], [np.nan]])
    >>> table = MixtureTable.prepare(X, cardinalities=np.zeros(1, dtype=int))
    >>> *_, last = learn_gaussian_mixture(table, 2, EMSettings(), np.random.default_rng(0))
    >>> last.weights.round(2)
    array([0.5, 0.5])
    """
    state = _best_start(table, n_components, settings, rng)
    while not state.at_optimum and state.n_iter < settings.max_iter:
        state = _step(table, state, settings.tol)
        yield state


def search_components(
    table: MixtureTable,
    candidates: Sequence[int],
    settings: EMSettings,
    rng: np.random.Generator,
) -> Iterator[MixtureState]:
    """Learn mixtures with more and more components until the BIC has risen twice in a row.

    Parameters
    ----------
    table : MixtureTable
        Rows.
    candidates : sequence of int
        Ascending numbers of components.
    settings : EMSettings
        How to learn each.
    rng : numpy.random.Generator
        Source of the starts; each candidate gets a stream of its own.

    Yields
    ------
    MixtureState
        After each iteration of each candidate.
    """
    best, n_worse = np.inf, 0
    streams = rng.spawn(len(candidates))
    for n_components, stream in zip(candidates, streams, strict=True):
        bic = np.inf
        for state in learn_gaussian_mixture(table, n_components, settings, stream):
            bic = state.bic(table.weights.sum())
            yield state
        n_worse = 0 if bic < best else n_worse + 1
        best = min(best, bic)
        if n_worse == 2:
            return


def _best_start(
    table: MixtureTable, n_components: int, settings: EMSettings, rng: np.random.Generator
) -> MixtureState:
    """Run a few iterations from each start and keep the best."""
    family = FullGaussians if settings.covariance_type == "full" else DiagonalGaussians
    single = MixtureState(
        np.ones(1),
        family.standard(table.numbers.shape[1]),
        Categories.marginal(table, settings.pseudo_count),
    )
    if n_components == 1:
        return single
    for _ in range(_START_STEPS):
        single = _step(table, single, settings.tol)
    # clusters need completed rows: at first, all components complete them as the single one
    repeated = replace(
        single,
        weights=np.full(n_components, 1.0 / n_components),
        gaussians=single.gaussians.repeat(n_components, settings.pseudo_count),
        categories=single.categories.repeat(n_components),
    )
    starts = []
    for _ in range(settings.n_init):
        state = _step(table, repeated, 0.0, cluster_rows(table, n_components, rng))
        for _ in range(_START_STEPS):
            state = _step(table, state, settings.tol)
        starts.append(state)
    best = max(starts, key=lambda state: state.lower_bound)
    return replace(best, n_iter=0, at_optimum=False)


def _step(
    table: MixtureTable, state: MixtureState, tol: float, labels: IntArray | None = None
) -> MixtureState:
    """One iteration; with `labels`, rows belong to these components for sure."""
    log_likelihood = 0.0
    totals: list[Sums] = []
    for rows, groups in table.blocks:
        numbers = state.gaussians.expect(table.numbers[rows], groups)
        codes = state.categories.expect(table.codes[rows], state.n_components)
        log_joint = numbers.log_density + codes.log_density + np.log(state.weights)[:, None]
        log_density = logsumexp(log_joint)
        if labels is None:
            responsibilities = np.exp(log_joint - log_density)
        else:
            responsibilities = (labels[rows] == np.arange(state.n_components)[:, None]).astype(
                float
            )
        responsibilities *= table.weights[rows]
        log_likelihood += float(table.weights[rows] @ log_density)
        sums = (numbers.sums(responsibilities), codes.sums(responsibilities))
        totals.append((responsibilities.sum(axis=1), *sums[0], *sums[1]))
    return _maximize(table, state, totals, (log_likelihood, tol))


def _maximize(
    table: MixtureTable, state: MixtureState, totals: list[Sums], progress: tuple[float, float]
) -> MixtureState:
    """The parameters that maximise the expected posterior."""
    log_likelihood, tol = progress
    counts, *sums = (sum(parts) for parts in zip(*totals, strict=True))
    # the prior of the weights, a few rows spread evenly, keeps all of them positive
    pseudo_count = state.categories.pseudo_count
    weights = counts + pseudo_count / state.n_components
    lower_bound = log_likelihood + state.gaussians.log_prior() + state.categories.log_prior()
    lower_bound += pseudo_count * float(np.log(state.weights).mean())
    lower_bound /= float(table.weights.sum()) or 1.0  # no row has an observed cell
    return MixtureState(
        weights / weights.sum(),
        state.gaussians.maximize(tuple(sums[:3])),
        state.categories.maximize(tuple(sums[3:])),
        log_likelihood - table.log_scale,
        lower_bound,
        state.n_iter + 1,
        lower_bound - state.lower_bound < tol,
    )
