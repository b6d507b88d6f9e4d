"""Compatibility of two circuits: do they decompose their variables alike?"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from skcircuits.circuits.structure.properties import is_decomposable, is_smooth, scopes_are_laminar
from skcircuits.circuits.structure.units import InputUnit, Product, Scope, topological_order
from skcircuits.exceptions import CircuitPropertyError, IncompatibleCircuitsError, must

if TYPE_CHECKING:
    from skcircuits.circuits.circuit import Circuit

__all__ = ["Conflict", "Partition", "are_compatible", "common_blocks", "find_conflict"]

Partition = tuple[Scope, ...]


class Conflict(NamedTuple):
    """Two products with one scope that cannot be decomposed together.

    Parameters
    ----------
    left, right : tuple of tuple of int
        Scopes of the factors of the two products.
    """

    left: Partition
    right: Partition


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
    if p.variables != q.variables:
        return False
    sound = all(is_smooth(circuit) and is_decomposable(circuit) for circuit in (p, q))
    return sound and find_conflict(p, q) is None


def find_conflict(p: Circuit, q: Circuit) -> Conflict | None:
    """Find two product units that cannot be decomposed together.

    Parameters
    ----------
    p, q : Circuit
        Smooth, decomposable circuits over the same variables.

    Returns
    -------
    Conflict or None
        The first conflict met on the way down; None for compatible circuits.
    """
    left, right = _partitions(p), _partitions(q)
    sides = [partition for side in (left, right) for found in side.values() for partition in found]
    scopes = {scope for partition in sides for scope in partition}
    only_products = all(len(partition) > 1 for partition in sides)
    if only_products and scopes_are_laminar([*left, *right, *scopes]):
        return None
    return _Search(left, right).conflict(p.root.scope, q.root.scope)


def require_compatible(p: Circuit, q: Circuit) -> None:
    """Refuse two circuits that are not compatible.

    Parameters
    ----------
    p, q : Circuit
        The circuits.

    Raises
    ------
    IncompatibleCircuitsError
        Naming what differs: the variables, or the partitions of two product units.
    CircuitPropertyError
        If one of them is not smooth and decomposable.
    """
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


def _partitions(circuit: Circuit) -> dict[Scope, set[Partition]]:
    """All ways in which products split a scope; joint input units keep theirs whole."""
    partitions: dict[Scope, set[Partition]] = defaultdict(set)
    for unit in topological_order(circuit.root):
        if isinstance(unit, Product) and len(unit.children) > 1:
            partitions[unit.scope].add(tuple(sorted(child.scope for child in unit.children)))
        elif isinstance(unit, InputUnit) and len(unit.scope) > 1:
            partitions[unit.scope].add((unit.scope,))
    return partitions


class _Search:
    """Walks over pairs of partitions that meet; every pair is visited once.

    A side of a pair is a tuple of scopes: one scope stands for a unit, several for the
    product of units with these scopes.
    """

    def __init__(
        self, left: dict[Scope, set[Partition]], right: dict[Scope, set[Partition]]
    ) -> None:
        self._left = left
        self._right = right

    def conflict(self, left_scope: Scope, right_scope: Scope) -> Conflict | None:
        """Find a conflict below a pair of units."""
        seen: set[tuple[Partition, Partition]] = set()
        stack: list[tuple[Partition, Partition]] = [((left_scope,), (right_scope,))]
        while stack:
            pair = stack.pop()
            if pair in seen:
                continue
            seen.add(pair)
            for own in _splits(self._left, pair[0]):
                for other in _splits(self._right, pair[1]):
                    blocks = common_blocks(own, other)
                    if len(blocks) == 1 and len(own) + len(other) > 2:
                        return Conflict(own, other)
                    if len(blocks) > 1:
                        stack.extend(blocks)
        return None


def _splits(partitions: dict[Scope, set[Partition]], side: Partition) -> set[Partition]:
    """Ways in which a side may be split further; itself when it cannot."""
    if len(side) > 1:
        return {side}
    return partitions.get(side[0], set()) or {side}


def common_blocks(left: Partition, right: Partition) -> list[tuple[Partition, Partition]]:
    """Group the factors of two products into the finest blocks of equal scope.

    Parameters
    ----------
    left, right : tuple of tuple of int
        Scopes of the factors of two products with the same scope.

    Returns
    -------
    list of pair of partitions
        The scopes of each block on both sides.
    """
    blocks: list[tuple[set[int], list[Scope], list[Scope]]] = []
    for side, scopes in enumerate((left, right)):
        for scope in scopes:
            merged: tuple[set[int], list[Scope], list[Scope]] = (set(scope), [], [])
            merged[side + 1].append(scope)  # type: ignore[union-attr]
            apart = []
            for block in blocks:
                if block[0] & merged[0]:
                    merged[0].update(block[0])
                    merged[1].extend(block[1])
                    merged[2].extend(block[2])
                else:
                    apart.append(block)
            blocks = [*apart, merged]
    return [(tuple(sorted(own)), tuple(sorted(other))) for _, own, other in blocks]
