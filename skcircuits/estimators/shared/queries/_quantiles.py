"""Quantiles and intervals of one column and certified bounds of probabilities, by bisection.

A box in which all weighted sums lie in their sets counts for both bounds, and a box in which some
sum lies outside counts for neither. Other boxes are bisected, those of largest probability first,
until the probability of the undecided ones is below a tolerance. The model is only asked for
probabilities of boxes.
"""

from dataclasses import replace

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skcircuits.exceptions import CircuitPropertyError, must, warn
from skcircuits.tabular._columns import around_constants, in_local_time

# Integers that are tried one by one as ends of an interval
_MAX_RUN = 4096

# Steps until bisection alone would have found any float; about ten are the rule
_N_STEPS = 120
_RELATIVE = 1e-14
# Sizes of the table that locates the shortest interval, and of the levels tried there
_N_POINTS = 257
_N_LEVELS = 13
# Boxes that are evaluated before the bounds reached so far are given
MAX_EVALUATED = 2**18
BATCH = 4096


class ColumnUnderConditions:
    """One column of a density under each of some weighed conditions."""

    def __init__(self, column, at, weighed, model, log_evidence, point_masses):
        self._column, self._at, self._weighed = column, at, weighed
        self._model, self._log_evidence = model, log_evidence
        self._point_masses = point_masses

    def quantiles(self, levels):
        """Smallest values (n_conditions, k) that the distribution reaches levels (k,) at."""
        return in_local_time(self._column, self._column.decode(self._quantiles(levels)))

    def shortest_intervals(self, level):
        """Shortest intervals (n_conditions, 2) that hold a fraction of the values."""
        return in_local_time(self._column, self._column.decode(self._shortest(level)))

    def _quantiles(self, levels):
        """Quantiles (n_conditions, k), encoded, at levels (k,) or (n_conditions, k)."""
        levels = np.broadcast_to(levels, (len(self._weighed), np.shape(levels)[-1]))
        if self._column.categories is not None:
            # Rounding may leave the last sum below a level close to one
            is_below = self._reached_codes()[:, None, 1:-1] < levels[:, :, None] - 1e-12
            return is_below.sum(axis=2).astype(float)
        mean, scale = self._moments()
        if self._column.is_integral:
            return _bisect_quantiles(self._distribution, levels, mean, scale, _integer) + 0.0
        found = _bisect_quantiles(self._distribution, levels, mean, scale)
        points = self._point_masses(self._at)
        if self._column.constant is not None:
            points = np.union1d(points, self._column.constant)
        return _snapped(found, points, scale)

    def _shortest(self, level):
        if self._column.categories is not None:
            reached = self._reached_codes()
            last = reached.shape[1] - 2
            return _shortest_runs(lambda k: reached[:, k.astype(np.intp) + 1], 0, last, level)
        if self._column.is_integral:
            outer = self._quantiles([0.01 * (1.0 - level), 1.0 - 0.01 * (1.0 - level)])
            first, last = outer[:, 0].min(), outer[:, 1].max()
            # Beyond 2^52 no float lies half-way between two integers
            if last - first < _MAX_RUN and max(-first, last) <= 2.0**52:
                shape = (len(self._weighed), 1)
                return _shortest_runs(
                    lambda k: self._distribution(np.tile(k + 0.5, shape)), first, last, level
                )
        return _shortest_intervals(self._quantiles, self._distribution, level)

    def _reached_codes(self):
        """Probability (n_conditions, k + 1) of a code below 0, 1, ... k."""
        masses = self._weighed.average(self._model.state_probabilities()[self._at])
        return np.hstack([np.zeros((len(masses), 1)), np.cumsum(masses, axis=1)])

    def _moments(self):
        """Mean and standard deviation, (n_conditions, 1) each."""
        weighed = self._weighed
        means, variances = self._box_moments()
        mean = weighed.average(means)
        spread = weighed.average(variances + (means - mean[weighed.condition_of]) ** 2)
        return mean[:, None], np.sqrt(spread)[:, None] + 1e-300

    def _box_moments(self):
        """Means and variances (n_boxes,) of the column."""
        return tuple(values[:, self._at] for values in self._model.moments())

    def _distribution(self, x):
        """Probability (n_conditions, k) that the column is at most at x (n_conditions, k)."""
        weighed, at, n_levels = self._weighed, self._at, x.shape[1]
        boxes, observed = weighed.conditions.boxes, weighed.conditions.observed
        repeat = np.repeat(np.arange(len(boxes)), n_levels)
        cut = boxes.take(repeat)
        x = self._whole_constants(x)[weighed.condition_of].reshape(-1)
        upper = cut.upper.copy()
        upper[:, at] = np.fmin(upper[:, at], x)
        is_empty = (cut.lower[:, at] > x) | (observed[repeat, at] > x)
        upper[is_empty, at] = np.nan
        log_mass = self._log_mass(replace(cut, upper=upper), repeat)
        log_mass = np.where(is_empty, -np.inf, log_mass).reshape(-1, n_levels)
        ratio = np.exp(log_mass - weighed.log_total[weighed.condition_of][:, None])
        reached = np.zeros((len(weighed), n_levels))
        np.add.at(reached, weighed.condition_of, ratio)
        return reached

    def _log_mass(self, cut, box_of):
        """Log probabilities of boxes that are cut in the column, each out of one of a condition."""
        return self._log_evidence(cut, self._weighed.conditions.observed[box_of])

    def _whole_constants(self, x):
        """Numbers up to which all that counts as that of a constant column lies, or nothing."""
        constant = self._column.constant
        if constant is None:
            return x
        first, last = around_constants(constant)
        x = np.where((first <= x) & (x < constant), np.nextafter(first, -np.inf), x)
        return np.where((constant <= x) & (x < last), last, x)


def _integer(x):
    """Integers that numbers stand for: those that they are at most half above."""
    # From 2^52 on all floats are integers, and halves are rounded away
    return np.where(np.abs(x) < 2.0**52, np.ceil(x - 0.5), x)


def _bisect_quantiles(distribution, levels, start, scale, rounded=None):
    """Smallest numbers (m, k) where ``distribution(x)`` (m, k) reaches `levels` (m, k)."""
    # `start`, `scale` (m, 1): a typical number, and a distance from it, to begin with; `rounded`:
    # what is asked of the quantiles, by default themselves
    # Rounding may leave the whole mass below a level close to one
    levels = np.minimum(levels, distribution(np.full(levels.shape, np.inf)) - 1e-15)
    low = np.broadcast_to(start - scale, levels.shape).astype(float)
    high = np.broadcast_to(start + scale, levels.shape).astype(float)
    width = np.broadcast_to(scale, levels.shape)
    for _ in range(60):
        too_high, too_low = distribution(low) >= levels, distribution(high) < levels
        if not (too_high.any() or too_low.any()):
            break
        width = width * 4.0
        low, high = np.where(too_high, low - width, low), np.where(too_low, high + width, high)
    return _find_roots(lambda x: distribution(x) - levels, low, high, scale, rounded)


def _snapped(found, points, scale):
    """Quantiles (m, k) on the points (a,) that they are as close to as bisections come."""
    # An interval that begins next to a point would miss its mass
    if len(points) == 0:
        return found
    after = np.clip(np.searchsorted(points, found), 1, len(points) - 1) if len(points) > 1 else 0
    below, above = points[np.maximum(after - 1, 0)], points[after]
    nearest = np.where(found - below < above - found, below, above)
    is_close = np.abs(found - nearest) <= 4.0 * _tolerance(found, scale)
    return np.where(is_close, nearest, found)


def _find_roots(function, low, high, scale, rounded=None):
    """Upper ends of brackets of increasing functions' zeros, by Chandrupatla's method."""
    # Inverse quadratic interpolation where it can be trusted, else bisection, which also ends at
    # the points where a function jumps. With `rounded` it ends where both ends round to the same.
    low_value, high_value = function(low), function(high)
    # The last point, the end on the other side of the root, and the point before the last
    a, b, c = high, low, high
    fa, fb, fc = high_value, low_value, high_value
    fraction = np.full(low.shape, 0.5)
    for _ in range(_N_STEPS):
        x = a + fraction * (b - a)
        fx = function(x)
        is_same = np.sign(fx) == np.sign(fa)
        c, fc = np.where(is_same, a, b), np.where(is_same, fa, fb)
        b, fb = np.where(is_same, b, a), np.where(is_same, fb, fa)
        a, fa = x, fx
        width = np.abs(b - a)
        tolerance = _tolerance(np.maximum(np.abs(a), np.abs(b)), scale)
        is_found = (width <= tolerance) | (fa == 0.0)
        if rounded is not None:
            is_found |= rounded(a) == rounded(b)
        if is_found.all():
            break
        with np.errstate(divide="ignore", invalid="ignore"):
            xi, phi = (a - b) / (c - b), (fa - fb) / (fc - fb)
            # Where the interpolating parabola is increasing over the interval
            trusted = (phi**2 < xi) & ((1.0 - phi) ** 2 < 1.0 - xi)
            inner = fa / (fb - fa) * fc / (fb - fc)
            outer = (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb)
            fraction = np.where(trusted & np.isfinite(inner + outer), inner + outer, 0.5)
            least = np.minimum(0.5, np.where(width > 0.0, tolerance / width, 0.5))
        fraction = np.clip(fraction, least, 1.0 - least)
    roots = np.where(fa >= 0.0, a, b)
    return roots if rounded is None else rounded(roots)


def _tolerance(x, scale):
    """Widths of brackets at numbers that suffice: small beside the scale, or adjacent floats."""
    return _RELATIVE * scale + np.spacing(np.abs(x))


def _shortest_intervals(quantile, distribution, level):
    """The shortest intervals (m, 2) that hold a fraction `level` of the mass, as one interval."""
    # A table of the distribution brackets the best lower level, which is then found from the
    # quantiles themselves
    rest = 1.0 - level
    outer = quantile(np.array([[0.01 * rest, 1.0 - 0.01 * rest]]))
    points = outer[:, :1] + (outer[:, 1:] - outer[:, :1]) * np.linspace(0.0, 1.0, _N_POINTS)
    first, last = _best_levels(points, distribution(points), level)
    for _ in range(2):
        fractions = np.linspace(0.0, 1.0, _N_LEVELS)
        levels = np.clip(first + (last - first) * fractions, 1e-15, rest * (1.0 - 1e-15))
        lower, upper = np.split(quantile(np.hstack([levels, levels + level])), 2, axis=1)
        chosen = (upper - lower).argmin(axis=1)[:, None]
        first, last = (
            np.take_along_axis(levels, np.clip(chosen + step, 0, _N_LEVELS - 1), axis=1)
            for step in (-1, 1)
        )
    return np.hstack([np.take_along_axis(ends, chosen, axis=1) for ends in (lower, upper)])


def _best_levels(points, reached, level):
    """Levels (m, 1) around that of the point (m, k) where the shortest interval begins."""
    reached = np.maximum.accumulate(reached, axis=1)
    wanted, k = reached + level, reached.shape[1]
    ends = _first_reaching(reached, wanted)
    after = np.clip(ends, 1, k - 1)
    (x0, x1), (f0, f1) = (
        [np.take_along_axis(values, at, axis=1) for at in (after - 1, after)]
        for values in (points, reached)
    )
    fraction = np.divide(wanted - f0, f1 - f0, out=np.ones_like(f0), where=f1 > f0)
    lengths = np.where((ends < k) & (wanted <= 1.0), x0 + fraction * (x1 - x0) - points, np.inf)
    best = lengths.argmin(axis=1)[:, None]
    around = (np.maximum(best - 2, 0), np.minimum(best + 2, k - 1))
    first, last = (np.take_along_axis(reached, at, axis=1) for at in around)
    return np.where(best <= 2, 0.0, first), last


def _shortest_runs(distribution, first, last, level):
    """The shortest runs (m, 2) of integers with a fraction of the mass, the most probable one."""
    steps = np.arange(first - 1.0, last + 1.0)
    reached = np.maximum.accumulate(distribution(steps), axis=1)
    # Rounding may leave the last sum below a level close to one
    ends = np.minimum(_first_reaching(reached, reached + level - 1e-12), len(steps) - 1)
    masses = np.take_along_axis(reached, ends, axis=1) - reached
    lengths = ends - np.arange(len(steps))
    lengths = np.where(masses >= level - 1e-12, lengths, len(steps))
    best = np.lexsort((-masses, lengths), axis=1)[:, :1]
    return np.hstack([steps[best] + 1.0, steps[np.take_along_axis(ends, best, axis=1)]])


def _first_reaching(reached, wanted):
    """Index (m, k) of the first of increasing values (m, k) of each row that is enough."""
    # One search serves all rows: the values of row i lie between 2 i and 2 i + 1
    offset = 2.0 * np.arange(len(reached))[:, None]
    found = np.searchsorted((reached + offset).ravel(), (np.minimum(wanted, 1.0) + offset).ravel())
    return found.reshape(reached.shape) - np.arange(len(reached))[:, None] * reached.shape[1]


def probability_bounds(joint, weighed, model, log_evidence, schema, tol):
    """Lower and upper bound of the probability of a query given the single condition `weighed`."""
    boxes = replace(joint.boxes, query=np.arange(len(joint.boxes)), n_queries=len(joint.boxes))
    boxes = boxes.around_numbers(schema.grids, schema.constants, joint.observed)
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
            condition = "involve only numerical columns for bounds"
            way_out = "Pass method='exact' or method='estimate'."
            raise CircuitPropertyError(must("linear comparisons", condition, way_out))
        self._weights = np.zeros(len(self._means))
        for total, _ in self._totals:
            for j, factor in total.columns:
                # Scale of the contribution of a column to a sum
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
            # The bounds differ by the boxes that lie neither inside nor outside
            left = masses.sum()
            if left <= tol:
                return inside_mass, inside_mass + left
            if n_evaluated > MAX_EVALUATED:
                message = f"After {n_evaluated} boxes the bounds differ by {left:.1e}, above tol."
                warn(message, ConvergenceWarning)
                return inside_mass, inside_mass + left
            chosen = np.argsort(masses)[-BATCH:]
            # Small boxes can wait until they are among the largest
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
