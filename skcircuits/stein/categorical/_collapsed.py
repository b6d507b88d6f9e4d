"""Stein kernels of collapsed rows that share one set of collapsed variables.

A collapsed row stands for its observed states and the exact conditional distribution of
the other variables. For a product kernel an entry is the kernel of the observed states
times one expected kernel per component of collapsed variables, and only the components
next to a variable change when that variable moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from skcircuits.graphical.inference._posterior import Component, Posterior
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein.categorical._expected_tables import (
    EMBEDDED_STATES,
    Tables,
    expected_kernel_of_component,
)
from skcircuits.stein.categorical._measures import Measures, contract, moved_rows
from skcircuits.stein.categorical._operators import Atoms
from skcircuits.stein.categorical._product_terms import ProductTerm

# A Gram matrix of collapsed rows that would take longer is refused before it starts.
MAX_SECONDS = 60.0
# Multiplications per second, of joint tables and of the pass over pairs of cliques.
EMBEDDED_RATE, PAIRED_RATE = 5e9, 3e8


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
            touching = [variable in component.boundary for component in posterior.components]
            # Kernel of the moving variable, then of the components that see it move.
            values = term.tables[variable][ours.locations.ravel()][:, theirs.locations.ravel()]
            for component, touches in zip(posterior.components, touching):
                if touches:
                    moved = pair.moved(variable, ours, theirs)
                    values = values * moved.expectations(component, term.tables)
            # Everything else is common to all atoms of a pair of rows.
            block = term.weight * contract(ours, theirs, values)
            for expectation, touches in zip(fixed, touching):
                if not touches:
                    block *= expectation
            total += block * pair.kernel_without(variable, left.atoms, term.tables)
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
