"""Factor-analytic Gaussian units as leaves of any circuit that expectation maximisation learns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from skcircuits.circuits.inputs import FactorGaussian, FactorGaussianLayer, InputUnit
from skcircuits.learning.gaussian_mixture._factor_gaussians import FactorGaussians
from skcircuits.learning.parameters.input_statistics import (
    ColumnMoments,
    InputStatistics,
    register_statistics,
)
from skcircuits.numerics._factor_stack import FactorStack
from skcircuits.protocols import FloatArray

__all__ = ["FactorGaussianStatistics"]


class FactorGaussianStatistics(InputStatistics):
    """Moments of factors and cells, in standard units of the columns.

    Units that have the same covariance keep it in common.
    """

    def __init__(self, layer: Any, units: Sequence[InputUnit], moments: ColumnMoments) -> None:
        super().__init__(layer, units, moments)
        own = list(layer.variables)
        self._location, self._scale = moments.mean[own], np.sqrt(moments.variance[own])
        given = layer.gaussians
        stack = FactorStack(
            (given.means - self._location) / self._scale,
            given.loadings / self._scale[:, None],
            given.noise_variances / self._scale**2,
            given.shape,
        )
        self._gaussians = FactorGaussians(stack, 0.0, np.zeros(len(own)))
        self._sums: tuple[FloatArray, ...] | None = None

    def add(self, X: FloatArray, flows: FloatArray) -> None:
        """Add expected moments of the factors given the observed cells of each row."""
        numbers = (self.layer.cells(X) - self._location) / self._scale
        # rows without any own cell say nothing of the unit
        seen = np.flatnonzero(~np.isnan(numbers).all(axis=1))
        if not len(seen):
            return
        sums = self._gaussians.expect(numbers[seen], []).sums(flows[:, seen])
        if self._sums is not None:
            sums = tuple(old + new for old, new in zip(self._sums, sums, strict=True))
        self._sums = sums

    def estimate(self, pseudo_count: float) -> list[InputUnit]:
        """Loadings, noise and means by regression on the factors; each cell has a small prior."""
        if self._sums is None:
            return list(self.units)
        learned = replace(self._gaussians, mean_count=pseudo_count).maximize(self._sums)
        means, loadings, noise = learned.in_units(self._location, self._scale)
        variables, known = self.layer.variables, self._sums[4].sum(axis=1) > 0
        return [
            FactorGaussian(variables, means[u], loadings[u], noise[u]) if known[u] else unit
            for u, unit in enumerate(self.units)
        ]


register_statistics(FactorGaussianLayer, FactorGaussianStatistics)
