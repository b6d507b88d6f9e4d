"""Stein kernels of categorical rows: one signed measure per row and variable, compared in blocks.

An operator T with ``E_p[T f] = 0`` for every f turns a row x and a variable i into a
signed measure on the states of variable i (all else stays as in x),

    (T_i f)(x) = sum_t c_t f(x with state s_t).

The Stein kernel is the kernel between these measures, summed over the variables: it is
symmetric and positive semi-definite by construction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np
from scipy.special import expit

from skcircuits.exceptions import must, warn
from skcircuits.kernels.families.base import Kernel as KernelFamily
from skcircuits.kernels.families.base import structure_of, value_of
from skcircuits.parallel import row_slices, thread_map, working_memory_bytes
from skcircuits.protocols import BoolArray, DiscreteTarget, FloatArray, IntArray, Kernel
from skcircuits.stein._targets import full_conditionals, state_counts

# Where kernels of single variables vary more than this their ratios would lose digits, and beyond
# this many products of states per variable they cost more than they save.
_MAX_RATIO, _MAX_PRODUCTS = 1e6, 36
# Variables that one thread lays out at once.
_GROUP_VARIABLES = 16

# Rows of states, as floats with NaN or as codes.
Rows = TypeVar("Rows", FloatArray, IntArray)


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
        raise ValueError(must(what, condition, way_out, n_rows_next_to_zeros=int(zeros.sum())))
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
            raise ValueError(must("kernel(X, Y)", condition, shape=np.shape(values)))
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
            total += _ratio_term(ours, theirs, term.weight)
        else:
            total += _product_term(left, right, term)
    return total


def _takes_ratios(term: ProductTerm, moving: dict[int, FloatArray]) -> bool:
    n_products = sum(len(term.tables[variable]) ** 2 for variable in moving)
    return term.has_safe_ratios and n_products <= _MAX_PRODUCTS * len(moving)


def _ratio_term(left: _Features, right: _Features, weight: float) -> FloatArray:
    """Compute ``k(x, y) Σ_i v_i(x)ᵀ T_i v_i(y) / T_i[x_i, y_i]`` by two matrix products.

    Both log k and the sum are bilinear: in indicators of the states, and in their products with
    the measures v_i.
    """
    values = left.states.T @ right.logs
    np.exp(values, out=values)
    values *= left.moves.T @ right.ratios
    values *= weight
    return values


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
    """Compute the derivative of the product, where kernels may be zero.

    The sum over the variables of (measure kernel of i) * (product of all others) needs two
    running matrices by the product rule.
    """
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
