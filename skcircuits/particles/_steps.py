"""The iterations of SVGD: a generator that yields its state after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from skcircuits.exceptions import must
from skcircuits.parallel import row_slices
from skcircuits.particles._fields import Field
from skcircuits.particles._kernels import centred_rows, row_scales
from skcircuits.particles._optimizers import Optimizer
from skcircuits.protocols import FloatArray

# Steps stay long for this fraction of the iterations, then shrink geometrically to this fraction
# of their length: a constant step leaves the particles jittering around the fixed point.
LONG_STEPS = 0.6
LAST_STEP = 0.01
# Few particles slide on along directions that their kernels hardly see: at the end of the
# schedule a force this small counts as settled.
SETTLED_FORCE = 0.05
# Looks at the discrepancy: each costs a few iterations.
N_LOOKS = 10
# Growth of discrepancy and force from the best look that no good step shows, and what is left
# of the steps after it.
GROWTH = 2.0
STEP_CUT = 0.3
# Discrepancies this close are equal: the particles of smaller force are the better ones.
TIE = 0.02
# Particles whose scores are computed in one call take no more than this.
BATCH_BYTES = 2**27
# Annealing starts from the target raised to this power.
FIRST_POWER = 0.01


@dataclass(frozen=True)
class SVGDState:
    """Where the particles are after a step."""

    particles: FloatArray  # (n_particles, n_coordinates), read-only
    n_iter: int
    force: float
    converged: bool
    discrepancy: float  # at the latest look
    moved: tuple[FloatArray, FloatArray]  # (n_coordinates, n_particles) before and after the step

    @property
    def variance_change(self) -> float:
        """Largest relative change of a coordinate's variance in the step."""
        # When asked for: two variances of all particles cost as much as a small iteration.
        old, new = (coordinates.var(axis=1) for coordinates in self.moved)
        varied = old > 0.0
        return float(np.abs(new[varied] / old[varied] - 1.0).max(initial=0.0))

    @property
    def progress(self) -> str:
        """What a progress line says."""
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
        """Give the step size of an iteration."""
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
    """The most settled particles among those of least discrepancy so far."""

    def __init__(self) -> None:
        self.particles: FloatArray = np.empty((0, 0))  # (n_coordinates, n_particles)
        self.least = np.inf
        self.discrepancy = np.inf
        self.force = np.inf

    def look(self, particles: FloatArray, discrepancy: float, force: float) -> bool:
        """Keep particles that are better, and say whether they are."""
        # The first particles are kept whatever they are, NaN included.
        is_less = not self.particles.size or discrepancy < (1.0 - TIE) * self.least
        is_tie = discrepancy <= (1.0 + TIE) * self.least and force < self.force
        is_better = is_less or is_tie
        self.least = discrepancy if not self.particles.size else min(self.least, discrepancy)
        if is_better:
            self.particles, self.discrepancy, self.force = particles, discrepancy, force
            particles.flags.writeable = False
        return is_better

    def is_left_by(self, discrepancy: float, force: float) -> bool:
        """Tell whether the steps lead away from the best particles."""
        return discrepancy > GROWTH * self.discrepancy and force > GROWTH * self.force


def svgd_steps(
    start: FloatArray,
    grad_log_prob: Callable[[FloatArray], FloatArray],
    field: Field,
    optimizer: Optimizer,
    schedule: StepSchedule,
    discrepancy: Callable[[FloatArray, FloatArray], float] | None = None,
) -> Iterator[SVGDState]:
    """Move particles until the schedule ends.

    With ``discrepancy(coordinates, scores)``, both of shape (n_coordinates, n_particles), steps
    that lead away from the target are taken back and shortened.
    """
    # One contiguous row per coordinate, and a copy: the caller keeps its particles.
    coordinates = np.array(start.T, order="C")
    rows = centred_rows(coordinates)
    best, unused, scale = Best(), deepcopy(optimizer), 1.0
    for iteration in range(schedule.max_iter):
        power = schedule.power(iteration)
        scores = finite_scores(grad_log_prob, coordinates)
        # The score of p^power; nothing else of the target changes while annealing.
        if power != 1.0:
            scores = power * scores
        centred_rows(coordinates, out=rows)
        # All nodes move from the same state (a Jacobi sweep), so node order is no matter.
        velocity = field.velocity(rows, scores, iteration)
        force = relative_force(rows, velocity)
        is_left = False
        if discrepancy is not None and schedule.is_look(iteration):
            now = discrepancy(coordinates, scores)
            best.look(coordinates, now, force)
            is_left = best.is_left_by(now, force)
        # Arrays of millions of coordinates do not lie about for longer than they are needed.
        del scores
        if is_left:
            moved, force, optimizer = best.particles, best.force, deepcopy(unused)
            scale *= STEP_CUT
        else:
            # A new array each time: states that were yielded never change.
            moved = optimizer.displacement(velocity, scale * schedule.step(iteration))
            moved += coordinates
        del velocity
        moved.flags.writeable = False
        settled = schedule.settled(iteration, force)
        state = moved.T, iteration + 1, force, settled, best.discrepancy
        yield SVGDState(*state, (coordinates, moved))
        coordinates = moved


def finite_scores(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    coordinates: FloatArray,
    dtype: type | np.dtype | None = None,
) -> FloatArray:
    """Evaluate the score on the inner layout and refuse NaN and infinity."""
    dtype = coordinates.dtype if dtype is None else np.dtype(dtype)
    n_coordinates, n_particles = coordinates.shape
    batch = max(1, BATCH_BYTES // max(1, n_coordinates * dtype.itemsize))
    if batch >= n_particles:
        scores = scores_at(grad_log_prob, coordinates.T.astype(dtype, copy=False)).T
    else:
        # A few particles at a time: targets make temporary arrays of their own.
        scores = np.empty(coordinates.shape, dtype=dtype)
        for part in row_slices(n_particles, batch):
            points = coordinates[:, part].T.astype(dtype, copy=False)
            scores[:, part] = scores_at(grad_log_prob, points).T
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


def relative_force(rows: FloatArray, velocity: FloatArray) -> float:
    """Give the root mean square of σ_i φ_i, or of φ_i where all particles agree."""
    scales = row_scales(rows[:-1])
    scales[scales == 0.0] = 1.0
    squares = np.einsum("dn,dn->d", velocity, velocity) / velocity.shape[1]
    return float(np.sqrt(np.mean(scales**2 * squares)))
