from itertools import islice

import numpy as np
import pytest

from skcircuits.trees._chow_liu import chow_liu_tree, learn_tree_mixture
from skcircuits.trees._trees import StateLayout
from tests.trees.conftest import all_states


def _markov_chain(n_rows, n_variables, seed=0):
    rng = np.random.default_rng(seed)
    flips = rng.random((n_rows, n_variables)) < 0.15
    flips[:, 0] = rng.random(n_rows) < 0.5
    return np.logical_xor.accumulate(flips, axis=1).astype(int)


def _two_groups(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.random((n_rows, 1)) < 0.5
    return (rng.random((n_rows, 8)) < np.where(group, 0.9, 0.1)).astype(int)


def test_tree_of_a_chain_is_the_chain():
    tree = chow_liu_tree(_markov_chain(5000, 7), StateLayout([2] * 7))
    edges = {frozenset((v, p)) for v, p in enumerate(tree.parents) if p >= 0}
    assert edges == {frozenset((v, v + 1)) for v in range(6)}


@pytest.mark.parametrize("pseudo_count", [0.0, 1.0])
def test_tree_sums_to_one(pseudo_count):
    codes = np.random.default_rng(0).integers([2, 3, 2, 4], size=(30, 4))
    tree = chow_liu_tree(codes, StateLayout([2, 3, 2, 4]), pseudo_count=pseudo_count)
    log_prob = tree.log_prob(all_states([2, 3, 2, 4]))
    assert not np.isnan(log_prob).any()
    assert np.exp(log_prob).sum() == pytest.approx(1, abs=1e-12)


def test_impossible_rows_have_probability_zero():
    tree = chow_liu_tree(np.array([[0, 0], [1, 1]]), StateLayout([3, 2]), pseudo_count=0)
    assert np.isneginf(tree.log_prob(np.array([[2, 0], [0, 1]]))).all()


def test_likelihood_of_a_mixture_rises():
    codes = _two_groups(400)
    steps = learn_tree_mixture(codes, StateLayout([2] * 8), 2, np.random.default_rng(0))
    likelihoods = [mixture.log_prob(codes).mean() for mixture in islice(steps, 12)]
    # Smoothing is not part of the likelihood: tiny falls are possible near the end.
    assert (np.diff(likelihoods) > -1e-4).all()
    single = chow_liu_tree(codes, StateLayout([2] * 8)).log_prob(codes).mean()
    assert likelihoods[-1] > single + 0.3


def test_mixture_finds_the_groups():
    codes = _two_groups(600)
    steps = learn_tree_mixture(codes, StateLayout([2] * 8), 2, np.random.default_rng(1))
    *_, mixture = islice(steps, 10)
    high = [tree.statistics.nodes[1::2].mean() for tree in mixture.trees]
    assert sorted(np.round(high, 1)) == [0.1, 0.9]
    responsibilities = mixture.responsibilities(codes)
    np.testing.assert_allclose(responsibilities.sum(axis=1), 1)
    assert (responsibilities.max(axis=1) > 0.95).mean() > 0.9
    total = np.exp(mixture.log_prob(all_states([2] * 8))).sum()
    assert total == pytest.approx(1, abs=1e-12)


def test_weights_count_rows():
    codes = _two_groups(100)
    weight = np.random.default_rng(2).integers(1, 4, size=100)
    layout = StateLayout([2] * 8)
    weighted = chow_liu_tree(codes, layout, sample_weight=weight.astype(float))
    repeated = chow_liu_tree(np.repeat(codes, weight, axis=0), layout)
    np.testing.assert_array_equal(weighted.parents, repeated.parents)
    np.testing.assert_allclose(weighted.statistics.pairs, repeated.statistics.pairs)


def test_more_components_than_rows():
    steps = learn_tree_mixture(
        np.eye(3, dtype=int), StateLayout([2] * 3), 5, np.random.default_rng(0)
    )
    *_, mixture = islice(steps, 5)
    assert np.isfinite(mixture.log_prob(np.eye(3, dtype=int))).all()
