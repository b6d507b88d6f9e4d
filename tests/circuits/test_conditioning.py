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
from tests.reference.case import N_CIRCUITS
from tests.reference.enumeration import Completions, unit_values
from tests.reference.random_circuits import deterministic_circuit, random_circuit, random_rows


@pytest.mark.parametrize("seed", range(N_CIRCUITS))
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


@pytest.mark.parametrize("seed", range(N_CIRCUITS))
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


@pytest.mark.parametrize("seed", range(20))
def test_normalize_divides_by_the_partition_function(seed):
    circuit = random_circuit(seed)
    scaled = Circuit(Sum([circuit.root, circuit.root], weights=[3.0, 0.5]))
    X = circuit.sample(5, random_state=0)
    np.testing.assert_allclose(scaled.normalize().log_prob(X), circuit.log_prob(X), rtol=1e-10)


@pytest.mark.parametrize("seed", range(20))
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
