"""Estimates of a mixture of all trees given observed cells, by draws of completions.

Given all cells, the sum over trees is a determinant, so that only the missing cells need to be
drawn: from independent beliefs about each, which a mean field over the trees provides. If enough is
observed, missing cells are nearly independent, and a few completions are as accurate as thousands
of trees. If almost nothing is observed, missing cells depend strongly, and it is better to draw
trees (`estimate_evidence` chooses).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from skcircuits.numerics._arrays import logsumexp, safe_log
from skcircuits.parallel import memory_bound_chunks, row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._spanning_trees import log_partitions_and_marginals
from skcircuits.trees._trees import StateLayout
from skcircuits.trees.mixture_of_all_trees._evidence_trees import (
    WeightedMarginals,
    estimate_from_trees,
    estimate_marginals,
    weighted_average,
)
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture, MixtureOfAllTrees

# Beyond this log of a weight's mean square, trees vary less than completions do. The bound was
# found on jester and plants with a tenth to nine tenths of the cells missing.
_MAX_LOG_SPREAD = 3.5
# A tree takes time in proportion to the number of variables, a completion to its third power:
# small models draw nearly as many of these, large ones a sixteenth.
_VARIABLES_PER_TREE = 6
_MAX_TREES_PER_COMPLETION = 16
# Of the draws; below, the marginals of trees are closer than frequencies in completions.
_MIN_EFFECTIVE = 0.1
# The second round propagates between missing cells; further rounds change little.
_N_ROUNDS = 2
_CELLS_AT_ONCE = 2**18


def estimate_evidence(
    mixture: AllTreesMixture, evidence: FloatArray, n_trees: int, seed: int
) -> FloatArray:
    """Logs (n_rows,) of unbiased estimates of the probability of evidence (n_rows, n_states).

    The method for a row depends on its evidence alone, not on draws, which would bias estimates.
    """
    layout = mixture.layout
    log_evidence = np.full(len(evidence), -np.inf)
    # If all states of a variable are ruled out, there is nothing to draw.
    possible = np.flatnonzero((layout.sum_states(evidence) > 0).all(axis=1))
    n_restricted = (np.minimum.reduceat(evidence, layout.offsets, axis=1) < 1).sum(axis=1)
    beliefs = cell_beliefs(mixture, evidence[possible])
    # Trees are exact where a single cell is observed, or none, and nearly so where few are: with a
    # third of 6 to 16 columns, their errors are a tenth of those of completions. With more than
    # half, neither is better everywhere (jester, 30 of 100 cells missing: .21 nats by completions,
    # .72 by trees; accidents .39 and .05), but completions take a twentieth of the time.
    is_known = n_restricted[possible] > max(1.0, 0.5 * layout.n_variables)
    by_completion = is_known & beliefs.suffice
    completed, others = possible[by_completion], possible[~by_completion]
    trees_per_completion = layout.n_variables // _VARIABLES_PER_TREE
    trees_per_completion = int(np.clip(trees_per_completion, 1, _MAX_TREES_PER_COMPLETION))
    log_evidence[completed] = estimate_from_completions(
        mixture,
        evidence[completed],
        beliefs.of_rows(by_completion),
        -(-n_trees // trees_per_completion),
        seed,
    )
    log_evidence[others] = estimate_from_trees(mixture, evidence[others], n_trees, seed)
    return log_evidence


def estimate_conditionals(
    mixture: AllTreesMixture, evidence: FloatArray, n_samples: int, rng: np.random.Generator
) -> WeightedMarginals:
    """Distribution of every variable given the observed cells, from completions or trees.

    `evidence` (n_rows, n_states). Jester, 20 and 40 of 100 cells missing, 1,000 draws: errors of
    .008 and .015 by completions, .062 and .058 by trees.
    """
    beliefs = cell_beliefs(mixture, evidence)
    seed = int(rng.integers(np.iinfo(np.int64).max))
    suffice = beliefs.suffice
    found = marginals_from_completions(
        mixture, evidence[suffice], beliefs.of_rows(suffice), n_samples, seed
    )
    # The expectation for a row may prove wrong: few of its completions have all the weight.
    enough = found.effective_sample_size >= _MIN_EFFECTIVE * n_samples
    by_tree = ~suffice
    by_tree[np.flatnonzero(suffice)[~enough]] = True
    others = estimate_marginals(mixture, evidence[by_tree], n_samples, rng)
    order = np.argsort(np.concatenate([np.flatnonzero(~by_tree), np.flatnonzero(by_tree)]))
    parts = [found.of_rows(enough), others]
    return WeightedMarginals.of_parts(parts, evidence.shape[1]).of_rows(order)


class CellBeliefs(NamedTuple):
    """Beliefs about every cell given the observed cells of each row, per component."""

    log_mass: FloatArray  # (n_components, n_rows), approximate log evidence
    states: FloatArray  # (n_components, n_rows, n_states)
    log_spread: FloatArray  # (n_rows,), log of 1 + relative variance of importance weights

    @property
    def suffice(self) -> BoolArray:
        """Rows whose completions vary less than trees do (n_rows,)."""
        return self.log_spread <= _MAX_LOG_SPREAD

    def of_rows(self, chosen: slice | BoolArray) -> CellBeliefs:
        """Beliefs about some of the rows."""
        return CellBeliefs(
            self.log_mass[:, chosen], self.states[:, chosen], self.log_spread[chosen]
        )


def cell_beliefs(mixture: AllTreesMixture, evidence: FloatArray) -> CellBeliefs:
    """Beliefs of all components: `evidence` (n_rows, n_states), with a possible state per cell."""
    parts = [_beliefs_of(component, evidence) for component in mixture.components]
    log_mass = mixture.log_weights[:, None] + np.stack([part.log_mass[0] for part in parts])
    log_spreads = np.stack([part.log_spread for part in parts])
    # A weight's square has the mean of the components' squares, each as often as it is drawn.
    log_spread = logsumexp(log_mass - logsumexp(log_mass, axis=0) + log_spreads, axis=0)
    return CellBeliefs(log_mass, np.concatenate([part.states for part in parts]), log_spread)


def estimate_from_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    beliefs: CellBeliefs,
    n_completions: int,
    seed: int,
) -> FloatArray:
    """Logs (n_rows,) of unbiased estimates of the probability of evidence (n_rows, n_states)."""
    log_evidence = np.empty(len(evidence))
    for rows, _, log_ratios in _weighted_completions(
        mixture, evidence, beliefs, n_completions, seed
    ):
        log_evidence[rows] = logsumexp(log_ratios, axis=1) - np.log(n_completions)
    return log_evidence


def marginals_from_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    beliefs: CellBeliefs,
    n_completions: int,
    seed: int,
) -> WeightedMarginals:
    """Distributions given evidence (n_rows, n_states): weighted frequencies in completions."""
    parts = []
    for _, codes, log_ratios in _weighted_completions(
        mixture, evidence, beliefs, n_completions, seed
    ):
        weights = np.exp(log_ratios - logsumexp(log_ratios, axis=1)[:, None])
        answers = mixture.layout.one_hot(codes.reshape(-1, codes.shape[2]))
        parts.append(weighted_average(weights, answers.reshape(*codes.shape[:2], -1)))
    return WeightedMarginals.of_parts(parts, evidence.shape[1])


def _weighted_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    beliefs: CellBeliefs,
    n_completions: int,
    seed: int,
) -> Iterator[tuple[slice, IntArray, FloatArray]]:
    """Rows, their completions (n_rows, n_completions, n_variables), and logs of p / q for each."""
    layout = mixture.layout
    # One more column draws the component.
    uniforms = _latin_hypercube(seed, n_completions, layout.n_variables + 1)
    bytes_per_row = 16 * n_completions * layout.n_states * len(mixture.components)
    for rows in memory_bound_chunks(len(evidence), bytes_per_row):
        log_mass, states, _ = beliefs.of_rows(rows)
        log_fractions = log_mass - logsumexp(log_mass, axis=0)
        codes = _draw(log_fractions, states, layout, uniforms)
        log_states, log_factors = safe_log(states), safe_log(evidence[rows])
        flat = layout.flat(codes)
        by_component = [
            own[:, None] + _gather(log, flat).sum(axis=2)
            for own, log in zip(log_fractions, log_states, strict=True)
        ]
        log_ratios = mixture.log_prob(codes.reshape(-1, layout.n_variables))
        log_ratios = log_ratios.reshape(flat.shape[:2]) + _gather(log_factors, flat).sum(axis=2)
        yield rows, codes, log_ratios - logsumexp(np.stack(by_component))


def _beliefs_of(model: MixtureOfAllTrees, evidence: FloatArray) -> CellBeliefs:
    """Beliefs of one component, alone in its leading axis."""
    layout = model.layout
    ratios = model.ratios()
    # So few rows at once that their messages stay in cache, and ratios of long alphabets in memory
    n_cells = layout.n_states * max(layout.n_variables, layout.n_states // 16)
    size = max(1, _CELLS_AT_ONCE // n_cells)
    slices = row_slices(len(evidence), size) or [slice(0)]
    parts = [_beliefs_of_chunk(model, ratios, evidence[rows]) for rows in slices]
    log_mass, states, log_spread = (np.concatenate(part) for part in zip(*parts, strict=True))
    return CellBeliefs(log_mass[None], states[None], log_spread)


def _beliefs_of_chunk(
    model: MixtureOfAllTrees, ratios: FloatArray, evidence: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Log mass (n_rows,), beliefs (n_rows, n_states) and log spread (n_rows,) of some rows."""
    layout = model.layout
    beliefs = model.nodes * evidence
    marginals = layout.sum_states(beliefs)
    beliefs /= marginals[:, layout.owner]
    field = _MeanField(layout, ratios, beliefs)
    # The same vertex for all rows: no row depends on those beside it, not even by rounding.
    root = int(model.weights.sum(axis=1).argmax())
    field.collect()
    first_log_sums, edges = log_partitions_and_marginals(model.weights * field.means, root)
    for _ in range(_N_ROUNDS - 1):
        field.update(edges)
        field.collect()
        _, edges = log_partitions_and_marginals(model.weights * field.means, root)
    log_spread = field.log_spread(edges)
    field.update(edges)
    # The first sum keeps the marginal probability of every cell out of its own message.
    log_mass: FloatArray = (
        np.log(marginals).sum(axis=1) + first_log_sums - model.tree_distribution[0]
    )
    return log_mass, field.beliefs, log_spread


class _MeanField:
    """Independent beliefs (n_rows, n_states) about all cells, and expected ratios of pairs.

    Only cells of several possible states have anything to learn. Their states are listed over all
    rows (`rows`, `states`), and so are the cells (`cells`: row and variable), each with its first
    state in that list.
    """

    def __init__(self, layout: StateLayout, ratios: FloatArray, beliefs: FloatArray) -> None:
        self.layout, self.beliefs = layout, beliefs
        possible = beliefs > 0
        self.is_open = layout.sum_states(possible.astype(np.float64)) > 1  # (n_rows, n_variables)
        self.rows, self.states = np.nonzero(possible & self.is_open[:, layout.owner])
        self.owners = layout.owner[self.states]
        self.cells = np.nonzero(self.is_open)
        numbers = self.rows * layout.n_variables + self.owners
        self.first = np.flatnonzero(np.diff(numbers, prepend=-1))
        self.log_allowed = np.log(beliefs[self.rows, self.states])
        only = np.maximum.reduceat(possible * np.arange(layout.n_states), layout.offsets, axis=1)
        #: Expected ratios of all pairs of cells, (n_rows, n_variables, n_variables)
        self.means: FloatArray = ratios[only[:, :, None], only[:, None, :]]
        #: Per state the variables that have it, its column for each, and ratios to listed states
        self.tables = []
        for state in range(layout.cardinalities.max()):
            has_state = layout.cardinalities > state
            columns = layout.offsets[has_state] + state
            present = slice(None) if has_state.all() else np.flatnonzero(has_state)
            self.tables.append((present, columns, ratios[:, columns][self.states]))
        self.messages = np.empty(0)

    def collect(self) -> None:
        """Average ratios over the beliefs."""
        self.messages = self._expected(1)
        row, variable = self.cells
        means = self._over_states(self.messages)
        self.means[row, variable] = means
        self.means[row, :, variable] = means

    def update(self, edges: FloatArray) -> None:
        """Revise the beliefs by the messages of all neighbours.

        An edge that is there with probability M changes the weight of a state by
        1 - M + M m / E[m].
        """
        # No edge leads from a cell to itself; its mean ratio of zero divides nothing.
        means = self.means[self.rows, self.owners]
        means[np.arange(len(means)), self.owners] = 1.0
        factors = self.messages / means
        factors -= 1.0
        factors *= edges[self.rows, self.owners]
        factors += 1.0
        log_beliefs = self.log_allowed + np.log(factors, out=factors).sum(axis=1)
        lengths = np.diff(self.first, append=len(self.rows))
        log_beliefs -= np.repeat(np.maximum.reduceat(log_beliefs, self.first), lengths)
        weights = np.exp(log_beliefs)
        weights /= np.repeat(np.add.reduceat(weights, self.first), lengths)
        self.beliefs[self.rows, self.states] = weights

    def log_spread(self, edges: FloatArray) -> FloatArray:
        """Log (n_rows,) of a weight's mean square, had each pair its edge independently."""
        row, variable = self.cells
        squares = self._over_states(self._expected(2))
        means = self.means[row, variable]
        means[np.arange(len(means)), variable] = 1.0
        excess = np.maximum(squares / np.square(means) - 1.0, 0.0)
        spreads = np.log1p(np.square(edges[row, variable]) * excess)
        # Pairs of two open cells are found from both.
        spreads *= np.where(self.is_open[row], 0.5, 1.0)
        sums: FloatArray = np.zeros(len(self.beliefs))
        np.add.at(sums, row, spreads.sum(axis=1))
        return sums

    def _expected(self, power: int) -> FloatArray:
        """Averages of a power of the ratios over the states of all other variables.

        (n_listed_states, n_variables), state by state instead of by a matrix product, whose
        rounding depends on the number of rows.
        """
        averages = np.zeros((len(self.rows), self.layout.n_variables))
        for present, columns, ratios in self.tables:
            product = ratios**power
            product *= self.beliefs[:, columns][self.rows]
            averages[:, present] += product
        return averages

    def _over_states(self, averages: FloatArray) -> FloatArray:
        """Averages over the states of the listed cells too: (n_cells, n_variables)."""
        own = averages * self.beliefs[self.rows, self.states][:, None]
        return np.add.reduceat(own, self.first, axis=0)


def _latin_hypercube(seed: int, n_points: int, n_columns: int) -> FloatArray:
    """Uniform numbers with one in every n-th part of each column: less noise than any."""
    rng = np.random.default_rng(seed)
    ranks = rng.permuted(np.tile(np.arange(n_points)[:, None], (1, n_columns)), axis=0)
    return (ranks + rng.random(ranks.shape)) / n_points


def _draw(
    log_fractions: FloatArray, states: FloatArray, layout: StateLayout, uniforms: FloatArray
) -> IntArray:
    """Complete rows from the beliefs: (n_rows, n_completions, n_variables)."""
    n_rows = states.shape[1]
    every = np.arange(n_rows)[:, None]
    # All but the last cumulative fraction: that one may round below one.
    bounds = np.cumsum(np.exp(log_fractions), axis=0)[:-1, :, None]
    components: IntArray = (bounds <= uniforms[:, -1]).sum(axis=0)
    cumulative = np.cumsum(states, axis=2)
    before = np.concatenate([np.zeros((len(states), n_rows, 1)), cumulative], axis=2)
    cumulative -= before[:, :, layout.offsets][:, :, layout.owner]
    # The last possible state has the remaining rounding errors.
    possible = np.where(states > 0, layout.own_state, -1)
    is_last = possible == np.maximum.reduceat(possible, layout.offsets, axis=2)[..., layout.owner]
    np.copyto(cumulative, 2.0, where=is_last)
    passed = uniforms[:, layout.owner] >= cumulative[components, every]
    return np.add.reduceat(passed.astype(np.int64), layout.offsets, axis=2)


def _gather(values: FloatArray, flat: IntArray) -> FloatArray:
    """Values (n_rows, n_states) at flat states (n_rows, n_completions, n_variables)."""
    found = np.take_along_axis(values, flat.reshape(len(flat), -1), axis=1)
    return found.reshape(flat.shape)
