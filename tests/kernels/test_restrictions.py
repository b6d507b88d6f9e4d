"""Which rows are equal on a scope."""

import numpy as np
import pytest

from skcircuits.kernels._restrictions import Restriction


@pytest.mark.parametrize("seed", range(5))
def test_combined_is_the_restriction_to_all_columns(seed):
    X = np.random.default_rng(seed).choice([0.0, 1.0, np.nan], size=(30, 3))
    whole = Restriction.of_rows(X)
    combined = Restriction.combined([Restriction.of_rows(X[:, [j]]) for j in range(3)])
    assert combined.size == whole.size
    for restriction in (whole, combined):
        np.testing.assert_array_equal(X[restriction.first][restriction.inverse], X)


def test_numbers_follow_labels():
    restriction = Restriction.of(np.array([5, 2, 5]))
    np.testing.assert_array_equal(restriction.inverse, [1, 0, 1])
    np.testing.assert_array_equal(restriction.first, [1, 0])


def test_no_columns_and_no_rows():
    assert Restriction.of_rows(np.empty((3, 0))).size == 1
    assert Restriction.of_rows(np.empty((0, 2))).size == 0
