"""The iterations of SVGD: generators that yield their state after each step.

In the coordinates of a metric they stop where a reference discrepancy is least. Under a kernel over
many coordinates, few particles first approach a target and then leave it: their variances drift
while the discrepancy of that kernel still falls. The discrepancy with kernels over the blankets
detects this and decides which particles are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from skcircuits.numerics._optimization import Optimizer
from skcircuits.particles._cloud import (
    Cloud,
    LocalSnapshot,
    Snapshot,
    finite_scores,
    relative_force,
)
from skcircuits.particles._metric import CoordinateMetric, HessianProbe, Metric
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles.directions import Field, KernelField, LinearField, SumField, centred_rows
from skcircuits.protocols import FloatArray

# Steps stay long for this fraction of the iterations, then shrink geometrically to this fraction
# of their length: a constant step leaves the particles jittering around the fixed point.
LONG_STEPS = 0.6
LAST_STEP = 0.01
# Few particles keep moving along directions that hardly affect their kernels: at the end of the
# schedule, a force below this counts as convergence.
SETTLED_FORCE = 0.05
# Number of evaluations of the discrepancy, each of which costs as much as a few iterations.
N_LOOKS = 10
# Growth of discrepancy and force from the best look that no good step shows, and what is left
# of the steps after it.
GROWTH = 2.0
STEP_CUT = 0.3
# Relative difference below which discrepancies are equal, and the force decides.
TIE = 0.02
# Annealing starts from the target raised to this power.
FIRST_POWER = 0.01
# Iterations between two looks at the discrepancy, improvements that count, and looks without
# one before the step is cut; after the last cut the particles have settled.
ITERATIONS_PER_LOOK = 5
MIN_IMPROVEMENT = 0.01
PATIENCE = 4
N_CUTS = 3
# The linear kernel of a coordinate sees at most this part of as many coordinates as there are
# particles: more would let it fit the noise of the particles.
PARTICLES_SEEN = 0.5


@dataclass(frozen=True)
class SVGDState:
    """Where the particles are after a step."""

    snapshot: Snapshot
    n_iter: int
    force: float
    converged: bool
    discrepancy: float  # at the latest look

    @property
    def particles(self) -> FloatArray:
        """All particles, (n_particles, n_coordinates), read-only."""
        return self.snapshot.particles

    @property
    def variance_change(self) -> float:
        """Largest relative change of a coordinate's variance in the step."""
        # Lazily: the variances of all particles cost as much as a small iteration.
        return self.snapshot.variance_change

    @property
    def progress(self) -> str:
        """Text of a progress line."""
        return (
            f"force {self.force:.2e}, squared Stein discrepancy {self.discrepancy:.3e}, "
            f"largest variance change {self.variance_change:.1e}"
        )


@dataclass(frozen=True)
class StepSchedule:
    """Step sizes, annealing and the end of the iterations."""

    step_size: float = 0.05
    max_iter: int = 1000
    annealing: float = 0.0
    tol: float = 0.0

    def step(self, iteration: int) -> float:
        n_long = LONG_STEPS * self.max_iter
        progress = (iteration + 1 - n_long) / (self.max_iter - n_long)
        return self.step_size * LAST_STEP ** max(0.0, progress)

    def power(self, iteration: int) -> float:
        """Give the power to which an iteration raises the target."""
        n_annealed = self.annealing * self.max_iter
        return 1.0 if iteration >= n_annealed else FIRST_POWER ** (1.0 - iteration / n_annealed)

    def is_look(self, iteration: int) -> bool:
        """Tell whether the discrepancy is measured: a few times, and at the end."""
        is_due = (iteration + 1) % max(1, self.max_iter // N_LOOKS) == 0
        return is_due and self.power(iteration) == 1.0

    def settled(self, iteration: int, force: float) -> bool:
        """Tell whether the particles have arrived."""
        is_last = iteration + 1 == self.max_iter
        bound = max(self.tol, SETTLED_FORCE) if is_last else self.tol
        return force <= bound and self.power(iteration) == 1.0


class Best:
    """Discrepancy and force of the most settled particles among those of least discrepancy."""

    def __init__(self) -> None:
        self.least = self.discrepancy = self.force = np.inf
        self._is_first = True

    def look(self, discrepancy: float, force: float) -> bool:
        """Compare particles with the best so far, and remember them if they are better."""
        # The first particles are kept whatever they are, NaN included.
        is_first, self._is_first = self._is_first, False
        is_less = is_first or discrepancy < (1.0 - TIE) * self.least
        is_tie = discrepancy <= (1.0 + TIE) * self.least and force < self.force
        self.least = discrepancy if is_first else min(self.least, discrepancy)
        if is_less or is_tie:
            self.discrepancy, self.force = discrepancy, force
        return is_less or is_tie

    def is_left_by(self, discrepancy: float, force: float) -> bool:
        """Tell whether the steps lead away from the best particles."""
        return discrepancy > GROWTH * self.discrepancy and force > GROWTH * self.force


def svgd_steps(cloud: Cloud, schedule: StepSchedule) -> Iterator[SVGDState]:
    """Move particles until the schedule ends; steps that lead away are taken back and shortened."""
    best, scale = Best(), 1.0
    for iteration in range(schedule.max_iter):
        is_look, is_left = schedule.is_look(iteration), False
        force, discrepancy = cloud.measure(iteration, schedule.power(iteration), is_look)
        if is_look:
            if best.look(discrepancy, force):
                cloud.keep()
            is_left = best.is_left_by(discrepancy, force)
        if is_left:
            cloud.restore()
            force, scale = best.force, scale * STEP_CUT
        else:
            cloud.move(scale * schedule.step(iteration))
        settled = schedule.settled(iteration, force)
        yield SVGDState(cloud.snapshot(), iteration + 1, force, settled, best.discrepancy)


def preconditioned_field(
    metric: Metric,
    n_particles: int,
    *,
    bandwidth_factor: float,
    linear_weight: float,
    n_jobs: int | None,
) -> Field:
    """One RBF kernel over all z, and linear kernels over those z that correlate most as x."""
    d = len(metric.center)
    everything = Neighborhoods.complete(d)
    n_seen = max(1, int(PARTICLES_SEEN * n_particles))
    seen = everything if n_seen >= d else Neighborhoods.from_scopes(_closest(metric, n_seen))
    return SumField(
        (1.0, KernelField(everything, bandwidth_factor, n_jobs)),
        (linear_weight, LinearField(seen, n_jobs)),
    )


def _closest(metric: Metric, n_seen: int) -> list[np.ndarray]:
    """Give the coordinates of greatest absolute correlation with each, itself left out."""
    correlation = np.abs(metric.correlation)
    np.fill_diagonal(correlation, np.inf)
    return list(np.argsort(-correlation, axis=1, kind="stable")[:, 1:n_seen])


def dependence_graph(probe: HessianProbe, metric: Metric, start: FloatArray) -> Neighborhoods:
    """Find the dependences between coordinates from Hessians at a few points."""
    scales = np.sqrt(metric.variances)
    points = metric.inverse_transform(start[:3])
    strength = sum(np.abs(probe.mean(point[None], scales)) for point in points)
    strength = np.asarray(strength) * np.outer(scales, scales)
    # Finite differences of independent coordinates are far below this threshold.
    adjacency = sparse.csr_array(strength > 1e-4 * strength.diagonal().mean())
    return Neighborhoods.from_scopes(
        [adjacency.indices[a:b] for a, b in zip(adjacency.indptr, adjacency.indptr[1:])]
    )


def preconditioned_steps(
    start: FloatArray,
    grad_log_prob: Callable[[FloatArray], FloatArray],
    metric: CoordinateMetric,
    field: Field,
    optimizer: Optimizer,
    schedule: StepSchedule,
    discrepancy: Callable[[FloatArray, FloatArray], float],
) -> Iterator[SVGDState]:
    """Move particles z of shape (n_particles, d); states have the best particles x so far."""
    z = np.array(start.T, order="C")
    best, best_z, best_x, unused = Best(), z, z, deepcopy(optimizer)
    step_size, n_cuts, n_worse = schedule.step_size, 0, 0
    for iteration in range(schedule.max_iter):
        x = np.ascontiguousarray((metric.center + metric.stretch(z.T)).T, dtype=start.dtype)
        scores = finite_scores(grad_log_prob, x)
        rows = centred_rows(z)
        pulled = np.ascontiguousarray(metric.pull(scores.T).T, dtype=start.dtype)
        velocity = field.velocity(rows, pulled, iteration)
        if iteration % ITERATIONS_PER_LOOK == 0:
            last = best.least
            if best.look(discrepancy(x, scores), relative_force(rows, velocity)):
                best_z, best_x = z, x
                x.flags.writeable = False
            n_worse = 0 if best.least < (1.0 - MIN_IMPROVEMENT) * last else n_worse + 1
        moved = z + optimizer.displacement(velocity, step_size)
        yield SVGDState(
            LocalSnapshot(best_x.T, (z, moved)),
            iteration + 1,
            best.force,
            n_cuts == N_CUTS or best.force <= schedule.tol,
            best.discrepancy,
        )
        z = moved
        if n_worse == PATIENCE:
            # Back to the best particles, with shorter steps from there.
            z, optimizer, n_worse = best_z, deepcopy(unused), 0
            step_size, n_cuts = step_size * STEP_CUT, n_cuts + 1
