"""Expected kernels of circuits, of incomplete rows and points, and their matrices."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.circuits._policy import (
    JOINT_COLUMNS,
    PAIR_ROWS,
    POINT_BYTES,
    POINT_ROWS,
    POINT_VALUES,
)
from skcircuits.circuits.engine._layers import SumLayer, SumWeights
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.structure.properties import are_compatible, require_compatible
from skcircuits.exceptions import (
    CircuitPropertyError,
    IncompatibleCircuitsError,
    invalid,
    must,
    require,
)
from skcircuits.kernels._points import (
    PointPlan,
    expected_kernel_products,
    expected_kernels_at_points,
    multiply_by_kernel,
    posterior_weights,
)
from skcircuits.kernels.families.base import Kernel, KernelStructure, require_floats, structure_of
from skcircuits.kernels.pairs._evaluation import (
    CircuitBatch,
    expected_kernels,
    require_closed_forms,
)
from skcircuits.kernels.pairs._plan import KernelPlan, PairPlan, compile_pairs, split_kernel
from skcircuits.numerics._arrays import float_array, listed
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


def expected_kernel(p: Circuit, q: Circuit, kernel: Kernel) -> float:
    """Compute M_k(p, q) = E[k(X, Y)] for independent X ~ p and Y ~ q exactly.

    Parameters
    ----------
    p, q : Circuit
        Compatible circuits over the same variables. For unnormalised circuits, the result is the
        integral.
    kernel : Kernel
        The kernel.

    Returns
    -------
    float
        The expected kernel.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits are not compatible. The message names two products with different
        decompositions.
    CircuitPropertyError
        If a pair of input units has no closed-form expectation of the kernel.

    Notes
    -----
    Li, Zeng, Vergari, Van den Broeck, "Tractable Computation of Expected Kernels", UAI 2021,
    Theorem 4.3 and Algorithm 1. The algorithm is one pass over pairs of units with the same scope
    and the corresponding parts of the kernel. The cost is the product of the sizes of p, of q and
    of the kernel.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import Delta, expected_kernel
    >>> round(expected_kernel(Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.2)), Delta()), 12)
    0.5
    """
    require("root", "a circuit", p=p, q=q)
    structure = structure_of(kernel, p.variables)
    require_compatible(p, q)
    pairs = compile_pairs(p.plan, q.plan, structure.variable_order)
    # Compatibility is decided here, from structure: no value is computed before
    parts = split_kernel(pairs, structure)
    value = expected_kernels(pairs, parts, _single(p.plan), _single(q.plan))
    return float(require_floats(value)[0, 0])


def mmd2(p: Circuit, q: Circuit, kernel: Kernel, *, n_jobs: int | None = None) -> float:
    """Compute the squared maximum mean discrepancy M(p, p) - 2 M(p, q) + M(q, q) exactly.

    Parameters
    ----------
    p, q : Circuit
        Compatible circuits over the same variables, each compatible with itself.
    kernel : Kernel
        The kernel.
    n_jobs : int, default=None
        Number of parallel jobs (see joblib); the result does not depend on it.

    Returns
    -------
    float
        Squared distance, zero for equal distributions. Negative rounding errors are set to zero for
        kernels that are certified to be positive definite.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits are not compatible.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import Delta, mmd2
    >>> round(mmd2(Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.2)), Delta()), 12)
    0.18
    """
    require("root", "a circuit", p=p, q=q)
    own, across, other = Parallel(n_jobs=n_jobs)(
        delayed(expected_kernel)(*pair, kernel) for pair in ((p, p), (p, q), (q, q))
    )
    value: float = own - 2.0 * across + other
    # Rounding may take a squared distance below zero; an indefinite kernel may mean it
    return max(value, 0.0) if kernel.is_positive_definite() else value


def is_kernel_compatible(kernel: Kernel, p: Circuit, q: Circuit) -> bool:
    """Check whether the expected kernel of two circuits can be computed exactly.

    The check uses only the structure. The circuits must be compatible, the kernel must not expand
    into too many terms when the variables are split, and every pair of input units must have a
    closed form.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    p, q : Circuit
        The circuits.

    Returns
    -------
    bool
        True if ``expected_kernel(p, q, kernel)`` can be computed.

    Examples
    --------
    >>> from skcircuits.circuits import Circuit, Gaussian
    >>> from skcircuits.kernels import RBF, Hamming, is_kernel_compatible
    >>> p = Circuit(Gaussian(0, 0.0, 1.0))
    >>> is_kernel_compatible(RBF(), p, p), is_kernel_compatible(Hamming(), p, p)
    (True, False)
    """
    require("root", "a circuit", p=p, q=q)
    if not are_compatible(p, q):
        return False
    structure = structure_of(kernel, p.variables)
    try:
        # The same steps as for the value, up to where numbers would be computed
        pairs = compile_pairs(p.plan, q.plan, structure.variable_order)
        require_closed_forms(pairs, split_kernel(pairs, structure))
    except (CircuitPropertyError, IncompatibleCircuitsError):
        return False
    return True


def _single(plan: Plan) -> CircuitBatch:
    """One circuit without evidence."""
    return CircuitBatch(plan, plan.weights, np.full((1, plan.n_columns), np.nan))


def circuit_kernel_matrix(
    circuits: Sequence[Circuit], others: Any = None, *, kernel: Kernel, n_jobs: int | None = None
) -> FloatArray:
    """Compute expected kernels of all pairs of two lists of circuits, or of circuits and points.

    Circuits that differ only in the weights of their sums, such as conditional distributions or the
    components of a mixture, are evaluated together by a few matrix products.

    Parameters
    ----------
    circuits : sequence of Circuit
        n circuits over the same variables. For unnormalised circuits, the results are integrals.
    others : sequence of Circuit or array-like of shape (m, n_columns), default=None
        Circuits over the same variables, or complete rows; None for ``circuits``.
    kernel : Kernel
        The kernel.
    n_jobs : int, default=None
        Number of parallel jobs (see joblib); the result does not depend on it.

    Returns
    -------
    ndarray of shape (n, m)
        E[k(X, Y)] for independent X and Y from the two circuits, or E[k(X, s)] for points s.

    Raises
    ------
    IncompatibleCircuitsError
        If two circuits to be compared are not compatible. Points can be compared with any smooth
        and decomposable circuit.
    CircuitPropertyError
        If an input unit has no closed-form expectation of the kernel.
    ValueError
        If points are incomplete or have too few columns.

    Notes
    -----
    Li, Zeng, Vergari, Van den Broeck, "Tractable Computation of Expected Kernels", UAI 2021,
    Theorem 4.3 and Algorithm 1.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit
    >>> from skcircuits.kernels import Delta, circuit_kernel_matrix
    >>> circuits = [Circuit(Bernoulli(0, p)) for p in (0.5, 0.2)]
    >>> circuit_kernel_matrix(circuits, kernel=Delta()).round(12)
    array([[0.5 , 0.5 ],
           [0.5 , 0.68]])
    >>> circuit_kernel_matrix(circuits, [[1.0]], kernel=Delta()).round(12)
    array([[0.5],
           [0.2]])
    """
    own = _groups(circuits)
    if not own:
        return np.zeros((0, 0 if others is None else len(listed(others, "others"))))
    structure = structure_of(kernel, circuits[0].variables)
    if others is not None and not _are_circuits(others):
        points = _complete_points(others, own[0].plan)
        blocks = Parallel(n_jobs=n_jobs)(
            delayed(_against_points)(group, structure, points) for group in own
        )
        result = np.empty((len(circuits), len(points)))
        for group, block in zip(own, blocks, strict=True):
            result[group.members] = block
        return require_floats(result)
    other = own if others is None else _groups(others)
    pairs = [
        (i, j) for i in range(len(own)) for j in range(len(other)) if others is not None or i <= j
    ]
    # Before any work is begun: an error names the circuits, not a task
    for i, j in pairs:
        require_compatible(own[i].circuit, other[j].circuit)
    blocks = Parallel(n_jobs=n_jobs)(
        delayed(_against_circuits)(own[i], other[j], structure) for i, j in pairs
    )
    result = np.empty((len(circuits), len(circuits if others is None else others)))
    for (i, j), block in zip(pairs, blocks, strict=True):
        result[np.ix_(own[i].members, other[j].members)] = block
        if others is None:
            result[np.ix_(other[j].members, own[i].members)] = block.T
    require_floats(result)
    # Rounding differs across the diagonal.
    return (result + result.T) / 2 if others is None else result


class _Group(NamedTuple):
    """Circuits of one structure with equal input units: a circuit, weights (n_edges, batch)."""

    circuit: Circuit
    log_weights: FloatArray
    members: IntArray

    @property
    def plan(self) -> Plan:
        return self.circuit.plan

    @property
    def batch(self) -> CircuitBatch:
        """The circuits, without evidence."""
        nothing = np.full((len(self.members), self.plan.n_columns), np.nan)
        return CircuitBatch(self.plan, SumWeights(self.log_weights), nothing)


def _are_circuits(items: Any) -> bool:
    """Whether a list holds circuits rather than points."""
    return not isinstance(items, np.ndarray) and any(isinstance(item, Circuit) for item in items)


def _groups(circuits: Sequence[Circuit]) -> list[_Group]:
    """Group circuits that differ in their weights alone."""
    members: dict[Hashable, list[int]] = {}
    for number, circuit in enumerate(listed(circuits, "circuits")):
        if not isinstance(circuit, Circuit):
            condition = "be Circuit objects"
            way_out = "Use expected_kernel_matrix for rows with missing cells."
            raise TypeError(
                must("circuits of a kernel matrix", condition, way_out, kind=type(circuit).__name__)
            )
        # Circuits of a conditional family differ in weights alone: one pass serves them all
        members.setdefault(_signature(circuit.plan), []).append(number)
    return [
        _Group(
            circuits[numbers[0]],
            np.stack([circuits[number].plan.weights.log for number in numbers], axis=1),
            np.array(numbers),
        )
        for numbers in members.values()
    ]


def _signature(plan: Plan) -> Hashable:
    """Key that is equal for two plans of one structure with two sets of weights."""
    units = [
        # Bytes: circuits are made one by one, and their equal units are different objects.
        (type(unit), unit.scope, *(np.asarray(v).tobytes() for v in unit.parameters().values()))
        for unit in plan.units
        if isinstance(unit, InputUnit)
    ]
    layers = [
        (type(layer), layer.children.shape, layer.children.tobytes())
        + ((layer.lengths.tobytes(),) if isinstance(layer, SumLayer) else ())
        for layer in plan.layers
    ]
    return tuple(units), tuple(layers)


def _against_circuits(own: _Group, other: _Group, structure: KernelStructure) -> FloatArray:
    """Expected kernels of all pairs of two groups."""
    pairs = compile_pairs(own.plan, other.plan, structure.variable_order)
    parts = split_kernel(pairs, structure)
    left = own.batch
    with single_threaded_blas():
        return expected_kernels(pairs, parts, left, left if other is own else other.batch)


def _against_points(own: _Group, structure: KernelStructure, points: FloatArray) -> FloatArray:
    """Expected kernels of a group and points."""
    batch = own.batch
    result = np.empty((len(own.members), len(points)))
    plan = multiply_by_kernel(own.plan, structure)
    with single_threaded_blas():
        for rows, values in expected_kernels_at_points(plan, batch.X, points, batch.weights):
            result[rows] = values
    return result


def _complete_points(others: Any, plan: Plan) -> FloatArray:
    """Check a table of points."""
    points = float_array(others, "others")
    if not points.size:
        return np.zeros((0, plan.n_columns))
    own = list(plan.variables)
    if points.ndim != 2 or points.shape[1] < plan.n_columns:
        raise invalid("points", f"have at least {plan.n_columns} columns", shape=points.shape)
    # Other columns are ignored, whatever they hold
    if not np.isfinite(points[:, own]).all():
        condition = "be complete and finite"
        way_out = "Condition a circuit on rows with missing cells, or use expected_kernel_matrix."
        raise invalid(
            "points", condition, way_out, n_other=int((~np.isfinite(points[:, own])).sum())
        )
    return points


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
    """One block of the matrix: with a kernel of complete rows, with a ``PointPlan`` of incomplete
    rows and points (the rows if ``turned``), with a pair of plans of conditioned circuits.
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
    # Densities of a row, and its own weights with their logarithms, beside its block
    bytes_per_row = 8 * n_columns + plan.plan.bytes_per_row + 16 * len(plan.plan.weights.log)
    n_rows = min(4 * POINT_ROWS, max(POINT_ROWS, POINT_VALUES // max(1, n_columns)))
    chunks = memory_bound_chunks(len(rows.incomplete), 2 * bytes_per_row, at_most=n_rows)
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
        raise invalid(name, condition, shape=table.shape)
    if np.isinf(table).any():
        raise invalid(f"cells of {name}", "be finite or NaN")
    return table


def _refuse_huge(*tables: FloatArray) -> None:
    """Refuse numbers whose squares overflow: differences of such squares are NaN."""
    largest = max(float(np.fmax.reduce(np.abs(table), axis=None, initial=0.0)) for table in tables)
    if largest > MAX_CELL:
        raise invalid("cells", f"lie within ±{MAX_CELL:g}", "Scale the columns.", largest=largest)
