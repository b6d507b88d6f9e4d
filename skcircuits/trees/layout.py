"""Where the states of discrete variables and their pairs lie in flat arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["PairGroup", "StateLayout"]


@dataclass(frozen=True, eq=False)
class PairGroup:
    """All pairs of variables whose tables have one shape.

    Attributes
    ----------
    first, second : ndarray of shape (n_pairs,)
        The two variables of each pair; ``first`` has at least as many states.
    rows : ndarray of shape (n_pairs, n_first_states, 1)
        Flat states of the first variable, ready to index a square matrix.
    columns : ndarray of shape (n_pairs, 1, n_second_states)
        Flat states of the second variable.
    """

    first: IntArray
    second: IntArray
    rows: IntArray
    columns: IntArray

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape (n_pairs, n_first_states, n_second_states) of the tables."""
        return len(self.first), self.rows.shape[1], self.columns.shape[2]


class StateLayout:
    """Flat numbering of the states of all variables.

    State ``a`` of variable ``j`` has the flat number ``offsets[j] + a``, so one vector of
    length ``n_states`` holds a function of one variable and one symmetric matrix a function
    of every pair.

    Parameters
    ----------
    cardinalities : sequence of int
        Number of states of each variable.

    Examples
    --------
    >>> from skcircuits.trees import StateLayout
    >>> layout = StateLayout([2, 3])
    >>> layout.n_states, layout.offsets.tolist()
    (5, [0, 2])
    """

    def __init__(self, cardinalities: Sequence[int] | IntArray) -> None:
        self.cardinalities: IntArray = np.asarray(cardinalities, dtype=np.int64)
        if self.cardinalities.ndim != 1 or not len(self.cardinalities):
            raise ValueError(
                must("cardinalities", "name at least one variable", cardinalities=cardinalities)
            )
        if self.cardinalities.min() < 1:
            raise ValueError(
                must("cardinalities", "be positive", cardinalities=self.cardinalities.tolist())
            )
        self.n_variables = len(self.cardinalities)
        self.offsets: IntArray = np.concatenate([[0], np.cumsum(self.cardinalities)[:-1]])
        self.n_states = int(self.cardinalities.sum())
        self.owner: IntArray = np.repeat(np.arange(self.n_variables), self.cardinalities)
        self.own_state: IntArray = np.arange(self.n_states) - self.offsets[self.owner]

    @cached_property
    def pair_groups(self) -> tuple[PairGroup, ...]:
        """All pairs of variables, grouped by the shape of their tables."""
        # Each pair once; the variable with more states leads, so that shapes (2, 3) and
        # (3, 2) are one group.
        first, second = np.triu_indices(self.n_variables, 1)
        swap = self.cardinalities[first] < self.cardinalities[second]
        first, second = np.where(swap, second, first), np.where(swap, first, second)
        shapes = np.column_stack([self.cardinalities[first], self.cardinalities[second]])
        distinct, group = np.unique(shapes, axis=0, return_inverse=True)
        return tuple(
            self._group(first[group.ravel() == i], second[group.ravel() == i], shape)
            for i, shape in enumerate(distinct)
        )

    def _group(self, first: IntArray, second: IntArray, shape: IntArray) -> PairGroup:
        rows = self.offsets[first][:, None, None] + np.arange(shape[0])[:, None]
        columns = self.offsets[second][:, None, None] + np.arange(shape[1])
        return PairGroup(first, second, rows, columns)

    @cached_property
    def pairs(self) -> tuple[IntArray, IntArray]:
        """The two variables of every pair, in the order of the pair groups."""
        # A single variable has no group: the empty arrays keep the types.
        none = np.empty(0, dtype=np.int64)
        first = np.concatenate([none, *(group.first for group in self.pair_groups)])
        second = np.concatenate([none, *(group.second for group in self.pair_groups)])
        return first, second

    def flat(self, codes: IntArray) -> IntArray:
        """Turn codes (n_rows, n_variables) into flat state numbers."""
        return codes + self.offsets

    def one_hot(self, codes: IntArray) -> FloatArray:
        """Turn codes (n_rows, n_variables) into indicators (n_rows, n_states).

        A negative code stands for a missing cell and gives zeros.
        """
        indicators = np.zeros((len(codes), self.n_states))
        positions = self.flat(codes) + self.n_states * np.arange(len(codes))[:, None]
        indicators.ravel()[positions[codes >= 0]] = 1.0
        return indicators

    def state_counts(self, codes: IntArray, sample_weight: FloatArray) -> FloatArray:
        """Sum the weights of the rows (complete codes) that have each flat state."""
        weights = np.repeat(sample_weight, self.n_variables)
        # Weights are floats, so the sums are.
        return np.bincount(self.flat(codes).ravel(), weights, self.n_states).astype(np.float64)

    def evidence(self, codes: IntArray) -> FloatArray:
        """Turn codes (n_rows, n_variables) into factors (n_rows, n_states) on the states.

        An observed cell leaves its state, a missing one (a negative code) all states.
        """
        return self.one_hot(codes) + (codes < 0)[:, self.owner]

    def sum_states(self, values: FloatArray) -> FloatArray:
        """Sum the last axis (flat states) within each variable."""
        return np.add.reduceat(values, self.offsets, axis=-1)

    def pair_matrix(self, values: FloatArray) -> FloatArray:
        """Spread one value per pair over a symmetric (n_variables, n_variables) matrix."""
        matrix = np.zeros((self.n_variables, self.n_variables))
        first, second = self.pairs
        matrix[first, second] = matrix[second, first] = values
        return matrix

    def pair_values(self, matrix: FloatArray) -> FloatArray:
        """Read one value per pair from a symmetric (n_variables, n_variables) matrix."""
        return matrix[self.pairs]

    def state_matrix(self, tables: Sequence[FloatArray]) -> FloatArray:
        """Spread the tables of all pairs over a symmetric (n_states, n_states) matrix."""
        matrix = np.zeros((self.n_states, self.n_states))
        for group, table in zip(self.pair_groups, tables, strict=True):
            matrix[group.rows, group.columns] = table
            matrix[group.columns, group.rows] = table
        return matrix

    def pair_tables(self, matrix: FloatArray) -> list[FloatArray]:
        """Read the tables of all pairs from a symmetric (n_states, n_states) matrix."""
        return [matrix[group.rows, group.columns] for group in self.pair_groups]
