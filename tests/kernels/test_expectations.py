"""The capability table: which family and kernel have a closed form, and that it is right."""

import numpy as np
import pytest
from scipy import integrate, stats

from skcircuits.circuits import (
    Bernoulli,
    Categorical,
    Circuit,
    Gaussian,
    Indicator,
    MultivariateGaussian,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import (
    RBF,
    Delta,
    Hamming,
    Laplacian,
    Linear,
    Polynomial,
    expected_kernel,
    expected_kernel_matrix,
)
from skcircuits.numerics.gaussian_univariate import expected_laplacian, expected_rbf

KERNELS = {
    "rbf": RBF(0.7),
    "laplacian": Laplacian(0.7),
    "hamming": Hamming(1.3),
    "delta": Delta(),
    "linear": Linear(),
    "polynomial": Polynomial(3, 0.5),
}
DISCRETE = [Bernoulli(0, 0.3), Categorical(0, [0.2, 0.0, 0.8]), Indicator(0, 1, 3)]
CONTINUOUS = [
    Gaussian(0, 0.4, 1.2),
    MultivariateGaussian([0, 1], [0.4, -1], [[1.4, 0.3], [0.3, 1]]),
]
# What design and documentation promise; everything else must raise.
EXACT = {
    **{type(unit): set(KERNELS) for unit in DISCRETE},
    Gaussian: {"rbf", "laplacian", "linear", "polynomial"},
    MultivariateGaussian: {"rbf"},
}
TABLE = [(unit, name) for unit in DISCRETE + CONTINUOUS for name in KERNELS]
NAMES = [f"{type(unit).__name__}-{name}" for unit, name in TABLE]


def nodes_of(circuit):
    """Nodes and weights that integrate the unit exactly or to 1e-12."""
    if circuit.cardinalities:
        states = np.arange(circuit.cardinalities[0], dtype=float)[:, None]
        return states, np.exp(circuit.log_prob(states))
    axis = np.linspace(-10, 10, 61)
    grid = np.stack(np.meshgrid(*[axis] * len(circuit.variables)), axis=-1)
    nodes = grid.reshape(-1, len(circuit.variables))
    return nodes, np.exp(circuit.log_prob(nodes)) * (axis[1] - axis[0]) ** nodes.shape[1]


@pytest.mark.parametrize("unit, name", TABLE, ids=NAMES)
def test_capability_table(unit, name):
    circuit, kernel = Circuit(unit), KERNELS[name]
    points = np.array([[1.0, 0.5], [0.0, -0.3]])
    rows = np.full((1, 2), np.nan)
    if name not in EXACT[type(unit)]:
        with pytest.raises(CircuitPropertyError, match="closed-form expectation"):
            expected_kernel_matrix(rows, points, circuit=circuit, kernel=kernel)
        with pytest.raises(CircuitPropertyError, match="closed-form expectation"):
            expected_kernel(circuit, circuit, kernel)
        return
    own = points[:, : len(circuit.variables)]
    nodes, mass = nodes_of(circuit)
    if name != "laplacian" or circuit.cardinalities:
        against_points, against_itself = mass @ kernel(nodes, own), mass @ kernel(nodes) @ mass
    else:
        against_points = [quadrature_of_laplacian(unit, s, kernel) for s in own[:, 0]]
        wider = Gaussian(0, 0.0, unit.std * np.sqrt(2))
        against_itself = quadrature_of_laplacian(wider, 0.0, kernel)
    matrix = expected_kernel_matrix(rows, points, circuit=circuit, kernel=kernel)
    np.testing.assert_allclose(matrix[0], against_points, rtol=1e-9)
    np.testing.assert_allclose(expected_kernel(circuit, circuit, kernel), against_itself, rtol=1e-9)


def quadrature_of_laplacian(unit, point, kernel):
    density = stats.norm(unit.mean, unit.std)

    def integrand(x):
        return density.pdf(x) * np.exp(-kernel.gamma * abs(x - point))

    return sum(
        integrate.quad(integrand, *ends, epsabs=0, epsrel=1e-12)[0]
        for ends in ((-np.inf, point), (point, np.inf))
    )


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
