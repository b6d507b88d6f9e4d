"""Elimination orders and trees."""

import numpy as np
import pytest
import sklearn

from skcircuits.graphical import FactorGraph, IsingModel
from skcircuits.graphical.inference._elimination import (
    build_tree,
    connected_components,
    elimination_order,
    interaction_graph,
)

TWO = np.full(64, 2)


def width_of(scopes, order):
    """Eliminate step by step and watch the largest neighbourhood."""
    graph = interaction_graph(scopes)
    widest = 0
    for variable in order:
        neighbors = graph.pop(variable)
        widest = max(widest, len(neighbors))
        for neighbor in neighbors:
            graph[neighbor] = (graph[neighbor] | neighbors) - {neighbor, variable}
    return widest


def test_chain_and_cycle_have_small_width():
    chain = [(i, i + 1) for i in range(9)]
    cycle = [*chain, (9, 0)]
    assert width_of(chain, elimination_order(chain, TWO)) == 1
    assert width_of(cycle, elimination_order(cycle, TWO)) == 2


@pytest.mark.parametrize("order", ["min_fill", "min_weight"])
def test_tree_agrees_with_stepwise_elimination(order):
    scopes = IsingModel.grid_edges(4, 4).tolist()
    chosen = elimination_order(scopes, TWO, order)
    assert sorted(chosen) == list(range(16))
    tree = build_tree(scopes, chosen, tuple(TWO.tolist()))
    assert tree.width == width_of(scopes, chosen) == 4


def test_min_weight_avoids_large_domains():
    # Eliminating the hub first would join the large domains.
    scopes = [(0, 1), (0, 2), (0, 3)]
    order = elimination_order(scopes, np.array([2, 50, 50, 50]), "min_weight")
    assert order.index(0) >= 2


def test_given_order_is_checked():
    assert elimination_order([(0, 1)], TWO, [5, 1, 0]) == [1, 0]
    with pytest.raises(ValueError, match="name every variable once"):
        elimination_order([(0, 1)], TWO, [0])
    with pytest.raises(ValueError, match="order must be 'auto'"):
        elimination_order([(0, 1)], TWO, "best")


def test_any_order_gives_the_same_answer():
    rng = np.random.default_rng(0)
    model = IsingModel.grid(3, 3, couplings=rng.normal(size=12))
    reference = model.marginals()
    for order in (rng.permutation(9), "min_weight"):
        circuit = model.compile(order=order)
        for variable, table in circuit.marginals(np.full((1, 9), np.nan)).items():
            np.testing.assert_allclose(table[0], reference[variable], rtol=1e-10)


def test_components():
    graph = interaction_graph([(0, 1), (2,), (3, 4), (4, 5)])
    assert connected_components(graph) == [[0, 1], [2], [3, 4, 5]]


def test_width_is_told_before_the_work_starts():
    dense = FactorGraph(
        [((i, j), np.ones((2, 2))) for i in range(40) for j in range(i)], np.full(40, 2)
    )
    with pytest.raises(MemoryError, match=r"fit into the working memory; got width=39"):
        dense.log_partition()
    with pytest.raises(MemoryError, match="width=39"):
        dense.compile()
    # Evidence makes it small again.
    assert dense.width(dict.fromkeys(range(30), 0)) == 9


def test_working_memory_is_the_bound():
    model = IsingModel.grid(6, 6)
    with sklearn.config_context(working_memory=1e-3), pytest.raises(MemoryError, match="width=6"):
        model.compile()
