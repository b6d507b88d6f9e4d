import numpy as np
import pytest
from scipy.stats import chisquare

from skcircuits.trees._spanning_trees import sample_spanning_trees
from skcircuits.trees._trees import edges_of
from tests.trees.conftest import all_spanning_trees, prior_of_trees, random_model


def _draw(weights, n_trees, seed=0):
    graphs = np.zeros(n_trees, dtype=int)
    return sample_spanning_trees(weights[None], graphs, np.random.default_rng(seed).random)


def _observed(parents, trees):
    number = {frozenset(map(frozenset, tree)): i for i, tree in enumerate(trees)}
    drawn = [number[frozenset(map(frozenset, edges.tolist()))] for edges in edges_of(parents)]
    return np.bincount(drawn, minlength=len(trees))


def test_there_are_cayleys_many_trees():
    assert [len(all_spanning_trees(n)) for n in (1, 2, 3, 4, 5)] == [1, 1, 3, 16, 125]


def test_trees_have_their_probabilities():
    model = random_model([2] * 5, seed=1)
    trees, prior = prior_of_trees(model)
    observed = _observed(_draw(model.weights, 20_000), trees)
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
    weights = np.stack([first.weights, second.weights])
    graphs = np.repeat([0, 1], 8000)
    parents = sample_spanning_trees(weights, graphs, np.random.default_rng(1).random)
    for model, drawn in ((first, parents[:8000]), (second, parents[8000:])):
        trees, prior = prior_of_trees(model)
        observed = _observed(drawn, trees)
        assert np.abs(observed / 8000 - prior).max() < 0.025


def test_missing_edges_are_not_used():
    path = np.diag(np.ones(9), 1)
    parents = _draw(path + path.T, 5)
    edges = edges_of(parents)
    assert (np.abs(edges[:, :, 0] - edges[:, :, 1]) == 1).all()


def test_strongly_tied_vertices():
    weights = np.full((8, 8), 1.0)
    weights[:4, :4] = 1e5  # walks stay long inside this cluster
    np.fill_diagonal(weights, 0)
    parents = _draw(weights, 50)
    inside = (edges_of(parents) < 4).all(axis=2).sum(axis=1)
    assert (inside == 3).all()


@pytest.mark.parametrize("n_trees", [0, 3])
def test_single_vertex(n_trees):
    parents = _draw(np.zeros((1, 1)), n_trees)
    np.testing.assert_array_equal(parents, np.full((n_trees, 1), -1))


def test_same_seed_same_trees():
    one, two = (_draw(1 - np.eye(20), 10) for _ in range(2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("tie", [1.0, 1e7])
@pytest.mark.parametrize("n_moves", [-100, 1000])
def test_tied_pairs_and_trees_drawn_parent_by_parent(tie, n_moves, monkeypatch):
    # With -100 moves every tree is drawn parent by parent.
    monkeypatch.setattr("skcircuits.trees._spanning_trees._MOVES", n_moves)
    weights = random_model([2] * 5, seed=4).weights
    weights[[0, 1], [1, 0]] = weights[[2, 3], [3, 2]] = tie
    trees = all_spanning_trees(5)
    law = np.array([np.prod([weights[u, v] for u, v in tree]) for tree in trees])
    law /= law.sum()
    observed = _observed(_draw(weights, 20_000), trees)
    rare = 20_000 * law < 10
    assert observed[rare].sum() < 20_000 * law[rare].sum() + 30
    pooled = np.r_[observed[~rare], observed[rare].sum()]
    expected = np.r_[20_000 * law[~rare], 20_000 * law[rare].sum()]
    used = expected > 1
    assert (
        chisquare(pooled[used], expected[used] * pooled[used].sum() / expected[used].sum()).pvalue
        > 1e-3
    )


def test_many_tied_pairs_take_no_forever():
    weights = np.full((40, 40), 1.0)
    pairs = np.arange(40).reshape(20, 2)
    weights[pairs[:, 0], pairs[:, 1]] = weights[pairs[:, 1], pairs[:, 0]] = 1e9
    np.fill_diagonal(weights, 0.0)
    edges = np.sort(edges_of(_draw(weights, 300)), axis=2)
    is_tie = (edges[:, :, 1] == edges[:, :, 0] + 1) & (edges[:, :, 0] % 2 == 0)
    assert (is_tie.sum(axis=1) == 20).all()
    # Between the pairs all edges are alike.
    others = edges[~is_tie]
    counts = np.bincount(others.ravel(), minlength=40)
    assert chisquare(counts).pvalue > 1e-3
