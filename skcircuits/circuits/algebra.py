"""Products, quotients and shifts of circuits, entropies and divergences.

Products and quotients of compatible circuits are circuits whose size is at most the product of
their sizes (Vergari et al., 2021, "A compositional atlas of tractable circuit operations").

They are computed by one traversal over pairs of units with the same scope. A side of a pair is a
tuple of units with disjoint scopes and represents their product. A pair is decomposed until both
sides are input units: sums distribute, and products are split into the finest blocks on which both
sides agree.

Entropies and divergences are exact if sums are deterministic, because the logarithm of a sum is
then the logarithm of one of its terms.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy.special import xlogy

from skcircuits.circuits.circuit import Circuit
from skcircuits.circuits.engine._layers import SumLayer
from skcircuits.circuits.inputs import Categorical, InputUnit
from skcircuits.circuits.inputs import base as input_rules
from skcircuits.circuits.inputs.base import divide_inputs, multiply_inputs
from skcircuits.circuits.inputs.discrete import DiscreteUnit
from skcircuits.circuits.structure.properties import (
    Supports,
    VariableSet,
    VariableSets,
    common_blocks,
    require_compatible,
    require_deterministic,
)
from skcircuits.circuits.structure.units import (
    ZERO,
    Product,
    Scaled,
    Sum,
    Unit,
    log_weighted_sum,
    rebuild,
    scale_unit,
    scaled_product,
    topological_order,
)
from skcircuits.exceptions import invalid, require, require_count
from skcircuits.protocols import FloatArray, IntArray

Result = TypeVar("Result")
Side = tuple[Unit, ...]
Pair = tuple[Side, Side]
# Terms that weigh less, on the log scale, than the largest one of their sum are left out.
MIN_RELATIVE_LOG_WEIGHT = -1e4
WAY_OUT = "Average log probabilities of samples for an estimate: p.log_prob(p.sample(n))."
# Rounding of the mass of a term on the disjoint supports of several others.
MASS_TOLERANCE = 1e-12


class PairRules(Protocol[Result]):
    """Rules of an operation at input units, products and sums."""

    def inputs(self, left: InputUnit, right: InputUnit) -> Result:
        """Combine two input units over the same variables."""

    def product(self, factors: list[Result]) -> Result:
        """Combine the results of blocks with disjoint scopes."""

    def mixture(
        self,
        pairs: IntArray,
        left_weights: FloatArray,
        right_weights: FloatArray,
        terms: list[Result],
    ) -> Result:
        """Combine the results of the pairs (k, 2) of a left and a right term with a row in common;
        weights are those of all terms, and one where a side is no sum.
        """


def fold_pairs(left: Unit, right: Unit, rules: PairRules[Result]) -> Result:
    """Apply an operation to the roots of two compatible circuits, from the inputs up."""
    order = [*topological_order(left), *topological_order(right)]
    scopes = VariableSets().of_units(order)
    return _PairFold(rules, Supports(order), scopes).fold(((left,), (right,)))


class _Step(NamedTuple, Generic[Result]):
    """How the result of a pair follows from the results of the pairs below."""

    below: list[Pair]
    combine: Callable[[list[Result]], Result]


class _Opened(NamedTuple):
    """A side that is decomposed as far as possible without its counterpart."""

    units: Side  # its factors, the children of a single product
    partition: int  # identifies the scopes of the units
    terms: list[Side]  # children of positive weight of a single sum, else the units as one
    weights: FloatArray
    states: list[int]  # possible ones of each term, see ``Supports``

    @property
    def is_sum(self) -> bool:
        """Whether the side is a single sum."""
        return len(self.units) == 1 and isinstance(self.units[0], Sum)


class _PairFold(Generic[Result]):
    """Remembers the results of pairs, opened sides and how partitions meet."""

    def __init__(
        self, rules: PairRules[Result], supports: Supports, scopes: dict[int, VariableSet]
    ) -> None:
        self._rules = rules
        self._supports = supports
        self._scopes = scopes  # by id of the unit
        self._results: dict[Pair, Result] = {}
        self._sides: dict[Side, _Opened] = {}
        self._partitions: dict[tuple[VariableSet, ...], int] = {}
        self._blocks: dict[tuple[int, int], list[tuple[list[int], list[int]]]] = {}

    def fold(self, root: Pair) -> Result:
        """Visit pairs depth first, without recursion: circuits may be deep."""
        # Steps wait on the stack with their pair, so that each is taken apart once per visit.
        stack = [(root, self._step(root))]
        while stack:
            pair, step = stack[-1]
            # Pairs that several parents share are computed for the first one that asks
            waiting = [below for below in step.below if below not in self._results]
            if waiting:
                stack.extend((below, self._step(below)) for below in waiting)
                continue
            stack.pop()
            if pair not in self._results:
                self._results[pair] = step.combine([self._results[below] for below in step.below])
        return self._results[root]

    def _step(self, pair: Pair) -> _Step[Result]:
        left, right = self._open(pair[0]), self._open(pair[1])
        # Sums come first: a sum may stand against several factors of the other side.
        if left.is_sum or right.is_sum:
            meeting = [
                (i, j)
                for i, own in enumerate(left.states)
                for j, other in enumerate(right.states)
                # Products of disjoint supports are zero: deterministic circuits stay small
                if self._supports.may_meet(own, other)
            ]
            below = [(left.terms[i], right.terms[j]) for i, j in meeting]
            pairs = np.array(meeting, dtype=np.intp).reshape(-1, 2)
            mixture = self._rules.mixture
            return _Step(below, lambda terms: mixture(pairs, left.weights, right.weights, terms))
        if len(left.units) == len(right.units) == 1:
            own, other = left.units[0], right.units[0]
            assert isinstance(own, InputUnit) and isinstance(other, InputUnit)
            return _Step([], lambda _: self._rules.inputs(own, other))
        return _Step(self._split(left, right), self._rules.product)

    def _open(self, side: Side) -> _Opened:
        """Take a side apart, once."""
        if side not in self._sides:
            units = side
            while len(units) == 1 and isinstance(units[0], Product):
                units = units[0].children
            scopes = tuple([self._scopes[id(unit)] for unit in units])
            # Numbers instead of scopes: how two partitions meet is looked up for every pair.
            partition = self._partitions.setdefault(scopes, len(self._partitions))
            terms, weights = [units], np.ones(1)
            if len(units) == 1 and isinstance(units[0], Sum):
                # Pairs with a term of weight zero would be visited for nothing.
                positive = np.flatnonzero(units[0].weights)
                terms = [(units[0].children[i],) for i in positive]
                weights = units[0].weights[positive]
            states = [self._supports.states(*term) for term in terms]
            self._sides[side] = _Opened(units, partition, terms, weights, states)
        return self._sides[side]

    def _split(self, left: _Opened, right: _Opened) -> list[Pair]:
        """Group the factors of both sides into blocks of equal scope."""
        # Pairs of partitions meet in few ways, pairs of units in many: blocks are found once.
        key = left.partition, right.partition
        if key not in self._blocks:
            sides = ([self._scopes[id(unit)] for unit in side.units] for side in (left, right))
            self._blocks[key] = common_blocks(*sides)
        return [
            (tuple([left.units[i] for i in own]), tuple([right.units[i] for i in other]))
            for own, other in self._blocks[key]
        ]


def multiply(p: Circuit, q: Circuit) -> Circuit:
    """Multiply two compatible circuits.

    Parameters
    ----------
    p, q : Circuit
        Smooth, decomposable and compatible circuits over the same variables.

    Returns
    -------
    Circuit
        The function p(x) q(x): smooth, decomposable, compatible with p and q, and
        deterministic if both are. It is not normalised: ``log_partition`` is the log of
        ∫ p q, and every unit below the root is normalised.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits decompose a scope differently. The message names both partitions.
    CircuitPropertyError
        If two input units to be multiplied have no product within their families, or if the mass of
        a state of their product exceeds the range of floating-point numbers.

    Notes
    -----
    Terms of a sum with a weight below e^-10000 times the largest weight are omitted.

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
        A deterministic circuit over the same variables that is compatible with p. Its Gaussian
        units must be wider than the corresponding units of p, and tails of its histograms longer
        (with the same first and last knots, as of densities that are fitted to the same rows).

    Returns
    -------
    Circuit
        The function p(x) / q(x), which is 0 where q(x) is 0. It is smooth, decomposable, compatible
        with p and q, and deterministic if p is. It is not normalised.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits decompose a scope differently. The message names both partitions.
    CircuitPropertyError
        If q is not provably deterministic, or if two input units to be divided have no quotient.

    Notes
    -----
    Terms of a sum with a weight below e^-10000 times the largest weight are omitted.

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
    """Shift the states of a discrete variable cyclically.

    Parameters
    ----------
    p : Circuit
        The circuit.
    variable : int
        A discrete variable with k states.
    shift : int, default=1
        Number of states by which the variable is shifted; may be negative.
    n_states : int, default=None
        Length k of the cycle, if the variable has more states than in p. The default is the number
        of states in p.

    Returns
    -------
    Circuit
        The function p(x_1, ..., (x_i + shift) mod k, ..., x_d), which is p∘¬_i for a shift of one.
        It has the structure and all properties of p.

    Raises
    ------
    ValueError
        If the variable is not a discrete variable of the circuit or has more than `n_states`
        states, or if the shift is not an integer.

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
        condition = f"be a discrete variable of the circuit, one of {list(p.cardinalities)}"
        raise invalid("the variable to shift", condition, variable=variable)
    if isinstance(shift, bool) or not isinstance(shift, int | np.integer):
        raise invalid("shift", "be an integer", shift=shift)
    # The cycle may be longer than the states of any unit
    known = p.cardinalities[variable]
    n_states = known if n_states is None else n_states
    require_count(1, n_states=n_states)
    if n_states < known:
        raise invalid(
            "n_states", f"be at least the {known} states of the variable", n_states=n_states
        )

    def shifted(unit: InputUnit) -> InputUnit:
        if variable not in unit.scope:
            return unit
        assert isinstance(unit, DiscreteUnit)
        masses = np.zeros(n_states)
        # Units may list fewer states than the cycle has: the others are impossible.
        masses[: unit.n_states] = unit.probabilities
        return Categorical(variable, np.roll(masses, -shift))

    return Circuit(rebuild(p.root, shifted))


class _Multiplication:
    """Products or quotients (``rule``) of input units, weights of the right circuit to the power of
    ``exponent``; every unit of the result is normalised.
    """

    def __init__(self, rule: Callable[[InputUnit, InputUnit], Scaled], exponent: float) -> None:
        self._rule = rule
        self._exponent = exponent

    def inputs(self, left: InputUnit, right: InputUnit) -> Scaled:
        """Apply the rule for input units."""
        return self._rule(left, right)

    def product(self, factors: list[Scaled]) -> Scaled:
        """Multiply the blocks; zero if one is."""
        return scaled_product(factors)

    def mixture(
        self,
        pairs: IntArray,
        left_weights: FloatArray,
        right_weights: FloatArray,
        terms: list[Scaled],
    ) -> Scaled:
        """Mix the terms with normalised weights; impossible terms are left out."""
        log_factors = np.array([term.log_factor for term in terms])
        own, other = np.log(left_weights)[pairs[:, 0]], np.log(right_weights)[pairs[:, 1]]
        log_weights = own + self._exponent * other + log_factors
        # Equation: Σ_ij w_i v_j^e p_i q_j^e, with the largest term taken out.
        peak = log_weights.max(initial=-np.inf)
        if np.isneginf(peak):
            return ZERO
        log_weights -= peak
        log_total = float(np.log(np.exp(log_weights).sum()))
        # Products of disjoint supports vanish here.
        kept = np.flatnonzero(log_weights > MIN_RELATIVE_LOG_WEIGHT)
        units = [unit for i in kept if (unit := terms[i].unit) is not None]
        if len(units) == 1:
            return Scaled(units[0], float(peak) + log_total)
        mixture = log_weighted_sum(units, log_weights[kept] - log_total)
        return Scaled(mixture, float(peak) + log_total)


def _circuit(result: Scaled, p: Circuit) -> Circuit:
    """Put the factor on top; the zero function keeps the scope of its factors."""
    if result.unit is None:
        return Circuit(Sum([p.root], weights=[0.0]))
    return Circuit(scale_unit(result.unit, result.log_factor))


def entropy(p: Circuit) -> float:
    """Compute the entropy of a deterministic circuit.

    Parameters
    ----------
    p : Circuit
        A smooth, decomposable and deterministic circuit, which is normalised first.

    Returns
    -------
    float
        -E[log p(X)] in nats (the differential entropy of continuous variables).

    Raises
    ------
    CircuitPropertyError
        If the circuit is not provably deterministic or an input unit has no closed form.

    Notes
    -----
    The children of a deterministic sum have disjoint supports, hence
    H(Σ w_i p_i) = Σ w_i (H(p_i) - log w_i); the entropies of factors add up.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit, entropy
    >>> round(entropy(Circuit(Bernoulli(0, 0.5) * Bernoulli(1, 0.5))), 4)
    1.3863
    """
    require("root", "a circuit", p=p)
    require_deterministic(p, "for its entropy", WAY_OUT)
    plan = p.normalize().plan
    values = np.zeros(plan.n_units)
    for units, _ in plan.inputs:
        values[units] = [
            input_rules.entropy(unit) for unit in plan.units[units] if isinstance(unit, InputUnit)
        ]
    for layer in plan.layers:
        below = values[layer.children]
        if isinstance(layer, SumLayer):
            weights = plan.weights.linear[layer.edges]
            # H(Σ θ p) = Σ θ H(p) - Σ θ log θ for disjoint supports (Vergari et al. 2021)
            terms = weights * below - xlogy(weights, weights)
            values[layer.units] = np.add.reduceat(terms, layer.starts)
        else:
            values[layer.units] = below.sum(axis=1)
    return float(values[plan.root])


def kl_divergence(p: Circuit, q: Circuit) -> float:
    """Compute the Kullback-Leibler divergence between two compatible deterministic circuits.

    Parameters
    ----------
    p, q : Circuit
        Smooth, decomposable, deterministic and compatible circuits, which are normalised first.

    Returns
    -------
    float
        E_p[log p(X) - log q(X)] in nats; infinite if q is zero where p is not.

    Raises
    ------
    IncompatibleCircuitsError
        If the circuits decompose a scope differently. The message names both partitions.
    CircuitPropertyError
        If a circuit is not provably deterministic, or if there is no closed form for two input
        units.

    Examples
    --------
    >>> from skcircuits.circuits import Bernoulli, Circuit, kl_divergence
    >>> round(kl_divergence(Circuit(Bernoulli(0, 0.5)), Circuit(Bernoulli(0, 0.25))), 4)
    0.1438
    """
    require("root", "a circuit", p=p, q=q)
    require_compatible(p, q)
    # Where children overlap, the logarithm of a sum is not a sum of logarithms.
    for circuit in (p, q):
        require_deterministic(circuit, "for a divergence", WAY_OUT)
    missed, divergence = fold_pairs(p.normalize().root, q.normalize().root, _Divergence())
    # Equal circuits may differ by rounding.
    return float("inf") if missed else max(divergence, 0.0)


class _Divergence:
    """Rules for pairs (u, v): the mass of u that the support of v misses, which has an infinite
    log ratio, and ∫ u log(u / v) over this support.
    """

    def inputs(self, left: InputUnit, right: InputUnit) -> tuple[float, float]:
        """Use the closed form of the two families."""
        return input_rules.divergence(left, right)

    def product(self, factors: list[tuple[float, float]]) -> tuple[float, float]:
        """Masses multiply; each log ratio is weighted by the masses of the other blocks."""
        missed, divergence = 0.0, 0.0
        for own_missed, own_divergence in factors:
            # Product rule: KL of a product of measures, each term weighted by the other masses
            divergence = divergence * (1.0 - own_missed) + (1.0 - missed) * own_divergence
            missed += (1.0 - missed) * own_missed
        return missed, divergence

    def mixture(
        self,
        pairs: IntArray,
        left_weights: FloatArray,
        right_weights: FloatArray,
        terms: list[tuple[float, float]],
    ) -> tuple[float, float]:
        """Add up disjoint supports; the weights join the log ratio."""
        missed, divergences = np.reshape(terms, (-1, 2)).T
        left, right = pairs.T
        ratios = np.log(left_weights)[left] - np.log(right_weights)[right]
        divergences = divergences + (1.0 - missed) * ratios
        # Most terms meet one: what this misses may be far below the rounding of one
        n_met, n_terms = np.bincount(left, minlength=len(left_weights)), len(left_weights)
        beyond = 1.0 - np.bincount(left, 1.0 - missed, n_terms)
        beyond[beyond < MASS_TOLERANCE] = 0.0
        by_term = np.where(n_met == 1, np.bincount(left, missed, n_terms), beyond)
        return float(left_weights @ by_term), float(left_weights[left] @ divergences)
