import numpy as np
import pytest

from skcircuits.learning.gaussian_mixture._table import (
    mapped_near_range,
    near_range,
    without_far,
)

BULK = np.random.default_rng(0).normal(5.0, 2.0, size=200)


@pytest.mark.parametrize("far", [[1e6], [-999.0] * 8, [9999.0, -1e4], [1e300], [np.inf]])
def test_few_numbers_far_from_all_others_are_outside(far):
    lower, upper = near_range(np.concatenate([BULK, far, [np.nan]]), np.ones(201 + len(far)))
    assert lower < BULK.min() and BULK.max() < upper
    assert not ((np.array(far) > lower) & (np.array(far) < upper)).any()


@pytest.mark.parametrize(
    "column",
    [
        BULK,
        np.exp(2.0 * BULK),  # heavy tails have no gap
        np.append(BULK, [30.0]),  # not ten times as far
        np.append(BULK, 500.0 + np.arange(20.0)),  # a cluster
        np.append(BULK, [500.0] * 20),  # a point mass
        np.append(np.arange(12.0), 1e6),  # few values
        np.append(np.zeros(300), [1.0, 50.0]),  # without a spread
        np.full(50, np.nan),
    ],
)
def test_other_numbers_are_near(column):
    assert near_range(column, np.ones(len(column))) == (-np.inf, np.inf)


def test_numbers_far_off_in_a_skewed_column_may_be_near_on_the_scale_of_its_logarithms():
    skewed, weights = np.append(np.exp(BULK / 2.0), 4000.0), np.ones(201)
    assert np.isfinite(near_range(skewed, weights)).all()
    assert mapped_near_range(skewed, weights) == (-np.inf, np.inf)
    skewed[-1] = 1e12  # not there either
    assert mapped_near_range(skewed, weights)[1] < 1e12
    # The normal ones are not bent
    column = np.append(BULK, 9999.0)
    np.testing.assert_allclose(mapped_near_range(column, weights), near_range(column, weights))


def test_weights_are_rows_and_neither_units_nor_origins_matter():
    column, weights = np.append(BULK, 4096.0), np.append(np.arange(200) % 3, 2.0)
    found = np.array(near_range(column, weights))
    repeated = np.repeat(column, weights.astype(int))
    np.testing.assert_array_equal(found, near_range(repeated, np.ones(len(repeated))))
    np.testing.assert_allclose(near_range(64.0 - 8.0 * column, weights), 64.0 - 8.0 * found[::-1])


def test_far_cells_become_missing():
    X = np.array([[1.0, 7.0], [1e6, np.nan]])
    near = np.array([[-10.0, -np.inf], [10.0, np.inf]])
    np.testing.assert_array_equal(without_far(X, near), [[1.0, 7.0], [np.nan, np.nan]])
