"""Probabilities of boxes: one pass over the part of a circuit that the boxes look at.

Variables without bounds integrate to one. So rows that bound the same variables are answered
by the circuit of these variables alone, which is often much smaller and is kept for the next
call. The pass adds and multiplies probabilities themselves. Where the result is so small
that rounding could show, the pass is repeated with more digits, and once more with every
input raised by a bound of its error: what the result gains bounds its own error, as all
weights are positive. The few rows that this does not settle are evaluated in log space.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from operator import methodcaller

import numpy as np

from skcircuits.circuits.conditioning import marginalize
from skcircuits.circuits.inputs import Box, BoxMasses
from skcircuits.circuits.passes import feedforward, input_buffer
from skcircuits.circuits.plan import Plan, compile_plan
from skcircuits.circuits.units import Product, Sum, Unit, topological_order
from skcircuits.numerics.patterns import distinct_patterns
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import BoolArray, FloatArray, IntArray

__all__ = ["log_box_probability"]

# A smaller circuit pays for this many rows with the same bounded variables; so many of them
# are kept.
MANY_ROWS = 256
MAX_KEPT = 64
# What masses of input units may miss. Results above some share of the whole are exact
# nevertheless; results below another may have lost digits to underflow.
INPUT_ERROR = 1e-15
SURELY_EXACT = 1e-6
SMALLEST_LINEAR = 1e-250
RELATIVE_ERROR = 1e-9
# More rows than this try the cheaper bound of their errors first.
FEW_ROWS = 256
# Rows per batch: tables of cumulative masses are larger than the cache and are gone through
# once per batch.
BATCH_ROWS = 2048

_Write = Callable[[BoxMasses, IntArray, FloatArray], None]


def log_box_probability(plan: Plan, box: Box) -> FloatArray:
    """Log probability of each box.

    Parameters
    ----------
    plan : Plan
        A smooth and decomposable circuit.
    box : Box
        One box per row.

    Returns
    -------
    ndarray of shape (n,)
        Log probabilities.
    """
    patterns, pattern_of = distinct_patterns(_bounded(plan, box))
    log_whole = plan.remember("log_whole", lambda: float(_log_pass(plan, _unbounded(plan))[0]))
    result = np.full(len(box.lower), log_whole)
    for number, pattern in enumerate(patterns):
        if not pattern.any():
            continue
        rows = np.flatnonzero(pattern_of == number)
        part = plan
        if len(patterns) == 1 or len(rows) >= MANY_ROWS:
            part = _plan_over(plan, frozenset(np.flatnonzero(pattern).tolist()))
        own = box if len(rows) == len(result) else box.rows(rows)
        result[rows] = _log_probability(part, own, float(np.exp(log_whole)))
    return result


def _log_probability(plan: Plan, box: Box, whole: float) -> FloatArray:
    """Log probabilities, on the linear scale where that is exact."""
    linear = _LinearPass(plan, box)
    (result,) = linear(np.arange(len(box.lower)), _write_masses)
    doubtful = np.flatnonzero(~(result >= SURELY_EXACT * whole))
    if len(doubtful):
        doubtful = _settle(linear, result, doubtful, whole)
    with np.errstate(divide="ignore"):
        np.log(result, out=result)
    if len(doubtful):
        result[doubtful] = _log_pass(plan, box.rows(doubtful))
    return result


def _settle(linear: _LinearPass, result: FloatArray, doubtful: IntArray, whole: float) -> IntArray:
    """Bound the errors of doubtful results, or improve them; return those still in doubt."""
    # Few rows take the values with most digits at once
    writers = (_write_raised, _write_bounds) if len(doubtful) > FEW_ROWS else (_write_bounds,)
    for write in writers:
        known, raised = linear(doubtful, write)
        result[doubtful] = known
        is_exact = (raised - known <= RELATIVE_ERROR * known) & (known >= SMALLEST_LINEAR * whole)
        doubtful = doubtful[~is_exact]
    # Not underflow where no way is left to satisfy all bounds
    zeros = doubtful[result[doubtful] == 0.0]
    is_impossible = linear(zeros, _write_possible)[0] == 0.0
    return np.setdiff1d(doubtful, zeros[is_impossible])


def _bounded(plan: Plan, box: Box) -> BoolArray:
    """Tell which variables of the circuit each row bounds, shape (n, n_columns)."""
    bounded = ~(np.isnan(box.lower) & np.isnan(box.upper))
    for variable, allowed in box.states.items():
        bounded[:, variable] |= ~allowed.all(axis=1)
    n_columns = bounded.shape[1]
    if n_columns > len(plan.units[-1].scope):
        scope = plan.units[-1].scope
        outside = plan.remember(
            ("outside", n_columns), lambda: np.setdiff1d(np.arange(n_columns), scope)
        )
        bounded[:, outside] = False
    return bounded


def _unbounded(plan: Plan) -> Box:
    """One row without any bound."""
    nothing = np.full((1, plan.n_columns), np.nan)
    return Box(nothing, nothing)


class _LinearPass:
    """Probabilities on the linear scale.

    Parameters
    ----------
    plan : Plan
        A circuit.
    box : Box
        One box per row.
    """

    def __init__(self, plan: Plan, box: Box) -> None:
        self._plan = plan
        self._inputs = [(units, layer.prepare_boxes(box)) for units, layer in plan.inputs]

    def __call__(self, rows: IntArray, write: _Write) -> FloatArray:
        """Evaluate some boxes.

        Parameters
        ----------
        rows : ndarray of shape (m,)
            Which boxes.
        write : callable
            Writes k values of each input unit and row, one of those below.

        Returns
        -------
        ndarray of shape (k, m)
            Values of the root.
        """
        plan, k = self._plan, 1 if write is _write_masses else 2
        result = np.empty((k, len(rows)))
        values = np.empty((0, 0, 0))
        for batch in memory_bound_chunks(len(rows), k * plan.bytes_per_row, at_most=BATCH_ROWS):
            shape = (plan.n_units, k, batch.stop - batch.start)
            # Batches of one size share a buffer: new memory costs as much as what is written
            values = values if values.shape == shape else np.empty(shape)
            for units, masses in self._inputs:
                write(masses, rows[batch], values[units])
            result[:, batch] = feedforward(plan, values, "linear")[plan.root]
        return result


def _write_masses(masses: BoxMasses, rows: IntArray, out: FloatArray) -> None:
    """Probabilities to absolute accuracy."""
    masses.write(rows, out[:, 0])


def _write_raised(masses: BoxMasses, rows: IntArray, out: FloatArray) -> None:
    """Probabilities to absolute accuracy, and the same raised by it."""
    masses.write(rows, out[:, 0])
    np.add(out[:, 0], INPUT_ERROR, out=out[:, 1])


def _write_bounds(masses: BoxMasses, rows: IntArray, out: FloatArray) -> None:
    """Probabilities with more digits, and the same raised by bounds of their errors."""
    masses.write_bounds(rows, out[:, 0], out[:, 1])
    out[:, 1] += out[:, 0]


def _write_possible(masses: BoxMasses, rows: IntArray, out: FloatArray) -> None:
    """One where a probability is not surely zero."""
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
    """The circuit of some variables alone, from a few that are remembered."""
    known: dict[frozenset[int], Plan] = plan.remember("boxes", dict)
    if kept not in known:
        if len(known) >= MAX_KEPT:
            del known[next(iter(known))]
        root = marginalize(plan, frozenset(plan.units[-1].scope) - kept)
        assert root is not None
        known[kept] = compile_plan(_flatten(root))
    return known[kept]


def _flatten(root: Unit) -> Unit:
    """Merge sums into sums and products into products where no other unit uses them."""
    order = topological_order(root)
    n_parents = Counter(id(child) for unit in order for child in unit.children)
    built: dict[int, Unit] = {}

    def parts(child: Unit, kind: type[Unit]) -> tuple[tuple[Unit, ...], FloatArray]:
        """The units that stand for a child, and their weights in it."""
        new = built[id(child)]
        if not isinstance(new, kind) or n_parents[id(child)] > 1:
            return (new,), np.ones(1)
        return new.children, new.weights if isinstance(new, Sum) else np.ones(len(new.children))

    for unit in order:
        children: list[Unit] = []
        weights: list[FloatArray] = []
        own = unit.weights if isinstance(unit, Sum) else np.ones(len(unit.children))
        for child, weight in zip(unit.children, own):
            merged, inner = parts(child, type(unit))
            children.extend(merged)
            weights.append(weight * inner)
        if isinstance(unit, Sum):
            built[id(unit)] = Sum(children, weights=np.concatenate(weights))
        elif isinstance(unit, Product):
            built[id(unit)] = Product(children)
        else:
            built[id(unit)] = unit
    return built[id(root)]
