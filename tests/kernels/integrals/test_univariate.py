"""Expected factors of pairs of input units, and the closed forms behind them."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import integrate, stats

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    MultivariateGaussian,
    Sum,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import (
    RBF,
    Delta,
    Hamming,
    Laplacian,
    Polynomial,
    expected_kernel,
    expected_kernel_matrix,
)
from skcircuits.kernels.families.base import Monomial
from skcircuits.kernels.integrals._rules import expected_laplacian, expected_rbf
from skcircuits.kernels.integrals.registry import expected_at_points

PAIRS = [
    (Categorical(0, [0.2, 0.0, 0.8]), Hamming(1.3)),
    (Categorical(0, [0.2, 0.0, 0.8]), Polynomial(3, 0.5)),
    (Gaussian(0, 0.4, 1.2), RBF(0.7)),
    (Gaussian(0, 0.4, 1.2), Polynomial(3, 0.5)),
    (Gaussian(0, 0.0, 1.2), Polynomial(2, 0.0)),
    (Gaussian(0, 0.0, 1.2), RBF(0.7)),
    (MultivariateGaussian([0, 1], [0.4, -1], [[1.4, 0.3], [0.3, 1]]), RBF(0.7)),
]


def nodes_of(circuit):
    """Nodes and weights that integrate the unit exactly or to 1e-12."""
    if circuit.cardinalities:
        states = np.arange(circuit.cardinalities[0], dtype=float)[:, None]
        return states, np.exp(circuit.log_prob(states))
    axis = np.linspace(-10, 10, 61)
    grid = np.stack(np.meshgrid(*[axis] * len(circuit.variables)), axis=-1)
    nodes = grid.reshape(-1, len(circuit.variables))
    return nodes, np.exp(circuit.log_prob(nodes)) * (axis[1] - axis[0]) ** nodes.shape[1]


@pytest.mark.parametrize("unit, kernel", PAIRS, ids=repr)
def test_pairs_of_units(unit, kernel):
    circuit = Circuit(unit)
    nodes, mass = nodes_of(circuit)
    expected = mass @ kernel(nodes) @ mass
    np.testing.assert_allclose(expected_kernel(circuit, circuit, kernel), expected, rtol=1e-9)


def test_pairs_of_gaussians_under_the_laplacian_kernel():
    unit, other = Gaussian(0, 0.4, 1.2), Gaussian(0, -0.3, 0.5)
    difference = stats.norm(unit.mean - other.mean, np.hypot(unit.std, other.std))
    expected = sum(
        integrate.quad(lambda d: difference.pdf(d) * np.exp(-0.7 * abs(d)), *ends, epsrel=1e-12)[0]
        for ends in ((-np.inf, 0.0), (0.0, np.inf))
    )
    value = expected_kernel(Circuit(unit), Circuit(other), Laplacian(0.7))
    assert value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "unit, kernel", [(Gaussian(0, 0, 1), Delta()), (PAIRS[-1][0], Laplacian())]
)
def test_pairs_without_closed_form(unit, kernel):
    with pytest.raises(CircuitPropertyError, match="closed-form expectation"):
        expected_kernel(Circuit(unit), Circuit(unit), kernel)


@pytest.mark.parametrize("degree", range(6))
def test_powers_of_gaussians(degree):
    units = [Gaussian(0, 0.4, 1.2), Gaussian(0, -3.0, 0.5)]
    layer = Circuit(Sum(units, weights=[0.5, 0.5])).plan.inputs[0][1]
    points = np.array([-1.5, 0.0, 0.3, 2.0])
    found = expected_at_points(layer, np.arange(2), [(1.0, Monomial(degree))], points)
    for mean, std, own in zip(layer.means, layer.stds, found):
        moment = stats.norm(mean, std).moment(degree) if degree else 1.0
        np.testing.assert_allclose(own, moment * points**degree, rtol=1e-12)


def test_families_do_not_mix_on_one_variable():
    with pytest.raises(CircuitPropertyError, match="Discrete and Gaussian"):
        expected_kernel(Circuit(Bernoulli(0, 0.5)), Circuit(Gaussian(0, 0, 1)), RBF())


@pytest.mark.parametrize("mean", [0.0, 1.0, 40.0, 1e6])
@pytest.mark.parametrize("std", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("gamma", [1e-6, 1.0, 1e3])
def test_univariate_forms_are_stable(mean, std, gamma):
    for form in (expected_rbf, expected_laplacian):
        value = form(np.array(mean), np.array(std), gamma)
        assert np.isfinite(value)
        assert 0.0 <= value <= 1.0
        assert value == form(np.array(-mean), np.array(std), gamma)


def test_laplacian_in_the_tails():
    # Far from the point the kernel is exponential: E = exp(-γμ + γ²σ²/2).
    value = expected_laplacian(np.array(300.0), np.array(2.0), 0.5)
    np.testing.assert_allclose(value, np.exp(-150.0 + 0.5), rtol=1e-12)
    # A wide distribution meets the kernel in its peak: E ~ 2/γ times the density.
    value = expected_laplacian(np.array(0.0), np.array(1e6), 1.0)
    np.testing.assert_allclose(value, 2 / (np.sqrt(2 * np.pi) * 1e6), rtol=1e-9)


def test_units_of_one_variable_with_few_and_many_states():
    """They are in different layers, between which kernels are pairs, too."""
    rng = np.random.default_rng(0)
    sizes = {0: (2, 30, 100), 1: (3, 40, 70)}
    p, q = (
        Circuit(
            Sum([Categorical(0, rng.dirichlet(np.ones(n))) for n in given], weights=[0.2, 0.3, 0.5])
        )
        for given in sizes.values()
    )
    masses = [np.exp(c.log_prob(np.arange(100.0)[:, None])) for c in (p, q)]
    gram = np.where(np.eye(100, dtype=bool), 1.0, np.exp(-1.0))
    assert_allclose(expected_kernel(p, q, Hamming(1.0)), masses[0] @ gram @ masses[1], rtol=1e-12)
    points = np.array([[1.0], [50.0], [99.0]])
    found = expected_kernel_matrix(np.array([[np.nan]]), points, circuit=p, kernel=Hamming(1.0))
    assert_allclose(found[0], masses[0] @ gram[:, [1, 50, 99]], rtol=1e-12)


def test_tables_of_many_states_are_held_in_parts():
    """The kernel table of 20,000 states took 3.6 GB with its temporary arrays."""
    n_states = 4000  # 128 MB
    rng = np.random.default_rng(0)
    p, q = (Circuit(Categorical(0, rng.dirichlet(np.ones(n_states)))) for _ in range(2))
    masses = [np.exp(c.log_prob(np.arange(float(n_states))[:, None])) for c in (p, q)]
    shared = np.exp(-1.0)
    tracemalloc.start()
    found = expected_kernel(p, q, Hamming(1.0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_allclose(found, (1 - shared) * masses[0] @ masses[1] + shared, rtol=1e-12)
    assert peak < 80e6
