"""How well mixtures, and pools of them, predict cells that were hidden from held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.learning.gaussian_mixture._factor_gaussians import FactorExpectation
from skcircuits.learning.gaussian_mixture._full_gaussians import FullExpectation
from skcircuits.learning.gaussian_mixture._learner import MixtureState
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._logspace import logsumexp
from skcircuits.numerics._patterns import group_patterns
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["Criterion", "HeldOutCells", "Predictions"]

Criterion = Literal["log_likelihood", "cells"]

_LEAST_ENTROPY = 0.1  # nats; a category that is nearly certain has no loss to speak of
_LEAST_PROBABILITY = 1e-6


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one mixture says of the held-out rows.

    `log_complete`, `log_observed` (n,): log density of all observed cells, and of those that are
    not hidden. `numbers` (m,): conditional means of the hidden numbers. `probabilities` (l,): of
    the true categories of the hidden ones.
    """

    log_complete: FloatArray
    log_observed: FloatArray
    numbers: FloatArray
    probabilities: FloatArray


@dataclass(frozen=True, eq=False)
class HeldOutCells:
    """Rows that no candidate is fitted on, and which of their observed cells are hidden.

    `hidden_numbers` (n, c), `hidden_codes` (n, q): True where hidden. `entropies` (q,): of the
    frequencies of the categories, which scale their log loss as the variance does squares.
    """

    table: MixtureTable
    hidden_numbers: BoolArray
    hidden_codes: BoolArray
    entropies: FloatArray

    @classmethod
    def draw(cls, table: MixtureTable, fraction: float, rng: np.random.Generator) -> HeldOutCells:
        """Hide a fraction of the observed cells, at random."""
        numbers = ~np.isnan(table.numbers) & (rng.random(table.numbers.shape) < fraction)
        codes = (table.codes >= 0) & (rng.random(table.codes.shape) < fraction)
        entropies = []
        for column, size in zip(table.codes.T, table.category_counts, strict=True):
            counts = np.bincount(column[column >= 0], minlength=size) + 1.0 / size
            frequencies = counts / counts.sum()
            entropies.append(max(-frequencies @ np.log(frequencies), _LEAST_ENTROPY))
        return cls(table, numbers, codes, np.array(entropies))

    def predict(self, state: MixtureState) -> Predictions:
        """What a mixture says of the rows."""
        table = self.table
        complete = _log_joint(state, table.numbers, table.codes)[1]
        numbers = np.where(self.hidden_numbers, np.nan, table.numbers)
        codes = np.where(self.hidden_codes, -1, table.codes)
        expectation, joint = _log_joint(state, numbers, codes)
        observed = logsumexp(joint)
        posterior = np.exp(joint - observed)
        means = np.einsum("kn,knc->nc", posterior, expectation.completed)
        probabilities = np.zeros(codes.shape)
        for j, log_table in enumerate(state.categories.log_probabilities):
            true = np.exp(log_table)[:, np.maximum(table.codes[:, j], 0)]
            probabilities[:, j] = np.einsum("kn,kn->n", posterior, true)
        return Predictions(
            logsumexp(complete),
            observed,
            means[self.hidden_numbers],
            np.maximum(probabilities[self.hidden_codes], _LEAST_PROBABILITY),
        )

    def predict_by(self, circuit: Circuit, X: FloatArray) -> Predictions:
        """What a circuit says of the rows of the table `X` that was prepared."""
        table, is_number = self.table, self.table.cardinalities == 0
        rows = X[table.source]
        hidden = np.empty(rows.shape, dtype=bool)
        hidden[:, is_number], hidden[:, ~is_number] = self.hidden_numbers, self.hidden_codes
        incomplete = np.where(hidden, np.nan, rows)
        # densities are compared in standard units
        log_units = [
            ~np.isnan(part[:, is_number]) @ np.log(table.scale) for part in (rows, incomplete)
        ]
        means = (circuit.expectation(incomplete)[:, is_number] - table.location) / table.scale
        marginals = circuit.marginals(incomplete) if not is_number.all() else {}
        likely = np.ones(table.codes.shape)
        for index, j in enumerate(np.flatnonzero(~is_number).tolist()):
            chosen = self.hidden_codes[:, index]
            likely[chosen, index] = marginals[j][chosen, table.codes[chosen, index]]
        return Predictions(
            circuit.log_prob(rows) + log_units[0],
            circuit.log_prob(incomplete) + log_units[1],
            means[self.hidden_numbers],
            np.maximum(likely[self.hidden_codes], _LEAST_PROBABILITY),
        )

    def losses(self, members: Sequence[Predictions], criterion: Criterion) -> FloatArray:
        """Loss of each row under an equal mixture of some mixtures, shape (n,).

        Minus the log density, or squares and log losses of hidden cells in units of what the
        columns have without any row.
        """
        if criterion == "log_likelihood":
            densities = np.stack([member.log_complete for member in members])
            return np.log(len(members)) - logsumexp(densities)
        observed = np.stack([member.log_observed for member in members])
        weights = np.exp(observed - logsumexp(observed))
        rows, codes_rows = self._rows(self.hidden_numbers), self._rows(self.hidden_codes)
        means = sum(w[rows] * m.numbers for w, m in zip(weights, members, strict=True))
        likely = sum(w[codes_rows] * m.probabilities for w, m in zip(weights, members, strict=True))
        squares = np.square(means - self.table.numbers[self.hidden_numbers])
        scales = np.broadcast_to(self.entropies, self.hidden_codes.shape)[self.hidden_codes]
        n_rows = len(self.table.weights)
        total = np.bincount(rows, squares, minlength=n_rows)
        total += np.bincount(codes_rows, -np.log(likely) / scales, minlength=n_rows)
        return total * n_rows / max(1, len(squares) + len(scales))

    @staticmethod
    def _rows(hidden: BoolArray) -> IntArray:
        """Row of each hidden cell."""
        return np.nonzero(hidden)[0]


def _log_joint(
    state: MixtureState, numbers: FloatArray, codes: IntArray
) -> tuple[FullExpectation | FactorExpectation, FloatArray]:
    """Expectation of the numbers, and log joint of component and observed cells (K, n)."""
    expectation = state.gaussians.expect(numbers, group_patterns(np.isnan(numbers)))
    joint = expectation.log_density + np.log(state.weights)[:, None]
    return expectation, joint + state.categories.expect(codes, state.n_components).log_density
