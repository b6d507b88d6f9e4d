"""Diagnosis of particles: errors of their moments by chains or weighted draws, and wrong graphs.

The space of an SVGD kernel contains few functions of many coordinates. Particles that satisfy
Stein's identity for these functions may still have wrong variances, and no test by the same
functions detects this. Hamiltonian Monte Carlo chains, one from every particle, leave the target
invariant whatever the particles are, so that they never move a cloud further from it. As the chains
are independent of each other, a hundred of them also give their own standard error.

Stein's identity holds within every mode as well as over all of them, and neither particles nor
chains cross a deep valley: nothing that moves along scores knows the mass of a mode, nor visits a
heavy tail in a short time. Draws from a Gaussian and a heavy-tailed distribution around every mode
are therefore weighted by the density (importance sampling with the whole mixture as proposal,
Hesterberg 1995). Means and covariances of the proposals are learned from the weighted draws (Cappé
et al. 2008). Such draws take the place of chains where their weights, Stein's identity, and the
weights that the particles would have show that they represent the target.

Means and variances, of draws as of chains, have scores as control variates. Under the target, with
Σ any matrix, ``(Σ s)_i`` and ``(x_i - m_i)(Σ s)_i + Σ_ii`` have mean zero: they take away all noise
where the target is Gaussian with covariance Σ (Assaraf and Caffarel 1999; Mira, Solgi and Imparato
2013).

Where modes are many, draws from all of them are too few, and chains move between them by jumps:
the difference of two modes, of random order, is added to some coordinates, and accepted by the
density alone (ter Braak 2006, with modes instead of other chains).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import norm

from skcircuits.numerics._arrays import scores_at
from skcircuits.numerics._optimization import Modes
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
# Where trajectories that leave the support are rejected, however short their steps are.
ACCEPTANCE_AT_ENDS = 0.4
FIRST_STEP, MAX_STEP = 0.5, 1.5
# Step sizes vary between chains, so that chains also leave narrow regions with few acceptances.
STEP_RANGE = 0.2, 1.2
# A quarter of the period of a standard normal: the next state forgets the last one. Trajectories
# of random length cannot fall into step with a period (Mackenzie 1989).
LENGTH_RANGE, MAX_LEAPS = (0.5, 2.0), 15
# Jumps between modes after every trajectory, which take about as long as it does.
N_JUMPS = 10
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

Function = Callable[[FloatArray], FloatArray]

# Draws per particle, so that particles chosen among them differ, at most so many numbers in all,
# and the same where every log density is an integral.
PER_PARTICLE, MIN_DRAWS, MAX_DRAWN = 50, 5000, 2e7
PER_PARTICLE_INTEGRATED, MIN_INTEGRATED = 10, 1000
# Number of the heaviest draws, which may be near a mode that was missed.
N_HEAVIEST = 30
# Number of rounds that learn proposals, the gain for which another is worth while, and degrees of
# freedom of the heavy tails.
N_ROUNDS, GAIN, FREEDOM = 3, 1.1, 2.0
# Least effective fraction of the draws, and largest fraction of the particles where proposals have
# hardly a draw.
EFFECTIVE, UNCOVERED = 0.4, 0.05
# Index of the tail of the weights beyond which the largest are no certain part of the whole, and
# the number of weights it is estimated from, by the square root of all (Vehtari et al. 2024).
HEAVY, TOP = 0.4, 3.0
# Error of Stein's identity for linear functions, relative and in standard errors, at most.
STEIN_ERROR, N_ERRORS = 0.1, 5.0
# Draws per coordinate from which a covariance is learned.
DRAWS_PER_COORDINATE = 10
# Gauss-Legendre rule for the change of a log density between a mode and a draw, in two pieces.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)
# Number of pieces between two modes, which are halved until both halves change by as much as the
# whole, up to so many nats; at most so many times, and while at most so many are left per mode.
N_PIECES, TOLERANCE, MAX_HALVINGS, MAX_LEFT = 32, 1e-3, 50, 100
# Least variance, as a part of that without control variates, and least one of a control variate, as
# a part of its mean square.
MIN_PART, ROUNDING = 0.1, 1e-12


@dataclass(frozen=True)
class Diagnosis:
    """Errors of the means (`shift`, in standard deviations) and variances (`variance_ratio`) of
    particles or weighted samples, (d,) each, exact for Gaussian targets of known metric.
    """

    shift: FloatArray
    variance_ratio: FloatArray
    shift_error: FloatArray
    moments: Moments
    states: FloatArray  # (n, d), where the chains are, or some of the draws
    draws: WeightedDraws | None = None
    # Number of parts of the density that the chains are in but do not leave, and whether they jump
    # between parts.
    n_closed: int = 0
    is_connected: bool = False

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
        """The states, moved to the means and variances found, which are known better, (n, d)."""
        found = self.moments
        # Vague moments that do not contradict those of the particles are no better: a single chain
        # far out in a heavy tail would change them
        is_kept = self.unmixed & ~self.doubtful
        own_variance = self.variance_ratio * found.variance
        own_mean = found.mean + self.shift * np.sqrt(found.variance)
        variance = np.where(is_kept, own_variance, found.variance)
        centered = self.states - self.states.mean(axis=0)
        spread = centered.std(axis=0)
        scale = np.sqrt(variance) / np.where(spread > 0, spread, 1.0)
        return np.where(is_kept, own_mean, found.mean) + centered * scale

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
    places: FloatArray | None = None,
    has_ends: bool = False,
    n_looks: int = len(LOOKS),
) -> Diagnosis:
    """Run chains from particles, (n, d), until their moments are known well enough.

    ``places``, (k, d), are modes that they jump between; ``has_ends`` tells that the density does
    not vanish at the ends of its support.
    """
    particles = np.asarray(particles, dtype=np.float64)
    start = DiagonalMetric.of_particles(particles) if metric is None else metric
    chains = Chains(grad_log_prob, log_prob, particles, start, rng, places, has_ends)
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
    """Nodes whose score changes where their neighbourhood does not move, by probes that move sparse
    random sets of coordinates.
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
        places: FloatArray | None = None,
        has_ends: bool = False,
    ) -> None:
        self._score, self._log_prob, self._rng = score, log_prob, rng
        self.metric, self._has_ends = metric, has_ends
        self._places = places if places is not None and len(places) > 1 else None
        self.states = np.array(start, dtype=np.float64)
        self._scores = score(self.states)
        self._log_probs = None if log_prob is None else log_prob(self.states)
        self._log_steps = np.full(len(self.states), np.log(FIRST_STEP))

    def warm_up(self, n_trajectories: int) -> None:
        """Move while step sizes, one per chain, are tuned; afterwards all chains have the same."""
        # Such moves do not leave the target quite invariant, but bring chains out of narrow regions
        for trial in range(n_trajectories):
            excess = self._move() - (ACCEPTANCE_AT_ENDS if self._has_ends else ACCEPTANCE)
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
        if self._has_ends:
            along[:] = 0.0  # the mean score is not zero: no control variate
        weights = np.full(x.shape[1], 1.0 / x.shape[1])
        return Moments.estimated(x, along, self.metric.variances, weights)

    def _run(self, n_trajectories: int) -> list[tuple[FloatArray, FloatArray]]:
        """Move; evenly spread states and scores, (n, d) each."""
        n_kept = int(np.clip(MAX_KEPT // self.states.size, 1, n_trajectories))
        wanted = set(np.linspace(n_trajectories - 1, 0, n_kept, dtype=int).tolist())
        kept = []
        for trajectory in range(n_trajectories):
            self._move()
            self._jump()
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

    def _jump(self) -> None:
        """Move between modes, by some coordinates of the difference of two of them."""
        if self._places is None or self._log_prob is None or self._log_probs is None:
            return
        rng, (n, d) = self._rng, self.states.shape
        has_moved = np.zeros(n, dtype=bool)
        for _ in range(N_JUMPS):
            first, second = rng.integers(len(self._places), size=(2, n))
            # One coordinate, some, or all: modes differ in few of those that hardly interact.
            fractions = np.array([np.zeros(n), d ** -rng.random(n), np.ones(n)])
            fraction = fractions[rng.integers(3, size=n), np.arange(n)]
            is_changed = rng.random((n, d)) < fraction[:, None]
            is_changed[np.arange(n), rng.integers(d, size=n)] = True
            x = self.states + is_changed * (self._places[first] - self._places[second])
            with np.errstate(all="ignore"):
                log_probs = self._log_prob(x)
                accepted = np.log(rng.random(n)) < log_probs - self._log_probs
            self.states = np.where(accepted[:, None], x, self.states)
            self._log_probs = np.where(accepted, log_probs, self._log_probs)
            has_moved |= accepted
        self._scores[has_moved] = self._score(self.states[has_moved])

    def _integrated_change(self, x: FloatArray, scores: FloatArray) -> FloatArray:
        """Give log p(x) - log p(states), (n,), as the integral of the score on straight lines."""
        change = x - self.states
        along = END_WEIGHT * (self._scores + scores)
        for point, weight in INNER_POINTS:
            along = along + weight * self._score(self.states + 0.5 * (1.0 + point) * change)
        return 0.5 * (along * change).sum(axis=1)


@dataclass(frozen=True)
class Moments:
    """Means and variances of the target with their standard errors, (d,) each."""

    mean: FloatArray
    mean_error: FloatArray
    variance: FloatArray
    variance_error: FloatArray

    @classmethod
    def exact(cls, mean: FloatArray, variance: FloatArray) -> Moments:
        """Take moments that are known, (d,) each."""
        return cls(mean, np.zeros_like(mean), variance, np.zeros_like(mean))

    @classmethod
    def estimated(
        cls, x: FloatArray, along: FloatArray, variances: FloatArray, weights: FloatArray
    ) -> Moments:
        """Of states x and Σ s ``along``, (n_states, n, d) each, overwritten, of n independent
        chains of ``weights`` (n,); ``variances`` (d,) is the diagonal of Σ.
        """
        center = weights @ x.mean(axis=0)
        x -= center
        shift, mean_error = _controlled_mean(x, along, weights)
        x -= shift
        along *= x
        along += variances
        x *= x
        variance, variance_error = _controlled_mean(x, along, weights)
        # With few states, the control variate may reduce the variance below zero.
        variance = np.maximum(variance, MIN_PART * (weights @ x.mean(axis=0)))
        return cls(center + shift, mean_error, variance, variance_error)


def _controlled_mean(
    values: FloatArray, controls: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Mean of values (n_states, n, d) less what controls of mean zero explain; standard error."""
    slopes = _covariances(values, controls, weights)
    spread = _covariances(controls, controls, weights)
    # Rounding of constants explains nothing
    varies = spread > ROUNDING * np.square(controls[-1]).mean(axis=0)
    slopes = np.divide(slopes, spread, out=np.zeros_like(slopes), where=varies)
    by_chain = values.mean(axis=0) - slopes * controls.mean(axis=0)
    mean = weights @ by_chain
    return mean, standard_error(by_chain - mean, weights)


def standard_error(differences: FloatArray, weights: FloatArray) -> FloatArray:
    """Error of a weighted mean of independent values, by their differences from it, (n, d)."""
    n = len(weights)
    return np.asarray(np.sqrt(weights**2 @ differences**2 * (n / (n - 1))))


def _covariances(values: FloatArray, others: FloatArray, weights: FloatArray) -> FloatArray:
    products = weights @ (np.einsum("tnd,tnd->nd", values, others) / len(values))
    return np.asarray(products - (weights @ values.mean(axis=0)) * (weights @ others.mean(axis=0)))


@dataclass(frozen=True)
class WeightedDraws:
    """Draws that represent the whole target, with the mode that each belongs to."""

    points: FloatArray  # (n, d)
    weights: FloatArray  # (n,), of sum one
    labels: IntArray  # (n,), the mode
    log_excess: FloatArray  # (m,), log weights of the particles less the largest of the draws
    particle_labels: IntArray  # (m,)

    @classmethod
    def of_one_mode(cls, points: FloatArray) -> WeightedDraws:
        """Take draws of a target with a single mode, as many as there are particles, (n, d)."""
        n = len(points)
        labels = np.zeros(n, dtype=np.int64)
        return cls(points, np.full(n, 1.0 / n), labels, np.zeros(n), labels)

    @property
    def n_effective(self) -> float:
        """Number of independent draws of the target that are as accurate."""
        return float(1.0 / (self.weights**2).sum())

    @property
    def is_even(self) -> bool:
        """Tell whether no few draws decide, and no part of the particles is out of reach."""
        top = np.sort(self.weights)[-int(TOP * np.sqrt(len(self.weights))) :]
        # Hill's estimate
        tail_index = np.mean(np.log(top) - np.log(top[0])) if top[0] > 0 else np.inf
        # NaN where the density of a particle is unknown
        is_uncovered = np.mean(~(self.log_excess <= 0.0)) > UNCOVERED
        is_effective = self.n_effective > EFFECTIVE * len(self.weights)
        return bool(is_effective and tail_index < HEAVY and not is_uncovered)

    @cached_property
    def fractions(self) -> FloatArray:
        """Masses of the modes, (k,)."""
        return np.bincount(self.labels, self.weights, self._n_modes).astype(np.float64)

    @cached_property
    def particle_fractions(self) -> FloatArray:
        """Fractions of the particles in them, (k,)."""
        counts = np.bincount(self.particle_labels, minlength=self._n_modes)
        return counts / len(self.particle_labels)

    @property
    def _n_modes(self) -> int:
        return int(max(self.labels.max(), self.particle_labels.max())) + 1

    def resampled(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Choose n draws, each about as often as its weight says (Kitagawa 1996)."""
        # In the order of the modes, so that each has its part of the draws up to one.
        order = np.argsort(self.labels, kind="stable")
        ends = np.cumsum(self.weights[order])
        quantiles = (np.arange(n) + rng.random()) / n
        return self.points[order[np.minimum(np.searchsorted(ends, quantiles), len(order) - 1)]]

    @property
    def heaviest(self) -> FloatArray:
        """Draws that count most."""
        return self.points[np.argsort(-self.weights, kind="stable")[:N_HEAVIEST]]

    def moments(self, score: Function) -> Moments | None:
        """Estimate with scores as control variates; None where Stein's identity does not hold."""
        x = self.points - self.weights @ self.points
        within = x - self._centers_of_modes(x)[self.labels]
        covariance = (within * self.weights[:, None]).T @ within
        along, variances = score(self.points) @ covariance, np.diag(covariance)
        squares = self.weights @ x**2
        controls = (along, np.sqrt(squares)), (x * along + variances, squares)
        if not all(self._is_zero(values, units) for values, units in controls):
            return None
        return Moments.estimated(self.points[None].copy(), along[None], variances, self.weights)

    def _centers_of_modes(self, x: FloatArray) -> FloatArray:
        memberships = np.zeros((self._n_modes, len(x)))
        memberships[self.labels, np.arange(len(x))] = self.weights
        masses = memberships.sum(axis=1, keepdims=True)
        return np.asarray(memberships @ x / np.where(masses > 0, masses, 1.0))

    def _is_zero(self, values: FloatArray, units: FloatArray) -> bool:
        """Tell whether means of values, (n, d), are zero beside units and their errors."""
        mean = self.weights @ values
        error = standard_error(values - mean, self.weights)
        return bool((np.abs(mean) <= STEIN_ERROR * units + N_ERRORS * error).all())


def draw_from_modes(
    score: Function,
    log_prob: Function | None,
    modes: Modes,
    particles: FloatArray,
    rng: np.random.Generator,
) -> WeightedDraws | None:
    """Draw from all modes around particles (n, d); None if their densities are not found."""
    n, d = particles.shape
    with np.errstate(all="ignore"):
        if log_prob is None:
            log_prob = _IntegratedScore(score, modes)
            # Not integrable in between, so that their masses are unknown
            if not np.isfinite(log_prob.heights).all():
                return None
            wanted = max(PER_PARTICLE_INTEGRATED * n, MIN_INTEGRATED)
        else:
            wanted = max(PER_PARTICLE * n, MIN_DRAWS)
        proposals = Proposals.around(log_prob, modes)
        return _weighted(log_prob, proposals, particles, int(min(wanted, MAX_DRAWN / d)), rng)


@dataclass(frozen=True)
class Proposals:
    """A Gaussian and a t distribution with the same centre and shape around every mode."""

    centers: FloatArray  # (k, d)
    roots: FloatArray  # (k, d, d), R R' is the covariance
    log_fractions: FloatArray  # (k,)

    @classmethod
    def around(cls, log_prob: Function, modes: Modes) -> Proposals:
        """Take Gaussians with the curvature of the density, and their masses (Laplace)."""
        masses = log_prob(modes.centers) + np.linalg.slogdet(modes.roots)[1]
        return cls(modes.centers, modes.roots, _floored(masses - logsumexp(masses)))

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Draw n points, half of each mode's from either distribution."""
        d = self.centers.shape[1]
        which = rng.choice(len(self.centers), size=n, p=np.exp(self.log_fractions))
        points = rng.standard_normal((n, d))
        heavy = rng.random(n) < 0.5
        points[heavy] /= np.sqrt(rng.chisquare(FREEDOM, heavy.sum()) / FREEDOM)[:, None]
        for k, (center, root) in enumerate(zip(self.centers, self.roots)):
            points[which == k] = center + points[which == k] @ root.T
        return points

    def log_densities(self, points: FloatArray) -> FloatArray:
        """Log densities of the modes' own parts, (n, k)."""
        d = points.shape[1]
        found = np.empty((len(points), len(self.centers)))
        heavy = gammaln((FREEDOM + d) / 2) - gammaln(FREEDOM / 2) - d / 2 * np.log(FREEDOM * np.pi)
        for k, (center, root) in enumerate(zip(self.centers, self.roots)):
            squares = (np.linalg.solve(root, (points - center).T) ** 2).sum(axis=0)
            normal = -0.5 * squares - d / 2 * np.log(2 * np.pi)
            tails = heavy - (FREEDOM + d) / 2 * np.log1p(squares / FREEDOM)
            found[:, k] = np.logaddexp(normal, tails) - np.log(2) - np.linalg.slogdet(root)[1]
        return found + self.log_fractions

    def learned(
        self, points: FloatArray, weights: FloatArray, memberships: FloatArray
    ) -> Proposals:
        """Take the moments of weighted points, of which every mode has memberships, (n, k)."""
        centers, roots, masses = self.centers.copy(), self.roots.copy(), weights @ memberships
        d = points.shape[1]
        for k in range(len(centers)):
            own = weights * memberships[:, k] / masses[k]
            # A few heavy draws do not make a covariance.
            if not 1.0 / (own**2).sum() > DRAWS_PER_COORDINATE * d:
                continue
            centers[k] = own @ points
            moved = points - centers[k]
            # In units that make the last shape the identity.
            units = np.linalg.solve(self.roots[k], moved.T)
            values, vectors = np.linalg.eigh((units * own) @ units.T)
            roots[k] = self.roots[k] @ (vectors * np.sqrt(np.maximum(values, 1e-4)))
        return Proposals(centers, roots, _floored(np.log(masses)))


def _floored(log_fractions: FloatArray) -> FloatArray:
    """Every mode has draws, whatever its estimated mass."""
    least = np.log(0.2 / len(log_fractions))
    raised = np.maximum(np.nan_to_num(log_fractions, nan=-np.inf), least)
    return raised - logsumexp(raised)


def _weighted(
    log_prob: Function,
    proposals: Proposals,
    particles: FloatArray,
    n_draws: int,
    rng: np.random.Generator,
) -> WeightedDraws | None:
    """Draw in rounds; the draws of the round with the most even weights."""
    best: WeightedDraws | None = None
    for _ in range(N_ROUNDS):
        points = proposals.draw(n_draws, rng)
        parts = proposals.log_densities(points)
        total = logsumexp(parts, axis=1)
        log_weights = log_prob(points) - total
        log_weights[~np.isfinite(log_weights)] = -np.inf
        if np.isneginf(log_weights).all():
            return best
        weights = np.exp(log_weights - logsumexp(log_weights))
        own = proposals.log_densities(particles)
        excess = log_prob(particles) - logsumexp(own, axis=1) - log_weights.max()
        found = WeightedDraws(points, weights, parts.argmax(axis=1), excess, own.argmax(axis=1))
        if best is not None and found.n_effective < GAIN * best.n_effective:
            break
        best = found
        proposals = proposals.learned(points, weights, np.exp(parts - total[:, None]))
    return best


class _IntegratedScore:
    """Log density up to a constant, by the score along lines from the modes, (k,) ``heights``."""

    def __init__(self, score: Function, modes: Modes) -> None:
        self._score = score
        self._modes = Proposals(modes.centers, modes.roots, np.zeros(len(modes.centers)))
        first = self._modes.centers[0]
        lines = self._modes.centers - first
        heights = np.zeros(len(lines))
        which = np.repeat(np.arange(1, len(lines)), N_PIECES)
        starts = np.tile(np.arange(N_PIECES) / N_PIECES, len(lines) - 1)
        length = 1.0 / N_PIECES
        for _ in range(MAX_HALVINGS):
            origins, half = first + starts[:, None] * lines[which], 0.5 * length * lines[which]
            change = self._change(origins, half) + self._change(origins + half, half)
            is_sure = np.abs(change - self._change(origins, 2.0 * half)) <= TOLERANCE
            heights += np.bincount(which[is_sure], change[is_sure], len(heights))
            which, starts = which[~is_sure], starts[~is_sure]
            if not 0 < len(which) <= MAX_LEFT * len(lines):
                break
            length /= 2.0
            which, starts = np.tile(which, 2), np.concatenate([starts, starts + length])
        heights[which] = np.nan
        self.heights = heights

    def __call__(self, points: FloatArray) -> FloatArray:
        # A line from another mode would cross the valley between them, where the score jumps
        own = self._modes.log_densities(points).argmax(axis=1)
        origins = self._modes.centers[own]
        half = 0.5 * (points - origins)
        return self.heights[own] + self._change(origins, half) + self._change(origins + half, half)

    def _change(self, origins: FloatArray, steps: FloatArray) -> FloatArray:
        total = np.zeros(len(origins))
        for node, weight in zip(NODES, WEIGHTS):
            slopes = self._score(origins + 0.5 * (1.0 + node) * steps)
            total += 0.5 * weight * (slopes * steps).sum(axis=1)
        return total
