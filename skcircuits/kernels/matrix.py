"""Gram matrices of incomplete rows: inner products of kernel mean embeddings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.circuits._policy import (
    JOINT_COLUMNS,
    PAIR_ROWS,
    POINT_BYTES,
    POINT_ROWS,
)
from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.circuits.engine._plan import Plan
from skcircuits.exceptions import IncompatibleCircuitsError, must
from skcircuits.kernels._points import (
    PointPlan,
    bytes_per_point_row,
    expected_kernel_products,
    expected_kernels_at_points,
    multiply_by_kernel,
    posterior_weights,
)
from skcircuits.kernels.families._structure import KernelStructure
from skcircuits.kernels.families.base import Kernel, require_floats, structure_of
from skcircuits.kernels.pairs._evaluation import CircuitBatch, expected_kernels
from skcircuits.kernels.pairs._plan import KernelPlan, PairPlan, compile_pairs, split_kernel
from skcircuits.numerics._arrays import float_array
from skcircuits.numerics._patterns import distinct_patterns, unique_rows
from skcircuits.parallel import (
    Parallel,
    delayed,
    memory_bound_chunks,
    row_slices,
    single_threaded_blas,
    working_memory_bytes,
)
from skcircuits.protocols import MAX_CELL, FloatArray, IntArray


def expected_kernel_matrix(
    X: Any, Y: Any = None, *, circuit: Circuit, kernel: Kernel, n_jobs: int | None = None
) -> FloatArray:
    """Compute the Gram matrix of a kernel between incomplete rows.

    Entry (i, j) is the inner product of the kernel mean embeddings of the two rows under p(. |
    observed cells). This also holds on the diagonal, so that the result is a Gram matrix: K(X) ==
    K(X, X), and equal rows have equal entries. It can be used with ``kernel="precomputed"`` of
    every kernel method.

    Parameters
    ----------
    X : array-like of shape (n, n_columns)
        Rows, NaN for missing values.
    Y : array-like of shape (m, n_columns), default=None
        Other rows; X itself if None.
    circuit : Circuit
        The distribution of the rows.
    kernel : Kernel
        The kernel between complete rows.
    n_jobs : int, default=None
        Number of parallel jobs (see joblib); the result does not depend on it.

    Returns
    -------
    ndarray of shape (n, m)
        Expected kernel values.

    Raises
    ------
    IncompatibleCircuitsError
        If both rows of a pair are incomplete and the circuit is neither structured-decomposable nor
        a mixture of input units.
    CircuitPropertyError
        If an input unit has no closed-form expectation of the kernel.
    ZeroProbabilityError
        If the observed cells of a row have probability zero.

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
    rows = _distinct_rows(_table(circuit, X, "X"), circuit)
    other = rows if Y is None else _distinct_rows(_table(circuit, Y, "Y"), circuit)
    _refuse_huge(rows.X, other.X)
    structure = structure_of(kernel, circuit.variables)
    # Equal tables count as one, so that K(X, X) is K(X).
    symmetric = Y is None or (
        rows.X.shape == other.X.shape and np.array_equal(rows.X, other.X, equal_nan=True)
    )
    result = np.empty((len(rows.X), len(other.X)))
    tasks = _tasks(circuit, kernel, structure, rows, other, symmetric)
    blocks = Parallel(n_jobs=n_jobs)(delayed(task.matrix)() for task in tasks)
    for task, block in zip(tasks, blocks, strict=True):
        result[np.ix_(task.rows, task.columns)] = block
        if symmetric:
            result[np.ix_(task.columns, task.rows)] = block.T
    if symmetric:
        result = (result + result.T) / 2  # rounding differs across the diagonal
    require_floats(result)
    return _repeat(_repeat(result, rows.inverse, 0), other.inverse, 1)


def expected_kernel_dot(
    X: Any,
    Y: Any,
    coefficients: FloatArray,
    *,
    circuit: Circuit,
    kernel: Kernel,
    n_jobs: int | None = None,
) -> FloatArray:
    """Give ``expected_kernel_matrix(X, Y) @ coefficients``, of (m,) or (m, k), without a matrix."""
    rows = _distinct_rows(_table(circuit, X, "X"), circuit)
    other = _distinct_rows(_table(circuit, Y, "Y"), circuit)
    # Equal columns are computed once with the sum of their coefficients
    factors = np.zeros((len(other.X), *coefficients.shape[1:]))
    np.add.at(factors, other.inverse, coefficients)
    result = np.zeros((len(rows.X), *coefficients.shape[1:]))
    structure = structure_of(kernel, circuit.variables)
    tasks = _tasks(circuit, kernel, structure, rows, other, symmetric=False)
    parts = Parallel(n_jobs=n_jobs)(delayed(task.dot)(factors[task.columns]) for task in tasks)
    for task, part in zip(tasks, parts):
        result[task.rows] += part
    return require_floats(result)[rows.inverse]


def _repeat(result: FloatArray, inverse: IntArray, axis: int) -> FloatArray:
    """Expand to equal rows, without a copy if all rows differ."""
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
    table, own = X, list(circuit.variables)
    if len(own) < X.shape[1]:
        table = np.zeros_like(X)
        table[:, own] = X[:, own]
    first, inverse = unique_rows(table)
    if len(first) < len(table):
        table = table[first]
    missing = np.isnan(table)
    is_incomplete = np.asarray(missing.any(axis=1))
    incomplete = np.flatnonzero(is_incomplete)
    _, pattern = distinct_patterns(missing[incomplete])
    # Blocks of rows with one pattern share their factorisations.
    order = np.argsort(pattern, kind="stable")
    return _Rows(table, inverse, np.flatnonzero(~is_incomplete), incomplete[order])


class _Task(NamedTuple):
    """One block of the matrix: which rows and columns, and what computes it.

    With a kernel both sides are complete; with a ``PointPlan`` incomplete rows (X) meet complete
    points (Y); with a pair of plans the circuits of both sides are conditioned and paired.
    ``turned`` blocks have the points as rows.
    """

    rows: IntArray
    columns: IntArray
    plan: Kernel | PointPlan | tuple[PairPlan, KernelPlan]
    X: FloatArray
    Y: FloatArray
    turned: bool = False

    def transposed(self) -> _Task:
        """The block on the other side of the diagonal."""
        return self._replace(rows=self.columns, columns=self.rows, turned=not self.turned)

    def matrix(self) -> FloatArray:
        """Compute the block."""
        block = np.empty((len(self.X), len(self.Y)))
        for rows, values in self._parts():
            block[rows] = values
        return block.T if self.turned else block

    def dot(self, coefficients: FloatArray) -> FloatArray:
        """Compute the block times a vector or a matrix."""
        if self.turned:
            # Parts of a turned block are columns of the result, not rows
            return self.matrix() @ coefficients
        result = np.empty((len(self.X), *coefficients.shape[1:]))
        for rows, products in self._products(coefficients):
            result[rows] = products
        return result

    def _products(self, coefficients: FloatArray) -> Iterator[tuple[IntArray | slice, FloatArray]]:
        """Products of blocks of rows with a vector or a matrix."""
        if isinstance(self.plan, PointPlan):
            with single_threaded_blas():
                yield from expected_kernel_products(self.plan, self.X, self.Y, coefficients)
            return
        for rows, values in self._parts():
            yield rows, values @ coefficients

    def _parts(self) -> Iterator[tuple[IntArray | slice, FloatArray]]:
        """Blocks of rows, each row once."""
        if isinstance(self.plan, Kernel):
            yield slice(None), self.plan(self.X, self.Y)
            return
        with single_threaded_blas():  # its threads cost more than these products
            if isinstance(self.plan, PointPlan):
                yield from expected_kernels_at_points(self.plan, self.X, self.Y)
            else:
                pairs, kernel = self.plan
                left, right = _conditioned(pairs.left, self.X), _conditioned(pairs.left, self.Y)
                yield slice(None), expected_kernels(pairs, kernel, left, right)


def _conditioned(plan: Plan, X: FloatArray) -> CircuitBatch:
    """Circuits given the observed cells of rows; points, however improbable, are points."""
    if np.isnan(X[:, list(plan.variables)]).any():
        return CircuitBatch(plan, posterior_weights(plan, X), X)
    # All units of a region agree about a point, so any weights that sum to one will do.
    lengths = np.concatenate([np.empty(0, int), *(layer.lengths for layer in plan.sum_layers)])
    return CircuitBatch(plan, SumWeights(np.repeat(-np.log(lengths), lengths)), X)


def _tasks(
    circuit: Circuit,
    kernel: Kernel,
    structure: KernelStructure,
    rows: _Rows,
    other: _Rows,
    symmetric: bool,
) -> list[_Task]:
    """Cut the matrix into blocks; where both tables are the same, one triangle is enough."""
    tasks = _complete_tasks(kernel, rows, other, symmetric)
    has_points = len(rows.incomplete) and len(other.complete)
    has_turned = not symmetric and len(other.incomplete) and len(rows.complete)
    if has_points or has_turned:
        plan = multiply_by_kernel(circuit.plan, structure)
        tasks += _point_tasks(plan, rows, other) if has_points else []
        # The kernel is symmetric: points on the left are rows of a block on the right
        turned = _point_tasks(plan, other, rows) if has_turned else []
        tasks += [task.transposed() for task in turned]
    if len(rows.incomplete) and len(other.incomplete):
        tasks += _blocks(circuit, structure, rows, other, symmetric)
    return tasks


def _complete_tasks(kernel: Kernel, rows: _Rows, other: _Rows, symmetric: bool) -> list[_Task]:
    if not len(other.complete):
        return []
    chunks = memory_bound_chunks(
        len(rows.complete), 3 * 8 * len(other.complete), at_most=POINT_ROWS
    )
    return [
        _Task(own, columns, kernel, rows.X[own], other.X[columns])
        for chunk in chunks
        for own in [rows.complete[chunk]]
        for columns in [other.complete[chunk.start if symmetric else 0 :]]
    ]


def _point_tasks(plan: PointPlan, rows: _Rows, other: _Rows) -> list[_Task]:
    """Incomplete rows against complete rows."""
    n_points = len(other.complete)
    n_columns = min(n_points, max(512, POINT_BYTES // (8 * plan.plan.n_units)))
    bytes_per_row = 8 * n_columns + bytes_per_point_row(plan.plan)
    chunks = memory_bound_chunks(len(rows.incomplete), 2 * bytes_per_row, at_most=POINT_ROWS)
    tables = _cut(other, other.complete, row_slices(n_points, n_columns))
    # Patterns with equally many missing cells are factorised at once: few of these numbers in a
    # block
    n_missing = np.isnan(rows.X[rows.incomplete]).sum(axis=1)
    incomplete = rows.incomplete[np.argsort(n_missing, kind="stable")]
    return [
        _Task(own, columns, plan, X, Y)
        for own, X in _cut(rows, incomplete, chunks)
        for columns, Y in tables
    ]


def _cut(
    rows: _Rows, chosen: IntArray, chunks: Iterable[slice]
) -> list[tuple[IntArray, FloatArray]]:
    """Cut some rows into tables, one of each for all tasks."""
    return [(chosen[chunk], rows.X[chosen[chunk]]) for chunk in chunks]


def _blocks(
    circuit: Circuit, structure: KernelStructure, left: _Rows, right: _Rows, symmetric: bool
) -> list[_Task]:
    """Square blocks of pairs of conditional circuits."""
    pairs = _compile_self_pairs(circuit, structure)
    kernel = split_kernel(pairs, structure)
    # Prepared sides fit into the memory; the pass itself cuts pairs to the cache.
    bytes_per_row = 8 * (
        2 * pairs.numbers_per_circuit + circuit.n_units + len(circuit.plan.weights.log)
    )
    side = min(PAIR_ROWS, max(1, working_memory_bytes() // (4 * bytes_per_row)))
    joint = any(region.has_joint_inputs for region in pairs.regions)
    width = max(side, JOINT_COLUMNS // max(1, PAIR_ROWS // side)) if joint else side
    chunks = list(row_slices(len(left.incomplete), side))
    other_chunks = list(row_slices(len(right.incomplete), width))
    tables = _cut(left, left.incomplete, chunks)
    other_tables = _cut(right, right.incomplete, other_chunks)
    return [
        _Task(rows, columns, (pairs, kernel), X, Y)
        for chunk, (rows, X) in zip(chunks, tables, strict=True)
        for other, (columns, Y) in zip(other_chunks, other_tables, strict=True)
        # Blocks below the diagonal are mirrored
        if not symmetric or other.stop > chunk.start
    ]


def _compile_self_pairs(circuit: Circuit, structure: KernelStructure) -> PairPlan:
    """Pair the circuit with itself; errors explain the requirements of incomplete rows."""
    plan, order = circuit.plan, structure.variable_order
    try:
        # Grams are asked for table by table: few rows cost less than pairing the units.
        return plan.remember(
            ("pairs with itself", *order.items()), lambda: compile_pairs(plan, plan, order)
        )
    except IncompatibleCircuitsError as error:
        raise IncompatibleCircuitsError(
            must(
                "a circuit",
                "be structured-decomposable (or a mixture of single units) for a kernel between "
                "two incomplete rows",
                "Compare incomplete rows against complete ones only, or use another density "
                f"such as a Gaussian mixture. Detail: {error}",
            )
        ) from error


def _table(circuit: Circuit, X: Any, name: str) -> FloatArray:
    """Check a table of rows: the circuit knows what it needs."""
    if not isinstance(circuit, Circuit):
        way_out = "Pass density.circuit_ of a fitted density."
        raise TypeError(must("circuit", "be a Circuit", way_out, circuit=circuit))
    table = float_array(X, name)
    if table.ndim != 2 or table.shape[1] < circuit.plan.n_columns:
        condition = f"be a table with at least {circuit.plan.n_columns} columns"
        raise ValueError(must(name, condition, shape=table.shape))
    if np.isinf(table).any():
        raise ValueError(must(f"cells of {name}", "be finite or NaN"))
    return table


def _refuse_huge(*tables: FloatArray) -> None:
    """Refuse numbers whose squares overflow: differences of such squares are NaN."""
    largest = max(float(np.fmax.reduce(np.abs(table), axis=None, initial=0.0)) for table in tables)
    if largest > MAX_CELL:
        raise ValueError(
            must("cells", f"lie within ±{MAX_CELL:g}", "Scale the columns.", largest=largest)
        )
