"""Weighted draws from all modes of a target, and the masses of the modes by them.

Stein's identity holds within every mode as well as over all of them, and neither particles nor
chains cross a deep valley: nothing that moves along scores knows the mass of a mode, nor visits a
heavy tail in a short time. Draws from a Gaussian and a heavy-tailed distribution around every mode
are therefore weighted by the density (importance sampling with the whole mixture as proposal,
Hesterberg 1995). Means and covariances of the proposals are learned from the weighted draws (Cappé
et al. 2008). Whether the draws represent the target is visible in their weights, in Stein's
identity, and in the weights that the particles would have.

Means and variances, of draws as of chains, have scores as control variates. Under the target, with
Σ any matrix, ``(Σ s)_i`` and ``(x_i - m_i)(Σ s)_i + Σ_ii`` have mean zero: they take away all noise
where the target is Gaussian with covariance Σ (Assaraf and Caffarel 1999; Mira, Solgi and Imparato
2013).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import gammaln, logsumexp

from skcircuits.numerics._optimization import Modes
from skcircuits.protocols import FloatArray, IntArray

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
# Least variance, as a part of that without control variates.
MIN_PART = 0.1


@dataclass(frozen=True)
class Moments:
    """Means and variances of the target with their standard errors, (d,) each."""

    mean: FloatArray
    mean_error: FloatArray
    variance: FloatArray
    variance_error: FloatArray

    @classmethod
    def estimated(
        cls, x: FloatArray, along: FloatArray, variances: FloatArray, weights: FloatArray
    ) -> Moments:
        """Take states x and Σ s ``along``, (n_states, n, d) each, which are overwritten.

        States of one chain depend on each other, the n chains do not; ``weights`` (n,), of sum one,
        are theirs, and ``variances`` (d,) the diagonal of Σ.
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
    slopes = np.divide(slopes, spread, out=np.zeros_like(slopes), where=spread > 0)
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
    """Draw from all modes around particles, (n, d).

    None where the density is zero everywhere, or its score does not tell how high the modes are.
    """
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
        self.heights = self._heights()

    def __call__(self, points: FloatArray) -> FloatArray:
        # A line from another mode would cross the valley between them, where the score jumps
        own = self._modes.log_densities(points).argmax(axis=1)
        origins = self._modes.centers[own]
        half = 0.5 * (points - origins)
        return self.heights[own] + self._change(origins, half) + self._change(origins + half, half)

    def _heights(self) -> FloatArray:
        """Log densities of all modes over that of the first; NaN where pieces remain unsure."""
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
        return heights

    def _change(self, origins: FloatArray, steps: FloatArray) -> FloatArray:
        total = np.zeros(len(origins))
        for node, weight in zip(NODES, WEIGHTS):
            slopes = self._score(origins + 0.5 * (1.0 + node) * steps)
            total += 0.5 * weight * (slopes * steps).sum(axis=1)
        return total
