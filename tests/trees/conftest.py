"""Small models and the brute force they are compared with."""

import itertools

import numpy as np
import pytest

from skcircuits.trees._trees import StateLayout
from skcircuits.trees.mixture_of_all_trees._learning import Parameterization
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture


def all_states(cardinalities):
    """Every complete row, shape (n_states, n_variables)."""
    return np.array(list(itertools.product(*map(range, cardinalities))))


def all_spanning_trees(n_vertices):
    """Edge lists of all spanning trees of the complete graph."""
    edges = list(itertools.combinations(range(n_vertices), 2))
    return [tree for tree in itertools.combinations(edges, n_vertices - 1) if _is_tree(tree)]


def _is_tree(edges):
    component = {}
    for u, v in edges:
        a, b = component.get(u, {u}), component.get(v, {v})
        if a is b or v in a:
            return False
        merged = a | b
        component.update(dict.fromkeys(merged, merged))
    return True


def tree_prob(model, tree, states):
    """Probability of complete rows under one tree, by its definition."""
    flat = model.layout.flat(states)
    prob = model.nodes[flat].prod(axis=1)
    for u, v in tree:
        pair = model.pairs[flat[:, u], flat[:, v]]
        prob = prob * pair / (model.nodes[flat[:, u]] * model.nodes[flat[:, v]])
    return prob


def prior_of_trees(model):
    """All spanning trees and their probabilities."""
    trees = all_spanning_trees(model.layout.n_variables)
    weights = np.array([np.prod([model.weights[u, v] for u, v in tree]) for tree in trees])
    return trees, weights / weights.sum()


def random_model(cardinalities, seed=0, scale=1.0):
    """A model with normally distributed parameters."""
    parameterization = Parameterization(StateLayout(cardinalities))
    rng = np.random.default_rng(seed)
    return parameterization.model(scale * rng.normal(size=parameterization.size))


@pytest.fixture
def mixed_model():
    return random_model([2, 3, 2, 4], seed=3)


@pytest.fixture
def two_components():
    models = [random_model([2, 3, 2, 2], seed=seed) for seed in (5, 6)]
    return AllTreesMixture(np.log([0.3, 0.7]), models)
