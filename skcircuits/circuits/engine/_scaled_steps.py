"""Steps of the fast evaluator: each fills some rows of the buffer from other rows.

``values`` is the buffer, units first: shape (n_units, n).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from skcircuits.circuits.inputs import InputLayer
from skcircuits.circuits.inputs._buffer_rows import Rows
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["Block", "Densities", "Lookup", "Products", "Run", "Step", "Sums"]


@dataclass
class Run:
    """The state of one evaluation.

    Parameters
    ----------
    X : ndarray of shape (n, n_columns)
        Rows, NaN for unknown.
    codes : ndarray of shape (n_tables, n)
        Positions in the tables.
    values : ndarray of shape (n_units, n)
        The buffer.

    Attributes
    ----------
    log_scale : ndarray of shape (n,)
        Log of the factor that was taken out of each row.
    """

    X: FloatArray
    codes: IntArray
    values: FloatArray
    log_scale: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.log_scale = np.zeros(len(self.X))


class Step(ABC):
    """One step of the evaluator."""

    @abstractmethod
    def run(self, run: Run) -> None:
        """Write the step's rows of the buffer."""


@dataclass(frozen=True)
class Lookup(Step):
    """Units over a few discrete variables, tabulated.

    Parameters
    ----------
    out : slice
        Rows to write.
    table : ndarray of shape (n_units, n_codes + 1)
        Values at each code.
    number : int
        Which row of codes.
    """

    out: slice
    table: FloatArray
    number: int

    def run(self, run: Run) -> None:
        """Look the units up."""
        # mode="clip" lets NumPy write straight into the buffer
        np.take(self.table, run.codes[self.number], axis=1, out=run.values[self.out], mode="clip")


@dataclass(frozen=True)
class Densities(Step):
    """Continuous input units, divided by the largest of their scope.

    Parameters
    ----------
    out : slice
        Rows to write.
    layer : InputLayer
        The units.
    """

    out: slice
    layer: InputLayer

    def run(self, run: Run) -> None:
        """Evaluate the units and put the largest density of each scope into the scale."""
        run.values[self.out], log_scale = self.layer.scaled_prob(run.X)
        run.log_scale += log_scale


@dataclass(frozen=True)
class Block(Step):
    """Sums that share their children: one matrix product, products fused into it.

    Parameters
    ----------
    out : slice
        Rows to write.
    weights : ndarray of shape (n_sums, n_children)
        Linear weights.
    factors : sequence of slice or ndarray of shape (n_children,)
        Rows of the first, second, ... factor of each child; one entry for plain children.
    """

    out: slice
    weights: FloatArray
    factors: tuple[Rows, ...]

    def run(self, run: Run) -> None:
        """Multiply the factors, then mix."""
        np.matmul(self.weights, _product(run.values, self.factors), out=run.values[self.out])


@dataclass(frozen=True)
class Products(Step):
    """Products with equally many factors.

    Parameters
    ----------
    out : slice
        Rows to write.
    factors : sequence of slice or ndarray of shape (n_products,)
        Rows of the first, second, ... factor.
    """

    out: slice
    factors: tuple[Rows, ...]

    def run(self, run: Run) -> None:
        """Multiply the factors."""
        run.values[self.out] = _product(run.values, self.factors)


@dataclass(frozen=True)
class Sums(Step):
    """Sums of any shape.

    Parameters
    ----------
    out : slice
        Rows to write.
    weights : sparse matrix of shape (n_sums, n_rows_of_buffer)
        Linear weights.
    """

    out: slice
    weights: sparse.csr_matrix

    def run(self, run: Run) -> None:
        """Mix by a sparse matrix product."""
        # Only rows with weights are read: what lies elsewhere in the buffer does not matter.
        run.values[self.out] = self.weights @ run.values


def _product(values: FloatArray, factors: tuple[Rows, ...]) -> FloatArray:
    """Element-wise product of some rows of the buffer."""
    if len(factors) == 1:
        return values[factors[0]]
    # Slices are views: factors that lie together are multiplied without a gather.
    result = values[factors[0]] * values[factors[1]]
    for rows in factors[2:]:
        result *= values[rows]
    return result
