"""The rows that latent trees are learned from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from skcircuits.learning._columns import MixedColumn, describe_column
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees import StateLayout


@dataclass(frozen=True)
class LatentRows:
    """Training rows of a latent tree.

    Parameters
    ----------
    X : ndarray of shape (n, n_variables)
        Codes of categorical columns and values of numerical ones, NaN where missing.
    weight : ndarray of shape (n,)
        Weight of each row.
    states : ndarray of shape (n, n_variables)
        Codes of all columns, with binned numbers, -1 where missing, from which the tree and the
        initialisation are learned.
    layout : StateLayout
        Layout of these states.
    is_categorical : ndarray of bool of shape (n_variables,)
        Columns with categorical emissions; the other columns have piecewise polynomial emissions.
    facts : mapping of int to MixedColumn, default=None
        How numerical columns were recorded, in particular their point masses, if that was learned
        from more rows than these. None: from these rows, with point masses also at points of grids.
    joint_columns : tuple of tuple of int, default=()
        Groups of numerical columns that share a latent variable and have a joint normal
        distribution in each of its states.

    Examples
    --------
    A categorical and a numerical column, cut into two bins for the tree:

    >>> import numpy as np
    >>> from skcircuits.learning import LatentRows, learn_latent_tree
    >>> from skcircuits.trees import StateLayout
    >>> rng, categories = np.random.default_rng(0), np.repeat([0, 1], 20)
    >>> X = np.column_stack([categories, 2 * categories - 1 + rng.normal(scale=0.1, size=40)])
    >>> states = (X > 0).astype(int)
    >>> rows = LatentRows(X, np.ones(40), states, StateLayout([2, 2]), np.array([True, False]))
    >>> *_, last = learn_latent_tree(rows, 2, rng)
    >>> last.circuit.expectation([[0, np.nan], [1, np.nan]])[:, 1] > 0
    array([False,  True])
    """

    X: FloatArray
    weight: FloatArray
    states: IntArray
    layout: StateLayout
    is_categorical: BoolArray
    facts: Mapping[int, MixedColumn] | None = None
    joint_columns: tuple[tuple[int, ...], ...] = ()

    def fact(self, column: int) -> MixedColumn:
        """Describe a numerical column.

        Parameters
        ----------
        column : int
            Index of the column.

        Returns
        -------
        MixedColumn
            How the column was recorded.
        """
        if self.facts is None:
            return describe_column(column, self.X[:, column], self.weight, 0)
        return self.facts[column]

    def take(self, indices: IntArray) -> LatentRows:
        """Select rows.

        Parameters
        ----------
        indices : ndarray of int of shape (m,)
            Indices of the rows.

        Returns
        -------
        LatentRows
            The selected rows.
        """
        return replace(
            self, X=self.X[indices], weight=self.weight[indices], states=self.states[indices]
        )
