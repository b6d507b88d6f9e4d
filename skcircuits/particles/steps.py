"""The iterations of SVGD: a generator that yields its state after each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from skcircuits.exceptions import must
from skcircuits.particles._clouds import centred_rows, row_deviations
from skcircuits.particles.fields import Field
from skcircuits.particles.optimizers import Optimizer
from skcircuits.protocols import FloatArray

__all__ = ["SVGDState", "StepSchedule", "svgd_steps"]

# Steps stay long for this share of the iterations, then shrink geometrically to this share
# of their length: a constant step leaves the particles jittering around the fixed point.
SHARE_OF_LONG_STEPS = 0.6
LAST_STEP = 0.01
# Few particles slide on along directions that their kernels hardly see: at the end of the
# schedule a force this small counts as settled.
SETTLED_FORCE = 0.05
# Annealing starts from the target raised to this power.
FIRST_POWER = 0.01


@dataclass(frozen=True)
class SVGDState:
    """Where the particles are after a step.

    Attributes
    ----------
    particles : ndarray of shape (n_particles, n_coordinates)
        A view of the generator's own array: copy it to keep it.
    n_iter : int
        Number of steps taken.
    force : float
        Root mean square of the velocity that led here, each coordinate in units of one
        over the particles' own deviation: 0 at a fixed point.
    converged : bool
        Whether the particles count as settled (`StepSchedule.settled`).

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import (
    ...     GradientAscent, KernelField, Neighborhoods, StepSchedule, svgd_steps)
    >>> steps = svgd_steps(np.array([[-3.0], [5.0]]), lambda x: -x,
    ...                    KernelField(Neighborhoods.complete(1)), GradientAscent(),
    ...                    StepSchedule(step_size=1.0, max_iter=100, tol=0.01))
    >>> state = next(state for state in steps if state.converged)
    >>> state.n_iter < 100, state.force <= 0.01, state.particles.shape
    (True, True, (2, 1))
    """

    particles: FloatArray
    n_iter: int
    force: float
    converged: bool


@dataclass(frozen=True)
class StepSchedule:
    """Step sizes, annealing and the end of the iterations.

    Parameters
    ----------
    step_size : float, default=0.05
        Length of the long steps.
    max_iter : int, default=1000
        Number of iterations.
    annealing : float, default=0.0
        Share of the iterations over which the target rises from a hundredth of its
        exponent to its own.
    tol : float, default=0.0
        Force at which the particles count as settled.

    Examples
    --------
    >>> from skcircuits.particles import StepSchedule
    >>> schedule = StepSchedule(step_size=0.1, max_iter=100, annealing=0.5)
    >>> [round(schedule.step(i), 4) for i in (0, 59, 99)]
    [0.1, 0.1, 0.001]
    >>> [round(schedule.power(i), 2) for i in (0, 25, 50)]
    [0.01, 0.1, 1.0]
    """

    step_size: float = 0.05
    max_iter: int = 1000
    annealing: float = 0.0
    tol: float = 0.0

    def step(self, iteration: int) -> float:
        """Give the step size of an iteration.

        Parameters
        ----------
        iteration : int
            From 0.

        Returns
        -------
        float
            Step size.
        """
        n_long = SHARE_OF_LONG_STEPS * self.max_iter
        progress = (iteration + 1 - n_long) / (self.max_iter - n_long)
        return self.step_size * LAST_STEP ** max(0.0, progress)

    def power(self, iteration: int) -> float:
        """Give the power to which an iteration raises the target.

        Parameters
        ----------
        iteration : int
            From 0.

        Returns
        -------
        float
            From 0.01 to 1.
        """
        n_annealed = self.annealing * self.max_iter
        return 1.0 if iteration >= n_annealed else FIRST_POWER ** (1.0 - iteration / n_annealed)

    def settled(self, iteration: int, force: float) -> bool:
        """Tell whether the particles have arrived.

        Parameters
        ----------
        iteration : int
            From 0.
        force : float
            Relative size of the direction (`SVGDState`).

        Returns
        -------
        bool
            True within `tol` once annealing is over; after the last iteration a force of
            up to 0.05 will do.
        """
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
    """Move particles until the schedule ends.

    Parameters
    ----------
    start : ndarray of shape (n_particles, n_coordinates)
        Starting particles; their precision is the precision of the run.
    grad_log_prob : callable
        Score of the target, (n_particles, n_coordinates) in and out.
    field : Field
        Turns scores into a velocity.
    optimizer : Optimizer
        Turns a velocity into a displacement.
    schedule : StepSchedule
        Step sizes, annealing and tolerance; a settled state is yielded and marked, the caller
        decides whether to go on.

    Yields
    ------
    SVGDState
        The state after each step.

    Raises
    ------
    ValueError
        If the score is not finite at some particle.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import (
    ...     GradientAscent, KernelField, Neighborhoods, StepSchedule, svgd_steps)
    >>> start = np.array([[-3.0], [0.0], [5.0]])
    >>> steps = svgd_steps(start, lambda x: -x, KernelField(Neighborhoods.complete(1)),
    ...                    GradientAscent(), StepSchedule(step_size=1.0, max_iter=200))
    >>> for state in steps:
    ...     pass
    >>> state.n_iter, state.force < 0.01
    (200, True)
    """
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
        coordinates += optimizer.displacement(velocity, schedule.step(iteration))
        yield SVGDState(coordinates.T, iteration + 1, force, schedule.settled(iteration, force))


def finite_scores(
    grad_log_prob: Callable[[FloatArray], FloatArray], coordinates: FloatArray
) -> FloatArray:
    """Evaluate the score on the inner layout and refuse NaN and infinity.

    Parameters
    ----------
    grad_log_prob : callable
        Score of the target, (n_particles, n_coordinates) in and out.
    coordinates : ndarray of shape (n_coordinates, n_particles)
        One row per coordinate.

    Returns
    -------
    ndarray of shape (n_coordinates, n_particles)
        Scores in the precision of the coordinates.

    Raises
    ------
    ValueError
        If the result has the wrong shape or is not finite.
    """
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
    """Evaluate the score and check its shape.

    Parameters
    ----------
    grad_log_prob : callable
        Score of the target, (n, n_coordinates) in and out.
    points : ndarray of shape (n, n_coordinates)
        Where.

    Returns
    -------
    ndarray of shape (n, n_coordinates)
        Scores in the precision of the points.

    Raises
    ------
    ValueError
        If the result has the wrong shape.
    """
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
    deviations = row_deviations(rows[:-1])
    deviations[deviations == 0.0] = 1.0
    squares = np.einsum("dn,dn->d", velocity, velocity) / velocity.shape[1]
    return float(np.sqrt(np.mean(deviations**2 * squares)))
