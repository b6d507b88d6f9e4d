"""Log-linear models of tables of counts, by iterative proportional fitting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import gammaln

from skcircuits.protocols import FloatArray, IntArray

__all__ = ["PRIOR_ROWS", "dependence_gains", "fit_margins"]

#: Rows of independent columns that a table of counts may be smoothed by.
PRIOR_ROWS = np.geomspace(1.0, 1000.0, 13)


def dependence_gains(counts: FloatArray) -> FloatArray:
    """Log Bayes factors for the dependence of two columns, one for each of `PRIOR_ROWS`.

    Counts (r, c) have a Dirichlet prior at independence that weighs so many rows, against
    independence for sure. Both have the marginals of the counts, smoothed by one row spread
    evenly (Good, 1965, "The Estimation of Probabilities").
    """
    total = counts.sum()
    marginals = [
        (counts.sum(axis=axis) + 1.0 / counts.shape[1 - axis]) / (total + 1.0) for axis in (1, 0)
    ]
    independent = np.outer(*marginals)
    prior = PRIOR_ROWS[:, None, None] * independent
    evidence = (gammaln(counts + prior) - gammaln(prior)).sum(axis=(1, 2))
    evidence += gammaln(PRIOR_ROWS) - gammaln(PRIOR_ROWS + total)
    gains: FloatArray = evidence - (counts * np.log(independent)).sum()
    return gains


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
