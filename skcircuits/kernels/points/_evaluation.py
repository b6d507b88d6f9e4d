"""Expected kernels of incomplete rows against complete points: one feedforward pass.

The probability of the observed cells is pushed into the sum weights, so every value of the
pass is an expectation under a normalised conditional distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.circuits.engine._passes import feedforward, log_values
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.queries._moments import require_possible
from skcircuits.kernels.families._structure import value_of
from skcircuits.kernels.integrals.registry import (
    expected_at_points,
    joint_at_points,
    kind_of_term,
    rules_of,
    scope_terms,
)
from skcircuits.kernels.points._plan import InputGroup, PointPlan
from skcircuits.kernels.points._tables import PointTables
from skcircuits.numerics._arrays import Rows, as_run
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

# Values of all units for a block of rows and all points stay near the cache.
BLOCK_BYTES = 2**23
# Tables are read and written one by one, so larger blocks stay fast.
TABLE_BYTES = 2**26
# Tables of distinct points pay when they leave at most this fraction of the values.
MAX_FRACTION = 0.5


def expected_kernels_at_points(
    kernel: PointPlan, X: FloatArray, points: FloatArray, weights: SumWeights | None = None
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Integrate a kernel over the missing cells of rows, block by block of rows.

    ``weights`` (n_edges, n) are those of the circuit of each row; by default those given its
    observed cells.

    Yields row numbers (p,), each row once and in no particular order, and their values (p, m):
    E[k(x, s) | observed cells of x] at complete points s. Raises ``ZeroProbabilityError`` where
    the observed cells of a row are impossible.
    """
    tables = _point_tables(kernel, points)
    if tables is not None:
        for block in row_slices(len(X), max(1, TABLE_BYTES // max(1, tables.bytes_per_row))):
            given = None if weights is None else SumWeights(weights.log[:, block])
            own = _weights(kernel, X[block], given)
            yield np.arange(block.start, block.stop), tables.expected_kernels(X[block], own)
        return
    plan, weights = kernel.plan, _weights(kernel, X, weights)
    for rows, streamed, log_values_of_rows in _row_blocks(kernel, X, points):
        values = np.empty((plan.n_units, len(rows), len(points)))
        for group in kernel.inputs:
            if group is streamed:
                _write_exponentials(log_values_of_rows, values, as_run(group.positions))
            else:
                _write_inputs(kernel, group, X[rows], points, values)
        shared = SumWeights(weights.log[:, rows, None])
        yield rows, feedforward(plan, values, "linear", shared)[plan.root]


def _write_exponentials(logs: FloatArray, values: FloatArray, positions: Rows) -> None:
    """Write exponentials, which may take the place of the logarithms, to some units."""
    if isinstance(positions, slice):
        np.exp(logs, out=values[positions])
    else:
        values[positions] = np.exp(logs, out=logs)


def _point_tables(kernel: PointPlan, points: FloatArray) -> PointTables | None:
    """Tables of distinct restrictions, where points repeat themselves enough to pay."""
    plan = kernel.plan
    if any(layer.scopes.shape[1] > 1 for _, layer in plan.inputs):
        return None
    distinct = [len(np.unique(points[:, v])) for v in plan.units[plan.root].scope]
    if np.mean(distinct) > MAX_FRACTION * len(points):
        return None
    tables = PointTables(kernel, points)
    return tables if tables.fraction <= MAX_FRACTION else None


def _row_blocks(
    kernel: PointPlan, X: FloatArray, points: FloatArray
) -> Iterator[tuple[IntArray, InputGroup | None, Any]]:
    """Cut rows into blocks that fit into the cache.

    A group of joint units may take all rows at once and stream its log values in the order that
    suits it; the other groups follow.
    """
    for group in kernel.inputs:
        blocks = _log_blocks(kernel, group)
        if blocks is not None:
            columns = group.layer.scopes[0]
            for rows, values in blocks(X[:, columns], points[:, columns]):
                yield rows, group, values
            return
    n_rows = max(1, BLOCK_BYTES // (8 * kernel.plan.n_units * max(1, len(points))))
    for block in row_slices(len(X), n_rows):
        yield np.arange(block.start, block.stop), None, None


def _log_blocks(kernel: PointPlan, group: InputGroup) -> Callable[..., Any] | None:
    """What streams the values of a group; None for univariate units and sums of kernels."""
    if group.layer.scopes.shape[1] == 1 or len(group.positions) < len(group.layer):
        return None
    terms = scope_terms(kernel.structure, group.part, group.layer)
    kind = kind_of_term(group.layer, terms[0][1])
    blocks = None if kind is None else rules_of(group.layer, kind).log_blocks
    # Logarithms of one term can be streamed; sums of several need the values themselves.
    if blocks is None or len(terms) > 1 or terms[0][0] != 1.0:
        return None
    return lambda X, points: blocks(group.layer, terms[0][1].functions, X, points)


def bytes_per_point_row(plan: Plan) -> int:
    """Estimate the memory that a pass against points holds for each row, without its blocks."""
    # Densities of the row, and its own weights with their logarithms
    return plan.bytes_per_row + 16 * len(plan.weights.log)


def _weights(kernel: PointPlan, X: FloatArray, weights: SumWeights | None) -> SumWeights:
    """Weights of the circuits of rows, in the plan of the circuit times the kernel."""
    weights = posterior_weights(kernel.circuit, X) if weights is None else weights
    if kernel.sources is None:
        return weights
    # Coefficients of the kernel are the same under every row; the others are the row's weights.
    is_constant = kernel.sources < 0
    log = np.empty((len(kernel.sources), len(X)))
    log[is_constant] = kernel.plan.weights.log[is_constant, None]
    log[~is_constant] = weights.log[kernel.sources[~is_constant]]
    return SumWeights(log)


def posterior_weights(plan: Plan, X: FloatArray) -> SumWeights:
    """Weights of the conditional circuits of rows, θ_c p_c(x_o) / p_n(x_o): (n_edges, n).

    Raises ``ZeroProbabilityError`` where the observed cells of a row are impossible.
    """
    if not plan.sum_layers and not any(layer.is_discrete for _, layer in plan.inputs):
        # Nothing to choose from, and a density is positive everywhere.
        return SumWeights(np.empty((0, len(X))))
    values = log_values(plan, X)
    require_possible(plan, values[plan.root])
    posteriors = np.empty((len(plan.weights.log), len(X)))
    for layer in plan.sum_layers:
        posteriors[layer.edges] = layer.posteriors(values, plan.weights)
    with np.errstate(divide="ignore"):
        return SumWeights(np.log(posteriors, out=posteriors))


def _write_inputs(
    kernel: PointPlan, group: InputGroup, X: FloatArray, points: FloatArray, values: FloatArray
) -> None:
    """Write the expected part of each unit of a group at each row and point."""
    columns = group.layer.scopes[group.units[0]]
    if len(columns) > 1:
        terms = scope_terms(kernel.structure, group.part, group.layer)
        own = joint_at_points(group.layer, terms, X[:, columns], points[:, columns])
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
