"""Log-linear models of tables of counts, by iterative proportional fitting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skcircuits.protocols import FloatArray, IntArray

__all__ = ["fit_margins"]


def fit_margins(
    counts: FloatArray, margins: Sequence[IntArray], start: FloatArray, n_sweeps: int
) -> FloatArray:
    """Give a table (n_cells,) the margins of some counts, one after the other, again and again.

    Each of `margins` names the entry of a margin that a cell (n_cells,) adds to. The table keeps
    the interactions of `start` that no margin sees, so that a product of one-way tables ends as
    the maximum likelihood estimate of the log-linear model with these margins; no step lowers
    the likelihood (Bishop, Fienberg and Holland, 1975, "Discrete Multivariate Analysis").
    """
    table = start * (counts.sum() / start.sum())
    wanted = [np.bincount(margin, counts) for margin in margins]
    for _ in range(n_sweeps):
        for margin, target in zip(margins, wanted, strict=True):
            reached = np.bincount(margin, table)
            table = table * (target / np.maximum(reached, 1e-300))[margin]
    return table
