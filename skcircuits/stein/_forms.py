"""Quadratic forms that Stein weights minimise, and terms for what kernels hardly resolve.

For very many samples ``K ≈ F Fᵀ + diag(residual)``, with F from randomly pivoted Cholesky (Chen,
Epperly, Tropp and Webber 2024). The remainder ``R = K - F Fᵀ`` is positive semi-definite, so that

    |w F|² <= wᵀ K w <= |w F|² + (Σ_i |w_i| √R_ii)²  for all weights w.

Its diagonal is kept in the form (known as FITC; Quiñonero-Candela and Rasmussen 2005), so that
weights cannot concentrate on samples where the approximation is poor.

Stein's identity holds within every mode of a density as well as over all of them: the mass of a
mode shows only in the valley between it and the next one, where there is hardly a sample. Weights
that rely on the identity alone may leave one mode for another that happens to fit better. Therefore
energies of states, and the parts that are separated by valleys, enter the form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from skcircuits.exceptions import warn
from skcircuits.numerics._patterns import unique_rows
from skcircuits.parallel import Parallel, delayed, row_slices, single_threaded_blas
from skcircuits.protocols import BoolArray, DiscreteTarget, FloatArray, IntArray
from skcircuits.stein._targets import full_conditionals, without_other_columns
from skcircuits.stein.gram import Block, finite_kernel, prepare
from skcircuits.stein.simplex import RELATIVE_GAP, simplex_weights

# Rows of a task: large enough to be worth sending to a worker; of a tile: with a hundred columns
# it stays in the cache; of a square whose diagonal is wanted.
_TASK_ROWS, _TILE_ROWS, _SQUARE_ROWS = 16384, 512, 16
# Weight of Stein's identity for the energy (that for the kernel has weight one). A tenth of it
# improves the mean energy half as much, ten times as much worsens collapsed single marginals.
_FRACTION = 0.01
# Pivots drawn at once; eigenvalues among them below this part of the largest are rounding.
_BLOCK_PIVOTS = 50
_RANK_TOLERANCE = 1e-10
# Newton steps of the dual problem, their least length and relative gain; diagonal entries below
# this part of the mean are raised.
_MAX_ITER = 100
_MIN_LENGTH, _TOLERANCE = 1e-6, 1e-20
_MIN_DIAGONAL = 1e-8
CHUNK_ROWS = 4096  # read at once
# Rows of the whole matrix that an estimate of a discrepancy looks at.
_ESTIMATE_ROWS = 200


@dataclass(frozen=True)
class SteinColumns:
    """The Stein kernel of distinct rows, part by part."""

    X: FloatArray  # (n, d), distinct
    which: IntArray  # (n_samples,), the distinct row of each sample
    block: Block
    rows: Any
    n_jobs: int | None = None

    @classmethod
    def of(
        cls,
        X: FloatArray,
        target: Any,
        kernel: Any,
        *,
        operator: str | None = None,
        n_jobs: int | None = None,
    ) -> SteinColumns:
        """Evaluate the target, once, at the distinct rows."""
        X = without_other_columns(target, X)
        first, which = unique_rows(X)
        block, rows = prepare(X[first], target, kernel, operator)
        return cls(X[first], which, block, rows, n_jobs)

    def __len__(self) -> int:
        return len(self.X)

    def columns(self, chosen: ArrayLike, among: IntArray | slice = slice(None)) -> FloatArray:
        """Kernel of some rows, all by default, with chosen ones: (n, n_chosen)."""
        left, right = self.rows[among], self.rows[np.asarray(chosen)]
        parts = row_slices(len(self.X[among]), _TASK_ROWS)
        tasks = (delayed(_tiles)(self.block, left[part], right, part) for part in parts)
        with single_threaded_blas():
            values = Parallel(n_jobs=self.n_jobs, prefer="threads")(tasks)
        return finite_kernel(np.concatenate(values), self.X[among])

    def diagonal(self) -> FloatArray:
        """Kernel of every row with itself, (n,)."""
        squares = (self.rows[part] for part in row_slices(len(self), _SQUARE_ROWS))
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.concatenate([self.block(rows, rows).diagonal() for rows in squares])
        return finite_kernel(values[:, None], self.X)[:, 0]


def _tiles(block: Block, left: Any, right: Any, part: slice) -> FloatArray:
    """Kernel of left rows, ``part.stop - part.start`` of them, with all right ones."""
    with np.errstate(over="ignore", invalid="ignore"):
        tiles = row_slices(part.stop - part.start, _TILE_ROWS)
        return np.concatenate([block(left[tile], right) for tile in tiles])


def energy_residuals(target: DiscreteTarget, X: FloatArray) -> FloatArray:
    """Apply the Barker operator to the log probability of a target.

    With the rates ``g_{i,d}(x) = p(x +_i d) / (p(x) + p(x +_i d))`` it is
    ``sum_{i,d} g_{i,d}(x) (log p(x +_i d) - log p(x))``, whose mean under the target is
    zero. Samples with too much of the modes have a negative mean, those with too little of
    them a positive one: a wide kernel over the states hardly sees the difference.
    """
    total = np.zeros(len(X))
    for variable, log_conditional in full_conditionals(target, X):
        observed = ~np.isnan(X[:, variable])
        own = X[observed, variable].astype(np.int64)
        gain = log_conditional - np.take_along_axis(log_conditional, own[:, None], axis=1)
        # Impossible states are never moved to: 0 times -inf is 0 here.
        possible = ~np.isneginf(gain)
        flow = np.where(possible, expit(gain) * np.where(possible, gain, 0.0), 0.0)
        total[observed] += flow.sum(axis=1)
    return total


def scaled_features(
    diagonal: FloatArray, residuals: FloatArray, counts: IntArray, fraction: float = _FRACTION
) -> FloatArray | None:
    """Scale residuals, (n,) or (n, k), so that their squares add to a form with that diagonal.

    None where all of them are zero.
    """
    # Both parts on the scale of their diagonals, as independent samples would have them.
    squares = residuals**2 if residuals.ndim == 1 else (residuals**2).sum(axis=1)
    own, others = counts @ squares, counts @ diagonal
    return None if own == 0 else np.sqrt(fraction * others / own) * residuals


@dataclass(frozen=True)
class LowRankForm:
    """A positive semi-definite form ``F Fᵀ + diag(residual)``."""

    features: FloatArray  # (n, rank)
    residual: FloatArray  # (n,), not negative

    def value(self, weights: FloatArray) -> float:
        """Give ``wᵀ (F Fᵀ + diag(residual)) w``, an estimate of ``wᵀ K w``."""
        along = weights @ self.features
        return float(along @ along + self.residual @ weights**2)

    def bounds(self, weights: FloatArray) -> tuple[float, float]:
        """Bound ``wᵀ K w`` from below and above."""
        along = weights @ self.features
        low = float(along @ along)
        return low, low + float(np.abs(weights) @ np.sqrt(self.residual)) ** 2

    def diagonal(self) -> FloatArray:
        """Diagonal of the form, that of K itself."""
        return np.einsum("nr,nr->n", self.features, self.features) + self.residual

    def matrix(self, rows: IntArray) -> FloatArray:
        """Entries of some rows and columns."""
        features = self.features[rows]
        return features @ features.T + np.diag(self.residual[rows])

    def with_features(self, features: FloatArray) -> LowRankForm:
        """Add the squares of more linear functions of the weights, (n,) or (n, k)."""
        return LowRankForm(np.column_stack([self.features, features]), self.residual)

    def minimise(self, counts: FloatArray, regularization: float) -> FloatArray:
        """Weights on the simplex that minimise the form plus ``regularization / counts``.

        With ``u = Fᵀ w`` the dual problem has rank + 1 variables: maximise over v and ν

            ν - |v|² / 2 - Σ_i max(0, ν - f_i·v)² / (2 D_i),  then  w_i = max(0, ν - f_i·v) / D_i,

        concave and piecewise quadratic, so that Newton's method ends after a few steps.
        """
        scale = float(self.diagonal().mean())
        if not scale > 0:
            return counts / counts.sum()
        ridge = self.residual / scale + regularization / counts
        ridge = np.maximum(ridge, _MIN_DIAGONAL * max(1.0, float(ridge.mean())))
        # ν and v in one vector, the constant first.
        n, rank = self.features.shape
        design = np.ones((n, 1 + rank))
        np.multiply(self.features, -(scale**-0.5), out=design[:, 1:])
        weights = _solve_dual(design, ridge)
        weights /= weights.sum()
        gap = _relative_gap(design[:, 1:], ridge, weights)
        if gap > RELATIVE_GAP:
            warn(
                f"weights of low rank stopped at a relative duality gap of {gap:.1e}; a larger "
                "regularization makes the problem better conditioned",
                RuntimeWarning,
            )
        return weights


def low_rank_form(gram: SteinColumns, n_components: int, rng: np.random.Generator) -> LowRankForm:
    """Factor a Stein Gram matrix by randomly pivoted Cholesky, blocks of pivots at a time."""
    n = len(gram)
    diagonal = gram.diagonal()
    residual = diagonal.copy()
    features = np.empty((n, min(n_components, n)))
    rank = 0
    while rank < features.shape[1] and residual.sum() > _RANK_TOLERANCE * diagonal.sum():
        n_pivots = min(_BLOCK_PIVOTS, features.shape[1] - rank, int(np.count_nonzero(residual)))
        pivots = rng.choice(n, n_pivots, replace=False, p=residual / residual.sum())
        columns = gram.columns(pivots) - features[:, :rank] @ features[pivots, :rank].T
        values, vectors = np.linalg.eigh(columns[pivots])
        kept = values > _RANK_TOLERANCE * max(float(values[-1]), 0.0)
        added = columns @ (vectors[:, kept] / np.sqrt(values[kept]))
        features[:, rank : rank + added.shape[1]] = added
        rank += added.shape[1]
        residual = np.maximum(residual - np.einsum("nr,nr->n", added, added), 0.0)
        # Rows that have been pivots have no residual apart from rounding errors.
        residual[pivots] = 0.0
        if not added.shape[1]:
            break
    return LowRankForm(features[:, :rank], residual)


def estimate_discrepancy(
    gram: SteinColumns, weights: FloatArray, rng: np.random.Generator
) -> float:
    """Estimate ``wᵀ K w`` without bias from rows of K drawn by their weights."""
    n_rows = min(_ESTIMATE_ROWS, len(weights))
    drawn = rng.choice(len(weights), n_rows, p=weights)
    # (K w)_i is nearly constant where weights are positive: it is so at the minimum.
    return max(0.0, float((weights @ gram.columns(drawn)).mean()))


def _solve_dual(design: FloatArray, ridge: FloatArray) -> FloatArray:
    """Semismooth Newton steps with halving; the primal weights at the end."""
    n, size = design.shape
    penalty = np.ones(size)
    penalty[0] = 0.0
    # Uniform weights to begin with: every sample is active.
    dual = np.zeros(size)
    dual[0] = 1.0 / float((1.0 / ridge).sum())
    active = np.ones(n, dtype=bool)
    curvature = np.diag(penalty) + _weighted_gram(design, ridge, active)
    value, weights = _dual_value(design, ridge, penalty, dual)
    for _ in range(_MAX_ITER):
        gradient = penalty * dual + design.T @ weights
        gradient[0] -= 1.0
        step = -np.linalg.solve(curvature, gradient)
        slope = float(gradient @ step)
        if -slope <= _TOLERANCE * abs(value):
            break
        length = 1.0
        while True:
            following = dual + length * step
            new_value, new_weights = _dual_value(design, ridge, penalty, following)
            if new_value <= value + 1e-4 * length * slope:
                break
            length /= 2.0
            if length < _MIN_LENGTH:  # the remaining gain is below rounding errors
                return weights
        dual, value, weights = following, new_value, new_weights
        now = weights > 0
        # Only samples that changed sides change the curvature.
        curvature += _weighted_gram(design, ridge, now & ~active)
        curvature -= _weighted_gram(design, ridge, active & ~now)
        active = now
    return weights


def _dual_value(
    design: FloatArray, ridge: FloatArray, penalty: FloatArray, dual: FloatArray
) -> tuple[float, FloatArray]:
    """Negative dual objective, and the weights that belong to it."""
    slack = np.maximum(design @ dual, 0.0)
    weights = slack / ridge
    return float(0.5 * (penalty @ dual**2 + slack @ weights) - dual[0]), weights


def _weighted_gram(design: FloatArray, ridge: FloatArray, chosen: BoolArray) -> FloatArray:
    """``Σ a_i a_iᵀ / D_i`` over chosen rows, chunk by chunk."""
    total = np.zeros((design.shape[1],) * 2)
    rows = np.flatnonzero(chosen)
    for part in row_slices(len(rows), CHUNK_ROWS):
        scaled = design[rows[part]] / np.sqrt(ridge[rows[part]])[:, None]
        total += scaled.T @ scaled
    return total


def _relative_gap(features: FloatArray, ridge: FloatArray, weights: FloatArray) -> float:
    """Bound the suboptimality, relative to the value or to that of n orthogonal samples."""
    gradient = features @ (weights @ features) + ridge * weights
    value = float(weights @ gradient)
    floor = 1.0 / len(ridge)
    return 2.0 * (value - float(gradient.min())) / max(value, floor)


@dataclass(frozen=True)
class DenseForm:
    """A positive semi-definite matrix K as form ``wᵀ K w``."""

    K: FloatArray  # (n, n)

    def __len__(self) -> int:
        return len(self.K)

    def columns(self, chosen: IntArray, among: IntArray | slice = slice(None)) -> FloatArray:
        """Entries of some rows, all by default, in chosen columns."""
        return self.K[among][:, chosen]

    def diagonal(self) -> FloatArray:
        return self.K.diagonal()

    def value(self, weights: FloatArray) -> float:
        """Give ``wᵀ K w``; rounding may leave a tiny negative number of zero."""
        return max(0.0, float(weights @ self.K @ weights))

    def matrix(self, rows: IntArray) -> FloatArray:
        """Entries of some rows and columns."""
        return self.K[np.ix_(rows, rows)]

    def with_features(self, features: FloatArray) -> DenseForm:
        """Add the squares of linear functions of the weights, (n,) or (n, k)."""
        columns = features.reshape(len(features), -1)
        return DenseForm(self.K + columns @ columns.T)

    def minimise(self, counts: FloatArray, regularization: float) -> FloatArray:
        """Weights on the simplex that minimise the form plus ``regularization / counts``."""
        return simplex_weights(self.K, counts=counts, regularization=regularization)
