"""Compilation of factor graphs to circuits from the trace of variable elimination, top-down.

A bucket that holds ``p(x | separator)`` becomes one sum unit per state of its separator: over the
states of x, an indicator times the units of the child buckets in the context that the state
completes. Impossible contexts are skipped. Contexts with equal distributions and equal children
share one unit, so that the circuit is context-minimal. Units are numbers in arrays until duplicates
are merged; only distinct ones are built. Probabilities that floats cannot hold are logarithms, and
become products of several weights.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from skcircuits.circuits import Indicator, Product
from skcircuits.circuits.inputs.discrete import linked_categorical
from skcircuits.circuits.structure.units import (
    Unit,
    linked_product,
    linked_sum,
    log_weighted_sum,
)
from skcircuits.exceptions import must
from skcircuits.graphical.inference._elimination import EliminationTree
from skcircuits.graphical.inference._posterior import Solution
from skcircuits.graphical.inference._propagation import Number, align, spread
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Up to this many keys, a dictionary is faster than a sort.
_FEW_KEYS = 256
# Number of bits in which weights of equal contexts may differ after normalisation.
_ROUNDING_BITS = 6


def compile_solutions(solutions: Sequence[Solution], *, max_edges: int, verbose: int) -> Unit:
    """Build the units of ``p(hidden | observed)`` for one evidence, component by component.

    The root is normalised, smooth, deterministic and structured-decomposable. MemoryError,
    before any unit is built, where more than ``max_edges`` edges are to be expected.
    """
    if not solutions:
        way_out = "Use log_partition(evidence) if all variables are observed."
        raise ValueError(must("evidence", "leave at least one variable unobserved", way_out))
    # Components are independent given the evidence: their product is the circuit.
    traces = [_trace(solution) for solution in solutions]
    _check_edges(sum(trace.n_edges for trace in traces), max_edges, verbose)
    with _collector_paused():
        roots = [_build(trace, verbose) for trace in traces]
    return roots[0] if len(roots) == 1 else Product(roots)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector of cycles: it took four fifths of the time of a million edges."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Weights(NamedTuple):
    """Probabilities, or their logarithms: (states, *separator), or a row per context."""

    values: FloatArray
    are_logs: bool

    @property
    def are_possible(self) -> BoolArray:
        """Which of them are not zero."""
        return self.values > (-np.inf if self.are_logs else 0.0)


class _Trace(NamedTuple):
    """Weights (states, *separator) and reachable contexts (*separator) of each bucket."""

    tree: EliminationTree
    weights: list[_Weights]
    reached: list[BoolArray]

    @property
    def n_edges(self) -> int:
        """Edges of the circuit if no two contexts shared a unit."""
        total = 0
        for bucket, weights, reached in zip(self.tree.buckets, self.weights, self.reached):
            if bucket.children:
                n_products = int(np.count_nonzero(weights.are_possible[:, reached]))
                total += n_products * (2 + len(bucket.children))
        return total


def _trace(solution: Solution) -> _Trace:
    """Follow the possible contexts from the root down."""
    tree = solution.component.tree
    # Axes of length one appear where no factor saw the variable.
    weights = []
    for step, (bucket, conditional) in enumerate(zip(tree.buckets, solution.conditionals)):
        logs = solution.log_conditionals.get(step)
        values = conditional if logs is None else logs
        weights.append(_Weights(spread(values[0], tree.shape(bucket.axes)), logs is not None))
    reached: list[BoolArray] = [np.ones(0, dtype=bool)] * len(tree.buckets)
    # The root has no separator, and its only context is reachable
    reached[-1] = np.ones((), dtype=bool)
    for step in range(len(tree.buckets) - 1, -1, -1):
        bucket = tree.buckets[step]
        if bucket.children:
            live = reached[step] & weights[step].are_possible
            for child in bucket.children:
                seen = tree.buckets[child].separator
                dropped = tuple(axis for axis, v in enumerate(bucket.axes) if v not in seen)
                reached[child] = np.asarray(live.any(axis=dropped))
    return _Trace(tree, weights, reached)


def _check_edges(n_edges: int, max_edges: int, verbose: int) -> None:
    if n_edges > max_edges:
        condition = f"have at most max_edges={max_edges:,} edges"
        way_out = (
            "Observe more variables, try another order, or raise max_edges; log_partition, "
            "marginals and sample do not need a circuit."
        )
        raise MemoryError(must("circuit", condition, way_out, n_edges=f"{n_edges:,}"))
    if verbose:
        print(f"[compile] at most {n_edges:,} edges")


class _Bucket(NamedTuple):
    """Distinct units of a bucket, and the index (*separator) of the unit of each context, or -1."""

    units: list[Unit]
    places: IntArray


def _build(trace: _Trace, verbose: int) -> Unit:
    """Build the units of a component from the leaves to the root."""
    built: list[_Bucket] = []
    n_buckets = len(trace.tree.buckets)
    for step, (bucket, reached) in enumerate(zip(trace.tree.buckets, trace.reached), start=1):
        weights = trace.weights[step - 1]
        rows = weights._replace(values=_in_reach(weights.values, reached))
        # Input units hold plain numbers
        if bucket.children or weights.are_logs:
            children = [built[child] for child in bucket.children]
            contexts = [
                align(child.places[None], trace.tree.buckets[index].separator, bucket.axes)[0]
                for index, child in zip(bucket.children, children)
            ]
            below = [_in_reach(spread(table, weights.values.shape), reached) for table in contexts]
            units, index = _sums(bucket.variable, rows, [c.units for c in children], below)
        else:
            units, index = _categoricals(bucket.variable, rows.values)
        if len(index) == reached.size:
            places = index.reshape(reached.shape)
        else:
            places = np.full(reached.shape, -1, dtype=np.int64)
            places[reached] = index
        built.append(_Bucket(units, places))
        if verbose:
            print(f"[compile] variable {step}/{n_buckets}: {len(units):,} units")
    return built[-1].units[0]


def _in_reach(table: NDArray[Number], reached: BoolArray) -> NDArray[Number]:
    """One row per reachable context; other contexts are not processed."""
    flat = table.reshape(len(table), -1)
    return (flat if reached.all() else flat[:, reached.ravel()]).T


def _categoricals(variable: int, weights: FloatArray) -> tuple[list[Unit], IntArray]:
    """One input unit per distinct distribution, and the index of the unit of each context."""
    first, index = _distinct_rows(_rounded(weights))
    masses = weights[first]
    masses.flags.writeable = False
    return [linked_categorical(variable, row) for row in masses], index


def _sums(
    variable: int, weights: _Weights, children: list[list[Unit]], contexts: list[IntArray]
) -> tuple[list[Unit], IntArray]:
    """Sum units ``sum_x weights[x] [X = x] prod(children[x])`` of the contexts, and their places.

    ``weights`` and the places of the children in each context have the shape (n, states).
    """
    products, factors = _products(variable, weights.are_possible, children, contexts)
    # Sums of the same products with nearly equal weights differ only by rounding.
    first, index = _distinct_rows(np.concatenate([factors, _rounded(weights.values)], axis=1))
    live = factors[first] >= 0
    terms = [products[place] for place in factors[first][live].tolist()]
    values = weights.values[first][live]
    values.flags.writeable = False
    link: Callable[[tuple[Unit, ...], FloatArray], Unit] = (
        log_weighted_sum if weights.are_logs else linked_sum
    )
    units: list[Unit] = []
    start = 0
    for end in np.cumsum(live.sum(axis=1)).tolist():
        # A sum with a single term is replaced by the term, whose weight is one.
        alone = end == start + 1
        units.append(terms[start] if alone else link(tuple(terms[start:end]), values[start:end]))
        start = end
    return units, index


def _products(
    variable: int, live: BoolArray, children: list[list[Unit]], contexts: list[IntArray]
) -> tuple[list[Unit], IntArray]:
    """Products of an indicator and one unit of each child; (n, states) places, -1 where dead.

    Without children, these are the indicators.
    """
    # One key per state and choice of children.
    states, rows = live.T.nonzero()
    keys, n_keys = states, live.shape[1]
    chosen = [places[rows, states] for places in contexts]
    for units, places in zip(children, chosen):
        # Keys must stay integers: they are renumbered before they could overflow
        if n_keys * len(units) > 2**62:
            _, keys = np.unique(keys, return_inverse=True)
            n_keys = int(keys.max()) + 1
        keys, n_keys = keys * len(units) + places, n_keys * len(units)
    first, which = _distinct(keys)
    index = np.full(live.shape, -1, dtype=np.int64)
    index[rows, states] = which
    indicators = _indicators(variable, live.shape[1])
    columns = [
        [units[place] for place in places[first].tolist()]
        for units, places in zip([indicators, *children], [states, *chosen])
    ]
    if not children:
        return columns[0], index
    return [linked_product(factors) for factors in zip(*columns)], index


@lru_cache(maxsize=4096)
def _indicators(variable: int, n_states: int) -> list[Unit]:
    """One unit per state: units never change, so that all circuits may share them."""
    return [Indicator(variable, state, n_states) for state in range(n_states)]


def _rounded(weights: FloatArray) -> IntArray:
    """Bits of the weights without the last few, rounded; equal for nearly equal weights."""
    bits = np.ascontiguousarray(weights).view(np.int64)
    return (bits + (1 << _ROUNDING_BITS - 1)) >> _ROUNDING_BITS


def _distinct_rows(table: IntArray) -> tuple[IntArray, IntArray]:
    """First of each group of equal rows, and the group of each row."""
    if len(table) <= _FEW_KEYS:
        raw, width = table.tobytes(), table.itemsize * table.shape[1]
        return _first_and_group([raw[start : start + width] for start in range(0, len(raw), width)])
    # Sorting one hash per row is ten times faster than sorting rows; collisions are detected.
    mixers = _mixers(table.shape[1])
    hashed = (table.view(np.uint64) * mixers).astype(np.uint64)
    hashed ^= hashed >> np.uint64(29)
    first, index = _distinct((hashed * mixers[::-1]).sum(axis=1, dtype=np.uint64))
    if not np.array_equal(table[first][index], table):
        _, first, index = np.unique(table, axis=0, return_index=True, return_inverse=True)
    return first, index.ravel()


def _distinct(keys: NDArray[Any]) -> tuple[IntArray, IntArray]:
    """First of each group of equal keys, and the group of each key."""
    if len(keys) <= _FEW_KEYS:
        return _first_and_group(keys.tolist())
    _, first, index = np.unique(keys, return_index=True, return_inverse=True)
    return first, index


def _first_and_group(keys: list[Any]) -> tuple[IntArray, IntArray]:
    """The same without a sort, which has a larger overhead for few keys."""
    groups: dict[Any, int] = {}
    index = np.array([groups.setdefault(key, len(groups)) for key in keys], dtype=np.int64)
    first = np.empty(len(groups), dtype=np.int64)
    first[index[::-1]] = np.arange(len(keys) - 1, -1, -1)  # the last write stays
    return first, index


@lru_cache
def _mixers(n_columns: int) -> NDArray[np.uint64]:
    """Random odd multipliers: a generator for each bucket took longer than its rows."""
    drawn = np.random.default_rng(0).integers(1, 2**63, n_columns, dtype=np.uint64)
    return np.asarray(drawn | np.uint64(1))
