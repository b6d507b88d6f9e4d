"""Stein kernels of complete categorical rows, block by block."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from skcircuits.protocols import FloatArray, IntArray, Kernel
from skcircuits.stein.operators import OPERATORS, Atoms
from skcircuits.stein.product_terms import ProductTerm
from skcircuits.stein.targets import log_full_conditional, state_counts

__all__ = ["Measures", "contract", "moved_rows", "point_block", "product_block", "stein_measures"]

# Rows of states, as floats with NaN or as codes.
Rows = TypeVar("Rows", FloatArray, IntArray)


@dataclass(frozen=True)
class Measures:
    """The signed measures of a Stein operator at some rows.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The rows; NaN where collapsed.
    counts : ndarray of int of shape (d,)
        States of each variable.
    atoms : dict of int to Atoms
        Per variable that can move the measures of all rows; zero where collapsed.
    """

    X: FloatArray
    counts: IntArray
    atoms: dict[int, Atoms]

    def warn_of_zeros(self) -> None:
        """Say where moves of one variable meet impossible states."""
        blocked = sum(int(atoms.meets_zeros.sum()) for atoms in self.atoms.values())
        if blocked:
            warnings.warn(
                f"the target is zero next to the samples ({blocked} moves are impossible). "
                "Parts of its support that moves of one variable do not connect cannot be "
                "weighed against each other: make it positive with target.soften(...), or "
                "collapse the variables that are functions of others.",
                UserWarning,
                stacklevel=2,
            )


def stein_measures(target: Any, X: FloatArray, operator: str) -> Measures:
    """Evaluate a Stein operator at some rows.

    Parameters
    ----------
    target : object
        A categorical target.
    X : ndarray of shape (n, d)
        States; NaN where collapsed.
    operator : {"barker", "difference"}
        The operator.

    Returns
    -------
    Measures
        One signed measure per row and variable.
    """
    counts = state_counts(target, X.shape[1])
    movable = (counts > 1) & ~np.isnan(X).all(axis=0)
    atoms = {
        variable: _atoms(target, X, variable, int(counts[variable]), operator)
        for variable in movable.nonzero()[0].tolist()
    }
    return Measures(X, counts, atoms)


def _atoms(target: Any, X: FloatArray, variable: int, n_states: int, operator: str) -> Atoms:
    observed = ~np.isnan(X[:, variable])
    rows = X[observed]
    log_conditional = log_full_conditional(target, rows, variable, n_states)
    measures = OPERATORS[operator](log_conditional, rows[:, variable].astype(np.int64))
    if observed.all():
        return measures
    return measures.spread(observed)


def moved_rows(X: Rows, variable: int, states: IntArray) -> Rows:
    """Repeat rows with one variable set to each of some states.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        The rows.
    variable : int
        The variable that moves.
    states : ndarray of int of shape (n, m)
        Where to.

    Returns
    -------
    ndarray of shape (n * m, d)
        The m copies of a row stand together.
    """
    moved = np.repeat(X, states.shape[1], axis=0)
    moved[:, variable] = states.ravel()
    return moved


def contract(left: Atoms, right: Atoms, values: FloatArray) -> FloatArray:
    """Sum the kernel values of all pairs of atoms, weighted.

    Parameters
    ----------
    left, right : Atoms
        Measures of n and m rows.
    values : ndarray of shape (n * atoms, m * atoms)
        Kernel between their atoms.

    Returns
    -------
    ndarray of shape (n, m)
        The kernel between the measures.
    """
    n_left, n_right = left.coefficients.shape, right.coefficients.shape
    table = values.reshape(*n_left, *n_right)
    return np.einsum("iajb,ia,jb->ij", table, left.coefficients, right.coefficients, optimize=True)


def point_block(measures: Measures, kernel: Kernel, rows: slice, columns: slice) -> FloatArray:
    """Compute a block of the Stein Gram matrix for any kernel.

    Parameters
    ----------
    measures : Measures
        The operator at complete rows.
    kernel : Kernel
        The base kernel.
    rows, columns : slice
        The block.

    Returns
    -------
    ndarray
        The block.
    """
    X = measures.X
    total = np.zeros((len(X[rows]), len(X[columns])))
    for variable, atoms in measures.atoms.items():
        left, right = atoms[rows], atoms[columns]
        values = kernel(
            moved_rows(X[rows], variable, left.locations),
            moved_rows(X[columns], variable, right.locations),
        )
        total += contract(left, right, values)
    return total


def product_block(
    measures: Measures, terms: Sequence[ProductTerm], rows: slice, columns: slice
) -> FloatArray:
    """Compute a block for a kernel that is a sum of products over the variables.

    The sum over the variables of (measure kernel of i) * (product of all others) is a
    derivative of the whole product: the product rule needs two running matrices.

    Parameters
    ----------
    measures : Measures
        The operator at complete rows.
    terms : sequence of ProductTerm
        The base kernel.
    rows, columns : slice
        The block.

    Returns
    -------
    ndarray
        The block.
    """
    left, right = measures.X[rows].astype(np.int64), measures.X[columns].astype(np.int64)
    vectors = {i: atoms.by_state(int(measures.counts[i])) for i, atoms in measures.atoms.items()}
    total = np.zeros((len(left), len(right)))
    for term in terms:
        product = np.full_like(total, term.weight)
        derivative = np.zeros_like(total)
        for variable, table in term.tables.items():
            factor = table[left[:, variable]][:, right[:, variable]]
            derivative *= factor
            if variable in vectors:
                vector = vectors[variable]
                derivative += product * (vector[rows] @ table @ vector[columns].T)
            product *= factor
        total += derivative
    return total
