"""Base class of kernels, their sums and products, and restrictions to subsets of the variables.

The recursive structure of a kernel is built from *nodes*: atoms (a product of one function of each
variable), inner products Σ_j x_j y_j, and mixtures (weighted sums of products of nodes). A *part*
is a product of nodes, written as the sorted tuple of their numbers, with powers as repetitions. Its
restriction to a scope omits the nodes that do not depend on the scope. Where a scope is split in
two, a part becomes a short sum of pairs of parts:

    atom -> atom ⊗ atom,   (Σ x_j y_j)^i -> Σ_l C(i, l) (Σ_left)^l ⊗ (Σ_right)^(i - l),

a mixture that depends on one side only is kept as a whole, and one that depends on both is
expanded. A kernel that decomposes as the circuits do has one part for each of its units (Theorem
4.3 of Li et al., "Tractable Computation of Expected Kernels", UAI 2021).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import comb
from typing import Any, ClassVar

import numpy as np

from skcircuits.circuits.structure.properties import mask_key, mask_of, variables_of
from skcircuits.circuits.structure.units import LeafUnit, Product, Sum, Unit, fold
from skcircuits.exceptions import IncompatibleCircuitsError, invalid, must
from skcircuits.numerics._arrays import float_array, integers
from skcircuits.protocols import FloatArray, ImmutableMixin

# A product of nodes.
Part = tuple[int, ...]
# Coefficient, left part, right part.
Split = tuple[float, Part, Part]
# Coefficients of products of parts over disjoint scopes.
_Terms = dict[tuple[Part, ...], float]
# A product of sums that the circuits cut apart is multiplied out up to this many terms.
MAX_TERMS = 2**12

# Columns as small as 1e-100 have a coefficient of about 1e200
MAX_COEFFICIENT = 1e250


class UnivariateFunction(ABC):
    """A symmetric function of one variable at two points."""

    @abstractmethod
    def univariate(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Value at broadcast arrays of points."""

    def merge(self, other: UnivariateFunction) -> UnivariateFunction | None:
        """Product with another function where it is of the same kind, else None."""
        return None


# A weighted sum of functions of one variable; None is the constant one.
Combination = list[tuple[float, UnivariateFunction | None]]


@dataclass(frozen=True)
class Monomial(UnivariateFunction):
    """(x y)^degree, the factors of powers of inner products."""

    degree: int

    def univariate(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Power of the product."""
        return np.multiply(x, y) ** self.degree

    def merge(self, other: UnivariateFunction) -> Monomial | None:
        """Add the degrees of two powers."""
        return Monomial(self.degree + other.degree) if isinstance(other, Monomial) else None


@dataclass(frozen=True)
class UnivariateProduct(UnivariateFunction):
    """A product of functions of different kinds."""

    factors: tuple[UnivariateFunction, ...]

    def univariate(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Product of the values of all factors."""
        return reduce(np.multiply, [factor.univariate(x, y) for factor in self.factors])


def value_of(combination: Combination, x: FloatArray, y: FloatArray) -> FloatArray:
    """Value of a combination at broadcast arrays of points."""
    total = np.zeros(np.broadcast_shapes(np.shape(x), np.shape(y)))
    for weight, function in combination:
        total += weight if function is None else weight * function.univariate(x, y)
    return total


@dataclass(frozen=True)
class ScopeTerm:
    """A product of functions of single variables and powers of inner products."""

    functions: list[UnivariateFunction | None]  # per variable of the scope, None for constants
    inner_products: dict[tuple[int, ...], int]  # power of Σ x_j y_j over positions in the scope


@dataclass(frozen=True)
class _Node:
    """An atom (its function), a mixture (its terms), or an inner product (neither)."""

    mask: int
    function: UnivariateFunction | None = None
    terms: tuple[tuple[float, Part], ...] = ()

    @property
    def is_inner_product(self) -> bool:
        return self.function is None and not self.terms


class KernelStructure:
    """The nodes of a kernel over the variables of a circuit; ``root`` is the kernel itself."""

    def __init__(self, variables: Sequence[int]) -> None:
        self.variables = tuple(variables)
        self.root: Part = ()
        self._nodes: list[_Node] = []
        self._inner_products: dict[int, Part] = {}
        self._splits: dict[tuple[bytes, bytes], dict[Part, list[Split]]] = {}

    def atom(self, function: UnivariateFunction, variables: Sequence[int]) -> Part:
        """The product of a function of each variable."""
        return self._add(_Node(mask_of(variables), function))

    def inner_product(self, variables: Sequence[int]) -> Part:
        """Σ_j x_j y_j; one node for equal variables, so that powers merge."""
        mask = mask_of(variables)
        if mask not in self._inner_products:
            # An empty sum is zero.
            self._inner_products[mask] = self._add(_Node(mask)) or self.mixture([])
        return self._inner_products[mask]

    def mixture(self, terms: Iterable[tuple[float, Part]]) -> Part:
        """A weighted sum of parts; mixtures inside it are opened, equal parts added."""
        merged: dict[Part, float] = defaultdict(float)
        for weight, part in terms:
            # Sums within sums and equal terms would be integrated again and again
            opened = self._nodes[part[0]].terms if len(part) == 1 else ()
            for inner, own in opened or [(1.0, part)]:
                merged[own] += weight * inner
        kept = {part: weight for part, weight in merged.items() if weight > 0}
        if list(kept.values()) == [1.0]:
            return next(iter(kept))
        nodes = {number for part in kept for number in part}
        mask = reduce(int.__or__, (self._nodes[n].mask for n in nodes), 0)
        terms = tuple((weight, part) for part, weight in kept.items()) or ((0.0, ()),)
        self._nodes.append(_Node(mask, terms=terms))
        return (len(self._nodes) - 1,)

    def multiply(self, parts: Iterable[Part]) -> Part:
        """The product of parts."""
        return tuple(sorted(node for part in parts for node in part))

    def _add(self, node: _Node) -> Part:
        """Append a node; one without variables is the constant one."""
        if not node.mask:
            return ()
        self._nodes.append(node)
        return (len(self._nodes) - 1,)

    @property
    def looks_at(self) -> int:
        """Mask of the variables that change the kernel's value."""
        return reduce(int.__or__, (self._nodes[node].mask for node in self.root), 0)

    @property
    def is_product(self) -> bool:
        """Whether the kernel is a product of a function of each variable."""
        nodes = [self._nodes[number] for number in self.root]
        return all(
            node.function is not None or (node.terms and node.mask.bit_count() == 1)
            for node in nodes
        )

    @property
    def variable_order(self) -> dict[int, int]:
        """A rank per variable, equal for those that the smallest mixture around them couples."""
        order: dict[int, int] = {}
        # The smallest mixture around a variable couples it closest.
        mixtures = sorted(
            (node.mask for node in self._nodes if node.terms), key=lambda mask: mask.bit_count()
        )
        for rank, mask in enumerate(mixtures):
            for variable in variables_of(mask):
                order.setdefault(variable, rank)
        return order

    def restricted(self, part: Part, scope: int) -> Part:
        """The part without the nodes that do not look at a scope (a mask)."""
        masks = ((node, self._nodes[node].mask) for node in part)
        return tuple(node for node, mask in masks if mask & scope or not mask)

    def split(self, part: Part, left: int, right: int) -> list[Split]:
        """Write a part over two disjoint scopes (masks) as a sum of products of parts."""
        known = self._splits.setdefault((mask_key(left), mask_key(right)), {})
        return self._split(part, left, right, known)

    def _split(
        self, part: Part, left: int, right: int, known: dict[Part, list[Split]]
    ) -> list[Split]:
        """Split a part; ``known``: the parts that were split over these scopes before."""
        if part not in known:
            # Powers of an inner product split by the binomial theorem, with fewer terms than
            # factor by factor.
            powers = Counter(part).items()
            found = self._product(
                [self._split_power(node, power, left, right, known) for node, power in powers], 2
            )
            known[part] = [(weight, own, other) for (own, other), weight in found.items()]
        return known[part]

    def _split_power(
        self, number: int, power: int, left: int, right: int, known: dict[Part, list[Split]]
    ) -> _Terms:
        """Split a power of a node."""
        node, whole = self._nodes[number], (number,) * power
        if not node.mask & right:  # constants too
            return {(whole, ()): 1.0}
        if not node.mask & left:
            return {((), whole): 1.0}
        if node.function is not None:
            # A product of functions of each variable is one on either side
            return {(whole, whole): 1.0}
        if not node.terms:
            # (Σ_left + Σ_right)^i by the binomial theorem
            return {(whole[:k], whole[k:]): float(comb(power, k)) for k in range(power + 1)}
        opened: _Terms = defaultdict(float)
        for weight, part in node.terms:
            for coefficient, *pair in self._split(part, left, right, known):
                opened[tuple(pair)] += weight * coefficient
        return self._product([opened] * power, 2)

    def expand(self, part: Part, *, open_univariate: bool = True) -> list[tuple[float, Part]]:
        """Multiply a part out into atoms and inner products; univariate mixtures may be kept."""
        factors: list[_Terms] = []
        for number in part:
            node = self._nodes[number]
            # A sum over a single variable is integrated as one function, and need not be
            # multiplied out
            if not node.terms or (node.mask.bit_count() == 1 and not open_univariate):
                factors.append({((number,),): 1.0})
                continue
            opened: _Terms = defaultdict(float)
            for weight, inner in node.terms:
                for coefficient, term in self.expand(inner, open_univariate=open_univariate):
                    opened[(term,)] += weight * coefficient
            factors.append(opened)
        found = self._product(factors, 1)
        return [(weight, term) for (term,), weight in found.items()]

    def _product(self, factors: Iterable[_Terms], n_sides: int) -> _Terms:
        """Multiply sums of products of parts."""
        found: _Terms = {((),) * n_sides: 1.0}
        for factor in factors:
            grown: _Terms = defaultdict(float)
            for (own, weight), (other, coefficient) in product(found.items(), factor.items()):
                key = tuple(self.multiply(pair) for pair in zip(own, other, strict=True))
                grown[key] += weight * coefficient
            found = grown
            # Multiplied out, a product of m sums has exponentially many terms in m
            if len(found) > MAX_TERMS:
                raise IncompatibleCircuitsError(
                    must(
                        "a kernel",
                        f"decompose its variables as the circuits do, in {MAX_TERMS} terms at most",
                        "Build products of sums over blocks of variables that the circuits keep "
                        "together.",
                        n_terms=len(found),
                    )
                )
        return found

    def on_variable(self, part: Part, variable: int) -> Combination:
        """The part as a function of a single variable."""
        return [(weight, self._merged(term, 1 << variable)) for weight, term in self.expand(part)]

    def _merged(self, term: Part, scope: int) -> UnivariateFunction | None:
        """The product of the functions of a variable; equal kinds become one."""
        kinds: list[UnivariateFunction] = []
        for number in term:
            node = self._nodes[number]
            function = Monomial(1) if node.function is None else node.function
            if not node.mask & scope:
                continue
            for i, known in enumerate(kinds):
                merged = known.merge(function)
                if merged is not None:
                    kinds[i] = merged
                    break
            else:
                kinds.append(function)
        if len(kinds) < 2:
            return kinds[0] if kinds else None
        return UnivariateProduct(tuple(kinds))

    def on_scope(self, term: Part, scope: Sequence[int]) -> ScopeTerm:
        """A product of atoms and inner products as functions of the variables of a scope."""
        atoms = tuple(n for n in term if not self._nodes[n].is_inner_product)
        # Inner products mix variables: equal ones are counted as a power
        sums = Counter(
            tuple(i for i, v in enumerate(scope) if self._nodes[n].mask >> v & 1)
            for n in term
            if self._nodes[n].is_inner_product
        )
        return ScopeTerm([self._merged(atoms, 1 << v) for v in scope], dict(sums))

    def product_terms(self) -> list[tuple[float, dict[int, Combination]]] | None:
        """Weights and functions of each variable of a sum of product kernels, or None."""
        terms = self.expand(self.root, open_univariate=False)
        nodes = {n for _, term in terms for n in term}
        # (x·y + c)^d is no product of functions of single variables
        if any(self._nodes[n].is_inner_product for n in nodes):
            return None
        return [
            (
                weight,
                {v: self.on_variable(self.restricted(term, 1 << v), v) for v in self.variables},
            )
            for weight, term in terms
        ]

    def value(self, part: Part, X: FloatArray, variables: Sequence[int]) -> FloatArray:
        """Value of a part at all pairs of rows whose columns are some variables, (n, n)."""
        total = np.zeros((len(X), len(X)))
        for weight, term in self.expand(part):
            value = np.full_like(total, weight)
            scope_term = self.on_scope(term, variables)
            for function, x in zip(scope_term.functions, X.T):
                if function is not None:
                    value *= function.univariate(x[:, None], x)
            for columns, power in scope_term.inner_products.items():
                value *= (X[:, columns] @ X[:, columns].T) ** power
            total += value
        return total


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
            raise invalid("variables of a kernel", condition, variables=variables)
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
            raise invalid(f"parameters of {type(self).__name__}", condition, unknown=unknown)
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
        """Kernel values (n, m) of complete rows X (n, n_columns) and Y, by default X."""
        X = self._columns(X)
        Y = X if Y is None else self._columns(Y)
        # A kernel of all variables takes tables of any width, but of one
        if X.shape[1] != Y.shape[1]:
            condition = "have the same columns"
            way_out = "Name the variables of the kernel to compare some columns of wider tables."
            raise invalid(
                "X and Y of a kernel", condition, way_out, n_columns=(X.shape[1], Y.shape[1])
            )
        return self._gram(X, Y)

    def _columns(self, X: Any) -> FloatArray:
        """Select the kernel's own columns of a table of complete rows."""
        table = float_array(X, "rows")
        if table.ndim != 2:
            raise invalid("rows", "form a table with two axes", shape=table.shape)
        if self.variables is not None:
            if max(self.variables, default=-1) >= table.shape[1]:
                condition = f"have a column for each of the kernel's variables {self.variables}"
                raise invalid("rows", condition, shape=table.shape)
            table = table[:, list(self.variables)]
        if np.isnan(table).any():
            way_out = "Use expected_kernel_matrix for rows with NaN."
            raise invalid(
                "rows of a kernel", "be complete", way_out, n_missing=int(np.isnan(table).sum())
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
        return fold(
            self.root,
            lambda unit, below: np.tensordot(unit.weights, np.stack(below), axes=1),
            np.multiply.reduce,
            lambda leaf: leaf.kernel(X, Y),
        )

    def is_positive_definite(self) -> bool:
        """Certify that every Gram matrix is positive semidefinite.

        Returns
        -------
        bool
            True if all kernels involved are certified. Sums with non-negative weights and products
            preserve the property (Schur product theorem).
        """
        return fold(
            self.root,
            lambda _, below: all(below),
            all,
            lambda leaf: leaf.kernel.is_positive_definite(),
        )

    def _part(self, structure: KernelStructure) -> Part:
        return fold(
            self.root,
            lambda unit, below: structure.mixture(zip(unit.weights.tolist(), below)),
            structure.multiply,
            lambda leaf: leaf.kernel._part(structure),
        )

    def _unit(self) -> Unit:
        return self.root

    def __repr__(self) -> str:
        """Show the formula."""

        def of_sum(unit: Sum, below: list[str]) -> str:
            terms = [s if w == 1 else f"{w:.4g} * {s}" for w, s in zip(unit.weights, below)]
            return terms[0] if len(terms) == 1 else f"({' + '.join(terms)})"

        return fold(self.root, of_sum, " * ".join, repr)


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
        raise invalid("variables of a kernel", condition, variables=unknown)
    return structure


def require_floats(values: FloatArray) -> FloatArray:
    """Refuse kernels that are no floats: powers of large numbers, and differences of such."""
    if not np.isfinite(values).all():
        raise invalid(
            "values of a kernel", "be numbers that a float can hold", "Scale the columns."
        )
    return values


def check_positive(name: str, value: Any) -> float:
    """Check a positive kernel parameter, whose products with distances stay finite."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and 0.0 < value <= MAX_COEFFICIENT):
        shown = "a larger integer" if isinstance(value, int) and value > MAX_COEFFICIENT else value
        condition = f"be a positive number, at most {MAX_COEFFICIENT:g}"
        raise invalid(f"{name} of a kernel", condition, **{name: shown})
    return float(value)
