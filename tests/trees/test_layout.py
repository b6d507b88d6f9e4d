import numpy as np
import pytest

from skcircuits.trees._trees import StateLayout


def test_groups_cover_every_pair_once():
    layout = StateLayout([2, 3, 2, 4])
    pairs = {frozenset(pair) for pair in zip(*layout.pairs, strict=True)}
    assert len(layout.pairs[0]) == len(pairs) == 6
    for group in layout.pair_groups:
        assert (layout.cardinalities[group.first] == group.shape[1]).all()
        assert (layout.cardinalities[group.second] == group.shape[2]).all()
        assert group.shape[1] >= group.shape[2]


def test_tables_and_matrix_are_inverse():
    layout = StateLayout([2, 3, 1, 3])
    rng = np.random.default_rng(0)
    tables = [rng.random(group.shape) for group in layout.pair_groups]
    matrix = layout.state_matrix(tables)
    np.testing.assert_array_equal(matrix, matrix.T)
    for group, table in zip(layout.pair_groups, tables, strict=True):
        np.testing.assert_array_equal(matrix[group.rows, group.columns], table)
    values = rng.random(6)
    np.testing.assert_array_equal(layout.pair_values(layout.pair_matrix(values)), values)


def test_one_hot_and_evidence_of_missing_cells():
    layout = StateLayout([2, 3])
    codes = np.array([[1, -1], [-1, 2]])
    np.testing.assert_array_equal(layout.one_hot(codes), [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1]])
    np.testing.assert_array_equal(layout.evidence(codes), [[0, 1, 1, 1, 1], [1, 1, 0, 0, 1]])
    np.testing.assert_array_equal(layout.sum_states(layout.evidence(codes)), [[1, 3], [2, 1]])


def test_single_variable_has_no_pairs():
    layout = StateLayout([3])
    assert layout.pair_groups == () and len(layout.pairs[0]) == 0
    assert layout.state_matrix([]).shape == (3, 3)


@pytest.mark.parametrize("cardinalities", [[], [2, 0], [[2, 2]]])
def test_bad_cardinalities(cardinalities):
    with pytest.raises(ValueError, match="cardinalities must"):
        StateLayout(cardinalities)
