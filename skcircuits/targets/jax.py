"""Targets from log densities in JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.protocols import FloatArray
from skcircuits.targets._target import FunctionTarget, import_extra

__all__ = ["from_jax"]


def from_jax(
    log_density: Callable[[Any], Any],
    *,
    neighbors: Sequence[ArrayLike] | None = None,
    blocks: Sequence[ArrayLike] | None = None,
) -> FunctionTarget:
    """Make a target of a log density in JAX.

    It is differentiated, batched over rows and compiled once per number of rows, in double
    precision whatever the configuration of JAX.

    Parameters
    ----------
    log_density : callable
        Log density of one point up to a constant, a scalar of an array of shape (d,).
    neighbors : sequence of array-like of int, default=None
        Markov blanket of each node.
    blocks : sequence of array-like of int, default=None
        Coordinates of each node; one each by default.

    Returns
    -------
    target : object
        With ``log_prob_unnormalized(X)``, ``grad_log_prob(X)``, ``neighbors`` and ``blocks``.

    Raises
    ------
    ImportError
        If JAX is not installed.

    Examples
    --------
    >>> from skcircuits import GraphicalSVGDSampler
    >>> from skcircuits.targets import from_jax
    >>> target = from_jax(lambda x: -0.5 * (x**2).sum())  # doctest: +SKIP
    >>> GraphicalSVGDSampler(target=target).fit(start)  # doctest: +SKIP
    """
    try:
        import jax
    except ImportError as error:
        raise import_extra("jax", "jax") from error

    def in_double_precision(function: Callable[[Any], Any]) -> Callable[[FloatArray], FloatArray]:
        batched = jax.jit(jax.vmap(function))

        def evaluate(X: FloatArray) -> FloatArray:
            with jax.enable_x64(True):
                return np.asarray(batched(jax.numpy.asarray(X, dtype=np.float64)))

        return evaluate

    return FunctionTarget(
        in_double_precision(log_density),
        in_double_precision(jax.grad(log_density)),
        neighbors,
        blocks,
    )
