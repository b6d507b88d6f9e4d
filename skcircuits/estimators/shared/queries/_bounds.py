"""Certified bounds of probabilities: boxes inside and outside of linear comparisons are told apart.

A box on which all weighted sums lie inside their sets counts for both bounds, one on which some
sum lies outside for none; the others are cut in two, those with most mass first, until what is
left undecided weighs less than a tolerance. Only probabilities of boxes are asked of the model.
"""

import warnings
from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcircuits.exceptions import CircuitPropertyError, must

# Boxes that are evaluated before the bounds reached so far are given
MAX_EVALUATED = 2**18
BATCH = 4096


def probability_bounds(joint, weighed, model, log_evidence, schema, tol):
    """Lower and upper bound of the probability of a query given a condition.

    ``joint``: condition and query, `Conditions`; ``weighed``: the condition, a single one;
    ``model``: the model restricted to it, which says where to cut open sides.
    """
    boxes = replace(joint.boxes, query=np.arange(len(joint.boxes)), n_queries=len(joint.boxes))
    boxes = boxes.around_integers(schema.is_integral)
    observed, log_total = joint.observed[boxes.query], float(weighed.log_total[0])
    moments = _means_and_scales(weighed, model)

    def mass(cut, cells):
        return np.exp(log_evidence(cut, cells) - log_total)

    lower = upper = 0.0
    for i in range(len(boxes)):
        own = boxes.take(np.array([i]))
        if 0 not in own.totals:
            certain = float(mass(own, observed[i : i + 1])[0])
            lower, upper = lower + certain, upper + certain
            continue
        fraction = tol / len(boxes)
        found = _Refinement(own, observed[i], mass, schema, moments).bounds(fraction)
        lower, upper = lower + found[0], upper + found[1]
    return float(lower), float(min(upper, 1.0))


def _means_and_scales(weighed, model):
    """Means and standard deviations (d,) of the columns under one condition."""
    means, variances = model.moments()
    centre = weighed.average(means)[0]
    spread = weighed.average(variances + (means - centre) ** 2)[0]
    return centre, np.where(spread > 0.0, np.sqrt(spread), 1.0)


class _Refinement:
    """One box with totals, cut into smaller ones."""

    def __init__(self, box, observed, mass, schema, moments):
        self._box, self._observed, self._mass = box, observed, mass
        self._totals = [(total, values.intervals()) for total, values in box.totals[0]]
        self._integral = schema.is_integral
        self._means, self._scales = moments
        self._columns = sorted({j for total, _ in self._totals for j, _ in total.columns})
        if any(total.indicators for total, _ in self._totals) or any(
            schema.columns[j].categories is not None for j in self._columns
        ):
            condition = "be about numbers alone for bounds"
            way_out = "Ask for an exact answer, or for an estimate."
            raise CircuitPropertyError(must("linear comparisons", condition, way_out))
        self._weights = np.zeros(len(self._means))
        for total, _ in self._totals:
            for j, factor in total.columns:
                self._weights[j] = max(self._weights[j], abs(factor) * self._scales[j])

    def bounds(self, tol):
        """Lower and upper bound that differ by at most `tol` where that is reached."""
        low = np.where(np.isnan(self._box.lower), -np.inf, self._box.lower)
        high = np.where(np.isnan(self._box.upper), np.inf, self._box.upper)
        inside_mass, n_evaluated = 0.0, 0
        masses = self._masses(low, high)
        while True:
            inside, outside = self._compare(low, high)
            inside_mass += masses[inside].sum()
            kept = np.flatnonzero(~inside & ~outside & (masses > 0.0))
            low, high, masses = low[kept], high[kept], masses[kept]
            left = masses.sum()
            if left <= tol:
                return inside_mass, inside_mass + left
            if n_evaluated > MAX_EVALUATED:
                message = f"After {n_evaluated} boxes the bounds differ by {left:.1e}, above tol."
                warnings.warn(message, ConvergenceWarning, stacklevel=4)
                return inside_mass, inside_mass + left
            chosen = np.argsort(masses)[-BATCH:]
            chosen = chosen[masses[chosen] > 0.1 * masses.max()]
            rest = np.setdiff1d(np.arange(len(masses)), chosen)
            new_low, new_high = self._cut(low[chosen], high[chosen])
            new_masses = self._masses(new_low, new_high)
            n_evaluated += len(new_masses)
            low, high = np.vstack([low[rest], new_low]), np.vstack([high[rest], new_high])
            masses = np.append(masses[rest], new_masses)

    def _masses(self, low, high):
        """Probabilities of boxes, (n,)."""
        repeat = np.zeros(len(low), dtype=np.intp)
        lower, upper = np.where(np.isinf(low), np.nan, low), np.where(np.isinf(high), np.nan, high)
        boxes = replace(self._box.take(repeat), lower=lower, upper=upper, totals={})
        observed = np.repeat(self._observed[None], len(low), axis=0)
        return self._mass(boxes, observed)

    def _compare(self, low, high):
        """Boxes on which all sums lie inside, and boxes on which some lies outside, (n,) each."""
        inside, outside = np.ones((2, len(low)), dtype=bool)
        outside[:] = False
        for total, (first, last) in self._totals:
            least, most = np.zeros((2, len(low)))
            for j, factor in total.columns:
                ends = low[:, j], high[:, j]
                if not np.isnan(self._observed[j]):
                    ends = (np.full(len(low), self._observed[j]),) * 2
                elif self._integral[j]:  # boxes end half-way between two integers
                    ends = np.ceil(ends[0]), np.floor(ends[1])
                ends = np.sort([factor * ends[0], factor * ends[1]], axis=0)
                least, most = least + ends[0], most + ends[1]
            inside &= ((least[:, None] >= first) & (most[:, None] <= last)).any(axis=1)
            outside |= ((most[:, None] < first) | (least[:, None] > last)).all(axis=1)
        return inside & ~outside, outside

    def _cut(self, low, high):
        """Halves of boxes, cut where a sum varies most: (2 n, d) lower and upper ends."""
        is_varied = (self._weights > 0.0) & np.isnan(self._observed)
        # A box around one integer is not cut along it
        spans = np.where(self._integral, np.floor(high) - np.ceil(low), high - low)
        widths = np.where(is_varied, spans / self._scales, 0.0)
        widths *= np.where(is_varied, self._weights, 1.0)
        rows, columns = np.arange(len(low)), widths.argmax(axis=1)
        first, last = low[rows, columns], high[rows, columns]
        mean, scale = self._means[columns], self._scales[columns]
        with np.errstate(invalid="ignore"):
            middle = first / 2 + last / 2
        # Open sides are cut further and further out
        right = np.maximum(first, mean) + np.maximum(scale, first - mean)
        left = np.minimum(last, mean) - np.maximum(scale, mean - last)
        middle = np.where(np.isinf(last), np.where(np.isinf(first), mean, right), middle)
        middle = np.where(np.isinf(first) & ~np.isinf(last), left, middle)
        is_integral = self._integral[columns]
        middle = np.where(is_integral, np.floor(middle) + 0.5, middle)
        after = np.where(is_integral, middle, np.nextafter(middle, np.inf))
        new_low, new_high = np.vstack([low, low]), np.vstack([high, high])
        new_high[rows, columns] = middle
        new_low[len(low) + rows, columns] = after
        return new_low, new_high
