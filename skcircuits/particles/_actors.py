"""Blocks of particles on the workers of a Dask cluster, each an actor that keeps its own.

An iteration sends every block its halo and gets back a few numbers and the surface, the
coordinates that other blocks see: between machines goes what lies on the cuts, no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import reverse_cuthill_mckee

from skcircuits.parallel import row_slices
from skcircuits.particles._cloud import (
    BATCH_BYTES,
    Block,
    inner_layout,
    require_finite_scores,
    scores_at,
    variance_change,
)
from skcircuits.particles._fields import Field
from skcircuits.particles._neighborhoods import Bucket, Neighborhoods
from skcircuits.particles._optimizers import Optimizer
from skcircuits.protocols import DifferentiableTarget, FloatArray, IntArray


class DaskCloud:
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
        halos = [local[n:] for (local, _), n in zip(parts, sizes)]
        # Coordinates that somebody else sees, and their values as of the last step.
        surface = np.unique(np.concatenate(halos))
        self._surface = start.T[surface]
        self._halos = [np.searchsorted(surface, halo) for halo in halos]
        shown = [np.flatnonzero(np.isin(moved, surface)) for moved in self._moved]
        self._shown = [
            np.searchsorted(surface, moved[own]) for moved, own in zip(self._moved, shown)
        ]
        self._shape, self._dtype, self._n_moves = start.shape, start.dtype, 0
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

    def measure(self, iteration: int, power: float, is_look: bool) -> tuple[float, float]:
        """Compute velocities; the relative force and, at a look, the discrepancy."""
        futures = [
            actor.measure(iteration, power, is_look, self._surface[halo])
            for actor, halo in zip(self._actors, self._halos)
        ]
        forces, discrepancies = np.array([future.result() for future in futures]).T
        sizes = [moved.size for moved in self._moved]
        return float(np.sqrt(np.average(forces**2, weights=sizes))), float(discrepancies.sum())

    def move(self, step_size: float) -> None:
        """Follow the velocities."""
        self._shift(step_size)

    def keep(self) -> None:
        """Remember where the particles are."""
        self.ask("keep")

    def restore(self) -> None:
        """Go back there, without a memory of the steps since."""
        self._shift(None)

    def snapshot(self) -> DaskSnapshot:
        """Give the particles as they are now, on the workers until they are asked for."""
        return DaskSnapshot(self, self._n_moves)

    def gather(self, n_moves: int) -> FloatArray:
        """Collect the particles as they are after some moves, (n_particles, n_coordinates)."""
        particles = np.empty(self._shape[::-1], dtype=self._dtype)
        for moved, there in zip(self._moved, self.ask("after", n_moves)):
            particles[moved] = there
        particles.flags.writeable = False
        return particles.T

    def _shift(self, step_size: float | None) -> None:
        """Let all blocks move, and learn their surfaces."""
        for places, values in zip(self._shown, self.ask("shift", step_size)):
            self._surface[places] = values
        self._n_moves += 1

    def ask(self, method: str, *arguments: object) -> list[Any]:
        """Call a method of every actor with the same arguments, all at once."""
        futures = [getattr(actor, method)(*arguments) for actor in self._actors]
        return [future.result() for future in futures]


@dataclass(frozen=True)
class DaskSnapshot:
    """Particles that workers keep for one more step."""

    cloud: DaskCloud
    n_moves: int

    @cached_property
    def particles(self) -> FloatArray:
        """All of them, (n_particles, n_coordinates)."""
        return self.cloud.gather(self.n_moves)

    @cached_property
    def variance_change(self) -> float:
        """Largest relative change of a coordinate's variance in the step."""
        return max(self.cloud.ask("variance_change"))


class _Actor(Block):
    """A block with a halo, and what others see of it."""

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
        """Move, or go back without a step size; what others see."""
        if step_size is None:
            self.restore()
        else:
            self.move(step_size)
        self._n_moves += 1
        return self.coordinates[self._shown]

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
    batch = max(1, BATCH_BYTES // point.nbytes)
    for part in row_slices(coordinates.shape[1], batch):
        rows = np.tile(point, (part.stop - part.start, 1))
        rows[:, local] = coordinates[:, part].T
        scores[:, part] = scores_at(target.grad_log_prob, rows)[:, local[:n_moved]].T
    require_finite_scores(scores, coordinates, local)
    return scores


def cut(graph: Neighborhoods, n_blocks: int) -> list[list[Bucket]]:
    """Cut kernels into at most so many blocks of about equal size that see little of each other."""
    scopes = graph.scope_matrix()
    kernels = graph.kernel_of_node[graph.node_of_coordinate]
    moves = sparse.csr_array(
        (np.ones(len(kernels)), (np.arange(len(kernels)), kernels)),
        shape=(len(kernels), graph.n_kernels),
    )
    # Who sees whom; close to each other in this order, so that cuts of it are short.
    order = reverse_cuthill_mckee(sparse.csr_matrix(scopes @ moves))
    block = np.empty(graph.n_kernels, dtype=np.int64)
    block[order] = np.arange(graph.n_kernels) * n_blocks // graph.n_kernels
    found = []
    for number in np.unique(block):
        chosen = [(bucket, block[bucket.kernels] == number) for bucket in graph.buckets]
        found.append([bucket.part(np.flatnonzero(own)) for bucket, own in chosen if own.any()])
    return found
