"""Targets from log densities in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import ArrayLike

from skcircuits.protocols import FloatArray
from skcircuits.targets._target import FunctionTarget, import_extra

__all__ = ["from_torch"]


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
