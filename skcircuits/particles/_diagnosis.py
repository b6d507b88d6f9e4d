"""Diagnosis of particles: errors of their first two moments, and wrong graphs.

The space of an SVGD kernel contains few functions of many coordinates. Particles that satisfy
Stein's identity for these functions may still have wrong variances, and no test by the same
functions detects this. Hamiltonian Monte Carlo chains, one from every particle, leave the target
invariant whatever the particles are, so that they never move a cloud further from it. As the chains
are independent of each other, a hundred of them also give their own standard error.

Chains hardly cross a valley and seldom reach far into a heavy tail. Weighted draws from all modes
take their place where weights and Stein's identity show that the draws represent the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from skcircuits.numerics._arrays import scores_at
from skcircuits.particles._importance import Moments, WeightedDraws
from skcircuits.particles._metric import CoordinateMetric, DiagonalMetric
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Number of probes of the graph, and the relative change of a score that counts as zero.
N_PROBES = 32
PROBE_TOLERANCE = 1e-6

# Numbers of trajectories: to tune steps, to learn a metric, and before each look at the moments.
N_TUNED, N_LEARNED = 20, 20
LOOKS = 40, 80, 160, 320
# A mean that is off by this many standard deviations, or a variance by this factor, is wrong.
SHIFT_BOUND, VARIANCE_BOUND = 0.15, 1.15
# Larger errors are doubtful even if the chains are not precise enough.
DOUBTFUL_SHIFT, DOUBTFUL_VARIANCE = 0.3, 1.4
# Errors of weighted samples are those of samples that nobody chose: larger ones count, if they
# exceed so many standard errors.
GROSS_SHIFT, GROSS_VARIANCE, GROSS_ERRORS = 0.3, 1.5, 1.5
# Standard errors that do not arise by chance among two coordinates and among a thousand, the
# looks counted; what is suspect within twice the error is looked at longer.
CHANCE, SUSPICION = 0.005, 2.0
# Largest fraction of the particles in other modes than they should be.
MISPLACED_BOUND = 0.1
# Chains that have not visited a heavy tail underestimate their error.
LEAST_ERROR = 0.03
# Relative errors of a variance that are good enough for a correction, and that are not; independent
# states per chain below which chains have not mixed (R-hat of 1.07; Gelman and Rubin 1992).
PRECISE, VAGUE, INDEPENDENT_STATES = 0.05, 0.12, 7
# Acceptance for which steps are tuned, high so that chains enter necks too, and how fast (Robbins
# and Monro).
ACCEPTANCE, ADAPTATION_RATE, ADAPTATION_DECAY = 0.9, 0.5, 0.3
FIRST_STEP, MAX_STEP = 0.5, 1.5
# Step sizes vary between chains, so that chains also leave narrow regions with few acceptances.
STEP_RANGE = 0.2, 1.2
# A quarter of the period of a standard normal: the next state forgets the last one. Trajectories
# of random length cannot fall into step with a period (Mackenzie 1989).
LENGTH_RANGE, MAX_LEAPS = (0.5, 2.0), 15
# Largest size of the states that a phase keeps; for many coordinates, only some are kept.
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
class Diagnosis:
    """Errors of the first two moments of particles, (d,) each, by chains from them or by draws.

    `shift`: distance of the mean from the target's, in standard deviations; `variance_ratio`:
    the particles' variance over the target's. Exact for Gaussian targets whose metric is known.
    Samples with weights are judged in the same way.
    """

    shift: FloatArray
    variance_ratio: FloatArray
    shift_error: FloatArray
    moments: Moments
    states: FloatArray  # (n, d), where the chains are, or some of the draws
    draws: WeightedDraws | None = None

    @classmethod
    def of(
        cls,
        particles: FloatArray,
        moments: Moments,
        states: FloatArray,
        draws: WeightedDraws | None = None,
    ) -> Diagnosis:
        """Compare particles with the moments of the target."""
        scale = np.sqrt(moments.variance)
        ratio = particles.var(axis=0) / moments.variance
        shift = (particles.mean(axis=0) - moments.mean) / scale
        return cls(shift, ratio, moments.mean_error / scale, moments, states, draws)

    def of_weighted(self, points: FloatArray, weights: FloatArray) -> Diagnosis:
        """Compare points with weights, (n, d) and (n,), with the same moments."""
        mean = weights @ points
        ratio = weights @ (points - mean) ** 2 / self.moments.variance
        shift = (mean - self.moments.mean) / np.sqrt(self.moments.variance)
        return replace(self, shift=shift, variance_ratio=ratio)

    @property
    def method(self) -> str:
        """Say where the moments of the target come from."""
        return "Hamiltonian Monte Carlo chains" if self.draws is None else "weighted draws"

    @property
    def grossly_wrong(self) -> BoolArray:
        """Coordinates whose moments are wrong by more than weights of samples should leave."""
        return self._is_off(GROSS_ERRORS, GROSS_SHIFT, GROSS_VARIANCE)

    @property
    def is_wrong(self) -> bool:
        """Tell whether the particles may have wrong moments, or wrong fractions in the modes."""
        return bool(self.doubtful.any()) or self._is_misplaced

    @property
    def _is_misplaced(self) -> bool:
        if self.draws is None:
            return False
        difference = np.abs(self.draws.particle_fractions - self.draws.fractions)
        return bool(0.5 * difference.sum() > MISPLACED_BOUND)

    @property
    def wrong(self) -> BoolArray:
        """Coordinates whose moments are clearly wrong."""
        d = len(self.shift)
        # Two moments per coordinate, two-sided.
        return self._is_off(float(norm.isf(CHANCE / (4 * d))))

    @property
    def doubtful(self) -> BoolArray:
        """Coordinates that are wrong, or in which chains move far without mixing."""
        excess = np.maximum(self.variance_ratio, 1.0 / np.maximum(self.variance_ratio, 1e-300))
        is_far = (np.abs(self.shift) > DOUBTFUL_SHIFT) | (excess > DOUBTFUL_VARIANCE)
        return self.wrong | (self.unmixed & is_far)

    @property
    def unmixed(self) -> BoolArray:
        """Coordinates in which the chains have not mixed, or draws are too uneven."""
        n_independent = 1.0 / np.maximum(self.shift_error, 1e-12) ** 2
        is_slow = n_independent < INDEPENDENT_STATES * len(self.states)
        if self.draws is not None:
            is_slow = self.shift_error > SHIFT_BOUND  # they are independent
        # Long tails, which hardly affect the mean.
        return is_slow | (self._relative_error > VAGUE)

    @property
    def unsure(self) -> BoolArray:
        """Coordinates for which a longer run may give more information."""
        wrong = self.wrong
        # A correction gives the moments of the chains to all coordinates.
        is_vague = wrong.any() & (self._relative_error > np.hypot(PRECISE, LEAST_ERROR))
        # A longer run does not reduce errors below the minimum.
        may_improve = np.maximum(self.shift_error, self._sampling_error) > LEAST_ERROR / 2
        is_suspect = self._is_off(SUSPICION) & ~wrong & may_improve
        return is_suspect | is_vague | self.unmixed

    @property
    def _sampling_error(self) -> FloatArray:
        """Standard error of the target's variance, over itself."""
        return self.moments.variance_error / self.moments.variance

    @property
    def _relative_error(self) -> FloatArray:
        """The same, including the minimum error."""
        return np.hypot(self._sampling_error, LEAST_ERROR)

    def _is_off(
        self,
        n_errors: float,
        shift_bound: float = SHIFT_BOUND,
        variance_bound: float = VARIANCE_BOUND,
    ) -> BoolArray:
        shift = np.abs(self.shift)
        ratio = np.maximum(self.variance_ratio, 1e-300)
        excess = np.maximum(ratio, 1.0 / ratio)
        off = (shift > shift_bound) & (shift > n_errors * self.shift_error)
        is_clear = np.abs(ratio - 1.0) > n_errors * ratio * self._relative_error
        return off | ((excess > variance_bound) & is_clear) | ~np.isfinite(self.shift + ratio)

    def corrected(self) -> FloatArray:
        """Give the states with the means and variances found, (n, d).

        A hundred states have moments of their own; those of all that the chains went through, or
        of all draws, are known better.
        """
        centered = self.states - self.states.mean(axis=0)
        spread = centered.std(axis=0)
        scale = np.sqrt(self.moments.variance) / np.where(spread > 0, spread, 1.0)
        return self.moments.mean + centered * scale

    def faults(
        self, where: BoolArray | None = None, names: Sequence[str] | None = None
    ) -> list[str]:
        """Describe the errors of some coordinates, by default all that are doubtful, and modes."""
        wrong = self.doubtful if where is None else where
        found = []
        if where is None and self.draws is not None and self._is_misplaced:
            both = self.draws.fractions, self.draws.particle_fractions
            due, held = (", ".join(f"{part:.2f}" for part in parts[:5]) for parts in both)
            found.append(f"modes with probabilities {due} have fractions {held} of the particles")
        far = np.flatnonzero(wrong & ~(np.abs(self.shift) <= SHIFT_BOUND))
        if far.size:
            found.append(
                f"{_subject('mean', far, names)} off by up to "
                f"{np.abs(self.shift[far]).max():.2g} standard deviations"
            )
        ratio = np.maximum(self.variance_ratio, 1e-300)
        for name, excess in (("large", ratio), ("small", 1.0 / ratio)):
            off = np.flatnonzero(wrong & (excess > VARIANCE_BOUND))
            if off.size:
                found.append(
                    f"{_subject('variance', off, names)} too {name}, by about "
                    f"{excess[off].max():.2g} x"
                )
        return found


def diagnose(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    particles: FloatArray,
    metric: CoordinateMetric | None,
    rng: np.random.Generator,
    *,
    log_prob: Callable[[FloatArray], FloatArray] | None = None,
    n_looks: int = len(LOOKS),
) -> Diagnosis:
    """Run chains from particles, (n, d), until their moments are known well enough."""
    particles = np.asarray(particles, dtype=np.float64)
    start = DiagonalMetric.of_particles(particles) if metric is None else metric
    chains = Chains(grad_log_prob, log_prob, particles, start, rng)
    chains.warm_up(N_TUNED)
    if metric is None:
        chains.learn_metric(N_LEARNED)
        chains.warm_up(N_TUNED)
    for look, n_trajectories in enumerate(LOOKS[:n_looks]):
        if look:
            # Scales of coordinates that mix slowly are learned during the run.
            chains.learn_metric(N_LEARNED)
            chains.warm_up(N_TUNED)
        found = Diagnosis.of(particles, chains.moments(n_trajectories), chains.states)
        if not found.unsure.any():
            break
    return found


def diagnose_by_draws(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    particles: FloatArray,
    draws: WeightedDraws,
    rng: np.random.Generator,
) -> Diagnosis | None:
    """Compare particles, (n, d), with draws; None where these do not represent the target."""
    moments = draws.moments(grad_log_prob) if draws.is_even else None
    if moments is None:
        return None
    return Diagnosis.of(particles, moments, draws.resampled(len(particles), rng), draws)


def some(coordinates: IntArray, names: Sequence[str] | None) -> str:
    """Name a few coordinates of many."""
    labels = coordinates[:5].tolist()
    shown = ", ".join(str(j if names is None else names[j]) for j in labels)
    more = f", ... ({coordinates.size} of them)" if coordinates.size > 5 else ""
    return f"{'coordinate' if coordinates.size == 1 else 'coordinates'} {shown}{more}"


def _subject(noun: str, coordinates: IntArray, names: Sequence[str] | None) -> str:
    """Name a moment of a few coordinates, with its verb."""
    own = some(coordinates, names)
    return f"the {noun} of {own} is" if coordinates.size == 1 else f"the {noun}s of {own} are"


def nodes_outside_blankets(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    neighborhoods: Neighborhoods,
    particles: FloatArray,
    rng: np.random.Generator,
) -> IntArray:
    """Find nodes whose score changes although nothing in their neighbourhood moves.

    Every probe moves a random set of coordinates, sparse enough that many
    neighbourhoods stay untouched; scores of those must not change.
    """
    sees = neighborhoods.scope_matrix()
    before = np.asarray(particles, dtype=np.float64)[np.arange(N_PROBES) % len(particles)]
    # With m neighbours a fraction 1 / (1 + m) leaves about a third of the scopes untouched and
    # still moves each coordinate in some probe.
    typical_size = float(np.median(neighborhoods.scope_sizes))
    moved = rng.random(before.shape) < 1.0 / (1.0 + typical_size)
    spread = 1.0 + before.std(axis=0)
    after = before + moved * spread * rng.uniform(0.1, 0.5, before.shape)
    scores = scores_at(grad_log_prob, before)
    change = np.abs(scores_at(grad_log_prob, after) - scores)
    changed = change > PROBE_TOLERANCE * (1.0 + np.abs(scores))
    # How many coordinates that a kernel sees were moved, by probe and kernel.
    kernel_untouched = (sees @ moved.T.astype(np.float64)).T == 0
    kernel_of_coordinate = neighborhoods.kernel_of_node[neighborhoods.node_of_coordinate]
    wrong = np.any(changed & kernel_untouched[:, kernel_of_coordinate], axis=0)
    return np.unique(neighborhoods.node_of_coordinate[wrong])


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

        Each chain has its own step size meanwhile, so that chains in narrow regions can leave
        them; afterwards, all chains have the same step size.
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

    def moments(self, n_trajectories: int) -> Moments:
        """Move and estimate from all states."""
        kept = self._run(n_trajectories)
        x = np.array([states for states, _ in kept])
        along = np.array([self.metric.smooth(scores) for _, scores in kept])
        weights = np.full(x.shape[1], 1.0 / x.shape[1])
        return Moments.estimated(x, along, self.metric.variances, weights)

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
        # Divergent trajectories are rejected below.
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
