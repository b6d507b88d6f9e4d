"""Queries written as text, read as unions of disjoint boxes.

The text is a Python expression over column names: comparisons and chains of them, ``in`` and
``not in``, joined by ``and``, ``or`` and ``not``. It is parsed by `ast` and never evaluated.
"""

from __future__ import annotations

import ast
import re
import unicodedata
from functools import reduce
from itertools import count, pairwise
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.tabular._regions import Interval, Region, States, complement, intersect, unite
from skcircuits.tabular._schema import TableSchema

__all__ = ["parse_query"]

HOW = (
    "Join comparisons of a column with a constant by and, or, not: "
    "\"30 <= age < 40 and job in ('nurse', 'cook')\"."
)
USABLE = "use <, <=, >, >=, ==, != or in"
# The same comparison with its sides exchanged
MIRRORED = {ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE}
ORDER: dict[type[ast.cmpop], np.ufunc] = {
    ast.Lt: np.less,
    ast.LtE: np.less_equal,
    ast.Gt: np.greater,
    ast.GtE: np.greater_equal,
}
QUOTED_OR_NAME = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|`([^`]+)`""")


def parse_query(text: str, schema: TableSchema) -> Region:
    """Read a query.

    Parameters
    ----------
    text : str
        For example ``"30 <= age < 40 and (sex == 'male' or not job in ('nurse', 'cook'))"``.
        Names that are no identifiers stand in backticks; columns of an array are x0, x1, ....
        Names without backticks are compared as Python does: in their NFKC form.
    schema : TableSchema
        The table the query is about.

    Returns
    -------
    list of Box
        Disjoint boxes whose union is the query.

    Raises
    ------
    ValueError
        If the text is no such expression, or names an unknown column or label.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.tabular import TableSchema
    >>> from skcircuits.tabular._text_queries import parse_query
    >>> parse_query("x0 >= 1 and not x1 > 2", TableSchema.learn(np.eye(2) / 2))
    [{0: Interval(lower=1.0, upper=inf), 1: Interval(lower=-inf, upper=2.0)}]
    """
    return _Reader(text, schema).region


class _Reader:
    """Reads one text; keeps it for error messages."""

    def __init__(self, text: str, schema: TableSchema) -> None:
        self.text = text
        self.schema = schema
        self.quoted: dict[str, str] = {}
        # No name of the text may look like a stand-in, also not once ast has normalised it
        plain = unicodedata.normalize("NFKC", text)
        prefixes = (f"_quoted{k}_" for k in count())
        self.prefix = next(prefix for prefix in prefixes if prefix not in plain)
        source = QUOTED_OR_NAME.sub(self._hide_name, text).strip()
        try:
            self.region = self._read(self._parse(source))
        except (RecursionError, MemoryError) as error:
            raise self._error("be nested less deeply") from error

    def _parse(self, source: str) -> ast.expr:
        try:
            return ast.parse(source, mode="eval").body
        except (SyntaxError, ValueError) as error:
            raise self._error(f"be an expression ({error.args[0]})") from error

    def _hide_name(self, match: re.Match[str]) -> str:
        """Replace a name in backticks by an identifier; leave strings alone."""
        if match[1]:
            return match[1]
        stand_in = f"{self.prefix}{len(self.quoted)}"
        self.quoted[stand_in] = match[2]
        # Blanks, since a keyword may stand right before or behind the backticks
        return f" {stand_in} "

    def _read(self, node: ast.expr) -> Region:
        if isinstance(node, ast.BoolOp):
            parts = [self._read(value) for value in node.values]
            return reduce(intersect if isinstance(node.op, ast.And) else unite, parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return complement(self._read(node.operand))
        if isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            links = [
                self._compare(left, op, right)
                for (left, right), op in zip(pairwise(operands), node.ops)
            ]
            return reduce(intersect, links)
        if isinstance(node, ast.Name):
            # A column of truth values says itself what is asked
            position = self._column(node.id)
            if self.schema.columns[position].categories is not None:
                return self._labels(position, ast.Eq(), True)
        raise self._error("be made of comparisons", node)

    def _compare(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Region:
        """One comparison of a column with a constant, on either side."""
        if not isinstance(left, ast.Name):
            if type(op) not in MIRRORED and not isinstance(op, ast.Eq | ast.NotEq):
                raise self._error("have the column on the left of 'in'", left)
            op = MIRRORED.get(type(op), type(op))()
            left, right = right, left
        if not isinstance(left, ast.Name) or isinstance(right, ast.Name):
            raise self._error("compare a column with a constant", left)
        try:
            value = ast.literal_eval(right)
        except (ValueError, TypeError, SyntaxError) as error:
            raise self._error("compare a column with a constant", right) from error
        position = self._column(left.id)
        if isinstance(op, ast.In | ast.NotIn):
            region = self._member(position, value)
            return complement(region) if isinstance(op, ast.NotIn) else region
        if self.schema.columns[position].categories is None:
            return self._numbers(position, op, value)
        return self._labels(position, op, value)

    def _member(self, position: int, values: Any) -> Region:
        """Membership in a collection: any of several equalities."""
        if not isinstance(values, list | tuple | set) or not values:
            raise self._error("have a collection of constants on the right of 'in'")
        read = self._numbers if self.schema.columns[position].categories is None else self._labels
        return reduce(unite, [read(position, ast.Eq(), value) for value in values])

    def _numbers(self, position: int, op: ast.cmpop, value: Any) -> Region:
        """Compare a column of numbers."""
        column = self.schema.columns[position]
        if isinstance(value, bool) or not isinstance(value, int | float) or value != value:
            raise self._error(f"compare column {column.name!r} with a number")
        bound = self._as_float(column.name, value)
        if isinstance(op, ast.Eq | ast.NotEq):
            point: Region = [{position: Interval(bound, bound)}]
            return point if isinstance(op, ast.Eq) else complement(point)
        if isinstance(op, ast.Lt):
            return [{position: Interval(-np.inf, float(np.nextafter(bound, -np.inf)))}]
        if isinstance(op, ast.LtE):
            return [{position: Interval(-np.inf, bound)}]
        if isinstance(op, ast.Gt):
            return [{position: Interval(float(np.nextafter(bound, np.inf)), np.inf)}]
        if isinstance(op, ast.GtE):
            return [{position: Interval(bound, np.inf)}]
        raise self._error(USABLE)

    def _labels(self, position: int, op: ast.cmpop, value: Any) -> Region:
        """Compare a column of labels; labels that are numbers have an order."""
        column = self.schema.columns[position]
        assert column.categories is not None
        labels = column.categories
        if isinstance(op, ast.Eq | ast.NotEq):
            codes = {column.code_of(value)}
            if isinstance(op, ast.NotEq):
                codes = set(range(column.cardinality)) - codes
        elif labels.dtype.kind in "iuf" and isinstance(value, int | float):
            if type(op) not in ORDER:
                raise self._error(USABLE)
            self._as_float(column.name, value)
            codes = set(np.flatnonzero(ORDER[type(op)](labels, value)).tolist())
        else:
            raise self._error(f"compare labels of column {column.name!r} by ==, != or in")
        return [{position: States(frozenset(codes), column.cardinality)}] if codes else []

    def _as_float(self, name: str | int, value: float) -> float:
        """Read a constant; whole numbers of Python may be larger than any float."""
        try:
            return float(value)
        except OverflowError as error:
            largest = np.finfo(np.float64).max
            raise self._error(
                f"compare column {name!r} with numbers of at most {largest:.3g} in magnitude"
            ) from error

    def _column(self, identifier: str) -> int:
        """Position of a column by its name in the text."""
        name = self.quoted.get(identifier, identifier)
        known = [column.text_name for column in self.schema.columns]
        forms = known
        if identifier not in self.quoted:
            # ast has normalised the identifier
            forms = [unicodedata.normalize("NFKC", text_name) for text_name in known]
        if forms.count(name) > 1:
            alike = [text_name for text_name, form in zip(known, forms) if form == name]
            raise self._error(f"put names in backticks that Python takes for the same, {alike}")
        if name in forms:
            return forms.index(name)
        raise ValueError(
            must("Columns of a query", "be columns of the table", f"They are {known}.", column=name)
        )

    def _error(self, condition: str, node: ast.expr | None = None) -> ValueError:
        part = {} if node is None else {"part": ast.unparse(node)}
        return ValueError(must("A query", condition, HOW, query=self.text, **part))
