"""Structural properties of circuits and pairs of circuits, which make queries exact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Sequence
from itertools import combinations, product
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from skcircuits.circuits.structure._scopes import (
    Supports,
    VariableSet,
    VariableSets,
    bits_of,
    common_blocks,
    mask_of,
    masks_are_laminar,
    positive_children,
)
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

if TYPE_CHECKING:
    from skcircuits.circuits.circuit import Circuit

_Pair = tuple[Unit, Unit]
# What makes a circuit smooth and decomposable, for errors.
WAY_TO_TRACTABLE = (
    "Give all children of a sum the same scope and all factors of a product disjoint ones."
)


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
    """Raise an error for a circuit that is not provably deterministic.

    ``circuit``: the circuit; ``purpose``: why determinism is needed, as the end of the sentence
    "must be deterministic"; ``way_out``: what to do instead.

    Raises ``CircuitPropertyError`` if it is not provably deterministic.
    """
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
Partition = tuple[VariableSet, ...]


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
    """Find two products of smooth, decomposable circuits that cannot be decomposed together.

    Gives the first conflict met on the way down; None for compatible circuits.
    """
    sets = VariableSets()
    left, right = _partitions(p, sets), _partitions(q, sets)
    sides = [partition for side in (left, right) for found in side.values() for partition in found]
    scopes = {scope for partition in sides for scope in partition}.union(left, right)
    # The usual case in linear time: if all scopes of both form one vtree, there are no conflicts
    only_products = all(len(partition) > 1 for partition in sides)
    if only_products and masks_are_laminar(scope.mask for scope in scopes):
        return None
    # Both circuits have the same variables, so either root will do.
    return _Search(left, right).conflict(sets.of(mask_of(p.variables)))


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


class _Search:
    """Walks over pairs of partitions that meet; every pair is visited once.

    A side of a pair is a tuple of scopes: one scope is that of a unit, several are those
    of a product of units.
    """

    def __init__(
        self,
        left: dict[VariableSet, set[Partition]],
        right: dict[VariableSet, set[Partition]],
    ) -> None:
        self._left = left
        self._right = right

    def conflict(self, scope: VariableSet) -> Conflict | None:
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
                    # One block of several factors: no split of either side respects the other
                    if len(blocks) == 1 and len(own) + len(other) > 2:
                        return Conflict.of(own, other)
                    if len(blocks) > 1:
                        stack.extend(
                            (tuple(own[i] for i in left), tuple(other[j] for j in right))
                            for left, right in blocks
                        )
        return None


def _splits(partitions: dict[VariableSet, set[Partition]], side: Partition) -> set[Partition]:
    """Ways in which a side may be split further; itself when it cannot."""
    if len(side) > 1:
        return {side}
    return partitions.get(side[0], set()) or {side}
