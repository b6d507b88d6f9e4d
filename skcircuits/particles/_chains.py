"""Chains of Hamiltonian Monte Carlo, one from every particle: what moments the target has.

The kernel of SVGD sees few functions of many coordinates. Particles that satisfy Stein's identity
for those may still have wrong variances, and no test by the same functions finds out. Chains
leave the target invariant whatever the particles are, so that they never take a cloud further
from it, and a hundred of them tell their own error: they are independent of each other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skcircuits.particles._metric import CoordinateMetric
from skcircuits.protocols import FloatArray

# Acceptance for which steps are tuned, high so that chains enter necks too, and how fast (Robbins
# and Monro).
ACCEPTANCE, ADAPTATION_RATE, ADAPTATION_DECAY = 0.9, 0.5, 0.3
FIRST_STEP, MAX_STEP = 0.5, 1.5
# Steps vary by chain, so that narrow places are left too, where most steps are refused.
STEP_RANGE = 0.2, 1.2
# A quarter of the period of a standard normal: the next state forgets the last one. Trajectories
# of random length cannot fall into step with a period (Mackenzie 1989).
LENGTH_RANGE, MAX_LEAPS = (0.5, 2.0), 15
# Numbers that a phase keeps; of very many coordinates only some of its states.
MAX_KEPT = 2e7
# Gauss-Lobatto rule for the change of a log density that only has a score: at the ends, where
# scores are known, and at the points between them (Abramowitz and Stegun 1972, 25.4.32).
END_WEIGHT = 0.1
INNER_POINTS = (
    (-np.sqrt(3.0 / 7.0), 49.0 / 90.0),
    (0.0, 32.0 / 45.0),
    (np.sqrt(3.0 / 7.0), 49.0 / 90.0),
)


@dataclass(frozen=True)
class ChainMoments:
    """Means and variances of the target with their standard errors, (d,) each."""

    mean: FloatArray
    mean_error: FloatArray
    variance: FloatArray
    variance_error: FloatArray


class Chains:
    """One chain per row of (n, d), all with the same metric and about the same step."""

    def __init__(
        self,
        score: Callable[[FloatArray], FloatArray],
        log_prob: Callable[[FloatArray], FloatArray] | None,
        start: FloatArray,
        metric: CoordinateMetric,
        rng: np.random.Generator,
    ) -> None:
        self._score, self._log_prob, self._rng = score, log_prob, rng
        self.metric = metric
        self.states = np.array(start, dtype=np.float64)
        self._scores = score(self.states)
        self._log_probs = None if log_prob is None else log_prob(self.states)
        self._log_steps = np.full(len(self.states), np.log(FIRST_STEP))

    def warm_up(self, n_trajectories: int) -> None:
        """Move while steps are tuned: such moves do not leave the target quite invariant.

        Each chain has its own step meanwhile, so that those where the target is narrow, as far
        out, come in; then all have the same.
        """
        for trial in range(n_trajectories):
            excess = self._move() - ACCEPTANCE
            self._log_steps += ADAPTATION_RATE * excess / (1 + trial) ** ADAPTATION_DECAY
            np.minimum(self._log_steps, np.log(MAX_STEP), out=self._log_steps)
        self._log_steps[:] = np.median(self._log_steps)

    def learn_metric(self, n_trajectories: int) -> None:
        """Move, and take the covariance of the states as metric from then on."""
        states = np.concatenate([states for states, _ in self._run(n_trajectories)])
        self.metric = self.metric.learned(states)

    def moments(self, n_trajectories: int) -> ChainMoments:
        """Move and estimate from all states.

        Under the target, with Σ any matrix, ``(Σ s)_i`` and ``(x_i - m_i)(Σ s)_i + Σ_ii`` have
        mean zero: as control variates they take away all noise where it is Gaussian with that
        covariance (Assaraf and Caffarel 1999; Mira, Solgi and Imparato 2013).
        """
        kept = self._run(n_trajectories)
        center = self.states.mean(axis=0)
        x = np.array([states for states, _ in kept])
        x -= center
        along = np.array([self.metric.smooth(scores) for _, scores in kept])
        mean, mean_error = _controlled_mean(x, along)
        x -= mean
        along *= x
        along += self.metric.variances
        x *= x
        variance, variance_error = _controlled_mean(x, along)
        # Where little is known the control variate may take away more than there is.
        variance = np.maximum(variance, 0.1 * x.mean(axis=(0, 1)))
        return ChainMoments(center + mean, mean_error, variance, variance_error)

    def _run(self, n_trajectories: int) -> list[tuple[FloatArray, FloatArray]]:
        """Move; evenly spread states and scores, (n, d) each."""
        n_kept = int(np.clip(MAX_KEPT // self.states.size, 1, n_trajectories))
        wanted = set(np.linspace(n_trajectories - 1, 0, n_kept, dtype=int).tolist())
        kept = []
        for trajectory in range(n_trajectories):
            self._move()
            if trajectory in wanted:
                kept.append((self.states, self._scores))
        return kept

    def _move(self) -> FloatArray:
        """Follow one trajectory in every chain; the probabilities of acceptance, (n,)."""
        rng, n = self._rng, len(self.states)
        lengths = np.exp(self._log_steps)
        steps = (lengths * rng.uniform(*STEP_RANGE, size=n))[:, None]
        n_leaps = int(np.clip(rng.uniform(*LENGTH_RANGE) / np.median(lengths), 1, MAX_LEAPS))
        momenta = rng.standard_normal(self.states.shape)
        energy = 0.5 * (momenta**2).sum(axis=1)
        x, scores = self.states, self._scores
        # Trajectories that leave for infinity are refused below, whatever is computed there.
        with np.errstate(all="ignore"):
            pull = self.metric.pull(scores)
            for _ in range(n_leaps):
                momenta = momenta + 0.5 * steps * pull
                x = x + self.metric.stretch(steps * momenta)
                scores = self._score(x)
                pull = self.metric.pull(scores)
                momenta = momenta + 0.5 * steps * pull
            log_probs = None if self._log_prob is None else self._log_prob(x)
            if log_probs is None or self._log_probs is None:
                gain = self._integrated_change(x, scores)
            else:
                gain = log_probs - self._log_probs
            gain += energy - 0.5 * (momenta**2).sum(axis=1)
            gain[~(np.isfinite(gain) & np.isfinite(scores).all(axis=1))] = -np.inf
            probability = np.exp(np.minimum(gain, 0.0))
        accepted = rng.random(n) < probability
        self.states = np.where(accepted[:, None], x, self.states)
        self._scores = np.where(accepted[:, None], scores, self._scores)
        if log_probs is not None and self._log_probs is not None:
            self._log_probs = np.where(accepted, log_probs, self._log_probs)
        return probability

    def _integrated_change(self, x: FloatArray, scores: FloatArray) -> FloatArray:
        """Give log p(x) - log p(states), (n,), as the integral of the score on straight lines."""
        change = x - self.states
        along = END_WEIGHT * (self._scores + scores)
        for point, weight in INNER_POINTS:
            along = along + weight * self._score(self.states + 0.5 * (1.0 + point) * change)
        return 0.5 * (along * change).sum(axis=1)


def _controlled_mean(values: FloatArray, controls: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean of values (n_states, n, d) less what controls of mean zero explain; standard error."""
    slopes = _covariances(values, controls)
    spread = _covariances(controls, controls)
    slopes = np.divide(slopes, spread, out=np.zeros_like(slopes), where=spread > 0)
    # States of one chain depend on each other, chains do not.
    by_chain = values.mean(axis=0) - slopes * controls.mean(axis=0)
    return by_chain.mean(axis=0), by_chain.std(axis=0, ddof=1) / np.sqrt(len(by_chain))


def _covariances(values: FloatArray, others: FloatArray) -> FloatArray:
    products = np.einsum("tnd,tnd->d", values, others) / (values.shape[0] * values.shape[1])
    return np.asarray(products - values.mean(axis=(0, 1)) * others.mean(axis=(0, 1)))
