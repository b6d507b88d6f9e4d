"""Texts that differ in their numbers alone: one is parsed, the numbers of all bound as arrays.

This is for conjunctions in which every number bounds one numerical column; all other texts are
read one by one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skcircuits.protocols import FloatArray
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries._binding import MIRRORED, Binder
from skcircuits.tabular.queries._boxes import Boxes, boxes_of_cells
from skcircuits.tabular.queries._formulas import cells_of, join
from skcircuits.tabular.queries._text import NUMBER, Slot, parse_text
from skcircuits.tabular.queries.expressions import Comparison, Conjunction, Query

# As many texts pay for looking for more of their kind
MIN_ALIKE = 4
# Beyond, the neighbour of a number may be infinite
MAX_NUMBER = 1e308
PLACES_OF_NUMBERS = re.compile(rf"(?<![\w.])({NUMBER})")


def group_alike(queries: Sequence[Any]) -> Iterator[_Alike]:
    """Group texts that are the same but for their numbers, where that is worth it."""
    if len(queries) < MIN_ALIKE:
        return
    groups: dict[tuple[str, ...], _Alike] = {}
    for i, text in enumerate(queries):
        if isinstance(text, str):
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
        except ValueError:  # reading it alone says which text it is
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
    is_number = column.categories is None and column.dates is None
    return (index, op, right) if is_number else None
