"""Queries about rows as unions of boxes: intervals of numbers and sets of labels."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.tabular._columns import Column
from skcircuits.tabular._regions import Box, Interval, Region, States
from skcircuits.tabular._schema import TableSchema
from skcircuits.tabular._text_queries import parse_query

__all__ = ["Boxes", "compile_queries"]


@dataclass(frozen=True)
class Boxes:
    """Disjoint boxes whose unions are the queries.

    All bounds are closed: a strict bound is written as the neighbouring float, which is
    the same set of floats. An empty box is left out.

    Attributes
    ----------
    lower, upper : ndarray of shape (n_boxes, d)
        Bounds of numbers, NaN where unbounded and in columns of labels.
    states : dict of int to ndarray of shape (n_boxes, k)
        Per constrained column of labels the allowed codes.
    query : ndarray of shape (n_boxes,)
        Which query each box belongs to.
    n_queries : int
        Number of queries; one without any box is impossible.
    """

    lower: FloatArray
    upper: FloatArray
    states: dict[int, BoolArray]
    query: IntArray
    n_queries: int

    def intersect(self, condition: Boxes) -> Boxes:
        """Restrict every query to a condition.

        Parameters
        ----------
        condition : Boxes
            A single query.

        Returns
        -------
        Boxes
            One box per pair of intersecting boxes.
        """
        # All pairs of a box of a query with a box of the condition
        mine, other = np.divmod(
            np.arange(len(self.query) * len(condition.query)), max(1, len(condition.query))
        )
        states = {}
        for j in self.states.keys() | condition.states.keys():
            sides = [
                (boxes.states[j][rows])
                for boxes, rows in ((self, mine), (condition, other))
                if j in boxes.states
            ]
            states[j] = np.logical_and.reduce(sides)
        # fmax and fmin take the bound of the other side where one is unbounded (NaN)
        return Boxes(
            np.fmax(self.lower[mine], condition.lower[other]),
            np.fmin(self.upper[mine], condition.upper[other]),
            states,
            self.query[mine],
            self.n_queries,
        )._without_empty()

    def around_whole_numbers(self, is_whole: BoolArray) -> Boxes:
        """Let intervals of whole numbers cover what rounds to the numbers inside.

        Parameters
        ----------
        is_whole : ndarray of bool of shape (d,)
            Columns of whole numbers.

        Returns
        -------
        Boxes
            The same whole numbers, and of a density of real numbers what stands for them.
        """
        if not is_whole.any():
            return self
        inside = replace(
            self,
            lower=np.where(is_whole, np.ceil(self.lower), self.lower),
            upper=np.where(is_whole, np.floor(self.upper), self.upper),
        )._without_empty()
        half = np.where(is_whole, 0.5, 0.0)
        return replace(inside, lower=inside.lower - half, upper=inside.upper + half)

    def _without_empty(self) -> Boxes:
        filled = ~(self.lower > self.upper).any(axis=1)
        # Comparisons with NaN are false: an unbounded side empties nothing
        for allowed in self.states.values():
            filled &= allowed.any(axis=1)
        return Boxes(
            self.lower[filled],
            self.upper[filled],
            {j: allowed[filled] for j, allowed in self.states.items()},
            self.query[filled],
            self.n_queries,
        )


def compile_queries(queries: Sequence[str | Mapping[Any, Any]], schema: TableSchema) -> Boxes:
    """Turn queries into boxes.

    Parameters
    ----------
    queries : sequence of mappings or texts
        Text (see `skcircuits.tabular._text_queries`), or column to constraint. A column of
        numbers takes a closed interval ``(lower, upper)``, None unbounded, or a single
        number. A column of labels takes a label or a collection of labels. Columns are
        named, or counted from 0.
    schema : TableSchema
        The table the queries are about.

    Returns
    -------
    Boxes
        One box per satisfiable mapping, disjoint boxes for a text.

    Raises
    ------
    ValueError
        If a query names an unknown column or label, or constrains a column in a way that
        its kind does not allow.

    Examples
    --------
    >>> import pandas as pd
    >>> from skcircuits.tabular import TableSchema, compile_queries
    >>> X = pd.DataFrame({"age": [31.5, 40.0], "job": ["nurse", "cook"]})
    >>> boxes = compile_queries([{"age": (30, None), "job": "nurse"}], TableSchema.learn(X))
    >>> boxes.lower, boxes.upper, boxes.states
    (array([[30., nan]]), array([[nan, nan]]), {1: array([[False,  True]])})
    """
    boxes = [(i, box) for i, query in enumerate(queries) for box in _read_query(query, schema)]
    shape = (len(boxes), len(schema.columns))
    lower, upper = np.full(shape, np.nan), np.full(shape, np.nan)
    states: dict[int, BoolArray] = {}
    for row, (_, box) in enumerate(boxes):
        for j, constraint in box.items():
            if isinstance(constraint, Interval):
                lower[row, j], upper[row, j] = constraint
            else:
                everything = np.ones((len(boxes), constraint.n_states), dtype=bool)
                states.setdefault(j, everything)[row] = False
                states[j][row, list(constraint.codes)] = True
    # Queries know infinite bounds, boxes mark them NaN
    lower[np.isneginf(lower)] = upper[np.isposinf(upper)] = np.nan
    query_of = np.array([i for i, _ in boxes], dtype=np.int64)
    return Boxes(lower, upper, states, query_of, len(queries))


def _read_query(query: str | Mapping[Any, Any], schema: TableSchema) -> Region:
    """Read a query as disjoint boxes."""
    if isinstance(query, str):
        return parse_query(query, schema)
    box: Box = {}
    position = {name: j for j, name in enumerate(schema.names)}
    for key, constraint in _items(query):
        if key not in position:
            raise _unknown_column(key, schema)
        j = position[key]
        column = schema.columns[j]
        is_number = column.categories is None
        box[j] = (_read_interval if is_number else _read_labels)(column, constraint)
    is_empty = any(isinstance(part, States) and not part.codes for part in box.values())
    return [] if is_empty else [box]


def _items(query: Mapping[Any, Any]) -> Collection[tuple[Any, Any]]:
    if not isinstance(query, Mapping):
        raise ValueError(
            must(
                "A query",
                "be a dict from columns to intervals or labels, or text",
                "Write {'age': (30, 40), 'job': 'nurse'} or \"age >= 30 and job == 'nurse'\".",
                query=query,
            )
        )
    return query.items()


def _unknown_column(key: object, schema: TableSchema) -> ValueError:
    names = schema.names
    return ValueError(
        must("Columns of a query", "be columns of the table", f"They are {names}.", column=key)
    )


def _read_interval(column: Column, constraint: Any) -> Interval:
    """Read the closed interval of a column of numbers."""
    if _is_number(constraint):
        return Interval(float(constraint), float(constraint))
    if not isinstance(constraint, tuple | list) or len(constraint) != 2:
        raise _bad_interval(column, constraint, "Use None for a missing bound.")
    low, high = constraint
    if not ((low is None or _is_number(low)) and (high is None or _is_number(high))):
        raise _bad_interval(column, constraint, "Use None for a missing bound.")
    lower = -np.inf if low is None else float(low)
    upper = np.inf if high is None else float(high)
    if lower > upper:
        raise _bad_interval(column, constraint, "Its lower bound comes first.")
    return Interval(lower, upper)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def _bad_interval(column: Column, constraint: object, way_out: str) -> ValueError:
    name = column.name
    return ValueError(
        must(
            f"The query about column {name!r}",
            "be a number or an interval (lower, upper)",
            way_out,
            query=constraint,
        )
    )


def _read_labels(column: Column, constraint: Any) -> States:
    """Read the allowed codes of a column of labels."""
    # A string is a collection of letters, but means one label
    is_label = isinstance(constraint, str | bytes) or not isinstance(constraint, Collection)
    labels = [constraint] if is_label else list(constraint)
    return States(frozenset(map(column.code_of, labels)), column.cardinality)
