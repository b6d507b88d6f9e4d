"""The iterations of SVGD: generators of states, and the particles that they move.

All particles are in one process, or a block of their coordinates is on each worker. The score and
the kernel of a node depend on its neighbourhood only, so that coordinates can be divided into
blocks. Each block moves its own coordinates and receives its halo, the other coordinates on which
its kernels depend. All blocks move from the same state (a Jacobi sweep), so that the result does
not depend on the division.

The distance from the target is measured by the Stein discrepancy with coordinate-wise kernels
(Wang, Zeng and Liu, ICML 2018, theorem 2). With Δ = x_i - x_i',

    u_i(x, x') = K^i [ s_i s_i' + (2/h_i) Δ (s_i - s_i') + 2/h_i - 4 Δ²/h_i² ],

and the squared discrepancy is Σ_i mean u_i over all pairs, the diagonal included (the V-statistic).
With kernels over the blankets it is zero if every conditional distribution q(x_i | blanket) is
right; that alone does not imply that the joint distribution is right.

In the coordinates of a metric iterations stop where this discrepancy is least. Under a kernel over
many coordinates, few particles first approach a target and then leave it: their variances drift
while the discrepancy of that kernel still falls. The discrepancy with kernels over the blankets
detects this and decides which particles are kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol

import numpy as np
from scipy import sparse

from skcircuits.exceptions import invalid, require_choice
from skcircuits.numerics._arrays import scores_at
from skcircuits.numerics._optimization import Adam
from skcircuits.parallel import row_slices
from skcircuits.particles._metric import CoordinateMetric, HessianProbe, Metric
from skcircuits.particles._neighborhoods import Bucket, Neighborhoods
from skcircuits.particles.directions import (
    Field,
    centred_rows,
    for_each_chunk,
    kernel_sums,
    median_bandwidths,
    rbf_and_linear_field,
    row_scales,
)
from skcircuits.protocols import DifferentiableTarget, FloatArray, IntArray

# Of optimisers: the decay of running means, what is added inside square roots so that flat
# coordinates do not jump, and the size of parts that stay in the cache.
DECAY, DAMPING, PART_BYTES = 0.9, 1e-6, 2**20
# Largest size of the particles whose scores are computed in one call.
BATCH_BYTES = 2**27
# Rows at which a target may raise errors while it is searched.
MAX_FAILED = 50_000
# Approximate size of the coordinates of the kernels that are measured at once.
BLOCK_BYTES = 2**26

# Steps stay long for this fraction of the iterations, then shrink geometrically to this fraction
# of their length: a constant step leaves the particles jittering around the fixed point.
LONG_STEPS = 0.6
LAST_STEP = 0.01
# Few particles keep moving along directions that hardly affect their kernels: at the end of the
# schedule, a force below this counts as convergence.
SETTLED_FORCE = 0.05
# Number of times that particles are compared with those that are kept.
N_LOOKS = 10
# Growth of force and discrepancy that no good step shows, and what is left of the steps after it.
# Forces are known, and a discrepancy costs as much as several iterations: discrepancies are
# measured from the first such growth of the force on.
GROWTH = 2.0
STEP_CUT = 0.3
# Relative difference below which discrepancies are equal, and the force decides.
TIE = 0.02
# Annealing starts from the target raised to this power.
FIRST_POWER = 0.01
# Iterations between two looks at the discrepancy, for few and for many coordinates. A look costs
# as much as three iterations, and discrepancies of many coordinates hardly fluctuate.
ITERATIONS_PER_LOOK, MANY_COORDINATES = (5, 10), 200
# Improvements that count, and iterations without one before the step is cut; after the last cut the
# particles have settled.
MIN_IMPROVEMENT = 0.01
PATIENCE = 20
N_CUTS = 3
# The linear kernel of a coordinate sees at most this part of as many coordinates as there are
# particles: more would let it fit the noise of the particles.
PARTICLES_SEEN = 0.5


class Optimizer(Protocol):
    """A rule of ascent, which may remember earlier directions."""

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        """Turn ascent directions (n_coordinates, n_particles) into displacements."""


class GradientAscent:
    """Move by ``step_size`` times the direction."""

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        return step_size * direction


class AdaGrad:
    """Divide by the root of the sum of all squared directions (Duchi et al., 2011)."""

    def __init__(self) -> None:
        self._squares: FloatArray | None = None

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        squares = direction * direction
        if self._squares is not None:
            squares += self._squares
        self._squares = squares
        return _divided_by_root(step_size * direction, squares)


class RMSprop:
    """Divide by the root of a running mean of squared directions."""

    def __init__(self) -> None:
        self._squares: FloatArray | None = None

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        is_first = self._squares is None
        if self._squares is None:
            self._squares = np.empty_like(direction)
        displacement = np.empty_like(direction)
        # In parts that stay in the cache, and whose temporary arrays are small.
        for part in row_slices(len(direction), max(1, PART_BYTES // max(1, direction[:1].nbytes))):
            running, squares = self._squares[part], direction[part] * direction[part]
            # Starting from the first squares, not from zero, makes the first steps unbiased.
            if is_first:
                running[...] = squares
            else:
                running *= DECAY
                squares *= 1.0 - DECAY
                running += squares
            displacement[part] = _divided_by_root(step_size * direction[part], running)
        return displacement


class AdamSteps:
    """RMSprop of a running mean of directions."""

    def __init__(self) -> None:
        self._rule = Adam(damping=1e-4)

    def displacement(self, direction: FloatArray, step_size: float) -> FloatArray:
        moved = np.zeros_like(direction)
        self._rule.ascend(moved, direction, step_size)
        return moved


def _divided_by_root(numerator: FloatArray, squares: FloatArray) -> FloatArray:
    """Divide in place by √(squares + damping)."""
    scale = squares + DAMPING
    np.sqrt(scale, out=scale)
    numerator /= scale
    return numerator


OPTIMIZERS: dict[str, type[Optimizer]] = {
    "rmsprop": RMSprop,
    "adam": AdamSteps,
    "adagrad": AdaGrad,
    "sgd": GradientAscent,
}


def make_optimizer(name: str) -> Optimizer:
    """Give a fresh optimiser by its name."""
    require_choice(*OPTIMIZERS, optimizer=name)
    return OPTIMIZERS[name]()


def total_discrepancy(graph: Neighborhoods, coordinates: FloatArray, scores: FloatArray) -> float:
    """Squared Stein discrepancy of (n_coordinates, n_particles), in double precision."""
    per_coordinate, _ = discrepancies_over(graph, coordinates, scores)
    return float(per_coordinate.sum())


def discrepancies_over(
    graph: Neighborhoods, coordinates: FloatArray, scores: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Discrepancies (d,) and bandwidths, by blocks, in double precision: sums cancel near zero."""
    discrepancies, bandwidths = np.empty(len(scores)), np.empty(graph.n_kernels)
    max_kernels = max(1, BLOCK_BYTES // (8 * coordinates.shape[1]))
    for kernels, local, block in graph.blocks(max_kernels):
        # Medians cancel nothing: they are found in the precision of the particles
        widths = median_bandwidths(centred_rows(coordinates[local]), block)
        rows = centred_rows(coordinates[local].astype(np.float64))
        moved = local[: kernels.owned.size]
        local_scores = np.ascontiguousarray(scores[moved], dtype=np.float64)
        discrepancies[moved] = coordinate_discrepancies(rows, local_scores, block, widths)
        bandwidths[kernels.kernels] = widths
    return discrepancies, bandwidths


def coordinate_discrepancies(
    rows: FloatArray, scores: FloatArray, neighborhoods: Neighborhoods, bandwidths: FloatArray
) -> FloatArray:
    """Compute every coordinate's part of the squared Stein discrepancy."""
    discrepancies = np.empty(len(scores))
    bandwidths = bandwidths.astype(rows.dtype, copy=False)

    def measure(chunk: Bucket) -> None:
        """Write the discrepancies of a chunk."""
        discrepancies[chunk.owned] = _chunk_discrepancies(
            rows, scores[chunk.owned], chunk, bandwidths
        )

    for_each_chunk(measure, neighborhoods, rows.shape[1] ** 2 * rows.itemsize, None)
    # A V-statistic is non-negative, but its sums cancel and may round below zero.
    return np.maximum(discrepancies, 0.0)


def _chunk_discrepancies(
    rows: FloatArray, scores: FloatArray, chunk: Bucket, bandwidths: FloatArray
) -> FloatArray:
    """Sum u_i over all pairs, with every double sum written through K s, K x and K 1."""
    attraction = (2.0 / bandwidths[chunk.kernels])[:, None, None]
    owned = rows[chunk.owned]
    n_owned, n_particles = owned.shape[1:]
    values = np.concatenate([scores, owned, np.ones_like(owned[:, :1])], axis=1)
    sums = kernel_sums(rows, chunk, bandwidths, values)
    smooth_scores, smooth_owned = sums[:, :n_owned], sums[:, n_owned:-1]
    weights = sums[:, -1:]
    # Σ K Δ (s - s') = 2 Σ (x s K1 - x K s) and Σ K Δ² = 2 Σ (x² K1 - x K x).
    total = scores * smooth_scores
    total += 2.0 * attraction * owned * (scores * weights - smooth_scores)
    total += attraction * weights
    total -= 2.0 * attraction**2 * owned * (owned * weights - smooth_owned)
    # Sums over pairs are long, and single precision would lose digits.
    return total.sum(axis=2, dtype=np.float64) / n_particles**2


@dataclass(frozen=True)
class Snapshot:
    """Where particles were after a step, which is found when it is asked for."""

    find_particles: Callable[[], FloatArray]
    find_variance_change: Callable[[], float]

    @cached_property
    def particles(self) -> FloatArray:
        """All of them, (n_particles, n_coordinates), read-only."""
        return self.find_particles()

    @cached_property
    def variance_change(self) -> float:
        """Largest relative change of a coordinate's variance in the step."""
        return self.find_variance_change()


class Cloud(ABC):
    """Interface of the particles for the iterations, in this process or on workers."""

    @abstractmethod
    def measure(self, iteration: int, power: float) -> float:
        """Compute velocities; the relative force."""

    @abstractmethod
    def discrepancy(self) -> float:
        """Measure the distance of the particles from the target."""

    @abstractmethod
    def move(self, step_size: float) -> None:
        """Follow the velocities."""

    @abstractmethod
    def keep(self) -> Callable[[], float]:
        """Remember where the particles are; the function gives their discrepancy."""

    @abstractmethod
    def restore(self) -> None:
        """Go back there, without a memory of the steps since."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Give the particles as they are now, whatever happens later."""


class Block(Cloud):
    """Particles in some coordinates, whose ``score`` (n_coordinates, n_particles) is of those that
    kernels move, before the halo.
    """

    def __init__(
        self,
        coordinates: FloatArray,
        score: Callable[[FloatArray], FloatArray],
        field: Field,
        optimizer: Optimizer,
        graph: Neighborhoods,
    ) -> None:
        self._score, self._field, self._graph = score, field, graph
        self._optimizer, self._unused = optimizer, deepcopy(optimizer)
        self.before = self.coordinates = coordinates
        self._kept = coordinates[:0]
        self._rows: FloatArray | None = None
        self._velocity = coordinates

    def measure(self, iteration: int, power: float, halo: FloatArray | None = None) -> float:
        seen = _seen(self.coordinates, halo)
        scores = self._score(seen)
        # The score of p^power; nothing else of the target changes while annealing.
        if power != 1.0:
            scores = power * scores
        self._rows = centred_rows(seen, out=self._rows)
        self._velocity = self._field(self._rows, scores, iteration)
        return relative_force(self._rows, self._velocity)

    def discrepancy(self, halo: FloatArray | None = None) -> float:
        return self._discrepancy_at(_seen(self.coordinates, halo))

    def move(self, step_size: float) -> None:
        # A new array each time: states that were yielded never change.
        moved = self._optimizer.displacement(self._velocity, step_size)
        moved += self.coordinates
        self._go_to(moved)

    def keep(self) -> Callable[[], float]:
        self._kept = self.coordinates
        return partial(self._discrepancy_at, self._kept)

    def restore(self) -> None:
        self._optimizer = deepcopy(self._unused)
        self._go_to(self._kept)

    def snapshot(self) -> Snapshot:
        return _snapshot(self.coordinates, self.before, self.coordinates)

    def _discrepancy_at(self, seen: FloatArray) -> float:
        return total_discrepancy(self._graph, seen, self._score(seen))

    def _go_to(self, coordinates: FloatArray) -> None:
        # Large arrays are released as soon as possible.
        self._velocity = coordinates
        coordinates.flags.writeable = False
        self.before, self.coordinates = self.coordinates, coordinates


def _seen(coordinates: FloatArray, halo: FloatArray | None) -> FloatArray:
    return coordinates if halo is None else np.concatenate([coordinates, halo])


def _snapshot(particles: FloatArray, before: FloatArray, after: FloatArray) -> Snapshot:
    """Particles of this process, and those before and after a step, (d, n) each."""
    return Snapshot(partial(np.transpose, particles), partial(variance_change, before, after))


def inner_layout(particles: FloatArray) -> FloatArray:
    """Copy (n_particles, n_coordinates), one contiguous row per coordinate."""
    return np.array(particles.T, order="C")


def variance_change(before: FloatArray, after: FloatArray) -> float:
    """Largest relative change of a variance, of (n_coordinates, n_particles) each."""
    old, new = before.var(axis=1), after.var(axis=1)
    varied = old > 0.0
    return float(np.abs(new[varied] / old[varied] - 1.0).max(initial=0.0))


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
    require_finite_scores(scores, coordinates, np.arange(n_coordinates))
    return scores


def require_finite_scores(scores: FloatArray, coordinates: FloatArray, numbers: IntArray) -> None:
    """Raise an error at NaN and infinity; ``numbers`` (n_coordinates,) are for the message."""
    # One NaN would spread to all particles within an iteration, silently.
    if np.isfinite(scores).all():
        return
    coordinate, particle = np.argwhere(~np.isfinite(scores))[0]
    raise invalid(
        "grad_log_prob of the target",
        "be finite at every particle",
        "Start closer to the target or take shorter steps (step_size).",
        coordinate=int(numbers[coordinate]),
        value=float(scores[coordinate, particle]),
        at=float(coordinates[coordinate, particle]),
    )


class PartialTarget:
    """A target with NaN at up to MAX_FAILED rows where it raises errors, as out of its support."""

    def __init__(self, target: DifferentiableTarget) -> None:
        self._target = target
        self._n_failed = 0
        if hasattr(target, "log_prob_unnormalized"):
            self.log_prob_unnormalized = partial(self._evaluated, target.log_prob_unnormalized, 1)

    def grad_log_prob(self, X: FloatArray) -> FloatArray:
        """Compute the gradient of the log density at each row, (n, d)."""
        return self._evaluated(self._target.grad_log_prob, 2, X)

    def _evaluated(
        self, function: Callable[[FloatArray], FloatArray], ndim: int, X: FloatArray
    ) -> FloatArray:
        try:
            return np.asarray(function(X.copy()), dtype=np.float64)
        except Exception:
            if len(X) <= 1:
                self._n_failed += 1
                if self._n_failed > MAX_FAILED:
                    raise
                return np.full(X.shape[:ndim], np.nan)
        halves = np.array_split(X, 2)
        return np.concatenate([self._evaluated(function, ndim, half) for half in halves])


def relative_force(rows: FloatArray, velocity: FloatArray) -> float:
    """Give the root mean square of σ_i φ_i, or of φ_i where all particles agree."""
    scales = row_scales(rows[: len(velocity)])
    scales[scales == 0.0] = 1.0
    squares = np.einsum("dn,dn->d", velocity, velocity) / velocity.shape[1]
    return float(np.sqrt(np.mean(scales**2 * squares)))


@dataclass(frozen=True)
class Kept:
    """Particles to which later ones are compared."""

    force: float
    measure: Callable[[], float]

    @cached_property
    def discrepancy(self) -> float:
        """Squared Stein discrepancy, measured when it is first asked for."""
        return self.measure()


NOTHING_KEPT = Kept(np.inf, partial(float, np.inf))


@dataclass(frozen=True)
class SVGDState:
    """Where the particles are after a step."""

    snapshot: Snapshot
    n_iter: int
    force: float
    converged: bool
    kept: Kept

    @property
    def discrepancy(self) -> float:
        """Squared Stein discrepancy of the particles that are kept."""
        return self.kept.discrepancy

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
        """Tell whether particles are compared with those kept: a few times, and at the end."""
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


def svgd_steps(cloud: Cloud, schedule: StepSchedule) -> Iterator[SVGDState]:
    """Move particles until the schedule ends; steps that lead away are taken back and shortened."""
    best, kept, scale, has_grown = Best(), NOTHING_KEPT, 1.0, False
    for iteration in range(schedule.max_iter):
        is_left, force = False, cloud.measure(iteration, schedule.power(iteration))
        if schedule.is_look(iteration):
            if force > GROWTH * kept.force and not has_grown:
                has_grown = True
                best.look(kept.discrepancy, kept.force)
            if has_grown:
                discrepancy = cloud.discrepancy()
                is_better = best.look(discrepancy, force)
                is_left = discrepancy > GROWTH * best.discrepancy and force > GROWTH * best.force
            else:
                # The first particles are kept whatever they are.
                is_better = np.isinf(kept.force) or force <= kept.force
            if is_better:
                kept = Kept(force, cloud.keep())
        if is_left:
            cloud.restore()
            force, scale = best.force, scale * STEP_CUT
        else:
            cloud.move(scale * schedule.step(iteration))
        settled = schedule.settled(iteration, force)
        yield SVGDState(cloud.snapshot(), iteration + 1, force, settled, kept)


def preconditioned_field(
    metric: Metric,
    n_particles: int,
    *,
    bandwidth_factor: float,
    linear_weight: float,
    n_jobs: int | None,
) -> Field:
    """One RBF kernel over all z, and linear kernels over those z that correlate most as x."""
    d = len(metric.units)
    everything = Neighborhoods.complete(d)
    n_seen = max(1, int(PARTICLES_SEEN * n_particles))
    seen = everything if n_seen >= d else Neighborhoods.from_scopes(_closest(metric, n_seen))
    return rbf_and_linear_field(
        everything,
        seen,
        bandwidth_factor=bandwidth_factor,
        linear_weight=linear_weight,
        n_jobs=n_jobs,
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
    n_between = ITERATIONS_PER_LOOK[len(z) >= MANY_COORDINATES]
    for iteration in range(schedule.max_iter):
        x = np.ascontiguousarray((metric.center + metric.stretch(z.T)).T, dtype=start.dtype)
        scores = finite_scores(grad_log_prob, x)
        rows = centred_rows(z)
        pulled = np.ascontiguousarray(metric.pull(scores.T).T, dtype=start.dtype)
        velocity = field(rows, pulled, iteration)
        if iteration % n_between == 0:
            last = best.least
            if best.look(discrepancy(x, scores), relative_force(rows, velocity)):
                best_z, best_x = z, x
                x.flags.writeable = False
            n_worse = 0 if best.least < (1.0 - MIN_IMPROVEMENT) * last else n_worse + n_between
        moved = z + optimizer.displacement(velocity, step_size)
        yield SVGDState(
            _snapshot(best_x, z, moved),
            iteration + 1,
            best.force,
            n_cuts == N_CUTS or best.force <= schedule.tol,
            Kept(best.force, partial(float, best.discrepancy)),
        )
        z = moved
        if n_worse >= PATIENCE:
            # Back to the best particles, with shorter steps from there.
            z, optimizer, n_worse = best_z, deepcopy(unused), 0
            step_size, n_cuts = step_size * STEP_CUT, n_cuts + 1
