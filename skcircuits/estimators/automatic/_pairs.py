"""How often categories and intervals of numbers come together: in rows, and under densities.

Densities that follow numbers well may still lose what categories say of them: a log density of
whole rows hardly shows it, frequencies of pairs do.
"""

import numpy as np

from skcircuits.learning.gaussian_mixture._held_out import Answers

_QUANTILES = (0.25, 0.5, 0.75)
_PRIOR_ROWS = 0.5  # spread evenly over the cells of a pair
_LEAST_ROWS = 20  # rows in which both cells of a pair are observed, for a misfit to count


class PairTables:
    """Tables of each category column by the quarters of each numerical one.

    `rows` (n, d) set the quartiles; `cardinalities` (d,): categories per column, 0 for numbers.
    """

    def __init__(self, rows, cardinalities):
        self.categorical = np.flatnonzero(cardinalities)
        numerical = np.flatnonzero(cardinalities == 0)
        self.numerical = [j for j in numerical if not np.isnan(rows[:, j]).all()]
        self.sizes = cardinalities[self.categorical]
        self.edges = [
            np.quantile(own[~np.isnan(own)], _QUANTILES) for own in rows[:, self.numerical].T
        ]

    @property
    def n_pairs(self):
        """Number of pairs of columns."""
        return len(self.categorical) * len(self.numerical)

    def counts(self, rows):
        """Counts (n_categories, 4) of each pair, over the rows that have both cells."""
        labels = [
            rows[:, j, None] == np.arange(k)
            for j, k in zip(self.categorical, self.sizes, strict=True)
        ]
        quarters = []
        for j, edges in zip(self.numerical, self.edges, strict=True):
            place = np.searchsorted(edges, rows[:, j], side="right")
            here = place[:, None] == np.arange(len(edges) + 1)
            quarters.append(here & ~np.isnan(rows[:, j, None]))
        first, second = (np.hstack(own).astype(np.float64) for own in (labels, quarters))
        tables = first.T @ second
        return [
            tables[start : start + size, part : part + 4]
            for start, size in zip(np.cumsum(self.sizes) - self.sizes, self.sizes, strict=True)
            for part in range(0, 4 * len(self.numerical), 4)
        ]

    def probabilities(self, draws):
        """Probabilities of the cells of all pairs under a density, from its draws."""
        tables = [own + _PRIOR_ROWS / own.size for own in self.counts(draws)]
        return [own / own.sum() for own in tables]

    def answers(self, rows, probabilities):
        """What K densities say of the pairs in some rows; those of a row count as one cell."""
        counts = np.concatenate([own.ravel() for own in self.counts(rows)])
        likelihoods = [np.concatenate([own.ravel() for own in tables]) for tables in probabilities]
        nothing = np.zeros((0, len(probabilities)))
        return Answers(
            nothing,
            np.zeros(0),
            np.zeros(0),
            np.stack(likelihoods, axis=1),
            counts / max(1, self.n_pairs),
        )

    def largest_misfit(self, rows, probabilities):
        """Largest difference of a frequency in some rows from its probability."""
        misfits = [
            np.abs(own / own.sum() - expected).max()
            for own, expected in zip(self.counts(rows), probabilities, strict=True)
            if own.sum() >= _LEAST_ROWS
        ]
        return float(max(misfits, default=0.0))
