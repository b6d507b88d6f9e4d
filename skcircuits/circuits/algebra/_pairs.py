"""One traversal over pairs of units with the same scope: what every binary operation runs on.

A side of a pair is a tuple of units with disjoint scopes and stands for their product. A pair
is taken apart until both sides are input units: sums distribute, products are split into the
finest blocks on which both sides agree. Every pair is visited once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.structure._scopes import common_blocks, scope_masks
from skcircuits.circuits.structure._supports import Supports
from skcircuits.circuits.structure.units import Product, Sum, Unit, topological_order
from skcircuits.protocols import FloatArray

Result = TypeVar("Result")
Side = tuple[Unit, ...]
Pair = tuple[Side, Side]


class PairRules(Protocol[Result]):
    """What an operation does at input units, products and sums."""

    def inputs(self, left: InputUnit, right: InputUnit) -> Result:
        """Combine two input units over the same variables."""

    def product(self, factors: list[Result]) -> Result:
        """Combine the results of blocks with disjoint scopes."""

    def mixture(
        self, left_weights: FloatArray, right_weights: FloatArray, terms: list[Result]
    ) -> Result:
        """Combine the results of pairs of terms; a side that is no sum has weights one.

        Pairs without a common row are left out: what they would give must not matter.
        """


def fold_pairs(left: Unit, right: Unit, rules: PairRules[Result]) -> Result:
    """Apply an operation to the roots of two compatible circuits, from the inputs up."""
    order = [*topological_order(left), *topological_order(right)]
    return _PairFold(rules, Supports(order), scope_masks(order)).fold(((left,), (right,)))


class _Step(NamedTuple, Generic[Result]):
    """How the result of a pair follows from the results of the pairs below."""

    below: list[Pair]
    combine: Callable[[list[Result]], Result]


class _Opened(NamedTuple):
    """A side taken apart as far as it goes without its counterpart.

    ``units`` are its factors (the children of a single product), ``partition`` a number that
    stands for their scopes. ``terms`` are the children of positive weight of a single sum,
    otherwise the units as one term, with their weights and possible states (see ``Supports``).
    """

    units: Side
    partition: int
    terms: list[Side]
    weights: FloatArray
    states: list[int]

    @property
    def is_sum(self) -> bool:
        """Whether the side is a single sum."""
        return len(self.units) == 1 and isinstance(self.units[0], Sum)


class _PairFold(Generic[Result]):
    """Remembers the results of pairs, opened sides and how partitions meet."""

    def __init__(self, rules: PairRules[Result], supports: Supports, masks: dict[int, int]) -> None:
        self._rules = rules
        self._supports = supports
        self._masks = masks  # scopes by id of the unit
        self._results: dict[Pair, Result] = {}
        self._sides: dict[Side, _Opened] = {}
        self._partitions: dict[tuple[int, ...], int] = {}
        self._blocks: dict[tuple[int, int], list[tuple[list[int], list[int]]]] = {}

    def fold(self, root: Pair) -> Result:
        """Visit pairs depth first, without recursion: circuits may be deep."""
        # Steps wait on the stack with their pair, so that each is taken apart once per visit.
        stack = [(root, self._step(root))]
        while stack:
            pair, step = stack[-1]
            waiting = [below for below in step.below if below not in self._results]
            if waiting:
                stack.extend((below, self._step(below)) for below in waiting)
                continue
            stack.pop()
            if pair not in self._results:
                self._results[pair] = step.combine([self._results[below] for below in step.below])
        return self._results[root]

    def _step(self, pair: Pair) -> _Step[Result]:
        left, right = self._open(pair[0]), self._open(pair[1])
        # Sums come first: a sum may stand against several factors of the other side.
        if left.is_sum or right.is_sum:
            return self._sum_step(left, right)
        if len(left.units) == len(right.units) == 1:
            own, other = left.units[0], right.units[0]
            assert isinstance(own, InputUnit) and isinstance(other, InputUnit)
            return _Step([], lambda _: self._rules.inputs(own, other))
        return _Step(self._split(left, right), self._rules.product)

    def _open(self, side: Side) -> _Opened:
        """Take a side apart, once."""
        if side not in self._sides:
            units = side
            while len(units) == 1 and isinstance(units[0], Product):
                units = units[0].children
            scopes = tuple(self._masks[id(unit)] for unit in units)
            # Numbers instead of scopes: how two partitions meet is looked up for every pair.
            partition = self._partitions.setdefault(scopes, len(self._partitions))
            terms, weights = [units], np.ones(1)
            if len(units) == 1 and isinstance(units[0], Sum):
                # Pairs with a term of weight zero would be visited for nothing.
                positive = np.flatnonzero(units[0].weights)
                terms = [(units[0].children[i],) for i in positive]
                weights = units[0].weights[positive]
            states = [self._supports.states(*term) for term in terms]
            self._sides[side] = _Opened(units, partition, terms, weights, states)
        return self._sides[side]

    def _sum_step(self, left: _Opened, right: _Opened) -> _Step[Result]:
        """Distribute the sums on both sides; terms of weight zero do not take part.

        Nor do pairs of terms that no row meets: of decision diagrams, few pairs remain.
        """
        meeting = [
            (i, j)
            for i, own in enumerate(left.states)
            for j, other in enumerate(right.states)
            if self._supports.may_meet(own, other)
        ]
        below = [(left.terms[i], right.terms[j]) for i, j in meeting]
        places = np.array(meeting, dtype=np.intp).reshape(-1, 2)
        left_weights, right_weights = left.weights[places[:, 0]], right.weights[places[:, 1]]
        mixture = self._rules.mixture
        return _Step(below, lambda terms: mixture(left_weights, right_weights, terms))

    def _split(self, left: _Opened, right: _Opened) -> list[Pair]:
        """Group the factors of both sides into blocks of equal scope."""
        # Pairs of partitions meet in few ways, pairs of units in many: blocks are found once.
        key = left.partition, right.partition
        if key not in self._blocks:
            sides = ([self._masks[id(unit)] for unit in side.units] for side in (left, right))
            self._blocks[key] = common_blocks(*sides)
        return [
            (tuple([left.units[i] for i in own]), tuple([right.units[i] for i in other]))
            for own, other in self._blocks[key]
        ]
