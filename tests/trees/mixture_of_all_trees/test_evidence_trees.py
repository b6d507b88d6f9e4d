import numpy as np
import pytest
from sklearn import config_context

from skcircuits.trees._spanning_trees import sample_spanning_trees
from skcircuits.trees._trees import TreeInference, edges_of
from skcircuits.trees.mixture_of_all_trees._conditionals import (
    enumerate_evidence,
    enumerate_marginals,
)
from skcircuits.trees.mixture_of_all_trees._evidence import (
    TreeProposal,
    estimate_evidence,
    estimate_marginals,
    sample_completions,
)
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture, MixtureOfAllTrees
from tests.trees.conftest import all_states, prior_of_trees, random_model

ROWS = np.array([[0, -1, 1, -1], [-1, 2, -1, -1], [1, 0, 1, 0], [-1, -1, -1, -1]])


@pytest.fixture
def evidence(two_components):
    hard = two_components.layout.evidence(ROWS)
    soft = np.random.default_rng(0).random((2, hard.shape[1]))
    return np.concatenate([hard, soft])


def test_evidence_is_unbiased_and_close(two_components, evidence):
    exact = np.exp(enumerate_evidence(two_components, evidence))
    close = np.exp(estimate_evidence(two_components, evidence, 4000, seed=0))
    np.testing.assert_allclose(close, exact, rtol=0.05)
    rough = [np.exp(estimate_evidence(two_components, evidence, 4, seed=s)) for s in range(400)]
    mean, error = np.mean(rough, axis=0), np.std(rough, axis=0) / 20
    assert (np.abs(mean - exact) < 4 * error + 1e-12).all()


def test_complete_and_empty_rows_are_exact():
    models = [random_model([2, 3, 2, 2, 3], seed=seed, scale=2.0) for seed in (5, 6)]
    mixture = AllTreesMixture(np.log([0.4, 0.6]), models)
    states = all_states([2, 3, 2, 2, 3])
    estimate = estimate_evidence(mixture, mixture.layout.evidence(states), 2, seed=0)
    np.testing.assert_allclose(estimate, mixture.log_prob(states), rtol=1e-10)
    empty = estimate_evidence(mixture, np.ones((1, mixture.layout.n_states)), 2, seed=0)
    assert empty[0] == pytest.approx(0, abs=1e-10)


def test_one_missing_cell_is_nearly_exact():
    mixture = AllTreesMixture(np.zeros(1), [random_model([2] * 12, seed=7, scale=1.5)])
    codes = np.random.default_rng(0).integers(2, size=(40, 12))
    codes[np.arange(40), np.arange(40) % 12] = -1
    evidence = mixture.layout.evidence(codes)
    error = estimate_evidence(mixture, evidence, 256, seed=0) - enumerate_evidence(
        mixture, evidence
    )
    assert np.abs(error).max() < 0.1


def test_cells_in_wide_sets_of_states_are_nearly_exact():
    mixture = AllTreesMixture(np.zeros(1), [random_model([5] * 6, seed=7, scale=1.5)])
    allowed = np.random.default_rng(0).random((30, 6, 5)) < 0.7
    allowed[:, :, 2] = True
    evidence = allowed.reshape(30, -1).astype(float)
    error = estimate_evidence(mixture, evidence, 256, seed=0) - enumerate_evidence(
        mixture, evidence
    )
    assert np.abs(error).max() < 0.03


def test_a_row_does_not_depend_on_its_neighbours(two_components, evidence):
    together = estimate_evidence(two_components, evidence, 50, seed=3)
    alone = [estimate_evidence(two_components, row[None], 50, seed=3)[0] for row in evidence]
    np.testing.assert_array_equal(together, alone)
    with config_context(working_memory=0.01):
        chunks = estimate_evidence(two_components, evidence, 50, seed=3)
    np.testing.assert_array_equal(together, chunks)
    assert together[0] != estimate_evidence(two_components, evidence[:1], 50, seed=4)[0]


def test_impossible_evidence(two_components):
    evidence = np.zeros((1, two_components.layout.n_states))
    assert np.isneginf(estimate_evidence(two_components, evidence, 5, seed=0)).all()


@pytest.mark.parametrize("from_prior", [True, False])
@pytest.mark.parametrize("collapsed", [True, False])
def test_marginals_within_their_errors(two_components, evidence, collapsed, from_prior):
    exact = enumerate_marginals(two_components, evidence)
    rng = np.random.default_rng(1)
    estimate = estimate_marginals(
        two_components, evidence, 3000, rng, collapsed=collapsed, from_prior=from_prior
    )
    error = np.abs(estimate.probabilities - exact)
    assert (error <= 4.5 * estimate.standard_errors + 1e-9).all()
    assert error.max() < 0.05
    assert (estimate.effective_sample_size <= 3000 * (1 + 1e-9)).all()
    sums = two_components.layout.sum_states(estimate.probabilities)
    np.testing.assert_allclose(sums, 1, atol=1e-10)


def test_trees_of_the_prior_ignore_the_evidence(two_components, evidence):
    """Their weights are the probabilities of the evidence given each tree, which differ more."""
    posterior, prior = (
        estimate_marginals(
            two_components, evidence, 500, np.random.default_rng(2), from_prior=from_prior
        )
        for from_prior in (False, True)
    )
    observed = (evidence == 0).any(axis=1)
    ratio = prior.effective_sample_size[observed] / posterior.effective_sample_size[observed]
    assert ratio.max() < 1.0
    nothing = np.ones((1, evidence.shape[1]))
    unweighted = estimate_marginals(
        two_components, nothing, 50, np.random.default_rng(2), from_prior=True
    )
    np.testing.assert_allclose(unweighted.effective_sample_size, 50, rtol=1e-9)


def test_collapsed_has_smaller_errors(two_components, evidence):
    collapsed, plain = (
        estimate_marginals(two_components, evidence, 500, np.random.default_rng(2), collapsed=c)
        for c in (True, False)
    )
    is_open = plain.standard_errors > 1e-12
    # Where a variable is mostly a child of the root, both average nearly the same numbers.
    ratio = collapsed.standard_errors[is_open] / plain.standard_errors[is_open]
    assert ratio.max() < 1.05
    assert ratio.mean() < 0.8


def test_completions_follow_the_marginals(two_components):
    evidence = two_components.layout.evidence(ROWS)
    drawn = sample_completions(two_components, evidence, 5000, 2000, np.random.default_rng(3))
    assert drawn.shape == (5000, 4, 4)
    np.testing.assert_array_equal(drawn[:, 2], np.tile([1, 0, 1, 0], (5000, 1)))
    expected = enumerate_marginals(two_components, evidence)
    fractions = (
        two_components.layout.one_hot(drawn.reshape(-1, 4)).reshape(5000, 4, -1).mean(axis=0)
    )
    np.testing.assert_allclose(fractions, expected, atol=0.04)


def test_no_rows(two_components):
    none = np.empty((0, two_components.layout.n_states))
    assert estimate_evidence(two_components, none, 5, seed=0).shape == (0,)
    drawn = sample_completions(two_components, none, 3, 5, np.random.default_rng(0))
    assert drawn.shape == (3, 0, 4)


def test_single_column():
    mixture = AllTreesMixture(np.zeros(1), [random_model([3])])
    evidence = mixture.layout.evidence(np.array([[-1], [2]]))
    np.testing.assert_allclose(
        np.exp(estimate_evidence(mixture, evidence, 3, seed=0)),
        [1, mixture.components[0].nodes[2]],
    )


def _evidence(model, n_rows=6, seed=0, fraction=0.5):
    rng = np.random.default_rng(seed)
    codes = rng.integers(model.layout.cardinalities, size=(n_rows, model.layout.n_variables))
    codes[rng.random(codes.shape) > fraction] = -1
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
    return sample_spanning_trees(weights[None], only, np.random.default_rng(0).random)[0]


@pytest.mark.parametrize("observed", [0.0, 1.0])
def test_exact_when_nothing_or_everything_is_observed(observed):
    model = random_model([2, 3, 2, 2, 4], seed=1, scale=2.0)
    evidence = _evidence(model, fraction=observed)
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
    evidence = _evidence(model, n_rows=30, fraction=0.6)
    refined = TreeProposal(model, evidence).weights
    marginals = np.array([_weights_from_margins(model, factors) for factors in evidence])
    far, near = (_variances_of_weights(model, evidence, w) for w in (marginals, refined))
    assert near.mean() < 0.7 * far.mean()


def _weights_from_margins(model, factors):
    """Edge weights with every variable at its own marginal, by their definition."""
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
