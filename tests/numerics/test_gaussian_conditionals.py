import numpy as np
import pytest

from skcircuits.circuits.inputs._gaussian_integrals import conditional_moments
from skcircuits.numerics._gaussian_stack import (
    complete_rows,
    conditional_blocks,
    conditional_mean,
    sample_conditional,
)
from tests.numerics.conftest import conditional, random_rows, random_stack


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("n_columns", [1, 3, 10])
def test_moments_against_the_textbook(n_columns, fraction):
    stack, X = random_stack(2, n_columns), random_rows(40, n_columns, fraction)
    means, variances = conditional_moments(stack, X)
    np.testing.assert_allclose(conditional_mean(stack, X), means, rtol=1e-12, atol=1e-14)
    for k in range(2):
        for i, x in enumerate(X):
            mean, spread = conditional(stack, k, x)
            np.testing.assert_allclose(means[k, i], mean, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(variances[k, i], np.diag(spread), rtol=1e-10, atol=1e-12)


def test_completed_rows_hold_the_same_moments():
    stack, X = random_stack(2, 4), random_rows(30, 4, 0.4)
    rows = complete_rows(stack, X)
    np.testing.assert_array_equal(rows.means.transpose(1, 2, 0), conditional_mean(stack, X))
    variances = np.einsum("ddkp->kpd", rows.covariances)[:, rows.pattern]
    np.testing.assert_allclose(variances, conditional_moments(stack, X)[1], rtol=1e-12)
    assert not rows.covariances[..., 0].any()


def test_observed_cells_are_repeated_exactly():
    stack, X = random_stack(2, 4), random_rows(30, 4, 0.4)
    seen = ~np.isnan(X)
    means, variances = conditional_moments(stack, X)
    for own in (means, conditional_mean(stack, X)):
        assert (own[:, seen] == X[seen]).all()
    assert (variances[:, seen] == 0.0).all()
    assert (variances[:, ~seen] > 0.0).all()


def test_blocks_cover_the_incomplete_rows_and_hold_their_covariances():
    stack, X = random_stack(2, 5), random_rows(50, 5, 0.4)
    covered = []
    for block in conditional_blocks(stack, X):
        group = block.group
        covered.append(group.rows)
        covariances = block.covariances.reshape(*block.covariances.shape[:2], 2, -1)
        precisions = block.half_log_precisions.reshape(2, -1)
        for row, pattern in zip(group.rows, group.pattern, strict=True):
            missing = group.missing[pattern]
            spread = conditional(stack, 1, X[row])[1][np.ix_(missing, missing)]
            np.testing.assert_allclose(covariances[:, :, 1, pattern], spread, atol=1e-12)
            expected = -0.5 * np.linalg.slogdet(spread)[1]
            np.testing.assert_allclose(precisions[1, pattern], expected, atol=1e-12)
    np.testing.assert_array_equal(
        np.sort(np.concatenate(covered)), np.flatnonzero(np.isnan(X).any(axis=1))
    )


def test_moments_do_not_depend_on_the_other_rows():
    stack, X = random_stack(1, 6), random_rows(30, 6, 0.4)
    together = conditional_mean(stack, X)
    for i in range(len(X)):
        np.testing.assert_array_equal(conditional_mean(stack, X[i : i + 1]), together[:, i : i + 1])


def test_draws_have_the_conditional_moments():
    stack = random_stack(2, 3)
    x = np.array([np.nan, 0.5, np.nan])
    n_draws = 40_000
    component = np.repeat([0, 1], n_draws)
    rows = np.tile(x, (2 * n_draws, 1))
    draws = sample_conditional(stack, component, rows, np.random.default_rng(0))
    assert (draws[:, 1] == 0.5).all()
    for k in range(2):
        mean, spread = conditional(stack, k, x)
        chosen = draws[component == k]
        error = np.sqrt(np.diag(spread).max() / n_draws)
        np.testing.assert_allclose(chosen.mean(axis=0), mean, atol=5 * error)
        np.testing.assert_allclose(np.cov(chosen.T), spread, atol=0.05 * spread.max())


def test_draws_of_mixed_patterns_echo_observed_cells_and_repeat():
    stack, X = random_stack(3, 4), random_rows(50, 4, 0.5)
    component = np.random.default_rng(0).integers(0, 3, 50)
    first, second = (
        sample_conditional(stack, component, X, np.random.default_rng(1)) for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)
    assert np.isfinite(first).all()
    seen = ~np.isnan(X)
    assert (first[seen] == X[seen]).all()
