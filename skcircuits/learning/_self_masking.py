"""Cells that are missing because of their own values, and how these values then differ.

If the log odds that a cell is missing are ``a + b x`` in its value x, whatever the other cells are,
then the density of a missing cell given the others is that of an observed one times ``exp(b x)``,
up to a constant (exponential tilting: Kim and Yu, 2011, "A Semiparametric Estimation of Mean
Functionals with Nonignorable Missing Data"). A category c has log odds of its own, ``b_c``. If the
conditional distributions are normal with one variance, the log odds given the other cells are
linear in the conditional mean with the same slope b, so that b can be learned.

Cells may as well be missing because of other columns (missing at random), on which the conditional
mean depends. So four explanations of the missing cells of each column compete by their marginal
likelihoods: nothing, the own value, one other column, all other columns. Either own values are the
reason in all columns of the table, or one column is that of all others, or each has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from skcircuits.learning._columns import frequencies
from skcircuits.numerics._arrays import logsumexp, observed_ranges
from skcircuits.protocols import BoolArray, FloatArray, IntArray

_MIN_CELLS = 5  # missing, and observed, in a column whose missing cells are explained
# Rows of unit variance in linear regressions, and how many times as much evidence of own values
# densities may find (33 tables in which these are the reason: at most 7, where 4 suffice)
_RIDGE, _MORE_EVIDENCE = 2.0, 4.0
_MAX_EXPLAINED = 0.9  # of the variance of an indicator
# Columns that the prior is worth: nothing, own value, one other column, all others
_PRIOR_COLUMNS = np.array([3.0, 0.5, 0.5, 0.5])
_N_ITERATIONS = 100  # of their frequencies, and of variances
_MAX_DEVIATIONS = 3.0  # at which an error counts
# Standard deviations of normal priors of the slopes of log odds, in standard units
_SPREADS = np.array([0.03, 0.1, 0.2, 0.3, 0.6, 1.0])
_SLOPES = np.linspace(-2.0, 2.0, 17)  # means of the slopes of the numbers of a table


@dataclass(frozen=True)
class SelfMasking:
    """How values of missing cells differ from what the other cells of the row tell."""

    chances: FloatArray  # (d,), that cells are missing because of their values
    shifts: FloatArray  # (d,), of the means of numbers, or of the log odds of the greater of two
    log_odds: dict[int, FloatArray]  # of the categories (k,) of some columns
    least: FloatArray  # (d,), of the observed numbers
    most: FloatArray  # (d,)
    is_binary: BoolArray  # (d,), columns of two numbers

    def shifted(self, means: FloatArray) -> FloatArray:
        """Means (n, d) of missing numbers, in the observed range if they were there before."""
        low, high = np.fmin(self.least, means), np.fmax(self.most, means)
        result = np.clip(means + np.where(self.is_binary, 0.0, self.shifts), low, high)
        own = np.flatnonzero(self.is_binary)
        # The mean tells the probability of the greater number, whose odds change as a category's
        least, width = self.least[own], self.most[own] - self.least[own]
        with np.errstate(divide="ignore"):  # certain ones stay so
            log_odds = logit(np.clip((means[:, own] - least) / width, 0.0, 1.0))
        result[:, own] = least + width * expit(log_odds + self.shifts[own])
        return result

    def tilted(self, tables: Mapping[int, FloatArray]) -> dict[int, FloatArray]:
        """Probabilities (n, k) of missing categories, up to constants."""
        tilts = {j: np.exp(odds) for j, odds in self.log_odds.items()}
        return {j: table * tilts[j] if j in tilts else table for j, table in tables.items()}


class _Regression(NamedTuple):
    """Regressions of m indicators: log evidences (m,), coefficients (q, m), R squared (m,)."""

    evidences: FloatArray
    coefficients: FloatArray
    explained: FloatArray


def may_be_self_masked(X: FloatArray, cardinalities: IntArray) -> bool:
    """Whether own values, as linear regressions predict them, may be why cells are missing."""
    columns = _explained_columns(np.isnan(X))
    if len(columns) == 0 or X.shape[1] == 1:
        return False
    predictions = _linear_predictions(X, cardinalities)
    evidences, singles, _ = _explain(X, *predictions, columns, by_all=False)
    evidences[:, 1] *= np.where(evidences[:, 1] > 0.0, _MORE_EVIDENCE, 1.0)
    return bool(_own_chances(evidences, singles).max() > 0.5)


def _linear_predictions(
    X: FloatArray, cardinalities: IntArray
) -> tuple[FloatArray, dict[int, FloatArray]]:
    """Means (n, d), and tables (n, k) of categories up to constants, of cells from all others."""
    marginal = {
        j: np.broadcast_to(frequencies(X[:, j], k), (len(X), k))
        for j, k in enumerate(cardinalities.tolist())
        if k
    }
    seen = ~np.isnan(X)
    means = np.where(seen, X, 0.0).sum(axis=0) / np.maximum(1, seen.sum(axis=0))
    blocks = _blocks(X, np.broadcast_to(means, X.shape), marginal)
    cells = np.hstack(blocks)
    # The precisions of all columns hold the regressions of each on the others
    precisions = np.linalg.inv(cells.T @ cells + _RIDGE * np.eye(cells.shape[1]))
    crossed, start, scale = cells @ precisions, 0, _scales(X)
    predicted, tables = np.zeros(X.shape), {}
    for j, block in enumerate(blocks):
        own = slice(start, start + block.shape[1])
        start = own.stop
        found = block - np.linalg.solve(precisions[own, own], crossed[:, own].T).T
        if j in marginal:
            tables[j] = marginal[j] + found
        else:
            predicted[:, j] = means[j] + found[:, 0] * scale[j]
    return predicted, tables


def learn_self_masking(
    X: FloatArray, means: FloatArray, tables: Mapping[int, FloatArray]
) -> SelfMasking | None:
    """Learn how missing cells of rows (n, d) differ; None if own values are no likely reason."""
    # `means` (n, d) and `tables` {column: (n, k)} predict all cells, also observed ones, from
    # others
    columns = _explained_columns(np.isnan(X))
    if len(columns) == 0:
        return None
    evidences, singles, slopes = _explain(X, means, tables, columns)
    chances = np.zeros(X.shape[1])
    chances[columns] = _own_chances(evidences, singles)
    if chances.max() <= 0.5:
        return None
    # A normal distribution times exp(b x) has its mean shifted by b times its variance; of two
    # numbers, the log odds are shifted by b times their distance
    seen, scale = ~np.isnan(X), _scales(X)
    variances = _ordinary_variances(np.where(seen, X - means, 0.0) / scale, seen.sum(axis=0))
    is_binary = np.zeros(X.shape[1], dtype=bool)
    shifts, log_odds = np.zeros(X.shape[1]), {}
    least, most = observed_ranges(X)
    for j, slope in zip(columns.tolist(), slopes, strict=True):
        if chances[j] <= 0.5:
            continue
        if j in tables:
            log_odds[j] = chances[j] * slope
        else:
            is_binary[j] = (
                least[j] < most[j] and np.isin(X[seen[:, j], j], [least[j], most[j]]).all()
            )
            factor = (most[j] - least[j]) / scale[j] if is_binary[j] else variances[j] * scale[j]
            shifts[j] = chances[j] * slope[0] * factor
    return SelfMasking(chances, shifts, log_odds, least, most, is_binary)


def _explained_columns(missing: BoolArray) -> IntArray:
    """Columns with enough missing and observed cells."""
    n_missing = missing.sum(axis=0)
    return np.flatnonzero(np.minimum(n_missing, len(missing) - n_missing) >= _MIN_CELLS)


def _indicators(X: FloatArray, columns: IntArray) -> FloatArray:
    """Centred indicators (n, m) of missing cells."""
    missing = np.isnan(X[:, columns]).astype(np.float64)
    return missing - missing.mean(axis=0)


def _scales(X: FloatArray) -> FloatArray:
    """Standard deviations (d,) of the observed cells, one where they do not vary."""
    seen = ~np.isnan(X)
    low, high = observed_ranges(X)
    width = high - low
    varies = (width > 0.0) & np.isfinite(width)
    width = np.where(varies, width, 1.0)
    # Squares of large numbers overflow
    parts = np.where(seen & varies, (X - low) / width, 0.0)
    n_seen = np.maximum(1, seen.sum(axis=0))
    distances = np.where(seen, parts - parts.sum(axis=0) / n_seen, 0.0)
    spread = np.sqrt(np.square(distances).sum(axis=0) / n_seen)
    return np.where(varies, spread * width, 1.0)


def _ordinary_variances(errors: FloatArray, n_seen: IntArray) -> FloatArray:
    """Variances (d,) of errors (n, d), zero where nothing is seen, as if few were far from zero."""
    # Log odds of all cells are not linear as far out as the outliers of heavy tails, which would
    # shift all means far (Huber's Proposal 2; 1964, "Robust Estimation of a Location Parameter")
    squares, limit = np.square(errors), np.inf
    for _ in range(_N_ITERATIONS):
        variances = np.minimum(squares, limit).sum(axis=0) / np.maximum(1, n_seen)
        limit = np.square(_MAX_DEVIATIONS) * variances
    return variances


def _blocks(X: FloatArray, means: FloatArray, tables: Mapping[int, FloatArray]) -> list[FloatArray]:
    """Centred covariates of each column: standardised number (n, 1), indicators (n, k)."""
    scale, blocks = _scales(X), []
    for j, column in enumerate(X.T):
        missing = np.isnan(column)
        if j in tables:
            block = (column[:, None] == np.arange(tables[j].shape[1])).astype(np.float64)
            block[missing] = tables[j][missing]
        else:
            block = np.where(missing, means[:, j], column)[:, None] / scale[j]
        blocks.append(block - block.mean(axis=0))
    return blocks


def _regress(covariates: FloatArray, indicators: FloatArray) -> _Regression:
    """Linear regressions of centred indicators, with evidences relative to independence."""
    # The prior is normal, of the likeliest strength
    values, vectors = np.linalg.eigh(covariates.T @ covariates)
    values = np.maximum(values, 0.0)
    projected = vectors.T @ (covariates.T @ indicators)
    total = np.square(indicators).sum(axis=0)
    # Slopes of log odds are those of the indicator divided by its variance
    precisions = len(indicators) / (np.square(_SPREADS)[:, None] * total)
    kept = 1.0 / (values[:, None, None] + precisions)
    explained = np.square(projected[:, None] / np.sqrt(total)) * kept
    explained = np.minimum(explained.sum(axis=0), _MAX_EXPLAINED)
    evidences = -0.5 * len(indicators) * np.log1p(-explained)
    evidences -= 0.5 * np.log1p(values[:, None, None] / precisions).sum(axis=0)
    best, each = evidences.argmax(axis=0), np.arange(len(total))
    coefficients = vectors @ (projected * kept[:, best, each])
    return _Regression(evidences[best, each], coefficients, explained[best, each])


def _single_evidences(
    blocks: list[FloatArray], indicators: FloatArray, columns: IntArray
) -> FloatArray:
    """Evidence (d, m) of each indicator that it depends on one of the columns."""
    evidences = np.stack([_regress(block, indicators).evidences for block in blocks])
    # Not on the own one, whose missing cells the covariates show
    evidences[columns, np.arange(len(columns))] = -np.inf
    return evidences


def _average(singles: FloatArray) -> FloatArray:
    """Evidence of each indicator (m,) that it depends on one other column, whichever that is."""
    return logsumexp(singles) - np.log(len(singles) - 1)


def _explain(
    X: FloatArray,
    means: FloatArray,
    tables: Mapping[int, FloatArray],
    columns: IntArray,
    by_all: bool = True,
) -> tuple[FloatArray, FloatArray, list[FloatArray]]:
    """Log evidences (m, 4) of columns' explanations, (d, m) of other columns, and own slopes."""
    blocks, indicators = _blocks(X, means, tables), _indicators(X, columns)
    own_evidences, slopes = _explain_by_own(means / _scales(X), tables, indicators, columns)
    evidences = np.zeros((len(columns), 4))
    evidences[:, 1] = own_evidences
    singles = _single_evidences(blocks, indicators, columns)
    evidences[:, 2] = _average(singles)
    # All other columns cost most, and matter only where the own value may be the reason
    for i in np.flatnonzero(own_evidences > 0.0) if by_all else ():
        others = np.hstack([block for k, block in enumerate(blocks) if k != columns[i]])
        evidences[i, 3] = _regress(others, indicators[:, [i]]).evidences[0]
    return evidences, singles, slopes


def _explain_by_own(
    means: FloatArray, tables: Mapping[int, FloatArray], indicators: FloatArray, columns: IntArray
) -> tuple[FloatArray, list[FloatArray]]:
    """Evidences (m,) of own values, and slopes of log odds, from means (n, d) in standard units."""
    is_number = ~np.isin(columns, list(tables))
    evidences, slopes = np.zeros(len(columns)), [np.zeros(1)] * len(columns)
    if is_number.any():
        own = means[:, columns[is_number]]
        shared = _shared_slopes(own - own.mean(axis=0), indicators[:, is_number])
        evidences[is_number] = shared[0]
        for i, slope in zip(np.flatnonzero(is_number), shared[1][:, None], strict=True):
            slopes[i] = slope
    for i in np.flatnonzero(~is_number):
        table = tables[int(columns[i])]
        found = _regress(table - table.mean(axis=0), indicators[:, [i]])
        # Discriminants: slopes of log odds from those of the indicator
        variance = np.square(indicators[:, i]).mean() * (1.0 - found.explained[0])
        evidences[i], slopes[i] = found.evidences[0], found.coefficients[:, 0] / variance
    return evidences, slopes


def _shared_slopes(own: FloatArray, indicators: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Evidences and slopes (m,) of numbers, which have a normal distribution over the columns."""
    # A column alone tells little about its slope; columns of one table are often alike
    squares = np.maximum(np.square(own).sum(axis=0), 1e-12)
    total = np.square(indicators).sum(axis=0)
    products = (own * indicators).sum(axis=0)
    explained = np.minimum(np.square(products) / (squares * total), _MAX_EXPLAINED)
    spread = total / len(own) * (1.0 - explained)
    slopes, variances = products / squares / spread, 1.0 / (spread * squares)
    mean, variance = _SLOPES[:, None, None], np.square(_SPREADS)[:, None]
    evidences = -0.5 * len(own) * np.log1p(-explained) - 0.5 * np.log1p(variance / variances)
    evidences = evidences - 0.5 * np.square(slopes - mean) / (variances + variance)
    # The mean slope has a standard normal distribution, and all spreads are equally likely
    prior = -0.5 * np.square(_SLOPES)[:, None] - np.log(len(_SPREADS))
    joint = evidences.sum(axis=2) + prior - logsumexp(-0.5 * np.square(_SLOPES))
    i, k = np.unravel_index(joint.argmax(), joint.shape)
    own_part = variance[k] / (variance[k] + variances)
    # What the average over all distributions of slopes is below the best one
    loss = (evidences[i, k].sum() - logsumexp(joint.ravel())) / len(slopes)
    return evidences[i, k] - loss, own_part * slopes + (1.0 - own_part) * _SLOPES[i]


def _own_chances(evidences: FloatArray, singles: FloatArray) -> FloatArray:
    """Probability (m,) that the own value explains the missing cells of a column."""
    weights = _PRIOR_COLUMNS / _PRIOR_COLUMNS.sum()
    by_own, by_each = _chances_of_one_reason(evidences, singles, weights)
    for _ in range(_N_ITERATIONS):
        joint = evidences + np.log(weights)
        chances = np.exp(joint - logsumexp(joint.T)[:, None])
        weights = (chances.sum(axis=0) + _PRIOR_COLUMNS) / (len(chances) + _PRIOR_COLUMNS.sum())
    return by_own + by_each * chances[:, 1]


def _chances_of_one_reason(
    evidences: FloatArray, singles: FloatArray, weights: FloatArray
) -> tuple[float, float]:
    """Probabilities that own values explain all columns, and that each column has its reason."""
    # Columns of one table often have one reason: the remaining probability is that of one column on
    # which the cells of all others depend
    own = evidences[:, 1].sum() + np.log(weights[1])
    # The column itself, if it has missing cells, depends on nothing
    common = np.where(np.isneginf(singles), 0.0, singles).sum(axis=1)
    other = float(logsumexp(common[:, None])[0]) - np.log(len(common)) + np.log(weights[2])
    rest = np.log(np.delete(weights, 1) / (1.0 - weights[1]))
    each = logsumexp((np.delete(evidences, 1, axis=1) + rest).T).sum()
    each += np.log(1.0 - weights[1] - weights[2])
    joint = np.array([own, other, each])
    chances = np.exp(joint - logsumexp(joint[:, None])[0])
    return float(chances[0]), float(chances[2])
