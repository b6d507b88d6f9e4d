"""What the packages ask of each other's objects: targets, densities and kernels."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Magnitude that a cell may have: products of two differences stay below the largest float.
MAX_CELL = 1e150
# From here on floats skip integers
MAX_INTEGER = 2**53
# Range that the numbers of a column must have if they differ: inverse variances stay floats.
MIN_RANGE = 1e-150


@runtime_checkable
class DiscreteTarget(Protocol):
    """An unnormalised distribution over categorical variables: a target of Stein methods.

    Rows hold codes 0, 1, ... of the states and are complete. Optional attributes:
    ``log_full_conditionals(X)`` (per variable an array of shape (n, n_states), up to a
    constant per row) saves evaluating every row at every state; `BBISWeighter` also reads
    ``state_names`` (per variable the labels of its states) and ``variable_names``. An object
    with ``grad_log_prob`` is taken for a `DifferentiableTarget`; a circuit for the one that
    its variables make it.
    """

    cardinalities: Any  # number of states per variable, shape (d,); of a circuit a dict

    def log_prob_unnormalized(self, X: FloatArray) -> FloatArray:
        """Log of the unnormalised probability of each row, ``-inf`` where impossible."""


@runtime_checkable
class DifferentiableTarget(Protocol):
    """A continuous distribution known through its score function.

    Circuits of Gaussian input units have one, and so have densities fitted with such circuits.
    Optional attributes: ``neighbors`` (per node an index array without the node) and
    ``blocks`` (per node its coordinates; default one coordinate each).
    """

    def grad_log_prob(self, X: FloatArray) -> FloatArray:
        """Gradient of the log density at each row, shape (n, d)."""


@runtime_checkable
class Density(Protocol):
    """A density estimator that `ExpectedPredictionSVR` and `CircuitImputer` learn rows with.

    They clone it, fit the clone and go on with its ``circuit_``; a search over densities has
    that on its ``best_estimator_``. Deriving from ``sklearn.base.BaseEstimator`` gives what
    cloning needs. Where the outer fit has sample weights, `fit` is given ``sample_weight``.

    The columns of the table are the variables 0, 1, ... of the circuit. Numbers are in
    original units, labels are codes: positions among the sorted labels of the column, or
    among the labels that its dtype declares.
    """

    circuit_: Any  # a Circuit over all columns; set by fit

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn from the kind of table that the outer estimator got; return the density."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters by name; a ``random_state`` of None is filled in before fit."""

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of each row, shape (n,): what tells a density from other estimators."""


@runtime_checkable
class Kernel(Protocol):
    """A kernel function of two tables of rows: enough for Stein methods over categories.

    Targets over numbers need a kernel with ``profile`` (`InverseMultiquadric` is one), exact
    expectations one of `skcircuits.kernels`.
    """

    def __call__(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Kernel values of all pairs of rows, shape (n, m)."""
