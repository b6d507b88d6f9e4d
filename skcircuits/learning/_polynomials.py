"""Fits of piecewise polynomial densities to many small samples at once.

The likelihood is that of recording intervals, not of points: a number represents the interval in
which it was recorded. Thus ties of rounded numbers cannot make a density unbounded, and narrow
spikes cannot improve the Bayesian information criterion.

Ten or thirty numbers rarely justify a second basis function, so that the information criterion
selects a uniform density between the minimum and the maximum. This fits the sample better than it
predicts: if either extreme is left out, it falls outside of the range. The alternative with two
fitted numbers is a cubic B-spline with the mean and the variance of the sample, which is close to a
normal density.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from skcircuits.circuits.inputs.polynomial._pieces import (
    basis_cdf,
    rising_basis_cdfs,
    uniform_weights,
)
from skcircuits.numerics._patterns import unique_rows
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Numbers of intervals and degrees that the information criterion chooses among.
CANDIDATE_BINS = (1, 2, 3, 4, 6, 8, 12, 16)
# A basis function needs this many rows.
ROWS_PER_FUNCTION = 3
# A sample is summarised by at most this many cells, none narrower than this fraction of the
# range between its first and last decile.
MAX_CELLS = 64
FINEST_CELL = 1e-3
# EM steps to compare candidates, with a look after the first of them at which can still win, and
# most steps for the chosen one.
FIRST_STEPS = 5
SCREENING_STEPS = 25
FINAL_STEPS = 200
TOLERANCE = 1e-6
# Samples fitted together: their basis matrices stay in cache.
BATCH = 128
TINY = 1e-300
# Degree of the B-spline: its middle B-spline on DEGREE + 1 equal intervals.
DEGREE = 3


@dataclass(frozen=True)
class PolynomialSettings:
    """Which piecewise polynomials to fit."""

    n_bins: int | Literal["bic"] = "bic"
    binning: Literal["quantile", "uniform", "mean"] = "quantile"  # "mean" halves the widest
    max_degree: int = 6  # 0 allows histograms only
    smoothing: float = 1.0  # pseudo-rows, uniform over the range

    @property
    def numbers_of_bins(self) -> tuple[int, ...]:
        """Numbers of intervals to choose among, each with all degrees."""
        return CANDIDATE_BINS if isinstance(self.n_bins, str) else (self.n_bins,)


@dataclass(frozen=True)
class Samples:
    """Samples as counts (L, G) of cells from `lower` to `upper` (L, G); zeros pad shorter ones."""

    lower: FloatArray
    upper: FloatArray
    counts: FloatArray

    @classmethod
    def summarize(
        cls,
        values: Sequence[FloatArray],
        weights: Sequence[FloatArray],
        resolutions: Sequence[float],
    ) -> Samples:
        """Count numbers (n_i,) with weights (n_i,) in cells."""
        cells = [_count_cells(*sample) for sample in zip(values, weights, resolutions)]
        shape = (len(cells), max(len(counts) for _, _, counts in cells))
        lower, upper, padded = np.empty(shape), np.empty(shape), np.zeros(shape)
        for row, (low, high, counts) in enumerate(cells):
            # Padding cells have no width and no count
            lower[row], upper[row] = high[-1], high[-1]
            lower[row, : len(low)], upper[row, : len(low)] = low, high
            padded[row, : len(low)] = counts
        return cls(lower, upper, padded)

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def totals(self) -> FloatArray:
        """Weight of each sample, shape (L,)."""
        return self.counts.sum(axis=1)

    def basis_masses(self, knots: FloatArray, degree: int) -> FloatArray:
        """Probability of each cell under each basis function, shape (L, G, n_functions)."""
        n_cells = self.counts.shape[1]
        # Small samples have many shapes: the cost of calls matters, not that of arithmetic
        ends = basis_cdf(np.hstack([self.lower, self.upper]), knots, degree)
        return np.asarray(ends[:, n_cells:] - ends[:, :n_cells])

    def rising_basis_masses(self, knots: FloatArray, max_degree: int) -> Iterator[FloatArray]:
        """Give `basis_masses` of degree 0, 1, ..., `max_degree`."""
        n_cells = self.counts.shape[1]
        for ends in rising_basis_cdfs(np.hstack([self.lower, self.upper]), knots, max_degree):
            yield np.asarray(ends[:, n_cells:] - ends[:, :n_cells])

    def take(self, rows: IntArray) -> Samples:
        """Select samples (m,)."""
        return Samples(self.lower[rows], self.upper[rows], self.counts[rows])


def fit_polynomials(
    samples: Samples, settings: PolynomialSettings
) -> list[tuple[FloatArray, FloatArray]]:
    """Fit a piecewise polynomial density to each sample."""
    knots = {n: _knots(samples, n, settings.binning) for n in settings.numbers_of_bins}
    chosen = _choose(samples, settings, knots)
    fitted: dict[int, tuple[FloatArray, FloatArray]] = {}
    first, kind = unique_rows(chosen)
    for number, (n_bins, degree) in enumerate(chosen[first].tolist()):
        for rows in _batches(np.flatnonzero(kind == number)):
            own, some = knots[n_bins][rows], samples.take(rows)
            start = uniform_weights(own, degree)
            masses = some.basis_masses(own, degree)
            problem = _Mixture(some.counts, masses, start, settings.smoothing * start)
            fitted.update(zip(rows.tolist(), zip(own, problem.solve(FINAL_STEPS))))
    return [fitted[row] for row in range(len(samples))]


def _choose(
    samples: Samples, settings: PolynomialSettings, knots: dict[int, FloatArray]
) -> IntArray:
    """Number of intervals and degree of the best candidate of each sample, shape (L, 2)."""
    totals = samples.totals
    log_totals = np.log(np.maximum(totals, 1.0))
    # No density makes the cells more likely than their own frequencies do
    fractions = samples.counts / np.maximum(totals, TINY)[:, None]
    most = (samples.counts * np.log(np.maximum(fractions, TINY))).sum(axis=1)
    best = np.full(len(samples), np.inf)
    # The first candidate is for samples too small for any
    chosen = np.tile((settings.numbers_of_bins[0], 0), (len(samples), 1))

    def needed(rows: IntArray, n_functions: int) -> FloatArray:
        """Log likelihood with which so many basis functions would be better than the best."""
        penalty = (n_functions - 1) * log_totals[rows]
        return (penalty - best[rows] + TOLERANCE) / 2.0

    def able(rows: IntArray, n_functions: int) -> BoolArray:
        is_first = np.isinf(best[rows])
        is_large = totals[rows] >= ROWS_PER_FUNCTION * n_functions
        return is_first | (is_large & (most[rows] > needed(rows, n_functions)))

    # Samples of one size have the same candidates
    by_size = np.argsort(totals, kind="stable")
    for n_bins in settings.numbers_of_bins:
        for rows in _batches(by_size[able(by_size, n_bins)]):
            some = samples.take(rows)
            every = some.rising_basis_masses(knots[n_bins][rows], settings.max_degree)
            for degree, masses in enumerate(every):
                n_functions = n_bins + degree
                kept = np.flatnonzero(able(rows, n_functions))
                if not len(kept):
                    break
                start = uniform_weights(knots[n_bins][rows[kept]], degree)
                prior = settings.smoothing * start
                problem = _Mixture(some.counts[kept], masses[kept], start, prior)
                winners, log_likelihood = problem.screen(needed(rows[kept], n_functions))
                winners = rows[kept[winners]]
                best[winners] = (n_functions - 1) * log_totals[winners] - 2.0 * log_likelihood
                chosen[winners] = n_bins, degree
    return chosen


def _batches(rows: IntArray) -> list[IntArray]:
    return [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]


@dataclass(frozen=True)
class _Mixture:
    """The weights of fixed basis densities as the fractions of a mixture, fitted by EM."""

    # The log likelihood of the cells is concave in the weights. Pseudo-rows with the uniform
    # density pull towards the weights that give the uniform density.

    counts: FloatArray  # (L, G), of the cells
    masses: FloatArray  # (L, G, n_functions), of the cells under the basis functions
    start: FloatArray  # (L, n_functions), first weights
    prior: FloatArray  # (L, n_functions), pseudo-rows

    def solve(self, max_steps: int) -> FloatArray:
        """Weights after EM steps, shape (L, n_functions)."""
        weights = self.start
        for _ in range(max_steps):
            flows = weights * self._slopes(self._cell_masses(weights)) + self.prior
            new = flows / flows.sum(axis=1, keepdims=True)
            moved = np.abs(new - weights).max()
            weights = new
            if moved < TOLERANCE:
                break
        return weights

    def screen(self, needed: FloatArray) -> tuple[IntArray, FloatArray]:
        """Samples whose log likelihood gets above `needed` (L,) in some EM steps, and how high."""
        weights = self.solve(FIRST_STEPS)
        rows = np.flatnonzero(self._upper_bounds(weights) > needed)
        if not len(rows):
            return rows, np.empty(0)
        rest = _Mixture(self.counts[rows], self.masses[rows], weights[rows], self.prior[rows])
        weights = rest.solve(SCREENING_STEPS - FIRST_STEPS)
        log_likelihoods = rest._log_likelihoods(rest._cell_masses(weights))
        is_enough = log_likelihoods > needed[rows]
        return rows[is_enough], log_likelihoods[is_enough]

    def _upper_bounds(self, weights: FloatArray) -> FloatArray:
        """Bounds (L,) of the log likelihood of any weights, from its slopes at these (Jensen)."""
        cell_masses, totals = self._cell_masses(weights), self.counts.sum(axis=1)
        steepest = self._slopes(cell_masses).max(axis=1)
        gains = totals * np.log(np.maximum(steepest, TINY) / np.maximum(totals, TINY))
        return self._log_likelihoods(cell_masses) + gains

    def _slopes(self, cell_masses: FloatArray) -> FloatArray:
        """Slopes of the log likelihood in the weights, shape (L, n_functions)."""
        return np.matmul((self.counts / cell_masses)[:, None], self.masses)[:, 0]

    def _log_likelihoods(self, cell_masses: FloatArray) -> FloatArray:
        """Log probability of each sample's cells, shape (L,)."""
        return (self.counts * np.log(cell_masses)).sum(axis=1)

    def _cell_masses(self, weights: FloatArray) -> FloatArray:
        """Probabilities of the cells, positive, shape (L, G)."""
        return np.maximum(np.matmul(self.masses, weights[:, :, None])[:, :, 0], TINY)


def _count_cells(
    values: FloatArray, weights: FloatArray, resolution: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Lower ends, upper ends and weights of the cells of one sample."""
    deciles = np.quantile(values, [0.1, 0.9], weights=weights, method="inverted_cdf")
    pitch = max(resolution, FINEST_CELL * (deciles[1] - deciles[0]))
    start = values.min() - pitch / 2
    cells, place = np.unique(np.floor((values - start) / pitch), return_inverse=True)
    counts = np.bincount(place, weights).astype(float)
    lower, upper = start + pitch * cells, start + pitch * (cells + 1)
    if len(cells) <= MAX_CELLS:
        return lower, upper, counts
    middle = (np.cumsum(counts) - counts / 2) / counts.sum()
    group = np.floor(middle * MAX_CELLS)
    firsts = np.flatnonzero(np.diff(group, prepend=-1.0))
    cuts = (lower[firsts[1:]] + upper[firsts[1:] - 1]) / 2
    edges = np.concatenate([lower[:1], cuts, upper[-1:]])
    return edges[:-1], edges[1:], np.add.reduceat(counts, firsts)


def _knots(samples: Samples, n_bins: int, binning: str) -> FloatArray:
    """Ends of the intervals of each sample, shape (L, n_bins + 1)."""
    low, high = samples.lower[:, 0], samples.upper[:, -1]
    fractions = np.arange(1, n_bins) / n_bins
    if binning == "uniform":
        inner = low[:, None] + (high - low)[:, None] * fractions
    elif binning == "quantile":
        inner = _quantiles(samples, np.tile(fractions, (len(samples), 1)))
    else:
        inner = _means(samples, n_bins)
    knots = np.column_stack([low, inner, high])
    # Far from zero floats cannot keep many knots apart
    close = np.flatnonzero((np.diff(knots) <= 0.0).any(axis=1))
    middle = (low[close] + high[close]) / 2
    half = np.maximum(high[close] - low[close], n_bins * _least_step(middle)) / 2
    knots[close] = np.linspace(middle - half, middle + half, n_bins + 1, axis=1)
    return knots


def _least_step(x: FloatArray) -> FloatArray:
    """Distance at which knots around numbers stay apart, whatever rounding does."""
    return 4.0 * np.spacing(2.0 * np.abs(x))


def _quantiles(samples: Samples, fractions: FloatArray) -> FloatArray:
    """Points with given fractions of the weight below them, shape (L, m)."""
    ends = np.cumsum(samples.counts, axis=1)
    target = fractions * ends[:, -1:]
    cell = (ends[:, :, None] < target[:, None, :]).sum(axis=1)
    row = np.arange(len(samples))[:, None]
    inside = 1.0 - (ends[row, cell] - target) / samples.counts[row, cell]
    lower = samples.lower[row, cell]
    return lower + inside * (samples.upper[row, cell] - lower)


def _means(samples: Samples, n_bins: int) -> FloatArray:
    """Split intervals at their means, that with the largest scatter first, (L, n_bins - 1)."""
    middles = (samples.lower + samples.upper) / 2
    interval = np.zeros(middles.shape, dtype=np.intp)
    cuts = np.empty((len(samples), n_bins - 1))
    every = np.arange(len(samples))
    for n_intervals in range(1, n_bins):
        member = interval[:, :, None] == np.arange(n_intervals)
        counts = np.einsum("lg,lgi->li", samples.counts, member)
        sums = np.einsum("lg,lgi->li", samples.counts * middles, member)
        means = sums / np.maximum(counts, TINY)
        gaps = middles - np.take_along_axis(means, interval, axis=1)
        scatter = np.einsum("lg,lgi->li", samples.counts * gaps**2, member)
        widest = scatter.argmax(axis=1)
        cut = means[every, widest]
        cuts[:, n_intervals - 1] = cut
        moved = (interval == widest[:, None]) & (middles > cut[:, None])
        interval[moved] = n_intervals
    return _separated(np.sort(cuts, axis=1), samples)


def _separated(cuts: FloatArray, samples: Samples) -> FloatArray:
    """Keep sorted cuts apart and inside: samples with few cells repeat their means."""
    low, high = samples.lower[:, :1], samples.upper[:, -1:]
    least = 1e-6 * (high - low)
    steps = np.arange(1, cuts.shape[1] + 1)
    # Each at least a step beyond the one before, from the left and then back from the right
    raised = np.maximum.accumulate(np.maximum(cuts, low) - steps * least, axis=1) + steps * least
    back = steps[::-1] * least
    lowered = np.minimum.accumulate((np.minimum(raised, high) + back)[:, ::-1], axis=1)[:, ::-1]
    return lowered - back


class Density(NamedTuple):
    """Pieces `knots` (P + 1,) and `weights` (P + p,) of B-splines, and the mass `beyond` (2,)."""

    knots: FloatArray
    weights: FloatArray
    beyond: FloatArray


def fit_densities(samples: Samples, settings: PolynomialSettings) -> list[Density]:
    """Fit a density to each sample: piecewise polynomials, or a B-spline where it predicts better.

    Polynomials on the range of a sample have the score log likelihood - (number of basis functions
    - 1) log(n) / 2, where a number that alone determines an end of the range is evaluated as if it
    had been left out: in the tail, just outside. B-splines have log likelihood - 2 log(n) / 2.
    """
    fitted = fit_polynomials(samples, settings)
    nothing = np.zeros(2)
    densities = [Density(knots, weights, nothing) for knots, weights in fitted]
    # Histograms and fixed numbers of intervals are kept as asked for
    if settings.n_bins != "bic" or settings.max_degree < DEGREE:
        return densities
    knots, weights = _fit_b_splines(samples, settings.smoothing)
    gain = _b_spline_scores(samples, knots, weights) - _range_scores(samples, fitted)
    is_b_spline = (gain > 0) & (samples.totals >= 2 * ROWS_PER_FUNCTION)
    ends = np.column_stack([samples.lower[:, 0], samples.upper[:, -1]])
    below = np.einsum("lef,lf->le", basis_cdf(ends, knots, DEGREE), weights)
    for i in np.flatnonzero(is_b_spline):
        densities[i] = Density(knots[i], weights[i], np.array([below[i, 0], 1.0 - below[i, 1]]))
    return densities


def tail_fraction(totals: FloatArray) -> FloatArray:
    """Probability (L,) of either tail, from totals (L,)."""
    # The next of n + 1 exchangeable numbers falls beyond the first n with probability 1 / (n + 1)
    # on either side, whatever their distribution: so much goes to each tail (with two pseudo-rows,
    # so that three equal parts remain for n = 0)
    return 1.0 / (totals + 3.0)


def _fit_b_splines(samples: Samples, smoothing: float) -> tuple[FloatArray, FloatArray]:
    """Knots (L, 5) and weights (L, 7) of B-splines with the samples' means and variances."""
    # The pseudo-rows are uniform: over the sample in its moments, over the B-spline's own range in
    # the weights, so that the density is zero nowhere
    totals = samples.totals
    low, high = samples.lower[:, 0], samples.upper[:, -1]
    centre = (low + high) / 2
    middles, widths = (samples.lower + samples.upper) / 2, samples.upper - samples.lower
    mean = ((samples.counts * middles).sum(axis=1) + smoothing * centre) / (totals + smoothing)
    squares = (middles - mean[:, None]) ** 2 + widths**2 / 12
    prior = (high - low) ** 2 / 12 + (centre - mean) ** 2
    variance = ((samples.counts * squares).sum(axis=1) + smoothing * prior) / (totals + smoothing)
    # A sum of p + 1 uniform numbers of width h has the variance (p + 1) h² / 12
    step = np.maximum(np.sqrt(12 * variance / (DEGREE + 1)), _least_step(mean))
    places = np.arange(DEGREE + 2) - (DEGREE + 1) / 2
    knots = mean[:, None] + step[:, None] * places
    weights = smoothing * uniform_weights(knots, DEGREE)
    weights[:, DEGREE] += totals
    return knots, weights / weights.sum(axis=1, keepdims=True)


def _b_spline_scores(samples: Samples, knots: FloatArray, weights: FloatArray) -> FloatArray:
    """Penalised log likelihoods of B-splines, shape (L,)."""
    log_masses = _log_cell_masses(samples, knots, weights)
    return (samples.counts * log_masses).sum(axis=1) - np.log(samples.totals)


def _range_scores(samples: Samples, fitted: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Penalised log likelihoods of polynomials on the samples' ranges, shape (L,)."""
    same_shape = defaultdict(list)
    for i, (knots, weights) in enumerate(fitted):
        same_shape[len(knots), len(weights)].append(i)
    scores = np.empty(len(samples))
    for (_, n_functions), members in same_shape.items():
        own = samples.take(np.array(members))
        log_masses = _log_cell_masses(
            own,
            np.stack([fitted[i][0] for i in members]),
            np.stack([fitted[i][1] for i in members]),
        )
        penalty = (n_functions - 1) / 2 * np.log(own.totals)
        scores[members] = _left_out_likelihoods(own, log_masses) - penalty
    return scores


def _left_out_likelihoods(samples: Samples, log_masses: FloatArray) -> FloatArray:
    """Log likelihoods where a number that alone sets an end of the range lies in the tail."""
    totals, rows = samples.totals, np.arange(len(samples))
    middles = (samples.lower + samples.upper) / 2
    mean = (samples.counts * middles).sum(axis=1) / totals
    spread = np.sqrt((samples.counts * (middles - mean[:, None]) ** 2).sum(axis=1) / totals)
    tail = tail_fraction(totals)
    value = (samples.counts * log_masses).sum(axis=1) + totals * np.log1p(-2 * tail)
    last = (samples.counts > 0).cumsum(axis=1).argmax(axis=1)
    for end in (np.zeros_like(last), last):
        count = samples.counts[rows, end]
        # Beside large numbers a cell may be too narrow for its ends to differ
        width = np.maximum(samples.upper[rows, end] - samples.lower[rows, end], TINY)
        in_tail = np.log(tail) + np.log(width) - np.log(np.maximum(spread, width))
        value += np.where(count <= 1.0, count * (in_tail - log_masses[rows, end]), 0.0)
    return value


def _log_cell_masses(samples: Samples, knots: FloatArray, weights: FloatArray) -> FloatArray:
    """Log probability of each cell, shape (L, G)."""
    degree = weights.shape[1] - knots.shape[1] + 1
    masses = samples.basis_masses(knots, degree)
    return np.log(np.maximum(np.einsum("lgf,lf->lg", masses, weights), TINY))
