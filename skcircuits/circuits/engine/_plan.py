"""Plans: compiled circuits as levels of arrays.

Compilation places the units in one buffer: input units first, one run per family, then one run of
units per layer, level by level. Units of equal shape become batched matrix products; irregular ones
remain segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np

from skcircuits.circuits._policy import BATCH_ROWS, MAX_BATCH_VALUES, MIN_BLOCK
from skcircuits.circuits.engine._layers import ProductLayer, SumLayer, SumWeights
from skcircuits.circuits.inputs import InputLayer, InputUnit
from skcircuits.circuits.inputs.base import DiscreteInputLayer
from skcircuits.circuits.structure.properties import (
    VariableSet,
    VariableSets,
    are_decomposable,
    are_smooth,
)
from skcircuits.circuits.structure.units import (
    INPUT,
    PRODUCT,
    SUM,
    Scope,
    Unit,
    UnitList,
    topological_order,
)
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import safe_log
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray, IntArray, WithoutCaches

_Item = TypeVar("_Item")


@dataclass(frozen=True, eq=False)
class Plan(WithoutCaches):
    """A compiled circuit."""

    source: UnitList  # the units, children before parents
    order: IntArray  # their places in buffer order; the root is last
    inputs: tuple[tuple[slice, InputLayer], ...]  # input layers and positions of their units
    layers: tuple[ProductLayer | SumLayer, ...]  # children before parents
    weights: SumWeights  # of all sum edges

    @cached_property
    def _memory(self) -> dict[Hashable, Any]:
        return {}

    def remember(self, key: Hashable, build: Callable[[], _Item]) -> _Item:
        """Derive something from the plan once."""
        # Two threads may both build it; the results are equal, so that either may be kept.
        if key not in self._memory:
            self._memory[key] = build()
        return self._memory[key]

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The symbolic units in buffer order."""
        linked = self.source.linked
        return tuple([linked[place] for place in self.order.tolist()])

    @property
    def n_units(self) -> int:
        return len(self.order)

    @cached_property
    def n_edges(self) -> int:
        """Number of edges between units."""
        return len(self.source.children)

    @property
    def root(self) -> int:
        """Position of the root in the buffer."""
        return self.n_units - 1

    @cached_property
    def _source_scopes(self) -> list[VariableSet]:
        return VariableSets().of_list(self.source)

    @cached_property
    def scopes(self) -> list[VariableSet]:
        return [self._source_scopes[place] for place in self.order.tolist()]

    @cached_property
    def is_smooth(self) -> bool:
        """Whether all children of each sum have the same scope."""
        return are_smooth(self.source, self._source_scopes)

    @cached_property
    def is_decomposable(self) -> bool:
        """Whether the factors of each product have disjoint scopes."""
        return are_decomposable(self.source, self._source_scopes)

    @cached_property
    def variables(self) -> Scope:
        scopes = [layer.scopes.ravel() for _, layer in self.inputs]
        return tuple(np.unique(np.concatenate(scopes)).tolist())

    def other_columns(self, n_columns: int) -> IntArray:
        """Columns of a table that are no variables."""
        return self.remember(
            ("other columns", n_columns), lambda: np.setdiff1d(np.arange(n_columns), self.variables)
        )

    @cached_property
    def n_columns(self) -> int:
        """Columns a table must have at least."""
        return self.variables[-1] + 1

    @cached_property
    def cardinalities(self) -> dict[int, int]:
        """Number of states of each discrete variable, sorted by variable."""
        # Units may list different numbers of states of one variable: those left out are impossible
        n_states = np.zeros(self.n_columns, dtype=np.int64)
        for _, layer in self.inputs:
            if isinstance(layer, DiscreteInputLayer):
                np.maximum.at(n_states, layer.scopes, layer.n_states)
        seen = np.flatnonzero(n_states)
        return dict(zip(seen.tolist(), n_states[seen].tolist()))

    @cached_property
    def count_variables(self) -> list[int]:
        """Discrete variables without a list of states, sorted."""
        massive = [layer.scopes.ravel() for _, layer in self.inputs if layer.is_discrete]
        found = np.unique(np.concatenate([*massive, np.empty(0, dtype=np.intp)]))
        return [variable for variable in found.tolist() if variable not in self.cardinalities]

    @cached_property
    def massive_variables(self) -> set[int]:
        """Variables of which single values have a probability."""
        return {v for _, layer in self.inputs for v in layer.massive_variables.tolist()}

    @cached_property
    def position(self) -> dict[int, int]:
        """Position in the buffer by ``id`` of the symbolic unit."""
        # By identity: units are shared by reference, and equal ones may stand in two places
        return {id(unit): i for i, unit in enumerate(self.units)}

    @property
    def sum_layers(self) -> list[SumLayer]:
        """The layers of sum units, children before parents."""
        return [layer for layer in self.layers if isinstance(layer, SumLayer)]

    @cached_property
    def bytes_per_row(self) -> int:
        """Temporary memory that a pass over one row takes."""
        widest = max((layer.bytes_per_row for _, layer in self.inputs), default=0)
        edges = max((len(layer.children) for layer in self.sum_layers), default=0)
        # Values and derived arrays; terms at edges with two temporaries
        return 8 * (2 * self.n_units + 3 * edges) + widest

    def batches(self, n_rows: int, n_buffers: int = 1) -> Iterable[slice]:
        """Cut rows into batches that fit into cache and into the working memory."""
        n_bytes = self.bytes_per_row * n_buffers
        return memory_bound_chunks(n_rows, n_bytes, at_most=self._max_batch_rows)

    @cached_property
    def _max_batch_rows(self) -> int:
        # Joint units hold some values per column of theirs, each for a short time
        scopes = max((layer.scopes.size for _, layer in self.inputs), default=0)
        # Small plans take more rows at once: Python per batch would dominate
        return max(BATCH_ROWS, MAX_BATCH_VALUES // max(self.n_units, scopes // 2))


def compile_plan(root: Unit) -> Plan:
    """Compile a symbolic circuit."""
    return compile_list(UnitList.of(topological_order(root)))


def remembered(derive: Callable[[Plan], _Item]) -> Callable[[Plan], _Item]:
    """Decorate a function of a plan, whose result each plan keeps."""

    @wraps(derive)
    def derive_once(plan: Plan) -> _Item:
        return plan.remember(derive, lambda: derive(plan))

    return derive_once


def compile_list(units: UnitList) -> Plan:
    """Compile a circuit from the list of its units."""
    steps = _Steps()
    inputs = _input_layers(units, steps)
    _require_common_measures(units, [layer for _, layer in inputs])
    below = units.below()
    # Level by level, so that all units of a layer find their children done.
    for members in _levels(below):
        products = [i for i in members if units.kinds[i] == PRODUCT]
        for same_arity in _groups(products, lambda i: len(below[i])):
            steps.add(same_arity)
        # Sums come after products: within a level neither reads the other.
        sums = [i for i in members if units.kinds[i] == SUM]
        blocks, single = _find_blocks(sums, below)
        for same_shape in _groups(blocks, lambda block: (len(block), len(below[block[0]]))):
            steps.add([i for block in same_shape for i in block], len(same_shape))
        if single:
            steps.add(single)
    order = np.array(steps.order)
    layers, weights = _layers(units, order, steps.found[len(inputs) :])
    # Zero weights stay, as -inf: EM and conditioning keep the structure.
    return Plan(units, order, inputs, layers, SumWeights(safe_log(weights)))


class _Steps:
    """The units in buffer order, and the run of each step with the number of its blocks."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.found: list[tuple[slice, int | None]] = []

    def add(self, units: Sequence[int], n_blocks: int | None = None) -> slice:
        """Give the units of a step the next positions; ``n_blocks``: equal blocks of sums."""
        run = slice(len(self.order), len(self.order) + len(units))
        self.order.extend(units)
        self.found.append((run, n_blocks))
        return run


def _input_layers(units: UnitList, steps: _Steps) -> tuple[tuple[slice, InputLayer], ...]:
    """One layer per family, its units sorted by scope for locality."""
    places = np.flatnonzero(units.kinds == INPUT).tolist()
    leaves = [(i, unit) for i, unit in zip(places, units.inputs) if isinstance(unit, InputUnit)]
    layers = []
    # Sorted, the units of one scope are a run: lookups and scales work run by run
    for family in _groups(leaves, lambda leaf: leaf[1].layer_key):
        family.sort(key=lambda leaf: leaf[1].scope)
        run = steps.add([i for i, _ in family])
        layers.append((run, family[0][1].layer_type.stack([unit for _, unit in family])))
    return tuple(layers)


def _require_common_measures(units: UnitList, layers: Sequence[InputLayer]) -> None:
    """Refuse point masses of one layer together with densities of another, which are negligible at
    these points; a layer accounts for the point masses of its own units.
    """
    variables = [np.unique(layer.scopes) for layer in layers]
    found, counts = np.unique(np.concatenate(variables), return_counts=True)
    dense = [own for own, layer in zip(variables, layers) if not layer.is_discrete]
    massive = np.concatenate([layer.massive_variables for layer in layers])
    mixed = np.intersect1d(found[counts > 1], massive)
    # The empty array stands in where no layer holds densities.
    mixed = mixed[np.isin(mixed, np.concatenate([*dense, mixed[:0]]))]
    if len(mixed):
        variable = int(mixed[0])
        families = {type(unit).__name__ for unit in units.inputs if variable in unit.scope}
        raise CircuitPropertyError(
            must(
                f"input units over variable {variable}",
                "be all discrete or all continuous, and of one family where some have point masses",
                "PiecewisePolynomial units hold point masses beside a density.",
                families=sorted(families),
            )
        )


def _layers(
    units: UnitList, order: IntArray, steps: Sequence[tuple[slice, int | None]]
) -> tuple[tuple[ProductLayer | SumLayer, ...], FloatArray]:
    """Layers of the steps, with the positions of all children, and the weights of their sums."""
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    n_children = units.n_children[order]
    ends = np.cumsum(n_children)
    # Edges in buffer order
    firsts = np.cumsum(units.n_children) - units.n_children
    edges = np.arange(len(units.children)) + np.repeat(
        firsts[order] - ends + n_children, n_children
    )
    children = position[units.children[edges]]
    is_weighted = np.repeat(units.kinds == SUM, units.n_children)
    weights = units.weights[np.cumsum(is_weighted)[edges[is_weighted[edges]]] - 1]
    layers: list[ProductLayer | SumLayer] = []
    n_edges = 0
    for run, n_blocks in steps:
        lengths = n_children[run]
        own = children[ends[run.start] - lengths[0] : ends[run.stop - 1]]
        if units.kinds[order[run.start]] == PRODUCT:
            layers.append(ProductLayer(run, own.reshape(len(lengths), -1)))
        else:
            shape = (
                None if n_blocks is None else (n_blocks, len(lengths) // n_blocks, int(lengths[0]))
            )
            layers.append(SumLayer(run, slice(n_edges, n_edges + len(own)), own, lengths, shape))
            n_edges += len(own)
    return tuple(layers), weights


def _levels(below: Sequence[Sequence[int]]) -> list[list[int]]:
    """Inner units by their distance from the inputs, lowest first."""
    depths: list[int] = []
    levels: list[list[int]] = []
    for unit, children in enumerate(below):
        if not children:
            depths.append(0)
            continue
        depth = max([depths[child] for child in children])
        depths.append(depth + 1)
        if depth == len(levels):
            levels.append([])
        levels[depth].append(unit)
    return levels


def _groups(items: Iterable[_Item], key: Callable[[_Item], Hashable]) -> list[list[_Item]]:
    """Group items with equal keys, in order of first appearance."""
    groups: dict[Hashable, list[_Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return list(groups.values())


def _find_blocks(
    sums: Sequence[int], below: Sequence[Sequence[int]]
) -> tuple[list[list[int]], list[int]]:
    """Split sums into blocks worth a matrix product and the rest."""
    blocks, single = [], []
    # Only equal children in equal order make one matrix of the weights.
    for block in _groups(sums, lambda i: tuple(below[i])):
        # Small blocks cost more as products than as segments.
        worthwhile = len(block) > 1 and len(block) * len(below[block[0]]) >= MIN_BLOCK
        if worthwhile:
            blocks.append(block)
        else:
            single.extend(block)
    return blocks, single
