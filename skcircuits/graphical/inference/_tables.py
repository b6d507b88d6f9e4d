"""Non-negative tables of a batch of evidences: scaled values, products and contractions."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import log, prod
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from skcircuits.protocols import FloatArray

Axes = tuple[int, ...]
Number = TypeVar("Number", np.float64, np.int64)

# Products whose factors span together at most exp(600) = 1e260 are formed as plain numbers:
# no positive cell underflows once the largest is one. Beyond, sums of logarithms.
MAX_LOG_RANGE = 600.0

_ROW = -1  # the axis of the rows
_Named = tuple[FloatArray, Axes]


@dataclass(frozen=True)
class Table:
    """Values of shape (rows or 1, *states) over the variables of ``axes``.

    ``log_range`` bounds the logarithm of the ratio of the largest to the smallest positive
    value of a row. Where it is beyond ``MAX_LOG_RANGE`` the values are logarithms.
    """

    values: FloatArray
    axes: Axes
    log_range: float

    @property
    def is_log(self) -> bool:
        """Whether the values are logarithms."""
        return self.log_range > MAX_LOG_RANGE

    def log_values(self) -> FloatArray:
        """Give the logarithms."""
        if self.is_log:
            return self.values
        with np.errstate(divide="ignore"):
            return np.log(self.values)


def align(values: NDArray[Number], axes: Axes, target: Axes) -> NDArray[Number]:
    """Order the axes of a batch like ``target``, with length one where it has none."""
    if axes == target:
        return values
    places = [target.index(axis) for axis in axes]
    order: list[int] = sorted(range(len(axes)), key=places.__getitem__)
    if order != list(range(len(axes))):
        # A transposed view costs no copy, but its later uses do: only where the order differs
        values = values.transpose([0, *(axis + 1 for axis in order)])
    states = dict(zip((axes[axis] for axis in order), values.shape[1:]))
    return values.reshape(values.shape[0], *(states.get(v, 1) for v in target))


def spread(values: NDArray[Number], shape: Sequence[int]) -> NDArray[Number]:
    """Broadcast to a shape, which most tables have: `broadcast_to` is slow for small ones."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


def scaled_table(values: FloatArray, axes: Axes) -> tuple[Table, FloatArray]:
    """Divide each row of values by its largest; give the table and the logarithms of these."""
    # Contractions may have another memory order: one copy here saves one in each use
    values = np.ascontiguousarray(values)
    peak = values.reshape(len(values), -1).max(axis=1)
    values = values / _per_row(np.where(peak > 0, peak, 1.0), values)
    # Zeros are rare, and a mask costs more than most tables.
    smallest = values.min()
    if smallest <= 0:
        smallest = values.min(where=values > 0, initial=1.0)
    log_range = -log(smallest)
    with np.errstate(divide="ignore"):
        log_peak = np.log(peak)
        # Sums of a product that spans the whole range may span a little more.
        return Table(
            np.log(values) if log_range > MAX_LOG_RANGE else values, axes, log_range
        ), log_peak


def table_of_logs(logs: FloatArray, axes: Axes) -> tuple[Table, FloatArray]:
    """The same for logarithms, which are kept if plain numbers would underflow."""
    peak = logs.reshape(len(logs), -1).max(axis=1)
    logs = logs - _per_row(np.where(np.isneginf(peak), 0.0, peak), logs)
    log_range = -float(logs.min(where=np.isfinite(logs), initial=0.0))
    return Table(logs if log_range > MAX_LOG_RANGE else np.exp(logs), axes, log_range), peak


def _per_row(numbers: FloatArray, table: FloatArray) -> FloatArray:
    return numbers.reshape(-1, *(1,) * (table.ndim - 1))


def contract(operands: Sequence[tuple[FloatArray, Axes]], target: Axes) -> FloatArray:
    """Multiply batches (rows or 1, *states) and sum over all variables outside ``target``.

    Pairs are multiplied as matrices, the smallest first, so that no table over all variables
    is ever formed. An axis of the result that no operand has is of length one.
    """
    left = [_named(values, axes) for values, axes in operands]
    while len(left) > 1:
        left.sort(key=lambda named: named[0].size, reverse=True)
        first, second = left.pop(), left.pop()
        kept = {_ROW, *target}.union(*(axes for _, axes in left))
        left.append(_product(first, second, kept))
    values, axes = _sum_out(left[0], {_ROW, *target})
    if _ROW not in axes:
        values, axes = values[None], (_ROW, *axes)
    return align(
        np.moveaxis(values, axes.index(_ROW), 0), tuple(a for a in axes if a != _ROW), target
    )


def _named(values: FloatArray, axes: Axes) -> _Named:
    """Give the axis of the rows a name, unless one table serves all rows."""
    return (values, (_ROW, *axes)) if len(values) > 1 else (values[0], tuple(axes))


def _sum_out(named: _Named, kept: Collection[int]) -> _Named:
    values, axes = named
    gone = tuple(index for index, axis in enumerate(axes) if axis not in kept)
    if not gone:
        return named
    return values.sum(axis=gone), tuple(axis for axis in axes if axis in kept)


def _product(first: _Named, second: _Named, kept: Collection[int]) -> _Named:
    """Multiply two tables and sum over the variables that are not kept."""
    a, a_axes = _sum_out(first, {*kept, *second[1]})
    b, b_axes = _sum_out(second, {*kept, *first[1]})
    states = {**dict(zip(a_axes, a.shape)), **dict(zip(b_axes, b.shape))}
    shared = [v for v in a_axes if v in b_axes]
    batch = [v for v in shared if v in kept]
    summed = [v for v in shared if v not in kept]
    rows = [v for v in a_axes if v not in shared]
    columns = [v for v in b_axes if v not in shared]
    n_batch, n_summed, n_rows, n_columns = (
        prod(states[v] for v in group) for group in (batch, summed, rows, columns)
    )
    # As one batched matrix product, which runs in BLAS: einsum loops over such axes itself
    left = _transposed(a, a_axes, [*batch, *rows, *summed]).reshape(n_batch, n_rows, n_summed)
    right = _transposed(b, b_axes, [*batch, *summed, *columns]).reshape(
        n_batch, n_summed, n_columns
    )
    axes = (*batch, *rows, *columns)
    return (left @ right).reshape([states[v] for v in axes]), axes


def _transposed(values: FloatArray, axes: Axes, order: Sequence[int]) -> FloatArray:
    return values.transpose([axes.index(v) for v in order])
