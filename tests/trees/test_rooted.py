import numpy as np
import pytest
from scipy.sparse.csgraph import minimum_spanning_tree

from skcircuits.trees._spanning_trees import sample_spanning_trees
from skcircuits.trees._trees import (
    edges_of,
    maximum_spanning_tree,
    root_at_center,
    top_down_order,
    vertex_depths,
)


def _random_parents(n_trees, n_vertices, seed=0):
    weights = np.random.default_rng(seed).random((n_vertices, n_vertices))
    weights = np.triu(weights, 1) + np.triu(weights, 1).T
    graphs = np.zeros(n_trees, dtype=int)
    return sample_spanning_trees(weights[None], graphs, np.random.default_rng(seed).random)


def test_parents_come_first():
    parents = _random_parents(20, 30)
    order = top_down_order(parents)
    position = np.argsort(order, axis=1)
    for tree in range(20):
        children = np.flatnonzero(parents[tree] >= 0)
        assert (position[tree, parents[tree, children]] < position[tree, children]).all()


def test_depths_count_the_ancestors():
    parents = _random_parents(10, 25)
    depths = vertex_depths(parents)
    np.testing.assert_array_equal(depths[parents < 0], 0)
    trees, children = np.nonzero(parents >= 0)
    up = parents[trees, children]
    np.testing.assert_array_equal(depths[trees, children], depths[trees, up] + 1)


def test_order_of_a_long_path():
    order = top_down_order(
        np.arange(1, 1001)[None] * (np.arange(1000) < 999) - (np.arange(1000) == 999)
    )
    np.testing.assert_array_equal(order[0], np.arange(999, -1, -1))


def test_edges_point_down():
    parents = _random_parents(5, 12)
    edges = edges_of(parents)
    assert edges.shape == (5, 11, 2)
    for tree, tree_edges in enumerate(edges):
        np.testing.assert_array_equal(parents[tree, tree_edges[:, 1]], tree_edges[:, 0])


def test_single_vertex():
    assert edges_of(np.array([[-1]])).shape == (1, 0, 2)
    assert maximum_spanning_tree(np.zeros((1, 1))).tolist() == [-1]


def test_maximum_spanning_tree_is_scipys():
    rng = np.random.default_rng(0)
    for n_vertices in (2, 5, 40):
        weights = rng.random((n_vertices, n_vertices))
        weights += weights.T
        np.fill_diagonal(weights, 0)
        edges = edges_of(maximum_spanning_tree(weights)[None])[0]
        scipy_total = -minimum_spanning_tree(-np.triu(weights, 1)).sum()
        np.testing.assert_allclose(weights[edges[:, 0], edges[:, 1]].sum(), scipy_total)


def test_equal_weights_still_span():
    edges = edges_of(maximum_spanning_tree(np.zeros((6, 6)))[None])[0]
    assert set(edges.ravel()) == set(range(6))


@pytest.mark.parametrize("seed", range(5))
def test_rooting_at_the_center_keeps_the_tree(seed):
    rng = np.random.default_rng(seed)
    parents = np.array([-1] + [rng.integers(v) for v in range(1, 30)])
    rooted = root_at_center(parents)

    def edges(array):
        return {frozenset((v, p)) for v, p in enumerate(array.tolist()) if p >= 0}

    def depth(array):
        steps, reached = 0, np.flatnonzero(array < 0)
        while len(reached):
            reached = np.flatnonzero(np.isin(array, reached))
            steps += 1
        return steps

    assert edges(rooted) == edges(parents)
    assert (rooted < 0).sum() == 1
    others = [depth(_rerooted(parents, root)) for root in range(30)]
    assert depth(rooted) == min(others)


def _rerooted(parents, root):
    """The same tree with any root, by turning edges around."""
    result, child, vertex = parents.copy(), -1, root
    while vertex >= 0:
        above = parents[vertex]
        result[vertex], child, vertex = child, vertex, above
    return result
