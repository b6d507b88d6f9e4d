r"""Expectations of softmax and normalised logistic links of several additive scores.

Along an axis of the scores a component is x = m + a z with z standard normal. A softmax has no pole
while the phases of its exponentials lie within a half plane, so that it is analytic for
\|Im z\| < t = π / D, D being the largest difference of two entries of a. Logistic functions of the
scores that are divided by their sum have none while the phases of the scores are below π / 2, for
t = π / D with D twice the largest entry of a: the real parts of all of them are positive there. The
error of the trapezoidal sum with step h is then about exp(t²/2 - 2πt/h), the smallest such bound of
all smaller t: see Trefethen and Weideman, "The exponentially convergent trapezoidal rule", SIAM
Review 56 (2014).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax

from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._closed_forms import (
    Expectation,
    IncompleteRows,
    Problem,
    is_plainly_missing,
)
from skcircuits.predictions._components import NEGLIGIBLE, GaussianComponents
from skcircuits.predictions.models._additive import (
    MAX_COMBINATIONS,
    AdditiveFunction,
    ScoreParts,
    few_combinations,
    probe,
    score_parts,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

RANGE = 6.8  # beyond it is a normal number with probability 1e-11
LOG_ERROR = np.log(1e-10)
MAX_NODES = 2**14  # per component and combination of missing categories


@dataclass(frozen=True, eq=False)
class SoftmaxForm:
    """Probabilities of three or more classes, by additive scores.

    They are the softmax of the scores, or their logistic functions divided by the sum if
    `is_one_versus_rest`.
    """

    additive: AdditiveFunction
    components: GaussianComponents
    is_one_versus_rest: bool = False
    rounds_integers: bool = False

    @property
    def name(self) -> str:
        """Description of the form, and of the rows that it covers."""
        link = "normalised logistic" if self.is_one_versus_rest else "softmax"
        return f"{link} link of a linear model where sums are short, draws elsewhere"

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
            # The number of nodes grows exponentially with the directions: beyond a bound draws
            # are faster
            n_nodes = self._n_nodes(self._axes(part)).prod(axis=-1, dtype=float)
            fits = n_nodes * part.means.shape[1] <= MAX_NODES
            covered[chosen[part.rows]] = fits.all(axis=0)
        return covered

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the moments of all probabilities."""
        shape = len(rows), len(self.additive.constant)
        mean, square = np.zeros(shape), np.zeros(shape)
        for part in self._parts(rows.evidence):
            first, second = self._moments(part)
            mean[part.rows], square[part.rows] = first, second
        # Components of negligible probability were left out
        mean /= mean.sum(axis=1, keepdims=True)
        return Expectation.exact(mean, square - mean**2)

    def _parts(self, X: FloatArray) -> Iterator[ScoreParts]:
        return score_parts(self.additive, self.components, X, with_covariances=True)

    def _moments(self, part: ScoreParts) -> tuple[FloatArray, FloatArray]:
        """First and second moments of the probabilities of some rows, shape (n, k)."""
        n_components, n_combinations, n_rows = part.weights.shape
        axes = self._axes(part)
        n_nodes = np.broadcast_to(
            self._n_nodes(axes)[:, None], (n_components, n_combinations, n_rows, axes.shape[2])
        )
        cases = np.argwhere(part.weights > NEGLIGIBLE)
        counts = n_nodes[tuple(cases.T)]
        sums = np.zeros((2, n_rows, part.means.shape[-1]))
        # Cases with equally many nodes share a grid
        kinds, kind = np.unique(counts, axis=0, return_inverse=True)
        for number, sizes in enumerate(kinds):
            nodes, masses = _grid(sizes)
            own = cases[kind.ravel() == number]
            for chunk in memory_bound_chunks(len(own), 8 * 4 * len(nodes) * sums.shape[2]):
                k, s, n = own[chunk].T
                scores = part.means[k, s, n][:, None] + nodes @ axes[k, n]
                answers = self.link(scores)
                weights = part.weights[k, s, n][:, None]
                np.add.at(sums[0], n, weights * np.einsum("g,cgo->co", masses, answers))
                np.add.at(sums[1], n, weights * np.einsum("g,cgo->co", masses, answers**2))
        return sums[0], sums[1]

    def link(self, scores: FloatArray) -> FloatArray:
        """Probabilities of the classes, shape (..., k)."""
        if not self.is_one_versus_rest:
            return np.asarray(softmax(scores, axis=-1))
        positive = expit(scores)
        return np.asarray(positive / positive.sum(axis=-1, keepdims=True))

    def _axes(self, part: ScoreParts) -> FloatArray:
        """Axes of the scores, the longest first, (K, n, a, k); others have no length."""
        covariances = part.variances[:, 0]
        if not self.is_one_versus_rest:
            # A softmax is invariant to a constant that is added to all scores
            covariances = covariances - covariances.mean(axis=-1, keepdims=True)
            covariances = covariances - covariances.mean(axis=-2, keepdims=True)
        values, vectors = np.linalg.eigh((covariances + np.swapaxes(covariances, -1, -2)) / 2.0)
        lengths = np.sqrt(np.maximum(values, 0.0))
        axes = np.swapaxes(vectors * lengths[..., None, :], -1, -2)[..., ::-1, :]
        if self.is_one_versus_rest:
            return np.asarray(axes)
        # Centred scores of k classes vary in k - 1 directions
        return np.asarray(axes[..., : max(1, axes.shape[-1] - 1), :])

    def _n_nodes(self, axes: FloatArray) -> IntArray:
        """Number of nodes along each axis, 1 or a power of two and one, shape (..., a)."""
        spread = np.ptp(axes, axis=-1)
        if self.is_one_versus_rest:
            spread = 2.0 * np.abs(axes).max(axis=-1)
        with np.errstate(divide="ignore"):
            # The module's bound, solved for h: at the second width h is largest
            strip = np.minimum(np.pi / spread, np.sqrt(-2.0 * LOG_ERROR))
        step = 2.0 * np.pi * strip / (strip**2 / 2.0 - LOG_ERROR)
        # Powers of two: many cases then have the same grid
        n_steps = 2 ** np.ceil(np.log2(2.0 * RANGE / step)).astype(np.int64)
        # Leaving out a short axis costs less than the square of its length
        return np.where(spread > 1e-5, n_steps + 1, 1)


def one_versus_rest_form(
    single: Problem, score: Callable[[FloatArray], FloatArray], thing: str
) -> SoftmaxForm:
    """Build the form of logistic functions of scores that are divided by their sum."""
    components = GaussianComponents.of(single.circuit)
    form = SoftmaxForm(probe(score, single), components, is_one_versus_rest=True)
    trials = single.trial_rows()
    single.check(form.link(form.additive(trials)), single.ask(single.response, trials), thing)
    return form


def _grid(sizes: IntArray) -> tuple[FloatArray, FloatArray]:
    """Nodes (g, a) and masses (g,) of the product of trapezoidal sums."""
    nodes, masses = np.zeros((1, 0)), np.ones(1)
    for size in sizes:
        own = np.linspace(-RANGE, RANGE, size) if size > 1 else np.zeros(1)
        weights = np.exp(-0.5 * own**2)
        weights /= weights.sum()
        # The last axis varies fastest
        nodes = np.hstack([np.repeat(nodes, size, axis=0), np.tile(own, len(nodes))[:, None]])
        masses = np.repeat(masses, size) * np.tile(weights, len(masses))
    return nodes, masses
