"""Growing a Strudel circuit until validation stops it, then a mixture on its structure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from skcircuits.learning.strudel._shared_structure import (
    SharedMixture,
    SharedStructure,
    learn_shared_mixture,
)
from skcircuits.learning.strudel.learner import StrudelLearner, StrudelStep
from skcircuits.trees import learn_tree_mixture

_MAX_MIXTURE_STEPS = 100
_MIXTURE_PATIENCE = 5


@dataclass(frozen=True)
class GrowthLimits:
    """When to stop splitting.

    Parameters
    ----------
    n_splits : int
        Most splits.
    patience : int
        Splits in a row that may leave the validation score without improvement.
    n_parameters : int
        Most free parameters.

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
        The circuit before any and after each split; the last one may exceed the size.

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
    """Learn a mixture on the structure of a circuit until validation stops it.

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
