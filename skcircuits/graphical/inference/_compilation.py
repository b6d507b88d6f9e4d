"""Compilation of factor graphs to circuits from the trace of variable elimination, top-down.

A bucket that holds ``p(x | separator)`` becomes one sum unit per state of its separator: over the
states of x, an indicator times the units of the child buckets in the context that the state
completes. Impossible contexts are skipped. Contexts with equal distributions and equal children
share one unit, so that the circuit is context-minimal. Units are places in a list, and the result
is that list: no sum or product is made before somebody asks for it. Probabilities that floats
cannot hold are logarithms, and become products of several weights.

Buckets of one height do not depend on each other. Small ones are joined to a group, whose tables
are padded to common shapes: most networks consist of tables that are smaller than the overhead of
the calls that process them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

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
from skcircuits.exceptions import invalid, must
from skcircuits.graphical.inference._elimination import EliminationTree, align, spread
from skcircuits.graphical.inference._posterior import Solution
from skcircuits.numerics._patterns import distinct_keys, distinct_words
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Up to this many keys, a dictionary is faster than a sort.
_FEW_KEYS = 256
# Number of bits in which weights of equal contexts may differ after normalisation.
_ROUNDING_BITS = 6

# Buckets are joined up to this many cells of their padded tables.
_GROUP_CELLS = 2**12

_NO_WEIGHTS = np.empty(0)


def compile_solutions(solutions: Sequence[Solution], *, max_edges: int, verbose: int) -> UnitList:
    """Units of ``p(hidden | observed)`` for one evidence, normalised, smooth, deterministic and
    structured-decomposable; MemoryError in advance beyond ``max_edges`` edges.
    """
    if not solutions:
        way_out = "Use log_partition(evidence) if all variables are observed."
        raise invalid("evidence", "leave at least one variable unobserved", way_out)
    buckets = _buckets(solutions)
    trace = _trace(buckets)
    _check_edges(trace.n_edges, max_edges, verbose)
    units = _Units()
    indicators = _add_indicators(buckets, trace.used, units)
    # The unit of each context; the last place stands for children that a bucket does not have
    unit_of = np.full(len(trace.reached), -1)
    n_done = 0
    for members in _grouped(buckets):
        group = _group(members, trace.reached)
        unit_of[group.contexts] = _build(group, units, indicators, unit_of)
        n_done += len(members)
        if verbose:
            print(f"[compile] {n_done}/{len(buckets)} variables: {units.size:,} units")
    roots = unit_of[[bucket.contexts.start for bucket in buckets if bucket.is_root]]
    # Components are independent given the evidence: their product is the circuit.
    if len(roots) > 1:
        units.add_products(np.array([len(roots)]), roots)
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

    def add_products(self, lengths: IntArray, children: IntArray) -> IntArray:
        """Append products, whose factors follow each other."""
        return self._add(PRODUCT, lengths, children, _NO_WEIGHTS)

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


class _Child(NamedTuple):
    """A child of a bucket: its contexts, their ``places`` for the first state, which grow by
    ``stride``, for each context of the bucket, and the bucket's axes ``dropped`` by it.
    """

    contexts: slice
    places: IntArray
    stride: int
    dropped: tuple[int, ...]


class _Bucket(NamedTuple):
    """A bucket with its contexts as columns of the ``table`` (states, contexts) of probabilities or
    logarithms, ``shape`` with an axis per variable; ``states`` are numbers among all states.
    """

    variable: int
    height: int
    table: FloatArray
    shape: tuple[int, ...]
    are_logs: bool
    states: slice
    contexts: slice
    children: list[_Child]

    @property
    def is_root(self) -> bool:
        """Whether the distribution has no conditions."""
        return len(self.shape) == 1

    @property
    def is_input(self) -> bool:
        """Whether its units are distributions of its variable alone."""
        # Input units hold plain numbers
        return not (self.children or self.are_logs)

    @property
    def least(self) -> float:
        """What the table has for probability zero."""
        return -np.inf if self.are_logs else 0.0


def _buckets(solutions: Sequence[Solution]) -> list[_Bucket]:
    """Number the contexts of the buckets of all components, children before parents."""
    found: list[_Bucket] = []
    n_states = n_contexts = 0
    for solution in solutions:
        tree, offset = solution.component.tree, len(found)
        for number, (bucket, values) in enumerate(zip(tree.buckets, solution.conditionals)):
            logs = solution.log_conditionals.get(number)
            shape = tree.shape(bucket.axes)
            # Axes of length one appear where no factor saw the variable.
            table = spread((values if logs is None else logs)[0], shape).reshape(shape[0], -1)
            states = slice(n_states, n_states + shape[0])
            contexts = slice(n_contexts, n_contexts + table.shape[1])
            n_states, n_contexts = states.stop, contexts.stop
            height, children = 0, []
            for child in bucket.children:
                below = found[offset + child]
                height = max(height, below.height + 1)
                # The child's separator begins with the variable of its parent
                others = tree.buckets[child].separator[1:]
                index, stride = _contexts_of_others(tree, others, bucket.separator)
                dropped = tuple(
                    [axis for axis, v in enumerate(bucket.separator, start=1) if v not in others]
                )
                first = below.contexts.start
                children.append(_Child(below.contexts, index + first, stride, dropped))
            are_logs = logs is not None
            found.append(
                _Bucket(bucket.variable, height, table, shape, are_logs, states, contexts, children)
            )
    return found


def _contexts_of_others(
    tree: EliminationTree, others: tuple[int, ...], separator: tuple[int, ...]
) -> tuple[IntArray, int]:
    """Number of the joint state of some variables of a separator in each context, and of all."""
    shape = tree.shape(others)
    n_joint = prod(shape)
    numbers = np.arange(n_joint)
    if others == separator:
        return numbers, n_joint
    index = np.empty(tree.shape(separator), dtype=np.int64)
    index[...] = align(numbers.reshape(1, *shape), others, separator)[0]
    return index.ravel(), n_joint


class _Group(NamedTuple):
    """Buckets of one height, a row per reachable context: ``contexts`` (n,), ``weights`` (n,
    states), ``bucket_of`` and ``n_children`` (n,); entries are possible states: ``rows``,
    ``states``, ``numbers`` among all states and contexts ``below`` (children, entries). Missing
    ones are padded.
    """

    buckets: list[_Bucket]
    bucket_of: IntArray
    n_children: IntArray
    contexts: IntArray
    weights: FloatArray
    rows: IntArray
    states: IntArray
    numbers: IntArray
    below: IntArray


class _Trace(NamedTuple):
    """Which contexts are ``reached`` (one entry more), which states of sums are used, and the
    number of edges without units in common.
    """

    reached: BoolArray
    used: BoolArray
    n_edges: int


def _trace(buckets: list[_Bucket]) -> _Trace:
    """Follow the possible contexts from the roots down."""
    reached = np.zeros(max([bucket.contexts.stop for bucket in buckets]) + 1, dtype=bool)
    used = np.zeros(max([bucket.states.stop for bucket in buckets]), dtype=bool)
    n_edges = 0
    for bucket in reversed(buckets):
        if bucket.is_root:
            # A root has no separator, and its only context is reachable
            reached[bucket.contexts] = True
        if bucket.is_input:
            continue
        live = bucket.table > bucket.least
        live &= reached[bucket.contexts]
        used[bucket.states] = live.any(axis=1)
        if bucket.children:
            n_edges += int(np.count_nonzero(live)) * (2 + len(bucket.children))
        table = live.reshape(bucket.shape)
        for child in bucket.children:
            reached[child.contexts] = table.any(axis=child.dropped).ravel()
    return _Trace(reached, used, n_edges)


def _grouped(buckets: list[_Bucket]) -> Iterator[list[_Bucket]]:
    """Join small buckets that do not depend on each other, the lowest first."""
    alike: dict[tuple[int, bool], list[_Bucket]] = defaultdict(list)
    for bucket in buckets:
        alike[bucket.height, bucket.are_logs].append(bucket)
    for key in sorted(alike):
        group: list[_Bucket] = []
        n_rows = width = 0
        for bucket in alike[key]:
            n_states, n_contexts = bucket.table.shape
            n_rows += n_contexts
            width = max(width, n_states, len(bucket.children))
            if group and n_rows * width > _GROUP_CELLS:
                yield group
                group, n_rows, width = [], n_contexts, max(n_states, len(bucket.children))
            group.append(bucket)
        yield group


def _group(buckets: list[_Bucket], reached: BoolArray) -> _Group:
    """Lay out the contexts of some buckets that can be reached."""
    columns = [reached[bucket.contexts].nonzero()[0] for bucket in buckets]
    lengths = [len(own) for own in columns]
    n_rows, n_children = sum(lengths), [len(bucket.children) for bucket in buckets]
    of_buckets = range(len(buckets)), [bucket.states.start for bucket in buckets], n_children
    bucket_of, first_state, n_children_of = np.array(of_buckets).repeat(lengths, axis=1)
    contexts = np.empty(n_rows, dtype=np.int64)
    least = buckets[0].least
    weights = np.full((n_rows, max([len(bucket.table) for bucket in buckets])), least)
    # Children that a bucket does not have are the last context, which has no unit
    children = np.full((max(n_children), n_rows), len(reached) - 1)
    strides = np.zeros(children.shape, dtype=np.int64)
    end = 0
    for bucket, own in zip(buckets, columns):
        start, end = end, end + len(own)
        contexts[start:end] = own + bucket.contexts.start
        n_states, n_contexts = bucket.table.shape
        kept = slice(None) if len(own) == n_contexts else own
        weights[start:end, :n_states] = bucket.table[:, kept].T
        for number, child in enumerate(bucket.children):
            children[number, start:end] = child.places[kept]
            strides[number, start:end] = child.stride
    # By states, so that the numbers of equal entries are near each other
    states, rows = (weights > least).T.nonzero()
    numbers = first_state[rows] + states
    below = children[:, rows] + strides[:, rows] * states
    return _Group(
        buckets, bucket_of, n_children_of, contexts, weights, rows, states, numbers, below
    )


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


def _add_indicators(buckets: list[_Bucket], used: BoolArray, units: _Units) -> IntArray:
    """Append an input unit per used state; the places of those of all states."""
    every = [unit for b in buckets for unit in _indicators(b.variable, len(b.table))]
    made = np.full(len(used), -1)
    made[used] = units.add_inputs([every[state] for state in used.nonzero()[0].tolist()])
    return made


def _build(group: _Group, units: _Units, indicators: IntArray, unit_of: IntArray) -> IntArray:
    """Build units of a group, whose children have theirs; the place of that of each context."""
    if group.buckets[0].is_input:
        return _categoricals(group, units)
    return _sums(group, units, _products(group, units, indicators, unit_of))


def _categoricals(group: _Group, units: _Units) -> IntArray:
    """One input unit per distinct distribution."""
    keys = np.concatenate([group.bucket_of[:, None], _rounded(group.weights)], axis=1)
    first, index = _distinct_rows(keys)
    masses = group.weights[first]
    masses.flags.writeable = False
    own = [(bucket.variable, len(bucket.table)) for bucket in group.buckets]
    inputs = []
    for number, row in zip(group.bucket_of[first].tolist(), masses):
        variable, n_states = own[number]
        inputs.append(linked_categorical(variable, row[:n_states]))
    return units.add_inputs(inputs)[index]


def _products(group: _Group, units: _Units, indicators: IntArray, unit_of: IntArray) -> IntArray:
    """Products (n, states) of an indicator and a unit of each child, if any; -1 where dead."""
    made = np.full(group.weights.shape, -1)
    if not group.buckets[0].children:
        made[group.rows, group.states] = indicators[group.numbers]
        return made
    below = unit_of[group.below]
    first, which = _distinct_choices(group.numbers, below + 1, len(indicators), units.size + 1)
    factors = np.concatenate([indicators[group.numbers[first]][None], below[:, first]]).T
    lengths = 1 + group.n_children[group.rows[first]]
    made[group.rows, group.states] = units.add_products(lengths, factors[factors >= 0])[which]
    return made


def _sums(group: _Group, units: _Units, products: IntArray) -> IntArray:
    """Sum units ``sum_x weights[x] products[x]``."""
    are_logs = group.buckets[0].are_logs
    # Sums of the same products with nearly equal weights differ only by rounding.
    keys = np.concatenate([products, _rounded(group.weights)], axis=1)
    first, index = _distinct_rows(keys)
    chosen = products[first]
    live = chosen >= 0
    terms, values = chosen[live], group.weights[first][live]
    lengths = live.sum(axis=1)
    alone = lengths == 1
    if not alone.any():
        return _add_sums(units, lengths, terms, values, are_logs)[index]
    # A sum with a single term is replaced by the term, whose weight is one.
    is_alone = alone.repeat(lengths)
    made = np.empty(len(first), dtype=np.int64)
    made[alone] = terms[is_alone]
    others = lengths[~alone], terms[~is_alone], values[~is_alone]
    if len(others[0]):
        made[~alone] = _add_sums(units, *others, are_logs)
    return made[index]


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


@lru_cache(maxsize=4096)
def _indicators(variable: int, n_states: int) -> list[Unit]:
    """One unit per state: units never change, so that all circuits may share them."""
    return [Indicator(variable, state, n_states) for state in range(n_states)]


def _rounded(weights: FloatArray) -> IntArray:
    """Bits of the weights without the last few, rounded; equal for nearly equal weights."""
    bits = np.ascontiguousarray(weights).view(np.int64)
    return (bits + (1 << _ROUNDING_BITS - 1)) >> _ROUNDING_BITS


def _distinct_choices(
    keys: IntArray, below: IntArray, n_keys: int, n_below: int
) -> tuple[IntArray, IntArray]:
    """First of each group of equal keys and columns of ``below``, and the group of each."""
    # As the digits of one number, if that is an integer
    if n_keys * n_below ** len(below) >= 2**63:
        return _distinct_rows(np.concatenate([keys[None], below]).T.copy())
    for column in below:
        keys = keys * n_below + column
    return _distinct(keys)


def _distinct_rows(table: IntArray) -> tuple[IntArray, IntArray]:
    """First of each group of equal rows, and the group of each row."""
    if len(table) > _FEW_KEYS:
        return distinct_words(table.view(np.uint64))
    raw, width = table.tobytes(), table.itemsize * table.shape[1]
    return _first_and_group([raw[start : start + width] for start in range(0, len(raw), width)])


def _distinct(keys: IntArray) -> tuple[IntArray, IntArray]:
    """First of each group of equal keys, and the group of each key."""
    return distinct_keys(keys) if len(keys) > _FEW_KEYS else _first_and_group(keys.tolist())


def _first_and_group(keys: list[Any]) -> tuple[IntArray, IntArray]:
    """The same without a sort, which has a larger overhead for few keys."""
    groups = dict(zip(dict.fromkeys(keys), range(len(keys))))
    index = np.array([*map(groups.__getitem__, keys)], dtype=np.int64)
    first = np.empty(len(groups), dtype=np.int64)
    first[index[::-1]] = np.arange(len(keys) - 1, -1, -1)  # the last write stays
    return first, index
