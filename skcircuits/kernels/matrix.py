"""Gram matrices of rows with holes: inner products of kernel mean embeddings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.exceptions import IncompatibleCircuitsError, must
from skcircuits.kernels.base import Kernel
from skcircuits.kernels.expected_kernel import check_kernel
from skcircuits.kernels.pair_pass import CircuitBatch, expected_term_of_pairs
from skcircuits.kernels.pair_plan import PairPlan, compile_pairs
from skcircuits.kernels.points import expected_term_at_points, posterior_weights
from skcircuits.kernels.terms import KernelTerm
from skcircuits.numerics.patterns import distinct_patterns, unique_rows
from skcircuits.parallel import Parallel, delayed, row_slices, working_memory_bytes
from skcircuits.protocols import FloatArray, IntArray

__all__ = ["expected_kernel_matrix"]

# Temporary arrays of a block stay near the cache.
BLOCK_BYTES = 2**24
# No block takes more rows than this, so that there is work for several processes.
BLOCK_ROWS = 256


def expected_kernel_matrix(
    X: Any, Y: Any = None, *, circuit: Circuit, kernel: Kernel, n_jobs: int | None = None
) -> FloatArray:
    """Kernel matrix of tables with holes: to them what ``rbf_kernel`` is to full tables.

    Entry (i, j) is the inner product of the kernel mean embeddings of the two rows under
    p(. | observed cells), on the diagonal too: a true Gram matrix, K(X) == K(X, X), equal
    rows have equal entries. It serves ``kernel="precomputed"`` of every kernel method.

    Parameters
    ----------
    X : array-like of shape (n, n_columns)
        Rows, NaN for unknown cells.
    Y : array-like of shape (m, n_columns), default=None
        Other rows; X itself when None.
    circuit : Circuit
        The distribution of the rows.
    kernel : Kernel
        Its value at complete rows.
    n_jobs : int, default=None
        Number of parallel jobs (see joblib). The result does not depend on it.

    Returns
    -------
    ndarray of shape (n, m)
        Expected kernel values.

    Raises
    ------
    IncompatibleCircuitsError
        If both rows of a pair have holes and the circuit is neither structured-decomposable
        nor a mixture of single units.
    CircuitPropertyError
        If an input unit has no closed-form expectation of the kernel.
    ZeroProbabilityError
        If the observed cells of a row are impossible.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Circuit, MultivariateGaussian
    >>> from skcircuits.kernels import RBF, expected_kernel_matrix
    >>> p = Circuit(MultivariateGaussian([0, 1], [0.0, 0.0], [[1.0, 0.8], [0.8, 1.0]]))
    >>> X = np.array([[0.0, 0.0], [1.0, np.nan]])
    >>> expected_kernel_matrix(X, circuit=p, kernel=RBF(gamma=0.5)).round(3)
    array([[1.   , 0.411],
           [0.411, 0.762]])
    """
    terms = check_kernel(kernel, circuit)
    rows = _distinct_rows(_table(circuit, X, "X"), circuit)
    other = rows if Y is None else _distinct_rows(_table(circuit, Y, "Y"), circuit)
    symmetric = Y is None or (
        rows.X.shape == other.X.shape and np.array_equal(rows.X, other.X, equal_nan=True)
    )
    result = np.empty((len(rows.X), len(other.X)))
    result[np.ix_(rows.complete, other.complete)] = kernel(
        rows.X[rows.complete], other.X[other.complete]
    )
    tasks = _point_tasks(circuit, terms, rows, other)
    if not symmetric:
        tasks += [task.transposed() for task in _point_tasks(circuit, terms, other, rows)]
    tasks += _pair_tasks(circuit, terms, rows, other, symmetric)
    blocks = Parallel(n_jobs=n_jobs)(delayed(task.compute)() for task in tasks)
    for task, block in zip(tasks, blocks):
        _write(result, task.rows, task.columns, block)
        if symmetric:
            _write(result, task.columns, task.rows, block.T)
    return _repeat(_repeat(result, rows.inverse, 0), other.inverse, 1)


def _write(result: FloatArray, rows: IntArray, columns: IntArray, block: FloatArray) -> None:
    """Write a block; a run of columns is written as one."""
    if len(columns) == columns[-1] - columns[0] + 1 and (np.diff(columns) == 1).all():
        result[rows, columns[0] : columns[-1] + 1] = block
    else:
        result[np.ix_(rows, columns)] = block


def _repeat(result: FloatArray, inverse: IntArray, axis: int) -> FloatArray:
    """Give equal rows their copies; nothing is copied where all rows differ."""
    if len(inverse) == result.shape[axis]:
        return result
    return np.take(result, inverse, axis=axis)


class _Rows(NamedTuple):
    """The distinct rows of a table, sorted by pattern of missing cells."""

    X: FloatArray
    inverse: IntArray
    complete: IntArray
    incomplete: IntArray


def _distinct_rows(X: FloatArray, circuit: Circuit) -> _Rows:
    """Find equal rows; columns the circuit does not have are ignored (set to zero)."""
    table = np.zeros_like(X)
    own = list(circuit.variables)
    table[:, own] = X[:, own]
    first, inverse = unique_rows(table)
    table = table[first]
    missing = np.isnan(table)
    _, pattern = distinct_patterns(missing)
    order = np.argsort(pattern, kind="stable")
    has_holes = np.asarray(missing.any(axis=1))
    return _Rows(
        table,
        inverse,
        np.flatnonzero(~has_holes),
        order[has_holes[order]],
    )


class _Task(NamedTuple):
    """One block of the matrix: which rows and columns, and what computes it."""

    rows: IntArray
    columns: IntArray
    circuit: Circuit
    terms: list[KernelTerm]
    X: FloatArray
    Y: FloatArray
    pairs: PairPlan | None = None
    turned: bool = False

    def transposed(self) -> _Task:
        """The block on the other side of the diagonal."""
        return self._replace(rows=self.columns, columns=self.rows, turned=not self.turned)

    def compute(self) -> FloatArray:
        """Compute the block; each term is integrated by one pass."""
        plan = self.circuit.plan
        if self.pairs is None:
            parts = [expected_term_at_points(plan, term, self.X, self.Y) for term in self.terms]
        else:
            sides = [CircuitBatch(plan, posterior_weights(plan, Z), Z) for Z in (self.X, self.Y)]
            parts = [expected_term_of_pairs(self.pairs, term, *sides) for term in self.terms]
        block = np.sum(parts, axis=0) if len(parts) > 1 else parts[0]
        return block.T if self.turned else block


def _point_tasks(
    circuit: Circuit, terms: list[KernelTerm], rows: _Rows, other: _Rows
) -> list[_Task]:
    """Rows with holes against complete rows."""
    if not len(rows.incomplete) or not len(other.complete):
        return []
    if not all(term.is_product for term in terms):
        return _blocks(circuit, terms, (rows, rows.incomplete), (other, other.complete))
    numbers = _block_bytes() // (8 * circuit.n_units)
    n_columns = min(len(other.complete), max(512, numbers // BLOCK_ROWS))
    n_rows = min(BLOCK_ROWS, max(1, numbers // n_columns))
    return [
        _Task(own, columns, circuit, terms, rows.X[own], other.X[columns])
        for own in (rows.incomplete[s] for s in row_slices(len(rows.incomplete), n_rows))
        for columns in (other.complete[s] for s in row_slices(len(other.complete), n_columns))
    ]


def _pair_tasks(
    circuit: Circuit, terms: list[KernelTerm], rows: _Rows, other: _Rows, symmetric: bool
) -> list[_Task]:
    """Rows with holes against rows with holes; one triangle of blocks when symmetric."""
    if not len(rows.incomplete) or not len(other.incomplete):
        return []
    return _blocks(circuit, terms, (rows, rows.incomplete), (other, other.incomplete), symmetric)


def _blocks(
    circuit: Circuit,
    terms: list[KernelTerm],
    left: tuple[_Rows, IntArray],
    right: tuple[_Rows, IntArray],
    symmetric: bool = False,
) -> list[_Task]:
    """Square blocks of pairs of conditional circuits."""
    pairs = _compile_self_pairs(circuit)
    n_axes = max(int(np.prod(term.axis_shape)) for term in terms)
    n_pairs = _block_bytes() // (8 * pairs.doubles_per_pair * n_axes)
    side = min(BLOCK_ROWS, max(1, int(n_pairs**0.5)))
    tasks = []
    for a, own in enumerate(row_slices(len(left[1]), side)):
        for b, others in enumerate(row_slices(len(right[1]), side)):
            if symmetric and b < a:
                continue
            rows, columns = left[1][own], right[1][others]
            X, Y = left[0].X[rows], right[0].X[columns]
            tasks.append(_Task(rows, columns, circuit, terms, X, Y, pairs))
    return tasks


def _compile_self_pairs(circuit: Circuit) -> PairPlan:
    """Pair the circuit with itself; explains what rows with holes on both sides need."""
    try:
        return compile_pairs(circuit.plan, circuit.plan)
    except IncompatibleCircuitsError as error:
        raise IncompatibleCircuitsError(
            must(
                "a circuit",
                "be structured-decomposable (or a mixture of single units) for a kernel between "
                "two rows that both have holes",
                "Compare rows with holes against complete rows only, or use another density "
                f"such as a Gaussian mixture. Detail: {error}",
            )
        ) from error


def _block_bytes() -> int:
    """Bytes of temporary arrays of one block."""
    return min(BLOCK_BYTES, working_memory_bytes() // 2)


def _table(circuit: Circuit, X: Any, name: str) -> FloatArray:
    """Check a table of rows: the circuit knows what it needs."""
    table = np.asarray(X, dtype=np.float64)
    if table.ndim != 2 or table.shape[1] < circuit.plan.n_columns:
        raise ValueError(
            must(
                name,
                f"be a table with at least {circuit.plan.n_columns} columns",
                shape=table.shape,
            )
        )
    if np.isinf(table).any():
        raise ValueError(must(f"cells of {name}", "be finite or NaN"))
    return table
