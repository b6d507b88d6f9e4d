from itertools import count, islice

import numpy as np
import pytest
from scipy.stats import chisquare

from skcircuits.trees.mixture_of_all_trees._conditionals import (
    blocked_gibbs,
    conditional_marginals,
    single_site_gibbs,
)
from tests.trees.conftest import all_states

METHODS = ["collapsed", "importance", "blocked_gibbs", "gibbs"]
ROWS = np.array([[0, -1, 1, -1], [-1, 2, -1, -1], [-1, -1, -1, -1], [1, 0, 0, 1]])


@pytest.mark.parametrize("method", METHODS)
def test_agrees_with_enumeration(two_components, method):
    rng = np.random.default_rng(0)
    exact = conditional_marginals(two_components, ROWS, "exact", 0, rng)
    estimate = conditional_marginals(two_components, ROWS, method, 3000, rng)
    error = np.abs(estimate.probabilities - exact.probabilities)
    assert (error <= 5 * estimate.standard_errors + 1e-9).all()
    assert error.max() < 0.04


@pytest.mark.parametrize("method", [*METHODS, "exact"])
def test_observed_cells_are_certain(two_components, method):
    rng = np.random.default_rng(1)
    estimate = conditional_marginals(two_components, ROWS, method, 50, rng)
    layout = two_components.components[0].layout
    np.testing.assert_allclose(estimate.probabilities[3], layout.one_hot(ROWS)[3], atol=1e-12)
    np.testing.assert_allclose(estimate.standard_errors[3], 0, atol=1e-12)
    assert np.isfinite(estimate.probabilities).all()
    assert (estimate.effective_sample_size > 0).all()


@pytest.mark.parametrize("method", METHODS)
def test_errors_shrink_with_samples(two_components, method):
    few, many = (
        conditional_marginals(two_components, ROWS[:3], method, n, np.random.default_rng(2))
        for n in (32, 1600)
    )
    assert many.standard_errors.sum() < 0.3 * few.standard_errors.sum()
    assert (many.effective_sample_size > few.effective_sample_size).all()


@pytest.mark.parametrize("method", METHODS)
def test_standard_errors_are_those_of_repetitions(two_components, method):
    rng = np.random.default_rng(3)
    exact = conditional_marginals(two_components, ROWS[:2], "exact", 0, rng).probabilities
    answers = [conditional_marginals(two_components, ROWS[:2], method, 48, rng) for _ in range(20)]
    squares = sum((answer.probabilities - exact) ** 2 for answer in answers)
    expected = sum(answer.standard_errors**2 for answer in answers)
    assert 0.6 < np.sqrt(squares.sum() / expected.sum()) < 1.5


@pytest.mark.parametrize("method", ["blocked_gibbs", "gibbs"])
def test_first_sweeps_of_chains_do_not_count(two_components, method, monkeypatch):
    def late(mixture, start, missing, rng):
        """Chains that are far away during their first sweeps."""
        for sweep in count():
            yield np.full_like(start, int(sweep >= 20))

    sampler = "blocked_gibbs" if method == "blocked_gibbs" else "single_site_gibbs"
    monkeypatch.setattr(f"skcircuits.trees.mixture_of_all_trees._conditionals.{sampler}", late)
    rng = np.random.default_rng(0)
    # 16 chains of 100 sweeps
    estimate = conditional_marginals(two_components, ROWS[2:3], method, 1600, rng)
    layout = two_components.components[0].layout
    np.testing.assert_array_equal(estimate.probabilities, layout.one_hot(np.ones((1, 4), int)))


def _chains(mixture, sampler, row, n_chains, n_sweeps):
    missing = np.tile(row < 0, (n_chains, 1))
    start = np.tile(np.maximum(row, 0), (n_chains, 1))
    sweeps = sampler(mixture, start, missing, np.random.default_rng(0))
    return list(islice(sweeps, n_sweeps))


@pytest.mark.parametrize("sampler", [blocked_gibbs, single_site_gibbs])
def test_chains_agree_with_enumeration(two_components, sampler):
    row = np.array([-1, 1, -1, -1])
    codes = _chains(two_components, sampler, row, n_chains=20_000, n_sweeps=8)[-1]
    layout = two_components.components[0].layout
    states = all_states(layout.cardinalities)
    weights = np.exp(two_components.log_prob(states)) * (states[:, 1] == 1)
    number = np.ravel_multi_index(codes.T, tuple(layout.cardinalities))
    observed = np.bincount(number, minlength=len(states))
    possible = weights > 0
    assert observed[~possible].sum() == 0
    expected = 20_000 * weights[possible] / weights.sum()
    assert chisquare(observed[possible], expected).pvalue > 1e-3


@pytest.mark.parametrize("sampler", [blocked_gibbs, single_site_gibbs])
def test_observed_cells_stay(two_components, sampler):
    row = np.array([1, -1, 0, -1])
    for codes in _chains(two_components, sampler, row, n_chains=10, n_sweeps=3):
        assert (codes[:, [0, 2]] == [1, 0]).all()


def test_yielded_rows_are_not_overwritten(two_components):
    sweeps = _chains(two_components, blocked_gibbs, np.full(4, -1), n_chains=30, n_sweeps=2)
    assert sweeps[0] is not sweeps[1]
    assert (sweeps[0] != sweeps[1]).any()
