"""Quadratic programming on the simplex: weights that minimise a quadratic form."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import nnls
from scipy.sparse.linalg import eigsh

from skcircuits.exceptions import must, require_non_negative, warn
from skcircuits.numerics._arrays import float_array
from skcircuits.protocols import FloatArray

# Rows up to which interior points take a fifth of a second, and a minute and 2 GB
_MAX_SMALL_SIZE, _MAX_DIRECT_SIZE = 1000, 6000
# Exchanges of all wrong signs that may fail to lower their number, multiplications relative to n³
# (interior points take 5), and the ridge of singular matrices on the scale of their mean diagonal
_MAX_FAILURES, _MAX_WORK, _RIDGE = 3, 2.0, 1e-10
RELATIVE_GAP = 1e-6
_FIRST_ORDER_STEPS = 20_000


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
        raise ValueError(must("solver", f"be one of {sorted(_SOLVERS)}", solver=solver))
    copies = np.ones(len(scaled)) if counts is None else float_array(counts, "counts")
    if copies.shape != (len(scaled),) or not (np.isfinite(copies) & (copies > 0)).all():
        raise ValueError(must("counts", f"be {len(scaled)} positive numbers", shape=copies.shape))
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
    gap = _duality_gap(scaled, weights)
    if gap > RELATIVE_GAP:
        warn(
            f"simplex_weights stopped at a relative duality gap of {gap:.1e}; a larger "
            "regularization makes the problem better conditioned",
            RuntimeWarning,
        )
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
        raise ValueError(must("K", "be a square matrix with at least one row", shape=matrix.shape))
    if not np.isfinite(matrix).all():
        raise ValueError(must("K", "be finite", "Check the target at the samples."))
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
    return ValueError(must("K", "be symmetric and positive semi-definite", way_out))


def _duality_gap(K: FloatArray, weights: FloatArray, has_floor: bool = True) -> float:
    """Bound the suboptimality of weights, relative to the value of the problem.

    The gradient 2 K w gives the linear lower bound; the gap to it is
    ``2 (wᵀ K w - min_i (K w)_i)`` (Frank and Wolfe 1956). Singular problems have values
    near zero: then ``mean(diag K) / n``, the value of n orthogonal samples, is the measure,
    unless it is left out.
    """
    gradient = K @ weights
    value = float(weights @ gradient)
    floor = float(K.diagonal().mean()) / len(K) if has_floor else 0.0
    return 2.0 * (value - float(gradient.min())) / max(value, floor, np.finfo(float).tiny)


def _automatic(K: FloatArray, start: FloatArray) -> FloatArray:
    """Solve small problems by cvxopt where it is installed, large ones by pivoting."""
    if len(K) > _MAX_SMALL_SIZE:
        weights = _block_pivoting(K, start)
        # With a ridge, values far below the mean diagonal may be many times the least one
        if _duality_gap(K, weights, has_floor=False) <= RELATIVE_GAP:
            return weights
    return (_interior_point if find_spec("cvxopt") else _active_set)(K, start)


def _block_pivoting(K: FloatArray, start: FloatArray) -> FloatArray:
    """Solve ``K u >= 1, u >= 0, uᵀ (K u - 1) = 0``, whose solution is that of the program, scaled.

    All u outside of its bounds and all zeros of it that should be positive change sides at once.
    Where this fails several times to lower their number, only the last one changes, which ends in
    the solution (Portugal, Judice and Vicente 1994).
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
    """Solve as non-negative least squares (Lawson and Hanson 1974).

    For w = t u with u on the simplex, ``|L' w|² + (sum(w) - 1)²`` is least over t at
    ``q / (1 + q)``, q = uᵀ K u, which grows with q: its solution is the one on the simplex,
    up to its sum.
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
