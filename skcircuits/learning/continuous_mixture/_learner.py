"""Continuous mixtures of trees: a decoder learned by quasi-random integration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from skcircuits.circuits import Circuit
from skcircuits.learning.continuous_mixture._decoder import Decoder
from skcircuits.learning.continuous_mixture._mixture import ContinuousMixture, posterior
from skcircuits.learning.continuous_mixture._tree_features import TreeFeatures
from skcircuits.learning.latent_tree.learner import LatentSchedule, learn_latent_tree
from skcircuits.learning.latent_tree.rows import LatentRows
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees import StateLayout, chow_liu_tree, complete_rows, conditional_tables
from skcircuits.trees.tree._layout import root_at_center

_LAST_RATE = 0.02  # of the first learning rate, which falls along half a cosine
_LATENT_STATES, _LATENT_PASSES = 8, 20  # of the latent tree that completes rows
_EDGE = 1e-6  # the normal quantile is finite inside
# Each step shifts the points, so that few of them visit the whole space in the course of a fit;
# the integral at the end may take many more (plants: as good as steps with four times as many).
_POINTS_PER_STEP = 512
_POINTS_TO_DRAW_FROM = 256  # a circuit of more takes longer than it completes rows better


@dataclass(frozen=True)
class ContinuousSchedule:
    """What a fit may spend, and how."""

    n_latent_dimensions: int = 4
    n_hidden_units: int = 128
    learning_rate: float = 0.003
    batch_size: int = 256
    n_epochs: int = 60
    pseudo_count: float = 1.0

    def rate(self, progress: float) -> float:
        """Learning rate after this fraction of the steps."""
        cosine = (1 + np.cos(np.pi * progress)) / 2
        return self.learning_rate * (_LAST_RATE + (1 - _LAST_RATE) * cosine)


@dataclass(frozen=True)
class ContinuousStep:
    """The mixture after a pass over the rows; `converged`: True for the last of the schedule."""

    mixture: ContinuousMixture
    converged: bool


def learn_continuous_mixture(
    codes: IntArray,
    missing: BoolArray,
    layout: StateLayout,
    n_components: int,
    rng: np.random.Generator,
    *,
    sample_weight: FloatArray,
    schedule: ContinuousSchedule,
) -> Iterator[ContinuousStep]:
    """Learn a decoder from latent points to trees (Correia et al., 2023).

    `codes` (n_rows, n_variables), complete; `missing` (n_rows, n_variables): which of them were
    only drawn; `sample_weight` (n_rows,).

    Missing cells are drawn again from the mixture after a third and two thirds of the passes.
    """
    decoder = _first_decoder(codes, layout, rng, sample_weight, schedule)
    # Balanced up to a power of two; the first so many points of it serve as well.
    exponent = int(np.ceil(np.log2(n_components)))
    sobol = qmc.Sobol(schedule.n_latent_dimensions, seed=rng).random_base2(exponent)[:n_components]
    weight = (sample_weight / sample_weight.mean()).astype(np.float32)
    n_epochs = schedule.n_epochs
    for epoch in range(n_epochs):
        _run_epoch(decoder, codes, weight, sobol[:_POINTS_PER_STEP], schedule, epoch, rng)
        mixture = ContinuousMixture(decoder.copy(np.float32), _normal(sobol))
        yield ContinuousStep(mixture, epoch == n_epochs - 1)
        if epoch + 1 in (n_epochs // 3, 2 * n_epochs // 3) and missing.any():
            circuit = mixture.first(_POINTS_TO_DRAW_FROM).circuit()
            codes = _drawn_again(circuit, codes, missing, rng)


def _first_decoder(
    codes: IntArray,
    layout: StateLayout,
    rng: np.random.Generator,
    sample_weight: FloatArray,
    schedule: ContinuousSchedule,
) -> Decoder:
    """Every point to the Chow-Liu tree of the rows, nearly."""
    pseudo_count = schedule.pseudo_count
    tree = chow_liu_tree(codes, layout, sample_weight=sample_weight, pseudo_count=pseudo_count)
    parents = root_at_center(tree.parents)
    cells = np.concatenate([table.ravel() for table in conditional_tables(tree, parents)])
    sizes = [schedule.n_latent_dimensions, schedule.n_hidden_units, schedule.n_hidden_units]
    return Decoder.drawn(TreeFeatures(layout, parents), np.log(cells), sizes, rng)


def _run_epoch(
    decoder: Decoder,
    codes: IntArray,
    weight: FloatArray,
    points: FloatArray,
    schedule: ContinuousSchedule,
    epoch: int,
    rng: np.random.Generator,
) -> None:
    """One pass over the rows in random order.

    `codes` (n_rows, n_variables), `weight` (n_rows,), `points` (n_points, n_dimensions) on the
    torus. Every step integrates over another shift of the points, so that the decoder serves the
    whole space between them.
    """
    features = decoder.features
    order = rng.permutation(len(codes))
    batches = row_slices(len(codes), schedule.batch_size)
    for number, batch in enumerate(batches):
        rate = schedule.rate((epoch + number / len(batches)) / schedule.n_epochs)
        log_cells, inputs = decoder.log_cells(_normal(points + rng.random(points.shape[1])))
        chosen = order[batch]
        rows = features.of_rows(codes[chosen])
        responsibilities, _ = posterior(rows, features.coefficients @ log_cells)
        responsibilities *= (weight[chosen] / len(chosen))[:, None]
        gradient = features.coefficients.T @ (rows.T @ responsibilities)
        decoder.ascend(inputs, log_cells, gradient, rate)


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
    rows = np.flatnonzero(missing.any(axis=1))
    known = np.where(missing, np.nan, codes)[rows]
    # After steps that went too far, rows may be impossible: these stay as they are
    possible = np.isfinite(circuit.log_prob(known))
    rows, known = rows[possible], known[possible]
    codes = codes.copy()
    codes[rows] = circuit.sample(1, X=known, random_state=rng)[0].astype(np.int64)
    return codes


def _normal(points: FloatArray) -> FloatArray:
    """Standard normal points (n_dimensions, n_points) from points of the torus."""
    inside = np.clip(points % 1.0, _EDGE, 1 - _EDGE)
    normal: FloatArray = ndtri(inside).T.astype(np.float32)
    return np.ascontiguousarray(normal)
