"""The iterations of SVGD: a generator that yields its state after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from skcircuits.exceptions import must
from skcircuits.particles._fields import Field
from skcircuits.particles._kernel_sums import centred_rows, row_scales
from skcircuits.particles._optimizers import Optimizer
from skcircuits.protocols import FloatArray

__all__ = ["SVGDState", "StepSchedule", "svgd_steps"]

# Steps stay long for this fraction of the iterations, then shrink geometrically to this fraction
# of their length: a constant step leaves the particles jittering around the fixed point.
LONG_STEPS = 0.6
LAST_STEP = 0.01
# Few particles slide on along directions that their kernels hardly see: at the end of the
# schedule a force this small counts as settled.
SETTLED_FORCE = 0.05
# Annealing starts from the target raised to this power.
FIRST_POWER = 0.01


@dataclass(frozen=True)
class SVGDState:
    """Where the particles are after a step."""

    particles: FloatArray  # (n_particles, n_coordinates), read-only
    n_iter: int
    force: float
    converged: bool


@dataclass(frozen=True)
class StepSchedule:
    """Step sizes, annealing and the end of the iterations."""

    step_size: float = 0.05
    max_iter: int = 1000
    annealing: float = 0.0
    tol: float = 0.0

    def step(self, iteration: int) -> float:
        """Give the step size of an iteration."""
        n_long = LONG_STEPS * self.max_iter
        progress = (iteration + 1 - n_long) / (self.max_iter - n_long)
        return self.step_size * LAST_STEP ** max(0.0, progress)

    def power(self, iteration: int) -> float:
        """Give the power to which an iteration raises the target."""
        n_annealed = self.annealing * self.max_iter
        return 1.0 if iteration >= n_annealed else FIRST_POWER ** (1.0 - iteration / n_annealed)

    def settled(self, iteration: int, force: float) -> bool:
        """Tell whether the particles have arrived."""
        is_last = iteration + 1 == self.max_iter
        bound = max(self.tol, SETTLED_FORCE) if is_last else self.tol
        return force <= bound and self.power(iteration) == 1.0


def svgd_steps(
    start: FloatArray,
    grad_log_prob: Callable[[FloatArray], FloatArray],
    field: Field,
    optimizer: Optimizer,
    schedule: StepSchedule,
) -> Iterator[SVGDState]:
    """Move particles until the schedule ends."""
    # One contiguous row per coordinate, and a copy: the caller keeps its particles.
    coordinates = np.array(start.T, order="C")
    rows = centred_rows(coordinates)
    for iteration in range(schedule.max_iter):
        power = schedule.power(iteration)
        scores = finite_scores(grad_log_prob, coordinates)
        # The score of p^power; nothing else of the target changes while annealing.
        if power != 1.0:
            scores = power * scores
        centred_rows(coordinates, out=rows)
        # All nodes move from the same state (a Jacobi sweep), so node order is no matter.
        velocity = field.velocity(rows, scores, iteration)
        force = _relative_force(rows, velocity)
        # A new array each time: states that were yielded never change.
        coordinates = coordinates + optimizer.displacement(velocity, schedule.step(iteration))
        coordinates.flags.writeable = False
        yield SVGDState(coordinates.T, iteration + 1, force, schedule.settled(iteration, force))


def finite_scores(
    grad_log_prob: Callable[[FloatArray], FloatArray], coordinates: FloatArray
) -> FloatArray:
    """Evaluate the score on the inner layout and refuse NaN and infinity."""
    scores = scores_at(grad_log_prob, coordinates.T).T
    # One NaN would spread to all particles within an iteration, silently.
    if not np.isfinite(scores).all():
        coordinate, particle = np.argwhere(~np.isfinite(scores))[0]
        raise ValueError(
            must(
                "grad_log_prob of the target",
                "be finite at every particle",
                "Start closer to the target or take shorter steps (step_size).",
                coordinate=int(coordinate),
                value=float(scores[coordinate, particle]),
                at=float(coordinates[coordinate, particle]),
            )
        )
    return scores


def scores_at(grad_log_prob: Callable[[FloatArray], FloatArray], points: FloatArray) -> FloatArray:
    """Evaluate the score and check its shape."""
    # A copy is next to nothing beside the kernels, and some targets write into their argument.
    scores = np.asarray(grad_log_prob(points.copy(order="K")), dtype=points.dtype)
    if scores.shape != points.shape:
        raise ValueError(
            must(
                "grad_log_prob of the target",
                f"give an array of shape {points.shape}",
                "It is a gradient for every row of X.",
                shape=scores.shape,
            )
        )
    return scores


def _relative_force(rows: FloatArray, velocity: FloatArray) -> float:
    """Give the root mean square of σ_i φ_i, or of φ_i where all particles agree."""
    scales = row_scales(rows[:-1])
    scales[scales == 0.0] = 1.0
    squares = np.einsum("dn,dn->d", velocity, velocity) / velocity.shape[1]
    return float(np.sqrt(np.mean(scales**2 * squares)))
