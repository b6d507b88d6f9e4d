"""Choosing the few samples that represent a target best."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.protocols import IntArray

__all__ = ["stein_thinning"]


def stein_thinning(K: ArrayLike, n_samples: int) -> IntArray:
    """Choose samples greedily so that their Stein discrepancy is small.

    Each step adds the sample that makes the discrepancy of the chosen ones, equally
    weighted, smallest; a sample may be chosen again (Riabiz et al. 2022).

    Parameters
    ----------
    K : array-like of shape (n, n)
        Stein Gram matrix.
    n_samples : int
        How many to choose.

    Returns
    -------
    ndarray of int of shape (n_samples,)
        Positions, in the order they were chosen.

    Examples
    --------
    >>> from skcircuits.stein import stein_thinning
    >>> stein_thinning([[1.0, 0.9, -0.9], [0.9, 2.0, 0.0], [-0.9, 0.0, 2.0]], 2)
    array([0, 2])
    """
    matrix = np.asarray(K, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise ValueError(must("K", "be a square matrix with at least one row", shape=matrix.shape))
    if not np.isfinite(matrix).all():
        raise ValueError(must("K", "be finite", "Check the target at the samples."))
    if not isinstance(n_samples, Integral) or n_samples < 1:
        raise ValueError(must("n_samples", "be a positive integer", n_samples=n_samples))
    # Adding i changes the sum over pairs by K_ii + 2 sum_j K_ij over the chosen j.
    increase = matrix.diagonal().copy()  # updated with every choice
    chosen = np.empty(n_samples, dtype=np.int64)
    for step in range(n_samples):
        chosen[step] = np.argmin(increase)
        increase += 2.0 * matrix[chosen[step]]
    return chosen
