import numpy as np
import pytest

from skcircuits.trees import _spanning_trees as laplacian
from skcircuits.trees._spanning_trees import (
    RowLaplacians,
    log_partition_and_marginals,
    log_partitions,
    log_partitions_and_marginals,
    reduced_laplacian,
)
from skcircuits.trees._trees import StateLayout
from tests.trees.conftest import all_spanning_trees, all_states, random_model


def _random_weights(n_graphs, n_vertices, seed=0):
    weights = np.random.default_rng(seed).gamma(0.5, size=(n_graphs, n_vertices, n_vertices))
    weights = weights + weights.transpose(0, 2, 1)
    weights[:, np.arange(n_vertices), np.arange(n_vertices)] = 0.0
    return weights


def _tree_weights(weights, trees):
    return np.array([np.prod([weights[u, v] for u, v in tree]) for tree in trees])


def _edge_probabilities(weights, trees):
    fractions = _tree_weights(weights, trees)
    fractions = fractions / fractions.sum()
    probabilities = np.zeros_like(weights)
    for fraction, tree in zip(fractions, trees, strict=True):
        for u, v in tree:
            probabilities[[u, v], [v, u]] += fraction
    return probabilities


@pytest.mark.parametrize("n_vertices", [1, 2, 3, 5])
def test_matrix_tree_theorem(n_vertices):
    weights = _random_weights(4, n_vertices)
    trees = all_spanning_trees(n_vertices)
    expected = [np.log(_tree_weights(w, trees).sum()) for w in weights]
    np.testing.assert_allclose(log_partitions(weights), expected, atol=1e-12)
    for w, value in zip(weights, expected, strict=True):
        log_sum, probabilities = log_partition_and_marginals(w)
        assert log_sum == pytest.approx(value, abs=1e-12)
        np.testing.assert_allclose(probabilities, _edge_probabilities(w, trees), atol=1e-12)


def test_laws_of_many_graphs():
    weights = _random_weights(5, 6)
    log_sums, probabilities = log_partitions_and_marginals(weights, root=4)
    single = [log_partition_and_marginals(w) for w in weights]
    np.testing.assert_allclose(log_sums, [log_sum for log_sum, _ in single], rtol=1e-12)
    np.testing.assert_allclose(probabilities, [p for _, p in single], atol=1e-12)
    assert reduced_laplacian(weights, root=4)[1].tolist() == [0, 1, 2, 3, 5]


def test_a_graph_in_parts_is_refused():
    weights = np.zeros((1, 4, 4))
    weights[0, [0, 1, 2, 3], [1, 0, 3, 2]] = 1.0
    with pytest.raises(FloatingPointError, match="positive definite"):
        log_partitions_and_marginals(weights)


def test_complete_graphs_have_cayleys_many_trees():
    for n_vertices in (10, 50, 200):
        log_sum, probabilities = log_partition_and_marginals(1 - np.eye(n_vertices))
        assert log_sum == pytest.approx((n_vertices - 2) * np.log(n_vertices), rel=1e-12)
        np.testing.assert_allclose(probabilities[0, 1:], 2 / n_vertices, rtol=1e-10)


def test_edge_probabilities_are_derivatives():
    weights = _random_weights(1, 8)[0]
    _, probabilities = log_partition_and_marginals(weights)
    up = weights.copy()
    up[2, 5] = up[5, 2] = weights[2, 5] * np.exp(1e-6)
    slope = (log_partition_and_marginals(up)[0] - log_partition_and_marginals(weights)[0]) / 1e-6
    assert slope == pytest.approx(probabilities[2, 5], abs=1e-5)
    assert probabilities.sum() == pytest.approx(2 * 7)


def test_the_best_connected_vertex_is_left_out():
    weights = _random_weights(1, 6)
    weights[:, 3] *= 100
    weights[:, :, 3] *= 100
    minors, kept = reduced_laplacian(weights)
    assert kept.tolist() == [0, 1, 2, 4, 5]
    assert minors.shape == (1, 5, 5)
    assert (np.linalg.eigvalsh(minors) > 0).all()


@pytest.mark.parametrize("cardinalities", [[2, 2, 2, 2], [3, 2, 4, 2], [1, 3, 2]])
def test_edge_counts_are_posterior_probabilities(cardinalities):
    model = random_model(cardinalities, seed=3)
    states = all_states(cardinalities)
    rng = np.random.default_rng(0)
    codes, weight = states[rng.integers(len(states), size=15)], rng.random(15)
    log_sums, counts = model.laplacians().edge_counts(codes, weight)
    trees = all_spanning_trees(len(cardinalities))
    expected = np.zeros_like(counts)
    affinities = model.affinities()
    for row, w, log_sum in zip(codes, weight, log_sums, strict=True):
        flat = model.layout.flat(row)
        own = affinities[np.ix_(flat, flat)]
        assert log_sum == pytest.approx(np.log(_tree_weights(own, trees).sum()), abs=1e-11)
        expected[np.ix_(flat, flat)] += w * _edge_probabilities(own, trees)
    np.testing.assert_allclose(counts, expected, atol=1e-11)


def test_every_row_has_one_edge_less_than_variables():
    model = random_model([2] * 30, seed=4)
    codes = np.random.default_rng(1).integers(2, size=(200, 30))
    _, counts = model.laplacians().edge_counts(codes, np.ones(200))
    assert counts.sum() == pytest.approx(2 * 29 * 200)
    np.testing.assert_allclose(counts, counts.T, atol=1e-9)


def test_any_vertex_can_be_left_out():
    model = random_model([2, 3, 2, 2], seed=5)
    codes = all_states([2, 3, 2, 2])
    results = [
        RowLaplacians(model.affinities(), model.layout, root).edge_counts(codes, np.ones(24))
        for root in range(4)
    ]
    for log_sums, counts in results[1:]:
        np.testing.assert_allclose(log_sums, results[0][0], atol=1e-11)
        np.testing.assert_allclose(counts, results[0][1], atol=1e-10)


def test_chunks_and_blocks_do_not_matter(monkeypatch):
    model = random_model([2] * 12, seed=6)
    rng = np.random.default_rng(2)
    codes, weight = rng.integers(2, size=(300, 12)), rng.random(300)
    whole = model.laplacians().edge_counts(codes, weight)
    sums = model.laplacians().log_partitions(codes)
    monkeypatch.setattr(laplacian, "_CHUNK_BYTES", 3 * 8 * 11**2)
    monkeypatch.setattr(laplacian, "_MIN_BLOCK_CELLS", 7)
    parts = model.laplacians().edge_counts(codes, weight)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-12)
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-10)
    np.testing.assert_allclose(model.laplacians().log_partitions(codes), sums, rtol=1e-12)


@pytest.mark.parametrize("cardinalities", [[2] * 7, [3, 2, 4, 1, 2, 3]])
@pytest.mark.parametrize("root", [0, 3])
def test_rows_one_at_a_time(monkeypatch, cardinalities, root):
    # As where minors are so large that a chunk holds one: no masks over whole matrices
    model = random_model(cardinalities, seed=8)
    laplacians = RowLaplacians(model.affinities(), model.layout, root)
    rng = np.random.default_rng(3)
    codes, weight = all_states(cardinalities)[rng.integers(100, size=60)], rng.random(60)
    whole = laplacians.edge_counts(codes, weight)
    sums = laplacians.log_partitions(codes)
    monkeypatch.setattr(laplacian, "_CHUNK_BYTES", 1)
    parts = laplacians.edge_counts(codes, weight)
    np.testing.assert_allclose(parts[0], whole[0], rtol=1e-13)
    np.testing.assert_allclose(parts[1], whole[1], atol=1e-12)
    np.testing.assert_allclose(laplacians.log_partitions(codes), sums, rtol=1e-13)


def test_no_rows():
    laplacians = random_model([2, 3]).laplacians()
    log_sums, counts = laplacians.edge_counts(np.empty((0, 2), dtype=np.int64), np.empty(0))
    assert log_sums.shape == (0,) and (counts == 0).all()
    assert laplacians.log_partitions(np.empty((0, 2), dtype=np.int64)).shape == (0,)


def test_disconnected_graphs_have_no_tree_and_no_marginals():
    affinities = np.zeros((6, 6))
    affinities[:2, 2:4] = affinities[2:4, :2] = 1.0  # the third variable has no edge
    laplacians = RowLaplacians(affinities, StateLayout([2, 2, 2]), root=0)
    codes = np.zeros((3, 3), dtype=np.int64)
    assert np.isneginf(laplacians.log_partitions(codes)).all()
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="positive definite"):
        laplacians.edge_counts(codes, np.ones(3))


def test_graphs_nearly_in_parts_are_exact():
    # Two triangles joined by one weak edge: 3 trees each, beyond what Cholesky resolves.
    weights = np.zeros((3, 6, 6))
    weights[:, :3, :3] = weights[:, 3:, 3:] = 1.0 - np.eye(3)
    weak = np.array([1e-18, 1e-200, 0.0])
    weights[:, 0, 3] = weights[:, 3, 0] = weak
    with np.errstate(divide="ignore"):
        expected = np.log(9.0) + np.log(weak)
    np.testing.assert_allclose(log_partitions(weights), expected, rtol=1e-12)
    np.testing.assert_allclose(log_partitions(weights, root=5), expected, rtol=1e-12)
