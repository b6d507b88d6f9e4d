"""Queries as objects and as text: expressions of columns, and formulas of comparisons.

``col("age").between(30, 40) & (col("sex") == "male")``. Strings and dicts are read as the same
objects, so that all forms have the same meaning.

Text is read by a grammar of its own and never evaluated. From loose to tight
(``doc/user_guide/grammar.md`` explains it)::

    query      = conjunction { ("or" | "|") conjunction }
    conjunction= negation { ("and" | "&") negation }
    negation   = { "not" | "~" } predicate
    predicate  = sum { comparison sum }
               | sum ["not"] "in" (set | interval)
               | sum ["not"] "between" sum "and" sum
               | sum "is" ["not"] "missing"
    sum        = term { ("+" | "-") term }
    term       = factor { ("*" | "/") factor }
    factor     = ["+" | "-"] factor | constant | column | "(" query ")"
               | "abs(" sum ")" | "sum(" sum, ... ")" | "count(" query, ... ")"
"""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from skcircuits.exceptions import invalid, must
from skcircuits.tabular._columns import unknown_column
from skcircuits.tabular._schema import TableSchema

HOW = (
    "Join comparisons of columns by and, or, not: "
    "\"30 <= age < 40 and job in ('nurse', 'cook')\"; the grammar is in the user guide."
)
NUMBER = r"(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?(?!\w)"
TOKEN = re.compile(
    rf"""\s*(?:
    (?P<number>{NUMBER})
  | (?P<string>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
  | `(?P<quoted>[^`]+)`
  | (?P<name>[^\W\d]\w*)
  | (?P<symbol><=|>=|==|!=|[-+*/<>&|~(),\[\]{{}}])
  | (?P<end>$)
  )""",
    re.VERBOSE | re.DOTALL,
)
# A list of plain numbers is one token: it may be long
NUMBERS = re.compile(
    r"\s*([(\[{])((?:\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*(?:,|(?=[)\]}])))+)\s*([)\]}])"
)
COMPARISONS = {"<", "<=", ">", ">=", "==", "!="}
CONSTANTS = {"True": True, "False": False, "None": None, "inf": float("inf")}
CLOSING = {"(": ")", "[": "]", "{": "}"}
ESCAPE, WHITESPACE = re.compile(r"\\(.)", re.DOTALL), {"n": "\n", "t": "\t"}
# Brackets within brackets, and "not" before "not"
MAX_DEPTH = 100


class Logical:
    """What ``&``, ``|`` and ``~`` combine: conditions, and columns of truth values."""

    def __and__(self, other: Any) -> Query:
        return Conjunction((as_query(self), as_query(other)))

    def __rand__(self, other: Any) -> Query:
        return as_query(other) & self

    def __or__(self, other: Any) -> Query:
        return Disjunction((as_query(self), as_query(other)))

    def __ror__(self, other: Any) -> Query:
        return as_query(other) | self

    def __invert__(self) -> Query:
        return Negation(as_query(self))

    def __bool__(self) -> bool:
        way_out = (
            "Join queries by &, | and ~, in brackets, and write col('age').between(30, 40) "
            "for a chain of comparisons."
        )
        raise TypeError(must("A query", "be no truth value: it is about all rows", way_out))


class Query(Logical):
    """A condition on the rows of a table."""


@dataclass(frozen=True, eq=False)
class Comparison(Query):
    """``left op right``; sides are expressions or constants."""

    left: Any
    op: str
    right: Any


@dataclass(frozen=True, eq=False)
class Membership(Query):
    """An expression is one of some constants."""

    operand: Expression
    values: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Missing(Query):
    """The cell of a column is missing."""

    operand: Expression


@dataclass(frozen=True, eq=False)
class Conjunction(Query):
    """All parts hold."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, eq=False)
class Disjunction(Query):
    """Some part holds."""

    parts: tuple[Query, ...]


@dataclass(frozen=True, eq=False)
class Negation(Query):
    """The part does not hold."""

    part: Query


@dataclass(frozen=True)
class Place:
    """A column by its index, however columns are named."""

    index: int


# Names of pandas may be dates, numbers, or tuples (of several levels)
ColumnName = Hashable


@dataclass(frozen=True, eq=False)
class Absolute:
    """Absolute value of an expression."""

    inner: Expression


@dataclass(frozen=True, eq=False)
class Count:
    """How many of some queries hold."""

    queries: tuple[Query, ...]


Term = ColumnName | Absolute | Count


class Expression(Logical):
    """A weighted sum of columns, absolute values and counts, plus a constant.

    A comparison of expressions is a :class:`Query`. Expressions are made by `col` and `count`.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, terms: tuple[tuple[Term, float], ...], constant: float = 0.0) -> None:
        self.terms, self.constant = terms, constant

    @property
    def column(self) -> ColumnName | None:
        """The column, if the expression is a single column."""
        if len(self.terms) != 1 or self.constant != 0.0:
            return None
        term, factor = self.terms[0]
        return term if factor == 1.0 and not isinstance(term, Absolute | Count) else None

    def __add__(self, other: Any) -> Expression:
        other = _as_expression(other)
        return Expression(self.terms + other.terms, self.constant + other.constant)

    def __radd__(self, other: Any) -> Expression:
        return self + other

    def __neg__(self) -> Expression:
        return self * -1.0

    def __pos__(self) -> Expression:
        return self

    def __sub__(self, other: Any) -> Expression:
        return self + _as_expression(other) * -1.0

    def __rsub__(self, other: Any) -> Expression:
        return self * -1.0 + other

    def __mul__(self, factor: Any) -> Expression:
        factor = _as_number(factor)
        terms = tuple((term, own * factor) for term, own in self.terms)
        return Expression(terms, self.constant * factor)

    def __rmul__(self, factor: Any) -> Expression:
        return self * factor

    def __truediv__(self, divisor: Any) -> Expression:
        divisor = _as_number(divisor)
        if divisor == 0.0:
            raise invalid("The divisor in a query", "not be zero", divisor=divisor)
        terms = tuple((term, own / divisor) for term, own in self.terms)
        return Expression(terms, self.constant / divisor)

    def __abs__(self) -> Expression:
        return Expression(((Absolute(self), 1.0),))

    def __eq__(self, other: object) -> Query:  # type: ignore[override]
        return Comparison(self, "==", other)

    def __ne__(self, other: object) -> Query:  # type: ignore[override]
        return Comparison(self, "!=", other)

    def __lt__(self, other: Any) -> Query:
        return Comparison(self, "<", other)

    def __le__(self, other: Any) -> Query:
        return Comparison(self, "<=", other)

    def __gt__(self, other: Any) -> Query:
        return Comparison(self, ">", other)

    def __ge__(self, other: Any) -> Query:
        return Comparison(self, ">=", other)

    def between(self, lower: Any, upper: Any, closed: str = "both") -> Query:
        """Make the query that the value lies in an interval.

        Parameters
        ----------
        lower, upper : number, category or date
            Bounds; None means no bound.
        closed : {"both", "left", "right", "neither"}, default="both"
            Ends that belong to the interval.

        Returns
        -------
        Query
            The condition.
        """
        if closed not in ("both", "left", "right", "neither"):
            allowed = "be 'both', 'left', 'right' or 'neither'"
            raise invalid("closed", allowed, closed=closed)
        above = Comparison(self, ">=" if closed in ("both", "left") else ">", lower)
        below = Comparison(self, "<=" if closed in ("both", "right") else "<", upper)
        given = ((above, lower), (below, upper))
        return Conjunction(tuple(part for part, bound in given if bound is not None))

    def isin(self, values: Collection[Any]) -> Query:
        """Make the query that the value is one of some constants.

        Parameters
        ----------
        values : collection
            Numbers, categories or dates.

        Returns
        -------
        Query
            The condition.
        """
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection):
            raise invalid("A query by isin", "have a collection of constants", values=values)
        return Membership(self, tuple(values))

    def is_missing(self) -> Query:
        """Make the query that the cell is missing.

        Returns
        -------
        Query
            The condition.
        """
        return Missing(self)

    def __repr__(self) -> str:
        return f"Expression({self.terms!r}, {self.constant!r})"


def col(name: Hashable) -> Expression:
    """Refer to a column in a query.

    Parameters
    ----------
    name : str, int or hashable
        Name of a column of a dataframe (a tuple if names have several levels), or index of a
        column of an array.

    Returns
    -------
    Expression
        The column as an expression. It supports comparisons (``<``, ``<=``, ``>``, ``>=``, ``==``,
        ``!=``, ``between``, ``isin``, ``is_missing``) and arithmetic (``+``, ``-``, multiples,
        ``abs``). Comparisons are combined by ``&``, ``|`` and ``~``. The results are queries of
        densities; see :meth:`skcircuits.GaussianMixtureDensity.probability`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits import GaussianMixtureDensity, col
    >>> X = np.random.default_rng(0).normal(size=(500, 2))
    >>> density = GaussianMixtureDensity(n_components=1).fit(X)
    >>> query = col(0).between(-1, 1) & (col(1) > 0)
    >>> density.probability(query) == density.probability("-1 <= x0 <= 1 and x1 > 0")
    True
    """
    if isinstance(name, bool) or not isinstance(name, Hashable):
        raise TypeError(must("A column", "be a name or an index", name=name))
    return Expression(((name, 1.0),))


def count(*queries: Any) -> Expression:
    """Count how many of several queries hold.

    Parameters
    ----------
    *queries : Query or Expression
        Queries about one column each. A column of truth values is a query itself.

    Returns
    -------
    Expression
        The count, to be compared with a number.

    Examples
    --------
    >>> import pandas as pd
    >>> from skcircuits import ChowLiuDensity, col, count
    >>> X = pd.DataFrame({"a": [True, False] * 8, "b": [True, True, False, False] * 4})
    >>> density = ChowLiuDensity().fit(X)
    >>> round(density.probability(count(col("a"), col("b")) >= 1), 3)
    0.75
    """
    if not queries:
        raise invalid("count", "have at least one query")
    return Expression(((Count(tuple(as_query(query) for query in queries)), 1.0),))


def as_query(value: Any) -> Query:
    """Take a column of truth values as the query that it is true."""
    if isinstance(value, Expression):
        return Comparison(value, "==", True)
    if isinstance(value, Query):
        return value
    way_out = "Put comparisons in brackets: (col('age') > 30) & (col('sex') == 'male')."
    raise TypeError(must("What &, | and ~ join", "be queries", way_out, value=value))


def _as_expression(value: Any) -> Expression:
    return value if isinstance(value, Expression) else Expression((), _as_number(value))


def _as_number(value: Any) -> float:
    if isinstance(value, Expression):
        if value.terms:
            way_out = "Products and ratios of columns are no linear expressions."
            raise invalid("A factor in a query", "be a number", way_out)
        return value.constant
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise invalid("What a query computes with", "be numbers and columns", value=value)
    try:
        number = float(value)
    except OverflowError as error:
        raise invalid("A number in a query", "be at most 1.8e+308 in magnitude") from error
    # NaN and infinities alike: neither minus itself is zero
    if number - number != 0.0:
        raise invalid("A number in a query", "be finite", value=value)
    return number


def parse_text(text: str, schema: TableSchema, *, with_slots: bool = False) -> Query:
    """Read a text as a query about named columns or x0, x1, ...; slots remember their places."""
    return _Parser(text, schema, with_slots=with_slots).parse()


class Slot(float):
    """A number of a text, the how manieth it is, and the sign before it."""

    index: int
    sign: float

    @classmethod
    def of(cls, value: float, index: int, sign: float = 1.0) -> Slot:
        """Make one: a float's constructor takes its value alone."""
        slot = cls(value)
        slot.index, slot.sign = index, sign
        return slot

    def __neg__(self) -> Slot:
        return Slot.of(-float(self), self.index, -self.sign)


class _Token(NamedTuple):
    kind: str
    value: str


class _Parser:
    """Recursive descent over the tokens of one text."""

    def __init__(self, text: str, schema: TableSchema, *, with_slots: bool) -> None:
        self._text, self._names = text, _TextNames(schema)
        self._slots = itertools.count() if with_slots else None
        self._tokens = self._split()
        self._at, self._depth = 0, 0

    def parse(self) -> Query:
        """Read the whole text."""
        query = self._as_query(self._disjunction())
        if self._next.kind != "end":
            self._fail("be an expression", self._next.value)
        return query

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        place = 0
        while not tokens or tokens[-1].kind != "end":
            # Only behind `in`: elsewhere numbers in brackets are computed with
            after_in = tokens and tokens[-1] == ("name", "in")
            numbers = NUMBERS.match(self._text, place) if after_in else None
            if numbers is not None and CLOSING[numbers[1]] == numbers[3]:
                tokens.append(_Token("numbers", numbers[2]))
                place = numbers.end()
            match = TOKEN.match(self._text, place)
            if match is None:
                rest = self._text[place : place + 20]
                is_equation = rest.lstrip().startswith("=")
                self._fail("compare by ==" if is_equation else "be an expression", rest)
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match[kind]))
            place = match.end()
        return tokens

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _take(self, *values: str) -> str | None:
        """Step over the next token if it is one of these words or symbols."""
        kind, value = self._tokens[self._at]
        if value in values and kind in ("name", "symbol"):
            self._at += 1
            return value
        return None

    def _expect(self, value: str) -> None:
        if self._take(value) is None:
            self._fail(f"be an expression (expected {value!r})", self._next.value)

    def _disjunction(self) -> Any:
        parts = [self._conjunction()]
        while self._take("or", "|"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else Disjunction(tuple(map(self._as_query, parts)))

    def _conjunction(self) -> Any:
        parts = [self._negation()]
        while self._take("and", "&"):
            parts.append(self._negation())
        return parts[0] if len(parts) == 1 else Conjunction(tuple(map(self._as_query, parts)))

    def _negation(self) -> Any:
        times = 0
        # Counted, not nested: a thousand of them must not exhaust the stack
        while self._take("not", "~"):
            times += 1
        part = self._predicate()
        if times == 0:
            return part
        query = self._as_query(part)
        return Negation(query) if times % 2 else query

    def _predicate(self) -> Any:
        left = self._sum()
        if self._take("is"):
            negated = self._take("not")
            if self._take("missing") is None:
                self._fail("use <, <=, >, >=, ==, !=, in, between or 'is missing'")
            query: Query = Missing(self._as_column(left))
            return Negation(query) if negated else query
        negated = self._take("not")
        if self._take("in"):
            query = self._membership(left)
        elif self._take("between"):
            low = self._sum()
            self._expect("and")
            query = Conjunction(
                (self._compare(left, ">=", low), self._compare(left, "<=", self._sum()))
            )
        elif negated:
            self._fail("be an expression (expected 'in' or 'between' after 'not')")
        else:
            return self._chain(left)
        return Negation(query) if negated else query

    def _chain(self, left: Any) -> Any:
        """Chained comparisons, or an expression without comparison."""
        links = []
        # As in Python: a < b < c means both, with b read once
        while op := self._take(*COMPARISONS):
            right = self._sum()
            links.append(self._compare(left, op, right))
            left = right
        if not links:
            return left
        return links[0] if len(links) == 1 else Conjunction(tuple(links))

    def _compare(self, left: Any, op: str, right: Any) -> Query:
        if isinstance(left, Query) or isinstance(right, Query):
            self._fail("compare columns and constants, not comparisons")
        if not isinstance(left, Expression) and not isinstance(right, Expression):
            self._fail("compare a column with a constant", f"{left!r} {op} {right!r}")
        return Comparison(left, op, right)

    def _membership(self, left: Any) -> Query:
        if not isinstance(left, Expression):
            self._fail("have the column on the left of 'in'", repr(left))
        # A list of numbers is one token, not one for each number and comma
        if self._next.kind == "numbers":
            return Membership(left, self._numbers())
        opening = self._take(*CLOSING)
        if opening is None:
            self._fail("have a collection of constants or an interval on the right of 'in'")
        values, closing = [], None
        while (closing := self._take(*CLOSING.values())) is None:
            values.append(self._constant())
            if self._next.value not in CLOSING.values():
                self._expect(",")
        if closing == CLOSING[opening]:
            return Membership(left, tuple(values))
        # Brackets that do not match are an interval with one open end
        if {opening, closing} not in ({"[", ")"}, {"(", "]"}) or len(values) != 2:
            self._fail("have an interval such as [1, 2) or (1, 2] on the right of 'in'")
        closed = "left" if opening == "[" else "right"
        lower, upper = (None if _is_infinite(value) else value for value in values)
        return left.between(lower, upper, closed)

    def _numbers(self) -> tuple[int | float, ...]:
        """A list of plain numbers."""
        text = self._next.value
        self._at += 1
        try:
            # Integers keep all their digits until they are compared
            read = float if re.search("[.eE]", text) else int
            return tuple(map(read, text.rstrip(", ").split(",")))
        except ValueError as error:
            self._fail(f"be an expression ({error})", text)

    def _sum(self) -> Any:
        value = self._term()
        while op := self._take("+", "-"):
            left, right = self._numeric(value), self._numeric(self._term())
            value = left + right if op == "+" else left - right
        return value

    def _term(self) -> Any:
        value = self._factor()
        while op := self._take("*", "/"):
            left, right = self._numeric(value), self._numeric(self._factor())
            value = self._product(left, op, right)
        return value

    def _product(self, left: Expression, op: str, right: Expression) -> Expression:
        try:
            if op == "/":
                return left / right
            # Either side may be the number; a product of two columns is refused by name
            return right * left if right.terms else left * right
        except ValueError as error:
            self._fail(f"be linear in its columns ({error})")

    def _factor(self) -> Any:
        signs = []
        while sign := self._take("+", "-"):
            signs.append(sign)
        value = self._atom()
        if not signs:
            return value
        is_negative = signs.count("-") % 2
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -value if is_negative else value
        return -self._numeric(value) if is_negative else self._numeric(value)

    def _atom(self) -> Any:
        kind, value = self._next
        if value == "(" and kind == "symbol":
            return self._in_brackets()
        if kind in ("number", "string"):
            return self._literal()
        if kind == "quoted":
            self._at += 1
            return self._names.column(value, is_quoted=True)
        if kind != "name":
            self._fail("be an expression", value or "its end")
        self._at += 1
        if self._next.value == "(" and self._next.kind == "symbol":
            return self._call(value)
        # A column may be called None or inf: then its name wins
        if value in CONSTANTS and not self._names.has(value):
            return CONSTANTS[value]
        return self._names.column(value, is_quoted=False)

    def _in_brackets(self) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._fail("be nested less deeply")
        self._expect("(")
        value = self._disjunction()
        self._expect(")")
        self._depth -= 1
        return value

    def _call(self, function: str) -> Expression:
        if function not in ("abs", "sum", "count"):
            self._fail("be made of comparisons; its functions are abs, sum and count", function)
        self._expect("(")
        values = [self._disjunction()]
        while self._take(","):
            values.append(self._disjunction())
        self._expect(")")
        if function == "count":
            return Expression(((Count(tuple(map(self._as_query, values))), 1.0),))
        numbers = [self._numeric(value) for value in values]
        if function == "sum":
            return sum(numbers[1:], start=numbers[0])
        if len(numbers) > 1:
            self._fail("take the absolute value of one expression")
        return abs(numbers[0])

    def _constant(self) -> Any:
        """A constant in a set, perhaps with a sign."""
        sign = self._take("+", "-")
        kind, value = self._next
        if kind == "name" and value in CONSTANTS:
            self._at += 1
            constant: Any = CONSTANTS[value]
        elif kind in ("number", "string"):
            constant = self._literal()
        else:
            self._fail("have a collection of constants on the right of 'in'", value)
        if sign is None:
            return constant
        if isinstance(constant, str | bool) or constant is None:
            self._fail("have signs before numbers only", repr(constant))
        return -constant if sign == "-" else constant

    def _literal(self) -> Any:
        kind, value = self._next
        self._at += 1
        if kind == "string":
            return ESCAPE.sub(lambda own: WHITESPACE.get(own[1], own[1]), value[1:-1])
        try:
            if self._slots is not None:
                return Slot.of(float(value), next(self._slots))
            # Integers stay integers: beyond 2^53 a float would be another number
            return float(value) if re.search("[.eE]", value) else int(value)
        except ValueError as error:
            self._fail(f"be an expression ({error})", value)

    def _numeric(self, value: Any) -> Expression:
        if isinstance(value, Query):
            self._fail("compute with columns and numbers, not with comparisons")
        try:
            return value if isinstance(value, Expression) else Expression(()) + value
        except ValueError as error:
            self._fail(f"compute with columns and numbers ({error})")

    def _as_column(self, value: Any) -> Expression:
        if not isinstance(value, Expression) or value.column is None:
            self._fail("ask of a column whether it is missing")
        return value

    def _as_query(self, value: Any) -> Query:
        if isinstance(value, Query):
            return value
        # A column of truth values is a query by itself
        place = value.column if isinstance(value, Expression) else None
        if isinstance(place, Place) and self._names.is_categorical(place.index):
            return Comparison(value, "==", True)
        self._fail("be made of comparisons")

    def _fail(self, condition: str, part: str | None = None) -> NoReturn:
        # Generated queries may be very long
        shown = self._text if len(self._text) <= 200 else self._text[:200] + "..."
        details = {} if part is None else {"part": part}
        raise invalid("A query", condition, HOW, query=shown, **details)


class _TextNames:
    """Columns by their names in texts; names of arrays are x0, x1, ..."""

    def __init__(self, schema: TableSchema) -> None:
        self._schema = schema
        # Names without backquotes are compared as Python does: in their NFKC form
        self._known, self._normal = schema.text_names

    def has(self, name: str) -> bool:
        """Whether a column has this name."""
        return name in self._normal

    def is_categorical(self, index: int) -> bool:
        """Whether a column holds categories."""
        return self._schema.columns[index].categories is not None

    def column(self, name: str, *, is_quoted: bool) -> Expression:
        """Expression of the column with a name."""
        forms = self._known if is_quoted else self._normal
        name = name if is_quoted else unicodedata.normalize("NFKC", name)
        if forms.count(name) > 1:
            alike = [known for known, form in zip(self._known, forms) if form == name]
            condition = "put names in backquotes that Python takes for the same"
            raise invalid("A query", condition, names=alike)
        if name not in forms:
            hint = "" if is_quoted else " Categories stand in quotes, names with spaces in `...`."
            raise unknown_column(name, self._known, hint)
        return Expression(((Place(forms.index(name)), 1.0),))


def _is_infinite(value: Any) -> bool:
    return value is None or (isinstance(value, float) and abs(value) == float("inf"))
