"""Velocity fields: where a cloud of particles moves, given its scores.

A field is an object with one method, ``velocity(rows, scores, iteration)``. Kernels add,
and so do their fields: `make_field` assembles what `GraphicalSVGDSampler` calls a kernel.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from skcircuits.exceptions import must
from skcircuits.particles.bandwidths import median_bandwidths
from skcircuits.particles.directions import kernel_direction
from skcircuits.particles.linear_term import linear_direction
from skcircuits.particles.neighborhoods import Neighborhoods
from skcircuits.particles.random_scopes import RandomScopes
from skcircuits.particles.threads import ChunkRunner, run_serially
from skcircuits.protocols import FloatArray

__all__ = ["Field", "KernelField", "LinearField", "RandomKernelField", "SumField", "make_field"]

# Bandwidths follow the spread of the particles, which changes slowly, and their median
# costs more than an iteration.
ITERATIONS_PER_BANDWIDTH = 10
# Shares of the local and the global kernel in kernel="combine" (section 4.1 of the paper).
LOCAL_SHARE = 0.5


class Field(Protocol):
    """What every velocity field offers."""

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Give the velocity of every coordinate, shape of ``scores``."""


class KernelField:
    """SVGD with fixed scopes and bandwidths by the median rule.

    Parameters
    ----------
    neighborhoods : Neighborhoods
        Kernels.
    bandwidth_factor : float, default=1.0
        Multiplies the squared median distances.
    run : callable, default=run_serially
        Runs the chunks (`chunk_threads`).
    """

    def __init__(
        self,
        neighborhoods: Neighborhoods,
        bandwidth_factor: float = 1.0,
        run: ChunkRunner = run_serially,
    ) -> None:
        self._neighborhoods = neighborhoods
        self._bandwidth_factor = bandwidth_factor
        self._run = run
        self._bandwidths: FloatArray | None = None

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Compute the direction; every tenth iteration measures the bandwidths again.

        Parameters
        ----------
        rows : ndarray of shape (n_coordinates + 1, n_particles)
            Centred coordinates with a last row of zeros.
        scores : ndarray of shape (n_coordinates, n_particles)
            Score of the target.
        iteration : int
            Number of the iteration, from 0.

        Returns
        -------
        ndarray of shape (n_coordinates, n_particles)
            Velocity.
        """
        if self._bandwidths is None or iteration % ITERATIONS_PER_BANDWIDTH == 0:
            self._bandwidths = median_bandwidths(
                rows, self._neighborhoods, factor=self._bandwidth_factor, run=self._run
            )
        return kernel_direction(rows, scores, self._neighborhoods, self._bandwidths, self._run)


class RandomKernelField:
    """SVGD whose kernels see a few neighbours each, drawn anew every iteration.

    Parameters
    ----------
    scopes : RandomScopes
        Draws the neighbourhoods.
    bandwidth_factor : float, default=1.0
        Multiplies the squared median distances.
    run : callable, default=run_serially
        Runs the chunks (`chunk_threads`).
    """

    def __init__(
        self,
        scopes: RandomScopes,
        bandwidth_factor: float = 1.0,
        run: ChunkRunner = run_serially,
    ) -> None:
        self._scopes = scopes
        self._bandwidth_factor = bandwidth_factor
        self._run = run

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Compute the direction under the neighbourhoods of this iteration.

        Parameters
        ----------
        rows : ndarray of shape (n_coordinates + 1, n_particles)
            Centred coordinates with a last row of zeros.
        scores : ndarray of shape (n_coordinates, n_particles)
            Score of the target.
        iteration : int
            Number of the iteration; keys the draw.

        Returns
        -------
        ndarray of shape (n_coordinates, n_particles)
            Velocity.
        """
        neighborhoods = self._scopes.draw(iteration)
        bandwidths = median_bandwidths(
            rows, neighborhoods, factor=self._bandwidth_factor, run=self._run
        )
        return kernel_direction(rows, scores, neighborhoods, bandwidths, self._run)


class LinearField:
    """The linear kernel on the blanket.

    Parameters
    ----------
    neighborhoods : Neighborhoods
        Scopes.
    run : callable, default=run_serially
        Runs the chunks (`chunk_threads`).
    """

    def __init__(self, neighborhoods: Neighborhoods, run: ChunkRunner = run_serially) -> None:
        self._neighborhoods = neighborhoods
        self._run = run

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Compute the direction of the linear kernel.

        Parameters
        ----------
        rows : ndarray of shape (n_coordinates + 1, n_particles)
            Centred coordinates with a last row of zeros.
        scores : ndarray of shape (n_coordinates, n_particles)
            Score of the target.
        iteration : int
            Not used.

        Returns
        -------
        ndarray of shape (n_coordinates, n_particles)
            Velocity.
        """
        return linear_direction(rows, scores, self._neighborhoods, self._run)


class SumField:
    """A weighted sum of fields.

    Parameters
    ----------
    terms : sequence of (float, Field)
        Weights and fields.
    """

    def __init__(self, *terms: tuple[float, Field]) -> None:
        self._terms = terms

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Add up the velocities.

        Parameters
        ----------
        rows : ndarray of shape (n_coordinates + 1, n_particles)
            Centred coordinates with a last row of zeros.
        scores : ndarray of shape (n_coordinates, n_particles)
            Score of the target.
        iteration : int
            Number of the iteration, from 0.

        Returns
        -------
        ndarray of shape (n_coordinates, n_particles)
            Velocity.
        """
        total = np.zeros_like(scores)
        for weight, field in self._terms:
            total += weight * field.velocity(rows, scores, iteration)
        return total


def make_field(
    kernel: str,
    graph: Neighborhoods,
    scopes: RandomScopes | None = None,
    *,
    bandwidth_factor: float = 1.0,
    linear_weight: float = 0.0,
    run: ChunkRunner = run_serially,
) -> Field:
    """Assemble the velocity field of a kernel.

    Parameters
    ----------
    kernel : {"graphical", "global", "random", "combine"}
        RBF kernels over the blankets, one over everything, over a few random
        neighbours, or half random and half global.
    graph : Neighborhoods
        The closed neighbourhoods of the target.
    scopes : RandomScopes, default=None
        Draws neighbourhoods; "random" and "combine" need it.
    bandwidth_factor : float, default=1.0
        Multiplies the squared median distances.
    linear_weight : float, default=0.0
        Weight of the linear kernel on the blankets; 0 leaves it out.
    run : callable, default=run_serially
        Runs the chunks (`chunk_threads`).

    Returns
    -------
    Field
        The sum of all terms.

    Raises
    ------
    ValueError
        If there is no such kernel, or it needs `scopes`.
    """
    terms: list[tuple[float, Field]]
    if kernel == "graphical":
        terms = [(1.0, KernelField(graph, bandwidth_factor, run))]
    elif kernel == "global":
        everything = Neighborhoods.complete(graph.n_coordinates)
        terms = [(1.0, KernelField(everything, bandwidth_factor, run))]
    elif kernel == "random" and scopes is not None:
        terms = [(1.0, RandomKernelField(scopes, bandwidth_factor, run))]
    elif kernel == "combine" and scopes is not None:
        # The global half sees the joint distribution, the local half keeps the variances.
        everything = Neighborhoods.complete(graph.n_coordinates)
        terms = [
            (LOCAL_SHARE, RandomKernelField(scopes, bandwidth_factor, run)),
            (1.0 - LOCAL_SHARE, KernelField(everything, bandwidth_factor, run)),
        ]
    else:
        raise ValueError(
            must(
                "kernel",
                "be 'graphical', 'global', or with scopes 'random' or 'combine'",
                kernel=kernel,
                scopes=scopes,
            )
        )
    # The linear term keeps to the blanket whatever the RBF kernels see: its product is
    # cheap, and the blanket is where the moments of the target are decided.
    if linear_weight:
        terms.append((linear_weight, LinearField(graph, run)))
    return SumField(*terms)
