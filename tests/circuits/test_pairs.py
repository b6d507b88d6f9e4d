"""The traversal over pairs: which pairs meet, how often, in which shape."""

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Circuit, Indicator, Product, Sum
from skcircuits.circuits.algebra import fold_pairs
from skcircuits.circuits.inputs.base import divergence, divide_inputs, entropy, multiply_inputs
from tests.reference.case import for_seeds
from tests.reference.enumeration import Completions, unit_values
from tests.reference.random_circuits import compatible_circuits


class Counting:
    """Counts visits and computes ∑ p q with plain numbers."""

    def __init__(self):
        self.visits = []

    def inputs(self, left, right):
        self.visits.append((id(left), id(right)))
        return float(left.probabilities @ right.probabilities)

    def product(self, factors):
        return float(np.prod(factors))

    def mixture(self, pairs, left_weights, right_weights, terms):
        assert (left_weights > 0).all() and (right_weights > 0).all()
        return float(np.sum(left_weights[pairs[:, 0]] * right_weights[pairs[:, 1]] * terms))


@for_seeds(60)
def test_inner_products_by_a_fold(seed):
    p, q = compatible_circuits(seed, discrete=True)
    states = Completions(p, np.full(len(p.variables), np.nan))
    expected = states.mass @ unit_values(q, states.nodes)
    rules = _Padded(p.cardinalities)
    np.testing.assert_allclose(fold_pairs(p.root, q.root, rules), expected, rtol=1e-10)
    assert len(rules.visits) == len(set(rules.visits))


class _Padded(Counting):
    def __init__(self, cardinalities):
        super().__init__()
        self._cardinalities = cardinalities

    def inputs(self, left, right):
        self.visits.append((id(left), id(right)))
        masses = np.zeros((2, self._cardinalities[left.variable]))
        masses[0, : left.n_states] = left.probabilities
        masses[1, : right.n_states] = right.probabilities
        return float(masses[0] @ masses[1])


def test_products_are_regrouped():
    """A flat product meets nested ones: blocks are joined on both sides."""
    a, b, c, d = (Bernoulli(v, 0.1 * (v + 1)) for v in range(4))
    flat = Product([a, b, c, d])
    nested = Product([Product([a, Product([b])]), Product([c, d])])
    mixed = Product([Sum([Product([a, b]), Product([a, b])], weights=[0.5, 0.5]), c, d])
    expected = np.prod([0.1 * (v + 1) * 0.1 * (v + 1) + (1 - 0.1 * (v + 1)) ** 2 for v in range(4)])
    for left in (flat, nested, mixed):
        for right in (flat, nested, mixed):
            np.testing.assert_allclose(fold_pairs(left, right, Counting()), expected)


def test_terms_of_weight_zero_do_not_take_part():
    a, b = Bernoulli(0, 0.5), Bernoulli(0, 0.25)
    rules = Counting()
    fold_pairs(Sum([a, b], weights=[1.0, 0.0]), Sum([a, b], weights=[0.0, 2.0]), rules)
    assert rules.visits == [(id(a), id(b))]


@for_seeds(20)
def test_rules_of_input_units_agree_with_sums_over_states(seed):
    p, q = (
        next(unit for unit in circuit.plan.units if not unit.children)
        for circuit in compatible_circuits(seed, discrete=True, zeros=0.4)
    )
    masses = np.zeros((2, max(p.n_states, q.n_states)))
    masses[0, : p.n_states], masses[1, : q.n_states] = p.probabilities, q.probabilities
    product, quotient = multiply_inputs(p, q), divide_inputs(p, q)
    np.testing.assert_allclose(_masses(product), masses.prod(axis=0), atol=1e-15)
    ratio = np.divide(masses[0], masses[1], where=masses[1] > 0, out=np.zeros_like(masses[0]))
    np.testing.assert_allclose(_masses(quotient), ratio, rtol=1e-12)
    both = (masses > 0).all(axis=0)
    expected = masses[0, both] @ np.log(masses[0, both] / masses[1, both])
    np.testing.assert_allclose(divergence(p, q), (masses[0, ~both].sum(), expected), atol=1e-14)
    own = masses[0][masses[0] > 0]
    np.testing.assert_allclose(entropy(p), -own @ np.log(own), atol=1e-14)


def _masses(result):
    if result.unit is None:
        return 0.0
    return result.unit.probabilities * np.exp(result.log_factor)


def test_circuits_of_one_unit():
    unit = Bernoulli(0, 0.25)
    assert fold_pairs(unit, unit, Counting()) == 0.25**2 + 0.75**2
    circuit = Circuit(unit)
    assert fold_pairs(circuit.root, Product([unit]), Counting()) == 0.625


def test_only_pairs_that_share_a_row_are_visited():
    """A decision diagram meets itself along its own edges: as many pairs as it has leaves."""
    unit, leaves = Bernoulli(0, 0.5), 1
    for variable in range(1, 12):
        branches = [Product([Indicator(variable, state, 3), unit]) for state in range(3)]
        unit, leaves = Sum(branches, weights=[0.2, 0.3, 0.5]), leaves + 3
    rules = Counting()
    expected = 0.5 * (0.2**2 + 0.3**2 + 0.5**2) ** 11
    assert fold_pairs(unit, unit, rules) == pytest.approx(expected, rel=1e-13)
    assert len(rules.visits) == leaves
