"""Protocols between packages: targets, densities and kernels."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Magnitude that a cell may have: products of two differences stay below the largest float.
MAX_CELL = 1e150
# Nothing of an exponential tail is left so many scales away
MAX_SCALES = 1e3
# From here on floats skip integers
MAX_INTEGER = 2**53
# Range that the numbers of a column must have if they differ: inverse variances stay floats.
MIN_RANGE = 1e-150


class ImmutableMixin:
    """Mixin of objects that never change, of which a clone is the object itself."""

    def __sklearn_clone__(self) -> Self:
        """Return the object itself."""
        return self


class WithoutCaches:
    """Mixin of objects whose cached properties are not pickled: a pickle, and a hash of it, depends
    on what an object is, not on what it has been asked.
    """

    def __getstate__(self) -> dict[str, object]:
        """Omit caches, which are recomputed after unpickling."""
        own = type(self)
        return {
            name: value
            for name, value in vars(self).items()
            if not isinstance(getattr(own, name, None), cached_property)
        }


@runtime_checkable
class DiscreteTarget(Protocol):
    """An unnormalised distribution over categorical variables, as a target of Stein methods.

    Rows are complete and hold the codes 0, 1, ... of the states. With the optional method
    ``log_full_conditionals(X)`` (for each variable, an array of shape (n, n_states), up to a
    constant per row), rows need not be evaluated at every state. `BBISWeighter` also uses the
    attributes ``state_names`` (for each variable, the names of its states) and ``variable_names``.
    An object with ``grad_log_prob`` is treated as a `DifferentiableTarget`. A circuit is treated as
    the type of target that its variables determine.
    """

    cardinalities: Any  # number of states per variable, shape (d,); of a circuit a dict

    def log_prob_unnormalized(self, X: FloatArray) -> FloatArray:
        """Compute the log of the unnormalised probability of each row (it may be ``-inf``)."""


@runtime_checkable
class DifferentiableTarget(Protocol):
    """A continuous distribution that is given by its score function.

    Circuits with Gaussian input units have a score function, and so have densities with such
    circuits. Optional attributes are ``neighbors`` (for each node, an index array without the node)
    and ``blocks`` (for each node, its coordinates; by default one coordinate each).
    """

    def grad_log_prob(self, X: FloatArray) -> FloatArray:
        """Compute the gradient of the log density at each row, shape (n, d)."""


@runtime_checkable
class Density(Protocol):
    """A density estimator for `ExpectedPredictionSVR` and `CircuitImputer`.

    These estimators fit a clone of the density and use its ``circuit_`` (for a search over
    densities, that of its ``best_estimator_``). A density that derives from
    ``sklearn.base.BaseEstimator`` can be cloned. If the outer estimator is fitted with sample
    weights, they are passed to `fit` as ``sample_weight``.

    The columns of the table are the variables 0, 1, ... of the circuit. Numerical columns are in
    original units. Categories are represented by codes, which are their indices among the sorted
    categories of the column, or among the categories of its dtype.
    """

    circuit_: Any  # a Circuit over all columns; set by fit

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn from the table that was passed to the outer estimator; return the density."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get parameters by name; a ``random_state`` of None is set before `fit`."""

    def score_samples(self, X: Any) -> FloatArray:
        """Compute the log density of each row, shape (n,); this identifies density estimators."""


@runtime_checkable
class Kernel(Protocol):
    """A kernel function of two tables of rows, for Stein methods over categorical variables.

    Continuous targets need a kernel with ``profile``, such as `InverseMultiquadric`. Exact
    expectations need a kernel of `skcircuits.kernels`.
    """

    def __call__(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Kernel values of all pairs of rows, shape (n, m)."""
