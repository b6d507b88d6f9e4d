"""Which states are possible under which unit: a quick proof that two units never meet."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from skcircuits.circuits.inputs.discrete import DiscreteUnit
from skcircuits.circuits.units import Product, Sum, Unit

__all__ = ["Supports", "positive_children"]


def positive_children(unit: Sum) -> list[Unit]:
    """Children with positive weight.

    Parameters
    ----------
    unit : Sum
        A sum.

    Returns
    -------
    list of Unit
        In order.
    """
    return [child for child, weight in zip(unit.children, unit.weights) if weight > 0]


class Supports:
    """Possible states of every discrete variable under every unit.

    The support of a unit is over-approximated by a set of states per variable. All sets of
    a unit are the bits of one integer, a field per variable, so that comparing two units
    takes four operations whatever the number of variables. A variable that the unit does
    not constrain has all bits.

    Parameters
    ----------
    units : iterable of Unit
        Children before parents; units of several circuits if these are compared.

    Examples
    --------
    >>> from skcircuits.circuits import Indicator
    >>> from skcircuits.circuits.supports import Supports
    >>> units = [Indicator(0, 0, 2), Indicator(0, 1, 2), Indicator(1, 0, 2)]
    >>> supports = Supports(units)
    >>> masks = [supports.states(unit) for unit in units]
    >>> supports.may_meet(masks[0], masks[1]), supports.may_meet(masks[0], masks[2])
    (False, True)
    """

    def __init__(self, units: Iterable[Unit]) -> None:
        order = list(units)
        self._place_fields(order)
        self._states: dict[int, int] = {}
        # Equal masks are one object: most units of most circuits allow everything.
        known: dict[int, int] = {}
        for unit in order:
            states = self._states_of(unit)
            self._states[id(unit)] = known.setdefault(states, states)

    def _place_fields(self, units: list[Unit]) -> None:
        """Give each variable a bit per state and a guard bit above them."""
        n_states: dict[int, int] = {}
        for unit in units:
            if isinstance(unit, DiscreteUnit):
                known = n_states.get(unit.variable, 0)
                n_states[unit.variable] = max(known, unit.n_states)
        self._field: dict[int, tuple[int, int]] = {}
        self._lowest = self._guards = end = 0
        for variable, size in n_states.items():
            self._field[variable] = end, ((1 << size) - 1) << end
            self._lowest |= 1 << end
            self._guards |= 1 << (end + size)
            end += size + 1
        self._everything = ((1 << end) - 1) ^ self._guards

    def _states_of(self, unit: Unit) -> int:
        """Combine the masks of the children."""
        if isinstance(unit, DiscreteUnit):
            start, field = self._field[unit.variable]
            possible = np.flatnonzero(unit.probabilities > 0)
            return self._everything ^ field | sum(1 << (start + int(s)) for s in possible)
        if isinstance(unit, Product):
            states = self._everything
            for child in unit.children:
                states &= self._states[id(child)]
            return states
        if isinstance(unit, Sum):
            states = 0
            for child in positive_children(unit):
                states |= self._states[id(child)]
            return states
        return self._everything

    def states(self, *units: Unit) -> int:
        """Possible states under all of some units.

        Parameters
        ----------
        *units : Unit
            Factors of a product.

        Returns
        -------
        int
            Bit mask.
        """
        states = self._everything
        for unit in units:
            states &= self._states[id(unit)]
        return states

    def may_meet(self, left: int, right: int) -> bool:
        """Tell whether a row may be possible under two masks; False is proven.

        Parameters
        ----------
        left, right : int
            Bit masks.

        Returns
        -------
        bool
            False if they share no state of some variable.
        """
        # Taking one from each field takes the guard bit of those that are empty
        guarded = ((left & right) | self._guards) - self._lowest
        return guarded & self._guards == self._guards
