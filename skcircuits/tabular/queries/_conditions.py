"""Conditions on rows in all forms that `given` takes, as boxes with observed cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.tabular._columns import is_missing
from skcircuits.tabular._frames import is_frame
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries._boxes import Boxes, boxes_of_cells
from skcircuits.tabular.queries._reading import compile_queries, read_columns, read_mapping
from skcircuits.tabular.queries._text import parse_text
from skcircuits.tabular.queries.expressions import (
    Conjunction,
    Expression,
    Missing,
    Negation,
    Query,
    as_query,
)


@dataclass(frozen=True)
class Conditions:
    """Conditions as unions of boxes, some of whose cells are observed.

    ``boxes``: condition i is query i; ``observed`` (n_boxes, d): cells that are known exactly, NaN
    elsewhere: they weigh by their density; ``is_single``: whether one condition was given, so that
    the answer has no axis for them; ``like``: the dataframe the conditions came in; it labels the
    answers.
    """

    boxes: Boxes
    observed: FloatArray
    is_single: bool
    like: Any = None

    def __len__(self) -> int:
        """Count the conditions."""
        return self.boxes.n_queries

    def intersect(self, boxes: Boxes, observed: FloatArray) -> Conditions:
        """Restrict all conditions to one, the union of boxes with observed cells (n_boxes, d)."""
        met, left, right = self._pairs(boxes)
        known, added = self.observed[left], observed[right]
        agree = ~((known != added) & ~np.isnan(known) & ~np.isnan(added)).any(axis=1)
        result = replace(met, query=self.boxes.query[left], n_queries=len(self))
        cells = np.where(np.isnan(known), added, known)
        kept = np.flatnonzero(agree)
        return replace(self, boxes=result.take(kept), observed=cells[kept])

    def with_queries(self, queries: Boxes) -> Conditions:
        """Every condition with every query: condition i with query j has number i * n + j."""
        met, left, right = self._pairs(queries)
        number = self.boxes.query[left] * queries.n_queries + queries.query[right]
        n_pairs = len(self) * queries.n_queries
        boxes = replace(met, query=number, n_queries=n_pairs)
        return replace(self, boxes=boxes, observed=self.observed[left])

    def _pairs(self, boxes: Boxes) -> tuple[Boxes, IntArray, IntArray]:
        """Boxes that are left of all pairs of an own box with another, and which these were."""
        n_pairs = len(self.boxes) * len(boxes)
        mine, other = np.divmod(np.arange(n_pairs), max(1, len(boxes)))
        numbered = replace(self.boxes.take(mine), query=np.arange(n_pairs), n_queries=n_pairs)
        met = numbered.meet(np.arange(n_pairs), boxes, other)
        return met, mine[met.query], other[met.query]


def read_conditions(given: Any, schema: TableSchema) -> Conditions:
    """Read one condition or several.

    One: None, a text, a mapping, a `Query`, or a row (a sequence of cells, missing ones free).
    Several: a dataframe or two-dimensional array, a row of conditions each, or a list of
    conditions. Cells of a dataframe are values, intervals or sets, as in mappings; two levels of
    column names give bounds, ``("age", "lower")`` and ``("age", "upper")``.
    """
    if is_frame(given):
        return _read_frame(given, schema)
    if _is_list_of_conditions(given):
        return _read_list(list(given), schema)
    if given is None or isinstance(given, str | Mapping | Query | Expression):
        boxes = _read_boxes([given], schema)
        return Conditions(boxes, _nothing(boxes), is_single=True)
    row = _read_rows(given, schema)
    if row.ndim == 1:
        return _observed_rows(_encode(row[None], schema), is_single=True)
    return _observed_rows(_encode(row, schema), is_single=False)


def _read_boxes(conditions: Sequence[Any], schema: TableSchema) -> Boxes:
    """Boxes of texts, mappings and objects; None and missing cells leave all free."""
    if all(isinstance(given, Mapping) for given in conditions):
        cells = [
            (i, read_mapping(g, schema, missing_is_free=True)) for i, g in enumerate(conditions)
        ]
        kept = [(i, cell) for i, cell in cells if not any(v.is_empty for v in cell.values())]
        return boxes_of_cells(kept, len(conditions), schema)
    return compile_queries([_as_condition(given, schema) for given in conditions], schema)


def _as_condition(given: Any, schema: TableSchema) -> Any:
    """A query that says the same about complete rows: missing cells are free."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return {k: v for k, v in given.items() if not (np.ndim(v) == 0 and is_missing(v))}
    if isinstance(given, str):
        # Only `is missing` needs a look here; other texts are parsed together, where they are alike
        if "missing" not in given:
            return given
        given = parse_text(given, schema)
    return _without_missing(as_query(given))


def _without_missing(query: Query) -> Query:
    """Leave out which cells are missing, or are not: the values do not depend on it."""
    if _is_about_missing(query):
        return Conjunction(())
    if isinstance(query, Conjunction):
        return Conjunction(tuple(_without_missing(part) for part in query.parts))
    return query


def _is_about_missing(query: Query) -> bool:
    if isinstance(query, Negation):
        return _is_about_missing(query.part)
    return isinstance(query, Missing)


def _nothing(boxes: Boxes) -> FloatArray:
    return np.full(boxes.lower.shape, np.nan)


def _is_list_of_conditions(given: Any) -> bool:
    if not isinstance(given, list | tuple) or not given:
        return False
    kinds = str | Mapping | Query | Expression
    # A list of texts could be a row of categories: a row of a table is an array or a series
    return all(isinstance(one, kinds) or one is None for one in given)


def _read_list(given: list[Any], schema: TableSchema) -> Conditions:
    boxes = _read_boxes(given, schema)
    return Conditions(boxes, _nothing(boxes), is_single=False)


def _read_rows(given: Any, schema: TableSchema) -> Any:
    """Array of one row or of several."""
    rows = given if isinstance(given, np.ndarray) else np.asarray(given, dtype=object)
    if rows.ndim not in (1, 2) or rows.shape[-1] != len(schema.columns):
        raise ValueError(
            must(
                "A condition",
                f"be a text, a mapping, a query or a row of {len(schema.columns)} cells",
                "Leave cells that are free NaN, or name columns in a mapping.",
                given=given,
            )
        )
    return rows


def _encode(rows: Any, schema: TableSchema) -> FloatArray:
    """Encode rows of an array by the schema, whichever container taught it."""
    return schema.encode(rows, handle_unknown="error")


def _observed_rows(observed: FloatArray, *, is_single: bool) -> Conditions:
    free = np.full(observed.shape, np.nan)
    boxes = Boxes(free, free, {}, np.arange(len(observed)), len(observed))
    return Conditions(boxes, observed, is_single)


def _read_frame(frame: Any, schema: TableSchema) -> Conditions:
    """Read a dataframe: plain cells are observed, intervals and sets constrain."""
    index = schema.index_of
    # The table itself may have two levels of column names
    is_row = all(name in index for name in frame.columns)
    bounds = None if is_row else _bounds_by_column(frame)
    columns = bounds if bounds is not None else _cells_by_column(frame)
    observed = np.full((len(frame), len(schema.columns)), np.nan)
    constraints: dict[Any, list[Any]] = {}
    for name, cells in columns.items():
        if name not in index:
            # Raises the error that names the nearest column
            read_mapping({name: None}, schema, missing_is_free=True)
        if bounds is None and not any(map(_is_constraint, cells)):
            values = np.empty(len(cells), dtype=object)
            values[:] = [None if is_missing(cell) else cell for cell in cells]
            column = schema.columns[index[name]]
            if column.dates is not None:
                values = values.astype("datetime64[us]")
            observed[:, index[name]] = column.encode(values, refuse_unknown=True)
        else:
            constraints[name] = cells
    boxes = read_columns(constraints, len(frame), schema)
    if boxes is None:
        boxes = _read_boxes([dict(zip(constraints, c)) for c in zip(*constraints.values())], schema)
    return Conditions(boxes, observed[boxes.query], is_single=False, like=frame)


def _cells_by_column(frame: Any) -> dict[Any, list[Any]]:
    return {name: list(frame[name]) for name in frame.columns}


def _is_constraint(cell: Any) -> bool:
    return isinstance(cell, tuple | list | set | frozenset) or hasattr(cell, "closed")


def _bounds_by_column(frame: Any) -> dict[Any, list[Any]] | None:
    """Intervals of a dataframe whose column names have two levels, None for others."""
    names = list(frame.columns)
    if not names or not all(isinstance(name, tuple) and len(name) == 2 for name in names):
        return None
    sides = {side for _, side in names}
    if not sides <= {"lower", "upper"}:
        condition = "be 'lower' and 'upper'"
        raise ValueError(must("The second level of column names of bounds", condition, names=sides))
    free = [None] * len(frame)
    intervals = {}
    for column in dict.fromkeys(name for name, _ in names):
        lower, upper = (
            list(frame[column, side]) if (column, side) in names else free
            for side in ("lower", "upper")
        )
        intervals[column] = [
            tuple(None if is_missing(bound) else bound for bound in pair)
            for pair in zip(lower, upper)
        ]
    return intervals
