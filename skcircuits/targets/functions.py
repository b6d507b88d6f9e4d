"""Targets from plain functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray
from skcircuits.targets._target import FunctionTarget

__all__ = ["from_function"]

# The cube root of the rounding error, in units of the coordinate: central differences.
STEP = 6e-6


def from_function(
    log_prob: Callable[[FloatArray], ArrayLike],
    grad_log_prob: Callable[[FloatArray], ArrayLike] | None = None,
    *,
    finite_differences: bool = False,
    neighbors: Sequence[ArrayLike] | None = None,
    blocks: Sequence[ArrayLike] | None = None,
) -> FunctionTarget:
    """Make a target of functions of rows.

    Parameters
    ----------
    log_prob : callable
        Log density up to a constant, values of shape (n,) of rows of shape (n, d).
    grad_log_prob : callable, default=None
        Its gradient, (n, d) of (n, d).
    finite_differences : bool, default=False
        Whether central differences of `log_prob` may stand for a gradient that is not given:
        2 d evaluations per row, and about ten correct digits.
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
    ValueError
        If there is neither a gradient nor leave to approximate it.

    Examples
    --------
    >>> from skcircuits.targets import from_function
    >>> target = from_function(lambda X: -0.5 * (X**2).sum(axis=1), lambda X: -X)
    >>> target.grad_log_prob([[1.0, -2.0]])
    array([[-1.,  2.]])
    """
    if grad_log_prob is None:
        if not finite_differences:
            raise ValueError(
                must(
                    "grad_log_prob",
                    "be given",
                    "Set finite_differences=True to approximate it, or use from_jax or from_torch.",
                    grad_log_prob=grad_log_prob,
                )
            )

        def grad_log_prob(X: FloatArray) -> FloatArray:
            return _differences(log_prob, X)

    return FunctionTarget(log_prob, grad_log_prob, neighbors, blocks)


def _differences(log_prob: Callable[[FloatArray], ArrayLike], X: FloatArray) -> FloatArray:
    gradient = np.empty_like(X)
    for j in range(X.shape[1]):
        ahead, behind = X.copy(), X.copy()
        step = STEP * np.maximum(1.0, np.abs(X[:, j]))
        ahead[:, j] += step
        behind[:, j] -= step
        difference = np.asarray(log_prob(ahead)) - np.asarray(log_prob(behind))
        gradient[:, j] = difference / (ahead[:, j] - behind[:, j])
    return gradient
