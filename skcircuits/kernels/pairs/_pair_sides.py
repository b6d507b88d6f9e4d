"""What one side of a pair of circuits contributes, prepared once for all its partners."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from skcircuits.circuits.structure.units import Scope
from skcircuits.kernels.families._terms import KernelTerm
from skcircuits.kernels.pairs._circuit_batch import CircuitBatch
from skcircuits.kernels.pairs._pair_mixing import level_matrices
from skcircuits.kernels.pairs._pair_regions import PairPlan
from skcircuits.kernels.pairs._pair_tables import kernel_of_states, tabulate, tabulated_scopes
from skcircuits.kernels.points._restrictions import Restriction
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["Side", "prepare_side"]


@dataclass(frozen=True)
class Side:
    """A batch of circuits, ready to be paired; or some of its circuits.

    Parameters
    ----------
    batch : CircuitBatch
        The circuits.
    matrices : dict of tuple of int to list of ndarray
        Per region the weights of each level of sums: on the left of shape
        (batch or 1, n_sums, n_nodes), on the right (batch or 1, n_nodes, n_sums).
    tables : dict of tuple of int to ndarray
        Per region of few discrete states the values of its keys, shape
        (batch or 1, n_keys, n_states), times the kernel between states, on the left and
        (batch or 1, n_states, n_keys) on the right.
    restrictions : dict of tuple of int to Restriction
        Per region the circuits that are equal there.
    rows : slice or ndarray of int
        The circuits taken.
    """

    batch: CircuitBatch
    matrices: dict[Scope, list[FloatArray]]
    tables: dict[Scope, FloatArray]
    restrictions: dict[Scope, Restriction]
    rows: slice | IntArray

    @property
    def X(self) -> FloatArray:
        """Observed cells of the circuits taken."""
        return self.batch.X[self.rows]

    def take(self, rows: slice | IntArray) -> Side:
        """Take some circuits of the batch.

        Parameters
        ----------
        rows : slice or ndarray of int
            Which ones.

        Returns
        -------
        Side
            Its methods speak of these circuits; nothing is copied before they are asked.
        """
        return replace(self, rows=rows)

    def matrices_of(self, scope: Scope) -> list[FloatArray]:
        """Weights of each level of sums of a region.

        Parameters
        ----------
        scope : tuple of int
            The region.

        Returns
        -------
        list of ndarray
            Their first axis runs over the circuits taken, or has length 1.
        """
        return [self._cut(matrix) for matrix in self.matrices[scope]]

    def table_of(self, scope: Scope) -> FloatArray:
        """Values of the keys of a region at all its states.

        Parameters
        ----------
        scope : tuple of int
            The region.

        Returns
        -------
        ndarray
            Its first axis runs over the circuits taken, or has length 1.
        """
        return self._cut(self.tables[scope])

    def numbers_of(self, scope: Scope) -> IntArray:
        """Numbers of the circuits taken among those that differ in a region.

        Parameters
        ----------
        scope : tuple of int
            The region.

        Returns
        -------
        ndarray of shape (n_circuits,)
            Positions in ``restrictions[scope].first``.
        """
        return self.restrictions[scope].inverse[self.rows]

    def _cut(self, array: FloatArray) -> FloatArray:
        return array if len(array) == 1 else array[self.rows]


def prepare_side(
    pairs: PairPlan, term: KernelTerm, batch: CircuitBatch, side: Literal["left", "right"]
) -> Side:
    """Gather the weights of a batch by region and tabulate its small regions.

    Parameters
    ----------
    pairs : PairPlan
        The compiled pair of structures.
    term : KernelTerm
        The kernel term.
    batch : CircuitBatch
        The circuits.
    side : {"left", "right"}
        Which of the two structures they have.

    Returns
    -------
    Side
        The prepared circuits. Regions that only larger tables ask for are left out.
    """
    tabulated = tabulated_scopes(pairs, term)
    prepared = Side(batch, {}, {}, {}, slice(None))
    tables: dict[Scope, FloatArray] = {}
    for region in pairs.regions:
        scope = region.scope
        matrices = level_matrices(getattr(region, side), batch.weights, side)
        if scope in tabulated:
            tables[scope] = tabulate(region, batch, side, matrices, tables)
        else:
            prepared.matrices[scope] = matrices
        if region.is_needed_above(tabulated):
            prepared.restrictions[scope] = batch.restriction(scope)
            if scope in tabulated and side == "left":
                prepared.tables[scope] = tables[scope] @ kernel_of_states(region, term)
            elif scope in tabulated:
                prepared.tables[scope] = np.ascontiguousarray(tables[scope].transpose(0, 2, 1))
    return prepared
