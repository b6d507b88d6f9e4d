"""Boxes with conditions on sums and counts of columns."""

from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np

from skcircuits.circuits.inputs import Box
from skcircuits.circuits.queries._boxes import Evidence, RestrictedCircuit
from skcircuits.circuits.queries._linear import (
    LinearBound,
    LinearCircuit,
    around_integers,
    integer_range,
)
from skcircuits.circuits.queries._scored import MAX_DEGREE, ScoredCircuit, Scores
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.tabular.queries._sets import CodeSet, split_by_sets

# Factors of integer columns are fractions with denominators up to this
_MAX_DENOMINATOR = 1000
_MAX_PIECES = 64
# Joint states of discrete columns that are looked at one by one in linear comparisons
_MAX_JOINT_STATES = 1024


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
        # Sums cut boxes further, at ends of their own
        own = replace(own, box=replace(own.box, stop=None))
        # Sums of integers are polynomials, other sums are integrals: one method per box
        is_discrete = all(_is_discrete(total, plan, own, schema) for total, _ in totals)
        restricted = _scored if is_discrete else _linear
        parts.append((np.array([i]), restricted(plan, own, totals, schema)))
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
    alternatives = [
        (known, bounds)
        for known, numbers in _joint_states(plan, evidence, totals, schema)
        for bounds in _interval_bounds(totals, numbers)
    ]
    integers = np.flatnonzero(schema.is_integral & ~schema.is_categorical).tolist()
    return LinearCircuit(plan, alternatives, frozenset(integers) - plan.cardinalities.keys())


def _interval_bounds(totals, numbers):
    """Lists of bounds that exclude each other, where the numbers of some columns are known."""
    bounds = [[]]
    for total, values in totals:
        shift = sum(factor * numbers[j] for j, factor in total.columns if j in numbers)
        factors = {j: factor for j, factor in total.columns if j not in numbers}
        own = [
            LinearBound(factors, *(end - shift for end in ends))
            for ends in zip(*values.intervals())
        ]
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
    columns = sorted({j for total, _ in totals for j in _columns_of(total)})
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
        lower, upper, states = parts[j][1:]
        scores[j] = Scores(points, lower, upper, states)
    code = np.arange(1 + sum(int(own.points.max(initial=0)) for own in scores.values()))
    accepted = np.ones(len(code), dtype=bool)
    for (points, offset, scale), (_, values) in zip(tables, totals):
        size = 1 + sum(int(own.max()) for own in points.values())
        # Several totals are digits of one number: each is read off and compared
        accepted &= values.contains((code % size + offset) / scale)
        code = code // size
    return ScoredCircuit(plan, evidence, scores, accepted)


def _columns_of(total):
    return [j for j, _ in total.columns] + [j for j, _, _ in total.indicators]


def _parts_of(j, totals, plan, evidence, schema):
    """Parts of a column where all totals are constant: values (n_parts,), bounds, or states."""
    column = schema.columns[j]
    is_summed = any(j == own for total, _ in totals for own, _ in total.columns)
    sets = [own for total, _ in totals for at, own, _ in total.indicators if at == j]
    if column.categories is not None or j in plan.cardinalities:
        n_states = plan.cardinalities.get(j, column.cardinality)
        codes = np.arange(n_states)
        nothing = np.full(n_states, np.nan)
        return codes.astype(float), nothing, nothing, np.eye(n_states, dtype=bool)
    if is_summed:  # an integer column of a continuous model: the numbers that round to each integer
        first, last = integer_range(plan, evidence, j)
        values = np.arange(first, max(first, last) + 1.0)
        return values, *around_integers(values), None
    values, lower, upper = [], [], []
    for cell, _ in split_by_sets(sets):
        if column.is_integral:
            cell = cell.of_integers()
        for low, high in zip(*cell.intervals()):
            values.append(low if np.isfinite(low) else high)
            half = 0.5 if column.is_integral else 0.0
            lower.append(low - half if np.isfinite(low) else np.nan)
            upper.append(high + half if np.isfinite(high) else np.nan)
    return np.array(values), np.array(lower), np.array(upper), None


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
