"""One traversal over pairs of units with the same scope: what every binary operation runs on.

A side of a pair is a tuple of units with disjoint scopes and stands for their product. A pair
is taken apart until both sides are input units: sums distribute, products are split into the
finest blocks on which both sides agree. Every pair is visited once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from skcircuits.circuits.compatibility import Partition, common_blocks
from skcircuits.circuits.inputs import LeafUnit
from skcircuits.circuits.units import Product, Sum, Unit
from skcircuits.protocols import FloatArray

__all__ = ["PairRules", "fold_pairs"]

Result = TypeVar("Result")
Side = tuple[Unit, ...]
Pair = tuple[Side, Side]


class PairRules(Protocol[Result]):
    """What an operation does at input units, products and sums."""

    def inputs(self, left: LeafUnit, right: LeafUnit) -> Result:
        """Combine two input units over the same variables."""

    def product(self, factors: list[Result]) -> Result:
        """Combine the results of blocks with disjoint scopes."""

    def mixture(
        self, left_weights: FloatArray, right_weights: FloatArray, terms: list[Result]
    ) -> Result:
        """Combine the results of all pairs of terms; a side that is no sum has weights one."""


def fold_pairs(left: Unit, right: Unit, rules: PairRules[Result]) -> Result:
    """Apply an operation to two units, pair by pair from the inputs up.

    Parameters
    ----------
    left, right : Unit
        Roots of two compatible circuits.
    rules : PairRules
        The operation.

    Returns
    -------
    object
        Result at the pair of roots.
    """
    return _PairFold(rules).fold(((left,), (right,)))


class _Step(NamedTuple, Generic[Result]):
    """How the result of a pair follows from the results of the pairs below."""

    below: list[Pair]
    combine: Callable[[list[Result]], Result]


class _PairFold(Generic[Result]):
    """Remembers the results of pairs and how partitions meet."""

    def __init__(self, rules: PairRules[Result]) -> None:
        self._rules = rules
        self._results: dict[Pair, Result] = {}
        self._blocks: dict[tuple[Partition, Partition], list[tuple[Partition, Partition]]] = {}

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
        left, right = _open_products(pair[0]), _open_products(pair[1])
        # Sums come first: a sum may stand against several factors of the other side.
        if _is_sum(left) or _is_sum(right):
            return self._sum_step(left, right)
        if len(left) == len(right) == 1:
            own, other = left[0], right[0]
            assert isinstance(own, LeafUnit) and isinstance(other, LeafUnit)
            return _Step([], lambda _: self._rules.inputs(own, other))
        return _Step(self._split(left, right), self._rules.product)

    def _sum_step(self, left: Side, right: Side) -> _Step[Result]:
        """Distribute the sums on both sides; terms of weight zero do not take part."""
        own, own_weights = _terms(left)
        other, other_weights = _terms(right)
        left_weights = np.repeat(own_weights, len(other))
        right_weights = np.tile(other_weights, len(own))
        below = [(one, two) for one in own for two in other]
        mixture = self._rules.mixture
        return _Step(below, lambda terms: mixture(left_weights, right_weights, terms))

    def _split(self, left: Side, right: Side) -> list[Pair]:
        """Group the factors of both sides into blocks of equal scope."""
        by_scope = {unit.scope: unit for unit in left}, {unit.scope: unit for unit in right}
        # Pairs of regions meet in few ways, pairs of units in many: blocks are found once.
        key = tuple(by_scope[0]), tuple(by_scope[1])
        if key not in self._blocks:
            self._blocks[key] = common_blocks(*key)
        return [
            (tuple(by_scope[0][s] for s in own), tuple(by_scope[1][s] for s in other))
            for own, other in self._blocks[key]
        ]


def _open_products(side: Side) -> Side:
    """Replace a single product by its factors."""
    while len(side) == 1 and isinstance(side[0], Product):
        side = side[0].children
    return side


def _is_sum(side: Side) -> bool:
    return len(side) == 1 and isinstance(side[0], Sum)


def _terms(side: Side) -> tuple[list[Side], FloatArray]:
    """Terms of positive weight of a sum; anything else is one term of weight one."""
    if not (len(side) == 1 and isinstance(side[0], Sum)):
        return [side], np.ones(1)
    positive = np.flatnonzero(side[0].weights)
    return [(side[0].children[i],) for i in positive], side[0].weights[positive]
