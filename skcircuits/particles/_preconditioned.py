"""SVGD in the coordinates of a metric, stopped where a reference discrepancy is least.

Few particles under a kernel over many coordinates first approach a target and then leave it:
their variances drift while the kernel's own discrepancy still falls. Kernels over the blankets
see that, so they decide which particles are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy

import numpy as np
from scipy import sparse

from skcircuits.particles._cloud import LocalSnapshot, finite_scores, relative_force
from skcircuits.particles._fields import Field, KernelField, LinearField, SumField
from skcircuits.particles._hessians import HessianProbe
from skcircuits.particles._kernels import centred_rows
from skcircuits.particles._metric import CoordinateMetric, Metric
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._optimizers import Optimizer
from skcircuits.particles._steps import Best, StepSchedule, SVGDState
from skcircuits.protocols import FloatArray

# Iterations between two looks at the discrepancy, improvements that count, and looks without
# one before the step shrinks to a third; after the last cut the particles have settled.
ITERATIONS_PER_LOOK = 5
MIN_IMPROVEMENT = 0.01
PATIENCE = 4
STEP_CUT = 0.3
N_CUTS = 3
# The linear kernel of a coordinate sees at most this part of as many coordinates as there are
# particles: more would let it fit the noise of the particles.
PARTICLES_SEEN = 0.5


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
    covariance = metric.covariance
    scales = np.sqrt(np.diag(covariance))
    correlation = np.abs(covariance / np.outer(scales, scales))
    np.fill_diagonal(correlation, np.inf)
    return list(np.argsort(-correlation, axis=1, kind="stable")[:, 1:n_seen])


def dependence_graph(probe: HessianProbe, metric: Metric, start: FloatArray) -> Neighborhoods:
    """Read who depends on whom off the Hessians at a few points."""
    scales = np.sqrt(np.diag(metric.covariance))
    points = metric.inverse_transform(start[:3])
    strength = sum(np.abs(probe.mean(point[None], scales)) for point in points)
    strength = np.asarray(strength) * np.outer(scales, scales)
    # What differences of scores leave of independence is far below this.
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
