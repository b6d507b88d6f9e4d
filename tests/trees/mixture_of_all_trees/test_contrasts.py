import numpy as np
import pytest

from skcircuits.trees import from_contrasts, sum_contrasts, to_contrasts

SHAPES = [(2, 2), (3, 2), (5, 4), (1, 3), (1, 1)]


@pytest.fixture(params=SHAPES)
def contrasts(request):
    n_rows, n_columns = request.param
    return np.random.default_rng(0).normal(size=(6, n_rows - 1, n_columns - 1)), request.param


def test_every_table_without_margins_has_its_contrasts(contrasts):
    contrasts, shape = contrasts
    tables = from_contrasts(contrasts, shape)
    np.testing.assert_allclose(tables.sum(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(tables.sum(axis=2), 0, atol=1e-14)
    np.testing.assert_allclose(to_contrasts(tables), contrasts, atol=1e-14)


def test_functions_of_the_row_or_column_do_not_count(contrasts):
    contrasts, shape = contrasts
    rng = np.random.default_rng(1)
    margins = rng.normal(size=(6, shape[0], 1)) + rng.normal(size=(6, 1, shape[1]))
    tables = from_contrasts(contrasts, shape) + margins
    np.testing.assert_allclose(to_contrasts(tables), contrasts, atol=1e-14)


def test_the_sum_is_the_adjoint(contrasts):
    contrasts, shape = contrasts
    tables = np.random.default_rng(1).normal(size=(6, *shape))
    there = (from_contrasts(contrasts, shape) * tables).sum()
    back = (contrasts * sum_contrasts(tables)).sum()
    assert there == pytest.approx(back, abs=1e-13)


def test_a_coordinate_moves_no_cell_further_than_itself():
    for shape in SHAPES:
        n_contrasts = (shape[0] - 1) * (shape[1] - 1)
        units = np.eye(n_contrasts).reshape(n_contrasts, shape[0] - 1, shape[1] - 1)
        assert np.abs(from_contrasts(units, shape)).max(initial=0) <= 1 + 1e-15
