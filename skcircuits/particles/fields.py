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

__all__ = ["Field", "KernelField", "LinearField", "RandomField", "SumField", "make_field"]

# Bandwidths follow the spread of the particles, which changes slowly, and their median
# costs more than an iteration.
ITERATIONS_PER_BANDWIDTH = 10
# Shares of the local and the global kernel in kernel="combine" (section 4.1 of the paper).
LOCAL_SHARE = 0.5


class Field(Protocol):
    """What every velocity field offers.

    Examples
    --------
    A field of one's own for `svgd_steps`; without repulsion all particles end in the mode:

    >>> import numpy as np
    >>> from skcircuits.particles import GradientAscent, StepSchedule, svgd_steps
    >>> class Attraction:
    ...     def velocity(self, rows, scores, iteration):
    ...         return scores
    >>> steps = svgd_steps(np.array([[0.0], [9.0]]), lambda x: 3.0 - x, Attraction(),
    ...                    GradientAscent(), StepSchedule(step_size=0.5, max_iter=50))
    >>> *_, last = steps
    >>> last.particles.round(3)
    array([[3.],
           [3.]])
    """

    def velocity(self, rows: FloatArray, scores: FloatArray, iteration: int) -> FloatArray:
        """Give the velocity of every coordinate.

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

    Examples
    --------
    Particles that lie too close for a standard normal target move apart:

    >>> import numpy as np
    >>> from skcircuits.particles import KernelField, Neighborhoods
    >>> field = KernelField(Neighborhoods.complete(1))
    >>> x = np.array([[-0.1, 0.1]])
    >>> field.velocity(np.vstack([x, [0.0, 0.0]]), -x, 0).round(2)
    array([[-1.81,  1.81]])
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


class RandomField:
    """Kernels that see a few neighbours each, drawn anew every iteration.

    Parameters
    ----------
    scopes : RandomScopes
        Draws the neighbourhoods.
    kernel_weight : float, default=1.0
        Weight of the RBF kernels.
    linear_weight : float, default=0.0
        Weight of the linear kernels over the same neighbourhoods.
    bandwidth_factor : float, default=1.0
        Multiplies the squared median distances.
    run : callable, default=run_serially
        Runs the chunks (`chunk_threads`).

    Examples
    --------
    Iterations see other neighbours, equal iterations the same:

    >>> import numpy as np
    >>> from skcircuits.particles import RandomField, RandomScopes
    >>> everyone = [[j for j in range(6) if j != i] for i in range(6)]
    >>> field = RandomField(RandomScopes(everyone, n_neighbors=2))
    >>> x = np.random.default_rng(0).normal(size=(6, 10))
    >>> rows = np.vstack([x - x.mean(axis=1, keepdims=True), np.zeros(10)])
    >>> first, again, next_one = (field.velocity(rows, -x, i) for i in (0, 0, 1))
    >>> bool((first == again).all()), bool((first == next_one).all())
    (True, False)
    """

    def __init__(
        self,
        scopes: RandomScopes,
        *,
        kernel_weight: float = 1.0,
        linear_weight: float = 0.0,
        bandwidth_factor: float = 1.0,
        run: ChunkRunner = run_serially,
    ) -> None:
        self._scopes = scopes
        self._kernel_weight = kernel_weight
        self._linear_weight = linear_weight
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
        velocity = kernel_direction(rows, scores, neighborhoods, bandwidths, self._run)
        velocity *= self._kernel_weight
        if self._linear_weight:
            linear = linear_direction(rows, scores, neighborhoods, self._run)
            velocity += self._linear_weight * linear
        return velocity


class LinearField:
    """The linear kernel on the blanket.

    Parameters
    ----------
    neighborhoods : Neighborhoods
        Scopes.
    run : callable, default=run_serially
        Runs the chunks (`chunk_threads`).

    Examples
    --------
    It rests where mean and variance are those of the target, here a standard normal:

    >>> import numpy as np
    >>> from skcircuits.particles import LinearField, Neighborhoods
    >>> field = LinearField(Neighborhoods.complete(1))
    >>> x = np.array([[-1.0, 1.0]])
    >>> field.velocity(np.vstack([x, [0.0, 0.0]]), -x, 0)
    array([[0., 0.]])
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
    """A weighted sum of fields; those of weight zero cost nothing.

    Parameters
    ----------
    *terms : tuple of (float, Field)
        Weights and fields.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import KernelField, LinearField, Neighborhoods, SumField
    >>> kernels = Neighborhoods.complete(1)
    >>> rbf, linear = KernelField(kernels), LinearField(kernels)
    >>> x = np.array([[-0.5, 0.5]])
    >>> rows = np.vstack([x, [0.0, 0.0]])
    >>> parts = [field.velocity(rows, -x, 0) for field in (rbf, linear)]
    >>> total = SumField((1.0, rbf), (0.2, linear)).velocity(rows, -x, 0)
    >>> np.allclose(total, parts[0] + 0.2 * parts[1])
    True
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
            if weight:
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
        Weight of the linear kernel, on the blankets or the random neighbourhoods; 0 leaves
        it out.
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

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import (
    ...     Neighborhoods, StepSchedule, make_field, make_optimizer, svgd_steps)
    >>> chain = Neighborhoods.from_graph([[1], [0, 2], [1]])
    >>> field = make_field("graphical", chain, linear_weight=1.0)
    >>> start = np.random.default_rng(0).normal(5.0, 0.1, size=(20, 3))
    >>> steps = svgd_steps(start, lambda x: -x, field, make_optimizer("rmsprop"), StepSchedule())
    >>> *_, last = steps
    >>> np.allclose(last.particles.mean(axis=0), 0.0, atol=0.01)
    True
    """
    everything = Neighborhoods.complete(graph.n_coordinates)
    if kernel in ("graphical", "global"):
        seen = graph if kernel == "graphical" else everything
        rbf = KernelField(seen, bandwidth_factor, run)
        # The linear term keeps to the blanket even where the RBF kernel sees everything: the
        # blanket is where the moments of the target are decided.
        return SumField((1.0, rbf), (linear_weight, LinearField(graph, run)))
    if kernel not in ("random", "combine") or scopes is None:
        raise ValueError(
            must(
                "kernel",
                "be 'graphical', 'global', or with scopes 'random' or 'combine'",
                kernel=kernel,
                scopes=scopes,
            )
        )
    # The global half sees the joint distribution, the local half keeps the variances.
    share = 1.0 if kernel == "random" else LOCAL_SHARE
    local = RandomField(
        scopes,
        kernel_weight=share,
        linear_weight=linear_weight,
        bandwidth_factor=bandwidth_factor,
        run=run,
    )
    return SumField((1.0, local), (1.0 - share, KernelField(everything, bandwidth_factor, run)))
