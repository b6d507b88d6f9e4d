"""Queries as objects: columns, expressions of columns, and formulas of comparisons.

``col("age").between(30, 40) & (col("sex") == "male")``. Strings and dicts are read as the same
objects, so that all forms have the same meaning.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from skcircuits.exceptions import must


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
            raise ValueError(must("The divisor in a query", "not be zero", divisor=divisor))
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
            raise ValueError(must("closed", allowed, closed=closed))
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
            what = "A query by isin"
            raise ValueError(must(what, "have a collection of constants", values=values))
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
        raise ValueError(must("count", "have at least one query"))
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
            raise ValueError(must("A factor in a query", "be a number", way_out))
        return value.constant
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise ValueError(must("What a query computes with", "be numbers and columns", value=value))
    try:
        number = float(value)
    except OverflowError as error:
        raise ValueError(must("A number in a query", "be at most 1.8e+308 in magnitude")) from error
    # NaN and infinities alike: neither minus itself is zero
    if number - number != 0.0:
        raise ValueError(must("A number in a query", "be finite", value=value))
    return number
