"""Queries bound to the columns of a table: formulas over sets of columns and totals."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.tabular._columns import Column, read_date, unknown_column
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular.queries._sets import (
    FALSE,
    TRUE,
    Atom,
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
        if type(value) is float and value == value:  # the usual case
            return value
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
        total = self._total(expression)
        if not total.columns and not total.indicators:
            holds = NumberSet.union(values).contains(np.array([expression.constant]))[0]
            return TRUE if holds else FALSE
        # Proportional sums are one variable: x - y > 0 and y < x
        scale = total.columns[0][1] if total.columns else total.indicators[0][2]
        wanted = NumberSet.union([own.before(scale, expression.constant) for own in values])
        columns = tuple((j, factor / scale) for j, factor in total.columns)
        if len(columns) == 1 and not total.indicators:
            return self._one_column(columns[0][0], wanted)
        indicators = tuple((j, own, weight / scale) for j, own, weight in total.indicators)
        return simple(Atom(Total(columns, indicators), wanted))

    def _one_column(self, index: int, values: NumberSet) -> Formula:
        """Formula that the number of a column lies in a set."""
        column = self._schema.columns[index]
        if column.categories is None:
            return simple(Atom(index, values))
        return simple(Atom(index, CodeSet(values.contains(column.categories.astype(float)))))

    def _total(self, expression: Expression) -> Total:
        """Collect the factors of each column, those that cancel left out."""
        factors: dict[int, float] = {}
        indicators: dict[tuple[int, ColumnSet], float] = {}
        for term, factor in expression.terms:
            if isinstance(term, Count):
                for query in term.queries:
                    # One query may be counted twice: its weights add up
                    key = self._indicator(query)
                    indicators[key] = indicators.get(key, 0.0) + factor
            else:
                assert not isinstance(term, Absolute)  # of a sum these became two comparisons
                index = self.index_of(term)
                self._require_numbers(index)
                factors[index] = factors.get(index, 0.0) + factor
        # x - x is zero: terms that cancel must not need the density of a difference
        columns = tuple((j, own) for j, own in sorted(factors.items()) if own != 0.0)
        counted = tuple((*key, weight) for key, weight in indicators.items() if weight != 0.0)
        return Total(columns, counted)

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

    def _indicator(self, query: Query) -> tuple[int, ColumnSet]:
        """Column and set of a query that is counted."""
        formula = self.formula(query)
        if isinstance(formula, Atom) and isinstance(formula.variable, int):
            return formula.variable, formula.values
        condition = "involve a single column, and be neither certain nor impossible"
        way_out = "Count parts of one column each, and join counts by and, or."
        raise ValueError(must("Each query in count", condition, way_out))
