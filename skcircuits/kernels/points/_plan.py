"""A circuit times a kernel is a circuit again: the plan of an expected kernel against points.

Its units are pairs of a unit and a part of the kernel: sums keep their weights, products become
sums of products (``KernelStructure.split``), input units stand for the expected part. Its size
is |p||k| (Algorithm 1 of Li et al., UAI 2021); for a product kernel it is the circuit itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from skcircuits.circuits.engine._plan import Plan, compile_plan
from skcircuits.circuits.inputs import InputLayer, InputUnit
from skcircuits.circuits.structure._scopes import mask_of
from skcircuits.circuits.structure.units import Product, Scope, Sum, Unit
from skcircuits.kernels.families._structure import KernelStructure, Part
from skcircuits.protocols import IntArray


class InputGroup(NamedTuple):
    """Input units of one scope and one part of the kernel: positions, layer, places in it."""

    positions: IntArray
    layer: InputLayer
    units: IntArray
    part: Part


@dataclass(frozen=True)
class PointPlan:
    """The plan of a circuit times a kernel.

    ``sources`` gives per edge of the plan the edge of ``circuit`` that has its weight, -1 for
    coefficients of the kernel; None where the plan is the circuit's own.
    """

    plan: Plan
    circuit: Plan
    structure: KernelStructure
    inputs: list[InputGroup]
    sources: IntArray | None


def multiply_by_kernel(circuit: Plan, structure: KernelStructure) -> PointPlan:
    """Compile a circuit times a kernel."""
    # Every unit then has one part of the kernel: the circuit's own plan serves.
    if structure.is_product:
        parts = {
            scope: structure.restricted(structure.root, mask_of(scope))
            for scope in {unit.scope for unit in circuit.units if isinstance(unit, InputUnit)}
        }
        groups = _input_groups(circuit, [parts.get(unit.scope, ()) for unit in circuit.units])
        return PointPlan(circuit, circuit, structure, groups, None)
    expansion = _Expansion(structure)
    plan = compile_plan(expansion.expand(circuit.units[circuit.root]))
    groups = _input_groups(plan, [expansion.parts.get(id(unit), ()) for unit in plan.units])
    first_edge = _first_edges(circuit)
    sources = np.full(len(plan.weights.log), -1)
    for unit, start in zip(*_sums_and_edges(plan)):
        origin = expansion.origins.get(id(unit))
        if origin is not None:
            edges = np.arange(len(unit.children))
            sources[start + edges] = first_edge[id(origin)] + edges
    return PointPlan(plan, circuit, structure, groups, sources)


def _sums_and_edges(plan: Plan) -> tuple[list[Unit], list[int]]:
    """The sums of a plan and their first edges."""
    units = [unit for layer in plan.sum_layers for unit in plan.units[layer.units]]
    starts = [layer.edges.start + layer.starts for layer in plan.sum_layers]
    return units, np.concatenate([*starts, np.empty(0, dtype=np.intp)]).tolist()


def _first_edges(plan: Plan) -> dict[int, int]:
    return {id(unit): start for unit, start in zip(*_sums_and_edges(plan))}


def _input_groups(plan: Plan, parts: list[Part]) -> list[InputGroup]:
    """Group the input units of a plan by scope and part; joint ones get layers of their own."""
    groups = []
    for units, layer in plan.inputs:
        members: dict[tuple[Scope, Part], list[int]] = {}
        for place, position in enumerate(range(units.start, units.stop)):
            key = plan.units[position].scope, parts[position]
            members.setdefault(key, []).append(place)
        for (_, part), places in members.items():
            own, which = layer, np.array(places)
            if layer.scopes.shape[1] > 1 and len(members) > 1:
                own = type(layer).stack([plan.units[units.start + place] for place in places])
                which = np.arange(len(places))
            groups.append(InputGroup(units.start + np.array(places), own, which, part))
    return groups


# One unit, or several that stand for their product; and a part of the kernel.
_Key = tuple[tuple[Unit, ...], Part]


class _Expansion:
    """Builds the units of a circuit times a kernel; remembers where they come from."""

    def __init__(self, structure: KernelStructure) -> None:
        self.parts: dict[int, Part] = {}  # by id of the new input unit
        self.origins: dict[int, Sum] = {}  # by id of the new sum
        self._structure = structure
        self._done: dict[Hashable, Unit] = {}

    def expand(self, root: Unit) -> Unit:
        """Multiply a circuit by the kernel, without recursion: circuits may be deep."""
        stack: list[_Key] = [((root,), self._structure.root)]
        while stack:
            key = stack[-1]
            waiting = [below for below in self._below(key) if _name(below) not in self._done]
            if waiting:
                stack.extend(waiting)
                continue
            stack.pop()
            if _name(key) not in self._done:
                self._done[_name(key)] = self._combine(key)
        return self._done[_name(((root,), self._structure.root))]

    def _below(self, key: _Key) -> Iterable[_Key]:
        """Pairs that the value of a pair follows from."""
        units, part = key
        if len(units) == 1 and isinstance(units[0], Sum):
            return [((child,), part) for child in units[0].children]
        if len(units) == 1 and isinstance(units[0], Product):
            return [(units[0].children, part)]
        if len(units) == 1:
            return []
        first, second = _halves(units)
        splits = self._split(first, second, part)
        return [pair for _, own, other in splits for pair in ((first, own), (second, other))]

    def _split(
        self, first: tuple[Unit, ...], second: tuple[Unit, ...], part: Part
    ) -> list[tuple[float, Part, Part]]:
        masks = (mask_of(v for unit in side for v in unit.scope) for side in (first, second))
        return self._structure.split(part, *masks)

    def _combine(self, key: _Key) -> Unit:
        units, part = key
        below = [self._done[_name(pair)] for pair in self._below(key)]
        if len(units) == 1 and isinstance(units[0], Sum):
            result: Unit = Sum(below, weights=units[0].weights)
            self.origins[id(result)] = units[0]
            return result
        if len(units) == 1 and isinstance(units[0], Product):
            return below[0]
        if len(units) == 1:
            # A copy for each part: what a unit stands for is found by its identity.
            result = copy(units[0])
            self.parts[id(result)] = part
            return result
        sides = _halves(units)
        splits = self._split(*sides, part)
        products = []
        for pair in zip(below[::2], below[1::2], strict=True):
            # A product of several factors of the circuit stays one product.
            nested = [len(side) > 1 and isinstance(u, Product) for side, u in zip(sides, pair)]
            factors = [u.children if join else (u,) for u, join in zip(pair, nested)]
            products.append(Product([*factors[0], *factors[1]]))
        if [weight for weight, _, _ in splits] == [1.0]:
            return products[0]
        return Sum(products, weights=[weight for weight, _, _ in splits])


def _halves(units: tuple[Unit, ...]) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
    return units[: len(units) // 2], units[len(units) // 2 :]


def _name(key: _Key) -> Hashable:
    return tuple(id(unit) for unit in key[0]), key[1]
