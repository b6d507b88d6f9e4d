"""Structural properties: positive and negative cases."""

import numpy as np

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    PiecewisePolynomial,
    Product,
    Sum,
    is_decomposable,
    is_deterministic,
    is_smooth,
    is_structured_decomposable,
)
from tests.reference.case import for_seeds
from tests.reference.random_circuits import (
    RandomCircuit,
    deterministic_circuit,
    random_cardinalities,
    random_circuit,
)


@for_seeds(40)
def test_random_circuits_are_what_they_should_be(seed):
    circuit = random_circuit(seed)
    assert is_smooth(circuit)
    assert is_decomposable(circuit)
    if seed % 2 == 0:
        assert is_structured_decomposable(circuit)
    decisions = deterministic_circuit(seed)
    assert is_deterministic(decisions)
    assert is_structured_decomposable(decisions)


def test_a_sum_over_different_scopes_is_not_smooth():
    rough = Sum([Bernoulli(0, 0.5), Bernoulli(0, 0.5) * Bernoulli(1, 0.5)])
    assert not is_smooth(Circuit(rough))
    # Also when it is deep inside.
    assert not is_smooth(Circuit(Product([rough, Gaussian(2, 0.0, 1.0)])))


def test_overlapping_factors_are_not_decomposable():
    overlap = Product([Bernoulli(0, 0.5), Product([Bernoulli(0, 0.1), Bernoulli(1, 0.5)])])
    circuit = Circuit(Sum([overlap, Product([Bernoulli(0, 0.5), Bernoulli(1, 0.5)])]))
    assert not is_decomposable(circuit)
    assert not is_structured_decomposable(circuit)


def test_two_ways_to_split_are_decomposable_but_not_structured():
    a, b, c = (Bernoulli(v, 0.5) for v in range(3))
    circuit = Circuit(0.5 * Product([a, Product([b, c])]) + 0.5 * Product([Product([a, b]), c]))
    assert is_decomposable(circuit)
    assert not is_structured_decomposable(circuit)


def test_unstructured_random_circuits_are_found_out():
    found = [
        is_structured_decomposable(
            RandomCircuit(seed, random_cardinalities(seed), structured=False).circuit()
        )
        for seed in range(40)
    ]
    assert not all(found)


def test_overlapping_children_are_not_deterministic():
    assert not is_deterministic(Circuit(0.5 * Bernoulli(0, 0.2) + 0.5 * Bernoulli(0, 0.7)))
    overlap = 0.5 * Categorical(0, [0.5, 0.5, 0.0]) + 0.5 * Categorical(0, [0.0, 0.5, 0.5])
    assert not is_deterministic(Circuit(overlap))
    apart = 0.5 * Categorical(0, [0.5, 0.5, 0.0]) + 0.5 * Indicator(0, 2, 3)
    assert is_deterministic(Circuit(apart))


def test_continuous_mixtures_are_not_provably_deterministic():
    assert not is_deterministic(Circuit(0.5 * Gaussian(0, 0.0, 1.0) + 0.5 * Gaussian(0, 1.0, 1.0)))


def test_pieces_that_only_touch_are_deterministic():
    low, high = (PiecewisePolynomial(0, [a, a + 1.0], [1.0]) for a in (0.0, 1.0))
    left, right = Gaussian(1, 0.0, 0.5), Gaussian(1, 3.0, 1.0)
    circuit = Circuit(0.7 * Product([low, left]) + 0.3 * Product([high, right]))
    assert is_deterministic(circuit)
    # At the point they share, the larger of the limits from both sides.
    completed = circuit.mpe([[0.999, np.nan], [1.0, np.nan], [1.001, np.nan]])[:, 1]
    np.testing.assert_array_equal(completed, [0.0, 0.0, 3.0])
    wide = PiecewisePolynomial(0, [0.5, 1.5], [1.0])
    assert not is_deterministic(Circuit(0.5 * low + 0.5 * wide))


def test_point_masses_are_deterministic_where_no_piece_reaches_them():
    piece = PiecewisePolynomial(0, [0.0, 1.0], [1.0])
    inside, beyond = (PiecewisePolynomial(0, [0.0, 1.0], [0.0], [x], [1.0]) for x in (1.0, 2.0))
    assert is_deterministic(Circuit(0.5 * piece + 0.5 * beyond))
    assert not is_deterministic(Circuit(0.5 * piece + 0.5 * inside))


def test_children_of_weight_zero_do_not_count():
    circuit = Circuit(Sum([Bernoulli(0, 0.2), Bernoulli(0, 0.7)], weights=[1.0, 0.0]))
    assert is_deterministic(circuit)


def test_determinism_hidden_below_a_product():
    """x0 xor x1: no single variable tells the two children apart, their elements do."""
    zero, one = (lambda v: Indicator(v, 0, 2)), (lambda v: Indicator(v, 1, 2))
    equal = Sum([zero(0) * zero(1), one(0) * one(1)], weights=[0.5, 0.5])
    different = Sum([zero(0) * one(1), one(0) * zero(1)], weights=[0.5, 0.5])
    assert is_deterministic(Circuit(0.5 * Sum([equal]) + 0.5 * Sum([different])))


def test_determinism_is_never_claimed_falsely():
    """Brute force: in a deterministic circuit at most one child of a sum is positive."""
    shapes = [(seed, random_cardinalities(seed, discrete=True)[:2]) for seed in range(60)]
    circuits = [RandomCircuit(seed, shape, zeros=0.5).circuit() for seed, shape in shapes]
    claimed = [circuit for circuit in circuits if is_deterministic(circuit)]
    assert len(claimed) > 10
    for circuit in claimed:
        states = np.indices(tuple(circuit.cardinalities.values()))
        X = states.reshape(len(states), -1).T.astype(float)
        for unit in circuit.plan.units:
            if isinstance(unit, Sum):
                positive = [
                    np.isfinite(Circuit(child).log_prob(X))
                    for child, weight in zip(unit.children, unit.weights)
                    if weight > 0
                ]
                assert np.sum(positive, axis=0).max() <= 1


def parities(n_variables):
    """Circuits of the rows of even and of odd parity: disjoint, but no single state says so."""
    even, odd = Indicator(0, 0, 2), Indicator(0, 1, 2)
    for variable in range(1, n_variables):
        zero, one = (Indicator(variable, state, 2) for state in (0, 1))
        even, odd = (
            Sum([Product([zero, same]), Product([one, other])], weights=[0.5, 0.5])
            for same, other in ((even, odd), (odd, even))
        )
    return even, odd


def test_decisions_among_many_states_are_proven_without_pairs(monkeypatch):
    """Networks of 60 states took half a minute for 1.9 million pairs of children."""
    monkeypatch.setattr("skcircuits.circuits.structure.properties.combinations", None)
    p = [Categorical(1, np.eye(60)[k] / 2 + 1 / 120) for k in range(60)]
    assert is_deterministic(Circuit(Sum([Indicator(0, k, 60) * p[k] for k in range(60)])))


@for_seeds(30)
def test_decisions_agree_with_pairs(seed, monkeypatch):
    circuit = random_circuit(seed)
    answer = is_deterministic(circuit)
    monkeypatch.setattr(
        "skcircuits.circuits.structure.properties._Decisions.__call__", lambda self, unit: False
    )
    assert is_deterministic(circuit) == answer


def test_deep_proofs_of_determinism_need_no_recursion():
    even, odd = parities(400)
    assert is_deterministic(Circuit(0.5 * even + 0.5 * odd))
    assert not is_deterministic(Circuit(0.5 * even + 0.5 * Sum([even, odd], weights=[0.5, 0.5])))


def test_chains_of_many_levels():
    units = list(parities(3))
    for _ in range(2500):
        units = [Sum([unit]) for unit in units]
    assert is_deterministic(Circuit(Sum(units, weights=[0.5, 0.5])))
    assert not is_deterministic(Circuit(Sum([units[0], units[0]], weights=[0.5, 0.5])))
    decision = Indicator(0, 0, 2) * Bernoulli(1, 0.5)
    for _ in range(2500):
        other = Indicator(0, 1, 2) * Bernoulli(1, 0.25)
        decision = Sum([Product([Sum([decision])]), other], weights=[0.5, 0.0])
    assert is_deterministic(Circuit(decision))
