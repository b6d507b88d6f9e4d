import numpy as np
import pytest

from skcircuits.circuits import Categorical, Circuit, Product, Sum
from skcircuits.circuits.flattening import MOST_GROWTH, flatten
from tests.reference.random_circuits import random_circuit, random_rows


def coin(variable, p=0.3):
    return Categorical(variable, [1.0 - p, p])


def mixture(variable, n_coins):
    coins = [coin(variable, (i + 1) / (n_coins + 1)) for i in range(n_coins)]
    return Sum(coins, weights=np.full(n_coins, 1.0 / n_coins))


def pairs(first, n):
    """A sum of n products over two variables."""
    parts = [Product([coin(first, i / n), coin(first + 1, i / n)]) for i in range(n)]
    return Sum(parts, weights=np.full(n, 1.0 / n))


@pytest.mark.parametrize("seed", range(40))
def test_keeps_the_function_of_random_circuits(seed):
    circuit = random_circuit(seed)
    flat = Circuit(flatten(circuit.root))
    X = random_rows(np.random.default_rng(seed), circuit, 30)
    np.testing.assert_allclose(flat.log_prob(X), circuit.log_prob(X), rtol=1e-12, atol=1e-12)
    assert len(flat.plan.layers) <= len(circuit.plan.layers)


def test_a_product_of_small_sums_becomes_one_mixture():
    flat = flatten(Product([pairs(0, 2), pairs(2, 2), mixture(4, 3)]))
    assert isinstance(flat, Sum) and len(flat.children) == 4
    # Sums over one variable stay factors
    assert all({len(part.scope) for part in term.children} == {1} for term in flat.children)
    assert len(Circuit(flat).plan.layers) == 3


def test_a_product_of_large_sums_stays():
    n = 2 * MOST_GROWTH + 1
    flat = flatten(Product([pairs(0, n), pairs(2, n)]))
    assert isinstance(flat, Product) and len(flat.children) == 2


def test_shared_sums_stay_shared():
    shared = pairs(0, 3)
    flat = flatten(Sum([shared, Sum([shared], weights=[1.0])], weights=[0.4, 0.6]))
    assert [len(child.children) for child in flat.children] == [3, 3]
    assert flat.children[0] is flat.children[1]
    np.testing.assert_allclose(flat.weights, [0.4, 0.6])


def test_an_unnormalised_chain_of_sums_keeps_its_weight():
    flat = flatten(Sum([Sum([coin(0)], weights=[2.0])], weights=[3.0]))
    assert Circuit(flat).log_prob([[np.nan]])[0] == pytest.approx(np.log(6.0))


def test_products_merge_even_where_sums_stay():
    n = 2 * MOST_GROWTH + 1
    inner = Product([pairs(4, n), pairs(0, n)])
    flat = flatten(Product([inner, pairs(2, n), pairs(6, n)]))
    assert isinstance(flat, Product) and len(flat.children) == 4
