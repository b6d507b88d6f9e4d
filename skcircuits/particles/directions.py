"""The direction in which Stein variational gradient descent moves the particles."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.particles._directions import kernel_direction
from skcircuits.particles._kernel_sums import centred_rows
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.protocols import FloatArray

__all__ = ["svgd_direction"]


def svgd_direction(
    particles: ArrayLike,
    grad_log_prob: ArrayLike | Callable[[FloatArray], FloatArray],
    neighborhoods: Neighborhoods | Sequence[ArrayLike],
    bandwidths: ArrayLike,
) -> FloatArray:
    """Compute the graphical SVGD direction of every particle.

    Parameters
    ----------
    particles : array-like of shape (n_particles, n_coordinates)
        Current particles.
    grad_log_prob : array-like of shape (n_particles, n_coordinates) or callable
        Score of the target at the particles, or the function that gives it.
    neighborhoods : Neighborhoods or sequence of n_coordinates array-likes of int
        The coordinates that the kernel of each coordinate sees (itself included or not).
    bandwidths : float or array-like of shape (n_nodes,)
        h_i in ``exp(-|x_C - y_C|²/h_i)``, one per node.

    Returns
    -------
    ndarray of shape (n_particles, n_coordinates)
        φ, in the precision of the particles.

    Raises
    ------
    ValueError
        If shapes disagree or a bandwidth is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.particles import svgd_direction
    >>> x = np.array([[-1.0, 0.0], [1.0, 0.5]])
    >>> svgd_direction(x, lambda x: -x, [[0], [1]], 2.0).round(3)
    array([[ 0.297, -0.441],
           [-0.297, -0.029]])
    """
    rows = np.ascontiguousarray(_as_float(particles).T)
    scores = grad_log_prob(rows.T) if callable(grad_log_prob) else grad_log_prob
    scores = np.ascontiguousarray(np.asarray(scores, dtype=rows.dtype).T)
    if scores.shape != rows.shape:
        raise ValueError(
            must("grad_log_prob", "have the shape of the particles", shape=scores.T.shape)
        )
    neighborhoods, bandwidths = _resolve_kernels(neighborhoods, bandwidths)
    if neighborhoods.n_coordinates != len(rows):
        raise ValueError(
            must("neighborhoods", "cover every coordinate", covered=neighborhoods.n_coordinates)
        )
    return kernel_direction(centred_rows(rows), scores, neighborhoods, bandwidths).T


def _as_float(values: ArrayLike) -> FloatArray:
    """Keep float32, turn everything else into float64."""
    array = np.asarray(values)
    array = array if array.dtype == np.float32 else array.astype(np.float64)
    if array.ndim != 2 or array.shape[0] == 0:
        raise ValueError(must("particles", "be a table with at least one row", shape=array.shape))
    return array


def _resolve_kernels(
    neighborhoods: Neighborhoods | Sequence[ArrayLike], bandwidths: ArrayLike
) -> tuple[Neighborhoods, FloatArray]:
    """Build kernels where plain index lists came, and give one bandwidth per kernel."""
    bandwidths = np.asarray(bandwidths, dtype=np.float64)
    if not (np.all(bandwidths > 0) and np.all(np.isfinite(bandwidths))):
        raise ValueError(must("bandwidths", "be positive and finite", bandwidths=bandwidths))
    if not isinstance(neighborhoods, Neighborhoods):
        # Nodes may share a kernel only where they also have the same bandwidth.
        neighborhoods = Neighborhoods.from_scopes(neighborhoods, merge=bandwidths.ndim == 0)
    per_node = np.broadcast_to(bandwidths, (neighborhoods.n_nodes,))
    # Of nodes that share a kernel the last one counts; the check below asks for agreement.
    per_kernel = np.empty(neighborhoods.n_kernels)
    per_kernel[neighborhoods.kernel_of_node] = per_node
    if np.any(per_kernel[neighborhoods.kernel_of_node] != per_node):
        raise ValueError(
            must("bandwidths", "be equal for nodes that share a kernel", "Build with merge=False.")
        )
    return neighborhoods, per_kernel
