import numpy as np

from skcircuits.trees import StateLayout, complete_rows


def test_observed_cells_stay_and_holes_are_filled():
    rng = np.random.default_rng(0)
    codes = rng.integers([2, 3, 4], size=(50, 3))
    holes = np.where(rng.random(codes.shape) < 0.3, -1, codes)
    complete = complete_rows(holes, StateLayout([2, 3, 4]), rng)
    np.testing.assert_array_equal(complete[holes >= 0], holes[holes >= 0])
    assert (complete >= 0).all() and (complete < [2, 3, 4]).all()


def test_dependence_is_used():
    rng = np.random.default_rng(1)
    codes = np.repeat(rng.integers(2, size=(500, 1)), 3, axis=1)
    holes = codes.copy()
    holes[::2, 1] = -1
    complete = complete_rows(holes, StateLayout([2, 2, 2]), rng)
    assert (complete == codes).mean() > 0.98


def test_rows_and_columns_without_any_cell():
    codes = np.array([[0, -1], [-1, -1], [1, -1]])
    complete = complete_rows(codes, StateLayout([2, 1]), np.random.default_rng(0))
    assert (complete[:, 1] == 0).all()


def test_complete_rows_are_returned_as_they_are():
    codes = np.array([[0, 1], [1, 0]])
    np.testing.assert_array_equal(
        complete_rows(codes, StateLayout([2, 2]), np.random.default_rng(0)), codes
    )
