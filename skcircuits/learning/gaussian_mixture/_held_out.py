"""Predictions of hidden cells of held-out rows by densities and by pools of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.circuits.inputs.johnson import SinhMap
from skcircuits.learning.gaussian_mixture._factor_gaussians import FactorExpectation
from skcircuits.learning.gaussian_mixture._learner import MixtureState, expect
from skcircuits.learning.gaussian_mixture._table import MixtureTable
from skcircuits.numerics._arrays import logsumexp, observed_ranges, posterior
from skcircuits.numerics._patterns import PatternGroup, joined_groups
from skcircuits.protocols import BoolArray, FloatArray, IntArray

Criterion = Literal["log_likelihood", "cells"]

_LEAST_ENTROPY = 0.1  # nats; the loss of a nearly certain category is negligible
LEAST_PROBABILITY = 1e-6
# Smallest errors of a column, and how many times larger those of an average may be: errors that
# are alike have ratios of up to two in such quantiles, exact ones any
_SMALLEST, _BLURRED = (0.1, 0.25, 0.5), 2.0
_TRAINING_CELLS = 40_000  # cells that candidates are fitted to
_TRAINING_ROWS = (300, 2000)  # least and most rows of them
# Most rows that they are compared on: squared errors of skewed columns have heavy tails, and
# predictions are cheap compared with fits
_HELD_OUT_ROWS = 3000
_HELD_OUT_FRACTION = 0.3
_FEW_ROWS = 150  # tables of fewer rows are split twice
_HIDDEN_FRACTION = 0.3  # of the observed cells of a held-out row


@dataclass(frozen=True, eq=False)
class Predictions:
    """Predictions of the held-out rows by one mixture."""

    log_complete: FloatArray  # (n,), log density of all observed cells
    log_observed: FloatArray  # (n,), without the hidden ones
    numbers: FloatArray  # (m,), conditional means of the hidden numbers
    probabilities: FloatArray  # (l,), of the true hidden categories


@dataclass(frozen=True, eq=False)
class MappedRows:
    """Rows in the transformed or grouped columns and units of a mixture."""

    numbers: FloatArray  # (n, c)
    codes: IntArray  # (n, q), of categories and cells of grouped columns, -1 where missing
    log_slopes: FloatArray  # (n,), log density of a row in standard units less that in these
    sinh_map: SinhMap | None
    units: MixtureTable  # of the transformed columns
    table: MixtureTable  # the same rows in standard units

    def mean_rows(
        self, means: FloatArray, variances: FloatArray, posterior: FloatArray
    ) -> FloatArray:
        """Means (n, c) in standard units from moments (K, n, c) of each component."""
        own, table = self.units, self.table
        assert self.sinh_map is not None
        means = own.location + own.scale * means
        cells = self.sinh_map.mean(means, variances * np.square(own.scale))
        result: FloatArray = np.einsum("kn,knc->nc", posterior, cells)
        return (result - table.location) / table.scale


class Answers(NamedTuple):
    """Predictions of m numbers and l categories, or of l rows, by K densities."""

    means: FloatArray  # (m, K), in standard units
    truth: FloatArray  # (m,)
    number_weights: FloatArray  # (m,), of squared errors
    likelihoods: FloatArray  # (l, K)
    log_weights: FloatArray  # (l,), of log losses

    def blurs(self, weights: FloatArray) -> bool:
        """Whether means averaged by weights (K,) miss numbers that those of the first hit."""
        # Large errors decide squared ones, yet a column may determine another where it is observed
        if not len(self.truth):
            return False
        means = np.column_stack([self.means[:, 0], self.means @ weights])
        alone, averaged = np.quantile(np.abs(means - self.truth[:, None]), _SMALLEST, axis=0).T
        return bool((averaged > _BLURRED * alone).any())


def mean_bounds(numbers: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest plausible conditional means (c,), from columns (n, c)."""
    # With heavy tails or steep relations, means far from all rows may be very wrong. Extrapolation
    # is limited to one standard deviation beyond the rows.
    known = ~np.isnan(numbers).all(axis=0)
    spread = np.nanstd(np.where(known, numbers, 0.0), axis=0)
    low, high = observed_ranges(numbers)
    return np.where(known, low - spread, -np.inf), np.where(known, high + spread, np.inf)


@dataclass(frozen=True, eq=False)
class HeldOutCells:
    """Rows that no candidate is fitted on, and which of their observed cells are hidden."""

    table: MixtureTable
    hidden_numbers: BoolArray  # (n, c)
    hidden_codes: BoolArray  # (n, q)
    entropies: FloatArray  # (q,), which scale log losses as variances do squares

    @classmethod
    def draw(cls, table: MixtureTable, fraction: float, rng: np.random.Generator) -> HeldOutCells:
        """Hide a fraction of the observed cells, at random."""
        numbers = ~np.isnan(table.numbers) & (rng.random(table.numbers.shape) < fraction)
        codes = (table.codes >= 0) & (rng.random(table.codes.shape) < fraction)
        entropies = []
        for column, size in zip(table.codes.T, table.category_counts, strict=True):
            counts = np.bincount(column[column >= 0], minlength=size) + 1.0 / size
            frequencies = counts / counts.sum()
            # Losses of a column are relative to what its frequencies alone would lose
            entropies.append(max(-frequencies @ np.log(frequencies), _LEAST_ENTROPY))
        return cls(table, numbers, codes, np.array(entropies))

    def in_turns(self, n_turns: int, rng: np.random.Generator) -> list[HeldOutCells]:
        """The same rows, of which each observed cell is hidden in one of some turns."""
        # Every cell is asked once, given all cells of the other turns
        numbers = np.where(
            np.isnan(self.table.numbers), -1, rng.integers(n_turns, size=self.hidden_numbers.shape)
        )
        codes = np.where(
            self.table.codes < 0, -1, rng.integers(n_turns, size=self.hidden_codes.shape)
        )
        return [
            replace(self, hidden_numbers=numbers == i, hidden_codes=codes == i)
            for i in range(n_turns)
        ]

    @property
    def is_missing(self) -> BoolArray:
        """Cells (n, d) of the rows that are hidden or have no value."""
        is_number = self.table.cardinalities == 0
        result = np.empty((len(self.table.weights), len(is_number)), dtype=bool)
        result[:, is_number] = self.hidden_numbers | np.isnan(self.table.numbers)
        result[:, ~is_number] = self.hidden_codes | (self.table.codes < 0)
        return result

    def of(self, table: MixtureTable) -> HeldOutCells:
        """Other rows, of which no cell is hidden."""
        nothing = [np.zeros(own.shape, dtype=bool) for own in (table.numbers, table.codes)]
        return replace(self, table=table, hidden_numbers=nothing[0], hidden_codes=nothing[1])

    def predict(
        self, state: MixtureState, criterion: Criterion = "cells", mapped: MappedRows | None = None
    ) -> Predictions:
        """Predictions of the rows, and of hidden cells if they count, by a mixture."""
        table = self.table
        numbers, codes = (own := mapped or table).numbers, own.codes
        joint = expect(state, numbers, codes, _groups(state, numbers))[2]
        log_slopes = mapped.log_slopes if mapped else 0.0
        nothing = np.zeros(len(numbers))
        cells = Predictions(nothing, nothing, nothing, nothing)
        if criterion == "cells":
            cells = self.predict_cells(state)
        return replace(cells, log_complete=logsumexp(joint) + log_slopes)

    def predict_cells(
        self,
        state: MixtureState,
        bounds: tuple[FloatArray, FloatArray] | None = None,
        mapped: MappedRows | None = None,
    ) -> Predictions:
        """Predictions of hidden cells alone; `bounds` (c,) of means are in standard units."""
        means, chances, observed = self._moments(state, bounds, mapped)
        codes = self.table.codes
        probabilities = np.zeros(codes.shape)
        for j, log_table in enumerate(state.categories.log_probabilities):
            true = np.exp(log_table)[:, np.maximum(codes[:, j], 0)]
            probabilities[:, j] = np.einsum("kn,kn->n", chances, true)
        return Predictions(
            np.zeros(len(codes)),
            observed,
            means[self.hidden_numbers],
            np.maximum(probabilities[self.hidden_codes], LEAST_PROBABILITY),
        )

    def answer_cells(
        self,
        state: MixtureState,
        mapped: MappedRows | None,
        bounds: tuple[FloatArray, FloatArray],
    ) -> tuple[FloatArray, list[FloatArray]]:
        """Means (n, c) and distributions (n, n_categories_j) of cells without the hidden ones."""
        means, chances, _ = self._moments(state, bounds, mapped)
        return means, [chances.T @ np.exp(own) for own in state.categories.log_probabilities]

    def _moments(
        self,
        state: MixtureState,
        bounds: tuple[FloatArray, FloatArray] | None,
        mapped: MappedRows | None,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means (n, c), probabilities of components (K, n) and log densities of other cells."""
        known = mapped.numbers if mapped else self.table.numbers
        numbers = np.where(self.hidden_numbers, np.nan, known)
        codes = np.where(self.hidden_codes, -1, self.table.codes)
        expectation, _, joint = expect(state, numbers, codes, _groups(state, numbers))
        chances, observed = posterior(joint)
        if mapped and not isinstance(expectation, FactorExpectation):
            means = mapped.mean_rows(*expectation.moments(), chances)
        else:
            means = expectation.mean_rows(chances)
        # As they will be when the density imputes
        return means if bounds is None else np.clip(means, *bounds), chances, observed

    def predict_by(
        self,
        circuit: Circuit,
        X: FloatArray,
        criterion: Criterion,
        bounds: tuple[FloatArray, FloatArray],
    ) -> Predictions:
        """Predictions of a circuit for raw rows X; `bounds` (c,) of means are in standard units."""
        table, rows = self.table, X[self.table.source]
        nothing = np.zeros(len(rows))
        if criterion == "log_likelihood":
            # densities are compared in standard units
            log_units = ~np.isnan(rows[:, table.cardinalities == 0]) @ np.log(table.scale)
            return Predictions(circuit.log_prob(rows) + log_units, nothing, nothing, nothing)
        means, marginals = self.answer_cells_by(circuit, X, bounds)
        likely = np.ones(table.codes.shape)
        for j, own in enumerate(marginals):
            chosen = self.hidden_codes[:, j]
            likely[chosen, j] = own[chosen, table.codes[chosen, j]]
        return Predictions(
            nothing,
            nothing,
            means[self.hidden_numbers],
            np.maximum(likely[self.hidden_codes], LEAST_PROBABILITY),
        )

    def answer_cells_by(
        self, circuit: Circuit, X: FloatArray, bounds: tuple[FloatArray, FloatArray]
    ) -> tuple[FloatArray, list[FloatArray]]:
        """The same as `answer_cells`, by a circuit over raw rows X."""
        table, is_number = self.table, self.table.cardinalities == 0
        rows = X[table.source]
        hidden = np.empty(rows.shape, dtype=bool)
        hidden[:, is_number], hidden[:, ~is_number] = self.hidden_numbers, self.hidden_codes
        means, marginals = circuit._mean_and_marginals(np.where(hidden, np.nan, rows))
        means = np.clip((means[:, is_number] - table.location) / table.scale, *bounds)
        return means, [marginals[j] for j in np.flatnonzero(~is_number).tolist()]

    def losses(self, members: Sequence[Predictions], criterion: Criterion) -> FloatArray:
        """Loss (n,) of each row under an equal mixture of some mixtures."""
        # Minus the log density, or squared errors and log losses of hidden cells relative to those
        # of the marginal distributions of the columns
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
        # Without a row counts are integers
        total = np.zeros(n_rows) + np.bincount(rows, squares, minlength=n_rows)
        total += np.bincount(codes_rows, -np.log(likely) / scales, minlength=n_rows)
        return total * n_rows / max(1, len(squares) + len(scales))

    def answers(self, members: Sequence[Predictions], criterion: Criterion) -> Answers:
        """Predictions of the same cells, or of whole rows, by several densities."""
        weights = self.table.weights
        if criterion == "log_likelihood":
            densities = np.stack([member.log_complete for member in members], axis=1)
            # only their ratios matter, and these do not overflow
            ratios = np.exp(densities - densities.max(axis=1, keepdims=True))
            nothing = np.zeros((0, len(members)))
            return Answers(nothing, np.zeros(0), np.zeros(0), ratios, weights)
        scales = np.broadcast_to(self.entropies, self.hidden_codes.shape)[self.hidden_codes]
        return Answers(
            np.stack([member.numbers for member in members], axis=1),
            self.table.numbers[self.hidden_numbers],
            weights[self._rows(self.hidden_numbers)],
            np.stack([member.probabilities for member in members], axis=1),
            weights[self._rows(self.hidden_codes)] / scales,
        )

    def of_column(self, answers: Answers, column: int) -> Answers:
        """Those of some answers to hidden cells that are about one column of the table."""
        is_number = self.table.cardinalities == 0
        is_asked = np.arange(len(is_number)) == column
        numbers = is_asked[is_number][np.nonzero(self.hidden_numbers)[1]]
        codes = is_asked[~is_number][np.nonzero(self.hidden_codes)[1]]
        return Answers(
            answers.means[numbers],
            answers.truth[numbers],
            answers.number_weights[numbers],
            answers.likelihoods[codes],
            answers.log_weights[codes],
        )

    @staticmethod
    def _rows(hidden: BoolArray) -> IntArray:
        """Row of each hidden cell."""
        return np.nonzero(hidden)[0]


def _groups(state: MixtureState, numbers: FloatArray) -> list[PatternGroup]:
    """Patterns of missing cells, joined as suits a mixture."""
    n_gaussians = state.gaussians.n_gaussians
    return joined_groups(np.isnan(numbers), n_gaussians) if n_gaussians else []


def split_sizes(n_rows: int, n_columns: int) -> tuple[int, int]:
    """Rows to fit candidates to, at most, and others to compare them on."""
    least, most = _TRAINING_ROWS
    n_fitted = int(np.clip(_TRAINING_CELLS // max(1, n_columns), least, most))
    return n_fitted, min(_HELD_OUT_ROWS, int(np.ceil(_HELD_OUT_FRACTION * n_rows)))


def split_table(
    table: MixtureTable, rng: np.random.Generator
) -> Iterator[tuple[MixtureTable, HeldOutCells]]:
    """Rows to fit candidates to, and others with hidden cells."""
    order = rng.permutation(len(table.weights))
    # Fewer rows leave no cells for a comparison
    if len(order) < 12:
        return
    n_kept, n_held_out = split_sizes(len(order), len(table.cardinalities))
    for i in range(2 if len(order) < _FEW_ROWS else 1):
        held_out = order[i * n_held_out : (i + 1) * n_held_out]
        kept = np.concatenate([order[: i * n_held_out], order[(i + 1) * n_held_out :]])
        hidden = HeldOutCells.draw(table.take(np.sort(held_out)), _HIDDEN_FRACTION, rng)
        yield table.take(np.sort(kept[:n_kept])), hidden
