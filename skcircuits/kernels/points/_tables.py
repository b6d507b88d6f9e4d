"""Expected kernels against points that repeat themselves: one column per distinct point.

Restricted to the scope of a unit, many points are equal: a binary variable has two values,
whatever their number. So the values of the units of a scope are computed once per distinct
restriction and gathered where scopes are put together. On discrete tables this leaves a few
per cent of the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skcircuits.circuits.engine._layers import ProductLayer, SumLayer, SumWeights
from skcircuits.circuits.inputs import InputLayer
from skcircuits.circuits.structure.units import Scope
from skcircuits.kernels.families._structure import Combination, value_of
from skcircuits.kernels.integrals.registry import expected_at_points
from skcircuits.kernels.points._plan import InputGroup, PointPlan
from skcircuits.protocols import FloatArray, IntArray

Tables = dict[Scope, FloatArray]


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
    def of(cls, labels: IntArray) -> Restriction:
        """Compare points by labels (m,)."""
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        return cls(inverse.ravel(), first)

    @classmethod
    def combined(cls, parts: Sequence[Restriction]) -> Restriction:
        """Find the points that are equal on several scopes, at least one."""
        result = parts[0]
        for part in parts[1:]:
            result = cls.of(result.inverse * part.size + part.inverse)
        return result


class PointTables:
    """The distinct restrictions of points to all scopes of a plan of univariate input units.

    ``fraction`` is the size of all tables relative to one column per unit and point,
    ``bytes_per_row`` what they take for one row.
    """

    def __init__(self, kernel: PointPlan, points: FloatArray) -> None:
        plan = self._plan = kernel.plan
        self._restrictions: dict[Scope, Restriction] = {}
        self._index = np.empty(plan.n_units, dtype=np.intp)  # of each unit within its scope
        self._sizes: dict[Scope, int] = {}
        for position, unit in enumerate(plan.units):
            self._index[position] = self._sizes.setdefault(unit.scope, 0)
            self._sizes[unit.scope] += 1
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
        """E[k(x, s) | observed cells of x], shape (n, m).

        ``weights`` (n_edges, n) are those of the conditional circuit of each row.
        """
        tables: Tables = {
            scope: np.empty((len(X), n, self._restrictions[scope].size))
            for scope, n in self._sizes.items()
        }
        # Rows first: every step reads the weights of all its edges row by row.
        posteriors = np.ascontiguousarray(weights.linear.T)
        for step in self._steps:
            step.run(tables, X, posteriors)
        root = self._plan.root
        scope = self._plan.units[root].scope
        return tables[scope][:, self._index[root], self._restrictions[scope].inverse]

    def _add_inputs(self, kernel: PointPlan, group: InputGroup, points: FloatArray) -> None:
        """One step per variable and part of the kernel."""
        variable = int(group.layer.scopes[group.units[0], 0])
        # Points of few values have few columns here, which is where the time is saved.
        values, inverse = np.unique(points[:, variable], return_inverse=True)
        self._restrictions.setdefault((variable,), Restriction.of(inverse.ravel()))
        function = kernel.structure.on_variable(group.part, variable)
        index = self._index[group.positions]
        self._steps.append(_InputStep(group.layer, group.units, index, variable, values, function))

    def _add_products(self, layer: ProductLayer) -> None:
        """One step per way in which the products of a layer put scopes together."""
        units = self._plan.units
        groups: dict[tuple[Scope, ...], list[int]] = {}
        for i, children in enumerate(layer.children):
            groups.setdefault(tuple(units[child].scope for child in children), []).append(i)
        for scopes, members in groups.items():
            positions = np.arange(layer.units.start, layer.units.stop)[members]
            scope = units[positions[0]].scope
            if scope not in self._restrictions:
                self._restrictions[scope] = Restriction.combined(
                    [self._restrictions[s] for s in scopes]
                )
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
        scopes = [self._plan.units[position].scope for position in positions]
        groups: dict[Scope | int, list[int]] = {}
        for i, scope in enumerate(scopes):
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
    variable: int
    values: FloatArray
    function: Combination

    def run(self, tables: Tables, X: FloatArray, posteriors: FloatArray) -> None:
        cells = X[:, self.variable]
        missing = np.isnan(cells)
        table = tables[(self.variable,)]
        if missing.any():
            expected = expected_at_points(self.layer, self.units, self.function, self.values)
            table[np.ix_(missing, self.index)] = expected
        if not missing.all():
            observed = value_of(self.function, cells[~missing, None], self.values)
            table[np.ix_(~missing, self.index)] = observed[:, None, :]


@dataclass(frozen=True)
class _ProductStep:
    """Products of units of some scopes: per scope the units and the gathered columns."""

    scope: Scope
    index: IntArray
    factors: list[tuple[Scope, IntArray, IntArray]]

    def run(self, tables: Tables, X: FloatArray, posteriors: FloatArray) -> None:
        result = None
        for scope, units, columns in self.factors:
            values = np.take(tables[scope][:, units], columns, axis=2)
            result = values if result is None else np.multiply(result, values, out=result)
        tables[self.scope][:, self.index] = result


@dataclass(frozen=True)
class _SumStep:
    """Sums of one scope: a matrix product where they share their children."""

    scope: Scope
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
            children = self.children[: matrices.shape[2]]
            table[:, self.index] = matrices @ table[:, children]
        else:
            terms = table[:, self.children]
            terms *= weights[:, :, None]
            table[:, self.index] = np.add.reduceat(terms, self.starts, axis=1)
