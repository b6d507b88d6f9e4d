"""Estimates of a mixture of all trees given observed cells, by draws of trees or of completions.

Marginals of a mixture of all trees are NP-hard, those of one tree are easy. Selvam, Zhang and Van
den Broeck (2023, section 5.2) draw trees from their prior and weight them by the probability P(e|T)
of the observed cells e; the more is observed, the fewer trees contribute. Here the proposal is a
spanning-tree law that approximates the posterior given e (`TreeProposal`), so that the weights of
the trees are nearly equal, and exactly equal if nothing or everything is observed. Marginals can
also be estimated from trees of the prior (`PriorProposal`), for comparison.

Given all cells, the sum over trees is a determinant, so that only the missing cells need to be
drawn: from independent beliefs about each, which a mean field over the trees provides. If enough is
observed, missing cells are nearly independent, and a few completions are as accurate as thousands
of trees. If almost nothing is observed, missing cells depend strongly, and it is better to draw
trees (`estimate_evidence` chooses).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from skcircuits.numerics._arrays import logsumexp, safe_log
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import memory_bound_chunks, row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._spanning_trees import (
    UniformSource,
    log_partitions,
    log_partitions_and_marginals,
    sample_spanning_trees,
)
from skcircuits.trees._trees import StateLayout, TreeInference, edges_of
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


class WeightedMarginals(NamedTuple):
    """Estimated distributions of all variables given the observed cells of each row."""

    probabilities: FloatArray  # (n_rows, n_states)
    standard_errors: FloatArray  # (n_rows, n_states), infinite where one draw counts
    effective_sample_size: FloatArray  # (n_rows,)

    @classmethod
    def of_parts(cls, parts: Sequence[WeightedMarginals], n_states: int) -> WeightedMarginals:
        """One part of the rows after the other; there may be none."""
        none = cls(np.empty((0, n_states)), np.empty((0, n_states)), np.empty(0))
        return cls(*(np.concatenate(fields) for fields in zip(none, *parts, strict=True)))

    def of_rows(self, chosen: BoolArray | IntArray) -> WeightedMarginals:
        """Estimates of some rows, in this order."""
        return WeightedMarginals(*(field[chosen] for field in self))


def estimate_from_trees(
    mixture: AllTreesMixture, evidence: FloatArray, n_trees: int, seed: int
) -> FloatArray:
    """Logs (n_rows,) of unbiased estimates of the probability of evidence (n_rows, n_states)."""
    log_evidence = np.full(len(evidence), -np.inf)
    for chunk in _chunks(len(evidence), mixture.layout, n_trees):
        rows = np.arange(len(evidence))[chunk]
        uniform = _common_numbers(seed, n_trees)
        log_evidence[rows] = _EvidenceTrees(mixture, evidence[rows], n_trees, uniform).log_evidence
    return log_evidence


def estimate_marginals(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    n_trees: int,
    rng: np.random.Generator,
    *,
    collapsed: bool = True,
    from_prior: bool = False,
) -> WeightedMarginals:
    """Distributions of all variables given evidence (n_rows, n_states)."""
    parts = []
    for rows in _chunks(len(evidence), mixture.layout, n_trees):
        trees = _EvidenceTrees(mixture, evidence[rows], n_trees, rng.random, from_prior=from_prior)
        answers = trees.marginals() if collapsed else trees.conditionals(rng)
        parts.append(weighted_average(trees.weights, answers))
    return WeightedMarginals.of_parts(parts, evidence.shape[1])


def sample_completions(
    mixture: AllTreesMixture,
    evidence: FloatArray,
    n_samples: int,
    n_trees: int,
    rng: np.random.Generator,
) -> IntArray:
    """Draw weighted trees, then missing cells: (n_samples, n_rows, n_variables)."""
    layout = mixture.layout
    codes = np.empty((n_samples, len(evidence), layout.n_variables), dtype=np.int64)
    for rows in _chunks(len(evidence), layout, n_trees + n_samples):
        trees = _EvidenceTrees(mixture, evidence[rows], n_trees, rng.random)
        codes[:, rows] = trees.completions(n_samples, rng)
    return codes


class _EvidenceTrees:
    """Components and trees drawn given each row, and their importance weights.

    Drawn are pairs (component k, tree T) with probability q(k, T) proportional to
    ``π_k/Z_k Π_u P_u(e_u) Π_{uv∈T} w_uv r̂_uv``. The sum of these over all pairs is the
    constant C, a determinant per component, and P(e) = C E_q[ρ] with
    ``ρ = P(e|T) / (Π_u P_u(e_u) Π_{uv∈T} r̂_uv)``.
    """

    def __init__(
        self,
        mixture: AllTreesMixture,
        evidence: FloatArray,
        n_trees: int,
        uniform: UniformSource,
        *,
        from_prior: bool = False,
    ) -> None:
        self.layout = mixture.layout
        self.mixture = mixture
        self.evidence = evidence
        self.shape = (len(evidence), n_trees)
        self.rows: IntArray = np.repeat(np.arange(len(evidence)), n_trees)
        propose = PriorProposal if from_prior else TreeProposal
        proposals = [propose(model, evidence) for model in mixture.components]
        log_fractions = mixture.log_weights[:, None] + np.stack([p.log_mass for p in proposals])
        log_constant = logsumexp(log_fractions, axis=0)
        fractions = np.exp(log_fractions - log_constant).T
        self.components = draw_states(fractions[self.rows], uniform(len(self.rows)))
        # One graph per component and row; every tree names its own.
        graphs = self.components * len(evidence) + self.rows
        weights = np.concatenate([proposal.weights for proposal in proposals])
        self.parents = sample_spanning_trees(weights, graphs, uniform)
        self.inferences = self._infer(self.components, self.parents, self.rows)
        log_ratios = np.empty(len(self.rows))
        for (mine, inference), proposal in zip(self.inferences, proposals, strict=True):
            log_ratios[mine] = inference.log_evidence[:, 0]
            log_ratios[mine] -= proposal.log_evidence(self.parents[mine], self.rows[mine])
        log_ratios = log_ratios.reshape(self.shape)
        # The mean of ρ estimates P(e) / C; its fractions are the weights of the trees.
        log_sums = logsumexp(log_ratios, axis=1)
        self.log_evidence: FloatArray = log_constant + log_sums - np.log(n_trees)
        self.weights: FloatArray = np.exp(log_ratios - log_sums[:, None])

    def marginals(self) -> FloatArray:
        """Exact marginals of each tree, (n_rows, n_trees, n_states)."""
        answers = np.empty((len(self.rows), self.layout.n_states))
        for mine, inference in self.inferences:
            answers[mine] = inference.marginals()[:, 0]
        return answers.reshape(*self.shape, self.layout.n_states)

    def conditionals(self, rng: np.random.Generator) -> FloatArray:
        """Distributions from which rows are drawn given each tree, (n_rows, n_trees, n_states)."""
        answers = np.empty((len(self.rows), self.layout.n_states))
        for mine, inference in self.inferences:
            answers[mine] = inference.conditionals(inference.sample(rng))[:, 0]
        return answers.reshape(*self.shape, self.layout.n_states)

    def completions(self, n_samples: int, rng: np.random.Generator) -> IntArray:
        """Rows drawn from trees chosen by their weights, (n_samples, n_rows, n_variables)."""
        n_rows, n_trees = self.shape
        chosen = draw_states(self.weights[:, None, :], rng.random((n_rows, n_samples)))
        # Numbers of trees within a row become positions among all trees.
        chosen = (chosen + n_trees * np.arange(n_rows)[:, None]).ravel()
        inferences = self._infer(self.components[chosen], self.parents[chosen], self.rows[chosen])
        codes = np.empty((len(chosen), self.layout.n_variables), dtype=np.int64)
        for mine, inference in inferences:
            codes[mine] = inference.sample(rng)[:, 0]
        return codes.reshape(n_rows, n_samples, self.layout.n_variables).transpose(1, 0, 2)

    def _infer(
        self, components: IntArray, parents: IntArray, rows: IntArray
    ) -> list[tuple[IntArray, TreeInference]]:
        """Per component its trees, and inference of one row in each of them."""
        inferences = []
        for component, model in enumerate(self.mixture.components):
            mine = np.flatnonzero(components == component)
            own_rows = self.evidence[rows[mine]][:, None, :]
            inference = TreeInference(
                parents[mine], self.layout, model.nodes, model.ratios(), own_rows
            )
            inferences.append((mine, inference))
        return inferences


def _common_numbers(seed: int, n_trees: int) -> UniformSource:
    """Random numbers that depend on the tree and on the call, but not on the row."""
    rng = np.random.default_rng(seed)
    return lambda size: np.tile(rng.random(n_trees), size // n_trees)


def weighted_average(weights: FloatArray, answers: FloatArray) -> WeightedMarginals:
    """Answers (n_rows, n_draws, n_states) under weights (n_rows, n_draws) with sum one."""
    weights = weights[:, :, None]
    probabilities = (weights * answers).sum(axis=1)
    # Delta method for a ratio of two means, corrected like a variance of few draws: a single
    # draw with all weight has no information about its error.
    squares = (weights**2 * (answers - probabilities[:, None]) ** 2).sum(axis=1)
    concentration = (weights**2).sum(axis=(1, 2))
    # By the evidence; sums of weights may miss one by rounding
    certain = np.minimum(probabilities, 1 - probabilities) < 1e-14
    rest = np.where(certain, 1.0, np.maximum(1 - concentration, 0.0)[:, None])
    errors = np.full(squares.shape, np.inf)
    np.divide(squares, rest, out=errors, where=rest > np.finfo(float).eps)
    return WeightedMarginals(probabilities, np.sqrt(errors), 1 / concentration)


def _chunks(n_rows: int, layout: StateLayout, n_trees: int) -> list[slice]:
    # Messages, answers and walks of every tree, and a few tables of every pair of states.
    bytes_per_row = 64 * n_trees * layout.n_states + 32 * layout.n_states**2
    return list(memory_bound_chunks(n_rows, bytes_per_row))


class TreeProposal:
    """Laws of the trees of a mixture given `evidence` (n_rows, n_states), by edge weights (n_rows,
    n_variables, n_variables), and the approximate evidence `log_mass` (n_rows,): ``Π_u P_u(e_u)``
    times the sum over all trees of ``P(T) Π_{uv∈T} r̂_uv``.
    """

    def __init__(self, model: MixtureOfAllTrees, evidence: FloatArray) -> None:
        layout = model.layout
        allowed = model.nodes * evidence
        marginals = layout.sum_states(allowed)
        allowed /= marginals[:, layout.owner]
        # The same vertex for all rows: no row depends on those beside it, not even by rounding.
        root = int(model.weights.sum(axis=1).argmax())
        # Σ_b r_uv(a, b) q_v(b) per flat state of u and variable v.
        messages = np.add.reduceat(allowed[:, None, :] * model.ratios(), layout.offsets, axis=2)
        mean_ratios = np.add.reduceat(messages * allowed[:, :, None], layout.offsets, axis=1)
        _, edges = log_partitions_and_marginals(model.weights * mean_ratios, root)
        beliefs = _beliefs(allowed, messages, edges, layout)
        one_end = np.add.reduceat(messages * beliefs, layout.offsets, axis=1)
        diagonal = np.arange(layout.n_variables)
        mean_ratios[:, diagonal, diagonal] = 1.0  # no edge: never looked up
        mean_ratios = one_end * one_end.transpose(0, 2, 1) / mean_ratios
        log_margins: FloatArray = np.log(marginals).sum(axis=1)
        self.weights: FloatArray = model.weights * mean_ratios
        self.log_mass = (
            log_margins + log_partitions(self.weights, root) - model.tree_distribution[0]
        )
        mean_ratios[:, diagonal, diagonal] = 1.0
        self._log_margins = log_margins
        self._log_mean_ratios: FloatArray = np.log(mean_ratios)

    def log_evidence(self, parents: IntArray, rows: IntArray) -> FloatArray:
        """Approximate probabilities (n_trees,) of the evidence of `rows` in given trees."""
        edges = edges_of(parents)
        log_ratios = self._log_mean_ratios[rows[:, None], edges[:, :, 0], edges[:, :, 1]]
        return self._log_margins[rows] + log_ratios.sum(axis=1)


class PriorProposal:
    """The prior law of the trees, whatever is observed; with the attributes of `TreeProposal`."""

    def __init__(self, model: MixtureOfAllTrees, evidence: FloatArray) -> None:
        self.weights: FloatArray = np.broadcast_to(
            model.weights, (len(evidence), *model.weights.shape)
        )
        self.log_mass: FloatArray = np.zeros(len(evidence))

    def log_evidence(self, parents: IntArray, rows: IntArray) -> FloatArray:
        """The law approximates the probability of the evidence in every tree by one."""
        return np.zeros(len(rows))


def _beliefs(
    allowed: FloatArray, messages: FloatArray, edges: FloatArray, layout: StateLayout
) -> FloatArray:
    """Distribution of every u without the message of v, (n_rows, flat states of u, v)."""
    # A variable sends itself no message, since its probability of an edge is zero.
    log_messages = np.log1p(edges[:, layout.owner] * (messages - 1.0))
    log_beliefs = safe_log(allowed) + log_messages.sum(axis=2)
    log_beliefs = log_beliefs[:, :, None] - log_messages
    largest = np.maximum.reduceat(log_beliefs, layout.offsets, axis=1)
    beliefs: FloatArray = np.exp(log_beliefs - largest[:, layout.owner])
    beliefs /= np.add.reduceat(beliefs, layout.offsets, axis=1)[:, layout.owner]
    return beliefs


def estimate_evidence(
    mixture: AllTreesMixture, evidence: FloatArray, n_trees: int, seed: int
) -> FloatArray:
    """Logs (n_rows,) of unbiased estimates of the probability of evidence (n_rows, n_states), by a
    method that depends on the row's evidence, not on draws.
    """
    layout = mixture.layout
    log_evidence = np.full(len(evidence), -np.inf)
    # If all states of a variable are ruled out, there is nothing to draw.
    possible = np.flatnonzero((layout.sum_states(evidence) > 0).all(axis=1))
    # Cells in a set of states are not observed: completions would have to draw them. In boxes over
    # most of 4 to 40 columns, with half of the states or more in each, errors are .002 to .05 by
    # trees and .02 to .4 by completions.
    is_single = layout.sum_states((evidence > 0).astype(np.float64)) == 1
    is_single &= np.minimum.reduceat(evidence, layout.offsets, axis=1) < 1
    n_observed = is_single.sum(axis=1)
    beliefs = cell_beliefs(mixture, evidence[possible])
    # Trees are exact where a single cell is observed, or none, and nearly so where few are: with a
    # third of 6 to 16 columns, their errors are a tenth of those of completions. With more than
    # half, neither is better everywhere (jester, 30 of 100 cells missing: .21 nats by completions,
    # .72 by trees; accidents .39 and .05), but completions take a twentieth of the time.
    is_known = n_observed[possible] > max(1.0, 0.5 * layout.n_variables)
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
    """Distributions of all variables by completions or trees: errors .008 and .015 against .062 and
    .058 on Jester, 20 and 40 of 100 cells missing, 1,000 draws.
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
    """Independent beliefs (n_rows, n_states) about all cells, by lists of the `rows` and `states`
    of cells with several possible states, and of these `cells`, (row, variable, first state).
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
        """Revise beliefs: an edge of probability M weighs a state by 1 - M + M m / E[m]."""
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
        """Averages (n_listed_states, n_variables) of a power of ratios over the states of others,
        not by a matrix product, whose rounding depends on the number of rows.
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
    components = draw_states(np.exp(log_fractions).T[:, None], uniforms[None, :, -1])
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
