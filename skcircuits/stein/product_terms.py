"""Kernels of categorical rows as sums of products of tables, one table per variable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skcircuits.protocols import FloatArray, IntArray

__all__ = ["ProductTerm", "product_terms"]


@dataclass(frozen=True)
class ProductTerm:
    """``weight * prod_j tables[j][x_j, y_j]``.

    Parameters
    ----------
    weight : float
        Factor in front.
    tables : dict of int to ndarray of shape (k_j, k_j)
        Kernel of each variable with more than one state.
    """

    weight: float
    tables: dict[int, FloatArray]


def product_terms(kernel: Any, counts: IntArray) -> list[ProductTerm] | None:
    """Probing placeholder."""
    base = np.zeros((1, len(counts)))
    k0 = kernel(base, base)[0, 0]
    tables = {}
    for v in range(len(counts)):
        rows = np.repeat(base, counts[v], axis=0)
        rows[:, v] = np.arange(counts[v])
        tables[int(v)] = kernel(rows, rows) / k0
    return [ProductTerm(float(k0), tables)]
