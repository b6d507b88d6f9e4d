"""Pairwise independence tests on tables with categories, numbers and missing cells.

Missing cells are left out pair by pair. Both tests compare all pairs of columns at once, by
one matrix product of indicator (or feature) columns.
"""

from __future__ import annotations

import numpy as np
from scipy.special import chdtrc

from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Random sine features per column, besides the rank itself, and their frequency.
N_FEATURES = 6
FREQUENCY = 3.0


def rank_levels(fractions: FloatArray, n_levels: int) -> FloatArray:
    """Cut ranks into levels of about equal weight; few distinct values are levels each.

    `fractions` (n,) -> (n,).
    """
    levels = np.full(len(fractions), np.nan)
    seen = ~np.isnan(fractions)
    distinct, place = np.unique(fractions[seen], return_inverse=True)
    few = len(distinct) <= 2 * n_levels
    levels[seen] = place if few else np.floor(fractions[seen] * n_levels)
    return levels


def g_test(levels: FloatArray, weights: FloatArray) -> FloatArray:
    """Likelihood-ratio test of independence for every pair of columns.

    G = 2 Σ O log(O / E) over the cells of the pair's contingency table, from rows where both
    columns are observed; chi-squared with (r - 1)(c - 1) degrees of freedom, r and c the numbers
    of levels observed in these rows.

    `levels` (n, d), `weights` (n,) -> (d, d).
    """
    indicators, starts = _indicators(levels)
    column_of = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, indicators.shape[1])))
    observed = indicators.T @ (indicators * weights[:, None])
    # marginals[l, j]: weight of level l among the rows that have column j
    marginals = np.add.reduceat(observed, starts, axis=1)
    totals = np.add.reduceat(marginals, starts, axis=0)
    rows = marginals[:, column_of]
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = observed * totals[np.ix_(column_of, column_of)] / (rows * rows.T)
        terms = np.where(observed > 0, observed * np.log(ratio), 0.0)
    statistic = 2 * np.add.reduceat(np.add.reduceat(terms, starts, axis=0), starts, axis=1)
    n_levels = np.add.reduceat((marginals > 0).astype(float), starts, axis=0)
    freedom = np.maximum(n_levels - 1, 0) * np.maximum(n_levels.T - 1, 0)
    return _p_values(statistic, freedom)


def rank_correlation_test(fractions: FloatArray, weights: FloatArray) -> FloatArray:
    """Test of monotone dependence for every pair of numerical columns.

    With Spearman's rank correlation r of n rows where both columns are observed, -(n - 5/2) log(1
    - r²) is about chi-squared with one degree of freedom (Bartlett, 1938).

    `fractions` (n, d), `weights` (n,) -> (d, d).
    """
    seen = (~np.isnan(fractions)).astype(float)
    centred = np.where(seen > 0, fractions - 0.5, 0.0)
    products = centred.T @ (centred * weights[:, None])
    squares = (centred**2).T @ (seen * weights[:, None])
    n_rows = seen.T @ (seen * weights[:, None])
    scale = squares * squares.T
    is_defined = scale > 0
    r_squared = products**2 / np.where(is_defined, scale, 1.0)
    factor = np.maximum(n_rows - 2.5, 0.0)
    statistic = -factor * np.log1p(-np.minimum(r_squared, 1 - 1e-12))
    return _p_values(statistic, is_defined.astype(float))


def random_features_test(
    fractions: FloatArray, is_categorical: BoolArray, weights: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Rank-based test for any dependence: canonical correlations of random features.

    Features as in the randomised dependence coefficient (Lopez-Paz, Hennig and Schölkopf, 2013):
    ranks and sines of random affine functions of them. With canonical correlations ρ_i between two
    columns' features of ranks a and b, -(n - (a + b + 3) / 2) Σ log(1 - ρ_i²) is about chi-squared
    with a b degrees of freedom (Bartlett, 1938). Missing cells take their column's mean; n counts
    the rows where both columns are observed.

    `fractions` (n, d), `is_categorical` (d,), `weights` (n,) -> (d, d).
    """
    slopes = FREQUENCY * rng.standard_normal(N_FEATURES)
    phases = rng.uniform(0.0, 2 * np.pi, N_FEATURES)
    whitened = [
        _whitened(
            _indicators(column[:, None])[0] if category else _sines(column, slopes, phases),
            ~np.isnan(column),
            weights,
        )
        for column, category in zip(fractions.T, is_categorical)
    ]
    ranks = np.array([features.shape[1] for features in whitened])
    width = max(1, int(ranks.max()))
    padded = np.zeros((len(weights), len(ranks), width))
    for j, features in enumerate(whitened):
        padded[:, j, : ranks[j]] = features
    flat = padded.reshape(len(weights), -1)
    blocks = (flat.T @ flat).reshape(len(ranks), width, len(ranks), width).swapaxes(1, 2)
    correlations = np.minimum(np.linalg.svd(blocks, compute_uv=False), 1 - 1e-12)
    seen = (~np.isnan(fractions)).astype(float)
    n_rows = seen.T @ (seen * weights[:, None])
    factor = np.maximum(n_rows - (ranks[:, None] + ranks + 3) / 2, 0.0)
    statistic = -factor * np.log1p(-(correlations**2)).sum(axis=2)
    return _p_values(statistic, np.outer(ranks, ranks).astype(float))


def _p_values(statistic: FloatArray, freedom: FloatArray) -> FloatArray:
    """Upper tail of chi-squared; 1 where there is no freedom, and on the diagonal."""
    p_values = chdtrc(np.maximum(freedom, 1.0), np.maximum(statistic, 0.0))
    p_values[freedom == 0] = 1.0
    np.fill_diagonal(p_values, 1.0)
    return p_values


def _indicators(levels: FloatArray) -> tuple[FloatArray, IntArray]:
    """Indicator columns of all levels, and the first one of each column."""
    blocks = []
    for column in levels.T:
        seen = np.unique(column[~np.isnan(column)])
        # A column without any level keeps one that never occurs
        blocks.append(column[:, None] == (seen if len(seen) else np.zeros(1)))
    sizes = np.array([block.shape[1] for block in blocks])
    return np.hstack(blocks).astype(float), np.cumsum(sizes) - sizes


def _sines(column: FloatArray, slopes: FloatArray, phases: FloatArray) -> FloatArray:
    """Features of a column of ranks, shape (n, 1 + N_FEATURES)."""
    return np.column_stack([column, np.sin(column[:, None] * slopes + phases)])


def _whitened(features: FloatArray, seen: BoolArray, weights: FloatArray) -> FloatArray:
    """Orthonormal combinations of centred, weighted features; constant ones vanish."""
    if not seen.any():
        return np.zeros((len(features), 0))
    fraction = weights * seen
    filled = np.where(seen[:, None], features, 0.0)
    centred = (filled - np.average(filled, axis=0, weights=fraction)) * seen[:, None]
    left, values, _ = np.linalg.svd(centred * np.sqrt(weights)[:, None], full_matrices=False)
    return left[:, values > 1e-6 * max(values[0], 1e-300)]
