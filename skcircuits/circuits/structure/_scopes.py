"""Scopes as bit sets in integers, and the support of units.

Both are efficient for thousands of variables: operations on sets of scopes are operations on
integers, and the supports of two units are disjoint if no value is possible under both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np

from skcircuits.circuits.structure.units import LeafUnit, Product, Scope, Sum, Unit
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
    # One pass over the binary digits: shifting a large integer bit by bit would be quadratic
    return tuple(i for i, bit in enumerate(reversed(f"{mask:b}")) if bit == "1")


def scope_masks(order: Iterable[Unit]) -> dict[int, int]:
    """Scope of each unit by its id; children come before parents."""
    masks: dict[int, int] = {}
    for unit in order:
        if unit.children:
            mask = 0
            for child in unit.children:
                mask |= masks[id(child)]
        else:
            mask = mask_of(unit.scope)
        masks[id(unit)] = mask
    return masks


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
    for mask in sorted(set(masks), key=int.bit_count):
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


def common_blocks(left: Sequence[int], right: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Group the factors of two products with one scope into the finest blocks of equal scope.

    Factors are given by the masks of their scopes; a block has their positions on both sides.
    """
    place = {mask: i for i, mask in enumerate(left)}
    # Circuits of one structure split alike: their factors are paired without a search
    if all(mask in place for mask in right):
        return [([place[mask]], [j]) for j, mask in enumerate(right)]
    blocks = [(mask, [i], list[int]()) for i, mask in enumerate(left)]
    for j, mask in enumerate(right):
        merged, own, other = mask, list[int](), [j]
        apart = []
        for block in blocks:
            if block[0] & mask:
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
        n_bytes = self._n_bits // 8 + 1
        for unit in order:
            states = self._states_of(unit)
            # Hashes of integers are remainders, by which masks of chains collide
            key = states.to_bytes(n_bytes, "little")
            self._states[id(unit)] = known.setdefault(key, states)

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
        bits = int.from_bytes(np.packbits(possible, bitorder="little").tobytes(), "little")
        return self._everything ^ field | bits << start

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
