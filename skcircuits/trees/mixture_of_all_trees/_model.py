"""The mixture over all spanning trees (MoAT) as a distribution, and finite mixtures of it.

Rows in unusual states of few variables have inverse Laplacians by low-rank updates. The Laplacian
of a row is that of the usual states of all variables plus the Laplacian E of the changes of edge
weights by the row's unusual states. With G the inverse of the former and R the variables whose
edges change, the inverse of the row is (Woodbury)

    G - G[:, R] T G[R, :],    T = (I + E[R, R] G[R, R])⁻¹ E[R, R].

An unusual state changes all edges of its variable, most of them only slightly. Changes of the edges
to a variable are neglected if together they are a small fraction of the degrees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import lu_factor, lu_solve

from skcircuits.circuits import Circuit, Sum
from skcircuits.exceptions import CircuitPropertyError, invalid, must
from skcircuits.numerics._arrays import logsumexp
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks, row_slices, thread_map
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._spanning_trees import (
    RowLaplacians,
    log_partition_and_marginals,
    log_partitions_and_inverses,
    sample_spanning_trees,
    sum_of_diagonals,
)
from skcircuits.trees._trees import (
    InputMaker,
    StateLayout,
    TreeInference,
    conditional_tables,
    distinct_rows,
    edges_of,
    tree_unit,
)

_N_BLOCKS = 2  # of rows with sums of their own; a fixed number, whatever the number of threads


@dataclass(frozen=True, eq=False)
class MixtureOfAllTrees:
    """The mixture of the tree distributions of all spanning trees.

    Every spanning tree T of the complete graph over the variables weighs ``Π_{uv∈T} w_uv``, and
    its distribution has the one set of pair tables that all trees have in common:

        p(x) = (1/Z) Σ_T Π_{uv∈T} w_uv · Π_u P_u(x_u) Π_{uv∈T} P_uv(x_u, x_v) / (P_u P_v)

    By the matrix-tree theorem the sum is a determinant (Selvam, Zhang and Van den Broeck,
    "Mixtures of All Trees", 2023, eq. 2).
    """

    layout: StateLayout
    weights: FloatArray  # (n_variables, n_variables), symmetric, positive but zero on the diagonal
    nodes: FloatArray  # (n_states,), positive probability of every state
    # (n_states, n_states), symmetric, with these marginals; blocks of a variable itself are ignored
    pairs: FloatArray

    def log_prob(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log probabilities (n_rows,) of complete rows of codes; equal rows are computed once."""
        # Tables of few states repeat their rows: nltcs six times, plants twice.
        rows, inverse = distinct_rows(codes)
        log_prob = self.laplacians().log_partitions(rows, n_jobs=n_jobs)
        log_prob += self.log_normaliser(rows)
        return log_prob[inverse]

    def log_normaliser(self, codes: IntArray) -> FloatArray:
        """Log of Π_u P_u(x_u) / Z, the factor between a sum over trees and a probability."""
        flat = self.layout.flat(codes)
        log_sum, _ = self.tree_distribution
        return np.log(self.nodes)[flat].sum(axis=1) - log_sum

    def ratios(self) -> FloatArray:
        """P_uv(a, b) / (P_u(a) P_v(b)) at all pairs of states, zero within a variable."""
        # In place after the first division: the matrix may be the largest array around.
        ratios = self.pairs / self.nodes[:, None]
        ratios /= self.nodes
        owner = self.layout.owner
        ratios[owner[:, None] == owner] = 0.0
        return ratios

    def affinities(self) -> FloatArray:
        """Edge weights w_uv r_uv(a, b) given the states of the two variables."""
        owner = self.layout.owner
        affinities = self.ratios()
        affinities *= self.weights[owner[:, None], owner]
        return affinities

    def laplacians(self, dtype: type[np.floating] = np.float64) -> RowLaplacians:
        """The Laplacians of the rows, made anew by every call."""
        root = int(self.weights.sum(axis=1).argmax())
        return RowLaplacians(self.affinities().astype(dtype, copy=False), self.layout, root)

    def updates(self, tolerance: float) -> LaplacianUpdates:
        """The Laplacians of rows near the row of the most probable states."""
        layout = self.layout
        first = np.repeat(np.maximum.reduceat(self.nodes, layout.offsets), layout.cardinalities)
        # Of ties the last one
        usual = np.maximum.reduceat(layout.own_state * (self.nodes == first), layout.offsets)
        return LaplacianUpdates(self.affinities(), layout, usual, tolerance)

    @cached_property
    def tree_distribution(self) -> tuple[float, FloatArray]:
        """Log of Z, and the prior probability of every edge to be in the tree."""
        return log_partition_and_marginals(self.weights)


class AllTreesMixture(NamedTuple):
    """A mixture of mixtures of all trees, to follow several groups of rows."""

    log_weights: FloatArray  # (n_components,), of the mixture
    components: list[MixtureOfAllTrees]

    def log_prob(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log probabilities (n_rows,) of complete rows of codes; equal rows are computed once."""
        wrong = (codes < 0) | (codes >= self.cardinalities)
        if wrong.any():
            row, variable = np.argwhere(wrong)[0]
            what = f"codes of variable {variable}"
            condition = f"be states from 0 to {self.cardinalities[variable] - 1}"
            way_out = "Use the density to score rows with missing cells."
            raise invalid(what, condition, way_out, row=int(row), code=int(codes[row, variable]))
        # Once here, so that the components do not each search for equal rows in all of them.
        rows, inverse = distinct_rows(codes)
        log_prob: FloatArray = logsumexp(self.log_joint(rows, n_jobs=n_jobs), axis=1)
        return log_prob[inverse]

    def log_prob_unnormalized(self, X: FloatArray) -> FloatArray:
        """Log probability of rows of state numbers, shape (n_rows,)."""
        X = np.asarray(X, dtype=np.float64)
        n_missing = int(np.isnan(X).sum())
        if n_missing:
            what = "rows of a mixture of all trees as target"
            condition = "be complete"
            way_out = "Use to_circuit() to sum out missing cells."
            raise CircuitPropertyError(must(what, condition, way_out, n_missing_cells=n_missing))
        return self.log_prob(X.astype(np.int64))

    @property
    def layout(self) -> StateLayout:
        """Numbering of the states."""
        return self.components[0].layout

    @property
    def cardinalities(self) -> IntArray:
        """Number of states per variable."""
        return self.layout.cardinalities

    def log_joint(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log probability of complete rows with each component, (n_rows, n_components)."""
        columns = [component.log_prob(codes, n_jobs=n_jobs) for component in self.components]
        return self.log_weights + np.stack(columns, axis=1)


def sample_trees(
    mixture: AllTreesMixture, n_trees: int, rng: np.random.Generator
) -> tuple[IntArray, IntArray]:
    """Draw components (n_trees,) and a spanning tree (n_trees, n_variables) of each."""
    components = draw_states(np.exp(mixture.log_weights), rng.random(n_trees))
    weights = np.stack([component.weights for component in mixture.components])
    return components, sample_spanning_trees(weights, components, rng.random)


def sample_rows(mixture: AllTreesMixture, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw rows (n_rows, n_variables): a component, a tree, then variables from the root down."""
    layout = mixture.layout
    components, parents = sample_trees(mixture, n_rows, rng)
    rows = np.empty((n_rows, layout.n_variables), dtype=np.int64)
    nothing_observed = np.ones((1, 1, layout.n_states))
    for component, model in enumerate(mixture.components):
        mine = np.flatnonzero(components == component)
        # One tree and one row each: the upward pass has nothing to collect, the downward
        # pass draws.
        ratios = model.ratios()
        for chunk in memory_bound_chunks(len(mine), 64 * layout.n_states):
            trees = mine[chunk]
            inference = TreeInference(parents[trees], layout, model.nodes, ratios, nothing_observed)
            rows[trees] = inference.sample(rng)[:, 0]
    return rows


def sampled_circuit(
    mixture: AllTreesMixture, n_trees: int, rng: np.random.Generator, make_input: InputMaker
) -> Circuit:
    """Write a mixture of trees drawn from a mixture of all trees as one circuit."""
    components, parents = sample_trees(mixture, n_trees, rng)
    # The order of the edges and the choice of the root do not make another tree.
    edges = np.sort(edges_of(parents), axis=2)
    codes = np.sort(edges[:, :, 0] * parents.shape[1] + edges[:, :, 1], axis=1)
    _, first, counts = np.unique(
        np.column_stack([components, codes]), axis=0, return_index=True, return_counts=True
    )
    units = []
    for i, parent in zip(components[first], parents[first], strict=True):
        model = mixture.components[i]
        tables = conditional_tables(model.layout, model.nodes, model.pairs, parent)
        units.append(tree_unit(tables, parent, make_input))
    return Circuit(Sum(units, weights=list(counts / n_trees)) if len(units) > 1 else units[0])


class _Sums(NamedTuple):
    """Sums over rows, by which the inverses of all rows are summed by states at the end."""

    moved: FloatArray  # (n_variables, n_variables): T, where it is not zero
    crossed: FloatArray  # (n_unusual, n_variables): inverses at the rows of unusual states
    pairs: FloatArray  # (n_unusual, n_unusual): inverses at pairs of unusual states


class LaplacianUpdates:
    """Edge probabilities of rows near the row of `usual` states (n_variables,), by `affinities`
    (n_states, n_states); `tolerance` bounds left-out changes, as fractions of degrees.
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
        """Whether edges of the variables change in rows of codes, boolean (n_rows, n_variables)."""
        unusual = codes != self.usual
        indicators = self.layout.one_hot(np.where(unusual, codes, -1))[:, self._unusual]
        sums = indicators.astype(np.float32) @ self._fractions
        return unusual | (sums > self.tolerance)

    def edge_counts(
        self, codes: IntArray, sample_weight: FloatArray, *, n_jobs: int | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Log sums (n_rows,) and edge counts (n_states, n_states) as those of `RowLaplacians`."""
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
