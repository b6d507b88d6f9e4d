import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skcircuits.trees.mixture_of_all_trees._learning import marginal_gradient, scale_to_marginals


def _problem(rng, n_tables, n_rows, n_columns, scale):
    tables = np.exp(scale * rng.normal(size=(n_tables, n_rows, n_columns)))
    rows = rng.dirichlet(np.ones(n_rows), size=n_tables)
    columns = rng.dirichlet(np.ones(n_columns), size=n_tables)
    return tables, rows, columns


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (3, 3), (5, 4), (3, 1), (1, 1)])
def test_margins_are_met(shape):
    tables, rows, columns = _problem(np.random.default_rng(0), 20, *shape, scale=2.0)
    scaled = scale_to_marginals(tables, rows, columns)
    np.testing.assert_allclose(scaled.sum(axis=2), rows, atol=1e-14)
    np.testing.assert_allclose(scaled.sum(axis=1), columns, atol=1e-14)
    assert (scaled > 0).all()


@pytest.mark.parametrize("shape", [(3, 4), (2, 2)])
def test_equals_alternating_scaling(shape):
    tables, rows, columns = _problem(np.random.default_rng(1), 5, *shape, scale=1.0)
    expected = tables.copy()
    for _ in range(3000):
        expected *= (rows / expected.sum(axis=2))[:, :, None]
        expected *= (columns / expected.sum(axis=1))[:, None, :]
    np.testing.assert_allclose(scale_to_marginals(tables, rows, columns), expected, rtol=1e-10)


def test_covers_every_positive_table():
    # A table scaled to its own marginals stays itself: every consistent table is reached.
    rng = np.random.default_rng(2)
    tables = rng.dirichlet(np.full(12, 0.3), size=50).reshape(50, 4, 3) + 1e-9
    tables /= tables.sum(axis=(1, 2), keepdims=True)
    scaled = scale_to_marginals(tables, tables.sum(axis=2), tables.sum(axis=1))
    np.testing.assert_allclose(scaled, tables, rtol=1e-12)


def test_odds_ratios_are_kept():
    tables, rows, columns = _problem(np.random.default_rng(3), 30, 2, 2, scale=3.0)
    scaled = scale_to_marginals(tables, rows, columns)

    def log_odds(t):
        return np.log(t[:, 0, 0]) + np.log(t[:, 1, 1]) - np.log(t[:, 0, 1]) - np.log(t[:, 1, 0])

    np.testing.assert_allclose(log_odds(scaled), log_odds(tables), rtol=1e-9)


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10_000),
    scale=st.floats(0.0, 6.0),
    rarest=st.floats(-14.0, -0.5),
    n_states=st.integers(2, 5),
)
def test_extreme_tables_and_margins(seed, scale, rarest, n_states):
    rng = np.random.default_rng(seed)
    tables, rows, columns = _problem(rng, 4, n_states, n_states, scale)
    rows[:, 0] = columns[:, -1] = np.exp(rarest)
    rows /= rows.sum(axis=1, keepdims=True)
    columns /= columns.sum(axis=1, keepdims=True)
    scaled = scale_to_marginals(np.clip(tables, np.exp(-12), np.exp(12)), rows, columns)
    np.testing.assert_allclose(scaled.sum(axis=2), rows, atol=1e-13)
    np.testing.assert_allclose(scaled.sum(axis=1), columns, atol=1e-13)


def test_impossible_tables_are_refused():
    tables = np.array([[[1.0, 0.0], [1.0, 0.0]]])
    half = np.array([[0.5, 0.5]])
    with np.errstate(all="ignore"), pytest.raises(FloatingPointError, match="scalable"):
        scale_to_marginals(tables, half, half)


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (3, 3), (4, 3)])
def test_gradient_equals_finite_differences(shape):
    rng = np.random.default_rng(4)
    tables, rows, columns = _problem(rng, 3, *shape, scale=1.0)
    weights = rng.normal(size=tables.shape)

    def value(logits, rows, columns):
        return (weights * np.log(scale_to_marginals(np.exp(logits), rows, columns))).sum()

    logits = np.log(tables)
    scaled = scale_to_marginals(tables, rows, columns)
    by_logits, by_rows, by_columns = marginal_gradient(scaled, rows, weights)
    step = 1e-5
    for _ in range(5):
        d_logits = rng.normal(size=tables.shape)
        d_rows, d_columns = rng.normal(size=rows.shape), rng.normal(size=columns.shape)
        # Marginals move so that they keep summing to one.
        d_rows -= d_rows.mean(axis=1, keepdims=True)
        d_columns -= d_columns.mean(axis=1, keepdims=True)
        d_rows, d_columns = 0.01 * d_rows, 0.01 * d_columns
        up = value(logits + step * d_logits, rows + step * d_rows, columns + step * d_columns)
        down = value(logits - step * d_logits, rows - step * d_rows, columns - step * d_columns)
        slope = (by_logits * d_logits).sum()
        slope += (by_rows * d_rows).sum() + (by_columns * d_columns).sum()
        assert slope == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-7)


def test_gradient_ignores_row_and_column_scales():
    rng = np.random.default_rng(5)
    tables, rows, columns = _problem(rng, 4, 3, 3, scale=1.0)
    scaled = scale_to_marginals(tables, rows, columns)
    by_logits, _, _ = marginal_gradient(scaled, rows, rng.normal(size=tables.shape))
    np.testing.assert_allclose(by_logits.sum(axis=1), 0, atol=1e-13)
    np.testing.assert_allclose(by_logits.sum(axis=2), 0, atol=1e-13)
