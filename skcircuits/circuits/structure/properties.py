"""Scopes and supports of units, and structural properties of circuits, which make queries exact.

Scopes are bit sets in integers. These and supports are efficient for thousands of variables:
operations on scopes are operations on integers, once per distinct scope, and the supports of two
units are disjoint if no value is possible under both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import combinations, product
from operator import attrgetter, or_
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skcircuits.circuits.structure.units import (
    PRODUCT,
    SUM,
    LeafUnit,
    Product,
    Rooted,
    Scope,
    Sum,
    Unit,
    UnitList,
    topological_order,
)
from skcircuits.exceptions import CircuitPropertyError, IncompatibleCircuitsError, must, require
from skcircuits.protocols import BoolArray, FloatArray

if TYPE_CHECKING:
    from skcircuits.circuits.circuit import Circuit

_Pair = tuple[Unit, Unit]
# What makes a circuit smooth and decomposable, for errors.
WAY_TO_TRACTABLE = (
    "Give all children of a sum the same scope and all factors of a product disjoint ones."
)

# Kinds of fields: one bit per state, or one per interval between end points
STATES, INTERVALS = "states", "intervals"


def is_smooth(circuit: Rooted) -> bool:
    """Check whether all children of each sum unit have the same scope.

    Parameters
    ----------
    circuit : Circuit
        The circuit.

    Returns
    -------
    bool
        True if smooth.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit, is_smooth
    >>> is_smooth(Circuit(0.5 * Bernoulli(0, 0.2) + 0.5 * Bernoulli(1, 0.2)))
    False
    """
    require("root", "a circuit", circuit=circuit)
    units = UnitList.of(topological_order(circuit.root))
    return are_smooth(units, VariableSets().of_list(units))


def is_decomposable(circuit: Rooted) -> bool:
    """Check whether the factors of each product unit have disjoint scopes.

    Parameters
    ----------
    circuit : Circuit
        The circuit.

    Returns
    -------
    bool
        True if decomposable.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit, is_decomposable
    >>> is_decomposable(Circuit(Bernoulli(0, 0.2) * Bernoulli(0, 0.3)))
    False
    """
    require("root", "a circuit", circuit=circuit)
    units = UnitList.of(topological_order(circuit.root))
    return are_decomposable(units, VariableSets().of_list(units))


def are_smooth(units: UnitList, scopes: Sequence[VariableSet]) -> bool:
    """Whether the sums in a list of units with these scopes are smooth."""
    sizes = np.array([scope.size for scope in scopes])
    # Scopes of children are parts of the scope of the sum: those as large are equal
    is_same = sizes[units.children] == np.repeat(sizes, units.n_children)
    return bool(is_same[np.repeat(units.kinds == SUM, units.n_children)].all())


def are_decomposable(units: UnitList, scopes: Sequence[VariableSet]) -> bool:
    """Whether the products in a list of units with these scopes are decomposable."""
    sizes = np.array([scope.size for scope in scopes])
    # Scopes are disjoint where they are together as large as their union
    parents = np.repeat(np.arange(len(sizes)), units.n_children)
    together = np.bincount(parents, sizes[units.children], len(sizes))
    return bool((together == sizes)[units.kinds == PRODUCT].all())


def is_structured_decomposable(circuit: Rooted) -> bool:
    """Check whether all products decompose their scopes according to one hierarchy (a vtree).

    Parameters
    ----------
    circuit : Circuit
        The circuit.

    Returns
    -------
    bool
        True if the circuit is decomposable and any two scopes of its units are nested or
        disjoint.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit, is_structured_decomposable
    >>> is_structured_decomposable(Circuit(Bernoulli(0, 0.2) * Bernoulli(1, 0.3)))
    True
    """
    require("root", "a circuit", circuit=circuit)
    scopes = set(VariableSets().of_units(topological_order(circuit.root)).values())
    # Nested or disjoint scopes are the nodes of one vtree
    return is_decomposable(circuit) and masks_are_laminar(scope.mask for scope in scopes)


def is_deterministic(circuit: Rooted) -> bool:
    """Check whether at most one child of each sum unit is positive for any row.

    True means that the circuit is provably deterministic; deciding determinism in general is
    intractable. Disjoint supports are found by comparing the possible values for each variable and,
    for units with the same decomposition, for each factor.

    Pieces of densities that share only an end point count as disjoint, because the point has
    probability zero. The most probable completion of a row that is observed there uses the larger
    of the limits from both sides. A point mass is not disjoint from a piece that contains it.

    Parameters
    ----------
    circuit : Circuit
        The circuit.

    Returns
    -------
    bool
        True if deterministic.

    Examples
    --------
    >>> from skcircuits.circuits import Circuit, Indicator, is_deterministic
    >>> is_deterministic(Circuit(0.4 * Indicator(0, 0, 2) + 0.6 * Indicator(0, 1, 2)))
    True
    """
    require("root", "a circuit", circuit=circuit)
    order = topological_order(circuit.root)
    # Linear in the edges, whereas pairs are quadratic in the states of a variable
    is_decision = _Decisions()
    others = [unit for unit in order if isinstance(unit, Sum) and not is_decision(unit)]
    if not others:
        return True
    proofs = _Disjointness(order)
    return all(
        proofs.disjoint(left, right)
        for unit in others
        for left, right in combinations(positive_children(unit), 2)
    )


def require_deterministic(circuit: Rooted, purpose: str, way_out: str = "") -> None:
    """Refuse circuits that are not provably deterministic, with purpose and way out."""
    if not is_deterministic(circuit):
        raise CircuitPropertyError(
            must("a circuit", f"be deterministic {purpose}", way_out, circuit=circuit)
        )


class _Decisions:
    """The sums that decide on a variable: input units give each child states of its own."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def __call__(self, unit: Sum) -> bool:
        """Tell whether a sum decides on a variable that its children or their factors show."""
        children = positive_children(unit)
        if len(children) < 2:
            return True
        together = self._shown(children[0])
        for shown in map(self._shown, children[1:]):
            # Variables whose states overlap cannot be the one that is decided on
            together = {
                variable: states | shown[variable]
                for variable, states in together.items()
                if variable in shown and not states & shown[variable]
            }
        return bool(together)

    def _shown(self, child: Unit) -> dict[int, int]:
        """States of the discrete input units among the factors of a child, as bits."""
        factors = child.children if isinstance(child, Product) else (child,)
        leaves = [factor for factor in factors if isinstance(factor, LeafUnit)]
        shown = {leaf.scope[0]: self._states(leaf) for leaf in leaves}
        return {variable: states for variable, states in shown.items() if states}

    def _states(self, leaf: LeafUnit) -> int:
        # Many products have one input unit in common, whose states are read once
        if id(leaf) not in self._known:
            states = leaf.possible_states()
            self._known[id(leaf)] = 0 if states is None else bits_of(states)
        return self._known[id(leaf)]


class _Disjointness:
    """Proofs that no row is possible under two units of a circuit."""

    def __init__(self, order: list[Unit]) -> None:
        self._supports = Supports(order)
        self._scopes = VariableSets().of_units(order)
        self._known: dict[tuple[int, int], bool] = {}

    def disjoint(self, left: Unit, right: Unit) -> bool:
        """Tell whether no row is possible under both units (True is proven)."""
        # Proofs wait on a stack of ours for the proofs they ask for: circuits may be deep.
        waiting = [(_key(left, right), self._proof(left, right))]
        answer: bool | None = None
        while waiting:
            key, proof = waiting[-1]
            try:
                asked = proof.send(answer)
            except StopIteration as end:
                answer = self._known[key] = bool(end.value)
                waiting.pop()
                continue
            answer = self._known.get(_key(*asked))
            if answer is None:
                waiting.append((_key(*asked), self._proof(*asked)))
        return bool(answer)

    def _proof(self, left: Unit, right: Unit) -> Generator[_Pair, bool | None, bool]:
        """Prove that two units are disjoint; yields the pairs whose answer it needs."""
        if left is right:
            return False
        states = self._supports.states
        if not self._supports.may_meet(states(left), states(right)):
            return True
        if isinstance(left, Sum) or isinstance(right, Sum):
            # A sum is disjoint from a unit if all its children are.
            opened, fixed = (left, right) if isinstance(left, Sum) else (right, left)
            assert isinstance(opened, Sum)
            for child in positive_children(opened):
                if not (yield child, fixed):
                    return False
            return True
        for own_factor, other_factor in product(left.children, right.children):
            # Two products are disjoint if factors over common variables are, one pair is enough
            meet = self._scopes[id(own_factor)].mask & self._scopes[id(other_factor)].mask
            if meet and (yield own_factor, other_factor):
                return True
        return False


def _key(left: Unit, right: Unit) -> tuple[int, int]:
    """Name a pair whatever its order."""
    return min(id(left), id(right)), max(id(left), id(right))


# Scopes of the factors of a product, by ascending masks.
Partition = tuple["VariableSet", ...]


class Conflict(NamedTuple):
    """Two products with one scope that cannot be decomposed together: scopes of their factors."""

    left: tuple[Scope, ...]
    right: tuple[Scope, ...]

    @classmethod
    def of(cls, left: Partition, right: Partition) -> Conflict:
        """Read the scopes of two partitions."""
        return cls(*(tuple(sorted(scope.variables for scope in side)) for side in (left, right)))


def are_compatible(p: Circuit, q: Circuit) -> bool:
    """Check whether two circuits have compatible decompositions of their variables.

    Compatible circuits can be multiplied and compared (products, expected kernels) in time
    proportional to the product of their sizes.

    Parameters
    ----------
    p, q : Circuit
        The circuits.

    Returns
    -------
    bool
        True if both circuits are smooth and decomposable over the same variables, and any two
        products over the same scope can be split in the same way.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit, are_compatible
    >>> p = Circuit(Bernoulli(0, 0.2) * Bernoulli(1, 0.5))
    >>> are_compatible(p, p)
    True
    """
    require("root", "a circuit", p=p, q=q)
    if p.variables != q.variables:
        return False
    return _are_tractable(p, q) and find_conflict(p, q) is None


def _are_tractable(p: Circuit, q: Circuit) -> bool:
    """Whether two circuits are smooth and decomposable, which their plans remember."""
    return all(plan.is_smooth and plan.is_decomposable for plan in (p.plan, q.plan))


def find_conflict(p: Circuit, q: Circuit) -> Conflict | None:
    """Two products of smooth, decomposable circuits that do not decompose together, or None."""
    sets = VariableSets()
    left, right = _partitions(p, sets), _partitions(q, sets)
    sides = [partition for side in (left, right) for found in side.values() for partition in found]
    scopes = {scope for partition in sides for scope in partition}.union(left, right)
    # The usual case in linear time: if all scopes of both form one vtree, there are no conflicts
    only_products = all(len(partition) > 1 for partition in sides)
    if only_products and masks_are_laminar(scope.mask for scope in scopes):
        return None
    # Both circuits have the same variables, so either root will do.
    return _conflict_below(sets.of(mask_of(p.variables)), left, right)


def require_compatible(p: Circuit, q: Circuit) -> None:
    """Raise an error that names the difference if two circuits are not compatible."""
    if p.variables != q.variables:
        what = "two circuits that are combined"
        condition = "have the same variables"
        way_out = "Marginalise those that only one of them has."
        raise IncompatibleCircuitsError(
            must(what, condition, way_out, left=p.variables, right=q.variables)
        )
    if not _are_tractable(p, q):
        raise CircuitPropertyError(
            must("circuits that are combined", "both be smooth and decomposable", WAY_TO_TRACTABLE)
        )
    conflict = find_conflict(p, q)
    if conflict is not None:
        what = "product units of two circuits that are combined"
        condition = "split their scope alike"
        way_out = "Learn both circuits with one structure, or compare samples instead."
        raise IncompatibleCircuitsError(
            must(what, condition, way_out, left=conflict.left, right=conflict.right)
        )


def _partitions(circuit: Circuit, sets: VariableSets) -> dict[VariableSet, set[Partition]]:
    """All ways in which products split a scope; joint input units keep theirs whole."""
    units = circuit.plan.units
    scopes = sets.of_scopes(circuit.plan.scopes)
    scope_of = dict(zip(map(id, units), scopes))
    # Many products split a scope alike: their factors are sorted once
    found: dict[Partition, VariableSet] = {}
    for unit, scope in zip(units, scopes):
        if isinstance(unit, Product) and len(unit.children) > 1:
            found[tuple([scope_of[id(child)] for child in unit.children])] = scope
        elif isinstance(unit, LeafUnit) and scope.size > 1:
            found[(scope,)] = scope
    partitions: dict[VariableSet, set[Partition]] = defaultdict(set)
    for factors, scope in found.items():
        partitions[scope].add(tuple(sorted(factors, key=attrgetter("mask"))))
    return partitions


def _conflict_below(
    scope: VariableSet,
    left: dict[VariableSet, set[Partition]],
    right: dict[VariableSet, set[Partition]],
) -> Conflict | None:
    """Find a conflict by one walk over all pairs of partitions that meet, from a scope down; sides
    with several scopes are products.
    """
    seen: set[tuple[Partition, Partition]] = set()
    stack: list[tuple[Partition, Partition]] = [((scope,), (scope,))]
    while stack:
        pair = stack.pop()
        if pair in seen:
            continue
        seen.add(pair)
        for own, other in product(_splits(left, pair[0]), _splits(right, pair[1])):
            blocks = common_blocks(own, other)
            # One block of several factors: no split of either side respects the other
            if len(blocks) == 1 and len(own) + len(other) > 2:
                return Conflict.of(own, other)
            if len(blocks) > 1:
                stack.extend(
                    (tuple(own[i] for i in mine), tuple(other[j] for j in others))
                    for mine, others in blocks
                )
    return None


def _splits(partitions: dict[VariableSet, set[Partition]], side: Partition) -> set[Partition]:
    """Ways in which a side may be split further; itself when it cannot."""
    if len(side) > 1:
        return {side}
    return partitions.get(side[0], set()) or {side}


def mask_of(variables: Iterable[int]) -> int:
    """A set of variables as the bits of one integer."""
    mask = 0
    for variable in variables:
        mask |= 1 << variable
    return mask


def variables_of(mask: int) -> Scope:
    """The variables of a set, ascending."""
    # Most scopes that are listed have one variable, and its number may be in the thousands
    if mask.bit_count() == 1:
        return (mask.bit_length() - 1,)
    # All digits at once: shifting a large integer bit by bit would be quadratic
    digits = np.frombuffer(mask_key(mask), dtype=np.uint8)
    return tuple(np.flatnonzero(np.unpackbits(digits, bitorder="little")).tolist())


def bits_of(possible: BoolArray) -> int:
    """An array of booleans as the bits of one integer, the first one lowest."""
    return int.from_bytes(np.packbits(possible, bitorder="little").tobytes(), "little")


def mask_key(mask: int) -> bytes:
    """A key for a mask in dictionaries."""
    # Hashes of integers are remainders, by which masks of chains collide
    return mask.to_bytes(mask.bit_length() // 8 + 1, "little")


@dataclass(frozen=True, eq=False)
class VariableSet:
    """A scope. Equal scopes of one ``VariableSets`` are one object and compared by identity."""

    mask: int

    @cached_property
    def size(self) -> int:
        """Number of variables."""
        return self.mask.bit_count()

    @cached_property
    def variables(self) -> Scope:
        """The variables, ascending."""
        return variables_of(self.mask)


class VariableSets:
    """The scopes of units, each stored once: sets of long chains are united and compared once."""

    def __init__(self) -> None:
        self._known: dict[bytes, VariableSet] = {}
        self._unions: dict[tuple[VariableSet, ...], VariableSet] = {}

    def of(self, mask: int) -> VariableSet:
        """The set with a mask."""
        return self._known.setdefault(mask_key(mask), VariableSet(mask))

    def union(self, parts: tuple[VariableSet, ...]) -> VariableSet:
        """The union of some sets, which may repeat."""
        # Most sums are smooth
        if parts.count(parts[0]) == len(parts):
            return parts[0]
        known = self._unions.get(parts)
        if known is None:
            mask = reduce(or_, [part.mask for part in dict.fromkeys(parts)])
            known = self._unions[parts] = self.of(mask)
        return known

    def of_units(self, order: Iterable[Unit]) -> dict[int, VariableSet]:
        """Scope of each unit by its id; children come before parents."""
        distinct = {id(unit): unit for unit in order}
        return dict(zip(distinct, self.of_list(UnitList.of(list(distinct.values())))))

    def of_scopes(self, scopes: Sequence[VariableSet]) -> list[VariableSet]:
        """The sets that equal some scopes of another collection."""
        own = {scope: self.of(scope.mask) for scope in set(scopes)}
        return [own[scope] for scope in scopes]

    def of_list(self, units: UnitList) -> list[VariableSet]:
        """Scope of each unit of a list."""
        sets: list[VariableSet] = []
        leaves: dict[Scope, VariableSet] = {}
        inputs = iter(units.inputs)
        for places in units.below():
            if places:
                sets.append(self.union(tuple([sets[place] for place in places])))
            else:
                scope = next(inputs).scope
                if scope not in leaves:
                    leaves[scope] = self.of(mask_of(scope))
                sets.append(leaves[scope])
        return sets


def masks_are_laminar(masks: Iterable[int]) -> bool:
    """Tell whether scopes are nested or disjoint: each a union of the largest ones inside it."""
    parent: dict[int, int] = {}  # a forest over variables: a tree per largest scope so far
    largest: dict[int, int] = {}  # by root

    def root_of(variable: int) -> int:
        root = variable
        while parent.setdefault(root, root) != root:
            root = parent[root]
        while parent[variable] != root:
            parent[variable], variable = root, parent[variable]
        return root

    # Smaller scopes first, so that whatever a scope contains is joined by then
    for mask in sorted(masks, key=int.bit_count):
        rest, roots = mask, []
        while rest:
            root = root_of((rest & -rest).bit_length() - 1)
            inside = largest.get(root, 1 << root)
            if inside & ~mask:
                return False
            rest &= ~inside
            roots.append(root)
        for root in roots:
            parent[root] = roots[0]
        if roots:
            largest[roots[0]] = mask
    return True


def common_blocks(
    left: Sequence[VariableSet], right: Sequence[VariableSet]
) -> list[tuple[list[int], list[int]]]:
    """Positions on both sides of the finest blocks of equal scope of two products."""
    place = {scope: i for i, scope in enumerate(left)}
    # Circuits of one structure split alike: their factors are paired without a search
    if all(scope in place for scope in right):
        return [([place[scope]], [j]) for j, scope in enumerate(right)]
    blocks = [(scope.mask, [i], list[int]()) for i, scope in enumerate(left)]
    for j, scope in enumerate(right):
        merged, own, other = scope.mask, list[int](), [j]
        apart = []
        for block in blocks:
            if block[0] & scope.mask:
                merged |= block[0]
                own += block[1]
                other += block[2]
            else:
                apart.append(block)
        blocks = [*apart, (merged, own, other)]
    # Sorted once: a block may have grown with every factor
    return [(sorted(own), sorted(other)) for _, own, other in blocks]


def positive_children(unit: Sum) -> list[Unit]:
    """Children with positive weight."""
    return [child for child, weight in zip(unit.children, unit.weights) if weight > 0]


class Supports:
    """Possible values of every variable under every unit, over-approximated by a set of states or
    intervals per variable: all sets are the bits of one integer, so that comparing two units takes
    four operations; a variable that is not constrained has all bits.
    """

    def __init__(self, units: Iterable[Unit]) -> None:
        order = list(units)
        self._place_fields(order)
        self._states: dict[int, int] = {}
        # Equal masks are one object: most units of most circuits allow everything.
        known: dict[bytes, int] = {}
        for unit in order:
            states = self._states_of(unit)
            self._states[id(unit)] = known.setdefault(mask_key(states), states)

    def _place_fields(self, units: list[Unit]) -> None:
        """Give each variable a bit per state or interval and a guard bit above them."""
        n_states: dict[int, int] = {}
        ends: dict[int, list[FloatArray]] = defaultdict(list)
        for unit in units:
            if not isinstance(unit, LeafUnit):
                continue
            states, intervals = unit.possible_states(), unit.possible_intervals()
            if states is not None:
                variable = unit.scope[0]
                n_states[variable] = max(n_states.get(variable, 0), len(states))
            elif intervals is not None:
                ends[unit.scope[0]].append(intervals.ravel())
        self._ends = {v: np.unique(np.concatenate(found)) for v, found in ends.items()}
        self._field: dict[tuple[str, int], tuple[int, int]] = {}
        self._lowest = self._guards = self._n_bits = 0
        for variable, size in n_states.items():
            self._place_field(STATES, variable, size)
        for variable, own in self._ends.items():
            self._place_field(INTERVALS, variable, len(own) - 1)
        self._everything = ((1 << self._n_bits) - 1) ^ self._guards

    def _place_field(self, kind: str, variable: int, size: int) -> None:
        """Append a field."""
        start, end = self._n_bits, self._n_bits + size
        self._field[kind, variable] = start, ((1 << size) - 1) << start
        self._lowest |= 1 << start
        # A bit above each field that is always set: borrows of a subtraction end there
        self._guards |= 1 << end
        self._n_bits = end + 1

    def _only(self, kind: str, variable: int, possible: BoolArray) -> int:
        """Mask that constrains one variable."""
        start, field = self._field[kind, variable]
        return self._everything ^ field | bits_of(possible) << start

    def _states_of(self, unit: Unit) -> int:
        """Find the mask of an input unit, or combine the masks of the children."""
        if isinstance(unit, LeafUnit):
            return self._states_of_input(unit)
        if isinstance(unit, Product):
            states = self._everything
            for child in unit.children:
                states &= self._states[id(child)]
            return states
        if isinstance(unit, Sum):
            states = 0
            # Children of weight zero are impossible, whatever their support.
            for child in positive_children(unit):
                states |= self._states[id(child)]
            return states
        return self._everything

    def _states_of_input(self, unit: LeafUnit) -> int:
        """The mask of an input unit; all values are possible if its support is unknown."""
        states, intervals = unit.possible_states(), unit.possible_intervals()
        if states is not None:
            return self._only(STATES, unit.scope[0], states)
        if intervals is None:
            return self._everything
        ends = self._ends[unit.scope[0]]
        opened, closed = (
            np.bincount(np.searchsorted(ends, side), minlength=len(ends)) for side in intervals.T
        )
        # Intervals of one unit may touch or overlap: counts of open ones decide, not their order
        inside = np.cumsum(opened - closed)[:-1] > 0
        return self._only(INTERVALS, unit.scope[0], inside)

    def states(self, *units: Unit) -> int:
        """Possible states under all of some units."""
        states = self._everything
        for unit in units:
            states &= self._states[id(unit)]
        return states

    def may_meet(self, left: int, right: int) -> bool:
        """Tell whether a row may be possible under two masks; False is proven."""
        # Taking one from each field takes the guard bit of those that are empty
        guarded = ((left & right) | self._guards) - self._lowest
        return guarded & self._guards == self._guards
