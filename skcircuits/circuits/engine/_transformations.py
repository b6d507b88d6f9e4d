"""Optimisation passes, which transform a plan into a faster one with the same root value.

*Tables*: below a unit of small scope, a pass evaluates many units to distinguish few joint states.
Such a unit is evaluated once at all joint states and becomes an input unit of a second plan, on
which passes, traces and queries run as on the first. Marginals, completions and draws are then one
lookup instead of a pass. Missing values count as a state: a `CodeBook` enumerates the joint states
including missing ones.

*Lowering* is the last pass, for queries that only need the value of the root: a sequence of steps
on linear values in a small buffer. Products that are read by a single block of sums are fused into
it, discrete input units become lookups whose codes are computed once, and steps are ordered depth
first, so that the rows of a buffer are reused and stay in cache.

A lowered plan is exact for the following reason. All values are at most one, so that underflow
anywhere changes the value of the root by less than a denormal number per edge. A row whose root
value is well above that is exact; the other rows are evaluated again in log space. Continuous units
are divided by the largest unit of their scope, row by row, beforehand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from operator import attrgetter
from typing import Any

import numpy as np
from scipy import sparse

from skcircuits.circuits._policy import (
    LOOKUP_TABLES,
    MAX_BATCH_VALUES,
    MIN_ROWS_PER_STEP,
    TRACE_TABLES,
    TableBudget,
)
from skcircuits.circuits.engine._layers import BlockLayer, ProductLayer, SumLayer, SumWeights
from skcircuits.circuits.engine._passes import (
    MIN_ROOT,
    Move,
    best_edges,
    can_be_linear,
    feedforward,
    input_buffer,
    run_steps,
    trace,
)
from skcircuits.circuits.engine._plan import Plan, compile_plan
from skcircuits.circuits.inputs import InputLayer
from skcircuits.circuits.inputs.base import Box, DiscreteInputLayer, InputUnit, StateFlows
from skcircuits.circuits.structure.properties import VariableSet
from skcircuits.circuits.structure.units import Product, Scope, Sum, Unit, depth_first
from skcircuits.numerics._arrays import safe_log
from skcircuits.numerics._random import InverseCdf, RandomNumbers
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Larger than every code, whatever is added to it.
NO_STATE = 1e9


def code_strides(n_states: Sequence[int]) -> list[int]:
    """Increment of the code per state of each variable."""
    return [prod(n + 1 for n in n_states[i + 1 :]) for i in range(len(n_states))]


@dataclass(frozen=True)
class CodeBook:
    """Numbers the joint states of the variables of each table."""

    variables: IntArray
    n_states: FloatArray
    strides: sparse.csr_matrix
    n_codes: FloatArray

    @classmethod
    def of(cls, scopes: Sequence[Scope], cardinalities: Mapping[int, int]) -> CodeBook:
        """Number the joint states of some scopes."""
        variables = sorted({variable for scope in scopes for variable in scope})
        column = {variable: i for i, variable in enumerate(variables)}
        counts = [[cardinalities[variable] for variable in scope] for scope in scopes]
        entries = [
            (table, column[variable], stride)
            for table, scope in enumerate(scopes)
            for variable, stride in zip(scope, code_strides(counts[table]))
        ]
        tables, columns, strides = np.array(entries, dtype=np.float64).reshape(-1, 3).T
        shape = (len(scopes), len(variables))
        return cls(
            np.array(variables, dtype=np.intp),
            np.array([cardinalities[v] for v in variables], dtype=np.float64),
            sparse.csr_matrix((strides, (tables.astype(int), columns.astype(int))), shape),
            np.array([prod(n + 1 for n in count) for count in counts], dtype=np.float64),
        )

    def codes(self, X: FloatArray) -> IntArray:
        """Code of each row in each table."""
        cells = X.T[self.variables]
        n_states = self.n_states[:, None]
        states = np.fmin(cells, n_states)  # NaN becomes the state after the last
        no_state = cells >= n_states
        no_state |= cells < 0
        no_state |= states != np.floor(states)
        if no_state.any():
            states[no_state] = NO_STATE
        # Invalid states have a code beyond all others, and map to the column behind them.
        codes = np.minimum(self.strides @ states, self.n_codes[:, None])
        return codes.astype(np.intp)


def joint_states(shape: Sequence[int]) -> IntArray:
    """All joint states (len(shape), prod(shape)); the last variable varies fastest."""
    return np.indices(tuple(shape)).reshape(len(shape), -1).T


class JointTable(InputUnit):
    """Log masses (n_states_1, ...) of the joint states of a sorted scope, and per code the joint
    state ``modes`` (n_codes,) that completes it, by default the most probable one.
    """

    def __init__(
        self, scope: Sequence[int], log_masses: FloatArray, modes: IntArray | None = None
    ) -> None:
        self.scope = tuple(scope)
        self.log_masses = log_masses
        self.modes = modes

    @property
    def layer_key(self) -> tuple[type, tuple[int, ...]]:
        """Units with equally many states per variable go into one layer."""
        return self.layer_type, self.log_masses.shape

    def parameters(self) -> dict[str, Any]:
        return {"scope": self.scope, "log_masses": self.log_masses, "modes": self.modes}

    def marginalize(self, variables: frozenset[int]) -> JointTable | None:
        removed = tuple(i for i, variable in enumerate(self.scope) if variable in variables)
        kept = [variable for variable in self.scope if variable not in variables]
        # On the log scale: joint masses of many variables leave the range of floats
        return JointTable(kept, np.logaddexp.reduce(self.log_masses, removed)) if kept else None


class JointTableLayer(DiscreteInputLayer):
    """Many tables whose variables have equally many states."""

    def __init__(
        self, scopes: IntArray, log_masses: FloatArray, modes: IntArray | None = None
    ) -> None:
        self.scopes = scopes
        self.log_masses = log_masses
        self._shape = log_masses.shape[1:]
        self._states = joint_states(self._shape)
        self._strides = np.array(code_strides(self._shape))
        # Tables of one scope share their codes, which are looked up once for all of them
        starts, counts = self.scope_runs
        self._runs = [slice(a, a + n) for a, n in zip(starts.tolist(), counts.tolist())]
        known = [dict(zip(scopes[start], self._shape)) for start in starts]
        self._codebook = CodeBook.of(
            [tuple(scope) for scope in scopes[starts].tolist()],
            {variable: n for each in known for variable, n in each.items()},
        )
        self._given_modes = modes

    @classmethod
    def stack(cls, units: Sequence[JointTable]) -> JointTableLayer:
        modes = [unit.modes for unit in units if unit.modes is not None]
        return cls(
            np.array([unit.scope for unit in units]),
            np.stack([unit.log_masses for unit in units]),
            np.stack(modes) if modes else None,
        )

    def _with_unknown(
        self, table: FloatArray, reduce: Callable[..., FloatArray], no_state: float = -np.inf
    ) -> FloatArray:
        """Extend tables by unknown states and a column for invalid states."""
        # Axis by axis: later axes include the unknown states of earlier ones, so that all patterns
        # arise.
        for axis in range(1, table.ndim):
            table = np.concatenate([table, reduce(table, axis=axis, keepdims=True)], axis)
        return np.column_stack([table.reshape(len(self), -1), np.full(len(self), no_state)])

    @cached_property
    def _lookup(self) -> FloatArray:
        return self._with_unknown(self.log_masses, np.logaddexp.reduce)

    @cached_property
    def _linear_lookup(self) -> FloatArray:
        return self._with_unknown(np.exp(self.log_masses), np.add.reduce, 0.0)

    @property
    def n_states(self) -> IntArray:
        return np.broadcast_to(self._shape, self.scopes.shape)

    def tables(self, cardinalities: Mapping[int, int]) -> Iterator[tuple[slice, Scope, FloatArray]]:
        for own in self._runs:
            yield own, tuple(self.scopes[own.start].tolist()), self._linear_lookup[own]

    @cached_property
    def _log_max_lookup(self) -> FloatArray:
        return self._with_unknown(self.log_masses, np.max)

    @property
    def n_parameters(self) -> int:
        return len(self) * (len(self._states) - 1)

    def _gather(self, lookup: FloatArray, X: FloatArray) -> FloatArray:
        """Look up one value per unit and row, shape (n_units, n)."""
        values = np.empty((len(self), len(X)))
        for units, codes in zip(self._runs, self._codebook.codes(X)):
            # mode="clip" lets NumPy write straight into the result
            np.take(lookup[units], codes, axis=1, out=values[units], mode="clip")
        return values

    def log_prob(self, X: FloatArray) -> FloatArray:
        return self._gather(self._lookup, X)

    def scaled_prob(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._gather(self._linear_lookup, X), np.zeros(len(X))

    def log_box(self, box: Box) -> FloatArray:
        values = np.empty((len(self), len(box.lower)))
        for units in self._runs:
            inside = np.ones((len(self._states), len(box.lower)))
            for place, variable in enumerate(self.scopes[units.start].tolist()):
                mask = box.state_mask(variable, self._shape[place])
                # The box of a joint state is the product of those of its variables
                inside *= mask.T[self._states[:, place]]
            masses = np.exp(self.log_masses[units])
            values[units] = masses.reshape(len(masses), -1) @ inside
        return safe_log(values)

    def log_max(self, X: FloatArray) -> FloatArray:
        return self._gather(self._log_max_lookup, X)

    @cached_property
    def _modes(self) -> IntArray:
        """Number of the joint state that completes each code, shape (n_units, n_codes)."""
        if self._given_modes is not None:
            return self._given_modes
        terms = self.log_masses.reshape(len(self), -1)[:, self._completions[1]]
        starts, lengths = self._completions[2:]
        best = np.repeat(np.maximum.reduceat(terms, starts, axis=1), lengths, axis=1)
        # The first of the completions that tie, as a trace would take
        numbers = np.where(terms == best, self._completions[1], len(self._states))
        return np.minimum.reduceat(numbers, starts, axis=1)

    def mode(self, units: IntArray, cells: FloatArray) -> FloatArray:
        return self._states[self._modes[units, self._codes_of(cells)]].astype(np.float64)

    def _codes_of(self, cells: FloatArray) -> IntArray:
        """Codes of possible cells."""
        codes = np.zeros(len(cells))
        for column, n_states, stride in zip(cells.T, self._shape, self._strides):
            codes += np.fmin(column, n_states) * stride
        return codes.astype(np.intp)

    @cached_property
    def _completions(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Pairs of a code and a joint state that completes it; first pair and number of each."""
        digits = joint_states([n + 1 for n in self._shape])
        fits = np.ones((len(digits), len(self._states)), dtype=bool)
        for place, n_states in enumerate(self._shape):
            known = digits[:, place, None]
            fits &= (known == n_states) | (known == self._states[:, place])
        codes, completions = np.nonzero(fits)
        lengths = fits.sum(axis=1)
        return codes, completions, np.cumsum(lengths) - lengths, lengths

    @cached_property
    def _posterior(self) -> InverseCdf:
        """Distribution over its completions for every unit and code."""
        codes, completions, starts, lengths = self._completions
        totals = self._lookup[:, codes]
        terms = self.log_masses.reshape(len(self), -1)[:, completions]
        # Distributions of impossible codes are never drawn from; they must not be NaN either
        masses = np.exp(terms - np.where(np.isneginf(totals), 0.0, totals))
        firsts = np.arange(len(self))[:, None] * len(codes) + starts
        return InverseCdf(masses.ravel(), firsts.ravel(), np.tile(lengths, len(self)))

    def draw(self, units: IntArray, cells: FloatArray, rng: RandomNumbers) -> FloatArray:
        codes, completions, starts, _ = self._completions
        distributions = units * len(starts) + self._codes_of(cells)
        # Distributions of all units and codes lie one behind the other, a run of each unit as long
        # as the list of completions.
        outcomes = self._posterior.draw(distributions, rng.random(len(units)))
        return self._states[completions[outcomes % len(codes)]].astype(np.float64)

    @cached_property
    def _conditionals(self) -> list[FloatArray]:
        """Distributions (n_states, n_units, n_contexts) of each variable given the others' code."""
        joint = self._lookup[:, :-1].reshape(len(self), *(n + 1 for n in self._shape))
        conditionals = []
        for place in range(len(self._shape)):
            table = np.moveaxis(joint, place + 1, 0)
            # The last entry of an axis is the sum over its states
            total = np.where(np.isneginf(table[-1:]), 0.0, table[-1:])
            fractions = np.exp(table[:-1] - total)
            conditionals.append(fractions.reshape(len(fractions), len(self), -1))
        return conditionals

    @cached_property
    def _contexts(self) -> list[IntArray]:
        """Context of each code for each variable, shape (n_codes,) each."""
        shape = [n + 1 for n in self._shape]
        digits = np.indices(shape).reshape(len(shape), -1)
        contexts = []
        for place in range(len(shape)):
            others = [i for i in range(len(shape)) if i != place]
            sizes = [shape[i] for i in others]
            codes = np.ravel_multi_index(tuple(digits[others]), tuple(sizes)) if others else 0
            contexts.append(np.broadcast_to(codes, digits.shape[1:]).copy())
        return contexts

    def state_flows(self, flows: FloatArray, X: FloatArray) -> Iterator[StateFlows]:
        unknown = np.isnan(X.T)
        for units, codes in zip(self._runs, self._codebook.codes(X)):
            own_flows = flows[units]
            for place, variable in enumerate(self.scopes[units.start].tolist()):
                rows = np.flatnonzero(unknown[variable])
                contexts = self._contexts[place].take(codes.take(rows))
                reached = own_flows.take(rows, axis=1)
                # State by state: all at once would need an array of states, units and rows
                fractions = np.empty((self._shape[place], len(rows)))
                for fraction, table in zip(fractions, self._conditionals[place]):
                    at = table[units].take(contexts, axis=1)
                    np.einsum("un,un->n", reached, at, out=fraction)
                yield StateFlows(variable, rows, fractions)


JointTable.layer_type = JointTableLayer


def tabulated(plan: Plan, move: Move = "log", budget: TableBudget = TRACE_TABLES) -> Plan:
    """Replace units over few discrete variables by tables, which leaves the root as it is under the
    pass ``move``; the plan itself if it would not become much smaller.
    """
    return plan.remember(("tabulated", move, budget), lambda: _tabulate(plan, move, budget))


def _tabulate(plan: Plan, move: Move, budget: TableBudget) -> Plan:
    # Filling tables costs more than passes over a small plan save
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
    """Units to tabulate (``tables``: plan positions by scope), and the positions ``needed`` of
    those that remain or become tables, children first; tables have at most ``max_codes`` codes.
    """

    def __init__(self, plan: Plan, max_codes: int) -> None:
        self._plan = plan
        self._max_codes = max_codes
        self._is_small: dict[VariableSet, bool] = {}
        self.tables: dict[Scope, list[int]] = defaultdict(list)
        found = {plan.root}
        stack = [plan.root]
        while stack:
            position = stack.pop()
            unit = plan.units[position]
            # The highest small units: units below them are never visited again.
            scope = plan.scopes[position]
            if unit.children and self.is_small(scope):
                self.tables[scope.variables].append(position)
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

    def is_small(self, scope: VariableSet) -> bool:
        """Tell whether all variables are discrete with few joint states."""
        if scope not in self._is_small:
            self._is_small[scope] = self._has_few_codes(scope)
        return self._is_small[scope]

    def _has_few_codes(self, scope: VariableSet) -> bool:
        # Most scopes of a large circuit are wide, and need not be listed: a variable has two codes
        if scope.size >= self._max_codes.bit_length():
            return False
        n_codes = 1
        for variable in scope.variables:
            n_states = self._plan.cardinalities.get(variable)
            if n_states is None:
                return False
            n_codes *= n_states + 1
            if n_codes > self._max_codes:
                return False
        return True

    def n_codes(self, scope: Scope) -> int:
        """Joint states, unknown counted as a state."""
        return prod(n + 1 for n in self.shape(scope))

    @property
    def n_entries(self) -> int:
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
    # Units above all tables are not needed
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
    plan: Plan, values: FloatArray, X: FloatArray, tables: dict[Scope, tuple[list[int], int]]
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


@dataclass(frozen=True)
class Lookup:
    """Units over a few discrete variables: one row of the codes chooses columns of a table."""

    units: slice
    table: FloatArray  # (n_units, n_codes + 1)
    number: int  # of the row of the codes


@dataclass(frozen=True)
class Densities:
    """A layer of continuous input units, divided by the largest of their scope."""

    units: slice
    layer: InputLayer


InputStep = Lookup | Densities
InnerStep = ProductLayer | SumLayer | BlockLayer


@dataclass(frozen=True)
class LoweredPlan:
    """Steps in order of execution; ``root`` is the row of the buffer that holds the result."""

    codebook: CodeBook
    steps: Sequence[InputStep | InnerStep]
    weights: SumWeights
    n_rows: int
    root: int

    @property
    def batch_rows(self) -> int:
        """Rows per batch that keep the buffer in cache and still amortise Python."""
        return max(MAX_BATCH_VALUES // self.n_rows, MIN_ROWS_PER_STEP * len(self.steps))

    @property
    def bytes_per_row(self) -> int:
        """Memory one row of a table takes while it is evaluated."""
        densities = [step.layer for step in self.steps if isinstance(step, Densities)]
        n_cells = len(self.codebook.variables) + sum(layer.scopes.size for layer in densities)
        return 8 * (2 * self.n_rows + 4 * n_cells)

    def log_values(self, X: FloatArray) -> tuple[FloatArray, BoolArray]:
        """Log value of the root, shape (n,), and where underflow is excluded."""
        codes, log_scale = self.codebook.codes(X), np.zeros(len(X))

        def write(step: InputStep, out: FloatArray) -> None:
            nonlocal log_scale
            if isinstance(step, Lookup):
                # mode="clip" lets NumPy write straight into the buffer
                np.take(step.table, codes[step.number], axis=1, out=out, mode="clip")
            else:
                out[...], own_scale = step.layer.scaled_prob(X)
                log_scale += own_scale

        # Every step writes all its rows before another reads them
        values = np.empty((self.n_rows, len(X)))
        run_steps(self.steps, values, "linear", self.weights, write)
        # The others may have lost mass to underflow: the caller evaluates them in log space.
        exact = values[self.root] >= MIN_ROOT
        return np.log(np.where(exact, values[self.root], 1.0)) + log_scale, exact


def lower(plan: Plan, *, tabulate: bool) -> LoweredPlan | None:
    """Lower a plan, with tables for small discrete scopes or without; None if values exceed one."""
    if not can_be_linear(plan):
        return None
    plan = tabulated(plan, budget=LOOKUP_TABLES) if tabulate else plan
    scopes: list[Scope] = []
    nodes = [*_input_nodes(plan, scopes), *_inner_nodes(plan)]
    # Fused products have no node: their block computes them and nothing else reads them
    producer = {unit: node for node in nodes for unit in node.units}
    for node in nodes:
        # Each once, in the order of reading: a set would make the order of steps a matter of chance
        node.needs = list({id(producer[unit]): producer[unit] for unit in node.reads}.values())
    # Depth first, so that a value is used soon after it was made
    order = depth_first(producer[plan.root], attrgetter("needs"))
    start_of, n_rows = _allocate(order)
    row_of = np.empty(plan.n_units, dtype=np.intp)
    for node in order:
        row_of[list(node.units)] = start_of[id(node)] + np.arange(len(node.units))
    steps = [
        node.make(
            slice(start_of[id(node)], start_of[id(node)] + len(node.units)),
            row_of[np.array(node.reads, dtype=np.intp)],
        )
        for node in order
    ]
    codebook = CodeBook.of(scopes, plan.cardinalities)
    root = int(row_of[plan.root])
    return LoweredPlan(codebook, steps, plan.weights.with_own_matrices(), n_rows, root)


@dataclass(eq=False)
class _Node:
    """A step to be: units it makes, units it reads, and ``make`` of the rows of both."""

    units: Sequence[int]
    reads: Sequence[int]
    make: Callable[[slice, IntArray], InputStep | InnerStep]
    needs: list[_Node] = field(default_factory=list)


def _input_nodes(plan: Plan, scopes: list[Scope]) -> Iterable[_Node]:
    """One node per layer of densities and per scope of discrete units, which are noted."""
    for span, layer in plan.inputs:
        units = range(span.start, span.stop)
        # Densities have no codes to look up: they are computed row by row
        if not isinstance(layer, DiscreteInputLayer):
            yield _Node(units, [], partial(_densities, layer))
            continue
        for own, scope, table in layer.tables(plan.cardinalities):
            number = len(scopes)
            scopes.append(scope)
            yield _Node(units[own], [], partial(_lookup, table, number))


def _densities(layer: InputLayer, out: slice, _: IntArray) -> Densities:
    return Densities(out, layer)


def _lookup(table: FloatArray, number: int, out: slice, _: IntArray) -> Lookup:
    return Lookup(out, table, number)


def _inner_nodes(plan: Plan) -> Iterable[_Node]:
    """One node per block of sums, layer of other sums, and layer of products not fused."""
    fused = _fused_products(plan)
    for layer in plan.layers:
        if isinstance(layer, ProductLayer):
            yield from _product_nodes(layer, fused)
        elif layer.block_shape is None:
            yield _sum_node(layer)
        else:
            yield from _block_nodes(plan, layer, fused)


def _fused_products(plan: Plan) -> set[int]:
    """Find products that are used by one block of sums only, with equally many factors."""
    n_uses = Counter(plan.position[id(child)] for unit in plan.units for child in unit.children)
    fused: set[int] = set()
    for layer in plan.sum_layers:
        if layer.block_shape is None:
            continue
        for children in layer.block_children.tolist():
            # One matrix of factors per place needs products of one arity.
            kinds = {
                (type(plan.units[i]), len(plan.units[i].children), n_uses[i]) for i in children
            }
            arity = len(plan.units[children[0]].children)
            # A product that is used elsewhere has to be kept, so it is not fused.
            is_own = kinds == {(Product, arity, layer.block_shape[1])}
            if is_own and len(set(children)) == len(children):
                fused.update(children)
    return fused


def _product_nodes(layer: ProductLayer, fused: set[int]) -> Iterable[_Node]:
    """The products of a layer that are not fused."""
    # Of one layer some products may be fused and others not
    units = [i for i in range(layer.units.start, layer.units.stop) if i not in fused]
    if not units:
        return
    children = layer.children[np.array(units) - layer.units.start]
    yield _Node(
        units,
        children.ravel().tolist(),
        lambda out, rows: ProductLayer(out, rows.reshape(children.shape)),
    )


def _sum_node(layer: SumLayer) -> _Node:
    """A layer of sums without blocks."""
    return _Node(
        range(layer.units.start, layer.units.stop),
        layer.children.tolist(),
        lambda out, rows: SumLayer(out, layer.edges, rows, layer.lengths),
    )


def _block_nodes(plan: Plan, layer: SumLayer, fused: set[int]) -> Iterable[_Node]:
    """The blocks of a layer, with the factors of the products that are fused into them."""
    assert layer.block_shape is not None
    n_sums, n_edges = layer.block_shape[1], layer.block_shape[1] * layer.block_shape[2]
    for number, children in enumerate(layer.block_children.tolist()):
        factors = [children]
        if children[0] in fused:
            # Factor by factor, so that each is one gather for all children of the block
            below = [[plan.position[id(c)] for c in plan.units[i].children] for i in children]
            factors = np.transpose(below).tolist()
        start = layer.units.start + number * n_sums
        first = layer.edges.start + number * n_edges
        yield _Node(
            range(start, start + n_sums),
            [unit for factor in factors for unit in factor],
            partial(_block, len(factors), slice(first, first + n_edges)),
        )


def _block(n_factors: int, edges: slice, out: slice, rows: IntArray) -> BlockLayer:
    return BlockLayer(out, edges, tuple(np.split(rows, n_factors)))


def _allocate(nodes: list[_Node]) -> tuple[dict[int, int], int]:
    """First row of each node in a buffer whose rows are used again, and its size."""
    last_use: dict[int, int] = defaultdict(lambda: -1)
    last_use.update((id(below), i) for i, node in enumerate(nodes) for below in node.needs)
    # First fit: optimal packing is NP-hard, and depth-first order leaves little to gain
    start_of: dict[int, int] = {}
    taken: list[tuple[int, int, int]] = []  # first row, end, identity of the node
    n_rows = 0
    for i, node in enumerate(nodes):
        # The first row of the lowest gap that is large enough
        size = len(node.units)
        start = 0
        for first, end, _ in taken:
            if first - start >= size:
                break
            start = end
        start_of[id(node)] = start
        n_rows = max(n_rows, start + len(node.units))
        # Rows are released after the step: a step never overwrites its inputs.
        taken = sorted([*taken, (start, start + len(node.units), id(node))])
        taken = [rows for rows in taken if last_use[rows[2]] > i]
    return start_of, n_rows
