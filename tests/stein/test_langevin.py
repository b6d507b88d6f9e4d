"""Langevin Stein kernels against finite differences and the normal distribution."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.circuits import Circuit, Gaussian, MultivariateGaussian
from skcircuits.graphical import GaussianMRF
from skcircuits.kernels import RBF, Laplacian
from skcircuits.stein import InverseMultiquadric, stein_discrepancy, stein_gram, stein_test

KERNELS = [RBF(gamma=0.7), InverseMultiquadric(scale=1.3), InverseMultiquadric(0.8, exponent=-0.3)]
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=["rbf", "imq", "imq-0.3"])


@pytest.fixture
def field():
    return GaussianMRF([[2.0, -0.5], [-0.5, 1.0]], [1.0, 0.3])


@every_kernel
def test_definition_by_finite_differences(kernel, field):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 2))
    scores = field.grad_log_prob(X)
    step = 1e-4
    shifts = step * np.eye(2)

    def k(x, y):
        return kernel(x[None], y[None])[0, 0]

    expected = np.empty((4, 4))
    for i, x in enumerate(X):
        for j, y in enumerate(X):
            value = k(x, y) * scores[i] @ scores[j]
            for axis, e in enumerate(shifts):
                value += scores[j][axis] * (k(x + e, y) - k(x - e, y)) / (2 * step)
                value += scores[i][axis] * (k(x, y + e) - k(x, y - e)) / (2 * step)
                mixed = k(x + e, y + e) - k(x + e, y - e) - k(x - e, y + e) + k(x - e, y - e)
                value += mixed / (4 * step**2)
            expected[i, j] = value
    assert_allclose(stein_gram(X, field, kernel), expected, atol=1e-5)


@every_kernel
def test_stein_identity_by_quadrature(kernel):
    normal = GaussianMRF([[1.0]], [0.5])
    nodes = np.linspace(-9, 10, 2000)[:, None]
    weights = np.exp(-0.5 * (nodes[:, 0] - 0.5) ** 2)
    weights /= weights.sum()
    K = stein_gram(nodes, normal, kernel)
    assert np.abs(weights @ K).max() < 1e-8
    assert_allclose(stein_discrepancy(nodes, normal, kernel, weights), 0.0, atol=1e-8)


@every_kernel
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_positive_semidefinite_and_shift_invariant(kernel, shift, field):
    X = np.random.default_rng(0).normal(size=(300, 2)) * 2
    moved = GaussianMRF.from_moments(field.mean_ + shift, field.covariance_)
    K = stein_gram(X + shift, moved, kernel)
    assert (K == K.T).all()
    assert np.linalg.eigvalsh(K).min() > -1e-8
    assert_allclose(K, stein_gram(X, field, kernel), rtol=1e-6, atol=1e-6 * np.abs(K).max())


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_extreme_scales_stay_finite(scale):
    X = np.random.default_rng(0).normal(size=(20, 2)) * scale
    target = GaussianMRF(np.eye(2) / scale**2, np.zeros(2))
    assert np.isfinite(stein_gram(X, target, InverseMultiquadric(scale))).all()


def test_discrepancy_tells_targets_apart(field):
    drawn = field.sample(400, random_state=0)
    other = GaussianMRF.from_moments(field.mean_ + 0.5, field.covariance_)
    kernel = InverseMultiquadric()
    assert stein_discrepancy(drawn, field, kernel) < 0.2 * stein_discrepancy(drawn, other, kernel)


def test_kernel_values_and_errors(field):
    kernel = InverseMultiquadric(scale=2.0)
    assert_allclose(kernel([[0.0, 0.0]], [[0.0, 0.0], [2.0, 0.0]]), [[1.0, 2**-0.5]])
    with pytest.raises(ValueError, match="scale must be positive"):
        InverseMultiquadric(scale=0.0)
    with pytest.raises(ValueError, match="exponent must be between -1 and 0"):
        InverseMultiquadric(exponent=-1.0)
    with pytest.raises(TypeError, match="kernel of the Langevin operator must be RBF"):
        stein_gram([[0.0, 0.0]], field, Laplacian())
    with pytest.raises(TypeError, match="kernel of the Langevin operator"):
        stein_gram([[0.0, 0.0]], field, RBF(variables=[0]))
    with pytest.raises(ValueError, match="operator for a continuous target"):
        stein_gram([[0.0, 0.0]], field, RBF(), operator="barker")
    with pytest.raises(ValueError, match="Only categorical variables can be collapsed"):
        stein_gram([[0.0, np.nan]], field, RBF())


def test_circuits_are_targets_of_stein_methods():
    circuit = Circuit(
        0.3 * MultivariateGaussian([0, 1], [0.0, 1.0], [[1.0, 0.5], [0.5, 1.0]])
        + 0.7 * Gaussian(0, 2.0, 0.5) * Gaussian(1, 0.0, 1.0)
    )
    X = circuit.sample(200, random_state=0)
    kernel = InverseMultiquadric(2.0)
    own = stein_discrepancy(X, circuit, kernel)
    assert stein_discrepancy(X + 0.5, circuit, kernel) > 3 * own
    assert stein_test(X, circuit, kernel, random_state=0).pvalue > 0.05
    assert stein_test(X + 0.5, circuit, kernel, random_state=0).pvalue < 0.01
