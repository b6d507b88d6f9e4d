"""Edge probabilities of rows in unusual states of few variables, by low-rank updates.

The Laplacian of a row is that of the usual states of all variables plus the Laplacian E of the
changes of edge weights by the row's unusual states. With G the inverse of the former and R the
variables whose edges change, the inverse of the row is (Woodbury)

    G - G[:, R] T G[R, :],    T = (I + E[R, R] G[R, R])⁻¹ E[R, R].

An unusual state changes all edges of its variable, most of them only slightly. Changes of the edges
to a variable are neglected if together they are a small fraction of the degrees.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from skcircuits.parallel import row_slices, thread_map
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._spanning_trees import (
    log_partitions_and_inverses,
    sum_of_diagonals,
)
from skcircuits.trees.tree._trees import StateLayout

_N_BLOCKS = 2  # of rows with sums of their own; a fixed number, whatever the number of threads


class _Sums(NamedTuple):
    """Sums over rows, by which the inverses of all rows are summed by states at the end."""

    moved: FloatArray  # (n_variables, n_variables): T, where it is not zero
    crossed: FloatArray  # (n_unusual, n_variables): inverses at the rows of unusual states
    pairs: FloatArray  # (n_unusual, n_unusual): inverses at pairs of unusual states


class LaplacianUpdates:
    """Edge probabilities of rows near the row of usual states.

    `affinities` (n_states, n_states): weight of an edge for every pair of states of its two
    variables; symmetric, zero within a variable; `layout`: numbering of the states; `usual`
    (n_variables,): the usual states; `tolerance`: largest sum of changes, as fractions of degrees,
    that the edges between a variable and those in unusual states may leave out.
    """

    def __init__(
        self, affinities: FloatArray, layout: StateLayout, usual: IntArray, tolerance: float
    ) -> None:
        self.layout = layout
        self.usual = usual
        self.tolerance = tolerance
        self._affinities = affinities
        self._flat = layout.flat(usual)
        self._unusual = np.setdiff1d(np.arange(layout.n_states), self._flat)
        self._place = np.cumsum(np.isin(np.arange(layout.n_states), self._unusual)) - 1
        to_usual = affinities[:, self._flat]
        usual_weights = to_usual[self._flat]
        log_sums, inverses = log_partitions_and_inverses(usual_weights[None])
        self._log_sum, self._inverse = float(log_sums[0]), inverses[0]
        owner = layout.owner[self._unusual]
        # Signed changes (n_unusual, n_variables) of the edges to usual states
        self._changes = to_usual[self._unusual] - usual_weights[owner]
        degrees = to_usual[self._unusual].sum(axis=1)[:, None]
        least = np.minimum(usual_weights.sum(axis=1), degrees)
        self._fractions = (np.abs(self._changes) / least).astype(np.float32)

    @cached_property
    def _single(self) -> FloatArray:
        return self._inverse.astype(np.float32)

    def changed(self, codes: IntArray) -> BoolArray:
        """Whether edges of the variables change in rows.

        `codes` (n_rows, n_variables) -> boolean (n_rows, n_variables).
        """
        unusual = codes != self.usual
        indicators = self.layout.one_hot(np.where(unusual, codes, -1))[:, self._unusual]
        sums = indicators.astype(np.float32) @ self._fractions
        return unusual | (sums > self.tolerance)

    def edge_counts(
        self, codes: IntArray, sample_weight: FloatArray, *, n_jobs: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Expected number of tree edges for every pair of states, summed over rows.

        `codes` (n_rows, n_variables), `sample_weight` (n_rows,) -> `log_sums` (n_rows,), `counts`
        (n_states, n_states), as of `RowLaplacians`.
        """
        log_sums, diagonals = np.empty(len(codes)), np.empty(codes.shape)
        blocks = [
            (codes[rows], sample_weight[rows], log_sums[rows], diagonals[rows])
            for rows in row_slices(len(codes), max(1, -(-len(codes) // _N_BLOCKS)))
        ]
        parts = thread_map(self._sum_block, blocks, n_jobs)
        sums = parts[0]
        for part in parts[1:]:
            for total, more in zip(sums, part, strict=True):
                total += more
        diagonals *= sample_weight[:, None]
        counts = sum_of_diagonals(self.layout, codes, diagonals, n_jobs)
        self._subtract_twice(counts, sums, float(sample_weight.sum()))
        counts *= self._affinities
        return log_sums, counts

    def _sum_block(
        self, codes: IntArray, weight: FloatArray, log_sums: FloatArray, diagonals: FloatArray
    ) -> _Sums:
        """Write logarithms of sums over trees and diagonals of the inverses; sum the rest."""
        n_unusual, n_variables = self._changes.shape
        sums = _Sums(
            np.zeros((n_variables, n_variables)),
            np.zeros((n_unusual, n_variables), np.float32),
            np.zeros((n_unusual, n_unusual), np.float32),
        )
        changed = self.changed(codes)
        # Batches of rows, padded to the most changes, take .8 (294 columns) to 1.6 times as long
        # (1,359 columns): they write more than they compute
        for i, row in enumerate(self.layout.flat(codes)):
            variables = np.flatnonzero(changed[i])
            log_sums[i], diagonals[i] = self._add(row, variables, float(weight[i]), sums)
        return sums

    def _add(
        self, row: IntArray, variables: IntArray, weight: float, sums: _Sums
    ) -> tuple[float, FloatArray]:
        """Add a row of flat states; its log sum over trees and the diagonal of its inverse."""
        log_determinant, moves = self._moves(row, variables)
        sums.moved[variables[:, None], variables] += weight * moves
        columns = self._single[variables]
        moved = moves.astype(np.float32) @ columns
        others = np.flatnonzero(row != self._flat)
        own = self._single[others] - columns[:, others].T @ moved
        diagonal: FloatArray = np.diagonal(self._inverse) - np.multiply(moved, columns).sum(axis=0)
        states = self._place[row[others]]
        # First-order correction of the logarithm for the neglected changes.
        resistances = diagonal[others][:, None] + diagonal - 2 * own
        left_out = resistances * self._changes[states]
        left_out[:, variables] = 0.0
        own *= weight
        sums.crossed[states] += own
        sums.pairs[states[:, None], states] += own[:, others]
        return self._log_sum + log_determinant + float(left_out.sum()), diagonal

    def _moves(self, row: IntArray, variables: IntArray) -> tuple[float, FloatArray]:
        """Logarithm of det(I + E G), and T, at the variables whose edges change."""
        states, usual = row[variables], self._flat[variables]
        change = self._affinities[usual[:, None], usual]
        change -= self._affinities[states[:, None], states]
        diagonal = np.arange(len(variables))
        change[diagonal, diagonal] = -change.sum(axis=1)
        system = change @ self._inverse[variables[:, None], variables]
        system[diagonal, diagonal] += 1.0
        factors = lu_factor(system, overwrite_a=True, check_finite=False)
        pivots = np.abs(np.diagonal(factors[0]))
        moves: FloatArray = lu_solve(factors, change, overwrite_b=True, check_finite=False)
        return float(np.log(pivots).sum()), moves

    def _subtract_twice(self, counts: FloatArray, sums: _Sums, weight: float) -> None:
        """Subtract twice the sums of the inverses at pairs of flat states."""
        total = self._single @ sums.moved.astype(np.float32) @ self._single
        total = weight * self._inverse - total
        mixed = sums.crossed - self._by_variable(sums.pairs.T).T
        # Sums of usual states are the sums over all rows minus those of rows in unusual states.
        total -= self._by_variable(sums.crossed) + self._by_variable(mixed).T
        unusual, usual = self._unusual, self._flat
        counts[unusual[:, None], unusual] -= 2 * sums.pairs
        counts[unusual[:, None], usual] -= 2 * mixed
        counts[usual[:, None], unusual] -= 2 * mixed.T
        counts[usual[:, None], usual] -= 2 * total

    def _by_variable(self, values: FloatArray) -> FloatArray:
        """Sum the rows of the unusual states of each variable: (n_variables, n_columns)."""
        sums = np.zeros((self.layout.n_variables, values.shape[1]))
        owners, first = np.unique(self.layout.owner[self._unusual], return_index=True)
        if len(owners):
            sums[owners] = np.add.reduceat(values, first, axis=0)
        return sums
