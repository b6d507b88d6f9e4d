"""Pair tables with prescribed margins: Sinkhorn scaling and its derivative.

Every positive table with margins r and c is exp(Θ) with its rows and columns rescaled, for
some Θ; the Θ that give the same table differ by a function of the row plus a function of the
column. So Θ is an unconstrained parameter that covers all consistent pair tables, for any
number of states. All functions here work on many tables of one shape at once.
"""

from __future__ import annotations

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray

__all__ = ["margin_gradient", "scale_to_margins"]

_RELATIVE_TOLERANCE = 1e-14  # error of a column sum that counts as rounding, per added cell
_ABSOLUTE_TOLERANCE = 1e-15  # rows and columns themselves add up to one no better than this
_MAX_NEWTON_STEPS = 200
_LONGEST_STEP = 2.0  # in log units; a plain Newton step overshoots where the dual is flat


def scale_to_margins(tables: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Rescale rows and columns of positive tables until the margins are met.

    The row scales are eliminated exactly; the column scales minimise the convex function
    ``Σ_a r_a log Σ_b T_ab exp(g_b) - Σ_b c_b g_b`` by Newton steps, which converge
    quadratically where alternating row and column scaling (Sinkhorn, 1967) crawls.

    Parameters
    ----------
    tables : ndarray of shape (n_tables, n_rows, n_columns)
        Positive tables.
    rows : ndarray of shape (n_tables, n_rows)
        Positive row sums to reach, each summing to one.
    columns : ndarray of shape (n_tables, n_columns)
        Positive column sums to reach, each summing to one.

    Returns
    -------
    ndarray of shape (n_tables, n_rows, n_columns)
        The scaled tables.

    Raises
    ------
    FloatingPointError
        If the tables cannot be brought to the margins in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.trees import scale_to_margins
    >>> half = np.array([[0.5, 0.5]])
    >>> scale_to_margins(np.array([[[4.0, 1.0], [1.0, 4.0]]]), half, half)
    array([[[0.4, 0.1],
            [0.1, 0.4]]])
    """
    scaled = _scale_rows(tables, rows)
    # Rows are exact after every step, so only the columns can miss.
    for _ in range(_MAX_NEWTON_STEPS):
        sums = scaled.sum(axis=1)
        misfit = np.abs(sums - columns)
        rounding = _RELATIVE_TOLERANCE * scaled.shape[1] * columns + _ABSOLUTE_TOLERANCE
        if np.all(misfit <= rounding):
            return scaled
        # The curvature is a Laplacian and the misfit sums to zero: always solvable.
        step = _solve_curvature(scaled, rows, columns - sums)
        scaled *= np.exp(np.clip(step, -_LONGEST_STEP, _LONGEST_STEP))[:, None, :]
        scaled = _scale_rows(scaled, rows)
    raise FloatingPointError(
        must(
            "pair tables",
            "be scalable to their margins",
            "Use more smoothing (pseudo_count) or a smaller learning_rate.",
            misfit=float(misfit.max()),
        )
    )


def margin_gradient(
    tables: FloatArray, rows: FloatArray, columns: FloatArray, gradient: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pull a gradient back through `scale_to_margins`, by implicit differentiation.

    With P the scaled table, ``d log P_ab = dΘ_ab + df_a + dg_b`` and the margins fix df and
    dg: ``[[diag(r), P], [Pᵀ, diag(c)]] [df; dg] = [dr - (P∘dΘ)1; dc - (P∘dΘ)ᵀ1]``. Its
    adjoint needs the same symmetric system once.

    Parameters
    ----------
    tables : ndarray of shape (n_tables, n_rows, n_columns)
        Tables returned by `scale_to_margins`.
    rows, columns : ndarray of shape (n_tables, n_rows) and (n_tables, n_columns)
        Their margins.
    gradient : ndarray of shape (n_tables, n_rows, n_columns)
        Derivatives with respect to the logarithms of the scaled tables.

    Returns
    -------
    by_logits : ndarray of shape (n_tables, n_rows, n_columns)
        Derivatives with respect to Θ, the logarithms of the tables before scaling.
    by_rows, by_columns : ndarray of shape (n_tables, n_rows) and (n_tables, n_columns)
        Derivatives with respect to the margins (up to one constant per table and side,
        because a margin sums to one).
    """
    # Eliminate the rows (diagonal block), solve for the columns, substitute back.
    row_sums, column_sums = gradient.sum(axis=2), gradient.sum(axis=1)
    by_columns = _solve_curvature(
        tables, rows, column_sums - _weighted_sum(tables, row_sums / rows)
    )
    by_rows = (row_sums - np.matmul(tables, by_columns[:, :, None])[:, :, 0]) / rows
    by_logits = by_rows[:, :, None] + by_columns[:, None, :]
    by_logits *= tables
    np.subtract(gradient, by_logits, out=by_logits)
    return by_logits, by_rows, by_columns


def _scale_rows(tables: FloatArray, rows: FloatArray) -> FloatArray:
    return tables * (rows / tables.sum(axis=2))[:, :, None]


def _weighted_sum(tables: FloatArray, weights: FloatArray) -> FloatArray:
    return np.matmul(weights[:, None, :], tables)[:, 0, :]


def _solve_curvature(tables: FloatArray, rows: FloatArray, right: FloatArray) -> FloatArray:
    """Solve (diag(c) - Pᵀ diag(1/r) P) g = right with the last entry of g at zero.

    The matrix is a graph Laplacian over the columns (its rows sum to zero), so its diagonal
    is minus the sum of the rest: no cancellation for nearly functional tables.
    """
    curvature = -np.matmul((tables / rows[:, :, None]).transpose(0, 2, 1), tables)
    solution = np.zeros_like(right)
    n_columns = tables.shape[2]
    # The constant vector is in the null space; pinning the last entry makes it definite.
    if n_columns == 2:
        solution[:, 0] = right[:, 0] / -curvature[:, 0, 1]
    elif n_columns > 2:
        diagonal = np.arange(n_columns)
        curvature[:, diagonal, diagonal] = 0.0
        curvature[:, diagonal, diagonal] = -curvature.sum(axis=2)
        solved = np.linalg.solve(curvature[:, :-1, :-1], right[:, :-1, None])
        solution[:, :-1] = solved[:, :, 0]
    return solution
