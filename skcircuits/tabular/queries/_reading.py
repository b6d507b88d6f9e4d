"""Queries of all forms, read as boxes: texts, mappings and objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.tabular._columns import Column, is_missing
from skcircuits.tabular._names import unknown_column
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries._alike import group_alike
from skcircuits.tabular.queries._binding import Binder
from skcircuits.tabular.queries._boxes import Boxes, boxes_of_cells
from skcircuits.tabular.queries._formulas import Cell, cells_of
from skcircuits.tabular.queries._sets import CodeSet, ColumnSet, Interval, NumberSet
from skcircuits.tabular.queries._text import parse_text
from skcircuits.tabular.queries.expressions import Expression, Query, as_query


def compile_queries(queries: Sequence[Any], schema: TableSchema) -> Boxes:
    """Turn queries (texts, mappings or `Query` objects) about a table into boxes."""
    reader, parts, alone = _Reader(schema), [], set(range(len(queries)))
    for group in group_alike(queries):
        boxes = group.boxes(schema, len(queries))
        if boxes is not None:
            parts.append(boxes)
            alone.difference_update(group.places)
    cells = [(i, cell) for i in sorted(alone) for cell in reader.cells(queries[i])]
    parts.append(boxes_of_cells(cells, len(queries), schema))
    return Boxes.concatenate(parts)


def read_mapping(query: Mapping[Any, Any], schema: TableSchema, *, missing_is_free: bool) -> Cell:
    """Read a mapping from columns to constraints; missing ones may say nothing."""
    index = schema.index_of
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
    if isinstance(constraint, tuple | list):
        if len(constraint) != 2:
            raise _bad_interval(column, constraint, "Use None for a missing bound.")
        low, high = constraint
        lower = -np.inf if low is None else _read_number(column, low, constraint)
        upper = np.inf if high is None else _read_number(column, high, constraint)
        if lower > upper:
            raise _bad_interval(column, constraint, "Its lower bound comes first.")
        return NumberSet.union([Interval(lower, upper)])
    if isinstance(constraint, set | frozenset):
        return NumberSet.points([_read_number(column, value) for value in constraint])
    if hasattr(constraint, "left") and hasattr(constraint, "closed"):
        low, high = (_read_number(column, end) for end in (constraint.left, constraint.right))
        is_closed = [constraint.closed in ("both", side) for side in ("left", "right")]
        return NumberSet.union([Interval(low, high, *is_closed)])
    point = _read_number(column, constraint)
    return NumberSet.points([point])


def _read_number(column: Column, value: Any, constraint: Any = None) -> float:
    """Read one bound, as the float that the table is encoded to."""
    if column.dates is not None:
        return column.dates.read(column.name, value)
    if type(value) is float and value == value:  # the way of most
        return value
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
