import numpy as np
import pytest
from scipy.stats import chisquare

from skcircuits.trees import edges_of, sample_spanning_trees
from tests.trees.conftest import all_spanning_trees, prior_of_trees, random_model


def _observed(parents, trees):
    number = {frozenset(map(frozenset, tree)): i for i, tree in enumerate(trees)}
    drawn = [number[frozenset(map(frozenset, edges.tolist()))] for edges in edges_of(parents)]
    return np.bincount(drawn, minlength=len(trees))


def test_there_are_cayleys_many_trees():
    assert [len(all_spanning_trees(n)) for n in (1, 2, 3, 4, 5)] == [1, 1, 3, 16, 125]


def test_trees_have_their_probabilities():
    model = random_model([2] * 5, seed=1)
    trees, prior = prior_of_trees(model)
    weights = np.broadcast_to(model.weights, (20_000, 5, 5))
    observed = _observed(sample_spanning_trees(weights, np.random.default_rng(0)), trees)
    # Rare trees are pooled: the chi-square law needs a few expected draws in each cell.
    order = np.argsort(prior)
    rare = np.cumsum(20_000 * prior[order]) < 10
    pools = np.where(rare, 0, np.cumsum(~rare))
    observed = np.bincount(pools, observed[order])
    expected = 20_000 * np.bincount(pools, prior[order])
    used = expected > 5
    assert observed[~used].sum() < 20
    observed, expected = observed[used], expected[used]
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3


def test_every_tree_may_have_its_own_graph():
    first, second = random_model([2] * 4, seed=2), random_model([2] * 4, seed=3)
    weights = np.concatenate([np.tile(m.weights, (8000, 1, 1)) for m in (first, second)])
    parents = sample_spanning_trees(weights, np.random.default_rng(1))
    for model, drawn in ((first, parents[:8000]), (second, parents[8000:])):
        trees, prior = prior_of_trees(model)
        observed = _observed(drawn, trees)
        assert np.abs(observed / 8000 - prior).max() < 0.025


def test_missing_edges_are_not_used():
    path = np.diag(np.ones(9), 1)
    parents = sample_spanning_trees(
        np.broadcast_to(path + path.T, (5, 10, 10)), np.random.default_rng(0)
    )
    edges = edges_of(parents)
    assert (np.abs(edges[:, :, 0] - edges[:, :, 1]) == 1).all()


def test_strongly_tied_vertices():
    weights = np.full((8, 8), 1.0)
    weights[:4, :4] = 1e5  # walks stay long inside this cluster
    np.fill_diagonal(weights, 0)
    parents = sample_spanning_trees(np.broadcast_to(weights, (50, 8, 8)), np.random.default_rng(0))
    inside = (edges_of(parents) < 4).all(axis=2).sum(axis=1)
    assert (inside == 3).all()


@pytest.mark.parametrize("n_trees", [0, 3])
def test_single_vertex(n_trees):
    parents = sample_spanning_trees(np.zeros((n_trees, 1, 1)), np.random.default_rng(0))
    np.testing.assert_array_equal(parents, np.full((n_trees, 1), -1))


def test_same_seed_same_trees():
    weights = np.broadcast_to(1 - np.eye(20), (10, 20, 20))
    one, two = (sample_spanning_trees(weights, np.random.default_rng(5)) for _ in range(2))
    np.testing.assert_array_equal(one, two)
