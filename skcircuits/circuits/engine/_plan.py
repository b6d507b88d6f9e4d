"""Plans: compiled circuits as levels of arrays.

Compilation places the units in one buffer: input units first, one run per family, then one run of
units per layer, level by level. Units of equal shape become batched matrix products; irregular ones
remain segments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from skcircuits.circuits._policy import BATCH_ROWS, MAX_BATCH_VALUES, MIN_BLOCK
from skcircuits.circuits.engine._layers import ProductLayer, SumLayer, SumWeights
from skcircuits.circuits.inputs import InputLayer, InputUnit
from skcircuits.circuits.inputs.base import DiscreteInputLayer
from skcircuits.circuits.structure._scopes import VariableSet, VariableSets
from skcircuits.circuits.structure.units import Product, Sum, Unit, UnitList, topological_order
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import safe_log
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray

_Item = TypeVar("_Item")


@dataclass(frozen=True, eq=False)
class Plan:
    """A compiled circuit.

    ``units``: the symbolic units in buffer order; the root is last; ``inputs``: input layers and
    the positions of their units; ``layers``: inner layers, children before parents; ``weights``:
    weights of all sum edges.
    """

    units: tuple[Unit, ...]
    inputs: tuple[tuple[slice, InputLayer], ...]
    layers: tuple[ProductLayer | SumLayer, ...]
    weights: SumWeights

    def __getstate__(self) -> dict[str, object]:
        """Omit caches: identities of units do not survive a pickle."""
        state = {name: vars(self)[name] for name in ("inputs", "layers", "weights")}
        return {"units": UnitList.of(self.units), **state}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Link the units again."""
        # A frozen record refuses to be set, even here.
        vars(self).update(state, units=tuple(state["units"].linked()))

    @cached_property
    def _memory(self) -> dict[Hashable, Any]:
        return {}

    def remember(self, key: Hashable, build: Callable[[], _Item]) -> _Item:
        """Derive something from the plan once."""
        # Two threads may both build it; the results are equal, so that either may be kept.
        if key not in self._memory:
            self._memory[key] = build()
        return self._memory[key]

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.units)

    @cached_property
    def n_edges(self) -> int:
        """Number of edges between units."""
        return sum(layer.children.size for layer in self.layers)

    @property
    def root(self) -> int:
        """Position of the root in the buffer."""
        return self.n_units - 1

    @cached_property
    def scopes(self) -> list[VariableSet]:
        """Scope of each unit."""
        return list(VariableSets().of_units(self.units).values())

    @cached_property
    def n_columns(self) -> int:
        """Columns a table must have at least."""
        return max(self.units[-1].scope) + 1

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
        # joint units hold some values per column of theirs, each for a short time
        scopes = max((layer.scopes.size for _, layer in self.inputs), default=0)
        # Small plans take more rows at once: Python per batch would dominate
        at_most = max(BATCH_ROWS, MAX_BATCH_VALUES // max(self.n_units, scopes // 2))
        return memory_bound_chunks(n_rows, self.bytes_per_row * n_buffers, at_most=at_most)


def compile_plan(root: Unit, *, fold: bool = True) -> Plan:
    """Compile a symbolic circuit."""
    order = topological_order(root)
    builder = _PlanBuilder()
    # All inputs come first in the buffer, so that inner layers are one run of rows
    leaves = [unit for unit in order if isinstance(unit, InputUnit)]
    builder.add_inputs(leaves)
    builder.require_common_measures()
    # Level by level, so that all units of a layer find their children done.
    for units in _levels(order):
        products = [unit for unit in units if isinstance(unit, Product)]
        for same_arity in _groups(products, lambda unit: len(unit.children)):
            builder.add_products(same_arity)
        # Sums come after products: within a level neither reads the other.
        sums = [unit for unit in units if isinstance(unit, Sum)]
        blocks, single = _find_blocks(sums) if fold else ([], sums)
        for same_shape in _groups(blocks, lambda block: (len(block), len(block[0].children))):
            builder.add_sums([unit for block in same_shape for unit in block], len(same_shape))
        if single:
            builder.add_sums(single)
    return builder.plan()


class _PlanBuilder:
    """Collects layers while positions are handed out."""

    def __init__(self) -> None:
        self._units: list[Unit] = []
        self._position: dict[int, int] = {}
        self._inputs: list[tuple[slice, InputLayer]] = []
        self._layers: list[ProductLayer | SumLayer] = []
        self._weights: list[FloatArray] = []
        self._n_edges = 0

    def _place(self, units: Sequence[Unit]) -> slice:
        """Give units the next positions."""
        start = len(self._units)
        self._position.update((id(unit), start + i) for i, unit in enumerate(units))
        self._units.extend(units)
        return slice(start, len(self._units))

    def _positions(self, units: Iterable[Unit]) -> list[int]:
        return [self._position[id(unit)] for unit in units]

    def add_inputs(self, leaves: list[InputUnit]) -> None:
        """Add one layer per family, its units sorted by scope for locality."""
        # Sorted, the units of one scope are a run: lookups and scales work run by run
        for family in _groups(leaves, lambda unit: unit.layer_key):
            family.sort(key=lambda unit: unit.scope)
            self._inputs.append((self._place(family), family[0].layer_type.stack(family)))

    def require_common_measures(self) -> None:
        """Refuse point masses of one layer together with densities of another.

        At a point with a mass, densities are negligible. A layer accounts for point masses of
        its own units (see `PiecewisePolynomialLayer`), not those of others.
        """
        layers = [layer for _, layer in self._inputs]
        variables = [np.unique(layer.scopes) for layer in layers]
        found, counts = np.unique(np.concatenate(variables), return_counts=True)
        dense = [own for own, layer in zip(variables, layers) if not layer.is_discrete]
        massive = np.concatenate([layer.massive_variables for layer in layers])
        mixed = np.intersect1d(found[counts > 1], massive)
        # The empty array stands in where no layer holds densities.
        mixed = mixed[np.isin(mixed, np.concatenate([*dense, mixed[:0]]))]
        if len(mixed):
            variable = int(mixed[0])
            families = {type(unit).__name__ for unit in self._units if variable in unit.scope}
            raise CircuitPropertyError(
                must(
                    f"input units over variable {variable}",
                    "be all discrete or all continuous, and of one family where some have point "
                    "masses",
                    "PiecewisePolynomial units hold point masses beside a density.",
                    families=sorted(families),
                )
            )

    def add_products(self, products: list[Product]) -> None:
        """Add a layer of products with equally many factors."""
        children = np.array([self._positions(unit.children) for unit in products], dtype=np.intp)
        self._layers.append(ProductLayer(self._place(products), children))

    def add_sums(self, sums: list[Sum], n_blocks: int | None = None) -> None:
        """Add a layer of sums; ``n_blocks``: number of equal blocks that they form."""
        lengths = np.array([len(unit.children) for unit in sums], dtype=np.intp)
        children = [i for unit in sums for i in self._positions(unit.children)]
        edges = slice(self._n_edges, self._n_edges + len(children))
        shape = None if n_blocks is None else (n_blocks, len(sums) // n_blocks, int(lengths[0]))
        positions = np.array(children, dtype=np.intp)
        self._layers.append(SumLayer(self._place(sums), edges, positions, lengths, shape))
        self._weights.extend(unit.weights for unit in sums)
        self._n_edges = edges.stop

    def plan(self) -> Plan:
        """Freeze the collected layers."""
        weights = np.concatenate(self._weights) if self._weights else np.empty(0)
        # Zero weights stay, as -inf: EM and conditioning keep the structure.
        log_weights = safe_log(weights)
        return Plan(
            tuple(self._units), tuple(self._inputs), tuple(self._layers), SumWeights(log_weights)
        )


def _levels(order: list[Unit]) -> list[list[Unit]]:
    """Inner units by their distance from the inputs, lowest first."""
    level: dict[int, int] = {}
    levels: dict[int, list[Unit]] = defaultdict(list)
    for unit in order:
        depth = 1 + max((level[id(child)] for child in unit.children), default=-1)
        level[id(unit)] = depth
        if unit.children:
            levels[depth].append(unit)
    return [levels[depth] for depth in sorted(levels)]


def _groups(items: Iterable[_Item], key: Callable[[_Item], Hashable]) -> list[list[_Item]]:
    """Group items with equal keys, in order of first appearance."""
    groups: dict[Hashable, list[_Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return list(groups.values())


def _find_blocks(sums: list[Sum]) -> tuple[list[list[Sum]], list[Sum]]:
    """Split sums into blocks worth a matrix product and the rest."""
    blocks, single = [], []
    # Only equal children in equal order make one matrix of the weights.
    for block in _groups(sums, lambda unit: tuple(id(child) for child in unit.children)):
        # Small blocks cost more as products than as segments.
        worthwhile = len(block) > 1 and len(block) * len(block[0].children) >= MIN_BLOCK
        if worthwhile:
            blocks.append(block)
        else:
            single.extend(block)
    return blocks, single
