import numpy as np
import pytest
from sklearn import config_context

from skcircuits.trees import (
    AllTreesMixture,
    enumerate_evidence,
    enumerate_marginals,
    estimate_evidence,
    estimate_marginals,
    sample_completions,
)
from tests.trees.conftest import all_states, random_model

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


@pytest.mark.parametrize("collapsed", [True, False])
def test_marginals_within_their_errors(two_components, evidence, collapsed):
    exact = enumerate_marginals(two_components, evidence)
    rng = np.random.default_rng(1)
    estimate = estimate_marginals(two_components, evidence, 3000, rng, collapsed=collapsed)
    error = np.abs(estimate.probabilities - exact)
    assert (error <= 4.5 * estimate.standard_errors + 1e-9).all()
    assert error.max() < 0.05
    assert (estimate.effective_sample_size <= 3000 * (1 + 1e-9)).all()
    sums = two_components.layout.sum_states(estimate.probabilities)
    np.testing.assert_allclose(sums, 1, atol=1e-10)


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
    shares = two_components.layout.one_hot(drawn.reshape(-1, 4)).reshape(5000, 4, -1).mean(axis=0)
    np.testing.assert_allclose(shares, expected, atol=0.04)


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
