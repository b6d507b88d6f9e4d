"""Which cells are missing, as further columns of a table: they may tell about the missing values.

Where large values are hidden more often, a row that misses many cells has large ones. A mixture
of numbers, categories and indicators of missing cells knows that: given its component, what a cell
holds and whether it is missing are independent (latent ignorability; Frangakis and Rubin, 1999;
Harel and Schafer, 2009, "Partial and Latent Ignorability in Missing-Data Problems", Biometrika 96).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtrc
from scipy.stats import rankdata

from skcircuits.circuits import Circuit
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.tabular._columns import Column
from skcircuits.tabular._schema import TableSchema

_LEAST_ROWS = 5  # that miss a column, and that do not, for its indicator to be one
_LEVEL = 0.01  # of the test whether cells are missing completely at random


@dataclass(frozen=True)
class Missingness:
    """Indicators of the missing cells of some `columns` of a table of `n_columns`."""

    columns: IntArray
    n_columns: int

    @classmethod
    def informative(cls, X: FloatArray, cardinalities: IntArray) -> Missingness | None:
        """Indicators of encoded rows; None where cells are missing completely at random."""
        n_missing = np.isnan(X).sum(axis=0)
        columns = np.flatnonzero(np.minimum(n_missing, len(X) - n_missing) >= _LEAST_ROWS)
        if not len(columns) or _p_value(X, cardinalities, columns) > _LEVEL:
            return None
        return cls(columns, X.shape[1])

    def append(self, X: FloatArray) -> FloatArray:
        """Rows with their indicators as last columns."""
        return np.hstack([X, np.isnan(X[:, self.columns])])

    def extended(self, schema: TableSchema) -> TableSchema:
        """Schema of rows with their indicators."""
        states = np.array([False, True])
        indicators = [
            Column(f"{schema.columns[j].text_name} is missing", states, False)
            for j in self.columns.tolist()
        ]
        return replace(schema, columns=(*schema.columns, *indicators), prototype=None)

    def without(self, circuit: Circuit) -> Circuit:
        """The same density of the columns themselves."""
        indicators = range(self.n_columns, self.n_columns + len(self.columns))
        return circuit.marginalize(list(indicators))


@dataclass(frozen=True)
class InformedCircuit:
    """A circuit that reads off each row which cells are missing, beside what the others hold."""

    circuit: Circuit
    missingness: Missingness

    def log_prob(self, X: FloatArray) -> FloatArray:
        """Log density of the observed cells and of which they are, shape (n,)."""
        return self.circuit.log_prob(self.missingness.append(X))

    def sample(self, n_samples: int, X: FloatArray, random_state: Any) -> FloatArray:
        """Completions of rows, shape (n_samples, n, d)."""
        rows = self.missingness.append(X)
        drawn = self.circuit.sample(n_samples, X=rows, random_state=random_state)
        return drawn[..., : X.shape[1]]

    def _mean_and_marginals(self, X: FloatArray) -> tuple[FloatArray, dict[int, FloatArray]]:
        """Rows completed by conditional means, and the distributions of their categories."""
        means, marginals = self.circuit._mean_and_marginals(self.missingness.append(X))
        return means[:, : X.shape[1]], marginals


def _p_value(X: FloatArray, cardinalities: IntArray, columns: IntArray) -> float:
    """How easily cells missing at random look as related to the others as those of X.

    Each indicator's covariances with ranks of numbers, categories and earlier indicators are
    squared in units of what permutations of the rows make of them; a multiple of a chi-squared
    variable has the mean and the variance of the sum (Satterthwaite, 1946).
    """
    missing = np.isnan(X[:, columns]).astype(np.float64)
    missing -= missing.mean(axis=0)
    features, owners = _features(X, cardinalities)
    total = mean = variance = 0.0
    for i, j in enumerate(columns.tolist()):
        own = np.hstack([features[:, owners != j], missing[:, :i]])
        norms = np.sqrt((own**2).sum(axis=0))
        own = own[:, norms > 0.0] / norms[norms > 0.0]
        scores = missing[:, i] @ own / np.sqrt(missing[:, i].var(ddof=1))
        total += (scores**2).sum()
        mean += own.shape[1]
        variance += 2.0 * ((own.T @ own) ** 2).sum()
    scale = variance / (2.0 * mean) if mean else 1.0
    return float(chdtrc(mean / scale, total / scale)) if mean else 1.0


def _features(X: FloatArray, cardinalities: IntArray) -> tuple[FloatArray, IntArray]:
    """Ranks of numbers and categories as columns of mean 0, 0 where missing; whose they are."""
    parts, owners = [], []
    for j, cardinality in enumerate(cardinalities.tolist()):
        seen = ~np.isnan(X[:, j])
        cells = X[seen, j]
        values = np.arange(float(cardinality)) == cells[:, None] if cardinality else rankdata(cells)
        own = np.zeros((len(X), max(1, cardinality)))
        own[seen] = values.reshape(len(cells), -1)
        own[seen] -= own[seen].mean(axis=0)
        parts.append(own)
        owners += [j] * own.shape[1]
    return np.hstack(parts), np.array(owners)
