"""Description of a run of graphical SVGD: particles, target, kernels and workers.

On a Dask cluster, blocks of particles are actors that keep their coordinates. In each iteration,
every block receives its halo and returns a few numbers and its surface, the coordinates that other
blocks depend on. Nothing else is sent between machines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from skcircuits.numerics._arrays import log_probs_at, scores_at, spread_rows
from skcircuits.numerics._optimization import Modes, ascend, gather, separate_parts
from skcircuits.parallel import row_slices
from skcircuits.particles._diagnosis import (
    LOOKS,
    Diagnosis,
    Moments,
    WeightedDraws,
    diagnose,
    diagnose_by_draws,
    draw_from_modes,
)
from skcircuits.particles._metric import (
    MAX_LEARNED,
    CoordinateMetric,
    DiagonalMetric,
    HessianProbe,
    Metric,
    SparseMetric,
    TransformedTarget,
    fit_metric,
    fit_sparse_metric,
    is_concave,
)
from skcircuits.particles._neighborhoods import Bucket, Neighborhoods, RandomScopes
from skcircuits.particles._steps import (
    BATCH_BYTES,
    Block,
    Cloud,
    Optimizer,
    PartialTarget,
    Snapshot,
    StepSchedule,
    SVGDState,
    dependence_graph,
    discrepancies_over,
    finite_scores,
    inner_layout,
    make_optimizer,
    preconditioned_field,
    preconditioned_steps,
    require_finite_scores,
    svgd_steps,
    total_discrepancy,
    variance_change,
)
from skcircuits.particles.directions import Field, make_field
from skcircuits.protocols import BoolArray, DifferentiableTarget, FloatArray, IntArray

# Starting particles, and draws of a Gaussian, at which a log density must be concave.
N_CONCAVE = 3
# Numbers of particles and of points around them from which ascents start, the latter such that they
# have at most so many coordinates in all; range of widths, in standard deviations of the particles.
N_NEAR, N_FAR, MIN_FAR, MAX_SIZE, WIDTHS = 30, 200, 20, 5e3, (1.0, 100.0)
# Least number of such points whose scores alone are computed, their number per coordinate and the
# number of their coordinates in all, and the widths of two thirds of them; number of those among
# them from which ascents start: no known mode explains their scores to this accuracy.
N_SEEN, SEEN_PER_COORDINATE, SEEN_SIZE, NEAR_WIDTHS = 5_000, 1_500, 3e5, (1.0, 4.0)
N_UNEXPLAINED, EXPLAINED = 100, 0.1
# Where ascents start on the line from one mode to another.
FRACTIONS = 0.25, 0.5, 0.75
# Number of chains that are followed from part to part of a density, the probability from which on
# two of them in different parts count, and the fraction of moves between parts that is hardly any.
MAX_FOLLOWED, LEAST_DIVIDED, HARDLY = 100, 0.1, 0.1
# Largest number of coordinates for which a single mode is represented by weighted draws.
MAX_DRAWN_FROM = 30
# Relative error of the score of a Gaussian, which is not seen in its moments.
GAUSSIAN_ERROR = 1e-3


class DaskCloud(Cloud):
    """Particles cut into as many blocks as a client has workers."""

    def __init__(
        self,
        client: Any,
        start: FloatArray,
        target: DifferentiableTarget,
        graph: Neighborhoods,
        make_field: Callable[..., Field],
        optimizer: Optimizer,
    ) -> None:
        n_threads = client.nthreads()
        parts = [graph.part(buckets) for buckets in cut(graph, len(n_threads))]
        sizes = [sum(bucket.owned.size for bucket in part.buckets) for _, part in parts]
        self._moved = [local[:n] for (local, _), n in zip(parts, sizes)]
        # Local coordinates come in this order: those that the block moves, then those that it sees
        halos = [local[n:] for (local, _), n in zip(parts, sizes)]
        # Coordinates that other blocks depend on, and their values after the last step.
        surface = np.unique(np.concatenate(halos))
        self._surface = start.T[surface]
        self._halos = [np.searchsorted(surface, halo) for halo in halos]
        shown = [np.flatnonzero(np.isin(moved, surface)) for moved in self._moved]
        self._shown = [
            np.searchsorted(surface, moved[own]) for moved, own in zip(self._moved, shown)
        ]
        self._shape, self._dtype, self._n_moves = start.shape, start.dtype, 0
        # Targets may hold data: sent once to each worker, not with every block
        everywhere = client.scatter([(target, start[0])], broadcast=True, hash=False)[0]

        def place(block: int, worker: str) -> Any:
            """Start an actor on a worker."""
            own = (start[:, self._moved[block]], *parts[block], shown[block])
            there = client.scatter([own], workers=[worker], hash=False)[0]
            field = partial(make_field, n_jobs=n_threads[worker])
            where = {"workers": [worker], "actor": True, "pure": False}
            return client.submit(_Actor, there, everywhere, field, optimizer, **where)

        placed = [place(block, worker) for block, worker in zip(range(len(parts)), n_threads)]
        self._actors = [future.result() for future in placed]

    def measure(self, iteration: int, power: float) -> float:
        forces = np.array(self._ask_with_halos("measure", self._surface, iteration, power))
        sizes = [moved.size for moved in self._moved]
        # Forces are root mean squares over the block's own coordinates
        return float(np.sqrt(np.average(forces**2, weights=sizes)))

    def discrepancy(self) -> float:
        return float(sum(self._ask_with_halos("discrepancy", self._surface)))

    def move(self, step_size: float) -> None:
        self._shift(step_size)

    def keep(self) -> Callable[[], float]:
        self.ask("keep")
        # Workers have only the particles that were kept last.
        surface = self._surface.copy()
        return lambda: float(sum(self._ask_with_halos("kept_discrepancy", surface)))

    def restore(self) -> None:
        self._shift(None)

    def snapshot(self) -> Snapshot:
        # The particles stay on the workers until they are needed, for one more step at most
        particles = partial(self.gather, self._n_moves)
        return Snapshot(particles, lambda: max(self.ask("variance_change")))

    def gather(self, n_moves: int) -> FloatArray:
        """Collect the particles as they are after some moves, (n_particles, n_coordinates)."""
        particles = np.empty(self._shape[::-1], dtype=self._dtype)
        for moved, there in zip(self._moved, self.ask("after", n_moves)):
            particles[moved] = there
        particles.flags.writeable = False
        return particles.T

    def _shift(self, step_size: float | None) -> None:
        """Move all blocks and collect their surfaces."""
        for places, values in zip(self._shown, self.ask("shift", step_size)):
            self._surface[places] = values
        self._n_moves += 1

    def ask(self, method: str, *arguments: object) -> list[Any]:
        """Call a method of every actor with the same arguments, all at once."""
        futures = [getattr(actor, method)(*arguments) for actor in self._actors]
        return [future.result() for future in futures]

    def _ask_with_halos(self, method: str, surface: FloatArray, *arguments: object) -> list[Any]:
        """Call a method of every actor with its halo, all at once."""
        futures = [
            getattr(actor, method)(*arguments, surface[halo])
            for actor, halo in zip(self._actors, self._halos)
        ]
        return [future.result() for future in futures]


class _Actor(Block):
    """A block with a halo, and the coordinates that others depend on."""

    def __init__(
        self,
        own: tuple[FloatArray, IntArray, Neighborhoods, IntArray],
        target: tuple[DifferentiableTarget, FloatArray],
        make_field: Callable[[Neighborhoods], Field],
        optimizer: Optimizer,
    ) -> None:
        particles, local, graph, self._shown = own
        n_moved = sum(bucket.owned.size for bucket in graph.buckets)
        score = partial(_block_scores, *target, local, n_moved)
        super().__init__(inner_layout(particles), score, make_field(graph), optimizer, graph)
        self._n_moves = 0

    def shift(self, step_size: float | None) -> FloatArray:
        """Move, or go back without a step size; returns the coordinates that others depend on."""
        if step_size is None:
            self.restore()
        else:
            self.move(step_size)
        self._n_moves += 1
        return self.coordinates[self._shown]

    def kept_discrepancy(self, halo: FloatArray) -> float:
        """Measure the distance of the kept particles from the target, given the halo they had."""
        return self._discrepancy_at(np.concatenate([self._kept, halo]))

    def after(self, n_moves: int) -> FloatArray:
        """Give the coordinates after all moves, or all but the last."""
        # Ctrl-C may come when some blocks have made a move that others have not.
        return self.coordinates if n_moves == self._n_moves else self.before

    def variance_change(self) -> float:
        """Largest relative change of a variance in the last move."""
        return variance_change(self.before, self.coordinates)


def _block_scores(
    target: DifferentiableTarget,
    point: FloatArray,
    local: IntArray,
    n_moved: int,
    coordinates: FloatArray,
) -> FloatArray:
    """Scores of a block: they do not depend on where a particle is outside of the halo."""
    scores = np.empty((n_moved, coordinates.shape[1]), dtype=coordinates.dtype)
    # The target needs whole particles, of which a block has few coordinates: they are completed
    # in batches
    batch = max(1, BATCH_BYTES // point.nbytes)
    for part in row_slices(coordinates.shape[1], batch):
        rows = np.tile(point, (part.stop - part.start, 1))
        rows[:, local] = coordinates[:, part].T
        scores[:, part] = scores_at(target.grad_log_prob, rows)[:, local[:n_moved]].T
    require_finite_scores(scores, coordinates, local)
    return scores


def cut(graph: Neighborhoods, n_blocks: int) -> list[list[Bucket]]:
    """Divide kernels into at most so many blocks of about equal size with few dependences."""
    scopes = graph.scope_matrix()
    kernels = graph.kernel_of_node[graph.node_of_coordinate]
    moves = sparse.csr_array(
        (np.ones(len(kernels)), (np.arange(len(kernels)), kernels)),
        shape=(len(kernels), graph.n_kernels),
    )
    # Dependent kernels are close to each other in this order, so that blocks have few dependences.
    order = reverse_cuthill_mckee(sparse.csr_matrix(scopes @ moves))
    block = np.empty(graph.n_kernels, dtype=np.int64)
    block[order] = np.arange(graph.n_kernels) * n_blocks // graph.n_kernels
    found = []
    for number in np.unique(block):
        chosen = [(bucket, block[bucket.kernels] == number) for bucket in graph.buckets]
        found.append([bucket.part(np.flatnonzero(own)) for bucket, own in chosen if own.any()])
    return found


@dataclass(frozen=True)
class SVGDProblem:
    """A target with its graph and the method that approaches it."""

    target: DifferentiableTarget
    n_coordinates: int
    _: KW_ONLY
    neighbors: Sequence[ArrayLike] | None = None
    blocks: Sequence[ArrayLike] | None = None
    kernel: str = "graphical"
    bandwidth_factor: float = 1.0
    linear_weight: float = 0.0
    n_neighbors: int = 5
    local_weight: float = 0.5
    optimizer: str = "rmsprop"
    schedule: StepSchedule = field(default_factory=StepSchedule)
    may_fail: bool = False  # the target raises errors away from the particles, perhaps

    def with_linear_weight(self, linear_weight: float) -> SVGDProblem:
        """Give the problem with another weight of the linear kernel, and the same graph."""
        other = copy(self)  # with all that is cached
        object.__setattr__(other, "linear_weight", linear_weight)
        return other

    @cached_property
    def graph(self) -> Neighborhoods:
        """The closed blankets."""
        if self.neighbors is None:
            return Neighborhoods.complete(self.n_coordinates, self.blocks)
        return Neighborhoods.from_graph(self.neighbors, self.blocks)

    def steps(
        self,
        start: FloatArray,
        seed: int,
        n_jobs: int | None = None,
        metric: Metric | SparseMetric | None = None,
        client: Any = None,
    ) -> Iterator[SVGDState]:
        """Move particles, and yield each state; a client of Dask takes blocks to its workers."""
        if isinstance(metric, SparseMetric):
            field = self._field(seed, n_jobs)
            yield from self._steps_in(metric.standardized, start, field, self.graph)
            return
        if metric is not None:
            yield from self._preconditioned_steps(start, metric, n_jobs)
            return
        yield from svgd_steps(self._cloud(start, seed, n_jobs, client), self.schedule)

    def _cloud(self, start: FloatArray, seed: int, n_jobs: int | None, client: Any) -> Cloud:
        """Put the particles where they move."""
        optimizer = make_optimizer(self.optimizer)
        # Only kernels over the blankets can be divided into blocks.
        if client is not None and self.kernel == "graphical" and self.graph.n_kernels > 1:
            return DaskCloud(client, start, self.target, self.graph, self._make_field, optimizer)
        score = partial(finite_scores, self.target.grad_log_prob)
        return Block(inner_layout(start), score, self._field(seed, n_jobs), optimizer, self.graph)

    def find_metric(self, start: FloatArray, rng: np.random.Generator) -> Metric | None:
        """Fit a Gaussian to the target; None if it fails or does not represent the target."""
        # Second derivatives are differences of scores, which are inaccurate in single precision
        score = self.score
        start = start.astype(np.float64)
        metric = fit_metric(score, self._probe, start, rng)
        if metric is None or self._transformed(metric).has_several_modes(start):
            return None
        return metric

    def _transformed(self, metric: DiagonalMetric | Metric) -> TransformedTarget:
        return TransformedTarget(self.score, self._probe, metric)

    def find_sparse_metric(
        self, start: FloatArray, rng: np.random.Generator
    ) -> SparseMetric | None:
        """Fit a Gaussian of sparse precision to a log-concave target of many coordinates."""
        start = start.astype(np.float64)
        metric = self._sparse_metric(start, rng)
        if metric is None:
            return None
        draws = metric.inverse_transform(rng.standard_normal((N_CONCAVE, start.shape[1])))
        # Otherwise it may represent only one of several modes.
        points = np.concatenate([start[:N_CONCAVE], draws])
        return metric if is_concave(self._probe, points, metric.standardized.scales) else None

    def is_concave(self, metric: Metric, rng: np.random.Generator) -> bool:
        """Tell whether the target is log-concave where the metric's Gaussian has its mass."""
        return metric.is_concave(self._probe, rng)

    @cached_property
    def _probe(self) -> HessianProbe:
        return HessianProbe(self.score, self.graph)

    def score(self, points: FloatArray) -> FloatArray:
        """Evaluate the score anywhere, in the precision of the points."""
        return scores_at(self._searched.grad_log_prob, points)

    @property
    def log_prob(self) -> Callable[[FloatArray], FloatArray] | None:
        """The log density anywhere; None if the target has none."""
        function = getattr(self._searched, "log_prob_unnormalized", None)
        return None if function is None else partial(log_probs_at, function)

    @cached_property
    def _searched(self) -> DifferentiableTarget:
        return PartialTarget(self.target) if self.may_fail else self.target

    def _preconditioned_steps(
        self, start: FloatArray, metric: Metric, n_jobs: int | None
    ) -> Iterator[SVGDState]:
        field = preconditioned_field(
            metric,
            len(start),
            bandwidth_factor=self.bandwidth_factor,
            linear_weight=self.linear_weight,
            n_jobs=n_jobs,
        )
        # Kernels over all coordinates are not sensitive if there are many.
        graph = self.graph
        if self.neighbors is None:
            graph = dependence_graph(self._probe, metric, start.astype(np.float64))
        yield from self._steps_in(metric, start, field, graph)

    def _steps_in(
        self, metric: CoordinateMetric, start: FloatArray, field: Field, graph: Neighborhoods
    ) -> Iterator[SVGDState]:
        """Move particles in coordinates until the discrepancy over a graph falls no further."""
        return preconditioned_steps(
            start,
            self.target.grad_log_prob,
            metric,
            field,
            make_optimizer(self.optimizer),
            self.schedule,
            partial(total_discrepancy, graph),
        )

    def is_possible(self, points: FloatArray) -> BoolArray:
        """Tell where the density is not known to be zero, (n,)."""
        if self.log_prob is None:
            return np.ones(len(points), dtype=bool)
        with np.errstate(all="ignore"):
            return np.asarray(~np.isneginf(self.log_prob(points.astype(np.float64))))

    def within_support(self, particles: FloatArray, start: FloatArray) -> FloatArray:
        """Put possible particles and starting ones in the place of impossible ones."""
        is_possible = self.is_possible(particles)
        if is_possible.all():
            return particles
        others = np.concatenate([particles[is_possible], start[self.is_possible(start)]])
        if not len(others):
            return particles
        found = particles.copy()
        found[~is_possible] = others[np.arange((~is_possible).sum()) % len(others)]
        return found

    def corrected(self, found: Diagnosis) -> FloatArray:
        """Give the particles of a diagnosis with its moments, (n, d), all of them possible."""
        moved = found.corrected()
        return np.where(self.is_possible(moved)[:, None], moved, found.states)

    def diagnose(
        self,
        particles: FloatArray,
        metric: Metric | SparseMetric | None,
        is_thorough: bool,
        has_ends: bool = False,
    ) -> Diagnosis:
        """Compare particles with draws from all modes, or with chains from the particles."""
        # The seeds are fixed, so that equal particles give equal results.
        rng = np.random.default_rng(0)
        if metric is None:
            metric = self._sparse_metric(particles, rng)
        found = self.diagnose_without_chains(particles, metric)
        if found is not None:
            return found
        places = self._places(particles)
        found = diagnose(
            self.score,
            particles,
            metric,
            rng,
            log_prob=self.log_prob,
            places=places,
            has_ends=has_ends,
            n_looks=len(LOOKS) if is_thorough else 2,
        )
        first, last = self._parts(particles, found.states)
        # So many chains change their part where they forget in which they started.
        due = 1.0 - ((np.bincount(first) / len(first)) ** 2).sum()
        if due <= LEAST_DIVIDED:
            return found
        if (first != last).mean() < HARDLY * due:
            # The fractions are those of the particles, whatever the masses of the parts.
            return replace(found, n_closed=len(np.unique(first)))
        return replace(found, is_connected=places is not None and len(places) > 1)

    def _parts(self, before: FloatArray, after: FloatArray) -> list[IntArray]:
        """Give the parts of the density that some chains start and end in, (n,) each."""
        chosen = spread_rows(len(before), MAX_FOLLOWED)
        both = np.concatenate([before[chosen], after[chosen]]).astype(np.float64)
        metric = DiagonalMetric.of_particles(both)
        score = self._transformed(metric).score
        return np.split(separate_parts(score, metric.transform(both), len(both)), 2)

    def _places(self, particles: FloatArray) -> FloatArray | None:
        """Where ascents from particles and from points around them end, (k, d), each place once."""
        if self.log_prob is None:
            return None
        particles = particles.astype(np.float64)
        scales = DiagonalMetric.of_particles(particles)
        starts = scales.transform(points_around(particles, scales, np.random.default_rng(0)))
        with np.errstate(all="ignore"):
            ascents = ascend(self._transformed(scales).score, starts)
        return scales.inverse_transform(gather(ascents.ends[ascents.arrived])[0])

    def diagnose_without_chains(
        self, particles: FloatArray, metric: Metric | SparseMetric | None
    ) -> Diagnosis | None:
        """Compare any number of particles; None where no draws represent the target."""
        found = self._diagnose_gaussian(particles, metric)
        return self._diagnose_by_draws(particles, metric) if found is None else found

    def _diagnose_gaussian(
        self, particles: FloatArray, metric: Metric | SparseMetric | None
    ) -> Diagnosis | None:
        """Compare particles with the target if it is Gaussian; None where it is not."""
        particles = particles.astype(np.float64)
        found = self.gaussian(particles, metric)
        if found is None:
            return None
        draws = found.inverse_transform(np.random.default_rng(0).standard_normal(particles.shape))
        moments = Moments.exact(np.asarray(found.center), found.variances)
        return Diagnosis.of(particles, moments, draws, WeightedDraws.of_one_mode(draws))

    def gaussian(
        self, particles: FloatArray, metric: Metric | SparseMetric | None = None
    ) -> Metric | SparseMetric | None:
        """Give the target as a Gaussian; None where it is not one among particles and around."""
        found = metric if isinstance(metric, SparseMetric) else self._gaussian(particles)
        if found is None:
            return None
        rng = np.random.default_rng(0)
        draws = found.inverse_transform(rng.standard_normal(particles.shape))
        # The points around are those from which ascents to modes would start
        around = points_around(particles, found, rng), many_points_around(particles, found, rng)
        points = np.concatenate([draws, *around])
        # A half of a normal density has its score
        if not self.is_possible(np.concatenate([draws, around[0]])).all():
            return None
        units = np.sqrt(found.variances)
        with np.errstate(all="ignore"):
            moved = found.smooth(self.score(points)) / units
        wanted = (found.center - points) / units
        size = 1.0 + np.abs(wanted).max(axis=1, keepdims=True)
        # NaN is an error, too
        return found if (np.abs(moved - wanted) <= GAUSSIAN_ERROR * size).all() else None

    def _gaussian(self, particles: FloatArray) -> Metric | None:
        """Give the Gaussian with the score and Hessian of the target at the mean of particles."""
        if self.n_coordinates > MAX_LEARNED:
            return None
        center, scales = particles.mean(axis=0), DiagonalMetric.of_particles(particles).scales
        with np.errstate(all="ignore"):
            hessian = self._probe.mean(center[None], scales)
            score = self.score(center[None])
        if not (np.isfinite(hessian).all() and (np.diag(hessian) > 0.0).all()):
            return None
        found = Metric.of_precision(center, hessian * np.outer(scales, scales), scales)
        return replace(found, center=center + found.smooth(score)[0])

    def _diagnose_by_draws(
        self, particles: FloatArray, metric: Metric | SparseMetric | None
    ) -> Diagnosis | None:
        """Compare particles with draws from all modes; None where these are of no use."""
        d = self.n_coordinates
        if d > MAX_LEARNED or isinstance(metric, SparseMetric):
            return None
        particles, rng = particles.astype(np.float64), np.random.default_rng(0)
        scales = DiagonalMetric.of_particles(particles) if metric is None else metric
        target, starts = self._transformed(scales), points_around(particles, scales, rng)
        seen = many_points_around(particles, scales, rng.spawn(1)[0])
        with np.errstate(all="ignore"):
            scores = self.score(seen)
        n_known, draws = 0, None
        while True:
            modes = target.modes(starts)
            if modes is None or len(modes.centers) <= n_known:
                break
            n_known = len(modes.centers)
            # Chains explore a single mode of many coordinates better than draws.
            if n_known == 1 and d > MAX_DRAWN_FROM:
                return None
            draws = draw_from_modes(self.score, self.log_prob, modes, particles, rng)
            if draws is None:
                break
            # A narrow mode may lie between others, and draws of unexpected weight near one.
            between, others = points_between(modes.centers), unexplained(seen, scores, modes)
            starts = np.concatenate([modes.centers, between, others, draws.heaviest])
        return None if draws is None else diagnose_by_draws(self.score, particles, draws, rng)

    def _sparse_metric(
        self, particles: FloatArray, rng: np.random.Generator
    ) -> SparseMetric | None:
        """Give a metric where chains cannot learn one: of a sparse graph of many coordinates."""
        if self.neighbors is None or self.n_coordinates <= MAX_LEARNED:
            return None
        particles = particles.astype(np.float64)
        return fit_sparse_metric(self.score, self._probe, particles, rng)

    def measure(self, particles: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Measure particles with kernels over the blankets, whatever the kernels of the run are."""
        coordinates = np.ascontiguousarray(particles.T)
        scores = finite_scores(self.target.grad_log_prob, coordinates, np.float64)
        per_coordinate, bandwidths = discrepancies_over(self.graph, coordinates, scores)
        return (self.graph.sum_by_node(per_coordinate), bandwidths[self.graph.kernel_of_node])

    def _field(self, seed: int, n_jobs: int | None) -> Field:
        is_random = self.kernel in ("random", "combine")
        scopes = self._random_scopes(seed) if is_random else None
        return self._make_field(self.graph, scopes, n_jobs=n_jobs)

    @property
    def _make_field(self) -> Callable[..., Field]:
        return partial(
            make_field,
            self.kernel,
            bandwidth_factor=self.bandwidth_factor,
            linear_weight=self.linear_weight,
            local_weight=self.local_weight,
        )

    def _random_scopes(self, seed: int) -> RandomScopes:
        neighbors = self.neighbors
        if neighbors is None:
            everyone = np.arange(self.graph.n_nodes)
            neighbors = [np.delete(everyone, node) for node in everyone]
        return RandomScopes(neighbors, self.blocks, n_neighbors=self.n_neighbors, seed=seed)


def points_around(
    particles: FloatArray, metric: CoordinateMetric, rng: np.random.Generator
) -> FloatArray:
    """Particles, and points in all directions around them, near and far."""
    n_far = int(np.clip(MAX_SIZE / particles.shape[1], MIN_FAR, N_FAR))
    chosen = spread_rows(len(particles), min(N_NEAR, n_far))
    return np.concatenate([particles[chosen], _points_far_from(particles, metric, n_far, rng)])


def many_points_around(
    particles: FloatArray, metric: CoordinateMetric, rng: np.random.Generator
) -> FloatArray:
    """Points in all directions around particles, more than ascents could start from."""
    d = particles.shape[1]
    n = int(min(max(N_SEEN, SEEN_PER_COORDINATE * d), SEEN_SIZE / d))
    # A narrow mode fills a small part of the directions: most points are as far as modes mostly are
    far = _points_far_from(particles, metric, n // 3, rng)
    near = _points_far_from(particles, metric, n - n // 3, rng, NEAR_WIDTHS)
    return np.concatenate([far, near])


def _points_far_from(
    particles: FloatArray,
    metric: CoordinateMetric,
    n: int,
    rng: np.random.Generator,
    widths: tuple[float, float] = WIDTHS,
) -> FloatArray:
    """Points in all directions around the mean of particles, near and far."""
    low, high = np.log(widths)
    factors = np.exp(rng.uniform(low, high, (n, 1)))
    noise = metric.stretch(rng.standard_normal((n, particles.shape[1])))
    return np.asarray(particles.mean(axis=0) + factors * noise)


def unexplained(points: FloatArray, scores: FloatArray, modes: Modes) -> FloatArray:
    """Points, of (n, d), whose scores are least those of Gaussians around the modes."""
    errors = np.full(len(points), np.inf)
    for center, root in zip(modes.centers, modes.roots):
        with np.errstate(all="ignore"):
            away = np.linalg.solve(root, (points - center).T)
            # Where a Gaussian around the mode decides, its score leads back to the mode
            error = np.linalg.norm(away + root.T @ scores.T, axis=0)
            errors = np.fmin(errors, error / np.linalg.norm(away, axis=0))
    errors[~np.isfinite(errors)] = 0.0
    worst = np.argsort(-errors, kind="stable")[:N_UNEXPLAINED]
    return points[worst[errors[worst] > EXPLAINED]]


def points_between(centers: FloatArray) -> FloatArray:
    """Points on the lines between all pairs of centers, (k, d)."""
    first, second = np.triu_indices(len(centers), 1)
    fractions = np.array(FRACTIONS)[:, None, None]
    points = centers[first] + fractions * (centers[second] - centers[first])
    return np.asarray(points.reshape(-1, centers.shape[1]))
