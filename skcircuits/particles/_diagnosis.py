"""What can be wrong with particles: their first two moments, or the graph they move on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skcircuits.particles._metric import Metric
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._steps import scores_at
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["Diagnosis", "diagnose", "nodes_outside_blankets"]

# Probes of the graph, and the change of a score that is none.
N_PROBES = 32
PROBE_TOLERANCE = 1e-6

# Langevin steps of this length, in standard deviations, from every particle.
N_STEPS, STEP = 100, 0.7
# Longest drift of a step, as where a funnel is narrow.
MAX_DRIFT = 1.0
# Bounds on what Stein's identity says, and standard errors of a mean that count as zero.
VARIANCE_BOUND, SHIFT_BOUND, MIDDLE_BOUND = 1.4, 0.3, 1.6
IDENTITY_ERRORS = 3.0
# Median absolute deviations of a normal distribution in a standard deviation.
MEDIAN_DEVIATIONS = 1.4826
# Standard errors of a variance that its change may have; among many coordinates some have three.
SPREAD_ERRORS = 5.5


@dataclass(frozen=True)
class Diagnosis:
    """Estimated errors of the first two moments, per coordinate.

    `shift`: distance of the mean from the target's, in standard deviations; `variance_ratio`:
    the particles' variance over the target's, both by Stein's identity for linear functions,
    in preconditioned coordinates exact for Gaussian targets; `middle`: the like of it from the
    identity for a bounded function, which particles far out in heavy tails do not hide; `spread`:
    variance after Langevin steps from the particles over that before.
    """

    shift: FloatArray  # (d,)
    variance_ratio: FloatArray  # (d,)
    middle: FloatArray  # (d,)
    spread: FloatArray  # (d,)
    n_particles: int

    def faults(self) -> list[str]:
        """Say in words what is wrong; nothing where nothing is."""
        found = []
        far = np.flatnonzero(~(np.abs(self.shift) <= SHIFT_BOUND))
        if far.size:
            found.append(
                f"the means of {_some(far)} are off by up to "
                f"{np.abs(self.shift[far]).max():.2g} standard deviations"
            )
        # Both estimate the particles' variance over the target's, the second from below.
        ratios = np.stack([self.variance_ratio, 1.0 / np.maximum(self.spread, 1e-300)])
        noise = np.exp(SPREAD_ERRORS * np.sqrt(2.0 / self.n_particles))
        bounds = np.array([[VARIANCE_BOUND], [noise]])
        for name, excess in (("large", ratios), ("small", 1.0 / np.maximum(ratios, 1e-300))):
            wrong = (excess > bounds).any(axis=0)
            if wrong.any():
                found.append(
                    f"the variances of {_some(np.flatnonzero(wrong))} are too {name}, by about "
                    f"{excess[:, wrong].max():.2g} x"
                )
        # Where the variances do not tell it already: particles far out may hide the others.
        narrow = np.flatnonzero(self.middle * MIDDLE_BOUND < 1.0)
        if narrow.size and not any("too small" in fault for fault in found):
            found.append(f"most particles are too close together in {_some(narrow)}")
        return found


def diagnose(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    particles: FloatArray,
    metric: Metric | None,
    rng: np.random.Generator,
) -> Diagnosis:
    """Test Stein's identity, and whether Langevin steps spread out."""
    d = particles.shape[1]
    scores = np.asarray(grad_log_prob(particles))
    centered = particles - particles.mean(axis=0)
    before = particles.var(axis=0)
    if metric is not None:
        covariance = metric.covariance
        along = scores @ covariance
        variances = np.diag(covariance)
        shift = along.mean(axis=0) / np.sqrt(variances)
        ratio = -(along * centered).mean(axis=0) / variances
    else:
        # Every target has E[s_i] = 0 and E[-s_i (x_i - m_i)] = 1; strong correlations leave so
        # much noise in both that only clear deviations count.
        shift = _clear_mean(scores, 0.0) * np.sqrt(before)
        ratio = _clear_mean(-scores * centered, 1.0)
    after = _langevin(grad_log_prob, particles, metric, rng).var(axis=0)
    spread = np.divide(after, before, where=before > 0, out=np.ones(d))
    spread = np.where(np.isfinite(spread), spread, np.inf)
    return Diagnosis(shift, ratio, _middle(scores, particles), spread, len(particles))


def _middle(scores: FloatArray, particles: FloatArray) -> FloatArray:
    """Test ``E[s_i f(z_i)] + E[f'(z_i)] = 0``, f = tanh, z_i measured by median deviations."""
    centered = particles - np.median(particles, axis=0)
    widths = MEDIAN_DEVIATIONS * np.median(np.abs(centered), axis=0)
    widths[widths == 0] = 1.0
    bounded = np.tanh(centered / widths)
    slopes = 1.0 - bounded**2
    missing = _clear_mean(-scores * widths * bounded - slopes, 0.0)
    return 1.0 + missing / slopes.mean(axis=0)


def _clear_mean(values: FloatArray, expected: float) -> FloatArray:
    """Give means over the first axis; what is expected where they do not clearly differ."""
    means = values.mean(axis=0)
    bound = IDENTITY_ERRORS * values.std(axis=0) / np.sqrt(len(values))
    return np.where(np.abs(means - expected) > bound, means, expected)


def _langevin(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    particles: FloatArray,
    metric: Metric | None,
    rng: np.random.Generator,
) -> FloatArray:
    """Take unadjusted Langevin steps, their drift bounded where the target is steep."""
    spread = particles.std(axis=0)

    def along(steps: FloatArray) -> FloatArray:
        # Without a metric the root is diagonal: no matrix of wide tables is multiplied.
        return steps * spread if metric is None else steps @ metric.root

    moved = np.array(particles, dtype=np.float64)
    with np.errstate(all="ignore"):
        for _ in range(N_STEPS):
            drift = 0.5 * STEP**2 * along(np.asarray(grad_log_prob(moved.copy())))
            drift = np.clip(drift, -MAX_DRIFT, MAX_DRIFT)
            moved += along(drift + STEP * rng.standard_normal(moved.shape))
    return moved


def _some(coordinates: np.ndarray) -> str:
    shown = ", ".join(map(str, coordinates[:5].tolist()))
    more = f", ... ({coordinates.size} of them)" if coordinates.size > 5 else ""
    return f"coordinates {shown}{more}"


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
