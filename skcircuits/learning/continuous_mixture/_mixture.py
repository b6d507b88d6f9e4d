"""The mixture that a decoder and its points make."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from skcircuits.circuits import Categorical, Circuit, Indicator, Sum
from skcircuits.circuits.structure.units import Unit
from skcircuits.learning.continuous_mixture._decoder import Decoder
from skcircuits.numerics._arrays import logsumexp
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.trees import top_down_order, tree_unit

_POINTS_AT_ONCE = 1024  # whose tables are decoded and held
_CELLS_AT_ONCE = 2**22  # of the joint log probabilities of rows and components


class ContinuousMixture:
    """Mixture of trees, equally likely, one for every point (n_dimensions, n_components).

    Kept are the decoder and the points, which are smaller than the tables by orders of magnitude;
    tables, coefficients and circuit are made when asked for.
    """

    def __init__(self, decoder: Decoder, points: FloatArray) -> None:
        self.decoder = decoder
        self.points = points
        self.features = decoder.features

    def __getstate__(self) -> dict[str, object]:
        """Files hold what the rest is made from."""
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
        # What rows and components have together is held for some rows only
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
    """Components given rows (n_rows, n_components), and log probabilities (n_rows,).

    `features` (n_rows, n_features), `coefficients` (n_features, n_components).
    """
    joint = features @ coefficients
    largest = joint.max(axis=1, keepdims=True)
    joint -= largest
    np.exp(joint, out=joint)
    sums = joint.sum(axis=1, keepdims=True)
    joint /= sums
    log_prob = np.log(sums[:, 0].astype(np.float64)) + largest[:, 0] - np.log(joint.shape[1])
    return joint, log_prob
