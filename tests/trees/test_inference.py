import numpy as np
import pytest
from scipy.stats import chisquare

from skcircuits.trees._spanning_trees import sample_spanning_trees
from skcircuits.trees._trees import TreeInference
from tests.trees.conftest import all_states, random_model, tree_prob


@pytest.fixture
def setting(mixed_model):
    rng = np.random.default_rng(0)
    parents = sample_spanning_trees(mixed_model.weights[None], np.zeros(6, dtype=int), rng.random)
    states = all_states(mixed_model.layout.cardinalities)
    prob = np.stack(
        [
            tree_prob(mixed_model, [(v, p) for v, p in enumerate(tree) if p >= 0], states)
            for tree in parents
        ]
    )
    evidence = mixed_model.layout.evidence(
        np.array([[0, -1, 1, -1], [-1, -1, -1, -1], [1, 2, 0, 3], [-1, 1, -1, -1]])
    )
    return mixed_model, parents, states, prob, evidence


def _infer(model, parents, evidence):
    return TreeInference(parents, model.layout, model.nodes, model.ratios(), evidence)


def _weights(model, states, evidence):
    """Product of the factors of each row at each state, (n_rows, n_states)."""
    return evidence[:, model.layout.flat(states)].prod(axis=2)


def test_evidence(setting):
    model, parents, states, prob, evidence = setting
    inference = _infer(model, parents, evidence[None])
    expected = prob @ _weights(model, states, evidence).T
    np.testing.assert_allclose(np.exp(inference.log_evidence), expected, rtol=1e-12)


def test_soft_evidence(setting):
    model, parents, states, prob, _ = setting
    factors = np.random.default_rng(1).random((5, model.layout.n_states))
    inference = _infer(model, parents, factors[None])
    expected = prob @ _weights(model, states, factors).T
    np.testing.assert_allclose(np.exp(inference.log_evidence), expected, rtol=1e-12)


def test_marginals(setting):
    model, parents, states, prob, evidence = setting
    marginals = _infer(model, parents, evidence[None]).marginals()
    joint = prob[:, None, :] * _weights(model, states, evidence)
    expected = joint @ model.layout.one_hot(states) / joint.sum(axis=2, keepdims=True)
    np.testing.assert_allclose(marginals, expected, atol=1e-12)


def test_rows_of_each_tree(setting):
    model, parents, _, _, evidence = setting
    own = evidence[np.array([0, 1, 2, 3, 0, 1])][:, None, :]
    together = _infer(model, parents, evidence[None])
    single = _infer(model, parents, own)
    picked = together.log_evidence[np.arange(6), [0, 1, 2, 3, 0, 1]]
    np.testing.assert_allclose(single.log_evidence[:, 0], picked, rtol=1e-12, atol=1e-14)


def test_samples(setting):
    model, parents, states, prob, evidence = setting
    rows = np.repeat(evidence[[0]], 20_000, axis=0)
    codes = _infer(model, parents[:1], rows[None]).sample(np.random.default_rng(0))[0]
    joint = prob[0] * _weights(model, states, evidence[[0]])[0]
    possible = joint > 0
    number = np.ravel_multi_index(codes.T, tuple(model.layout.cardinalities))
    observed = np.bincount(number, minlength=len(states))
    assert observed[~possible].sum() == 0
    expected = 20_000 * joint[possible] / joint.sum()
    assert chisquare(observed[possible], expected).pvalue > 1e-3


def test_conditionals_are_what_samples_are_drawn_from(setting):
    model, parents, states, prob, evidence = setting
    inference = _infer(model, parents, evidence[None])
    codes = inference.sample(np.random.default_rng(0))
    conditionals = inference.conditionals(codes)
    layout = model.layout
    joint = prob[:, None, :] * _weights(model, states, evidence)
    for tree, row, child in np.ndindex(len(parents), len(evidence), layout.n_variables):
        parent = parents[tree, child]
        agrees = (parent < 0) | (states[:, parent] == codes[tree, row, parent])
        fractions = np.bincount(states[:, child], joint[tree, row] * agrees)
        own = conditionals[tree, row, layout.owner == child]
        np.testing.assert_allclose(own, fractions / fractions.sum(), atol=1e-12)


def test_conditionals_average_to_the_marginals(setting):
    model, parents, _, _, evidence = setting
    parents = np.repeat(parents, 3000, axis=0)
    inference = _infer(model, parents, evidence[None, :1])
    codes = inference.sample(np.random.default_rng(0))
    draws = inference.conditionals(codes)[:, 0]
    rows = model.layout.one_hot(codes[:, 0])
    expected = inference.marginals()[:, 0]
    np.testing.assert_allclose(_tree_means(draws), _tree_means(expected), atol=0.02)
    assert (draws - expected).std() < 0.8 * (rows - expected).std()


def _tree_means(values):
    return values.reshape(-1, 3000, values.shape[1]).mean(axis=1)


def test_impossible_evidence(setting):
    model, parents, _, _, _ = setting
    inference = _infer(model, parents, np.zeros((1, 1, model.layout.n_states)))
    assert np.isneginf(inference.log_evidence).all()


def test_large_hub_does_not_underflow():
    model = random_model([2] * 600, seed=0, scale=2.0)
    star = np.zeros((1, 600), dtype=np.int64)
    star[0, 0] = -1
    codes = np.random.default_rng(0).integers(2, size=(3, 600))
    inference = _infer(model, star, model.layout.evidence(codes)[None])
    flat = model.layout.flat(codes)
    expected = np.log(model.nodes[flat]).sum(axis=1)
    expected += np.log(model.ratios()[flat[:, :1], flat[:, 1:]]).sum(axis=1)
    np.testing.assert_allclose(inference.log_evidence[0], expected, rtol=1e-10)
