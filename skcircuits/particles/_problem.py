"""One run of graphical SVGD, described: what moves towards which target, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.particles._bandwidths import median_bandwidths
from skcircuits.particles._discrepancy import node_discrepancies
from skcircuits.particles._fields import Field, make_field
from skcircuits.particles._kernel_sums import centred_rows
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._optimizers import make_optimizer
from skcircuits.particles._random_scopes import RandomScopes
from skcircuits.particles._steps import StepSchedule, SVGDState, finite_scores, svgd_steps
from skcircuits.protocols import DifferentiableTarget, FloatArray

__all__ = ["SVGDProblem"]


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
    optimizer: str = "rmsprop"
    schedule: StepSchedule = field(default_factory=StepSchedule)

    @cached_property
    def graph(self) -> Neighborhoods:
        """The closed blankets."""
        if self.neighbors is None:
            return Neighborhoods.complete(self.n_coordinates, self.blocks)
        return Neighborhoods.from_graph(self.neighbors, self.blocks)

    def steps(self, start: FloatArray, seed: int, n_jobs: int | None = None) -> Iterator[SVGDState]:
        """Move particles; the state after each step."""
        yield from svgd_steps(
            start,
            self.target.grad_log_prob,
            self._field(seed, n_jobs),
            make_optimizer(self.optimizer),
            self.schedule,
        )

    def measure(self, particles: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Measure particles against the target, with kernels over the blankets."""
        # In double precision whatever the run had: near zero the sums cancel.
        coordinates = np.array(particles.T, dtype=np.float64, order="C")
        rows = centred_rows(coordinates)
        bandwidths = median_bandwidths(rows, self.graph, factor=self.bandwidth_factor)
        scores = finite_scores(self.target.grad_log_prob, coordinates)
        discrepancies = node_discrepancies(rows, scores, self.graph, bandwidths)
        return discrepancies, bandwidths[self.graph.kernel_of_node]

    def _field(self, seed: int, n_jobs: int | None) -> Field:
        return make_field(
            self.kernel,
            self.graph,
            self._random_scopes(seed) if self.kernel in ("random", "combine") else None,
            bandwidth_factor=self.bandwidth_factor,
            linear_weight=self.linear_weight,
            n_jobs=n_jobs,
        )

    def _random_scopes(self, seed: int) -> RandomScopes:
        neighbors = self.neighbors
        if neighbors is None:
            everyone = np.arange(self.graph.n_nodes)
            neighbors = [np.delete(everyone, node) for node in everyone]
        return RandomScopes(neighbors, self.blocks, n_neighbors=self.n_neighbors, seed=seed)
