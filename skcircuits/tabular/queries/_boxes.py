"""Queries as arrays: unions of disjoint boxes, each an interval or a set of codes per column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.tabular._columns import INTEGERS, NUMBERS, around_constants
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries._binding import Total
from skcircuits.tabular.queries._sets import Cell, CodeSet, NumberSet

# Boxes of all queries together before they are refused
MAX_BOXES = 2**20


@dataclass(frozen=True)
class Boxes:
    """Disjoint boxes whose unions are the queries; a strict bound is the neighbouring float."""

    lower: FloatArray  # (n_boxes, d), closed bounds, NaN where unbounded or of categories
    upper: FloatArray  # (n_boxes, d)
    states: dict[int, BoolArray]  # (n_boxes, k), allowed codes of constrained columns
    query: IntArray  # (n_boxes,), that a box belongs to; one without any is impossible
    n_queries: int
    totals: dict[int, tuple[tuple[Total, Any], ...]] = field(default_factory=dict)  # by box
    grids: IntArray | None = None  # (d,), what numbers stand for, once widened

    def __len__(self) -> int:
        return len(self.query)

    def take(self, boxes: IntArray) -> Boxes:
        """Select boxes, perhaps several times."""
        states = {j: allowed[boxes] for j, allowed in self.states.items()}
        chosen = boxes.tolist() if self.totals else []
        totals = {i: self.totals[box] for i, box in enumerate(chosen) if box in self.totals}
        lower, upper = self.lower[boxes], self.upper[boxes]
        query = self.query[boxes]
        return Boxes(lower, upper, states, query, self.n_queries, totals, self.grids)

    @classmethod
    def concatenate(cls, parts: Sequence[Boxes]) -> Boxes:
        """Boxes of several groups of the same queries, in the order of the queries."""
        if len(parts) == 1:
            return parts[0]
        # Parts without a constraint on a categorical column allow all its codes
        sizes = {j: own.shape[1] for part in parts for j, own in part.states.items()}
        everything = {j: np.ones((1, size), dtype=bool) for j, size in sizes.items()}
        states = {
            j: np.concatenate([p.states.get(j, free.repeat(len(p), axis=0)) for p in parts])
            for j, free in everything.items()
        }
        firsts = np.cumsum([0, *map(len, parts)]).tolist()
        totals = {first + i: own for first, p in zip(firsts, parts) for i, own in p.totals.items()}
        lower, upper, query = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("lower", "upper", "query")
        )
        joined = cls(lower, upper, states, query, parts[0].n_queries, totals)
        return joined.take(np.argsort(query, kind="stable"))

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
        ).without_empty()

    def around_numbers(self, grids: IntArray, constants: FloatArray | None = None) -> Boxes:
        """Let intervals cover what their numbers stand for in columns of some kinds (d,).

        `constants` (d,): numbers of constant columns, which what is near counts as; NaN for others.
        """
        if constants is not None and not np.isnan(constants).all():
            return self._around_constants(constants).around_numbers(grids)
        is_integral = grids == INTEGERS
        if not is_integral.any():
            return replace(self, grids=grids)
        lower, upper = self.lower.copy(), self.upper.copy()
        np.ceil(lower, out=lower, where=is_integral)
        np.floor(upper, out=upper, where=is_integral)
        inside = replace(self, lower=lower, upper=upper, grids=grids).without_empty()
        # Changed in place: these arrays are not shared
        half = 0.5 * is_integral
        for ends, sign in ((inside.lower, -1.0), (inside.upper, 1.0)):
            moved = ends + sign * half
            # From 2^52 on no float lies half-way between two integers
            np.copyto(ends, moved, where=moved - ends == sign * half)
        return inside

    def _around_constants(self, constants: FloatArray) -> Boxes:
        """Let intervals hold all that counts as the number of a constant column, or nothing."""
        first, last = around_constants(constants)
        # Comparisons with NaN are false: neither holds in other columns and of open sides
        is_below, is_above = self.upper < constants, self.lower > constants
        is_other = np.isnan(constants)
        lower = np.where(is_below | is_other, self.lower, np.minimum(self.lower, first))
        upper = np.where(is_above | is_other, self.upper, np.maximum(self.upper, last))
        beyond = np.maximum(self.lower, np.nextafter(last, np.inf))
        before = np.minimum(self.upper, np.nextafter(first, -np.inf))
        lower, upper = np.where(is_above, beyond, lower), np.where(is_below, before, upper)
        return replace(self, lower=lower, upper=upper).without_empty()

    @property
    def stops(self) -> FloatArray:
        """Where intervals end for a density (n_boxes, d): before the float after the last one.

        So an interval and its complement leave nothing out. Half-way between integers nothing is,
        and a single number has probability zero, unless all floats count.
        """
        ends_there = self.lower == self.upper
        if self.grids is not None and self.grids.any():
            ends_there &= self.grids == NUMBERS
            ends_there |= (self.grids == INTEGERS) & (self.upper != np.floor(self.upper))
        return np.where(ends_there, self.upper, np.nextafter(self.upper, np.inf))

    def without_empty(self) -> Boxes:
        """Leave out boxes that hold no row."""
        # Comparisons with NaN are false: an unbounded side empties nothing
        filled = ~(self.lower > self.upper).any(axis=1)
        for allowed in self.states.values():
            filled &= allowed.any(axis=1)
        return self if filled.all() else self.take(np.flatnonzero(filled))


def boxes_of_cells(cells: list[tuple[int, Cell]], n_queries: int, schema: TableSchema) -> Boxes:
    """Write cells, each with the query it belongs to, as arrays."""
    # A column of several intervals splits its cell: one box per combination
    pieces = [_intervals(cell, schema) for _, cell in cells]
    counts = [prod(len(lower) for _, lower, _ in own) for own in pieces]
    n_boxes = sum(counts)
    if n_boxes > MAX_BOXES:
        raise _too_many(n_boxes)
    shape = (n_boxes, len(schema.columns))
    lower, upper = np.full((2, *shape), np.nan)
    states: dict[int, BoolArray] = {}
    totals: dict[int, tuple[tuple[Total, Any], ...]] = {}
    start = 0
    for (_, cell), own, n in zip(cells, pieces, counts):
        if n == 0:
            continue
        rows = slice(start, start + n)
        repeat = n
        for j, low, high in own:
            if n > 1:
                repeat //= len(low)
                take = np.arange(n) // repeat % len(low)
                lower[rows, j], upper[rows, j] = np.array(low)[take], np.array(high)[take]
            else:  # the usual case
                lower[start, j], upper[start, j] = low[0], high[0]
        for variable, values in cell.items():
            if isinstance(variable, Total):
                for row in range(start, start + n):
                    totals[row] = (*totals.get(row, ()), (variable, values))
            elif isinstance(values, CodeSet):
                if variable not in states:
                    states[variable] = np.ones((n_boxes, len(values.mask)), dtype=bool)
                states[variable][rows] = values.mask
        start += n
    query = np.array([i for i, _ in cells], dtype=np.int64)
    if n_boxes != len(cells) or max(counts, default=1) > 1:
        query = np.repeat(query, counts)
    return Boxes(lower, upper, states, query, n_queries, totals)


def _intervals(cell: Cell, schema: TableSchema) -> list[tuple[int, list[float], list[float]]]:
    """Intervals of each constrained numerical column; of integers, neighbours joined."""
    found = []
    for variable, values in cell.items():
        if isinstance(variable, int) and isinstance(values, NumberSet):
            # One interval is rounded with the others; it has no neighbours
            if len(values.edges) > 2 and schema.columns[variable].is_integral:
                values = values.of_integers()
            found.append((variable, *values.bounds()))
    return found


def _too_many(n_boxes: int) -> ValueError:
    way_out = "Ask for parts of it and add their probabilities."
    return ValueError(
        must("A query", f"fall into at most {MAX_BOXES} boxes", way_out, n_boxes=n_boxes)
    )
