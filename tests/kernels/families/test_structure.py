"""Kernels taken apart along scopes: few parts where they decompose as the scopes do."""

import numpy as np
import pytest

from skcircuits.circuits import Bernoulli, Circuit, Product, Sum
from skcircuits.circuits.structure.properties import mask_of
from skcircuits.exceptions import IncompatibleCircuitsError
from skcircuits.kernels import (
    RBF,
    Delta,
    Hamming,
    Polynomial,
    expected_kernel,
    expected_kernel_matrix,
    is_kernel_compatible,
)
from skcircuits.kernels.families.base import structure_of
from skcircuits.kernels.pairs._plan import compile_pairs, split_kernel
from tests.reference.enumeration import Completions


def product_of_sums(blocks):
    """A product of sums of two kernels over blocks of variables."""
    kernel = None
    for block in blocks:
        factor = Hamming(1.0, variables=block) + 0.5 * Delta(variables=block)
        kernel = factor if kernel is None else kernel * factor
    return kernel


def balanced(n_variables, width=2, seed=0):
    rng = np.random.default_rng(seed)

    def region(variables, n_sums):
        if len(variables) == 1:
            return [Bernoulli(variables[0], p) for p in rng.random(width)]
        middle = len(variables) // 2
        sides = region(variables[:middle], width), region(variables[middle:], width)
        products = [Product(pair) for pair in zip(*sides, strict=True)]
        return [Sum(products, weights=rng.dirichlet(np.ones(width))) for _ in range(n_sums)]

    return Circuit(region(range(n_variables), 1)[0])


def independent(n_variables, seed=0):
    p = np.random.default_rng(seed).random((3, n_variables))
    parts = [Product([Bernoulli(v, each) for v, each in enumerate(row)]) for row in p]
    return Circuit(Sum(parts, weights=[0.2, 0.3, 0.5]))


def n_parts(circuit, kernel):
    structure = structure_of(kernel, circuit.variables)
    pairs = compile_pairs(circuit.plan, circuit.plan, structure.variable_order)
    return sum(map(len, split_kernel(pairs, structure).parts.values()))


def test_parts_grow_linearly_with_the_blocks():
    circuit = balanced(32)
    counts = [n_parts(circuit, product_of_sums(np.arange(32).reshape(-1, 2)[:m])) for m in (8, 16)]
    assert counts[1] <= 2 * counts[0]


def test_factors_of_wide_products_stay_with_what_the_kernel_couples():
    crossed = [[i, 16 + i] for i in range(16)]
    assert n_parts(independent(32), product_of_sums(crossed)) <= 4 * 32


@pytest.mark.parametrize(
    "blocks",
    [
        [[0, 1], [2, 3], [4, 5]],
        [[0, 3], [1, 4], [2, 5]],
        [[0, 3], [1, 4], [2, 5], [0, 4], [1, 5], [2, 3]],  # 64 terms before they meet
    ],
)
@pytest.mark.parametrize("make", [balanced, independent])
def test_products_of_sums_agree_with_enumeration(make, blocks):
    p, q = make(6), make(6, seed=1)
    kernel = product_of_sums(blocks)
    left, right = (Completions(circuit, np.full(6, np.nan)) for circuit in (p, q))
    expected = left.mass @ kernel(left.nodes, right.nodes) @ right.mass
    assert is_kernel_compatible(kernel, p, q)
    np.testing.assert_allclose(expected_kernel(p, q, kernel), expected, rtol=1e-12)
    X, points = left.nodes[:3].copy(), right.nodes[5:9]
    X[0], X[1, 2:] = np.nan, np.nan
    values = expected_kernel_matrix(X, points, circuit=p, kernel=kernel)
    rows = [Completions(p, x).expectation(lambda nodes: kernel(nodes, points)) for x in X]
    np.testing.assert_allclose(values, rows, rtol=1e-12)


def test_kernels_that_fall_into_too_many_terms_are_refused():
    circuit = balanced(28)
    crossed = product_of_sums([[i, 14 + i] for i in range(14)])
    assert not is_kernel_compatible(crossed, circuit, circuit)
    with pytest.raises(IncompatibleCircuitsError, match="a kernel must decompose its variables"):
        expected_kernel(circuit, circuit, crossed)


@pytest.mark.parametrize(
    ("kernel", "is_product"),
    [
        (RBF(0.3), True),
        (RBF(0.3, variables=[0]) * Delta(variables=[1, 2]), True),
        (RBF(0.3, variables=[0]) * (Hamming(variables=[1]) + Delta(variables=[1])), True),
        (RBF(0.3, variables=[0]) * Hamming(variables=[1, 2]), True),
        (RBF(0.3, variables=[0]) * (Hamming(variables=[1, 2]) + Delta(variables=[1])), False),
        (Polynomial(2, 1.0), False),
    ],
)
def test_products_of_functions_of_single_variables(kernel, is_product):
    assert bool(structure_of(kernel, range(3)).is_product) == is_product


def test_powers_split_by_the_binomial_theorem():
    structure = structure_of(Polynomial(3, 0.0), range(4))
    parts = structure.split(structure.root, mask_of([0, 1]), mask_of([2, 3]))
    assert sorted(weight for weight, _, _ in parts) == [1.0, 1.0, 3.0, 3.0]


def test_what_one_side_does_not_see_stays_whole():
    kernel = (RBF(0.1, variables=[0, 1]) + Delta(variables=[1])) * Hamming(variables=[2])
    structure = structure_of(kernel, range(3))
    ((weight, left, right),) = structure.split(structure.root, mask_of([0, 1]), mask_of([2]))
    assert weight == 1.0
    assert sorted([*left, *right]) == sorted(structure.root)
