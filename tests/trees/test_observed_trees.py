import numpy as np
import pytest

from skcircuits.circuits import Categorical, is_deterministic, is_structured_decomposable
from skcircuits.circuits.structure.units import rebuild
from skcircuits.trees._chow_liu import (
    TreeMixture,
    chow_liu_tree,
    learn_tree_mixture,
    mixture_circuit,
    mutual_information,
    observed_information,
    observed_tree,
    pair_statistics,
)
from skcircuits.trees._trees import StateLayout, conditional_tables

SIZES = [2, 3, 2, 4]


@pytest.fixture
def codes():
    rng = np.random.default_rng(0)
    first = rng.integers(2, size=200)
    noise = rng.integers(0, SIZES, size=(200, 4))
    return np.where(rng.random((200, 4)) < 0.6, first[:, None], noise)


def test_complete_rows_give_plain_mutual_information(codes):
    layout = StateLayout(SIZES)
    plain = mutual_information(pair_statistics(codes, layout), layout)
    np.testing.assert_allclose(observed_information(codes, layout), plain, atol=1e-12)


def test_pairs_count_where_both_cells_are_observed(codes):
    layout = StateLayout(SIZES)
    incomplete = codes.copy()
    incomplete[:120, 0] = -1
    incomplete[150:, 3] = -1
    weight = np.linspace(0.5, 2.0, len(codes))
    actual = observed_information(incomplete, layout, sample_weight=weight)
    for u in range(4):
        for v in range(u):
            both = (incomplete[:, u] >= 0) & (incomplete[:, v] >= 0)
            pair = StateLayout([SIZES[v], SIZES[u]])
            part = pair_statistics(codes[both][:, [v, u]], pair, sample_weight=weight[both])
            assert actual[u, v] == pytest.approx(mutual_information(part, pair)[0, 1], abs=1e-12)


def test_pairs_never_observed_together_carry_no_information():
    codes = np.array([[0, -1], [1, -1], [-1, 0], [-1, 1]])
    information = observed_information(codes, StateLayout([2, 2]))
    np.testing.assert_allclose(information, 0.0, atol=1e-12)


def test_circuits_of_trees_and_mixtures(codes):
    layout = StateLayout(SIZES)
    tree = chow_liu_tree(codes, layout)
    circuit = mixture_circuit(TreeMixture(np.zeros(1), [tree]))
    np.testing.assert_allclose(circuit.log_prob(codes.astype(float)), tree.log_prob(codes))
    assert is_deterministic(circuit)
    assert is_structured_decomposable(circuit)
    mixture = next(learn_tree_mixture(codes, layout, 3, np.random.default_rng(0)))
    several = mixture_circuit(mixture)
    np.testing.assert_allclose(several.log_prob(codes.astype(float)), mixture.log_prob(codes))


def test_observed_tree_of_complete_rows_is_the_chow_liu_tree(codes):
    layout = StateLayout(SIZES)
    tree, observed = chow_liu_tree(codes, layout), observed_tree(codes, layout)
    np.testing.assert_array_equal(observed.parents, tree.parents)
    np.testing.assert_allclose(observed.log_prob(codes), tree.log_prob(codes), rtol=1e-12)


def test_rows_without_both_cells_count_as_independent(codes):
    layout = StateLayout(SIZES)
    incomplete = np.where(np.random.default_rng(1).random(codes.shape) < 0.3, -1, codes)
    tree = observed_tree(incomplete, layout)
    for child in np.flatnonzero(tree.parents >= 0):
        parent = tree.parents[child]
        both = (incomplete[:, [parent, child]] >= 0).all(axis=1)
        seen = [incomplete[incomplete[:, v] >= 0, v] for v in (parent, child)]
        sizes = SIZES[parent], SIZES[child]
        first, second = (
            (np.bincount(own, minlength=size) + 1 / size) / (len(own) + 1)
            for own, size in zip(seen, sizes, strict=True)
        )
        table = np.full(sizes, 1 / np.prod(sizes))
        np.add.at(table, tuple(incomplete[both][:, [parent, child]].T), 1.0)
        table *= both.mean() / (both.sum() + 1)
        table += (1 - both.mean()) * np.outer(first, second)
        nodes, pairs = tree.statistics
        above, below = layout.owner == parent, layout.owner == child
        given = pairs[np.ix_(above, below)] / nodes[above, None]
        np.testing.assert_allclose(given, table / table.sum(axis=1, keepdims=True))
        np.testing.assert_allclose(pairs[np.ix_(above, below)].sum(axis=0), nodes[below])


def test_rebuilding_keeps_sharing(codes):
    layout = StateLayout(SIZES)
    circuit = mixture_circuit(TreeMixture(np.zeros(1), [chow_liu_tree(codes, layout)]))
    made = {}

    def copy(leaf):
        return made.setdefault(id(leaf), Categorical(leaf.variable, leaf.probabilities))

    again = rebuild(circuit.root, copy)
    assert again is not circuit.root
    assert rebuild(circuit.root, lambda leaf: leaf) is circuit.root
    np.testing.assert_array_equal(
        type(circuit)(again).log_prob(codes.astype(float)), circuit.log_prob(codes.astype(float))
    )
    assert type(circuit)(again).n_units == circuit.n_units


def test_any_table_stands_below_states_without_probability():
    layout = StateLayout([3, 2])
    tree = chow_liu_tree(np.array([[0, 0], [1, 1]]), layout, pseudo_count=0.0)
    below = conditional_tables(layout, *tree.statistics, np.array([-1, 0]))[1]
    np.testing.assert_allclose(below, [[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
