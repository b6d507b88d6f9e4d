"""Queries as arrays: unions of disjoint boxes, each an interval or a set of codes per column."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from numbers import Real
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.tabular._columns import Column, is_missing
from skcircuits.tabular._names import unknown_column
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries._binding import Binder, Total
from skcircuits.tabular.queries._formulas import Cell, cells_of
from skcircuits.tabular.queries._sets import CodeSet, ColumnSet, Interval, NumberSet
from skcircuits.tabular.queries._text import parse_text
from skcircuits.tabular.queries.expressions import Expression, Query, as_query

__all__ = ["Boxes", "compile_queries", "read_mapping"]

# Boxes of all queries together before they are refused
MAX_BOXES = 2**20


@dataclass(frozen=True)
class Boxes:
    """Disjoint boxes whose unions are the queries.

    ``lower``, ``upper`` (n_boxes, d): closed bounds of numbers, NaN where unbounded and in
    categorical columns; a strict bound is the neighbouring float; ``states`` (n_boxes, k): allowed
    codes of the categorical columns that are constrained; ``query`` (n_boxes,): which query each
    box belongs to; one without any box is impossible; ``n_queries``: number of queries; ``totals``:
    by box, what else must hold in it: weighted sums of columns that lie in sets.
    """

    lower: FloatArray
    upper: FloatArray
    states: dict[int, BoolArray]
    query: IntArray
    n_queries: int
    totals: dict[int, tuple[tuple[Total, Any], ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        """Count the boxes."""
        return len(self.query)

    def take(self, boxes: IntArray) -> Boxes:
        """Select boxes, perhaps several times."""
        states = {j: allowed[boxes] for j, allowed in self.states.items()}
        chosen = boxes.tolist() if self.totals else []
        totals = {i: self.totals[box] for i, box in enumerate(chosen) if box in self.totals}
        lower, upper = self.lower[boxes], self.upper[boxes]
        return Boxes(lower, upper, states, self.query[boxes], self.n_queries, totals)

    def on_columns(self, columns: IntArray, width: int) -> Boxes:
        """The same boxes in a wider table, of which these are some columns."""
        lower, upper = np.full((2, len(self), width), np.nan)
        lower[:, columns], upper[:, columns] = self.lower, self.upper
        place = columns.tolist()
        states = {place[j]: allowed for j, allowed in self.states.items()}
        totals = {
            box: tuple((total.on_columns(place), values) for total, values in own)
            for box, own in self.totals.items()
        }
        return Boxes(lower, upper, states, self.query, self.n_queries, totals)

    def meet(self, mine: IntArray, condition: Boxes, other: IntArray) -> Boxes:
        """Intersect boxes `mine` of these with boxes `other` of a condition, pair by pair."""
        if len(mine) > MAX_BOXES * 16:
            raise _too_many(len(mine))
        states = {}
        for j in self.states.keys() | condition.states.keys():
            sides = [
                boxes.states[j][rows]
                for boxes, rows in ((self, mine), (condition, other))
                if j in boxes.states
            ]
            states[j] = np.logical_and.reduce(sides)
        totals = {}
        if self.totals or condition.totals:
            for i, (one, two) in enumerate(zip(mine.tolist(), other.tolist())):
                if both := self.totals.get(one, ()) + condition.totals.get(two, ()):
                    totals[i] = both
        # fmax and fmin take the bound of the other side where one is unbounded (NaN)
        return Boxes(
            np.fmax(self.lower[mine], condition.lower[other]),
            np.fmin(self.upper[mine], condition.upper[other]),
            states,
            self.query[mine],
            self.n_queries,
            totals,
        )._without_empty()

    def around_integers(self, is_integral: BoolArray) -> Boxes:
        """Let intervals of integer columns, mask of shape (d,), cover what rounds to them."""
        if not is_integral.any():
            return self
        lower, upper = self.lower.copy(), self.upper.copy()
        np.ceil(lower, out=lower, where=is_integral)
        np.floor(upper, out=upper, where=is_integral)
        inside = replace(self, lower=lower, upper=upper)._without_empty()
        # Changed in place: nobody else has these arrays
        half = 0.5 * is_integral
        np.subtract(inside.lower, half, out=inside.lower)
        np.add(inside.upper, half, out=inside.upper)
        return inside

    def _without_empty(self) -> Boxes:
        # Comparisons with NaN are false: an unbounded side empties nothing
        filled = ~(self.lower > self.upper).any(axis=1)
        for allowed in self.states.values():
            filled &= allowed.any(axis=1)
        return self if filled.all() else self.take(np.flatnonzero(filled))


def compile_queries(queries: Sequence[Any], schema: TableSchema) -> Boxes:
    """Turn queries (texts, mappings or `Query` objects) about a table into boxes."""
    reader = _Reader(schema)
    cells = [(i, cell) for i, query in enumerate(queries) for cell in reader.cells(query)]
    return boxes_of_cells(cells, len(queries), schema)


def boxes_of_cells(cells: list[tuple[int, Cell]], n_queries: int, schema: TableSchema) -> Boxes:
    """Write cells, each with the query it belongs to, as arrays."""
    pieces = [_intervals(cell, schema) for _, cell in cells]
    counts = [prod(len(lower) for _, lower, _ in own) for own in pieces]
    n_boxes = sum(counts)
    if n_boxes > MAX_BOXES:
        raise _too_many(n_boxes)
    shape = (n_boxes, len(schema.columns))
    lower, upper = np.full(shape, np.nan), np.full(shape, np.nan)
    states: dict[int, BoolArray] = {}
    totals: dict[int, tuple[tuple[Total, Any], ...]] = {}
    start = 0
    for (_, cell), own, n in zip(cells, pieces, counts):
        if n == 0:
            continue
        rows = slice(start, start + n)
        repeat = n
        for j, low, high in own:
            if len(low) > 1:
                repeat //= len(low)
                take = np.arange(n) // repeat % len(low)
                low, high = low[take], high[take]
            lower[rows, j], upper[rows, j] = low, high
        for variable, values in cell.items():
            if isinstance(variable, Total):
                for row in range(start, start + n):
                    totals[row] = (*totals.get(row, ()), (variable, values))
            elif isinstance(values, CodeSet):
                if variable not in states:
                    states[variable] = np.ones((n_boxes, len(values.mask)), dtype=bool)
                states[variable][rows] = values.mask
        start += n
    # Queries know infinite bounds, boxes mark them NaN
    lower[lower == -np.inf] = upper[upper == np.inf] = np.nan
    query = np.repeat(np.array([i for i, _ in cells], dtype=np.int64), counts)
    return Boxes(lower, upper, states, query, n_queries, totals)


def _intervals(cell: Cell, schema: TableSchema) -> list[tuple[int, FloatArray, FloatArray]]:
    """Intervals of each constrained numerical column; of integers, neighbours joined."""
    found = []
    for variable, values in cell.items():
        if isinstance(variable, int) and isinstance(values, NumberSet):
            if schema.columns[variable].is_integral:
                values = values.of_integers()
            found.append((variable, *values.intervals()))
    return found


def read_mapping(query: Mapping[Any, Any], schema: TableSchema, *, missing_is_free: bool) -> Cell:
    """Read a mapping from columns to constraints; missing ones may say nothing."""
    index = {name: j for j, name in enumerate(schema.names)}
    cell: Cell = {}
    for key, constraint in query.items():
        if key not in index:
            raise unknown_column(key, schema.names)
        column = schema.columns[index[key]]
        if missing_is_free and _is_scalar(constraint) and is_missing(constraint):
            continue
        read = _read_interval if column.categories is None else _read_categories
        cell[index[key]] = read(column, constraint)
    return cell


class _Reader:
    """Reads queries of all forms about one table."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema, self._binder = schema, Binder(schema)

    def cells(self, query: Any) -> list[Cell]:
        """Disjoint cells of a query."""
        if isinstance(query, Mapping):
            cell = read_mapping(query, self._schema, missing_is_free=False)
            return [] if any(values.is_empty for values in cell.values()) else [cell]
        if isinstance(query, str):
            query = parse_text(query, self._schema)
        elif isinstance(query, Expression):
            query = as_query(query)
        if not isinstance(query, Query):
            raise ValueError(
                must(
                    "A query",
                    "be a dict from columns to intervals or categories, a text or made by col",
                    "Write {'age': (30, 40), 'job': 'nurse'} or \"age >= 30 and job == 'nurse'\".",
                    query=query,
                )
            )
        return cells_of(self._binder.formula(query))


def _read_interval(column: Column, constraint: Any) -> NumberSet:
    """Read the constraint of a numerical column: a number, an interval, or a set of numbers."""
    if isinstance(constraint, set | frozenset):
        return NumberSet.points([_read_number(column, value) for value in constraint])
    if hasattr(constraint, "left") and hasattr(constraint, "closed"):
        low, high = (_read_number(column, end) for end in (constraint.left, constraint.right))
        is_closed = [constraint.closed in ("both", side) for side in ("left", "right")]
        return NumberSet.union([Interval(low, high, *is_closed)])
    if isinstance(constraint, tuple | list):
        if len(constraint) != 2:
            raise _bad_interval(column, constraint, "Use None for a missing bound.")
        low, high = constraint
        lower = -np.inf if low is None else _read_number(column, low, constraint)
        upper = np.inf if high is None else _read_number(column, high, constraint)
        if lower > upper:
            raise _bad_interval(column, constraint, "Its lower bound comes first.")
        return NumberSet.union([Interval(lower, upper)])
    point = _read_number(column, constraint)
    return NumberSet.points([point])


def _read_number(column: Column, value: Any, constraint: Any = None) -> float:
    """Read one bound, as the float that the table is encoded to."""
    if column.dates is not None:
        return column.dates.read(column.name, value)
    shown = value if constraint is None else constraint
    if not isinstance(value, Real) or isinstance(value, bool) or value != value:
        raise _bad_interval(column, shown, "Use None for a missing bound.")
    try:
        return float(value)
    except OverflowError as error:
        way_out = "Numbers are at most 1.8e+308 in magnitude."
        raise _bad_interval(column, "a larger integer", way_out) from error


def _bad_interval(column: Column, constraint: object, way_out: str) -> ValueError:
    what = f"The query about column {column.name!r}"
    condition = "be a number, an interval (lower, upper) or a set of numbers"
    return ValueError(must(what, condition, way_out, query=constraint))


def _read_categories(column: Column, constraint: Any) -> ColumnSet:
    """Read the allowed categories of a categorical column."""
    # A string is a collection of letters, but means one category
    categories = [constraint] if _is_scalar(constraint) else list(constraint)
    mask = np.zeros(column.cardinality, dtype=bool)
    mask[[column.code_of(category) for category in categories]] = True
    return CodeSet(mask)


def _is_scalar(constraint: Any) -> bool:
    return isinstance(constraint, str | bytes) or not isinstance(constraint, Collection)


def _too_many(n_boxes: int) -> ValueError:
    way_out = "Ask for parts of it and add their probabilities."
    return ValueError(
        must("A query", f"fall into at most {MAX_BOXES} boxes", way_out, n_boxes=n_boxes)
    )
