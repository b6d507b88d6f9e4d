r"""Expectations of logistic and softmax links of additive scores under Gaussian components.

One score is integrated over a line. Along an axis of several scores a component is x = m + a z with
z standard normal. A softmax has no pole while the phases of its exponentials lie within a half
plane, so that it is analytic for \|Im z\| < t = π / D, D being the largest difference of two
entries of a. The error of the trapezoidal sum with step h is then about exp(t²/2 - 2πt/h), the
smallest such bound of all smaller t: see Trefethen and Weideman, "The exponentially convergent
trapezoidal rule", SIAM Review 56 (2014).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtr, softmax

from skcircuits.parallel import memory_bound_chunks
from skcircuits.predictions._closed_forms import Expectation, IncompleteRows, is_plainly_missing
from skcircuits.predictions._components import GaussianComponents
from skcircuits.predictions.models._additive import (
    MAX_COMBINATIONS,
    AdditiveFunction,
    ScoreParts,
    few_combinations,
    score_parts,
)
from skcircuits.protocols import BoolArray, FloatArray, IntArray

# Narrow Gaussians: Gauss-Hermite nodes. Wide ones: the difference of the link from a step
# function is integrated over the score, where the Gaussian is smooth.
NARROW = 1.2
N_HERMITE = 48
HERMITE_NODES, HERMITE_WEIGHTS = np.polynomial.hermite_e.hermegauss(N_HERMITE)
HERMITE_WEIGHTS = HERMITE_WEIGHTS / np.sqrt(2.0 * np.pi)
PANELS = (0.0, 2.0, 5.0, 10.0, 20.0, 40.0)
N_LEGENDRE = 14
RANGE = 6.8  # beyond it is a normal number with probability 1e-11
LOG_ERROR = np.log(1e-10)
MAX_NODES = 2**14  # per component and combination of missing categories
NEGLIGIBLE = 1e-14  # probability of a component


@dataclass(frozen=True, eq=False)
class LogisticForm:
    """Probabilities of two classes whose log odds are an additive function."""

    additive: AdditiveFunction
    components: GaussianComponents
    name: str = "logistic link of a linear model"
    rounds_integers: bool = False

    @property
    def bytes_per_row(self) -> int:
        """Memory that one row takes."""
        return MAX_COMBINATIONS * len(self.components) * 8 * 4 * len(_score_nodes()[0])

    def covers(self, rows: IncompleteRows, *, with_variance: bool) -> BoolArray:
        """Rows that miss few categories."""
        return is_plainly_missing(rows) & few_combinations(self.additive, rows.evidence)

    def expectation(self, rows: IncompleteRows, *, with_variance: bool) -> Expectation:
        """Compute the moments of both probabilities."""
        mean, square = np.zeros(len(rows)), np.zeros(len(rows))
        for part in score_parts(self.additive, self.components, rows.evidence):
            means = part.means[..., 0]
            stds = np.broadcast_to(np.sqrt(part.variances[..., 0]), means.shape)
            first, second = logistic_normal_moments(means, stds)
            mean[part.rows] = (part.weights * first).sum(axis=(0, 1))
            square[part.rows] = (part.weights * second).sum(axis=(0, 1))
        # Probabilities of two classes have one variance: they add up to one
        both = np.column_stack([1.0 - mean, mean])
        return Expectation.exact(both, np.repeat((square - mean**2)[:, None], 2, axis=1))


def logistic_normal_moments(means: FloatArray, stds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """E[σ(s)] and E[σ(s)²] for normal scores s, to 1e-10; σ is the logistic function."""
    first, second = np.empty(means.shape), np.empty(means.shape)
    narrow = stds < NARROW
    nodes = expit(means[narrow][..., None] + stds[narrow][..., None] * HERMITE_NODES)
    first[narrow], second[narrow] = nodes @ HERMITE_WEIGHTS, nodes**2 @ HERMITE_WEIGHTS
    m, s = means[~narrow], stds[~narrow]
    scores, weights = _score_nodes()
    density = np.exp(-0.5 * ((scores - m[..., None]) / s[..., None]) ** 2)
    density *= weights / (np.sqrt(2.0 * np.pi) * s[..., None])
    # The link less a step vanishes beyond the panels; the step itself has a closed form, Φ(m / s)
    step = (scores > 0).astype(np.float64)
    above = ndtr(m / s)
    first[~narrow] = above + density @ (expit(scores) - step)
    second[~narrow] = above + density @ (expit(scores) ** 2 - step)
    return first, second


def _score_nodes() -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre nodes and weights on panels around zero."""
    nodes, weights = np.polynomial.legendre.leggauss(N_LEGENDRE)
    lower, upper = np.array(PANELS[:-1])[:, None], np.array(PANELS[1:])[:, None]
    half = (upper - lower) / 2.0
    positive = ((lower + upper) / 2.0 + half * nodes).ravel()
    scaled = (half * weights).ravel()
    return np.concatenate([-positive, positive]), np.concatenate([scaled, scaled])


@dataclass(frozen=True, eq=False)
class SoftmaxForm:
    """Probabilities of three or more classes, the softmax of additive scores."""

    additive: AdditiveFunction
    components: GaussianComponents
    name: str = "softmax link of a linear model where sums are short, draws elsewhere"
    rounds_integers: bool = False

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
        # Components of negligible probability were left out
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
    # Cases with equally many nodes share a grid
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
    # A softmax is invariant to a constant that is added to all scores
    centred = covariances - covariances.mean(axis=-1, keepdims=True)
    centred = centred - centred.mean(axis=-2, keepdims=True)
    values, vectors = np.linalg.eigh((centred + np.swapaxes(centred, -1, -2)) / 2.0)
    lengths = np.sqrt(np.maximum(values, 0.0))
    axes = np.swapaxes(vectors * lengths[..., None, :], -1, -2)[..., ::-1, :]
    # Centred scores of k classes vary in k - 1 directions
    return np.asarray(axes[..., : max(1, axes.shape[-1] - 1), :])


def _n_nodes(axes: FloatArray) -> IntArray:
    """Number of nodes along each axis, 1 or a power of two and one, shape (..., a)."""
    spread = np.ptp(axes, axis=-1)
    with np.errstate(divide="ignore"):
        # The module's bound, solved for h: at the second width h is largest
        strip = np.minimum(np.pi / spread, np.sqrt(-2.0 * LOG_ERROR))
    step = 2.0 * np.pi * strip / (strip**2 / 2.0 - LOG_ERROR)
    # Powers of two: many cases then have the same grid
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
        # The last axis varies fastest
        nodes = np.hstack([np.repeat(nodes, size, axis=0), np.tile(own, len(nodes))[:, None]])
        masses = np.repeat(masses, size) * np.tile(weights, len(masses))
    return nodes, masses
