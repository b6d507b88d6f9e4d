"""A small network from latent points to the tables of a tree, with its gradient."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from skcircuits.learning.continuous_mixture._tree_features import TreeFeatures
from skcircuits.numerics._adam import Adam
from skcircuits.protocols import FloatArray

_LEAK = 0.01  # slope of an inactive unit
_FIRST_SPREAD = 0.3  # of the last layer: components start alike, but not equal


class Decoder:
    """Two hidden layers of leaky rectifiers, then one logit per cell of the tables.

    Points are columns, so that tables come out as the rows of a matrix.

    `layers`: weight (n_out, n_in) and bias (n_out, 1) of each layer.
    """

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
        """First parameters: every component begins near the same tables (n_cells,).

        `sizes`: dimensions of the points and units of the hidden layers.
        """
        # Single precision: half the time of a step, and noise of batches is larger by far.
        single: type[np.floating] = np.float32
        layers = [
            (
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
        """Log conditional probabilities (n_cells, n_points), and what each layer got.

        `points` (n_dimensions, n_points).
        """
        inputs = [points]
        for weights, bias in self.layers[:-1]:
            hidden = weights @ inputs[-1]
            hidden += bias
            inputs.append(np.maximum(hidden, hidden * hidden.dtype.type(_LEAK), out=hidden))
        weights, bias = self.layers[-1]
        logits = weights @ inputs[-1]
        logits += bias
        for tables in self.features.tables(logits):
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
