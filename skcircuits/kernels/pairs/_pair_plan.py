"""Which pairs of units of two circuits an expected kernel needs, region by region.

Where one circuit splits a scope finer than the other, the finer factors are grouped into a
product that stands for the coarser factor.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.structure.compatibility import Conflict, Partition, common_blocks
from skcircuits.circuits.structure.units import Product, Scope, Sum, Unit
from skcircuits.exceptions import IncompatibleCircuitsError
from skcircuits.kernels.pairs._pair_regions import (
    BasePairing,
    FactorKeys,
    Level,
    Mixing,
    PairPlan,
    Region,
    unless_all,
)
from skcircuits.protocols import IntArray

__all__ = ["compile_pairs"]

# A key or base: one unit, or several that stand for their product.
Key = tuple[Unit, ...]


def compile_pairs(left: Plan, right: Plan) -> PairPlan:
    """Pair up two circuits.

    Parameters
    ----------
    left, right : Plan
        Smooth and decomposable circuits over the same variables.

    Returns
    -------
    PairPlan
        The regions.

    Raises
    ------
    IncompatibleCircuitsError
        Naming two products that cannot be decomposed together.
    """
    sides = _Side(left), _Side(right)
    for side in sides:
        side.demand(side.plan.units[-1].scope, (side.plan.units[-1],))
    regions: dict[Scope, Region] = {}
    while sides[0].demanded:
        scope = max(sides[0].demanded, key=len)
        regions[scope] = _compile_region(scope, *sides)
    for region in regions.values():
        for below in region.factor_scopes:
            regions[below].above.add(region.scope)
        for pairing in region.pairings:
            # how many keys a region has is known only now
            pairing.factors[:] = [_shortened(factor, regions) for factor in pairing.factors]
    return PairPlan(left, right, list(regions.values())[::-1])


def _shortened(factor: FactorKeys, regions: dict[Scope, Region]) -> FactorKeys:
    """Leave out the numbers of keys where all are taken in order."""
    region = regions[factor.scope]
    assert factor.left is not None
    assert factor.right is not None
    left = unless_all(factor.left, len(region.left.keys))
    return FactorKeys(factor.scope, left, unless_all(factor.right, len(region.right.keys)))


class _Side:
    """What one of the two circuits is asked for."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.demanded: dict[Scope, dict[Hashable, tuple[int, Key]]] = {}
        self._layer_of: dict[int, tuple[int, int]] = {}
        for number, (units, _) in enumerate(plan.inputs):
            for place, position in enumerate(range(units.start, units.stop)):
                self._layer_of[position] = number, place
        self._first_edge: dict[int, int] = {}
        for layer in plan.sum_layers:
            positions = range(layer.units.start, layer.units.stop)
            self._first_edge.update(zip(positions, layer.edges.start + layer.starts))

    def demand(self, scope: Scope, key: Key) -> int:
        """Ask for a key of a region; gives its number."""
        keys = self.demanded.setdefault(scope, {})
        return keys.setdefault(_name(key), (len(keys), key))[0]

    def take(self, scope: Scope) -> list[Key]:
        """Keys of a region, in the order of their numbers; the region is then closed."""
        return [key for _, key in self.demanded.pop(scope).values()]

    def kind(self, base: Key) -> int | Partition:
        """Input layer of an input unit, partition of a product."""
        if len(base) == 1:
            return self._layer_of[self.position(base[0])][0]
        return tuple(sorted(unit.scope for unit in base))

    def places_in_layer(self, bases: list[Key]) -> IntArray:
        """Places of input units in their layer."""
        return np.array([self._layer_of[self.position(base[0])][1] for base in bases])

    def position(self, unit: Unit) -> int:
        """Position of a unit in the plan's buffer."""
        return self.plan.position[id(unit)]

    def mixing(self, keys: list[Key]) -> tuple[Mixing, list[Key]]:
        """Write keys as mixtures of bases; gives the bases too."""
        tops = [_resolve(key) for key in keys]
        sums = self._sums_below([top for top in tops if isinstance(top, Sum)])
        children = {id(unit): [_resolve((child,)) for child in unit.children] for unit in sums}
        nodes: dict[Hashable, int] = {}
        bases: list[Key] = []
        for node in [*tops, *(child for unit in sums for child in children[id(unit)])]:
            if not isinstance(node, Sum) and _name(node) not in nodes:
                nodes[_name(node)] = len(bases)
                bases.append(node)
        levels = []
        for level in _sum_levels(sums, children):
            rows = [row for row, unit in enumerate(level) for _ in children[id(unit)]]
            columns = [nodes[_name(child)] for unit in level for child in children[id(unit)]]
            edges = np.concatenate([self._edges(unit) for unit in level])
            levels.append(Level(len(level), np.array(rows), np.array(columns), edges))
            nodes.update({_name(unit): len(nodes) + row for row, unit in enumerate(level)})
        places = np.array([nodes[_name(top)] for top in tops])
        return Mixing(len(bases), levels, places), bases

    def _edges(self, unit: Sum) -> IntArray:
        """Numbers of a sum's edges in the plan's weights."""
        return self._first_edge[self.position(unit)] + np.arange(len(unit.children))

    def _sums_below(self, tops: list[Sum]) -> list[Sum]:
        """Sums of the region that mix into the given ones, children before parents."""
        found: dict[int, Sum] = {}
        stack = list(tops)
        while stack:
            unit = stack.pop()
            if id(unit) not in found:
                found[id(unit)] = unit
                below = [_resolve((child,)) for child in unit.children]
                stack.extend(child for child in below if isinstance(child, Sum))
        return sorted(found.values(), key=self.position)


def _name(node: Key | Sum) -> Hashable:
    """Identity of a node: products of the same factors are the same base."""
    if isinstance(node, Sum):
        return id(node)
    return tuple(sorted(id(unit) for unit in node))


def _resolve(key: Key) -> Key | Sum:
    """The sum a key stands for, or the base: an input unit or the factors of a product."""
    while len(key) == 1 and isinstance(key[0], Product):
        key = key[0].children
    return key[0] if len(key) == 1 and isinstance(key[0], Sum) else key


def _sum_levels(sums: list[Sum], children: dict[int, list[Key | Sum]]) -> list[list[Sum]]:
    """Group sums by how many sums lie below them."""
    depth: dict[int, int] = {}
    levels: list[list[Sum]] = []
    for unit in sums:
        below = [depth[id(child)] + 1 for child in children[id(unit)] if isinstance(child, Sum)]
        depth[id(unit)] = max(below, default=0)
        if depth[id(unit)] == len(levels):
            levels.append([])
        levels[depth[id(unit)]].append(unit)
    return levels


def _compile_region(scope: Scope, left: _Side, right: _Side) -> Region:
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


def _states(scope: Scope, left: _Side, right: _Side) -> tuple[int, ...]:
    """Number of states of each variable; empty where one is not discrete on both sides."""
    plans = left.plan, right.plan
    if not all(plan.cardinalities.keys() >= set(scope) for plan in plans):
        return ()
    return tuple(max(plan.cardinalities[v] for plan in plans) for v in scope)


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
    own_parts = (own[0][0].scope,) if isinstance(kind, int) else kind
    other_parts = (other[0][0].scope,) if isinstance(other_kind, int) else other_kind
    blocks = common_blocks(own_parts, other_parts)
    if len(blocks) == 1:
        raise _incompatible(Conflict(own_parts, other_parts))
    factors = []
    for own_scopes, other_scopes in _halves(blocks):
        scope = tuple(sorted(variable for part in own_scopes for variable in part))
        asked = [own_side.demand(scope, _factors_in(base, own_scopes)) for base in own]
        offered = [other_side.demand(scope, _factors_in(base, other_scopes)) for base in other]
        factors.append(FactorKeys(scope, np.array(asked), np.array(offered)))
    return BasePairing(*numbers, factors=factors)


def _halves(blocks: list[tuple[Partition, Partition]]) -> list[tuple[Partition, Partition]]:
    """Write a product of many factors as one of two products.

    The smaller a scope, the more circuits of a batch agree about it, and what they agree
    about is computed once.
    """
    middle = len(blocks) // 2
    return [
        (sum((own for own, _ in part), ()), sum((other for _, other in part), ()))
        for part in (blocks[:middle], blocks[middle:])
    ]


def _factors_in(base: Key, scopes: Partition) -> Key:
    """Factors of a product with the given scopes."""
    return tuple(unit for unit in base if unit.scope in scopes)


def _incompatible(conflict: Conflict) -> IncompatibleCircuitsError:
    """Word the error for two products without a common decomposition."""
    return IncompatibleCircuitsError(
        "The two circuits must decompose their variables alike (be compatible); got one product "
        f"unit that splits into {list(conflict.left)!r} and one that splits into "
        f"{list(conflict.right)!r}. Use circuits of one structure, or compare against complete "
        "rows."
    )
