"""Queries and conditions of all forms, read as boxes with observed cells.

Of strings that differ only in their numbers, one is parsed and the numbers of all are bound as
arrays, if they are conjunctions in which every number bounds a numerical column. All other strings
are parsed one by one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import chain
from numbers import Real
from types import NoneType
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.numerics._arrays import without_mask
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.tabular._columns import Column, is_missing, read_date, unknown_column
from skcircuits.tabular._frames import is_frame
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries._binding import MIRRORED, Binder, Boxes, boxes_of_cells
from skcircuits.tabular.queries._sets import Cell, CodeSet, Interval, NumberSet, cells_of, join
from skcircuits.tabular.queries.expressions import (
    NUMBER,
    Comparison,
    Conjunction,
    Expression,
    Missing,
    Negation,
    Query,
    Slot,
    as_query,
    parse_text,
)

# As many texts pay for looking for more of their kind
MIN_ALIKE = 4
# Beyond, the neighbour of a number may be infinite
MAX_NUMBER = 1e308
PLACES_OF_NUMBERS = re.compile(rf"(?<![\w.])({NUMBER})")


@dataclass(frozen=True)
class Conditions:
    """Conditions as unions of boxes, some of whose cells are observed."""

    boxes: Boxes  # condition i is query i
    observed: FloatArray  # (n_boxes, d), NaN elsewhere: they weigh by their density
    is_single: bool  # so that the answer has no axis for conditions
    like: Any = None  # the dataframe they came in, which labels the answers

    def __len__(self) -> int:
        return self.boxes.n_queries

    def intersect(self, boxes: Boxes, observed: FloatArray) -> Conditions:
        """Restrict all conditions to one, the union of boxes with observed cells (n_boxes, d)."""
        met, left, right = self._pairs(boxes)
        known, added = self.observed[left], observed[right]
        # Two different observed values of one cell leave nothing
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
    is_single = given is None or isinstance(given, str | Mapping | Query | Expression)
    if is_single or _is_list_of_conditions(given):
        boxes = _read_boxes([given] if is_single else list(given), schema)
        return Conditions(boxes, np.full(boxes.lower.shape, np.nan), is_single)
    rows = _read_rows(given, schema)
    # Whichever container taught the schema: rows of an array are read by position
    observed = schema.encode(np.atleast_2d(rows), handle_unknown="error")
    free = np.full(observed.shape, np.nan)
    boxes = Boxes(free, free, {}, np.arange(len(observed)), len(observed))
    return Conditions(boxes, observed, is_single=rows.ndim == 1)


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
    """The condition as a query, in which missing cells are unconstrained."""
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
        # An empty conjunction is always true
        return Conjunction(())
    if isinstance(query, Conjunction):
        return Conjunction(tuple(_without_missing(part) for part in query.parts))
    return query


def _is_about_missing(query: Query) -> bool:
    if isinstance(query, Negation):
        return _is_about_missing(query.part)
    return isinstance(query, Missing)


def _is_list_of_conditions(given: Any) -> bool:
    if not isinstance(given, list | tuple) or not given:
        return False
    kinds = str | Mapping | Query | Expression
    # A list of texts could be a row of categories: a row of a table is an array or a series
    return all(isinstance(one, kinds) or one is None for one in given)


def _read_rows(given: Any, schema: TableSchema) -> Any:
    """Array of one row or of several."""
    rows = without_mask(given) if isinstance(given, np.ndarray) else np.asarray(given, object)
    if rows.ndim not in (1, 2) or rows.shape[-1] != len(schema.columns):
        condition = f"be a text, a mapping, a query or a row of {len(schema.columns)} cells"
        way_out = "Use NaN for unconstrained cells, or name columns in a mapping."
        raise ValueError(must("A condition", condition, way_out, given=given))
    return rows


def _read_frame(frame: Any, schema: TableSchema) -> Conditions:
    """Read a dataframe: plain cells are observed, intervals and sets constrain."""
    index = schema.index_of
    # The table itself may have two levels of column names
    is_row = all(name in index for name in frame.columns)
    bounds = None if is_row else _bounds_by_column(frame)
    columns = {name: list(frame[name]) for name in frame.columns} if bounds is None else bounds
    observed = np.full((len(frame), len(schema.columns)), np.nan)
    constraints: dict[Any, list[Any]] = {}
    for name, cells in columns.items():
        if name not in index:
            # Raises the error that names the nearest column
            read_mapping({name: None}, schema, missing_is_free=True)
        if bounds is None and not any(map(_is_constraint, cells)):
            values = np.empty(len(cells), dtype=object)
            values[:] = [None if is_missing(cell) else cell for cell in cells]
            observed[:, index[name]] = schema.columns[index[name]].encode(
                values, refuse_unknown=True
            )
        else:
            constraints[name] = cells
    boxes = read_columns(constraints, len(frame), schema)
    if boxes is None:
        boxes = _read_boxes([dict(zip(constraints, c)) for c in zip(*constraints.values())], schema)
    return Conditions(boxes, observed[boxes.query], is_single=False, like=frame)


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


def group_alike(queries: Sequence[Any]) -> Iterator[_Alike]:
    """Group texts that are the same but for their numbers, where that is worth it."""
    if len(queries) < MIN_ALIKE:
        return
    groups: dict[tuple[str, ...], _Alike] = {}
    for i, text in enumerate(queries):
        if isinstance(text, str):
            # Texts and numbers alternate: equal texts make a group, whatever the numbers
            parts = PLACES_OF_NUMBERS.split(text)
            group = groups.setdefault(tuple(parts[::2]), _Alike(text, [], []))
            group.places.append(i)
            group.numbers.append(parts[1::2])
    yield from (group for group in groups.values() if len(group.places) >= MIN_ALIKE)


@dataclass(frozen=True)
class _Alike:
    """Texts like the first one: their places among all queries, and their numbers."""

    first: str
    places: list[int]
    numbers: list[list[str]]

    def boxes(self, schema: TableSchema, n_queries: int) -> Boxes | None:
        """Boxes of these of all queries; None where they have to be read one by one."""
        try:
            numbers = np.array(self.numbers, dtype=np.float64)
        except ValueError:  # reading it alone identifies the string
            return None
        if not (np.abs(numbers) < MAX_NUMBER).all():
            return None
        bounds, others = [], []
        for part in _conjuncts(parse_text(self.first, schema, with_slots=True)):
            bound = _bound(part, schema)
            if bound is None:
                others.append(part)
            else:
                bounds.append(bound)
        if len(bounds) < numbers.shape[1]:
            return None  # some number is no bound of a column
        lower, upper = self._intervals(bounds, numbers, len(schema.columns))
        binder = Binder(schema)
        rest = join([binder.formula(part) for part in others], union=False)
        same = boxes_of_cells([(0, cell) for cell in cells_of(rest)], 1, schema)
        own = Boxes(lower, upper, {}, np.array(self.places), n_queries)
        # What holds for all of the texts is compiled once, and met by the bounds of each
        mine, other = np.divmod(np.arange(len(own) * len(same)), max(1, len(same)))
        return own.meet(mine, same, other)

    def _intervals(
        self, bounds: list[tuple[int, str, Slot]], numbers: FloatArray, width: int
    ) -> tuple[FloatArray, FloatArray]:
        """Closed bounds (n, width) of all columns, NaN where there is none."""
        lower, upper = np.full((2, len(numbers), width), np.nan)
        for column, op, slot in bounds:
            value = slot.sign * numbers[:, slot.index]
            if op in (">", ">=", "=="):
                # Bounds are closed: a strict one is the next float
                low = np.nextafter(value, np.inf) if op == ">" else value
                lower[:, column] = np.fmax(lower[:, column], low)
            if op in ("<", "<=", "=="):
                high = np.nextafter(value, -np.inf) if op == "<" else value
                upper[:, column] = np.fmin(upper[:, column], high)
        return lower, upper


def _conjuncts(query: Query) -> Iterator[Query]:
    if isinstance(query, Conjunction):
        for part in query.parts:
            yield from _conjuncts(part)
    else:
        yield query


def _bound(part: Query, schema: TableSchema) -> tuple[int, str, Slot] | None:
    """Column, comparison and number of a query that bounds a numerical column."""
    if not isinstance(part, Comparison) or part.op == "!=":
        return None
    left, op, right = part.left, part.op, part.right
    if isinstance(left, Slot):
        left, op, right = right, MIRRORED[op], left
    if not isinstance(right, Slot) or left.column is None:
        return None
    index = left.column.index
    column = schema.columns[index]
    is_number = column.categories is None and not column.has_dates
    return (index, op, right) if is_number else None


def compile_queries(queries: Sequence[Any], schema: TableSchema) -> Boxes:
    """Turn queries (texts, mappings or `Query` objects) about a table into boxes."""
    binder, parts, alone = Binder(schema), [], set(range(len(queries)))
    for group in group_alike(queries):
        boxes = group.boxes(schema, len(queries))
        if boxes is not None:
            parts.append(boxes)
            alone.difference_update(group.places)
    cells = [(i, cell) for i in sorted(alone) for cell in _cells(queries[i], schema, binder)]
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


def read_columns(
    cells: Mapping[Any, Sequence[Any]], n_rows: int, schema: TableSchema
) -> Boxes | None:
    """Read the constraints of many rows by column; None where some take more than one interval."""
    shape = n_rows, len(schema.columns)
    lower, upper = np.full((2, *shape), np.nan)
    states = {}
    for name, own in cells.items():
        j = schema.index_of[name]
        if schema.columns[j].categories is not None:
            states[j] = _read_masks(schema.columns[j], own)
            continue
        ends = None if schema.columns[j].has_dates else _read_ends(own)
        if ends is None:
            return None
        lower[:, j], upper[:, j] = ends
    return Boxes(lower, upper, states, np.arange(n_rows), n_rows).without_empty()


def _read_ends(cells: Sequence[Any]) -> FloatArray | None:
    """Ends (2, n) of intervals, NaN where open; None where a cell is no pair of finite numbers."""
    pairs = [(None, None) if cell is None else cell for cell in cells]
    # By exact type: other kinds of pairs are read one by one
    if not all(type(pair) is tuple and len(pair) == 2 for pair in pairs):
        return None
    flat = list(chain.from_iterable(pairs))
    if not set(map(type, flat)) <= {int, float, np.int64, np.float64, NoneType}:
        return None
    try:
        ends = np.array(flat, dtype=np.float64)
    except OverflowError:  # reading it alone shows the error
        return None
    is_open = np.array([end is None for end in flat], dtype=bool)
    sides: FloatArray = ends.reshape(-1, 2).T
    is_plain = np.isfinite(ends[~is_open]).all() and not (sides[0] > sides[1]).any()
    return sides if is_plain else None


def _read_masks(column: Column, cells: Sequence[Any]) -> BoolArray:
    """Allowed codes (n, k) of a categorical column; equal sets are read once."""
    everything = np.ones(column.cardinality, dtype=bool)
    known: dict[Any, BoolArray] = {}
    masks = []
    for cell in cells:
        key = frozenset(cell) if isinstance(cell, set | frozenset) else None
        if key in known:
            masks.append(known[key])
            continue
        is_free = _is_scalar(cell) and is_missing(cell)
        masks.append(everything if is_free else _read_categories(column, cell).mask)
        if key is not None:
            known[key] = masks[-1]
    return np.array(masks)


def _cells(query: Any, schema: TableSchema, binder: Binder) -> list[Cell]:
    """Disjoint cells of a query of any form."""
    if isinstance(query, Mapping):
        cell = read_mapping(query, schema, missing_is_free=False)
        return [] if any(values.is_empty for values in cell.values()) else [cell]
    if isinstance(query, str):
        query = parse_text(query, schema)
    elif isinstance(query, Expression):
        query = as_query(query)
    if not isinstance(query, Query):
        condition = "be a dict from columns to intervals or categories, a text or made by col"
        way_out = "Write {'age': (30, 40), 'job': 'nurse'} or \"age >= 30 and job == 'nurse'\"."
        raise ValueError(must("A query", condition, way_out, query=query))
    return cells_of(binder.formula(query))


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
        # Intervals of pandas, known by what they have: pandas is not imported
        is_closed = [constraint.closed in ("both", side) for side in ("left", "right")]
        return NumberSet.union([Interval(low, high, *is_closed)])
    point = _read_number(column, constraint)
    return NumberSet.union([Interval(point, point)])


def _read_number(column: Column, value: Any, constraint: Any = None) -> float:
    """Read one bound, as the float that the table is encoded to."""
    if column.has_dates:
        return read_date(column, value)
    if isinstance(value, float) and value == value:  # the usual case, of NumPy, too
        return float(value)
    shown = value if constraint is None else constraint
    if not isinstance(value, Real | Decimal) or isinstance(value, bool) or value != value:
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


def _read_categories(column: Column, constraint: Any) -> CodeSet:
    """Read the allowed categories of a categorical column."""
    # A string is a collection of letters, but means one category
    categories = [constraint] if _is_scalar(constraint) else list(constraint)
    mask = np.zeros(column.cardinality, dtype=bool)
    mask[[column.code_of(category) for category in categories]] = True
    return CodeSet(mask)


def _is_scalar(constraint: Any) -> bool:
    # An array without dimensions is a collection that cannot be iterated over
    is_single = isinstance(constraint, str | bytes) or getattr(constraint, "ndim", 1) == 0
    return is_single or not isinstance(constraint, Collection)
