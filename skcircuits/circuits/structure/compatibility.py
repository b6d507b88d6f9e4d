"""Compatibility of two circuits: do they decompose their variables alike?"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from skcircuits.circuits.structure._scopes import (
    common_blocks,
    masks_are_laminar,
    scope_masks,
    variables_of,
)
from skcircuits.circuits.structure.properties import is_decomposable, is_smooth
from skcircuits.circuits.structure.units import LeafUnit, Product, Scope, topological_order
from skcircuits.exceptions import CircuitPropertyError, IncompatibleCircuitsError, must, require

if TYPE_CHECKING:
    from skcircuits.circuits.circuit import Circuit

__all__ = ["Conflict", "are_compatible", "find_conflict", "require_compatible"]

# Scopes of the factors of a product, as bit sets in ascending order.
Partition = tuple[int, ...]


class Conflict(NamedTuple):
    """Two products with one scope that cannot be decomposed together: scopes of their factors."""

    left: tuple[Scope, ...]
    right: tuple[Scope, ...]

    @classmethod
    def of(cls, left: Partition, right: Partition) -> Conflict:
        """Read the scopes of two partitions."""
        return cls(*(tuple(sorted(map(variables_of, side))) for side in (left, right)))


def are_compatible(p: Circuit, q: Circuit) -> bool:
    """Tell whether two circuits decompose their variables in a way that fits together.

    Compatible circuits can be multiplied and compared (products, expected kernels) in time
    proportional to the product of their sizes.

    Parameters
    ----------
    p, q : Circuit
        The circuits.

    Returns
    -------
    bool
        True if both are smooth and decomposable over the same variables and any two
        products that meet can be split alike.

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
    sound = all(is_smooth(circuit) and is_decomposable(circuit) for circuit in (p, q))
    return sound and find_conflict(p, q) is None


def find_conflict(p: Circuit, q: Circuit) -> Conflict | None:
    """Find two products of smooth, decomposable circuits that cannot be decomposed together.

    Gives the first conflict met on the way down; None for compatible circuits.
    """
    left, right = _partitions(p), _partitions(q)
    sides = [partition for side in (left, right) for found in side.values() for partition in found]
    scopes = {scope for partition in sides for scope in partition}
    only_products = all(len(partition) > 1 for partition in sides)
    if only_products and masks_are_laminar([*left, *right, *scopes]):
        return None
    whole = scope_masks([*topological_order(p.root)])[id(p.root)]
    return _Search(left, right).conflict(whole)


def require_compatible(p: Circuit, q: Circuit) -> None:
    """Refuse two circuits that are not compatible, naming what differs."""
    if p.variables != q.variables:
        raise IncompatibleCircuitsError(
            must(
                "two circuits that are combined",
                "have the same variables",
                "Marginalise those that only one of them has.",
                left=p.variables,
                right=q.variables,
            )
        )
    if not all(is_smooth(circuit) and is_decomposable(circuit) for circuit in (p, q)):
        raise CircuitPropertyError(
            must("circuits that are combined", "both be smooth and decomposable")
        )
    conflict = find_conflict(p, q)
    if conflict is not None:
        raise IncompatibleCircuitsError(
            must(
                "product units of two circuits that are combined",
                "split their scope alike",
                "Learn both circuits with one structure, or compare samples instead.",
                left=conflict.left,
                right=conflict.right,
            )
        )


def _partitions(circuit: Circuit) -> dict[int, set[Partition]]:
    """All ways in which products split a scope; joint input units keep theirs whole."""
    order = topological_order(circuit.root)
    masks = scope_masks(order)
    partitions: dict[int, set[Partition]] = defaultdict(set)
    for unit in order:
        scope = masks[id(unit)]
        if isinstance(unit, Product) and len(unit.children) > 1:
            partitions[scope].add(tuple(sorted(masks[id(child)] for child in unit.children)))
        elif isinstance(unit, LeafUnit) and len(unit.scope) > 1:
            partitions[scope].add((scope,))
    return partitions


class _Search:
    """Walks over pairs of partitions that meet; every pair is visited once.

    A side of a pair is a tuple of scopes: one scope stands for a unit, several for the
    product of units with these scopes.
    """

    def __init__(self, left: dict[int, set[Partition]], right: dict[int, set[Partition]]) -> None:
        self._left = left
        self._right = right

    def conflict(self, scope: int) -> Conflict | None:
        """Find a conflict below a pair of units."""
        seen: set[tuple[Partition, Partition]] = set()
        stack: list[tuple[Partition, Partition]] = [((scope,), (scope,))]
        while stack:
            pair = stack.pop()
            if pair in seen:
                continue
            seen.add(pair)
            for own in _splits(self._left, pair[0]):
                for other in _splits(self._right, pair[1]):
                    blocks = common_blocks(own, other)
                    if len(blocks) == 1 and len(own) + len(other) > 2:
                        return Conflict.of(own, other)
                    if len(blocks) > 1:
                        stack.extend(
                            (tuple(own[i] for i in left), tuple(other[j] for j in right))
                            for left, right in blocks
                        )
        return None


def _splits(partitions: dict[int, set[Partition]], side: Partition) -> set[Partition]:
    """Ways in which a side may be split further; itself when it cannot."""
    if len(side) > 1:
        return {side}
    return partitions.get(side[0], set()) or {side}
