"""A smaller plan for the same queries: units over few discrete variables become tables.

Below a unit of small scope a pass visits many units to tell few joint states apart. Such
units are evaluated once at all joint states and become input units of a second plan, on
which the passes, traces and queries run as on the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import prod

import numpy as np

from skcircuits.circuits.engine._joint_table import JointTable, joint_states
from skcircuits.circuits.engine._passes import (
    Move,
    best_edges,
    feedforward,
    input_buffer,
    run_steps,
    trace,
)
from skcircuits.circuits.engine._plan import Plan, compile_plan
from skcircuits.circuits.engine._policy import TRACE_TABLES, TableBudget
from skcircuits.circuits.structure.units import Product, Scope, Sum, Unit
from skcircuits.protocols import FloatArray, IntArray


def tabulated(plan: Plan, move: Move = "log", budget: TableBudget = TRACE_TABLES) -> Plan:
    """Replace units over few discrete variables by tables of their values.

    ``move`` says which pass fills the tables, sum-product ("log") or max-product: under it the
    root has the same values. The plan itself where tables would not make it much smaller.
    """
    return plan.remember(("tabulated", move, budget), lambda: _tabulate(plan, move, budget))


def _tabulate(plan: Plan, move: Move, budget: TableBudget) -> Plan:
    if plan.n_units < budget.min_units:
        return plan
    # Larger tables leave a smaller plan, so the largest that fits the budget is taken
    for max_codes in budget.max_codes:
        border = _Border(plan, max_codes)
        rounds = _rounds(border.tables)
        if len(border.needed) > budget.max_remaining * plan.n_units or not rounds:
            return plan
        n_rows = sum(max(border.n_rows(scope, move) for scope in scopes) for scopes in rounds)
        if n_rows <= budget.max_rows and border.n_entries <= budget.max_entries:
            break
    else:
        return plan
    # Each round is one pass, whose rows hold the states of disjoint scopes side by side.
    fill = _sum_tables if move == "log" else _max_tables
    tables: dict[int, JointTable] = {}
    for scopes in rounds:
        tables.update(fill(plan, {scope: border.tables[scope] for scope in scopes}, border))
    return compile_plan(_rebuild(plan, border.needed, tables))


class _Border:
    """Units to tabulate (``tables``: plan positions by scope), and those that remain.

    ``needed`` are the plan positions of the units that remain or become tables, children
    first. A table has at most ``max_codes`` joint states, unknown counted as a state.
    """

    def __init__(self, plan: Plan, max_codes: int) -> None:
        self._plan = plan
        self._max_codes = max_codes
        self._is_small: dict[Scope, bool] = {}
        self.tables: dict[Scope, list[int]] = defaultdict(list)
        found = {plan.root}
        stack = [plan.root]
        while stack:
            position = stack.pop()
            unit = plan.units[position]
            # The highest small units: what lies below them is never visited again.
            if unit.children and self.is_small(unit.scope):
                self.tables[unit.scope].append(position)
                continue
            below = {plan.position[id(child)] for child in unit.children} - found
            found |= below
            stack.extend(below)
        self.needed = sorted(found)
        for units in self.tables.values():
            units.sort()

    def shape(self, scope: Scope) -> tuple[int, ...]:
        """Number of states of each variable of a scope."""
        return tuple(self._plan.cardinalities[variable] for variable in scope)

    def is_small(self, scope: Scope) -> bool:
        """Tell whether all variables are discrete with few joint states."""
        if scope not in self._is_small:
            is_discrete = self._plan.cardinalities.keys() >= set(scope)
            self._is_small[scope] = is_discrete and self.n_codes(scope) <= self._max_codes
        return self._is_small[scope]

    def n_codes(self, scope: Scope) -> int:
        """Joint states, unknown counted as a state."""
        return prod(n + 1 for n in self.shape(scope))

    @property
    def n_entries(self) -> int:
        """Entries of all tables."""
        return sum(len(units) * self.n_codes(scope) for scope, units in self.tables.items())

    def n_rows(self, scope: Scope, move: Move) -> int:
        """Rows that fill a table; best completions are traced for unknown states too."""
        return prod(n + (move == "max") for n in self.shape(scope))


def _rounds(scopes: dict[Scope, list[int]]) -> list[list[Scope]]:
    """Group scopes so that those of one group are disjoint: one pass fills all their tables."""
    rounds: list[list[Scope]] = []
    taken: list[set[int]] = []
    for scope in scopes:
        # First fit: the fewest rounds are a graph colouring, and few are enough.
        number = next((i for i, used in enumerate(taken) if used.isdisjoint(scope)), len(rounds))
        if number == len(rounds):
            rounds.append([])
            taken.append(set())
        rounds[number].append(scope)
        taken[number].update(scope)
    return rounds


def _rows_of_states(states: Mapping[Scope, IntArray | FloatArray], n_columns: int) -> FloatArray:
    """Rows that hold the joint states of disjoint scopes side by side."""
    X = np.full((max(map(len, states.values())), n_columns), np.nan)
    for scope, own in states.items():
        X[: len(own), scope] = own
    return X


def _sum_tables(
    plan: Plan, tables: dict[Scope, list[int]], border: _Border
) -> dict[int, JointTable]:
    """Tables of log values of units with disjoint scopes."""
    states = {scope: joint_states(border.shape(scope)) for scope in tables}
    X = _rows_of_states(states, plan.n_columns)
    values = input_buffer(plan, lambda layer: layer.log_prob(X), (len(X),))
    # What lies above all tables is not needed
    highest = max(map(max, tables.values()))
    below = [layer for layer in plan.layers if layer.units.start <= highest]
    run_steps(below, values, "log", plan.weights)
    return {
        unit: JointTable(scope, values[unit, : len(states[scope])].reshape(border.shape(scope)))
        for scope, units in tables.items()
        for unit in units
    }


def _max_tables(
    plan: Plan, tables: dict[Scope, list[int]], border: _Border
) -> dict[int, JointTable]:
    """Tables of max-product values and of traced completions of units with disjoint scopes."""
    states = {
        scope: joint_states([n + 1 for n in border.shape(scope)]).astype(np.float64)
        for scope in tables
    }
    for scope, own in states.items():
        own[own == border.shape(scope)] = np.nan
    X = _rows_of_states(states, plan.n_columns)
    # Completions are traced, not read off the table: ties are broken as without tables
    inputs = input_buffer(plan, lambda layer: layer.log_max(X), (len(X),))
    values = feedforward(plan, inputs, "max")
    result: dict[int, JointTable] = {}
    modes = _traced_modes(plan, values, X, {s: (tables[s], len(states[s])) for s in tables})
    for scope, units in tables.items():
        shape = border.shape(scope)
        complete = np.flatnonzero(~np.isnan(states[scope]).any(axis=1))
        numbers = np.ravel_multi_index(tuple(modes[scope].astype(np.intp).T), shape)
        for unit, own in zip(units, numbers.reshape(len(units), -1)):
            result[unit] = JointTable(scope, values[unit, complete].reshape(shape), own)
    return result


def _traced_modes(
    plan: Plan,
    values: FloatArray,
    X: FloatArray,
    tables: dict[Scope, tuple[list[int], int]],
) -> dict[Scope, FloatArray]:
    """Completions of the first rows by units, shape (n_units * n_rows, len(scope)) per scope."""
    pairs = [np.array(np.meshgrid(u, np.arange(n), indexing="ij")) for u, n in tables.values()]
    starts, rows = np.concatenate([pair.reshape(2, -1) for pair in pairs], axis=1)
    completed = X[rows]
    choose = best_edges(plan, values)
    explanations = trace(
        plan, len(rows), lambda layer, own, at: choose(layer, own, rows[at]), starts
    )
    for layer, units, at in explanations:
        scopes = layer.scopes[units]
        completed[at[:, None], scopes] = layer.mode(units, completed[at[:, None], scopes])
    ends = np.cumsum([len(units) * n for units, n in tables.values()])
    parts = np.split(completed, ends[:-1])
    return {scope: part[:, scope] for scope, part in zip(tables, parts)}


def _rebuild(plan: Plan, needed: list[int], tables: dict[int, JointTable]) -> Unit:
    """Build the circuit above the tables."""
    built: dict[int, Unit] = {}
    for position in needed:
        unit = plan.units[position]
        children = [built[i] for c in unit.children if (i := plan.position[id(c)]) in built]
        if position in tables:
            built[position] = tables[position]
        elif isinstance(unit, Sum):
            built[position] = Sum(children, weights=unit.weights)
        elif isinstance(unit, Product):
            built[position] = Product(children)
        else:
            built[position] = unit
    return built[plan.root]
