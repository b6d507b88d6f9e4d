"""A small network from latent points to the tables of a tree, with its gradient."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from skcircuits.learning.continuous_mixture._tree_features import TreeFeatures
from skcircuits.numerics._adam import Adam
from skcircuits.protocols import FloatArray

__all__ = ["Decoder"]

_LEAK = 0.01  # slope of an inactive unit
_FIRST_SPREAD = 0.3  # of the last layer: components start alike, but not equal


class Decoder:
    """Two hidden layers of leaky rectifiers, then one logit per cell of the tables.

    Points are columns, so that tables come out as the rows of a matrix.

    `layers`: weight and bias of each layer.
    """

    def __init__(
        self,
        features: TreeFeatures,
        log_cells: FloatArray,
        sizes: list[int],
        rng: np.random.Generator,
    ) -> None:
        self.features = features
        sizes = [*sizes, features.n_cells]
        self.layers = [
            (
                (rng.normal(size=(out, into)) * np.sqrt(2 / into)).astype(np.float32),
                np.zeros((out, 1), dtype=np.float32),
            )
            for into, out in pairwise(sizes)
        ]
        # Every component begins near the tables of the Chow-Liu tree.
        weights, bias = self.layers[-1]
        weights *= np.float32(_FIRST_SPREAD)
        bias[:, 0] = log_cells
        self._optimisers = [(Adam(), Adam()) for _ in self.layers]

    def log_cells(self, points: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """Log conditional probabilities (n_cells, n_points), and what each layer got.

        `points` (n_dimensions, n_points).
        """
        inputs = [points]
        for weights, bias in self.layers[:-1]:
            hidden = weights @ inputs[-1] + bias
            inputs.append(np.where(hidden > 0, hidden, np.float32(_LEAK) * hidden))
        weights, bias = self.layers[-1]
        logits = weights @ inputs[-1] + bias
        starts, lengths = self.features.starts, self.features.lengths
        logits -= np.repeat(np.maximum.reduceat(logits, starts, axis=0), lengths, axis=0)
        sums = np.add.reduceat(np.exp(logits), starts, axis=0)
        logits -= np.repeat(np.log(sums), lengths, axis=0)
        return logits, inputs

    def ascend(
        self, inputs: list[FloatArray], log_cells: FloatArray, gradient: FloatArray, rate: float
    ) -> None:
        """Take a step along the gradient in the log cells (n_cells, n_points)."""
        sums = np.add.reduceat(gradient, self.features.starts, axis=0)
        spread = np.repeat(sums, self.features.lengths, axis=0)
        backward = gradient - np.exp(log_cells) * spread
        for index in reversed(range(len(self.layers))):
            weights, bias = self.layers[index]
            own = np.ascontiguousarray(backward @ inputs[index].T)
            below = weights.T @ backward
            for parameters, step, optimiser in zip(
                (weights, bias),
                (own, backward.sum(axis=1, keepdims=True)),
                self._optimisers[index],
                strict=True,
            ):
                optimiser.ascend(parameters, step, rate)
            backward = below * np.where(inputs[index] > 0, np.float32(1), np.float32(_LEAK))
