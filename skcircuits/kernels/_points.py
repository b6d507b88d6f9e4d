"""Expected kernels of incomplete rows with complete points by one feedforward pass.

The product of a circuit and a kernel is a circuit. Its units are pairs of a unit and a part of the
kernel: sums keep their weights, products become sums of products (``KernelStructure.split``), and
input units become the expected part. Its size is |p||k| (Algorithm 1 of Li et al., UAI 2021); for a
product kernel it has the size of the circuit. The probability of the observed cells is absorbed
into the sum weights, so that every value is an expectation under a normalised conditional
distribution.

Many points are equal when restricted to the scope of a unit: a binary variable has two values,
however many points there are. Where it pays off, the values of the units of a scope are computed
once per distinct restriction and gathered where scopes are combined.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits._policy import (
    MAX_FRACTION,
    MAX_OUTPUTS,
    MAX_STATES,
    ROW_BYTES,
    TABLE_BYTES,
)
from skcircuits.circuits.engine._layers import ProductLayer, SumLayer, SumWeights
from skcircuits.circuits.engine._passes import LogDensities, feedforward, log_values
from skcircuits.circuits.engine._plan import Plan, compile_plan, remembered
from skcircuits.circuits.inputs import InputLayer, InputUnit
from skcircuits.circuits.queries._marginals import require_possible
from skcircuits.circuits.structure.properties import VariableSet, mask_of
from skcircuits.circuits.structure.units import Product, Scope, Sum, Unit
from skcircuits.kernels.families.base import Combination, KernelStructure, Part, value_of
from skcircuits.kernels.families.product import RBF
from skcircuits.kernels.integrals._gaussian_blocks import Selection, rows_per_block
from skcircuits.kernels.integrals._gaussian_kernels import MAX_EXPANDED, LogExpectedRBF
from skcircuits.kernels.integrals.registry import (
    LogBlocks,
    expected_at_points,
    joint_expectation,
    kind_of_term,
    rules_of,
    scope_terms,
)
from skcircuits.numerics._arrays import Rows, as_run, safe_log
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray

Tables = dict[VariableSet, FloatArray]

# Of a factor of zero: its exponential vanishes beside others, which are at most one
LOG_OF_ZERO, ROUNDING = -1e4, 1e-9


@dataclass(frozen=True)
class Restriction:
    """Which points are equal on a scope: the number of each point's restriction, one of each."""

    inverse: IntArray
    first: IntArray

    @property
    def size(self) -> int:
        """Number of distinct restrictions."""
        return len(self.first)

    @classmethod
    def of(cls, labels: IntArray | FloatArray) -> Restriction:
        """Compare points by labels (m,)."""
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        return cls(inverse.ravel(), first)

    @classmethod
    def combined(cls, parts: Sequence[Restriction]) -> Restriction:
        """Find the points that are equal on several scopes, at least one."""
        result = parts[0]
        for part in parts[1:]:
            # Pairs of numbers as one number: numbers stay below the number of points squared
            result = cls.of(result.inverse * part.size + part.inverse)
        return result


class PointTables:
    """The distinct restrictions of points to all scopes of a plan of univariate input units;
    ``fraction``: their size relative to a column per unit and point.
    """

    def __init__(self, kernel: PointPlan, points: FloatArray) -> None:
        plan = self._plan = kernel.plan
        self._restrictions: dict[VariableSet, Restriction] = {}
        self._index = np.empty(plan.n_units, dtype=np.intp)  # of each unit within its scope
        self._sizes: dict[VariableSet, int] = {}
        for position, scope in enumerate(plan.scopes):
            self._index[position] = self._sizes.setdefault(scope, 0)
            self._sizes[scope] += 1
        self._steps: list[_InputStep | _ProductStep | _SumStep] = []
        for group in kernel.inputs:
            self._add_inputs(kernel, group, points)
        for layer in plan.layers:
            if isinstance(layer, ProductLayer):
                self._add_products(layer)
            else:
                self._add_sums(layer)
        n_cells = sum(n * self._restrictions[scope].size for scope, n in self._sizes.items())
        self.fraction = n_cells / (plan.n_units * max(1, len(points)))
        self.bytes_per_row = 8 * n_cells

    def expected_kernels(self, X: FloatArray, weights: SumWeights) -> FloatArray:
        """E[k(x, s) | observed cells of x], (n, m), by conditional ``weights`` (n_edges, n)."""
        tables: Tables = {
            scope: np.empty((len(X), n, self._restrictions[scope].size))
            for scope, n in self._sizes.items()
        }
        # Rows first: every step reads the weights of all its edges row by row.
        posteriors = np.ascontiguousarray(weights.linear.T)
        for step in self._steps:
            step.run(tables, X, posteriors)
        root = self._plan.root
        scope = self._plan.scopes[root]
        return tables[scope][:, self._index[root], self._restrictions[scope].inverse]

    def _add_inputs(self, kernel: PointPlan, group: InputGroup, points: FloatArray) -> None:
        """One step per variable and part of the kernel."""
        variable = int(group.layer.scopes[group.units[0], 0])
        # Points of few values have few columns here, which is where the time is saved.
        scope = self._plan.scopes[int(group.positions[0])]
        restriction = self._restrictions.get(scope)
        if restriction is None:
            restriction = Restriction.of(points[:, variable])
            self._restrictions[scope] = restriction
        values = points[restriction.first, variable]
        function = kernel.structure.on_variable(group.part, variable)
        index = self._index[group.positions]
        self._steps.append(_InputStep(group.layer, group.units, index, scope, values, function))

    def _add_products(self, layer: ProductLayer) -> None:
        """One step for each way in which products of a layer combine scopes."""
        own = self._plan.scopes
        # Products that put the same scopes together gather the same columns
        groups: dict[tuple[VariableSet, ...], list[int]] = {}
        for i, children in enumerate(layer.children):
            groups.setdefault(tuple([own[child] for child in children]), []).append(i)
        for scopes, members in groups.items():
            positions = np.arange(layer.units.start, layer.units.stop)[members]
            scope = own[positions[0]]
            if scope not in self._restrictions:
                self._restrictions[scope] = Restriction.combined(
                    [self._restrictions[s] for s in scopes]
                )
            # Any point with a restriction gives the restrictions of its parts
            first = self._restrictions[scope].first
            factors = [
                (child, self._index[layer.children[members, i]], self._restrictions[child], first)
                for i, child in enumerate(scopes)
            ]
            self._steps.append(
                _ProductStep(
                    scope,
                    self._index[positions],
                    [(s, rows, restriction.inverse[f]) for s, rows, restriction, f in factors],
                )
            )

    def _add_sums(self, layer: SumLayer) -> None:
        """One step per scope of a layer; sums of one block stay together."""
        positions = np.arange(layer.units.start, layer.units.stop)
        edges = np.arange(layer.edges.start, layer.edges.stop)
        scopes = self._plan.scopes[layer.units]
        groups: dict[VariableSet | int, list[int]] = {}
        for i, scope in enumerate(scopes):
            # Sums of a block have the same children: apart they would not be one matrix product
            block = None if layer.block_shape is None else i // layer.block_shape[1]
            groups.setdefault(scope if block is None else block, []).append(i)
        for members in groups.values():
            lengths = layer.lengths[members]
            own = np.concatenate(
                [np.arange(layer.starts[i], layer.starts[i] + n) for i, n in zip(members, lengths)]
            )
            self._steps.append(
                _SumStep(
                    scopes[members[0]],
                    self._index[positions[members]],
                    self._index[layer.children[own]],
                    edges[own],
                    np.cumsum(lengths) - lengths,
                    layer.block_shape is not None,
                )
            )


@dataclass(frozen=True)
class _InputStep:
    """Expected factors of the units of one variable."""

    layer: InputLayer
    units: IntArray
    index: IntArray
    scope: VariableSet
    values: FloatArray
    function: Combination

    def run(self, tables: Tables, X: FloatArray, posteriors: FloatArray) -> None:
        cells = X[:, self.scope.variables[0]]
        missing = np.isnan(cells)
        table = tables[self.scope]
        if missing.any():
            expected = expected_at_points(self.layer, self.units, self.function, self.values)
            table[np.ix_(missing, self.index)] = expected
        if not missing.all():
            # Observed cells have the kernel's own value, missing ones its expectation
            observed = value_of(self.function, cells[~missing, None], self.values)
            table[np.ix_(~missing, self.index)] = observed[:, None, :]


@dataclass(frozen=True)
class _ProductStep:
    """Products of units of some scopes: per scope the units and the gathered columns."""

    scope: VariableSet
    index: IntArray
    factors: list[tuple[VariableSet, IntArray, IntArray]]

    def run(self, tables: Tables, X: FloatArray, posteriors: FloatArray) -> None:
        result = None
        for scope, units, columns in self.factors:
            values = np.take(tables[scope][:, units], columns, axis=2)
            result = values if result is None else np.multiply(result, values, out=result)
        tables[self.scope][:, self.index] = result


@dataclass(frozen=True)
class _SumStep:
    """Sums of one scope: a matrix product where they share their children."""

    scope: VariableSet
    index: IntArray
    children: IntArray
    edges: IntArray
    starts: IntArray
    is_block: bool

    def run(self, tables: Tables, X: FloatArray, posteriors: FloatArray) -> None:
        table = tables[self.scope]
        weights = posteriors[:, self.edges]
        if self.is_block:
            matrices = weights.reshape(len(X), len(self.index), -1)
            # All sums of a block have the children of its first
            children = self.children[: matrices.shape[2]]
            table[:, self.index] = matrices @ table[:, children]
        else:
            terms = table[:, self.children]
            terms *= weights[:, :, None]
            table[:, self.index] = np.add.reduceat(terms, self.starts, axis=1)


class InputGroup(NamedTuple):
    """Input units of one scope and one part of the kernel: positions, layer, places in it."""

    positions: IntArray
    layer: InputLayer
    units: IntArray
    part: Part


@dataclass(frozen=True)
class PointPlan:
    """The plan of a circuit times a kernel."""

    plan: Plan
    circuit: Plan
    structure: KernelStructure
    inputs: list[InputGroup]
    sources: IntArray | None  # edges of `circuit` with the weights, or -1; None: its own plan


def multiply_by_kernel(circuit: Plan, structure: KernelStructure) -> PointPlan:
    """Compile a circuit times a kernel."""
    # Every unit then has one part of the kernel: the circuit's own plan serves.
    if structure.is_product:
        parts = {
            scope: structure.restricted(structure.root, mask_of(scope))
            for scope in {unit.scope for unit in circuit.units if isinstance(unit, InputUnit)}
        }
        inputs = circuit.units[: circuit.inputs[-1][0].stop]
        groups = _input_groups(circuit, [parts[unit.scope] for unit in inputs])
        return PointPlan(circuit, circuit, structure, groups, None)
    expansion = _Expansion(structure, dict(zip(map(id, circuit.units), circuit.scopes)))
    plan = compile_plan(expansion.expand(circuit.units[circuit.root]))
    groups = _input_groups(plan, [expansion.parts.get(id(unit), ()) for unit in plan.units])
    # New sums come from sums of the circuit, or from sums of the kernel that have fixed
    # coefficients
    first_edge = {id(unit): start for unit, start in zip(*_sums_and_edges(circuit))}
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
            # Joint units are evaluated by the layer: each part of the kernel takes its own
            if layer.scopes.shape[1] > 1 and len(members) > 1:
                own = type(layer).stack([plan.units[units.start + place] for place in places])
                which = np.arange(len(places))
            groups.append(InputGroup(units.start + np.array(places), own, which, part))
    return groups


# One unit, or several for their product; and a part of the kernel.
_Key = tuple[tuple[Unit, ...], Part]


class _Expansion:
    """Builds the units of a circuit times a kernel; remembers where they come from."""

    def __init__(self, structure: KernelStructure, scopes: dict[int, VariableSet]) -> None:
        self._scopes = scopes  # by id of the unit
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
        # Halves, not one factor after the other: wide products stay shallow
        first, second = _halves(units)
        splits = self._split(first, second, part)
        return [pair for _, own, other in splits for pair in ((first, own), (second, other))]

    def _split(
        self, first: tuple[Unit, ...], second: tuple[Unit, ...], part: Part
    ) -> list[tuple[float, Part, Part]]:
        masks = (reduce(or_, (self._scopes[id(u)].mask for u in side)) for side in (first, second))
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
            # A copy for each part: the meaning of a unit is found by its identity.
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


def expected_kernels_at_points(
    kernel: PointPlan, X: FloatArray, points: FloatArray, weights: SumWeights | None = None
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Yield numbers (p,) of rows, each once in no particular order, and E[k(x, s) | observed cells
    of x] (p, m) at complete points s, by conditional ``weights`` (n_edges, n).
    """
    tables = _point_tables(kernel, points)
    if tables is not None:
        for block in row_slices(len(X), max(1, TABLE_BYTES // max(1, tables.bytes_per_row))):
            given = None if weights is None else SumWeights(weights.log[:, block])
            own = _weights(kernel, X[block], given)
            yield np.arange(block.start, block.stop), tables.expected_kernels(X[block], own)
        return
    mixture = _Mixture.of(kernel, X, points)
    if mixture is not None:
        for rows, posteriors, values in mixture.components(weights):
            yield rows, np.einsum("kp,kpm->pm", posteriors, values)
        return
    plan, weights = kernel.plan, _weights(kernel, X, weights)
    for rows, streamed, log_values_of_rows in _row_blocks(kernel, X, points):
        values = np.empty((plan.n_units, len(rows), len(points)))
        for group in kernel.inputs:
            if group is not streamed:
                _write_inputs(kernel, group, X[rows], points, values)
                continue
            values[group.positions] = np.exp(log_values_of_rows, out=log_values_of_rows)
        shared = SumWeights(weights.log[:, rows, None])
        yield rows, feedforward(plan, values, "linear", shared)[plan.root]


def expected_kernel_products(
    kernel: PointPlan, X: FloatArray, points: FloatArray, coefficients: FloatArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """`expected_kernels_at_points` times (m,) or (m, c): yields rows (p,), and (p,) or (p, c)."""
    has_few_outputs = coefficients.size <= MAX_OUTPUTS * len(points)
    mixture = _Mixture.of(kernel, X, points) if has_few_outputs else None
    if mixture is None:
        for rows, values in expected_kernels_at_points(kernel, X, points):
            yield rows, values @ coefficients
        return
    for rows, weights, values in mixture.components():
        # The sum over points comes before that over components: no mixture of kernels is formed
        products = values @ coefficients.reshape(len(points), -1)
        found = np.einsum("kp,kpc->pc", weights, products)
        yield rows, found.reshape(len(rows), *coefficients.shape[1:])


@dataclass(frozen=True, eq=False)
class _Mixture:
    """A mixture of products of input units, of which one per product may be joint, at some rows."""

    kernel: PointPlan
    X: FloatArray
    n_points: int
    n_components: int
    joint: tuple[InputGroup, IntArray, LogBlocks] | None  # which of its units each component has
    columns: _ColumnFactors | None

    @classmethod
    def of(cls, kernel: PointPlan, X: FloatArray, points: FloatArray) -> _Mixture | None:
        """Divide the factors; None for other circuits, and kernels without closed logarithms."""
        factors = _factors_of_components(kernel.plan) if kernel.sources is None else None
        if factors is None:
            return None
        n_inputs = kernel.plan.inputs[-1][0].stop
        owner, place = np.empty((2, n_inputs), dtype=np.intp)
        for number, group in enumerate(kernel.inputs):
            owner[group.positions], place[group.positions] = number, group.units
        joint, columns = None, []
        for scope, positions in factors.items():
            groups = {number: kernel.inputs[number] for number in owner[positions].tolist()}
            if len(scope.variables) == 1:
                (variable,) = scope.variables
                part = next(iter(groups.values())).part
                function = kernel.structure.on_variable(part, variable)
                own = [(group, owner[positions] == number) for number, group in groups.items()]
                if function != [(1.0, None)]:
                    columns.append(_Column(variable, function, own, place[positions]))
                continue
            (group, *others) = groups.values()
            blocks = None if others or joint else _log_blocks(kernel, group, X, points)
            if blocks is None:
                return None
            joint = group, place[positions], blocks
        found = _ColumnFactors.of(columns, X, points) if columns else None
        if columns and found is None:
            return None
        return cls(kernel, X, len(points), len(positions), joint, found)

    def components(
        self, weights: SumWeights | None = None
    ) -> Iterator[tuple[IntArray, FloatArray, FloatArray]]:
        """Yield rows (p,), weights (L, p) and expected kernels (L, p, m), until the next block, of
        the components that count.
        """
        # Densities and kernels share the conditional distributions of the rows
        evidence = None if self.joint is None else {self.joint[0].layer: self.joint[2]}
        own = _weights(self.kernel, self.X, weights, evidence).linear
        if not self.kernel.plan.sum_layers:
            own = np.ones((1, len(self.X)))
        for rows, which, logs in self._log_blocks(own):
            if self.columns is not None:
                self.columns.add_to(logs, rows)
            chosen = own[:, rows] if which is None else own[which, rows]
            yield rows, chosen, np.exp(logs, out=logs)

    def _log_blocks(self, weights: FloatArray) -> Iterator[Selection]:
        """Logarithms of the joint factors, or zeros, of all components or those that count."""
        if self.joint is None:
            n_rows = rows_per_block(self.n_components, self.n_points)
            buffer = np.empty((self.n_components, min(n_rows, len(self.X)), self.n_points))
            for block in row_slices(len(self.X), n_rows):
                logs = buffer[:, : block.stop - block.start]
                logs[:] = 0.0
                yield np.arange(block.start, block.stop), None, logs
            return
        _, units, blocks = self.joint
        in_order = np.array_equal(units, np.arange(len(self.joint[0].layer)))
        if isinstance(blocks, LogExpectedRBF) and in_order and self.columns is None:
            yield from blocks.relevant(weights)
            return
        own = as_run(units)
        for rows, logs in blocks:
            yield rows, None, logs[own]


@remembered
def _factors_of_components(plan: Plan) -> dict[VariableSet, IntArray] | None:
    """Positions (K,) of the input units of the components by scope; None for other circuits than
    mixtures of products with the same scopes.
    """
    if any(isinstance(layer, SumLayer) for layer in plan.layers[:-1]):
        return None
    parts = [[i] for i in range(plan.inputs[-1][0].stop)]
    for layer in plan.layers:
        if isinstance(layer, ProductLayer):
            parts += [[i for child in own for i in parts[child]] for own in layer.children]
    components = [parts[child] for layer in plan.sum_layers for child in layer.children]
    components = components or [parts[-1]]
    scopes = [{plan.scopes[i]: i for i in component} for component in components]
    if any(own.keys() != scopes[0].keys() for own in scopes):
        return None
    return {scope: np.array([own[scope] for own in scopes]) for scope in scopes[0]}


class _Column(NamedTuple):
    """The factors of one column: groups with the components (K,) they have, units (K,) in them."""

    variable: int
    function: Combination  # the kernel
    groups: list[tuple[InputGroup, BoolArray]]
    units: IntArray

    def expected(self, points: FloatArray) -> FloatArray:
        """Expected kernels (K, m) where the cell is missing."""
        values = np.empty((len(self.units), len(points)))
        for group, own in self.groups:
            targets = points[:, self.variable]
            values[own] = expected_at_points(group.layer, self.units[own], self.function, targets)
        return values

    def observed(
        self, X: FloatArray, points: FloatArray, max_reach: float
    ) -> tuple[FloatArray, FloatArray] | None:
        """Features (n, w) of cells and (w, m) of points, whose product is the logarithm of the
        kernel, zero where missing; None where no such product is exact.
        """
        cells, targets = X[:, self.variable], points[:, self.variable]
        is_seen = ~np.isnan(cells)
        if self.groups[0][0].layer.is_discrete:
            states = np.unique(cells[is_seen])
            at_states = value_of(self.function, states[:, None], targets)
            if len(states) > MAX_STATES or not _are_factors(at_states):
                return None
            return (cells[:, None] == states).astype(np.float64), _log_factors(at_states)
        ((weight, kernel), *others) = self.function
        if others or weight != 1.0 or not isinstance(kernel, RBF):
            return None
        # Differences are expanded into products: centred, they lose no digits
        centre = targets.mean()
        x, s = np.where(is_seen, cells - centre, 0.0), targets - centre
        with np.errstate(over="ignore"):
            squares = np.square(x), np.square(s)
            reach = kernel.gamma * max(own.max(initial=0.0) for own in squares)
        if reach > max_reach:
            return None
        own = np.column_stack([2.0 * x, is_seen, squares[0]])
        return own, kernel.gamma * np.vstack([s, -squares[1], -np.ones(len(s))])


class _ColumnFactors(NamedTuple):
    """Logarithms of the factors of columns that are independent given the component.

    That of a missing cell is the same for all rows, that of an observed one for all components.
    """

    is_missing: FloatArray  # (n, J)
    expected: FloatArray  # (K, J, m), of missing cells
    cells: FloatArray  # (n, w), features of observed cells
    features: FloatArray  # (w, m), of the points: the product with cells is their logarithm

    @classmethod
    def of(cls, columns: list[_Column], X: FloatArray, points: FloatArray) -> _ColumnFactors | None:
        """Tabulate the factors; None where they may leave [0, 1], or no products give them."""
        cells, features = [], []
        for column in columns:
            found = column.observed(X, points, MAX_EXPANDED / len(columns))
            if found is None:
                return None
            cells.append(found[0])
            features.append(found[1])
        is_missing = np.isnan(X[:, [column.variable for column in columns]])
        # Columns without missing cells need no expectations
        met = np.flatnonzero(is_missing.any(axis=0))
        expected = np.zeros((len(columns[0].units), len(met), len(points)))
        for place, number in enumerate(met.tolist()):
            expected[:, place] = columns[number].expected(points)
        if not _are_factors(expected):
            return None
        return cls(
            is_missing[:, met].astype(np.float64),
            _log_factors(expected),
            np.hstack(cells),
            np.vstack(features),
        )

    def add_to(self, logs: FloatArray, rows: Rows) -> None:
        """Add the logarithms of the factors of some rows to those of other factors (K, p, m)."""
        logs += self.is_missing[rows] @ self.expected
        logs += self.cells[rows] @ self.features


def _are_factors(values: FloatArray) -> bool:
    """Tell whether all values are between zero and one."""
    return bool(values.min(initial=0.0) >= 0.0 and values.max(initial=0.0) <= 1.0 + ROUNDING)


def _log_factors(values: FloatArray) -> FloatArray:
    """Logarithms of factors between zero and one, finite ones of zeros, too: the factors that a row
    does not have are multiplied by zero.
    """
    return np.maximum(safe_log(values), LOG_OF_ZERO)


def _point_tables(kernel: PointPlan, points: FloatArray) -> PointTables | None:
    """Tables of distinct restrictions, where points repeat themselves enough to pay."""
    plan = kernel.plan
    if any(layer.scopes.shape[1] > 1 for _, layer in plan.inputs):
        return None
    # One sort of the whole table: few points would feel a call for each column.
    ordered = np.sort(points[:, list(plan.variables)], axis=0)
    n_distinct = ordered.shape[1] + np.count_nonzero(ordered[1:] != ordered[:-1])
    if n_distinct > MAX_FRACTION * ordered.size:
        return None
    tables = PointTables(kernel, points)
    return tables if tables.fraction <= MAX_FRACTION else None


def _row_blocks(
    kernel: PointPlan, X: FloatArray, points: FloatArray
) -> Iterator[tuple[IntArray, InputGroup | None, Any]]:
    """Cut rows into blocks for the cache; a group of joint units may stream its log values."""
    for group in kernel.inputs:
        blocks = _log_blocks(kernel, group, X, points)
        if blocks is not None:
            for rows, values in blocks:
                yield rows, group, values
            return
    # Values of all units at the rows and points of a block are held at once
    n_rows = max(1, ROW_BYTES // (8 * kernel.plan.n_units * max(1, len(points))))
    for block in row_slices(len(X), n_rows):
        yield np.arange(block.start, block.stop), None, None


def _log_blocks(
    kernel: PointPlan, group: InputGroup, X: FloatArray, points: FloatArray
) -> LogBlocks | None:
    """The values of a group as a stream, where it has one."""
    found = _streamed_term(kernel, group)
    if found is None:
        return None
    blocks, functions = found
    columns = group.layer.scopes[0]
    return blocks(group.layer, functions, X[:, columns], points[:, columns])


def _streamed_term(
    kernel: PointPlan, group: InputGroup
) -> tuple[Callable[..., LogBlocks], Any] | None:
    """What streams the values of a group; None for univariate units and sums of kernels."""
    if group.layer.scopes.shape[1] == 1 or len(group.positions) < len(group.layer):
        return None
    terms = scope_terms(kernel.structure, group.part, group.layer)
    kind = kind_of_term(group.layer, terms[0][1])
    blocks = None if kind is None else rules_of(group.layer, kind).log_blocks
    # Logarithms of one term can be streamed; sums of several need the values themselves.
    if blocks is None or len(terms) > 1 or terms[0][0] != 1.0:
        return None
    return blocks, terms[0][1].functions


def _weights(
    kernel: PointPlan,
    X: FloatArray,
    weights: SumWeights | None = None,
    evidence: Mapping[InputLayer, LogDensities] | None = None,
) -> SumWeights:
    """Weights of the circuits of rows, in the plan of the circuit times the kernel."""
    weights = posterior_weights(kernel.circuit, X, evidence) if weights is None else weights
    if kernel.sources is None:
        return weights
    # Coefficients of the kernel are the same under every row; the others are the row's weights.
    is_constant = kernel.sources < 0
    log = np.empty((len(kernel.sources), len(X)))
    log[is_constant] = kernel.plan.weights.log[is_constant, None]
    log[~is_constant] = weights.log[kernel.sources[~is_constant]]
    return SumWeights(log)


def posterior_weights(
    plan: Plan, X: FloatArray, evidence: Mapping[InputLayer, LogDensities] | None = None
) -> SumWeights:
    """Weights (n_edges, n) of the circuits given observed cells, θ_c p_c(x_o) / p_n(x_o)."""
    if not plan.sum_layers and not any(layer.is_discrete for _, layer in plan.inputs):
        # Nothing to choose from, and a density is positive everywhere.
        return SumWeights(np.empty((0, len(X))))
    values = log_values(plan, X, evidence)
    require_possible(plan, values[plan.root])
    posteriors = np.empty((len(plan.weights.log), len(X)))
    for layer in plan.sum_layers:
        posteriors[layer.edges] = layer.log_posteriors(values, plan.weights)
    return SumWeights(posteriors)


def _write_inputs(
    kernel: PointPlan, group: InputGroup, X: FloatArray, points: FloatArray, values: FloatArray
) -> None:
    """Write the expected part of each unit of a group at each row and point."""
    columns = group.layer.scopes[group.units[0]]
    if len(columns) > 1:
        terms = scope_terms(kernel.structure, group.part, group.layer)
        own = joint_expectation((group.layer,), terms, (X[:, columns], points[:, columns]))
        values[group.positions] = own[group.units]
        return
    function = kernel.structure.on_variable(group.part, int(columns[0]))
    cells, targets = X[:, columns[0]], points[:, columns[0]]
    missing = np.isnan(cells)
    if missing.any():
        expected = expected_at_points(group.layer, group.units, function, targets)
        values[np.ix_(group.positions, missing)] = expected[:, None, :]
    if not missing.all():
        observed = value_of(function, cells[~missing, None], targets)
        values[np.ix_(group.positions, ~missing)] = observed
