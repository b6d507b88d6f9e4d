"""Expected RBF kernels of rows with missing cells under a stack of Gaussians."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from skcircuits.kernels.integrals._gaussian_factor_kernels import factor_rbf_blocks
from skcircuits.kernels.integrals._gaussian_quadratics import (
    MAX_PRODUCT_COLUMNS,
    ScaledPoints,
    product_coefficients,
    quadratic_forms,
)
from skcircuits.numerics._factor_stack import FactorStack
from skcircuits.numerics._gaussian_conditionals import ConditionalBlock, conditional_blocks
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.numerics._patterns import PatternGroup, group_patterns
from skcircuits.numerics._small_cholesky import (
    cholesky,
    gather_symmetric,
    invert_lower,
    log_diagonal,
    multiply,
    multiply_transposed,
)
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["bytes_per_row", "log_expected_rbf", "log_expected_rbf_blocks"]

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

    All but the last term is one matrix product for all rows. With at most 22 columns so
    is the last; else it is computed once per pattern, through the smaller of P and, with
    H = (Lambda + 2 G)^{-1}, the complement
    :math:`t^T H t - (H t)_o^T H_{oo}^{-1} (H t)_o`.

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
    incomplete = np.isnan(X).any(axis=1)
    complete_rows, rows = np.flatnonzero(~incomplete), np.flatnonzero(incomplete)
    if len(complete_rows):
        yield from _complete_rows(stack, X, points, gammas, complete_rows)
    if len(rows) and isinstance(stack, FactorStack):
        for place, values in factor_rbf_blocks(stack, X[rows], points, gammas):
            yield rows[place], values
    elif len(rows):
        yield from _incomplete_rows(stack, X, points, gammas, rows)


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
    for block, values in _product_blocks(left_side[None], right_side[None]):
        yield rows[block], np.repeat(values, stack.n_components, axis=0)


def _incomplete_rows(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gammas: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Incomplete rows: one product for all rows, then the quadratic forms."""
    X = X[rows]
    centred = points - stack.means[:, None]  # (K, m, d)
    scaled = ScaledPoints(stack, gammas * centred, gammas)
    constants = -np.einsum("kmd,kmd->km", scaled.scaled, centred)[:, :, None]
    right_side = [2.0 * scaled.scaled, constants, np.ones_like(constants)]
    groups = group_patterns(np.isnan(X))
    n_patterns = sum(group.n_patterns for group in groups)
    # few columns and patterns shared by few: the quadratic joins the product for all rows
    joined = stack.n_columns <= MAX_PRODUCT_COLUMNS and 8 * n_patterns > len(X)
    if joined:
        right_side.append(2.0 * scaled.products)
    width = sum(part.shape[2] for part in right_side)
    left_side = np.zeros((stack.n_components, len(X), width))
    apart = []
    for block in conditional_blocks(stack, X, groups):
        group = block.group
        roots, half_log_determinants = _smoothed(stack, block, gammas)
        _write_linear(stack, X, block, gammas, (roots, half_log_determinants), left_side)
        if joined:
            coefficients = product_coefficients(group, roots, stack.means.shape)
            left_side[:, group.rows, stack.n_columns + 2 :] = coefficients[:, group.pattern]
        else:
            apart.append((group, roots))
    joined_right_side = np.concatenate(right_side, axis=2)
    if joined:
        for place, values in _product_blocks(left_side, joined_right_side):
            yield rows[place], values
    for group, roots in apart:
        yield from _add_forms(scaled, group, roots, (left_side, joined_right_side), rows)


def _add_forms(
    scaled: ScaledPoints,
    group: PatternGroup,
    roots: FloatArray,
    sides: tuple[FloatArray, FloatArray],
    rows: IntArray,
) -> Iterator[tuple[IntArray, FloatArray]]:
    """Add the quadratic forms of a group of patterns to the product, block by block of rows."""
    left_side, right_side = sides
    by_pattern = roots.reshape(*roots.shape[:2], len(left_side), -1)
    first = 0
    # a product needs many rows at once, the forms only a few
    for block in group.blocks(_rows_per_block(left_side, right_side)):
        patterns = slice(first, first + block.n_patterns)
        first = patterns.stop
        own_roots = by_pattern[..., patterns].reshape(*roots.shape[:2], -1)
        forms = np.empty((len(left_side), block.n_patterns, right_side.shape[1]))
        start = 0
        for part, values in quadratic_forms(scaled, block, own_roots):
            np.multiply(values, 2.0, out=forms[:, start : start + part.n_patterns])
            start += part.n_patterns
        for place, values in _product_blocks(left_side[:, block.rows], right_side):
            values += forms[:, block.pattern[place]]
            yield rows[block.rows[place]], values


def _rows_per_block(left_side: FloatArray, right_side: FloatArray) -> int:
    """Rows whose values under all components stay in the cache."""
    return max(1, _BLOCK_BYTES // (8 * len(left_side) * max(1, right_side.shape[1])))


def _product_blocks(
    left_side: FloatArray, right_side: FloatArray
) -> Iterator[tuple[slice, FloatArray]]:
    """Compute left_side @ right_sideᵀ block by block of rows."""
    # small temporaries are used again; one of the size of the result costs page faults
    n_rows = _rows_per_block(left_side, right_side)
    for start in range(0, left_side.shape[1], n_rows):
        block = slice(start, start + n_rows)
        yield block, left_side[:, block] @ right_side.transpose(0, 2, 1)


def _smoothed(
    stack: GaussianStack, block: ConditionalBlock, gammas: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Roots W of the inverses WᵀW of P = Lambda_mm + 2 G, and ½ log |I + 2 G V|."""
    n_components, group = stack.n_components, block.group
    index = np.tile(group.missing.T, n_components)
    component = np.repeat(np.arange(n_components), group.n_patterns)
    widened = gather_symmetric(stack.precisions, index, component)
    diagonal = np.arange(len(index))
    widened[diagonal, diagonal] += 2.0 * gammas[index]
    lower = cholesky(widened)
    return invert_lower(lower), log_diagonal(lower) - block.half_log_precisions


def _write_linear(
    stack: GaussianStack,
    X: FloatArray,
    block: ConditionalBlock,
    gammas: FloatArray,
    smoothed: tuple[FloatArray, FloatArray],
    left_side: FloatArray,
) -> None:
    """Fill in the columns [u, 1, c] of the left factor."""
    roots, half_log_determinants = smoothed
    group, (size, n_components, n_rows) = block.group, block.centered.shape
    missing = group.missing[group.pattern]
    pulled = gammas[missing].T[:, None] * block.centered  # G m
    by_pattern = roots.reshape(size, size, n_components, -1)
    cases = np.take(by_pattern, group.pattern, axis=3).reshape(size, size, -1)
    shrinkage = multiply_transposed(cases, multiply(cases, pulled.reshape(size, -1)))
    moved = block.centered - 2.0 * shrinkage.reshape(pulled.shape)  # u_m
    linear = X[group.rows] - stack.means[:, None]  # (K, n, d)
    np.copyto(linear, 0.0, where=np.isnan(linear))
    constant = -(linear**2 @ gammas)
    constant -= np.einsum("mkn,mkn->kn", pulled, moved)
    constant -= half_log_determinants.reshape(n_components, -1)[:, group.pattern]
    linear[:, np.arange(n_rows)[:, None], missing] = moved.transpose(1, 2, 0)
    d = stack.n_columns
    left_side[:, group.rows, :d] = linear
    left_side[:, group.rows, d] = 1.0
    left_side[:, group.rows, d + 1] = constant
