"""The pairs of units of two circuits that an expected kernel needs, region by region.

A *region* is a scope that both circuits reach together. On each side
it has *bases* (input units and products) and *keys* (the units that larger regions refer to, which
are mixtures of the bases). Where one circuit splits a scope more finely than the other, the finer
factors are grouped into a product that matches the coarser factor. ``split_kernel`` then traverses
the regions with the kernel and determines which of its parts each region needs, and how these
follow from smaller regions.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from operator import itemgetter

import numpy as np

from skcircuits.circuits._policy import TABLE_STATES
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.properties import VariableSet, VariableSets, common_blocks
from skcircuits.circuits.structure.units import Product, Scope, Sum, Unit
from skcircuits.exceptions import IncompatibleCircuitsError
from skcircuits.kernels.families.base import KernelStructure, Part
from skcircuits.protocols import IntArray

# A key or base: one unit, or several for their product.
Key = tuple[Unit, ...]
# A sum or a base of a region, and its identity.
_Node = tuple[Hashable, Key | Sum]
# Scopes of the factors of a product, ascending by their first variables.
Partition = tuple[VariableSet, ...]
# Per part of a kernel: coefficients and the numbers of the parts of two factors.
PartSplits = list[list[tuple[float, int, int]]]


@dataclass(frozen=True)
class Level:
    """Sums of one level: weight ``edges[i]`` leads from sum ``rows[i]`` to node ``columns[i]``."""

    n_sums: int
    rows: IntArray
    columns: IntArray  # bases first, then the sums of earlier levels
    edges: IntArray  # places in the weights of the plan


@dataclass(frozen=True)
class Mixing:
    """How the keys of a region mix its bases: levels of weighted sums; a node per key."""

    n_bases: int
    levels: list[Level]
    keys: IntArray

    @cached_property
    def keys_are_sums(self) -> bool:
        """Whether the keys are the sums of a single level, in order."""
        # Then a matrix product gives the keys at once, without a gather
        in_order = np.arange(self.n_bases, self.n_bases + len(self.keys))
        return (
            len(self.levels) == 1
            and self.levels[0].n_sums == len(self.keys)
            and np.array_equal(self.keys, in_order)
        )

    @cached_property
    def chosen(self) -> IntArray | None:
        """Node of each key; None where the keys are all nodes, in order."""
        n_nodes = self.n_bases + sum(level.n_sums for level in self.levels)
        return unless_all(self.keys, n_nodes)

    @property
    def nodes_below(self) -> list[int]:
        """Number of nodes below each level: the bases and the sums of earlier levels."""
        return [
            self.n_bases + sum(level.n_sums for level in self.levels[:depth])
            for depth in range(len(self.levels))
        ]

    @property
    def n_weights(self) -> int:
        """Numbers in the weight matrices of all levels."""
        sizes = zip(self.levels, self.nodes_below, strict=True)
        return sum(level.n_sums * n_nodes for level, n_nodes in sizes)


@dataclass(frozen=True)
class FactorKeys:
    """One factor of the products of a pairing: per base the key of a smaller region."""

    scope: VariableSet
    left: IntArray | None  # None where base i takes key i of as many keys
    right: IntArray | None  # likewise


@dataclass(frozen=True)
class BasePairing:
    """Bases of one kind on the left meeting bases of one kind on the right."""

    left: IntArray
    right: IntArray
    inputs: tuple[int, IntArray, int, IntArray] | None = None  # layer and places of left, of right
    factors: list[FactorKeys] = field(default_factory=list)  # of products


@dataclass(frozen=True)
class Region:
    """One scope; ``states`` of its variables if few and discrete, scopes ``above`` it."""

    scope: VariableSet
    left: Mixing
    right: Mixing
    pairings: list[BasePairing]
    states: tuple[int, ...]
    above: set[VariableSet] = field(default_factory=set)

    @property
    def variables(self) -> Scope:
        return self.scope.variables

    @property
    def factor_scopes(self) -> list[VariableSet]:
        """Scopes of the regions below, once for each use."""
        return [factor.scope for pairing in self.pairings for factor in pairing.factors]

    @property
    def has_joint_inputs(self) -> bool:
        """Whether input units of several variables are among the bases."""
        return self.scope.size > 1 and any(p.inputs is not None for p in self.pairings)

    def numbers_per_pair(self, tabulated: Container[VariableSet]) -> int:
        """Count the values of the region for one pair of circuits."""
        n_keys = len(self.left.keys) * len(self.right.keys)
        # Tables of states need no pairs of bases
        if self.scope in tabulated:
            return n_keys
        return max(n_keys, self.left.n_bases * self.right.n_bases)

    def is_needed_above(self, tabulated: Container[VariableSet]) -> bool:
        """Tell whether pairs of the region's units are asked for."""
        return not self.above or any(scope not in tabulated for scope in self.above)


@dataclass(frozen=True)
class PairPlan:
    """The common regions of two circuits, smallest scopes first; the last holds the roots."""

    left: Plan
    right: Plan
    regions: list[Region]

    @property
    def numbers_per_circuit(self) -> int:
        """Numbers that each circuit of a batch adds to a prepared side."""
        left = sum(region.left.n_weights for region in self.regions)
        return max(left, sum(region.right.n_weights for region in self.regions))


def unless_all(index: IntArray, size: int) -> IntArray | None:
    """Leave out an index that counts through all places, which spares the copy."""
    return None if np.array_equal(index, np.arange(size)) else index


def compile_pairs(left: Plan, right: Plan, order: Mapping[int, int] | None = None) -> PairPlan:
    """Pair up two smooth, decomposable circuits over the same variables; where they leave the
    choice, variables that a kernel couples (``order``, `KernelStructure.variable_order`) stay
    together.
    """
    sets = VariableSets()
    sides = _Side(left, sets, order or {}), _Side(right, sets, order or {})
    for side in sides:
        # The roots are asked for first; every region asks for those below it
        side.demand(side.scopes[id(side.plan.units[-1])], (side.plan.units[-1],))
    regions: dict[VariableSet, Region] = {}
    while sides[0].demanded:
        scope = sides[0].largest()
        regions[scope] = _compile_region(scope, *sides)
    for region in regions.values():
        for below in region.factor_scopes:
            regions[below].above.add(region.scope)
        for pairing in region.pairings:
            # how many keys a region has is known only now
            pairing.factors[:] = [_shortened(factor, regions) for factor in pairing.factors]
    return PairPlan(left, right, list(regions.values())[::-1])


def _shortened(factor: FactorKeys, regions: dict[VariableSet, Region]) -> FactorKeys:
    """Leave out the numbers of keys where all are taken in order."""
    region = regions[factor.scope]
    assert factor.left is not None
    assert factor.right is not None
    left = unless_all(factor.left, len(region.left.keys))
    return FactorKeys(factor.scope, left, unless_all(factor.right, len(region.right.keys)))


class _Side:
    """Requirements on one circuit: ``scopes`` by id of the unit, their lowest ``ranks`` or -1."""

    def __init__(self, plan: Plan, sets: VariableSets, order: Mapping[int, int]) -> None:
        self.plan = plan
        self.sets = sets
        self.scopes = dict(zip(map(id, plan.units), sets.of_scopes(plan.scopes)))
        self.ranks = _lowest_ranks(plan.units, self.scopes, order)
        self.demanded: dict[VariableSet, dict[Hashable, tuple[int, Key]]] = {}
        self._queue: list[tuple[int, int, VariableSet]] = []
        self._layer_of: dict[int, tuple[int, int]] = {}
        for number, (units, _) in enumerate(plan.inputs):
            for place, position in enumerate(range(units.start, units.stop)):
                self._layer_of[position] = number, place
        self._first_edge: dict[int, int] = {}
        for layer in plan.sum_layers:
            positions = range(layer.units.start, layer.units.stop)
            self._first_edge.update(zip(positions, layer.edges.start + layer.starts))

    def demand(self, scope: VariableSet, key: Key) -> int:
        """Ask for a key of a region; gives its number."""
        if scope not in self.demanded:
            heappush(self._queue, (-scope.size, scope.mask, scope))
            self.demanded[scope] = {}
        keys = self.demanded[scope]
        return keys.setdefault(_name(key), (len(keys), key))[0]

    def largest(self) -> VariableSet:
        """Largest region asked for: all above it have said what they need."""
        return heappop(self._queue)[-1]

    def take(self, scope: VariableSet) -> list[Key]:
        """Keys of a region, in the order of their numbers; the region is then closed."""
        return [key for _, key in self.demanded.pop(scope).values()]

    def kind(self, base: Key) -> int | Partition:
        """Input layer of an input unit, partition of a product."""
        if len(base) == 1:
            return self._layer_of[self.position(base[0])][0]
        scopes = (self.scopes[id(unit)] for unit in base)
        return tuple(sorted(scopes, key=lambda scope: scope.mask & -scope.mask))  # lowest bits

    def places_in_layer(self, bases: list[Key]) -> IntArray:
        """Places of input units in their layer."""
        return np.array([self._layer_of[self.position(base[0])][1] for base in bases])

    def factors_in(self, base: Key, scopes: Partition) -> Key:
        """Factors of a product with the given scopes."""
        return tuple(unit for unit in base if self.scopes[id(unit)] in scopes)

    def position(self, unit: Unit) -> int:
        """Position of a unit in the plan's buffer."""
        return self.plan.position[id(unit)]

    def mixing(self, keys: list[Key]) -> tuple[Mixing, list[Key]]:
        """Write keys as mixtures of bases; gives the bases too."""
        tops = [_resolve(key) for key in keys]
        sums, children = self._sums_below(tops)
        nodes: dict[Hashable, int] = {}
        bases: list[Key] = []
        for name, node in [*tops, *(child for unit in sums for child in children[id(unit)])]:
            if not isinstance(node, Sum) and name not in nodes:
                nodes[name] = len(bases)
                bases.append(node)
        levels = []
        for level in _sum_levels(sums, children):
            rows = [row for row, unit in enumerate(level) for _ in children[id(unit)]]
            columns = [nodes[name] for unit in level for name, _ in children[id(unit)]]
            edges = np.concatenate([self._edges(unit) for unit in level])
            levels.append(Level(len(level), np.array(rows), np.array(columns), edges))
            # Sums of a level read those below as if they were bases.
            nodes.update({id(unit): len(nodes) + row for row, unit in enumerate(level)})
        places = np.array([nodes[name] for name, _ in tops])
        return Mixing(len(bases), levels, places), bases

    def _edges(self, unit: Sum) -> IntArray:
        """Numbers of a sum's edges in the plan's weights."""
        return self._first_edge[self.position(unit)] + np.arange(len(unit.children))

    def _sums_below(self, tops: list[_Node]) -> tuple[list[Sum], dict[int, list[_Node]]]:
        """Sums of the region that mix into the given nodes, children first, and their children."""
        found: list[Sum] = []
        children: dict[int, list[_Node]] = {}
        stack = list(tops)
        while stack:
            name, unit = stack.pop()
            if isinstance(unit, Sum) and name not in children:
                found.append(unit)
                children[id(unit)] = [_resolve((child,)) for child in unit.children]
                stack.extend(children[id(unit)])
        return sorted(found, key=self.position), children


def _name(key: Key) -> Hashable:
    """Identity of a base: products of the same factors are the same base."""
    return id(key[0]) if len(key) == 1 else tuple(sorted(map(id, key)))


def _resolve(key: Key) -> _Node:
    """The sum of a key, or the base: an input unit or the factors of a product."""
    # Products of products are one list of factors, however they were nested.
    while len(key) == 1 and isinstance(key[0], Product):
        key = key[0].children
    return _name(key), key[0] if len(key) == 1 and isinstance(key[0], Sum) else key


def _sum_levels(sums: list[Sum], children: dict[int, list[_Node]]) -> list[list[Sum]]:
    """Group sums by how many sums lie below them."""
    depth: dict[Hashable, int] = {}
    levels: list[list[Sum]] = []
    for unit in sums:
        below = [depth[name] + 1 for name, child in children[id(unit)] if isinstance(child, Sum)]
        depth[id(unit)] = max(below, default=0)
        if depth[id(unit)] == len(levels):
            levels.append([])
        levels[depth[id(unit)]].append(unit)
    return levels


def _lowest_ranks(
    units: Sequence[Unit], scopes: dict[int, VariableSet], order: Mapping[int, int]
) -> dict[VariableSet, int]:
    """Lowest rank in every scope of some units, children before parents."""
    ranks: dict[VariableSet, int] = {}
    for unit in units:
        scope = scopes[id(unit)]
        if scope not in ranks:
            below = (ranks[scopes[id(child)]] for child in unit.children)
            own = below if unit.children else (order.get(v, -1) for v in unit.scope)
            ranks[scope] = min(own)
    return ranks


def _compile_region(scope: VariableSet, left: _Side, right: _Side) -> Region:
    """Pair the bases of a region and ask for the keys of the regions below it."""
    left_mixing, left_bases = left.mixing(left.take(scope))
    right_mixing, right_bases = right.mixing(right.take(scope))
    pairings = [
        _pair_bases(
            (left, kind, [left_bases[i] for i in own]),
            (right, other_kind, [right_bases[i] for i in other]),
            (np.array(own), np.array(other)),
        )
        for kind, own in _by_kind(left, left_bases).items()
        for other_kind, other in _by_kind(right, right_bases).items()
    ]
    return Region(scope, left_mixing, right_mixing, pairings, _states(scope, left, right))


def _states(scope: VariableSet, left: _Side, right: _Side) -> tuple[int, ...]:
    """Number of states of each variable; empty for many variables, and if one is not discrete."""
    # Scopes of chains are long, and have too many joint states to list
    if scope.size > TABLE_STATES:
        return ()
    variables = scope.variables
    plans = left.plan, right.plan
    if not all(plan.cardinalities.keys() >= set(variables) for plan in plans):
        return ()
    # One circuit may have more states of a variable than the other
    return tuple(max(plan.cardinalities[v] for plan in plans) for v in variables)


def _by_kind(side: _Side, bases: list[Key]) -> dict[int | Partition, list[int]]:
    """Group bases of one kind."""
    groups: dict[int | Partition, list[int]] = {}
    for number, base in enumerate(bases):
        groups.setdefault(side.kind(base), []).append(number)
    return groups


def _pair_bases(
    left: tuple[_Side, int | Partition, list[Key]],
    right: tuple[_Side, int | Partition, list[Key]],
    numbers: tuple[IntArray, IntArray],
) -> BasePairing:
    """Pair bases of one kind with bases of one kind."""
    (own_side, kind, own), (other_side, other_kind, other) = left, right
    if isinstance(kind, int) and isinstance(other_kind, int):
        places = own_side.places_in_layer(own), other_side.places_in_layer(other)
        return BasePairing(*numbers, inputs=(kind, places[0], other_kind, places[1]))
    # A joint input unit is a product that cannot be split.
    own_parts = (own_side.scopes[id(own[0][0])],) if isinstance(kind, int) else kind
    other_parts = (
        (other_side.scopes[id(other[0][0])],) if isinstance(other_kind, int) else other_kind
    )
    blocks = [
        (tuple(own_parts[i] for i in first), tuple(other_parts[j] for j in second))
        for first, second in common_blocks(own_parts, other_parts)
    ]
    if len(blocks) == 1:
        raise _incompatible(own_parts, other_parts)
    factors = []
    for own_scopes, other_scopes in _halves(blocks, own_side.ranks):
        scope = own_side.sets.union(own_scopes)
        asked = [own_side.demand(scope, own_side.factors_in(base, own_scopes)) for base in own]
        offered = [
            other_side.demand(scope, other_side.factors_in(base, other_scopes)) for base in other
        ]
        factors.append(FactorKeys(scope, np.array(asked), np.array(offered)))
    return BasePairing(*numbers, factors=factors)


def _halves(
    blocks: list[tuple[Partition, Partition]], ranks: Mapping[VariableSet, int]
) -> list[tuple[Partition, Partition]]:
    """Write many factors as two, cut where circuits agree and the kernel couples nothing."""
    ranked = [(min(ranks[scope] for scope in block[0]), block) for block in blocks]
    ranked.sort(key=itemgetter(0))
    blocks = [block for _, block in ranked]
    cuts = [i for i in range(1, len(ranked)) if ranked[i - 1][0] != ranked[i][0]]
    middle = min(cuts, key=lambda i: abs(i - len(blocks) // 2), default=len(blocks) // 2)
    return [
        (sum((own for own, _ in part), ()), sum((other for _, other in part), ()))
        for part in (blocks[:middle], blocks[middle:])
    ]


def _incompatible(left: Partition, right: Partition) -> IncompatibleCircuitsError:
    """Word the error for two products without a common decomposition."""
    own, other = ([scope.variables for scope in side] for side in (left, right))
    return IncompatibleCircuitsError(
        "The two circuits must decompose their variables alike (be compatible); got one product "
        f"unit that splits into {own!r} and one that splits into {other!r}. Use "
        "circuits of one structure, or compare against complete rows."
    )


@dataclass(frozen=True)
class KernelPlan:
    """The ``parts`` of a kernel per region; ``splits`` per region, pairing and part, as a list of
    (coefficient, part of the first factor, part of the second).
    """

    structure: KernelStructure
    parts: dict[VariableSet, list[Part]]
    splits: dict[VariableSet, list[PartSplits]]


def split_kernel(pairs: PairPlan, structure: KernelStructure) -> KernelPlan:
    """Take a kernel apart along the regions of two circuits."""
    demanded: dict[VariableSet, dict[Part, int]] = {region.scope: {} for region in pairs.regions}
    # The whole kernel at the roots; below, what splitting it asks for
    demanded[pairs.regions[-1].scope][structure.root] = 0
    splits = {}
    for region in reversed(pairs.regions):
        splits[region.scope] = [
            _split_pairing(pairing, list(demanded[region.scope]), demanded, structure)
            for pairing in region.pairings
        ]
    return KernelPlan(structure, {s: list(parts) for s, parts in demanded.items()}, splits)


def _split_pairing(
    pairing: BasePairing,
    parts: list[Part],
    demanded: dict[VariableSet, dict[Part, int]],
    structure: KernelStructure,
) -> PartSplits:
    """Split the parts of a region between the factors of a pairing, and ask for the results."""
    if not pairing.factors:
        return []
    left, right = (factor.scope for factor in pairing.factors)
    first, second = demanded[left], demanded[right]
    return [
        [
            (weight, first.setdefault(own, len(first)), second.setdefault(other, len(second)))
            for weight, own, other in structure.split(part, left.mask, right.mask)
        ]
        for part in parts
    ]
