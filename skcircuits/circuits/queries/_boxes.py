"""Probabilities of boxes: one pass over the part of a circuit that has bounds.

Variables without bounds integrate to one. Many rows with bounds on the same variables are therefore
evaluated on the marginal circuit of these variables, which is often much smaller and is kept for
the next call. Circuits that are not normalised are divided by their integrals first. The pass adds
and multiplies probabilities on the linear scale; rows whose result is so small that errors of the
input units might matter are evaluated again in log space.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import methodcaller

import numpy as np

from skcircuits.circuits._policy import BATCH_ROWS, MANY_ROWS, MAX_KEPT
from skcircuits.circuits.engine._passes import feedforward, input_buffer, log_values
from skcircuits.circuits.engine._plan import Plan, compile_plan
from skcircuits.circuits.inputs import Box
from skcircuits.circuits.queries._marginals import condition, log_partition, marginalize
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._patterns import distinct_patterns
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Results above one fraction of the whole are accurate despite absolute errors of 1e-15 of the
# probabilities of input units.
SURELY_EXACT = 1e-6
# Units whose integrals are as near to one as weights rounded to some digits leave them.
MAX_LOG_SCALE = 1e-3


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
    result = _linear_pass(plan, box)
    doubtful = np.flatnonzero(~(result >= SURELY_EXACT))
    safe_log(result, out=result)
    if len(doubtful):
        result[doubtful] = _log_pass(plan, box.rows(doubtful))
    return result


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


def _linear_pass(plan: Plan, box: Box) -> FloatArray:
    """Probabilities to absolute accuracy."""
    n_boxes = len(box.lower)
    inputs = [(units, layer.prepare_boxes(box)) for units, layer in plan.inputs]
    result, values = np.empty(n_boxes), np.empty((0, 0))
    for rows in memory_bound_chunks(n_boxes, plan.bytes_per_row, at_most=BATCH_ROWS):
        shape = (plan.n_units, rows.stop - rows.start)
        # Batches of one size share a buffer: new memory costs as much as writing to it
        values = values if values.shape == shape else np.empty(shape)
        for units, write in inputs:
            write(rows, values[units])
        result[rows] = feedforward(plan, values, "linear")[plan.root]
    return result


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
        part = compile_plan(root)
        if len(known) >= MAX_KEPT:
            # Another thread may have removed it in the meantime
            for oldest in list(known)[:1]:
                known.pop(oldest, None)
        known[kept] = part
    return part
