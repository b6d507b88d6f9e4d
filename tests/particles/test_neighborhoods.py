import numpy as np
import pytest
from scipy import sparse

from skcircuits.particles._neighborhoods import Neighborhoods, RandomScopes


def scopes_by_coordinate(neighborhoods):
    """What each coordinate's kernel sees, as sets."""
    seen = {}
    for bucket in neighborhoods.buckets:
        for scope, owned in zip(bucket.scopes, bucket.owned):
            real = frozenset(scope[scope < neighborhoods.n_coordinates].tolist())
            seen |= {int(i): real for i in owned}
    return [set(seen[i]) for i in range(neighborhoods.n_coordinates)]


def test_a_graph_is_closed_and_symmetric():
    graph = Neighborhoods.from_graph([[1], [], [3, 3, 2], []])
    assert scopes_by_coordinate(graph) == [{0, 1}, {0, 1}, {2, 3}, {2, 3}]
    assert graph.n_kernels == 2  # twins share


def test_scopes_stay_one_sided():
    scopes = Neighborhoods.from_scopes([[1], [], [0]])
    assert scopes_by_coordinate(scopes) == [{0, 1}, {1}, {0, 2}]


def test_every_coordinate_is_moved_once_on_a_random_graph():
    rng = np.random.default_rng(0)
    adjacency = np.triu(rng.random((60, 60)) < rng.random((60, 1)) ** 3, 1)
    adjacency |= adjacency.T
    graph = Neighborhoods.from_graph([np.flatnonzero(row) for row in adjacency])
    owned = np.concatenate([bucket.owned.ravel() for bucket in graph.buckets])
    assert sorted(owned) == list(range(60))
    closed = adjacency | np.eye(60, dtype=bool)
    assert scopes_by_coordinate(graph) == [set(np.flatnonzero(row).tolist()) for row in closed]


def test_padding_never_more_than_doubles_a_scope():
    rng = np.random.default_rng(1)
    graph = Neighborhoods.from_graph([rng.choice(300, 1 + i % 40) for i in range(300)])
    for bucket in graph.buckets:
        sizes = np.sum(bucket.scopes < 300, axis=1)
        assert np.all(bucket.scopes.shape[1] <= np.maximum(sizes + 4, sizes / 0.8))
    assert len(graph.buckets) < 12


def test_unequal_blocks():
    graph = Neighborhoods.from_graph([[1], [2], []], blocks=[[4], [0, 2], [1, 3]])
    first, second, third = {0, 2, 4}, {0, 1, 2, 3, 4}, {0, 1, 2, 3}
    assert scopes_by_coordinate(graph) == [second, third, second, third, first]
    np.testing.assert_array_equal(graph.node_of_coordinate, [1, 2, 1, 2, 0])


def test_a_complete_graph_is_one_kernel():
    everyone = [[j for j in range(9) if j != i] for i in range(9)]
    assert Neighborhoods.from_graph(everyone).n_kernels == 1
    assert Neighborhoods.from_scopes(everyone, merge=False).n_kernels == 9


@pytest.mark.parametrize(
    ("neighbors", "blocks", "message"),
    [
        ([[2], [0]], None, "neighbors must lie in 0..1"),
        ([[-1], [0]], None, "neighbors must lie in 0..1"),
        ([[1], [0]], [[0]], "one block per node"),
        ([[1], [0]], [[0, 1], [1]], "every coordinate exactly once"),
        ([[1], [0]], [[0], [2]], "blocks must lie in 0..1"),
    ],
)
def test_impossible_graphs_are_refused(neighbors, blocks, message):
    with pytest.raises(ValueError, match=message):
        Neighborhoods.from_graph(neighbors, blocks)


@pytest.mark.parametrize(
    ("lists", "got"),
    [
        ({0: [1], 1: [0]}, "kind='dict'"),
        (sparse.eye_array(3, format="csr"), "kind='csr_array'"),
        ([[1.5], [0.0]], r"one=1\.5"),
        ([[np.inf], [0]], "one=inf"),
        ([1, 0], "node=0, its=1"),
        ([["b"], ["a"]], r"node=0, its=\['b'\]"),
        (np.ones((3, 3)) - np.eye(3), r"shape=\(3, 3\)"),
        (np.ones((2, 2)) > 0, r"node=0, its=\[True, True\]"),
    ],
)
@pytest.mark.parametrize(
    "build", [Neighborhoods.from_graph, Neighborhoods.from_scopes, RandomScopes]
)
def test_what_only_looks_like_lists_is_refused(build, lists, got):
    message = rf"one list of integers per node; got {got}\. .*np\.flatnonzero\(row\)"
    with pytest.raises(ValueError, match=message):
        build(lists)


def test_whole_numbers_of_any_type_are_lists():
    pair = scopes_by_coordinate(Neighborhoods.from_graph([[1.0], np.array([0], dtype=np.uint8)]))
    assert pair == [{0, 1}, {0, 1}]


def test_random_scopes_are_keyed_by_seed_and_iteration():
    everyone = [[j for j in range(12) if j != i] for i in range(12)]
    first = scopes_by_coordinate(RandomScopes(everyone, n_neighbors=4, seed=3).draw(5))
    again = scopes_by_coordinate(RandomScopes(everyone, n_neighbors=4, seed=3).draw(5))
    later = scopes_by_coordinate(RandomScopes(everyone, n_neighbors=4, seed=3).draw(6))
    other = scopes_by_coordinate(RandomScopes(everyone, n_neighbors=4, seed=4).draw(5))
    assert first == again and first != later and first != other
    assert all(i in scope and len(scope) == 4 for i, scope in enumerate(first))


def test_random_scopes_stay_inside_the_blanket():
    chain = RandomScopes([[1], [0, 2], [1, 3], [2], []], n_neighbors=5)
    assert scopes_by_coordinate(chain.draw(0)) == [{0, 1}, {0, 1, 2}, {1, 2, 3}, {2, 3}, {4}]
    alone = RandomScopes([[1], [0, 2], [1]], n_neighbors=1)
    assert scopes_by_coordinate(alone.draw(0)) == [{0}, {1}, {2}]


def test_random_scopes_draw_every_neighbor_equally_often():
    scopes = RandomScopes([[1, 2, 3], [0], [0], [0]], n_neighbors=2, seed=0)
    draws = [next(iter(scopes_by_coordinate(scopes.draw(t))[0] - {0})) for t in range(600)]
    assert np.all(np.abs(np.bincount(draws, minlength=4)[1:] - 200) < 50)


def test_random_scopes_of_blocks():
    scopes = RandomScopes([[1], [0]], [[0, 1], [2, 3]], n_neighbors=2)
    assert scopes_by_coordinate(scopes.draw(0)) == [{0, 1, 2, 3}] * 4
    unequal = RandomScopes([[1], [0, 2], [1]], [[3], [0, 2], [1]], n_neighbors=5).draw(0)
    everything = {0, 1, 2, 3}
    assert scopes_by_coordinate(unequal) == [everything, {0, 1, 2}, everything, {0, 2, 3}]
    assert unequal.scope_sizes.tolist() == [3, 4, 3]


def test_other_scopes_for_the_same_kernels():
    graph = Neighborhoods.from_scopes([[1], [0], []], merge=False)
    other = graph.with_scopes(np.array([[0, 2], [1, 3], [2, 3]]))
    assert scopes_by_coordinate(other) == [{0, 2}, {1}, {2}]
    assert scopes_by_coordinate(graph) == [{0, 1}, {0, 1}, {2}]
