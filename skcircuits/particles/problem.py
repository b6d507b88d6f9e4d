"""One run of graphical SVGD, described: what moves towards which target, and how."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.particles._clouds import centred_rows
from skcircuits.particles.bandwidths import median_bandwidths
from skcircuits.particles.discrepancy import node_discrepancies
from skcircuits.particles.fields import Field, make_field
from skcircuits.particles.neighborhoods import Neighborhoods
from skcircuits.particles.optimizers import make_optimizer
from skcircuits.particles.random_scopes import RandomScopes
from skcircuits.particles.steps import StepSchedule, SVGDState, finite_scores, svgd_steps
from skcircuits.particles.threads import ChunkRunner, run_serially
from skcircuits.protocols import DifferentiableTarget, FloatArray

__all__ = ["SVGDProblem"]


@dataclass(frozen=True)
class SVGDProblem:
    """A target with its graph and the method that approaches it.

    Parameters
    ----------
    target : object
        Has ``grad_log_prob``.
    n_coordinates : int
        Number of coordinates.
    neighbors : sequence of array-likes of int, default=None
        Markov blankets; None makes everything everyone's neighbour.
    blocks : sequence of array-likes of int, default=None
        Coordinates of each node; None means one each.
    kernel : {"graphical", "global", "random", "combine"}, default="graphical"
        What the RBF kernels see (`make_field`).
    bandwidth_factor : float, default=1.0
        Multiplies the squared median distances.
    linear_weight : float, default=0.0
        Weight of the linear kernel on the blankets.
    n_neighbors : int, default=5
        Size of random neighbourhoods.
    optimizer : str, default="rmsprop"
        Name of the optimiser.
    schedule : StepSchedule, default=StepSchedule()
        Step sizes, annealing and tolerance.

    Examples
    --------
    >>> from skcircuits.graphical import GaussianMRF
    >>> from skcircuits.particles import SVGDProblem
    >>> field = GaussianMRF([[2.0, -1.0], [-1.0, 2.0]], [1.0, 0.0])
    >>> problem = SVGDProblem(field, 2, field.neighbors)
    >>> *_, last = problem.steps(field.sample(20, random_state=0), seed=0)
    >>> per_node, bandwidths = problem.measure(last.particles)
    >>> bool(per_node.sum() < 0.01)
    True
    """

    target: DifferentiableTarget
    n_coordinates: int
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

    def steps(
        self, start: FloatArray, seed: int, run: ChunkRunner = run_serially
    ) -> Iterator[SVGDState]:
        """Move particles; the state after each step.

        Parameters
        ----------
        start : ndarray of shape (n_particles, n_coordinates)
            Starting particles, in the precision of the run.
        seed : int
            Key of the random neighbourhoods.
        run : callable, default=run_serially
            Runs the chunks (`chunk_threads`).

        Yields
        ------
        SVGDState
            The state after each step.
        """
        yield from svgd_steps(
            start,
            self.target.grad_log_prob,
            self._field(seed, run),
            make_optimizer(self.optimizer),
            self.schedule,
        )

    def measure(self, particles: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Measure particles against the target, with kernels over the blankets.

        Parameters
        ----------
        particles : ndarray of shape (n_particles, n_coordinates)
            Particles.

        Returns
        -------
        discrepancies : ndarray of shape (n_nodes,)
            Parts of the squared Stein discrepancy.
        bandwidths : ndarray of shape (n_nodes,)
            Bandwidths of the kernels, by the median rule.
        """
        # In double precision whatever the run had: near zero the sums cancel.
        coordinates = np.array(particles.T, dtype=np.float64, order="C")
        rows = centred_rows(coordinates)
        bandwidths = median_bandwidths(rows, self.graph, factor=self.bandwidth_factor)
        scores = finite_scores(self.target.grad_log_prob, coordinates)
        discrepancies = node_discrepancies(rows, scores, self.graph, bandwidths)
        return discrepancies, bandwidths[self.graph.kernel_of_node]

    def _field(self, seed: int, run: ChunkRunner) -> Field:
        return make_field(
            self.kernel,
            self.graph,
            self._random_scopes(seed) if self.kernel in ("random", "combine") else None,
            bandwidth_factor=self.bandwidth_factor,
            linear_weight=self.linear_weight,
            run=run,
        )

    def _random_scopes(self, seed: int) -> RandomScopes:
        neighbors = self.neighbors
        if neighbors is None:
            everyone = np.arange(self.graph.n_nodes)
            neighbors = [np.delete(everyone, node) for node in everyone]
        return RandomScopes(neighbors, self.blocks, n_neighbors=self.n_neighbors, seed=seed)
