"""Where the search for a Gaussian mixture starts: clusters of rows with missing cells."""

from __future__ import annotations

import numpy as np

from skcircuits.learning._k_means import k_means, nearest_centres
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["cluster_rows"]

_MAX_ROWS = 5000  # k-means sees no more rows; the others join the nearest centre
_N_STEPS = 10


def cluster_rows(table: MixtureTable, n_clusters: int, rng: np.random.Generator) -> IntArray:
    """Cluster rows by k-means over their observed cells.

    Centres start as rows drawn with probability proportional to their squared distance from
    those already drawn (k-means++). The squared distance of an incomplete row is the sum over
    its observed cells, scaled up to all columns. Categories count as indicator columns
    divided by the square root of two: two different ones are one unit apart.

    Parameters
    ----------
    table : MixtureTable
        Rows.
    n_clusters : int
        Number of clusters; some may stay empty.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    ndarray of shape (n,)
        Cluster of each row.
    """
    cells, observed = _indicator_columns(table)
    if len(cells) == 0:
        return np.zeros(0, dtype=np.int64)
    chosen = np.arange(len(cells))
    if len(cells) > _MAX_ROWS:
        chance = table.weights / table.weights.sum()
        chosen = np.sort(rng.choice(len(cells), _MAX_ROWS, replace=False, p=chance))
    sample, seen, weights = cells[chosen], observed[chosen], table.weights[chosen]
    centres = _spread_centres((sample, seen), weights, n_clusters, rng)
    centres = k_means(sample, centres, _N_STEPS, weights=weights, observed=seen)
    return nearest_centres(cells, centres, observed)


def _indicator_columns(table: MixtureTable) -> tuple[FloatArray, FloatArray]:
    """Cells (0 where missing) and 1.0 where observed, categories as indicator columns."""
    cells, observed = [np.nan_to_num(table.numbers, nan=0.0)], [~np.isnan(table.numbers)]
    for codes, size in zip(table.codes.T, table.category_counts, strict=True):
        cells.append((codes[:, None] == np.arange(size)) / np.sqrt(2.0))
        observed.append(np.repeat(codes[:, None] >= 0, size, axis=1))
    return np.hstack(cells), np.hstack(observed).astype(np.float64)


def _spread_centres(
    rows: tuple[FloatArray, FloatArray],
    weights: FloatArray,
    n_clusters: int,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw centres far from one another (k-means++)."""
    cells, observed = rows
    # a centre drawn from an incomplete row has the mean, zero, in their place
    chosen = [rng.choice(len(cells), p=weights / weights.sum())]
    nearest = _squared_distances(cells, observed, cells[chosen])[:, 0]
    for _ in range(1, n_clusters):
        mass = weights * nearest
        total = mass.sum()
        chosen.append(rng.choice(len(cells), p=mass / total if total > 0.0 else None))
        nearest = np.minimum(nearest, _squared_distances(cells, observed, cells[chosen[-1:]])[:, 0])
    return cells[chosen]


def _squared_distances(cells: FloatArray, observed: FloatArray, centres: FloatArray) -> FloatArray:
    """Squared distances (n, n_clusters) over observed cells, scaled up to all columns."""
    squared = (cells**2).sum(axis=1)[:, None] - 2.0 * cells @ centres.T + observed @ (centres**2).T
    fraction = observed.mean(axis=1)[:, None] if observed.shape[1] else 1.0
    return np.maximum(squared, 0.0) / fraction
