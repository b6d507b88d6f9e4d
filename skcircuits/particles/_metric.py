"""Coordinates in which a target is nearly a standard normal distribution.

SVGD with the kernel ``k(x, x') = Q^-1 φ((x - x')' Q (x - x'))`` (Wang, Tang, Bajaj and Liu, NeurIPS
2019) is plain SVGD in the coordinates ``z = Q^½ (x - m)``. The Gaussian N(m, Q^-1) is the one under
which Stein's identity holds for linear functions,

    E[s(x)] = 0 and E[-∇s(x)] = Q,

which is the variational Gaussian approximation. Its precision is an average curvature, whereas the
curvature at the mode may be far from typical (hierarchical models have no useful mode). Hessians
are computed from differences of the score, with as few evaluations as the graph allows (Curtis,
Powell and Reid 1974): coordinates of one colour have no common row of the Hessian, so that one
difference gives all their columns.

For very many coordinates the precision matrix is sparse: reverse Cuthill-McKee ordering makes
chains and grids banded, and a banded Cholesky factor costs time and memory linear in the number of
coordinates for a bounded width (Rue and Held 2005).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import cholesky_banded
from scipy.linalg.lapack import dtbtrs
from scipy.sparse.csgraph import reverse_cuthill_mckee

from skcircuits.numerics._arrays import spread_rows
from skcircuits.numerics._optimization import Modes, find_modes
from skcircuits.particles._neighborhoods import Neighborhoods
from skcircuits.protocols import FloatArray, IntArray

# Central differences: the cube root of the rounding error, in units of each coordinate.
STEP = 1e-5
MAX_ITER = 60
N_DRAWS = 16  # and their reflections: scores of both are averaged
N_HESSIANS = 8
# Changes per iteration below this, in standard deviations, count as convergence.
TOLERANCE = 0.05
# Curvature may fall to this fraction in one iteration, and is taken as this where it is negative.
MIN_CURVATURE = 0.1
# Modes to which a few particles ascend are different if they are this far apart.
N_CLIMBS, MODE_DISTANCE = 6, 2.0
# Minimum number of states per coordinate, and maximum number of coordinates, to learn a covariance.
STATES_PER_COORDINATE, MAX_LEARNED = 5, 1000
# Maximum size of a band; beyond it, steps without a metric are cheaper.
MAX_BAND = 2e7

# Points of the Gaussian over which the Hessian is averaged, each with its reflection.
N_SPARSE_HESSIANS = 4
# Of the mean diagonal, added where a Hessian is not positive definite, then ten times as much.
FIRST_DAMPING, MAX_DAMPING = 0.01, 100.0


@dataclass(frozen=True)
class CoordinateMetric(ABC):
    """Coordinates z of rows x, (n, d), with ``x = center + stretch(z)``."""

    center: FloatArray | float = field(default=0.0, kw_only=True)  # (d,)

    @property
    @abstractmethod
    def variances(self) -> FloatArray:
        """Diagonal of the covariance, (d,)."""

    @abstractmethod
    def stretch(self, z: FloatArray) -> FloatArray:
        """Give displacements z as displacements x."""

    @abstractmethod
    def pull(self, scores: FloatArray) -> FloatArray:
        """Give gradients in x as gradients in z."""

    @abstractmethod
    def learned(self, states: FloatArray) -> CoordinateMetric:
        """Give a metric with the covariance of many states, (n_states, d)."""

    def smooth(self, scores: FloatArray) -> FloatArray:
        """Multiply with the covariance."""
        return self.stretch(self.pull(scores))

    def inverse_transform(self, z: FloatArray) -> FloatArray:
        """Give rows z as rows x."""
        return self.center + self.stretch(z)


@dataclass(frozen=True)
class DiagonalMetric(CoordinateMetric):
    """A scale for every coordinate."""

    scales: FloatArray  # (d,)

    @classmethod
    def of_particles(cls, particles: FloatArray) -> DiagonalMetric:
        """Take the standard deviations of rows, (n, d)."""
        scales = particles.std(axis=0)
        return cls(np.where(scales > 0, scales, 1.0))

    @property
    def variances(self) -> FloatArray:
        return np.square(self.scales)

    def stretch(self, z: FloatArray) -> FloatArray:
        return z * self.scales

    def pull(self, scores: FloatArray) -> FloatArray:
        return scores * self.scales

    def curvature(self, hessian: FloatArray) -> FloatArray:
        """Give a negative Hessian in x as one in z."""
        return hessian * np.outer(self.scales, self.scales)

    def transform(self, particles: FloatArray) -> FloatArray:
        """Give rows x as rows z."""
        return (particles - self.center) / self.scales

    def learned(self, states: FloatArray) -> CoordinateMetric:
        if states.shape[1] > min(MAX_LEARNED, len(states) / STATES_PER_COORDINATE):
            return DiagonalMetric.of_particles(states)
        return Metric.of_particles(states)


@dataclass(frozen=True)
class Metric(CoordinateMetric):
    """Centre m, units u and symmetric roots: ``z = inverse_root ((x - m) / u)``.

    Units are separate, because those of the coordinates may differ by many orders of magnitude.
    """

    units: FloatArray  # (d,)
    root: FloatArray  # (d, d)
    inverse_root: FloatArray  # (d, d)

    @classmethod
    def of_precision(
        cls, center: FloatArray | float, precision: FloatArray, units: FloatArray | float = 1.0
    ) -> Metric:
        """Of a matrix Q in units; eigenvalues below 1e-10 of the largest are raised."""
        own = 1.0 / np.sqrt(np.diag(precision))
        values, vectors = np.linalg.eigh(precision * np.outer(own, own))
        scales = np.sqrt(np.maximum(values, 1e-10 * values[-1]))
        root, inverse_root = (vectors / scales) @ vectors.T, (vectors * scales) @ vectors.T
        return cls(units * own, root, inverse_root, center=center)

    @classmethod
    def of_particles(cls, particles: FloatArray) -> Metric:
        """Take the particles' own covariance, shrunk where they are few."""
        n_particles, d = particles.shape
        centered = particles - particles.mean(axis=0)
        covariance = centered.T @ centered / n_particles
        units = np.sqrt(np.diag(covariance))
        units[units == 0] = 1.0
        shrinkage = d / (d + n_particles)
        correlation = (1.0 - shrinkage) * covariance / np.outer(units, units)
        correlation[np.diag_indices(d)] += shrinkage
        return cls.of_precision(particles.mean(axis=0), np.linalg.inv(correlation), units)

    def is_concave(self, probe: HessianProbe, rng: np.random.Generator) -> bool:
        """Tell whether the log density is concave at a few draws of the Gaussian."""
        draws = self.inverse_transform(rng.standard_normal((N_HESSIANS, len(self.units))))
        scales = np.sqrt(self.variances)
        return all(
            np.linalg.eigvalsh(self.curvature(probe.mean(draw[None], scales)))[0] > 0
            for draw in draws
        )

    def curvature(self, hessian: FloatArray) -> FloatArray:
        """Give a Hessian in x as one in z."""
        return self.root @ (hessian * np.outer(self.units, self.units)) @ self.root

    @property
    def condition(self) -> float:
        """Condition number of the correlation matrix."""
        return float(np.linalg.cond(self.correlation))

    @property
    def correlation(self) -> FloatArray:
        """Q^-1 with a diagonal of one, (d, d)."""
        covariance = self.root @ self.root
        scales = np.sqrt(np.diag(covariance))
        return np.asarray(covariance / np.outer(scales, scales))

    @property
    def precision(self) -> FloatArray:
        """Q, (d, d)."""
        return self.inverse_root @ self.inverse_root / np.outer(self.units, self.units)

    @property
    def variances(self) -> FloatArray:
        return self.units**2 * np.einsum("ij,ij->i", self.root, self.root)

    def stretch(self, z: FloatArray) -> FloatArray:
        return z @ self.root * self.units

    def pull(self, scores: FloatArray) -> FloatArray:
        return scores * self.units @ self.root

    def learned(self, states: FloatArray) -> CoordinateMetric:
        if states.shape[1] > len(states) / STATES_PER_COORDINATE:
            return self
        return Metric.of_particles(states)

    def transform(self, particles: FloatArray) -> FloatArray:
        """Give rows x as rows z."""
        return (particles - self.center) / self.units @ self.inverse_root


def fit_metric(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    probe: HessianProbe,
    start: FloatArray,
    rng: np.random.Generator,
) -> Metric | None:
    """Find the variational Gaussian by Newton steps; None where there is none."""
    noise = rng.standard_normal((N_DRAWS, start.shape[1]))
    noise = np.concatenate([noise, -noise])
    spread = start.std(axis=0)
    spread[spread == 0] = 1.0
    identity = np.eye(len(spread))
    metric = Metric(spread, identity, identity, center=start.mean(axis=0))
    with np.errstate(all="ignore"):
        for iteration in range(MAX_ITER):
            blend = 1.0 if iteration == 0 else 0.5
            moved = _newton_step(grad_log_prob, probe, metric, noise, blend)
            if moved is None:
                return None
            metric, change = moved
            if change < TOLERANCE:
                return metric
    return None


def _newton_step(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    probe: HessianProbe,
    metric: Metric,
    noise: FloatArray,
    blend: float,
) -> tuple[Metric, float] | None:
    """Move curvature, then mean; the size of the move, in standard deviations."""
    draws = metric.inverse_transform(noise)
    scores = np.asarray(grad_log_prob(draws)).mean(axis=0)
    scales = np.sqrt(metric.variances)
    curvature = metric.curvature(probe.mean(draws[:: len(draws) // N_HESSIANS], scales))
    if not (np.isfinite(scores).all() and np.isfinite(curvature).all()):
        return None
    values, vectors = np.linalg.eigh(curvature)
    values = 1.0 - blend + blend * np.maximum(values, MIN_CURVATURE)
    precision = metric.inverse_root @ ((vectors * values) @ vectors.T) @ metric.inverse_root
    renewed = Metric.of_precision(metric.center, (precision + precision.T) / 2.0, metric.units)
    step = renewed.smooth(scores)
    slope = float(scores @ step)

    length = step_length(grad_log_prob, renewed.inverse_transform(noise), step, slope)
    change = max(float(np.abs(values - 1.0).max()), length * np.sqrt(max(slope, 0.0)))
    return replace(renewed, center=metric.center + length * step), change


def step_length(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    points: FloatArray,
    step: FloatArray,
    slope: float,
) -> float:
    """Halve a step from all points (n, d) until it does not overshoot by far."""
    length = 1.0
    while length > 1e-6:
        ahead = np.asarray(grad_log_prob(points + length * step)).mean(axis=0) @ step
        # Without the density itself: the slope along the step may change its sign, not grow.
        if abs(float(ahead)) <= 0.9 * slope:
            break
        length /= 2.0
    return length


@dataclass(frozen=True)
class TransformedTarget:
    """Score and curvature of a target in the coordinates z of a metric."""

    grad_log_prob: Callable[[FloatArray], FloatArray]
    probe: HessianProbe
    metric: DiagonalMetric | Metric

    def score(self, z: FloatArray) -> FloatArray:
        """Gradient of the log density in z, (n, d)."""
        return self.metric.pull(np.asarray(self.grad_log_prob(self.metric.inverse_transform(z))))

    def curvature(self, z: FloatArray) -> FloatArray:
        """Negative Hessian at a point z, (d, d) of (d,)."""
        scales = np.sqrt(self.metric.variances)
        hessian = self.probe.mean(self.metric.inverse_transform(z[None]), scales)
        return self.metric.curvature(hessian)

    def modes(self, starts: FloatArray) -> Modes | None:
        """Find modes by ascents from points x, (n, d); in x as well."""
        found = find_modes(self.score, self.curvature, self.metric.transform(starts))
        if found is None:
            return None
        # (k, d, d): columns are displacements.
        roots = self.metric.stretch(found.roots.transpose(0, 2, 1)).transpose(0, 2, 1)
        return Modes(self.metric.inverse_transform(found.centers), roots)

    def has_several_modes(self, start: FloatArray) -> bool:
        """Ascend from a few particles, (n, d), and test whether all arrive at one mode."""
        # Ends that are no stationary points are ignored (some densities are unbounded).
        found = self.modes(start[spread_rows(len(start), N_CLIMBS)])
        if found is None:
            return False
        centers = self.metric.transform(found.centers)
        return bool((np.linalg.norm(centers - centers[0], axis=1) > MODE_DISTANCE).any())


def colour_columns(pattern: sparse.csr_array) -> IntArray:
    """Colour the columns of a symmetric pattern so that none of a colour meet in a row."""
    meets = sparse.csr_array(pattern @ pattern)
    colours = np.full(pattern.shape[0], -1, dtype=np.int64)
    # Largest first: greedy colouring then needs few colours.
    for column in np.argsort(-np.diff(meets.indptr), kind="stable"):
        taken = set(colours[meets.indices[meets.indptr[column] : meets.indptr[column + 1]]])
        colour = 0
        while colour in taken:
            colour += 1
        colours[column] = colour
    return colours


class HessianProbe:
    """Negative Hessians of a log density, from its score and the graph."""

    def __init__(
        self, grad_log_prob: Callable[[FloatArray], FloatArray], graph: Neighborhoods
    ) -> None:
        self._grad_log_prob = grad_log_prob
        # A score depends on its blanket only: the rows of the Hessian are no longer than that.
        scopes = graph.scope_matrix()[graph.kernel_of_node[graph.node_of_coordinate]]
        self._is_dense = graph.n_kernels == 1
        self.colours = np.arange(graph.n_coordinates) if self._is_dense else colour_columns(scopes)
        rows, columns = scopes.nonzero()
        self._rows, self._columns = rows, columns

    def mean(self, points: FloatArray, scales: FloatArray) -> FloatArray:
        """Mean (d, d) of negative Hessians at points (m, d), by steps in ``scales`` (d,)."""
        d = points.shape[1]
        hessian = np.zeros((d, d))
        hessian[self._rows, self._columns] = self._entries(points, scales)
        return (hessian + hessian.T) / 2.0

    def sparse_mean(self, points: FloatArray, scales: FloatArray) -> sparse.csr_array | None:
        """Give the same as a sparse matrix; None where undefined."""
        entries = self._entries(points, scales)
        if not np.isfinite(entries).all():
            return None
        shape = (points.shape[1],) * 2
        hessian = sparse.csr_array((entries, (self._rows, self._columns)), shape=shape)
        return sparse.csr_array((hessian + hessian.T) / 2.0)

    def _entries(self, points: FloatArray, scales: FloatArray) -> FloatArray:
        """Average over points the entries that may differ from zero."""
        n_points, d = points.shape
        n_colours = int(self.colours.max()) + 1
        # (colours, d): every coordinate moves once, by a part of its scale.
        steps = np.zeros((n_colours, d))
        steps[self.colours, np.arange(d)] = STEP * scales
        total = np.zeros((n_colours, d))
        for point in points:
            ahead = self._grad_log_prob(point + steps)
            total += np.asarray(ahead) - np.asarray(self._grad_log_prob(point - steps))
        total /= -2.0 * STEP * n_points
        rows, columns = self._rows, self._columns
        return np.asarray(total[self.colours[columns], rows] / scales[columns])


@dataclass(frozen=True)
class SparseMetric(CoordinateMetric):
    """Precision Q = L L' in another order of coordinates: ``stretch(z) = L^-T z``."""

    band: FloatArray  # (width + 1, d), L by columns, the diagonal first
    order: IntArray  # (d,), the coordinate at each place

    @classmethod
    def of_precision(cls, precision: sparse.csr_array) -> SparseMetric | None:
        """Factor a precision; None where it is not positive definite or its band is too wide."""
        order = reverse_cuthill_mckee(sparse.csr_matrix(precision), symmetric_mode=True)
        entries = sparse.coo_array(precision[order][:, order])
        width = int(np.abs(entries.row - entries.col).max(initial=0))
        if (width + 1) * len(order) > MAX_BAND:
            return None
        band = np.zeros((width + 1, len(order)))
        below = entries.row >= entries.col
        row, column = entries.row[below], entries.col[below]
        band[row - column, column] = entries.data[below]
        try:
            return cls(np.asfortranarray(cholesky_banded(band, lower=True)), order.astype(np.int64))
        except np.linalg.LinAlgError:
            return None

    @cached_property
    def variances(self) -> FloatArray:
        # From the end backwards (Takahashi, Fagan and Chen 1973)
        width, d = len(self.band) - 1, self.band.shape[1]
        found = np.empty(d)
        # The covariance of the places that a column of L reaches.
        window = np.zeros((width, width))
        for place in range(d - 1, -1, -1):
            pivot = self.band[0, place]
            below = self.band[1:, place] / pivot
            across = -window @ below
            found[place] = 1.0 / pivot**2 - below @ across
            if width:
                window[1:, 1:] = window[:-1, :-1]
                window[0, 0] = found[place]
                window[0, 1:] = window[1:, 0] = across[:-1]
        return self._back(found[None])[0]

    @cached_property
    def standardized(self) -> DiagonalMetric:
        """Coordinates in units of the standard deviations, which keep the graph."""
        return DiagonalMetric(np.sqrt(self.variances), center=self.center)

    def stretch(self, z: FloatArray) -> FloatArray:
        return self._back(dtbtrs(self._transposed, z.T, uplo="U")[0].T)

    def pull(self, scores: FloatArray) -> FloatArray:
        return np.asarray(dtbtrs(self.band, scores[:, self.order].T, uplo="L")[0].T)

    @cached_property
    def _transposed(self) -> FloatArray:
        """The band of L', the diagonal last."""
        width, d = len(self.band) - 1, self.band.shape[1]
        above = np.zeros((width + 1, d), order="F")
        for k in range(width + 1):
            above[width - k, k:] = self.band[k, : d - k]
        return above

    def learned(self, states: FloatArray) -> SparseMetric:
        # For very many coordinates, the Hessian is more accurate than chains
        return self

    def _back(self, rows: FloatArray) -> FloatArray:
        """Give columns by place as columns by coordinate."""
        moved = np.empty_like(rows)
        moved[:, self.order] = rows
        return moved


def fit_sparse_metric(
    grad_log_prob: Callable[[FloatArray], FloatArray],
    probe: HessianProbe,
    start: FloatArray,
    rng: np.random.Generator,
) -> SparseMetric | None:
    """Average the Hessian under the Gaussian that it makes around the mode; None where it fails."""
    center = start.mean(axis=0)
    scales = start.std(axis=0)
    scales[scales == 0] = 1.0
    noise = rng.standard_normal((N_SPARSE_HESSIANS, len(center)))
    noise = np.concatenate([noise, -noise])
    # At a single point first: draws around a poor starting point are not informative.
    draws = np.zeros((1, len(center)))
    with np.errstate(all="ignore"):
        for _ in range(MAX_ITER):
            metric = _damped(probe.sparse_mean(center + draws, scales))
            if metric is None:
                return None
            score = np.asarray(grad_log_prob(center + draws)).mean(axis=0)
            step = metric.smooth(score[None])[0]
            slope = float(score @ step)
            if not np.isfinite(slope):
                return None
            length = step_length(grad_log_prob, center + draws, step, slope)
            center = center + length * step
            is_near = length * np.sqrt(max(slope, 0.0)) < TOLERANCE * np.sqrt(len(center))
            if is_near and len(draws) > 1:
                return replace(metric, center=center)
            if is_near:
                draws = metric.stretch(noise)
    return None


def is_concave(probe: HessianProbe, points: FloatArray, scales: FloatArray) -> bool:
    """Tell whether a log density is concave at points, (n, d)."""
    hessians = (probe.sparse_mean(point[None], scales) for point in points)
    return all(h is not None and SparseMetric.of_precision(h) is not None for h in hessians)


def _damped(precision: sparse.csr_array | None) -> SparseMetric | None:
    """Factor a Hessian, its diagonal raised until that succeeds."""
    if precision is None:
        return None
    metric = SparseMetric.of_precision(precision)
    scale, damping = float(np.abs(precision.diagonal()).mean()), FIRST_DAMPING
    while metric is None and damping <= MAX_DAMPING:
        raised = precision + damping * scale * sparse.eye_array(precision.shape[0], format="csr")
        metric = SparseMetric.of_precision(sparse.csr_array(raised))
        damping *= 10.0
    return metric
