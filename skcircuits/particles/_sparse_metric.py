"""The metric of a sparse precision matrix: where particles of very many coordinates start, and
what their chains move in.

Reverse Cuthill-McKee ordering makes chains and grids banded; a banded Cholesky factor then costs
time and memory linear in the number of coordinates for a bounded width (Rue and Held 2005).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse
from scipy.linalg import cholesky_banded
from scipy.linalg.lapack import dtbtrs
from scipy.sparse.csgraph import reverse_cuthill_mckee

from skcircuits.particles._metric import DiagonalMetric, HessianProbe, step_length
from skcircuits.protocols import FloatArray, IntArray

# Numbers in a band that are still cheaper than steps without a metric.
MAX_BAND = 2e7
MAX_ITER, TOLERANCE = 60, 0.05
# Points of the Gaussian over which the Hessian is averaged, each with its reflection.
N_HESSIANS = 4
# Of the mean diagonal, added where a Hessian is not positive definite, then ten times as much.
FIRST_DAMPING, MAX_DAMPING = 0.01, 100.0


@dataclass(frozen=True)
class SparseMetric:
    """Precision Q = L L' in another order of coordinates: ``stretch(z) = L^-T z``."""

    band: FloatArray  # (width + 1, d), L by columns, the diagonal first
    order: IntArray  # (d,), the coordinate at each place
    center: FloatArray | float = 0.0

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
        """Diagonal of Q^-1, from the end backwards (Takahashi, Fagan and Chen 1973)."""
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
        return DiagonalMetric(np.sqrt(self.variances), self.center)

    def stretch(self, z: FloatArray) -> FloatArray:
        """Give displacements z as displacements x, (n, d)."""
        return self._back(dtbtrs(self._transposed, z.T, uplo="U")[0].T)

    def pull(self, scores: FloatArray) -> FloatArray:
        """Give gradients in x as gradients in z."""
        return np.asarray(dtbtrs(self.band, scores[:, self.order].T, uplo="L")[0].T)

    def smooth(self, scores: FloatArray) -> FloatArray:
        """Multiply with Q^-1."""
        return self.stretch(self.pull(scores))

    @cached_property
    def _transposed(self) -> FloatArray:
        """The band of L', the diagonal last."""
        width, d = len(self.band) - 1, self.band.shape[1]
        above = np.zeros((width + 1, d), order="F")
        for k in range(width + 1):
            above[width - k, k:] = self.band[k, : d - k]
        return above

    def learned(self, states: FloatArray) -> SparseMetric:
        """Stay: a hundred chains tell less of very many coordinates than their Hessian."""
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
    noise = rng.standard_normal((N_HESSIANS, len(center)))
    noise = np.concatenate([noise, -noise])
    # At a point first: draws around a bad start tell nothing.
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
            origin = center + draws

            def slope_at(t: float, at: FloatArray = origin, step: FloatArray = step) -> float:
                return float(np.asarray(grad_log_prob(at + t * step)).mean(axis=0) @ step)

            length = step_length(slope_at, slope)
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
