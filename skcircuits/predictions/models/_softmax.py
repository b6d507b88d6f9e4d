r"""Softmax links of additive scores: trapezoidal sums over Gaussian components.

Along an axis of the scores a component is x = m + a z with z standard normal. A softmax has no
pole while the phases of its exponentials lie within a half plane, so that it is analytic for
\|Im z\| < t = π / D, D being the largest difference of two entries of a. The sum with step h is
then wrong by about exp(t²/2 - 2πt/h), the smallest such bound of all smaller t: see Trefethen and
Weideman, "The exponentially convergent trapezoidal rule", SIAM Review 56 (2014).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

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
from skcircuits.protocols import BoolArray, FloatArray, IntArray

RANGE = 6.8  # beyond it is a normal number with probability 1e-11
LOG_ERROR = np.log(1e-10)
MAX_NODES = 2**14  # per component and combination of missing categories
NEGLIGIBLE = 1e-14  # probability of a component


@dataclass(frozen=True, eq=False)
class SoftmaxForm:
    """Probabilities of three or more classes, the softmax of additive scores."""

    additive: AdditiveFunction
    components: GaussianComponents
    name: str = "softmax link of a linear model where sums are short, draws elsewhere"

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes, sums excluded."""
        n_classes = len(self.additive.constant)
        return 8 * len(self.components) * n_classes * (n_classes + 4 * MAX_COMBINATIONS)

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss few categories and whose scores vary in few directions."""
        covered = is_plainly_missing(rows) & few_combinations(self.additive, rows.evidence)
        chosen = np.flatnonzero(covered)
        for part in self._parts(rows.evidence[chosen]):
            n_nodes = _n_nodes(_axes(part.variances[:, 0])).prod(axis=-1, dtype=float)
            fits = n_nodes * part.means.shape[1] <= MAX_NODES
            covered[chosen[part.rows]] = fits.all(axis=0)
        return covered

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the moments of all probabilities."""
        shape = len(rows), len(self.additive.constant)
        mean, square = np.zeros(shape), np.zeros(shape)
        for part in self._parts(rows.evidence):
            first, second = _moments(part)
            mean[part.rows], square[part.rows] = first, second
        mean /= mean.sum(axis=1, keepdims=True)
        return Expectation.exact(mean, square - mean**2)

    def _parts(self, X: FloatArray) -> Iterator[ScoreParts]:
        return score_parts(self.additive, self.components, X, with_covariances=True)


def _moments(part: ScoreParts) -> tuple[FloatArray, FloatArray]:
    """First and second moments of the probabilities of some rows, shape (n, k)."""
    n_components, n_combinations, n_rows = part.weights.shape
    axes = _axes(part.variances[:, 0])
    n_nodes = np.broadcast_to(
        _n_nodes(axes)[:, None], (n_components, n_combinations, n_rows, axes.shape[2])
    )
    cases = np.argwhere(part.weights > NEGLIGIBLE)
    counts = n_nodes[tuple(cases.T)]
    sums = np.zeros((2, n_rows, part.means.shape[-1]))
    kinds, kind = np.unique(counts, axis=0, return_inverse=True)
    for number, sizes in enumerate(kinds):
        nodes, masses = _grid(sizes)
        own = cases[kind.ravel() == number]
        for chunk in memory_bound_chunks(len(own), 8 * 4 * len(nodes) * sums.shape[2]):
            k, s, n = own[chunk].T
            scores = part.means[k, s, n][:, None] + nodes @ axes[k, n]
            answers = softmax(scores, axis=-1)
            weights = part.weights[k, s, n][:, None]
            np.add.at(sums[0], n, weights * np.einsum("g,cgo->co", masses, answers))
            np.add.at(sums[1], n, weights * np.einsum("g,cgo->co", masses, answers**2))
    return sums[0], sums[1]


def _axes(covariances: FloatArray) -> FloatArray:
    """Axes of centred scores, the longest first, (K, n, a, k); others have no length."""
    # What is added to all scores leaves a softmax as it is
    centred = covariances - covariances.mean(axis=-1, keepdims=True)
    centred = centred - centred.mean(axis=-2, keepdims=True)
    values, vectors = np.linalg.eigh((centred + np.swapaxes(centred, -1, -2)) / 2.0)
    lengths = np.sqrt(np.maximum(values, 0.0))
    axes = np.swapaxes(vectors * lengths[..., None, :], -1, -2)[..., ::-1, :]
    return np.asarray(axes[..., : max(1, axes.shape[-1] - 1), :])


def _n_nodes(axes: FloatArray) -> IntArray:
    """Number of nodes along each axis, 1 or a power of two and one, shape (..., a)."""
    spread = np.ptp(axes, axis=-1)
    with np.errstate(divide="ignore"):
        strip = np.minimum(np.pi / spread, np.sqrt(-2.0 * LOG_ERROR))
    step = 2.0 * np.pi * strip / (strip**2 / 2.0 - LOG_ERROR)
    n_steps = 2 ** np.ceil(np.log2(2.0 * RANGE / step)).astype(np.int64)
    # Leaving out a short axis costs less than the square of its length
    return np.where(spread > 1e-5, n_steps + 1, 1)


def _grid(sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Nodes (g, a) and masses (g,) of the product of trapezoidal sums."""
    nodes, masses = np.zeros((1, 0)), np.ones(1)
    for size in sizes:
        own = np.linspace(-RANGE, RANGE, size) if size > 1 else np.zeros(1)
        weights = np.exp(-0.5 * own**2)
        weights /= weights.sum()
        nodes = np.hstack([np.repeat(nodes, size, axis=0), np.tile(own, len(nodes))[:, None]])
        masses = np.repeat(masses, size) * np.tile(weights, len(masses))
    return nodes, masses
