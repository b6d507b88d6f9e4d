"""What is known about rows, and the interface of input layers under that knowledge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits.inputs.base import Box, InputLayer
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import Rows
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Evidence:
    """Observed cells `X`, shape (n, n_columns), NaN where free, and a box for the free ones.

    Observed cells count by their density, boxes by their probability.
    """

    X: FloatArray
    box: Box

    def __len__(self) -> int:
        """Count the rows."""
        return len(self.X)

    def rows(self, rows: Rows) -> Evidence:
        """What is known about some rows."""
        return Evidence(self.X[rows], self.box.rows(rows))

    def outside(self, variables: IntArray) -> BoolArray:
        """Where an observed cell of some variables lies outside its interval, (n_variables, n)."""
        cells = self.X.T[variables]
        # Comparisons with NaN are false: free cells and open sides exclude nothing
        below, above = self.box.lower.T[variables], self.box.upper.T[variables]
        found: BoolArray = (cells < below) | (cells > above)
        return found

    def bounds(self, variable: int) -> tuple[FloatArray, FloatArray]:
        """Bounds of a variable where it is free, infinite where open, both of shape (n,)."""
        is_free = np.isnan(self.X[:, variable])
        lower, upper = self.box.lower[:, variable], self.box.upper[:, variable]
        lower = np.where(is_free & ~np.isnan(lower), lower, -np.inf)
        return lower, np.where(is_free & ~np.isnan(upper), upper, np.inf)


class Feature(NamedTuple):
    """A function of one variable: its value, or one number per state of a discrete variable."""

    variable: int
    values: FloatArray | None = None


class RestrictedLayer(ABC):
    """The units of a layer given what is known about each row.

    Values of all units at all rows have shape (n_units, n).
    """

    layer: Any

    @abstractmethod
    def log_mass(self) -> FloatArray:
        """Log density of the observed cells times the probability of the box, (n_units, n)."""

    @abstractmethod
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each cell under each unit, (n_units, n, scope_size)."""

    @abstractmethod
    def feature_moments(self, row: int, features: list[Feature]) -> tuple[FloatArray, FloatArray]:
        """Means (n_units, F) and covariances (n_units, F, F) of features in one row.

        Zero for features of variables that a unit does not see.
        """

    @abstractmethod
    def draw(self, units: IntArray, rows: IntArray, rng: RandomNumbers) -> FloatArray:
        """Draw the cells of the units' scopes, shape (m, scope_size), for pairs (m,)."""

    @abstractmethod
    def log_max(self) -> FloatArray:
        """Log density at the best point of each row's box, (n_units, n)."""

    @abstractmethod
    def mode(self, units: IntArray, rows: IntArray) -> FloatArray:
        """That point, shape (m, scope_size), for pairs of a unit and a row."""


@singledispatch
def restrict(layer: InputLayer, evidence: Evidence) -> RestrictedLayer:
    """Restrict a layer; each family registers what it can do."""
    raise CircuitPropertyError(
        must(
            "input units",
            "be of a family that can be restricted to intervals and sets",
            "Condition on observed cells, or ask for probabilities alone.",
            family=type(layer).__name__,
        )
    )
