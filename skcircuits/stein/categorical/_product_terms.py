"""Kernels of categorical rows as sums of products of tables, one table per variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skcircuits.kernels.families.base import Kernel
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["ProductTerm", "product_terms"]


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
    terms = kernel.terms(range(len(counts)))
    # Polynomial kernels couple the variables through powers of sums.
    if not all(term.is_product for term in terms):
        return None
    states = [np.arange(k, dtype=np.float64) for k in counts]
    return [
        ProductTerm(
            float(term.coefficients),
            {j: term.factor(j)(values[:, None], values) for j, values in enumerate(states)},
        )
        for term in terms
    ]
