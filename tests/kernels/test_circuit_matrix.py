"""Gram matrices of lists of circuits."""

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Circuit, Gaussian, MultivariateGaussian, Product, Sum
from skcircuits.exceptions import IncompatibleCircuitsError
from skcircuits.kernels import (
    RBF,
    Delta,
    Hamming,
    Polynomial,
    circuit_kernel_matrix,
    expected_kernel,
)

KERNEL = Hamming(1.5) + 0.5 * Polynomial(2, 0.3)


def circuit(seed, leaves=None):
    """Mixtures over three binary variables that share their input units, or do not."""
    rng = np.random.default_rng(seed)
    p = np.random.default_rng(0 if leaves is None else leaves).random((4, 3))
    parts = [Product([Bernoulli(v, each) for v, each in enumerate(row)]) for row in p]
    return Circuit(Sum(parts, weights=rng.dirichlet(np.ones(4))))


CIRCUITS = [circuit(0), circuit(1), circuit(2, leaves=7), circuit(3), circuit(1)]
STATES = np.array(np.meshgrid([0.0, 1.0], [0.0, 1.0], [0.0, 1.0])).reshape(3, -1).T


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_entries_are_expected_kernels(n_jobs):
    gram = circuit_kernel_matrix(CIRCUITS, kernel=KERNEL, n_jobs=n_jobs)
    expected = [[expected_kernel(p, q, KERNEL) for q in CIRCUITS] for p in CIRCUITS]
    np.testing.assert_allclose(gram, expected, rtol=1e-12)
    np.testing.assert_array_equal(gram, gram.T)
    rectangle = circuit_kernel_matrix(CIRCUITS[:2], CIRCUITS[1:], kernel=KERNEL, n_jobs=n_jobs)
    np.testing.assert_allclose(rectangle, gram[:2, 1:], rtol=1e-12)


def test_circuits_that_differ_below_the_root_alone():
    """What circuits have in common is computed once: weights far below tell them apart."""
    means = np.random.default_rng(0).normal(size=(4, 2))
    leaves = [[Gaussian(v, mean, 0.5) for mean in row] for v, row in enumerate(means)]

    def own(seed):
        rng = np.random.default_rng(seed)
        halves = []
        for first in (0, 2):
            pairs = [Product(pair) for pair in zip(leaves[first], leaves[first + 1])]
            halves.append([Sum(pairs, weights=rng.dirichlet(np.ones(2))) for _ in range(2)])
        return Circuit(Sum([Product(pair) for pair in zip(*halves)], weights=[0.4, 0.6]))

    circuits = [own(seed) for seed in range(12)]
    gram = circuit_kernel_matrix(circuits, kernel=RBF(0.3))
    expected = [[expected_kernel(p, q, RBF(0.3)) for q in circuits] for p in circuits[:3]]
    np.testing.assert_allclose(gram[:3], expected, rtol=1e-12)
    assert len(np.unique(gram.round(10))) > 60


@pytest.mark.parametrize("kernel", [Hamming(1.5), KERNEL], ids=repr)
def test_points_agree_with_enumeration(kernel):
    points = np.vstack([STATES, STATES, STATES])
    expected = [np.exp(p.log_prob(STATES)) @ kernel(STATES, points) for p in CIRCUITS]
    values = circuit_kernel_matrix(CIRCUITS, points, kernel=kernel)
    np.testing.assert_allclose(values, expected, rtol=1e-12)


def test_unnormalised_circuits_and_joint_gaussians():
    joint = Circuit(Sum([MultivariateGaussian([0, 1], [0.0, 1.0], np.eye(2))], weights=[3.0]))
    expected = expected_kernel(joint, joint, RBF(0.5))
    np.testing.assert_allclose(circuit_kernel_matrix([joint], kernel=RBF(0.5)), [[expected]])
    # E[exp(-|X - s|²/2)] = 2^(-1/2) exp(-(m - s)²/4) for each variable
    value = circuit_kernel_matrix([joint], [[0.0, 1.0]], kernel=RBF(0.5))
    np.testing.assert_allclose(value, [[1.5]])


def test_nothing_gives_nothing():
    assert circuit_kernel_matrix([], kernel=Delta()).shape == (0, 0)
    assert circuit_kernel_matrix(CIRCUITS[:1], [], kernel=Delta()).shape == (1, 0)


def test_clear_errors():
    with pytest.raises(TypeError, match=r"be Circuit objects.*got kind='str'"):
        circuit_kernel_matrix(["p"], kernel=Delta())
    with pytest.raises(ValueError, match="points must be complete"):
        circuit_kernel_matrix(CIRCUITS, [[0.0, np.nan, 1.0]], kernel=Delta())
    with pytest.raises(ValueError, match="at least 3 columns"):
        circuit_kernel_matrix(CIRCUITS, [[0.0]], kernel=Delta())
    with pytest.raises(IncompatibleCircuitsError, match="the same variables"):
        circuit_kernel_matrix([CIRCUITS[0], Circuit(Bernoulli(0, 0.5))], kernel=Delta())
