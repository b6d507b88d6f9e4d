"""Units without links: what files and pickles hold of a circuit, however deep it is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from skcircuits.circuits.structure.units import Product, Sum, Unit
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["INPUT", "PRODUCT", "SUM", "UnitList"]

SUM, PRODUCT, INPUT = 0, 1, 2


class UnitList(NamedTuple):
    """Units as a list, children before parents, that names children by their places.

    Linked units would be pickled by recursion, one level of the circuit at a time.
    """

    kinds: IntArray
    n_children: IntArray
    children: IntArray
    weights: FloatArray
    inputs: Sequence[Unit]

    @classmethod
    def of(cls, units: Sequence[Unit]) -> UnitList:
        """Take the links out."""
        place = {id(unit): i for i, unit in enumerate(units)}
        kinds = [_kind(unit) for unit in units]
        return cls(
            np.array(kinds, dtype=np.int16),
            np.array([len(unit.children) for unit in units], dtype=np.int64),
            np.array([place[id(c)] for unit in units for c in unit.children], dtype=np.int64),
            np.concatenate(
                [unit.weights for unit in units if isinstance(unit, Sum)] or [np.empty(0)]
            ),
            [unit for unit, kind in zip(units, kinds) if kind == INPUT],
        )

    def linked(self) -> list[Unit]:
        """Build the units again around the input units."""
        weights, inputs = iter(self.weights), iter(self.inputs)
        ends = np.cumsum(self.n_children).tolist()
        built: list[Unit] = []
        for kind, size, end in zip(self.kinds.tolist(), self.n_children.tolist(), ends):
            below = [built[place] for place in self.children[end - size : end]]
            if kind == SUM:
                built.append(Sum(below, weights=list(islice(weights, size))))
            elif kind == PRODUCT:
                built.append(Product(below))
            else:
                built.append(next(inputs))
        return built


def _kind(unit: Unit) -> int:
    """Number that says what a unit is."""
    if isinstance(unit, Sum):
        return SUM
    return PRODUCT if isinstance(unit, Product) else INPUT
