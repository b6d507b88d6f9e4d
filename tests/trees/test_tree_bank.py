import numpy as np
import pytest
from scipy.stats import chisquare

from skcircuits.trees import (
    AllTreesMixture,
    TreeBank,
    enumerate_evidence,
    enumerate_marginals,
    sample_rows,
    sample_trees,
)
from tests.trees.conftest import all_states, random_model


@pytest.fixture
def evidence(two_components):
    rows = np.array([[0, -1, 1, -1], [-1, 2, -1, -1], [1, 0, 1, 0], [-1, -1, -1, -1]])
    return two_components.components[0].layout.evidence(rows)


def test_evidence_is_unbiased_and_close(two_components, evidence):
    exact = enumerate_evidence(two_components, evidence)
    bank = TreeBank(two_components, 4000, np.random.default_rng(0))
    np.testing.assert_allclose(np.exp(bank.log_evidence(evidence)), np.exp(exact), rtol=0.05)
    small = [
        np.exp(TreeBank(two_components, 4, np.random.default_rng(s)).log_evidence(evidence))
        for s in range(400)
    ]
    mean, error = np.mean(small, axis=0), np.std(small, axis=0) / 20
    assert (np.abs(mean - np.exp(exact)) < 4 * error + 1e-12).all()


def test_nothing_observed_has_probability_one(two_components, evidence):
    bank = TreeBank(two_components, 10, np.random.default_rng(0))
    assert bank.log_evidence(evidence)[-1] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("collapsed", [True, False])
def test_marginals_within_their_errors(two_components, evidence, collapsed):
    exact = enumerate_marginals(two_components, evidence)
    rng = np.random.default_rng(1)
    bank = TreeBank(two_components, 3000, rng)
    estimate = bank.marginals(evidence, None if collapsed else rng)
    error = np.abs(estimate.probabilities - exact)
    assert (error <= 4.5 * estimate.standard_errors + 1e-9).all()
    assert error.max() < 0.05
    assert (estimate.effective_sample_size <= 3001).all()
    sums = two_components.components[0].layout.sum_states(estimate.probabilities)
    np.testing.assert_allclose(sums, 1, atol=1e-10)


def test_collapsed_has_smaller_errors(two_components, evidence):
    rng = np.random.default_rng(2)
    bank = TreeBank(two_components, 500, rng)
    collapsed, plain = bank.marginals(evidence), bank.marginals(evidence, rng)
    open_cells = plain.standard_errors > 1e-12
    assert (collapsed.standard_errors[open_cells] < plain.standard_errors[open_cells]).all()


def test_completions_follow_the_bank(two_components, evidence):
    rng = np.random.default_rng(3)
    bank = TreeBank(two_components, 200, rng)
    drawn = bank.sample(evidence, 5000, rng)
    assert drawn.shape == (5000, 4, 4)
    np.testing.assert_array_equal(drawn[:, 2], np.tile([1, 0, 1, 0], (5000, 1)))
    layout = bank.layout
    expected = bank.marginals(evidence).probabilities
    shares = layout.one_hot(drawn.reshape(-1, 4)).reshape(5000, 4, -1).mean(axis=0)
    np.testing.assert_allclose(shares, expected, atol=0.035)


def test_chunks_do_not_matter(two_components, evidence):
    from sklearn import config_context

    bank = TreeBank(two_components, 50, np.random.default_rng(4))
    whole = bank.marginals(np.tile(evidence, (30, 1)))
    with config_context(working_memory=0.05):
        parts = bank.marginals(np.tile(evidence, (30, 1)))
    for one, two in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-14)


def test_one_component_uses_all_trees():
    mixture = AllTreesMixture(np.zeros(1), [random_model([2] * 6)])
    bank = TreeBank(mixture, 32, np.random.default_rng(0))
    assert bank.parents.shape == (32, 6)
    np.testing.assert_allclose(np.exp(bank.log_weights).sum(), 1)


def test_complete_rows_average_to_the_likelihood():
    # On complete rows the average over many trees approaches the determinant.
    mixture = AllTreesMixture(np.zeros(1), [random_model([2] * 4, seed=8, scale=0.5)])
    states = all_states([2] * 4)
    bank = TreeBank(mixture, 20_000, np.random.default_rng(0))
    estimate = bank.log_evidence(bank.layout.evidence(states))
    np.testing.assert_allclose(estimate, mixture.log_prob(states), atol=0.05)


def test_trees_of_given_components(two_components):
    parents = sample_trees(two_components, np.array([1, 0, 1]), np.random.default_rng(0))
    assert parents.shape == (3, 4)
    assert ((parents >= 0).sum(axis=1) == 3).all()


def test_sampled_rows_follow_the_model(two_components):
    rows = sample_rows(two_components, 20_000, np.random.default_rng(0))
    cardinalities = two_components.cardinalities
    expected = 20_000 * np.exp(two_components.log_prob(all_states(cardinalities)))
    number = np.ravel_multi_index(rows.T, tuple(cardinalities))
    observed = np.bincount(number, minlength=len(expected))
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-3
