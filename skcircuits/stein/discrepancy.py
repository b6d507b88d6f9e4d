"""Squared Stein discrepancies: of weighted samples, and exactly between circuits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import must
from skcircuits.stein.gram import collapse_cells, distinct_gram

__all__ = ["stein_discrepancy"]


def stein_discrepancy(
    X: ArrayLike,
    target: Any,
    kernel: Any,
    weights: ArrayLike | None = None,
    *,
    operator: str | None = None,
    collapse: ArrayLike | None = None,
) -> float:
    """Compute the squared Stein discrepancy of weighted samples.

    It is the V-statistic ``sum_ij w_i w_j k_p(x_i, x_j)``: zero in expectation under the
    target only, and never negative.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Samples; NaN where collapsed.
    target : object
        The target.
    kernel : kernel object
        The base kernel.
    weights : array-like of shape (n,), default=None
        Weights of the samples; equal by default.
    operator : {"barker", "difference", "langevin"}, default=None
        The Stein operator; by default "barker" or "langevin", by the kind of target.
    collapse : array-like, default=None
        Variables that are summed out, as in :func:`stein_gram`.

    Returns
    -------
    float
        The squared discrepancy.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.kernels import Hamming
    >>> from skcircuits.stein import stein_discrepancy
    >>> model = IsingModel.grid(1, 2, couplings=0.5)
    >>> samples = [[0, 0], [0, 1], [1, 0], [1, 1]]
    >>> round(stein_discrepancy(samples, model, Hamming(scale=2.0)), 3)
    0.017
    >>> p = [0.3656, 0.1344, 0.1344, 0.3656]
    >>> round(stein_discrepancy(samples, model, Hamming(scale=2.0), p), 3)
    0.0
    """
    rows = collapse_cells(X, collapse)
    w = np.full(len(rows), 1 / len(rows)) if weights is None else np.asarray(weights, float)
    if w.shape != (len(rows),) or not np.isfinite(w).all():
        raise ValueError(must("weights", f"be {len(rows)} finite numbers", shape=w.shape))
    K, which = distinct_gram(rows, target, kernel, operator=operator)
    totals = np.bincount(which, weights=w, minlength=len(K))
    return max(0.0, float(totals @ K @ totals))
