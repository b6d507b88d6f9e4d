"""Entropy and divergence against enumeration."""

import numpy as np
import pytest
from scipy import stats

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
    PiecewisePolynomial,
    Sum,
    entropy,
    kl_divergence,
)
from skcircuits.exceptions import CircuitPropertyError, IncompatibleCircuitsError
from tests.reference.case import for_seeds
from tests.reference.enumeration import Completions, unit_values
from tests.reference.random_circuits import deterministic_circuit, random_cardinalities


def _states(circuit):
    completions = Completions(circuit, np.full(len(circuit.variables), np.nan))
    return completions.nodes, completions.mass / completions.total


def _cardinalities(seed):
    return tuple(random_cardinalities(seed, discrete=True)[-6:])


@for_seeds(100)
def test_entropy_of_discrete_circuits(seed):
    circuit = deterministic_circuit(seed, _cardinalities(seed), zeros=0.2)
    _, masses = _states(circuit)
    np.testing.assert_allclose(entropy(circuit), stats.entropy(masses), rtol=1e-9, atol=1e-12)


@for_seeds(100)
def test_divergence_of_discrete_circuits(seed):
    p = deterministic_circuit(seed, _cardinalities(seed), zeros=0.2)
    q = deterministic_circuit(seed + 1, _cardinalities(seed), zeros=0.1 * (seed % 2))
    nodes, masses = _states(p)
    expected = stats.entropy(masses, unit_values(q, nodes))
    np.testing.assert_allclose(kl_divergence(p, q), expected, rtol=1e-9, atol=1e-12)


def _labelled(stds, means, masses):
    """A Gaussian for each state of a label: deterministic and continuous."""
    return Circuit(
        Sum(
            [
                Indicator(0, label, len(masses)) * Gaussian(1, mean, std)
                for label, (mean, std) in enumerate(zip(means, stds))
            ],
            weights=masses,
        )
    )


def test_closed_forms_of_mixed_circuits():
    p = _labelled([1.0, 2.0], [0.0, 3.0], [0.4, 0.6])
    q = _labelled([1.5, 1.0], [1.0, 3.5], [0.7, 0.3])
    weights = np.array([0.4, 0.6])
    conditional = np.log([1.0, 2.0]) + 0.5 * np.log(2 * np.pi * np.e)
    assert entropy(p) == pytest.approx(stats.entropy(weights) + weights @ conditional)
    gaussians = [
        np.log(b / a) + (a**2 + (m - n) ** 2) / (2 * b**2) - 0.5
        for a, m, b, n in [(1.0, 0.0, 1.5, 1.0), (2.0, 3.0, 1.0, 3.5)]
    ]
    expected = stats.entropy(weights, [0.7, 0.3]) + weights @ gaussians
    assert kl_divergence(p, q) == pytest.approx(expected, rel=1e-12)


def test_joint_gaussians():
    covariance = np.array([[2.0, 0.5], [0.5, 1.0]])
    p = Circuit(MultivariateGaussian([0, 1], [0.0, 1.0], covariance))
    q = Circuit(MultivariateGaussian([0, 1], [1.0, 1.0], np.eye(2)))
    assert entropy(p) == pytest.approx(stats.multivariate_normal([0, 1], covariance).entropy())
    expected = 0.5 * (np.trace(covariance) - 2 + 1.0 - np.log(np.linalg.det(covariance)))
    assert kl_divergence(p, q) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_a_circuit_does_not_diverge_from_itself(seed):
    p = deterministic_circuit(seed, zeros=0.2)
    assert kl_divergence(p, p) == pytest.approx(0.0, abs=1e-13)


def test_probabilities_of_few_digits_are_those_of_a_distribution():
    thirds = [0.333333333] * 3
    p = Circuit(
        Categorical(0, thirds) * PiecewisePolynomial(1, [0, 1, 2, 4], [0.333333333, 0.666666666, 0])
    )
    assert kl_divergence(p, p) == pytest.approx(0.0, abs=1e-15)
    expected = np.log(3) + stats.entropy([1 / 3, 2 / 3])
    assert entropy(p) == pytest.approx(expected, rel=1e-13)
    assert p.log_prob_box([[np.nan, 0]], [[np.nan, 2]])[0] == pytest.approx(0.0, abs=1e-15)
    # Rounding alone is kept, for files give the same numbers
    tenths = Categorical(0, [0.1] * 10)
    assert (tenths.probabilities == 0.1).all()


@pytest.mark.parametrize("mass", [1e-9, 1e-13, 1e-100, 1e-300])
def test_divergences_are_infinite_however_small_the_mass_that_is_missed(mass):
    def branches(masses):
        kinds = [Indicator(0, k, 3) * Bernoulli(1, own) for k, own in enumerate(masses)]
        return Circuit(Sum(kinds, weights=[0.2, 0.3, 0.5]))

    p, q = branches([0.5, mass, 0.1]), branches([0.4, 0.0, 0.2])
    assert kl_divergence(p, q) == np.inf
    assert np.isfinite(kl_divergence(q, p))
    # A term of one side meets several of the other
    factorised = Circuit(Categorical(0, [0.2, 0.3, 0.5]) * Bernoulli(1, mass))
    assert np.isfinite(kl_divergence(factorised, p))
    histogram, outside = ([mass, 1.0 - mass], [0.0, 1.0])
    left, right = (Circuit(PiecewisePolynomial(0, [0, 1, 2], m)) for m in (histogram, outside))
    assert kl_divergence(left, right) == np.inf


def test_unnormalised_circuits_are_normalised():
    p = deterministic_circuit(1, (2, 3))
    scaled = Circuit(Sum([p.root], weights=[7.0]))
    assert entropy(scaled) == pytest.approx(entropy(p), rel=1e-12)
    assert kl_divergence(scaled, p) == pytest.approx(0.0, abs=1e-13)


def test_what_has_no_closed_form_is_refused():
    mixture = Circuit(0.5 * Bernoulli(0, 0.2) + 0.5 * Bernoulli(0, 0.7))
    with pytest.raises(CircuitPropertyError, match="Average log probabilities of samples"):
        entropy(mixture)
    with pytest.raises(CircuitPropertyError, match="must be deterministic for a divergence"):
        kl_divergence(Circuit(Bernoulli(0, 0.5)), mixture)
    with pytest.raises(IncompatibleCircuitsError, match="same variables"):
        kl_divergence(mixture, Circuit(Bernoulli(1, 0.2)))
