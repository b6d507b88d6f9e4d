"""Queries given boxes: their probabilities, and answers given observed cells and a box at once.

Probabilities alone take one pass over the part of a circuit that has bounds. Variables without
bounds integrate to one, so that many rows with bounds on the same variables are evaluated on the
marginal circuit of these, which is often much smaller and is kept for the next call. Circuits that
are not normalised are divided by their integrals first. The pass adds and multiplies probabilities
on the linear scale; rows whose result is so small that errors of the input units might matter are
evaluated again in log space, unless an interval is a point where no input unit has a point mass.

For all else, every input unit is restricted to the evidence. A feedforward pass over the restricted
units gives the probability of the evidence, and a backward pass the posterior probability of every
unit; moments, draws and most probable rows follow as for rows with observed and missing cells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from operator import methodcaller
from typing import Any

import numpy as np

from skcircuits.circuits._policy import BATCH_ROWS, MANY_ROWS, MAX_KEPT
from skcircuits.circuits.engine._layers import ProductLayer, SumLayer
from skcircuits.circuits.engine._passes import (
    backward,
    best_edges,
    feedforward,
    input_buffer,
    log_values,
    run_steps,
    trace,
)
from skcircuits.circuits.engine._plan import Plan, compile_plan, remembered
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.inputs.base import InputLayer, per_column
from skcircuits.circuits.inputs.restriction import (
    Evidence,
    RestrictedDiscrete,
    RestrictedLayer,
    restrict,
)
from skcircuits.circuits.inputs.restriction._evidence import (
    NO_COLUMNS,
    Breakpoints,
    Feature,
    breakpoints,
)
from skcircuits.circuits.queries._completion import (
    BATCH_DRAWS,
    SEARCH_BUFFERS,
    Known,
    _Posterior,
    rows_have_several_trees,
    search_completions,
)
from skcircuits.circuits.queries._marginals import (
    condition,
    log_partition,
    marginalize,
    require_possible,
)
from skcircuits.circuits.structure.properties import mask_of
from skcircuits.circuits.structure.units import Sum, Unit, fold, linked_product, topological_order
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._patterns import distinct_patterns
from skcircuits.parallel import memory_bound_chunks, row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Results above one fraction of the whole are accurate despite absolute errors of 1e-15 of the
# probabilities of input units.
SURELY_EXACT = 1e-6
# Weights below have fewer digits.
SMALLEST = np.finfo(np.float64).tiny
# Units whose integrals are as near to one as weights rounded to some digits leave them.
MAX_LOG_SCALE = 1e-3
Restriction = Callable[[InputLayer, Evidence], RestrictedLayer]
_Part = tuple[IntArray, FloatArray, FloatArray, FloatArray]


def log_box_probability(plan: Plan, box: Box) -> FloatArray:
    """Log probabilities (n,) of boxes, one per row, under a smooth and decomposable circuit."""
    # Variables without bounds integrate to one, whatever the other bounds are
    log_whole = plan.remember("log_whole", lambda: log_partition(plan))
    result = np.full(len(box.lower), log_whole)
    # No box has a probability under the zero function, which has no marginals either
    if np.isneginf(log_whole):
        return result
    normalised = _normalised(plan)
    log_factor = 0.0 if normalised is plan else log_whole
    bounded = ~(np.isnan(box.lower) & np.isnan(box.upper))
    for variable, allowed in box.states.items():
        # A set of all states is not a bound
        bounded[:, variable] |= ~allowed.all(axis=1)
    bounded[:, plan.other_columns(bounded.shape[1])] = False
    for part, rows in _parts_with_bounds(normalised, bounded):
        own = box if len(rows) == len(result) else box.rows(rows)
        result[rows] = _log_probability(part, own) + log_factor
    return result


@remembered
def _normalised(plan: Plan) -> Plan:
    """The plan itself where all of its units integrate to one, otherwise such a plan."""
    nothing = np.full((1, plan.n_columns), np.nan)
    # Factors of products of circuits leave the linear scale, even where they cancel
    if np.abs(log_values(plan, nothing)).max() < MAX_LOG_SCALE:
        return plan
    root = condition(plan, nothing[0])
    assert root is not None
    return compile_plan(root)


def _parts_with_bounds(plan: Plan, bounded: BoolArray) -> Iterator[tuple[Plan, IntArray]]:
    """Circuits that give the probabilities of rows with bounds, and these rows."""
    patterns, pattern_of = distinct_patterns(bounded)
    if len(patterns) == 1:
        if patterns.any():
            kept = frozenset(np.flatnonzero(patterns[0]).tolist())
            yield _plan_over(plan, kept), np.arange(len(bounded))
        return
    n_rows = np.bincount(pattern_of, minlength=len(patterns))
    has_bounds = patterns.any(axis=1)
    # A circuit of its own for a few rows would cost more than it saves
    is_apart = has_bounds & (n_rows >= MANY_ROWS)
    for number in np.flatnonzero(is_apart):
        kept = frozenset(np.flatnonzero(patterns[number]).tolist())
        yield _plan_over(plan, kept), np.flatnonzero(pattern_of == number)
    # All others at once: a pass of the whole circuit per pattern is one per row at worst
    rest = np.flatnonzero((has_bounds & ~is_apart)[pattern_of])
    if len(rest):
        yield plan, rest


def _log_probability(plan: Plan, box: Box) -> FloatArray:
    """Log probabilities, on the linear scale where that is exact."""
    result, is_impossible = _linear_pass(plan, box)
    doubtful = np.flatnonzero(~(result >= SURELY_EXACT) & ~is_impossible)
    safe_log(result, out=result)
    if len(doubtful):
        result[doubtful] = _log_pass(plan, box.rows(doubtful))
    return result


def _linear_pass(plan: Plan, box: Box) -> tuple[FloatArray, BoolArray]:
    """Probabilities to absolute accuracy, and which are zero without doubt, both (n,)."""
    n_boxes = len(box.lower)
    inputs = [(units, layer.prepare_boxes(box)) for units, layer in plan.inputs]
    result, values = np.empty(n_boxes), np.empty((0, 0))
    is_impossible = np.zeros(n_boxes, dtype=bool)
    for rows in memory_bound_chunks(n_boxes, plan.bytes_per_row, at_most=BATCH_ROWS):
        shape = (plan.n_units, rows.stop - rows.start)
        # Batches of one size share a buffer: new memory costs as much as writing to it
        values = values if values.shape == shape else np.empty(shape)
        for units, write in inputs:
            write(rows, values[units])
        result[rows] = feedforward(plan, values, "linear")[plan.root]
        zeros = np.flatnonzero(result[rows] == 0.0)
        if len(zeros):
            own = rows.start + zeros
            # An interval without length has no mass but that of point masses
            is_point = box.lower[own] >= box.ends[own]
            is_impossible[own] = _lacks_mass(plan, values, zeros, is_point)
    return result, is_impossible


def _lacks_mass(plan: Plan, values: FloatArray, at: IntArray, is_point: BoolArray) -> BoolArray:
    """Tell at which rows (m,) of `values` no unit has a mass at a point (m, n_columns)."""
    lacks = np.zeros(len(at), dtype=bool)
    units_of = _units_with_densities(plan)
    for column in np.flatnonzero(is_point.any(axis=0)).tolist():
        if column in units_of:
            rows = np.flatnonzero(is_point[:, column])
            lacks[rows] |= ~values[units_of[column][:, None], at[rows]].any(axis=0)
    return lacks


@remembered
def _units_with_densities(plan: Plan) -> dict[int, IntArray]:
    """Input units of each column that is not discrete: masses of others may underflow to zero."""
    scopes = [(units.start, layer.scopes) for units, layer in plan.inputs]
    columns = np.concatenate([own.ravel() for _, own in scopes])
    numbers = np.concatenate([first + np.arange(own.size) // own.shape[1] for first, own in scopes])
    order = np.argsort(columns, kind="stable")
    found, starts = np.unique(columns[order], return_index=True)
    discrete = {int(j) for _, layer in plan.inputs if layer.is_discrete for j in layer.scopes.flat}
    parts = zip(found.tolist(), np.split(numbers[order], starts[1:]))
    return {column: units for column, units in parts if column not in discrete}


def _log_pass(plan: Plan, box: Box) -> FloatArray:
    """Log probabilities to relative accuracy."""
    result = np.empty(len(box.lower))
    for rows in plan.batches(len(result)):
        part = box.rows(rows)
        values = input_buffer(plan, methodcaller("log_box", part), (len(part.lower),))
        result[rows] = feedforward(plan, values)[plan.root]
    return result


def _plan_over(plan: Plan, kept: frozenset[int]) -> Plan:
    """The marginal circuit of some variables, from a small cache."""
    known: dict[frozenset[int], Plan] = plan.remember("boxes", dict)
    part = known.get(kept)
    if part is None:
        root = marginalize(plan, frozenset(plan.variables) - kept)
        assert root is not None
        part = compile_plan(_with_merged_sums(root))
        if len(known) >= MAX_KEPT:
            # Another thread may have removed it in the meantime
            for oldest in list(known)[:1]:
                known.pop(oldest, None)
        known[kept] = part
    return part


def _with_merged_sums(root: Unit) -> Unit:
    """The same function, with sums that only one other sum uses merged into it: fewer levels."""
    n_parents = Counter(id(child) for unit in topological_order(root) for child in unit.children)

    def merge(unit: Sum, children: list[Any]) -> Unit:
        weights: list[FloatArray] = []
        terms: list[Unit] = []
        for weight, old, child in zip(unit.weights, unit.children, children):
            is_single = isinstance(child, Sum) and n_parents[id(old)] == 1
            # Products of weights may underflow
            if is_single and weight * child.weights.min() >= SMALLEST:
                weights.append(weight * child.weights)
                terms += child.children
            else:
                weights.append(np.array([weight]))
                terms.append(child)
        return Sum(terms, weights=np.concatenate(weights))

    return fold(root, merge, lambda children: linked_product(tuple(children)), lambda leaf: leaf)


class RestrictedCircuit:
    """A smooth and decomposable circuit given evidence about n rows."""

    def __init__(self, plan: Plan, evidence: Evidence, restrict: Restriction = restrict) -> None:
        """`restrict`: how input layers are restricted, if not by evidence alone."""
        self._plan, self.evidence, self._restrict = plan, evidence, restrict

    @property
    def cardinalities(self) -> dict[int, int]:
        """Number of states of each discrete variable."""
        return self._plan.cardinalities

    def rows(self, kept: IntArray) -> RestrictedCircuit:
        """The circuit given the evidence of some of the rows."""
        return RestrictedCircuit(self._plan, self.evidence.rows(kept), self._restrict)

    def log_mass(self) -> FloatArray:
        """Log density of the observed cells times the probability of the box, shape (n,)."""
        result = np.empty(len(self.evidence))
        for rows, batch in self._batches():
            result[rows] = batch.values[self._plan.root]
        return result

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances of all columns, both (n, n_columns); of codes where discrete."""
        shape = self.evidence.X.shape
        means, variances = np.full(shape, np.nan), np.full(shape, np.nan)
        for rows, batch in self._batches():
            means[rows], variances[rows] = batch.moments()
        return means, variances

    def state_probabilities(self) -> dict[int, FloatArray]:
        """Distribution of every discrete variable, (n, n_states) each."""
        n_rows, known = len(self.evidence), self._plan.cardinalities
        result = {variable: np.zeros((n_rows, n)) for variable, n in known.items()}
        for rows, batch in self._batches():
            for variable, flows in batch.state_flows():
                result[variable][rows, : len(flows)] += flows.T
        return result

    def covariance(self, features: list[Feature]) -> FloatArray:
        """Covariances (n, F, F) of functions of single variables."""
        result = np.empty((len(self.evidence), len(features), len(features)))
        for rows, batch in self._batches():
            for row in range(rows.stop - rows.start):
                result[rows.start + row] = batch.covariance(row, features)
        return result

    def sample(self, counts: IntArray, rng: np.random.Generator) -> FloatArray:
        """Draw counts (n,) rows given the evidence of each, one after the other."""
        drawn = np.full((int(counts.sum()), self.evidence.X.shape[1]), np.nan)
        ends = np.cumsum(counts)
        for rows, batch in self._batches():
            # One draw per row: all rows are traced at once
            n_rows = rows.stop - rows.start
            step = n_rows if (counts[rows] == 1).all() else 1
            for own in row_slices(n_rows, step):
                first, last = rows.start + own.start, rows.start + own.stop - 1
                out = drawn[ends[first] - counts[first] : ends[last]]
                if len(out):
                    batch.draw(own, out, rng)
        return drawn

    def mpe(self, left_out: IntArray = NO_COLUMNS) -> tuple[FloatArray, FloatArray]:
        """Best rows (n, n_columns) found and their log densities (n,), by sums over columns
        `left_out` and over sums of them alone, else by max-product.
        """
        rows_found, heights = np.empty(self.evidence.X.shape), np.empty(len(self.evidence))
        for rows, batch in self._batches(SEARCH_BUFFERS):
            rows_found[rows], heights[rows] = batch.mpe(left_out)
        return rows_found, heights

    def _batches(self, n_buffers: int = 4) -> Iterator[tuple[slice, _Batch]]:
        for rows in self._plan.batches(len(self.evidence), n_buffers):
            yield rows, _Batch(self._plan, self.evidence.rows(rows), rows.start, self._restrict)


def feature_means(model: Any, features: list[Feature]) -> FloatArray:
    """Means (n, F) of functions of single variables, given what restricts a model in n cases."""
    is_discrete = any(values is not None for _, values in features)
    means, states = model.moments()[0], model.state_probabilities() if is_discrete else {}
    result = np.empty((len(means), len(features)))
    for column, (variable, values) in zip(result.T, features):
        if values is None or variable not in states:
            column[:] = means[:, variable]
            continue
        # The feature may have values for fewer or more states than the circuit has
        n_states = min(states[variable].shape[1], len(values))
        column[:] = states[variable][:, :n_states] @ values[:n_states]
    return result


def mixed_moments(plan: Plan, parts: list[_Part], n_columns: int) -> tuple[FloatArray, FloatArray]:
    """Means and variances (n, n_columns), NaN of other columns, of `parts`: scopes, flows (n_units,
    n), and moments (n_units, n, scope_size), undefined where there is no flow.
    """
    mean, total = np.zeros((2, n_columns, parts[0][1].shape[1]))
    for scopes, flows, own, _ in parts:
        used = np.where(flows[..., None] > 0.0, own, 0.0)
        mean += per_column(scopes, flows[..., None] * used, n_columns)
    # Law of total variance around the known mean: differences of squares would cancel
    for scopes, flows, own, variance in parts:
        distance = own - mean[scopes].transpose(0, 2, 1)
        is_used = (flows[..., None] > 0.0) & np.isfinite(distance)
        spread = np.where(is_used, variance, 0.0) + np.where(is_used, distance, 0.0) ** 2
        total += per_column(scopes, flows[..., None] * spread, n_columns)
    outside = plan.other_columns(n_columns)
    mean[outside] = total[outside] = np.nan
    return mean.T, total.T


class _Batch:
    """Rows whose values are in memory at the same time."""

    def __init__(
        self, plan: Plan, evidence: Evidence, first_row: int, restrict: Restriction
    ) -> None:
        self._plan, self._evidence, self._first_row = plan, evidence, first_row
        self._restrict = restrict
        self._layers = [(units, restrict(layer, evidence)) for units, layer in plan.inputs]

    @cached_property
    def values(self) -> FloatArray:
        """Log values of all units, (n_units, n)."""
        values = np.empty((self._plan.n_units, len(self._evidence)))
        for units, layer in self._layers:
            values[units] = layer.log_mass()
        return feedforward(self._plan, values)

    @cached_property
    def flows(self) -> FloatArray:
        """Probabilities that units take part, (n_units, n)."""
        require_possible(self._plan, self.values[self._plan.root], self._first_row)
        return backward(self._plan, self.values)

    def state_flows(self) -> Iterator[tuple[int, FloatArray]]:
        """Probabilities (n_states, n) of the states of discrete variables, in parts."""
        for units, layer in self._layers:
            if isinstance(layer, RestrictedDiscrete):
                for variable, _, flows in layer.state_flows(self.flows[units]):
                    yield variable, flows

    def moments(self) -> tuple[FloatArray, FloatArray]:
        """Means and variances of all columns, NaN of those that are no variables."""
        parts = [
            (own.layer.scopes, self.flows[units], *own.moments()) for units, own in self._layers
        ]
        return mixed_moments(self._plan, parts, self._evidence.X.shape[1])

    def covariance(self, row: int, features: list[Feature]) -> FloatArray:
        """Covariances (F, F) in one row, by the law of total covariance at every sum."""
        plan, values = self._plan, self.values[:, row : row + 1]
        flows = self.flows[:, row]
        means = np.zeros((plan.n_units, len(features)))
        total = np.zeros((len(features), len(features)))
        for units, layer in self._layers:
            means[units], inner = layer.feature_moments(row, features)
            total += np.tensordot(flows[units], inner, axes=1)
        for step in plan.layers:
            if isinstance(step, ProductLayer):
                means[step.units] = means[step.children].sum(axis=1)
                continue
            assert isinstance(step, SumLayer)
            posteriors = step.posteriors(values, plan.weights)
            weighted = means[step.children] * posteriors
            means[step.units] = np.add.reduceat(weighted, step.starts, axis=0)
            centred = means[step.children] - means[step.sum_of_edge]
            weights = posteriors[:, 0] * flows[step.sum_of_edge]
            total += (centred * weights[:, None]).T @ centred
        return total

    def draw(self, rows: slice, out: FloatArray, rng: np.random.Generator) -> None:
        """Fill `out`, shape (m, n_columns), with draws given the evidence of some rows in turn."""
        values = self.values[:, rows]
        require_possible(self._plan, values[self._plan.root], self._first_row + rows.start)
        posterior, n_rows = _Posterior(self._plan, values), values.shape[1]
        layers: dict[int, RestrictedLayer] = {id(own.layer): own for _, own in self._layers}
        for draws in row_slices(len(out), max(BATCH_DRAWS // n_rows, 1) * n_rows):
            n_draws = draws.stop - draws.start
            choose = posterior.chooser(lambda *_: rng, n_draws // n_rows)
            for layer, units, at in trace(self._plan, n_draws, choose):
                cells = layers[id(layer)].draw(units, rows.start + at % n_rows, rng)
                out[(draws.start + at)[:, None], layer.scopes[units]] = cells

    def mpe(self, left_out: IntArray) -> tuple[FloatArray, FloatArray]:
        """Best rows and their log densities, or the logs of their terms."""
        plan, n_rows = self._plan, len(self._evidence)
        values = np.empty((plan.n_units, n_rows))
        for span, own in self._layers:
            values[span] = self._log_max(own, left_out)
        if len(left_out):
            self._sum_out(values, set(left_out.tolist()))
        else:
            feedforward(plan, values, "max")
        require_possible(plan, values[plan.root], self._first_row)
        if not len(left_out) and rows_have_several_trees(plan):
            return self._search(values)
        layers = {id(own.layer): own for _, own in self._layers}
        best = np.full(self._evidence.X.shape, np.nan)
        for layer, units, at in trace(plan, n_rows, best_edges(plan, values)):
            best[at[:, None], layer.scopes[units]] = layers[id(layer)].mode(units, at, left_out)
        return best, values[plan.root]

    def _search(self, peaks: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Best rows that are found and their log densities; ``peaks``: values by max-product."""
        known = Known(self._plan, self._layers, self._evidence.X, self._evidence.integers)
        # Probabilities of boxes may take longer than the whole search
        is_open = np.isnan(self._evidence.box.lower) & np.isnan(self._evidence.box.upper)
        has_box = not is_open.all() or bool(self._evidence.box.states)
        return search_completions(known, peaks, None if has_box else self.values)

    def _log_max(self, restricted: RestrictedLayer, left_out: IntArray) -> FloatArray:
        """Log density of the columns that are not left out, at the best points of all units."""
        is_out = np.isin(restricted.layer.scopes, left_out)
        if not is_out.any():
            return restricted.log_max()
        values = restricted.log_mass()
        whole = ~is_out.any(axis=1)
        values[whole] = restricted.log_max()[whole] if whole.any() else 0.0
        part = np.flatnonzero(~whole & ~is_out.all(axis=1))
        shape = len(part), len(self._evidence), is_out.shape[1]
        pairs = np.repeat(part, shape[1]), np.tile(np.arange(shape[1]), len(part))
        modes = restricted.mode(*pairs, left_out).reshape(shape)
        for unit, mode in zip(part.tolist(), modes):
            kept, X = ~is_out[unit], self._evidence.X.copy()
            X[:, restricted.layer.scopes[unit, kept]] = mode[:, kept]
            # Columns that are left out contribute the probability of their evidence given the mode
            known = Evidence(X, self._evidence.box)
            values[unit] = self._restrict(restricted.layer, known).log_mass()[unit]
        return values

    def _sum_out(self, values: FloatArray, left_out: set[int]) -> None:
        """Evaluate inner units: sums over left-out columns alone add up, all others maximise."""
        plan = self._plan
        kept = ~mask_of(left_out)
        is_out = np.array([not scope.mask & kept for scope in plan.scopes])
        for step in plan.layers:
            # Layer by layer: columns must be summed out before the next layer reads them
            run_steps([step], values, "max", plan.weights)
            units = np.flatnonzero(is_out[step.units]) + step.units.start
            values[units] = self.values[units]


def around_integers(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Closed intervals of the numbers that round to integers; ties round to even integers."""
    return np.nextafter(values - 0.5, np.inf), np.nextafter(values + 0.5, -np.inf)


def integer_range(plan: Plan, known: Evidence, variable: int) -> tuple[float, float]:
    """Integers that a variable may round to, except for masses below rounding errors."""
    first, last = integer_ranges(plan, known, variable)
    return float(first[0]), float(last[0])


def integer_ranges(plan: Plan, known: Evidence, variable: int) -> tuple[FloatArray, FloatArray]:
    """The same for each row of evidence."""
    marks = breakpoints_of(plan, variable)
    ends = np.concatenate([marks.points, marks.atoms])
    low, high = known.bounds(variable)
    # Bounds around integers end half-way between two integers
    first = np.maximum(np.round(ends.min()), np.ceil(low))
    return first, np.minimum(np.round(ends.max()), np.floor(high))


def breakpoints_of(plan: Plan, variable: int) -> Breakpoints:
    """How to integrate all densities of a variable."""
    found = [breakpoints(layer, variable) for _, layer in plan.inputs if variable in layer.scopes]
    return Breakpoints.merge(found)
