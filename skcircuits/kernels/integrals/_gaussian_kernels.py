"""Expected RBF kernels of rows with missing cells under a stack of Gaussians."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skcircuits.exceptions import must
from skcircuits.kernels.integrals._gaussian_factor_kernels import factor_rbf_blocks
from skcircuits.kernels.integrals._gaussian_quadratics import (
    MAX_PRODUCT_COLUMNS,
    ScaledPoints,
    quadratic_forms,
)
from skcircuits.numerics._arrays import Rows, as_run
from skcircuits.numerics._factor_stack import FactorStack
from skcircuits.numerics._gaussian_conditionals import ConditionalBlock, conditional_blocks
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._small_cholesky import (
    cholesky,
    contract,
    gather_symmetric,
    invert_lower,
    log_diagonal,
)
from skcircuits.parallel import row_slices
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["bytes_per_row", "log_expected_rbf", "log_expected_rbf_blocks"]

MAX_REACH = 1e100  # of gamma in units of a column
_BLOCK_BYTES = 1 << 20  # bytes of temporaries per block


def log_expected_rbf(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gamma: float | FloatArray
) -> FloatArray:
    r"""Log of the expected kernel between rows with missing cells and complete points.

    Parameters
    ----------
    stack : GaussianStack
        K Gaussians over d columns.
    X : ndarray of shape (n, d)
        Rows, NaN for missing cells.
    points : ndarray of shape (m, d)
        Complete points.
    gamma : float or ndarray of shape (d,)
        Non-negative scales of the kernel exp(-sum_j gamma_j (x_j - s_j)²); a column
        with scale 0 is not in the kernel but still tells about the missing cells.

    Returns
    -------
    ndarray of shape (K, n, m)
        ``log E[k(X, s) | observed cells of x]`` under each component. Observed cells
        contribute their kernel factor; their density is not part of it.

    Notes
    -----
    With everything centred at the component mean, Lambda the inverse of Sigma, V and m
    the conditional covariance and mean, G = diag(gamma), P = Lambda_mm + 2 G_mm and
    t = G s, the Gaussian integral is

    .. math::

        \log E\,k = c + 2 u \cdot t - s^T t + 2\, t_m^T P^{-1} t_m,\quad
        u_o = x_o,\; u_m = m - 2 P^{-1} G m,\quad
        c = -x_o^T G x_o - m^T G u_m - \tfrac12 \log |I + 2 G V|.

    All but the last term is a matrix product. The last is computed once per pattern and
    distinct covariance: with at most 22 columns as a product with the products of
    coordinates, else through the smaller of P and, with H = (Lambda + 2 G)^{-1}, the
    complement :math:`t^T H t - (H t)_o^T H_{oo}^{-1} (H t)_o`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.kernels.integrals._gaussian_kernels import log_expected_rbf
    >>> from skcircuits.numerics._gaussian_stack import GaussianStack
    >>> stack = GaussianStack(np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> log_expected_rbf(stack, np.array([[0.0], [np.nan]]), np.array([[0.0]]), gamma=1.0)
    array([[[ 0.        ],
            [-0.549...]]])
    """
    result = np.empty((stack.n_components, len(X), len(points)))
    for rows, values in log_expected_rbf_blocks(stack, X, points, gamma):
        result[:, rows] = values
    return result


def log_expected_rbf_blocks(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gamma: float | FloatArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Compute :func:`log_expected_rbf` block by block of rows, for consumers that reduce.

    What depends on the missing cells alone is computed once for all rows; a block of the
    result stays in the cache and need never be stored.

    Parameters
    ----------
    stack : GaussianStack
        K Gaussians over d columns.
    X : ndarray of shape (n, d)
        Rows, NaN for missing cells.
    points : ndarray of shape (m, d)
        Complete points.
    gamma : float or ndarray of shape (d,)
        Non-negative scales of the kernel.

    Yields
    ------
    rows : ndarray of shape (p,)
        The next rows; each row comes once, in no particular order.
    values : ndarray of shape (K, p, m)
        Their log expected kernels; the consumer may overwrite them.
    """
    gammas = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (stack.n_columns,))
    _refuse_points_of_width_zero(stack, gammas)
    incomplete = np.isnan(X).any(axis=1)
    complete_rows, rows = np.flatnonzero(~incomplete), np.flatnonzero(incomplete)
    if len(complete_rows):
        yield from _complete_rows(stack, X, points, gammas, complete_rows)
    if len(rows) and isinstance(stack, FactorStack) and _has_few_factors(stack, X[rows]):
        for place, values in factor_rbf_blocks(stack, X[rows], points, gammas):
            yield rows[place], values
    elif len(rows):
        yield from _incomplete_rows(stack, X, points, gammas, rows)


def _refuse_points_of_width_zero(stack: GaussianStack, gammas: FloatArray) -> None:
    """Refuse kernels so narrow beside the columns that their integrals overflow."""
    variances = np.diagonal(stack.distinct_covariances, axis1=1, axis2=2).max(axis=0, initial=0.0)
    reach = float((gammas * variances).max(initial=0.0))
    if reach > MAX_REACH:
        raise ValueError(
            must(
                "gamma of a kernel",
                f"be at most {MAX_REACH:g} over the variance of a column",
                "Take a wider kernel, or scale the columns.",
                gamma_times_variance=reach,
            )
        )


def _has_few_factors(stack: FactorStack, X: FloatArray) -> bool:
    """Tell whether factors take less work per point than blocks of dense covariances."""
    n_missing = np.isnan(X).sum(axis=1)
    dense = np.square(np.minimum(n_missing, stack.n_columns - n_missing)).mean()
    # Products over all columns run about twice as fast as those over gathered ones
    return bool((stack.n_factors + 2) * stack.n_columns <= 2.0 * dense)


def bytes_per_row(stack: GaussianStack) -> int:
    """Bytes that :func:`log_expected_rbf_blocks` holds for one row, beside its blocks.

    Parameters
    ----------
    stack : GaussianStack
        K Gaussians over d columns.

    Returns
    -------
    int
        An upper estimate, for cutting rows into chunks.
    """
    d = stack.n_columns
    if isinstance(stack, FactorStack):
        return 16 * stack.n_components * (2 * d + stack.n_factors)
    features = d + 2 + (d * (d + 1) // 2 if d <= MAX_PRODUCT_COLUMNS else d * d)
    return 16 * stack.n_components * features


def _complete_rows(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gammas: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Complete rows: the plain kernel, the same under every component."""
    centre = points.mean(axis=0)
    complete, points = X[rows] - centre, points - centre
    scaled = gammas * points
    ones = np.ones(len(rows))
    left_side = np.column_stack([complete, ones, -(complete**2 @ gammas)])
    constants = -np.einsum("md,md->m", scaled, points)
    right_side = np.column_stack([2.0 * scaled, constants, np.ones_like(constants)])
    for block in row_slices(len(rows), _rows_per_block(stack.n_components, len(points))):
        values = left_side[block] @ right_side.T
        yield rows[block], np.repeat(values[None], stack.n_components, axis=0)


def _incomplete_rows(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gammas: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Incomplete rows: quadratic forms per pattern and covariance, then one product per row."""
    X = X[rows]
    # Gaussians with a covariance in common are centred alike, so that they share the forms
    sharers = [as_run(np.flatnonzero(stack.shape == g)) for g in range(stack.distinct.n_components)]
    centres = np.stack([stack.means[own].mean(axis=0) for own in sharers])
    scaled = ScaledPoints(stack.distinct, centres, points, gammas)
    ones = np.ones((len(centres), 1, len(points)))
    right_side = np.concatenate([2.0 * scaled.columns, ones], axis=1)
    for block in conditional_blocks(stack, X):
        smoothed = _smoothed(stack, block, gammas)
        left_side = _left_side(stack, X, block, centres, gammas, smoothed)
        start = 0
        for part, forms in quadratic_forms(scaled, block.group, smoothed[0]):
            stop = start + len(part.rows)
            sides = left_side[:, start:stop], right_side
            for place, values in _sums_of_products_and_forms(sides, forms, part.pattern, sharers):
                yield rows[part.rows[place]], values
            start = stop


def _sums_of_products_and_forms(
    sides: tuple[FloatArray, FloatArray], forms: FloatArray, pattern: IntArray, sharers: list[Rows]
) -> Iterator[tuple[slice, FloatArray]]:
    """Add products of (K, n, w) and (G, w, m) to forms (G, P, m), block by block of rows."""
    left_side, right_side = sides
    n_components, n_rows, width = left_side.shape
    n_points = right_side.shape[2]
    for block in row_slices(n_rows, _rows_per_block(n_components, n_points)):
        values = np.empty((n_components, block.stop - block.start, n_points))
        for own, right, form in zip(sharers, right_side, forms):
            # the rows of all components with one covariance make one taller matrix
            taller, target = left_side[own, block].reshape(-1, width), values[own]
            np.matmul(taller, right, out=target.reshape(-1, n_points))
            target += form[pattern[block]]
            if not isinstance(own, slice):
                values[own] = target
        yield block, values


def _rows_per_block(n_components: int, n_points: int) -> int:
    """Rows whose values under all components stay in the cache."""
    return max(1, _BLOCK_BYTES // (8 * n_components * max(1, n_points)))


def _smoothed(
    stack: GaussianStack, block: ConditionalBlock, gammas: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Roots W of the inverses WᵀW of P = Lambda_mm + 2 G, and ½ log |I + 2 G V|."""
    distinct, group = stack.distinct, block.group
    index = np.tile(group.missing.T, distinct.n_components)
    component = np.repeat(np.arange(distinct.n_components), group.n_patterns)
    widened = gather_symmetric(distinct.precisions, index, component)
    diagonal = np.arange(len(index))
    widened[diagonal, diagonal] += 2.0 * gammas[index]
    lower = cholesky(widened)
    return invert_lower(lower), log_diagonal(lower) - block.distinct_half_log_precisions


def _left_side(
    stack: GaussianStack,
    X: FloatArray,
    block: ConditionalBlock,
    centres: FloatArray,
    gammas: FloatArray,
    smoothed: tuple[FloatArray, FloatArray],
) -> FloatArray:
    """The columns [u, c] of the left factor, everything less the centres, (K, n, d + 1)."""
    roots, half_log_determinants = smoothed
    group, size = block.group, len(roots)
    missing = group.missing[group.pattern]
    offsets = stack.means - centres[stack.shape]
    means = block.offsets + offsets[:, missing].transpose(2, 0, 1)  # (m, K, n)
    pulled = gammas[missing].T[:, None] * means  # G m
    by_pattern = roots.reshape(size, size, len(centres), -1)
    moved = np.empty_like(means)  # u_m
    for g in range(len(centres)):
        own = stack.shape == g
        cases = np.take(by_pattern[:, :, g], group.pattern, axis=2)
        white = contract("ijn,jkn->ikn", cases, pulled[:, own])
        moved[:, own] = means[:, own] - 2.0 * contract("jin,jkn->ikn", cases, white)
    linear = X[group.rows] - centres[stack.shape][:, None]  # (K, n, d)
    np.copyto(linear, 0.0, where=np.isnan(linear))
    constant = -(linear**2 @ gammas)
    constant -= np.einsum("mkn,mkn->kn", pulled, moved)
    constant -= half_log_determinants.reshape(len(centres), -1)[stack.shape][:, group.pattern]
    linear[:, np.arange(len(missing))[:, None], missing] = moved.transpose(1, 2, 0)
    return np.concatenate([linear, constant[:, :, None]], axis=2)
