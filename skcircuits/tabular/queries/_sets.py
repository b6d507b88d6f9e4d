"""Sets of one column, and Boolean formulas over them, divided into disjoint cells.

Sets are unions of intervals of numbers, or sets of category codes. An atom of a formula states that
a variable lies in a set, where a variable is a column or a total (a weighted sum of columns and of
indicators). Sets of one variable are joined first, by sorted sweeps. The rest is decided variable
by variable, as in a decision diagram: each cell of a variable on which all its atoms are constant
leaves a simpler formula, equal formulas are merged, and each path to true is a cell.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property
from math import ceil, inf, isinf, nan, nextafter
from sys import float_info
from typing import Any, NamedTuple

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import BoolArray, FloatArray

_ROUNDING = 16.0 * float_info.epsilon  # relative error of a few operations


class Interval(NamedTuple):
    """Numbers between two bounds, to be computed with before ends are rounded to floats."""

    lower: float
    upper: float
    lower_closed: bool = True
    upper_closed: bool = True

    @classmethod
    def of_comparison(cls, op: str, value: float) -> list[Interval]:
        """Intervals of the numbers x with ``x op value``."""
        below = cls(-np.inf, value, True, op in ("<=", ">"))
        above = cls(value, np.inf, op in (">=", "<"), True)
        if op == "==":
            return [cls(value, value)]
        if op == "!=":
            return [below._replace(upper_closed=False), above._replace(lower_closed=False)]
        return [below] if op in ("<", "<=") else [above]

    def edges(self) -> list[float]:
        """First float inside and first one above, none where no float is inside."""
        lower, upper, lower_closed, upper_closed = self
        if not (lower_closed or lower == -np.inf):
            lower = nextafter(lower, inf)
        if upper_closed:
            upper = nextafter(upper, inf)
        return [lower, upper] if lower < upper else []

    def before(self, slope: float, offset: float) -> Interval:
        """Numbers x with ``slope * x + offset`` in the interval."""
        # A negative slope turns the interval around, open and closed ends with it
        lower, upper = (self.lower - offset) / slope, (self.upper - offset) / slope
        if slope > 0:
            return Interval(lower, upper, self.lower_closed, self.upper_closed)
        return Interval(upper, lower, self.upper_closed, self.lower_closed)

    def near_integers(self, size: float) -> Interval:
        """The interval with bounds that are integers but for rounding of numbers of a size."""

        def end(bound: float) -> float:
            near = bound if isinf(bound) else float(round(bound))
            return near if abs(near - bound) <= _ROUNDING * (size + abs(near)) else bound

        return self._replace(lower=end(self.lower), upper=end(self.upper))

    def between_integers(self) -> Interval:
        """The interval around the same integers with ends half-way between two."""

        def end(bound: float, is_closed: bool, direction: int) -> tuple[float, bool]:
            # There is nothing half-way between floats that hardly resolve integers
            if abs(bound) >= 2.0**51:
                return bound, is_closed
            inside = -direction * ceil(-direction * bound)
            return inside + direction * (0.5 if is_closed or inside != bound else -0.5), False

        lower, lower_closed = end(self.lower, self.lower_closed, -1)
        upper, upper_closed = end(self.upper, self.upper_closed, 1)
        return Interval(lower, upper, lower_closed, upper_closed)

    def with_ties(self, size: float) -> Interval:
        """The interval of sums of numbers of a size, where those equal to a bound but for rounding
        belong to it as the bound does.
        """

        def moved(bound: float, direction: float) -> float:
            slack = 0.0 if isinf(bound) else _ROUNDING * (size + abs(bound))
            return bound + direction * slack

        return self._replace(
            lower=moved(self.lower, -1.0 if self.lower_closed else 1.0),
            upper=moved(self.upper, 1.0 if self.upper_closed else -1.0),
        )

    def of_absolute(self) -> list[Interval]:
        """Numbers whose absolute value lies in the interval."""
        if self.upper < 0.0:
            return []
        if self.lower < 0.0 or (self.lower == 0.0 and self.lower_closed):
            return [Interval(-self.upper, self.upper, self.upper_closed, self.upper_closed)]
        return [self, self.before(-1.0, 0.0)]


class NumberSet:
    """A union of intervals [e_0, e_1), [e_2, e_3), ... of floats, kept as increasing edges."""

    # A closed upper end is the float below the edge: open and closed ends are one case

    def __init__(self, edges: FloatArray) -> None:
        self.edges = edges

    @classmethod
    def closed(cls, lower: FloatArray, upper: FloatArray) -> NumberSet:
        """Union of closed intervals, both bounds of shape (n,); one sorted sweep."""
        kept = lower <= upper
        starts, stops = lower[kept], np.nextafter(upper[kept], np.inf)
        return cls(_sweep(starts, stops, 1))

    @classmethod
    def points(cls, values: Iterable[float]) -> NumberSet:
        """Some single numbers."""
        points = np.fromiter(values, dtype=np.float64)
        return cls.closed(points, points)

    @classmethod
    def union(cls, intervals: Sequence[Interval]) -> NumberSet:
        if len(intervals) == 1:  # the usual case
            return cls(np.array(intervals[0].edges()))
        lower, upper = np.array([own[:2] for own in intervals]).reshape(-1, 2).T
        closed = np.array([own[2:] for own in intervals], dtype=bool).reshape(-1, 2).T
        lower = np.where(closed[0] | (lower == -np.inf), lower, np.nextafter(lower, np.inf))
        upper = np.where(closed[1], upper, np.nextafter(upper, -np.inf))
        return cls.closed(lower, upper)

    @classmethod
    def comparison(cls, op: str, value: float) -> NumberSet:
        """Numbers x with ``x op value``."""
        return cls.union(Interval.of_comparison(op, value))

    def complement(self) -> NumberSet:
        """All other numbers."""
        edges = np.concatenate([[-np.inf], self.edges, [np.inf]])
        # Two equal edges are an empty interval: at an open end of the line
        if len(self.edges) and self.edges[-1] == np.inf:
            edges = edges[:-2]
        if len(self.edges) and self.edges[0] == -np.inf:
            edges = edges[2:]
        return NumberSet(edges)

    def bounds(self) -> tuple[list[float], list[float]]:
        """Closed lower and upper bounds of the intervals, NaN where open."""
        if len(self.edges) == 2:  # the usual case
            lower, after = self.edges.tolist()
            upper = nan if after == inf else nextafter(after, -inf)
            return [nan if lower == -inf else lower], [upper]
        starts, stops = self.intervals()
        starts = np.where(starts == -inf, nan, starts)
        return starts.tolist(), np.where(stops == inf, nan, stops).tolist()

    def intervals(self) -> tuple[FloatArray, FloatArray]:
        """Closed bounds of the intervals, both of shape (n,), infinite where open."""
        upper = np.nextafter(self.edges[1::2], -np.inf)
        if len(upper) and self.edges[-1] == np.inf:
            upper[-1] = np.inf
        return self.edges[::2], upper

    def contains(self, x: FloatArray) -> BoolArray:
        """Tell which numbers belong to the set."""
        return np.searchsorted(self.edges, x, side="right") % 2 == 1

    def of_integers(self) -> NumberSet:
        """The same integers, neighbours joined: {1, 2} is one interval from 1 to 2."""
        lower, upper = self.intervals()
        lower, upper = np.ceil(lower), np.floor(upper)
        if len(lower) == 1:
            return NumberSet.union([Interval(float(lower[0]), float(upper[0]))])
        kept = lower <= upper
        lower, upper = lower[kept], upper[kept]
        apart = lower[1:] > upper[:-1] + 1.0
        first = np.concatenate([[True], apart])[: len(lower)]
        last = np.concatenate([apart, [True]])[: len(lower)]
        return NumberSet.closed(lower[first], upper[last])

    @property
    def is_empty(self) -> bool:
        """Whether no number belongs to the set."""
        return len(self.edges) == 0

    @property
    def is_full(self) -> bool:
        """Whether all numbers belong to the set."""
        return len(self.edges) == 2 and self.edges[0] == -np.inf and self.edges[1] == np.inf

    @cached_property
    def _key(self) -> bytes:
        return self.edges.tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NumberSet) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        lower, upper = self.intervals()
        return " ".join(f"[{a:g}, {b:g}]" for a, b in zip(lower, upper)) or "nothing"


class CodeSet:
    """Some of the codes 0, ..., k - 1 of the categories of a column; `mask` has shape (k,)."""

    def __init__(self, mask: BoolArray) -> None:
        self.mask = mask

    def complement(self) -> CodeSet:
        """The other codes."""
        return CodeSet(~self.mask)

    @property
    def is_empty(self) -> bool:
        """Whether no code belongs to the set."""
        return not self.mask.any()

    @property
    def is_full(self) -> bool:
        """Whether all codes belong to the set."""
        return bool(self.mask.all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CodeSet) and self.mask.tobytes() == other.mask.tobytes()

    def __hash__(self) -> int:
        return hash(self.mask.tobytes())

    def __repr__(self) -> str:
        return f"codes {np.flatnonzero(self.mask).tolist()}"


ColumnSet = NumberSet | CodeSet


def unite_sets(sets: Sequence[Any]) -> Any:
    """Union of sets of one column, at least one."""
    return _combine(sets, at_least=1)


def intersect_sets(sets: Sequence[Any]) -> Any:
    """Intersection of sets of one column, at least one."""
    return _combine(sets, at_least=len(sets))


def split_by_sets(sets: Sequence[Any]) -> list[tuple[Any, list[bool]]]:
    """Cut a column into cells that each set holds or excludes, and tell which sets hold each."""
    if isinstance(sets[0], CodeSet):
        members = np.stack([own.mask for own in sets], axis=1)
        patterns, cell_of = np.unique(members, axis=0, return_inverse=True)
        cell_of = cell_of.reshape(-1)
        cells: list = [CodeSet(cell_of == i) for i in range(len(patterns))]
        return list(zip(cells, patterns.tolist()))
    edges = np.unique(np.concatenate([own.edges for own in sets]))
    # Between two neighbouring edges every set holds all numbers or none
    starts = edges if len(edges) and edges[0] == -np.inf else np.append(-np.inf, edges)
    starts = starts[starts < np.inf]
    stops = np.append(starts[1:], np.inf)
    members = np.stack([own.contains(starts) for own in sets], axis=1)
    patterns, cell_of = np.unique(members, axis=0, return_inverse=True)
    order = np.argsort(cell_of.reshape(-1), kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(cell_of.reshape(-1)))[:-1])
    cells = [NumberSet(_sweep(starts[part], stops[part], 1)) for part in parts]
    return list(zip(cells, patterns.tolist()))


def _combine(sets: Sequence[Any], at_least: int) -> Any:
    """Points that belong to a given number of the sets."""
    if len(sets) == 1:
        return sets[0]
    if isinstance(sets[0], CodeSet):
        counts = np.sum([own.mask for own in sets], axis=0)
        return CodeSet(counts >= at_least)
    if at_least == len(sets) and all(len(own.edges) == 2 for own in sets):  # the usual case
        first, last = max(own.edges[0] for own in sets), min(own.edges[1] for own in sets)
        return NumberSet(np.array([first, last] if first < last else []))
    starts = np.concatenate([own.edges[::2] for own in sets])
    stops = np.concatenate([own.edges[1::2] for own in sets])
    return NumberSet(_sweep(starts, stops, at_least))


def _sweep(starts: FloatArray, stops: FloatArray, at_least: int) -> FloatArray:
    """Edges of the region that so many of the half-open intervals cover."""
    places = np.concatenate([starts, stops])
    changes = np.repeat([1, -1], [len(starts), len(stops)])
    edges, inverse = np.unique(places, return_inverse=True)
    # Sets are half-open intervals [a, b): how many begin less how many end up to each edge
    depth = np.cumsum(np.bincount(inverse, changes, len(edges)))
    inside = depth >= at_least
    return edges[inside != np.concatenate([[False], inside[:-1]])]


# Disjoint cells into which a query may fall before it is refused.
MAX_CELLS = 50_000
# Simpler formulas that are looked at on the way.
MAX_STEPS = 200_000


class Atom(NamedTuple):
    """A variable lies in a set."""

    variable: Hashable
    values: ColumnSet


class Meet(NamedTuple):
    """All parts hold."""

    parts: tuple[Any, ...]


class Union(NamedTuple):
    """Some part holds."""

    parts: tuple[Any, ...]
    is_union: bool = True  # tuples compare by their entries: an empty union is no empty meet


Formula = Atom | Meet | Union
TRUE, FALSE = Meet(()), Union(())

#: A set per variable that is constrained.
Cell = dict[Any, ColumnSet]


def join(parts: Sequence[Formula], *, union: bool) -> Formula:
    """Join formulas by and, or by or; sets of one variable become one set."""
    kind, neutral, absorbing = (Union, FALSE, TRUE) if union else (Meet, TRUE, FALSE)
    atoms: dict[Hashable, list[ColumnSet]] = {}
    others: dict[Formula, None] = {}
    pending = list(reversed(parts))
    while pending:
        part = pending.pop()
        if isinstance(part, kind):
            pending.extend(reversed(part.parts))
        elif part == absorbing:
            return absorbing
        elif isinstance(part, Atom):
            atoms.setdefault(part.variable, []).append(part.values)
        else:
            others[part] = None
    combine: Any = unite_sets if union else intersect_sets
    kept: list[Formula] = []
    for variable, sets in atoms.items():
        joined = simple(Atom(variable, combine(sets)))
        if joined == absorbing:
            return absorbing
        if joined != neutral:
            kept.append(joined)
    kept.extend(others)
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


def simple(atom: Atom) -> Formula:
    """Atoms that always or never hold are constants."""
    if atom.values.is_empty:
        return FALSE
    return TRUE if atom.values.is_full else atom


def negate(formula: Formula) -> Formula:
    """The opposite, by De Morgan's rules."""
    if isinstance(formula, Atom):
        return simple(Atom(formula.variable, formula.values.complement()))
    return join([negate(part) for part in formula.parts], union=isinstance(formula, Meet))


def cells_of(formula: Formula) -> list[Cell]:
    """Disjoint cells whose union is the formula; raises ValueError first if there are too many."""
    return _Diagram().cells(formula)


class _Diagram:
    """Remembers the cells of the simpler formulas that it meets."""

    def __init__(self) -> None:
        self._known: dict[Formula, list[Cell]] = {}
        self._steps = 0

    def cells(self, formula: Formula) -> list[Cell]:
        """Disjoint cells of a formula."""
        if isinstance(formula, Atom):
            return [{formula.variable: formula.values}]
        if formula in (TRUE, FALSE):
            return [{}] if formula == TRUE else []
        if isinstance(formula, Meet) and all(isinstance(part, Atom) for part in formula.parts):
            return [dict(formula.parts)]  # joined formulas have one atom per variable
        # Equal formulas are met on many ways: without memory the diagram would be a tree
        known = self._known.get(formula)
        if known is None:
            known = self._decide(formula)
            self._known[formula] = known
        return known

    def _decide(self, formula: Meet | Union) -> list[Cell]:
        self._steps += 1
        if isinstance(formula, Meet):
            # Factors without a common variable need no cases
            atoms = [part for part in formula.parts if isinstance(part, Atom)]
            others = [part for part in formula.parts if not isinstance(part, Atom)]
            mentioned = set().union(*map(_variables, others))
            free = {atom.variable: atom.values for atom in atoms if atom.variable not in mentioned}
            if free:
                left = [part for part in formula.parts if _variable(part) not in free]
                return [{**free, **cell} for cell in self.cells(join(left, union=False))]
        variable, sets = _first_variable(formula)
        by_rest: dict[Formula, list[ColumnSet]] = {}
        for cell, members in split_by_sets(sets):
            rest = _decided(formula, variable, dict(zip(sets, members)))
            by_rest.setdefault(rest, []).append(cell)
        if self._steps + len(by_rest) > MAX_STEPS:
            raise _too_many(MAX_STEPS, "take")
        found: list[Cell] = []
        for rest, own in by_rest.items():
            values = unite_sets(own)
            limit = {} if values.is_full else {variable: values}
            found.extend({**limit, **cell} for cell in self.cells(rest))
            if len(found) > MAX_CELLS:
                raise _too_many(MAX_CELLS, "fall into")
        return found


def _variable(formula: Formula) -> Hashable:
    return formula.variable if isinstance(formula, Atom) else None


def _variables(formula: Formula) -> set[Hashable]:
    if isinstance(formula, Atom):
        return {formula.variable}
    return set().union(*map(_variables, formula.parts))


def _first_variable(formula: Formula) -> tuple[Hashable, list[ColumnSet]]:
    """The variable in most atoms, columns before totals, and its different sets."""
    sets: dict[Hashable, dict[ColumnSet, None]] = {}
    counts: dict[Hashable, int] = {}
    pending: list[Formula] = [formula]
    while pending:
        part = pending.pop()
        if isinstance(part, Atom):
            sets.setdefault(part.variable, {})[part.values] = None
            counts[part.variable] = counts.get(part.variable, 0) + 1
        else:
            pending.extend(part.parts)
    # Columns first: totals over decided columns may be decided with them
    chosen = max(sets, key=lambda variable: (isinstance(variable, int), counts[variable]))
    return chosen, list(sets[chosen])


def _decided(formula: Formula, variable: Hashable, truth: dict[ColumnSet, bool]) -> Formula:
    """The formula where it is known which sets hold a variable."""
    if isinstance(formula, Atom):
        if formula.variable != variable:
            return formula
        return TRUE if truth[formula.values] else FALSE
    is_union = isinstance(formula, Union)
    absorbing = TRUE if is_union else FALSE
    rest = []
    for part in formula.parts:
        decided = _decided(part, variable, truth)
        if decided == absorbing:
            return absorbing
        rest.append(decided)
    return join(rest, union=is_union)


def _too_many(bound: int, verb: str) -> ValueError:
    thing = "boxes" if verb == "fall into" else "steps to take apart"
    return ValueError(
        must(
            "A query",
            f"{verb} at most {bound} {thing}",
            "Ask for parts of it and add their probabilities.",
        )
    )
