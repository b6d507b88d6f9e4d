"""Circuits made from two circuits, or by moving the states of a variable.

Products and quotients of compatible circuits are circuits whose size is at most the product
of their sizes (Vergari et al., 2021, "A compositional atlas of tractable circuit operations").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from skcircuits.circuits.algebra._pairs import fold_pairs
from skcircuits.circuits.circuit import Circuit
from skcircuits.circuits.inputs import Categorical, InputUnit
from skcircuits.circuits.inputs.discrete import DiscreteUnit
from skcircuits.circuits.inputs.registry import Scaled, divide_inputs, multiply_inputs
from skcircuits.circuits.structure.properties import require_compatible, require_deterministic
from skcircuits.circuits.structure.units import (
    Product,
    Sum,
    Unit,
    log_weighted_sum,
    scale_unit,
    topological_order,
)
from skcircuits.exceptions import must, require, require_count
from skcircuits.protocols import FloatArray

# Terms that weigh less, on the log scale, than the largest one of their sum are left out.
MIN_RELATIVE_LOG_WEIGHT = -1e4


def multiply(p: Circuit, q: Circuit) -> Circuit:
    """Multiply two compatible circuits.

    Parameters
    ----------
    p, q : Circuit
        Smooth, decomposable circuits over the same variables that decompose them alike.

    Returns
    -------
    Circuit
        The function p(x) q(x): smooth, decomposable, compatible with p and q, and
        deterministic if both are. It is not normalised: ``log_partition`` is the log of
        ∫ p q, and every unit below the root is normalised.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits decompose a scope differently; both partitions are named.
    CircuitPropertyError
        If two input units that meet have no product within their families, or a state of
        their product has a mass that no float can hold.

    Notes
    -----
    Terms of a sum that weigh less than e^-10000 of the largest one are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Bernoulli, Circuit, multiply
    >>> product = multiply(Circuit(Bernoulli(0, 0.2)), Circuit(Bernoulli(0, 0.5)))
    >>> np.exp(product.log_prob([[1.0], [np.nan]]))
    array([0.1, 0.5])
    """
    require("root", "a circuit", p=p, q=q)
    require_compatible(p, q)
    return _circuit(fold_pairs(p.root, q.root, _Multiplication(multiply_inputs, +1.0)), p)


def divide(p: Circuit, q: Circuit) -> Circuit:
    """Divide a circuit by a compatible deterministic one.

    Parameters
    ----------
    p : Circuit
        Smooth and decomposable.
    q : Circuit
        Deterministic, over the same variables, compatible with p. Its Gaussian units must
        be wider than those of p they meet.

    Returns
    -------
    Circuit
        The function p(x) / q(x), and 0 where q(x) is: smooth, decomposable, compatible with
        p and q, and deterministic if p is. It is not normalised.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits decompose a scope differently; both partitions are named.
    CircuitPropertyError
        If q is not provably deterministic, or two input units that meet have no quotient.

    Notes
    -----
    Terms of a sum that weigh less than e^-10000 of the largest one are left out.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Bernoulli, Circuit, divide
    >>> ratio = divide(Circuit(Bernoulli(0, 0.2)), Circuit(Bernoulli(0, 0.5)))
    >>> np.exp(ratio.log_prob([[0.0], [1.0]]))
    array([1.6, 0.4])
    """
    require("root", "a circuit", p=p, q=q)
    require_compatible(p, q)
    require_deterministic(q, "to be divided by")
    return _circuit(fold_pairs(p.root, q.root, _Multiplication(divide_inputs, -1.0)), p)


def cyclic_shift(
    p: Circuit, variable: int, shift: int = 1, *, n_states: int | None = None
) -> Circuit:
    """Move the states of a discrete variable around the cycle before evaluating.

    Parameters
    ----------
    p : Circuit
        The circuit.
    variable : int
        A discrete variable with k states.
    shift : int, default=1
        How far; negative to move back.
    n_states : int, default=None
        Length k of the cycle, where the variable has states that p does not know: at least as
        many as p knows, which is the default.

    Returns
    -------
    Circuit
        The function p(x_1, ..., (x_i + shift) mod k, ..., x_d), p∘¬_i for a shift of one. It
        has the structure of p and all its properties.

    Raises
    ------
    ValueError
        If the variable is not a discrete variable of the circuit or has more states, or the
        shift is no integer.

    Examples
    --------
    >>> import numpy as np
    >>> from skcircuits.circuits import Categorical, Circuit, cyclic_shift
    >>> shifted = cyclic_shift(Circuit(Categorical(0, [0.2, 0.3, 0.5])), 0)
    >>> np.exp(shifted.log_prob([[0.0], [1.0], [2.0]]))
    array([0.3, 0.5, 0.2])
    """
    require("root", "a circuit", p=p)
    if variable not in p.cardinalities:
        raise ValueError(
            must(
                "the variable to shift",
                f"be a discrete variable of the circuit, one of {list(p.cardinalities)}",
                variable=variable,
            )
        )
    if isinstance(shift, bool) or not isinstance(shift, int | np.integer):
        raise ValueError(must("shift", "be an integer", shift=shift))
    known = p.cardinalities[variable]
    n_states = known if n_states is None else n_states
    require_count(1, n_states=n_states)
    if n_states < known:
        raise ValueError(
            must("n_states", f"be at least the {known} states of the variable", n_states=n_states)
        )
    moved: dict[int, Unit] = {}
    for unit in topological_order(p.root):
        children = [moved[id(child)] for child in unit.children]
        # What does not see the variable is shared with p.
        if variable not in unit.scope:
            moved[id(unit)] = unit
        elif isinstance(unit, Sum):
            moved[id(unit)] = Sum(children, weights=unit.weights)
        elif isinstance(unit, Product):
            moved[id(unit)] = Product(children)
        else:
            assert isinstance(unit, DiscreteUnit)
            masses = np.zeros(n_states)
            # Units may list fewer states than the cycle has: the others are impossible.
            masses[: unit.n_states] = unit.probabilities
            moved[id(unit)] = Categorical(variable, np.roll(masses, -shift))
    return Circuit(moved[id(p.root)])


class _Result(NamedTuple):
    """A normalised unit times ``exp(log_factor)``; None stands for the zero function."""

    unit: Unit | None
    log_factor: float


_ZERO = _Result(None, -np.inf)


class _Multiplication:
    """Rules for products and quotients; every unit of the result is normalised.

    ``rule``: product or quotient of two input units; ``exponent``: power of the weights of the
    right circuit.
    """

    def __init__(self, rule: Callable[[InputUnit, InputUnit], Scaled], exponent: float) -> None:
        self._rule = rule
        self._exponent = exponent

    def inputs(self, left: InputUnit, right: InputUnit) -> _Result:
        """Apply the rule for input units."""
        return _Result(*self._rule(left, right))

    def product(self, factors: list[_Result]) -> _Result:
        """Multiply the blocks; zero if one is."""
        units = [factor.unit for factor in factors if factor.unit is not None]
        if len(units) < len(factors):
            return _ZERO
        log_factor = sum(factor.log_factor for factor in factors)
        return _Result(units[0] if len(units) == 1 else Product(units), log_factor)

    def mixture(
        self, left_weights: FloatArray, right_weights: FloatArray, terms: list[_Result]
    ) -> _Result:
        """Mix the terms with normalised weights; impossible terms are left out."""
        log_factors = np.array([term.log_factor for term in terms])
        log_weights = np.log(left_weights) + self._exponent * np.log(right_weights) + log_factors
        # Equation: Σ_ij w_i v_j^e p_i q_j^e, with the largest term taken out.
        peak = log_weights.max(initial=-np.inf)
        if np.isneginf(peak):
            return _ZERO
        log_weights -= peak
        log_total = float(np.log(np.exp(log_weights).sum()))
        # Products of disjoint supports vanish here.
        kept = np.flatnonzero(log_weights > MIN_RELATIVE_LOG_WEIGHT)
        units = [unit for i in kept if (unit := terms[i].unit) is not None]
        if len(units) == 1:
            return _Result(units[0], float(peak) + log_total)
        mixture = log_weighted_sum(units, log_weights[kept] - log_total)
        return _Result(mixture, float(peak) + log_total)


def _circuit(result: _Result, p: Circuit) -> Circuit:
    """Put the factor on top; the zero function keeps the scope of its factors."""
    if result.unit is None:
        return Circuit(Sum([p.root], weights=[0.0]))
    return Circuit(scale_unit(result.unit, result.log_factor))
