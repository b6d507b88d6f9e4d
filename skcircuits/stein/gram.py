"""Stein Gram matrices in blocks of rows, with duplicate rows computed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from skcircuits.exceptions import CircuitPropertyError, invalid, must
from skcircuits.graphical import FactorGraph
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._patterns import unique_rows
from skcircuits.parallel import (
    Parallel,
    delayed,
    row_slices,
    shares_memory,
    single_threaded_blas,
    thread_map,
)
from skcircuits.protocols import FloatArray, IntArray
from skcircuits.stein._measures import (
    MAX_SECONDS,
    OPERATORS,
    Measures,
    ProductTerm,
    check_joint_states,
    estimated_seconds,
    point_block,
    product_block,
    product_terms,
    row_measures,
    rows_block,
    shared_block,
    state_vectors,
    stein_measures,
)
from skcircuits.stein._targets import is_continuous, without_other_columns
from skcircuits.stein.langevin import langevin_block, radial_profile, score_points

# Blocks this small stay in the cache; a task is large enough to be worth sending to a
# worker. Both are fixed, so that results do not depend on the number of workers.
_BLOCK_ROWS = 376
_TASK_ROWS = 512

# The Stein kernel between two slices of whatever the rows were prepared as.
Block = Callable[[Any, Any], FloatArray]


def stein_gram(
    X: ArrayLike,
    target: Any,
    kernel: Any,
    *,
    operator: str | None = None,
    collapse: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> FloatArray:
    """Compute the Stein kernel of all pairs of rows.

    Parameters
    ----------
    X : array-like of shape (n, d)
        Samples: states of a categorical target (NaN for collapsed variables), or points.
    target : object
        A categorical target (``log_prob_unnormalized`` and ``cardinalities``) or a
        continuous one (``grad_log_prob``).
    kernel : kernel object
        The base kernel, ``kernel(X, Y)`` of shape (n, m).
    operator : {"barker", "difference", "langevin"}, default=None
        The Stein operator; by default "barker" for categorical and "langevin" for
        continuous targets.
    collapse : array-like, default=None
        Variables that are summed out: indices that apply to all rows, or a mask of shape (n, d).
    n_jobs : int, default=None
        Number of workers that compute blocks of the matrix.

    Returns
    -------
    ndarray of shape (n, n)
        Symmetric positive semi-definite matrix. ``wᵀ K w`` is the squared Stein discrepancy of the
        weighted samples.

    Notes
    -----
    With the difference operator, collapsed entries are the published conditional kernel, the
    expectation of the Stein kernel under both conditional distributions. With the Barker operator,
    they are the Stein kernel of the marginal ``p(x_s)`` for the base kernel ``k_s(a, b) E[k_c]``.

    Examples
    --------
    >>> from skcircuits.graphical import IsingModel
    >>> from skcircuits.kernels import Hamming
    >>> from skcircuits.stein import stein_gram
    >>> model = IsingModel.grid(1, 2, couplings=0.5)
    >>> stein_gram([[0, 0], [0, 1]], model, Hamming(scale=2.0)).round(3)
    array([[ 0.114, -0.061],
           [-0.061,  0.841]])
    """
    K, which = distinct_gram(
        collapse_cells(X, collapse), target, kernel, operator=operator, n_jobs=n_jobs
    )
    return K if len(K) == len(which) else K[np.ix_(which, which)]


def collapse_cells(X: ArrayLike, collapse: ArrayLike | None) -> FloatArray:
    """Replace collapsed cells by NaN."""
    rows = float_array(X, "X").copy()  # a copy: cells are overwritten below
    if rows.ndim != 2:
        raise invalid("X", "be two-dimensional", shape=rows.shape)
    if collapse is None:
        return rows
    try:
        cells = np.asarray(collapse)
    except ValueError as error:  # lists of unequal lengths
        raise invalid("collapse", f"be an array. It is not: {error}") from error
    if not cells.size:
        return rows
    if cells.dtype == bool and cells.shape == rows.shape:
        rows[cells] = np.nan
    elif cells.ndim == 1 and np.issubdtype(cells.dtype, np.integer):
        if not 0 <= cells.min() <= cells.max() < rows.shape[1]:
            raise invalid("collapse", f"be below {rows.shape[1]}, from 0", collapse=cells.tolist())
        rows[:, cells] = np.nan
    else:
        condition = f"be indices of variables or a boolean mask of shape {rows.shape}"
        raise invalid("collapse", condition, dtype=str(cells.dtype), shape=cells.shape)
    return rows


def distinct_gram(
    X: FloatArray,
    target: Any,
    kernel: Any,
    *,
    operator: str | None = None,
    n_jobs: int | None = None,
) -> tuple[FloatArray, IntArray]:
    """Compute the Stein Gram matrix of the distinct rows."""
    X = without_other_columns(target, X)
    # Chains stay in place and samples repeat: equal rows are computed once.
    first, which = unique_rows(X)
    block, rows = prepare(X[first], target, kernel, operator, n_jobs)
    return symmetric_gram(block, rows, X[first], n_jobs), which


def symmetric_gram(block: Block, rows: Any, X: FloatArray, n_jobs: int | None = None) -> FloatArray:
    """Compute the matrix of all pairs of rows X from their prepared form."""
    # An overflow is told by the error below, once.
    with np.errstate(over="ignore", invalid="ignore"):
        K = _symmetric_blocks(block, rows, len(X), n_jobs)
    # One bad row spoils a cell of all others, but only its own diagonal cell.
    finite_kernel(K.diagonal()[:, None], X)
    return finite_kernel(K, X, n_jobs)


def finite_kernel(values: FloatArray, X: FloatArray, n_jobs: int | None = None) -> FloatArray:
    """Give back kernel values of rows, (n, m), if all are finite."""
    parts = [(values[part],) for part in row_slices(len(values), _BLOCK_ROWS)]
    rows = thread_map(lambda part: np.isfinite(part).all(axis=1), parts, n_jobs)
    finite = np.concatenate(rows) if rows else np.ones(0, dtype=bool)
    if not finite.all():
        way_out = "Check the target, its score function and the kernel at this row."
        raise invalid("Stein kernel", "be finite", way_out, row=X[int(finite.argmin())].tolist())
    return values


def _symmetric_blocks(block: Block, rows: Any, n_rows: int, n_jobs: int | None) -> FloatArray:
    """Compute the upper triangle block by block and mirror it."""
    K = np.empty((n_rows, n_rows))
    if shares_memory():
        parts = [(part, rows[part]) for part in row_slices(n_rows, _BLOCK_ROWS)]

        def fill(first: tuple[slice, Any], second: tuple[slice, Any]) -> None:
            _place(K, first[0], second[0], block(first[1], second[1]))

        pairs = [(first, second) for i, first in enumerate(parts) for second in parts[i:]]
        thread_map(fill, pairs, n_jobs)
        return K
    stripes = row_slices(n_rows, _TASK_ROWS)
    # All tasks share one object, which joblib writes to memory that its processes share.
    with single_threaded_blas():
        computed = Parallel(n_jobs=n_jobs)(
            delayed(_stripe)(block, rows, stripe, n_rows) for stripe in stripes
        )
    for blocks in computed:
        for first, second, values in blocks:
            _place(K, first, second, values)
    return K


def _place(K: FloatArray, first: slice, second: slice, values: FloatArray) -> None:
    """Write one block, and its mirror image."""
    # Rounding differs between the halves of a diagonal block: keep one of them.
    part = np.triu(values) + np.triu(values, 1).T if first == second else values
    K[first, second] = part
    K[second, first] = part.T


def _stripe(
    block: Block, rows: Any, stripe: slice, n_rows: int
) -> list[tuple[slice, slice, FloatArray]]:
    """Compute the blocks of some rows that are not below the diagonal."""
    parts = row_slices(n_rows, _BLOCK_ROWS)
    return [
        (first, second, block(rows[first], rows[second]))
        for i, first in enumerate(parts)
        if stripe.start <= first.start < stripe.stop
        for second in parts[i:]
    ]


def prepare(
    X: FloatArray, target: Any, kernel: Any, operator: str | None, n_jobs: int | None = None
) -> tuple[Block, Any]:
    """Choose how blocks are computed, and prepare the arrays that blocks slice."""
    if is_continuous(target):
        _check_operator(operator, ("langevin",), "continuous")
        if not np.isfinite(X).all():
            way_out = "Only categorical variables can be collapsed."
            raise invalid("points of a continuous target", "be complete and finite", way_out)
        return partial(langevin_block, profile=radial_profile(kernel)), score_points(target, X)
    operator = "barker" if operator is None else operator
    _check_operator(operator, tuple(OPERATORS), "categorical")
    # The target is evaluated only here; blocks do not need it.
    measures = stein_measures(target, X, operator, n_jobs)
    measures.warn_of_zeros(getattr(target, "variable_names", None))
    terms = product_terms(kernel, measures.counts)
    if np.isnan(X).any():
        return _prepare_collapsed(measures, target, _collapsible_terms(target, terms, kernel))
    if terms is None:
        return partial(point_block, kernel=kernel), measures
    return partial(product_block, terms=terms), state_vectors(measures).prepared(terms, n_jobs)


def _prepare_collapsed(
    measures: Measures, target: FactorGraph, terms: list[ProductTerm]
) -> tuple[Block, Any]:
    # One structure for all rows is far cheaper than one for each.
    hidden = np.isnan(measures.X)
    if (hidden == hidden[0]).all():
        posterior = target.posterior(hidden[0].nonzero()[0])
        seconds = estimated_seconds(posterior, len(hidden), measures.counts)
        if seconds > MAX_SECONDS:
            what = "collapsed variables"
            condition = f"be cheap to sum out (at most about {MAX_SECONDS:.0f} s)"
            way_out = "Collapse fewer variables, or pass fewer rows."
            raise CircuitPropertyError(
                must(what, condition, way_out, estimated_seconds=float(f"{seconds:.2g}"))
            )
        return partial(shared_block, posterior=posterior, terms=terms), measures
    check_joint_states(measures.counts, min(len(hidden), _BLOCK_ROWS))
    block = partial(rows_block, counts=measures.counts, terms=terms)
    return block, row_measures(measures, target)


def _check_operator(operator: str | None, known: tuple[str, ...], kind: str) -> None:
    is_known = isinstance(operator, str) and operator in known
    if operator is not None and not is_known:
        raise invalid(f"operator for a {kind} target", f"be one of {known}", operator=operator)


def _collapsible_terms(
    target: Any, terms: list[ProductTerm] | None, kernel: Any
) -> list[ProductTerm]:
    if not isinstance(target, FactorGraph):
        condition = "be a FactorGraph, BayesianNetwork or IsingModel"
        way_out = "Other targets do not provide conditional distributions."
        raise TypeError(
            must("target of collapsed samples", condition, way_out, target=type(target).__name__)
        )
    if terms is None:
        condition = "be a sum of products over the variables"
        way_out = "Use Hamming, Delta, RBF, Laplacian or sums and products of them."
        raise CircuitPropertyError(
            must("kernel of collapsed samples", condition, way_out, kernel=kernel)
        )
    return terms
