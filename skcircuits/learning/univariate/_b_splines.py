"""Cubic B-spline densities for small samples, beside the piecewise polynomials on their range.

Ten or thirty numbers rarely justify a second basis function, so that the information
criterion leaves them a uniform density between the least and the greatest. The range fits
the sample better than it predicts: left out, the number at either end falls outside. A cubic
B-spline with the mean and the variance of the sample, which is close to a normal density,
is the other choice with two fitted numbers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from skcircuits.learning.univariate._polynomials import (
    ROWS_PER_FUNCTION,
    TINY,
    PolynomialSettings,
    Samples,
    fit_polynomials,
)
from skcircuits.numerics._bsplines import basis_cdf, uniform_weights
from skcircuits.protocols import FloatArray

# Degree of the B-spline: its middle B-spline on DEGREE + 1 equal intervals.
DEGREE = 3


class Density(NamedTuple):
    """A density without its tails.

    `knots`, `weights` (P + 1,) and (P + p,): pieces and weights of the B-splines; `beyond` (2,):
    mass on either side of the sample.
    """

    knots: FloatArray
    weights: FloatArray
    beyond: FloatArray


def fit_densities(samples: Samples, settings: PolynomialSettings) -> list[Density]:
    """Fit a density to each sample: piecewise polynomials, or a B-spline where it predicts better.

    Polynomials on the range of a sample have the score log likelihood - (number of basis functions
    - 1) log(n) / 2, where a number that alone sets an end of the range counts as what it would be
    without itself: in the tail, just outside. B-splines have log likelihood - 2 log(n) / 2.
    """
    fitted = fit_polynomials(samples, settings)
    nothing = np.zeros(2)
    densities = [Density(knots, weights, nothing) for knots, weights in fitted]
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
    """Probability of either tail.

    The next of n + 1 exchangeable numbers falls beyond the first n with probability 1 / (n + 1) on
    either side, whatever their distribution: so much goes to each tail (with two pseudo-rows, so
    that three equal parts remain for n = 0).

    `totals` (L,) -> (L,).
    """
    return 1.0 / (totals + 3.0)


def _fit_b_splines(samples: Samples, smoothing: float) -> tuple[FloatArray, FloatArray]:
    """Knots (L, 5) and weights (L, 7) of B-splines with the samples' means and variances.

    The pseudo-rows are uniform: over the sample in its moments, over the B-spline's own range in
    the weights, so that the density is zero nowhere.
    """
    totals = samples.totals
    low, high = samples.lower[:, 0], samples.upper[:, -1]
    centre = (low + high) / 2
    middles, widths = (samples.lower + samples.upper) / 2, samples.upper - samples.lower
    mean = ((samples.counts * middles).sum(axis=1) + smoothing * centre) / (totals + smoothing)
    squares = (middles - mean[:, None]) ** 2 + widths**2 / 12
    prior = (high - low) ** 2 / 12 + (centre - mean) ** 2
    variance = ((samples.counts * squares).sum(axis=1) + smoothing * prior) / (totals + smoothing)
    # A sum of p + 1 uniform numbers of width h has the variance (p + 1) h² / 12
    step = np.sqrt(12 * variance / (DEGREE + 1))
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
