"""Registry of closed-form expected kernels under input units.

The capability table of the package lists the registered combinations. A combination of an input
family and a kernel without a closed form raises ``CircuitPropertyError`` with an alternative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from typing import Any, NamedTuple, Protocol

import numpy as np

from skcircuits.circuits.inputs import InputLayer, InputUnit
from skcircuits.exceptions import CircuitPropertyError, must
from skcircuits.kernels.families.base import (
    Combination,
    KernelStructure,
    Monomial,
    Part,
    ScopeTerm,
)
from skcircuits.protocols import FloatArray, IntArray


class LogBlocks(Protocol):
    """Logs (n_units, p, m) of expected kernels under joint units and their rows (p,), each once."""

    def log_prob(self) -> FloatArray:
        """Log densities of the observed cells of all rows, shape (n_units, n)."""

    def __iter__(self) -> Iterator[tuple[IntArray, FloatArray]]: ...


class Rules(NamedTuple):
    """Closed forms of a kernel under a family: against points, and against its own units."""

    points: Callable[..., Any] | None = None
    pairs: Callable[..., Any] | None = None
    log_blocks: Callable[..., LogBlocks] | None = None


_RULES: dict[tuple[type, type], Rules] = {}


def register_expectation(
    units: type[InputUnit],
    kernel: type,
    *,
    points: Callable[..., Any] | None = None,
    pairs: Callable[..., Any] | None = None,
    log_blocks: Callable[..., LogBlocks] | None = None,
) -> None:
    """Register closed forms of the expectation of a kernel under a family of input units.

    A later registration replaces an earlier one. A registration for a base class also applies to
    subclasses without a registration of their own.

    Parameters
    ----------
    units : type
        Class of the input units. All classes with the same layer class share their rules.
    kernel : type
        Class of the kernel.
    points : callable, default=None
        For units over one variable, ``points(layer, which, kernel, s)`` returns E[k(X, s)], shape
        (n_units, n_points), for the units ``which`` (integers) of a layer at points ``s``. For
        joint units, ``points(layer, kernels, X, S)`` returns E[k(X, s) | observed cells], shape
        (n_units, n_rows, n_points), where ``kernels`` has an entry per variable of the scope (None
        if the kernel does not apply to it), and ``X`` and ``S`` hold the columns of the scope.
    pairs : callable, default=None
        ``pairs(left, left_which, right, right_which, kernel)`` returns E[k(X, Y)], shape (n_left,
        n_right). For joint units, ``pairs(left, right, kernels, X, Y)`` has shape (n_left, n_right,
        n_rows, m_rows).
    log_blocks : callable, default=None
        For joint units that are faster for many rows at once, ``log_blocks(layer, kernels, X, S)``
        returns an iterable over pairs of indices of rows and the logarithms of the results of
        ``points`` for these rows, which the consumer may overwrite. Its method ``log_prob()``
        returns the log densities of the observed cells, shape (n_units, n_rows), so that both may
        share the factors of the conditional distributions.

    Examples
    --------
    A kernel of one's own. Over discrete units its values at the states are all it takes; a
    continuous family needs a closed form:

    >>> import numpy as np
    >>> from skcircuits.circuits import Circuit, Gaussian
    >>> from skcircuits.kernels import KernelFamily, expected_kernel, register_expectation
    >>> class Cosine(KernelFamily):
    ...     _parameters = ("variables",)
    ...
    ...     def univariate(self, x, y):
    ...         return np.cos(x - y)
    >>> def cosine_pairs(left, i, right, j, kernel):  # the difference is Gaussian
    ...     mean = left.means[i][:, None] - right.means[j]
    ...     variance = left.stds[i][:, None] ** 2 + right.stds[j] ** 2
    ...     return np.cos(mean) * np.exp(-variance / 2)
    >>> register_expectation(Gaussian, Cosine, pairs=cosine_pairs)
    >>> p = Circuit(Gaussian(0, 0.0, 1.0))
    >>> round(expected_kernel(p, p, Cosine()), 4)
    0.3679
    """
    known = _RULES.get((units.layer_type, kernel), Rules())
    new = Rules(points, pairs, log_blocks)
    # Rules may be registered one by one: those not given are kept.
    _RULES[units.layer_type, kernel] = Rules(*(a or b for a, b in zip(new, known, strict=True)))


def rules_of(layer: InputLayer, kernel: type) -> Rules:
    """Rules of a layer and a kernel class, or of their base classes."""
    return _rules_of_family(type(layer).__mro__, kernel)


def _rules_of_family(families: Sequence[type], kernel: type) -> Rules:
    """Rules of the first of some classes of layers that has any for a kernel class."""
    # Families first: a rule for the units themselves is nearer than one for any kernel
    for family in families:
        for base in kernel.__mro__:
            if (family, base) in _RULES:
                return _RULES[family, base]
    return Rules()


def _points_rule(layer: InputLayer, kernel: type) -> Callable[..., Any]:
    rule = rules_of(layer, kernel).points
    if rule is None:
        raise _no_closed_form(kernel, layer)
    return rule


def _pairs_rule(left: InputLayer, right: InputLayer, kernel: type) -> Callable[..., Any]:
    # Units of two families pair by the rule of a family that both belong to.
    shared = [family for family in type(left).__mro__ if isinstance(right, family)]
    rule = _rules_of_family(shared, kernel).pairs
    if rule is None:
        raise _no_closed_form(kernel, left, right)
    return rule


def _no_closed_form(kernel: type, *layers: InputLayer) -> CircuitPropertyError:
    """Word the error for a combination outside the capability table."""
    families = dict.fromkeys(type(layer).__name__.removesuffix("Layer") for layer in layers)
    return CircuitPropertyError(
        must(
            "a kernel and the input units of a circuit",
            "have a closed-form expectation",
            "Use RBF, Linear or Polynomial on continuous variables (no products of them), "
            "Laplacian on univariate ones, and Hamming or Delta on discrete ones "
            "(kernel objects take `variables`), or register_expectation.",
            kernel=kernel.__name__,
            input_units=" and ".join(families),
        )
    )


@singledispatch
def of_one_variable(layer: InputLayer) -> InputLayer:
    """Units over one variable as the rules for such units take them; joint units are others."""
    return layer


def expected_at_points(
    layer: InputLayer, units: IntArray, combination: Combination, points: FloatArray
) -> FloatArray:
    """E[f(X, s)] of univariate units of one variable, shape (n_units, n_points)."""
    layer = of_one_variable(layer)
    total = np.zeros((len(units), len(points)))
    for weight, function in combination:
        if function is None:
            total += weight
        else:
            rule = _points_rule(layer, type(function))
            total += weight * rule(layer, units, function, points)
    return total


def expected_of_pairs(
    left: tuple[InputLayer, IntArray], right: tuple[InputLayer, IntArray], combination: Combination
) -> FloatArray:
    """E[f(X, Y)] of univariate units of one variable, shape (n_left, n_right)."""
    own, other = of_one_variable(left[0]), of_one_variable(right[0])
    total = np.zeros((len(left[1]), len(right[1])))
    for weight, function in combination:
        if function is None:
            total += weight
        else:
            # Expectations are linear in the kernel: each function has a rule of its own
            rule = _pairs_rule(own, other, type(function))
            total += weight * rule(own, left[1], other, right[1], function)
    return total


def scope_terms(
    structure: KernelStructure, part: Part, layer: InputLayer
) -> list[tuple[float, ScopeTerm]]:
    """A part of a kernel, multiplied out, on the scope of joint units."""
    scope = layer.scopes[0].tolist()
    return [(weight, structure.on_scope(term, scope)) for weight, term in structure.expand(part)]


def kind_of_term(layer: InputLayer, term: ScopeTerm) -> type | None:
    """The kernel class whose rules a term over joint units takes; None for the constant one."""
    # Rules integrate one kind of function: products of two kinds have none
    kinds = {type(function) for function in term.functions if function is not None}
    n_sums = len(term.inner_products)
    if len(kinds) + n_sums > 1:
        raise _no_closed_form(_Product, layer)
    return Monomial if n_sums else next(iter(kinds), None)


# In errors, a product of kernels of different kinds
_Product = type("Product", (), {})


def joint_expectation(
    layers: tuple[InputLayer, ...],
    terms: Sequence[tuple[float, ScopeTerm]],
    tables: tuple[FloatArray, ...],
) -> FloatArray:
    """E[k(X, Y) | observed cells] of joint units, shape (n_left, n_right, n, m), or (n_units, n, m)
    where Y are points; moments of an inner product are computed once.
    """
    result = np.zeros((*map(len, layers), *map(len, tables)))
    moments: dict[tuple[int, ...], FloatArray] = {}
    for weight, term in terms:
        kernel = kind_of_term(layers[0], term)
        if kernel is None:
            result += weight
            continue
        rule = _pairs_rule(*layers, kernel) if len(layers) == 2 else _points_rule(layers[0], kernel)
        if kernel is not Monomial:
            result += weight * rule(*layers, term.functions, *tables)
            continue
        ((columns, power),) = term.inner_products.items()
        if columns not in moments:
            # One recursion gives all lower powers, too.
            highest = max(other.inner_products.get(columns, 0) for _, other in terms)
            moments[columns] = rule(*layers, columns, highest, *tables)
        result += weight * moments[columns][power]
    return result


def require_closed_form(
    left: InputLayer, right: InputLayer, structure: KernelStructure, part: Part
) -> None:
    """Raise where a part of the kernel has no rule for pairs of units of two layers."""
    if left.scopes.shape[1] > 1:
        kernels = [kind_of_term(left, term) for _, term in scope_terms(structure, part, left)]
    else:
        left, right = of_one_variable(left), of_one_variable(right)
        functions = structure.on_variable(part, int(left.scopes[0, 0]))
        kernels = [None if f is None else type(f) for _, f in functions]
    for kernel in kernels:
        if kernel is not None:
            _pairs_rule(left, right, kernel)
