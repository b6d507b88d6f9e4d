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
