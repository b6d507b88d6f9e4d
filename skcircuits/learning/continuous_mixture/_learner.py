"""Continuous mixtures of trees: a decoder learned by quasi-random integration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from skcircuits.circuits import Circuit
from skcircuits.learning._chow_liu import mixture_circuit
from skcircuits.learning.continuous_mixture._decoder import Decoder
from skcircuits.learning.continuous_mixture._tree_features import TreeFeatures
from skcircuits.learning.latent_tree.learner import LatentSchedule, learn_latent_tree
from skcircuits.learning.latent_tree.rows import LatentRows
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees import (
    ChowLiuTree,
    PairStatistics,
    StateLayout,
    TreeMixture,
    chow_liu_tree,
    complete_rows,
    top_down_order,
)
from skcircuits.trees.tree._rooted import root_at_center

__all__ = ["ContinuousStep", "complete_by_latent_tree", "learn_continuous_mixture"]

_LAST_RATE = 0.02  # of the first learning rate, which falls along half a cosine
_LATENT_STATES, _LATENT_PASSES = 8, 20  # of the latent tree that completes rows
_EDGE = 1e-6  # the normal quantile is finite inside
_ROWS_AT_ONCE = 1024  # whose features and responsibilities are held


@dataclass(frozen=True)
class ContinuousStep:
    """The mixture after a pass over the rows.

    `features`: the tree that all components share; `log_cells` (n_cells, n_components): logarithms
    of the conditional tables; `converged`: True for the last pass of the schedule.
    """

    features: TreeFeatures
    log_cells: FloatArray
    converged: bool

    def log_prob(self, codes: IntArray) -> FloatArray:
        """Log probability of complete rows (n_rows, n_variables), shape (n_rows,)."""
        coefficients = self.features.coefficients @ self.log_cells
        result = np.empty(len(codes))
        for rows in row_slices(len(codes), _ROWS_AT_ONCE):
            _, result[rows] = _responsibilities(self.features.of_rows(codes[rows]), coefficients)
        return result

    @cached_property
    def circuit(self) -> Circuit:
        """The mixture over states."""
        n_components = self.log_cells.shape[1]
        cells = np.exp(self.log_cells.astype(np.float64))
        # Single precision leaves sums off one by 1e-7.
        sums = np.add.reduceat(cells, self.features.starts, axis=0)
        cells /= np.repeat(sums, self.features.lengths, axis=0)
        trees = [_tree(self.features, own) for own in cells.T]
        return mixture_circuit(TreeMixture(np.full(n_components, -np.log(n_components)), trees))


def learn_continuous_mixture(
    codes: IntArray,
    missing: BoolArray,
    layout: StateLayout,
    n_components: int,
    rng: np.random.Generator,
    *,
    sample_weight: FloatArray,
    n_latent_dimensions: int = 4,
    n_hidden_units: int = 128,
    learning_rate: float = 0.003,
    batch_size: int = 256,
    n_epochs: int = 60,
    pseudo_count: float = 1.0,
) -> Iterator[ContinuousStep]:
    """Learn a decoder from latent points to trees (Correia et al., 2023).

    `codes` (n_rows, n_variables), complete; `missing` (n_rows, n_variables): which of them were
    only drawn; `sample_weight` (n_rows,).

    Every step integrates over another shift of one quasi-random set of points, so that the decoder
    serves the whole space between them; a step's mixture is that of the points themselves.
    Missing cells are drawn again from the mixture after a third and two thirds of the passes.
    """
    tree = chow_liu_tree(codes, layout, sample_weight=sample_weight, pseudo_count=pseudo_count)
    features = TreeFeatures(layout, root_at_center(tree.parents))
    decoder = Decoder(
        features,
        _log_conditionals(features, tree.statistics),
        [n_latent_dimensions, n_hidden_units, n_hidden_units],
        rng,
    )
    # Balanced up to a power of two; the first so many points of it serve as well.
    exponent = int(np.ceil(np.log2(n_components)))
    sobol = qmc.Sobol(n_latent_dimensions, seed=rng).random_base2(exponent)[:n_components]
    weight = (sample_weight / sample_weight.mean()).astype(np.float32)
    batches = row_slices(len(codes), batch_size)
    for epoch in range(n_epochs):
        order = rng.permutation(len(codes))
        for number, batch in enumerate(batches):
            progress = (epoch + number / len(batches)) / n_epochs
            rate = learning_rate * (
                _LAST_RATE + (1 - _LAST_RATE) * (1 + np.cos(np.pi * progress)) / 2
            )
            log_cells, inputs = decoder.log_cells(_normal(sobol + rng.random(n_latent_dimensions)))
            chosen = order[batch]
            rows = features.of_rows(codes[chosen])
            responsibilities, _ = _responsibilities(rows, features.coefficients @ log_cells)
            responsibilities *= (weight[chosen] / len(chosen))[:, None]
            gradient = features.coefficients.T @ (rows.T @ responsibilities)
            decoder.ascend(inputs, log_cells, gradient, rate)
        log_cells, _ = decoder.log_cells(_normal(sobol))
        step = ContinuousStep(features, log_cells, epoch == n_epochs - 1)
        yield step
        if epoch + 1 in (n_epochs // 3, 2 * n_epochs // 3) and missing.any():
            codes = _drawn_again(step.circuit, codes, missing, rng)


def complete_by_latent_tree(
    codes: IntArray, sample_weight: FloatArray, layout: StateLayout, rng: np.random.Generator
) -> IntArray:
    """Fill missing cells with draws from a latent tree, which learns from incomplete rows exactly.

    `codes` (n_rows, n_variables), -1 where missing; `sample_weight` (n_rows,), zero for rows that
    are completed and not learned from -> (n_rows, n_variables).
    """
    missing = codes < 0
    if not missing.any():
        return codes
    first = complete_rows(codes, layout, rng, sample_weight=sample_weight)
    known = sample_weight > 0
    cells = np.where(missing, np.nan, codes)
    is_categorical = np.ones(layout.n_variables, dtype=bool)
    rows = LatentRows(cells[known], sample_weight[known], first[known], layout, is_categorical)
    schedule = LatentSchedule(n_epochs=_LATENT_PASSES)
    *_, last = learn_latent_tree(rows, _LATENT_STATES, rng, schedule=schedule)
    return _drawn_again(last.circuit, first, missing, rng)


def _drawn_again(
    circuit: Circuit, codes: IntArray, missing: BoolArray, rng: np.random.Generator
) -> IntArray:
    """Complete rows again: what a mixture knows is more than one tree does."""
    incomplete = missing.any(axis=1)
    known = np.where(missing, np.nan, codes)[incomplete]
    codes = codes.copy()
    codes[incomplete] = circuit.sample(1, X=known, random_state=rng)[0].astype(np.int64)
    return codes


def _normal(points: FloatArray) -> FloatArray:
    """Standard normal points (n_dimensions, n_points) from points of the torus."""
    inside = np.clip(points % 1.0, _EDGE, 1 - _EDGE)
    normal: FloatArray = ndtri(inside).T.astype(np.float32)
    return np.ascontiguousarray(normal)


def _responsibilities(rows: FloatArray, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Posterior of the components (n_rows, n_components), and log probabilities (n_rows,)."""
    joint = rows @ coefficients
    largest = joint.max(axis=1, keepdims=True)
    joint -= largest
    np.exp(joint, out=joint)
    sums = joint.sum(axis=1, keepdims=True)
    joint /= sums
    log_prob = np.log(sums[:, 0].astype(np.float64)) + largest[:, 0] - np.log(joint.shape[1])
    return joint, log_prob


def _log_conditionals(features: TreeFeatures, statistics: PairStatistics) -> FloatArray:
    """Log of the tables of a tree, flat (n_cells,)."""
    layout = features.layout
    tables = []
    for variable, parent in enumerate(features.parents.tolist()):
        own = layout.owner == variable
        if parent < 0:
            tables.append(statistics.nodes[own])
        else:
            joint = statistics.pairs[np.ix_(layout.owner == parent, own)]
            tables.append((joint / joint.sum(axis=1, keepdims=True)).ravel())
    return np.log(np.concatenate(tables))


def _tree(features: TreeFeatures, cells: FloatArray) -> ChowLiuTree:
    """The tree with these conditional tables (n_cells,)."""
    layout, parents = features.layout, features.parents
    nodes, pairs = np.empty(layout.n_states), np.zeros((layout.n_states, layout.n_states))
    for variable in top_down_order(parents[None])[0].tolist():
        table = cells[features.offsets[variable] : features.offsets[variable + 1]]
        table = table.reshape(-1, layout.cardinalities[variable])
        own = layout.owner == variable
        if parents[variable] < 0:
            nodes[own] = table[0]
            continue
        above = layout.owner == parents[variable]
        joint = nodes[above][:, None] * table
        nodes[own] = joint.sum(axis=0)
        pairs[np.ix_(above, own)] = joint
        pairs[np.ix_(own, above)] = joint.T
    return ChowLiuTree(layout, parents, PairStatistics(nodes, pairs))
