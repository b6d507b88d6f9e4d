"""Expected kernels between conditional distributions against explicit sums."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skcircuits.graphical import FactorGraph, IsingModel
from skcircuits.graphical.inference._elimination import joint_table
from skcircuits.stein import _measures as expected_tables
from skcircuits.stein._measures import apply_tables, expected_kernel_of_component


def kernel_tables(cardinalities, seed=0):
    """Symmetric positive definite tables."""
    rng = np.random.default_rng(seed)
    factors = [rng.normal(size=(k, k)) for k in cardinalities]
    return {variable: factor @ factor.T for variable, factor in enumerate(factors)}


def solve(graph, hidden, seed, n):
    codes = np.random.default_rng(seed).integers(
        graph.cardinalities, size=(n, len(graph.neighbors))
    )
    posterior = graph.posterior(hidden)
    return [posterior.solve_component(component, codes) for component in posterior.components]


def explicit(left, right, tables):
    """Joint tables and the Kronecker product of the kernel tables."""
    tree = left.component.tree
    kernel = np.ones((1, 1))
    for variable in tree.variables:
        kernel = np.kron(kernel, tables[variable])
    p = joint_table(tree, left.conditionals)[left.rows * (len(left.log_partition) > 1)]
    q = joint_table(tree, right.conditionals)[right.rows * (len(right.log_partition) > 1)]
    return p.reshape(len(p), -1) @ kernel @ q.reshape(len(q), -1).T


MODELS = {
    "grid": (IsingModel.grid(3, 3, couplings=np.linspace(-1, 1, 12)), [0, 1, 3, 4, 8]),
    "states": (
        FactorGraph(
            [
                ((0, 1), np.random.default_rng(0).uniform(0.1, 1, (2, 3))),
                ((1, 2), np.random.default_rng(1).uniform(0.1, 1, (3, 4))),
                ((2, 3, 4), np.random.default_rng(2).uniform(0.1, 1, (4, 2, 3))),
            ],
            [2, 3, 4, 2, 3],
        ),
        [1, 2, 4],
    ),
}


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("limit", [0, 10**6], ids=["pairs of buckets", "embedded"])
def test_equals_the_explicit_sum(model, limit, monkeypatch):
    monkeypatch.setattr(expected_tables, "EMBEDDED_STATES", limit)
    graph, hidden = MODELS[model]
    tables = kernel_tables(graph.cardinalities)
    for left, right in zip(solve(graph, hidden, 0, 7), solve(graph, hidden, 1, 5)):
        values = expected_kernel_of_component(left, right, tables)
        assert values.shape == (7, 5)
        assert_allclose(values, explicit(left, right, tables), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("limit", [0, 10**6], ids=["pairs of buckets", "embedded"])
def test_components_without_boundary_are_constant(limit, monkeypatch):
    monkeypatch.setattr(expected_tables, "EMBEDDED_STATES", limit)
    graph = FactorGraph([((0, 1), [[1.0, 2.0], [3.0, 1.0]]), ((2,), [1.0, 1.0])], [2, 2, 2])
    tables = kernel_tables(graph.cardinalities)
    (left,), (right,) = solve(graph, [0, 1], 0, 3), solve(graph, [0, 1], 1, 2)
    values = expected_kernel_of_component(left, right, tables)
    assert values.shape == (3, 2)
    assert_allclose(values, values[0, 0])


def test_pairs_of_buckets_in_little_memory(monkeypatch):
    import sklearn

    monkeypatch.setattr(expected_tables, "EMBEDDED_STATES", 0)
    graph, hidden = MODELS["grid"]
    tables = kernel_tables(graph.cardinalities)
    for left, right in zip(solve(graph, hidden, 0, 40), solve(graph, hidden, 1, 30)):
        whole = expected_kernel_of_component(left, right, tables)
        with sklearn.config_context(working_memory=0.01):
            pieces = expected_kernel_of_component(left, right, tables)
        assert_allclose(pieces, whole, rtol=1e-12)


def test_apply_tables_is_one_product_per_axis():
    rng = np.random.default_rng(0)
    vectors, first, second = (rng.normal(size=s) for s in ((5, 2, 3), (2, 4), (3, 2)))
    expected = np.einsum("nab,ac,bd->ncd", vectors, first, second)
    assert_allclose(apply_tables(vectors, [first, second]), expected)
