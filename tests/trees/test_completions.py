import numpy as np
import pytest

from skcircuits.trees._chow_liu import _thinned, chow_liu_tree, complete_rows, expected_tree
from skcircuits.trees._trees import StateLayout
from tests.trees.conftest import all_states

SIZES = (2, 3, 2, 4)


@pytest.fixture
def codes():
    rng = np.random.default_rng(0)
    cause = rng.integers(2, size=(300, 1))
    codes = (cause + (rng.random((300, 4)) < 0.2) * rng.integers(4, size=(300, 4))) % SIZES
    return np.where(rng.random(codes.shape) < 0.3, -1, codes)


def posterior(tree, row, states):
    """Probabilities of all rows of states given the observed cells of a row, by enumeration."""
    agrees = ((row < 0) | (row == states)).all(axis=1)
    weights = np.where(agrees, np.exp(tree.log_prob(states)), 0.0)
    return weights / weights.sum()


def test_fractions_of_few_completions_are_their_probabilities(codes):
    layout = StateLayout(SIZES)
    (rows,) = complete_rows([codes], layout)
    tree = expected_tree(codes, layout, sample_weight=np.ones(len(codes)))
    states = all_states(SIZES)
    few = np.prod(np.where(codes < 0, SIZES, 1), axis=1) <= 4
    assert 0.5 < few.mean() < 1.0
    for row, fractions in zip(codes[few], rows.fractions[few].toarray(), strict=True):
        expected = posterior(tree, row, states)
        found = np.zeros(len(states))
        found[np.ravel_multi_index(tuple(rows.codes.T), SIZES)] = fractions
        order = np.ravel_multi_index(tuple(states.T), SIZES)
        np.testing.assert_allclose(found[order], expected, atol=1e-12)


def test_completions_agree_with_observed_cells(codes):
    (rows,) = complete_rows([codes], StateLayout(SIZES))
    np.testing.assert_allclose(rows.fractions.sum(axis=1), 1.0, rtol=1e-12)
    assert np.diff(rows.fractions.indptr).max() == 4
    assert (rows.codes >= 0).all()
    parts = rows.fractions.tocoo()
    observed, complete = codes[parts.row], rows.codes[parts.col]
    assert ((observed < 0) | (observed == complete)).all()


def test_tables_are_those_of_expectation_maximisation(codes):
    layout, states = StateLayout(SIZES), all_states(SIZES)
    weight = np.random.default_rng(1).integers(1, 4, size=len(codes)).astype(float)
    tree = expected_tree(codes, layout, sample_weight=weight)
    # One more step by enumeration changes nothing that tolerance allows
    expected = sum(w * posterior(tree, row, states) for w, row in zip(weight, codes, strict=True))
    nodes, pairs = tree.statistics
    for parent, child in [(p, v) for v, p in enumerate(tree.parents) if p >= 0]:
        table = np.full((SIZES[parent], SIZES[child]), 1.0 / (SIZES[parent] * SIZES[child]))
        np.add.at(table, (states[:, parent], states[:, child]), expected)
        above, below = layout.owner == parent, layout.owner == child
        found = pairs[np.ix_(above, below)]
        np.testing.assert_allclose(found, table / (weight.sum() + 1), atol=5e-3)
        np.testing.assert_allclose(found.sum(axis=1), nodes[above], rtol=1e-12)
        np.testing.assert_allclose(found.sum(axis=0), nodes[below], rtol=1e-12)


def test_complete_rows_are_themselves(codes):
    complete = np.maximum(codes, 0)
    layout = StateLayout(SIZES)
    (rows,) = complete_rows([complete], layout)
    np.testing.assert_array_equal(rows.codes[rows.fractions.indices], complete)
    tree = expected_tree(complete, layout, sample_weight=np.ones(300))
    np.testing.assert_allclose(
        tree.log_prob(complete), chow_liu_tree(complete, layout).log_prob(complete), rtol=1e-12
    )


def test_weights_are_repeated_rows(codes):
    layout = StateLayout(SIZES)
    weight = np.random.default_rng(2).integers(0, 3, len(codes))
    kept = weight > 0
    (rows,) = complete_rows([codes[kept]], layout, sample_weight=weight[kept].astype(float))
    (repeated,) = complete_rows([np.repeat(codes, weight, axis=0)], layout)
    np.testing.assert_array_equal(rows.codes, repeated.codes)
    np.testing.assert_allclose(
        rows.totals(weight[kept].astype(float)), repeated.totals(np.ones(weight.sum())), rtol=1e-9
    )


def test_dependence_is_used():
    codes = np.repeat(np.random.default_rng(1).integers(2, size=(500, 1)), 3, axis=1)
    incomplete = codes.copy()
    incomplete[::2, 1] = -1
    (rows,) = complete_rows([incomplete], StateLayout([2, 2, 2]))
    is_same = (rows.codes == rows.codes[:, :1]).all(axis=1)
    assert rows.totals(np.ones(500))[is_same].sum() > 0.98 * 500


def test_rows_and_columns_without_any_cell():
    codes = np.array([[0, -1], [-1, -1], [1, -1]])
    (rows,) = complete_rows([codes], StateLayout([2, 1]))
    np.testing.assert_array_equal(rows.codes, [[0, 0], [1, 0]])
    np.testing.assert_allclose(rows.fractions.toarray(), [[1, 0], [0.5, 0.5], [0, 1]])


@pytest.mark.parametrize("size", [127, 128, 129, 300])
def test_columns_of_many_states(size):
    both = np.repeat(np.arange(size), 3)
    codes = np.stack([both, np.where(np.arange(3 * size) % 3, both, -1)], axis=1)
    (rows,) = complete_rows([codes], StateLayout([size, size]), pseudo_count=1e-9)
    most = rows.codes[rows.fractions.toarray().argmax(axis=1)]
    np.testing.assert_array_equal(most, np.stack([both, both], axis=1))


def test_thinned_weights_are_right_on_average():
    rng = np.random.default_rng(0)
    sizes = np.array([3, 9, 20])
    source = np.repeat(np.arange(3), sizes)
    weight = np.concatenate([rng.dirichlet(np.full(size, 0.5)) for size in sizes])
    total = np.zeros(len(source))
    for offset in np.arange(2000) / 2000 + 1 / 4000:
        kept, thinned = _thinned(source, weight, np.full(3, offset), 5)
        np.testing.assert_array_equal(np.bincount(source[kept]), [3, 5, 5])
        total[kept] += thinned / 2000
        # The heaviest stay as they are
        assert np.isin(np.flatnonzero(weight > 0.2), kept).all()
    np.testing.assert_allclose(total, weight, atol=2e-3)
