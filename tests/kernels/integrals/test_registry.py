"""Closed forms from outside the package."""

import numpy as np
import pytest

from skcircuits.circuits import (
    Bernoulli,
    Circuit,
    FactorGaussian,
    Gaussian,
    MultivariateGaussian,
    Sum,
)
from skcircuits.exceptions import CircuitPropertyError
from skcircuits.kernels import (
    RBF,
    KernelFamily,
    Polynomial,
    expected_kernel,
    expected_kernel_matrix,
    is_kernel_compatible,
    mmd2,
    register_expectation,
)
from skcircuits.kernels.integrals import registry


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    monkeypatch.setattr(registry, "_RULES", dict(registry._RULES))


class Cosine(KernelFamily):
    _parameters = ("variables",)

    def univariate(self, x, y):
        return np.cos(np.subtract(x, y))


def cosine_points(layer, units, kernel, points):
    gap = layer.means[units][:, None] - points
    return np.cos(gap) * np.exp(-(layer.stds[units][:, None] ** 2) / 2)


def test_a_kernel_of_ones_own_serves_discrete_units_at_once():
    p = Circuit(Sum([Bernoulli(0, 0.2) * Bernoulli(1, 0.5), Bernoulli(0, 0.7) * Bernoulli(1, 0.1)]))
    states = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    mass = np.exp(p.log_prob(states))
    expected = mass @ Cosine()(states) @ mass
    assert expected_kernel(p, p, Cosine()) == pytest.approx(expected, rel=1e-12)


def test_nothing_certifies_that_it_is_positive_definite():
    assert not Cosine().is_positive_definite()
    assert not (RBF() + Cosine()).is_positive_definite()


def test_what_is_not_registered_raises_with_the_way_out():
    p = Circuit(Gaussian(0, 0.5, 2.0))
    assert not is_kernel_compatible(Cosine(), p, p)
    with pytest.raises(CircuitPropertyError, match=r"Cosine.*Gaussian.*register_expectation"):
        expected_kernel(p, p, Cosine())


def test_points_and_pairs_are_registered_apart():
    p = Circuit(Gaussian(0, 0.5, 2.0))
    register_expectation(Gaussian, Cosine, points=cosine_points)
    value = expected_kernel_matrix([[np.nan]], [[0.2]], circuit=p, kernel=Cosine())
    np.testing.assert_allclose(value, np.cos(0.3) * np.exp(-2.0))
    assert not is_kernel_compatible(Cosine(), p, p)
    register_expectation(Gaussian, Cosine, pairs=lambda *args: np.ones((1, 1)))
    assert is_kernel_compatible(Cosine(), p, p)
    again = expected_kernel_matrix([[np.nan]], [[0.2]], circuit=p, kernel=Cosine())
    np.testing.assert_array_equal(again, value)


def test_registered_rules_are_replaced():
    p = Circuit(Gaussian(0, 0.0, 1.0))
    register_expectation(Gaussian, RBF, pairs=lambda *args: np.full((1, 1), 7.0))
    assert expected_kernel(p, p, RBF()) == 7.0


def test_joint_units_take_rules_over_their_scope():
    p = Circuit(MultivariateGaussian([0, 1], [0.0, 1.0], np.eye(2)))

    def pairs(left, right, kernels, X, Y):
        assert [type(kernel) for kernel in kernels] == [Cosine, type(None)]
        return np.full((len(left), len(right), len(X), len(Y)), 0.25)

    register_expectation(MultivariateGaussian, Cosine, pairs=pairs)
    assert expected_kernel(p, p, Cosine(variables=[0])) == 0.25


def test_a_family_pairs_with_the_one_it_derives_from():
    """Covariances of low rank plus a diagonal beside dense ones: what mixtures choose differs."""
    loadings, noise = np.array([[1.0], [-0.5], [0.3]]), np.array([0.4, 0.2, 0.7])
    scope, means = [0, 1, 2], np.array([[0.0, 1.0, -1.0], [0.5, 0.0, 0.2]])
    low_rank = FactorGaussian(scope, means[0], loadings, noise)
    dense = MultivariateGaussian(scope, means[0], loadings @ loadings.T + np.diag(noise))
    other = MultivariateGaussian(scope, means[1], np.diag([1.0, 2.0, 0.5]))
    for kernel in (RBF(0.3), Polynomial(degree=2)):
        expected = expected_kernel(Circuit(dense), Circuit(other), kernel)
        for pair in ((low_rank, other), (other, low_rank)):
            value = expected_kernel(*map(Circuit, pair), kernel)
            np.testing.assert_allclose(value, expected, rtol=1e-12)
    mixture = Circuit(0.3 * low_rank + 0.7 * other)
    assert mmd2(mixture, Circuit(0.3 * dense + 0.7 * other), RBF(0.3)) < 1e-12
