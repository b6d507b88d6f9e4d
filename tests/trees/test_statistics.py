import numpy as np
import pytest
from sklearn.metrics import mutual_info_score

from skcircuits.trees._chow_liu import mutual_information, pair_statistics
from skcircuits.trees._trees import StateLayout


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    first = rng.integers(3, size=200)
    second = (first + rng.integers(2, size=200)) % 3 // 2
    return np.column_stack([first, second, rng.integers(4, size=200)])


LAYOUT = StateLayout([3, 2, 4])


@pytest.mark.parametrize("pseudo_count", [0.0, 1.0, 7.5])
def test_pair_tables_have_the_margins(table, pseudo_count):
    nodes, pairs = pair_statistics(table, LAYOUT, pseudo_count=pseudo_count)
    np.testing.assert_allclose(LAYOUT.sum_states(nodes), 1)
    np.testing.assert_allclose(LAYOUT.sum_states(pairs), np.tile(nodes[:, None], 3), atol=1e-15)
    np.testing.assert_array_equal(pairs, pairs.T)


def test_counts(table):
    nodes, pairs = pair_statistics(table, LAYOUT, pseudo_count=2.0)
    expected = (((table[:, 0] == 1) & (table[:, 2] == 3)).sum() + 2 / 12) / 202
    assert pairs[1, 8] == pytest.approx(expected)
    assert nodes[1] == pytest.approx(((table[:, 0] == 1).sum() + 2 / 3) / 202)


def test_weights_count_rows(table):
    weight = np.random.default_rng(1).integers(4, size=200)
    weighted = pair_statistics(table, LAYOUT, sample_weight=weight.astype(float))
    repeated = pair_statistics(np.repeat(table, weight, axis=0), LAYOUT)
    np.testing.assert_allclose(weighted.pairs, repeated.pairs)


def test_mutual_information_is_scikit_learns(table):
    information = mutual_information(pair_statistics(table, LAYOUT, pseudo_count=0), LAYOUT)
    for u in range(3):
        for v in range(u):
            expected = mutual_info_score(table[:, u], table[:, v])
            assert information[u, v] == pytest.approx(expected, abs=1e-12)
            assert information[v, u] == pytest.approx(expected, abs=1e-12)
    assert (np.diag(information) == 0).all()


def test_constant_and_equal_columns():
    codes = np.array([[0, 0, 1], [1, 1, 1], [0, 0, 1]])
    layout = StateLayout([2, 2, 2])
    information = mutual_information(pair_statistics(codes, layout, pseudo_count=0), layout)
    entropy = -(np.log(1 / 3) / 3 + np.log(2 / 3) * 2 / 3)
    np.testing.assert_allclose(information[0], [0, entropy, 0], atol=1e-15)


@pytest.mark.parametrize("weighted", [False, True])
def test_pairs_of_many_states_are_counted(weighted):
    rng = np.random.default_rng(0)
    cardinalities = np.array([90, 2, 40])
    codes = rng.integers(0, cardinalities, size=(200, 3))
    weight = rng.random(200) if weighted else np.ones(200)
    found = pair_statistics(
        codes, StateLayout(cardinalities), sample_weight=weight, pseudo_count=0.5
    )
    total = weight.sum() + 0.5
    for u, v in ((0, 1), (0, 2), (1, 2)):
        table = np.full((cardinalities[u], cardinalities[v]), 0.5 / cardinalities[[u, v]].prod())
        np.add.at(table, (codes[:, u], codes[:, v]), weight)
        starts = np.cumsum([0, *cardinalities])
        block = found.pairs[starts[u] : starts[u + 1], starts[v] : starts[v + 1]]
        np.testing.assert_allclose(block, table / total, rtol=1e-12)
    first = found.pairs[:90, :90]
    np.testing.assert_array_equal(first, np.diag(found.nodes[:90]))
    assert isinstance(found.pairs, np.ndarray)
