"""Moments of inner products of rows with missing cells under a stack of Gaussians."""

from __future__ import annotations

from math import factorial

import numpy as np

from skcircuits.numerics._gaussian_conditionals import complete_rows
from skcircuits.numerics._gaussian_stack import GaussianStack
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["inner_product_moments"]


def inner_product_moments(
    stack: GaussianStack, X: FloatArray, Y: FloatArray, columns: IntArray, degree: int
) -> FloatArray:
    r"""Compute E[(Σ_j x_j y_j)^i] for all powers i up to a degree.

    Parameters
    ----------
    stack : GaussianStack
        K Gaussians over d columns.
    X : ndarray of shape (n, d)
        Rows, NaN for missing cells.
    Y : ndarray of shape (m, d)
        Rows, NaN for missing cells.
    columns : ndarray of int
        Columns j of the sum.
    degree : int
        Highest power.

    Returns
    -------
    ndarray of shape (degree + 1, K, K, n, m)
        Entry (i, k, l, a, b): row a of X completed by component k, row b of Y by component
        l, independent of each other.

    Notes
    -----
    With the conditional means m and covariances V of both rows, the logarithm of
    :math:`E[\exp(s\, x^T y)]`, a Gaussian integral, has the power series

    .. math::

        \sum_{k \ge 0} s^{2k+1}\, m_y^T (V_x V_y)^k m_x
        + \sum_{k \ge 1} \tfrac12 s^{2k} \left[ \tfrac1k \operatorname{tr} (V_x V_y)^k
        + m_x^T V_y (V_x V_y)^{k-1} m_x + m_y^T (V_x V_y)^{k-1} V_x m_y \right],

    from which the moments follow one by one.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.kernels.integrals._gaussian_inner_products import inner_product_moments
    >>> from skcircuits.numerics._gaussian_stack import GaussianStack
    >>> stack = GaussianStack(np.zeros((1, 1)), np.ones((1, 1, 1)))
    >>> X = np.array([[np.nan], [3.0]])
    >>> inner_product_moments(stack, X, X, np.array([0]), degree=2)[2, 0, 0]
    array([[ 1.,  9.],
           [ 9., 81.]])
    """
    left, right = _Cases(stack, X, columns), _Cases(stack, Y, columns)
    series = _log_series(left, right, degree)
    shape = stack.n_components, len(X), stack.n_components, len(Y)
    moments = _exponential(series) * _factorials(degree)[:, None, None]
    return moments.reshape(degree + 1, *shape).transpose(0, 1, 3, 2, 4)


class _Cases:
    """Means (N, d) and covariances (N, d, d) of all pairs of a component and a row.

    Covariances of equal patterns are stored once as ``distinct`` (K * P, d, d); case i has
    number ``number[i]``.
    """

    def __init__(self, stack: GaussianStack, X: FloatArray, columns: IntArray) -> None:
        rows = complete_rows(stack, X)
        size, n_patterns = len(columns), rows.covariances.shape[3]
        self.means = np.ascontiguousarray(rows.means[columns].reshape(size, -1).T)
        distinct = rows.covariances[np.ix_(columns, columns)].reshape(size, size, -1)
        self.distinct = np.ascontiguousarray(distinct.transpose(2, 0, 1))
        self.number = (np.arange(stack.n_components)[:, None] * n_patterns + rows.pattern).ravel()

    @property
    def covariances(self) -> FloatArray:
        return self.distinct[self.number]


def _log_series(left: _Cases, right: _Cases, degree: int) -> FloatArray:
    """Coefficients of s, s², ... in log E[exp(s x·y)], shape (degree, N, M)."""
    shape = len(left.means), len(right.means)
    series = np.empty((degree, *shape))
    if degree:
        series[0] = left.means @ right.means.T
    if degree < 2:
        return series
    series[1::2] = _trace_terms(left, right, degree // 2)
    # forth = ... V_x V_y m_x and back = ... V_y V_x m_y, one more factor each time
    covariances = left.covariances, right.covariances
    forth = np.broadcast_to(left.means[:, None], (*shape, left.means.shape[1]))
    back = np.broadcast_to(right.means, forth.shape)
    for power in range(1, degree):
        if power % 2:
            forth, back = _times_right(forth, covariances[1]), back @ covariances[0]
            series[power] += 0.5 * np.einsum("nmd,nd->nm", forth, left.means)
            series[power] += 0.5 * np.einsum("nmd,md->nm", back, right.means)
        else:
            forth, back = forth @ covariances[0], _times_right(back, covariances[1])
            series[power] = np.einsum("nmd,md->nm", forth, right.means)
    return series


def _times_right(vectors: FloatArray, covariances: FloatArray) -> FloatArray:
    """Multiply vectors (N, M, d) by the covariances (M, d, d) of the right cases."""
    return (vectors.transpose(1, 0, 2) @ covariances).transpose(1, 0, 2)


def _trace_terms(left: _Cases, right: _Cases, n_powers: int) -> FloatArray:
    """tr((V_x V_y)^k) / 2k for k = 1, 2, ..., once per pair of distinct covariances."""
    traces = np.empty((n_powers, len(left.distinct), len(right.distinct)))
    flat = left.distinct.reshape(len(left.distinct), -1)
    traces[0] = flat @ right.distinct.reshape(len(right.distinct), -1).T / 2.0
    if n_powers > 1:
        for number, covariance in enumerate(left.distinct):
            product = power = covariance @ right.distinct
            for k in range(1, n_powers):
                power = power @ product
                traces[k, number] = np.einsum("pdd->p", power) / (2 * (k + 1))
    return traces[:, left.number[:, None], right.number]


def _exponential(series: FloatArray) -> FloatArray:
    """Coefficients 1, s, s², ... of exp(Σ_i c_i s^i): n e_n = Σ_i i c_i e_{n-i}."""
    result = np.ones((len(series) + 1, *series.shape[1:]))
    for n in range(1, len(result)):
        terms = [i * series[i - 1] * result[n - i] for i in range(1, n + 1)]
        result[n] = np.sum(terms, axis=0) / n
    return result


def _factorials(degree: int) -> FloatArray:
    return np.array([float(factorial(i)) for i in range(degree + 1)])
