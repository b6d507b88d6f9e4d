"""Learning mixtures of all trees by mini-batch Adam with gradients in closed form.

In a mixture of several components, one component per row is drawn from its responsibilities, so
that an epoch costs about as much as with one component, however many there are.

The parameters are unconstrained. Every positive pair table with marginals r and c is exp(Θ) for
some Θ, with its rows and columns rescaled (Sinkhorn); the Θ that give the same table differ by a
function of the row plus a function of the column. Thus Θ is an unconstrained parameter that covers
all consistent pair tables, for any number of states.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import prod
from typing import NamedTuple

import numpy as np
from scipy.linalg import helmert

from skcircuits.exceptions import must
from skcircuits.numerics._arrays import logsumexp
from skcircuits.numerics._optimization import Adam
from skcircuits.numerics._random import draw_states
from skcircuits.parallel import row_slices, thread_map
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees._chow_liu import (
    Completions,
    PairStatistics,
    learn_tree_mixture,
    mutual_information,
    pair_statistics,
)
from skcircuits.trees._spanning_trees import RowLaplacians
from skcircuits.trees._trees import StateLayout
from skcircuits.trees.mixture_of_all_trees._model import (
    AllTreesMixture,
    LaplacianUpdates,
    MixtureOfAllTrees,
)

# Initial edge weights are powers of the mutual informations: the cube is closer to the best
# trees than the informations themselves. The weakest are raised to a fraction of the strongest
# that falls with the number of variables, so that n² of them together stay weak, but not so
# far that learning would take long to raise those it needs.
_POWER = 3
_WEAKEST_INFORMATION = 1e-4
_WEAKEST_FRACTION = -2.5  # power of the number of variables
_N_TREE_STEPS = 20  # EM steps of the mixture of trees a mixture of MoATs starts from
_REFRESH_EVERY = 3  # epochs between evaluations of every component on every row
_NEGLIGIBLE = 7.0  # nats below the best component: not evaluated in between

_RELATIVE_TOLERANCE = 1e-14  # error of a column sum that counts as rounding, per added cell
_ABSOLUTE_TOLERANCE = 1e-15  # rows and columns themselves add up to one no better than this
_MAX_NEWTON_STEPS = 200
_MAX_STEP = 2.0  # in log units; a plain Newton step overshoots where the dual is flat
# Bounds of the parameters (natural logarithms): a factor exp(18) between the weakest and the
# strongest edge, and odds ratios of two binary variables within exp(±48). Few models within them
# are too badly conditioned to be evaluated; beyond, many are.
_LOG_WEIGHT_BOUND = 9.0
_CONTRAST_BOUND = 12.0
# Least probability of a state against the most probable one: far below one row in a table.
_LOG_NODE_BOUND = 25.0

# From so many variables on, inverses take most of the time of learning. Single precision halves it
# (its errors are 2e-6 of all counts at 839 variables), and rows that are in their usual states but
# for few variables are updates of one inverse.
_WIDE = 512
# What updates leave out is a bias that adds up over iterations. After three over 9,000 rows of
# msweb, the log likelihood of validation rows is .10 too low with .05, .05 with .01, and right to
# .001 with this; over all its rows it is .025 too low, so that narrower tables do without updates.
_TOLERANCE = 5e-4
_MAX_COUNT_ERROR = 0.05  # fraction of the known number of edges: more digits lost than that
_MAX_CHANGED = 0.4  # fraction of the variables: beyond, an inverse costs no more
_MIN_INVERSES = 8  # rows: the sums over fewer cost more than updates of many variables


class Schedule(NamedTuple):
    """Training schedule."""

    n_epochs: int  # in which the rate falls along half a cosine
    learning_rate: float  # of Adam, at the start
    batch_size: int  # rows per step
    last_rate: float = 0.02  # fraction of the rate at the end

    def rate(self, done: float) -> float:
        """Learning rate after a fraction of the run."""
        fraction = self.last_rate + (1 - self.last_rate) * (1 + np.cos(np.pi * done)) / 2
        return self.learning_rate * fraction


@dataclass(frozen=True)
class Epoch:
    """State of learning after a pass over the rows."""

    parameterization: Parameterization
    log_weights: FloatArray  # (n_components,)
    vectors: FloatArray  # (n_components, size), parameters
    loss: float  # mean negative log-likelihood as the pass met the rows
    converged: bool  # the last planned epoch

    @property
    def mixture(self) -> AllTreesMixture:
        """The model, made anew: it takes several times the memory of its parameters."""
        return _mixture(self.parameterization, self.log_weights, self.vectors)


@dataclass
class Training:
    """Parameters, optimisers `rules` of components, and weights of rows by responsibilities
    (n_components,), learned from now and before (`close`), to be continued at any time.
    """

    parameterization: Parameterization  # meaning of the vectors
    log_weights: FloatArray  # (n_components,), of the mixture
    vectors: FloatArray  # (n_components, size), parameters of the components

    def __post_init__(self) -> None:
        # Squares are forgotten faster than by default: the gradients of batches soon shrink.
        self.rules = [Adam(decay_squares=0.99) for _ in self.vectors]
        self.masses: FloatArray = np.zeros(len(self.vectors))
        self.earlier_masses: FloatArray = np.zeros(len(self.vectors))

    def copy(self) -> Training:
        """Copy the arrays that learning changes in place."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(other, name, value.copy())
        return other

    @property
    def mixture(self) -> AllTreesMixture:
        """The model with the current parameters."""
        return _mixture(self.parameterization, self.log_weights, self.vectors)

    def epoch(self, loss: float, converged: bool) -> Epoch:
        """Keep the current parameters."""
        kept = self.log_weights.copy(), self.vectors.copy()
        return Epoch(self.parameterization, *kept, loss, converged)

    def weigh(self, masses: FloatArray, row_mass: float) -> None:
        """Set the mixture weights by the rows of now and before."""
        self.masses = masses
        self.log_weights = _log_fractions(masses + self.earlier_masses, row_mass)

    def reset(self) -> None:
        """Let only the rows that come now decide on the mixture weights."""
        self.masses, self.earlier_masses = np.zeros((2, len(self.vectors)))

    def close(self) -> None:
        """Count the rows learned from so far when others follow."""
        self.earlier_masses = self.earlier_masses + self.masses
        self.masses = np.zeros(len(self.vectors))

    def restore(self, epoch: Epoch) -> None:
        """Go back to the parameters of an earlier epoch."""
        self.log_weights = epoch.log_weights.copy()
        self.vectors = epoch.vectors.copy()

    def ascend(self, component: int, gradient: FloatArray, rate: float) -> None:
        """Move one component up its gradient."""
        self.rules[component].ascend(self.vectors[component], gradient, rate)
        self.parameterization.bounded(self.vectors[component])


def start_training(
    completions: Completions,
    layout: StateLayout,
    n_components: int,
    rng: np.random.Generator,
    *,
    sample_weight: FloatArray | None = None,
    pseudo_count: float = 1.0,
    init: str = "mutual_information",
) -> Training:
    """First parameters; `init`: "mutual_information", "published" or "random"; weights of rows."""
    parameterization = Parameterization(layout)
    if init == "random":
        vectors = rng.normal(size=(n_components, parameterization.size))
        return Training(parameterization, np.full(n_components, -np.log(n_components)), vectors)
    codes = completions.codes
    weight = _weights(completions, sample_weight)
    row_mass = float(weight.mean())
    weight = completions.totals(weight)
    parts = weight[:, None]
    if n_components > 1:
        steps = learn_tree_mixture(
            codes, layout, n_components, rng, sample_weight=weight, pseudo_count=pseudo_count
        )
        *_, trees = islice(steps, _N_TREE_STEPS)
        parts = parts * trees.responsibilities(codes)
    # From the groups of the trees; equal starts would stay equal.
    vectors = np.stack(
        [_estimated(parameterization, codes, part, pseudo_count, init) for part in parts.T]
    )
    log_weights = _log_fractions(parts.sum(axis=0), row_mass)
    return Training(parameterization, log_weights, vectors)


def learn_all_trees(
    training: Training,
    completions: Completions,
    rng: np.random.Generator,
    schedule: Schedule,
    *,
    sample_weight: FloatArray | None = None,
    n_jobs: int | None = None,
) -> Iterator[Epoch]:
    """Maximise the expected likelihood of completed, weighted rows by mini-batch Adam."""
    weight = _weights(completions, sample_weight)
    # Batches are drawn from all rows, so that the steps stay the same, but equal rows of a
    # batch are computed once.
    rows = completions.codes
    rows = rows.astype(np.min_scalar_type(rows.max(initial=0)))  # an eighth of the memory
    totals = completions.totals(weight)
    assignment = _Assignment(len(rows), len(training.vectors))
    mean_weight = weight.mean()
    n_batches = len(row_slices(len(weight), schedule.batch_size))
    for epoch in range(schedule.n_epochs):
        assignment.refresh(training, rows, totals, epoch, n_jobs)
        log_likelihood = 0.0
        order = rng.permutation(len(weight))
        for i, batch in enumerate(row_slices(len(weight), schedule.batch_size)):
            done = (epoch + i / n_batches) / schedule.n_epochs
            rate = schedule.rate(done)
            chosen = order[batch]
            parts = completions.fractions[chosen]
            own = parts.data * np.repeat(weight[chosen], np.diff(parts.indptr))
            # One drawn component per row: an unbiased gradient at the price of one component.
            components = assignment.draw(parts.indices, rng)
            expected = mean_weight * len(chosen)
            log_likelihood += _step(
                training, rows, parts.indices, own, components, expected, rate, n_jobs
            )
        if assignment.log_likelihood is not None:
            # The steps saw drawn components only; this is the likelihood of the mixture.
            log_likelihood = assignment.log_likelihood
        loss = -log_likelihood / weight.sum()
        last = epoch + 1 == schedule.n_epochs
        yield training.epoch(loss, last)


def _weights(completions: Completions, sample_weight: FloatArray | None) -> FloatArray:
    return np.ones(completions.fractions.shape[0]) if sample_weight is None else sample_weight


def _mixture(
    parameterization: Parameterization, log_weights: FloatArray, vectors: FloatArray
) -> AllTreesMixture:
    models = [parameterization.model(vector) for vector in vectors]
    return AllTreesMixture(log_weights.copy(), models)


def _step(
    training: Training,
    rows: IntArray,
    index: IntArray,
    weight: FloatArray,
    components: IntArray,
    expected: float,
    rate: float,
    n_jobs: int | None,
) -> float:
    """Move every component by its distinct rows of the batch, by means over them, so that Adam sees
    one scale, times the weight of the batch over that of an average one.
    """
    n_components = len(training.vectors)
    importance = weight.sum() / expected
    # One component shares its rows out among the threads; several are shared out themselves.
    inner = n_jobs if n_components == 1 else 1

    def ascend(component: int) -> float:
        mine = components == component
        fraction = weight[mine].sum()
        if fraction <= 0:
            return 0.0
        present, position = np.unique(index[mine], return_inverse=True)
        # Fractions of the rows first: the reciprocal of a tiny weight is infinite
        fractions = np.bincount(position, weight[mine] / fraction).astype(np.float64)
        parameterization = training.parameterization
        model = parameterization.model(training.vectors[component])
        mean, gradient = parameterization.gradient(
            model, rows[present].astype(np.int64), fractions, n_jobs=inner
        )
        training.ascend(component, gradient * importance, rate)
        return mean * float(fraction)

    outer = 1 if n_components == 1 else n_jobs
    return float(sum(thread_map(ascend, [(c,) for c in range(n_components)], outer)))


def _estimated(
    parameterization: Parameterization,
    codes: IntArray,
    weight: FloatArray,
    pseudo_count: float,
    init: str,
) -> FloatArray:
    """Pair tables of the weighted rows, and edge weights by their mutual informations."""
    layout = parameterization.layout
    statistics = pair_statistics(codes, layout, sample_weight=weight, pseudo_count=pseudo_count)
    information = np.maximum(mutual_information(statistics, layout), _WEAKEST_INFORMATION)
    if init == "published":
        return parameterization.vector(information, statistics)
    weights = information**_POWER
    weakest = weights.max() * float(layout.n_variables) ** _WEAKEST_FRACTION
    return parameterization.vector(np.maximum(weights, weakest), statistics)


def _log_fractions(masses: FloatArray, row_mass: float) -> FloatArray:
    """Log mixture weights; half an average row more each keeps an empty component alive."""
    masses = masses + row_mass / 2
    return np.log(masses / masses.sum())


class _Assignment:
    """Which component a row belongs to, by the latest evaluation of each component."""

    def __init__(self, n_rows: int, n_components: int) -> None:
        self.log_joint = np.zeros((n_rows, n_components))
        self.responsibilities = np.ones((n_rows, n_components))
        self.log_likelihood: float | None = None  # of a mixture, at the latest refresh

    def refresh(
        self, training: Training, rows: IntArray, totals: FloatArray, epoch: int, n_jobs: int | None
    ) -> None:
        """Evaluate the components (every few epochs all of them) and reweight them."""
        if self.log_joint.shape[1] == 1:
            return
        # Components far below the best of a row rarely catch up within a few epochs.
        stale = np.ones(self.log_joint.shape, dtype=bool)
        if epoch % _REFRESH_EVERY:
            stale = self.log_joint > self.log_joint.max(axis=1, keepdims=True) - _NEGLIGIBLE
        mixture = training.mixture
        for component, (model, outdated) in enumerate(
            zip(mixture.components, stale.T, strict=True)
        ):
            codes = rows[outdated].astype(np.int64)
            self.log_joint[outdated, component] = model.log_prob(codes, n_jobs=n_jobs)
        log_joint = self.log_joint + training.log_weights
        log_prob = logsumexp(log_joint, axis=1)
        self.log_likelihood = float(totals @ log_prob)
        self.responsibilities = np.exp(log_joint - log_prob[:, None])
        training.weigh(totals @ self.responsibilities, float(totals.mean()))

    def draw(self, index: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw a component for each row."""
        if self.responsibilities.shape[1] == 1:
            return np.zeros(len(index), dtype=np.int64)
        return draw_states(self.responsibilities[index], rng.random(len(index)))


def scale_to_marginals(tables: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Tables (n_tables, n_rows, n_columns) with rows and columns rescaled to marginals, by Newton
    steps for the column scales g of ``Σ_a r_a log Σ_b T_ab exp(g_b) - Σ_b c_b g_b``, convex, where
    Sinkhorn's alternation (1967) crawls; two states have a closed form.
    """
    if tables.shape[1:] == (2, 2):
        return _scale_binary(tables, rows, columns)
    scaled = _scale_rows(tables, rows)
    # Sums of rows err by a rounding per column, all alike where rows are; some column bears it.
    absolute = _ABSOLUTE_TOLERANCE + np.finfo(float).eps * tables.shape[2]
    # Rows are exact after every step, so only the columns can miss.
    for _ in range(_MAX_NEWTON_STEPS):
        sums = scaled.sum(axis=1)
        misfit = np.abs(sums - columns)
        rounding = _RELATIVE_TOLERANCE * scaled.shape[1] * columns + absolute
        if np.all(misfit <= rounding):
            return scaled
        # The curvature is a Laplacian and the misfit sums to zero: always solvable.
        step = _solve_curvature(scaled, rows, columns - sums)
        scaled *= np.exp(np.clip(step, -_MAX_STEP, _MAX_STEP))[:, None, :]
        scaled = _scale_rows(scaled, rows)
    raise _not_scalable(float(misfit.max()))


def _not_scalable(misfit: float) -> FloatingPointError:
    return FloatingPointError(
        must(
            "pair tables",
            "be scalable to their marginals",
            "Use more smoothing (pseudo_count) or a smaller learning_rate.",
            misfit=misfit,
        )
    )


def marginal_gradient(
    tables: FloatArray, rows: FloatArray, gradient: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pull a gradient back through `scale_to_marginals` by implicit differentiation, to
    `by_logits`, `by_rows` and `by_columns`: with P the scaled table, ``[[diag(r), P], [Pᵀ,
    diag(c)]] [df; dg] = [dr - (P∘dΘ)1; dc - (P∘dΘ)ᵀ1]`` for ``d log P_ab = dΘ_ab + df_a + dg_b``.
    """
    # Eliminate the rows (diagonal block), solve for the columns, substitute back.
    row_sums, column_sums = gradient.sum(axis=2), gradient.sum(axis=1)
    known = np.matmul((row_sums / rows)[:, None, :], tables)[:, 0, :]
    by_columns = _solve_curvature(tables, rows, column_sums - known)
    by_rows = (row_sums - np.matmul(tables, by_columns[:, :, None])[:, :, 0]) / rows
    by_logits = by_rows[:, :, None] + by_columns[:, None, :]
    by_logits *= tables
    np.subtract(gradient, by_logits, out=by_logits)
    return by_logits, by_rows, by_columns


def _scale_binary(tables: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Tables of two states by odds ratios (Plackett, 1965), roots without cancellation."""
    odds = tables[:, 0, 0] / tables[:, 0, 1] * (tables[:, 1, 1] / tables[:, 1, 0])
    turned = odds < 1
    odds = np.where(turned, 1 / odds, odds)  # the diagonal is the likelier one
    first, second = rows.T, np.where(turned, columns.T[::-1], columns.T)
    excess = odds - 1
    linear = 1 + (second[0] - first[0]) * excess
    root = np.sqrt(linear**2 + 4 * excess * first[0] * second[1])
    cells = np.empty((2, 2, len(tables)))
    for a, slope in enumerate([linear, 2 - linear]):
        total = 1 + (first[a] + second[a]) * excess + root
        cells[a, a] = 2 * odds * first[a] * second[a] / total
        total = np.abs(slope) + root
        small = 2 * first[a] * second[1 - a] / total
        cells[a, 1 - a] = np.divide(total, 2 * excess, out=small, where=slope < 0)
    if not np.isfinite(cells).all():
        raise _not_scalable(np.inf)
    scaled = np.where(turned, cells[:, ::-1], cells)
    return np.ascontiguousarray(scaled.transpose(2, 0, 1))


def _scale_rows(tables: FloatArray, rows: FloatArray) -> FloatArray:
    return tables * (rows / tables.sum(axis=2))[:, :, None]


def _solve_curvature(tables: FloatArray, rows: FloatArray, right: FloatArray) -> FloatArray:
    """Solve (diag(c) - Pᵀ diag(1/r) P) g = right, one g zero; minus row sums are the diagonal."""
    curvature = -np.matmul((tables / rows[:, :, None]).transpose(0, 2, 1), tables)
    solution = np.zeros_like(right)
    n_columns = tables.shape[2]
    # The constant vector is in the null space; pinning an entry makes it definite. Without the
    # most probable column no group of others is so weakly tied to it that the digits are lost.
    if n_columns == 2:
        solution[:, 0] = right[:, 0] / -curvature[:, 0, 1]
    elif n_columns > 2:
        diagonal = np.arange(n_columns)
        curvature[:, diagonal, diagonal] = 0.0
        curvature[:, diagonal, diagonal] = -curvature.sum(axis=2)
        table = np.arange(len(tables))
        pinned = tables.sum(axis=1).argmax(axis=1)
        right = right.copy()
        right[table, pinned] = 0.0
        curvature[table, pinned] = curvature[table, :, pinned] = 0.0
        curvature[table, pinned, pinned] = 1.0
        solution = np.linalg.solve(curvature, right[:, :, None])[:, :, 0]
    return solution


class _Parts(NamedTuple):
    log_weights: FloatArray  # (n_pairs,)
    node_logits: FloatArray  # (n_states,)
    contrasts: list[FloatArray]  # per pair group (n_pairs, k_first - 1, k_second - 1)


class Parameterization:
    """Every positive mixture of all trees once, but for a constant per log weights and node, as a
    flat vector: log edge weights, logits of nodes, contrasts of log pair tables.
    """

    def __init__(self, layout: StateLayout) -> None:
        self.layout = layout
        sizes = [len(layout.pairs[0]), layout.n_states]
        self._contrast_shapes = [
            (n_pairs, k_first - 1, k_second - 1)
            for n_pairs, k_first, k_second in (group.shape for group in layout.pair_groups)
        ]
        sizes += [prod(shape) for shape in self._contrast_shapes]
        self._ends = np.cumsum(sizes)
        self.size = int(self._ends[-1])

    def vector(self, weights: FloatArray, statistics: PairStatistics) -> FloatArray:
        """Parameters (size,) of the model with these weights and positive probabilities."""
        vector = np.empty(self.size)
        parts = self._parts(vector)
        parts.log_weights[:] = np.log(self.layout.pair_values(weights))
        parts.node_logits[:] = np.log(statistics.nodes)
        for group, contrasts in zip(self.layout.pair_groups, parts.contrasts, strict=True):
            contrasts[:] = to_contrasts(np.log(statistics.pairs[group.rows, group.columns]))
        return self.bounded(vector)

    def bounded(self, vector: FloatArray) -> FloatArray:
        """Shift and clip all parameters into their bounds, in place."""
        parts = self._parts(vector)
        if len(parts.log_weights):
            middle = (parts.log_weights.max() + parts.log_weights.min()) / 2
            parts.log_weights[:] -= middle
        largest = np.maximum.reduceat(parts.node_logits, self.layout.offsets)
        parts.node_logits[:] -= largest[self.layout.owner]
        np.maximum(parts.node_logits, -_LOG_NODE_BOUND, out=parts.node_logits)
        np.clip(parts.log_weights, -_LOG_WEIGHT_BOUND, _LOG_WEIGHT_BOUND, out=parts.log_weights)
        for contrasts in parts.contrasts:
            np.clip(contrasts, -_CONTRAST_BOUND, _CONTRAST_BOUND, out=contrasts)
        return vector

    def model(self, vector: FloatArray) -> MixtureOfAllTrees:
        """The mixture of all trees with parameters (size,)."""
        parts = self._parts(vector)
        nodes = self._nodes(parts.node_logits)
        # Group by group: all tables at once would take as much as the model
        tables = (
            self._scaled_tables(nodes[group.rows], nodes[group.columns], contrasts)
            for group, contrasts in zip(self.layout.pair_groups, parts.contrasts, strict=True)
        )
        weights = self.layout.pair_matrix(np.exp(parts.log_weights))
        return MixtureOfAllTrees(self.layout, weights, nodes, self.layout.state_matrix(tables))

    def gradient(
        self,
        model: MixtureOfAllTrees,
        codes: IntArray,
        sample_weight: FloatArray,
        *,
        n_jobs: int | None = None,
    ) -> tuple[float, FloatArray]:
        """Log-likelihood of weighted rows (n_rows, n_variables), and its gradient (size,)."""
        layout = self.layout
        log_sums, counts = _edge_counts(model, codes, sample_weight, n_jobs)
        log_prob = log_sums + model.log_normaliser(codes)
        gradient = np.empty(self.size)
        parts = self._parts(gradient)
        total = sample_weight.sum()
        # Statistics of the edge in the rows, minus those without any rows.
        edge_sums = layout.sum_states(layout.sum_states(counts).T)
        parts.log_weights[:] = layout.pair_values(edge_sums - total * model.tree_distribution[1])
        # A state's own factor P_u(x_u)^(1 - degree), then its fraction as a marginal of the tables.
        by_nodes = (layout.state_counts(codes, sample_weight) - counts.sum(axis=1)) / model.nodes
        for group, by_contrasts in zip(layout.pair_groups, parts.contrasts, strict=True):
            cells = group.rows, group.columns
            rows, columns = cells[0][:, :, 0], cells[1][:, 0, :]
            by_logits, by_rows, by_columns = marginal_gradient(
                model.pairs[cells], model.nodes[rows], counts[cells]
            )
            by_contrasts[:] = sum_contrasts(by_logits)
            # A state is a marginal of as many tables as there are other variables.
            np.add.at(by_nodes, rows, by_rows)
            np.add.at(by_nodes, columns, by_columns)
        # Back through the softmax.
        by_logits_of_nodes = model.nodes * by_nodes
        sums = layout.sum_states(by_logits_of_nodes)[layout.owner]
        parts.node_logits[:] = by_logits_of_nodes - model.nodes * sums
        return float(sample_weight @ log_prob), gradient

    def _parts(self, vector: FloatArray) -> _Parts:
        """Views of the vector."""
        log_weights, node_logits, *flat = np.split(vector, self._ends[:-1])
        shapes = zip(self._contrast_shapes, flat, strict=True)
        return _Parts(log_weights, node_logits, [part.reshape(shape) for shape, part in shapes])

    @staticmethod
    def _scaled_tables(rows: FloatArray, columns: FloatArray, contrasts: FloatArray) -> FloatArray:
        """Pair tables with the probabilities of rows and columns as marginals."""
        logits = from_contrasts(contrasts, (rows.shape[1], columns.shape[2]))
        return scale_to_marginals(np.exp(logits) * rows * columns, rows[:, :, 0], columns[:, 0, :])

    def _nodes(self, logits: FloatArray) -> FloatArray:
        largest = np.maximum.reduceat(logits, self.layout.offsets)[self.layout.owner]
        scaled = np.exp(logits - largest)
        return scaled / self.layout.sum_states(scaled)[self.layout.owner]


def _edge_counts(
    model: MixtureOfAllTrees, codes: IntArray, sample_weight: FloatArray, n_jobs: int | None
) -> tuple[FloatArray, FloatArray]:
    """Log sums and expected edges by states as `RowLaplacians`; of wide tables, rows in few unusual
    states have one inverse, and others are inverted in single precision.
    """
    if model.layout.n_variables < _WIDE:
        return model.laplacians().edge_counts(codes, sample_weight, n_jobs=n_jobs)
    updates = model.updates(_TOLERANCE)
    shared = updates.changed(codes).mean(axis=1) < _MAX_CHANGED
    shared |= np.count_nonzero(~shared) < _MIN_INVERSES
    log_sums, counts = np.empty(len(codes)), np.zeros_like(model.pairs)
    for rows, make in (shared, lambda: updates), (~shared, partial(model.laplacians, np.float32)):
        if rows.any():
            log_sums[rows], own = _checked(make, model, codes[rows], sample_weight[rows], n_jobs)
            counts += own
    return log_sums, counts


def _checked(
    make: Callable[[], RowLaplacians | LaplacianUpdates],
    model: MixtureOfAllTrees,
    codes: IntArray,
    sample_weight: FloatArray,
    n_jobs: int | None,
) -> tuple[FloatArray, FloatArray]:
    """Edge counts, exact ones where those of a row do not add up to 2 (n - 1) (Foster, 1949)."""
    total = 2 * (model.layout.n_variables - 1) * sample_weight.sum()
    try:
        with np.errstate(all="ignore"):
            log_sums, counts = make().edge_counts(codes, sample_weight, n_jobs=n_jobs)
    except FloatingPointError:  # too many digits lost to stay positive definite
        pass
    else:
        if abs(counts.sum() - total) <= _MAX_COUNT_ERROR * total:
            return log_sums, counts
    return model.laplacians().edge_counts(codes, sample_weight, n_jobs=n_jobs)


def from_contrasts(contrasts: FloatArray, shape: tuple[int, int]) -> FloatArray:
    """Tables with these contrasts, one row and column more; rows and columns sum to zero."""
    corners = [_corners(size) for size in shape]
    return corners[0] @ contrasts @ corners[1].T


def sum_contrasts(tables: FloatArray) -> FloatArray:
    """Pull derivatives by cells of tables back to contrasts: the adjoint of `from_contrasts`."""
    n_rows, n_columns = tables.shape[1:]
    return _corners(n_rows).T @ tables @ _corners(n_columns)


def to_contrasts(tables: FloatArray) -> FloatArray:
    """Contrasts of tables, disregarding a function of the row and one of the column."""
    # The corners are orthogonal but not of unit length over the states
    fractions = [(size - 1) / size for size in tables.shape[1:]]
    return np.multiply(sum_contrasts(tables), np.prod(fractions))


def _corners(n_states: int) -> FloatArray:
    """Corners (n_states, n_states - 1) of a regular simplex at distance one, 1 and -1 for two."""
    if n_states == 1:
        return np.zeros((1, 0))
    return helmert(n_states).T * np.sqrt(n_states / (n_states - 1))
