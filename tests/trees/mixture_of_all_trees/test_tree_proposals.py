import numpy as np
import pytest

from skcircuits.trees import (
    AllTreesMixture,
    MixtureOfAllTrees,
    TreeInference,
    TreeProposal,
    edges_of,
    enumerate_evidence,
    sample_spanning_trees,
)
from tests.trees.conftest import prior_of_trees, random_model


def _evidence(model, n_rows=6, seed=0, share=0.5):
    rng = np.random.default_rng(seed)
    codes = rng.integers(model.layout.cardinalities, size=(n_rows, model.layout.n_variables))
    codes[rng.random(codes.shape) > share] = -1
    return model.layout.evidence(codes)


def test_mass_is_the_sum_over_trees(mixed_model):
    evidence = np.vstack([_evidence(mixed_model), np.random.default_rng(1).random((2, 11))])
    proposal = TreeProposal(mixed_model, evidence)
    trees, prior = prior_of_trees(mixed_model)
    parents = np.array([_parents(tree, 4) for tree in trees])
    for row in range(len(evidence)):
        rows = np.full(len(trees), row)
        masses = prior * np.exp(proposal.log_evidence(parents, rows))
        assert np.log(masses.sum()) == pytest.approx(proposal.log_mass[row], abs=1e-12)


def _parents(tree, n_vertices):
    weights = np.zeros((n_vertices, n_vertices))
    for u, v in tree:
        weights[u, v] = weights[v, u] = 1
    only = np.zeros(1, dtype=int)
    return sample_spanning_trees(weights[None], only, np.random.default_rng(0))[0]


@pytest.mark.parametrize("observed", [0.0, 1.0])
def test_exact_when_nothing_or_everything_is_observed(observed):
    model = random_model([2, 3, 2, 2, 4], seed=1, scale=2.0)
    evidence = _evidence(model, share=observed)
    proposal = TreeProposal(model, evidence)
    exact = enumerate_evidence(AllTreesMixture(np.zeros(1), [model]), evidence)
    np.testing.assert_allclose(proposal.log_mass, exact, atol=1e-10)


def test_exact_when_one_cell_is_observed():
    model = random_model([2, 3, 2, 2, 4], seed=1, scale=2.0)
    evidence = np.ones((6, model.layout.n_states))
    evidence[np.arange(5), model.layout.offsets] = 0.0  # one state of one variable ruled out
    evidence[5, 2:5] = [0.5, 0.0, 0.2]
    proposal = TreeProposal(model, evidence)
    exact = enumerate_evidence(AllTreesMixture(np.zeros(1), [model]), evidence)
    np.testing.assert_allclose(proposal.log_mass, exact, atol=1e-10)


def test_two_rounds_come_closer_than_margins():
    model = random_model([2, 3, 4, 2, 3], seed=1, scale=2.5)
    evidence = _evidence(model, n_rows=30, share=0.6)
    refined = TreeProposal(model, evidence).weights
    margins = np.array([_weights_from_margins(model, factors) for factors in evidence])
    far, near = (_variances_of_weights(model, evidence, w) for w in (margins, refined))
    assert near.mean() < 0.7 * far.mean()


def _weights_from_margins(model, factors):
    """Edge weights with every variable at its own margin, by their definition."""
    allowed = model.nodes * factors
    allowed /= model.layout.sum_states(allowed)[model.layout.owner]
    mean_ratios = allowed[:, None] * model.ratios() * allowed
    return model.weights * model.layout.sum_states(model.layout.sum_states(mean_ratios).T)


def _variances_of_weights(model, evidence, laws):
    """Variance of P(T|e) / law(T) under the law, per row."""
    trees, prior = prior_of_trees(model)
    parents = np.array([_parents(tree, model.layout.n_variables) for tree in trees])
    inference = TreeInference(parents, model.layout, model.nodes, model.ratios(), evidence[None])
    posterior = prior[:, None] * np.exp(inference.log_evidence)
    posterior /= posterior.sum(axis=0)
    first, second = np.array(trees).transpose(2, 0, 1)
    law = laws[:, first, second].prod(axis=2).T
    law /= law.sum(axis=0)
    return (posterior**2 / law).sum(axis=0) - 1


def test_rows_do_not_depend_on_each_other():
    model = random_model([2, 3, 2, 2], seed=2)
    evidence = _evidence(model, n_rows=20)
    together = TreeProposal(model, evidence)
    alone = [TreeProposal(model, row[None]) for row in evidence]
    np.testing.assert_array_equal(together.weights, np.concatenate([p.weights for p in alone]))
    np.testing.assert_array_equal(together.log_mass, np.concatenate([p.log_mass for p in alone]))


def test_columns_in_any_order():
    model = random_model([2] * 6, seed=3)
    order = np.random.default_rng(0).permutation(6)
    states = (2 * order[:, None] + np.arange(2)).ravel()
    turned = MixtureOfAllTrees(
        model.layout,
        model.weights[order[:, None], order],
        model.nodes[states],
        model.pairs[states[:, None], states],
    )
    evidence = _evidence(model)
    expected = TreeProposal(model, evidence)
    proposal = TreeProposal(turned, evidence[:, states])
    np.testing.assert_allclose(proposal.log_mass, expected.log_mass, rtol=1e-12)
    np.testing.assert_allclose(
        proposal.weights, expected.weights[:, order[:, None], order], rtol=1e-10
    )


def test_edges_are_read_either_way():
    model = random_model([2, 3, 4], seed=0)
    proposal = TreeProposal(model, _evidence(model, n_rows=1))
    np.testing.assert_allclose(proposal.weights, proposal.weights.transpose(0, 2, 1), rtol=1e-12)
    down, up = np.array([[-1, 0, 1]]), np.array([[1, 2, -1]])
    assert edges_of(down).shape == edges_of(up).shape
    row = np.zeros(1, dtype=int)
    np.testing.assert_allclose(
        proposal.log_evidence(down, row), proposal.log_evidence(up, row), rtol=1e-12
    )


def test_a_weakly_connected_variable_costs_no_digits():
    tables = random_model([2] * 6, seed=1)
    weights = np.exp(9.0) * (1 - np.eye(6))
    weights[0, 1:] = weights[1:, 0] = np.exp(-9.0)
    model = MixtureOfAllTrees(tables.layout, weights, tables.nodes, tables.pairs)
    nothing = np.ones((1, model.layout.n_states))
    assert abs(TreeProposal(model, nothing).log_mass[0]) < 1e-12
