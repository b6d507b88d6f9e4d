"""One run of graphical SVGD, described: what moves towards which target, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.particles._actors import DaskCloud
from skcircuits.particles._cloud import Block, Cloud, finite_scores, inner_layout, scores_at
from skcircuits.particles._diagnosis import LOOKS, Diagnosis, diagnose
from skcircuits.particles._discrepancy import discrepancies_over, total_discrepancy
from skcircuits.particles._fields import Field, RandomScopes, make_field
from skcircuits.particles._metric import (
    MAX_LEARNED,
    CoordinateMetric,
    HessianProbe,
    Metric,
    fit_metric,
    has_several_modes,
)
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._optimizers import make_optimizer
from skcircuits.particles._sparse_metric import SparseMetric, fit_sparse_metric, is_concave
from skcircuits.particles._steps import (
    StepSchedule,
    SVGDState,
    dependence_graph,
    preconditioned_field,
    preconditioned_steps,
    svgd_steps,
)
from skcircuits.protocols import DifferentiableTarget, FloatArray

# Starting particles, and draws of a Gaussian, at which a log density must be concave.
N_CONCAVE = 3


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
        """Move particles; the state after each step.

        A client of Dask takes the blocks of the published method to its workers.
        """
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
        # Only kernels over the blankets let particles be cut; one kernel cannot be.
        if client is not None and self.kernel == "graphical" and self.graph.n_kernels > 1:
            field = partial(
                make_field,
                self.kernel,
                bandwidth_factor=self.bandwidth_factor,
                linear_weight=self.linear_weight,
            )
            return DaskCloud(client, start, self.target, self.graph, field, optimizer)
        score = partial(finite_scores, self.target.grad_log_prob)
        return Block(inner_layout(start), score, self._field(seed, n_jobs), optimizer, self.graph)

    def find_metric(self, start: FloatArray, rng: np.random.Generator) -> Metric | None:
        """Fit a Gaussian to the target; None where it fails or does not stand for the target."""
        score = self._double_precision_score
        start = start.astype(np.float64)
        metric = fit_metric(score, self._probe, start, rng)
        if metric is None or has_several_modes(score, self._probe, metric, start):
            return None
        return metric

    def find_sparse_metric(
        self, start: FloatArray, rng: np.random.Generator
    ) -> SparseMetric | None:
        """Fit a Gaussian of sparse precision to a log-concave target of many coordinates."""
        start = start.astype(np.float64)
        metric = self._sparse_metric(start, rng)
        if metric is None:
            return None
        draws = metric.center + metric.stretch(rng.standard_normal((N_CONCAVE, start.shape[1])))
        # Elsewhere it may stand for one mode of several: the starting particles know better.
        points = np.concatenate([start[:N_CONCAVE], draws])
        return metric if is_concave(self._probe, points, metric.standardized.scales) else None

    def is_concave(self, metric: Metric, rng: np.random.Generator) -> bool:
        """Tell whether the target is log-concave where the metric's Gaussian has its mass."""
        return metric.is_concave(self._probe, rng)

    @cached_property
    def _probe(self) -> HessianProbe:
        return HessianProbe(self._double_precision_score, self.graph)

    def _double_precision_score(self, points: FloatArray) -> FloatArray:
        return scores_at(self.target.grad_log_prob, points)

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
        # Kernels over everything see little where there are many coordinates.
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

    def diagnose(
        self, particles: FloatArray, metric: CoordinateMetric | None, is_thorough: bool
    ) -> Diagnosis:
        """Compare the moments of particles with those that chains from them find."""
        log_prob = getattr(self.target, "log_prob_unnormalized", None)
        # Draws of its own: equal particles have equal faults.
        rng = np.random.default_rng(0)
        return diagnose(
            self._double_precision_score,
            particles,
            self._sparse_metric(particles, rng) if metric is None else metric,
            rng,
            log_prob=log_prob,
            n_looks=len(LOOKS) if is_thorough else 2,
        )

    def _sparse_metric(
        self, particles: FloatArray, rng: np.random.Generator
    ) -> SparseMetric | None:
        """Give a metric where chains cannot learn one: of a sparse graph of many coordinates."""
        if self.neighbors is None or self.n_coordinates <= MAX_LEARNED:
            return None
        particles = particles.astype(np.float64)
        return fit_sparse_metric(self._double_precision_score, self._probe, particles, rng)

    def measure(self, particles: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Measure particles against the target, with kernels over the blankets.

        No option of the run changes the kernels, so runs can be compared.
        """
        coordinates = np.ascontiguousarray(particles.T)
        scores = finite_scores(self.target.grad_log_prob, coordinates, np.float64)
        per_coordinate, bandwidths = discrepancies_over(self.graph, coordinates, scores)
        return (
            self.graph.sum_by_node(per_coordinate),
            bandwidths[self.graph.kernel_of_node],
        )

    def _field(self, seed: int, n_jobs: int | None) -> Field:
        return make_field(
            self.kernel,
            self.graph,
            self._random_scopes(seed) if self.kernel in ("random", "combine") else None,
            bandwidth_factor=self.bandwidth_factor,
            linear_weight=self.linear_weight,
            local_weight=self.local_weight,
            n_jobs=n_jobs,
        )

    def _random_scopes(self, seed: int) -> RandomScopes:
        neighbors = self.neighbors
        if neighbors is None:
            everyone = np.arange(self.graph.n_nodes)
            neighbors = [np.delete(everyone, node) for node in everyone]
        return RandomScopes(neighbors, self.blocks, n_neighbors=self.n_neighbors, seed=seed)
