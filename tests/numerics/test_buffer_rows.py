"""Rows of a buffer."""

import numpy as np
import pytest

from skcircuits.numerics._arrays import Scatter, as_run


@pytest.mark.parametrize("targets", [[4, 5, 6], [6, 0, 3], [2, 2, 0, 2], [1]])
def test_contributions_are_added_to_their_rows(targets):
    contributions = np.random.default_rng(0).random((len(targets), 3))
    buffer, expected = np.ones((2, 8, 3))
    Scatter(np.array(targets)).add(buffer, contributions)
    np.add.at(expected, targets, contributions)
    np.testing.assert_allclose(buffer, expected, rtol=1e-15)


def test_runs_are_slices():
    assert as_run(np.array([2, 3])) == slice(2, 4)
    for rows in ([3, 2], [2, 2], [2, 4]):
        np.testing.assert_array_equal(as_run(np.array(rows)), rows)
