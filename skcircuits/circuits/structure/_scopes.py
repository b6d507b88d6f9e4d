"""Scopes as bit sets in integers, and the support of units.

Both are efficient for thousands of variables: operations on scopes are operations on integers, once
per distinct scope, and the supports of two units are disjoint if no value is possible under both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_

import numpy as np

from skcircuits.circuits.structure.units import LeafUnit, Product, Scope, Sum, Unit, UnitList
from skcircuits.protocols import BoolArray, FloatArray

# Kinds of fields: one bit per state, or one per interval between end points
STATES, INTERVALS = "states", "intervals"


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
        return self.mask.bit_count()

    @cached_property
    def variables(self) -> Scope:
        return variables_of(self.mask)


class VariableSets:
    """The scopes of the units of one circuit or several, each stored once.

    Scopes of long chains have thousands of variables: every unit above the same scopes looks its
    own up, so that sets are united and compared once per scope.
    """

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
    """Tell whether any two scopes are nested or disjoint.

    From small to large, every scope must be a union of the largest ones inside it so far.
    """
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
    """Group the factors of two products with one scope into the finest blocks of equal scope.

    Factors are given by their scopes; a block has their positions on both sides.
    """
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
        blocks = [*apart, (merged, sorted(own), sorted(other))]
    return [(own, other) for _, own, other in blocks]


def positive_children(unit: Sum) -> list[Unit]:
    """Children with positive weight."""
    return [child for child, weight in zip(unit.children, unit.weights) if weight > 0]


class Supports:
    """Possible values of every variable under every unit.

    The support of a unit is over-approximated by a set per variable: of the states of a
    discrete variable, of the intervals into which piecewise polynomial units cut the line.
    All sets of a unit are the bits of one integer, a field per variable, so that comparing
    two units takes four operations whatever the number of variables. A variable that the
    unit does not constrain has all bits.
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
