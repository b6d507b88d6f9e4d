"""Which numbers have a probability of their own."""

import numpy as np
import pytest

from skcircuits.learning._columns import MAX_GRID, describe_column


def described(values, **options):
    return describe_column(0, np.asarray(values, dtype=float), np.ones(len(values)), 0, **options)


@pytest.mark.parametrize(
    "points",
    [np.arange(-20, 21), np.arange(0, 300, 7), np.array([f"{k / 200:.3f}" for k in range(80)])],
)
def test_points_of_a_grid_are_the_numbers_that_were_recorded(points):
    points = points.astype(float)
    drawn = np.random.default_rng(0).choice(points, size=20 * len(points))
    column = described(np.append(drawn, points[[0, -1]]))
    assert column.is_grid
    np.testing.assert_array_equal(column.atoms, points)
    assert column.fractions.sum() == pytest.approx(1.0)
    assert column.resolution == pytest.approx(points[1] - points[0])


def test_a_grid_has_points_that_no_row_has():
    values = np.repeat([*range(15), 20], 30)
    column = described(values)
    np.testing.assert_array_equal(column.atoms, np.arange(21.0))


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).normal(size=5000),
        np.random.default_rng(0).integers(0, MAX_GRID + 10, size=50_000),
        np.random.default_rng(0).integers(0, 100, size=500),
        np.repeat(np.linspace(0.0, 1.0, 30) ** 2 / 3, 50),
    ],
    ids=["continuous", "too many points", "too few rows", "no decimals"],
)
def test_other_columns_have_densities(values):
    column = described(values)
    assert not column.is_grid
    assert column.is_smooth


def test_grids_are_left_to_densities_where_asked():
    values = np.random.default_rng(0).integers(0, 40, size=5000)
    assert described(values, point_masses="frequent").is_smooth
    assert described(values, point_masses=False).is_smooth


@pytest.mark.parametrize("n_rows", [1, 2, 8, 20])
def test_numbers_of_single_rows_are_no_point_masses(n_rows):
    """Though each of few rows is a large fraction of them."""
    cells = np.random.default_rng(n_rows).normal(size=n_rows)
    assert len(describe_column(0, cells, np.ones(n_rows), 0).atoms) == 0
    assert len(describe_column(0, np.append(cells, [0.3, 0.3]), np.ones(n_rows + 2), 0).atoms) <= 1
    # A row that weighs as much as several stands for them
    weights = np.append(np.ones(n_rows), 2.0)
    repeated = describe_column(0, np.append(cells, 0.3), weights, 0)
    assert repeated.atoms.tolist() in ([], [0.3])
