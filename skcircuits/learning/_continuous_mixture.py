"""Continuous mixtures of trees: a decoder learned by quasi-random integration.

A small network maps latent points to the probability tables of a tree. Tree distributions of one
structure are log-linear models, so that one matrix product scores rows under the trees of all
points.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import DTypeLike
from scipy.sparse import csr_array
from scipy.special import ndtri
from scipy.stats import qmc

from skcircuits.circuits import Categorical, Circuit, Indicator, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning.latent_tree._emissions import LatentRows
from skcircuits.learning.latent_tree._learner import LatentSchedule, learn_latent_tree
from skcircuits.numerics._arrays import logsumexp
from skcircuits.numerics._optimization import Adam
from skcircuits.parallel import row_slices
from skcircuits.protocols import BoolArray, FloatArray, IntArray
from skcircuits.trees._chow_liu import ChowLiuTree, chow_liu_tree
from skcircuits.trees._trees import (
    StateLayout,
    conditional_tables,
    maximum_spanning_tree,
    root_at_center,
    top_down_order,
    tree_unit,
)

_LEAK = 0.01  # slope of an inactive unit
_FIRST_SPREAD = 0.3  # of the last layer: components start alike, but not equal
_POINTS_AT_ONCE = 1024  # whose tables are decoded and held
_CELLS_AT_ONCE = 2**22  # of the joint log probabilities of rows and components
_LAST_RATE = 0.02  # of the first learning rate, which falls along half a cosine
_LATENT_STATES, _LATENT_PASSES = 8, 20  # of the latent tree that completes rows
_EDGE = 1e-6  # the normal quantile is finite inside
_FIRST_TREE = 0.25  # as many passes with the Chow-Liu tree come before those with another
_POINTS_TO_DRAW_FROM = 256  # a circuit of more takes longer than it completes rows better


class Decoder:
    """Two hidden layers of leaky rectifiers, then one logit per cell; columns are points."""

    def __init__(self, features: TreeFeatures, layers: list[tuple[FloatArray, FloatArray]]) -> None:
        self.features = features
        self.layers = layers
        self._optimisers = [(Adam(), Adam()) for _ in layers]

    @classmethod
    def drawn(
        cls,
        features: TreeFeatures,
        log_cells: FloatArray,
        sizes: list[int],
        rng: np.random.Generator,
    ) -> Decoder:
        """First parameters: every component begins near the same tables (n_cells,)."""
        # Single precision: half the time of a step, and noise of batches is larger by far.
        single: type[np.floating] = np.float32
        layers = [
            (
                # He et al. (2015): signals keep their variance from layer to layer
                (rng.normal(size=(out, into)) * np.sqrt(2 / into)).astype(single),
                np.zeros((out, 1)).astype(single),
            )
            for into, out in pairwise([*sizes, features.n_cells])
        ]
        weights, bias = layers[-1]
        weights *= np.float32(_FIRST_SPREAD)
        bias[:, 0] = log_cells
        return cls(features, layers)

    def copy(self, dtype: type[np.floating]) -> Decoder:
        """The decoder as it is now, in another precision and with no memory of its steps."""
        return Decoder(self.features, [(w.astype(dtype), b.astype(dtype)) for w, b in self.layers])

    def log_cells(self, points: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """Log tables (n_cells, n_points) at points (n_dimensions, n_points), and layers' inputs."""
        inputs = [points]
        for weights, bias in self.layers[:-1]:
            hidden = weights @ inputs[-1]
            hidden += bias
            # Leaky: a unit that is negative everywhere would never change again
            inputs.append(np.maximum(hidden, hidden * hidden.dtype.type(_LEAK), out=hidden))
        weights, bias = self.layers[-1]
        logits = weights @ inputs[-1]
        logits += bias
        for tables in self.features.tables(logits):
            # Softmax by columns of the table, without overflow
            tables -= tables.max(axis=1, keepdims=True)
            tables -= np.log(np.exp(tables).sum(axis=1, keepdims=True))
        return logits, inputs

    def ascend(
        self, inputs: list[FloatArray], log_cells: FloatArray, gradient: FloatArray, rate: float
    ) -> None:
        """Take a step along the gradient in the log cells (n_cells, n_points)."""
        backward = np.exp(log_cells)
        for own, sums in zip(
            self.features.tables(backward), self.features.tables(gradient), strict=True
        ):
            own *= -sums.sum(axis=1, keepdims=True)
        backward += gradient
        for index in reversed(range(len(self.layers))):
            weights, bias = self.layers[index]
            own = np.ascontiguousarray(backward @ inputs[index].T)
            below = weights.T @ backward  # before the weights move
            for parameters, step, optimiser in zip(
                (weights, bias),
                (own, backward.sum(axis=1, keepdims=True)),
                self._optimisers[index],
                strict=True,
            ):
                optimiser.ascend(parameters, step, rate)
            leak = below.dtype.type(_LEAK)
            backward = below * np.where(inputs[index] > 0, below.dtype.type(1), leak)


class ContinuousMixture:
    """Mixture of trees, equally likely, one for every point (n_dimensions, n_components)."""

    # Only decoder and points are stored, which are smaller than the tables by orders of magnitude

    def __init__(self, decoder: Decoder, points: FloatArray) -> None:
        self.decoder = decoder
        self.points = points
        self.features = decoder.features

    def __getstate__(self) -> dict[str, object]:
        """Files contain only the state from which the rest is computed."""
        return {name: vars(self)[name] for name in ("decoder", "points", "features")}

    @property
    def n_components(self) -> int:
        """Number of trees."""
        return self.points.shape[1]

    def first(self, n_components: int) -> ContinuousMixture:
        """A coarser mixture of the first points, which are balanced too."""
        return ContinuousMixture(self.decoder, np.ascontiguousarray(self.points[:, :n_components]))

    def in_double_precision(self) -> ContinuousMixture:
        """The same mixture, whose tables sum to one as exactly as circuits ask for."""
        return ContinuousMixture(self.decoder.copy(np.float64), self.points.astype(np.float64))

    def log_prob(self, codes: IntArray) -> FloatArray:
        """Log probability of rows (n_rows, n_variables), -1 where missing, shape (n_rows,)."""
        complete = (codes >= 0).all(axis=1)
        result = np.empty(len(codes))
        result[complete] = self._complete_rows(codes[complete])
        result[~complete] = self._incomplete_rows(codes[~complete])
        return result

    def _complete_rows(self, codes: IntArray) -> FloatArray:
        """All components at once: matrix products of features and coefficients."""
        result = np.empty(len(codes))
        for rows in row_slices(len(codes), max(1, _CELLS_AT_ONCE // self.n_components)):
            features = self.features.of_rows(codes[rows], self._coefficients.dtype)
            _, result[rows] = posterior(features, self._coefficients)
        return result

    def _incomplete_rows(self, codes: IntArray) -> FloatArray:
        """Messages from the leaves to the root, of some components after the other."""
        tables = [np.exp(log_cells) for log_cells in self._decoded()]
        result = np.empty(len(codes))
        # Arrays over rows and components are kept for a block of rows only
        for rows in row_slices(len(codes), max(1, _CELLS_AT_ONCE // self.n_components)):
            joint = np.concatenate([self._evidence_of(codes[rows], cells) for cells in tables], 1)
            result[rows] = logsumexp(joint, axis=1) - np.log(self.n_components)
        return result

    def _evidence_of(self, codes: IntArray, cells: FloatArray) -> FloatArray:
        """`_log_evidence`, of few rows at a time."""
        joint = np.empty((len(codes), cells.shape[1]))
        for rows in row_slices(len(codes), max(1, _CELLS_AT_ONCE // cells.size)):
            joint[rows] = self._log_evidence(codes[rows], cells)
        return joint

    def _log_evidence(self, codes: IntArray, cells: FloatArray) -> FloatArray:
        """Log probability of observed cells under every component (n_rows, n_components)."""
        features, n_points = self.features, cells.shape[1]
        sizes, parents = features.layout.cardinalities.tolist(), features.parents.tolist()
        log_scale = np.zeros((len(codes), n_points))
        below: dict[int, FloatArray] = {}  # per variable the product of its children's messages
        for variable in top_down_order(features.parents[None])[0, ::-1].tolist():
            table = cells[features.offsets[variable] : features.offsets[variable + 1]]
            table = table.reshape(-1, sizes[variable], n_points)
            own = codes[:, [variable]]
            allowed = (own == np.arange(sizes[variable])) | (own < 0)
            likelihood = allowed[:, :, None] * below.pop(variable, np.ones((1, 1, 1)))
            message = np.einsum("psk,nsk->npk", table, likelihood)
            # A thousand small factors underflow: keep the largest entry of each at one.
            largest = message.max(axis=1, keepdims=True)
            log_scale += np.log(largest[:, 0])
            message /= largest
            parent = parents[variable]
            below[parent] = below[parent] * message if parent in below else message
        return log_scale

    def circuit(self) -> Circuit:
        """The mixture over states."""
        indicators: dict[tuple[int, int], Unit] = {}

        def make_input(variable: int, probabilities: FloatArray) -> Unit:
            if len(probabilities) == 1 or probabilities.max() < 1.0:
                return Categorical(variable, probabilities)
            state = int(probabilities.argmax())
            # All components share them: thousands of components, each with all states.
            if (variable, state) not in indicators:
                indicators[variable, state] = Indicator(variable, state, len(probabilities))
            return indicators[variable, state]

        # Tables in single precision sum to one within 1e-7, too far off for units.
        decoded = self.in_double_precision()._decoded()
        units = [
            tree_unit(self.features.split(cells), self.features.parents, make_input)
            for log_cells in decoded
            for cells in np.exp(log_cells).T
        ]
        if len(units) == 1:
            return Circuit(units[0])
        return Circuit(Sum(units, weights=np.full(len(units), 1 / len(units))))

    def dependence(self, codes: IntArray, weight: FloatArray, pseudo_count: float) -> FloatArray:
        """Dependence of all pairs of variables given the component (n_variables, n_variables)."""
        # The sum of the squared canonical correlations of what is left of the states' indicators
        # when their probabilities under the components that a row belongs to are subtracted. Of two
        # binary variables, it is their squared partial correlation. `pseudo_count` rows are added
        # to the variances, so that a single row does not make rare states dependent.
        layout, means = self.features.layout, self._marginals()
        residual = np.zeros((layout.n_states, layout.n_states))
        sizes = np.zeros(self.n_components)
        for rows in row_slices(len(codes), max(1, _CELLS_AT_ONCE // self.n_components)):
            features = self.features.of_rows(codes[rows], self._coefficients.dtype)
            responsibilities, _ = posterior(features, self._coefficients)
            indicators = layout.one_hot(codes[rows])
            expected = responsibilities @ means.T
            cross = (weight[rows, None] * expected).T @ indicators
            residual += (weight[rows, None] * indicators).T @ indicators - cross - cross.T
            sizes += weight[rows] @ responsibilities
        inside = (sizes * means) @ means.T
        residual += inside
        spread = np.diag(means @ sizes) - inside
        for own in np.split(np.arange(layout.n_states), layout.offsets[1:]):
            values, vectors = np.linalg.eigh(spread[np.ix_(own, own)])
            # Indicators sum to one: the first direction has no variance
            values, vectors = np.maximum(values[1:], 0.0), vectors[:, 1:]
            root = (vectors / np.sqrt(values + pseudo_count)) @ vectors.T
            residual[own] = root @ residual[own]
            residual[:, own] = residual[:, own] @ root
        found = layout.sum_states(layout.sum_states(residual**2).T).T
        np.fill_diagonal(found, 0.0)
        return found

    def _marginals(self) -> FloatArray:
        """Probability of every state under every component, (n_states, n_components)."""
        layout, parents = self.features.layout, self.features.parents
        cells = np.exp(np.concatenate(self._decoded(), axis=1), dtype=np.float64)
        result = np.empty((layout.n_states, self.n_components))
        states = np.split(np.arange(layout.n_states), layout.offsets[1:])
        for variable in top_down_order(parents[None])[0].tolist():
            table = cells[self.features.offsets[variable] : self.features.offsets[variable + 1]]
            table = table.reshape(-1, len(states[variable]), self.n_components)
            parent = int(parents[variable])
            above = result[states[parent]] if parent >= 0 else np.ones((1, self.n_components))
            result[states[variable]] = np.einsum("psk,pk->sk", table, above)
        return result

    @cached_property
    def _coefficients(self) -> FloatArray:
        """Log probabilities are linear in features: (n_features, n_components)."""
        return np.concatenate(
            [self.features.coefficients @ log_cells for log_cells in self._decoded()], axis=1
        )

    def _decoded(self) -> list[FloatArray]:
        """Tables (n_cells, n_points) of some points after the other."""
        parts = row_slices(self.n_components, _POINTS_AT_ONCE)
        return [self.decoder.log_cells(self.points[:, part])[0] for part in parts]


def posterior(features: FloatArray, coefficients: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Components given rows of features (n_rows, n_components), and log probabilities."""
    joint = features @ coefficients
    # Probabilities of whole rows leave the range of single precision
    largest = joint.max(axis=1, keepdims=True)
    joint -= largest
    np.exp(joint, out=joint)
    sums = joint.sum(axis=1, keepdims=True)
    joint /= sums
    log_prob = np.log(sums[:, 0].astype(np.float64)) + largest[:, 0] - np.log(joint.shape[1])
    return joint, log_prob


class TreeFeatures:
    """Conditional tables of a tree, and the features of rows in which they are linear."""

    # A row's log probability is the sum of one cell per table. Written in indicators of all states
    # but the first of each variable and their products along edges, it takes half as many numbers
    # per row as there are cells for binary variables.

    def __init__(self, layout: StateLayout, parents: IntArray) -> None:
        self.layout = layout
        self.parents = parents
        sizes = layout.cardinalities
        above = np.where(parents >= 0, sizes[parents], 1)
        self.offsets: IntArray = np.concatenate([[0], np.cumsum(sizes * above)])
        self.n_cells = int(self.offsets[-1])
        # Neighbouring variables with equally many states have tables that are one array.
        ends = np.append(np.flatnonzero(np.diff(sizes)) + 1, len(sizes))
        self._blocks = [
            (int(self.offsets[first]), int(self.offsets[last]), int(sizes[first]))
            for first, last in pairwise([0, *ends.tolist()])
        ]
        # Constant, then states but the first, then pairs of such states along the edges.
        self._singles = [
            1 + layout.offsets[j] - j + np.arange(sizes[j] - 1) for j in range(len(sizes))
        ]
        states = np.flatnonzero(layout.own_state > 0)
        self._states = layout.owner[states], layout.own_state[states]
        n_features = 1 + len(states)
        self._pairs: dict[int, IntArray] = {}
        factors = [np.empty((2, 0), dtype=np.int64)]
        for child in np.flatnonzero(parents >= 0).tolist():
            pairs = np.array(np.meshgrid(*(self._singles[j] for j in (parents[child], child))))
            shape = sizes[parents[child]] - 1, sizes[child] - 1
            self._pairs[child] = n_features + np.arange(pairs[0].size).reshape(shape)
            factors.append(pairs.transpose(0, 2, 1).reshape(2, -1))
            n_features += pairs[0].size
        self._factors = np.concatenate(factors, axis=1)
        self.n_features = int(n_features)
        rows, columns, values = (
            np.concatenate(part) for part in zip(*self._entries(), strict=True)
        )
        shape = self.n_features, self.n_cells
        #: (n_features, n_cells): turns cells into coefficients of the features.
        self.coefficients = csr_array((values.astype(np.float32), (rows, columns)), shape)

    def tables(self, cells: FloatArray) -> list[FloatArray]:
        """Views of cells (n_cells, n_points) as distributions (n_tables, n_states, n_points)."""
        return [
            cells[start:stop].reshape(-1, n_states, cells.shape[1])
            for start, stop, n_states in self._blocks
        ]

    def split(self, cells: FloatArray) -> list[FloatArray]:
        """Per variable its table (n_states_of_parent, n_states) from cells (n_cells,)."""
        sizes = self.layout.cardinalities.tolist()
        ends = pairwise(self.offsets.tolist())
        return [cells[i:j].reshape(-1, size) for size, (i, j) in zip(sizes, ends, strict=True)]

    def of_rows(self, codes: IntArray, dtype: DTypeLike = np.float32) -> FloatArray:
        """Features of complete rows: `codes` (n_rows, n_variables) -> (n_rows, n_features)."""
        features: FloatArray = np.zeros((len(codes), self.n_features), dtype=dtype)
        features[:, 0] = 1.0
        variables, states = self._states
        n_before = 1 + len(states)
        features[:, 1:n_before] = codes[:, variables] == states
        above, below = self._factors
        np.multiply(features[:, above], features[:, below], out=features[:, n_before:])
        return features

    def _entries(self) -> Iterator[tuple[IntArray, IntArray, IntArray]]:
        """Rows, columns and values of the coefficients, table by table."""
        # The indicator of a first state is one minus the sum of the others
        for variable, start in enumerate(self.offsets[:-1]):
            below = _indicators(self._singles[variable])
            parent = int(self.parents[variable])
            above = _indicators(self._singles[parent]) if parent >= 0 else [[(0, 1)]]
            found = [
                (self._product(variable, a, b), int(start) + s * len(below) + t, sign * other)
                for s, first in enumerate(above)
                for t, second in enumerate(below)
                for a, sign in first
                for b, other in second
            ]
            features, cells, signs = zip(*found, strict=True)
            yield np.array(features), np.array(cells), np.array(signs)

    def _product(self, variable: int, above: int, below: int) -> int:
        """Feature that is the product of two, of which one may be the constant."""
        if not above or not below:
            return above or below
        first = above - self._singles[int(self.parents[variable])][0]
        return int(self._pairs[variable][first, below - self._singles[variable][0]])


def _indicators(singles: IntArray) -> list[list[tuple[int, int]]]:
    """Per state its indicator as features with signs."""
    others = singles.tolist()
    return [[(0, 1), *((feature, -1) for feature in others)], *([(f, 1)] for f in others)]


@dataclass(frozen=True)
class ContinuousSchedule:
    """Settings of a fit."""

    n_latent_dimensions: int = 4
    n_hidden_units: int = 128
    learning_rate: float = 0.003
    batch_size: int = 256
    n_epochs: int = 60
    pseudo_count: float = 1.0
    n_points: int = 512  # of a step: its shifts visit the whole space in the course of a fit
    is_conditional: bool = False  # the tree is that of the dependence given the points

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
    """Learn a decoder from latent points to trees (Correia et al., 2023), from completed rows."""
    # Cells that were only `missing` are drawn again from the mixture after a third and two thirds
    # of the passes
    tree = chow_liu_tree(
        codes, layout, sample_weight=sample_weight, pseudo_count=schedule.pseudo_count
    )
    decoder = _first_decoder(tree, rng, schedule)
    # Balanced up to a power of two; the first so many points of it serve as well.
    exponent = int(np.ceil(np.log2(n_components)))
    sobol = qmc.Sobol(schedule.n_latent_dimensions, seed=rng).random_base2(exponent)[:n_components]
    points = sobol[: schedule.n_points]
    weight = (sample_weight / sample_weight.mean()).astype(np.float32)
    if schedule.is_conditional:
        tree = _conditional_tree(decoder, tree, codes, weight, points, schedule, rng)
        decoder = _first_decoder(tree, rng, schedule)
    n_epochs = schedule.n_epochs
    for epoch in range(n_epochs):
        _run_epoch(decoder, codes, weight, points, schedule, epoch, rng)
        mixture = ContinuousMixture(decoder.copy(np.float32), _normal(sobol))
        yield ContinuousStep(mixture, epoch == n_epochs - 1)
        if epoch + 1 in (n_epochs // 3, 2 * n_epochs // 3) and missing.any():
            circuit = mixture.first(_POINTS_TO_DRAW_FROM).circuit()
            codes = _drawn_again(circuit, codes, missing, rng)


def _conditional_tree(
    decoder: Decoder,
    tree: ChowLiuTree,
    codes: IntArray,
    weight: FloatArray,
    points: FloatArray,
    schedule: ContinuousSchedule,
    rng: np.random.Generator,
) -> ChowLiuTree:
    """The tree of the dependence that latent points leave, after a short fit of another `tree`."""
    short = replace(schedule, n_epochs=max(1, round(_FIRST_TREE * schedule.n_epochs)))
    for epoch in range(short.n_epochs):
        _run_epoch(decoder, codes, weight, points, short, epoch, rng)
    mixture = ContinuousMixture(decoder, _normal(points))
    found = mixture.dependence(codes, weight, schedule.pseudo_count)
    return tree._replace(parents=maximum_spanning_tree(found))


def _first_decoder(
    tree: ChowLiuTree, rng: np.random.Generator, schedule: ContinuousSchedule
) -> Decoder:
    """Every point to one tree, nearly."""
    parents = root_at_center(tree.parents)
    tables = conditional_tables(tree.layout, *tree.statistics, parents)
    cells = np.concatenate([table.ravel() for table in tables])
    sizes = [schedule.n_latent_dimensions, schedule.n_hidden_units, schedule.n_hidden_units]
    return Decoder.drawn(TreeFeatures(tree.layout, parents), np.log(cells), sizes, rng)


def _run_epoch(
    decoder: Decoder,
    codes: IntArray,
    weight: FloatArray,
    points: FloatArray,
    schedule: ContinuousSchedule,
    epoch: int,
    rng: np.random.Generator,
) -> None:
    """One pass over the rows in random order, each step with another shift of the points."""
    # So the decoder serves the whole torus between the points
    features = decoder.features
    order = rng.permutation(len(codes))
    batches = row_slices(len(codes), schedule.batch_size)
    for number, batch in enumerate(batches):
        rate = schedule.rate((epoch + number / len(batches)) / schedule.n_epochs)
        # A new shift of the lattice for each batch: the decoder must not fit fixed points
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
    """Codes (n, d), -1 where missing, completed by draws from a latent tree of weighted rows."""
    missing = codes < 0
    if not missing.any():
        return codes
    known = sample_weight > 0
    cells = np.where(missing, np.nan, codes)
    is_categorical = np.ones(layout.n_variables, dtype=bool)
    rows = LatentRows(cells[known], sample_weight[known], codes[known], layout, is_categorical)
    schedule = LatentSchedule(n_epochs=_LATENT_PASSES)
    *_, last = learn_latent_tree(rows, _LATENT_STATES, rng, schedule=schedule)
    return _drawn_again(last.circuit, codes, missing, rng)


def _drawn_again(
    circuit: Circuit, codes: IntArray, missing: BoolArray, rng: np.random.Generator
) -> IntArray:
    """Complete rows again, by the mixture, which is more accurate than a single tree."""
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
