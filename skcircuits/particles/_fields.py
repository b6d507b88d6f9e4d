"""Velocity fields: the directions in which particles move, given their scores.

A field is an object with one method, ``velocity(rows, scores, iteration)``. Sums of kernels give
sums of fields: `make_field` assembles the `kernel` of `GraphicalSVGDSampler`. Random scopes are
those of Wang, Zeng and Liu, ICML 2018, section 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.particles._neighborhoods import Neighborhoods, index_lists
from skcircuits.particles.directions import kernel_direction, linear_direction, median_bandwidths
from skcircuits.protocols import FloatArray, IntArray

# Bandwidths follow the spread of the particles, which changes slowly, and their median
# costs more than an iteration.
ITERATIONS_PER_BANDWIDTH = 10


class Field(Protocol):
    """Interface of velocity fields."""

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Give the velocity of every coordinate."""


class KernelField:
    """SVGD with fixed scopes and bandwidths by the median rule."""

    def __init__(
        self, neighborhoods: Neighborhoods, bandwidth_factor: float = 1.0, n_jobs: int | None = None
    ) -> None:
        self._neighborhoods = neighborhoods
        self._bandwidth_factor = bandwidth_factor
        self._n_jobs = n_jobs
        self._bandwidths: FloatArray | None = None

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Compute the direction; every tenth iteration measures the bandwidths again."""
        if self._bandwidths is None or iteration % ITERATIONS_PER_BANDWIDTH == 0:
            self._bandwidths = median_bandwidths(
                rows, self._neighborhoods, factor=self._bandwidth_factor, n_jobs=self._n_jobs
            )
        return kernel_direction(rows, scores, self._neighborhoods, self._bandwidths, self._n_jobs)


class RandomField:
    """Kernels over a few random neighbours each, drawn anew in every iteration."""

    def __init__(self, scopes: RandomScopes, field_over: Callable[[Neighborhoods], Field]) -> None:
        self._scopes = scopes
        self._field_over = field_over

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Compute the direction under the neighbourhoods of this iteration."""
        field = self._field_over(self._scopes.draw(iteration))
        return field.velocity(rows, scores, iteration)


class LinearField:
    """The linear kernel on the blanket."""

    def __init__(self, neighborhoods: Neighborhoods, n_jobs: int | None = None) -> None:
        self._neighborhoods = neighborhoods
        self._n_jobs = n_jobs

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Compute the direction of the linear kernel."""
        return linear_direction(rows, scores, self._neighborhoods, self._n_jobs)

    def add_velocity(
        self, rows: FloatArray, scores: FloatArray, weight: float, out: FloatArray
    ) -> None:
        """Add the direction to another, without an array of its own."""
        linear_direction(rows, scores, self._neighborhoods, self._n_jobs, weight=weight, out=out)


class SumField:
    """A weighted sum of fields; those of weight zero cost nothing."""

    def __init__(self, *terms: tuple[float, Field]) -> None:
        self._terms = terms

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Add up the velocities."""
        total: FloatArray | None = None
        for weight, field in self._terms:
            if not weight:
                continue
            if total is None:
                total = field.velocity(rows, scores, iteration)
                total *= weight
            elif isinstance(field, LinearField):
                field.add_velocity(rows, scores, weight, total)
            else:
                total += weight * field.velocity(rows, scores, iteration)
        return np.zeros_like(scores) if total is None else total


def make_field(
    kernel: str,
    graph: Neighborhoods,
    scopes: RandomScopes | None = None,
    *,
    bandwidth_factor: float = 1.0,
    linear_weight: float = 0.0,
    local_weight: float = 0.5,
    n_jobs: int | None = None,
) -> Field:
    """Assemble the velocity field of a kernel."""

    def rbf_and_linear(
        seen: Neighborhoods, blanket: Neighborhoods | None = None, weight: float = 1.0
    ) -> Field:
        return SumField(
            (weight, KernelField(seen, bandwidth_factor, n_jobs)),
            (linear_weight, LinearField(seen if blanket is None else blanket, n_jobs)),
        )

    everything = Neighborhoods.complete(graph.n_coordinates)
    # The linear term keeps to the blanket even where the RBF kernel sees everything: the blanket
    # is where the moments of the target are decided.
    if kernel in ("graphical", "global"):
        return rbf_and_linear(graph if kernel == "graphical" else everything, graph)
    if kernel not in ("random", "combine") or scopes is None:
        condition = "be 'graphical', 'global', or with scopes 'random' or 'combine'"
        raise ValueError(must("kernel", condition, kernel=kernel, scopes=scopes))
    # The global part sees the joint distribution, the local part keeps the variances.
    local_weight = 1.0 if kernel == "random" else local_weight
    local = RandomField(scopes, partial(rbf_and_linear, weight=local_weight))
    remaining = KernelField(everything, bandwidth_factor, n_jobs)
    return SumField((1.0, local), (1.0 - local_weight, remaining))


class RandomScopes:
    """Draws D_i, node i and at most ``n_neighbors - 1`` others of its blanket.

    A draw is determined by the seed and the iteration and covers all nodes, so that it does not
    depend on the worker that computes a node.
    """

    def __init__(
        self,
        neighbors: Sequence[ArrayLike],
        blocks: Sequence[ArrayLike] | None = None,
        *,
        n_neighbors: int = 5,
        seed: int = 0,
    ) -> None:
        lists = index_lists(neighbors, "neighbors")
        sizes = np.array([indices.size for indices in lists])
        self._exists = np.arange(sizes.max(initial=0)) < sizes[:, None]
        self._neighbors = np.zeros(self._exists.shape, dtype=np.int64)
        self._neighbors[self._exists] = np.concatenate(lists)
        self._n_others = min(n_neighbors - 1, self._exists.shape[1])
        self._seed = seed
        self._alone = Neighborhoods.from_scopes([[]] * len(lists), blocks, merge=False)
        self._blocks = _padded_blocks(self._alone)

    def draw(self, iteration: int) -> Neighborhoods:
        """Draw the neighbourhoods of one iteration."""
        # The nodes with the smallest random keys are a uniform choice without replacement.
        rng = np.random.default_rng((self._seed, iteration))
        keys = np.where(self._exists, rng.random(self._exists.shape), np.inf)
        order = np.argpartition(keys, self._n_others - 1, axis=1) if self._n_others else keys[:, :0]
        chosen = order[:, : self._n_others].astype(np.int64)
        # A node with fewer neighbours keeps all of them; the missing ones are represented by an
        # additional node, whose block is padding.
        n_nodes = len(keys)
        others = np.where(
            np.take_along_axis(self._exists, chosen, axis=1),
            np.take_along_axis(self._neighbors, chosen, axis=1),
            n_nodes,
        )
        nodes = np.concatenate([np.arange(n_nodes)[:, None], others], axis=1)
        # Equal draws are rare, and searching for them costs more than computing them twice.
        return self._alone.with_scopes(self._blocks[nodes].reshape(n_nodes, -1))


def _padded_blocks(alone: Neighborhoods) -> IntArray:
    """Give the coordinates of each node, padded, and one more row of padding."""
    largest = max(bucket.owned.shape[1] for bucket in alone.buckets)
    blocks = np.full((alone.n_nodes + 1, largest), alone.n_coordinates)
    for bucket in alone.buckets:
        blocks[bucket.kernels, : bucket.owned.shape[1]] = bucket.owned
    return blocks
