"""Expected RBF kernels of rows with missing cells under a stack of Gaussians."""

from __future__ import annotations

import numpy as np

from skcircuits.numerics.gaussian_conditionals import ConditionalBlock, conditional_blocks
from skcircuits.numerics.gaussian_stack import GaussianStack
from skcircuits.numerics.patterns import PatternGroup
from skcircuits.numerics.small_cholesky import (
    cholesky,
    gather_symmetric,
    gram_of_lower,
    invert_lower,
    log_diagonal,
    multiply_symmetric,
)
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["bytes_per_row", "log_expected_rbf"]

# Up to this many columns the quadratic form of every pattern joins one matrix product
# over the d (d + 1) / 2 products of coordinates; beyond, patterns are taken one by one.
_MAX_PRODUCT_COLUMNS = 22
_BLOCK_BYTES = 1 << 22  # gathered points of a block stay in the second-level cache


def log_expected_rbf(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gamma: float | FloatArray
) -> FloatArray:
    """Log of the expected kernel between rows with missing cells and complete points.

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

        \\log E\\,k = c + 2 u \\cdot t - s^T t + 2\\, t_m^T P^{-1} t_m,\\quad
        u_o = x_o,\\; u_m = m - 2 P^{-1} G m,\\quad
        c = -x_o^T G x_o - m^T G u_m - \\tfrac12 \\log |I + 2 G V|.

    All but the last term is one matrix product for all rows. With at most 22 columns so
    is the last; else it is computed once per pattern, through the smaller of P and, with
    H = (Lambda + 2 G)^{-1}, the complement
    :math:`t^T H t - (H t)_o^T H_{oo}^{-1} (H t)_o`.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.numerics.gaussian_kernels import log_expected_rbf
    >>> from skcircuits.numerics.gaussian_stack import GaussianStack
    >>> stack = GaussianStack(np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> log_expected_rbf(stack, np.array([[0.0], [np.nan]]), np.array([[0.0]]), gamma=1.0)
    array([[[ 0.        ],
            [-0.549...]]])
    """
    gammas = np.broadcast_to(np.asarray(gamma, dtype=np.float64), (stack.n_columns,))
    incomplete = np.isnan(X).any(axis=1)
    if incomplete.all():
        return _incomplete_rows(stack, X, points, gammas)
    result = np.empty((stack.n_components, len(X), len(points)))
    # a complete row says the same under every component
    result[:, ~incomplete] = _complete_rows(X[~incomplete], points, gammas)
    if incomplete.any():
        result[:, incomplete] = _incomplete_rows(stack, X[incomplete], points, gammas)
    return result


def bytes_per_row(stack: GaussianStack, n_points: int) -> int:
    """Bytes that :func:`log_expected_rbf` allocates for one row.

    Parameters
    ----------
    stack : GaussianStack
        K Gaussians over d columns.
    n_points : int
        Number of points.

    Returns
    -------
    int
        An upper estimate, for cutting rows into chunks.
    """
    d = stack.n_columns
    features = d + 2 + (d * (d + 1) // 2 if d <= _MAX_PRODUCT_COLUMNS else 0)
    return 8 * stack.n_components * (2 * n_points + 2 * features)


def _complete_rows(X: FloatArray, points: FloatArray, gammas: FloatArray) -> FloatArray:
    """Plain log kernel (n, m) by one matrix product."""
    centre = points.mean(axis=0)
    rows, points = X - centre, points - centre
    result = rows @ (2.0 * gammas * points).T
    result -= (points**2 @ gammas)[None]
    result -= (rows**2 @ gammas)[:, None]
    return np.minimum(result, 0.0, out=result)


def _incomplete_rows(
    stack: GaussianStack, X: FloatArray, points: FloatArray, gammas: FloatArray
) -> FloatArray:
    """Log expected kernels (K, n, m) of rows that all have holes."""
    centred = points - stack.means[:, None]  # (K, m, d)
    scaled = gammas * centred
    products = stack.n_columns <= _MAX_PRODUCT_COLUMNS
    right = [2.0 * scaled, -np.einsum("kmd,kmd->km", scaled, centred)[:, :, None]]
    right.append(np.ones_like(right[1]))
    if products:
        right.append(_coordinate_products(scaled))
    right_side = np.concatenate(right, axis=2)
    left_side = np.zeros((stack.n_components, len(X), right_side.shape[2]))
    quadratics = []
    for block in conditional_blocks(stack, X):
        inverse, root, half_log_determinants = _smoothed(stack, block, gammas)
        _write_linear(stack, X, block, gammas, (inverse, half_log_determinants), left_side)
        if products:
            _write_products(stack, block.group, inverse, left_side)
        else:
            quadratics.append((block.group, root))
    result = np.matmul(left_side, right_side.transpose(0, 2, 1))
    for group, root in quadratics:
        _add_quadratics(stack, group, root, (scaled, gammas), result)
    return result


def _smoothed(
    stack: GaussianStack, block: ConditionalBlock, gammas: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Inverse of P = Lambda_mm + 2 G, its root W with WᵀW = P⁻¹, and ½ log |I + 2 G V|."""
    n_components, group = stack.n_components, block.group
    index = np.tile(group.missing.T, n_components)
    component = np.repeat(np.arange(n_components), group.n_patterns)
    widened = gather_symmetric(stack.precisions, index, component)
    diagonal = np.arange(len(index))
    widened[diagonal, diagonal] += 2.0 * gammas[index]
    lower = cholesky(widened)
    root = invert_lower(lower)
    return gram_of_lower(root), root, log_diagonal(lower) - block.half_log_precisions


def _write_linear(
    stack: GaussianStack,
    X: FloatArray,
    block: ConditionalBlock,
    gammas: FloatArray,
    smoothed: tuple[FloatArray, FloatArray],
    left_side: FloatArray,
) -> None:
    """Fill in the columns [u, 1, c] of the left factor."""
    inverse, half_log_determinants = smoothed
    group, (size, n_components, n_rows) = block.group, block.deviations.shape
    missing = group.missing[group.pattern]
    pulled = gammas[missing].T[:, None] * block.deviations  # G m
    cases = inverse.reshape(size, size, n_components, -1)[..., group.pattern]
    shrinkage = multiply_symmetric(cases.reshape(size, size, -1), pulled.reshape(size, -1)).reshape(
        block.deviations.shape
    )
    moved = block.deviations - 2.0 * shrinkage  # u_m
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


def _coordinate_products(scaled: FloatArray) -> FloatArray:
    """Products t_i t_j, i >= j, of the coordinates of each point, (K, m, d (d + 1) / 2)."""
    i, j = np.tril_indices(scaled.shape[2])
    return scaled[:, :, i] * scaled[:, :, j]


def _write_products(
    stack: GaussianStack, group: PatternGroup, inverse: FloatArray, left_side: FloatArray
) -> None:
    """Fill in the coefficients of the products: 2 P⁻¹, twice that off the diagonal."""
    i, j = np.tril_indices(len(inverse))
    values = inverse[i, j] * np.where(i == j, 2.0, 4.0)[:, None]
    values = values.reshape(len(i), stack.n_components, -1).transpose(1, 2, 0)
    # the columns of a pattern ascend, so that (i, j) stays in the lower triangle
    row, column = group.missing[:, i], group.missing[:, j]
    position = stack.n_columns + 2 + row * (row + 1) // 2 + column
    left_side[:, group.rows[:, None], position[group.pattern]] = values[:, group.pattern]


def _add_quadratics(
    stack: GaussianStack,
    group: PatternGroup,
    root: FloatArray,
    scaled_and_gammas: tuple[FloatArray, FloatArray],
    result: FloatArray,
) -> None:
    """Add 2 |W t_m|² for the patterns of a group, each once per component."""
    scaled, gammas = scaled_and_gammas
    index, offset, sign = group.missing, None, 2.0
    points = np.ascontiguousarray(scaled.transpose(0, 2, 1))  # (K, d, m)
    if index.shape[1] > group.observed.shape[1]:
        points, root, offset = _complement(stack, group, points, gammas)
        index, sign = group.observed, -2.0
    n_components, n_points = len(points), points.shape[2]
    size = index.shape[1]
    roots = np.ascontiguousarray(
        root.reshape(size, size, n_components, group.n_patterns).transpose(2, 3, 0, 1)
    )
    n_patterns = max(1, _BLOCK_BYTES // (16 * n_components * max(size, 1) * n_points))
    for start in range(0, group.n_patterns, n_patterns):
        patterns = slice(start, start + n_patterns)
        vectors = roots[:, patterns] @ points[:, index[patterns]]
        quadratic = sign * np.einsum("kpdm,kpdm->kpm", vectors, vectors)
        if offset is not None:
            quadratic += 2.0 * offset[:, None]
        rows = slice(*np.searchsorted(group.pattern, [start, start + n_patterns]))
        result[:, group.rows[rows]] += quadratic[:, group.pattern[rows] - start]


def _complement(
    stack: GaussianStack, group: PatternGroup, points: FloatArray, gammas: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The quadratic form through the observed block of H = (Lambda + 2 G)⁻¹.

    Returns H t, the root of H_oo⁻¹ and tᵀ H t.
    """
    widened = stack.precisions + 2.0 * np.diag(gammas)
    smoothed = np.linalg.inv(widened)
    turned = smoothed @ points
    n_components = stack.n_components
    index: IntArray = np.tile(group.observed.T, n_components)
    component = np.repeat(np.arange(n_components), group.n_patterns)
    root = invert_lower(cholesky(gather_symmetric(smoothed, index, component)))
    return turned, root, np.einsum("kdm,kdm->km", points, turned)
