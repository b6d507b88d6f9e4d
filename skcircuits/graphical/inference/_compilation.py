"""Compilation of factor graphs to circuits from the trace of variable elimination, top-down.

A bucket that holds ``p(x | separator)`` becomes one sum unit per state of its separator: over the
states of x, an indicator times the units of the child buckets in the context that the state
completes. Impossible contexts are skipped. Contexts with equal distributions and equal children
share one unit, so that the circuit is context-minimal. Units are places in a list, and the result
is that list: no sum or product is made before somebody asks for it. Probabilities that floats
cannot hold are logarithms, and become products of several weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from skcircuits.circuits import Indicator
from skcircuits.circuits.inputs.discrete import linked_categorical
from skcircuits.circuits.structure.units import (
    INPUT,
    PRODUCT,
    SUM,
    Unit,
    UnitList,
    scaling_weights,
    split_log_weights,
)
from skcircuits.exceptions import must
from skcircuits.graphical.inference._elimination import EliminationTree
from skcircuits.graphical.inference._posterior import Solution
from skcircuits.graphical.inference._propagation import align, spread
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Up to this many keys, a dictionary is faster than a sort.
_FEW_KEYS = 256
# Number of bits in which weights of equal contexts may differ after normalisation.
_ROUNDING_BITS = 6

_NO_WEIGHTS = np.empty(0)
_Cell = TypeVar("_Cell", bound=np.generic)


def compile_solutions(solutions: Sequence[Solution], *, max_edges: int, verbose: int) -> UnitList:
    """Build the units of ``p(hidden | observed)`` for one evidence, component by component.

    The root is normalised, smooth, deterministic and structured-decomposable. MemoryError,
    before any unit is built, where more than ``max_edges`` edges are to be expected.
    """
    if not solutions:
        way_out = "Use log_partition(evidence) if all variables are observed."
        raise ValueError(must("evidence", "leave at least one variable unobserved", way_out))
    traces = [_trace(solution) for solution in solutions]
    _check_edges(sum(trace.n_edges for trace in traces), max_edges, verbose)
    units = _Units()
    roots = [_build(trace, units, verbose) for trace in traces]
    # Components are independent given the evidence: their product is the circuit.
    if len(roots) > 1:
        units.add_products(np.array([roots]))
    return units.listed()


class _Units:
    """The units built so far: blocks of arrays, children by the places of all units."""

    def __init__(self) -> None:
        self.size = 0
        self._blocks: list[tuple[int, IntArray, IntArray, FloatArray]] = []
        self._inputs: list[Unit] = []

    def add_inputs(self, units: Sequence[Unit]) -> IntArray:
        """Append input units; here and below, the places of the new units."""
        self._inputs += units
        none = np.zeros(len(units), dtype=np.int64)
        return self._add(INPUT, none, none[:0], _NO_WEIGHTS)

    def add_products(self, children: IntArray) -> IntArray:
        """Append products, (n, factors)."""
        lengths = np.full(len(children), children.shape[1])
        return self._add(PRODUCT, lengths, children.ravel(), _NO_WEIGHTS)

    def add_sums(self, lengths: IntArray, children: IntArray, weights: FloatArray) -> IntArray:
        """Append sums, whose terms follow each other."""
        return self._add(SUM, lengths, children, weights)

    def _add(
        self, kind: int, lengths: IntArray, children: IntArray, weights: FloatArray
    ) -> IntArray:
        places = np.arange(self.size, self.size + len(lengths))
        self.size += len(lengths)
        self._blocks.append((kind, lengths, children, weights))
        return places

    def listed(self) -> UnitList:
        """All units, the root last."""
        kinds, lengths, children, weights = zip(*self._blocks)
        return UnitList(
            np.repeat(np.array(kinds, dtype=np.int16), list(map(len, lengths))),
            np.concatenate(lengths),
            np.concatenate(children),
            np.concatenate(weights),
            self._inputs,
        )


class _Weights(NamedTuple):
    """Probabilities, or their logarithms: (states, *separator), or a row per context.

    ``are_possible``: which of them are not zero.
    """

    values: FloatArray
    are_possible: BoolArray
    are_logs: bool


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
        table = spread(values[0], tree.shape(bucket.axes))
        are_possible = table > (0.0 if logs is None else -np.inf)
        weights.append(_Weights(table, are_possible, logs is not None))
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
    """Places of the distinct units of a bucket, and which of them each context (*separator) has.

    -1 for contexts that cannot be reached.
    """

    units: IntArray
    which: IntArray


def _build(trace: _Trace, units: _Units, verbose: int) -> int:
    """Build the units of a component from the leaves to the root; the place of its root."""
    built: list[_Bucket] = []
    n_buckets = len(trace.tree.buckets)
    for step, (bucket, reached) in enumerate(zip(trace.tree.buckets, trace.reached), start=1):
        weights = trace.weights[step - 1]
        rows = _Weights(
            _in_reach(weights.values, reached),
            _in_reach(weights.are_possible, reached),
            weights.are_logs,
        )
        # Input units hold plain numbers
        if bucket.children or weights.are_logs:
            children = [built[child] for child in bucket.children]
            contexts = [
                align(child.which[None], trace.tree.buckets[number].separator, bucket.axes)[0]
                for number, child in zip(bucket.children, children)
            ]
            below = [_in_reach(spread(table, weights.values.shape), reached) for table in contexts]
            made, which = _sums(units, bucket.variable, rows, [c.units for c in children], below)
        else:
            made, which = _categoricals(units, bucket.variable, rows.values)
        if len(which) == reached.size:
            index = which.reshape(reached.shape)
        else:
            index = np.full(reached.shape, -1, dtype=np.int64)
            index[reached] = which
        built.append(_Bucket(made, index))
        if verbose:
            print(f"[compile] variable {step}/{n_buckets}: {len(made):,} units")
    return int(built[-1].units[0])


def _in_reach(table: NDArray[_Cell], reached: BoolArray) -> NDArray[_Cell]:
    """One row per reachable context; other contexts are not processed."""
    flat = table.reshape(len(table), -1)
    return (flat if reached.all() else flat[:, reached.ravel()]).T


def _categoricals(units: _Units, variable: int, weights: FloatArray) -> tuple[IntArray, IntArray]:
    """One input unit per distinct distribution, and which of them each context has."""
    first, index = _distinct_rows(_rounded(weights))
    masses = weights[first]
    masses.flags.writeable = False
    return units.add_inputs([linked_categorical(variable, row) for row in masses]), index


def _sums(
    units: _Units,
    variable: int,
    weights: _Weights,
    children: list[IntArray],
    contexts: list[IntArray],
) -> tuple[IntArray, IntArray]:
    """Sum units ``sum_x weights[x] [X = x] prod(children[x])``, and which each context has.

    ``weights`` and which children each context has are of the shape (n, states).
    """
    products, factors = _products(units, variable, weights.are_possible, children, contexts)
    # Sums of the same products with nearly equal weights differ only by rounding.
    first, index = _distinct_rows(np.concatenate([factors, _rounded(weights.values)], axis=1))
    chosen = factors[first]
    live = chosen >= 0
    terms, values = products[chosen[live]], weights.values[first][live]
    lengths = live.sum(axis=1)
    alone = lengths == 1
    if not alone.any():
        return _add_sums(units, lengths, terms, values, weights.are_logs), index
    # A sum with a single term is replaced by the term, whose weight is one.
    is_alone = np.repeat(alone, lengths)
    made = np.empty(len(first), dtype=np.int64)
    made[alone] = terms[is_alone]
    others = lengths[~alone], terms[~is_alone], values[~is_alone]
    if len(others[0]):
        made[~alone] = _add_sums(units, *others, weights.are_logs)
    return made, index


def _add_sums(
    units: _Units, lengths: IntArray, terms: IntArray, weights: FloatArray, are_logs: bool
) -> IntArray:
    """Append sums with these weights, or with weights by their logarithms."""
    if are_logs:
        weights, apart = split_log_weights(weights)
        for i in np.flatnonzero(apart):
            for weight in scaling_weights(float(apart[i])):
                scaled = units.add_sums(np.ones(1, np.int64), terms[[i]], np.array([weight]))
                terms[i] = scaled[0]
    return units.add_sums(lengths, terms, weights)


def _products(
    units: _Units,
    variable: int,
    live: BoolArray,
    children: list[IntArray],
    contexts: list[IntArray],
) -> tuple[IntArray, IntArray]:
    """Products of an indicator and a unit of each child; which (n, states) have, -1 where dead.

    Without children, these are the indicators.
    """
    # One key per state and choice of children.
    states, rows = live.T.nonzero()
    keys, n_keys = states, live.shape[1]
    chosen = [index[rows, states] for index in contexts]
    for below, index in zip(children, chosen):
        # Keys must stay integers: they are renumbered before they could overflow
        if n_keys * len(below) > 2**62:
            _, keys = np.unique(keys, return_inverse=True)
            n_keys = int(keys.max()) + 1
        keys, n_keys = keys * len(below) + index, n_keys * len(below)
    first, which = _distinct(keys)
    index = np.full(live.shape, -1, dtype=np.int64)
    index[rows, states] = which
    indicators = _indicators(variable, live.shape[1])
    used = list(dict.fromkeys(states.tolist()))
    made = np.empty(live.shape[1], dtype=np.int64)
    made[used] = units.add_inputs([indicators[state] for state in used])
    if not children:
        return made[states[first]], index
    factors = np.empty((len(first), 1 + len(children)), dtype=np.int64)
    for column, (below, own) in enumerate(zip([made, *children], [states, *chosen])):
        factors[:, column] = below[own[first]]
    return units.add_products(factors), index


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
    groups = dict(zip(dict.fromkeys(keys), range(len(keys))))
    index = np.array([*map(groups.__getitem__, keys)], dtype=np.int64)
    first = np.empty(len(groups), dtype=np.int64)
    first[index[::-1]] = np.arange(len(keys) - 1, -1, -1)  # the last write stays
    return first, index


@lru_cache
def _mixers(n_columns: int) -> NDArray[np.uint64]:
    """Random odd multipliers: a generator for each bucket took longer than its rows."""
    drawn = np.random.default_rng(0).integers(1, 2**63, n_columns, dtype=np.uint64)
    return np.asarray(drawn | np.uint64(1))
