r"""Kernel expansions after steps that mix columns, such as principal components.

Given the observed cells, additive features z of a row are a mixture of Gaussians. For one of them,
with mean mu and covariance S, the expected kernel is a Gaussian integral over the features:

    E exp(-gamma |z - s|²) = |B|^(-1/2) exp(-gamma (mu - s)' B^(-1) (mu - s)),  B = I + 2 gamma S.

Its logarithm is quadratic in s, so that all points take one product with the squares of their
coordinates.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._closed_forms import is_plainly_missing
from skcircuits.predictions._components import GaussianComponents
from skcircuits.predictions._rows import Expectation, IncompleteRows
from skcircuits.predictions.models._additive import (
    MAX_COMBINATIONS,
    AdditiveFunction,
    ScoreParts,
    few_combinations,
    score_parts,
)
from skcircuits.protocols import BoolArray, FloatArray

# Of a kernel's exponent beside the centre of the points, up to which its square may be expanded:
# rounding errors stay below 1e-9
MAX_EXPANDED = 1e6
BLOCK_BYTES = 2**22  # of kernels of a block of rows, which stay in the cache


@dataclass(frozen=True, eq=False)
class ProjectedExpansion:
    """f(x) = Σ_i coefficients_i exp(-gamma |z(x) - s_i|²) + intercept, with additive features z.

    `points` (m, q): points s_i in the space of the features; `coefficients` (m, k): their factors;
    `intercept` (k,): constant.
    """

    features: AdditiveFunction
    components: GaussianComponents
    points: FloatArray
    coefficients: FloatArray
    intercept: FloatArray
    gamma: float
    name: str = "expected kernels of combinations of columns"

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes, kernels excluded."""
        n_features = self.points.shape[1]
        return 8 * len(self.components) * n_features * (4 * n_features + 2 * MAX_COMBINATIONS)

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss few categories and are not very far from all points."""
        covered = is_plainly_missing(rows) & few_combinations(self.features, rows.evidence)
        if with_variance:
            return np.zeros(len(rows), dtype=bool)
        chosen = np.flatnonzero(covered)
        for part in self._parts(rows.evidence[chosen]):
            exponents = self.gamma * np.square(part.means - self._centre).sum(axis=-1)
            covered[chosen[part.rows]] = (exponents <= MAX_EXPANDED).all(axis=(0, 1))
        return covered

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the means."""
        mean = np.tile(self.intercept, (len(rows), 1))
        for part in self._parts(rows.evidence):
            n_components, n_combinations, n_rows = part.weights.shape
            per_row = 8 * n_components * n_combinations * sum(self._squares.shape)
            for chunk in memory_bound_chunks(
                n_rows, per_row, at_most=max(1, BLOCK_BYTES // per_row)
            ):
                logs = self._factors(part.means[:, :, chunk], part.variances[:, :, chunk])
                kernels = logs @ self._squares
                np.exp(kernels, out=kernels)
                answers = kernels @ self.coefficients
                weights = part.weights[:, :, chunk, None]
                mean[part.rows[chunk]] += (weights * answers).sum(axis=(0, 1))
        return Expectation.exact(mean)

    def _parts(self, X: FloatArray) -> Iterator[ScoreParts]:
        return score_parts(self.features, self.components, X, with_covariances=True)

    @cached_property
    def _centre(self) -> FloatArray:
        return np.asarray(self.points.mean(axis=0))

    @cached_property
    def _squares(self) -> FloatArray:
        """Ones, the centred points and their products of coordinates, by column."""
        points = (self.points - self._centre).T
        i, j = np.tril_indices(len(points))
        return np.vstack([np.ones(points.shape[1]), points, points[i] * points[j]])

    def _factors(self, means: FloatArray, covariances: FloatArray) -> FloatArray:
        """Factors of the rows of `_squares`, (K, S, n, 1 + q + q (q + 1) / 2)."""
        n_features = means.shape[-1]
        widened = np.eye(n_features) + 2.0 * self.gamma * covariances
        half_log_determinants = 0.5 * np.linalg.slogdet(widened)[1]
        inverses = self.gamma * np.linalg.inv(widened)
        means = means - self._centre
        solved = (inverses @ means[..., None])[..., 0]
        constant = -(solved * means).sum(axis=-1) - half_log_determinants
        i, j = np.tril_indices(n_features)
        # Off-diagonal products count twice
        quadratic = np.where(i == j, -1.0, -2.0) * inverses[..., i, j]
        quadratic = np.broadcast_to(quadratic, (*constant.shape, len(i)))
        return np.concatenate([constant[..., None], 2.0 * solved, quadratic], axis=-1)
