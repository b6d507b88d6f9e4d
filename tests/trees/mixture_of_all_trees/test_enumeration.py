import numpy as np
import pytest

from skcircuits.trees.mixture_of_all_trees._conditionals import (
    _ascend,
    _Neighbourhood,
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


def _neighbours(mixture, evidence, codes):
    """All rows that differ in one cell and are allowed, and their flat states."""
    layout = mixture.layout
    states = np.setdiff1d(np.flatnonzero(evidence), layout.flat(codes))
    rows = np.tile(codes, (len(states), 1))
    rows[np.arange(len(states)), layout.owner[states]] = layout.own_state[states]
    return states, rows


@pytest.mark.parametrize("scale", [0.5, 3.0])
def test_changes_of_one_cell_stay_below_their_bounds(scale):
    models = [random_model([2, 3, 2, 4, 2, 2], seed, scale) for seed in range(2)]
    mixture = AllTreesMixture(np.log([0.3, 0.7]), models)
    neighbourhood = _Neighbourhood(mixture)
    for codes in all_states(mixture.cardinalities)[::7]:
        states, rows = _neighbours(mixture, np.ones(mixture.layout.n_states), codes)
        exact = mixture.log_prob(rows)
        np.testing.assert_allclose(neighbourhood.log_prob(rows), exact, rtol=1e-12)
        assert (neighbourhood.bounds(codes, states) >= exact - 1e-9).all()


def test_search_takes_the_best_change_until_none_helps():
    mixture = AllTreesMixture(np.zeros(1), [random_model([2] * 20 + [3] * 4, 1)])
    rng = np.random.default_rng(0)
    evidence = rng.uniform(0.2, 1.0, mixture.layout.n_states)

    def score(rows):
        return mixture.log_prob(rows) + np.log(evidence)[mixture.layout.flat(rows)].sum(axis=1)

    for start in rng.integers(0, 2, (5, 24)):
        found, reached = _ascend(_Neighbourhood(mixture), evidence, start)
        best, value = start, score(start[None])[0]
        while True:
            _, rows = _neighbours(mixture, evidence, best)
            scores = score(rows)
            if not scores.max() > value:
                break
            best, value = rows[scores.argmax()], scores.max()
        np.testing.assert_array_equal(found, best)
        np.testing.assert_allclose(reached, value, rtol=1e-12)
