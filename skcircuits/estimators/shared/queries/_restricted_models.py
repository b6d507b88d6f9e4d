"""What models answer given boxes: circuits also given sums and counts, mixtures of all trees."""

from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import prod

import numpy as np
from scipy.special import softmax

from skcircuits.circuits.inputs import Box
from skcircuits.circuits.queries._boxes import (
    Evidence,
    RestrictedCircuit,
    breakpoints_of,
    integer_range,
)
from skcircuits.circuits.queries._linear import LinearBound, LinearCircuit
from skcircuits.circuits.queries._scored import MAX_DEGREE, ScoredCircuit, Scores
from skcircuits.estimators.shared.queries._quantiles import ColumnUnderConditions
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import safe_log
from skcircuits.tabular.queries._binding import Boxes
from skcircuits.tabular.queries._sets import CodeSet, split_by_sets

# Factors of integer columns are fractions with denominators up to this
_MAX_DENOMINATOR = 1000
_MAX_PIECES = 64
# Joint states of discrete columns that are looked at one by one in linear comparisons
_MAX_JOINT_STATES = 1024
# Integers that a box is divided at for moments. Where a column spreads over more, rounding moves
# its mean by less than a ten-thousandth of its standard deviation.
MAX_INTEGERS = 256
# Intervals of sums, relative to the numbers summed, in which rounding decides what is inside
_ROUNDING = 1e-12


def as_box(boxes):
    """The boxes as circuits take them."""
    return Box(boxes.lower, boxes.upper, "both", boxes.states, boxes.stops)


def restricted_to_totals(plan, boxes, observed, schema):
    """The circuit restricted to boxes with totals, a `BoxesWithTotals`."""
    evidence = Evidence(observed, as_box(boxes))
    plain = np.array([i for i in range(len(boxes)) if i not in boxes.totals], dtype=int)
    parts = [(plain, RestrictedCircuit(plan, evidence.rows(plain)))] if len(plain) else []
    for i, totals in boxes.totals.items():
        own = evidence.rows(slice(i, i + 1))
        # Sums of integers are polynomials, other sums are integrals: one method per box
        if all(_is_discrete(total, plan, own, schema) for total, _ in totals):
            parts.append((np.array([i]), _scored(plan, own, totals, schema)))
            continue
        # Inequalities cut boxes further, at ends of their own
        own = replace(own, box=replace(own.box, stop=None))
        parts.append((np.array([i]), _linear(plan, own, totals, schema)))
    return BoxesWithTotals(len(boxes), parts)


class BoxesWithTotals:
    """Answers of circuits restricted to some boxes each, together; as `RestrictedCircuit`."""

    def __init__(self, n_boxes, parts):
        self._n, self._parts = n_boxes, parts

    @property
    def cardinalities(self):
        """Number of states of each discrete variable."""
        return self._parts[0][1].cardinalities

    def log_mass(self):
        """Log probabilities, (n_boxes,)."""
        return self._gathered([part.log_mass() for _, part in self._parts])

    def moments(self):
        """Means and variances of all columns, (n_boxes, n_columns) each."""
        means, variances = zip(*(part.moments() for _, part in self._parts))
        return self._gathered(means), self._gathered(variances)

    def state_probabilities(self):
        """Distribution of every discrete variable, (n_boxes, n_states) each."""
        found = [part.state_probabilities() for _, part in self._parts]
        return {v: self._gathered([own[v] for own in found]) for v in found[0]}

    def covariance(self, features):
        """Covariances of features, (n_boxes, F, F)."""
        return self._gathered([part.covariance(features) for _, part in self._parts])

    def mpe(self, left_out=()):
        """Best rows (n_boxes, n_columns) that are found, and their log densities."""
        if len(left_out):
            condition = "include all columns under sums, counts and linear comparisons"
            way_out = "Ask the density itself: mpe(given=...), or marginals of few categories."
            raise CircuitPropertyError(must("most probable rows", condition, way_out))
        rows, heights = zip(*(part.mpe() for _, part in self._parts))
        return self._gathered(rows), self._gathered(heights)

    def sample(self, counts, rng):
        """Draw counts (n_boxes,) rows for each box, in the order of the boxes."""
        box_of = np.repeat(np.arange(self._n), counts)
        drawn = None
        for boxes, part in self._parts:
            own = part.sample(counts[boxes], rng)
            drawn = np.empty((len(box_of), own.shape[1])) if drawn is None else drawn
            drawn[np.isin(box_of, boxes)] = own
        return drawn

    def _gathered(self, answers):
        result = np.empty((self._n, *np.shape(answers[0])[1:]))
        for (boxes, _), own in zip(self._parts, answers):
            result[boxes] = own
        return result


def members(boxes, X, schema):
    """Which encoded rows lie in the union of some boxes, (n,)."""
    inside = np.zeros(len(X), dtype=bool)
    for i in range(len(boxes)):
        # Comparisons with NaN are false: an open side excludes nothing
        own = ~((boxes.lower[i] > X) | (boxes.upper[i] < X)).any(axis=1)
        for j, allowed in boxes.states.items():
            own &= allowed[i][X[:, j].astype(int)]
        for total, values in boxes.totals.get(i, ()):
            own &= values.contains(_value(total, X, schema))
        inside |= own
    return inside


def _value(total, X, schema):
    """Totals of encoded rows, (n,)."""
    value = np.zeros(len(X))
    for j, factor in total.columns:
        value += factor * _numbers(X[:, j], schema.columns[j])
    for j, own, weight in total.indicators:
        value += weight * _members(own, X[:, j])
    return value


def _numbers(codes, column):
    if column.categories is None:
        return codes
    return column.categories.astype(float)[codes.astype(int)]


def _members(own, values):
    return own.mask[values.astype(int)] if isinstance(own, CodeSet) else own.contains(values)


def _is_discrete(total, plan, evidence, schema):
    """Whether all columns of the sum are integers with few values that the model enumerates."""
    for j, _ in total.columns:
        column = schema.columns[j]
        if column.categories is not None:
            numbers = column.categories.astype(float)
            if (numbers != np.floor(numbers)).any():
                return False
        elif j not in plan.cardinalities:
            layers = [layer for _, layer in plan.inputs if (layer.scopes == j).any()]
            if not column.is_integral or any(layer.scopes.shape[1] > 1 for layer in layers):
                return False
            first, last = integer_range(plan, evidence, j)
            if last - first >= MAX_DEGREE:
                return False
    return True


def _linear(plan, evidence, totals, schema):
    """Sums of continuous columns: linear inequalities, one interval each."""
    if any(total.indicators for total, _ in totals):
        way_out = "Query them separately, or pass method='estimate'."
        what = "counts and sums of continuous columns"
        condition = "not be combined in one condition"
        raise CircuitPropertyError(must(what, condition, way_out))
    integers = frozenset(np.flatnonzero(schema.is_integral & ~schema.is_categorical).tolist())
    integers -= plan.cardinalities.keys()
    # There may be a thousand joint states
    marks_of = cache(lambda j: breakpoints_of(plan, j))
    alternatives = [
        (at_points, bounds)
        for known, numbers in _joint_states(plan, evidence, totals, schema)
        for bounds in _interval_bounds(totals, numbers)
        for at_points in _at_point_masses(marks_of, known, bounds, integers)
    ]
    return LinearCircuit(plan, alternatives, integers)


def _at_point_masses(marks_of, known, bounds, integers):
    """The evidence at each combination of point masses at which sums equal the numbers that they
    must equal. Sums of other continuous columns do so with probability zero.
    """
    equations = [own for own in bounds if _is_equation(marks_of, own)]
    columns = {j for own in equations for j in own.factors} - integers
    free = sorted(j for j in columns if np.isnan(known.X[0, j]))
    atoms = []
    for j in free:
        low, high = known.bounds(j)
        own = marks_of(j).atoms
        atoms.append(own[(own >= low) & (own <= high)])
    cells = np.tile(known.X, (prod(map(len, atoms)), 1))
    for j, own in zip(free, np.meshgrid(*atoms)):
        cells[:, j] = own.ravel()
    for own in equations:
        total = cells[:, list(own.factors)] @ list(own.factors.values())
        # Integers are unknown yet, and give NaN
        cells = cells[~((total < own.lower) | (total > own.upper))]
    return [replace(known, X=row[None]) for row in cells]


def _is_equation(marks_of, bound):
    """Whether a sum must equal a number, up to rounding."""
    size = max(abs(bound.lower), abs(bound.upper))
    if np.isinf(size):  # not all families have breakpoints, and inequalities need none of these
        return False
    for j, factor in bound.factors.items():
        marks = marks_of(j)
        size += abs(factor) * np.abs([*marks.points, *marks.atoms]).max()
    return bound.upper - bound.lower <= _ROUNDING * size


def _interval_bounds(totals, numbers):
    """Lists of bounds that exclude each other, where the numbers of some columns are known."""
    bounds = [[]]
    for total, values in totals:
        left, values = total.where_known(numbers, values)
        own = [LinearBound(dict(left.columns), *ends) for ends in zip(*values.intervals())]
        # A total that may lie in several intervals: every combination is a case of its own
        bounds = [[*before, bound] for before in bounds for bound in own]
        if len(bounds) > _MAX_PIECES:
            condition = f"fall into at most {_MAX_PIECES} intervals"
            raise ValueError(must("Sums of columns", condition, n=len(bounds)))
    return bounds


def _joint_states(plan, evidence, totals, schema):
    """Evidence in each joint state of the discrete columns of sums, and their numbers there."""
    columns = {j for total, _ in totals for j, _ in total.columns} & plan.cardinalities.keys()
    allowed = {j: evidence.box.state_mask(j, plan.cardinalities[j])[0] for j in sorted(columns)}
    for j, mask in allowed.items():
        if not np.isnan(evidence.X[0, j]):
            mask &= np.arange(len(mask)) == evidence.X[0, j]
    states = {j: np.flatnonzero(mask) for j, mask in allowed.items()}
    n_joint = prod(map(len, states.values()))
    if n_joint > _MAX_JOINT_STATES:
        condition = f"involve discrete columns with at most {_MAX_JOINT_STATES} joint states"
        way_out = "Pass method='bounds' for certified bounds, or method='estimate'."
        raise CircuitPropertyError(must("linear comparisons", condition, way_out, n=n_joint))
    for joint in product(*states.values()):
        masks = {j: (np.arange(len(allowed[j])) == code)[None] for j, code in zip(states, joint)}
        box = replace(evidence.box, states={**evidence.box.states, **masks})
        numbers = {
            j: float(_numbers(np.array([code]), schema.columns[j])[0])
            for j, code in zip(states, joint)
        }
        yield replace(evidence, box=box), numbers


def _scored(plan, evidence, totals, schema):
    """Sums of integers and counts: one polynomial whose exponents encode all totals."""
    columns = sorted({j for total, _ in totals for j in columns_of(total)})
    parts = {j: _parts_of(j, totals, plan, evidence, schema) for j in columns}
    tables = [_table(total, parts, schema) for total, _ in totals]
    radix, strides = 1, []
    for points, _, _ in tables:
        strides.append(radix)
        radix *= 1 + sum(int(own.max()) for own in points.values())
    if radix > MAX_DEGREE:
        way_out = "Use fewer columns, or pass method='estimate'."
        condition = f"have at most {MAX_DEGREE} different values"
        raise CircuitPropertyError(must("Sums and counts of columns", condition, way_out, n=radix))
    scores = {}
    for j in columns:
        points = sum(stride * table[0][j] for stride, table in zip(strides, tables))
        scores[j] = Scores(points, *parts[j][1:])
    code = np.arange(1 + sum(int(own.points.max(initial=0)) for own in scores.values()))
    accepted = np.ones(len(code), dtype=bool)
    for (points, offset, scale), (_, values) in zip(tables, totals):
        size = 1 + sum(int(own.max()) for own in points.values())
        # Several totals are digits of one number: each is read off and compared
        accepted &= values.contains((code % size + offset) / scale)
        code = code // size
    return ScoredCircuit(plan, evidence, scores, accepted)


def columns_of(total):
    """Columns of a sum, and those that are counted in it."""
    return [j for j, _ in total.columns] + [j for j, _, _ in total.indicators]


def _parts_of(j, totals, plan, evidence, schema):
    """Parts of a column where all totals are constant: values (n_parts,), fields of `Scores`."""
    column = schema.columns[j]
    is_summed = any(j == own for total, _ in totals for own, _ in total.columns)
    sets = [own for total, _ in totals for at, own, _ in total.indicators if at == j]
    if column.categories is not None or j in plan.cardinalities:
        n_states = plan.cardinalities.get(j, column.cardinality)
        codes = np.arange(n_states)
        nothing = np.full(n_states, np.nan)
        return codes.astype(float), nothing, nothing, np.eye(n_states, dtype=bool)
    first, last = integer_range(plan, evidence, j) if column.is_integral else (0.0, np.inf)
    if is_summed or last - first < MAX_INTEGERS:
        # An integer column of a continuous model: the numbers that round to each integer
        # Beyond 2^53 not every integer is a float
        values = np.unique(np.arange(first, max(first, last) + 1.0))
        lower, upper = values, values
    else:
        cells = [
            cell.of_integers() if column.is_integral else cell for cell, _ in split_by_sets(sets)
        ]
        lower, upper = np.array([ends for cell in cells for ends in zip(*cell.bounds())]).T
        # A number of each part, zero if it holds all numbers
        values = np.nan_to_num(np.where(np.isnan(lower), upper, lower))
    nobody = np.zeros(len(values), dtype=np.intp)
    parts = Boxes(lower[:, None], upper[:, None], {}, nobody, 1)
    parts = parts.around_numbers(np.array([column.grid]))
    numbers = np.stack([lower, upper]) if column.is_integral else None
    return values, parts.lower[:, 0], parts.upper[:, 0], None, parts.stops[:, 0], numbers


def _table(total, parts, schema):
    """Integer scores of the parts of each column; a total is (sum of scores + offset) / scale."""
    weights = [factor for _, factor in total.columns] + [w for _, _, w in total.indicators]
    fractions = [Fraction(float(w)).limit_denominator(_MAX_DENOMINATOR) for w in weights]
    if any(abs(float(f) - w) > 1e-12 * abs(w) for f, w in zip(fractions, weights)):
        condition = "have factors that are simple fractions of one another"
        way_out = "Pass method='estimate' for an average over draws."
        raise CircuitPropertyError(must("Sums of integer columns", condition, way_out))
    # Factors as integers: exponents of a polynomial have no fractions
    scale = int(np.lcm.reduce([f.denominator for f in fractions]))
    raw = {j: np.zeros(len(own[0])) for j, own in parts.items()}
    for j, factor in total.columns:
        raw[j] += factor * scale * _numbers(parts[j][0], schema.columns[j])
    for j, own, weight in total.indicators:
        raw[j] += weight * scale * _members(own, parts[j][0])
    points, offset = {}, 0
    for j, own in raw.items():
        rounded = np.round(own).astype(np.int64)
        # Exponents begin at zero: the offset is kept separately
        points[j] = rounded - rounded.min()
        offset += int(rounded.min())
    return points, offset, scale


class ColumnOfTrees(ColumnUnderConditions):
    """A column whose distribution function follows from the probabilities of its states."""

    # Within a state it is that of the bin, so that bisections take no further draws of trees

    def _box_moments(self):
        return self._model.moments_in_order(self._at)

    def _log_mass(self, cut, box_of):
        fraction = self._model.fraction_within(self._at, cut, box_of)
        return self._weighed.log_mass[box_of] + safe_log(fraction)


class RestrictedTrees:
    """Answers under boxes, as `RestrictedCircuit` gives them.

    `coverage_of` gives per column the fraction of each state that lies in each box, (n_boxes, k);
    `log_mass_of` gives log probabilities of such evidence, `draw_states` completions of one row,
    `find_best` most probable ones. They are exact where few joint states are possible, else
    averages over trees and searches.
    """

    def __init__(
        self, coverage_of, boxes, observed, states, *, log_mass_of, draw_states, find_best
    ):
        self._coverage_of, self._coverage = coverage_of, coverage_of(boxes, observed)
        self._boxes, self._observed = boxes, observed
        self._discretizer, self._log_mass_of = states.discretizer, log_mass_of
        self._bins = states.restricted_bins(Evidence(observed, as_box(boxes)))
        self._masses = {}  # of the columns that were asked for
        self._draw_states, self._find_best = draw_states, find_best

    @property
    def cardinalities(self):
        """Number of states of each column whose states are codes."""
        return {
            j: len(values)
            for j, values in enumerate(self._discretizer.values)
            if values is not None and np.array_equal(values, np.arange(len(values)))
        }

    def moments(self):
        """Means and variances of all columns, (n_boxes, d) each."""
        columns = [self._moments(j, self._state_masses(j)) for j in range(len(self._coverage))]
        means, variances = (np.stack(parts, axis=1) for parts in zip(*columns, strict=True))
        return means, variances

    def moments_in_order(self, j):
        """Means and variances of one column, (n_boxes,) each, as `fraction_within` has them."""
        return self._moments(j, self._ordered_masses(j))

    def _moments(self, j, masses):
        """Means and variances of a column with masses (n_boxes, k) of its states."""
        own, spread = self._moments_of_states(j)
        mean = (masses * own).sum(axis=1)
        variance = (masses * (spread + (own - mean[:, None]) ** 2)).sum(axis=1)
        cells = self._observed[:, j]
        is_seen = ~np.isnan(cells)
        return np.where(is_seen, cells, mean), np.where(is_seen, 0.0, variance)

    def fraction_within(self, j, cut, box_of):
        """Probability (n_cut,) of boxes cut in a column, each given the box `box_of` (n_cut,)."""
        (own,) = self._coverage_of(cut, self._observed[box_of], [j])
        whole = self._coverage[j][box_of]
        part = np.divide(own, whole, out=np.zeros_like(own), where=whole > 0)
        return (self._ordered_masses(j)[box_of] * part).sum(axis=1)

    def state_probabilities(self):
        """Distribution of every column whose states are codes, (n_boxes, k) each."""
        found = {j: self._state_masses(j) for j in self.cardinalities}
        for j, groups in enumerate(self._discretizer.groups):
            if groups is not None:
                # Of a state, the categories in a box are equally probable
                inside = self._allowed_categories(j)
                each = found[j] / np.maximum(groups.sums(inside.astype(np.float64)), 1.0)
                found[j] = each[:, groups.states] * inside
        return found

    def sample(self, counts, rng):
        """Draw counts (n_boxes,) rows for each box, in the order of the boxes."""
        drawn = [np.empty((0, len(self._coverage)))]
        for box, count in enumerate(counts.tolist()):
            if count == 0:
                continue
            states = self._draw_states(self._evidence(self._coverage, box), count, rng)
            rows = np.empty((count, len(self._coverage)))
            for j, own in enumerate(states.T):
                if j in self._bins:
                    rows[:, j] = self._bins[j].draw(own, np.full(count, box), rng)[:, 0]
                else:
                    rows[:, j] = self._numbers(j)[box, own]
            for j, groups in enumerate(self._discretizer.groups):
                if groups is not None:
                    inside = self._allowed_categories(j)[box]
                    rows[:, j] = groups.decode(states[:, j], rng, inside)
            is_seen = ~np.isnan(self._observed[box])
            rows[:, is_seen] = self._observed[box, is_seen]
            drawn.append(rows)
        return np.concatenate(drawn)

    def covariance(self, features):
        """Refuse: it needs the distributions of all pairs of columns."""
        way_out = "Take numpy.cov of draws: sample(n, given=...), or to_circuit(n_trees)."
        raise CircuitPropertyError(must("covariances", "be computed with a circuit", way_out))

    def mpe(self, left_out=(), **search):
        """Rows of highest density (n_boxes, d), and its logarithms (n_boxes,)."""
        if len(left_out):
            way_out = "Ask the density itself: mpe(given=...), or marginals of few categories."
            condition = "include all columns of a mixture of all trees"
            raise CircuitPropertyError(must("most probable rows", condition, way_out))
        # No mode lies in a state outside a box
        log_heights = [
            np.where(own > 0.0, self._log_heights(j), -np.inf)
            for j, own in enumerate(self._coverage)
        ]
        # In units of the highest state: far out in a tail, densities are too small for floats
        log_units = [own.max(axis=1, keepdims=True) for own in log_heights]
        heights = [np.exp(own - unit) for own, unit in zip(log_heights, log_units, strict=True)]
        states, log_best = self._find_best(np.concatenate(heights, axis=1), **search)
        boxes, rows = np.arange(len(states)), np.empty(self._observed.shape)
        for j, own in enumerate(states.T):
            if j in self._bins:
                rows[:, j] = self._bins[j].mode(own, boxes)[:, 0]
            else:
                rows[:, j] = self._numbers(j)[boxes, own]
        rows = np.where(np.isnan(self._observed), rows, self._observed)
        return rows, log_best + np.concatenate(log_units, axis=1).sum(axis=1)

    def _allowed_categories(self, j):
        """Categories of a column in each box, (n_boxes, k)."""
        values = self._discretizer.values[j]
        lower, upper = self._boxes.lower[:, [j]], self._boxes.upper[:, [j]]
        return ~((values < lower) | (values > upper)) & self._boxes.states.get(j, True)

    def _evidence(self, coverage, box):
        return np.concatenate([own[[box]] for own in coverage], axis=1)

    def _moments_of_states(self, j):
        """Mean and variance of a column in each state, within each box, (n_boxes, k) each."""
        if j not in self._bins:
            numbers = self._numbers(j)
            return numbers, np.zeros(numbers.shape)
        return tuple(own[..., 0].T for own in self._bins[j].moments())

    def _log_heights(self, j):
        """Log of the highest density of each state of a column within each box, (n_boxes, k)."""
        if j in self._bins:
            return self._bins[j].log_max().T
        return -np.log(self._discretizer.volumes(j))

    def _numbers(self, j):
        """Number behind each state of a column of values, or a code in a box, (n_boxes, k)."""
        groups = self._discretizer.groups[j]
        if groups is not None:
            return groups.first_members(self._allowed_categories(j)).astype(np.float64)
        return np.broadcast_to(self._discretizer.values[j], self._coverage[j].shape)

    def _state_masses(self, j):
        """Distribution of the states of a column, (n_boxes, k)."""
        return softmax(self._log_masses(j, np.eye(self._coverage[j].shape[1])), axis=1)

    def _ordered_masses(self, j):
        """Distribution of the states of a column from probabilities of several lowest ones."""
        # Estimates of nested boxes have errors alike, which cancel in their ratios
        if j not in self._masses:
            log_reached = self._log_masses(j, np.tri(self._coverage[j].shape[1]))
            reached = np.exp(log_reached - log_reached[:, -1:])
            self._masses[j] = np.diff(np.maximum.accumulate(reached, axis=1), prepend=0.0)
        return self._masses[j]

    def _log_masses(self, j, parts):
        """Log masses (n_boxes, n_parts) of boxes with a column in sets `parts` (n_parts, k)."""
        start = sum(own.shape[1] for own in self._coverage[:j])
        whole = np.concatenate(self._coverage, axis=1)
        # One row of evidence per box and set
        each = np.repeat(whole, len(parts), axis=0)
        own = slice(start, start + parts.shape[1])
        each[:, own] *= np.tile(parts, (len(whole), 1))
        log_mass = np.full(len(each), -np.inf)
        possible = np.flatnonzero(each[:, own].any(axis=1))
        log_mass[possible] = self._log_mass_of(each[possible])
        return log_mass.reshape(len(whole), len(parts))
