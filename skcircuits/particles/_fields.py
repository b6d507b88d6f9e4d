"""Velocity fields: where a cloud of particles moves, given its scores.

A field is an object with one method, ``velocity(rows, scores, iteration)``. Kernels add,
and so do their fields: `make_field` assembles what `GraphicalSVGDSampler` calls a kernel.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from skcircuits.exceptions import must
from skcircuits.particles._bandwidths import median_bandwidths
from skcircuits.particles._directions import kernel_direction, linear_direction
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.particles._random_scopes import RandomScopes
from skcircuits.protocols import FloatArray

__all__ = ["Field", "KernelField", "LinearField", "RandomField", "SumField", "make_field"]

# Bandwidths follow the spread of the particles, which changes slowly, and their median
# costs more than an iteration.
ITERATIONS_PER_BANDWIDTH = 10


class Field(Protocol):
    """What every velocity field offers."""

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Give the velocity of every coordinate."""


class KernelField:
    """SVGD with fixed scopes and bandwidths by the median rule."""

    def __init__(
        self,
        neighborhoods: Neighborhoods,
        bandwidth_factor: float = 1.0,
        n_jobs: int | None = None,
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
    """Kernels that see a few neighbours each, drawn anew every iteration."""

    def __init__(
        self,
        scopes: RandomScopes,
        *,
        kernel_weight: float = 1.0,
        linear_weight: float = 0.0,
        bandwidth_factor: float = 1.0,
        n_jobs: int | None = None,
    ) -> None:
        self._scopes = scopes
        self._kernel_weight = kernel_weight
        self._linear_weight = linear_weight
        self._bandwidth_factor = bandwidth_factor
        self._n_jobs = n_jobs

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Compute the direction under the neighbourhoods of this iteration."""
        neighborhoods = self._scopes.draw(iteration)
        bandwidths = median_bandwidths(
            rows, neighborhoods, factor=self._bandwidth_factor, n_jobs=self._n_jobs
        )
        velocity = kernel_direction(rows, scores, neighborhoods, bandwidths, self._n_jobs)
        velocity *= self._kernel_weight
        if self._linear_weight:
            weight = self._linear_weight
            linear_direction(rows, scores, neighborhoods, self._n_jobs, weight=weight, out=velocity)
        return velocity


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
    everything = Neighborhoods.complete(graph.n_coordinates)
    if kernel in ("graphical", "global"):
        seen = graph if kernel == "graphical" else everything
        rbf = KernelField(seen, bandwidth_factor, n_jobs)
        # The linear term keeps to the blanket even where the RBF kernel sees everything: the
        # blanket is where the moments of the target are decided.
        return SumField((1.0, rbf), (linear_weight, LinearField(graph, n_jobs)))
    if kernel not in ("random", "combine") or scopes is None:
        raise ValueError(
            must(
                "kernel",
                "be 'graphical', 'global', or with scopes 'random' or 'combine'",
                kernel=kernel,
                scopes=scopes,
            )
        )
    # The global part sees the joint distribution, the local part keeps the variances.
    local_weight = 1.0 if kernel == "random" else local_weight
    local = RandomField(
        scopes,
        kernel_weight=local_weight,
        linear_weight=linear_weight,
        bandwidth_factor=bandwidth_factor,
        n_jobs=n_jobs,
    )
    return SumField(
        (1.0, local), (1.0 - local_weight, KernelField(everything, bandwidth_factor, n_jobs))
    )
