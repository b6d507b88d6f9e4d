"""Targets from log densities: functions of NumPy, JAX or PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray
from skcircuits.targets._target import FunctionTarget, import_extra

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
    neighbors, blocks : sequence of array-like of int, default=None
        As in `from_function`.

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


def from_torch(
    log_density: Callable[[Any], Any],
    *,
    neighbors: Sequence[ArrayLike] | None = None,
    blocks: Sequence[ArrayLike] | None = None,
) -> FunctionTarget:
    """Make a target of a log density in PyTorch.

    Parameters
    ----------
    log_density : callable
        Log densities of rows up to a constant: a tensor of shape (n,) of a tensor of shape
        (n, d) in double precision, each value depending on its own row alone.
    neighbors, blocks : sequence of array-like of int, default=None
        As in `from_function`.

    Returns
    -------
    target : object
        With ``log_prob_unnormalized(X)``, ``grad_log_prob(X)``, ``neighbors`` and ``blocks``.

    Raises
    ------
    ImportError
        If PyTorch is not installed.

    Examples
    --------
    >>> from skcircuits.targets import from_torch
    >>> target = from_torch(lambda x: -0.5 * (x**2).sum(dim=1))  # doctest: +SKIP
    """
    try:
        import torch
    except ImportError as error:
        raise import_extra("torch", "torch") from error

    def log_prob(X: FloatArray) -> FloatArray:
        with torch.no_grad():
            return log_density(torch.as_tensor(X)).numpy()

    def grad_log_prob(X: FloatArray) -> FloatArray:
        rows = torch.tensor(X, requires_grad=True)
        # The sum over rows has the gradient of each row in that row.
        (gradient,) = torch.autograd.grad(log_density(rows).sum(), rows)
        return gradient.numpy()

    return FunctionTarget(log_prob, grad_log_prob, neighbors, blocks)
