"""Pair tables with prescribed marginals: Sinkhorn scaling and its derivative.

Every positive table with marginals r and c is exp(Θ) with its rows and columns rescaled, for
some Θ; the Θ that give the same table differ by a function of the row plus a function of the
column. So Θ is an unconstrained parameter that covers all consistent pair tables, for any
number of states. All functions here work on many tables of one shape at once.
"""

from __future__ import annotations

import numpy as np

from skcircuits.exceptions import must
from skcircuits.protocols import FloatArray

_RELATIVE_TOLERANCE = 1e-14  # error of a column sum that counts as rounding, per added cell
_ABSOLUTE_TOLERANCE = 1e-15  # rows and columns themselves add up to one no better than this
_MAX_NEWTON_STEPS = 200
_MAX_STEP = 2.0  # in log units; a plain Newton step overshoots where the dual is flat


def scale_to_marginals(tables: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Rescale rows and columns of positive tables until the marginals are met.

    The row scales are eliminated exactly; the column scales minimise the convex function ``Σ_a r_a
    log Σ_b T_ab exp(g_b) - Σ_b c_b g_b`` by Newton steps, which converge quadratically where
    alternating row and column scaling (Sinkhorn, 1967) crawls.

    `tables` (n_tables, n_rows, n_columns), `rows` (n_tables, n_rows), `columns` (n_tables,
    n_columns) -> (n_tables, n_rows, n_columns).
    """
    scaled = _scale_rows(tables, rows)
    # Sums of rows err by a rounding per column, all alike where rows are; some column bears it.
    absolute = _ABSOLUTE_TOLERANCE + np.finfo(float).eps * tables.shape[2]
    # Rows are exact after every step, so only the columns can miss.
    for _ in range(_MAX_NEWTON_STEPS):
        sums = scaled.sum(axis=1)
        misfit = np.abs(sums - columns)
        rounding = _RELATIVE_TOLERANCE * scaled.shape[1] * columns + absolute
        if np.all(misfit <= rounding):
            return scaled
        # The curvature is a Laplacian and the misfit sums to zero: always solvable.
        step = _solve_curvature(scaled, rows, columns - sums)
        scaled *= np.exp(np.clip(step, -_MAX_STEP, _MAX_STEP))[:, None, :]
        scaled = _scale_rows(scaled, rows)
    raise FloatingPointError(
        must(
            "pair tables",
            "be scalable to their marginals",
            "Use more smoothing (pseudo_count) or a smaller learning_rate.",
            misfit=float(misfit.max()),
        )
    )


def marginal_gradient(
    tables: FloatArray, rows: FloatArray, columns: FloatArray, gradient: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Pull a gradient back through `scale_to_marginals`, by implicit differentiation.

    With P the scaled table, ``d log P_ab = dΘ_ab + df_a + dg_b`` and the marginals fix df and dg:
    ``[[diag(r), P], [Pᵀ, diag(c)]] [df; dg] = [dr - (P∘dΘ)1; dc - (P∘dΘ)ᵀ1]``. Its adjoint needs
    the same symmetric system once.

    `tables` (n_tables, n_rows, n_columns), `rows`, `columns` (n_tables, n_rows) and (n_tables,
    n_columns), `gradient` (n_tables, n_rows, n_columns) -> `by_logits` (n_tables, n_rows,
    n_columns), `by_rows, by_columns` (n_tables, n_rows) and (n_tables, n_columns).
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
