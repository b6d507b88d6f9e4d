"""What the packages ask of each other's objects: targets, densities and kernels."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "LARGEST_CELL",
    "BoolArray",
    "Density",
    "DifferentiableTarget",
    "DiscreteTarget",
    "FloatArray",
    "IntArray",
    "Kernel",
]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Magnitude that a cell may have: products of two differences stay below the largest float.
LARGEST_CELL = 1e150


@runtime_checkable
class DiscreteTarget(Protocol):
    """An unnormalised distribution over categorical variables.

    A graph may be known: then ``neighbors`` holds, per variable, the indices of the
    variables in its Markov blanket (without itself).
    """

    cardinalities: Any  # number of states per variable

    def log_prob_unnormalized(self, X: FloatArray) -> FloatArray:
        """Log of the unnormalised probability of each row, shape (n,)."""


@runtime_checkable
class DifferentiableTarget(Protocol):
    """A continuous distribution known through its score function.

    Optional attributes: ``neighbors`` (per node an index array without the node) and
    ``blocks`` (per node its coordinates; default one coordinate each).
    """

    def grad_log_prob(self, X: FloatArray) -> FloatArray:
        """Gradient of the log density at each row, shape (n, d)."""


@runtime_checkable
class Density(Protocol):
    """A fitted density: what estimators need of one another."""

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of each row, NaN cells marginalised, shape (n,)."""


@runtime_checkable
class Kernel(Protocol):
    """A kernel function of two tables of rows."""

    def __call__(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Kernel values of all pairs of rows, shape (n, m)."""
