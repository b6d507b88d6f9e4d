"""Probabilities of boxes: one pass over the part of a circuit that has bounds.

Variables without bounds integrate to one. Many rows with bounds on the same variables are therefore
evaluated on the marginal circuit of these variables, which is often much smaller and is kept for
the next call. It is flattened: sums merge into sums, products into products, and products of sums
over several variables are multiplied out if that takes few more edges. Circuits that are not
normalised are divided by their integrals first.

The pass adds and multiplies probabilities on the linear scale. If a result is so small that
rounding might matter, the pass is repeated with every input increased by a bound of its error: as
all weights are positive, the increase of the result bounds its own error. If this bound is too
large, inputs are computed to more digits, and the few remaining rows are evaluated in log space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product as product_of
from math import prod
from operator import methodcaller

import numpy as np

from skcircuits.circuits._policy import BATCH_ROWS, MANY_ROWS, MAX_EDGE_GROWTH, MAX_KEPT
from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.circuits.engine._passes import feedforward, input_buffer, log_values
from skcircuits.circuits.engine._plan import Plan, compile_plan
from skcircuits.circuits.inputs import Box, BoxMasses
from skcircuits.circuits.queries._marginals import condition, log_partition, marginalize
from skcircuits.circuits.structure._scopes import VariableSets
from skcircuits.circuits.structure.units import Product, Sum, Unit, topological_order
from skcircuits.numerics._arrays import Rows, safe_log
from skcircuits.numerics._patterns import distinct_patterns
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray

_Terms = list[tuple[float, tuple[Unit, ...]]]
# Absolute error of the probabilities of input units. Results above one fraction of the whole are
# accurate despite this error; results below another may have lost digits to underflow.
INPUT_ERROR = 1e-15
SURELY_EXACT = 1e-6
MIN_LINEAR = 1e-250
RELATIVE_ERROR = 1e-9
# Units whose integrals are as near to one as weights rounded to some digits leave them.
MAX_LOG_SCALE = 1e-3

_Write = Callable[[BoxMasses, Rows, FloatArray], None]


def flatten(root: Unit) -> Unit:
    """Rewrite a smooth and decomposable circuit with fewer levels."""
    return _Flattening(root).unit(root)


class _Flattening:
    """Represents units as lists of weighted products, and builds those that remain units."""

    def __init__(self, root: Unit) -> None:
        order = topological_order(root)
        self._scopes = VariableSets().of_units(order)
        self._n_parents = Counter(id(child) for unit in order for child in unit.children)
        self._built: dict[int, Unit] = {}
        self._terms: dict[int, _Terms] = {}
        # Edges below a unit that no other unit uses
        self._n_edges: dict[int, int] = {}
        for unit in order:
            self._n_edges[id(unit)] = len(unit.children) + sum(
                self._n_edges[id(child)] for child in unit.children if not self._is_shared(child)
            )
            self._terms[id(unit)] = self._expand(unit)

    def unit(self, original: Unit) -> Unit:
        """Build the replacement of a unit of the circuit, once."""
        key = id(original)
        if key not in self._built:
            terms = self._terms[key]
            # A product of one factor is that factor
            children = [part[0] if len(part) == 1 else Product(part) for _, part in terms]
            weights = np.array([weight for weight, _ in terms])
            if isinstance(original, Sum) or len(children) > 1 or weights[0] != 1.0:
                self._built[key] = Sum(children, weights=weights)
            else:
                (self._built[key],) = children
        return self._built[key]

    def _expand(self, unit: Unit) -> _Terms:
        if isinstance(unit, Sum):
            return [
                (weight * inner, part)
                for child, weight in zip(unit.children, unit.weights)
                for inner, part in self._terms_in_sum(child)
            ]
        if isinstance(unit, Product):
            return self._multiply(unit)
        return [(1.0, (unit,))]

    def _terms_in_sum(self, child: Unit) -> _Terms:
        """Merge a child's terms into the sum above, unless other units use them too."""
        terms = self._terms[id(child)]
        # A shared child that is merged into its parents would be evaluated once per parent.
        do_keep = self._is_shared(child) and len(terms) > 1
        return [(1.0, (self.unit(child),))] if do_keep else terms

    def _is_shared(self, child: Unit) -> bool:
        return self._n_parents[id(child)] > 1

    def _multiply(self, product: Product) -> _Terms:
        """Multiply the factors out where that pays."""
        factors = [self._terms_in_product(factor) for factor in product.children]
        n_terms = prod(len(terms) for terms in factors)
        n_edges = sum(
            n_terms // len(terms) * sum(len(part) for _, part in terms) for terms in factors
        )
        # The number of terms is the product over the factors: only small products are expanded.
        if n_edges > MAX_EDGE_GROWTH * self._n_edges[id(product)]:
            factors = [
                terms if len(terms) == 1 else [(1.0, (self.unit(factor),))]
                for terms, factor in zip(factors, product.children)
            ]
        return [
            (
                prod(weight for weight, _ in chosen),
                tuple(unit for _, part in chosen for unit in part),
            )
            for chosen in product_of(*factors)
        ]

    def _terms_in_product(self, factor: Unit) -> _Terms:
        """Terms of a factor; a sum over a single variable is not expanded."""
        # Expanding a mixture over one variable would give one product for each of its children.
        is_term = self._scopes[id(factor)].size == 1
        return [(1.0, (self.unit(factor),))] if is_term else self._terms[id(factor)]


def log_box_probability(plan: Plan, box: Box) -> FloatArray:
    """Log probabilities (n,) of boxes, one per row, under a smooth and decomposable circuit."""
    # Variables without bounds integrate to one, whatever the other bounds are
    log_whole = plan.remember("log_whole", lambda: log_partition(plan))
    result = np.full(len(box.lower), log_whole)
    # No box has a probability under the zero function, which has no marginals either
    if np.isneginf(log_whole):
        return result
    normalised = plan.remember("normalised", lambda: _normalised(plan))
    log_factor = 0.0 if normalised is plan else log_whole
    for part, rows in _parts(normalised, _bounded(plan, box)):
        own = box if len(rows) == len(result) else box.rows(rows)
        result[rows] = _log_probability(part, own) + log_factor
    return result


def _normalised(plan: Plan) -> Plan:
    """The plan itself where all of its units integrate to one, otherwise such a plan."""
    nothing = np.full((1, plan.n_columns), np.nan)
    # Factors of products of circuits leave the linear scale, even where they cancel
    if np.abs(log_values(plan, nothing)).max() < MAX_LOG_SCALE:
        return plan
    root = condition(plan, nothing[0])
    assert root is not None
    return compile_plan(root)


def _parts(plan: Plan, bounded: BoolArray) -> Iterator[tuple[Plan, IntArray]]:
    """Circuits that give the probabilities of rows with bounds, and these rows."""
    patterns, pattern_of = distinct_patterns(bounded)
    n_rows = np.bincount(pattern_of, minlength=len(patterns))
    has_bounds = patterns.any(axis=1)
    # A circuit of its own for a few rows would cost more than it saves
    is_apart = has_bounds & ((n_rows >= MANY_ROWS) | (len(patterns) == 1))
    for number in np.flatnonzero(is_apart):
        kept = frozenset(np.flatnonzero(patterns[number]).tolist())
        yield _plan_over(plan, kept), np.flatnonzero(pattern_of == number)
    # All others at once: a pass of the whole circuit per pattern is one per row at worst
    rest = np.flatnonzero((has_bounds & ~is_apart)[pattern_of])
    if len(rest):
        yield plan, rest


def _log_probability(plan: Plan, box: Box) -> FloatArray:
    """Log probabilities, on the linear scale where that is exact."""
    linear = _LinearPass(plan, box)
    (result,) = linear(_write_masses)
    doubtful = np.flatnonzero(~(result >= SURELY_EXACT))
    if len(doubtful):
        doubtful = _settle(linear, result, doubtful)
    safe_log(result, out=result)
    if len(doubtful):
        result[doubtful] = _log_pass(plan, box.rows(doubtful))
    return result


def _settle(linear: _LinearPass, result: FloatArray, doubtful: IntArray) -> IntArray:
    """Bound the errors of doubtful results, or improve them; return those still in doubt."""
    # For few rows, the most accurate values are computed right away
    if len(doubtful) > MANY_ROWS:
        known, (raised,) = result[doubtful], linear(_write_raised, doubtful)
        doubtful = doubtful[~_is_exact(known, raised)]
    known, raised = linear(_write_bounds, doubtful, 2)
    result[doubtful] = known
    doubtful = doubtful[~_is_exact(known, raised)]
    # Weights alone may underflow: then zero does not prove that bounds cannot be satisfied
    if linear.may_vanish():
        return doubtful
    zeros = doubtful[result[doubtful] == 0.0]
    is_impossible = linear(_write_possible, zeros, 2)[0] == 0.0
    return np.setdiff1d(doubtful, zeros[is_impossible])


def _is_exact(known: FloatArray, raised: FloatArray) -> BoolArray:
    """Tell where a bound of the error is small, and underflow would not show."""
    return (raised - known <= RELATIVE_ERROR * known) & (known >= MIN_LINEAR)


def _bounded(plan: Plan, box: Box) -> BoolArray:
    """Tell which variables of the circuit each row bounds, shape (n, n_columns)."""
    bounded = ~(np.isnan(box.lower) & np.isnan(box.upper))
    for variable, allowed in box.states.items():
        # A set of all states is not a bound
        bounded[:, variable] |= ~allowed.all(axis=1)
    n_columns = bounded.shape[1]
    if n_columns > len(plan.variables):
        scope = plan.variables
        outside = plan.remember(
            ("outside", n_columns), lambda: np.setdiff1d(np.arange(n_columns), scope)
        )
        bounded[:, outside] = False
    return bounded


class _LinearPass:
    """Probabilities on the linear scale."""

    def __init__(self, plan: Plan, box: Box) -> None:
        self._plan, self._n_boxes = plan, len(box.lower)
        self._inputs = [(units, layer.prepare_boxes(box)) for units, layer in plan.inputs]

    def may_vanish(self) -> bool:
        """Tell whether the linear scale is too short for the weights of some induced tree."""
        return self._plan.remember("may_vanish", lambda: _may_vanish(self._plan))

    def __call__(self, write: _Write, rows: IntArray | None = None, k: int = 1) -> FloatArray:
        """Evaluate some boxes."""
        plan, n = self._plan, self._n_boxes if rows is None else len(rows)
        result = np.empty((k, n))
        values = np.empty((0, 0, 0))
        for batch in memory_bound_chunks(n, k * plan.bytes_per_row, at_most=BATCH_ROWS // k):
            own = batch if rows is None else rows[batch]
            shape = (plan.n_units, k, batch.stop - batch.start)
            # Batches of one size share a buffer: new memory costs as much as writing to it
            values = values if values.shape == shape else np.empty(shape)
            for units, masses in self._inputs:
                write(masses, own, values[units])
            result[:, batch] = feedforward(plan, values, "linear")[plan.root]
        return result


def _may_vanish(plan: Plan) -> bool:
    """Compare the smallest product of positive weights of an induced tree with `MIN_LINEAR`."""
    log_weights = plan.weights.log
    inverse = SumWeights(np.where(np.isneginf(log_weights), -np.inf, -log_weights))
    largest = feedforward(plan, np.zeros((plan.n_units, 1)), "max", inverse)[plan.root, 0]
    return bool(largest > -np.log(MIN_LINEAR))


def _write_masses(masses: BoxMasses, rows: Rows, out: FloatArray) -> None:
    """Probabilities to absolute accuracy."""
    masses.write(rows, out[:, 0])


def _write_raised(masses: BoxMasses, rows: Rows, out: FloatArray) -> None:
    """Probabilities raised by the bound of their errors."""
    masses.write(rows, out[:, 0])
    out += INPUT_ERROR


def _write_bounds(masses: BoxMasses, rows: Rows, out: FloatArray) -> None:
    """Probabilities with more digits, and the same raised by bounds of their errors."""
    masses.write_bounds(rows, out[:, 0], out[:, 1])
    out[:, 1] += out[:, 0]


def _write_possible(masses: BoxMasses, rows: Rows, out: FloatArray) -> None:
    """One where a probability may be positive, otherwise zero."""
    _write_bounds(masses, rows, out)
    out[:, 0] = out[:, 1] > 0.0


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
        part = compile_plan(flatten(root))
        if len(known) >= MAX_KEPT:
            # Another thread may have removed it in the meantime
            for oldest in list(known)[:1]:
                known.pop(oldest, None)
        known[kept] = part
    return part
