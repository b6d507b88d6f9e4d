"""Units: immutable nodes of the symbolic representation, combined with ``+`` and ``*``.

Units are shared by reference: if an object is used in two places, the result is a graph, not a
tree.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, is_
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from skcircuits.exceptions import CircuitPropertyError, invalid, must
from skcircuits.numerics._arrays import float_array, listed
from skcircuits.protocols import BoolArray, FloatArray, ImmutableMixin, IntArray, WithoutCaches

# Factors are kept as weights of at most this size in log space, which a float can hold.
MAX_LOG_WEIGHT = 600.0
# More sums than this would only be a slow way to run out of memory.
MAX_SCALING_SUMS = 100_000
# Smaller floats have fewer digits.
MIN_LOG_WEIGHT = float(np.log(np.finfo(np.float64).tiny))

# One variable among so many is inserted instead of sorting all of them.
_FEW = 16

_Node = TypeVar("_Node")
_Value = TypeVar("_Value")

#: Sorted numbers of variables.
Scope = tuple[int, ...]


class Immutable(WithoutCaches):
    """An object whose attributes are set once, when it is made."""

    def __setattr__(self, name: str, value: object) -> None:
        """Set an attribute that is not set yet; refuse to change one."""
        # Setting once is how units are made; cached properties set themselves
        if name in vars(self) or isinstance(getattr(type(self), name, None), cached_property):
            condition = "stay as they are"
            way_out = "Build a new one: circuits share their units and remember what they compile."
            raise AttributeError(
                must(f"attributes of a {type(self).__name__}", condition, way_out, name=name)
            )
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        """Refuse to take an attribute away."""
        raise AttributeError(
            must(f"attributes of a {type(self).__name__}", "stay as they are", name=name)
        )


class Unit(Immutable, ImmutableMixin):
    """A node of a circuit: a function of the variables in its scope.

    Units are immutable. ``p * q`` makes a product, ``0.3 * p + 0.7 * q`` a sum.
    """

    children: tuple[Unit, ...] = ()

    @property
    def scope(self) -> Scope:
        """The variables the unit depends on."""
        raise NotImplementedError

    def __mul__(self, other: object) -> Unit | WeightedUnit:
        """Multiply with a unit (a product) or with a number (a weighted term)."""
        return _multiply(WeightedUnit(1.0, self), other)

    __rmul__ = __mul__

    def __add__(self, other: object) -> Sum:
        """Add another unit or weighted term."""
        return WeightedUnit(1.0, self) + other


class LeafUnit(Unit):
    """A unit without children: a distribution over one or a few variables."""

    #: The variables the unit depends on.
    scope: Scope = ()

    def possible_states(self) -> BoolArray | None:
        """Which states have positive probability, shape (n_states,); None if not discrete."""
        return None

    def possible_intervals(self) -> FloatArray | None:
        """Intervals outside of which the density is zero, shape (n, 2); None for all numbers."""
        return None


class Rooted(Protocol):
    """An object with a root unit, such as a circuit."""

    @property
    def root(self) -> Unit:
        """The root."""


class WeightedUnit:
    """A unit with a factor, such as ``0.3 * p``: a term of a sum.

    ``weight``: non-negative factor; ``unit``: the unit.
    """

    def __init__(self, weight: float, unit: Unit) -> None:
        if not (np.isfinite(weight) and weight >= 0):
            raise invalid("weight of a unit", "be finite and non-negative", weight=float(weight))
        self.weight = float(weight)
        self.unit = unit

    def __mul__(self, other: object) -> Unit | WeightedUnit:
        """Multiply with a unit, a weighted term or a number."""
        return _multiply(self, other)

    __rmul__ = __mul__

    def __add__(self, other: object) -> Sum:
        """Add terms into one sum unit; sums written inline grow by a term."""
        if not isinstance(other, WeightedUnit | Unit):
            return NotImplemented
        terms = [*_terms(self), *_terms(other)]
        return Sum([unit for _, unit in terms], weights=[weight for weight, _ in terms])


def _multiply(left: WeightedUnit, right: object) -> Unit | WeightedUnit:
    """Multiply a term with a number, a unit or a term; a factor of one is dropped."""
    # True * unit would be a silent mistake: booleans are no weights
    if isinstance(right, int | float | np.integer | np.floating) and not isinstance(right, bool):
        return WeightedUnit(left.weight * float(right), left.unit)
    if not isinstance(right, WeightedUnit | Unit):
        return NotImplemented
    other = right if isinstance(right, WeightedUnit) else WeightedUnit(1.0, right)
    product = Product([*_factors(left.unit), *_factors(other.unit)])
    weight = left.weight * other.weight
    # Sums of one child only where a factor needs one
    return product if weight == 1.0 else WeightedUnit(weight, product)


def _factors(unit: Unit) -> tuple[Unit, ...]:
    """Factors of a product, so that ``a * b * c`` is one unit with three children."""
    return unit.children if isinstance(unit, Product) else (unit,)


def _terms(term: WeightedUnit | Unit) -> list[tuple[float, Unit]]:
    """Terms of a sum, so that ``a + b + c`` is one unit with three children."""
    weight, unit = (term.weight, term.unit) if isinstance(term, WeightedUnit) else (1.0, term)
    if isinstance(unit, Sum):
        return [(weight * float(w), child) for w, child in zip(unit.weights, unit.children)]
    return [(weight, unit)]


def as_unit(term: Unit | WeightedUnit) -> Unit:
    """The unit of a term: ``Sum([unit], weights=[weight])`` of a weighted one; else TypeError."""
    if isinstance(term, Unit):
        return term
    if isinstance(term, WeightedUnit):
        return Sum([term.unit], weights=[term.weight])
    way_out = "Combine Categorical(...), Gaussian(...) and the like with + and *."
    raise TypeError(must("a circuit", "be built from units", way_out, unit=type(term).__name__))


class InnerUnit(Unit):
    """A unit with children."""

    @cached_property
    def scope(self) -> Scope:
        """The variables the unit depends on, gathered when they are asked for."""
        # Of chains, the scopes of all units would take far more time and memory than the units
        scopes: set[Scope] = set()
        seen = {id(self)}
        stack: list[Unit] = [self]
        while stack:
            for child in stack.pop().children:
                if id(child) not in seen:
                    seen.add(id(child))
                    if child.children and "scope" not in vars(child):
                        stack.append(child)
                    else:
                        scopes.add(child.scope)
        return union_of_scopes(scopes)


class Product(InnerUnit):
    """A product of units with disjoint scopes.

    Parameters
    ----------
    children : sequence of Unit
        The factors, at least one.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Product
    >>> Product([Bernoulli(0, 0.2), Bernoulli(1, 0.5)]).scope
    (0, 1)
    """

    def __init__(self, children: Iterable[Unit]) -> None:
        self.children = _checked_children(children, "product")


class Sum(InnerUnit):
    """A weighted sum (mixture) of units with the same scope.

    Parameters
    ----------
    children : sequence of Unit
        The terms, at least one.
    weights : sequence of float, default=None
        One non-negative weight per child; None means that all weights are one. A sum of normalised
        children is normalised if the weights sum to one.

    Attributes
    ----------
    weights : ndarray of shape (n_children,)
        The weights, as a read-only array.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Sum
    >>> Sum([Bernoulli(0, 0.2), Bernoulli(0, 0.7)], weights=[0.5, 0.5]).weights
    array([0.5, 0.5])
    """

    def __init__(
        self, children: Iterable[Unit], weights: Sequence[float] | FloatArray | None = None
    ) -> None:
        self.children = _checked_children(children, "sum")
        values = np.ones(len(self.children)) if weights is None else weights
        # A copy of one's own: the caller's array may change afterwards
        self.weights = float_array(values, "weights").copy()
        self.weights.flags.writeable = False
        if self.weights.shape != (len(self.children),):
            condition = f"have one entry for each of its {len(self.children)} children"
            raise invalid("weights of a sum unit", condition, shape=self.weights.shape)
        if not (np.isfinite(self.weights).all() and (self.weights >= 0).all()):
            # The first of perhaps thousands
            child = int(np.flatnonzero(~(np.isfinite(self.weights) & (self.weights >= 0)))[0])
            condition = "be finite and non-negative"
            weight = float(self.weights[child])
            raise invalid("weights of a sum unit", condition, child=child, weight=weight)


def linked_product(children: tuple[Unit, ...]) -> Product:
    """Build a product of units that are known to be right, without checks."""
    unit = Product.__new__(Product)
    # Without checks: learners build thousands of units from valid parts
    unit.__dict__["children"] = children
    return unit


def linked_sum(children: tuple[Unit, ...], weights: FloatArray) -> Sum:
    """Build a sum of units that are known to be right, without checks; weights are read-only."""
    unit = Sum.__new__(Sum)
    unit.__dict__.update(children=children, weights=weights)
    return unit


def _checked_children(children: Iterable[Unit], kind: str) -> tuple[Unit, ...]:
    """Children as a tuple, every one a unit, at least one."""
    units = listed(children, f"children of a {kind} unit")
    if not all([isinstance(child, Unit) for child in units]):  # noqa: C419 (a list is faster)
        # Weighted terms become sums with one child.
        units = tuple(as_unit(child) for child in units)
    if not units:
        raise invalid(f"a {kind} unit", "have at least one child", children=[])
    return units


def union_of_scopes(scopes: Collection[Scope]) -> Scope:
    """Sorted union of sorted scopes; one of them where it holds the others."""
    widest = max(scopes, key=len)
    others = {variable for scope in scopes if scope is not widest for variable in scope}
    if len(others) * _FEW > len(widest):
        union = sorted(others.union(widest))
    else:
        # Chains grow by a variable at a time: most of the union is copied
        union = list(widest)
        for variable in others:
            place = bisect_left(union, variable)
            if place == len(union) or union[place] != variable:
                union.insert(place, variable)
    return tuple(union) if len(union) > len(widest) else widest


def scale_unit(unit: Unit, log_factor: float) -> Unit:
    """Multiply a unit by exp(log_factor) in sums with one child each, as many as floats ask for."""
    for weight in scaling_weights(log_factor):
        unit = Sum([unit], weights=[weight])
    return unit


def scaling_weights(log_factor: float) -> list[float]:
    """Weights of the sums with one child that multiply a unit by a number."""
    largest = MAX_SCALING_SUMS * MAX_LOG_WEIGHT
    if not abs(log_factor) <= largest:
        condition = f"lie within ±{largest:g}"
        way_out = "Distributions this far apart are as good as disjoint."
        raise CircuitPropertyError(
            must("logarithm of a factor of a circuit", condition, way_out, log_factor=log_factor)
        )
    # Several sums of equal weight: each factor is a float, their product need not be.
    n_sums = int(np.ceil(abs(log_factor) / MAX_LOG_WEIGHT))
    return [float(np.exp(log_factor / n_sums))] * n_sums if n_sums else []


class Scaled(NamedTuple):
    """A unit, or the constant one in place of None, times ``exp(log_factor)``, which may be no
    float.
    """

    unit: Unit | None
    log_factor: float = 0.0


ZERO = Scaled(None, -np.inf)


def scaled_product(factors: Sequence[Scaled]) -> Scaled:
    """Product of units with disjoint scopes, constants multiplied."""
    log_factor = sum(factor.log_factor for factor in factors)
    units = tuple([factor.unit for factor in factors if factor.unit is not None])
    if log_factor == -np.inf:
        return ZERO
    if len(units) > 1:
        return Scaled(linked_product(units), log_factor)
    return Scaled(units[0] if units else None, log_factor)


def log_weighted_sum(children: Sequence[Unit], log_weights: FloatArray) -> Sum:
    """Sum with weights by their logarithms; those too small for a float go into own sums."""
    weights, apart = split_log_weights(log_weights)
    scaled = [scale_unit(child, own) for child, own in zip(children, apart.tolist())]
    return Sum(scaled, weights=weights)


def split_log_weights(log_weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights that floats can hold, and logarithms of the factors that are left for the terms."""
    # Not even these are dropped: the children they weigh may be as large as they are small.
    is_apart = (log_weights < MIN_LOG_WEIGHT) & ~np.isneginf(log_weights)
    # As much as a float can hold stays here: weights that sum to one still do
    apart = np.where(is_apart, log_weights + MAX_LOG_WEIGHT, 0.0)
    return np.exp(log_weights - apart), apart


def topological_order(root: Unit) -> list[Unit]:
    """List every unit below and including the root once, children before parents."""
    return depth_first(root, attrgetter("children"))


def fold(
    root: Unit,
    of_sum: Callable[[Sum, list[_Value]], _Value],
    of_product: Callable[[list[_Value]], _Value],
    of_leaf: Callable[[Any], _Value],
) -> _Value:
    """Compute a value of every unit from those of its children; gives that of the root."""
    values: dict[int, _Value] = {}
    for unit in topological_order(root):
        below = [values[id(child)] for child in unit.children]
        if isinstance(unit, Sum):
            values[id(unit)] = of_sum(unit, below)
        elif isinstance(unit, Product):
            values[id(unit)] = of_product(below)
        else:
            values[id(unit)] = of_leaf(unit)
    return values[id(root)]


def rebuild(
    root: Unit,
    leaf_of: Callable[[Any], Unit],
    weights_of: Callable[[Sum], FloatArray] | None = None,
) -> Unit:
    """A circuit with other input units and weights; what is shared or does not change stays so."""
    built: dict[int, Unit] = {}
    for unit in topological_order(root):
        children = tuple([built[id(child)] for child in unit.children])
        is_kept = weights_of is None and all(map(is_, children, unit.children))
        if not isinstance(unit, Sum | Product):
            built[id(unit)] = leaf_of(unit)
        elif is_kept:
            built[id(unit)] = unit
        elif isinstance(unit, Product):
            built[id(unit)] = linked_product(children)
        elif weights_of is None:
            built[id(unit)] = linked_sum(children, unit.weights)
        else:
            built[id(unit)] = Sum(children, weights=weights_of(unit))
    return built[id(root)]


def depth_first(root: _Node, below: Callable[[_Node], Sequence[_Node]]) -> list[_Node]:
    """List every node that is reached from a root once, those below a node before it."""
    # Without recursion: circuits may be deep
    order: list[_Node] = []
    seen: set[int] = set()
    stack: list[_Node | None] = [root]
    while stack:
        node = stack.pop()
        if node is None:
            # All below the next node is done
            node = stack.pop()
            assert node is not None
            order.append(node)
        elif id(node) not in seen:
            seen.add(id(node))
            others = below(node)
            if others:
                stack += node, None
                stack += others[::-1]
            else:
                order.append(node)
    return order


SUM, PRODUCT, INPUT = 0, 1, 2


@dataclass(frozen=True, eq=False)
class UnitList(WithoutCaches):
    """Units as arrays, children before parents, without links, which would be pickled by recursion:
    ``kinds`` and ``n_children`` per unit, ``children`` per edge, ``weights`` per edge of a sum.
    """

    kinds: IntArray
    n_children: IntArray
    children: IntArray
    weights: FloatArray
    inputs: Sequence[Unit]

    @classmethod
    def of(cls, units: Sequence[Unit]) -> UnitList:
        """Take the links out."""
        place = {id(unit): i for i, unit in enumerate(units)}
        kinds = [_kind(unit) for unit in units]
        below = [unit.children for unit in units]
        found = cls(
            np.array(kinds, dtype=np.int16),
            np.array([len(children) for children in below], dtype=np.int64),
            np.array([place[id(c)] for children in below for c in children], dtype=np.int64),
            np.concatenate(
                [unit.weights for unit in units if isinstance(unit, Sum)] or [np.empty(0)]
            ),
            [unit for unit, kind in zip(units, kinds) if kind == INPUT],
        )
        # The units themselves, not equal ones: their identities are keys
        vars(found)["linked"] = tuple(units)
        return found

    @cached_property
    def linked(self) -> tuple[Unit, ...]:
        """The units, built around the input units when they are asked for."""
        self.weights.flags.writeable = False
        inputs = iter(self.inputs)
        built: list[Unit] = []
        start = 0
        # Children come first in the list, so that one sweep links everything
        for kind, places in zip(self.kinds.tolist(), self.below()):
            if kind == INPUT:
                built.append(next(inputs))
                continue
            children = tuple([built[place] for place in places])
            if kind == SUM:
                end = start + len(places)
                built.append(linked_sum(children, self.weights[start:end]))
                start = end
            else:
                built.append(linked_product(children))
        # Identities of units are keys: threads that build them at once keep those of the first
        return vars(self).setdefault("linked", tuple(built))

    def below(self) -> list[list[int]]:
        """Places of the children of each unit."""
        places, ends = self.children.tolist(), np.cumsum(self.n_children).tolist()
        return [places[start:end] for start, end in zip([0, *ends], ends)]


def _kind(unit: Unit) -> int:
    """Number of the type of a unit."""
    if isinstance(unit, Sum):
        return SUM
    return PRODUCT if isinstance(unit, Product) else INPUT
