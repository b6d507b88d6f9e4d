"""Stein kernels of complete categorical rows, block by block."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import DiscreteTarget, FloatArray, IntArray, Kernel
from skcircuits.stein._targets import full_conditionals, state_counts
from skcircuits.stein.categorical._operators import OPERATORS, Atoms
from skcircuits.stein.categorical._product_terms import ProductTerm

# Rows of states, as floats with NaN or as codes.
Rows = TypeVar("Rows", FloatArray, IntArray)


@dataclass(frozen=True)
class Measures:
    """The signed measures of a Stein operator at some rows."""

    X: FloatArray  # (n, d)
    counts: IntArray  # (d,)
    atoms: dict[int, Atoms]

    def __getitem__(self, rows: slice) -> Measures:
        """Give the measures at some rows."""
        atoms = {variable: measures[rows] for variable, measures in self.atoms.items()}
        return Measures(self.X[rows], self.counts, atoms)

    def of_variables(self, variables: IntArray) -> Measures:
        """Keep the moves of some variables."""
        kept = {v: self.atoms[v] for v in variables.tolist() if v in self.atoms}
        return Measures(self.X, self.counts, kept)

    def warn_of_zeros(self) -> None:
        """Say where moves of one variable meet impossible states."""
        # Neighbours of the samples are all that is seen of the support.
        blocked = sum(int(atoms.meets_zeros.sum()) for atoms in self.atoms.values())
        if blocked:
            unmoved = [v for v, atoms in self.atoms.items() if not atoms.coefficients.any()]
            some = f"; variables {unmoved[:10]} have no other" if unmoved else ""
            warnings.warn(
                f"the target is zero next to the samples ({blocked} moves are impossible{some}). "
                "How much mass is in parts of its support that moves of one variable do not "
                "connect is seen by no Stein discrepancy, p-value or weight: make the target "
                "positive with target.soften(...), or collapse the variables that are functions "
                "of others.",
                UserWarning,
                stacklevel=2,
            )


def stein_measures(target: DiscreteTarget, X: FloatArray, operator: str) -> Measures:
    """Evaluate a Stein operator at some rows."""
    atoms = {}
    for variable, log_conditional in full_conditionals(target, X):
        observed = ~np.isnan(X[:, variable])
        measures = OPERATORS[operator](log_conditional, X[observed, variable].astype(np.int64))
        # A collapsed variable adds nothing: its terms have expectation zero.
        atoms[variable] = measures if observed.all() else measures.spread(observed)
    return Measures(X, state_counts(target, X.shape[1]), atoms)


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
            raise ValueError(
                must(
                    "kernel(X, Y)",
                    f"have shape ({ours.locations.size}, {theirs.locations.size})",
                    shape=np.shape(values),
                )
            )
        total += contract(ours, theirs, values)
    return total


@dataclass(frozen=True)
class StateVectors:
    """Complete rows and their measures as vectors over the states of each variable."""

    codes: IntArray  # (n, d)
    vectors: dict[int, FloatArray]  # (n, k_i)

    def __getitem__(self, rows: slice) -> StateVectors:
        """Give some of the rows."""
        vectors = {variable: table[rows] for variable, table in self.vectors.items()}
        return StateVectors(self.codes[rows], vectors)

    def of_variables(self, variables: IntArray) -> StateVectors:
        """Keep the measures of some variables."""
        kept = {v: self.vectors[v] for v in variables.tolist() if v in self.vectors}
        return StateVectors(self.codes, kept)


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
    """Compute the Stein kernel for a sum of products over the variables.

    The sum over the variables of (measure kernel of i) * (product of all others) is a
    derivative of the whole product: the product rule needs two running matrices.
    """
    total = np.zeros((len(left.codes), len(right.codes)))
    for term in terms:
        # (f g)' = f' g + f g': `derivative` collects one measure kernel per factor.
        product = np.full_like(total, term.weight)
        derivative = np.zeros_like(total)
        for variable, table in term.tables.items():
            factor = table[left.codes[:, variable]][:, right.codes[:, variable]]
            derivative *= factor
            # Variables with one state have a factor but no measure.
            if variable in left.vectors:
                measure_kernel = left.vectors[variable] @ table @ right.vectors[variable].T
                measure_kernel *= product
                derivative += measure_kernel
            product *= factor
        total += derivative
    return total
