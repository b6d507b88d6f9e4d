"""Kernels of categorical rows as sums of products of tables, one table per variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skcircuits.kernels.families._structure import value_of
from skcircuits.kernels.families.base import Kernel, structure_of
from skcircuits.protocols import FloatArray, IntArray


@dataclass(frozen=True)
class ProductTerm:
    """``weight * prod_j tables[j][x_j, y_j]``."""

    weight: float
    tables: dict[int, FloatArray]  # (k_j, k_j)


def product_terms(kernel: Any, counts: IntArray) -> list[ProductTerm] | None:
    """Write a kernel as a sum of products of tables."""
    # A plain function of rows cannot tell how it factorises.
    if not isinstance(kernel, Kernel):
        return None
    # Polynomial kernels couple the variables through powers of sums.
    terms = structure_of(kernel, range(len(counts))).product_terms()
    if terms is None:
        return None
    states = [np.arange(k, dtype=np.float64) for k in counts]
    return [
        ProductTerm(
            weight,
            {j: value_of(functions[j], values[:, None], values) for j, values in enumerate(states)},
        )
        for weight, functions in terms
    ]
