"""Boolean formulas over sets of columns, divided into disjoint cells by a decision diagram.

An atom states that a variable lies in a set, where a variable is a column or a total (a weighted
sum of columns and of indicators). Sets of one variable are joined first, by sorted sweeps. The rest
is decided variable by variable: each cell of a variable on which all its atoms are constant leaves
a simpler formula, equal formulas are merged, and each path to true is a cell.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

from skcircuits.exceptions import must
from skcircuits.tabular.queries._sets import ColumnSet, intersect_sets, split_by_sets, unite_sets

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
    """Disjoint cells whose union is the formula.

    Raises ValueError before anything is computed on them if there would be too many.
    """
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
