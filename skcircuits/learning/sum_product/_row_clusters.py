"""Split rows with categories, numbers and missing cells into two similar groups."""

from __future__ import annotations

import numpy as np

from skcircuits.learning.univariate._columns import rank_fractions
from skcircuits.numerics._logspace import logsumexp
from skcircuits.protocols import BoolArray, FloatArray

# Least variance of a standardised column within a group; pseudo-rows of unit variance.
MIN_VARIANCE = 0.05
PRIOR_ROWS = 0.3
MAX_STEPS = 60
# Gain per row of the mean log likelihood that is worth another step.
TOLERANCE = 1e-5


def split_rows(numbers: FloatArray, categories: list[FloatArray], weights: FloatArray) -> BoolArray:
    """Cluster rows by a mixture of two factorised distributions, fitted by EM.

    Within a group numbers are normal and categories categorical, all independent; missing cells do
    not take part. Both families are exponential: with the statistics [z², z, 1, indicators] of a
    row, an E step and an M step are one matrix product each. The start is the sign of the first
    principal component, so that nothing is random.

    `numbers` (n, a), `categories` (n, k_j), `weights` (n,) -> (n,).
    """
    seen = ~np.isnan(numbers)
    filled = np.where(seen, numbers, 0.0)
    statistics = np.hstack([filled**2, filled, seen, *categories])
    groups = _first_guess(filled, categories, weights)
    previous = -np.inf
    for _ in range(MAX_STEPS):
        parameters, log_fractions = _maximize(statistics, groups * weights[:, None], categories)
        log_terms = statistics @ parameters + log_fractions
        log_likelihood = logsumexp(log_terms, axis=1)
        groups = np.exp(log_terms - log_likelihood[:, None])
        mean = float(weights @ log_likelihood / weights.sum())
        if mean - previous < TOLERANCE:
            break
        previous = mean
    return groups[:, 1] > groups[:, 0]


def _first_guess(
    filled: FloatArray, categories: list[FloatArray], weights: FloatArray
) -> FloatArray:
    """Lean to one group or the other by the first principal component, shape (n, 2)."""
    features = np.hstack([filled, *categories])
    features = features - np.average(features, axis=0, weights=weights)
    spread = np.sqrt(np.average(features**2, axis=0, weights=weights))
    # The square root leaves rare categories less variance than common ones
    features /= np.sqrt(np.where(spread > 0, spread, 1.0))
    _, vectors = np.linalg.eigh(features.T @ (features * weights[:, None]))
    axis = vectors[:, -1] * np.sign(vectors[np.abs(vectors[:, -1]).argmax(), -1])
    component = features @ axis
    second = rank_fractions(component, weights) > 0.5
    return np.where(second[:, None], [0.1, 0.9], [0.9, 0.1])


def _maximize(
    statistics: FloatArray, weighted_groups: FloatArray, categories: list[FloatArray]
) -> tuple[FloatArray, FloatArray]:
    """Natural parameters of both groups, shape (n_statistics, 2), and log fractions (2,)."""
    sums = statistics.T @ weighted_groups
    n_numbers = (len(sums) - sum(column.shape[1] for column in categories)) // 3
    squares, totals, counts = sums[: 3 * n_numbers].reshape(3, n_numbers, 2)
    mean = totals / (counts + PRIOR_ROWS)
    scatter = squares - 2 * mean * totals + counts * mean**2
    variance = np.maximum((scatter + PRIOR_ROWS) / (counts + PRIOR_ROWS), MIN_VARIANCE)
    normal = [-0.5 / variance, mean / variance, -0.5 * (mean**2 / variance + np.log(variance))]
    categorical = []
    first = 3 * n_numbers
    for column in categories:
        smoothed = sums[first : first + column.shape[1]] + 1.0 / column.shape[1]
        categorical.append(np.log(smoothed / smoothed.sum(axis=0)))
        first += column.shape[1]
    size = weighted_groups.sum(axis=0) + 1.0
    return np.vstack([*normal, *categorical]), np.log(size / size.sum())
