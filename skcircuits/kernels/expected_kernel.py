"""Expected kernels of pairs and lists of circuits, and the maximum mean discrepancy."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np

from skcircuits.circuits import Circuit
from skcircuits.circuits.engine._layers import SumLayer, SumWeights
from skcircuits.circuits.engine._plan import Plan
from skcircuits.circuits.inputs import InputUnit
from skcircuits.circuits.structure.properties import are_compatible, require_compatible
from skcircuits.exceptions import CircuitPropertyError, IncompatibleCircuitsError, must, require
from skcircuits.kernels._points import expected_kernels_at_points, multiply_by_kernel
from skcircuits.kernels.families._structure import KernelStructure
from skcircuits.kernels.families.base import Kernel, require_floats, structure_of
from skcircuits.kernels.pairs._evaluation import (
    CircuitBatch,
    expected_kernels,
    require_closed_forms,
)
from skcircuits.kernels.pairs._plan import compile_pairs, split_kernel
from skcircuits.numerics._arrays import float_array, listed
from skcircuits.parallel import Parallel, delayed, single_threaded_blas
from skcircuits.protocols import FloatArray, IntArray


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
        raise ValueError(
            must("points", f"have at least {plan.n_columns} columns", shape=points.shape)
        )
    # Other columns are ignored, whatever they hold
    if not np.isfinite(points[:, own]).all():
        condition = "be complete and finite"
        way_out = "Condition a circuit on rows with missing cells, or use expected_kernel_matrix."
        raise ValueError(
            must("points", condition, way_out, n_other=int((~np.isfinite(points[:, own])).sum()))
        )
    return points
