"""Queries bound to the columns of a table: formulas over sets of columns, totals, and boxes.

Boxes are queries as arrays: unions of disjoint boxes, each an interval or a set of codes per
column.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from math import gcd, lcm, prod
from numbers import Real
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.tabular._columns import (
    INTEGERS,
    NUMBERS,
    Column,
    around_constants,
    read_date,
    unknown_column,
)
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries._sets import (
    FALSE,
    TRUE,
    Atom,
    Cell,
    CodeSet,
    ColumnSet,
    Formula,
    Interval,
    NumberSet,
    join,
    negate,
    simple,
)
from skcircuits.tabular.queries.expressions import (
    Absolute,
    ColumnName,
    Comparison,
    Conjunction,
    Count,
    Disjunction,
    Expression,
    Membership,
    Missing,
    Negation,
    Place,
    Query,
)

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}


@dataclass(frozen=True)
class Total:
    """A weighted sum of columns, (column, factor), and of indicators, (column, set, weight)."""

    columns: tuple[tuple[int, float], ...]
    indicators: tuple[tuple[int, ColumnSet, float], ...] = ()

    def on_columns(self, columns: list[int]) -> Total:
        """The same sum in a wider table, of which these are some columns."""
        return Total(
            tuple((columns[j], factor) for j, factor in self.columns),
            tuple((columns[j], own, weight) for j, own, weight in self.indicators),
        )

    def where_known(self, numbers: dict[int, float], values: NumberSet) -> tuple[Total, NumberSet]:
        """What is left of the condition that the sum lies in `values` if some numbers are known."""
        known = sum(factor * numbers[j] for j, factor in self.columns if j in numbers)
        for j, own, weight in self.indicators:
            if j in numbers:
                assert isinstance(own, NumberSet)
                known += weight * float(own.contains(np.array(numbers[j])))
        columns = tuple(term for term in self.columns if term[0] not in numbers)
        indicators = tuple(term for term in self.indicators if term[0] not in numbers)
        lower, upper = values.intervals()
        return Total(columns, indicators), NumberSet.closed(lower - known, upper - known)


class Binder:
    """Turns queries about a table into formulas."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema

    def formula(self, query: Query) -> Formula:
        if isinstance(query, Conjunction | Disjunction):
            parts = [self.formula(part) for part in query.parts]
            return join(parts, union=isinstance(query, Disjunction))
        if isinstance(query, Negation):
            return negate(self.formula(query.part))
        if isinstance(query, Membership):
            return self._membership(query)
        if isinstance(query, Missing):
            # Whether a cell is missing is no event of the density: it has no probability
            condition = (
                "occur only in a condition, combined by 'and', because densities do not "
                "describe which cells are missing"
            )
            way_out = "Count missing cells in the table itself."
            raise ValueError(must("'is missing' in a query", condition, way_out))
        assert isinstance(query, Comparison)
        return self._comparison(query)

    def index_of(self, name: ColumnName) -> int:
        if isinstance(name, Place):
            return name.index
        if name not in self._schema.index_of:
            raise unknown_column(name, self._schema.names)
        return self._schema.index_of[name]

    def column_of(self, expression: Any) -> int | None:
        """Index of the column that an expression is, None where it is more than that."""
        name = expression.column if isinstance(expression, Expression) else None
        return None if name is None else self.index_of(name)

    def _comparison(self, query: Comparison) -> Formula:
        left, op, right = query.left, query.op, query.right
        if not isinstance(left, Expression):
            # The column comes first from here on
            left, op, right = right, MIRRORED[op], left
        column = self.column_of(left)
        if not isinstance(right, Expression):
            if column is not None:
                return simple(Atom(column, self._compared(column, op, right)))
            return self._linear(left - right, Interval.of_comparison(op, 0.0))
        other = self.column_of(right)
        if column is not None and other is not None and self._are_categorical(column, other):
            return self._same_category(column, op, other)
        if column is not None and not right.terms:
            return simple(Atom(column, self._compared(column, op, right.constant)))
        return self._linear(left - right, Interval.of_comparison(op, 0.0))

    def _membership(self, query: Membership) -> Formula:
        column = self.column_of(query.operand)
        if column is None:
            numbers = [self._number("an expression", value) for value in query.values]
            return self._linear(query.operand, [Interval(v, v) for v in numbers])
        return simple(Atom(column, self._one_of(column, query.values)))

    def _one_of(self, index: int, values: Iterable[Any]) -> ColumnSet:
        """Set of some constants of a column."""
        column = self._schema.columns[index]
        if column.categories is None:
            return NumberSet.points([self._cell(column, value) for value in values])
        mask = np.zeros(column.cardinality, dtype=bool)
        mask[[column.code_of(value) for value in values]] = True
        return CodeSet(mask)

    def _compared(self, index: int, op: str, value: Any) -> ColumnSet:
        """Set of the values of a column that compare with a constant."""
        column = self._schema.columns[index]
        if column.categories is None:
            return NumberSet.comparison(op, self._cell(column, value))
        if op in ("==", "!="):
            mask = np.arange(column.cardinality) == column.code_of(value)
            return CodeSet(mask if op == "==" else ~mask)
        # Categories that are numbers compare with any number, also with one that is no category
        if column.has_numbers and isinstance(value, Real) and not isinstance(value, bool):
            assert column.categories is not None
            return CodeSet(OPERATORS[op](column.categories, self._number(repr(column.name), value)))
        if not column.is_ordered:
            way_out = "Use ==, != or in, or declare an order, as pandas' ordered categories do."
            condition = "be ordered to compare by < or >"
            raise ValueError(
                must(f"Categories of column {column.name!r}", condition, way_out, op=op)
            )
        return CodeSet(OPERATORS[op](np.arange(column.cardinality), column.code_of(value)))

    def _cell(self, column: Column, value: Any) -> float:
        """Constant of a numerical column as the float that the table is encoded to."""
        if column.has_dates:
            return read_date(column, value)
        return self._number(f"column {column.name!r}", value)

    def _number(self, what: str, value: Any) -> float:
        if isinstance(value, float) and value == value:  # the usual case, of NumPy, too
            return float(value)
        if (
            isinstance(value, bool | np.bool_)
            or not isinstance(value, Real | Decimal)
            or value != value
        ):
            raise ValueError(must("A query", f"compare {what} with a number", value=value))
        try:
            return float(value)
        except OverflowError as error:
            condition = f"compare {what} with numbers of at most 1.8e+308 in magnitude"
            raise ValueError(must("A query", condition)) from error

    def _are_categorical(self, *indices: int) -> bool:
        return all(self._schema.columns[j].categories is not None for j in indices)

    def _same_category(self, left: int, op: str, right: int) -> Formula:
        """Compare two categorical columns, by their categories."""
        one, two = self._schema.columns[left], self._schema.columns[right]
        # A row compared with itself, whatever its category
        if left == right:
            return TRUE if op in ("==", "<=", ">=") else FALSE
        if op not in ("==", "!=") and not (one.has_numbers and two.has_numbers):
            condition = "compare two categorical columns by == or !="
            raise ValueError(must("A query", condition, columns=[one.name, two.name], op=op))
        assert one.categories is not None and two.categories is not None
        rows: list[Formula] = []
        for code, label in enumerate(one.categories.tolist()):
            allowed = [bool(OPERATORS[op](label, other)) for other in two.categories.tolist()]
            own = Atom(left, CodeSet(np.arange(one.cardinality) == code))
            # One part per category of the left column: boxes hold sets of single columns
            rows.append(join([own, simple(Atom(right, CodeSet(np.array(allowed))))], union=False))
        return join(rows, union=True)

    def _linear(self, expression: Expression, values: list[Interval]) -> Formula:
        """Formula that a weighted sum lies in one of some intervals."""
        absolute = [term for term in expression.terms if isinstance(term[0], Absolute)]
        if absolute:
            (term, factor), *others = absolute
            if others or len(expression.terms) > 1:
                way_out = "Write abs(x - y) < 3 in place of abs(x) - abs(y), or ask for its cases."
                raise ValueError(must("abs in a query", "be compared with a number", way_out))
            assert isinstance(term, Absolute)
            # |t| factor + constant in an interval, solved for |t|, then for t
            values = [own.before(factor, expression.constant) for own in values]
            return self._linear(term.inner, [part for own in values for part in own.of_absolute()])
        total, constant = self._total(expression)
        if not total.columns and not total.indicators:
            holds = NumberSet.union(values).contains(np.array([constant]))[0]
            return TRUE if holds else FALSE
        factors = [own for _, own in total.columns] + [own for *_, own in total.indicators]
        is_integral = all(_holds_integers(self._schema.columns[j]) for j, _ in total.columns)
        unit = _common_unit(factors) if is_integral else None
        # Proportional sums are one variable: x - y > 0 and y < x
        scale = factors[0] if unit is None else unit
        values = [own.before(scale, constant) for own in values]
        multiples = [factor / scale for factor in factors]
        if unit is not None:
            # Sums are integers in this unit: 0.1 i + 0.2 j <= 0.3 holds for i = j = 1
            multiples = [float(round(own)) for own in multiples]
            values = [own.near_integers(1.0 + abs(constant / unit)) for own in values]
            if len(factors) > 1:
                # Ends that are no sums of integers: once a part is known, the rest is rounded
                values = [own.between_integers() for own in values]
        elif constant or abs(scale) != 1.0 or len(factors) > 1:
            sizes = [self._schema.columns[j].largest for j, _ in total.columns]
            sizes += [1.0] * len(total.indicators)
            size = abs(constant) + sum(abs(f) * own for f, own in zip(factors, sizes))
            values = [own.with_ties(size / abs(scale)) for own in values]
        wanted = NumberSet.union(values)
        columns = tuple((j, own) for (j, _), own in zip(total.columns, multiples))
        if len(columns) == 1 and not total.indicators:
            return self._one_column(columns[0][0], wanted)
        weights = multiples[len(columns) :]
        indicators = tuple((*own[:2], w) for own, w in zip(total.indicators, weights))
        return simple(Atom(Total(columns, indicators), wanted))

    def _one_column(self, index: int, values: NumberSet) -> Formula:
        """Formula that the number of a column lies in a set."""
        column = self._schema.columns[index]
        if column.categories is None:
            return simple(Atom(index, values))
        return simple(Atom(index, CodeSet(values.contains(column.categories.astype(float)))))

    def _total(self, expression: Expression) -> tuple[Total, float]:
        """Collect the factors of each column, those that cancel left out, and the constant."""
        factors: dict[int, float] = {}
        indicators: dict[tuple[int, ColumnSet], float] = {}
        constant = expression.constant
        for term, factor in expression.terms:
            if isinstance(term, Count):
                for query in term.queries:
                    formula = self.formula(query)
                    if formula in (TRUE, FALSE):
                        constant += factor * (formula == TRUE)
                        continue
                    # One query may be counted twice: its weights add up
                    key = self._indicator(formula)
                    indicators[key] = indicators.get(key, 0.0) + factor
            else:
                assert not isinstance(term, Absolute)  # of a sum these became two comparisons
                index = self.index_of(term)
                self._require_numbers(index)
                factors[index] = factors.get(index, 0.0) + factor
        # x - x is zero: terms that cancel must not need the density of a difference
        columns = tuple((j, own) for j, own in sorted(factors.items()) if own != 0.0)
        counted = tuple((*key, weight) for key, weight in indicators.items() if weight != 0.0)
        return Total(columns, counted), constant

    def _require_numbers(self, index: int) -> None:
        column = self._schema.columns[index]
        if column.categories is not None and not column.has_numbers:
            condition = "be numerical to compute with it"
            way_out = f"Compare column {column.name!r} with its categories."
            raise ValueError(must(f"Column {column.name!r}", condition, way_out))
        # Sums of dates have no meaning, and factors would depend on the day they are counted from
        if column.has_dates:
            condition = "be compared with a date, not computed with"
            raise ValueError(must(f"Column {column.name!r} of dates", condition))

    def _indicator(self, formula: Formula) -> tuple[int, ColumnSet]:
        """Column and set of a query that is counted."""
        if isinstance(formula, Atom) and isinstance(formula.variable, int):
            return formula.variable, formula.values
        condition = "involve a single column"
        way_out = "Count parts of one column each, and join counts by and, or."
        raise ValueError(must("Each query in count", condition, way_out))


def _holds_integers(column: Column) -> bool:
    """Whether all numbers of a column are integers, also where they are categories."""
    if column.categories is None:
        return column.is_integral
    numbers = column.categories.astype(float)
    return bool((numbers == np.floor(numbers)).all())


def _common_unit(factors: Sequence[float]) -> float | None:
    """Largest number of which all factors are multiples as written, with the sign of the first."""
    written = [Fraction(repr(factor)) for factor in factors]
    whole = lcm(*(own.denominator for own in written))
    multiples = [int(own * whole) for own in written]
    unit = gcd(*multiples)
    # Factors like 1/3 have no short decimals, and sums of huge multiples no exact floats
    if max(map(abs, multiples)) > MAX_MULTIPLE * unit:
        return None
    return float(Fraction(unit, whole)) * (1.0 if multiples[0] > 0 else -1.0)


# Boxes of all queries together before they are refused
MAX_BOXES = 2**20
# Of the common unit of factors
MAX_MULTIPLE = 2**20


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

    def around_numbers(
        self,
        grids: IntArray,
        constants: FloatArray | None = None,
        observed: FloatArray | None = None,
    ) -> Boxes:
        """Let intervals cover what their numbers, and `constants` (d,), stand for."""
        # Totals know the numbers of constant columns but where others are `observed` (n_boxes, d)
        if constants is not None and not np.isnan(constants).all():
            boxes = self._without_constants(constants, observed) if self.totals else self
            return boxes._around_constants(constants).around_numbers(grids)
        is_integral = grids == INTEGERS
        if not is_integral.any():
            return replace(self, grids=grids)
        lower = np.where(is_integral, np.ceil(self.lower), self.lower)
        upper = np.where(is_integral, np.floor(self.upper), self.upper)
        inside = replace(self, lower=lower, upper=upper, grids=grids).without_empty()
        # Changed in place: these arrays are not shared
        half = 0.5 * is_integral
        for ends, step in ((inside.lower, -half), (inside.upper, half)):
            moved = ends + step
            # From 2^52 on no float lies half-way between two integers
            np.copyto(ends, moved, where=moved - ends == step)
        return inside

    def _without_constants(self, constants: FloatArray, observed: FloatArray | None) -> Boxes:
        """Replace constant columns in totals by their numbers."""
        lower, upper = self.lower.copy(), self.upper.copy()
        totals = {}
        for i, own in self.totals.items():
            is_known = ~np.isnan(constants)
            if observed is not None:
                is_known &= np.isnan(observed[i])
            numbers = {j: float(constants[j]) for j in np.flatnonzero(is_known).tolist()}
            left = []
            for total, values in (total.where_known(numbers, values) for total, values in own):
                if total.columns or total.indicators:
                    left.append((total, values))
                elif not values.contains(np.array(0.0)):
                    lower[i], upper[i] = np.inf, -np.inf
            if left:
                totals[i] = tuple(left)
        return replace(self, lower=lower, upper=upper, totals=totals).without_empty()

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
        """Where intervals end for a density (n_boxes, d): before the float after the last one."""
        # An interval and its complement leave nothing out. Half-way between integers nothing is,
        # and a single number has probability zero, unless all floats count.
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
