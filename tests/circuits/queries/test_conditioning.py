"""Circuits made by conditioning, marginalising and normalising."""

import numpy as np
import pytest

from skcircuits.circuits import (
    Bernoulli,
    Circuit,
    Gaussian,
    Indicator,
    Product,
    Sum,
    is_decomposable,
    is_deterministic,
    is_smooth,
)
from skcircuits.exceptions import ZeroProbabilityError
from tests.reference.case import for_seeds
from tests.reference.enumeration import Completions, unit_values
from tests.reference.random_circuits import deterministic_circuit, random_circuit, random_rows


@for_seeds()
def test_condition_divides_by_the_evidence(seed):
    circuit = random_circuit(seed)
    x = random_rows(np.random.default_rng(seed), circuit, 1)[0]
    if not np.isnan(x).any():
        x[0] = np.nan
    completions = Completions(circuit, x)
    conditional = circuit.condition(x)
    assert conditional.variables == tuple(completions.missing)
    assert is_smooth(conditional) and is_decomposable(conditional)
    found = unit_values(conditional, completions.nodes) * completions.step
    np.testing.assert_allclose(found, completions.mass / completions.total, rtol=1e-9, atol=1e-14)


@for_seeds()
def test_marginalize_sums_out(seed):
    circuit = random_circuit(seed)
    x = random_rows(np.random.default_rng(seed), circuit, 1)[0]
    x[0] = circuit.sample(1, random_state=seed)[0, 0]
    marginal = circuit.marginalize(np.flatnonzero(np.isnan(x)))
    # The table keeps its width: removed columns are ignored, whatever they hold.
    assert marginal.variables == tuple(np.flatnonzero(~np.isnan(x)))
    filled = np.where(np.isnan(x), 99.0, x)
    np.testing.assert_allclose(
        np.exp(marginal.log_prob(filled[None])), Completions(circuit, x).total, rtol=1e-9
    )


@for_seeds(20)
def test_normalize_divides_by_the_partition_function(seed):
    circuit = random_circuit(seed)
    scaled = Circuit(Sum([circuit.root, circuit.root], weights=[3.0, 0.5]))
    X = circuit.sample(5, random_state=0)
    np.testing.assert_allclose(scaled.normalize().log_prob(X), circuit.log_prob(X), rtol=1e-10)


@for_seeds(20)
def test_determinism_survives(seed):
    circuit = deterministic_circuit(seed, (3, 2, 4, 2))
    x = circuit.sample(1, random_state=seed)[0]
    x[1:] = np.nan
    assert is_deterministic(circuit.condition(x))
    assert is_deterministic(circuit.normalize())


def test_weights_of_improbable_evidence_do_not_underflow():
    """Evidence of e^-100000: the posterior weights are pushed in, nothing is divided."""
    parts = [
        Product([*(Gaussian(v, m, 1.0) for v in range(20)), Gaussian(20, m, 1.0)])
        for m in (0.0, 0.001)
    ]
    circuit = Circuit(Sum(parts, weights=[0.5, 0.5]))
    x = np.append(np.full(20, 100.0), np.nan)
    odds = np.exp(20 * (100.0 * 0.001 - 0.5 * 0.001**2))
    np.testing.assert_allclose(
        circuit.condition(x).root.weights, [1 / (1 + odds), odds / (1 + odds)], rtol=1e-9
    )


@pytest.mark.parametrize("far", [43.0, 120.0])
def test_terms_that_no_float_weighs_stay_possible(far):
    """The observed cell makes the second term e^-925 or e^-7200 as probable as the first."""
    terms = [
        Product([Gaussian(0, mean, 1.0), Indicator(1, state, 2)])
        for state, mean in enumerate([0.0, far])
    ]
    circuit = Circuit(Sum(terms, weights=[0.5, 0.5]))
    found = circuit.condition([0.0, np.nan]).log_prob([[0.0, 0.0], [0.0, 1.0]])
    np.testing.assert_allclose(found, [0.0, -(far**2) / 2], rtol=1e-12, atol=1e-300)


def test_impossible_evidence_is_refused():
    circuit = Circuit(Indicator(0, 0, 2) * Bernoulli(1, 0.5))
    with pytest.raises(ZeroProbabilityError, match="rows 0"):
        circuit.condition([1.0, np.nan])
    with pytest.raises(ZeroProbabilityError):
        Circuit(Sum([Bernoulli(0, 0.5)], weights=[0.0])).normalize()


def test_something_must_remain():
    circuit = Circuit(Bernoulli(0, 0.5) * Bernoulli(1, 0.5))
    with pytest.raises(ValueError, match="condition must leave at least one variable"):
        circuit.condition([1.0, 0.0])
    with pytest.raises(ValueError, match="marginalize must leave at least one variable"):
        circuit.marginalize([0, 1])
    with pytest.raises(ValueError, match=r"got variables=\[7\]"):
        circuit.marginalize([7])


def test_constants_of_marginals_do_not_lose_digits():
    """The constants of each term are e^-742: as a float it has two digits."""

    def term(q):
        constants = [
            Sum([Bernoulli(0, 0.3)], weights=[1e-160]),
            Sum([Bernoulli(1, 0.5)], weights=[1e-162]),
        ]
        return Product([*constants, Bernoulli(2, q)])

    circuit = Circuit(Sum([term(0.1), term(0.8)], weights=[0.7, 0.3]))
    X = np.array([[np.nan, np.nan, 0.0], [np.nan, np.nan, 1.0]])
    np.testing.assert_allclose(
        circuit.marginalize([0, 1]).log_prob(X), circuit.log_prob(X), rtol=1e-14
    )


@pytest.mark.parametrize("weight", [1e-30, 1e30])
def test_marginals_of_any_size(weight):
    n = 20
    circuit = Circuit(Product([Sum([Gaussian(i, 0, 1)], weights=[weight]) for i in range(n)]))
    marginal = circuit.marginalize(range(1, n))
    assert marginal.variables == (0,)
    assert marginal.log_partition == pytest.approx(circuit.log_partition, rel=1e-14)


@pytest.mark.parametrize("sign", [-1, 1])
def test_terms_too_small_for_a_weight_are_kept(sign):
    """A term weighs e^-1382 of the other, and its unit makes up for it."""

    def power(variable, exponent):
        return [Sum([Gaussian(variable + i, 0, 1)], weights=[10.0**exponent]) for i in range(3)]

    large, small = (Product([*power(1, 200 * s), *power(4, -200 * s)]) for s in (sign, -sign))
    terms = [Product([Gaussian(0, mean, 1), unit]) for mean, unit in [(0, large), (3, small)]]
    circuit = Circuit(Sum(terms, weights=[0.25, 0.75]))
    marginal = circuit.marginalize([1, 2, 3])
    X = np.zeros((2, 7))
    X[:, 0], X[:, 1:4] = [-1.0, 4.0], np.nan
    np.testing.assert_allclose(marginal.log_prob(X), circuit.log_prob(X), rtol=1e-13)


def test_zero_circuits_have_no_marginals():
    zero = Sum([Bernoulli(0, 0.5)], weights=[0.0])
    circuit = Circuit(Product([zero, Bernoulli(1, 0.5)]))
    for removed in ([], [0], [1]):
        with pytest.raises(ZeroProbabilityError, match="must be positive somewhere"):
            circuit.marginalize(removed)


def test_nothing_to_do_keeps_the_circuit():
    circuit = Circuit(0.5 * Bernoulli(0, 0.5) + 0.5 * Bernoulli(0, 0.1))
    X = np.array([[0.0], [1.0]])
    same = circuit.marginalize([])
    np.testing.assert_array_equal(same.log_prob(X), circuit.log_prob(X))


def test_shared_units_stay_shared():
    shared = Product([Bernoulli(0, 0.5), Bernoulli(1, 0.2)])
    circuit = Circuit(
        Sum([Product([shared, Bernoulli(2, p)]) for p in (0.1, 0.5, 0.9)], weights=[0.2, 0.3, 0.5])
    )
    assert circuit.condition([np.nan, np.nan, 1.0]).n_units <= circuit.n_units
    assert circuit.marginalize([2]).n_units == 4


@pytest.mark.parametrize("log_odds", [-900.0, -5_000.0])
def test_conditional_terms_far_below_the_smallest_float(log_odds):
    """A term of posterior weight e^-900 is all there is where the other one is impossible."""
    distance = np.sqrt(-2.0 * log_odds)
    near = Product([Gaussian(0, 0.0, 1.0), Indicator(1, 0, 2)])
    far = Product([Gaussian(0, distance, 1.0), Indicator(1, 1, 2)])
    circuit = Circuit(Sum([near, far], weights=[0.5, 0.5]))
    conditional = circuit.condition([0.0, np.nan])
    found = conditional.log_prob([[np.nan, 0.0], [np.nan, 1.0]])
    np.testing.assert_allclose(found, [0.0, log_odds], rtol=1e-12)
    assert is_deterministic(conditional)
