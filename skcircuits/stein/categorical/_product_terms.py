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
    """``weight * prod_j tables[j][x_j, y_j]``.

    Parameters
    ----------
    weight : float
        Factor in front.
    tables : dict of int to ndarray of shape (k_j, k_j)
        Kernel of each variable.
    """

    weight: float
    tables: dict[int, FloatArray]


def product_terms(kernel: Any, counts: IntArray) -> list[ProductTerm] | None:
    """Write a kernel as a sum of products of tables.

    Parameters
    ----------
    kernel : object
        A kernel.
    counts : ndarray of int of shape (d,)
        States of each variable.

    Returns
    -------
    list of ProductTerm or None
        None where the kernel is not of this form, or does not tell.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.kernels import Delta, Hamming
    >>> from skcircuits.stein.categorical._product_terms import product_terms
    >>> terms = product_terms(0.5 * Hamming(scale=2.0) + 0.5 * Delta(), np.array([2, 3]))
    >>> [term.weight for term in terms]
    [0.5, 0.5]
    """
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
