"""Stein kernels of categorical rows: one signed measure per row and variable, compared in blocks.

An operator T with ``E_p[T f] = 0`` for every f turns a row x and a variable i into a
signed measure on the states of variable i (all else stays as in x),

    (T_i f)(x) = sum_t c_t f(x with state s_t).

The Stein kernel is the kernel between these measures, summed over the variables: it is
symmetric and positive semi-definite by construction.

A collapsed row represents its observed states and the exact conditional distribution of the other
variables. For a product kernel, an entry is the kernel of the observed states times one expected
kernel per component of collapsed variables, and only the components next to a variable change when
that variable moves.

Rows with different collapsed variables have no common structure, so that their measures are
compared on the joint states of all variables: one side as a sparse vector (its support is small),
the other multiplied with the kernel table of every variable, which makes it dense.

The expected kernels are ``M(a, b) = E[k(x, y)]`` for x ~ p(. | a), y ~ p(. | b), for all pairs of a
batch. Components with a small joint state space are embedded as tables times kernel tables, which
is one matrix product. Larger ones are computed by a pass over pairs of buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit

from skcircuits.exceptions import CircuitPropertyError, invalid, must, warn
from skcircuits.graphical.inference._elimination import EliminationTree, joint_table
from skcircuits.graphical.inference._exact_inference import missing_patterns
from skcircuits.graphical.inference._posterior import Component, Posterior, Solution
from skcircuits.kernels.families.base import Kernel as KernelFamily
from skcircuits.kernels.families.base import structure_of, value_of
from skcircuits.parallel import memory_bound_chunks, row_slices, thread_map, working_memory_bytes
from skcircuits.protocols import BoolArray, DiscreteTarget, FloatArray, IntArray, Kernel
from skcircuits.stein._targets import full_conditionals, state_counts

# Where kernels of single variables vary more than this their ratios would lose digits, and beyond
# this many products of states per variable they cost more than they save.
_MAX_RATIO, _MAX_PRODUCTS = 1e6, 36
# Variables that one thread lays out at once.
_GROUP_VARIABLES = 16

# Rows of states, as floats with NaN or as codes.
Rows = TypeVar("Rows", FloatArray, IntArray)

# Joint tables of at most this many states are multiplied out.
EMBEDDED_STATES = 4096

Tables = Mapping[int, FloatArray]
# A Gram matrix of collapsed rows that would take longer is refused before it starts.
MAX_SECONDS = 60.0
# Multiplications per second, of joint tables and of the pass over pairs of cliques.
EMBEDDED_RATE, PAIRED_RATE = 5e9, 3e8


@dataclass(frozen=True)
class Atoms:
    """Signed measures on the states of one variable, one per row."""

    coefficients: FloatArray  # (n, m)
    locations: IntArray  # (n, m)
    evidence: IntArray  # (n, m)
    meets_zeros: BoolArray  # (n,)

    def __getitem__(self, rows: slice | IntArray) -> Atoms:
        return Atoms(*(array[rows] for array in self._arrays()))

    def spread(self, chosen: BoolArray) -> Atoms:
        """Place the measures at some rows of a longer table; zero measures elsewhere."""
        spread = []
        for array in self._arrays():
            longer = np.zeros((len(chosen), *array.shape[1:]), dtype=array.dtype)
            longer[chosen] = array
            spread.append(longer)
        return Atoms(*spread)

    def _arrays(self) -> tuple[Any, ...]:
        return self.coefficients, self.locations, self.evidence, self.meets_zeros

    def by_state(self, n_states: int) -> FloatArray:
        """Add the atoms up per location."""
        shape = len(self.coefficients), n_states
        # Two atoms of a row may meet in one state.
        cells = n_states * np.arange(shape[0])[:, None] + self.locations
        totals = np.bincount(cells.ravel(), self.coefficients.ravel(), minlength=prod(shape))
        return np.asarray(totals, dtype=np.float64).reshape(shape)


def barker_atoms(log_conditional: FloatArray, states: IntArray) -> Atoms:
    """Build the measures of the locally balanced (Barker) operator.

    ``(T_i f)(x) = sum_{d != 0} g_d(x) (f(x +_i d) - f(x))`` with
    ``g_d(x) = p(x +_i d) / (p(x) + p(x +_i d))``. The rates are bounded and p(x) g_d(x) is
    symmetric in the two states, so targets with zeros are allowed.
    """
    rows = np.arange(len(log_conditional))
    # A row for each state: there are few of these, and many rows.
    values = np.ascontiguousarray(log_conditional.T)
    # g = σ(log p(moved) - log p(here)): never overflows, however rugged the target.
    with np.errstate(invalid="ignore"):
        rates = expit(values - values[states, rows])
    # Two impossible states: the exchange is symmetric, and its rate is irrelevant.
    rates[np.isnan(rates)] = 0.5
    # The mass that moves to other states is subtracted here: each measure has total mass zero.
    rates[states, rows] = 0.0
    rates[states, rows] = -rates.sum(axis=0)
    # Atoms are the states themselves, in order, for every row.
    everywhere = np.broadcast_to(np.arange(len(values)), log_conditional.shape)
    zeros = np.asarray(np.isneginf(values).any(axis=0))
    return Atoms(rates.T, everywhere, everywhere, zeros)


def difference_atoms(log_conditional: FloatArray, states: IntArray) -> Atoms:
    """Build the measures of the published difference operator (Yang et al. 2018).

    ``(T_i f)(x) = r_i(x) f(x) - f(x -_i 1)`` with ``r_i(x) = p(x +_i 1) / p(x)``, moves
    cyclic: the ratio moves forward, the argument of f by the inverse. For collapsed rows
    the first atom carries the conditional distribution given ``x +_i 1``.
    """
    n_states = log_conditional.shape[1]
    zeros = np.asarray(np.isneginf(log_conditional).any(axis=1))
    if zeros.any():
        what = "target of the difference operator"
        condition = "be positive everywhere"
        way_out = "Use operator='barker', or make the target positive with its soften() method."
        raise invalid(what, condition, way_out, n_rows_next_to_zeros=int(zeros.sum()))
    # Both moves are cyclic: ¬ and its inverse.
    forward, backward = (states + 1) % n_states, (states - 1) % n_states
    rows = np.arange(len(states))
    ratio = np.exp(log_conditional[rows, forward] - log_conditional[rows, states])
    return Atoms(
        np.stack([ratio, np.full_like(ratio, -1.0)], axis=1),
        locations=np.stack([states, backward], axis=1),
        evidence=np.stack([forward, states], axis=1),
        meets_zeros=zeros,
    )


OPERATORS: dict[str, Callable[[FloatArray, IntArray], Atoms]] = {
    "barker": barker_atoms,
    "difference": difference_atoms,
}


@dataclass(frozen=True)
class ProductTerm:
    """``weight * prod_j tables[j][x_j, y_j]``."""

    weight: float
    tables: dict[int, FloatArray]  # (k_j, k_j)

    @cached_property
    def has_safe_ratios(self) -> bool:
        """Whether products may be divided by single factors without losing digits."""
        smallest = min(float(table.min()) for table in self.tables.values())
        largest = max(float(table.max()) for table in self.tables.values())
        return 0.0 < largest <= _MAX_RATIO * smallest


def product_terms(kernel: Any, counts: IntArray) -> list[ProductTerm] | None:
    """Write a kernel as a sum of products of tables."""
    # The factorisation of a plain function of rows is unknown.
    if not isinstance(kernel, KernelFamily):
        return None
    # Polynomial kernels couple the variables through powers of sums.
    terms = structure_of(kernel, range(len(counts))).product_terms()
    if terms is None:
        return None
    states = [np.arange(k, dtype=np.float64) for k in counts]
    return [
        ProductTerm(
            weight,
            {j: value_of(functions[j], values[:, None], values) for j, values in enumerate(states)},
        )
        for weight, functions in terms
    ]


@dataclass(frozen=True)
class Measures:
    """The signed measures of a Stein operator at some rows."""

    X: FloatArray  # (n, d)
    counts: IntArray  # (d,)
    atoms: dict[int, Atoms]

    def __getitem__(self, rows: slice) -> Measures:
        atoms = {variable: measures[rows] for variable, measures in self.atoms.items()}
        return Measures(self.X[rows], self.counts, atoms)

    def of_variables(self, variables: IntArray) -> Measures:
        """Keep the moves of some variables."""
        kept = {v: self.atoms[v] for v in variables.tolist() if v in self.atoms}
        return Measures(self.X, self.counts, kept)

    def warn_of_zeros(self, names: Sequence[str] | None = None) -> None:
        """Say where moves of one variable meet impossible states."""
        # Only neighbours of the samples are known of the support.
        blocked = sum(int(atoms.meets_zeros.sum()) for atoms in self.atoms.values())
        if blocked:
            unmoved = [v for v, atoms in self.atoms.items() if not atoms.coefficients.any()]
            labels = unmoved[:10] if names is None else [names[v] for v in unmoved[:10]]
            some = f"; variables {labels} have no other" if unmoved else ""
            warn(
                f"the target is zero next to the samples ({blocked} moves are "
                f"impossible{some}). No Stein discrepancy, p-value or weight detects a wrong "
                "distribution of the mass over parts of the support that are not connected by "
                "changes of a single variable: make the target positive with "
                "target.soften(...), or collapse the variables that are functions of others.",
            )


def stein_measures(
    target: DiscreteTarget, X: FloatArray, operator: str, n_jobs: int | None = None
) -> Measures:
    """Evaluate a Stein operator at some rows."""
    # The target may not be thread-safe.
    conditionals = dict(full_conditionals(target, X))
    kinds: dict[tuple[int, ...], list[int]] = {}
    for variable, log_conditional in conditionals.items():
        kinds.setdefault(log_conditional.shape, []).append(variable)

    def measure(variables: Sequence[int]) -> list[Atoms]:
        """Take m variables with as many rows and states as one long table."""
        cells = X[:, variables].T
        observed = ~np.isnan(cells)
        table = np.concatenate([conditionals[variable] for variable in variables])
        measures = OPERATORS[operator](table, cells[observed].astype(np.int64))
        size = len(table) // len(variables)
        own = [measures[size * i : size * (i + 1)] for i in range(len(variables))]
        # A collapsed variable adds nothing: its terms have expectation zero.
        return [one if seen.all() else one.spread(seen) for one, seen in zip(own, observed)]

    groups = [
        (variables[group],)
        for variables in kinds.values()
        for group in row_slices(len(variables), _GROUP_VARIABLES)
    ]
    found = thread_map(measure, groups, n_jobs)
    atoms = {
        variable: one
        for (variables,), measured in zip(groups, found)
        for variable, one in zip(variables, measured)
    }
    # In the order of the variables, whose terms are added up.
    ordered = {variable: atoms[variable] for variable in conditionals}
    return Measures(X, state_counts(target, X.shape[1]), ordered)


def moved_rows(X: Rows, variable: int, states: IntArray) -> Rows:
    """Repeat rows with one variable set to each of some states."""
    moved = np.repeat(X, states.shape[1], axis=0)
    moved[:, variable] = states.ravel()
    return moved


def contract(left: Atoms, right: Atoms, values: FloatArray) -> FloatArray:
    """Sum the kernel values of all pairs of atoms, weighted."""
    n_left, n_right = left.coefficients.shape, right.coefficients.shape
    # Atoms of one row stand together in `values`.
    table = values.reshape(*n_left, *n_right)
    return np.einsum("iajb,ia,jb->ij", table, left.coefficients, right.coefficients, optimize=True)


def point_block(left: Measures, right: Measures, *, kernel: Kernel) -> FloatArray:
    """Compute the Stein kernel of two sets of complete rows for any base kernel."""
    total = np.zeros((len(left.X), len(right.X)))
    for variable, ours in left.atoms.items():
        theirs = right.atoms[variable]
        values = kernel(
            moved_rows(left.X, variable, ours.locations),
            moved_rows(right.X, variable, theirs.locations),
        )
        if np.shape(values) != (ours.locations.size, theirs.locations.size):
            condition = f"have shape ({ours.locations.size}, {theirs.locations.size})"
            raise invalid("kernel(X, Y)", condition, shape=np.shape(values))
        total += contract(ours, theirs, values)
    return total


class _Features(NamedTuple):
    """Features in which log k and its sum of Stein kernels are bilinear, a column for each row."""

    states: FloatArray
    logs: FloatArray
    moves: FloatArray
    ratios: FloatArray


@dataclass(frozen=True)
class StateVectors:
    """Complete rows and their measures as vectors over the states of each variable."""

    codes: IntArray  # (n, d)
    vectors: dict[int, FloatArray]  # (n, k_i)
    features: dict[int, _Features] = field(default_factory=dict)  # by index of the term

    def __getitem__(self, rows: slice) -> StateVectors:
        vectors = {variable: table[rows] for variable, table in self.vectors.items()}
        features = {
            i: _Features(*(part[:, rows] for part in own)) for i, own in self.features.items()
        }
        return StateVectors(self.codes[rows], vectors, features)

    def of_variables(self, variables: IntArray) -> StateVectors:
        """Keep the measures of some variables."""
        kept = {v: self.vectors[v] for v in variables.tolist() if v in self.vectors}
        return StateVectors(self.codes, kept)

    def prepared(self, terms: Sequence[ProductTerm], n_jobs: int | None = None) -> StateVectors:
        """Compute features once for all blocks, where memory allows; slices have them too."""
        chosen = [i for i, term in enumerate(terms) if _takes_ratios(term, self.vectors)]
        n_columns = sum(2 * len(t) * (1 + len(t)) for i in chosen for t in terms[i].tables.values())
        if 8 * n_columns * len(self.codes) > working_memory_bytes():
            return self
        return replace(self, features={i: _features(self, terms[i], n_jobs) for i in chosen})

    def features_of(self, index: int, term: ProductTerm) -> _Features:
        return self.features[index] if index in self.features else _features(self, term)


def state_vectors(measures: Measures) -> StateVectors:
    """Lay measures out as vectors."""
    counts = measures.counts
    return StateVectors(
        measures.X.astype(np.int64),
        {i: atoms.by_state(int(counts[i])) for i, atoms in measures.atoms.items()},
    )


def product_block(
    left: StateVectors, right: StateVectors, *, terms: Sequence[ProductTerm]
) -> FloatArray:
    """Compute the Stein kernel for a sum of products over the variables."""
    total = np.zeros((len(left.codes), len(right.codes)))
    for index, term in enumerate(terms):
        if _takes_ratios(term, left.vectors):
            ours, theirs = left.features_of(index, term), right.features_of(index, term)
            # log k and the sum of ratios are bilinear in the features
            values = ours.states.T @ theirs.logs
            np.exp(values, out=values)
            values *= ours.moves.T @ theirs.ratios
            values *= term.weight
            total += values
        else:
            total += _product_term(left, right, term)
    return total


def _takes_ratios(term: ProductTerm, moving: dict[int, FloatArray]) -> bool:
    n_products = sum(len(term.tables[variable]) ** 2 for variable in moving)
    return term.has_safe_ratios and n_products <= _MAX_PRODUCTS * len(moving)


def _features(rows: StateVectors, term: ProductTerm, n_jobs: int | None = None) -> _Features:
    """Lay out both sides of the two matrix products, some variables at a time."""
    kinds: dict[tuple[int, bool], list[int]] = {}
    for variable, table in term.tables.items():
        kinds.setdefault((len(table), variable in rows.vectors), []).append(variable)
    groups, n_states, n_products = [], 0, 0
    for (k, is_moving), variables in kinds.items():
        for group in row_slices(len(variables), _GROUP_VARIABLES):
            start = n_states, n_products
            n_states += len(variables[group]) * k
            n_products += len(variables[group]) * k**2 * is_moving
            places = slice(start[0], n_states), slice(start[1], n_products)
            groups.append((variables[group], is_moving, *places))
    n_rows = len(rows.codes)
    whole = _Features(
        *(np.empty((n, n_rows)) for n in (n_states, n_states, n_products, n_products))
    )

    def fill(variables: Sequence[int], is_moving: bool, states: slice, products: slice) -> None:
        tables = np.stack([term.tables[variable] for variable in variables])  # (m, k, k)
        shape = *tables.shape[:2], n_rows
        codes = rows.codes[:, variables].T[:, None]  # (m, 1, n)
        indicators = np.take_along_axis(np.eye(tables.shape[1])[None], codes, axis=2)
        whole.states[states].reshape(shape)[:] = indicators
        whole.logs[states].reshape(shape)[:] = np.take_along_axis(np.log(tables), codes, axis=2)
        if is_moving:
            vectors = np.stack([rows.vectors[variable].T for variable in variables])  # (m, k, n)
            inverse = np.take_along_axis(1.0 / tables, codes, axis=2)
            _multiply(indicators, vectors, whole.moves[products])
            _multiply(inverse, tables @ vectors, whole.ratios[products])

    thread_map(fill, groups, n_jobs)
    return whole


def _multiply(first: FloatArray, second: FloatArray, out: FloatArray) -> None:
    """Write the products of all pairs of states of each variable, of (m, k, n) each."""
    m, k, n = first.shape
    np.multiply(first[:, :, None], second[:, None], out=out.reshape(m, k, k, n))


def _product_term(left: StateVectors, right: StateVectors, term: ProductTerm) -> FloatArray:
    """By the product rule, where kernels may be zero: (f g)' = f' g + f g'."""
    # (f g)' = f' g + f g': `derivative` collects one measure kernel per factor.
    product = np.full((len(left.codes), len(right.codes)), term.weight)
    derivative = np.zeros_like(product)
    for variable, table in term.tables.items():
        factor = table[left.codes[:, variable]][:, right.codes[:, variable]]
        derivative *= factor
        if variable in left.vectors:
            measure_kernel = left.vectors[variable] @ table @ right.vectors[variable].T
            measure_kernel *= product
            derivative += measure_kernel
        product *= factor
    return derivative


def expected_kernel_of_component(left: Solution, right: Solution, tables: Tables) -> FloatArray:
    """Compute the expected kernel of one component for all pairs of evidences."""
    tree = left.component.tree
    if np.prod(tree.shape(tree.variables), dtype=float) <= EMBEDDED_STATES:
        # One side carries the kernel: K is symmetric.
        weighted = apply_tables(
            joint_table(tree, left.conditionals), [tables[v] for v in tree.variables]
        )
        other = joint_table(tree, right.conditionals)
        values = weighted.reshape(len(weighted), -1) @ other.reshape(len(other), -1).T
    else:
        values = _paired(tree, left.conditionals, right.conditionals, tables)
    # If no evidence reaches the component, one table serves all rows.
    values = np.broadcast_to(values, (len(left.log_partition), len(right.log_partition)))
    return values[left.rows][:, right.rows]


def apply_tables(vectors: FloatArray, tables: Sequence[FloatArray]) -> FloatArray:
    """Multiply each axis of a batch of tensors with a matrix."""
    for table in tables:
        # Each product consumes the first state axis and appends the new one.
        vectors = np.tensordot(vectors, table, axes=(1, 0))
    return vectors


def _paired(
    tree: EliminationTree, left: Sequence[FloatArray], right: Sequence[FloatArray], tables: Tables
) -> FloatArray:
    """Pass over pairs of buckets, for blocks of pairs that fit into memory."""
    n_left, n_right = max(map(len, left)), max(map(len, right))
    values = np.empty((n_left, n_right))
    # The largest clique squared, per pair, with room for the operands of one product.
    widest = max(int(np.prod(tree.shape(bucket.axes))) for bucket in tree.buckets)
    for rows in memory_bound_chunks(n_left, 8 * 4 * n_right * widest**2):
        block = [table[rows] if len(table) > 1 else table for table in left]
        values[rows] = _pair_pass(tree, block, right, tables)
    return values


def _pair_pass(
    tree: EliminationTree, left: Sequence[FloatArray], right: Sequence[FloatArray], tables: Tables
) -> FloatArray:
    """Expected kernels of contexts, leaves first: (left, right, *separator, *separator)."""
    messages: list[FloatArray] = []
    for bucket, mine, other in zip(tree.buckets, left, right):
        depth = len(bucket.axes)
        ours = list(range(2, 2 + depth))
        theirs = list(range(2 + depth, 2 + 2 * depth))
        operands: list[Any] = [
            mine,
            [0, *ours],
            other,
            [1, *theirs],
            tables[bucket.variable],
            [ours[0], theirs[0]],
        ]
        for child in bucket.children:
            axes = [bucket.axes.index(v) for v in tree.buckets[child].separator]
            labels = [0, 1, *(ours[a] for a in axes), *(theirs[a] for a in axes)]
            operands += [messages[child], labels]
        output = [0, 1, *ours[1:], *theirs[1:]]
        # Tables of all rows have length one and broadcast.
        messages.append(np.einsum(*operands, output, optimize="greedy"))
    return messages[-1]


def shared_block(
    left: Measures, right: Measures, *, posterior: Posterior, terms: Sequence[ProductTerm]
) -> FloatArray:
    """Compute the Stein kernel of rows that collapse the same variables."""
    pair = _Pair(posterior, _codes(left.X), _codes(right.X))
    total = np.zeros((len(pair.left), len(pair.right)))
    for term in terms:
        # At the rows themselves; valid wherever the moving variable is not on the boundary.
        fixed = [pair.expectations(part, term.tables) for part in posterior.components]
        for variable, ours in left.atoms.items():
            theirs = right.atoms[variable]
            # Kernel of the moving variable, then of the components that depend on it.
            values = term.tables[variable][ours.locations.ravel()][:, theirs.locations.ravel()]
            # Everything else is common to all atoms of a pair of rows.
            others = term.weight * pair.kernel_without(variable, left.atoms, term.tables)
            for component, expectation in zip(posterior.components, fixed):
                if variable in component.boundary:
                    moved = pair.moved(variable, ours, theirs)
                    values = values * moved.expectations(component, term.tables)
                else:
                    others *= expectation
            total += contract(ours, theirs, values) * others
    return total


def estimated_seconds(posterior: Posterior, n_rows: int, counts: IntArray) -> float:
    """Estimate the time of a Gram matrix from the sizes of the cliques that are summed over."""
    seconds = 0.0
    for component in posterior.components:
        tree = component.tree
        n_states = float(np.prod(tree.shape(tree.variables), dtype=float))
        cliques = sum(float(np.prod(tree.shape(b.axes), dtype=float)) ** 2 for b in tree.buckets)
        is_embedded = n_states <= EMBEDDED_STATES
        cost = n_states / EMBEDDED_RATE if is_embedded else cliques / PAIRED_RATE
        # At the rows themselves, and with each variable of the boundary moved in both.
        moves = sum(float(counts[variable]) ** 2 for variable in component.boundary)
        seconds += cost * n_rows**2 * (1.0 + moves) / 2.0
    return seconds


class _Pair:
    """Two batches of evidences and the kernels between them."""

    def __init__(self, posterior: Posterior, left: IntArray, right: IntArray) -> None:
        self.posterior = posterior
        self.left = left
        self.right = right

    def moved(self, variable: int, left: Atoms, right: Atoms) -> _Pair:
        """Give the evidences of all atoms of one variable."""
        return _Pair(
            self.posterior,
            # The evidence moves, which need not be where the atom sits.
            moved_rows(self.left, variable, left.evidence),
            moved_rows(self.right, variable, right.evidence),
        )

    def expectations(self, component: Component, tables: Tables) -> FloatArray:
        """Expected kernel of one component for all pairs."""
        return expected_kernel_of_component(
            self.posterior.solve_component(component, self.left),
            self.posterior.solve_component(component, self.right),
            tables,
        )

    def kernel_without(self, variable: int, observed: Iterable[int], tables: Tables) -> FloatArray:
        """Multiply the kernels of all observed variables but one."""
        product = np.ones((len(self.left), len(self.right)))
        for other in observed:
            if other != variable:
                product *= tables[other][self.left[:, other]][:, self.right[:, other]]
        return product


def _codes(X: FloatArray) -> IntArray:
    # States of collapsed variables are never read.
    return np.nan_to_num(X, nan=0.0).astype(np.int64)


@dataclass(frozen=True)
class RowMeasure:
    """The signed measure of one row and one variable."""

    states: IntArray  # (d,)
    variable: int
    hidden: tuple[int, ...]
    locations: IntArray  # (m,)
    weights: FloatArray  # (m, *states of the hidden variables)


def check_joint_states(counts: IntArray, n_rows: int) -> None:
    """Refuse when a batch of dense vectors over all joint states would not fit."""
    n_bytes = 8 * n_rows * prod(counts.tolist())
    if n_bytes > working_memory_bytes():
        raise CircuitPropertyError(
            must(
                "rows that collapse different variables",
                "have few joint states",
                f"{n_rows} rows need {n_bytes / 2**20:.3g} MiB: collapse the same variables "
                "in all rows, or raise sklearn.set_config(working_memory=...).",
                n_joint_states=prod(counts.tolist()),
            )
        )


def row_measures(measures: Measures, target: Any) -> list[dict[int, RowMeasure]]:
    """Solve the conditional distributions of all atoms of all rows."""
    solved: list[dict[int, RowMeasure]] = [{} for _ in measures.X]
    for rows, hidden in missing_patterns(np.isnan(measures.X)):
        codes = np.nan_to_num(measures.X[rows], nan=0.0).astype(np.int64)
        mine = {v: atoms[rows] for v, atoms in measures.atoms.items() if v not in hidden}
        if not mine:
            continue
        # All rows with one pattern, all their variables and atoms in one solve.
        evidence = [moved_rows(codes, v, atoms.evidence) for v, atoms in mine.items()]
        joint = _joint_distribution(
            target.posterior(hidden), np.concatenate(evidence), measures.counts
        )
        parts = np.split(joint, np.cumsum([len(part) for part in evidence])[:-1])
        for (variable, atoms), part in zip(mine.items(), parts):
            weights = part.reshape(*atoms.coefficients.shape, *part.shape[1:])
            weights = weights * np.expand_dims(
                atoms.coefficients, axis=tuple(range(2, weights.ndim))
            )
            # From here on rows are treated separately, because their patterns differ.
            for index, row in enumerate(rows.tolist()):
                solved[row][variable] = RowMeasure(
                    codes[index],
                    variable,
                    tuple(sorted(hidden)),
                    atoms.locations[index],
                    weights[index],
                )
    return solved


def _joint_distribution(posterior: Posterior, codes: IntArray, counts: IntArray) -> FloatArray:
    """Multiply the components out; axes are the hidden variables in increasing order."""
    # Components are independent given the observed states.
    hidden = sorted(posterior.hidden)
    joint = np.ones((1,) * (1 + len(hidden)))
    for solution in posterior.solve(codes):
        variables = solution.component.tree.variables
        table = joint_table(solution.component.tree, solution.conditionals)
        table = table[solution.rows] if len(table) > 1 else table
        order = np.argsort(variables)
        shape = [int(counts[v]) if v in variables else 1 for v in hidden]
        joint = joint * table.transpose(0, *(order + 1)).reshape(len(table), *shape)
    return np.broadcast_to(joint, (len(codes), *joint.shape[1:]))


def rows_block(
    left: Sequence[dict[int, RowMeasure]],
    right: Sequence[dict[int, RowMeasure]],
    *,
    counts: IntArray,
    terms: Sequence[ProductTerm],
) -> FloatArray:
    """Compute the Stein kernel of rows that collapse variables of their own."""
    total = np.zeros((len(left), len(right)))
    for variable in range(len(counts)):
        # Only pairs of rows that both sampled the variable have a term for it.
        ours = [index for index, row in enumerate(left) if variable in row]
        theirs = [index for index, row in enumerate(right) if variable in row]
        if not ours or not theirs:
            continue
        sparse = _sparse_rows((right[index][variable] for index in theirs), counts)
        for term in terms:
            # The dense side is the large one: it exists for one variable at a time.
            dense = np.stack(
                [_dense_row(left[index][variable], counts, term.tables) for index in ours]
            )
            total[np.ix_(ours, theirs)] += term.weight * (sparse @ dense.T).T
    return total


def _sparse_rows(measures: Iterator[RowMeasure], counts: IntArray) -> csr_array:
    """Lay measures out on the joint states of all variables, last variable fastest."""
    strides = np.append(np.cumprod(counts[:0:-1])[::-1], 1)
    indices, values, ends = [], [], [0]
    for measure in measures:
        hidden = list(measure.hidden)
        shape = tuple(counts[hidden].tolist())
        free = np.indices(shape).reshape(len(shape), prod(shape))
        offsets = strides[hidden] @ free
        # The moving variable and the hidden ones get their own offsets.
        states = measure.states.copy()
        states[[*hidden, measure.variable]] = 0
        origin = states @ strides + measure.locations * strides[measure.variable]
        indices.append((origin[:, None] + offsets).ravel())
        values.append(measure.weights.ravel())
        ends.append(ends[-1] + measure.weights.size)
    cells = (np.concatenate(values), np.concatenate(indices), ends)
    return csr_array(cells, shape=(len(ends) - 1, prod(counts.tolist())))


def _dense_row(measure: RowMeasure, counts: IntArray, tables: Tables) -> FloatArray:
    """Apply the kernel table of every variable to a measure."""
    variable, hidden = measure.variable, measure.hidden
    smooth = apply_tables(measure.weights, [tables[v] for v in hidden])
    moving = np.tensordot(tables[variable][measure.locations], smooth, axes=(0, 0))
    others = [v for v in tables if v != variable and v not in hidden]
    # Observed variables: an outer product of rows of their tables.
    fixed = np.ones(1)
    for v in others:
        fixed = np.multiply.outer(fixed, tables[v][measure.states[v]]).ravel()
    axes = [*others, variable, *hidden]
    # Back to the axes in the order of the variables, as the sparse side has them.
    dense = np.multiply.outer(fixed, moving.ravel()).reshape(counts[axes])
    return dense.transpose(np.argsort(axes)).ravel()
