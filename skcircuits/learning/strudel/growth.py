"""Growth of a Strudel circuit with early stopping, and mixtures on its structure.

In a deterministic circuit every row uses the same edges whatever the weights, so the flows
are computed once: with F the (rows x edges) indicator matrix, the log likelihoods of all
components are F log θ and their expected counts Fᵀ R.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from skcircuits.circuits import Circuit, Sum
from skcircuits.learning.strudel._structure import SumNode, UnitBuilder, nodes_above, route
from skcircuits.learning.strudel.learner import StrudelLearner, StrudelStep
from skcircuits.numerics._arrays import logsumexp
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees import learn_tree_mixture

_MAX_MIXTURE_STEPS = 100
_MIXTURE_PATIENCE = 5


class SharedStructure:
    """A deterministic circuit as a matrix of flows.

    `step`: the circuit; `sums`: sums with a choice that training rows reach; `starts` (n_sums,):
    first edge of each; `sum_of_edge` (n_edges,): position of the sum each edge belongs to;
    `single` (n_edges,): weights of the single circuit; `flows` (n_rows, n_edges): 1 where a row
    uses an edge; training rows, then validation rows; `rest` (n_rows,): log probability of the
    choices at all other sums.
    """

    def __init__(self, step: StrudelStep) -> None:
        learner = step.learner
        self.step = step
        self.sums: list[SumNode] = []
        self.rest = np.zeros(len(learner.codes))
        rows: list[IntArray] = []
        fractions: list[FloatArray] = []
        for node, taken in route(learner.root, step.n_splits, learner.codes):
            counts = node.at(step.n_splits)[1]
            if len(counts) == 1:
                continue
            weights = step.weights_of(node)
            if counts.any():
                self.sums.append(node)
                fractions.append(weights)
                rows += taken
            else:
                for part, weight in zip(taken, weights):
                    self.rest[part] += np.log(weight)
        lengths = np.array([len(part) for part in fractions], dtype=np.int64)
        self.starts = np.cumsum(lengths) - lengths
        self.sum_of_edge = np.repeat(np.arange(len(lengths)), lengths)
        self.single = np.concatenate([np.ones(0), *fractions])
        self.flows = _indicator_matrix(rows, len(learner.codes))


def _indicator_matrix(rows: list[IntArray], n_rows: int) -> sparse.csr_array:
    """Matrix (n_rows, n_columns) with ones at the given rows of each column."""
    indptr = np.cumsum([0, *map(len, rows)])
    indices = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
    ones = np.ones(len(indices))
    return sparse.csc_array((ones, indices, indptr), shape=(n_rows, len(rows))).tocsr()


@dataclass(frozen=True)
class SharedMixture:
    """A mixture after a step.

    `structure`: shared by all components; `fractions` (n_components,): mixture weights; `weights`
    (n_edges, n_components): weights of the edges in each component; `log_density`,
    `validation_log_density`: mean log probability of the training and of the validation rows.
    """

    structure: SharedStructure
    fractions: FloatArray
    weights: FloatArray
    log_density: float
    validation_log_density: float

    @cached_property
    def circuit(self) -> Circuit:
        """One sum over the components; input units are their own."""
        structure = self.structure
        step = structure.step
        learner = step.learner
        builder = UnitBuilder(learner.shape, learner.root, step.n_splits)
        position = {node: i for i, node in enumerate(structure.sums)}
        # Sums that no training row reaches have the single circuit's weights in all components.
        reached = nodes_above(learner.root, step.n_splits, position)
        single = builder.build(step.weights_of)
        shared = {node: unit for node, unit in single.items() if node not in reached}
        components = []
        for weights in self.weights.T:
            pieces = np.split(weights, structure.starts[1:])

            def weights_of(node: SumNode, pieces: list[FloatArray] = pieces) -> FloatArray:
                own = position.get(node)
                return step.weights_of(node) if own is None else pieces[own]

            components.append(builder.build(weights_of, shared)[learner.root])
        return Circuit(Sum(components, weights=self.fractions))


def learn_shared_mixture(
    structure: SharedStructure, responsibilities: FloatArray, *, shrinkage: float = 1.0
) -> Iterator[SharedMixture]:
    """Learn the weights of all components by expectation maximisation.

    `responsibilities` (n_rows, n_components).
    """
    training, validation = structure.step.learner.weights.T
    n_components = responsibilities.shape[1]
    while True:
        weighted = responsibilities * training[:, None]
        # One row in all, spread evenly, keeps every component alive
        fractions = (weighted.sum(axis=0) + 1 / n_components) / (training.sum() + 1)
        weights = _shrunken(structure, structure.flows.T @ weighted, shrinkage)
        log_joint = structure.flows @ np.log(weights) + structure.rest[:, None] + np.log(fractions)
        log_density = logsumexp(log_joint, axis=1)
        yield SharedMixture(
            structure,
            fractions,
            weights,
            _mean(log_density, training),
            _mean(log_density, validation),
        )
        responsibilities = np.exp(log_joint - log_density[:, None])


def _shrunken(structure: SharedStructure, counts: FloatArray, shrinkage: float) -> FloatArray:
    """Weights from counts, shrunk towards those of the single circuit."""
    counts = counts + shrinkage * structure.single[:, None]
    totals = np.add.reduceat(counts, structure.starts, axis=0)
    return counts / totals[structure.sum_of_edge]


def _mean(values: FloatArray, weight: FloatArray) -> float:
    """Weighted mean; NaN where there is no row."""
    total = weight.sum()
    return float(values @ weight / total) if total > 0 else float("nan")


@dataclass(frozen=True)
class GrowthLimits:
    """Limits of the growth.

    Parameters
    ----------
    n_splits : int
        Maximum number of splits.
    patience : int
        Number of splits without improvement of the validation score after which growth stops.
    n_parameters : int
        Maximum number of free parameters.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.learning import GrowthLimits, StrudelLearner, grow
    >>> from skcircuits.trees import StateLayout
    >>> codes = np.random.default_rng(0).integers(2, size=(50, 4))
    >>> learner = StrudelLearner(codes, StateLayout([2] * 4), codes)
    >>> limits = GrowthLimits(n_splits=100, patience=10, n_parameters=9)
    >>> [step.n_parameters for step in grow(learner, limits)]
    [7, 8, 11]
    """

    n_splits: int
    patience: int
    n_parameters: int


def grow(learner: StrudelLearner, limits: GrowthLimits) -> Iterator[StrudelStep]:
    """Split until a limit is reached.

    Parameters
    ----------
    learner : StrudelLearner
        What grows.
    limits : GrowthLimits
        When to stop.

    Yields
    ------
    StrudelStep
        The circuit before the first and after each split; the last one may exceed the size.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.learning import GrowthLimits, StrudelLearner, grow
    >>> from skcircuits.trees import StateLayout
    >>> codes = np.random.default_rng(0).integers(2, size=(50, 4))
    >>> learner = StrudelLearner(codes, StateLayout([2] * 4), codes)
    >>> [step.n_splits for step in grow(learner, GrowthLimits(2, 10, 1000))]
    [0, 1, 2]
    """
    best, best_splits = -np.inf, learner.n_splits
    for step in learner.steps():
        yield step
        if step.validation_log_density > best:
            best, best_splits = step.validation_log_density, step.n_splits
        if (
            step.n_splits >= limits.n_splits
            or step.n_splits - best_splits >= limits.patience
            or step.n_parameters > limits.n_parameters
        ):
            return


def learn_mixture(
    step: StrudelStep, n_components: int, rng: np.random.Generator, *, shrinkage: float = 1.0
) -> Iterator[SharedMixture]:
    """Learn a mixture with the structure of a circuit until the validation score stops improving.

    The components start as those of a mixture of Chow-Liu trees.

    Parameters
    ----------
    step : StrudelStep
        The circuit.
    n_components : int
        Number of components.
    rng : numpy.random.Generator
        Draws the first responsibilities.
    shrinkage : float, default=1.0
        Weight of the single circuit as a prior of each component's sums.

    Yields
    ------
    SharedMixture
        The mixture after each step.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.learning import GrowthLimits, StrudelLearner, grow, learn_mixture
    >>> from skcircuits.trees import StateLayout
    >>> rng = np.random.default_rng(0)
    >>> codes = (rng.random((200, 6)) < np.repeat([0.1, 0.9], 100)[:, None]).astype(int)
    >>> learner = StrudelLearner(codes, StateLayout([2] * 6), codes[::2])
    >>> *_, single = grow(learner, GrowthLimits(2, 10, 1000))
    >>> *_, mixture = learn_mixture(single, 2, rng)
    >>> mixture.validation_log_density > single.validation_log_density
    True
    """
    learner = step.learner
    # Rows that are held out must not shape the components they judge
    training = learner.weights[:, 0] > 0
    codes = learner.codes[training]
    trees = next(
        learn_tree_mixture(
            codes, learner.layout, n_components, rng, sample_weight=learner.weights[training, 0]
        )
    )
    responsibilities = np.zeros((len(learner.codes), n_components))
    responsibilities[training] = trees.responsibilities(codes)
    best, n_stalled = -np.inf, 0
    steps = learn_shared_mixture(SharedStructure(step), responsibilities, shrinkage=shrinkage)
    for _, mixture in zip(range(_MAX_MIXTURE_STEPS), steps):
        yield mixture
        improved = mixture.validation_log_density > best
        best = max(best, mixture.validation_log_density)
        n_stalled = 0 if improved else n_stalled + 1
        if n_stalled >= _MIXTURE_PATIENCE:
            return
