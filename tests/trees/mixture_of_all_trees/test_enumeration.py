import numpy as np
import pytest

from skcircuits.trees.mixture_of_all_trees._conditionals import (
    enumerate_evidence,
    enumerate_marginals,
    n_completions,
)
from skcircuits.trees.mixture_of_all_trees._model import AllTreesMixture
from tests.trees.conftest import all_states, random_model


def _brute_force(mixture, factors):
    layout = mixture.components[0].layout
    states = all_states(layout.cardinalities)
    prob = np.exp(mixture.log_prob(states))
    joint = prob * factors[:, layout.flat(states)].prod(axis=2)
    total = joint.sum(axis=1)
    sums = joint @ layout.one_hot(states)
    return total, sums / np.where(total > 0, total, 1)[:, None]


def test_hard_and_soft_evidence(two_components):
    layout = two_components.components[0].layout
    rng = np.random.default_rng(0)
    hard = layout.evidence(rng.integers(-1, 2, size=(12, 4)))
    soft = rng.random((5, layout.n_states))
    factors = np.concatenate([hard, soft, soft * (rng.random(soft.shape) < 0.7)])
    total, marginals = _brute_force(two_components, factors)
    possible = total > 0
    np.testing.assert_allclose(
        np.exp(enumerate_evidence(two_components, factors[possible])), total[possible], rtol=1e-10
    )
    np.testing.assert_allclose(
        enumerate_marginals(two_components, factors[possible]), marginals[possible], atol=1e-12
    )


def test_numbers_of_completions(two_components):
    layout = two_components.components[0].layout
    evidence = layout.evidence(np.array([[-1, -1, 0, -1], [0, 0, 0, 0]]))
    assert n_completions(evidence, two_components).tolist() == [12, 1]


def test_too_many_completions():
    mixture = AllTreesMixture(np.zeros(1), [random_model([2] * 20)])
    with pytest.raises(ValueError, match=r"completions.*collapsed"):
        enumerate_evidence(mixture, np.ones((1, 40)))


def test_impossible_evidence(two_components):
    layout = two_components.components[0].layout
    assert np.isneginf(enumerate_evidence(two_components, np.zeros((1, layout.n_states)))).all()
