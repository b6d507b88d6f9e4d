import tracemalloc

import numpy as np
import pytest

from skcircuits.trees._chow_liu import complete_rows
from skcircuits.trees._trees import StateLayout
from skcircuits.trees.mixture_of_all_trees._conditionals import (
    enumerate_evidence,
    enumerate_marginals,
)
from skcircuits.trees.mixture_of_all_trees._evidence import (
    cell_beliefs,
    estimate_conditionals,
    estimate_evidence,
    estimate_from_completions,
    estimate_from_trees,
)
from skcircuits.trees.mixture_of_all_trees._learning import (
    Schedule,
    learn_all_trees,
    start_training,
)
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture
from tests.trees.conftest import random_model


def incomplete_rows(layout, n_rows, rate, seed=0):
    rng = np.random.default_rng(seed)
    codes = rng.integers(layout.cardinalities, size=(n_rows, layout.n_variables))
    return np.where(rng.random(codes.shape) < rate, -1, codes)


def test_completions_are_unbiased(two_components):
    rng = np.random.default_rng(1)
    hard = two_components.layout.evidence(np.array([[0, -1, 1, -1], [-1, 2, -1, -1]]))
    evidence = np.concatenate([hard, rng.random((2, hard.shape[1]))])
    beliefs = cell_beliefs(two_components, evidence)
    draws = [
        np.exp(estimate_from_completions(two_components, evidence, beliefs, 6, seed))
        for seed in range(200)
    ]
    mean, error = np.mean(draws, axis=0), np.std(draws, axis=0) / np.sqrt(200)
    exact = np.exp(enumerate_evidence(two_components, evidence))
    assert (np.abs(mean - exact) < 4 * error + 1e-12).all()
    assert (error < 0.06 * exact).all()


def latent_model(n_variables):
    """Columns that follow one hidden cause: what trees explain badly, each with its own edges."""
    rng = np.random.default_rng(0)
    cause = rng.random((600, 1)) < 0.5
    rows = (rng.random((600, n_variables)) < np.where(cause, 0.85, 0.2)).astype(np.int64)
    layout = StateLayout([2] * n_variables)
    (completions,) = complete_rows([rows], layout)
    training = start_training(completions, layout, 1, rng)
    (epoch,) = learn_all_trees(training, completions, rng, Schedule(1, 0.05, 64))
    return epoch.mixture


def test_few_completions_beat_many_trees():
    mixture = latent_model(24)
    evidence = mixture.layout.evidence(incomplete_rows(mixture.layout, 20, 0.3))
    exact = enumerate_evidence(mixture, evidence)
    by_completions = estimate_evidence(mixture, evidence, 64, seed=0) - exact
    by_trees = estimate_from_trees(mixture, evidence, 64, seed=0) - exact
    assert np.std(by_completions) < 0.7 * np.std(by_trees)


@pytest.mark.parametrize("n_variables", [6, 14])
def test_few_observed_cells_are_left_to_trees(n_variables):
    mixture = latent_model(n_variables)
    evidence = mixture.layout.evidence(incomplete_rows(mixture.layout, 20, 0.65))
    exact = enumerate_evidence(mixture, evidence)
    by_completions = estimate_from_completions(
        mixture, evidence, cell_beliefs(mixture, evidence), 256 // (n_variables // 6), seed=0
    )
    errors = estimate_evidence(mixture, evidence, 256, seed=0) - exact
    assert np.std(errors) < 0.5 * np.std(by_completions - exact)


def test_spread_grows_with_the_variance_of_the_weights():
    mixture = latent_model(14)
    rows = [incomplete_rows(mixture.layout, 4, rate) for rate in (0.1, 0.35, 0.6, 0.9)]
    evidence = mixture.layout.evidence(np.concatenate(rows))
    beliefs = cell_beliefs(mixture, evidence)
    exact = enumerate_evidence(mixture, evidence)
    weights = [
        np.exp(estimate_from_completions(mixture, evidence, beliefs, 1, seed) - exact)
        for seed in range(150)
    ]
    found = np.log(np.square(weights).mean(axis=0)).reshape(4, 4).mean(axis=1)
    assert (np.diff(found) > 0).all()
    assert (np.diff(beliefs.log_spread.reshape(4, 4).mean(axis=1)) > 0).all()


def test_beliefs_about_many_states_take_little_memory():
    """Ratios to all states of 29 rows took 170 MB."""
    mixture = AllTreesMixture(np.zeros(1), [random_model([800] + [2] * 10)])
    evidence = mixture.layout.evidence(np.full((30, 11), -1))
    tracemalloc.start()
    beliefs = cell_beliefs(mixture, evidence)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80e6
    np.testing.assert_allclose(beliefs.states[0, 0], beliefs.states[0, -1], rtol=1e-12)


@pytest.mark.parametrize("n_observed", [0, 1])
def test_nothing_or_one_observed_is_exact(n_observed):
    mixture = AllTreesMixture(np.zeros(1), [random_model([2] * 8, seed=1)])
    codes = np.full((1, 8), -1)
    codes[0, :n_observed] = 1
    evidence = mixture.layout.evidence(codes)
    estimate = estimate_evidence(mixture, evidence, 2, seed=0)
    np.testing.assert_allclose(estimate, enumerate_evidence(mixture, evidence), atol=1e-10)


def test_conditionals_are_exact_up_to_their_errors():
    rng = np.random.default_rng(3)
    layout = StateLayout([2, 3] * 5)
    mixture = AllTreesMixture(np.zeros(1), [random_model(layout.cardinalities, 1)])
    codes = incomplete_rows(layout, 12, 0.5, seed=4)
    codes[0] = -1
    codes[1] = 0
    evidence = layout.evidence(codes)
    exact = enumerate_marginals(mixture, evidence)
    found = estimate_conditionals(mixture, evidence, 2000, rng)
    np.testing.assert_allclose(layout.sum_states(found.probabilities), 1)
    assert (np.abs(found.probabilities - exact) <= 5 * found.standard_errors + 1e-9).all()
    assert np.abs(found.probabilities - exact).max() < 0.04
    np.testing.assert_allclose(found.probabilities[1], exact[1], atol=1e-12)


@pytest.mark.parametrize("bound", [np.inf, -np.inf])
def test_both_ways_give_the_same_conditionals(monkeypatch, bound):
    module = "skcircuits.trees.mixture_of_all_trees._evidence"
    monkeypatch.setattr(f"{module}._MAX_LOG_SPREAD", bound)
    rng = np.random.default_rng(5)
    layout = StateLayout([2] * 8)
    mixture = AllTreesMixture(np.zeros(1), [random_model(layout.cardinalities, 1)])
    evidence = layout.evidence(incomplete_rows(layout, 6, 0.4, seed=6))
    found = estimate_conditionals(mixture, evidence, 3000, rng)
    exact = enumerate_marginals(mixture, evidence)
    np.testing.assert_allclose(found.probabilities, exact, atol=0.05)
