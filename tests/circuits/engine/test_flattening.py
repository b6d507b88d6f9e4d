import numpy as np
import pytest

from skcircuits.circuits import Categorical, Circuit, Product, Sum
from skcircuits.circuits._policy import MAX_EDGE_GROWTH
from skcircuits.circuits.queries._boxes import flatten
from skcircuits.circuits.structure.units import topological_order
from tests.reference.case import for_seeds
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


def depth(root):
    found = {}
    for unit in topological_order(root):
        found[id(unit)] = 1 + max((found[id(child)] for child in unit.children), default=0)
    return found[id(root)]


@for_seeds(40)
def test_keeps_the_function_of_random_circuits(seed):
    circuit = random_circuit(seed)
    flat = Circuit(flatten(circuit.root))
    X = random_rows(np.random.default_rng(seed), circuit, 30)
    np.testing.assert_allclose(flat.log_prob(X), circuit.log_prob(X), rtol=1e-12, atol=1e-12)
    assert depth(flat.root) <= depth(circuit.root)


def test_a_product_of_small_sums_becomes_one_mixture():
    flat = flatten(Product([pairs(0, 2), pairs(2, 2), mixture(4, 3)]))
    assert isinstance(flat, Sum) and len(flat.children) == 4
    # Sums over one variable stay factors
    assert all({len(part.scope) for part in term.children} == {1} for term in flat.children)
    assert len(Circuit(flat).plan.layers) == 3


def test_a_product_of_large_sums_stays():
    n = 2 * MAX_EDGE_GROWTH + 1
    flat = flatten(Product([pairs(0, n), pairs(2, n)]))
    assert isinstance(flat, Product) and len(flat.children) == 2


def test_long_chains_do_not_grow():
    def chain(first, length):
        rest = coin(first + 1) if length == 1 else chain(first + 1, length - 1)
        parts = [Product([coin(first, p), part]) for p, part in ((0.1, rest), (0.2, tail(first)))]
        return Sum(parts, weights=[0.3, 0.7])

    def tail(first):
        return Product([coin(v) for v in range(first + 1, n + 1)])

    n = 60
    root = chain(0, n)
    n_edges = sum(len(unit.children) for unit in topological_order(root))
    flat = flatten(root)
    assert sum(len(unit.children) for unit in topological_order(flat)) <= MAX_EDGE_GROWTH * n_edges
    X = random_rows(np.random.default_rng(0), Circuit(root), 5)
    np.testing.assert_allclose(Circuit(flat).log_prob(X), Circuit(root).log_prob(X), rtol=1e-12)


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
    n = 2 * MAX_EDGE_GROWTH + 1
    inner = Product([pairs(4, n), pairs(0, n)])
    flat = flatten(Product([inner, pairs(2, n), pairs(6, n)]))
    assert isinstance(flat, Product) and len(flat.children) == 4


def test_a_product_that_becomes_one_term_keeps_its_weight():
    inner = Sum([Product([coin(0), coin(1)])], weights=[8.0])
    circuit = Circuit(Product([inner, coin(2)]))
    assert Circuit(flatten(circuit.root)).log_partition == pytest.approx(np.log(8.0))
    lower, upper = [[1.0, 0.0, np.nan]], [[1.0, 0.0, np.nan]]
    assert circuit.log_prob_box(lower, upper)[0] == pytest.approx(np.log(8.0 * 0.3 * 0.7))
