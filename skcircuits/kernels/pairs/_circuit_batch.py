"""Many circuits of one structure: the rows and columns of a Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.units import Scope
from skcircuits.kernels.points._restrictions import Restriction
from skcircuits.protocols import FloatArray

__all__ = ["CircuitBatch"]


@dataclass(frozen=True)
class CircuitBatch:
    """Circuits of one structure: conditioned on rows, with their own sum weights.

    Parameters
    ----------
    plan : Plan
        The structure.
    weights : SumWeights
        Weights of shape (n_edges,), shared, or (n_edges, batch).
    X : ndarray of shape (batch, n_columns)
        Observed cells; one row of NaN for a single circuit without evidence.
    conditioned : bool, default=False
        Whether the weights are those given the observed cells. Then circuits that agree
        about the cells of a scope agree about the weights below it too.
    """

    plan: Plan
    weights: SumWeights
    X: FloatArray
    conditioned: bool = False

    def restriction(self, scope: Scope) -> Restriction:
        """Find the circuits whose units of a scope are equal.

        Parameters
        ----------
        scope : tuple of int
            Variables.

        Returns
        -------
        Restriction
            Circuits with equal numbers have equal units.
        """
        if self.conditioned or self.weights.log.ndim == 1:
            return Restriction.of_rows(self.X[:, list(scope)])
        everyone = np.arange(len(self.X))
        return Restriction(everyone, everyone)
