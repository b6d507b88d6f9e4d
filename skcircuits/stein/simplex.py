"""Quadratic forms that Stein weights minimise, and the weights on the simplex that minimise them.

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

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import nnls
from scipy.sparse.linalg import eigsh
from scipy.special import expit

from skcircuits.exceptions import invalid, require_non_negative, warn
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._patterns import unique_rows
from skcircuits.parallel import Parallel, delayed, row_slices, single_threaded_blas
from skcircuits.protocols import BoolArray, DiscreteTarget, FloatArray, IntArray
from skcircuits.stein._targets import full_conditionals, without_other_columns
from skcircuits.stein.gram import Block, finite_kernel, prepare

# Rows up to which interior points take a fifth of a second, and a minute and 2 GB
_MAX_SMALL_SIZE, _MAX_DIRECT_SIZE = 1000, 6000
# Exchanges of all wrong signs that may fail to lower their number, multiplications relative to n³
# (interior points take 5), and the ridge of singular matrices on the scale of their mean diagonal
_MAX_FAILURES, _MAX_WORK, _RIDGE = 3, 2.0, 1e-10
RELATIVE_GAP = 1e-6
_FIRST_ORDER_STEPS = 20_000

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


def simplex_weights(
    K: ArrayLike,
    *,
    counts: ArrayLike | None = None,
    regularization: float = 0.0,
    solver: str = "auto",
) -> FloatArray:
    """Minimise ``wᵀ K w`` over ``w >= 0, sum(w) = 1``.

    Parameters
    ----------
    K : array-like of shape (n, n)
        Symmetric positive semi-definite matrix, which is scaled by its mean diagonal.
    counts : array-like of shape (n,), default=None
        Number of equal samples that each row represents; ones by default.
    regularization : float, default=0.0
        Ridge penalty λ: ``λ / counts`` is added to the diagonal of the scaled matrix. The penalty
        is the variance of a weighted mean of independent samples and prevents the weights from
        fitting noise.
    solver : {"auto", "cvxopt", "nnls"}, default="auto"
        The interior-point method of cvxopt, or the active-set method of
        :func:`scipy.optimize.nnls`, which takes two to three times as long. ``"auto"`` uses cvxopt
        if it is installed. For more than 1000 rows it first tries block principal pivoting
        [1]_, which takes a fifth of the time. More than 6000 rows are solved by pivoting or, if
        that fails, by accelerated projected gradients.

    Returns
    -------
    ndarray of shape (n,)
        Total weight of each row. It is proportional to ``counts`` if the solver finds no better
        solution.

    Warns
    -----
    RuntimeWarning
        If the relative duality gap remains above 1e-6.

    References
    ----------
    .. [1] Portugal, Judice and Vicente, "A Comparison of Block Pivoting and Interior-Point
       Algorithms for Linear Least Squares Problems with Nonnegative Variables", Mathematics of
       Computation 63, 1994.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.stein import simplex_weights
    >>> simplex_weights(np.diag([1.0, 1.0, 2.0])).round(3)
    array([0.4, 0.4, 0.2])
    """
    scaled = _scaled(square_matrix(K))
    require_non_negative(regularization=regularization)
    # n equal samples have an n-fold smaller variance of their mean.
    if not isinstance(solver, str) or solver not in _SOLVERS:
        raise invalid("solver", f"be one of {sorted(_SOLVERS)}", solver=solver)
    copies = np.ones(len(scaled)) if counts is None else float_array(counts, "counts")
    if copies.shape != (len(scaled),) or not (np.isfinite(copies) & (copies > 0)).all():
        raise invalid("counts", f"be {len(scaled)} positive numbers", shape=copies.shape)
    scaled[np.diag_indices_from(scaled)] += regularization / copies
    uniform = copies / copies.sum()
    if _duality_gap(scaled, uniform) <= RELATIVE_GAP:
        return uniform
    solve = _SOLVERS[solver] if len(scaled) <= _MAX_DIRECT_SIZE else _block_pivoting
    weights = solve(scaled, uniform)
    # Solvers can stall on singular matrices; first-order steps polish.
    if _duality_gap(scaled, weights) > RELATIVE_GAP:
        weights = _first_order(scaled, weights)
    if uniform @ scaled @ uniform <= weights @ scaled @ weights:
        weights = uniform
    _warn_of_gap("simplex_weights", _duality_gap(scaled, weights))
    return weights


def project_to_simplex(v: FloatArray) -> FloatArray:
    """Find the nearest point of the simplex (Held, Wolfe and Crowder 1974)."""
    # Thresholds that would make the k largest entries sum to one.
    descending = np.sort(v)[::-1]
    thresholds = (np.cumsum(descending) - 1.0) / np.arange(1, len(v) + 1)
    threshold = thresholds[np.count_nonzero(descending > thresholds) - 1]
    return np.maximum(v - threshold, 0.0)


def square_matrix(K: ArrayLike) -> FloatArray:
    """Read a finite square matrix."""
    matrix = float_array(K, "K")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not len(matrix):
        raise invalid("K", "be a square matrix with at least one row", shape=matrix.shape)
    if not np.isfinite(matrix).all():
        raise invalid("K", "be finite", "Check the target at the samples.")
    return matrix


def _scaled(K: FloatArray) -> FloatArray:
    diagonal = K.diagonal()
    # Divided first: the sum of large entries may overflow.
    scale = (diagonal / len(K)).sum()
    scaled = K / scale if scale > 0 else K.copy()
    _check_gram(scaled)
    return scaled


def _check_gram(K: FloatArray) -> None:
    """Refuse matrices that cannot be Gram matrices, by a cheap test without eigenvalues."""
    roots = np.sqrt(np.maximum(K.diagonal(), 0.0))
    slack = 1e-8 * max(1.0, float(np.abs(K.diagonal()).max()))
    if not np.allclose(K, K.T, rtol=0, atol=slack):
        raise _no_gram("It differs from its transpose: pass (K + K.T) / 2 where this is rounding.")
    if (np.abs(K) > np.outer(roots, roots) + slack).any():
        raise _no_gram("Entries may not exceed the geometric mean of their diagonal entries.")


def _no_gram(way_out: str) -> ValueError:
    return invalid("K", "be symmetric and positive semi-definite", way_out)


def _duality_gap(K: FloatArray, weights: FloatArray, has_floor: bool = True) -> float:
    """Relative gap of a matrix, the floor that of n orthogonal samples unless left out."""
    floor = float(K.diagonal().mean()) / len(K) if has_floor else 0.0
    return _relative_gap(K @ weights, weights, max(floor, np.finfo(float).tiny))


def _relative_gap(gradient: FloatArray, weights: FloatArray, floor: float) -> float:
    """Bound ``2 (wᵀ K w - min_i (K w)_i)`` of the suboptimality (Frank and Wolfe 1956) by the
    gradient ``K w``, relative to the value or a floor.
    """
    value = float(weights @ gradient)
    return 2.0 * (value - float(gradient.min())) / max(value, floor)


def _warn_of_gap(what: str, gap: float) -> None:
    if gap > RELATIVE_GAP:
        warn(
            f"{what} stopped at a relative duality gap of {gap:.1e}; a larger "
            "regularization makes the problem better conditioned",
            RuntimeWarning,
        )


def _automatic(K: FloatArray, start: FloatArray) -> FloatArray:
    """Solve small problems by cvxopt where it is installed, large ones by pivoting."""
    if len(K) > _MAX_SMALL_SIZE:
        weights = _block_pivoting(K, start)
        # With a ridge, values far below the mean diagonal may be many times the least one
        if _duality_gap(K, weights, has_floor=False) <= RELATIVE_GAP:
            return weights
    return (_interior_point if find_spec("cvxopt") else _active_set)(K, start)


def _block_pivoting(K: FloatArray, start: FloatArray) -> FloatArray:
    """Solve ``K u >= 1, u >= 0, uᵀ (K u - 1) = 0``, the program up to scale: all wrong signs change
    at once, or the last one where this fails (Portugal, Judice and Vicente 1994).
    """
    for ridge in (0.0, _RIDGE):
        try:
            return _onto_simplex(_pivoted(K, ridge), start)
        except np.linalg.LinAlgError:
            continue
    return start


def _pivoted(K: FloatArray, ridge: float) -> FloatArray:
    """Exchange positive and zero entries of u until all signs are right."""
    n = len(K)
    is_free, u = np.ones(n, dtype=bool), np.zeros(n)
    n_wrong, n_failures, work = n + 1, 0, 0.0
    while work < _MAX_WORK * n**3:
        free = np.flatnonzero(is_free)
        rows = K[free] if len(free) < n else K
        block = rows[:, free]
        block[np.diag_indices_from(block)] += ridge
        factor = cho_factor(block, overwrite_a=True, check_finite=False)
        u[:] = 0.0
        u[free] = cho_solve(factor, np.ones(len(free)), check_finite=False)
        work += len(free) ** 3 / 3.0 + n**2
        is_wrong = np.where(is_free, u < 0.0, u[free] @ rows < 1.0 - 0.1 * RELATIVE_GAP)
        n_now = int(is_wrong.sum())
        if not n_now:
            break
        n_failures = 0 if n_now < n_wrong else n_failures + 1
        n_wrong = min(n_wrong, n_now)
        if n_failures > _MAX_FAILURES:
            is_wrong[: np.flatnonzero(is_wrong)[-1]] = False
        is_free ^= is_wrong
    return u


def _active_set(K: FloatArray, start: FloatArray) -> FloatArray:
    """Solve as non-negative least squares (Lawson and Hanson 1974): ``|L' w|² + (sum(w) - 1)²`` of
    w = t u is least over t at ``q / (1 + q)``, which grows with q = uᵀ K u.
    """
    rows = np.vstack([_square_root(K), np.ones(len(K))])
    try:
        weights, _ = nnls(rows, np.append(np.zeros(len(rows) - 1), 1.0), maxiter=30 * len(K))
    except RuntimeError:  # no convergence, which the duality gap shows: first-order steps continue
        return start
    return _onto_simplex(weights, start)


def _square_root(K: FloatArray) -> FloatArray:
    """Factor K as ``Rᵀ R``, R of shape (rank, n)."""
    try:
        return np.asarray(np.linalg.cholesky(K).T, dtype=np.float64)
    except np.linalg.LinAlgError:
        eigenvalues, vectors = np.linalg.eigh(K)
    if eigenvalues[0] < -1e-8 * len(K) * max(1.0, eigenvalues[-1]):
        raise _no_gram("It has a negative eigenvalue; rescale what it was made of.")
    kept = eigenvalues > 0
    return np.sqrt(eigenvalues[kept])[:, None] * vectors[:, kept].T


def _interior_point(K: FloatArray, start: FloatArray) -> FloatArray:
    """Solve by cvxopt, which is imported here only: it is under the GPL."""
    from cvxopt import matrix, solvers, spdiag

    n = len(K)
    try:
        solution = solvers.coneqp(
            P=matrix(2.0 * K),
            q=matrix(0.0, (n, 1)),
            G=spdiag([-1.0] * n),
            h=matrix(0.0, (n, 1)),
            A=matrix(1.0, (1, n)),
            b=matrix(1.0),
            initvals={"x": matrix(start)},
            options={"show_progress": False, "abstol": 1e-12, "reltol": 1e-9, "feastol": 1e-10},
        )
    except ValueError as error:  # the first step met a negative eigenvalue
        raise _no_gram("It has a negative eigenvalue; rescale what it was made of.") from error
    return _onto_simplex(np.array(solution["x"]).ravel(), start)


def _onto_simplex(weights: FloatArray, fallback: FloatArray) -> FloatArray:
    """Clip weights that interior points leave slightly outside."""
    weights = np.maximum(weights, 0.0)
    total = weights.sum()
    return weights / total if np.isfinite(total) and total > 0 else fallback


def _first_order(K: FloatArray, start: FloatArray) -> FloatArray:
    """Accelerated projected gradient with restarts (Beck and Teboulle 2009)."""
    # The objective is taken as wᵀKw / 2, whose gradient is K w.
    step = 1.0 / _largest_eigenvalue(K)
    weights = ahead = start
    momentum = 1.0
    for iteration in range(_FIRST_ORDER_STEPS):
        moved = project_to_simplex(ahead - step * (K @ ahead))
        # Momentum against the descent direction is dropped (O'Donoghue and Candes 2015).
        if (ahead - moved) @ (moved - weights) > 0:
            momentum = 1.0
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = moved + (momentum - 1.0) / following * (moved - weights)
        weights, momentum = moved, following
        # The gap costs as much as a step, so it is looked at now and then.
        if iteration % 50 == 49 and _duality_gap(K, weights) < RELATIVE_GAP:
            break
    return weights


def _largest_eigenvalue(K: FloatArray) -> float:
    """Bound the curvature; the start vector is fixed so that results repeat."""
    value = eigsh(K, k=1, which="LA", v0=np.ones(len(K)), tol=1e-3, return_eigenvectors=False)
    return 1.01 * float(value[0])


_SOLVERS: dict[str, Callable[[FloatArray, FloatArray], FloatArray]] = {
    "auto": _automatic,
    "cvxopt": _interior_point,
    "nnls": _active_set,
}


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
    """Residuals (n,) or (n, k) scaled to a form with that diagonal; None if all are zero."""
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
        features = design[:, 1:]
        gradient = features @ (weights @ features) + ridge * weights
        _warn_of_gap("weights of low rank", _relative_gap(gradient, weights, 1.0 / n))
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
        """Entries on the diagonal."""
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
