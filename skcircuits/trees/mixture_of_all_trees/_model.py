"""The mixture over all spanning trees (MoAT) as a distribution, and finite mixtures of it."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from skcircuits.circuits import Circuit, Sum
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.numerics._arrays import logsumexp
from skcircuits.parallel import memory_bound_chunks
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees._spanning_trees import (
    RowLaplacians,
    log_partition_and_marginals,
    sample_spanning_trees,
)
from skcircuits.trees.mixture_of_all_trees._low_rank_updates import LaplacianUpdates
from skcircuits.trees.tree._trees import (
    InputMaker,
    StateLayout,
    TreeInference,
    conditional_tables,
    edges_of,
    tree_unit,
)


class MixtureOfAllTrees:
    """The mixture of the tree distributions of all spanning trees.

    Every spanning tree T of the complete graph over the variables weighs ``Π_{uv∈T} w_uv``, and
    its distribution has the one set of pair tables that all trees have in common:

        p(x) = (1/Z) Σ_T Π_{uv∈T} w_uv · Π_u P_u(x_u) Π_{uv∈T} P_uv(x_u, x_v) / (P_u P_v)

    By the matrix-tree theorem the sum is a determinant (Selvam, Zhang and Van den Broeck,
    "Mixtures of All Trees", 2023, eq. 2).

    `layout`: numbering of the states; `weights` (n_variables, n_variables): edge weights:
    symmetric, positive off the diagonal, zero on it; `nodes` (n_states,): positive probability of
    every state; `pairs` (n_states, n_states): probability of every pair of states; symmetric, with
    marginals ``nodes``. The blocks of a variable with itself are ignored.
    """

    def __init__(
        self, layout: StateLayout, weights: FloatArray, nodes: FloatArray, pairs: FloatArray
    ) -> None:
        self.layout = layout
        self.weights = weights
        self.nodes = nodes
        self.pairs = pairs

    def log_prob(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log probability of complete rows; equal rows are computed once.

        `codes` (n_rows, n_variables) -> (n_rows,).
        """
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
        """The Laplacians of the rows, in some precision.

        They are made anew by every call: kept, they would take twice the model.
        """
        root = int(self.weights.sum(axis=1).argmax())
        return RowLaplacians(self.affinities().astype(dtype, copy=False), self.layout, root)

    def updates(self, tolerance: float) -> LaplacianUpdates:
        """The Laplacians of rows near the row of the most probable states."""
        layout = self.layout
        first = np.repeat(np.maximum.reduceat(self.nodes, layout.offsets), layout.cardinalities)
        # Of equals the last
        usual = np.maximum.reduceat(layout.own_state * (self.nodes == first), layout.offsets)
        return LaplacianUpdates(self.affinities(), layout, usual, tolerance)

    @cached_property
    def tree_distribution(self) -> tuple[float, FloatArray]:
        """Log of Z, and the prior probability of every edge to be in the tree."""
        return log_partition_and_marginals(self.weights)


def distinct_rows(codes: IntArray) -> tuple[IntArray, IntArray]:
    """Find the distinct rows of a table of codes.

    `codes` (n_rows, n_variables) -> `rows` (n_distinct, n_variables), `inverse` (n_rows,).
    """
    # Rows as opaque bytes sort much faster than columns one after the other.
    narrow = np.ascontiguousarray(codes.astype(np.min_scalar_type(codes.max(initial=0))))
    opaque = narrow.view(np.dtype((np.void, narrow.itemsize * narrow.shape[1]))).ravel()
    _, index, inverse = np.unique(opaque, return_index=True, return_inverse=True)
    return codes[index], inverse


class AllTreesMixture(NamedTuple):
    """A mixture whose components are mixtures of all trees.

    One set of pair tables cannot follow several groups of rows; one set per component can, and the
    likelihood stays a sum of determinants.

    `log_weights` (n_components,): log mixture weights; `components`: the components.
    """

    log_weights: FloatArray
    components: list[MixtureOfAllTrees]

    def log_prob(self, codes: IntArray, *, n_jobs: int | None = None) -> FloatArray:
        """Log probability of complete rows; equal rows are computed once.

        `codes` (n_rows, n_variables) -> (n_rows,).
        """
        wrong = (codes < 0) | (codes >= self.cardinalities)
        if wrong.any():
            row, variable = np.argwhere(wrong)[0]
            raise ValueError(
                must(
                    f"codes of variable {variable}",
                    f"be states from 0 to {self.cardinalities[variable] - 1}",
                    "Use the density to score rows with missing cells.",
                    row=int(row),
                    code=int(codes[row, variable]),
                )
            )
        # Once here, so that the components do not each search for equal rows in all of them.
        rows, inverse = distinct_rows(codes)
        log_prob: FloatArray = logsumexp(self.log_joint(rows, n_jobs=n_jobs), axis=1)
        return log_prob[inverse]

    def log_prob_unnormalized(self, X: FloatArray) -> FloatArray:
        """Log probability of rows of state numbers, shape (n_rows,)."""
        X = np.asarray(X, dtype=np.float64)
        n_missing = int(np.isnan(X).sum())
        if n_missing:
            raise CircuitPropertyError(
                must(
                    "rows of a mixture of all trees as target",
                    "be complete",
                    "Use to_circuit() to sum out missing cells.",
                    n_missing_cells=n_missing,
                )
            )
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
    """Draw components from their weights, and a spanning tree from the prior of each.

    Gives `components` (n_trees,), `parents` (n_trees, n_variables).
    """
    # Without the last fraction, which may round below one.
    cumulative = np.cumsum(np.exp(mixture.log_weights))[:-1]
    components = np.searchsorted(cumulative, rng.random(n_trees), side="right")
    weights = np.stack([component.weights for component in mixture.components])
    return components, sample_spanning_trees(weights, components, rng)


def sample_rows(mixture: AllTreesMixture, n_rows: int, rng: np.random.Generator) -> IntArray:
    """Draw rows: a component, a tree of it, then the variables from its root down.

    Gives (n_rows, n_variables).
    """
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
    units = [
        tree_unit(conditional_tables(mixture.components[i], parent), parent, make_input)
        for i, parent in zip(components[first], parents[first], strict=True)
    ]
    return Circuit(Sum(units, weights=list(counts / n_trees)) if len(units) > 1 else units[0])
