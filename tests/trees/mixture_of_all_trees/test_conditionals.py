from itertools import count

import numpy as np
import pytest

from skcircuits.trees import conditional_marginals

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
        for n in (32, 3200)
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
