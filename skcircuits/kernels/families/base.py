"""Base class of kernels and their algebra: sums and products of kernels."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from skcircuits.circuits.structure._scopes import variables_of
from skcircuits.circuits.structure.units import LeafUnit, Product, Sum, Unit, topological_order
from skcircuits.exceptions import must
from skcircuits.kernels.families._structure import KernelStructure, Part, UnivariateFunction
from skcircuits.numerics._arrays import float_array, integers
from skcircuits.protocols import FloatArray, ImmutableMixin

# Columns as small as 1e-100 have a coefficient of about 1e200
MAX_COEFFICIENT = 1e250


class Kernel(ImmutableMixin, ABC):
    """An immutable kernel function of two rows. Kernels can be added, multiplied and scaled."""

    @abstractmethod
    def __call__(self, X: Any, Y: Any = None) -> FloatArray:
        """Kernel values of all pairs of complete rows, shape (n, m)."""

    @abstractmethod
    def is_positive_definite(self) -> bool:
        """Whether every Gram matrix is certified to be positive semidefinite."""

    @abstractmethod
    def _part(self, structure: KernelStructure) -> Part:
        """Enter the kernel into a structure of nodes."""

    @abstractmethod
    def _unit(self) -> Unit:
        """The kernel as a unit of a kernel circuit."""

    def __mul__(self, other: object) -> KernelCircuit:
        """Multiply with a kernel or a number."""
        if isinstance(other, Kernel):
            return KernelCircuit(Product([self._unit(), other._unit()]))
        if isinstance(other, int | float | np.number):
            return KernelCircuit(Sum([self._unit()], weights=[float(other)]))
        return NotImplemented

    __rmul__ = __mul__

    def __add__(self, other: object) -> KernelCircuit:
        """Add another kernel."""
        if not isinstance(other, Kernel):
            return NotImplemented
        return KernelCircuit(Sum([self._unit(), other._unit()]))


class KernelFamily(Kernel, UnivariateFunction):
    """Base class of kernels with parameters over chosen variables, also of user-defined ones.

    A subclass that is a product of one function of each variable defines ``univariate`` and names
    its constructor arguments in ``_parameters``. It may override ``_gram`` by a faster method.
    Expectations under continuous input units are registered with `register_expectation`.

    Parameters
    ----------
    variables : sequence of int or None, default=None
        Columns to which the kernel applies; None for all.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.kernels import KernelFamily
    >>> class Cosine(KernelFamily):
    ...     _parameters = ("variables",)
    ...
    ...     def univariate(self, x, y):
    ...         return np.cos(x - y)
    >>> Cosine()([[0.0, 0.0]], [[0.0, np.pi]]).round(3)
    array([[-1.]])
    """

    #: Whether every Gram matrix is provably positive semidefinite.
    _is_certified: ClassVar[bool] = False
    #: Names of the constructor arguments.
    _parameters: ClassVar[tuple[str, ...]]

    def __init__(self, variables: Sequence[int] | None = None) -> None:
        chosen = None if variables is None else integers(variables, "variables")
        if chosen is not None and (len(set(chosen)) < len(chosen) or min(chosen, default=0) < 0):
            condition = "be distinct column numbers (None means all columns)"
            raise ValueError(must("variables of a kernel", condition, variables=variables))
        self.variables = chosen

    def get_params(self) -> dict[str, Any]:
        """Constructor arguments.

        Returns
        -------
        dict
            Parameters by name.
        """
        return {name: getattr(self, name) for name in self._parameters}

    def with_params(self, **params: Any) -> KernelFamily:
        """Make a kernel of the same family with some parameters changed.

        Parameters
        ----------
        **params : dict
            New values by name.

        Returns
        -------
        KernelFamily
            The new kernel; this one is not changed.

        Raises
        ------
        ValueError
            If the family has no such parameter, or if its value is not allowed.

        Examples
        --------
        >>> from skcircuits.kernels import RBF
        >>> RBF(gamma=0.5, variables=[0, 1]).with_params(gamma=2.0)
        RBF(gamma=2.0, variables=(0, 1))
        """
        unknown = sorted(set(params) - set(self._parameters))
        if unknown:
            condition = f"be among {self._parameters}"
            raise ValueError(
                must(f"parameters of {type(self).__name__}", condition, unknown=unknown)
            )
        return type(self)(**{**self.get_params(), **params})

    def is_positive_definite(self) -> bool:
        """Certify that every Gram matrix is positive semidefinite.

        Returns
        -------
        bool
            True for all families of this package with any valid parameters; False for user-defined
            classes unless they override this method.
        """
        return self._is_certified

    def univariate(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Compute the kernel over a single variable, of which the kernel is a product.

        Parameters
        ----------
        x, y : ndarray
            Broadcast arrays of points.

        Returns
        -------
        ndarray
            The kernel between these points.
        """
        raise NotImplementedError  # families that are no product override ``_part``

    def _part(self, structure: KernelStructure) -> Part:
        return structure.atom(self, self._own(structure.variables))

    def _gram(self, X: FloatArray, Y: FloatArray) -> FloatArray:
        """Kernel values on the kernel's own columns."""
        result = np.ones((len(X), len(Y)))
        for x, y in zip(X.T, Y.T, strict=True):
            result *= self.univariate(x[:, None], y)
        return result

    def __call__(self, X: Any, Y: Any = None) -> FloatArray:
        """Kernel values of all pairs of complete rows.

        Parameters
        ----------
        X : array-like of shape (n, n_columns)
            Rows.
        Y : array-like of shape (m, n_columns), default=None
            Other rows; X itself when None.

        Returns
        -------
        ndarray of shape (n, m)
            Kernel values.
        """
        X = self._columns(X)
        Y = X if Y is None else self._columns(Y)
        # A kernel of all variables takes tables of any width, but of one
        if X.shape[1] != Y.shape[1]:
            condition = "have the same columns"
            way_out = "Name the variables of the kernel to compare some columns of wider tables."
            raise ValueError(
                must("X and Y of a kernel", condition, way_out, n_columns=(X.shape[1], Y.shape[1]))
            )
        return self._gram(X, Y)

    def _columns(self, X: Any) -> FloatArray:
        """Select the kernel's own columns of a table of complete rows."""
        table = float_array(X, "rows")
        if table.ndim != 2:
            raise ValueError(must("rows", "form a table with two axes", shape=table.shape))
        if self.variables is not None:
            if max(self.variables, default=-1) >= table.shape[1]:
                condition = f"have a column for each of the kernel's variables {self.variables}"
                raise ValueError(must("rows", condition, shape=table.shape))
            table = table[:, list(self.variables)]
        if np.isnan(table).any():
            condition = "be complete"
            way_out = "Use expected_kernel_matrix for rows with NaN."
            raise ValueError(
                must("rows of a kernel", condition, way_out, n_missing=int(np.isnan(table).sum()))
            )
        return table

    def _own(self, variables: Sequence[int]) -> tuple[int, ...]:
        """Variables the kernel looks at."""
        return tuple(variables) if self.variables is None else self.variables

    def _unit(self) -> KernelUnit:
        return KernelUnit(self)

    def __repr__(self) -> str:
        """Show the constructor call."""
        shown = [f"{name}={value!r}" for name, value in self.get_params().items()]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        """Compare family and parameters."""
        return type(self) is type(other) and self.get_params() == other.get_params()

    def __hash__(self) -> int:
        return hash((type(self), tuple(self.get_params().items())))


class KernelUnit(LeafUnit):
    """A kernel as an input unit of a kernel circuit."""

    def __init__(self, kernel: KernelFamily) -> None:
        self.kernel = kernel
        self.scope = tuple(sorted(kernel.variables or ()))

    def __repr__(self) -> str:
        """Show the kernel."""
        return repr(self.kernel)


class KernelCircuit(Kernel):
    """Sums and products of kernels, the results of ``+`` and ``*``.

    Parameters
    ----------
    root : Unit
        Sum and product units over ``KernelUnit`` input units. Subkernels may be shared.

    Examples
    --------
    >>> from skcircuits.kernels import RBF, Delta, Hamming
    >>> k = RBF(gamma=0.5, variables=[0, 1]) * Hamming(scale=1.0, variables=[2]) + 0.5 * Delta()
    >>> k([[0.0, 0.0, 1.0]], [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]).round(4)
    array([[1.5   , 0.3679]])
    """

    def __init__(self, root: Unit) -> None:
        self.root = root

    def __call__(self, X: Any, Y: Any = None) -> FloatArray:
        """Kernel values (n, m) of all pairs of complete rows X (n, n_columns) and Y."""
        values: dict[int, FloatArray] = {}
        for unit in topological_order(self.root):
            below = [values[id(child)] for child in unit.children]
            if isinstance(unit, Sum):
                values[id(unit)] = np.tensordot(unit.weights, np.stack(below), axes=1)
            elif isinstance(unit, Product):
                values[id(unit)] = np.multiply.reduce(below)
            elif isinstance(unit, KernelUnit):
                values[id(unit)] = unit.kernel(X, Y)
        return values[id(self.root)]

    def is_positive_definite(self) -> bool:
        """Certify that every Gram matrix is positive semidefinite.

        Returns
        -------
        bool
            True if all kernels involved are certified. Sums with non-negative weights and products
            preserve the property (Schur product theorem).
        """
        return all(
            unit.kernel.is_positive_definite()
            for unit in topological_order(self.root)
            if isinstance(unit, KernelUnit)
        )

    def _part(self, structure: KernelStructure) -> Part:
        found: dict[int, Part] = {}
        for unit in topological_order(self.root):
            below = [found[id(child)] for child in unit.children]
            if isinstance(unit, Sum):
                found[id(unit)] = structure.mixture(zip(unit.weights.tolist(), below))
            elif isinstance(unit, Product):
                found[id(unit)] = structure.multiply(below)
            elif isinstance(unit, KernelUnit):
                found[id(unit)] = unit.kernel._part(structure)
        return found[id(self.root)]

    def _unit(self) -> Unit:
        return self.root

    def __repr__(self) -> str:
        """Show the formula."""
        shown: dict[int, str] = {}
        for unit in topological_order(self.root):
            below = [shown[id(child)] for child in unit.children]
            if isinstance(unit, Sum):
                terms = [s if w == 1 else f"{w:.4g} * {s}" for w, s in zip(unit.weights, below)]
                shown[id(unit)] = terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"
            else:
                shown[id(unit)] = " * ".join(below) if below else repr(unit)
        return shown[id(self.root)]


def structure_of(kernel: Kernel, variables: Sequence[int]) -> KernelStructure:
    """Structure of a kernel over the variables of a circuit or table; refuses other variables."""
    if not isinstance(kernel, Kernel):
        condition = "be a kernel object of skcircuits.kernels"
        raise TypeError(must("kernel", condition, "Use for example RBF(gamma=0.5).", kernel=kernel))
    structure = KernelStructure(variables)
    structure.root = kernel._part(structure)
    # A circuit has no distribution of variables that it does not know
    unknown = sorted(set(variables_of(structure.looks_at)).difference(variables))
    if unknown:
        condition = f"belong to the circuit, which has {list(variables)}"
        raise ValueError(must("variables of a kernel", condition, variables=unknown))
    return structure


def require_floats(values: FloatArray) -> FloatArray:
    """Refuse kernels that are no floats: powers of large numbers, and differences of such."""
    if not np.isfinite(values).all():
        raise ValueError(
            must("values of a kernel", "be numbers that a float can hold", "Scale the columns.")
        )
    return values


def check_positive(name: str, value: Any) -> float:
    """Check a positive kernel parameter, whose products with distances stay finite."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and 0.0 < value <= MAX_COEFFICIENT):
        shown = "a larger integer" if isinstance(value, int) and value > MAX_COEFFICIENT else value
        condition = f"be a positive number, at most {MAX_COEFFICIENT:g}"
        raise ValueError(must(f"{name} of a kernel", condition, **{name: shown}))
    return float(value)
