"""The Poisson distribution of a count, a family of input units in one file.

It shows everything that a new family needs (see the architecture page of the documentation): the
unit, its layer, and one line that registers it. There is no rule for products of Poisson units,
since these are not Poisson and counts have no finite list of states.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import gammaln, pdtr, pdtrc, pdtrik, xlogy

from skcircuits.circuits.inputs.base import (
    Box,
    InputUnit,
    NumericalLayer,
    check_variable,
    moments_of_columns,
    register_input_unit,
)
from skcircuits.exceptions import invalid
from skcircuits.numerics._arrays import is_number, safe_log
from skcircuits.numerics._random import RandomNumbers
from skcircuits.protocols import FloatArray, IntArray

# Beyond, counts are as good as continuous, and a double cannot tell their tails apart.
MAX_RATE = 1e9
# Differences of cumulative probabilities below this size have lost digits.
MIN_DIFFERENCE = 1e-200


class PoissonLayer(NumericalLayer):
    """Many Poisson units over any variables: ``variables`` and ``rates``, each (n_units,)."""

    is_discrete = True

    def __init__(self, variables: IntArray, rates: FloatArray) -> None:
        self.scopes = variables[:, None]
        self.rates = rates

    @classmethod
    def stack(cls, units: Sequence[Poisson]) -> PoissonLayer:
        return cls(
            np.array([unit.variable for unit in units]), np.array([unit.rate for unit in units])
        )

    @property
    def n_parameters(self) -> int:
        return len(self)

    def log_prob(self, X: FloatArray) -> FloatArray:
        cells = X.T[self.scopes[:, 0]]
        missing = np.isnan(cells)
        values = log_mass_of_counts(np.where(missing, 0.0, cells), self.rates[:, None])
        values[missing] = 0.0
        return values

    def log_box(self, box: Box) -> FloatArray:
        column = self.scopes[:, 0]
        lower, upper = box.lower.T[column], box.upper.T[column]
        with np.errstate(invalid="ignore"):
            first = np.ceil(lower) if box.closed in ("both", "left") else np.floor(lower) + 1.0
            last = np.floor(upper) if box.closed in ("both", "right") else np.ceil(upper) - 1.0
        first = np.fmax(first, 0.0)
        last = np.where(np.isnan(last), np.inf, last)
        return _log_interval(first, last, np.broadcast_to(self.rates[:, None], first.shape))

    def log_max(self, X: FloatArray) -> FloatArray:
        cells = X.T[self.scopes[:, 0]]
        # An integer rate has two modes, rate and rate - 1: either will do
        modes = np.floor(self.rates)[:, None]
        return log_mass_of_counts(np.where(np.isnan(cells), modes, cells), self.rates[:, None])

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        return np.where(np.isnan(cells), np.floor(self.rates)[units][:, None], cells)

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        # The smallest count whose cumulative probability reaches the uniform number
        uniform = rng.random(len(units))
        rates = self.rates[units]
        counts = np.ceil(np.fmax(pdtrik(uniform, rates), 0.0))
        # pdtrik inverts up to rounding, in either direction
        before = np.fmax(counts - 1.0, 0.0)
        counts = np.where(pdtr(counts, rates) < uniform, counts + 1.0, counts)
        counts = np.where(pdtr(before, rates) >= uniform, before, counts)
        return np.where(np.isnan(cells), counts[:, None], cells)

    def conditional_moments(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return moments_of_columns(self, X, self.rates, self.rates)


@register_input_unit
class Poisson(InputUnit):
    """A Poisson distribution over the counts 0, 1, 2, ...

    Parameters
    ----------
    variable : int
        Index of the column.
    rate : float
        Mean (and variance) of the counts, between 0 and 1e9.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Circuit, Poisson
    >>> p = Circuit(0.5 * Poisson(0, rate=2.0) + 0.5 * Poisson(0, rate=10.0))
    >>> p.expectation([[np.nan]])
    array([[6.]])
    >>> np.exp(p.log_prob_box([[0]], [[3]])).round(4)
    array([0.4337])
    """

    layer_type = PoissonLayer

    def __init__(self, variable: int, rate: float) -> None:
        if not (is_number(rate) and 0.0 <= rate <= MAX_RATE):
            way_out = "Use a Gaussian unit for larger counts."
            raise invalid("rate of a Poisson unit", f"lie in [0, {MAX_RATE:g}]", way_out, rate=rate)
        self.variable = check_variable(variable)
        self.scope = (self.variable,)
        self.rate: float = float(rate)

    def parameters(self) -> dict[str, Any]:
        return {"variable": self.variable, "rate": self.rate}


def log_mass_of_counts(counts: FloatArray, rates: FloatArray) -> FloatArray:
    """Log probability of possible counts."""
    is_count = (counts >= 0) & (counts == np.floor(counts))
    counts = np.where(is_count, counts, 0.0)
    log_masses = xlogy(counts, rates) - rates - gammaln(counts + 1.0)
    return np.where(is_count, log_masses, -np.inf)


def _log_interval(first: FloatArray, last: FloatArray, rates: FloatArray) -> FloatArray:
    """Log mass of the counts first, ..., last (infinite: without end)."""
    # Tails are small numbers with all their digits: take the difference on their side.
    is_above = first > rates
    with np.errstate(invalid="ignore"):
        above = _tail(first, rates) - _tail(last + 1.0, rates)
        below = pdtr(last, rates) - np.where(first > 0, pdtr(np.fmax(first - 1.0, 0.0), rates), 0.0)
    masses = np.where(last >= first, np.where(is_above, above, below), 0.0)
    result = safe_log(np.minimum(masses, 1.0))
    # A difference of cumulative masses would lose digits of one mass
    single = (first == last) & np.isfinite(first)
    result[single] = log_mass_of_counts(np.where(single, first, 0.0), rates)[single]
    doubtful = (last > first) & (masses < MIN_DIFFERENCE) & (rates > 0)
    if doubtful.any():
        result[doubtful] = _log_sum(first[doubtful], last[doubtful], rates[doubtful])
    return result


def _tail(first: FloatArray, rates: FloatArray) -> FloatArray:
    """Mass of the counts from a number on."""
    return np.where(first > 0, pdtrc(np.fmax(first - 1.0, 0.0), rates), 1.0)


def _log_sum(first: FloatArray, last: FloatArray, rates: FloatArray) -> FloatArray:
    """Log mass of intervals far from the rate, term by term from their likeliest end."""
    is_above = first > rates
    start = np.where(is_above, first, last)
    step = np.where(is_above, 1.0, -1.0)
    n_terms = last - first
    ratio, total, count = np.ones(len(rates)), np.ones(len(rates)), start.copy()
    # Terms fall geometrically away from the rate: the sum ends soon
    while True:
        # Masses of neighbours: p(k + 1) / p(k) = rate / (k + 1)
        ratio = ratio * np.where(is_above, rates, count) / np.where(is_above, count + 1.0, rates)
        count = count + step
        n_terms = n_terms - 1.0
        term = np.where(n_terms >= 0, ratio, 0.0)
        total += term
        if not (term > 1e-17 * total).any():
            return log_mass_of_counts(start, rates) + np.log(total)
