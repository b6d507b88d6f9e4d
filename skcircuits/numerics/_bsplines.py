"""B-splines as densities: basis functions of integral one, their pieces and moments.

All functions are batched over splines (leading axis L) of one degree with equal numbers of
intervals. The basis is clamped: with P intervals and degree p it has P + p functions, and their
span contains every polynomial of degree p on the whole range.
"""

from __future__ import annotations

import numpy as np

from skcircuits.protocols import FloatArray


def knot_windows(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Knots t_k, ..., t_{k+p+1} of basis functions, (L, P + p, p + 2), of breakpoints (L, P + 1).

    Its moments are those of a random convex combination of these knots with coefficients
    uniform on the simplex (Curry and Schoenberg, 1966): the mean is the mean of the knots.
    """
    knots = _clamped_knots(breakpoints, degree)
    return np.lib.stride_tricks.sliding_window_view(knots, degree + 2, axis=1)


def uniform_weights(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Weights (L, P + p) of basis functions of breakpoints (L, P + 1) for the uniform density."""
    windows = knot_windows(breakpoints, degree)
    spans = breakpoints[:, -1:] - breakpoints[:, :1]
    return (windows[..., -1] - windows[..., 0]) / ((degree + 1) * spans)


def basis_cdf(x: FloatArray, breakpoints: FloatArray, degree: int) -> FloatArray:
    """Cumulative distribution functions (L, m, P + p) of the basis functions at x (L, m).

    The integral of function k is the sum of the unnormalised B-splines k+1, k+2, ... of degree p +
    1 (de Boor, 1978, chapter X, equation 33): positive terms only.
    """
    n_splines, n_pieces = breakpoints.shape[0], breakpoints.shape[1] - 1
    x = np.clip(x, breakpoints[:, :1], breakpoints[:, -1:])
    # One comparison per inner breakpoint: splines have few, and all points go at once
    piece = (x[:, :, None] >= breakpoints[:, None, 1:-1]).sum(axis=2)
    spline = np.arange(n_splines)[:, None]
    u = (x - breakpoints[spline, piece]) / np.diff(breakpoints)[spline, piece]
    pieces = _basis_pieces(breakpoints, degree + 1)[spline, piece]
    powers = u[..., None] ** np.arange(degree + 2)
    local = np.matmul(pieces, powers[..., None])[..., 0]
    values = np.zeros((*x.shape, n_pieces + degree + 1))
    np.put_along_axis(values, piece[:, :, None] + np.arange(degree + 2), local, axis=2)
    return np.cumsum(values[:, :, :0:-1], axis=2)[:, :, ::-1]


def density_pieces(breakpoints: FloatArray, weights: FloatArray) -> FloatArray:
    """Polynomial pieces of basis functions on breakpoints (L, P + 1) with weights (L, P + p).

    Coefficients (L, P, p + 1) of powers of u, from 0 to 1 over each interval, *per unit of u*.
    """
    n_pieces = breakpoints.shape[1] - 1
    degree = weights.shape[1] - n_pieces
    windows = knot_windows(breakpoints, degree)
    heights = weights * (degree + 1) / (windows[..., -1] - windows[..., 0])
    # Interval i sees the basis functions i, ..., i + p
    seen = np.lib.stride_tricks.sliding_window_view(heights, degree + 1, axis=1)
    pieces = np.einsum("lir,lird->lid", seen, _basis_pieces(breakpoints, degree))
    return pieces * np.diff(breakpoints)[..., None]


def _clamped_knots(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Repeat the end points so that the basis reaches them, shape (L, P + 1 + 2 p)."""
    left = np.repeat(breakpoints[:, :1], degree, axis=1)
    right = np.repeat(breakpoints[:, -1:], degree, axis=1)
    return np.concatenate([left, breakpoints, right], axis=1)


def _basis_pieces(breakpoints: FloatArray, degree: int) -> FloatArray:
    """Coefficients (L, P, p + 1, p + 1) of powers of u of B-spline i + r on interval i."""
    knots = _clamped_knots(breakpoints, degree)
    # The p knots up to the start of each interval, and the p from its end on
    around = np.lib.stride_tricks.sliding_window_view(knots, 2 * degree, axis=1)[:, 1:-1]
    before, after = around[..., :degree], around[..., degree:]
    starts, widths = breakpoints[:, :-1, None], np.diff(breakpoints)[..., None]
    local = np.zeros((*before.shape[:2], degree + 1, degree + 1))
    local[..., 0, 0] = 1.0
    for order in range(1, degree + 1):
        left, right = before[..., degree - order :], after[..., :order]
        # Cox and de Boor's recursion, on coefficients within each interval in place of values
        fractions = local[..., :order, :] / (right - left)[..., None]
        local[..., :order, :] = _times_line(fractions, right - starts, -widths)
        local[..., 1 : order + 1, :] += _times_line(fractions, starts - left, widths)
    return local


def _times_line(polynomial: FloatArray, constant: FloatArray, slope: FloatArray) -> FloatArray:
    """Multiply polynomials in u by constant + slope u."""
    product = polynomial * constant[..., None]
    product[..., 1:] += polynomial[..., :-1] * slope[..., None]
    return product
