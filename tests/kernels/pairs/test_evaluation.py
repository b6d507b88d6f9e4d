"""The pass over pairs of circuits: its short cuts against the plain way."""

import numpy as np
import pytest

from skcircuits.circuits import Categorical, Circuit, Gaussian, Product, Sum
from skcircuits.circuits.engine._layers import SumWeights
from skcircuits.kernels import RBF, Delta, Hamming, Linear, Polynomial
from skcircuits.kernels._points import posterior_weights
from skcircuits.kernels.families.base import structure_of
from skcircuits.kernels.pairs import _evaluation as evaluation
from skcircuits.kernels.pairs._evaluation import CircuitBatch, expected_kernels
from skcircuits.kernels.pairs._plan import compile_pairs, split_kernel


def latent_tree(n_variables=5, n_states=3, n_keys=4, seed=0):
    """A chain of hidden states: every region mixes and multiplies three factors."""
    rng = np.random.default_rng(seed)

    def leaves(variable):
        return [Categorical(variable, rng.dirichlet(np.ones(n_states))) for _ in range(n_keys)]

    nodes = leaves(0)
    for variable in range(1, n_variables, 2):
        parts = nodes, leaves(variable), leaves(variable + 1)
        products = [Product(part) for part in zip(*parts, strict=True)]
        nodes = [Sum(products, weights=rng.dirichlet(np.ones(n_keys))) for _ in range(n_keys)]
    return Circuit(Sum(nodes, weights=rng.dirichlet(np.ones(n_keys))))


def incomplete_rows(circuit, n_rows, seed=1):
    X = circuit.sample(n_rows, random_state=seed)
    X[np.random.default_rng(seed).random(X.shape) < 0.4] = np.nan
    return X


def batches(circuit, X):
    """Circuits with the weights of their rows, and with shared weights."""
    yield CircuitBatch(circuit.plan, posterior_weights(circuit.plan, X), X)
    yield CircuitBatch(circuit.plan, SumWeights(circuit.plan.weights.log), X)


KERNELS = [
    Hamming(2.0),
    Hamming(2.0) * Polynomial(2, 0.5),
    (Hamming(2.0, variables=[0, 3]) + 0.5 * Delta(variables=[1])) * (Linear() + RBF(0.3)),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_tables_change_nothing(kernel, monkeypatch):
    circuit = latent_tree()
    X = incomplete_rows(circuit, 40)
    pairs = compile_pairs(circuit.plan, circuit.plan)
    parts = split_kernel(pairs, structure_of(kernel, circuit.variables))
    fast = [expected_kernels(pairs, parts, b, b) for b in batches(circuit, X)]
    monkeypatch.setattr(evaluation, "TABLE_STATES", 0)
    slow = [expected_kernels(pairs, parts, b, b) for b in batches(circuit, X)]
    np.testing.assert_allclose(fast, slow, rtol=1e-12)


@pytest.mark.parametrize("numbers", [1, 2**9, 2**17])
def test_blocks_change_nothing(numbers, monkeypatch):
    circuit = latent_tree()
    X, Y = incomplete_rows(circuit, 23), incomplete_rows(circuit, 9, seed=2)
    pairs = compile_pairs(circuit.plan, circuit.plan)
    parts = split_kernel(pairs, structure_of(Hamming(2.0), circuit.variables))
    left, right = next(batches(circuit, X)), next(batches(circuit, Y))
    expected = expected_kernels(pairs, parts, left, right)
    monkeypatch.setattr(evaluation, "CACHE_NUMBERS", numbers)
    values = expected_kernels(pairs, parts, left, right)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    turned = expected_kernels(pairs, parts, right, left)
    np.testing.assert_allclose(turned, values.T, rtol=1e-12)


def test_circuits_that_are_all_equal():
    circuit = latent_tree()
    X = np.tile(incomplete_rows(circuit, 1), (12, 1))
    pairs = compile_pairs(circuit.plan, circuit.plan)
    parts = split_kernel(pairs, structure_of(Hamming(2.0), circuit.variables))
    batch = next(batches(circuit, X))
    values = expected_kernels(pairs, parts, batch, batch)
    np.testing.assert_allclose(values, values[0, 0], rtol=1e-13)


def test_products_of_many_numbers():
    """Fully factorised components over continuous variables: halves of halves of factors."""
    rng = np.random.default_rng(0)
    components = [
        Product([Gaussian(v, rng.normal(), 0.5 + rng.random()) for v in range(7)]) for _ in range(3)
    ]
    circuit = Circuit(Sum(components, weights=[0.2, 0.3, 0.5]))
    pairs = compile_pairs(circuit.plan, circuit.plan)
    parts = split_kernel(pairs, structure_of(RBF(0.2), circuit.variables))
    nothing = np.full((1, 7), np.nan)
    batch = CircuitBatch(circuit.plan, circuit.plan.weights, nothing)
    weights, gamma = np.array([0.2, 0.3, 0.5]), 0.2
    expected = 0.0
    for k, own in enumerate(components):
        for other, partner in enumerate(components):
            widths = [1 + 2 * gamma * (a.std**2 + b.std**2) for a, b in _leaves(own, partner)]
            gaps = [(a.mean - b.mean) ** 2 for a, b in _leaves(own, partner)]
            factors = np.exp(-gamma * np.divide(gaps, widths)) / np.sqrt(widths)
            expected += weights[k] * weights[other] * factors.prod()
    np.testing.assert_allclose(expected_kernels(pairs, parts, batch, batch), expected)


def _leaves(own, partner):
    return zip(own.children, partner.children, strict=True)
